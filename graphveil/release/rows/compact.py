"""Contributions in 16 bits and their sums, compiled: the integers of the plain way in half of its memory.

A sum over neighbors waits for memory. Contributions are whole numbers of at most 2^14, so a source's row in
16-bit integers is half as long as in float32: twice as many fit into the cache, and one line of it holds two
rows of sixteen columns. Eight edges are added together, in 16 bits as long as these hold their sum, and then
in 32. What a row lacks of eight is made up by a row of zeros, which costs less than a loop that may end
anywhere. Columns are filled up to a power of two, which compiles to whole registers, and no row lies on more
lines than it must. Rows of a table that is too large for the nearer caches are asked for ahead of their turn
(decision 090).
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from graphveil._aligned import aligned
from graphveil._llvm import Code, Compiled, can_compile, compile_for_host
from graphveil._row_pass import RowPass, row_pass
from graphveil._util.caches import second_level
from graphveil.data.blocks import EdgeBlock
from graphveil.release.weights.compiled.edge_loop import Names, over_edges
from graphveil.release.weights.compiled.layout import power_of_two

MAX_BITS = 14  # of the largest entry of a contribution: with its sign it fits in 16
MAX_WIDTH = 128  # columns whose sums stay in registers
_TOGETHER = 8  # edges
_LINE = 32  # columns of a line of the cache
_AHEAD = 128  # edges whose rows are on their way into the second level of the cache
_NEAR = (
    second_level() // 2
)  # bytes of a table that is likely there already, beside all else that a hop touches
_SUM_BITS = 30  # sums stay below, so that noise of 24 bits can be added in 32
_ROWS_A_THREAD = 1 << 12


@dataclass(frozen=True, eq=False, repr=False)
class CompactRows:
    """Contributions as whole numbers: int16 (count + 1, width), filled up with columns and a row of zeros."""

    rows: Tensor
    dim: int
    bits: int

    @classmethod
    def empty(cls, count: int, dim: int, bits: int) -> "CompactRows":
        """Return memory for so many rows."""
        rows = aligned(count + 1, power_of_two(dim), dtype=torch.int16)
        rows[-1] = 0
        return cls(rows, dim, bits)

    def fits(self, count: int, dim: int, bits: int) -> bool:
        """Whether this is memory for such rows."""
        return (self.count, self.dim, self.bits) == (count, dim, bits)

    @property
    def count(self) -> int:
        """How many rows there are; after them comes the row of zeros."""
        return self.rows.shape[0] - 1

    @property
    def plain(self) -> Tensor:
        """The contributions in float32, (count, dim)."""
        return self.rows[:-1, : self.dim].to(torch.float32)

    def fill(self, vectors: Tensor, bounds: Tensor, kinds: Tensor | None) -> None:
        """Write truncated contributions: a copy of all for each column of the bounds.

        Row i of copy h is trunc(bounds[kind of i, h] vectors[i]); one that is longer than its bound, which
        only a vector longer than one or without a length is, counts for nothing.

        Args:
            vectors: floats, (N, dim).
            bounds: float64, (kinds, copies).
            kinds: the sources' kinds, int64 (N); None for 0.
        """
        double = vectors.dtype == torch.float64
        vectors = vectors.to(torch.float64 if double else torch.float32).contiguous()
        (count, dim), bounds = vectors.shape, bounds.contiguous()
        own = bounds if kinds is None else kinds.contiguous()  # not read if there is one kind
        fill = _filling(self.rows.shape[1], self.dim, double, kinds is not None)
        columns = (
            (vectors.data_ptr(), dim * vectors.itemsize),
            (bounds.data_ptr(), 0),
            (own.data_ptr(), own.itemsize),
            (self.rows.data_ptr(), self.rows.shape[1] * self.rows.itemsize),
        )
        fill(count, (count, bounds.shape[1]), columns, count // _ROWS_A_THREAD)

    def add_sums(
        self, edges: EdgeBlock, shift: Tensor | None, noise: Tensor, scale: float, out: Tensor
    ) -> bool:
        """Write the sums over a block's edges with their noise; whether it did: not if a row is too long.

        Args:
            edges: the block.
            shift: what is added to the sources of each row's edges, int32 (rows); None for nothing.
            noise: whole numbers, int32 (rows, dim).
            scale: what they are multiplied by, a power of two.
            out: the noisy sums, float32 (rows, dim), each rounded once.
        """
        run = self.adding(edges, shifted=shift is not None)
        if run is None:
            return False
        shifts, bits = edges.offsets if shift is None else shift, int(np.float32(scale).view(np.int32))
        given = (edges.offsets, edges.sources, shifts, self.rows, noise, out)
        run(len(edges), self.count, bits, len(edges.sources) - 1, *(part.data_ptr() for part in given))
        return True

    def adding(self, edges: EdgeBlock, *, shifted: bool) -> Compiled | None:
        """Return the compiled sum over a block's edges, None if there is none for them.

        It takes how many rows are summed, :attr:`count`, the scale's bits and the last edge's place, and the
        addresses of offsets, of all edges' sources, of shifts, rows, noise and sums.
        """
        if edges.most << self.bits >= 1 << _SUM_BITS or not can_compile():
            return None
        ahead = _AHEAD if self.rows.nbytes > _NEAR else 0
        return _summing(self.rows.shape[1], self.dim, self.bits, shifted, ahead)


def can_compact(dim: int, bits: int) -> bool:
    """Whether sums of such rows are compiled here."""
    return dim <= MAX_WIDTH and bits <= MAX_BITS and can_compile()


@lru_cache(maxsize=64)
def _summing(width: int, dim: int, bits: int, shifted: bool, ahead: int) -> Compiled:
    """Return the sum for rows of some width, of which ``dim`` columns are there."""
    return compile_for_host(_sum_program(width, dim, bits, shifted, ahead), 4, 6)


@lru_cache(maxsize=64)
def _filling(width: int, dim: int, double: bool, kinds: bool) -> RowPass:
    """Return what fills rows of some width from vectors of a type, and of one kind or several."""
    return row_pass(_fill_program(width, dim, "double" if double else "float", kinds), 3, 4)


def _sum_program(width: int, dim: int, bits: int, shifted: bool, ahead: int) -> str:
    """Return the sum in LLVM's assembly language: a loop over rows, and one over eight edges at a time."""
    code = Code("x")
    over_edges(code, _Plain(width, dim, bits, shifted, ahead))
    declared = "\n".join(sorted(code.declared))
    return f"""
%row = type [{width} x i16]
{declared}
define void @run(i64 %rows, i64 %nothing, i64 %scale, i64 %last, ptr %offsets, ptr %sources,
                 ptr %shifts, ptr noalias %table, ptr noalias %noise, ptr noalias %out) {{
start:
  {code}
  ret void
}}
"""


@dataclass(frozen=True)
class _Plain:
    """Sums of rows as they are, of which ``dim`` columns are there; rows are asked for so many edges ahead.

    Every edge is asked for, those of a row's rest, too.
    """

    width: int
    dim: int
    bits: int
    shifted: bool
    ahead: int
    run_in_all_threads: int = _TOGETHER

    def begin(self, code: Code, row: str) -> Names:
        """Return the row's number and, where there is one, its shift."""
        return (row, code.load("i32", code.at("%shifts", "i32", row))) if self.shifted else (row,)

    def some(self, code: Code, own: Names, total: str, edge: str) -> str:
        """Add eight edges."""
        self._prefetch_sources(code, own, edge)
        places = [code(f"add nuw i64 {edge}, {k}") for k in range(_TOGETHER)]
        return self._added(code, total, [self._source(code, own, place) for place in places])

    def rest(self, code: Code, own: Names, total: str, edge: str, stop: str) -> str:
        """Add what is left of eight edges, and the row of zeros for each that is not there."""
        self._prefetch_sources(code, own, edge)
        sources = []
        for k in range(_TOGETHER):
            place = code(f"add nuw i64 {edge}, {k}")
            inside = code(f"icmp ult i64 {place}, {stop}")
            source = self._source(code, own, code(f"select i1 {inside}, i64 {place}, i64 {edge}"))
            sources.append(code(f"select i1 {inside}, i64 {source}, i64 %nothing"))
        return self._added(code, total, sources)

    def finish(self, code: Code, own: Names, total: str) -> None:
        """Add a row's noise to its sum, in integers, and write both in float32, scaled."""
        width, dim, place = self.width, self.dim, code(f"mul nuw i64 {own[0]}, {self.dim}")
        kind, real = f"<{width} x i32>", f"<{width} x float>"
        noise = code.columns(code.at("%noise", "i32", place), "i32", width, dim)
        noisy = code(f"sitofp {kind} {code(f'add {kind} {noise}, {total}')} to {real}")
        scale = code.all(code(f"bitcast i32 {code('trunc i64 %scale to i32')} to float"), "float", width)
        code.put(code(f"fmul {real} {noisy}, {scale}"), code.at("%out", "float", place), width, dim)

    def _source(self, code: Code, own: Names, place: str) -> str:
        """Return the row of an edge's source."""
        source = code.load("i32", code.at("%sources", "i32", place))
        shifted = code(f"add i32 {source}, {own[1]}") if self.shifted else source
        return code(f"zext i32 {shifted} to i64")

    def _prefetch_sources(self, code: Code, own: Names, edge: str) -> None:
        """Ask for the rows of eight edges so far ahead of one; beyond the last edge, for its row again.

        The edges themselves are read once: their line is asked for earlier still, and not to be kept.
        """
        if not self.ahead:
            return
        code.prefetch(code.at("%sources", "i32", code(f"add nuw i64 {edge}, {4 * self.ahead}")), once=True)
        for k in range(_TOGETHER):
            place = code(f"add nuw i64 {edge}, {self.ahead + k}")
            place = code.call("i64", "umin.i64", ("i64", place), ("i64", "%last"))
            row = code.at("%table", "%row", self._source(code, own, place))
            for column in range(0, self.width, _LINE):
                code.prefetch(code.at(row, "i16", column))

    def _added(self, code: Code, total: str, sources: list[str]) -> str:
        """Return the total with some rows in it: added in pairs, in 16 bits up to the sum that they hold."""
        width, bits, short = self.width, self.bits, True
        rows = [code.at("%table", "%row", source) for source in sources]
        values = [code.load(f"<{width} x i16>", row) for row in rows]
        while len(values) > 1:
            if short and bits == MAX_BITS:
                values, short = [code.wide(value, width) for value in values], False
            kind = f"<{width} x {'i16' if short else 'i32'}>"
            values = [code(f"add {kind} {a}, {b}") for a, b in zip(values[::2], values[1::2], strict=True)]
            bits += short
        wide = code.wide(values[0], width) if short else values[0]
        return code(f"add <{width} x i32> {total}, {wide}")


def _fill_program(width: int, dim: int, kind: str, kinds: bool) -> str:
    """Return the truncation in LLVM's assembly language: a loop over sources, and one over copies."""
    code = Code("x")
    real, short = f"<{width} x double>", f"<{width} x i16>"
    with code.each("%rows") as row:
        vector = code.at("%vectors", kind, code(f"mul nuw i64 {row}, {dim}"))
        code.prefetch_next_page(vector, dim * (8 if kind == "double" else 4))
        values = code.columns(vector, kind, width, dim)
        if kind == "float":
            values = code(f"fpext <{width} x float> {values} to {real}")
        own = code.load("i64", code.at("%kinds", "i64", row)) if kinds else "0"
        bounds = code.at("%bounds", "double", code(f"mul i64 {own}, %copies"))
        with code.each("%copies") as copy:
            bound = code.load("double", code.at(bounds, "double", copy))
            grid = code(f"fmul {real} {values}, {code.all(bound, 'double', width)}")
            grid = code.call(real, f"trunc.v{width}f64", (real, grid))
            norm = code.total(code(f"fmul {real} {grid}, {grid}"), width)  # exact in a row within its bound
            fits = code(f"fcmp ole double {norm}, {code(f'fmul double {bound}, {bound}')}")
            kept = code(f"select i1 {fits}, {real} {grid}, {real} zeroinitializer")
            place = code(f"add nuw i64 {row}, {code(f'mul nuw i64 {copy}, %count')}")
            whole = code(f"fptosi {real} {kept} to {short}")
            code.do(f"store {short} {whole}, ptr {code.at('%table', '%row', place)}, align 2")
    declared = "\n".join(sorted(code.declared))
    return f"""
%row = type [{width} x i16]
{declared}
define void @run(i64 %rows, i64 %count, i64 %copies, ptr %vectors, ptr %bounds, ptr %kinds,
                 ptr noalias %table) {{
start:
  {code}
  ret void
}}
"""

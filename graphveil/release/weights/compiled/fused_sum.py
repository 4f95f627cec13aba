"""Weights and sums in one pass over the edges, compiled for the processor at hand by LLVM.

A pass computes the integers of :class:`graphveil.release.weights.tables.PairWeights` and adds them up, so the
answer has the same bits with or without it. A source's key and its vector stand next to each other in 16-bit
integers: an edge brings in one row of memory instead of two, and no weight is ever written down. The sums are
private: they go back to :mod:`graphveil.release.rows.private_sums`, which adds noise. Where there is no
compiler the slower way is taken. Places are looked up unchecked: tables must be closed
(:attr:`graphveil.release.weights.tables.PairWeights.closed`), as a release makes sure.

Why so. A sum over neighbors waits for memory: at random ids an edge costs one line of the cache, and the
arithmetic is nearly free beside it. In torch a weighed sum is three passes (dot products, a look into the
table, the sum): each reads the edges again, the first and the last fetch a row of the same source, and the
weights go to memory and back. So one pass fetches the source's row once, with key and vector in it, asks for
it 64 edges ahead, and keeps weights and the growing row sum in registers. It is
written for the very widths at hand because a compiler unrolls and keeps in registers what has a constant
length, and in LLVM's language because that runs on any processor without a binary of ours. Whole numbers make
the order of additions irrelevant, which is what allows four edges at a time, threads by rows, and the
comparison bit by bit with the slow way. Measurements: ``docs/decisions/013-compiled-weights.md``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from graphveil._aligned import aligned
from graphveil._llvm import Code, can_compile
from graphveil._row_pass import RowPass, row_pass
from graphveil.data.blocks import EdgeBlock
from graphveil.release.weights.compiled.edge_loop import Names, over_edges
from graphveil.release.weights.compiled.kernels import MAX_WIDTH, TOGETHER, Kernel, TargetRow
from graphveil.release.weights.compiled.layout import KernelInputs, kernel_inputs, power_of_two
from graphveil.release.weights.tables import PairWeights

VECTOR_BITS = 14  # of the largest entry of a vector: with its sign it fits in 16
_PREFETCH_DISTANCE = (
    64  # edges that memory is asked for before their turn, into the second level of the cache
)
_CACHE_LINE = 32  # 16-bit integers that memory brings in together
_EDGES_A_THREAD = 1 << 16


@dataclass(frozen=True, eq=False, repr=False)
class FusedSum:
    """sum of w(u, v) x_u over in-edges, in 32-bit integers; ``sources`` has a row of key and vector each."""

    keyed: KernelInputs
    sources: Tensor  # int16, (rows, at least key + vector)
    dim: int
    compiled: RowPass

    def __call__(self, edges: EdgeBlock, sources: Tensor) -> Tensor:
        """Return the sums of a block's rows, int32 (rows, dim), which must fit.

        Args:
            edges: the block.
            sources: each edge's row of the table of sources.
        """
        width = power_of_two(self.dim)
        out = aligned(len(edges), width, dtype=torch.int32)
        own = self.keyed.targets[edges.start :]
        columns = (
            (edges.offsets.data_ptr(), edges.offsets.itemsize),
            (sources.data_ptr(), 0),
            (own.data_ptr(), own.stride(0) * own.itemsize),
            *((table.data_ptr(), 0) for table in (self.sources, self.keyed.levels, self.keyed.given)),
            (out.data_ptr(), width * out.itemsize),
        )
        self.compiled(len(edges), (len(sources),), columns, 1 + len(sources) // _EDGES_A_THREAD)
        return out[:, : self.dim]


def fused_sum(table: Tensor, pairs: PairWeights | None) -> FusedSum | None:
    """Return a pass for these vectors and weights, None if there is none for them or no compiler.

    Args:
        table: whole numbers below 2^VECTOR_BITS in float32, shape (copies * N, d), the copies alike in keys.
        pairs: the weights.
    """
    width = power_of_two(table.shape[1])
    if width > MAX_WIDTH or not can_compile():
        return None
    keyed = kernel_inputs(pairs)
    if keyed is None:
        return None
    rows = _side_by_side(keyed, table, width)
    return FusedSum(keyed, rows, table.shape[1], _compiled(keyed.kernel, width))


def _side_by_side(keyed: KernelInputs, table: Tensor, width: int) -> Tensor:
    """Return rows of a source's key and its vector, with zeros up to their widths and lines."""
    keys, key = keyed.sources, keyed.kernel.key
    rows = aligned(len(table), _length(key + width), dtype=torch.int16).zero_()
    for first in range(0, len(table), len(keys)):
        rows[first : first + len(keys), : keys.shape[1]] = keys
    rows[:, key : key + table.shape[1]] = table
    return rows


def _length(columns: int) -> int:
    """Return the columns that a row has room for, so that it lies on as few lines of memory as it can."""
    return (
        -(-columns // _CACHE_LINE) * _CACHE_LINE if columns > _CACHE_LINE else 1 << (columns - 1).bit_length()
    )


@lru_cache(maxsize=64)
def _compiled(kernel: Kernel, width: int) -> RowPass:
    """Return the pass of a kernel for vectors of some width."""
    return row_pass(_program(kernel, width), 2, 7)


def _program(kernel: Kernel, width: int) -> str:
    """Return the pass in LLVM's assembly language: a loop over rows, and one over four edges at a time.

    What is left of a row's edges comes last, as four edges of which some do not count.
    """
    code = Code("x")
    over_edges(code, _WeightedSum(kernel, width, kernel.before_rows(code)))
    declared = "\n".join(sorted(code.declared))
    return f"""
%row = type [{_length(kernel.key + width)} x i16]
{declared}
define void @run(i64 %rows, i64 %edges, ptr %offsets, ptr %sources, ptr %targets, ptr noalias %table,
                 ptr noalias %levels, ptr noalias %given, ptr noalias %out) {{
start:
  %last = sub i64 %edges, 1
  %last_four = sub i64 %edges, {TOGETHER}
  {code}
  ret void
}}
"""


@dataclass(frozen=True)
class _WeightedSum:
    """Sums of vectors, each times the weight of its edge."""

    kernel: Kernel
    width: int
    once: Names  # what the kernel says before rows
    run_in_all_threads: int = TOGETHER

    def begin(self, code: Code, row: str) -> Names:
        """Return the row's number, and what the kernel says before edges."""
        own = code.at("%targets", f"[{self.kernel.key} x i16]", row)
        return row, *self.kernel.before_edges(code, self.once, TargetRow(row, own))

    def some(self, code: Code, own: Names, total: str, edge: str) -> str:
        """Add four edges, all of which count, and ask memory for the sources of later ones.

        Behind the last edge the last ones are asked for again: a check would cost each four edges a branch.
        """
        ahead = code(f"add nuw i64 {edge}, {_PREFETCH_DISTANCE}")
        ahead = code.call("i64", "umin.i64", ("i64", ahead), ("i64", "%last_four"))
        for number in range(TOGETHER):
            self._prefetch(code, code(f"add nuw i64 {ahead}, {number}"))
        rows = [_source(code, code(f"add nuw i64 {edge}, {number}")) for number in range(TOGETHER)]
        return self._added(code, total, rows, self.kernel.weights(code, rows, self.once, own[1:]))

    def rest(self, code: Code, own: Names, total: str, edge: str, stop: str) -> str:
        """Add what is left of four edges: the first one again, at no weight, for each that is not there."""
        rows, there = [], []
        for number in range(TOGETHER):
            place = code(f"add nuw i64 {edge}, {number}")
            there.append(code(f"icmp ult i64 {place}, {stop}"))
            place = code(f"select i1 {there[-1]}, i64 {place}, i64 {edge}")
            ahead = code(f"add nuw i64 {place}, {_PREFETCH_DISTANCE}")
            self._prefetch(code, code.call("i64", "umin.i64", ("i64", ahead), ("i64", "%last")))
            rows.append(_source(code, place))
        weights = zip(there, self.kernel.weights(code, rows, self.once, own[1:]), strict=True)
        counted = [code(f"select i1 {inside}, i32 {weight}, i32 0") for inside, weight in weights]
        return self._added(code, total, rows, counted)

    def finish(self, code: Code, own: Names, total: str) -> None:
        """Write the sum."""
        kind = f"<{self.width} x i32>"
        code.do(f"store {kind} {total}, ptr {code.at('%out', kind, own[0])}, align 4")

    def _prefetch(self, code: Code, place: str) -> None:
        """Ask memory for the row of an edge's source."""
        row = _source(code, place)
        for start in range(0, _length(self.kernel.key + self.width), _CACHE_LINE):
            code.prefetch(code.at(row, "i16", start))

    def _added(self, code: Code, total: str, rows: Sequence[str], weights: Sequence[str]) -> str:
        """Return the total with four edges' vectors in it, each times its weight.

        Vectors of two edges are interleaved: processors multiply and add such pairs in one instruction, which
        the optimizer recognizes by the products of 16-bit numbers in 32 bits whose neighbors are added.
        """
        width, kind, twice = self.width, f"<{self.width} x i32>", 2 * self.width
        vectors = [code.load(f"<{width} x i16>", code.at(row, "i16", self.kernel.key)) for row in rows]
        spread = [code.all(weight, "i32", width) for weight in weights]
        for one, other in ((0, 1), (2, 3)):
            turns = [lane + first for lane in range(width) for first in (0, width)]
            both = code.mixed(vectors[one], vectors[other], width, turns)
            levels = [code(f"bitcast {kind} {spread[edge]} to <{twice} x i16>") for edge in (one, other)]
            by = code.mixed(levels[0], levels[1], twice, [lane + lane % 2 * twice for lane in range(twice)])
            products = code(f"mul <{twice} x i32> {code.wide(both, twice)}, {code.wide(by, twice)}")
            total = code(f"add {kind} {total}, {code.folded(products, twice)}")
        return total


def _source(code: Code, place: str) -> str:
    """Return the address of the row of an edge's source."""
    source = code.load("i32", code.at("%sources", "i32", place))
    return code.at("%table", "%row", code(f"zext i32 {source} to i64"))

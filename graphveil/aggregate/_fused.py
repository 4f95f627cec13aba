"""Weights and sums in one pass over the edges, compiled for the processor at hand by LLVM.

A pass computes the integers of :mod:`graphveil.aggregate._pairs` and adds them up, so the answer has the same
bits with or without it. A source's key and its vector stand next to each other in 16-bit integers: an edge
brings in one row of memory instead of two, and no weight is ever written down. The sums are private: they go
back to :mod:`graphveil.aggregate._blocks`, which adds noise. llvmlite is an optional package; where it is
missing, the slower way is taken. Places are looked up unchecked: tables must be closed
(:attr:`graphveil.aggregate._pairs.PairWeights.closed`), as a release makes sure.
"""

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from graphveil.aggregate._pairs import HALF, Dots, Kinds, PairWeights
from graphveil.aggregate.engine import Edges

VECTOR_BITS = 14  # of the largest entry of a vector: with its sign it fits in 16
_MAX_WIDTH = 128
_TOGETHER = 4  # edges whose dot products are folded in the same instructions
_AHEAD = 24  # edges that memory is asked for before their turn
_EDGES_A_THREAD = 1 << 16

Pass = Callable[..., None]


@dataclass(frozen=True, eq=False, repr=False)
class FusedSum:
    """sum of levels[place(own_v, key_u)] x_u over in-edges, in 32-bit integers.

    ``sources`` has a row of key and vector for each source, ``targets`` the key of each target. Keys are
    kinds of nodes, of which there are ``kinds``, or where that is 0 rows whose dot product is looked up.
    """

    sources: Tensor  # int16, (rows, key + vector)
    targets: Tensor  # int16, (N, key)
    levels: Tensor  # int16
    kinds: int
    dim: int
    compiled: Pass

    def __call__(self, edges: Edges, sources: Tensor) -> Tensor:
        """Return the sums of a block's rows, int32 (rows, dim), which must fit.

        Args:
            edges: the block.
            sources: each edge's row of the table of sources.
        """
        width = self.sources.shape[1] - self.targets.shape[1]
        out = torch.empty((len(edges), width), dtype=torch.int32)
        parts = min(torch.get_num_threads(), 1 + len(sources) // _EDGES_A_THREAD)
        cuts = [len(edges) * part // parts for part in range(parts + 1)]

        def run(part: int) -> None:
            first, last = cuts[part], cuts[part + 1]
            own = self.targets[edges.start + first : edges.start + last]
            tables = (edges.offsets[first:], sources, own, self.sources, self.levels, out[first:])
            self.compiled(last - first, len(sources), self.kinds, *(table.data_ptr() for table in tables))

        if parts == 1:
            run(0)
        else:
            with ThreadPoolExecutor(parts) as pool:
                list(pool.map(run, range(parts)))
        return out[:, : self.dim]


def fused_sum(table: Tensor, pairs: PairWeights | None) -> FusedSum | None:
    """Return a pass for these vectors and weights, None if there is none for them or no compiler.

    Args:
        table: whole numbers below 2^VECTOR_BITS in float32, shape (copies * N, d), the copies alike in keys.
        pairs: the weights.
    """
    if isinstance(pairs, Dots):
        keys, own, kinds = pairs.phi, pairs.psi, 0
    elif isinstance(pairs, Kinds):
        keys = own = torch.from_numpy(pairs.codes)[:, None]
        kinds = len(pairs.levels)
    else:
        return None
    key, width = (1 if kinds else _power_of_two(keys.shape[1])), _power_of_two(table.shape[1])
    compiled = _compiled(0 if kinds else key, width) if max(key, width) <= _MAX_WIDTH else None
    if compiled is None:
        return None
    copies = [_wide(keys, key)] * (len(table) // len(keys))
    sources = torch.cat([torch.cat(copies) if len(copies) > 1 else copies[0], _wide(table, width)], dim=1)
    levels = pairs.levels.reshape(-1).to(torch.int16)
    return FusedSum(sources, _wide(own, key), levels, kinds, table.shape[1], compiled)


def _wide(rows: Tensor, width: int) -> Tensor:
    """Return whole numbers in 16 bits, with columns of zeros up to the width."""
    short = rows.to(torch.int16)
    return short.contiguous() if rows.shape[1] == width else pad(short, (0, width - rows.shape[1]))


def _power_of_two(width: int) -> int:
    return max(8, 1 << (width - 1).bit_length())


@lru_cache(maxsize=64)
def _compiled(key: int, width: int) -> Pass | None:
    """Return the pass for keys of some width, 0 for kinds, and vectors of some width; None without LLVM."""
    try:
        import llvmlite.binding as llvm
    except (ImportError, OSError):  # not there, or without the library that it is about
        return None
    if not hasattr(llvm, "create_pass_builder"):  # before 0.45
        return None
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(_program(key, width))
    features = llvm.get_host_cpu_features().flatten()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=3
    )
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    llvm.create_pass_builder(machine, options).getModulePassManager().run(
        module, llvm.create_pass_builder(machine, options)
    )
    engine: Any = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3, *[ctypes.c_void_p] * 6)
    compiled = kind(engine.get_function_address("run"))

    def run(*given: int) -> None:
        compiled(*given)  # this closure keeps the engine, whose memory the code is in

    run.engine = engine  # type: ignore[attr-defined]
    return run


class _Code:
    """Lines of LLVM's assembly language."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, operation: str) -> str:
        """Add a line that computes something, and return its name."""
        self.lines.append(f"%x{len(self.lines)} = {operation}")
        return f"%x{len(self.lines) - 1}"

    def address(self, table: str, kind: str, index: str) -> str:
        """Return where an entry of a table is."""
        return self(f"getelementptr {kind}, ptr {table}, i64 {index}")

    def source(self, place: str) -> str:
        """Return where the row of an edge's source is."""
        source = self(f"load i32, ptr {self.address('%sources', 'i32', place)}")
        return self.address("%table", "%row", self(f"zext i32 {source} to i64"))

    def wide(self, address: str, count: int) -> str:
        """Return a vector of 16-bit integers in 32 bits each."""
        short = self(f"load <{count} x i16>, ptr {address}, align 2")
        return self(f"sext <{count} x i16> {short} to <{count} x i32>")

    def folded(self, first: str, second: str, lanes: int, kept: int) -> str:
        """Return the first sums of two neighbouring lanes of two vectors."""
        halves = []
        for odd in (0, 1):
            mask = ", ".join(f"i32 {2 * lane + odd}" for lane in range(kept))
            lists = f"<{lanes} x i32> {first}, <{lanes} x i32> {second}"
            halves.append(self(f"shufflevector {lists}, <{kept} x i32> <{mask}>"))
        return self(f"add <{kept} x i32> {halves[0]}, {halves[1]}")


def _program(key: int, width: int) -> str:
    """Return the pass in LLVM's assembly language: a loop over rows, and one over four edges at a time."""
    code, inside, rows = _Code(), [], []
    for edge in range(_TOGETHER):
        place = code(f"add nuw i64 %edge, {edge}")
        inside.append(code(f"icmp ult i64 {place}, %stop"))
        place = code(f"select i1 {inside[-1]}, i64 {place}, i64 %edge")  # past the last one: see the weight
        rows.append(code.source(place))
        later = code(f"add nuw i64 {place}, {_AHEAD}")
        later = code.source(code(f"call i64 @llvm.umin.i64(i64 {later}, i64 %last)"))
        code.lines.append(f"call void @llvm.prefetch.p0(ptr {later}, i32 0, i32 3, i32 1)")
    places = _dots(code, key, rows) if key else _pairs_of_kinds(code, rows)
    total = "%total"
    for place, row, there in zip(places, rows, inside, strict=True):
        level = code(f"load i16, ptr {code.address('%levels', 'i16', place)}")
        level = code(f"select i1 {there}, i16 {level}, i16 0")
        lane = code(f"insertelement <{width} x i32> poison, i32 {code(f'sext i16 {level} to i32')}, i64 0")
        lanes = code(
            f"shufflevector <{width} x i32> {lane}, <{width} x i32> poison, <{width} x i32> zeroinitializer"
        )
        vector = code.wide(code.address(row, "i16", str(max(key, 1))), width)
        total = code(f"add <{width} x i32> {total}, {code(f'mul <{width} x i32> {vector}, {lanes}')}")
    return _frame(key, width, "\n  ".join(code.lines), total)


def _dots(code: _Code, key: int, rows: list[str]) -> list[str]:
    """Return the places of dot products: lanes of four edges are folded together, down to a lane each."""
    products = [code(f"mul <{key} x i32> {code.wide(row, key)}, %mine") for row in rows]
    lanes = key // 2
    sums = [code.folded(product, "poison", key, lanes) for product in products]
    while len(sums) > 1:
        sums = [code.folded(*pair, lanes, lanes) for pair in zip(sums[::2], sums[1::2], strict=True)]
    folded = sums[0]
    while lanes > _TOGETHER:
        lanes //= 2
        folded = code.folded(folded, "poison", 2 * lanes, lanes)
    dots = (code(f"extractelement <{_TOGETHER} x i32> {folded}, i64 {edge}") for edge in range(_TOGETHER))
    shifted = [code(f"add i32 {dot}, {HALF * HALF + HALF // 2}") for dot in dots]
    return [code(f"zext i32 {code(f'lshr i32 {dot}, {HALF.bit_length() - 1}')} to i64") for dot in shifted]


def _pairs_of_kinds(code: _Code, rows: list[str]) -> list[str]:
    """Return the places of the targets' kind and each source's."""
    kinds = [code(f"zext i16 {code(f'load i16, ptr {row}')} to i64") for row in rows]
    return [code(f"add i64 %mine, {kind}") for kind in kinds]


def _frame(key: int, width: int, body: str, total: str) -> str:
    """Return the program around what is done with four edges."""
    mine = f"""%short = load <{key} x i16>, ptr %own, align 2
  %mine = sext <{key} x i16> %short to <{key} x i32>"""
    if not key:
        mine = """%short = load i16, ptr %own
  %kind = zext i16 %short to i64
  %mine = mul i64 %kind, %kinds"""
    return f"""
%row = type [{max(key, 1) + width} x i16]
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare i64 @llvm.umin.i64(i64, i64)
define void @run(i64 %rows, i64 %edges, i64 %kinds, ptr %offsets, ptr %sources, ptr %targets,
                 ptr noalias %table, ptr noalias %levels, ptr noalias %out) {{
start:
  %last = sub i64 %edges, 1
  %any = icmp ult i64 0, %rows
  br i1 %any, label %target, label %end
target:
  %v = phi i64 [0, %start], [%next, %done]
  %next = add nuw i64 %v, 1
  %bounds = getelementptr i32, ptr %offsets, i64 %v
  %first32 = load i32, ptr %bounds
  %bound = getelementptr i32, ptr %bounds, i64 1
  %stop32 = load i32, ptr %bound
  %first = zext i32 %first32 to i64
  %stop = zext i32 %stop32 to i64
  %own = getelementptr [{max(key, 1)} x i16], ptr %targets, i64 %v
  {mine}
  %some = icmp ult i64 %first, %stop
  br i1 %some, label %four, label %done
four:
  %edge = phi i64 [%first, %target], [%later, %four]
  %total = phi <{width} x i32> [zeroinitializer, %target], [{total}, %four]
  {body}
  %later = add nuw i64 %edge, {_TOGETHER}
  %more = icmp ult i64 %later, %stop
  br i1 %more, label %four, label %done
done:
  %sum = phi <{width} x i32> [zeroinitializer, %target], [{total}, %four]
  %at = getelementptr <{width} x i32>, ptr %out, i64 %v
  store <{width} x i32> %sum, ptr %at, align 4
  %again = icmp ult i64 %next, %rows
  br i1 %again, label %target, label %end
end:
  ret void
}}
"""

"""A private hop's sums in one compiled pass: a strip of rows gets its noise, and then its sums on top of it.

Noise of a strip is drawn where it is used a moment later, in memory that stays in the cache, and is added in
registers to the exact sums, which are never written down. Threads take strips in turns, so one that wakes
late does less. Both passes are those of other files, and so are the bytes: :mod:`graphveil.mechanisms` draws
and :mod:`graphveil.release.rows.compact` adds.
"""

from functools import cache

import numpy as np
import torch
from torch import Tensor

from graphveil._aligned import Pieces
from graphveil._llvm import Code, Compiled, compile_for_host
from graphveil._team import in_threads
from graphveil._util.random import RowStream
from graphveil._util.threads import available_threads
from graphveil.data.blocks import EdgeBlock
from graphveil.mechanisms import IntegerNoise
from graphveil.mechanisms._exact_compiled import Drawing
from graphveil.release.rows.compact import CompactRows

_ROWS_A_THREAD = 1 << 10
_STRIPS = 64  # of a thread at least, so that all end together,
_ROWS = 64  # and of so many rows at least
_NUMBERS = ("rows", "dim", "strip", "place_bits", "first", "nothing", "scale", "last")
_SHARED = ("keys", "pattern", "slots", "strips", "share", "more", "numbers")  # what noise is drawn from
_EDGES = ("offsets", "sources", "shifts", "table", "out")
_TURNS = ("draw", "add", "ties")
_OWN = ("own", "noise", "words", "flags", "pending", "asked")  # memory of a thread


def write_noisy_sums(
    rows: CompactRows,
    edges: EdgeBlock,
    shift: Tensor | None,
    law: IntegerNoise,
    stream: RowStream,
    scale: float,
    out: Tensor,
) -> bool:
    """Write the noisy sums of a block; whether it did: not if a row is too long, or noise is not compiled.

    Args:
        rows: the contributions.
        edges: the block.
        shift: what is added to the sources of each row's edges, int32 (rows); None for nothing.
        law: the noise of every row.
        stream: what it is drawn from.
        scale: what noisy sums are multiplied by, a power of two.
        out: the noisy sums, float32 (rows, dim), each rounded once.
    """
    threads = available_threads(len(edges) // _ROWS_A_THREAD)
    add, most = rows.adding(edges, shifted=shift is not None), max(_ROWS, len(edges) // (_STRIPS * threads))
    drawing = law.drawing(stream, rows.dim, most if threads > 1 else len(edges))
    if add is None or drawing is None or not len(edges):
        return False
    ties = np.zeros(-(-len(edges) // drawing.rows), np.uint8)
    own = Pieces(_sizes(drawing) * threads)
    last, bits = len(edges.sources) - 1, int(np.float32(scale).view(np.int32))
    numbers = len(edges), rows.dim, drawing.rows, drawing.place_bits, edges.start, rows.count, bits, last
    shifts = edges.offsets if shift is None else shift
    tables = *drawing.shared, edges.offsets, edges.sources, shifts, rows.rows, out
    places = [table.data_ptr() for table in tables]
    deeds = drawing.compiled.address, add.address, ties.ctypes.data
    in_threads(_turns(), [0, *numbers, *places, *deeds, *own.places], threads)
    for strip in np.flatnonzero(ties).tolist() if any(ties.tobytes()) else ():  # hardly ever
        first, stop = strip * drawing.rows, min(len(edges), (strip + 1) * drawing.rows)
        drawn = law.draw(stream, np.arange(edges.start + first, edges.start + stop), rows.dim)
        own_shift = None if shift is None else shift[first:stop]
        rows.add_sums(edges.rows(first, stop), own_shift, torch.from_numpy(drawn), scale, out[first:stop])
    return True


def _sizes(drawing: Drawing) -> tuple[int, ...]:
    """Return the bytes in which a thread draws a strip: rows' numbers, their noise, what the draw wants."""
    return 8 * drawing.rows, 4 * drawing.room, *drawing.sizes


@cache
def _turns() -> Compiled:
    return compile_for_host(_program(), 1, 1)


def _program() -> str:
    """Return the pass in LLVM's assembly language: strips are taken until there are none left."""
    code = Code("x")
    names = [*_NUMBERS, *_SHARED, *_EDGES, *_TURNS]
    given = {
        name: code.load("i64" if name in _NUMBERS else "ptr", code.at("%given", "i64", place))
        for place, name in enumerate(names, start=1)  # after the number of strips that are taken
    }
    memory = code.at(code.at("%given", "i64", 1 + len(names)), f"[{len(_OWN)} x i64]", "%seat")
    own = {name: code.load("ptr", code.at(memory, "i64", place)) for place, name in enumerate(_OWN)}
    strip = given["strip"]
    take = "atomicrmw add ptr %given, i64 1 monotonic"
    up = code(f"add i64 {given['rows']}, {code(f'sub i64 {strip}, 1')}")
    with code.loop("ult", code(f"udiv i64 {up}, {strip}"), ("i64", code(take))) as turn:
        begin = code(f"mul nuw i64 {turn.values[0]}, {strip}")
        left = code(f"sub i64 {given['rows']}, {begin}")
        count = code.call("i64", "umin.i64", ("i64", left), ("i64", strip))
        first = code(f"add i64 {given['first']}, {begin}")
        with code.each(count) as row:
            number = code(f"add i64 {first}, {row}")
            code.do(f"store i64 {number}, ptr {code.at(own['own'], 'i64', row)}")
        tie = code.at(given["ties"], "i8", turn.values[0])
        numbers = [count, *(given[name] for name in _NUMBERS[1:4])]
        addresses = [own["own"], own["noise"], *(given[name] for name in _SHARED)]
        addresses += [*(own[name] for name in _OWN[2:]), tie]
        _call(code, given["draw"], numbers, addresses)
        tied = code(f"zext i8 {code.load('i8', tie)} to i64")
        with code.loop("ult", "1", ("i64", tied)) as once:
            offsets, shifts = (code.at(given[name], "i32", begin) for name in ("offsets", "shifts"))
            out = code.at(given["out"], "float", code(f"mul nuw i64 {begin}, {given['dim']}"))
            numbers = [count, *(given[name] for name in _NUMBERS[5:])]
            _call(
                code,
                given["add"],
                numbers,
                [offsets, given["sources"], shifts, given["table"], own["noise"], out],
            )
            once.then = ["1"]
        turn.then = [code(take)]
    declared = "\n".join(sorted(code.declared))
    return f"""
{declared}
define void @run(i64 %seat, ptr %given) {{
start:
  {code}
  ret void
}}
"""


def _call(code: Code, function: str, numbers: list[str], addresses: list[str]) -> None:
    """Call another compiled function."""
    given = [*(f"i64 {number}" for number in numbers), *(f"ptr {address}" for address in addresses)]
    code.do(f"call void {function}({', '.join(given)})")

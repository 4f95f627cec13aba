"""Python interface of the optional C extension, whose results equal those of the torch and NumPy code.

The extension (``_native.c``) is built if there is a C compiler. Sizes and types are checked here, because
the C code does not check addresses. Rows are independent, so threads divide them.
"""

from __future__ import annotations  # a client runs without torch

import sys
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor

_native: Any  # the C module, None if there was no compiler at installation
try:
    _native = import_module("graphveil.core.noise._native")
except ImportError:
    _native = None

MAX_DIM = 128  # columns of a row
LANES = 16  # rows are padded to a multiple of this
_LINE = 64  # bytes per cache line
_ROWS_A_THREAD = 1 << 12

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint32]


def available() -> bool:
    """Return whether the extension is built and the platform is little-endian, as its words require."""
    return _native is not None and sys.byteorder == "little"


def empty_rows(count: int, dim: int) -> Tensor:
    """Return memory for rows of 16-bit integers, aligned to as few cache lines as possible.

    The width is a power of two. NumPy requests large pages from the system, and torch does not. With small
    pages, each random row access would first wait for the address translation of its page.
    """
    import torch

    width = max(LANES, 1 << (dim - 1).bit_length())
    memory = np.empty(count * width + _LINE // 2, dtype=np.int16)
    first = -memory.ctypes.data % _LINE // memory.itemsize
    return torch.from_numpy(memory[first : first + count * width].reshape(count, width))


def truncate_rows(vectors: Tensor, bounds: Tensor, kinds: Tensor | None, rows: Tensor) -> None:
    """Write trunc(bounds[kind of i, h] vectors[i]) into row i of copy h; zeros if that exceeds its bound.

    A row exceeds its bound only if its vector is longer than one, or its length is undefined.

    Args:
        vectors: Floats, (N, dim).
        bounds: float64, (kinds, copies).
        kinds: int64, (N), each a row of the bounds; None for 0.
        rows: int16, at least (copies * N, width).
    """
    import torch

    from graphveil._util.threads import parallel_for

    vectors = vectors.to(torch.float64 if vectors.dtype == torch.float64 else torch.float32).contiguous()
    (count, dim), (_, copies) = vectors.shape, bounds.shape
    width = _check_width(rows, dim)
    if len(rows) < copies * count or bounds.dtype != torch.float64:
        raise ValueError(f"{copies} copies of {count} rows do not fit into {len(rows)}")
    if kinds is not None and (kinds.shape != (count,) or kinds.dtype != torch.int64):
        raise ValueError("each row has one kind, an int64")
    arrays = vectors.numpy(), bounds.contiguous().numpy(), _array(kinds), rows.numpy()
    truncate = _native.truncate_rows
    parallel_for(
        lambda first, last: truncate(*arrays, first, last, count, dim, width, copies), count, _ROWS_A_THREAD
    )


def add_noisy_sums(
    offsets: Tensor,
    sources: Tensor,
    shifts: Tensor | None,
    rows: Tensor,
    bits: int,
    noise: Tensor,
    out: Tensor,
    scale: float,
) -> None:
    """Write scale * (the sum of the sources' rows + noise), rounded once, for each destination.

    Args:
        offsets: Start and end of each destination's sources, int32 (count + 1).
        sources: Row indices, int32, which must exist.
        shifts: Offset of the sources of each destination, int32 (count); None for zero.
        rows: int16 (rows + 1, width), entries of at most 2^bits; the last row is zero.
        bits: At most 14; no sum may exceed 2^30.
        noise: int32, (count, dim).
        out: float32, (count, dim).
        scale: A power of two.
    """
    import torch

    (count, dim), one = noise.shape, len(offsets) - 1
    width = _check_width(rows, dim)
    types = offsets.dtype, sources.dtype, noise.dtype, out.dtype
    if (
        count != one
        or out.shape != noise.shape
        or types != (torch.int32, torch.int32, torch.int32, torch.float32)
    ):
        raise ValueError("offsets, noise and sums do not have the same rows, or their types are others")
    if shifts is not None and (shifts.shape != (count,) or shifts.dtype != torch.int32):
        raise ValueError("each row has one shift, an int32")
    arrays = offsets.numpy(), sources.numpy(), _array(shifts), rows.numpy(), noise.numpy(), out.numpy()
    _native.add_noisy_sums(*arrays, 0, count, dim, width, bits, scale)


@dataclass(frozen=True, eq=False, repr=False)
class Strips:
    """The tables of ``graphveil.core.noise.discrete_gaussian`` by strip: they stay in the cache."""

    slots: npt.NDArray[np.uint16]
    start: npt.NDArray[np.int32]
    sure: Words
    share: Floats
    mask: Words
    place_bits: int
    slot_bits: int
    over_sigma: float

    def __post_init__(self) -> None:
        """Reject tables that C would read out of bounds."""
        strips = {len(part) for part in (self.start, self.sure, self.share, self.mask)}
        if len(self.slots) != 1 << self.slot_bits or strips != {int(self.slots.max()) + 1}:
            raise ValueError("every slot has a strip, and every strip an entry in each table")

    def look_up(self, words: Words, out: npt.NDArray[np.int32]) -> Ints:
        """Write the candidates of words; return the indices of the words that no threshold decides."""
        if len(out) != len(words):
            raise ValueError(f"{len(words)} words do not fill {len(out)} samples")
        words, listed = np.ascontiguousarray(words), np.empty(len(words), dtype=np.int64)
        bits = self.place_bits, self.slot_bits
        return listed[: _native.look_up(words, self.slots, self.start, self.sure, out, listed, *bits)]

    def decide(
        self, words: Words, more: npt.NDArray[np.uint64], ambiguous: float
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_], Ints]:
        """Return candidates, whether they are accepted, and which are too close for floating point."""
        if len(words) != len(more):
            raise ValueError(f"{len(words)} words and {len(more)} further bits are not of the same samples")
        values, decisions = np.empty(len(words), dtype=np.int32), np.empty(len(words), dtype=np.uint8)
        tables = self.slots, self.start, self.share, self.mask, values, decisions
        bits = self.place_bits, self.slot_bits
        _native.decide(
            np.ascontiguousarray(words),
            np.ascontiguousarray(more),
            *tables,
            *bits,
            self.over_sigma,
            ambiguous,
        )
        return values, (decisions & 1).astype(bool), np.flatnonzero(decisions & 2)


def counters(rows: Ints, blocks: Ints, *, paired: bool) -> npt.NDArray[np.uint64]:
    """Return the cipher's counters of each row's own block, or of the same blocks of every row: (..., 2)."""
    if paired and rows.shape != blocks.shape:
        raise ValueError(f"{len(rows)} rows and {len(blocks)} blocks are no pairs")
    out = np.empty((len(rows), 2) if paired else (len(rows), len(blocks), 2), dtype=np.uint64)
    _native.counters(*(np.ascontiguousarray(part, dtype=np.int64) for part in (rows, blocks)), out, paired)
    return out


def walk(numbers: tuple[int, ...], arrays: tuple[Ints | Floats, ...]) -> None:
    """Run steps of the chain over dendrograms, like ``graphveil.core.queries.dendrogram.walk``."""
    steps, *draws = numbers[0], *arrays[1:4]
    if any(len(drawn) < steps for drawn in draws) or any(array.itemsize != 8 for array in arrays):
        raise ValueError(f"{steps} steps need as many draws, and tables of 64-bit numbers")
    _native.walk(*numbers, *arrays)


def _array(part: Tensor | None) -> npt.NDArray[np.generic] | None:
    return None if part is None else part.contiguous().numpy()


def _check_width(rows: Tensor, dim: int) -> int:
    import torch

    width = rows.shape[1]
    if rows.dtype != torch.int16 or not dim <= width <= MAX_DIM or width % LANES:
        raise ValueError(f"rows of {width} integers do not hold {dim} columns")
    return width

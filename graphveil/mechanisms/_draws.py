"""Where local mechanisms get their random words, and exact integers from them. NumPy only, for devices.

A record is a row of the stream. Its values share the row's first words; a value that needs more than its
share reads blocks of its own, far behind them, so no draw depends on how many another one took.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

MAX_DIM = 1 << 20  # coordinates beyond would need blocks of the next row

_OWN = 1 << 31  # a row's blocks from here on belong to single coordinates,
_SPAN = 1 << 11  # this many to each
_CELLS = 1 << 16  # at a time: enough that calls cost little; larger arrays would be new memory at every step
_HALF = np.uint64(32)

Words = npt.NDArray[np.uint64]
Halves = npt.NDArray[np.uint32]
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Real = npt.NDArray[np.floating[Any]]


class Draws(Protocol):
    """Random 64-bit words by row: a keyed stream, or those of a device."""

    def reserve_rows(self, rows: Integers) -> None:
        """Reserve the words of rows for one record each, refusing those that served before."""

    def words(self, rows: Integers, *, words_per_row: int) -> Words:
        """Return the first words of each row, shape (rows, words_per_row)."""

    def blocks(self, rows: Integers, offsets: Integers) -> Words:
        """Return the two words of a block of each row, shape (len(rows), 2)."""


@dataclass(frozen=True)
class ExtraWords:
    """Where an array of values, shape (rows, width), finds words beyond its share."""

    stream: Draws
    rows: Integers
    width: int
    first: int = 0  # the coordinate of the first column

    def more(self, where: Integers, attempt: int = 0) -> Words:
        """Return one further word for each value, given by its index in the flat array."""
        row, column = np.divmod(where, self.width)
        return self.stream.blocks(self.rows[row], _OWN + (self.first + column) * _SPAN + attempt)[:, 0]


def uniform_below(words: Words, bound: npt.ArrayLike) -> Integers:
    """Return floor(word bound / 2^64), an integer below ``bound`` <= 2^31, broadcast.

    Each integer stands for floor(2^64 / bound) words or one more.

    >>> uniform_below(np.array([0, 2**63, 2**64 - 1], dtype=np.uint64), 10).tolist()
    [0, 5, 9]
    """
    times = np.asarray(bound, dtype=np.uint64)
    low = (words & np.uint64(0xFFFFFFFF)) * times >> _HALF
    drawn = (words >> _HALF) * times + low >> _HALF
    return drawn.view(np.int64)


def halves(words: Words) -> tuple[Halves, Halves]:
    """Return the low and the high 32 bits of each word, as views."""
    if words.strides[-1] != words.itemsize:  # a view needs words that lie side by side
        words = np.ascontiguousarray(words)
    pairs = words.astype("<u8", copy=False).view("<u4").reshape(*words.shape, 2)
    return pairs[..., 0], pairs[..., 1]


def round_up_or_down(position: Real, words: Halves) -> Integers:
    """Return floor or ceiling of each position >= 0, at random, with the position as expectation.

    The uniform is a multiple of 2^-32, and that is how far the expectation can be off, for positions below
    2^21; beyond, float64 has fewer digits, and a sum may be rounded to the next integer.

    >>> round_up_or_down(np.array([1.25, 1.25]), np.array([0, 2**32 - 1], dtype=np.uint32)).tolist()
    [1, 2]
    """
    moved = words * 2.0**-32
    moved += position
    rounded: Integers = moved.astype(np.int64)
    return rounded


def subsets(words: Words, dim: int) -> Integers:
    """Return a uniform subset of range(dim) for each row of words, sorted, one element a word.

    The first steps of a Fisher-Yates shuffle: a choice among n has probability 1/n up to 2^-64.

    >>> subsets(np.array([[0, 0], [2**63, 2**63]], dtype=np.uint64), 6).tolist()
    [[0, 1], [0, 3]]
    """
    rows, count = words.shape
    if count == dim:
        return np.tile(np.arange(dim), (rows, 1))
    return np.sort(shuffled(words, dim)[:, :count], axis=1).astype(np.int64)


def shuffled(words: Words, dim: int) -> npt.NDArray[np.int32]:
    """Return range(dim) for each row of words, of which as many first places are drawn as it has words.

    >>> shuffled(np.array([[2**63, 2**63]], dtype=np.uint64), 3).tolist()
    [[1, 2, 0]]
    """
    rows, count = words.shape
    deck = np.tile(np.arange(dim, dtype=np.int32), (rows, 1))
    line = np.arange(rows)
    for top in range(count):
        place = top + uniform_below(words[:, top], dim - top)
        chosen = deck[line, place]
        deck[line, place] = deck[:, top]
        deck[:, top] = chosen
    return deck


def row_blocks(rows: int, width: int) -> Iterator[slice]:
    """Yield slices of so many rows that each holds up to _CELLS values.

    A power of two, for which the counters of a keyed stream are cheap.
    """
    count = 1 << max(0, (_CELLS // width).bit_length() - 1)
    for first in range(0, rows, count):
        yield slice(first, min(first + count, rows))

"""Exact draws for local mechanisms from random words: integers, subsets, and outputs of channels.

A record is a row of the stream. Its values share the row's first words. A value that needs more than its
share reads its own blocks, far behind them. No draw depends on the number of words used by another.

This module needs NumPy only, since clients use it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from graphveil.errors import ConfigError

MAX_DIM = 1 << 20  # coordinates beyond would need blocks of the next row

_OWN = 1 << 31  # a row's blocks from here on belong to single coordinates,
_SPAN = 1 << 11  # this many to each
_CELLS = 1 << 16  # values per chunk: a low overhead per call, without allocating new memory at every step
_HALF = np.uint64(32)

Words = npt.NDArray[np.uint64]
Halves = npt.NDArray[np.uint32]
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Real = npt.NDArray[np.floating[Any]]


class Draws(Protocol):
    """Random 64-bit words by row: a keyed stream, or those of a client."""

    def reserve_rows(self, rows: Integers) -> None:
        """Reserve the words of rows for one record each; reject rows that were used before."""

    def words(self, rows: Integers, *, words_per_row: int) -> Words:
        """Return the first words of each row, shape (rows, words_per_row)."""

    def blocks(self, rows: Integers, offsets: Integers) -> Words:
        """Return the two words of a block of each row, shape (len(rows), 2)."""


@dataclass(frozen=True)
class ExtraWords:
    """The location of further words for an array of values, shape (rows, width)."""

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

    Each integer corresponds to floor(2^64 / bound) words or one more.

    >>> uniform_below(np.array([0, 2**63, 2**64 - 1], dtype=np.uint64), 10).tolist()
    [0, 5, 9]
    """
    times = np.asarray(bound, dtype=np.uint64)
    low = (words & np.uint64(0xFFFFFFFF)) * times >> _HALF
    drawn = (words >> _HALF) * times + low >> _HALF
    return drawn.view(np.int64)


def halves(words: Words) -> tuple[Halves, Halves]:
    """Return the low and the high 32 bits of each word, as views."""
    if words.strides[-1] != words.itemsize:  # a view needs contiguous words
        words = np.ascontiguousarray(words)
    pairs = words.astype("<u8", copy=False).view("<u4").reshape(*words.shape, 2)
    return pairs[..., 0], pairs[..., 1]


def round_up_or_down(position: Real, words: Halves) -> Integers:
    """Return floor or ceiling of each position >= 0, at random, with the position as expectation.

    The uniform is a multiple of 2^-32, which bounds the error of the expectation for positions below
    2^21. Beyond, float64 has fewer digits, and a sum may be rounded to the next integer.

    >>> round_up_or_down(np.array([1.25, 1.25]), np.array([0, 2**32 - 1], dtype=np.uint32)).tolist()
    [1, 2]
    """
    moved = words * 2.0**-32
    moved += position
    rounded: Integers = moved.astype(np.int64)
    return rounded


def subsets(words: Words, dim: int) -> Integers:
    """Return a uniform subset of range(dim) for each row of words, sorted, one element per word.

    These are the first steps of a Fisher-Yates shuffle: a choice among n has probability 1/n up to 2^-64.

    >>> subsets(np.array([[0, 0], [2**63, 2**63]], dtype=np.uint64), 6).tolist()
    [[0, 1], [0, 3]]
    """
    rows, count = words.shape
    if count == dim:
        return np.tile(np.arange(dim), (rows, 1))
    return np.sort(shuffled(words, dim)[:, :count], axis=1).astype(np.int64)


def shuffled(words: Words, dim: int) -> npt.NDArray[np.int32]:
    """Return range(dim) for each row of words, with as many randomly drawn first places as words.

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
    """Yield slices of rows with up to _CELLS values each.

    The size is a power of two, for which the counters of a keyed stream are cheap.
    """
    count = 1 << max(0, (_CELLS // width).bit_length() - 1)
    for first in range(0, rows, count):
        yield slice(first, min(first + count, rows))


TOTAL = 1 << 64
MAX_OUTPUTS = 1 << 8  # an output is one byte

_PRECISION = 2.0**-49  # relative, of a probability computed in float64 from an exponent of at most one
_LARGE = 45.0  # e^45 > 2^64: above, the ratio of any two counts is less than e^epsilon

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Channel:
    """Randomized response over a few values: ``counts[t][u]`` of 2^64 words give output u for input t.

    A channel has a row of probabilities for each input. Here they are counts that sum to 2^64, so a sampler
    of 64-bit words meets them exactly. The ratio of any two counts in a column is a ratio of integers. They
    are computed from real probabilities P with P(u|t) <= e^epsilon P(u|t'), k outputs in a row:

        count(u|t) = floor((2^64 - k c) P(u|t)) + c; the rest of 2^64 goes to the row's largest count,
        c = ceil((k + 1 + 2 eta 2^64) / (e^epsilon - 1)) + 1,  eta a bound on the relative error of P.

    Flooring and the rest move a count by at most k. The constant c gains (e^epsilon - 1) c on
    e^epsilon times the other count, which is more: no ratio exceeds e^epsilon. The law moves by at most
    k c 2^-64. If each count may move further by at most ``moved``, c grows by that and by
    2 moved / (e^epsilon - 1).
    """

    counts: tuple[tuple[int, ...], ...]

    @classmethod
    def from_probabilities(cls, table: npt.NDArray[np.float64], epsilon: float, moved: int = 0) -> "Channel":
        """Return the counts of a table of probabilities, shape (inputs, outputs), for a budget.

        >>> half = Channel.from_probabilities(np.full((2, 2), 0.5), 1.0)
        >>> half.loss, half.counts[0][0] == 2**63
        (0.0, True)
        """
        outputs = table.shape[1]
        eta = _PRECISION * (1 + epsilon)
        apart = math.expm1(min(epsilon, _LARGE))
        constant = math.ceil((outputs + 1 + 2 * moved + 2 * eta * TOTAL) / apart) if epsilon < _LARGE else 0
        constant += 1 + moved
        if constant * outputs > TOTAL >> 16:
            raise ConfigError(
                f"epsilon={epsilon:g} for one value with {outputs} outputs is too small for 64-bit "
                "sampling. Sample fewer features, or merge some."
            )
        return cls(tuple(_counts(row, constant) for row in table))

    @property
    def loss(self) -> float:
        """The largest log ratio of two counts in a column: the epsilon of the sampler."""
        columns = zip(*self.counts, strict=True)
        return max(math.log(max(column)) - math.log(min(column)) for column in columns)


def _counts(row: npt.NDArray[np.float64], constant: int) -> tuple[int, ...]:
    left = TOTAL - len(row) * constant
    ratios = [p.as_integer_ratio() for p in row.tolist()]
    unit = max(denominator for _, denominator in ratios)  # powers of two, so the largest is common to all
    shares = [numerator * (unit // denominator) for numerator, denominator in ratios]
    whole = sum(shares)  # normalizing integers is exact, so at most k are left over
    counts = [left * share // whole + constant for share in shares]
    counts[counts.index(max(counts))] += TOTAL - sum(counts)
    return tuple(counts)


@dataclass(frozen=True)
class Sampler:
    """Alias tables of several channels, concatenated: a row of 2^bits slots for each input.

    Words are 32 bits at first. An alias table (Walker 1977; Vose 1991) splits the 2^64 words of a row over
    K = 2^b slots of 2^(64-b) words, each of which belongs to at most two outputs. The low b bits are the
    slot, and the rest is compared with the slot's threshold. Only words that agree with its first 32 bits
    read further bits.
    """

    channels: tuple[Channel, ...]

    @cached_property
    def bits(self) -> int:
        return (max(len(channel.counts[0]) for channel in self.channels) - 1).bit_length()

    @cached_property
    def starts(self) -> Integers:
        rows = [len(channel.counts) for channel in self.channels]
        return np.cumsum([0, *rows[:-1]]) << self.bits

    def sample_outputs(
        self, inputs: Integers, words: Halves, place: ExtraWords, starts: Integers | None = None
    ) -> Bytes:
        """Return an output for each input, of the channels that start at ``starts`` (the first, if None)."""
        threshold, rest, other = self._tables
        slot = words & np.uint32((1 << self.bits) - 1)
        index = inputs << self.bits
        index += slot
        if starts is not None:
            index += starts
        limit = np.take(threshold, index, mode="clip")  # in range; mode "raise" would check again
        out = np.take(other, index, mode="clip")
        np.copyto(out, slot, where=words < limit, casting="unsafe")
        tied = np.flatnonzero(words == limit)
        if tied.size:
            at = index.reshape(-1)[tied]
            own = place.more(tied) >> np.uint64(32) < rest[at]
            out.reshape(-1)[tied] = np.where(own, slot.reshape(-1)[tied], other[at])
        return out

    @cached_property
    def _tables(self) -> tuple[Halves, Halves, Bytes]:
        """The first 32 bits of each slot's threshold (with the slot), the other 32, and the other output."""
        rows = [row for channel in self.channels for row in channel.counts]
        built = [entry for row in rows for entry in _alias(row, self.bits)]
        columns: Sequence[Sequence[Any]] = list(zip(*built, strict=True))
        return (
            np.array(columns[0], dtype=np.uint32),
            np.array(columns[1], dtype=np.uint32),
            np.array(columns[2], dtype=np.uint8),
        )


def _alias(counts: tuple[int, ...], bits: int) -> list[tuple[int, int, int]]:
    """Return (limit, rest, other) for each slot of a row: words below are the slot's own."""
    size = TOTAL >> bits
    left = [*counts, *[0] * ((1 << bits) - len(counts))]
    small = [slot for slot, count in enumerate(left) if count < size]
    large = [slot for slot, count in enumerate(left) if count >= size]
    table = [(TOTAL - 1 >> 32, 0, slot) for slot in range(1 << bits)]  # a full slot has no other output
    while small:
        slot = small.pop()
        rich = large[-1]
        high, low = divmod(left[slot], 1 << 32)
        table[slot] = ((high << bits) + slot, low, rich)
        left[rich] -= size - left[slot]
        if left[rich] < size:
            small.append(large.pop())
    return table

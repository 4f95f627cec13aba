"""Randomized response over a few values, drawn exactly: tables of whole numbers, at most e^epsilon apart.

A channel has a row of probabilities for each input. Here they are counts that add up to 2^64, so a sampler
of 64-bit words meets them exactly, and the ratio of any two counts in a column is a fact about integers. How
they come from real probabilities P with P(u|t) <= e^epsilon P(u|t'), k outputs in a row:

    count(u|t) = floor((2^64 - k c) P(u|t)) + c,   what is left of 2^64 goes to the row's largest count,
    c = ceil((k + 1 + 2 eta 2^64) / (e^epsilon - 1)) + 1,   eta a bound on the relative error of P.

Flooring and the leftover move a count by at most k, and the constant c gains (e^epsilon - 1) c on e^epsilon
times the other count, which is more: no ratio exceeds e^epsilon. The law moves by at most k c 2^-64. Where
each count is to move further by at most ``moved``, c grows by that and by 2 moved / (e^epsilon - 1).

Words are 32 bits at first. An alias table (Walker 1977; Vose 1991) splits the 2^64 words of a row over
K = 2^b slots of 2^(64-b) words, each of which belongs to at most two outputs: the low b bits are the slot,
and the rest is compared with the slot's threshold. Only words that agree with its first 32 bits read on.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from graphveil.errors import ConfigError
from graphveil.mechanisms._draws import ExtraWords, Halves, Integers

TOTAL = 1 << 64
MAX_OUTPUTS = 1 << 8  # an output is one byte

_PRECISION = 2.0**-49  # relative, of a probability computed in float64 from an exponent of at most one
_LARGE = 45.0  # e^45 > 2^64: beyond, a count of one is apart from any other by less than e^epsilon

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Channel:
    """Counts of 2^-64: ``counts[t][u]`` of output u for input t."""

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
                f"epsilon={epsilon:g} for one value over {outputs} outputs is below what 64 bits resolve; "
                "sample fewer features or merge some"
            )
        return cls(tuple(_counts(row, constant) for row in table))

    @property
    def loss(self) -> float:
        """The largest log ratio of two counts in a column: the epsilon that the sampler has."""
        columns = zip(*self.counts, strict=True)
        return max(math.log(max(column)) - math.log(min(column)) for column in columns)


def _counts(row: npt.NDArray[np.float64], constant: int) -> tuple[int, ...]:
    """Return the counts of one row."""
    left = TOTAL - len(row) * constant
    ratios = [p.as_integer_ratio() for p in row.tolist()]
    unit = max(denominator for _, denominator in ratios)  # powers of two, so the largest is common to all
    shares = [numerator * (unit // denominator) for numerator, denominator in ratios]
    whole = sum(shares)  # normalizing whole numbers rounds nothing, so at most k are left over
    counts = [left * share // whole + constant for share in shares]
    counts[counts.index(max(counts))] += TOTAL - sum(counts)
    return tuple(counts)


@dataclass(frozen=True)
class Sampler:
    """Alias tables of several channels, one after the other: a row of 2^bits slots for each input."""

    channels: tuple[Channel, ...]

    @cached_property
    def bits(self) -> int:
        """The b of K = 2^b slots."""
        return (max(len(channel.counts[0]) for channel in self.channels) - 1).bit_length()

    @cached_property
    def starts(self) -> Integers:
        """The first slot of each channel."""
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

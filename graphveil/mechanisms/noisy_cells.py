"""Laplace noise on the cells of an adjacency, of which only the largest come out."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from graphveil import _check
from graphveil._random import Integers, RowStream, Words
from graphveil.mechanisms._channel import Channel
from graphveil.mechanisms._marks import TOTAL, marks

_LEVELS = 128  # between 0 and 1, the only place where noisy values of cells tell more than their level does
_SURE = 8.0  # standard deviations
_KEEP, _LEVEL, _TIE = 1 << 30, (1 << 30) + 1, 1 << 31  # a row's blocks; those before are for marks
_CELLS = 1 << 18  # at a time
SHIFT = 8  # bits of a level, below the number of its cell


@dataclass(frozen=True)
class NoisyCells:
    """Cells 0 or 1 with Laplace noise of scale 1 / eps, of which those above a public bound are levelled.

    Given that a noisy value passes b >= 1, how far it does is exponential whatever the cell holds, and so is
    how far one below zero stays away from it: nothing about the order of such values depends on the cells.
    So a value is a level: below the bound b, up to 0, one of 128 between 0 and 1, or above 1. Equal levels
    are in random order.

    Guarantee: eps-indistinguishable for one cell: the probabilities of levels are whole numbers of 2^-64, at
    most e^eps apart (:class:`~graphveil.mechanisms._channel.Channel`), and the sampler meets them exactly.

    Args:
        epsilon: of one cell.
        cells: how many there are.
        wanted: how many of the largest are to be found.

    >>> cells = NoisyCells(0.99, 3_665_278, 5278)
    >>> 5.0 < cells.bound < 6.0
    True
    """

    epsilon: float
    cells: int
    wanted: int

    def __post_init__(self) -> None:
        """Check every field."""
        _check.positive(epsilon=self.epsilon)
        _check.integer_at_least(0, cells=self.cells, wanted=self.wanted)

    @cached_property
    def bound(self) -> float:
        """What at least the wanted number of cells pass, but for a chance below 1e-12, if all are 0."""
        enough = self.wanted + _SURE * math.sqrt(self.wanted) + _SURE**2
        if enough >= self.cells:
            return -math.inf
        share = enough / self.cells
        return -math.log(2 * share) / self.epsilon if share < 0.5 else math.log(2 - 2 * share) / self.epsilon

    @cached_property
    def channel(self) -> Channel:
        """The levels' probabilities for a cell of 0 and for one of 1."""
        edges = np.unique([max(self.bound, 0.0), *np.linspace(0, 1, _LEVELS + 1)])
        cuts = np.unique([self.bound, *edges[edges >= self.bound]])
        cuts = cuts[np.isfinite(cuts)]
        return Channel.of(np.array([self._levels(cuts - cell) for cell in (0, 1)]), self.epsilon)

    def _levels(self, cuts: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the probabilities of the levels between cuts; first comes what lies below the bound."""
        scaled = self.epsilon * cuts
        above = np.where(scaled > 0, 0.5 * np.exp(-abs(scaled)), 1 - 0.5 * np.exp(-abs(scaled)))
        below = np.where(scaled > 0, 1 - above, 0.5 * np.exp(-abs(scaled)))
        between = np.where(scaled[:-1] >= 0, above[:-1] - above[1:], below[1:] - below[:-1])
        return np.concatenate([below[:1], between, above[-1:]])

    @cached_property
    def _tails(self) -> tuple[list[int], list[int]]:
        """For either cell: how many words have each level above the bound or a higher one, lowest first."""
        first = 0 if self.bound == -math.inf else 1  # without a bound even the lowest level is one
        rows = [list(row[first:]) for row in self.channel.counts]
        tails = [[sum(row[place:]) for place in range(len(row))] for row in rows]
        return tails[0], tails[1]

    def draw(self, stream: RowStream, ones: Integers, start: int, stop: int) -> Integers:
        """Return the cells of start .. stop - 1 that pass the bound, ascending, each as cell 2^8 + level.

        Args:
            stream: keyed, addressed by cell: any partition of the cells draws the same.
            ones: the cells among them that hold 1, ascending, each once.
            start, stop: the range.
        """
        zero, one = self._tails
        passed = marks(stream, zero[0], start, stop)
        if len(ones):
            place = np.minimum(np.searchsorted(ones, passed), len(ones) - 1)
            passed = passed[ones[place] != passed]
        parts = [self._levelled(stream, part, zero) for part in _pieces(passed)]
        parts += [self._kept(stream, part, one) for part in _pieces(ones)]
        return np.sort(np.concatenate(parts), kind="stable") if parts else np.empty(0, dtype=np.int64)

    def _kept(self, stream: RowStream, ones: Integers, tails: list[int]) -> Integers:
        words = stream.blocks(ones, np.full(len(ones), _KEEP))[:, 0]
        stays = np.ones(len(ones), bool) if tails[0] == TOTAL else words < np.uint64(tails[0])
        return ones[stays] << SHIFT | _level(words[stays], tails)

    def _levelled(self, stream: RowStream, cells: Integers, tails: list[int]) -> Integers:
        """Return zeros that pass with their levels: words are drawn until one lies below the tail's count."""
        words = np.empty(len(cells), dtype=np.uint64)
        pending, attempt = np.arange(len(cells)), 0
        mask = np.uint64((1 << (tails[0] - 1).bit_length()) - 1)
        while pending.size:
            drawn = stream.blocks(cells[pending], np.full(len(pending), _LEVEL + attempt))[:, 0] & mask
            words[pending] = drawn
            pending, attempt = pending[drawn > np.uint64(tails[0] - 1)], attempt + 1
        return cells << SHIFT | _level(words, tails)

    def largest(self, stream: RowStream, found: Integers) -> Integers:
        """Return the wanted number of cells of the highest levels, ascending; fewer if fewer are there."""
        cells, level = found >> SHIFT, found & ((1 << SHIFT) - 1)
        if len(cells) <= self.wanted:
            return cells
        counts = np.bincount(level, minlength=1 << SHIFT)
        above = np.cumsum(counts[::-1])[::-1]  # of a level or a higher one
        last = int(np.flatnonzero(above >= self.wanted).max(initial=0))
        sure, open_ = cells[level > last], cells[level == last]
        words = np.concatenate(
            [stream.blocks(part, np.full(len(part), _TIE))[:, 0] for part in _pieces(open_)]
        )
        chosen = open_[np.argpartition(words, self.wanted - len(sure) - 1)[: self.wanted - len(sure)]]
        return np.sort(np.concatenate([sure, chosen]), kind="stable")


def _pieces(cells: Integers) -> list[Integers]:
    return np.split(cells, range(_CELLS, len(cells), _CELLS)) if len(cells) else []


def _level(words: Words, tails: list[int]) -> Integers:
    """Return the levels that words below the first tail stand for: the smallest words have the highest."""
    inner = np.array(tails[:0:-1], dtype=np.uint64)  # ascending, without the first
    return len(tails) - 1 - np.searchsorted(inner, words, side="right")

"""Laplace noise on the cells of an adjacency, of which only the largest come out."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from graphveil._util import checks
from graphveil._util.random import Integers, RowStream, Words
from graphveil.mechanisms._bernoulli import TOTAL, bernoulli_positions
from graphveil.mechanisms._channel import Channel
from graphveil.mechanisms._level_sampler import LevelSampler, under

_LEVELS = 128  # between 0 and 1, the only place where noisy values of cells tell more than their level does
_SURE = 8.0  # standard deviations
_ONES = 0.98  # of the wanted cells: the share that is expected to hold 1, or a little less
_HALVINGS = 60
_KEEP, _LEVEL, _TIE = 1 << 30, (1 << 30) + 1, 3 << 30  # a row's blocks; those before are for marks
_CELLS = 1 << 18  # at a time
SHIFT = 8  # bits of a level, below the number of its cell
MAX_CELLS = 1 << (63 - SHIFT)  # both share 64 bits with a sign
_LEVEL_OF = (1 << SHIFT) - 1


@dataclass(frozen=True)
class NoisyCells:
    """Cells 0 or 1 with Laplace noise of scale 1 / eps, of which those above public bounds are leveled.

    Given that a noisy value passes b >= 1, how far it does is exponential whatever the cell holds, and so is
    how far one below zero stays away from it: nothing about the order of such values depends on the cells.
    So a value is a level: below the bound b, up to 0, one of 128 between 0 and 1, or above 1. Equal levels
    are in random order.

    Levels are drawn in two tiers. What lies above ``first_bound`` is enough if about as many cells hold 1 as
    are wanted; only where it is not, which is seen by noisy levels alone, is the tier below drawn.

    Guarantee: eps-indistinguishable for one cell: the probabilities of levels are whole numbers of 2^-64 for
    a cell of 1 and of 2^-128 for one of 0, at most e^eps apart (:attr:`channel`), and the sampler meets them
    exactly.

    Args:
        epsilon: of one cell.
        cells: how many there are.
        wanted: how many of the largest are to be found.

    >>> cells = NoisyCells(0.99, 3_665_278, 5278)
    >>> 5.0 < cells.bound < 6.0, cells.tiers
    (True, 1)
    >>> NoisyCells(7.92, 6_844_441_500, 23_000_000).tiers
    2
    """

    epsilon: float
    cells: int
    wanted: int

    def __post_init__(self) -> None:
        """Check every field."""
        checks.positive(epsilon=self.epsilon)
        checks.integer_at_least(0, cells=self.cells, wanted=self.wanted)
        checks.within(0, MAX_CELLS, cells=self.cells)

    @property
    def _enough(self) -> float:
        return self.wanted + _SURE * math.sqrt(self.wanted) + _SURE**2

    @cached_property
    def bound(self) -> float:
        """What at least the wanted number of cells pass, but for a chance below 1e-12, if all are 0."""
        if self._enough >= self.cells:
            return -math.inf
        share = self._enough / self.cells
        return -math.log(2 * share) / self.epsilon if share < 0.5 else math.log(2 - 2 * share) / self.epsilon

    @cached_property
    def first_bound(self) -> float:
        """What so many cells pass if 98 % as many as are wanted hold 1: at least ``bound``, and at most 1."""
        if not 0 <= self.bound < 1:
            return self.bound
        ones, low, high = _ONES * self.wanted, self.bound, 1.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            zero, one = (self._levels(np.array([middle]), cell)[-1] for cell in (0, 1))
            low, high = (
                (middle, high) if ones * one + (self.cells - ones) * zero > self._enough else (low, middle)
            )
        return low

    @cached_property
    def _cuts(self) -> npt.NDArray[np.float64]:
        inner = [0.0, *np.linspace(0, 1, _LEVELS + 1), self.bound, self.first_bound]
        cuts: npt.NDArray[np.float64] = np.unique(inner)
        return cuts[np.isfinite(cuts) & (cuts >= self.bound)]

    @cached_property
    def channel(self) -> Channel:
        """The levels' counts for a cell of 0 and for one of 1.

        Two tiers lower the count of a level of a 0 by less than one, and raise that of the lowest by what
        the others lose. The counts leave room for that.
        """
        table = np.array([self._levels(self._cuts, cell) for cell in (0, 1)])
        return Channel.from_probabilities(table, self.epsilon, moved=table.shape[1])

    def _levels(self, cuts: npt.NDArray[np.float64], cell: int) -> npt.NDArray[np.float64]:
        """Return the probabilities of the levels between cuts; first comes what lies below the bound.

        No two cuts have 0 or 1 between them, so a level is a share of an exponential tail.
        """
        scaled = self.epsilon * (cuts - cell)
        tail = 0.5 * np.exp(-abs(scaled))
        widths = -np.expm1(-self.epsilon * np.diff(cuts))
        between = np.where(scaled[:-1] >= 0, tail[:-1], tail[1:]) * widths
        first = tail[0] if scaled[0] <= 0 else 1 - tail[0]
        last = tail[-1] if scaled[-1] > 0 else 1 - tail[-1]
        return np.concatenate([[first], between, [last]])

    @property
    def tiers(self) -> int:
        """How many tiers there are, 1 or 2."""
        return 1 + (self.bound < self.first_bound)

    @cached_property
    def _first_levels(self) -> list[int]:
        """The lowest level of each tier, the upper one first; without a bound level 0 is one, too."""
        lowest = int(self.bound != -math.inf)
        if self.tiers == 1:
            return [lowest]
        return [1 + int(np.searchsorted(self._cuts, self.first_bound)), lowest]

    @cached_property
    def ones(self) -> LevelSampler:
        """The levels of a cell of 1, by one word."""
        lowest = self._first_levels[-1]
        return LevelSampler(self.channel.counts[1][lowest:], lowest)

    @cached_property
    def zeros(self) -> tuple[LevelSampler, ...]:
        """The levels of a cell of 0, by a word for each tier: the second tier's, given not the first.

        With t words for the first tier, z of the channel's become floor(z 2^64 / (2^64 - t)).
        """
        counts, starts = self.channel.counts[0], self._first_levels
        first = LevelSampler(counts[starts[0] :], starts[0])
        if self.tiers == 1:
            return (first,)
        rest = [count * TOTAL // (TOTAL - first.total) for count in counts[starts[1] : starts[0]]]
        return first, LevelSampler(tuple(rest), starts[1])

    def draw(
        self, stream: RowStream, ones: Integers, start: int, stop: int, rest: RowStream | None = None
    ) -> Integers:
        """Return the cells of start .. stop - 1 in the first tier, ascending, each as cell 2^8 + level.

        Args:
            stream: keyed, addressed by cell: any partition of the cells draws the same.
            ones: the cells among them that hold 1, ascending, each once.
            start, stop: the range.
            rest: the second tier's own stream, if that is to be drawn. A cell of 0 that is in both tiers
                belongs to the first (:meth:`joined`).
        """
        tier, words = (0, stream) if rest is None else (1, rest)
        passed = bernoulli_positions(words, self.zeros[tier].total, start, stop)
        if len(ones):
            place = np.minimum(np.searchsorted(ones, passed), len(ones) - 1)
            passed = passed[ones[place] != passed]
        zeros = passed << SHIFT | self.zeros[tier].draw(words, passed, _LEVEL)
        found = [zeros, self._of_ones(stream.blocks(ones, np.array(_KEEP))[:, 0], ones, tier)]
        return np.sort(np.concatenate(found), kind="stable")  # two runs, which are merged

    def _of_ones(self, words: Words, ones: Integers, tier: int) -> Integers:
        """Return the cells of 1 that are in a tier."""
        inside = under(words, self.ones.words_from(self._first_levels[tier]))
        if tier:
            inside &= ~under(words, self.ones.words_from(self._first_levels[0]))
        return ones[inside] << SHIFT | self.ones.levels(words[inside])

    @staticmethod
    def joined(first: Integers, rest: Integers) -> Integers:
        """Return both tiers, ascending; what is in both counts for the first."""
        if len(first):
            place = np.minimum(np.searchsorted(first >> SHIFT, rest >> SHIFT), len(first) - 1)
            rest = rest[first[place] >> SHIFT != rest >> SHIFT]
        return np.sort(np.concatenate([first, rest]), kind="stable")

    def largest(self, stream: RowStream, found: Integers) -> Integers:
        """Return the wanted number of cells of the highest levels, ascending; fewer if fewer are there."""
        if len(found) <= self.wanted:
            return found >> SHIFT
        pieces = np.split(found, range(_CELLS, len(found), _CELLS))
        counts = np.sum([np.bincount(part & _LEVEL_OF, minlength=1 << SHIFT) for part in pieces], axis=0)
        above = np.cumsum(counts[::-1])[::-1]  # of a level or a higher one
        last = int(np.flatnonzero(above >= self.wanted).max(initial=0))
        tied = np.concatenate([part[part & _LEVEL_OF == last] for part in pieces]) >> SHIFT
        lucky = np.zeros(len(tied), dtype=bool)
        room = self.wanted - int(above[last] - counts[last])
        lucky[np.argpartition(stream.blocks(tied, np.array(_TIE))[:, 0], room - 1)[:room]] = True
        out, place, used = np.empty(self.wanted, dtype=np.int64), 0, 0
        for part in pieces:
            level = part & _LEVEL_OF
            keep, ties = level > last, level == last
            more = int(np.count_nonzero(ties))
            keep[ties] = lucky[used : used + more]
            chosen = part[keep] >> SHIFT
            out[place : place + len(chosen)] = chosen
            place, used = place + len(chosen), used + more
        return out

"""Levels by words: of so many words, the smallest have the highest level."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from graphveil._util.random import Integers, RowStream, Words
from graphveil.mechanisms._bernoulli import TOTAL

_BITS = 12  # of a word's first ones, which decide its level nearly always
_FEW = 1 << 14  # words, for which a table of first bits does not pay
_OPEN = 255  # more than one level has words with these first bits


@dataclass(frozen=True)
class LevelSampler:
    """How many words each level has, lowest first, and the number of the lowest; all others have none.

    >>> LevelSampler((1, 2, 4), lowest=5).levels(np.arange(7, dtype=np.uint64)).tolist()
    [7, 7, 7, 7, 6, 6, 5]
    """

    counts: tuple[int, ...]
    lowest: int

    @cached_property
    def total(self) -> int:
        """How many words have a level."""
        return sum(self.counts)

    def words_from(self, level: int) -> int:
        """Return how many words have a level or a higher one."""
        return sum(self.counts[max(0, level - self.lowest) :])

    def levels(self, words: Words) -> Integers:
        """Return the levels of words below the total."""
        if len(self.counts) == 1:
            return np.full(len(words), self.lowest)
        if len(words) < _FEW:
            return self._searched(words)
        found: Integers = self._first_bits[(words >> self._shift).view(np.int64)].astype(np.int64)
        open_ = np.flatnonzero(found == _OPEN)
        found[open_] = self._searched(words[open_])
        return found

    def draw(self, stream: RowStream, rows: Integers, first: int) -> Integers:
        """Return a level for each row, by the first of its words below the total, from a block on."""
        words = np.zeros(len(rows), dtype=np.uint64)
        pending, attempt = np.arange(len(rows) if len(self.counts) > 1 else 0), 0
        mask = np.uint64((1 << (self.total - 1).bit_length()) - 1)
        while pending.size:
            drawn = stream.blocks(rows[pending], np.array(first + attempt))[:, 0] & mask
            words[pending] = drawn
            pending, attempt = pending[drawn > np.uint64(self.total - 1)], attempt + 1
        return self.levels(words)

    def _searched(self, words: Words) -> Integers:
        return self.lowest + len(self.counts) - 1 - np.searchsorted(self._ends, words, side="right")

    @cached_property
    def _ends(self) -> Words:
        """Where the words of each level but the lowest end, highest level first."""
        return np.array(
            [self.words_from(self.lowest + k) for k in range(len(self.counts) - 1, 0, -1)], np.uint64
        )

    @property
    def _shift(self) -> np.uint64:
        return np.uint64(max(0, (self.total - 1).bit_length() - _BITS))

    @cached_property
    def _first_bits(self) -> npt.NDArray[np.uint8]:
        """The level of all words with the same first bits, if there is one."""
        starts = np.arange((self.total - 1 >> int(self._shift)) + 1, dtype=np.uint64) << self._shift
        low, high = (
            self._searched(starts),
            self._searched(starts + ((np.uint64(1) << self._shift) - np.uint64(1))),
        )
        return np.where(low == high, low, _OPEN).astype(np.uint8)


def under(words: Words, count: int) -> npt.NDArray[np.bool_]:
    """Return which words are below a count of at most 2^64."""
    return np.ones(len(words), bool) if count >= TOTAL else words < np.uint64(count)

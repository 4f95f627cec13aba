"""Independent marks on very many places, each with the same probability, in time of the order of the marks.

Places are cut into blocks of n = 2^k. How many of a block are marked is binomial, and given their number all
subsets are alike. With p = threshold / 2^64 the cumulative probabilities of the binomial are whole numbers
over 2^(64 n), so a uniform of enough bits decides exactly: its first 64 bits do, unless they are those of a
cumulative probability, and then 64 more are drawn. Nothing is rounded, so the law is the one that proofs are
about, to the last bit. n is about 1 / p: a block has one mark or so, and costs as much.

Where marks are not rare every place has a word of its own.

A block is a row of a keyed stream, whichever range of places is asked for: any partition of the places draws
the same marks.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from graphveil._util.random import Integers, RowStream, Words

TOTAL = 1 << 64  # what a probability of one is
_MIN_BITS, _MAX_BITS = 2, 14  # of a block's number of places; the tables of longer ones take seconds
_OFTEN = 16  # where one place in so many is marked, a word for each place costs less than blocks do
_ROW, _TOGETHER = 1 << 9, 1 << 8  # places of a row then, and rows at a time
_ROWS = 1 << 16  # blocks at a time: their words stay in the cache
_WORD = 64
_REFINE = 1 << 31  # a row's blocks from here on decide what its first word leaves open


def bernoulli_positions(stream: RowStream, threshold: int, start: int, stop: int) -> Integers:
    """Return the marked places of start .. stop - 1, ascending; each is marked with threshold / 2^64.

    >>> found = bernoulli_positions(RowStream(bytes(32)), 1 << 62, 0, 1000)
    >>> parts = [bernoulli_positions(RowStream(bytes(32)), 1 << 62, *ends) for ends in ((0, 333), (333,
    ...     1000))]
    >>> bool(200 < len(found) < 300), bool((np.concatenate(parts) == found).all())
    (True, True)
    """
    if threshold >= TOTAL:
        return np.arange(start, stop)
    if threshold <= 0 or start >= stop:
        return np.empty(0, dtype=np.int64)
    if 2 * threshold > TOTAL:
        return _all_but(bernoulli_positions(stream, TOTAL - threshold, start, stop), start, stop)
    if _OFTEN * threshold >= TOTAL:
        return _one_by_one(stream, threshold, start, stop)
    counts = _counts(threshold)
    first, last = start >> counts.bits, (stop - 1 >> counts.bits) + 1
    parts = [_of_blocks(stream, counts, rows) for rows in _runs(first, last, _ROWS)]
    found = np.concatenate(parts)
    return found[np.searchsorted(found, start) : np.searchsorted(found, stop)]


def _one_by_one(stream: RowStream, threshold: int, start: int, stop: int) -> Integers:
    """Return marks that are not rare: each place has a word of its own."""
    first, last = start // _ROW, -(-stop // _ROW)
    parts = []
    for rows in _runs(first, last, _TOGETHER):
        words = stream.words(rows, words_per_row=_ROW)
        parts.append(np.flatnonzero(words.reshape(-1) < np.uint64(threshold)) + rows[0] * _ROW)
    found = np.concatenate(parts)
    return found[np.searchsorted(found, start) : np.searchsorted(found, stop)]


def _runs(first: int, last: int, at_most: int) -> Iterator[Integers]:
    """Yield the rows first .. last - 1, cut at multiples of a power of two, where counters are cheap."""
    while first < last:
        stop = min(last, first - first % at_most + at_most)
        yield np.arange(first, stop)
        first = stop


def _all_but(places: Integers, start: int, stop: int) -> Integers:
    """Return the other places of a range."""
    marked = np.ones(stop - start, dtype=bool)
    marked[places - start] = False
    return np.flatnonzero(marked) + start


def _of_blocks(stream: RowStream, counts: "_Counts", rows: Integers) -> Integers:
    """Return the marked places of some blocks, ascending."""
    words = stream.words(rows, words_per_row=2)
    drawn = counts.of(words[:, 0], rows, stream)
    several = np.flatnonzero(drawn > 1)
    places = np.repeat(rows << counts.bits, drawn)
    within = np.repeat(words[:, 1] & counts.mask, drawn).view(np.int64)
    if several.size:
        of_several = np.repeat(drawn > 1, drawn)
        within[of_several] = _subsets(stream, rows[several], drawn[several], counts)
    return places + within


def _subsets(stream: RowStream, rows: Integers, sizes: Integers, counts: "_Counts") -> Integers:
    """Return a uniform subset of the places of each block, of a given size, ascending, one after the other.

    Places are drawn with replacement until all of a block's are distinct, which leaves every subset alike.
    """
    starts = np.cumsum(sizes) - sizes
    out = np.empty(int(sizes.sum()), dtype=np.int64)
    pending, attempt = np.arange(len(rows)), 0
    while pending.size:
        size = sizes[pending]
        which = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
        offsets = 1 + (attempt << counts.bits) + which
        drawn = stream.blocks(np.repeat(rows[pending], size), offsets)[:, 0] & counts.mask
        keyed = np.sort(np.repeat(np.arange(len(pending)) << counts.bits, size) + drawn.view(np.int64))
        within = keyed & int(counts.mask)
        twice = np.zeros(len(pending), dtype=bool)
        twice[keyed[1:][keyed[1:] == keyed[:-1]] >> counts.bits] = True
        good = np.repeat(~twice, size)
        out[np.repeat(starts[pending], size)[good] + which[good]] = within[good]
        pending, attempt = pending[twice], attempt + 1
    return out


@dataclass(frozen=True)
class _Counts:
    """The binomial law of a block: cumulative probabilities, by their first 64 bits or exact."""

    bits: int  # k
    threshold: int
    table: Words = field(repr=False)
    exact: list[int] = field(repr=False, compare=False)  # numerators over 2^(64 n), as far as they were asked
    last: list[int] = field(repr=False, compare=False)  # the last term of their sum

    @property
    def mask(self) -> np.uint64:
        """The bits of a place within its block."""
        return np.uint64((1 << self.bits) - 1)

    def of(self, words: Words, rows: Integers, stream: RowStream) -> Integers:
        """Return how many places of each block are marked."""
        found = np.searchsorted(self.table, words, side="left").astype(np.int64)
        tied = np.flatnonzero(words == self.table[np.minimum(found, len(self.table) - 1)])
        for i in tied.tolist():
            found[i] = self._refined(int(words[i]), int(found[i]), int(rows[i]), stream)
        return found

    def _refined(self, word: int, count: int, row: int, stream: RowStream) -> int:
        """Return the number of marks where the first word is that of a cumulative probability."""
        drawn, bits, more = word, _WORD, 0
        while count < 1 << self.bits:
            limit = self._cumulative(count) >> ((_WORD << self.bits) - bits)
            if drawn < limit:
                return count
            if drawn > limit:
                count += 1
                continue
            (further, _), more = stream.blocks(np.array([row]), np.array([_REFINE + more]))[0], more + 1
            drawn, bits = drawn << _WORD | int(further), bits + _WORD
            if bits > _WORD << self.bits:
                return count + 1  # equal to the last bit: a uniform in [0, 1) is not below it
        return count

    def _cumulative(self, count: int) -> int:
        """Return the numerator of P(at most this many marks)."""
        places, rest = 1 << self.bits, TOTAL - self.threshold
        while len(self.exact) <= count:
            done = len(self.exact)
            self.last[0] = self.last[0] * ((places - done + 1) * self.threshold) // (done * rest)
            self.exact.append(self.exact[-1] + self.last[0])
        return self.exact[count]


@lru_cache(maxsize=8)
def _counts(threshold: int) -> _Counts:
    """Return the law of a block of about 1 / p places."""
    bits = min(max((TOTAL // threshold).bit_length(), _MIN_BITS), _MAX_BITS)
    none = (TOTAL - threshold) ** (1 << bits)
    law = _Counts(bits, threshold, np.empty(0, dtype=np.uint64), [none], [none])
    found: list[int] = []
    while len(found) < 1 << bits and (not found or found[-1] < TOTAL - 1):
        found.append(law._cumulative(len(found)) >> ((_WORD << bits) - _WORD))
    return _Counts(bits, threshold, np.array(found, dtype=np.uint64), law.exact, law.last)

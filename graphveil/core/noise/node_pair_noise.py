"""Noise on the node pairs of a graph: randomized response on each, or Laplace noise on cells.

Both are exact, and take time proportional to the size of the output, not to the number of pairs.

*Marks* (``bernoulli_positions``). Places are divided into blocks of n = 2^k. The number of marks in a block
is binomial, and given this number all subsets are equally likely. With p = threshold / 2^64 the cumulative
probabilities of the binomial are integers over 2^(64 n), so a uniform of enough bits decides exactly. Its
first 64 bits are enough, unless they equal those of a cumulative probability; then 64 more are drawn. Nothing
is rounded, so the sampled law is the one in the proofs, to the last bit. n is about 1 / p: a block has about
one mark, and takes time accordingly.

If marks are not rare, every place has its own word.

A block is a row of a keyed stream, for every requested range of places: any partition of the places draws
the same marks.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from graphveil._util import checks
from graphveil.core.noise.random import Integers, RowStream, Words
from graphveil.core.noise.sampling import Channel
from graphveil.errors import ConfigError

TOTAL = 1 << 64  # represents a probability of one
_MIN_BITS, _MAX_BITS = 2, 14  # log2 of a block's places; computing the tables of longer blocks takes seconds
_OFTEN = 16  # above one mark per 16 places, a word for each place is faster than blocks
_ROW, _TOGETHER = 1 << 9, 1 << 8  # places per row in that case, and rows per chunk
_ROWS = 1 << 16  # blocks per chunk: their words fit into the cache
_WORD = 64
_REFINE = 1 << 31  # a row's blocks from here on are for words that are not decided by the first


def bernoulli_positions(stream: RowStream, threshold: int, start: int, stop: int) -> Integers:
    """Return the marked places of start .. stop - 1, ascending; the probability is threshold / 2^64.

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
        marked = np.ones(stop - start, dtype=bool)  # all but the places that the rarer event marks
        marked[bernoulli_positions(stream, TOTAL - threshold, start, stop) - start] = False
        return np.flatnonzero(marked) + start
    if _OFTEN * threshold >= TOTAL:
        return _one_by_one(stream, threshold, start, stop)
    counts = _counts(threshold)
    first, last = start >> counts.bits, (stop - 1 >> counts.bits) + 1
    parts = [_of_blocks(stream, counts, rows) for rows in _runs(first, last, _ROWS)]
    found = np.concatenate(parts)
    return found[np.searchsorted(found, start) : np.searchsorted(found, stop)]


def _one_by_one(stream: RowStream, threshold: int, start: int, stop: int) -> Integers:
    first, last = start // _ROW, -(-stop // _ROW)
    parts = []
    for rows in _runs(first, last, _TOGETHER):
        words = stream.words(rows, words_per_row=_ROW)
        parts.append(np.flatnonzero(words.reshape(-1) < np.uint64(threshold)) + rows[0] * _ROW)
    found = np.concatenate(parts)
    return found[np.searchsorted(found, start) : np.searchsorted(found, stop)]


def _runs(first: int, last: int, at_most: int) -> Iterator[Integers]:
    """Yield the rows first .. last - 1, split at multiples of a power of two, where counters are cheap."""
    while first < last:
        stop = min(last, first - first % at_most + at_most)
        yield np.arange(first, stop)
        first = stop


def _of_blocks(stream: RowStream, counts: "_Counts", rows: Integers) -> Integers:
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
    """Return a uniform subset of the places of each block, of a given size, ascending, concatenated.

    Places are drawn with replacement until all of a block's are distinct, so every subset is equally likely.
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
    exact: list[int] = field(repr=False, compare=False)  # numerators over 2^(64 n), computed on demand
    last: list[int] = field(repr=False, compare=False)  # the last term of their sum

    @property
    def mask(self) -> np.uint64:
        return np.uint64((1 << self.bits) - 1)

    def of(self, words: Words, rows: Integers, stream: RowStream) -> Integers:
        found = np.searchsorted(self.table, words, side="left").astype(np.int64)
        tied = np.flatnonzero(words == self.table[np.minimum(found, len(self.table) - 1)])
        for i in tied.tolist():
            found[i] = self._refined(int(words[i]), int(found[i]), int(rows[i]), stream)
        return found

    def _refined(self, word: int, count: int, row: int, stream: RowStream) -> int:
        """Return the number of marks if the first word equals that of a cumulative probability."""
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
                return count + 1  # equal in all bits: a uniform in [0, 1) is not below it
        return count

    def _cumulative(self, count: int) -> int:
        places, rest = 1 << self.bits, TOTAL - self.threshold
        while len(self.exact) <= count:
            done = len(self.exact)
            self.last[0] = self.last[0] * ((places - done + 1) * self.threshold) // (done * rest)
            self.exact.append(self.exact[-1] + self.last[0])
        return self.exact[count]


@lru_cache(maxsize=8)
def _counts(threshold: int) -> _Counts:
    bits = min(max((TOTAL // threshold).bit_length(), _MIN_BITS), _MAX_BITS)
    none = (TOTAL - threshold) ** (1 << bits)
    law = _Counts(bits, threshold, np.empty(0, dtype=np.uint64), [none], [none])
    found: list[int] = []
    while len(found) < 1 << bits and (not found or found[-1] < TOTAL - 1):
        found.append(law._cumulative(len(found)) >> ((_WORD << bits) - _WORD))
    return _Counts(bits, threshold, np.array(found, dtype=np.uint64), law.exact, law.last)


_DIGITS = 60
_DOUBT = Decimal(10) ** -30  # far above the error at this precision, far below one word in 2^64
_KEEP = 1 << 30  # a row's block for the edge of its node pair; earlier blocks are for marks


@dataclass(frozen=True)
class EdgeRandomizedResponse:
    """Randomize each node pair independently, and optionally subsample the reported edges.

    With p = e^eps / (1 + e^eps) an edge stays an edge with probability p s, and another pair becomes one with
    probability (1 - p) s. This is randomized response (EdgeRand, s = 1), followed by a coin that keeps a
    share s of the ones (ARR). s may depend on public numbers and earlier noisy answers only.

    Privacy:
        eps-indistinguishability for one node pair, for every s. Both probabilities are integer multiples of
        2^-64, the larger one rounded down and the smaller one up, so no ratio exceeds e^eps. The sampler
        meets them exactly.

    >>> response = EdgeRandomizedResponse(1.0)
    >>> round(response.flip, 10)
    0.2689414214
    >>> arr = EdgeRandomizedResponse(0.9, share=0.0049696569)
    >>> f"{arr.keep / TOTAL:.7f} {arr.add / TOTAL:.7f}"
    '0.0035332 0.0014365'
    """

    epsilon: float
    share: float = 1.0

    def __post_init__(self) -> None:
        checks.positive(epsilon=self.epsilon)
        checks.within(0, 1, share=self.share)

    @property
    def flip(self) -> float:
        """The probability 1 / (1 + e^eps) that a node pair is flipped."""
        return float(1 - self._truth)

    @property
    def _truth(self) -> Decimal:
        with localcontext(prec=_DIGITS):
            return 1 / (1 + (-Decimal(self.epsilon)).exp())

    @cached_property
    def keep(self) -> int:
        """Number of the 2^64 words for which an edge stays an edge."""
        with localcontext(prec=_DIGITS):
            exact = self._truth * Decimal(self.share) * TOTAL - _DOUBT
            return max(0, int(exact.to_integral_value(ROUND_FLOOR)))

    @cached_property
    def add(self) -> int:
        """Number of the 2^64 words for which another pair becomes an edge."""
        with localcontext(prec=_DIGITS):
            exact = (1 - self._truth) * Decimal(self.share) * TOTAL + _DOUBT
            # A share of less than 2^-64 leaves no word for an edge, and then none for the others.
            return min(self.keep, int(exact.to_integral_value(ROUND_CEILING)))

    def estimate_deviation(self) -> float:
        """Return the standard deviation of the unbiased estimate (y - q) / (1 - 2 q), without subsampling.

        >>> round(EdgeRandomizedResponse(1.0).estimate_deviation(), 6)
        0.959517
        """
        q = self.flip
        slope = 1 - 2 * q  # 0 below epsilon 1e-16, where the limit of the formula is 1 / epsilon
        return float((q * (1 - q)) ** 0.5 / slope) if slope else 1 / self.epsilon

    def draw(self, stream: RowStream, edges: Integers, start: int, stop: int) -> Integers:
        """Return the node pairs of start .. stop - 1 that are edges afterwards, ascending.

        Args:
            stream: Keyed, addressed by node pair: any partition of the pairs draws the same.
            edges: Node pairs of the range that are edges, ascending, each once.
        """
        if len(edges) and not start <= edges[0] <= edges[-1] < stop:
            raise ConfigError("edges must be within the range of node pairs for which noise is drawn")
        added = bernoulli_positions(stream, self.add, start, stop)
        if not len(edges):
            return added
        kept = edges[stream.blocks(edges, np.array(_KEEP))[:, 0] < np.uint64(self.keep)]
        place = np.minimum(np.searchsorted(edges, added), len(edges) - 1)
        added = added[edges[place] != added]
        return np.sort(np.concatenate([kept, added]), kind="stable")  # merges two sorted runs


_BITS = 12  # leading bits of a word, which almost always determine its level
_FEW = 1 << 14  # words, below which a table of leading bits is slower
_OPEN = 255  # more than one level has words with these first bits


@dataclass(frozen=True)
class LevelSampler:
    """The number of words of each level, lowest first, and the index of the lowest; all others have none.

    >>> LevelSampler((1, 2, 4), lowest=5).levels(np.arange(7, dtype=np.uint64)).tolist()
    [7, 7, 7, 7, 6, 6, 5]
    """

    counts: tuple[int, ...]
    lowest: int

    @cached_property
    def total(self) -> int:
        return sum(self.counts)

    def words_from(self, level: int) -> int:
        return sum(self.counts[max(0, level - self.lowest) :])

    def levels(self, words: Words) -> Integers:
        if len(self.counts) == 1:
            return np.full(len(words), self.lowest)
        if len(words) < _FEW:
            return self._searched(words)
        found: Integers = self._first_bits[(words >> self._shift).view(np.int64)].astype(np.int64)
        open_ = np.flatnonzero(found == _OPEN)
        found[open_] = self._searched(words[open_])
        return found

    def draw(self, stream: RowStream, rows: Integers, first: int) -> Integers:
        """Return a level for each row, from the first of its words below the total, starting at a block."""
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
        """The ends of the words of each level but the lowest, highest level first."""
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


_LEVELS = 128  # levels between 0 and 1; only there do noisy values hold more information
_SURE = 8.0  # standard deviations
_ONES = 0.98  # share of the wanted cells that is expected to hold 1, or a little less
_HALVINGS = 60
_LEVEL, _TIE = (1 << 30) + 1, 3 << 30  # further blocks of a row
_CELLS = 1 << 18  # cells per chunk
SHIFT = 8  # bits of a level, stored below its cell's index
MAX_CELLS = 1 << (63 - SHIFT)  # cell and level share 64 bits with a sign
_LEVEL_OF = (1 << SHIFT) - 1


@dataclass(frozen=True)
class NoisyCells:
    """Cells 0 or 1 with Laplace noise of scale 1 / eps; values above public bounds are grouped into levels.

    Given that a noisy value exceeds b >= 1, the excess is exponential for both cell values. So is the
    distance below zero of a smaller value. The order of such values therefore does not depend on the cells. A
    value is represented by a level: below the bound b, up to 0, one of 128 between 0 and 1, or above 1. Equal
    levels are in random order.

    Levels are drawn in two tiers. Values above ``first_bound`` are enough if about as many cells hold 1 as
    are wanted. Otherwise, as decided by noisy levels alone, the tier below is drawn as well.

    Privacy:
        eps-indistinguishability for one cell: the probabilities of levels are integer multiples of 2^-64 for
        a cell of 1 and of 2^-128 for one of 0, with ratios of at most e^eps (``channel``). The sampler meets
        them exactly.

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
        checks.positive(epsilon=self.epsilon)
        checks.integer_at_least(0, cells=self.cells, wanted=self.wanted)
        checks.within(0, MAX_CELLS, cells=self.cells)

    @property
    def _enough(self) -> float:
        return self.wanted + _SURE * math.sqrt(self.wanted) + _SURE**2

    @cached_property
    def bound(self) -> float:
        """A bound that at least the wanted number of cells exceed, up to probability 1e-12, if all are 0."""
        if self._enough >= self.cells:
            return -math.inf
        share = self._enough / self.cells
        return -math.log(2 * share) / self.epsilon if share < 0.5 else math.log(2 - 2 * share) / self.epsilon

    @cached_property
    def first_bound(self) -> float:
        """Bound of the first tier if 98 % of the wanted cells hold 1: at least ``bound``, and at most 1."""
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

        Two tiers lower the count of a level of a 0 by less than one, and raise that of the lowest by the
        same total. The counts allow for that.
        """
        table = np.array([self._levels(self._cuts, cell) for cell in (0, 1)])
        return Channel.from_probabilities(table, self.epsilon, moved=table.shape[1])

    def _levels(self, cuts: npt.NDArray[np.float64], cell: int) -> npt.NDArray[np.float64]:
        """Return the probabilities of the levels between cuts, starting with that of values below the bound.

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
        return 1 + (self.bound < self.first_bound)

    @cached_property
    def _first_levels(self) -> list[int]:
        """The lowest level of each tier, the upper one first; without a bound level 0 is included."""
        lowest = int(self.bound != -math.inf)
        if self.tiers == 1:
            return [lowest]
        return [1 + int(np.searchsorted(self._cuts, self.first_bound)), lowest]

    @cached_property
    def ones(self) -> LevelSampler:
        lowest = self._first_levels[-1]
        return LevelSampler(self.channel.counts[1][lowest:], lowest)

    @cached_property
    def zeros(self) -> tuple[LevelSampler, ...]:
        """The levels of a cell of 0, by a word for each tier: the second tier's, given not the first.

        With t words for the first tier, z words of the channel become floor(z 2^64 / (2^64 - t)).
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
            stream: Keyed, addressed by cell: any partition of the cells draws the same.
            ones: Cells of the range that hold 1, ascending, each once.
            rest: Stream of the second tier, to draw that tier. A cell of 0 that is in both tiers
                belongs to the first (``joined``).
        """
        tier, words = (0, stream) if rest is None else (1, rest)
        passed = bernoulli_positions(words, self.zeros[tier].total, start, stop)
        if len(ones):
            place = np.minimum(np.searchsorted(ones, passed), len(ones) - 1)
            passed = passed[ones[place] != passed]
        of_zeros = passed << SHIFT | self.zeros[tier].draw(words, passed, _LEVEL)
        coins = stream.blocks(ones, np.array(_KEEP))[:, 0]
        inside = under(coins, self.ones.words_from(self._first_levels[tier]))
        if tier:
            inside &= ~under(coins, self.ones.words_from(self._first_levels[0]))
        of_ones = ones[inside] << SHIFT | self.ones.levels(coins[inside])
        return np.sort(np.concatenate([of_zeros, of_ones]), kind="stable")  # merges two sorted runs

    @staticmethod
    def joined(first: Integers, rest: Integers) -> Integers:
        if len(first):
            place = np.minimum(np.searchsorted(first >> SHIFT, rest >> SHIFT), len(first) - 1)
            rest = rest[first[place] >> SHIFT != rest >> SHIFT]
        return np.sort(np.concatenate([first, rest]), kind="stable")

    def largest(self, stream: RowStream, found: Integers) -> Integers:
        """Return the wanted number of cells of the highest levels, ascending, or fewer if there are fewer."""
        if len(found) <= self.wanted:
            return found >> SHIFT
        pieces = np.split(found, range(_CELLS, len(found), _CELLS))
        counts = np.sum([np.bincount(part & _LEVEL_OF, minlength=1 << SHIFT) for part in pieces], axis=0)
        above = np.cumsum(counts[::-1])[::-1]  # cells of a level or a higher one
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

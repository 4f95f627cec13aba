"""Independent marks: their law against all subsets, their exactness, and that no partition changes them."""

from fractions import Fraction
from itertools import pairwise
from math import comb

import numpy as np
import pytest
from scipy import stats

from graphveil.core.noise import node_pair_noise
from graphveil.core.noise.node_pair_noise import TOTAL, bernoulli_positions
from graphveil.core.noise.random import RowStream

STREAM = RowStream(bytes(range(32)))
CASES = {"rare": 0.01, "two or three": 0.06, "seldom": 0.09, "some": 0.27, "half": 0.5, "most": 0.8}


def subsets(threshold: int, places: int, repeats: int) -> np.ndarray:
    """Return how often each subset of so many places was marked, by its bits."""
    found = bernoulli_positions(STREAM, threshold, 0, places * repeats)
    codes = np.zeros(repeats, dtype=np.int64)
    np.add.at(codes, found // places, 1 << (found % places))
    return np.bincount(codes, minlength=1 << places)


def p_value(counts: np.ndarray, p: float) -> float:
    """Return that of a chi-square test against independent marks; rare subsets are put together."""
    marked = np.array([code.bit_count() for code in range(len(counts))])
    places = len(counts).bit_length() - 1
    expected = counts.sum() * p**marked * (1 - p) ** (places - marked)
    order = np.argsort(expected)
    group = np.minimum(np.cumsum(expected[order]) // 8, 1 << 30).astype(np.int64)
    _, group = np.unique(group, return_inverse=True)
    seen, hoped = (np.bincount(group, weights=values[order]) for values in (counts, expected))
    keep = hoped > 4
    return float(stats.chisquare(seen[keep], hoped[keep] * seen[keep].sum() / hoped[keep].sum()).pvalue)


@pytest.mark.parametrize("p", CASES.values(), ids=CASES)
def test_every_subset_is_marked_as_often_as_it_should_be(p: float) -> None:
    counts = subsets(int(p * TOTAL), 6, 40_000)
    assert p_value(counts, p) > 1e-4


def test_a_slightly_wrong_probability_is_noticed() -> None:
    assert p_value(subsets(int(0.27 * TOTAL), 6, 40_000), 0.27 * 1.03) < 1e-4


@pytest.mark.parametrize("p", CASES.values(), ids=CASES)
def test_any_partition_of_the_places_draws_the_same(p: float) -> None:
    threshold, ends = int(p * TOTAL), [5, 6, 6, 70, 71, 4096, 9000]
    parts = [bernoulli_positions(STREAM, threshold, start, stop) for start, stop in pairwise(ends)]
    whole = bernoulli_positions(STREAM, threshold, ends[0], ends[-1])
    assert np.concatenate(parts).tolist() == whole.tolist()
    assert (np.diff(whole) > 0).all()


def test_nothing_and_everything() -> None:
    assert bernoulli_positions(STREAM, 0, 0, 100).size == 0
    assert bernoulli_positions(STREAM, TOTAL, 3, 7).tolist() == [3, 4, 5, 6]
    assert bernoulli_positions(STREAM, TOTAL // 3, 7, 7).size == 0


def test_the_smallest_probability_marks_nothing_in_practice() -> None:
    assert bernoulli_positions(STREAM, 1, 0, 1 << 22).size == 0


@pytest.mark.parametrize("threshold", [TOTAL // 3, TOTAL // 7 + 1, TOTAL // 50])
def test_tables_hold_the_exact_binomial(threshold: int) -> None:
    law, p = node_pair_noise._counts(threshold), Fraction(threshold, TOTAL)
    n = 1 << law.bits
    total = Fraction(0)
    for count, first in enumerate(law.table.tolist()):
        total += comb(n, count) * p**count * (1 - p) ** (n - count)
        assert Fraction(law._cumulative(count), 1 << (64 * n)) == total
        assert first == total.numerator * TOTAL // total.denominator


@pytest.mark.parametrize("above", [True, False])
def test_a_word_that_ties_with_a_cumulative_probability_reads_on(above: bool) -> None:
    law = node_pair_noise._counts(TOTAL // 3)
    bits = 64 << law.bits
    second = law._cumulative(1) >> (bits - 128) & (TOTAL - 1)

    class Next:
        def blocks(self, rows: np.ndarray, offsets: np.ndarray) -> np.ndarray:
            return np.array([[second + (1 if above else -1), 0]], dtype=np.uint64)

    word = np.array([law.table[1]], dtype=np.uint64)
    assert law.of(word, np.array([0]), Next()).tolist() == [2 if above else 1]  # type: ignore[arg-type]

"""The largest noisy cells: the loss of one cell, and the law of the set against brute force."""

import math
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from graphveil.core.edges.node_pairs import Domain
from graphveil.core.noise.node_pair_noise import MAX_CELLS, SHIFT, TOTAL, LevelSampler, NoisyCells, under
from graphveil.core.noise.random import RowStream
from graphveil.errors import ConfigError
from graphveil.perturb import LapGraph

ONES, CELLS, WANTED = (1, 2, 5), 6, 3
TIERED = [(4.0, 3000, 50), (8.0, 10**8, 10**6), (7.92, 6_844_441_500, 23_000_000), (44.0, 10**6, 5000)]
CASES = [
    (0.1, 3_665_278, 5278),
    (1.0, 6, 3),
    (1.0, 1000, 20),
    (2.0, 1000, 600),
    (8.0, 10**10, 10**6),
    (30.0, 100, 3),
    (60.0, 10**6, 50_000),
    *TIERED,
]


def laws(cells: NoisyCells) -> tuple[list[Fraction], list[Fraction]]:
    """Return the exact probabilities of a cell of 0 and of one of 1: no level, then each level."""
    found, open_ = {}, Fraction(1)
    for ladder in cells.zeros:
        found |= {ladder.lowest + k: open_ * Fraction(n, TOTAL) for k, n in enumerate(ladder.counts)}
        open_ *= 1 - Fraction(ladder.total, TOTAL)
    zero = [found[level] for level in sorted(found)]
    one = [Fraction(count, TOTAL) for count in cells.ones.counts]
    return [1 - sum(zero), *zero], [1 - sum(one), *one]


@pytest.mark.parametrize(("epsilon", "cells", "wanted"), CASES)
def test_no_level_has_a_larger_loss_than_epsilon(epsilon: float, cells: int, wanted: int) -> None:
    """No level is more than e^epsilon times as likely for a cell of 1, in exact arithmetic."""
    zero, one = laws(NoisyCells(epsilon, cells, wanted))
    with localcontext(prec=80):
        most = Decimal(epsilon).exp()
        for ratio in (
            p / q for pair in zip(zero, one, strict=True) if any(pair) for p, q in (pair, pair[::-1])
        ):
            assert ratio.numerator <= most * ratio.denominator, f"a level tells more than {epsilon}"


@pytest.mark.parametrize(("epsilon", "cells", "wanted"), TIERED)
def test_two_tiers_have_the_law_of_one(epsilon: float, cells: int, wanted: int) -> None:
    found = NoisyCells(epsilon, cells, wanted)
    assert found.tiers == 2 and found.bound < found.first_bound <= 1
    for law, counts in zip(laws(found), found.channel.counts, strict=True):
        apart = max(abs(p - Fraction(n, TOTAL)) for p, n in zip(law, counts, strict=True))
        assert apart < Fraction(200, TOTAL), "another law"


@pytest.mark.parametrize(("epsilon", "cells", "wanted"), TIERED)
def test_the_first_tier_is_enough_for_as_many_ones_as_are_wanted(
    epsilon: float, cells: int, wanted: int
) -> None:
    found = NoisyCells(epsilon, cells, wanted)
    one, zero = (
        tail / TOTAL for tail in (found.ones.words_from(found.zeros[0].lowest), found.zeros[0].total)
    )
    passed = 0.98 * wanted * one + (cells - 0.98 * wanted) * zero
    assert passed == pytest.approx(wanted + 8 * math.sqrt(wanted) + 64, rel=1e-6)


@pytest.mark.parametrize(("epsilon", "cells", "wanted"), CASES)
def test_enough_cells_pass_the_bound(epsilon: float, cells: int, wanted: int) -> None:
    found = NoisyCells(epsilon, cells, wanted)
    share = 1 - found.channel.counts[0][0] / TOTAL if math.isfinite(found.bound) else 1.0
    assert share * cells >= min(cells, wanted + 8 * math.sqrt(wanted)) * (1 - 1e-6)


def brute_force(epsilon: float) -> dict[tuple[int, ...], float]:
    """Return the probability of each set of the largest cells, integrated over its smallest member."""
    values = np.linspace(-40 / epsilon, 1 + 40 / epsilon, 200_001)
    shift = np.isin(np.arange(CELLS), ONES)[:, None]
    density = 0.5 * epsilon * np.exp(-epsilon * abs(values - shift))
    below = np.where(
        values < shift,
        0.5 * np.exp(-epsilon * abs(values - shift)),
        1 - 0.5 * np.exp(-epsilon * abs(values - shift)),
    )
    sets = {}
    for chosen in combinations(range(CELLS), WANTED):
        rest = [cell for cell in range(CELLS) if cell not in chosen]
        total = 0.0
        for smallest in chosen:
            others = [cell for cell in chosen if cell != smallest]
            integrand = density[smallest] * (1 - below[others]).prod(axis=0) * below[rest].prod(axis=0)
            total += float(np.trapezoid(integrand, values))
        sets[chosen] = total
    return sets


class Tiered(NoisyCells):
    """Few cells in two tiers, which take all of them."""

    bound, first_bound = -math.inf, 0.5


def top(cells: NoisyCells, stream: RowStream, ones: np.ndarray, rest: bytes = bytes(32)) -> np.ndarray:
    """Return the largest cells, of both tiers where the first is not enough."""
    found = cells.draw(stream, ones, 0, cells.cells)
    if len(found) < cells.wanted and cells.tiers > 1:
        found = cells.joined(found, cells.draw(stream, ones, 0, cells.cells, RowStream(rest)))
    return cells.largest(stream, found)


@pytest.mark.parametrize("kind", [NoisyCells, Tiered])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_every_set_is_as_likely_as_by_enumeration(epsilon: float, kind: type[NoisyCells]) -> None:
    expected, cells, repeats = brute_force(epsilon), kind(epsilon, CELLS, WANTED), 4000
    assert sum(expected.values()) == pytest.approx(1, abs=1e-6)
    seen = Counter[tuple[int, ...]]()
    for graph in range(repeats):
        keys = graph.to_bytes(32, "big"), graph.to_bytes(32, "little")
        seen[tuple(top(cells, RowStream(keys[0]), np.array(ONES), keys[1]).tolist())] += 1
    hoped = np.array(list(expected.values()))
    counts = [seen[chosen] for chosen in expected]
    assert stats.chisquare(counts, hoped / hoped.sum() * repeats).pvalue > 1e-4, "another law"


def test_fewer_ones_than_wanted_cost_a_second_tier_and_no_edge() -> None:
    cells = NoisyCells(8.0, 100_000, 2000)
    first = cells.draw(RowStream(bytes(32)), np.arange(5), 0, cells.cells)
    assert 10 < len(first) < 1000
    found = top(cells, RowStream(bytes(32)), np.arange(5), bytes(31) + b"r")
    assert len(found) == 2000 and (np.diff(found) > 0).all() and set(first >> SHIFT) <= set(found)


def test_large_graphs_keep_as_many_true_edges_as_plain_laplace_noise() -> None:
    size, ones, epsilon, repeats = 3000, np.arange(0, 3000, 60), 4.0, 150
    rng, cells = np.random.default_rng(0), NoisyCells(epsilon, size, len(ones))
    assert cells.bound > 0
    fast, plain = [], []
    for seed in range(repeats):
        found = top(cells, RowStream(seed.to_bytes(32, "big")), ones)
        assert len(found) == len(ones)
        fast.append(np.isin(found, ones).sum())
        noisy = rng.laplace(0, 1 / epsilon, size)
        noisy[ones] += 1
        plain.append(np.isin(np.argsort(-noisy)[: len(ones)], ones).sum())
    assert stats.ttest_ind(fast, plain).pvalue > 1e-4


@pytest.mark.parametrize(("epsilon", "rest"), [(1.0, None), (6.0, None), (6.0, RowStream(bytes(31) + b"r"))])
def test_any_partition_draws_the_same(epsilon: float, rest: RowStream | None) -> None:
    cells, stream, ones = NoisyCells(epsilon, 10_000, 90), RowStream(bytes(32)), np.arange(3, 10_000, 111)
    whole = cells.draw(stream, ones, 0, 10_000, rest)
    parts = [
        cells.draw(stream, ones[(ones >= start) & (ones < stop)], start, stop, rest)
        for start, stop in ((0, 4), (4, 5), (5, 10_000))
    ]
    assert np.concatenate(parts).tolist() == whole.tolist()
    assert 50 < len(whole) < 1000


def test_rejects_too_many_cells() -> None:
    assert NoisyCells(8.0, MAX_CELLS, 10).tiers
    last = np.array([MAX_CELLS - 1]) << SHIFT | (1 << SHIFT) - 1
    assert last > 0 and last >> SHIFT == MAX_CELLS - 1
    with pytest.raises(ConfigError, match="cells="):
        NoisyCells(8.0, MAX_CELLS + 1, 10)


def test_a_graph_with_too_many_node_pairs_is_rejected_uncharged() -> None:
    class Large(Domain):
        @property
        def size(self) -> int:
            return MAX_CELLS + 1

    with pytest.raises(ConfigError, match="cells="):
        LapGraph(epsilon=4.0).queries(Large.whole(9, directed=False))


# -- levels by words ---------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
LEVELS = {
    "small": (3, 1, 9),
    "close": (5, 1, 1, 1 << 40, 7),
    "all words": (TOTAL // 3, TOTAL // 5, TOTAL - TOTAL // 3 - TOTAL // 5),
    "many": tuple(RNG.integers(1, 1 << 50, size=131).tolist()),
}


@pytest.mark.parametrize("counts", LEVELS.values(), ids=LEVELS)
def test_first_bits_decide_as_whole_words_do(counts: tuple[int, ...]) -> None:
    ladder = LevelSampler(counts, lowest=2)
    ends = np.array([ladder.words_from(2 + k) for k in range(len(counts))], dtype=object)
    near = [int(end) + step for end in ends for step in (-1, 0) if 0 <= end + step < ladder.total]
    words = np.array([*near, *RNG.integers(ladder.total, size=500, dtype=np.uint64)], dtype=np.uint64)
    expected = [1 + sum(int(word) < end for end in ends) for word in words]
    assert ladder.levels(words).tolist() == expected
    times = -(-(1 << 14) // len(words))  # from so many words on, a table of first bits is used
    assert ladder.levels(np.tile(words, times)).tolist() == expected * times


def test_drawn_levels_are_as_likely_as_they_have_words() -> None:
    drawn = LevelSampler((3, 1, 9), lowest=1).draw(RowStream(bytes(32)), np.arange(26_000), 5)
    seen = np.bincount(drawn)[1:]
    assert np.abs(seen - [6000, 2000, 18_000]).max() < 300


def test_words_under_all_of_them() -> None:
    words = np.array([0, TOTAL - 1], dtype=np.uint64)
    assert under(words, TOTAL).tolist() == [True, True] and under(words, TOTAL - 1).tolist() == [True, False]

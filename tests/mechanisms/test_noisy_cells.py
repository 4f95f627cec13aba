"""The largest noisy cells: the loss of one cell, and the law of the set against brute force."""

import math
from functools import partial
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from graphveil._random import RowStream
from graphveil.mechanisms._marks import TOTAL
from graphveil.mechanisms.noisy_cells import NoisyCells

ONES, CELLS, WANTED = (1, 2, 5), 6, 3
CASES = [
    (0.1, 3_665_278, 5278),
    (1.0, 6, 3),
    (1.0, 1000, 20),
    (2.0, 1000, 600),
    (8.0, 10**10, 10**6),
    (30.0, 100, 3),
]


def keeps_its_budget(epsilon: float, cells: int, wanted: int) -> None:
    """No level is more than e^epsilon times as likely for a cell of 1, in whole numbers."""
    found = NoisyCells(epsilon, cells, wanted).channel
    assert all(sum(row) == TOTAL for row in found.counts)
    assert found.loss <= epsilon, f"a level tells {found.loss}, more than {epsilon}"


@pytest.mark.parametrize(("epsilon", "cells", "wanted"), CASES)
def test_no_level_tells_more_than_epsilon(epsilon: float, cells: int, wanted: int) -> None:
    keeps_its_budget(epsilon, cells, wanted)


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


def drawn(epsilon: float, repeats: int) -> dict[tuple[int, ...], int]:
    """Return how often each set came out of so many graphs."""
    cells, seen = NoisyCells(epsilon, CELLS, WANTED), dict[tuple[int, ...], int]()
    for graph in range(repeats):
        stream = RowStream(graph.to_bytes(32, "big"))
        found = cells.largest(stream, cells.draw(stream, np.array(ONES), 0, CELLS))
        seen[tuple(found.tolist())] = seen.get(tuple(found.tolist()), 0) + 1
    return seen


def follows_its_law(epsilon: float, repeats: int = 4000) -> None:
    """Compare with brute force over all sets."""
    expected, seen = brute_force(epsilon), drawn(epsilon, repeats)
    assert sum(expected.values()) == pytest.approx(1, abs=1e-6)
    counts = [seen.get(chosen, 0) for chosen in expected]
    hoped = np.array(list(expected.values()))
    assert stats.chisquare(counts, hoped / hoped.sum() * repeats).pvalue > 1e-4, "another law"


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_every_set_is_as_likely_as_brute_force_says(epsilon: float) -> None:
    follows_its_law(epsilon)


def test_large_graphs_keep_as_many_true_edges_as_plain_laplace_noise() -> None:
    size, ones, epsilon, repeats = 3000, np.arange(0, 3000, 60), 4.0, 150
    rng, cells = np.random.default_rng(0), NoisyCells(epsilon, size, len(ones))
    assert cells.bound > 0
    fast, plain = [], []
    for seed in range(repeats):
        stream = RowStream(seed.to_bytes(32, "big"))
        found = cells.largest(stream, cells.draw(stream, ones, 0, size))
        assert len(found) == len(ones)
        fast.append(np.isin(found, ones).sum())
        noisy = rng.laplace(0, 1 / epsilon, size)
        noisy[ones] += 1
        plain.append(np.isin(np.argsort(-noisy)[: len(ones)], ones).sum())
    assert stats.ttest_ind(fast, plain).pvalue > 1e-4


def test_any_partition_draws_the_same() -> None:
    cells, stream, ones = NoisyCells(1.0, 10_000, 50), RowStream(bytes(32)), np.arange(3, 10_000, 111)
    whole = cells.draw(stream, ones, 0, 10_000)
    parts = [
        cells.draw(stream, ones[(ones >= start) & (ones < stop)], start, stop)
        for start, stop in ((0, 4), (4, 5), (5, 10_000))
    ]
    assert np.concatenate(parts).tolist() == whole.tolist()
    assert 50 < len(whole) < 1000


# -- seeded bugs -------------------------------------------------------------------------------------------


def the_noise_of_cells_is_a_fifth_too_small(patch: pytest.MonkeyPatch) -> None:
    levels = NoisyCells._levels
    patch.setattr(
        NoisyCells, "_levels", lambda self, cuts: levels(NoisyCells(1.25 * self.epsilon, 9, 1), cuts)
    )


def ties_go_to_the_first_cell(patch: pytest.MonkeyPatch) -> None:
    draw = NoisyCells.draw
    patch.setattr(NoisyCells, "draw", lambda self, *data: draw(self, *data) | 127)


BUGS = [
    (the_noise_of_cells_is_a_fifth_too_small, partial(keeps_its_budget, epsilon=1.0, cells=1000, wanted=20)),
    (ties_go_to_the_first_cell, partial(follows_its_law, epsilon=2.0)),
]

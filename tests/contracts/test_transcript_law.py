"""What an attacker can tell from a whole transcript of several hops, each fed with the one before.

A graph of many copies of one small graph is many independent runs: its noise is independent by row. In each
copy u - v - w the edge u - v differs between the two hypotheses. For every copy the log-likelihood ratio of
what the release gave out is computed from an oracle's sums; under mu-GDP it is N(mu^2 / 2, mu^2) at worst.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from drawn import draw_otherwise
from scipy import stats
from torch import Tensor

from contracts.laws import FALSE_ALARM
from graphveil.core.accounting.gaussian import delta_of
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.features import safe_unit, shrink_unit
from graphveil.core.keys import ReleaseKey
from graphveil.core.ledger import MemoryLedger
from graphveil.core.noise.discrete_gaussian import DiscreteGaussian, IntegerNoise, RoundedGaussian
from graphveil.core.plan import ReleasePlan, hops
from graphveil.core.queries.neighbor_sums import NeighborSumData, NeighborSumQuery
from graphveil.core.release import Release
from graphveil.core.unit import UndirectedEdge

COPIES, DIM, HOPS, MU, BITS = 100_000, 4, 3, 1.0, 16
U, V, W = 0, 1, 2
Z = float(stats.norm.isf(FALSE_ALARM / 2))  # how many standard errors a fixed seed may be off


def copies_of_the_path(with_edge: bool) -> Adjacency:
    """Build the copies of u - v - w, or of v - w with u alone."""
    first = 3 * np.arange(COPIES)
    source, target = (first + U, first + V) if with_edge else (first[:0], first[:0])
    return Adjacency.from_edges(
        np.concatenate([source, first + V]),
        np.concatenate([target, first + W]),
        num_nodes=3 * COPIES,
        directed=False,
    )


def ratios(
    sampler: type[IntegerNoise], between: Callable[[Tensor, float], Tensor], *, with_edge: bool, seed: int
) -> np.ndarray:
    """Return each copy's log-likelihood ratio of "edge" to "no edge" over the whole transcript."""
    queries = tuple(NeighborSumQuery(query.weights, query.sigma, DIM, BITS) for query in hops(MU, HOPS, DIM))
    plan = ReleasePlan(UndirectedEdge(), queries, delta=1e-3, sampler=sampler)
    assert plan.mu == pytest.approx(MU)
    release = Release.open(
        plan,
        copies_of_the_path(with_edge),
        budget=MemoryLedger(),
        key=ReleaseKey.from_seed(seed, "transcript"),
    )
    sigma = queries[0].sigma[0]
    rows = safe_unit(torch.from_numpy(np.random.default_rng(seed).normal(size=(3 * COPIES, DIM))))
    ratio = np.zeros(COPIES)
    for _ in queries:
        answer = release.answer(NeighborSumData(rows))
        ratio += log_ratio(answer.numpy(), np.trunc(rows.numpy() * 2**BITS) / 2**BITS, sigma)
        rows = between(answer, sigma)
    return ratio


def log_ratio(answer: np.ndarray, sent: np.ndarray, sigma: float) -> np.ndarray:
    """Return one hop's log-likelihood ratio: N(sums with the edge) to N(sums without)."""
    r, x = (part.astype(np.float64).reshape(COPIES, 3, DIM) for part in (answer, sent))
    without = np.stack([np.zeros_like(x[:, U]), x[:, W], x[:, V]], axis=1)
    with_edge = without.copy()
    with_edge[:, U] += x[:, V]
    with_edge[:, V] += x[:, U]
    difference = np.square(r - without) - np.square(r - with_edge)
    return difference.sum(axis=(1, 2)) / (2 * sigma**2)


def only_direction(answer: Tensor, sigma: float) -> Tensor:
    """Normalize as a plain unit row: the bound is attained at every hop."""
    return safe_unit(answer)


@pytest.mark.parametrize("sampler", [DiscreteGaussian, RoundedGaussian])
@pytest.mark.parametrize("with_edge", [True, False])
def test_with_unit_rows_the_log_likelihood_ratio_is_that_of_one_gaussian(
    sampler: type[IntegerNoise], with_edge: bool
) -> None:
    ratio = ratios(sampler, only_direction, with_edge=with_edge, seed=11)
    mean = MU**2 / 2 if with_edge else -(MU**2) / 2
    assert ratio.mean() == pytest.approx(mean, abs=Z * MU / math.sqrt(COPIES))
    assert ratio.var() == pytest.approx(MU**2, rel=Z * math.sqrt(2 / COPIES))
    p = stats.kstest((ratio - mean) / MU, "norm").pvalue
    assert p > FALSE_ALARM


def test_noise_three_percent_too_small_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = DiscreteGaussian.draw
    draw_otherwise(monkeypatch, lambda law, *args: draw(DiscreteGaussian(0.97 * law.sigma), *args))
    ratio = ratios(DiscreteGaussian, only_direction, with_edge=True, seed=11)
    assert abs(ratio.var() - MU**2) > Z * MU**2 * math.sqrt(2 / COPIES)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0, 2.0, 3.0])
def test_with_shrunk_rows_the_attackers_advantage_stays_below_the_curve(epsilon: float) -> None:
    # delta(epsilon) = E (1 - e^(epsilon - L))+ under the hypothesis that L favors, in both directions.
    for with_edge, sign in ((True, 1), (False, -1)):
        ratio = sign * ratios(DiscreteGaussian, shrink_unit, with_edge=with_edge, seed=12)
        advantage = np.maximum(0.0, -np.expm1(epsilon - ratio))
        error = Z * advantage.std() / math.sqrt(COPIES)
        assert advantage.mean() <= delta_of(epsilon, MU) + error
        assert ratio.mean() <= MU**2 / 2 + Z * MU / math.sqrt(COPIES)


def test_shrinking_gives_away_less_than_unit_rows() -> None:
    shrunk = ratios(DiscreteGaussian, shrink_unit, with_edge=True, seed=12)
    assert 0.1 * MU**2 / 2 < shrunk.mean() < 0.9 * MU**2 / 2

"""What an attacker can tell about one record from three pushes, each steered by the ones before.

Copies of one small graph are independent runs: their noise is independent by row. In each copy the record of
Q is there or nulled. Vectors and levels of later pushes are functions of earlier answers, so the joint law is
no Gaussian; but every push moves by exactly its bound, and the log-likelihood ratio is N(mu^2 / 2, mu^2).
"""

import math

import numpy as np
import pytest
import torch
from drawn import draw_otherwise
from scipy import stats
from torch import Tensor

from contracts.laws import FALSE_ALARM
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.features import safe_unit
from graphveil.core.keys import ReleaseKey
from graphveil.core.ledger import MemoryLedger
from graphveil.core.noise.discrete_gaussian import DiscreteGaussian
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries import out_edge_sums
from graphveil.core.queries.out_edge_sums import OutEdgeSumData, OutEdgeSumQuery
from graphveil.core.release import Release
from graphveil.core.unit import NodeRecord

COPIES, DIM = 60_000, 3
Q, A, B, C = 0, 1, 2, 3
OWN = [(Q, A), (Q, B), (Q, C)]
OTHERS = [(A, B), (B, Q), (B, C), (C, A)]
LEVELS = (16, 36, 100)
SIGMAS = (2.0, 1.5, 3.0)
BOUND = 1.25
MU = BOUND * math.sqrt(sum(sigma**-2 for sigma in SIGMAS))
Z = float(stats.norm.isf(FALSE_ALARM / 2))


def copies(edges: list[tuple[int, int]]) -> Adjacency:
    """Build the copies of a graph on four nodes."""
    first = 4 * np.arange(COPIES)
    source, target = (np.concatenate([first + edge[end] for edge in edges]) for end in (0, 1))
    return Adjacency.from_edges(source, target, num_nodes=4 * COPIES, directed=True)


def ratios(*, present: bool, seed: int) -> np.ndarray:
    """Return each copy's log-likelihood ratio of "Q's record is there" to "it is not"."""
    queries = tuple(
        OutEdgeSumQuery(dim=DIM, sigma=sigma, levels=LEVELS, bounds=(1.0, BOUND)) for sigma in SIGMAS
    )
    plan = ReleasePlan(NodeRecord(), queries, delta=1e-3)
    assert plan.mu == pytest.approx(MU)
    graph = copies([*OWN, *OTHERS] if present else OTHERS)
    groups = (torch.arange(4 * COPIES) % 4 == Q).long()
    key = ReleaseKey.from_seed(seed, "push transcript")
    release = Release.open(plan, graph, groups, budget=MemoryLedger(), key=key)
    bounds = torch.tensor([1.0, BOUND], dtype=torch.float64)[groups, None]
    sent = safe_unit(torch.from_numpy(np.random.default_rng(seed).normal(size=(4 * COPIES, DIM)))) * bounds
    levels = torch.zeros(4 * COPIES, dtype=torch.int64)
    ratio = np.zeros(COPIES)
    for query in queries:
        answer = release.answer(OutEdgeSumData(sent, levels)).double()
        ratio += log_ratio(answer, sent, levels, query)
        sent = safe_unit(answer.roll(1, dims=0)) * bounds
        levels = (answer.norm(dim=1) > 2).long() + (answer[:, 0] > 1).long()
    return ratio


def log_ratio(answer: Tensor, sent: Tensor, levels: Tensor, query: OutEdgeSumQuery) -> np.ndarray:
    """Return one push's log-likelihood ratio, from plain formulas."""
    r, x = (part.numpy().reshape(COPIES, 4, DIM) for part in (answer, sent))
    squared = (np.array(LEVELS)[levels.numpy()] / 16).reshape(COPIES, 4)
    means = []
    for edges in ([*OWN, *OTHERS], OTHERS):
        rows = np.zeros_like(x)
        for u, v in edges:
            total = sum(squared[:, w] for source, w in edges if source == u)
            rows[:, v] += np.sqrt(squared[:, v] / np.maximum(total, 1))[:, None] * x[:, u]
        means.append(np.square(r - rows).sum(axis=(1, 2)))
    difference: np.ndarray = (means[1] - means[0]) / (2 * query.sigma**2)
    return difference


@pytest.mark.parametrize("present", [True, False])
def test_the_log_likelihood_ratio_of_weighted_out_edge_sums_is_that_of_one_gaussian(present: bool) -> None:
    ratio = ratios(present=present, seed=21)
    mean = MU**2 / 2 if present else -(MU**2) / 2
    assert ratio.mean() == pytest.approx(mean, abs=Z * MU / math.sqrt(COPIES) + 1e-3)
    assert ratio.var() == pytest.approx(MU**2, rel=Z * math.sqrt(2 / COPIES) + 1e-3)
    assert stats.kstest((ratio - mean) / MU, "norm").pvalue > FALSE_ALARM


def test_noise_three_percent_too_small_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = DiscreteGaussian.draw
    draw_otherwise(monkeypatch, lambda law, *args: draw(DiscreteGaussian(0.97 * law.sigma), *args))
    assert abs(ratios(present=True, seed=21).var() - MU**2) > Z * MU**2 * math.sqrt(2 / COPIES)


def test_weights_without_a_budget_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        out_edge_sums, "out_neighbor_sums", lambda graph, weights: np.zeros(graph.num_nodes, dtype=np.int64)
    )
    assert ratios(present=True, seed=21).mean() > 1.2 * MU**2 / 2

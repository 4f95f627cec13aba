"""Sums and histograms of features of edges: each edge once, clipped, held out by public pairs, exact."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from graphveil.audit.query_neighbor_tests import zero_noise_plan
from graphveil.core.accounting.accountant import privacy_curve, total_mu
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.events import Gaussian, PureDP, compose
from graphveil.core.ledger import MemoryLedger
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.edge_counts import NeighborCountData, NeighborCountQuery
from graphveil.core.queries.held_out import HeldOutPairs
from graphveil.core.queries.pair_sums import (
    PairHistogramData,
    PairHistogramQuery,
    PairSumData,
    PairSumQuery,
    PairTerms,
)
from graphveil.core.query import QueryData
from graphveil.core.release import Release
from graphveil.core.unit import DirectedEdge, UndirectedEdge, Unit
from graphveil.errors import ReleaseError

EDGE, STORED = UndirectedEdge(), DirectedEdge()
UNITS = pytest.mark.parametrize("unit", [EDGE, STORED], ids=["undirected", "directed"])
HALF = HeldOutPairs(0.5, 5)
NODES = 40
rng = np.random.default_rng(1)
PAIRS = rng.integers(NODES, size=(2, 200))
PAIRS = PAIRS[:, PAIRS[0] != PAIRS[1]]
TABLE = torch.from_numpy(rng.integers(-5, 6, size=(NODES, 3)).astype(np.float32))
OTHER = torch.from_numpy(rng.integers(-5, 6, size=(NODES, 2)).astype(np.float32))
CENTER, SCALE = torch.tensor([1.0, -2.0]).double(), torch.tensor([0.1, 0.5]).double()
TERMS = PairTerms((TABLE, OTHER), (TABLE, OTHER), CENTER, SCALE)


def edges_of(unit: Unit) -> tuple[Adjacency, np.ndarray]:
    doubled = np.concatenate([PAIRS, PAIRS[:, :50]], axis=1)
    edges = Adjacency.from_edges(*doubled, num_nodes=NODES, directed=unit == STORED)
    distinct = {(u, v) if unit == STORED else (min(u, v), max(u, v)) for u, v in PAIRS.T.tolist()}
    return edges, np.array(sorted(distinct)).T


def answer(plan: ReleasePlan, edges: Adjacency, data: QueryData[torch.Tensor]) -> np.ndarray:
    return np.asarray(Release.open(plan, edges, budget=MemoryLedger()).answer(data).numpy())


@UNITS
def test_a_query_with_two_noise_scales_would_be_charged_by_the_smaller_one(unit: Unit) -> None:
    query = PairSumQuery(2, sigma=(2.0,), symmetric=unit == EDGE, held_out=HALF)
    expected = query.event(unit)
    object.__setattr__(query, "sigma", (8.0, 2.0))  # no query of the package has two
    assert query.event(unit) == expected


@UNITS
def test_sums_are_over_distinct_edges_that_are_not_held_out(unit: Unit) -> None:
    edges, distinct = edges_of(unit)
    query = PairSumQuery(2, sigma=(2.0,), symmetric=unit == EDGE, held_out=HALF)
    found = answer(zero_noise_plan(unit, (query,)), edges, PairSumData(TERMS)) * query.unit_steps / query.each
    fitted = distinct[:, ~HALF.contains(*distinct)]
    features = TERMS(*fitted)
    clipped = features / np.maximum(np.linalg.norm(features, axis=1), 1.0)[:, None]
    products = clipped.T @ clipped
    expected = np.r_[clipped.sum(axis=0), products[0, 0], products[0, 1], products[1, 1]]
    assert found[-1] == fitted.shape[1]
    np.testing.assert_allclose(found[:-1], expected, atol=fitted.shape[1] / query.each)


@UNITS
def test_histogram_has_each_held_out_edge_once(unit: Unit) -> None:
    edges, distinct = edges_of(unit)
    weights, bounds = torch.tensor([1.0, -0.5]).double(), torch.tensor([-1.0, 0.0, 1.0]).double()
    query = PairHistogramQuery(2, 4, sigma=(2.0,), symmetric=unit == EDGE, held_out=HALF)
    found = answer(zero_noise_plan(unit, (query,)), edges, PairHistogramData(TERMS, weights, bounds))
    held = distinct[:, HALF.contains(*distinct)]
    cells = np.searchsorted(bounds.numpy(), TERMS(*held) @ weights.numpy(), side="right")
    assert found.tolist() == np.bincount(cells, minlength=4).tolist()


@UNITS
def test_neighbors_of_held_out_pairs_are_not_counted(unit: Unit) -> None:
    edges, distinct = edges_of(unit)
    query = NeighborCountQuery("all", (0,), 1.0, 1, HALF)
    found = answer(zero_noise_plan(unit, (query,)), edges, NeighborCountData(torch.zeros(NODES).long()))
    assert found.sum() == np.count_nonzero(~HALF.contains(*distinct))


def test_every_number_has_the_charged_noise() -> None:
    empty = Adjacency.from_edges([], [], num_nodes=NODES, directed=False)
    sums = ReleasePlan(EDGE, (PairSumQuery(2, sigma=(5.0,), symmetric=True, held_out=HALF),), delta=1e-5)
    drawn = np.array([answer(sums, empty, PairSumData(TERMS)) for _ in range(300)])
    assert (np.abs(drawn.std(axis=0) - 5) < 1).all()
    histogram = ReleasePlan(
        EDGE, (PairHistogramQuery(2, 500, sigma=(5.0,), symmetric=True, held_out=HALF),), delta=1e-5
    )
    bounds = torch.arange(499).double()
    found = answer(histogram, empty, PairHistogramData(TERMS, torch.ones(2).double(), bounds))
    assert abs(found.std() - 5) < 0.8


def test_membership_of_a_pair_is_public_and_symmetric() -> None:
    first, second = np.arange(0, 40_000), np.arange(40_000, 80_000)
    for share in (0.1, 0.5):
        chosen = HeldOutPairs(share, 3).contains(first, second)
        assert np.array_equal(chosen, HeldOutPairs(share, 3).contains(second, first))
        assert abs(chosen.mean() - share) < 0.01
        assert abs((chosen & HeldOutPairs(share, 4).contains(first, second)).mean() - share**2) < 0.01


def test_numbers_that_are_not_whole_are_rejected() -> None:
    edges, _ = edges_of(EDGE)
    plan = ReleasePlan(EDGE, (PairSumQuery(2, sigma=(2.0,), symmetric=True, held_out=HALF),), delta=1e-5)
    bad = [
        replace(TERMS, left=(TABLE + 0.5, OTHER)),
        replace(TERMS, left=(TABLE * 5000, OTHER)),
        replace(TERMS, right=(TABLE[:-1], OTHER)),
        replace(TERMS, scale=torch.tensor([1.0, np.nan]).double()),
    ]
    for terms in bad:
        with pytest.raises(ReleaseError, match="tables of integers"):
            answer(plan, edges, PairSumData(terms))


def parts_of(fitted: HeldOutPairs, held_out: HeldOutPairs) -> ReleasePlan:
    """Return a plan of sums over fitted edges, of mu 0.3, and a histogram of held-out edges, of mu 0.4."""
    queries = (
        PairSumQuery(2, sigma=(1 / 0.3,), symmetric=True, held_out=fitted),
        PairHistogramQuery(2, 3, sigma=(1 / 0.4,), symmetric=True, held_out=held_out),
    )
    return ReleasePlan(EDGE, queries, 1e-5)


def test_both_parts_of_the_pairs_cost_the_maximum() -> None:
    assert parts_of(HALF, HALF).mu == pytest.approx(0.4)


@pytest.mark.parametrize("other", [HeldOutPairs(0.5, 6), HeldOutPairs(0.4, 5), HeldOutPairs(0.0, 5)])
def test_parts_of_different_choices_add_up(other: HeldOutPairs) -> None:
    assert parts_of(HALF, other).mu == parts_of(other, HALF).mu == pytest.approx(0.5)


def test_queries_of_one_part_add_up() -> None:
    plan = parts_of(HALF, HALF)
    counts = NeighborCountQuery("all", (0,), 1.0, 2, HALF)
    events = [query.event(EDGE) for query in (counts, plan.queries[0], plan.queries[1])]
    assert privacy_curve(compose(*events)).epsilon(0.0) == np.inf
    expected = privacy_curve(compose(PureDP(1.0), Gaussian(0.3))).epsilon(1e-5)
    assert privacy_curve(compose(*events)).epsilon(1e-5) == pytest.approx(expected, rel=1e-9)


def test_parts_of_two_releases_may_contain_one_edge() -> None:
    # The second release may number the nodes otherwise: an edge can be in the more expensive part of both.
    edges, ledger = edges_of(EDGE)[0], MemoryLedger()
    for part in (0, 1):
        plan = replace(parts_of(HALF, HALF), queries=parts_of(HALF, HALF).queries[part : part + 1])
        Release.open(plan, edges, budget=ledger)
    assert total_mu(compose(*(entry.event for entry in ledger.entries))) == pytest.approx(0.5)
    assert total_mu(compose(*(query.event(EDGE) for query in parts_of(HALF, HALF).queries))) < 0.5


@UNITS
@pytest.mark.parametrize("huge", [1e200, 1e308])
def test_features_that_overflow_count_as_zero(unit: Unit, huge: float) -> None:
    """One edge moves the answer by at most the norm of its clipped features, whatever finite terms do."""
    edges, distinct = edges_of(unit)
    center, scale = torch.tensor([0.5, -2.0]).double(), torch.tensor([huge, 0.5], dtype=torch.float64)
    table = TABLE.clone()
    table[: NODES // 2] = 4096
    query = PairSumQuery(2, sigma=(2.0,), symmetric=unit == EDGE, held_out=HALF)
    terms = PairTerms((table, OTHER), (table, OTHER), center, scale)
    found = answer(zero_noise_plan(unit, (query,)), edges, PairSumData(terms)) * query.unit_steps / query.each
    fitted = (~HALF.contains(*distinct)).sum()
    assert found[-1] == pytest.approx(fitted)
    assert np.abs(found).max() <= fitted

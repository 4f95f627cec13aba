"""Hops along edges with weights: the sensitivity to one weight, and queries that ignore weights."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.blocks import blocks
from graphveil.core.keys import ReleaseKey
from graphveil.core.ledger import MemoryLedger
from graphveil.core.plan import ReleasePlan, hops
from graphveil.core.queries import neighbor_sums, row_sums
from graphveil.core.queries.edge_counts import EdgeCountQuery
from graphveil.core.queries.neighbor_sums import NeighborSumData
from graphveil.core.queries.row_sums import FLOAT32_EXACT
from graphveil.core.queries.weights import WEIGHT_BITS, GivenWeight
from graphveil.core.release import Release
from graphveil.core.unit import DirectedEdge, NodeRecord, UndirectedEdge, Unit
from graphveil.errors import ConfigError, NotImplementedGuaranteeError

NODES, DIM, MOST = 5, 3, 2.5
BY_UNIT = pytest.mark.parametrize("unit", [UndirectedEdge(), DirectedEdge()], ids=lambda unit: unit.name)


def edges(matrix: np.ndarray, directed: bool, most: float = MOST) -> Adjacency:
    source, target = np.nonzero(matrix)
    weight = matrix[source, target]
    return Adjacency.from_edges(
        source, target, num_nodes=NODES, directed=directed, weight=weight, max_weight=most
    )


def query(unit: Unit):
    return hops(0.5, 1, DIM, unit, GivenWeight())[0]


def exact(adjacency: Adjacency, vectors: Tensor, unit: Unit) -> Tensor:
    """Return the shipped sums without their noise."""
    the_query = query(unit)
    table = neighbor_sums.grid_table(vectors, None, the_query)
    pairs = the_query.similarity.prepare(vectors)
    sums = row_sums.Sums(table, FLOAT32_EXACT >> the_query.contribution_bits, stride=NODES, pairs=pairs)
    (block,) = blocks(adjacency, NODES)
    return row_sums.exact_sum(block, sums, None).to(torch.float64) / the_query.unit_steps


@BY_UNIT
def test_one_edge_weight_changes_a_sum_by_at_most_the_sensitivity_which_is_attained(unit: Unit) -> None:
    rng, directed = np.random.default_rng(0), isinstance(unit, DirectedEdge)
    vectors = torch.from_numpy(rng.normal(size=(NODES, DIM)))
    vectors = vectors / vectors.norm(dim=1, keepdim=True)
    vectors[:] = torch.where(torch.arange(NODES)[:, None] < 2, torch.eye(1, DIM), vectors)
    bound, worst = query(unit).sensitivity(unit), 0.0
    assert bound == pytest.approx(1.0 if directed else math.sqrt(2))
    for _ in range(20):
        matrix = rng.uniform(0, 1.5 * MOST, size=(NODES, NODES)) * (rng.random((NODES, NODES)) < 0.6)
        matrix = matrix if directed else np.triu(matrix, 1)
        before = exact(edges(matrix, directed), vectors, unit)
        for u, v in itertools.permutations(range(NODES), 2):
            if not directed and u > v:
                continue
            for weight in (0.0, rng.uniform(0, MOST), MOST, 3 * MOST):
                changed = matrix.copy()
                changed[u, v] = weight
                shift = float((exact(edges(changed, directed), vectors, unit) - before).norm())
                share = abs(min(weight, MOST) - min(matrix[u, v], MOST)) / MOST
                assert shift <= bound * (share + 2**-WEIGHT_BITS) + 1e-9
                assert shift <= bound
                worst = max(worst, shift)
    assert worst > 0.99 * bound


@BY_UNIT
def test_rows_are_weighted_sums_and_noise(unit: Unit) -> None:
    directed = isinstance(unit, DirectedEdge)
    matrix = np.zeros((NODES, NODES))
    matrix[0, 1], matrix[2, 1] = MOST, MOST / 2
    adjacency = edges(matrix, directed)
    vectors = torch.eye(NODES, DIM, dtype=torch.float64)
    plan = ReleasePlan(unit, hops(50.0, 1, DIM, unit, GivenWeight()), delta=1e-5)
    rows = Release.open(plan, adjacency, budget=MemoryLedger()).answer(NeighborSumData(vectors))
    assert rows[1].tolist() == pytest.approx([1.0, 0.0, 0.5], abs=0.3)
    assert rows[1].tolist() == pytest.approx(exact(adjacency, vectors, unit)[1].tolist(), abs=0.3)


def test_edge_weights_are_read_or_rejected_uncharged() -> None:
    unit, budget = UndirectedEdge(), MemoryLedger()
    adjacency = edges(np.triu(np.ones((NODES, NODES)), 1), False)
    plain, given = (ReleasePlan(unit, hops(0.5, 1, DIM, unit, s), delta=1e-5) for s in (None, GivenWeight()))
    counts = ReleasePlan(unit, (EdgeCountQuery("split", (True, False), 2, (9.0,)),), delta=1e-5)
    for plan in (plain, counts):
        with pytest.raises(ConfigError, match="this release would ignore"):
            Release.open(plan, adjacency, torch.zeros(NODES, dtype=torch.int64), budget=budget)
    with pytest.raises(ConfigError, match="the graph has none"):
        Release.open(given, adjacency.without_weights(), budget=budget)
    assert budget.entries == ()
    with pytest.raises(NotImplementedGuaranteeError, match="node-record"):
        given.queries[0].event(NodeRecord())


def test_weights_and_their_bound_determine_the_noise() -> None:
    """All three graphs have the same sums on the grid, so under one key they must not share their noise."""
    unit, key = UndirectedEdge(), ReleaseKey.from_seed(0, "weights")
    plan = ReleasePlan(unit, hops(0.5, 1, DIM, unit, GivenWeight()), delta=1e-5)
    graphs = [
        edges(np.triu(np.full((NODES, NODES), weight), 1), False, most)
        for weight, most in ((1.0, MOST), (1.0001, MOST), (1.0, 2.6))
    ]
    one, two, three = (
        Release.open(plan, graph, budget=MemoryLedger(), key=key).answer(
            NeighborSumData(torch.eye(NODES, DIM))
        )
        for graph in graphs
    )
    assert not (one == two).any() and not (one == three).any()

"""Counts of neighbors: every toggled edge moves one whole number by one, whatever the groups."""

from typing import Any

import numpy as np
import pytest
import torch
from contracts import replay

from graphveil.audit.query_neighbor_tests import zero_noise_plan
from graphveil.core.backends import InMemoryBackend
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.events import PureDP
from graphveil.core.keys import ReleaseKey
from graphveil.core.ledger import MemoryLedger
from graphveil.core.noise.discrete_laplace import DiscreteLaplace
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.edge_counts import NeighborCountData, NeighborCountQuery
from graphveil.core.release import Release
from graphveil.core.unit import DirectedEdge, NodeRecord, UndirectedEdge, Unit
from graphveil.errors import ConfigError, ReleaseError, UnitError

CLASSES = 3
QUERY = NeighborCountQuery("train/val/target", (0, 1, 2), 1.0, CLASSES)
BOTH_ENDS = NeighborCountQuery("train/val/target", None, 1.0, CLASSES)
UNITS: tuple[Unit, ...] = (UndirectedEdge(), DirectedEdge())


def counts(
    edges: list[tuple[int, int]],
    groups: torch.Tensor,
    classes: torch.Tensor,
    query: NeighborCountQuery = QUERY,
) -> torch.Tensor:
    nodes = len(groups)
    graph = Adjacency.from_edges(*zip(*edges, strict=True), num_nodes=nodes, directed=False)
    release = Release.open(zero_noise_plan(UndirectedEdge(), (query,)), graph, groups, budget=MemoryLedger())
    return release.answer(NeighborCountData(classes))


@pytest.mark.parametrize("query", [QUERY, BOTH_ENDS], ids=["one_end", "both_ends"])
def test_an_edge_moves_one_count_by_one(query: NeighborCountQuery) -> None:
    """Neighbor test; without ranks, an edge may move one count at each end."""
    for unit in UNITS:
        attained = replay.no_change_exceeds_its_price((query,), unit)
        assert max(attained.values()) == pytest.approx(1.0)
        assert query.sensitivity(unit) ** 2 == pytest.approx(query.changed(unit))


def test_edges_count_at_the_end_of_the_higher_rank() -> None:
    star = [(0, 3), (1, 3), (2, 3)]
    groups, classes = torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2])
    assert counts(star, groups, classes).tolist() == [[0] * 3] * 3 + [[1, 2, 0]]


def test_without_ranks_edges_count_at_both_ends() -> None:
    star = [(0, 3), (1, 3), (2, 3)]
    groups, classes = torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2])
    counted = counts(star, groups, classes, BOTH_ENDS)
    assert counted.tolist() == [[0, 0, 1]] * 3 + [[1, 2, 0]]


def test_edges_between_equal_ranks_count_at_one_end_evenly() -> None:
    clique = [(u, v) for u in range(40) for v in range(u)]
    counted = counts(clique, torch.zeros(40, dtype=torch.int64), torch.arange(40) % 3)
    assert float(counted.sum()) == 40 * 39 / 2
    assert bool((counted.sum(dim=1) > 5).all())


def noisy(adjacency: Adjacency, backend: Any = None, seed: int = 1, first_row: int = 0) -> torch.Tensor:
    nodes = adjacency.num_nodes
    plan = ReleasePlan(UndirectedEdge(), (QUERY,), delta=1e-7)
    key = ReleaseKey.from_seed(seed, "counts")
    release = Release.open(
        plan,
        adjacency,
        torch.zeros(nodes, dtype=torch.int64),
        budget=MemoryLedger(),
        key=key,
        backend=backend,
        first_row=first_row,
    )
    return release.answer(NeighborCountData(torch.zeros(nodes, dtype=torch.int64)))


def test_counts_have_their_noise() -> None:
    """Without edges the answer is the noise."""
    drawn = noisy(Adjacency.from_edges([], [], num_nodes=60_000, directed=False)).numpy()
    sigma = DiscreteLaplace(1.0).sigma
    off = abs(drawn.std() / sigma - 1)
    assert off < 0.01, f"variance is off {sigma:.4f}^2 by {off:.1%}"
    assert abs(np.corrcoef(drawn.T) - np.eye(CLASSES)).max() < 0.02


def test_blocks_and_ranges_of_rows_draw_the_same_noise() -> None:
    ring = Adjacency.from_edges(range(50), [(v + 1) % 50 for v in range(50)], num_nodes=50, directed=False)
    whole = noisy(ring)
    assert torch.equal(noisy(ring, InMemoryBackend(block_rows=7)), whole)
    assert not torch.equal(noisy(ring, seed=2), whole)
    assert torch.equal(noisy(ring, first_row=30), whole[30:])


def test_neighbor_counts_are_pure_dp_for_edges_and_rejected_for_records() -> None:
    assert [QUERY.event(unit) for unit in UNITS] == [PureDP(1.0)] * 2
    assert [BOTH_ENDS.event(unit) for unit in UNITS] == [PureDP(2.0), PureDP(1.0)]
    with pytest.raises(UnitError, match="have no bound"):
        QUERY.event(NodeRecord())
    plan = ReleasePlan(UndirectedEdge(), (QUERY,), delta=1e-7)
    assert 0.999 < plan.epsilon <= 1.0
    directed = Adjacency.from_edges([0], [1], num_nodes=2, directed=True)
    with pytest.raises(UnitError, match="this graph is directed"):
        Release.open(plan, directed, torch.zeros(2, dtype=torch.int64), budget=MemoryLedger())


WRONG = (torch.tensor([0, 3]), torch.tensor([0, -2]), torch.zeros(2), torch.zeros(3, dtype=torch.int64))


@pytest.mark.parametrize("classes", WRONG)
def test_classes_out_of_range_are_rejected(classes: torch.Tensor) -> None:
    pair = Adjacency.from_edges([0], [1], num_nodes=2, directed=False)
    plan = ReleasePlan(UndirectedEdge(), (QUERY,), delta=1e-7)
    release = Release.open(plan, pair, torch.zeros(2, dtype=torch.int64), budget=MemoryLedger())
    with pytest.raises(ReleaseError, match="an integer"):
        release.answer(NeighborCountData(classes))


def test_bad_fields_are_rejected() -> None:
    with pytest.raises(ConfigError, match="ranks"):
        NeighborCountQuery("all", (), 1.0, 3)
    with pytest.raises(ConfigError, match="epsilon"):
        NeighborCountQuery("all", (0,), 0.0, 3)

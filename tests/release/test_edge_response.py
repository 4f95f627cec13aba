"""A graph through the one release path: booked first, one slot an edge, the same bytes however it is cut."""

from itertools import product
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from graphveil.data import Adjacency
from graphveil.data.node_pairs import Domain
from graphveil.errors import BudgetError, ConfigError, ReleaseError, UnitError
from graphveil.ledger import MemoryLedger
from graphveil.privacy import (
    ApproximateDP,
    DirectedEdge,
    EdgeSubset,
    NodeRecord,
    NoUnit,
    UndirectedEdge,
    Unit,
)
from graphveil.release import (
    BlockCountData,
    BlockCountQuery,
    EdgeResponseData,
    EdgeResponseQuery,
    InMemoryBackend,
    Query,
    Release,
    ReleaseKey,
    ReleasePlan,
    TopNodePairsData,
    TopNodePairsQuery,
)
from graphveil.release.dendrogram import Dendrogram
from graphveil.release.graph_queries import NodePairData

NODES = 30
UNITS: dict[str, tuple[Unit, bool]] = {
    "undirected": (UndirectedEdge(), False),
    "directed": (DirectedEdge(), True),
}
KEY = ReleaseKey.from_seed(3, "graph")
DOMAIN = Domain.whole(3, directed=False)


def drawn(edges: list[tuple[int, int]], unit: Unit, directed: bool, **parts: object) -> set[int]:
    """Return the slots that a release of some edges leaves, under a fixed key and no binding to the edges."""
    source, target = zip(*edges, strict=True)
    adjacency = Adjacency.from_edges(source, target, num_nodes=NODES, directed=directed)
    plan = ReleasePlan(unit, (EdgeResponseQuery(1.0),), delta=0.0)
    release = Release.open(plan, adjacency, budget=MemoryLedger(), **parts)
    return set(release.answer(EdgeResponseData(Domain.whole(NODES, directed=directed))).tolist())


class FixedKey(ReleaseKey):
    """A key that draws the same noise whatever the edges are, as no release does."""

    asked: ClassVar[list[bytes]] = []

    def query_key(self, descriptor: bytes) -> bytes:
        self.asked.append(descriptor)
        return bytes(31) + b"n"


def fixed_key() -> ReleaseKey:
    key = ReleaseKey.fresh()
    return FixedKey(key.release_id, key.nonce, key.master)


EDGES = [(0, 1), (1, 2), (5, 9), (28, 29), (3, 29)]


@pytest.mark.parametrize(("unit", "directed"), UNITS.values(), ids=UNITS)
def test_one_edge_changes_one_slot_at_most(unit: Unit, directed: bool) -> None:
    without = drawn(EDGES, unit, directed, key=fixed_key())
    for pair in [(0, 2), (7, 8), (29, 4), (9, 0)]:
        assert len(drawn([*EDGES, pair], unit, directed, key=fixed_key()) ^ without) <= 1
    for gone in EDGES:
        others = [edge for edge in EDGES if edge != gone]
        assert len(drawn(others, unit, directed, key=fixed_key()) ^ without) <= 1


@pytest.mark.parametrize(("unit", "directed"), UNITS.values(), ids=UNITS)
def test_blocks_of_any_size_draw_the_same(unit: Unit, directed: bool) -> None:
    whole = drawn(EDGES, unit, directed, key=KEY)
    assert drawn(EDGES, unit, directed, key=KEY, backend=InMemoryBackend(block_rows=7)) == whole
    assert len(whole) > 50  # of 435 slots, or 870


def of_triangle(query: Query, data: NodePairData, nodes: int = 3, key: ReleaseKey = KEY) -> Tensor:
    adjacency = Adjacency.from_edges([0, 1], [1, 2], num_nodes=nodes, directed=False)
    release = Release.open(
        ReleasePlan(EdgeSubset(), (query,), delta=0.0), adjacency, budget=MemoryLedger(), key=key
    )
    return release.answer(data)


def test_noise_is_bound_to_the_slots_the_number_and_the_tree() -> None:
    FixedKey.asked.clear()
    key = FixedKey(KEY.release_id, KEY.nonce, KEY.master)
    everybody, some = torch.ones(4, dtype=torch.bool), torch.tensor([True, True, True, False])
    none = Adjacency.from_edges([], [], num_nodes=4, directed=False)
    public = Adjacency.from_edges([0], [1], num_nodes=4, directed=False)
    domains = [Domain.within(none, everybody), Domain.within(none, some), Domain.within(public, everybody)]
    for domain, number in product(domains, (0.5, 1.0)):
        of_triangle(EdgeResponseQuery(1.0), EdgeResponseData(domain, number), nodes=4, key=key)
    parents = [[4, 4, 5, 5, 6, 6, -1], [5, 5, 4, 4, 6, 6, -1], [5, 4, 5, 4, 6, 6, -1]]
    for one in parents:
        tree = Dendrogram.from_parents(np.array(one))
        of_triangle(BlockCountQuery(1.0), BlockCountData(domains[0], tree=tree), nodes=4, key=key)
    assert len(set(FixedKey.asked)) == 6 + len(parents)


@pytest.mark.parametrize("kind", [EdgeResponseQuery, TopNodePairsQuery])
def test_no_public_edge_is_drawn(kind: type[EdgeResponseQuery] | type[TopNodePairsQuery]) -> None:
    public = Adjacency.from_edges([0, 0, 1], [1, 2, 3], num_nodes=4, directed=False)
    domain = Domain.within(public, torch.ones(4, dtype=torch.bool))
    data = EdgeResponseData(domain) if kind is EdgeResponseQuery else TopNodePairsData(domain, 2)
    for seed in range(5):
        found = of_triangle(kind(0.1), data, nodes=4, key=ReleaseKey.from_seed(seed, "graph"))
        assert domain.protects(found.numpy()).all()


def test_a_release_is_booked_before_it_is_drawn() -> None:
    adjacency = Adjacency.from_edges([0], [1], num_nodes=3, directed=False)
    plan = ReleasePlan(UndirectedEdge(), (EdgeResponseQuery(1.0),), delta=0.0)
    ledger = MemoryLedger(epsilon=1.5, delta=1e-7)
    Release.open(plan, adjacency, budget=ledger)
    assert [entry.event.events for entry in ledger.entries] == [(ApproximateDP(1.0),)]  # type: ignore[union-attr]
    with pytest.raises(BudgetError, match="total to epsilon 2 at delta 1e-07"):
        Release.open(plan, adjacency, budget=ledger)


def test_a_graph_is_drawn_once() -> None:
    adjacency = Adjacency.from_edges([0], [1], num_nodes=3, directed=False)
    release = Release.open(
        ReleasePlan(UndirectedEdge(), (EdgeResponseQuery(1.0),), delta=0.0), adjacency, budget=MemoryLedger()
    )
    release.answer(EdgeResponseData(DOMAIN))
    with pytest.raises(ReleaseError, match="every query"):
        release.answer(EdgeResponseData(DOMAIN))


@pytest.mark.parametrize("unit", [NodeRecord(), NoUnit()], ids=lambda unit: unit.name)
def test_units_without_a_bound_are_refused(unit: Unit) -> None:
    with pytest.raises(UnitError, match="no bound"):
        EdgeResponseQuery(1.0).event(unit)


@pytest.mark.parametrize(("unit", "directed"), [(UndirectedEdge(), True), (DirectedEdge(), False)])
def test_a_unit_that_is_not_the_graphs_is_refused(unit: Unit, directed: bool) -> None:
    adjacency = Adjacency.from_edges([0], [1], num_nodes=3, directed=directed)
    ledger = MemoryLedger()
    with pytest.raises(UnitError):
        Release.open(ReleasePlan(unit, (EdgeResponseQuery(1.0),), delta=0.0), adjacency, budget=ledger)
    assert not ledger.entries


def test_weights_of_edges_are_not_ignored() -> None:
    weighted = Adjacency.from_edges([0], [1], num_nodes=3, directed=False, weight=[1.0], max_weight=1.0)
    with pytest.raises(ConfigError, match="weights"):
        Release.open(
            ReleasePlan(UndirectedEdge(), (EdgeResponseQuery(1.0),), delta=0.0),
            weighted,
            budget=MemoryLedger(),
        )


def test_a_share_out_of_range_is_refused() -> None:
    adjacency = Adjacency.from_edges([0], [1], num_nodes=3, directed=False)
    release = Release.open(
        ReleasePlan(UndirectedEdge(), (EdgeResponseQuery(1.0),), delta=0.0), adjacency, budget=MemoryLedger()
    )
    with pytest.raises(ReleaseError, match="share"):
        release.answer(EdgeResponseData(DOMAIN, 1.5))

"""Released graphs: one node pair per edge, bit-identical for any partition into blocks."""

from itertools import product
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from graphveil.core.backends import InMemoryBackend
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.node_pairs import Domain
from graphveil.core.keys import ReleaseKey
from graphveil.core.ledger import MemoryLedger
from graphveil.core.noise.node_pair_noise import TOTAL, NoisyCells
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.dendrogram import BlockCountData, BlockCountQuery, Dendrogram
from graphveil.core.queries.graph_queries import (
    EdgeResponseData,
    EdgeResponseQuery,
    NodePairData,
    TopNodePairsData,
    TopNodePairsQuery,
)
from graphveil.core.query import Query
from graphveil.core.release import Release
from graphveil.core.unit import DirectedEdge, EdgeSubset, NodeRecord, NoUnit, UndirectedEdge, Unit
from graphveil.errors import ReleaseError, UnitError

NODES = 30
UNITS: dict[str, tuple[Unit, bool]] = {
    "undirected": (UndirectedEdge(), False),
    "directed": (DirectedEdge(), True),
}
KEY = ReleaseKey.from_seed(3, "graph")
DOMAIN = Domain.whole(3, directed=False)


def drawn(edges: list[tuple[int, int]], unit: Unit, directed: bool, **parts: object) -> set[int]:
    """Return the node pairs that a release returns, under a fixed key that is not bound to the edges."""
    source, target = zip(*edges, strict=True)
    adjacency = Adjacency.from_edges(source, target, num_nodes=NODES, directed=directed)
    plan = ReleasePlan(unit, (EdgeResponseQuery(1.0),), delta=0.0)
    release = Release.open(plan, adjacency, budget=MemoryLedger(), **parts)
    return set(release.answer(EdgeResponseData(Domain.whole(NODES, directed=directed))).tolist())


class FixedKey(ReleaseKey):
    """A key that draws the same noise whatever the edges are, as no release does."""

    descriptors: ClassVar[list[bytes]] = []

    def query_key(self, descriptor: bytes) -> bytes:
        self.descriptors.append(descriptor)
        return bytes(31) + b"n"


def fixed_key() -> ReleaseKey:
    key = ReleaseKey.fresh()
    return FixedKey(key.release_id, key.nonce, key.master)


EDGES = [(0, 1), (1, 2), (5, 9), (28, 29), (3, 29)]


@pytest.mark.parametrize(("unit", "directed"), UNITS.values(), ids=UNITS)
def test_one_edge_changes_at_most_one_node_pair(unit: Unit, directed: bool) -> None:
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
    assert len(whole) > 50  # of 435 node pairs, or 870


def of_triangle(query: Query, data: NodePairData, nodes: int = 3, key: ReleaseKey = KEY) -> Tensor:
    adjacency = Adjacency.from_edges([0, 1], [1, 2], num_nodes=nodes, directed=False)
    release = Release.open(
        ReleasePlan(EdgeSubset(), (query,), delta=0.0), adjacency, budget=MemoryLedger(), key=key
    )
    return release.answer(data)


def test_noise_is_bound_to_the_node_pairs_the_number_and_the_tree() -> None:
    FixedKey.descriptors.clear()
    key = FixedKey(KEY.release_id, KEY.nonce, KEY.master)
    all_nodes, some = torch.ones(4, dtype=torch.bool), torch.tensor([True, True, True, False])
    none = Adjacency.from_edges([], [], num_nodes=4, directed=False)
    public = Adjacency.from_edges([0], [1], num_nodes=4, directed=False)
    domains = [Domain.within(none, all_nodes), Domain.within(none, some), Domain.within(public, all_nodes)]
    for domain, number in product(domains, (0.5, 1.0)):
        of_triangle(EdgeResponseQuery(1.0), EdgeResponseData(domain, number), nodes=4, key=key)
    parents = [[4, 4, 5, 5, 6, 6, -1], [5, 5, 4, 4, 6, 6, -1], [5, 4, 5, 4, 6, 6, -1]]
    for one in parents:
        tree = Dendrogram.from_parents(np.array(one))
        of_triangle(BlockCountQuery(1.0), BlockCountData(domains[0], tree=tree), nodes=4, key=key)
    assert len(set(FixedKey.descriptors)) == 6 + len(parents)


@pytest.mark.parametrize("kind", [EdgeResponseQuery, TopNodePairsQuery])
def test_no_public_edge_is_drawn(kind: type[EdgeResponseQuery] | type[TopNodePairsQuery]) -> None:
    public = Adjacency.from_edges([0, 0, 1], [1, 2, 3], num_nodes=4, directed=False)
    domain = Domain.within(public, torch.ones(4, dtype=torch.bool))
    data = EdgeResponseData(domain) if kind is EdgeResponseQuery else TopNodePairsData(domain, 2)
    for seed in range(5):
        found = of_triangle(kind(0.1), data, nodes=4, key=ReleaseKey.from_seed(seed, "graph"))
        assert domain.protects(found.numpy()).all()


@pytest.mark.parametrize("unit", [NodeRecord(), NoUnit()], ids=lambda unit: unit.name)
def test_units_without_a_bound_are_rejected(unit: Unit) -> None:
    with pytest.raises(UnitError, match="no guarantee"):
        EdgeResponseQuery(1.0).event(unit)


@pytest.mark.parametrize(("unit", "directed"), [(UndirectedEdge(), True), (DirectedEdge(), False)])
def test_rejects_a_unit_that_does_not_match_the_graph(unit: Unit, directed: bool) -> None:
    adjacency = Adjacency.from_edges([0], [1], num_nodes=3, directed=directed)
    ledger = MemoryLedger()
    with pytest.raises(UnitError):
        Release.open(ReleasePlan(unit, (EdgeResponseQuery(1.0),), delta=0.0), adjacency, budget=ledger)
    assert not ledger.entries


def test_a_share_out_of_range_is_rejected() -> None:
    adjacency = Adjacency.from_edges([0], [1], num_nodes=3, directed=False)
    release = Release.open(
        ReleasePlan(UndirectedEdge(), (EdgeResponseQuery(1.0),), delta=0.0), adjacency, budget=MemoryLedger()
    )
    with pytest.raises(ReleaseError, match="share"):
        release.answer(EdgeResponseData(DOMAIN, 1.5))


@pytest.mark.parametrize("seed", range(3))
def test_a_second_tier_has_noise_of_its_own(seed: int) -> None:
    """Five edges where 6200 are wanted: some 6900 cells without an edge pass the bound of one of the tiers.

    If the second tier reused the words of the first, cells that did not pass there would be less likely to
    pass here, and some 5000 would be found.
    """
    nodes, wanted, epsilon = 250, 6200, 3.0
    domain = Domain.whole(nodes, directed=False)
    cells = NoisyCells(epsilon, domain.size, wanted)
    assert cells.tiers == 2
    often = TOTAL // 16  # from here on every cell has a word of its own, which is the same in both tiers
    assert all(ladder.total > often for ladder in cells.zeros)
    adjacency = Adjacency.from_edges(range(5), range(5, 10), num_nodes=nodes, directed=False)
    plan = ReleasePlan(UndirectedEdge(), (TopNodePairsQuery(epsilon),), delta=0.0)
    key = ReleaseKey.from_seed(seed, "tiers")
    release = Release.open(plan, adjacency, budget=MemoryLedger(), key=key)
    found = release.answer(TopNodePairsData(domain, wanted))
    assert len(found) == wanted and bool((torch.diff(found) > 0).all())
    assert int(found.min()) >= 0 and int(found.max()) < domain.size
    spread = np.histogram(found.numpy(), bins=10, range=(0, domain.size))[0]
    assert spread.min() > wanted / 20

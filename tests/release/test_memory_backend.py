import gc
import pickle
import weakref
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest
import torch

from graphveil.audit.query_neighbor_tests import with_degree_bound
from graphveil.core.backends import AggregationBackend, BlockWork, DiskBackend, InMemoryBackend
from graphveil.core.edges import blocks as graph_blocks
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.blocks import EdgeBlock
from graphveil.core.edges.node_pairs import Domain
from graphveil.core.features import safe_unit
from graphveil.core.keys import ReleaseKey
from graphveil.core.ledger import MemoryLedger
from graphveil.core.noise.discrete_gaussian import DiscreteGaussian
from graphveil.core.noise.discrete_laplace import DiscreteLaplace
from graphveil.core.noise.node_pair_noise import EdgeRandomizedResponse, NoisyCells
from graphveil.core.plan import ReleasePlan, hops
from graphveil.core.private_edges import PrivateEdges
from graphveil.core.queries.edge_counts import NeighborCountData, NeighborCountQuery, NoisyCounts
from graphveil.core.queries.graph_queries import (
    LeveledNodePairs,
    PerturbedNodePairs,
)
from graphveil.core.queries.held_out import HeldOutPairs
from graphveil.core.queries.neighbor_sums import GroupWeights, NeighborSumData, NeighborSumQuery
from graphveil.core.queries.out_edge_sums import (
    OutEdgeSumData,
    OutEdgeSumQuery,
)
from graphveil.core.queries.projected_sums import ProjectedRows, ProjectedSumData, ProjectedSumQuery
from graphveil.core.queries.row_sums import NoisyRows, RowNoise, Sums
from graphveil.core.queries.weights import GivenWeight
from graphveil.core.query import Query, QueryData
from graphveil.core.release import Release
from graphveil.core.unit import Node, NodeRecord, UndirectedEdge, Unit
from graphveil.errors import ConfigError
from graphveil.papers.as_published.graph_queries import PerturbedRows
from graphveil.papers.attention import Attention
from graphveil.papers.weights import ClassAgree, Landmarks, ReluCos, SigmoidCos
from graphveil.release.weights import Jaccard


def star(leaves: int) -> Adjacency:
    """Edges from every leaf into node 0, and from node 0 into the first two leaves."""
    source = [*range(1, leaves + 1), 0, 0]
    target = [0] * leaves + [1, 2]
    return Adjacency.from_edges(source, target, num_nodes=leaves + 1, directed=True)


@dataclass(frozen=True)
class SourceIds(BlockWork):
    """Sums the source ids of each row, and notes which rows it was given."""

    seen: list[tuple[int, int, int]] = field(default_factory=list)

    def __call__(self, edges: EdgeBlock) -> torch.Tensor:
        self.seen.append((edges.start, edges.stop, len(edges.sources)))
        row = np.repeat(np.arange(len(edges)), edges.degrees.numpy())
        return torch.from_numpy(np.bincount(row, edges.sources.numpy(), len(edges))[:, None])


@pytest.mark.parametrize("block_rows", [1, 2, 3, 100])
def test_every_size_of_block_stacks_the_same_rows(block_rows: int) -> None:
    answer = PrivateEdges(star(5), InMemoryBackend(block_rows=block_rows)).rows(SourceIds())
    assert answer.flatten().tolist() == [15, 0, 0, 0, 0, 0]


def test_a_block_holds_no_more_edges_than_offsets_can_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_blocks, "MAX_EDGES", 3)
    graph = Adjacency.from_edges([1, 2, 3, 4, 0, 0, 1], [0, 0, 0, 0, 1, 2, 3], num_nodes=5, directed=True)
    work = SourceIds()
    assert PrivateEdges(graph).rows(work).flatten().tolist() == [10, 0, 0, 1, 0]
    assert work.seen == [(0, 1, 4), (1, 5, 3)]  # one row is never cut


def test_pieces_cover_a_block_in_order() -> None:
    block = next(graph_blocks.blocks(star(5), 100))
    for rows, edges in ((1, 100), (2, 1), (100, 100), (4, 6)):
        pieces = list(block.pieces(rows, edges))
        assert [piece.start for piece in pieces[1:]] == [piece.stop for piece in pieces[:-1]]
        assert torch.cat([piece.sources for piece in pieces]).tolist() == block.sources.tolist()
        assert all(piece.offsets[0] == 0 and piece.offsets.dtype == torch.int32 for piece in pieces)
        assert torch.cat([piece.degrees for piece in pieces]).tolist() == [5, 1, 1, 0, 0, 0]


def test_a_graph_that_is_one_block_is_cut_once_and_its_block_goes_with_it() -> None:
    cycle = Adjacency.from_edges([0, 1, 2], [1, 2, 0], num_nodes=3, directed=False)
    block = graph_blocks.block_of(cycle, 0, 3)
    assert graph_blocks.block_of(cycle, 0, 3) is block and block.rows(0, 3) is block
    assert block.most == 2 and block.rows(1, 3).offsets.tolist() == [0, 2, 4]
    assert len(graph_blocks.block_of(cycle, 1, 3)) == 2
    gone = weakref.ref(block)
    del cycle, block
    gc.collect()
    assert gone() is None


def test_a_graph_without_nodes_has_no_blocks() -> None:
    nothing = Adjacency.from_edges([], [], num_nodes=0, directed=False)
    assert PrivateEdges(nothing).rows(SourceIds()).numel() == 0


@pytest.mark.parametrize("kind", [InMemoryBackend, DiskBackend])
def test_a_block_of_no_rows_is_rejected(kind: type[InMemoryBackend]) -> None:
    with pytest.raises(ConfigError, match="block_rows=0"):
        kind(block_rows=0)


def test_the_edges_of_a_block_do_not_show() -> None:
    assert repr(next(graph_blocks.blocks(star(5), 100))) == "Edges(rows 0 to 6)"


# -- work in another process -------------------------------------------------------------------------------


class Sent(InMemoryBackend):
    """Sends work and every block as bytes, as a backend on other machines would."""

    def map(self, work: BlockWork, blocks: Iterable[EdgeBlock]) -> Iterator[torch.Tensor]:
        sent = pickle.dumps(work)
        for block in blocks:
            yield pickle.loads(sent)(pickle.loads(pickle.dumps(block)))


class Spawned(InMemoryBackend):
    """Has the work done in a process that shares nothing with this one."""

    def map(self, work: BlockWork, blocks: Iterable[EdgeBlock]) -> Iterator[torch.Tensor]:
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            yield from pool.map(work, blocks)


@dataclass(frozen=True)
class Lending(InMemoryBackend):
    """Yields memory of its own, as a cluster does, and writes over it as soon as it may."""

    @property
    def yields_borrowed_memory(self) -> bool:
        return True

    def run(self, work: BlockWork, adjacency: Adjacency, first: int = 0) -> Iterator[torch.Tensor]:
        for part in super().run(work, adjacency, first):
            try:
                yield part
            finally:
                part.zero_()


NODES, DIM = 23, 3
WHOLE = Domain.whole(6, directed=False)
ROWS = safe_unit(torch.from_numpy(np.random.default_rng(0).normal(size=(NODES, DIM))))
THREE = torch.arange(NODES) % 3
NETWORK = (ROWS.float(), ROWS.float(), torch.ones(DIM), torch.tensor(0.2))
KEYS: dict[str, Any] = {"attention": NETWORK, "features": (ROWS > 0).float()}
WEIGHTS = (SigmoidCos(), Landmarks(ReluCos(), 4), Jaccard(), Attention(), ClassAgree(0.2), GivenWeight())
TARGET_WEIGHTED = NeighborSumQuery(GroupWeights.target_weighted(), (3.0, 2.0, 1.0), DIM)
OUT_EDGE_SUM = OutEdgeSumQuery(dim=DIM, sigma=2.0, levels=(0, 16, 25), bounds=(1.0, 1.2, 0.0))
QUERIES: dict[str, tuple[Unit, Query, QueryData[torch.Tensor]]] = {
    "target_weighted": (UndirectedEdge(), TARGET_WEIGHTED, NeighborSumData(ROWS)),
    "out_edges": (NodeRecord(), OUT_EDGE_SUM, OutEdgeSumData(ROWS, THREE)),
    "projected": (
        Node(),
        with_degree_bound(ProjectedSumQuery(dim=DIM, sigma=2.0, radius=0.5), 4),
        ProjectedSumData(ROWS),
    ),
    "counted": (
        UndirectedEdge(),
        NeighborCountQuery("train/val/target", (0, 1, 2), 1.0, 3),
        NeighborCountData(THREE),
    ),
    **{
        type(weight).__name__: (
            UndirectedEdge(),
            hops(1.0, 1, DIM, UndirectedEdge(), weight)[0],
            NeighborSumData(ROWS, KEYS.get(weight.reads, ROWS)),
        )
        for weight in WEIGHTS
    },
}


def answer_of(
    name: str, backend: AggregationBackend | None, graph: Adjacency | None = None, first_row: int = 0
) -> torch.Tensor:
    """Return the answer to a query, by default on a random graph."""
    unit, query, data = QUERIES[name]
    rng = np.random.default_rng(1)
    if graph is None:
        weights = {"weight": rng.random(60), "max_weight": 1.0} if query.reads_edge_weights else {}
        ends = rng.integers(NODES, size=(2, 60))
        graph = Adjacency.from_edges(*ends, num_nodes=NODES, directed=False, **weights)
    groups = THREE if query.needs_groups else None
    plan, key = ReleasePlan(unit, (query,), delta=1e-3), ReleaseKey.from_seed(5, "backends")
    release = Release.open(
        plan, graph, groups, budget=MemoryLedger(), key=key, backend=backend, first_row=first_row
    )
    return release.answer(data)


@pytest.mark.parametrize("name", QUERIES)
def test_serialized_work_is_bit_identical(name: str) -> None:
    here = answer_of(name, InMemoryBackend())
    for block_rows in (1, 7, 100):
        assert torch.equal(answer_of(name, Sent(block_rows)), here)


def test_another_process_gives_the_same_bytes() -> None:
    assert torch.equal(answer_of("SigmoidCos", Spawned(12)), answer_of("SigmoidCos", InMemoryBackend()))


@pytest.mark.parametrize("backend", [Lending(7), Lending(100)])
def test_borrowed_memory_is_copied_before_it_is_reused(backend: AggregationBackend) -> None:
    assert torch.equal(answer_of("target_weighted", backend), answer_of("target_weighted", InMemoryBackend()))
    here, there = (PrivateEdges(star(5), each).pieces(SourceIds()) for each in (InMemoryBackend(), backend))
    assert torch.equal(here, there)


def works() -> list[BlockWork]:
    return [
        NoisyRows(Sums(torch.ones(6, 2), 100), RowNoise(None, (DiscreteGaussian(100.0),), (1.0,)), bytes(32)),
        PerturbedNodePairs(WHOLE, EdgeRandomizedResponse(1.0), bytes(32)),
        LeveledNodePairs(WHOLE, NoisyCells(1.0, 15, 4), bytes(32)),
        PerturbedRows(Domain.whole(6, directed=True), 1.0, 3, (1.0, 0.5), bytes(32)),
        NoisyCounts(
            np.array([0, 1, 1, 0, 2, -1]),
            np.zeros(6, int),
            3,
            HeldOutPairs(0.5, 1),
            DiscreteLaplace(1.0),
            bytes(32),
        ),
        ProjectedRows(
            np.arange(12).reshape(6, 2),
            3,
            1.5,
            64.0,
            RowNoise(None, (DiscreteGaussian(100.0),), (1 / 64,)),
            bytes(32),
        ),
    ]


def test_every_kind_of_work_can_be_sent() -> None:
    edges = next(graph_blocks.blocks(star(5), 100))
    ours = {kind for kind in _kinds(BlockWork) if kind.__module__.startswith("graphveil.")}
    assert {type(work) for work in works()} == ours
    for work in works():
        assert torch.equal(pickle.loads(pickle.dumps(work))(edges), work(edges))


def _kinds(base: type[BlockWork]) -> Iterator[type[BlockWork]]:
    for kind in base.__subclasses__():
        yield from (kind, *_kinds(kind))


def test_a_serialized_block_contains_only_its_own_edges() -> None:
    rng = np.random.default_rng(0)
    large = Adjacency.from_edges(*rng.integers(3000, size=(2, 50_000)), num_nodes=3000, directed=True)
    block = next(graph_blocks.blocks(large, 10))
    assert len(pickle.dumps(block)) < 5_000


def test_rows_from_one_on_keep_their_noise() -> None:
    whole = answer_of("target_weighted", InMemoryBackend())
    assert torch.equal(answer_of("target_weighted", Sent(4), first_row=9), whole[9:])
    assert answer_of("target_weighted", None, first_row=NODES).numel() == 0


def test_a_range_of_rows_still_reads_whole_lists() -> None:
    whole = answer_of("out_edges", InMemoryBackend())
    assert torch.equal(answer_of("out_edges", None, first_row=9), whole[9:])

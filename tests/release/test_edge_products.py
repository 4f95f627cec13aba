"""Sums of products over edges: exact values, symmetric noise, held-out pairs, and rejected inputs."""

import numpy as np
import pytest
import torch

from graphveil.audit.query_neighbor_tests import zero_noise_plan
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.ledger import MemoryLedger
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.held_out import HeldOutPairs
from graphveil.core.queries.pair_sums import EdgeProductData, EdgeProductQuery
from graphveil.core.queries.row_sums import grid_vectors
from graphveil.core.release import Release
from graphveil.core.unit import DirectedEdge, NodeRecord, UndirectedEdge, Unit
from graphveil.errors import ReleaseError, UnitError

EDGE, STORED = UndirectedEdge(), DirectedEdge()
NONE_HELD = HeldOutPairs(0.0, 0)


def answer(plan: ReleasePlan, edges: Adjacency, vectors: torch.Tensor) -> np.ndarray:
    found = Release.open(plan, edges, budget=MemoryLedger()).answer(EdgeProductData(vectors))
    return np.asarray(found.numpy())


def random_edges(directed: bool, nodes: int = 60) -> tuple[Adjacency, np.ndarray]:
    rng = np.random.default_rng(3)
    pairs = rng.integers(nodes, size=(2, 300))
    pairs = pairs[:, pairs[0] != pairs[1]]
    pairs = np.concatenate([pairs, pairs[:, :40], pairs[::-1, :40]], axis=1)  # duplicates, also reversed ones
    return Adjacency.from_edges(*pairs, num_nodes=nodes, directed=directed), pairs


@pytest.mark.parametrize("share", [0.0, 0.4])
@pytest.mark.parametrize("unit", [EDGE, STORED], ids=["undirected", "directed"])
def test_exact_sum_is_that_of_distinct_edges_that_are_not_held_out(unit: Unit, share: float) -> None:
    edges, pairs = random_edges(unit == STORED)
    held_out = HeldOutPairs(share, 11)
    vectors = torch.from_numpy(np.random.default_rng(0).normal(size=(60, 3)))
    vectors /= 1.01 * vectors.norm(dim=1, keepdim=True)
    grid = grid_vectors(vectors, 9) / 2**9
    expected = np.zeros((3, 3))
    distinct = {(u, v) if unit == STORED else (min(u, v), max(u, v)) for u, v in pairs.T.tolist()}
    for u, v in distinct:
        if not held_out.contains(np.array([u]), np.array([v]))[0]:
            product = np.outer(grid[u], grid[v])
            expected += product if unit == STORED else (product + product.T) / 2
    query = EdgeProductQuery(3, sigma=(2.0,), symmetric=unit == EDGE, held_out=held_out)
    np.testing.assert_array_equal(answer(zero_noise_plan(unit, (query,)), edges, vectors), expected)


@pytest.mark.parametrize("unit", [EDGE, STORED], ids=["undirected", "directed"])
def test_entries_have_the_charged_noise(unit: Unit) -> None:
    edges = Adjacency.from_edges([], [], num_nodes=2, directed=unit == STORED)
    plan = ReleasePlan(
        unit, (EdgeProductQuery(200, sigma=(3.0,), symmetric=unit == EDGE, held_out=NONE_HELD),), delta=1e-5
    )
    noise = answer(plan, edges, torch.zeros(2, 200))
    assert abs(np.diag(noise).std() - 3) < 0.5
    above = noise[np.triu_indices(200, 1)]
    assert abs(above.std() - (3 / 2**0.5 if unit == EDGE else 3)) < 0.06
    assert np.array_equal(noise, noise.T) == (unit == EDGE)
    if unit == EDGE:  # a symmetric matrix of Frobenius norm one is found with mu = 1 / sigma
        direction = np.full((200, 200), 1 / 200)
        many = [(answer(plan, edges, torch.zeros(2, 200)) * direction).sum() for _ in range(60)]
        assert 2 < np.std(many) < 4


def test_vector_beyond_the_bound_counts_for_nothing() -> None:
    edges = Adjacency.from_edges([0, 0], [1, 2], num_nodes=3, directed=False)
    vectors = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.9, 0.9]])
    query = EdgeProductQuery(2, sigma=(1.0,), symmetric=True, held_out=NONE_HELD)
    assert answer(zero_noise_plan(EDGE, (query,)), edges, vectors).tolist() == [[1.0, 0.0], [0.0, 0.0]]


def test_hub_is_summed_exactly() -> None:
    leaves = 70_000  # float32 adds 2^24 / 2^9 = 32,768 of these vectors exactly
    source, target = np.zeros(leaves, dtype=np.int64), np.arange(1, leaves + 1)
    edges = Adjacency.from_edges(source, target, num_nodes=leaves + 1, directed=False)
    vectors = torch.full((leaves + 1, 1), 511 / 512)
    query = EdgeProductQuery(1, sigma=(1.0,), symmetric=True, held_out=NONE_HELD)
    assert answer(zero_noise_plan(EDGE, (query,)), edges, vectors).item() == leaves * (511 / 512) ** 2


def test_units_and_storage_that_do_not_fit_are_rejected() -> None:
    query = EdgeProductQuery(2, sigma=(1.0,), symmetric=True, held_out=NONE_HELD)
    for unit in (STORED, NodeRecord()):
        with pytest.raises(UnitError):
            query.event(unit)
    directed, _ = random_edges(True)
    plan = ReleasePlan(EDGE, (query,), delta=1e-5)
    with pytest.raises(UnitError, match="directed"):
        Release.open(plan, directed, budget=MemoryLedger())
    undirected, _ = random_edges(False)
    with pytest.raises(ReleaseError, match="shape"):
        answer(plan, undirected, torch.zeros(60, 3))

"""Averages over similar nodes, and similar nodes' neighbors as neighbors."""

import numpy as np
import pytest
from scipy import sparse

from graphveil._util.clustering import Matrix
from graphveil.papers.simgat import averaging, union
from graphveil.papers.similarity import PublicEdges
from tests.structure.conftest import public, random_edges


def random_similar(seed: int, nodes: int = 30) -> Matrix:
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((nodes, nodes)) < 0.08, rng.random((nodes, nodes)), 0).astype(np.float32)
    np.fill_diagonal(dense, 0)
    return sparse.csr_array(dense)


@pytest.mark.parametrize("weighted", [False, True])
def test_averaging_is_the_formula(weighted: bool) -> None:
    similar = random_similar(0)
    total = np.eye(30) + (similar.toarray() if weighted else similar.toarray() > 0)
    expected = total / total.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(averaging(similar, weighted=weighted).toarray(), expected, rtol=1e-6)


def test_averaging_over_no_nodes_is_the_identity() -> None:
    found = averaging(sparse.csr_array((4, 4), dtype=np.float32))
    assert (found.toarray() == np.eye(4)).all()


@pytest.mark.parametrize("nodes", [30, 1300])  # one block of rows, or several
@pytest.mark.parametrize("directed", [False, True])
def test_a_union_is_the_formula(directed: bool, nodes: int) -> None:
    edges, similar = (
        random_edges(1, nodes=nodes, edges=20 * nodes, directed=directed),
        random_similar(1, nodes),
    )
    own = edges.matrix().toarray()
    expected = own + (similar.toarray() > 0).astype(float) @ own > 0
    np.fill_diagonal(expected, False)
    joined = PublicEdges(union(edges, similar), basis="drawn here")
    assert (joined.matrix().toarray() == expected).all()
    assert joined.adjacency.edge_set is edges.adjacency.edge_set


@pytest.mark.parametrize("max_union_degree", [None, 0, 2, 7])
def test_a_union_with_no_nodes_is_the_graph(max_union_degree: int | None) -> None:
    edges = random_edges(2)
    joined = union(edges, sparse.csr_array((30, 30)), max_union_degree=max_union_degree)
    assert (joined.indptr == edges.adjacency.indptr).all()
    assert (joined.indices == edges.adjacency.indices).all()


def test_a_full_row_takes_those_with_the_most_support() -> None:
    edges = public([5, 6, 7, 6, 7, 7, 4], [1, 1, 1, 2, 2, 3, 0], 8)
    similar = sparse.csr_array(([1.0, 1, 1], ([0, 0, 0], [1, 2, 3])), shape=(8, 8))

    def sources_of(max_union_degree: int | None) -> list[int]:
        joined = union(edges, similar, max_union_degree=max_union_degree)
        return joined.indices[: joined.indptr[1]].tolist()

    assert sources_of(None) == [4, 5, 6, 7]
    assert sources_of(3) == [4, 6, 7]  # 7 is heard by three similar nodes, 6 by two, 5 by one
    assert sources_of(2) == [4, 7]
    assert sources_of(1) == sources_of(0) == [4]  # one's own neighbors stay

"""Exact sums, over in-neighbors without privacy and over each node's own list."""

import numpy as np
import pytest
import torch

from graphveil.core.edges.adjacency import Adjacency, EdgeSet
from graphveil.core.exact_sums import neighbor_sums
from graphveil.core.queries.out_edge_sums import own_list_sums
from graphveil.errors import ConfigError


def drawn(directed: bool) -> tuple[Adjacency, torch.Tensor]:
    rng = np.random.default_rng(0)
    source, target = rng.integers(7, size=(2, 20))
    adjacency = Adjacency.from_edges(source, target, num_nodes=7, directed=directed)
    dense = torch.zeros(7, 7, dtype=torch.float64)
    u, v = adjacency.edge_index()
    dense[v, u] = 1.0
    return adjacency, dense


@pytest.mark.parametrize("directed", [True, False])
def test_the_sum_and_its_gradient_are_those_of_the_dense_matrix(directed: bool) -> None:
    adjacency, dense = drawn(directed)
    x = torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    weights = torch.arange(21, dtype=torch.float64).reshape(7, 3)
    (neighbor_sums(adjacency, x) * weights).sum().backward()
    assert torch.allclose(neighbor_sums(adjacency, x), dense @ x)
    assert x.grad is not None
    assert torch.allclose(x.grad, dense.T @ weights)


def test_nodes_without_in_neighbors_sum_to_zero() -> None:
    empty = Adjacency.from_edges([], [], num_nodes=3, directed=False)
    assert not neighbor_sums(empty, torch.ones(3, 2)).any()
    lonely = Adjacency.from_edges([0], [1], num_nodes=3, directed=True)
    assert neighbor_sums(lonely, torch.ones(3, 2)).tolist() == [[0, 0], [1, 1], [0, 0]]


def dense(adjacency: Adjacency) -> torch.Tensor:
    """Return A with A[u, v] = 1 for a stored edge u -> v."""
    source, target = adjacency.edge_index()
    matrix = torch.zeros(adjacency.num_nodes, adjacency.num_nodes, dtype=torch.float64)
    matrix[source, target] = 1.0
    return matrix


@pytest.mark.parametrize("directed", [False, True])
def test_sums_run_over_out_lists(directed: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    source, target = torch.randint(0, 20, (2, 60), generator=generator)
    adjacency = Adjacency.from_edges(source, target, num_nodes=23, directed=directed)
    rows = torch.randn(23, 4, generator=generator)
    sums, lengths = own_list_sums(adjacency, rows)
    torch.testing.assert_close(sums, dense(adjacency) @ rows.double())
    assert lengths.tolist() == dense(adjacency).sum(dim=1).tolist()
    assert (sums[20:] == 0).all()


def test_a_graph_without_edges_reads_zeros() -> None:
    empty = Adjacency.from_edges([], [], num_nodes=3, directed=True)
    sums, lengths = own_list_sums(empty, torch.ones(3, 2))
    assert sums.tolist() == [[0.0, 0.0]] * 3 and lengths.tolist() == [0, 0, 0]


def test_rows_must_fit() -> None:
    empty = Adjacency.from_edges([], [], num_nodes=3, directed=True)
    with pytest.raises(ConfigError, match="one row per node"):
        own_list_sums(empty, torch.ones(4, 2))


def test_a_nulled_record_is_still_listed_by_its_neighbors() -> None:
    # Undirected 0 - 1 - 2 with node 1's record nulled: its own edges 1 -> 0 and 1 -> 2 are gone.
    indptr, indices = torch.tensor([0, 0, 2, 2]), torch.tensor([0, 2], dtype=torch.int32)
    nulled = Adjacency(indptr, indices, False, EdgeSet())
    sums, lengths = own_list_sums(nulled, torch.tensor([[1.0], [2.0], [4.0]]))
    assert sums.flatten().tolist() == [2.0, 0.0, 2.0]
    assert lengths.tolist() == [1, 0, 1]

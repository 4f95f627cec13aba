import numpy as np
import pytest
import torch

from graphveil.data import Adjacency
from graphveil.release import sum_in_neighbors


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
    (sum_in_neighbors(adjacency, x) * weights).sum().backward()
    assert torch.allclose(sum_in_neighbors(adjacency, x), dense @ x)
    assert x.grad is not None
    assert torch.allclose(x.grad, dense.T @ weights)


def test_a_node_without_in_neighbors_sums_to_zero() -> None:
    lonely = Adjacency.from_edges([0], [1], num_nodes=3, directed=True)
    assert sum_in_neighbors(lonely, torch.ones(3, 2)).tolist() == [[0, 0], [1, 1], [0, 0]]


def test_a_graph_without_edges_sums_to_zero() -> None:
    assert not sum_in_neighbors(
        Adjacency.from_edges([], [], num_nodes=3, directed=False), torch.ones(3, 2)
    ).any()

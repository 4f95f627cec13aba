"""The normalized sum of GCN."""

import pytest
import torch

from graphveil.data import Adjacency
from graphveil.nn.gcn import convolve


@pytest.mark.parametrize("directed", [False, True])
def test_convolution_equals_the_normalized_matrix(directed):
    edges = Adjacency.from_edges([0, 1, 1, 4], [1, 2, 3, 1], num_nodes=6, directed=directed)
    source, target = edges.edge_index()
    loops = torch.eye(6)
    loops[target, source] = 1  # (A + I)^T
    scale = loops.sum(1).rsqrt()
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(convolve(edges, x), scale[:, None] * (loops * scale) @ x)


def test_a_node_without_edges_keeps_its_row():
    lonely = Adjacency.from_edges([0], [1], num_nodes=3, directed=False)
    assert convolve(lonely, torch.tensor([[0.0], [0.0], [7.0]]))[2].tolist() == [7.0]

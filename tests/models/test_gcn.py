"""GCN and its normalised sum."""

import pytest
import torch

from graphveil.errors import NotYetError
from graphveil.graph import Adjacency
from graphveil.models.gcn import GCN, convolve


@pytest.mark.parametrize("directed", [False, True])
def test_convolution_equals_the_normalised_matrix(directed):
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


@pytest.mark.parametrize("unit", ["undirected-edge", "directed-edge"])
def test_private_units_are_refused_by_name(unit):
    with pytest.raises(NotYetError, match=f"gcn reads .*got unit '{unit}'; use 'classcode' or 'gap'"):
        GCN(unit=unit, epsilon=1.0)


@pytest.mark.parametrize(
    "options", [{}, {"layers": 1}, {"layers": 3, "batch_norm": False, "activation": "relu"}]
)
@pytest.mark.parametrize("directed", [False, True])
def test_learns_from_neighbours(make_graph, options, directed):
    graph = make_graph(directed=directed)
    assert GCN(unit="none", seed=0, epochs=60, **options).fit(graph).score(graph) > 0.75

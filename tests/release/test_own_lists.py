"""Reading along one's own list."""

import pytest
import torch

from graphveil.data import Adjacency, EdgeSet
from graphveil.errors import ConfigError
from graphveil.release.out_edge_sums import read_out_neighbor_sums


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
    sums, lengths = read_out_neighbor_sums(adjacency, rows)
    torch.testing.assert_close(sums, dense(adjacency) @ rows.double())
    assert lengths.tolist() == dense(adjacency).sum(dim=1).tolist()
    assert (sums[20:] == 0).all()


def test_a_graph_without_edges_reads_zeros() -> None:
    empty = Adjacency.from_edges([], [], num_nodes=3, directed=True)
    sums, lengths = read_out_neighbor_sums(empty, torch.ones(3, 2))
    assert sums.tolist() == [[0.0, 0.0]] * 3 and lengths.tolist() == [0, 0, 0]


def test_rows_must_fit() -> None:
    empty = Adjacency.from_edges([], [], num_nodes=3, directed=True)
    with pytest.raises(ConfigError, match="one row per node"):
        read_out_neighbor_sums(empty, torch.ones(4, 2))


def test_the_other_end_still_lists_a_node_whose_own_list_is_gone() -> None:
    # Undirected 0 - 1 - 2 with node 1's record nulled: its own edges 1 -> 0 and 1 -> 2 are gone.
    indptr, indices = torch.tensor([0, 0, 2, 2]), torch.tensor([0, 2], dtype=torch.int32)
    nulled = Adjacency(indptr, indices, False, EdgeSet())
    sums, lengths = read_out_neighbor_sums(nulled, torch.tensor([[1.0], [2.0], [4.0]]))
    assert sums.flatten().tolist() == [2.0, 0.0, 2.0]
    assert lengths.tolist() == [1, 0, 1]

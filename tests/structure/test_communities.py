"""Communities: of graphs that can be drawn, and that a move is made only where modularity grows."""

import numpy as np
import pytest

from graphveil.core.edges.adjacency import Adjacency, ProtectedEdges
from graphveil.errors import ConfigError, ProtectedDataError
from graphveil.local.posterior_mixture import communities, undirected


def cliques(count: int, size: int) -> Adjacency:
    """Return cliques in a ring, each with one edge to the next."""
    source, target = [], []
    for one in range(count):
        first = one * size
        inner = [(first + i, first + j) for i in range(size) for j in range(i)]
        source += [i for i, _ in inner] + [first]
        target += [j for _, j in inner] + [(first + size + 1) % (count * size)]
    return Adjacency.from_edges(source, target, num_nodes=count * size, directed=False)


def modularity(adjacency: Adjacency, found: np.ndarray, resolution: float) -> float:
    graph = undirected(adjacency).toarray()
    degrees = graph.sum(axis=1)
    gain = graph - resolution * np.outer(degrees, degrees) / degrees.sum()
    return float((gain * (found[:, None] == found)).sum())


def test_cliques_in_a_ring_are_communities() -> None:
    found = communities(cliques(6, 5))
    assert found.tolist() == np.repeat(np.arange(6), 5).tolist()


def test_a_low_resolution_joins_them() -> None:
    few = communities(cliques(12, 4), resolution=0.05)
    assert 1 <= len(set(few.tolist())) < 12


@pytest.mark.parametrize("resolution", [0.5, 1.0, 4.0])
def test_modularity_is_higher_than_of_single_nodes_or_one_community(resolution: float) -> None:
    ends = np.random.default_rng(0).integers(60, size=(2, 200))
    adjacency = Adjacency.from_edges(ends[0], ends[1], num_nodes=60, directed=True)
    found = communities(adjacency, resolution=resolution)
    own = modularity(adjacency, found, resolution)
    assert own >= modularity(adjacency, np.arange(60), resolution)
    assert own >= modularity(adjacency, np.zeros(60), resolution)
    assert np.array_equal(np.unique(found), np.arange(found.max() + 1))


def test_it_is_found_again_and_is_the_same() -> None:
    edges = cliques(3, 4)
    assert communities(edges) is communities(edges)
    assert communities(edges).tolist() == communities(cliques(3, 4)).tolist()


def test_nodes_without_edges_are_alone() -> None:
    no_edges = Adjacency.from_edges([], [], num_nodes=3, directed=False)
    assert communities(no_edges).tolist() == [0, 1, 2]


def test_communities_reject_private_edges() -> None:
    with pytest.raises(ProtectedDataError):
        communities(ProtectedEdges(cliques(3, 4), "undirected-edge"))
    with pytest.raises(ConfigError, match="resolution="):
        communities(cliques(3, 4), resolution=0)

"""Small public graphs: the one of the slides, two cliques on a bridge, and random ones."""

import numpy as np
import pytest

from graphveil.core.edges.adjacency import Adjacency
from graphveil.papers.similarity import PublicEdges

BASIS = "drawn for a test"


def public(source: list[int], target: list[int], num_nodes: int, *, directed: bool = False) -> PublicEdges:
    edges = Adjacency.from_edges(source, target, num_nodes=num_nodes, directed=directed)
    return PublicEdges(edges, basis=BASIS)


def random_edges(seed: int, *, nodes: int = 30, edges: int = 60, directed: bool = False) -> PublicEdges:
    """Return random edges among all nodes but the last three, which have none."""
    ends = np.random.default_rng(seed).integers(nodes - 3, size=(2, edges))
    adjacency = Adjacency.from_edges(ends[0], ends[1], num_nodes=nodes, directed=directed)
    return PublicEdges(adjacency, basis=BASIS)


@pytest.fixture
def slide() -> PublicEdges:
    """A = [[0,1,0,1], [1,0,0,1], [0,0,0,1], [1,1,1,0]]."""
    return public([0, 0, 1, 2], [1, 3, 3, 3], 4)


@pytest.fixture
def cliques() -> PublicEdges:
    """Two cliques of six, nodes 0-5 and 6-11, joined by one edge, and a node without edges."""
    pairs = [(i + side, j + side) for side in (0, 6) for i in range(6) for j in range(i)] + [(0, 6)]
    return public([i for i, _ in pairs], [j for _, j in pairs], 13)

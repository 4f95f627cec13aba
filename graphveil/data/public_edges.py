"""Select the public edges of a graph, for experiments: at random, or by an attribute of nodes."""

import numpy as np
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.node_pairs import NodePairIndex
from graphveil.core.noise.random import PublicStreams
from graphveil.data.graph import Graph
from graphveil.errors import GraphError


def sample_public_edges(graph: Graph | Adjacency, private_fraction: float, *, seed: int) -> Adjacency:
    """Sample the public edges: each edge is independently private with the same probability.

    For experiments only: it reads the edges without privacy, and the result is treated as public.

    Args:
        graph: Undirected graph, or its edges.
        private_fraction: rho, in [0, 1].
        seed: Seed of the draw.

    Privacy:
        Reads: the edges, exactly. Charges: nothing. There is no guarantee for the edges in the result, which
        is treated as public.

    >>> ring = Adjacency.from_edges(range(6), [1, 2, 3, 4, 5, 0], num_nodes=6, directed=False)
    >>> sample_public_edges(ring, 0.5, seed=2).num_nodes
    6
    """
    checks.within(0, 1, private_fraction=private_fraction)
    adjacency = graph.adjacency if isinstance(graph, Graph) else graph
    source, target = _pairs(adjacency)
    private = PublicStreams(seed).numpy("private edges").random(len(source)) < private_fraction
    return _of(source[~private], target[~private], adjacency.num_nodes)


def public_edges_outside(graph: Graph | Adjacency, members: Tensor) -> Adjacency:
    """Return the edges that are not between two members; those between members are private.

    For experiments only: it reads the edges without privacy. Members may have private edges.

    Privacy:
        Reads: the edges, exactly. Charges: nothing. There is no guarantee for the edges in the result, which
        is treated as public.

    >>> path = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False)
    >>> public_edges_outside(path, torch.tensor([True, True, False])).edge_index()
    tensor([[2, 1],
            [1, 2]])
    """
    adjacency = graph.adjacency if isinstance(graph, Graph) else graph
    if members.dtype != torch.bool or members.shape != (adjacency.num_nodes,):
        raise GraphError(
            f"members must be a bool array of shape ({adjacency.num_nodes},), one entry per node"
        )
    source, target = _pairs(adjacency)
    inside = members.numpy()[source] & members.numpy()[target]
    return _of(source[~inside], target[~inside], adjacency.num_nodes)


def _pairs(adjacency: Adjacency) -> tuple[np.typing.NDArray[np.int64], np.typing.NDArray[np.int64]]:
    """Return each undirected edge once, in the order of node pairs."""
    if adjacency.directed:
        raise GraphError(
            "A graph with public and private edges must be undirected. Build it with directed=False."
        )
    source, target = (part.numpy() for part in adjacency.edge_index())
    once = source < target
    order = np.argsort(NodePairIndex(adjacency.num_nodes, directed=False).number(source[once], target[once]))
    return source[once][order], target[once][order]


def _of(source: object, target: object, num_nodes: int) -> Adjacency:
    return Adjacency.from_edges(np.asarray(source), np.asarray(target), num_nodes=num_nodes, directed=False)

"""Samples of edges that bound the degree of a node."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from graphveil.core.edges.adjacency import Adjacency

IndexArray: TypeAlias = npt.NDArray[np.int64]


def sample_out_edges(adjacency: Adjacency, count: int, rng: np.random.Generator) -> Adjacency:
    """Return a graph in which every node sends along at most ``count`` of its edges, sampled uniformly.

    Each source samples independently, without replacement, so no node's sample depends on another's edges.
    The number of edges that a node receives is not bounded.

    Args:
        adjacency: The in-edges; an undirected edge counts as both directions.

    >>> star = Adjacency.from_edges([0, 0, 0], [1, 2, 3], num_nodes=4, directed=False)
    >>> kept = sample_out_edges(star, 1, np.random.default_rng(0))
    >>> kept.edge_index()[0].bincount(minlength=4).tolist()
    [1, 1, 1, 1]
    """
    source = adjacency.edge_index()[0].numpy()
    shuffled = rng.permutation(len(source))
    return _subgraph(adjacency, shuffled[_rank_within_group(source[shuffled]) < count])


def sample_total_degree(adjacency: Adjacency, count: int, rng: np.random.Generator) -> Adjacency:
    """Return a graph in which no node has more than ``count`` edges, in- and out-edges together.

    Edges are visited in a random order, and an edge is kept if both ends have capacity. So the edges that a
    node keeps depend on the edges of others.

    Args:
        adjacency: The in-edges; an undirected edge counts as both directions.

    >>> star = Adjacency.from_edges([0, 0, 0], [1, 2, 3], num_nodes=4, directed=False)
    >>> sample_total_degree(star, 2, np.random.default_rng(0)).edge_index().shape
    torch.Size([2, 2])
    """
    ends = np.stack([part.numpy() for part in adjacency.edge_index()], axis=1)
    room = np.full(adjacency.num_nodes, count)
    waiting, found = rng.permutation(len(ends)), [np.empty(0, dtype=np.int64)]
    while len(waiting):
        pair = ends[waiting]
        # An edge with fewer predecessors at an end than its capacity always fits there. If the capacity is
        # used up after all of these, they were the first there, and edges that still wait do not fit.
        sure = (_rank_within_group(pair.reshape(-1)).reshape(-1, 2) < room[pair]).all(axis=1)
        found.append(waiting[sure])
        room -= np.bincount(pair[sure].reshape(-1), minlength=len(room))
        waiting = waiting[~sure]
        waiting = waiting[(room[ends[waiting]] > 0).all(axis=1)]
    return _subgraph(adjacency, np.concatenate(found))


def _rank_within_group(owner: IndexArray) -> IndexArray:
    """Return the number of preceding entries with the same owner, for each entry."""
    order = np.argsort(owner, kind="stable")
    degrees = np.bincount(owner)
    places = np.empty(len(owner), dtype=np.int64)
    places[order] = np.arange(len(owner)) - np.repeat(degrees.cumsum() - degrees, degrees)
    return places


def _subgraph(adjacency: Adjacency, edges: IndexArray) -> Adjacency:
    source, target = (ends.numpy() for ends in adjacency.edge_index())
    kept = np.sort(edges)  # they are stored by target, and stay so
    indptr = np.zeros(adjacency.num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(target[kept], minlength=adjacency.num_nodes), out=indptr[1:])
    indices = torch.from_numpy(source[kept].astype(np.int32))
    return Adjacency(torch.from_numpy(indptr), indices, directed=True, edge_set=adjacency.edge_set)

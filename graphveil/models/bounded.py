"""A sample of each node's edges, at most so many: how papers bound the degree. For paper mode only."""

import numpy as np
import torch

from graphveil.graph import Adjacency


def at_most(
    adjacency: Adjacency, count: int, rng: np.random.Generator, *, received: bool = False
) -> Adjacency:
    """Return a graph in which every node sends along ``count`` of its edges at most, chosen uniformly.

    Each source draws on its own, without replacement, so nobody's sample depends on another's edges. How
    many edges a node receives is not bounded; with ``received`` it is, and how many it sends is not.

    Args:
        adjacency: the in-edges; an undirected one counts as both directions of every edge.
        count: D.
        rng: public randomness.
        received: whether to bound what each node receives.

    >>> star = Adjacency.from_edges([0, 0, 0], [1, 2, 3], num_nodes=4, directed=False)
    >>> kept = at_most(star, 1, np.random.default_rng(0))
    >>> kept.edge_index()[0].bincount(minlength=4).tolist()
    [1, 1, 1, 1]
    """
    source, target = (ends.numpy() for ends in adjacency.edge_index())
    owner = target if received else source
    shuffled = rng.permutation(len(owner))
    order = shuffled[np.argsort(owner[shuffled], kind="stable")]  # by owner, in random order within it
    degrees = np.bincount(owner, minlength=adjacency.num_nodes)
    place = np.arange(len(order)) - np.repeat(degrees.cumsum() - degrees, degrees)
    kept = np.sort(order[place < count])  # the edges are stored by target, and stay so
    indptr = np.zeros(adjacency.num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(target[kept], minlength=adjacency.num_nodes), out=indptr[1:])
    indices = torch.from_numpy(source[kept].astype(np.int32))
    return Adjacency(torch.from_numpy(indptr), indices, directed=True, edge_set=adjacency.edge_set)

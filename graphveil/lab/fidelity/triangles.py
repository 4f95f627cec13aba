"""Triangles and clustering, exact where that is affordable and else from sampled wedges."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from graphveil.lab.fidelity.simple_graph import Integers, SimpleGraph

EXACT_PRODUCTS = 1 << 30  # about ten seconds; more are not computed but sampled
WEDGES = 1_000_000  # that are sampled instead, of each kind: standard errors of at most 0.0005
_CHUNK = 1 << 24  # products at a time, which bound the memory


@dataclass(frozen=True)
class Clustering:
    """What triangles say of a graph.

    A wedge is a pair of neighbors of one node, and is closed if the two are joined.

    Args:
        triangles: how many there are; an estimate where wedges were sampled.
        transitivity: the share of all wedges that are closed, 3 triangles / wedges; 0 without wedges.
        average: the mean over all nodes of the share of a node's own wedges that are closed, 0 where it has
            none.
        sampled: whether wedges were sampled.
    """

    triangles: float
    transitivity: float
    average: float
    sampled: bool


def clustering(
    graph: SimpleGraph, *, rng: np.random.Generator, exact_products: int | None = None
) -> Clustering:
    """Return the clustering of a graph.

    Edges are directed from the end with fewer neighbors to the other one, after which no node has more than
    sqrt(2 m) of them: to close all pairs of two such edges takes O(m^1.5). Beyond ``exact_products`` such
    pairs, by default 2^30, a million wedges are sampled among all, and a million at nodes chosen evenly.

    >>> from graphveil.data import Adjacency
    >>> square = Adjacency.from_edges([0, 1, 2, 3, 0], [1, 2, 3, 0, 2], num_nodes=4, directed=False)
    >>> found = clustering(SimpleGraph.from_adjacency(square), rng=np.random.default_rng(0))
    >>> found.triangles, found.transitivity, round(found.average, 4)
    (2, 0.75, 0.8333)
    """
    forward, order = _forward(graph)
    out = np.diff(forward.indptr).astype(np.int64)
    wedges, most = _wedges(graph), EXACT_PRODUCTS if exact_products is None else exact_products
    if wedges.any() and int((out**2).sum() + (forward @ out).sum()) > most:
        return _sampled(graph, wedges, rng)
    at = np.empty(graph.nodes, dtype=np.int64)
    at[order] = _corners(forward, out)
    closed = np.divide(at, wedges, out=np.zeros(graph.nodes), where=wedges > 0)
    triangles = int(at.sum()) // 3
    transitivity = 3 * triangles / max(1, int(wedges.sum()))
    return Clustering(triangles, transitivity, float(closed.mean()), sampled=False)


def _wedges(graph: SimpleGraph) -> Integers:
    """Return how many pairs of neighbors each node has."""
    return graph.degrees * (graph.degrees - 1) // 2


def _forward(graph: SimpleGraph) -> tuple[Any, npt.NDArray[np.intp]]:
    """Return the edges from fewer neighbors to more, with nodes numbered in that order, and the order."""
    order = np.argsort(graph.degrees, kind="stable")
    rank = np.empty(graph.nodes, dtype=np.int32)
    rank[order] = np.arange(graph.nodes, dtype=np.int32)
    tail, head = rank[graph.rows], rank[graph.indices]
    ahead = tail < head
    ones = np.ones(int(ahead.sum()), dtype=np.int64)
    shape = (graph.nodes, graph.nodes)
    return sparse.csr_array((ones, (tail[ahead], head[ahead])), shape=shape), order


def _corners(forward: Any, out: Integers) -> Integers:
    """Return how many triangles each node is a corner of.

    In a triangle u -> v -> w, u -> w, the entry (u, w) of F F counts the v between them, and the entry
    (v, w) of F^T F the u before both. The first finds u and w, the second v.
    """
    found = np.zeros(len(out), dtype=np.int64)
    for rows, closed in _closed(forward, forward, forward, out):
        found[rows] += closed.sum(axis=1)
        found += closed.sum(axis=0)
    for rows, closed in _closed(forward.T.tocsr(), forward, forward, out):
        found[rows] += closed.sum(axis=1)
    return found


def _closed(left: Any, right: Any, edges: Any, out: Integers) -> Iterator[tuple[slice, Any]]:
    """Yield the entries of a product that are edges, some rows at a time."""
    products = np.cumsum(left @ out)
    start = 0
    while start < len(products):
        done = int(products[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(products, done + _CHUNK, side="right")))
        rows = slice(start, stop)
        yield rows, (left[rows] @ right).multiply(edges[rows])
        start = stop


def _sampled(graph: SimpleGraph, wedges: Integers, rng: np.random.Generator) -> Clustering:
    every = int(wedges.sum())
    centers = np.searchsorted(np.cumsum(wedges), rng.integers(every, size=WEDGES), side="right")
    transitivity = _share_closed(graph, centers, rng)
    some = np.flatnonzero(wedges)
    local = _share_closed(graph, rng.choice(some, size=WEDGES), rng)
    average = local * len(some) / graph.nodes
    return Clustering(transitivity * every / 3, transitivity, average, sampled=True)


def _share_closed(graph: SimpleGraph, centers: npt.NDArray[np.intp], rng: np.random.Generator) -> float:
    """Return how many of some wedges are closed, one drawn at each center."""
    degree = graph.degrees[centers]
    first, second = rng.integers(degree), rng.integers(degree - 1)
    second += second >= first  # two different neighbors
    tail, head = (graph.indices[graph.indptr[centers] + place] for place in (first, second))
    return float(_joined(graph, tail, head).mean())


def _joined(
    graph: SimpleGraph, tail: npt.NDArray[np.int32], head: npt.NDArray[np.int32]
) -> npt.NDArray[np.bool_]:
    """Return whether pairs of nodes are edges; rows are in order, so their keys are, too."""
    keys = graph.rows.astype(np.int64) * graph.nodes + graph.indices
    wanted = tail.astype(np.int64) * graph.nodes + head
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    found: npt.NDArray[np.bool_] = keys[place] == wanted
    return found

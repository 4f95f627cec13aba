"""Structural statistics of one graph, read as an undirected graph without weights.

Degrees, centrality, shortest paths from all or from sampled nodes, and triangles, which are exact where that
is affordable and else estimated from sampled wedges. All read true edges, so they are internal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from graphveil._util import checks
from graphveil.data import Adjacency

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
STEPS, TOLERANCE = 1000, 1e-10
ALL_UP_TO = 4096  # nodes: from so many, paths are measured from each
SOURCES = 512  # else from so many of them
_BITS = 64
_ONES = np.array([byte.bit_count() for byte in range(256)], dtype=np.int64)
EXACT_PRODUCTS = 1 << 30  # about ten seconds; more are not computed but sampled
WEDGES = 1_000_000  # that are sampled instead, of each kind: standard errors of at most 0.0005
_CHUNK = 1 << 24  # products at a time, which bound the memory


@dataclass(frozen=True, eq=False, repr=False)
class SimpleGraph:
    """Neighbors in compressed rows: those of v are ``indices[indptr[v]:indptr[v + 1]]``, ascending.

    Build one with ``from_adjacency``. Statistics of it are exact, so they are as private as the edges.

    Shapes: ``indptr`` (N + 1), ``indices`` (2 m) for m edges.
    """

    indptr: Integers
    indices: npt.NDArray[np.int32]

    @classmethod
    def from_adjacency(cls, adjacency: Adjacency) -> SimpleGraph:
        """Return the graph in which two nodes are joined if an edge of any direction or weight is there.

        >>> both = Adjacency.from_edges([0, 1, 1], [1, 0, 2], num_nodes=3, directed=True)
        >>> SimpleGraph.from_adjacency(both).edges
        2
        """
        if adjacency.directed:
            source, target = adjacency.edge_index()
            nodes = adjacency.num_nodes
            return cls.from_adjacency(Adjacency.from_edges(source, target, num_nodes=nodes, directed=False))
        return cls(adjacency.indptr.numpy(), adjacency.indices.numpy())

    @property
    def nodes(self) -> int:
        """The number of nodes N."""
        return len(self.indptr) - 1

    @property
    def edges(self) -> int:
        """The number of edges m, each counted once."""
        return len(self.indices) // 2

    @cached_property
    def degrees(self) -> Integers:
        """How many neighbors each node has, (N)."""
        return np.diff(self.indptr)

    @cached_property
    def rows(self) -> npt.NDArray[np.int32]:
        """The row of each entry of ``indices``, (2 m)."""
        return np.repeat(np.arange(self.nodes, dtype=np.int32), self.degrees)

    def matrix(self) -> Any:
        """Return the symmetric matrix of zeros and ones as a float64 ``csr_array`` (N, N)."""
        ones = np.ones(len(self.indices))
        return sparse.csr_array((ones, self.indices, self.indptr), shape=(self.nodes, self.nodes))


# -- degrees -----------------------------------------------------------------------------------------------


def average_degree(graph: SimpleGraph) -> float:
    """Return 2 m / N."""
    return 2 * graph.edges / graph.nodes


def degree_variance(graph: SimpleGraph) -> float:
    """Return (1 / N) sum_v (d_v - 2 m / N)^2."""
    return float(graph.degrees.var())


def degree_counts(graph: SimpleGraph) -> Integers:
    """Return how many nodes have 0, 1, 2, ... neighbors."""
    return np.bincount(graph.degrees)


def assortativity(graph: SimpleGraph) -> float | None:
    """Return Pearson's correlation of the degrees at the two ends of an edge, each taken as either end.

    None where it is undefined: there is no edge, or all edges have ends of one degree.
    """
    ends = graph.degrees[graph.rows].astype(np.float64)
    others = graph.degrees[graph.indices].astype(np.float64)
    if not len(ends) or ends.min() == ends.max():
        return None
    centered, other = ends - ends.mean(), others - others.mean()
    return float((centered * other).mean() / (centered**2).mean())


def eigenvector_centrality(graph: SimpleGraph) -> Floats:
    """Return x >= 0 of length 1 with A x = lambda x for the largest eigenvalue lambda of A.

    By powers of A + I, which has the same eigenvectors and does not alternate on bipartite graphs, from equal
    entries, in O(m) per step: until no entry changes by more than 1e-10, or for 1,000 steps. If several
    components share the largest eigenvalue, x is the projection of the start onto its eigenvectors.

    Shapes: (N).

    >>> from graphveil.data import Adjacency
    >>> star = SimpleGraph.from_adjacency(Adjacency.from_edges([0, 0], [1, 2], num_nodes=3, directed=False))
    >>> eigenvector_centrality(star).round(4)
    array([0.7071, 0.5   , 0.5   ])
    """
    matrix, x = graph.matrix(), np.full(graph.nodes, graph.nodes**-0.5)
    for _ in range(STEPS):
        following = matrix @ x + x
        following /= np.linalg.norm(following)
        change = float(np.abs(following - x).max())
        x = following
        if change <= TOLERANCE:
            break
    return x


# -- lengths of shortest paths -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PathLengths:
    """How long shortest paths are from some nodes to all others.

    Args:
        counts: ``counts[l - 1]`` pairs have a shortest path of l edges, for l up to the longest.
        apart: Number of pairs without a path.
        complete: whether the paths of all nodes were measured.
    """

    counts: Integers
    apart: int
    complete: bool

    @property
    def diameter(self) -> int:
        """The longest shortest path between two nodes that have one; if not complete, at most that."""
        return len(self.counts)

    @property
    def average(self) -> float | None:
        """The mean length over connected pairs of different nodes; None if there are none."""
        pairs = int(self.counts.sum())
        return float(self.counts @ np.arange(1, len(self.counts) + 1)) / pairs if pairs else None


def sample_sources(nodes: int, count: int | None, *, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Return the nodes that paths are measured from: all of few nodes, else 512, or ``count`` if given.

    >>> sample_sources(3, None, rng=np.random.default_rng(0))
    array([0, 1, 2])
    """
    if count is None:
        count = nodes if nodes <= ALL_UP_TO else SOURCES
    checks.integer_at_least(1, sources=count)
    if count >= nodes:
        return np.arange(nodes)
    return np.sort(rng.choice(nodes, size=count, replace=False))


def path_lengths(graph: SimpleGraph, sources: npt.NDArray[np.intp]) -> PathLengths:
    """Return the lengths of shortest paths from some nodes.

    A search starts from 64 sources at once, each a bit of a node's word: the result of a round is the union
    of the neighbors' words. So 64 sources take O(m) a round, and as many rounds as their longest path.

    >>> from graphveil.data import Adjacency
    >>> path = SimpleGraph.from_adjacency(Adjacency.from_edges([0, 1], [1, 2], num_nodes=4, directed=False))
    >>> found = path_lengths(path, np.arange(4))
    >>> found.counts, found.apart, found.diameter
    (array([4, 2]), 6, 2)
    """
    counts: list[int] = []
    for start in range(0, len(sources), _BITS):
        reached = _search(graph, sources[start : start + _BITS])
        counts += [0] * (len(reached) - len(counts))
        for length, pairs in enumerate(reached):
            counts[length] += pairs
    pairs = len(sources) * (graph.nodes - 1)
    return PathLengths(
        np.array(counts, dtype=np.int64), pairs - sum(counts), complete=len(sources) == graph.nodes
    )


def _search(graph: SimpleGraph, sources: npt.NDArray[np.intp]) -> list[int]:
    """Return how many pairs of a source and another node are one edge apart, two, and so on."""
    some = np.flatnonzero(graph.degrees)  # a union over no neighbors is no union to numpy
    seen = np.zeros(graph.nodes, dtype=np.uint64)
    seen[sources] = np.uint64(1) << np.arange(len(sources), dtype=np.uint64)
    newest, counts = seen.copy(), list[int]()
    while len(some):
        reached_now = np.zeros_like(seen)
        reached_now[some] = np.bitwise_or.reduceat(newest[graph.indices], graph.indptr[some])
        newest = reached_now & ~seen
        pairs = int(_ONES[newest.view(np.uint8)].sum())
        if not pairs:
            break
        counts.append(pairs)
        seen |= newest
    return counts


# -- triangles and clustering ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Clustering:
    """Statistics of triangles.

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
    # Edges lead from fewer neighbors to more; nodes are numbered in that order.
    order = np.argsort(graph.degrees, kind="stable")
    rank = np.empty(graph.nodes, dtype=np.int32)
    rank[order] = np.arange(graph.nodes, dtype=np.int32)
    tail, head = rank[graph.rows], rank[graph.indices]
    ahead = tail < head
    ends = np.ones(int(ahead.sum()), dtype=np.int64), (tail[ahead], head[ahead])
    forward: Any = sparse.csr_array(ends, shape=(graph.nodes, graph.nodes))
    out = np.diff(forward.indptr).astype(np.int64)
    wedges: Integers = graph.degrees * (graph.degrees - 1) // 2
    most = EXACT_PRODUCTS if exact_products is None else exact_products
    if wedges.any() and int((out**2).sum() + (forward @ out).sum()) > most:
        return _sampled(graph, wedges, rng)
    at = np.empty(graph.nodes, dtype=np.int64)
    at[order] = _corners(forward, out)
    closed = np.divide(at, wedges, out=np.zeros(graph.nodes), where=wedges > 0)
    triangles = int(at.sum()) // 3
    transitivity = 3 * triangles / max(1, int(wedges.sum()))
    return Clustering(triangles, transitivity, float(closed.mean()), sampled=False)


def _corners(forward: Any, out: Integers) -> Integers:
    """Return how many triangles each node is a corner of.

    In a triangle u -> v -> w, u -> w, the entry (u, w) of F F counts the v between them, and the entry
    (v, w) of F^T F the u before both. The first finds u and w, the second v.
    """
    found = np.zeros(len(out), dtype=np.int64)
    for rows, closed in _closed(forward, forward, out):
        found[rows] += closed.sum(axis=1)
        found += closed.sum(axis=0)
    for rows, closed in _closed(forward.T.tocsr(), forward, out):
        found[rows] += closed.sum(axis=1)
    return found


def _closed(left: Any, forward: Any, out: Integers) -> Iterator[tuple[slice, Any]]:
    """Yield the entries of a product with the edges that are edges themselves, some rows at a time."""
    products = np.cumsum(left @ out)
    start = 0
    while start < len(products):
        done = int(products[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(products, done + _CHUNK, side="right")))
        rows = slice(start, stop)
        yield rows, (left[rows] @ forward).multiply(forward[rows])
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
    """Return whether pairs of nodes are edges; rows are sorted, so their keys are also sorted."""
    keys = graph.rows.astype(np.int64) * graph.nodes + graph.indices
    wanted = tail.astype(np.int64) * graph.nodes + head
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    found: npt.NDArray[np.bool_] = keys[place] == wanted
    return found

"""How faithful a released graph is to the true one, read as undirected graphs without weights.

Statistics of one graph are degrees, centrality, communities, shortest paths from all or from sampled nodes,
and triangles, which are exact if that is affordable and otherwise estimated from sampled wedges. ``compare``
measures how they differ. Everything here reads true edges, and is internal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.special import entr

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil._util.clustering import louvain
from graphveil.audit.secret_edges import Integers, SecretEdges
from graphveil.core.noise.random import PublicStreams
from graphveil.data import Graph
from graphveil.errors import GraphError

if TYPE_CHECKING:
    from graphveil.perturb import PerturbedGraph


Floats = npt.NDArray[np.float64]
STEPS, TOLERANCE = 1000, 1e-10
ALL_UP_TO = 4096  # nodes: from so many, paths are measured from each
SOURCES = 512  # else from so many of them
_BITS = 64
_ONES = np.array([byte.bit_count() for byte in range(256)], dtype=np.int64)
EXACT_PRODUCTS = 1 << 30  # about ten seconds; more are not computed but sampled
WEDGES = 1_000_000  # that are sampled instead, of each kind: standard errors of at most 0.0005
_CHUNK = 1 << 24  # products at a time, which bound the memory


# -- degrees -----------------------------------------------------------------------------------------------


def assortativity(graph: SecretEdges) -> float | None:
    """Return Pearson's correlation of the degrees at the two ends of an edge, in both orders.

    None if it is undefined: there is no edge, or all ends of edges have the same degree.
    """
    ends = graph.degrees[graph.rows].astype(np.float64)
    others = graph.degrees[graph.matrix.indices].astype(np.float64)
    if not len(ends) or ends.min() == ends.max():
        return None
    centered, other = ends - ends.mean(), others - others.mean()
    return float((centered * other).mean() / (centered**2).mean())


def eigenvector_centrality(graph: SecretEdges) -> Floats:
    """Return x >= 0 of length 1 with A x = lambda x for the largest eigenvalue lambda of A.

    Power iteration with A + I, which has the same eigenvectors and does not alternate on bipartite graphs. It
    starts from equal entries, takes O(m) per step, and stops when no entry changes by more than 1e-10, or
    after 1,000 steps. If several components share the largest eigenvalue, x is the projection of the start
    onto its eigenvectors (N).

    >>> from graphveil.data import Adjacency
    >>> star = SecretEdges.from_adjacency(Adjacency.from_edges([0, 0], [1, 2], num_nodes=3, directed=False))
    >>> eigenvector_centrality(star).round(4)
    array([0.7071, 0.5   , 0.5   ])
    """
    matrix, x = graph.matrix.astype(np.float64), np.full(graph.nodes, graph.nodes**-0.5)
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
    """Lengths of shortest paths from some nodes to all others.

    Args:
        counts: Number of pairs by length: ``counts[l - 1]`` pairs have a shortest path of l edges.
    """

    counts: Integers
    apart: int
    complete: bool

    @property
    def diameter(self) -> int:
        """The length of the longest shortest path; a lower bound unless ``complete``."""
        return len(self.counts)

    @property
    def average(self) -> float | None:
        """The mean length over connected pairs of different nodes; None if there are none."""
        pairs = int(self.counts.sum())
        return float(self.counts @ np.arange(1, len(self.counts) + 1)) / pairs if pairs else None


def sample_sources(nodes: int, count: int | None, *, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Return the source nodes of shortest paths: all of up to 4,096 nodes, else 512.

    >>> sample_sources(3, None, rng=np.random.default_rng(0))
    array([0, 1, 2])
    """
    if count is None:
        count = nodes if nodes <= ALL_UP_TO else SOURCES
    checks.integer_at_least(1, sources=count)
    if count >= nodes:
        return np.arange(nodes)
    return np.sort(rng.choice(nodes, size=count, replace=False))


def path_lengths(graph: SecretEdges, sources: npt.NDArray[np.intp]) -> PathLengths:
    """Return the lengths of shortest paths from some nodes.

    A search starts from 64 sources at once, each a bit of a node's word. The result of a round is the union
    of the neighbors' words. 64 sources therefore take O(m) per round, and as many rounds as their longest
    path.

    Privacy:
        Reads: the exact edges. The result is internal.

    >>> from graphveil.data import Adjacency
    >>> path = SecretEdges.from_adjacency(Adjacency.from_edges([0, 1], [1, 2], num_nodes=4, directed=False))
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


def _search(graph: SecretEdges, sources: npt.NDArray[np.intp]) -> list[int]:
    """Return the numbers of pairs of a source and another node at distance 1, 2, ..."""
    some = np.flatnonzero(graph.degrees)  # a union over no neighbors is no union to numpy
    seen = np.zeros(graph.nodes, dtype=np.uint64)
    seen[sources] = np.uint64(1) << np.arange(len(sources), dtype=np.uint64)
    newest, counts = seen.copy(), list[int]()
    while len(some):
        reached_now = np.zeros_like(seen)
        reached_now[some] = np.bitwise_or.reduceat(newest[graph.matrix.indices], graph.matrix.indptr[some])
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
        triangles: Number of triangles; an estimate if wedges were sampled.
        transitivity: Share of closed wedges, 3 triangles / wedges; 0 without wedges.
        average: Mean over all nodes of the share of closed wedges at a node, 0 at nodes without wedges.
    """

    triangles: float
    transitivity: float
    average: float
    sampled: bool


def clustering(graph: SecretEdges, *, rng: np.random.Generator) -> Clustering:
    """Return the clustering of a graph.

    Edges are directed from the end with fewer neighbors to the other one, after which no node has more than
    sqrt(2 m) of them. Closing all pairs of two such edges takes O(m^1.5). Beyond 2^30 of these pairs, a
    million wedges are sampled among all, and a million at uniformly drawn nodes.

    Privacy:
        Reads: the exact edges. The result is internal.

    >>> from graphveil.data import Adjacency
    >>> square = Adjacency.from_edges([0, 1, 2, 3, 0], [1, 2, 3, 0, 2], num_nodes=4, directed=False)
    >>> found = clustering(SecretEdges.from_adjacency(square), rng=np.random.default_rng(0))
    >>> found.triangles, found.transitivity, round(found.average, 4)
    (2, 0.75, 0.8333)
    """
    # Edges lead from fewer neighbors to more; nodes are numbered in that order.
    order = np.argsort(graph.degrees, kind="stable")
    rank = np.empty(graph.nodes, dtype=np.int32)
    rank[order] = np.arange(graph.nodes, dtype=np.int32)
    tail, head = rank[graph.rows], rank[graph.matrix.indices]
    ahead = tail < head
    ends = np.ones(int(ahead.sum()), dtype=np.int64), (tail[ahead], head[ahead])
    forward: Any = sparse.csr_array(ends, shape=(graph.nodes, graph.nodes))
    out = np.diff(forward.indptr).astype(np.int64)
    wedges: Integers = graph.degrees * (graph.degrees - 1) // 2
    if wedges.any() and int((out**2).sum() + (forward @ out).sum()) > EXACT_PRODUCTS:
        return _sampled(graph, wedges, rng)
    # In a triangle u -> v -> w, u -> w, the entry (u, w) of F F counts the v between them, and the entry
    # (v, w) of F^T F the u before both. The first finds u and w, the second v.
    corners = np.zeros(graph.nodes, dtype=np.int64)
    for rows, products in _closed(forward, forward, out):
        corners[rows] += products.sum(axis=1)
        corners += products.sum(axis=0)
    for rows, products in _closed(forward.T.tocsr(), forward, out):
        corners[rows] += products.sum(axis=1)
    at = np.empty(graph.nodes, dtype=np.int64)
    at[order] = corners
    closed = np.divide(at, wedges, out=np.zeros(graph.nodes), where=wedges > 0)
    triangles = int(at.sum()) // 3
    transitivity = 3 * triangles / max(1, int(wedges.sum()))
    return Clustering(triangles, transitivity, float(closed.mean()), sampled=False)


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


def _sampled(graph: SecretEdges, wedges: Integers, rng: np.random.Generator) -> Clustering:
    every = int(wedges.sum())
    centers = np.searchsorted(np.cumsum(wedges), rng.integers(every, size=WEDGES), side="right")
    transitivity = _share_closed(graph, centers, rng)
    some = np.flatnonzero(wedges)
    local = _share_closed(graph, rng.choice(some, size=WEDGES), rng)
    average = local * len(some) / graph.nodes
    return Clustering(transitivity * every / 3, transitivity, average, sampled=True)


def _share_closed(graph: SecretEdges, centers: npt.NDArray[np.intp], rng: np.random.Generator) -> float:
    """Return the share of closed wedges among some, one drawn at each center."""
    degree = graph.degrees[centers]
    first, second = rng.integers(degree), rng.integers(degree - 1)
    second += second >= first  # two different neighbors
    tail, head = (graph.matrix.indices[graph.matrix.indptr[centers] + place] for place in (first, second))
    return float(graph.joined(tail.astype(np.int64), head.astype(np.int64)).mean())


# -- communities -------------------------------------------------------------------------------------------


def communities(graph: SecretEdges) -> Integers:
    """Return the community of each node, numbered from 0 without gaps.

    The Louvain method (Blondel et al., Fast unfolding of communities in large networks, 2008), which depends
    only on the edges and the order of nodes.

    Privacy:
        Reads: the exact edges. The result is internal.

    >>> from graphveil.data import Adjacency
    >>> two = Adjacency.from_edges([0, 0, 1, 2, 3, 3, 4], [1, 2, 2, 3, 4, 5, 5], num_nodes=6, directed=False)
    >>> communities(SecretEdges.from_adjacency(two))
    array([0, 0, 0, 1, 1, 1])
    """
    return louvain(graph.matrix.astype(np.float64))


def modularity(graph: SecretEdges, labels: Integers) -> float | None:
    """Return Q = sum_c (m_c / m - (D_c / 2 m)^2): m_c edges inside community c, D_c the sum of its degrees.

    Privacy:
        Reads: the exact edges. The result is internal.
    """
    if not graph.edges:
        return None
    inside = np.count_nonzero(labels[graph.rows] == labels[graph.matrix.indices])
    shares = np.bincount(labels, weights=graph.degrees) / (2 * graph.edges)
    return float(inside / (2 * graph.edges) - np.square(shares).sum())


RELATIVE, KL, NMI, MAE = "relative error", "KL divergence", "NMI (1 is best)", "mean absolute error"
Value = float | int | list[float] | None
HEAD = ("query", "true", "released", "error", "measure")


@dataclass(frozen=True)
class StructuralQuery:
    """One query, its two answers and their difference.

    Args:
        true, released: Answers of the two graphs; None if undefined. Distributions are lists of shares over
            the same values. The answer for communities is their number, for centrality the largest entry.
        measure: Measure of the difference; 0 is best, except for NMI.
    """

    name: str
    true: Value
    released: Value
    error: float | None
    measure: str


@dataclass(frozen=True)
class StructuralComparison:
    """The 15 structural queries of two graphs, internal: the true answers and the errors are exact."""

    queries: tuple[StructuralQuery, ...]
    notes: tuple[str, ...]

    def __getitem__(self, name: str) -> StructuralQuery:
        return {query.name: query for query in self.queries}[name]

    def as_dict(self) -> dict[str, Any]:
        return {
            "internal": True,
            "queries": [dict(vars(query)) for query in self.queries],
            "notes": [*self.notes],
        }

    def rows(self) -> list[tuple[str, ...]]:
        return [
            (query.name, _cell(query.true), _cell(query.released), _cell(query.error), query.measure)
            for query in self.queries
        ]

    def __str__(self) -> str:
        lines = [HEAD, *self.rows()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        return "\n".join([*table, *self.notes])


@checked
def compare(
    graph: Graph, released: Graph | PerturbedGraph, *, seed: int = 0, sources: int | None = None
) -> StructuralComparison:
    """Measure how well a released graph keeps the structure of the true one, by 15 queries.

    They are the queries of the PGB benchmark (Liu et al., PGB: Benchmarking differentially private synthetic
    graph generation algorithms, 2024), with its measures: relative error of scalars, KL divergence of degrees
    and path lengths, normalized mutual information of communities, mean absolute error of eigenvector
    centrality. Both graphs are read as undirected graphs without weights.

    Args:
        graph: The true graph.
        released: A graph over the same nodes, such as a result of ``gv.perturb``.
        seed: Seed of sampling, the same for both graphs.
        sources: Number of source nodes of shortest paths; by default all of up to 4,096 nodes, else 512.

    Returns:
        The answers of both graphs and their differences.

    Raises:
        GraphError: If the graphs have different nodes.
        ConfigError: If ``sources`` is not an integer above 0.

    Privacy:
        Unit: none. Reads: the exact edges of ``graph``. Charges: nothing, and there is no guarantee. The
        whole result is internal, including the errors. Choosing a mechanism by them is another release.

    >>> import torch
    >>> import graphveil as gv
    >>> ring = gv.Graph.from_edges(
    ...     torch.eye(5), [0, 1, 0, 1, 0], range(5), [1, 2, 3, 4, 0], directed=False
    ... )
    >>> path = gv.Graph.from_edges(torch.eye(5), [0, 1, 0, 1, 0], range(4), [1, 2, 3, 4], directed=False)
    >>> found = gv.compare(ring, path)
    >>> found["edges"].error, found["diameter"].true, found["diameter"].released
    (0.2, 2, 4)
    """
    first, second = _graph_of(graph), _graph_of(released)
    same_ids = first.ids is None or second.ids is None or np.array_equal(first.ids, second.ids)
    if first.num_nodes != second.num_nodes or not same_ids:
        raise GraphError(
            "The two graphs have different nodes, or the same nodes in another order. Load the "
            "perturbed edges onto the nodes of the true graph: gv.perturb.load(FOLDER, graph)"
        )
    streams = PublicStreams(seed)
    start = sample_sources(first.num_nodes, sources, rng=streams.numpy("sources"))
    true, noisy = (
        Profile(SecretEdges.from_adjacency(one.adjacency), start, streams) for one in (first, second)
    )
    notes = [f"everything sampled was drawn with seed {seed}"]
    if not true.paths.complete:
        notes.append(
            f"paths are those from {len(start):,} of {true.graph.nodes:,} nodes, the same of both graphs; a "
            "diameter is at least the one shown"
        )
    for name, one in (("true", true), ("released", noisy)):
        if one.clustering.sampled:
            notes.append(f"triangles and clustering of the {name} graph are estimates from a million wedges")
    answered = ((name, measure, value(true), value(noisy)) for name, measure, value in QUERIES)
    return StructuralComparison(tuple(_compared(*one) for one in answered), tuple(notes))


def _graph_of(given: object) -> Graph:
    graph = getattr(given, "graph", given)
    if not isinstance(graph, Graph):
        raise GraphError(
            f"compare needs two graphs, got {type(given).__name__}. Read the data with read_graph first."
        )
    return graph


@dataclass(frozen=True, eq=False)
class Profile:
    """The exact answers about a graph, and those from samples; as private as its edges.

    Two graphs with the same streams are sampled alike.
    """

    graph: SecretEdges
    sources: npt.NDArray[np.intp]
    streams: PublicStreams

    @cached_property
    def clustering(self) -> Clustering:
        return clustering(self.graph, rng=self.streams.numpy("wedges"))

    @cached_property
    def paths(self) -> PathLengths:
        return path_lengths(self.graph, self.sources)

    @cached_property
    def communities(self) -> Integers:
        return communities(self.graph)


QUERIES: tuple[tuple[str, str, Callable[[Profile], Any]], ...] = (
    ("nodes", RELATIVE, lambda one: one.graph.nodes),
    ("edges", RELATIVE, lambda one: one.graph.edges),
    ("triangles", RELATIVE, lambda one: one.clustering.triangles),
    ("average degree", RELATIVE, lambda one: 2 * one.graph.edges / one.graph.nodes),
    ("degree variance", RELATIVE, lambda one: float(one.graph.degrees.var())),
    ("degree distribution", KL, lambda one: (np.bincount(one.graph.degrees), [])),
    ("diameter", RELATIVE, lambda one: one.paths.diameter),
    ("average shortest path", RELATIVE, lambda one: one.paths.average),
    ("path-length distribution", KL, lambda one: (one.paths.counts, [one.paths.apart])),
    ("global clustering", RELATIVE, lambda one: one.clustering.transitivity),
    ("average clustering", RELATIVE, lambda one: one.clustering.average),
    ("modularity", RELATIVE, lambda one: modularity(one.graph, one.communities)),
    ("assortativity", RELATIVE, lambda one: assortativity(one.graph)),
    ("communities", NMI, lambda one: one.communities),
    ("eigenvector centrality", MAE, lambda one: eigenvector_centrality(one.graph)),
)


def _compared(name: str, measure: str, true: Any, noisy: Any) -> StructuralQuery:
    """Return a query with the difference of its answers.

    Distributions are counts over the same values, those that one graph lacks being zero, and counts of what
    has no value, such as pairs without a path.
    """
    if measure == NMI:
        error = normalized_mutual_information(true, noisy)
        return StructuralQuery(name, int(true.max()) + 1, int(noisy.max()) + 1, error, NMI)
    if measure == MAE:
        error = float(np.abs(true - noisy).mean())
        return StructuralQuery(name, float(true.max()), float(noisy.max()), error, MAE)
    if measure == KL:
        longest = max(len(counts) for counts, _ in (true, noisy))
        both = [np.append(np.pad(counts, (0, longest - len(counts))), rest) for counts, rest in (true, noisy)]
        first, second = ((counts / max(1, counts.sum())).tolist() for counts in both)
        return StructuralQuery(name, first, second, kl_divergence(*both), KL)
    return StructuralQuery(name, true, noisy, relative_error(true, noisy), RELATIVE)


def _cell(value: Value) -> str:
    if value is None:
        return "undefined"
    if isinstance(value, list):
        return f"{len(value)} shares"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


# -- measures ----------------------------------------------------------------------------------------------


def relative_error(true: float | None, released: float | None) -> float | None:
    """Return |true - released| / |true|; None if an answer is undefined, or only the true one is zero.

    >>> relative_error(4.0, 5.0), relative_error(0.0, 0.0), relative_error(0.0, 1.0)
    (0.25, 0.0, None)
    """
    if true is None or released is None:
        return None
    if true == released:
        return 0.0
    return abs(true - released) / abs(true) if true else None


def kl_divergence(true: npt.ArrayLike, released: npt.ArrayLike) -> float:
    """Return KL(p || q) = sum_k p_k ln(p_k / q_k) of two histograms over the same K values, in nats.

    A value that only one graph has would make it infinite. Therefore one more observation is spread evenly
    over the K values of each: p_k = (c_k + 1/K) / (n + 1) for counts c_k that add up to n.

    >>> kl_divergence([2, 1], [2, 1]), round(kl_divergence([3, 0], [0, 3]), 4)
    (0.0, 1.4594)
    """
    both = [np.asarray(counts, dtype=np.float64) for counts in (true, released)]
    p, q = ((counts + 1 / max(1, len(counts))) / (counts.sum() + 1) for counts in both)
    return max(0.0, float((p * np.log(p / q)).sum()))


def normalized_mutual_information(first: Integers, second: Integers) -> float:
    """Return 2 I / (H_1 + H_2) of two partitions of the same nodes: 1 if they are equal, 0 if independent.

    I is the mutual information of a random node's two communities and H their entropies. Two partitions with
    a single community each are equal.

    Args:
        first, second: Community of each node (N), numbered from 0.

    >>> halves, crossed = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    >>> normalized_mutual_information(halves, 1 - halves), normalized_mutual_information(halves, crossed)
    (1.0, 0.0)
    """
    shares = np.full(len(first), 1 / max(1, len(first)))
    joint: Any = sparse.coo_array((shares, (first, second))).tocsr()  # of nodes in each pair of communities
    p, q = np.asarray(joint.sum(axis=1)).ravel(), np.asarray(joint.sum(axis=0)).ravel()
    both = float(entr(p).sum() + entr(q).sum())
    if both == 0:
        return 1.0
    mutual = both - float(entr(joint.data).sum())
    return min(1.0, max(0.0, 2 * mutual / both))

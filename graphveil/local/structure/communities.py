"""Communities of a public graph: groups of nodes with more edges among them than their degrees explain."""

from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from scipy import sparse

from graphveil._util import checks
from graphveil.data.identity import AdjacencyVersion
from graphveil.local.structure.edges import Matrix, PublicEdges, require_public_edges

Integers = npt.NDArray[np.int64]

_MIN_GAIN = 1e-12  # of a move, in edges: less is rounding
_CONVERGENCE_THRESHOLD = 1e-3  # the share of nodes that may still move when a level ends
_MAX_PASSES = 20

# Public partitions of edges that are in memory: splits and further fits of one graph find them again.
_CACHE: WeakKeyDictionary[AdjacencyVersion, dict[float, Integers]] = WeakKeyDictionary()


def communities(edges: PublicEdges, *, resolution: float = 1.0) -> Integers:
    """Return the community of each node, by Louvain's method (Blondel et al. 2008), int64 (N,).

    It looks for large modularity at a resolution g (Reichardt, Bornholdt 2006):

        sum_{u, v in one community} (A_uv - g d_u d_v / 2m).

    Nodes move to the neighboring community that gains most, in the order of their numbers, until hardly any
    does; then communities become nodes, and so on until nothing moves. Larger g gives smaller communities.
    Directions of edges are ignored. The answer depends on the edges and the nodes' order alone.

    Guarantee: none is needed. Only :class:`PublicEdges` are read, and neither features nor labels.

    Args:
        edges: edges that anyone may read.
        resolution: g, above 0.

    Raises:
        UnitError: the edges are not known to be public.
        ConfigError: the resolution is not above 0.

    >>> from graphveil.data import Adjacency
    >>> ends = [0, 1, 2, 3, 4, 5, 2], [1, 2, 0, 4, 5, 3, 3]  # two triangles and a bridge
    >>> pair = Adjacency.from_edges(*ends, num_nodes=6, directed=False)
    >>> communities(PublicEdges(pair, basis="drawn here")).tolist()
    [0, 0, 0, 1, 1, 1]
    """
    checks.positive(resolution=resolution)
    kept = _CACHE.setdefault(require_public_edges(edges).adjacency.version, {})
    if resolution not in kept:
        kept[resolution] = _louvain(undirected(edges), resolution)
    return kept[resolution]


def undirected(edges: PublicEdges) -> Matrix:
    """Return which nodes have an edge, in either direction, as a symmetric ``csr_array`` without loops."""
    one_way = edges.matrix()
    both = (one_way + one_way.T).tocsr()
    both.setdiag(0)
    both.eliminate_zeros()
    both.data[:] = 1.0
    both.sort_indices()
    return both


def _louvain(graph: Matrix, resolution: float) -> Integers:
    found = np.arange(graph.shape[0])
    while True:
        moved = _local_moves(graph, resolution)
        count = int(moved.max(initial=-1)) + 1
        if count == graph.shape[0]:
            return found
        found = moved[found]
        ones = np.ones(len(moved))
        into = sparse.csr_array((ones, (np.arange(len(moved)), moved)), shape=(len(moved), count))
        graph = (into.T @ graph @ into).tocsr()


def _local_moves(graph: Matrix, resolution: float) -> Integers:
    """Return the communities of one level, numbered from 0."""
    # Lists, and no arrays: single entries are read and written, and each move depends on the one before.
    starts, others, weights = graph.indptr.tolist(), graph.indices.tolist(), graph.data.tolist()
    degrees = np.asarray(graph.sum(axis=1)).ravel()
    pull = (resolution * degrees / max(degrees.sum(), 1.0)).tolist()
    degree, total = degrees.tolist(), degrees.tolist()
    member = list(range(len(degree)))
    for _ in range(_MAX_PASSES):
        moves = 0
        for node, own in enumerate(member):
            links: dict[int, float] = {own: 0.0}
            for place in range(starts[node], starts[node + 1]):
                if others[place] != node:
                    there = member[others[place]]
                    links[there] = links.get(there, 0.0) + weights[place]
            total[own] -= degree[node]
            best, most = own, links[own] - pull[node] * total[own] + _MIN_GAIN
            for there, weight in links.items():
                gain = weight - pull[node] * total[there]
                if gain > most:
                    best, most = there, gain
            total[best] += degree[node]
            moves += best != own
            member[node] = best
        if moves <= _CONVERGENCE_THRESHOLD * len(member):
            break
    return np.unique(member, return_inverse=True)[1]

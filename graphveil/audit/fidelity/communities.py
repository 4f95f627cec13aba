"""Communities by modularity, found in rounds that move many nodes at once."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy import sparse

from graphveil.audit.fidelity.structure import Floats, Integers, SimpleGraph

_ROUNDS, _PATIENCE = 100, 5  # of moves, at most and without a better partition
_MOVING_SHARE = 0.5  # share of the nodes that may move in a round
_MIN_GAIN = 1e-9  # gain that is worth a move


def communities(graph: SimpleGraph, *, rng: np.random.Generator) -> Integers:
    """Return the community of each node, numbered from 0 without gaps.

    The Louvain method (Blondel et al., Fast unfolding of communities in large networks, 2008): nodes move to
    the neighboring community that raises modularity most, communities become nodes, and the procedure repeats
    until nothing is joined. Then single nodes move again. Here a random half of the nodes moves at once, in
    sparse matrix products of O(m); all nodes together would only swap places. The same graph and generator
    give the same communities.

    Args:
        graph: Graph.
        rng: Source of the order of moves.

    Returns:
        The community of each node (N).

    Privacy:
        Reads: the exact edges. The result is internal.

    >>> from graphveil.data import Adjacency
    >>> two = Adjacency.from_edges([0, 0, 1, 2, 3, 3, 4], [1, 2, 2, 3, 4, 5, 5], num_nodes=6, directed=False)
    >>> communities(SimpleGraph.from_adjacency(two), rng=np.random.default_rng(0))
    array([0, 0, 0, 1, 1, 1])
    """
    found = np.arange(graph.nodes)
    if not graph.edges:
        return found
    first = level = _Level.from_matrix(graph.matrix())
    while (joined := _refine_partition(level, np.arange(level.nodes), rng)).max() + 1 < level.nodes:
        found, level = joined[found], level.joined(joined)
    return _refine_partition(first, found, rng)


def modularity(graph: SimpleGraph, labels: Integers) -> float | None:
    """Return Q = sum_c (m_c / m - (D_c / 2 m)^2): m_c edges inside community c, D_c the sum of its degrees.

    Args:
        graph: Graph.
        labels: Community of each node (N).

    Returns:
        Q; None without edges.

    Privacy:
        Reads: the exact edges. The result is internal.
    """
    if not graph.edges:
        return None
    level = _Level.from_matrix(graph.matrix())
    return level.quality(labels, level.links(labels))


@dataclass(frozen=True, eq=False)
class _Level:
    """A graph whose nodes are original nodes or communities; edges within a community are self-loops.

    Its modularity is that of the communities.
    """

    matrix: Any
    degrees: Floats
    loops: Floats
    total: float  # 2 m

    @classmethod
    def from_matrix(cls, matrix: Any) -> Self:
        """Create the graph of a symmetric weight matrix."""
        degrees = np.asarray(matrix.sum(axis=1))
        return cls(matrix, degrees, matrix.diagonal(), float(degrees.sum()))

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self.degrees)

    def joined(self, labels: Integers) -> "_Level":
        """Return the graph of the communities."""
        members = _members(labels)
        return _Level.from_matrix((members.T.tocsr() @ self.matrix @ members).tocsr())

    def links(self, labels: Integers) -> "_Links":
        """Return the weights between nodes and the communities next to them."""
        links = (self.matrix @ _members(labels)).tocsr()
        links.sort_indices()
        rows = np.repeat(np.arange(self.nodes), np.diff(links.indptr))
        return _Links(links, rows, links.indices == labels[rows])

    def sums(self, labels: Integers) -> Floats:
        """Return the sum of degrees in each community."""
        sums: Floats = np.bincount(labels, weights=self.degrees).astype(np.float64)
        return sums

    def quality(self, labels: Integers, links: "_Links") -> float:
        """Return the modularity of a partition."""
        inside = links.matrix.data[links.own].sum() / self.total
        return float(inside - ((self.sums(labels) / self.total) ** 2).sum())


@dataclass(frozen=True, eq=False)
class _Links:
    """Weights between nodes and communities, with the row of each entry, and whether it is its own one."""

    matrix: Any
    rows: Integers
    own: npt.NDArray[np.bool_]


def _members(labels: Integers) -> Any:
    """Return the matrix of zeros and ones, nodes by communities."""
    nodes = len(labels)
    return sparse.csr_array((np.ones(nodes), labels, np.arange(nodes + 1)))


def _refine_partition(level: _Level, labels: Integers, rng: np.random.Generator) -> Integers:
    """Return the best partition that moves of single nodes reach from a first one.

    A node v of degree k that joins community C gains (w(v, C) - k D_C / 2m) / m, where v itself counts
    neither in the weight w of its edges to C nor in the sum D_C of degrees.
    """
    best, quality, waited = labels, -np.inf, 0
    for _ in range(_ROUNDS):
        links = level.links(labels)
        now, waited = level.quality(labels, links), waited + 1
        if now > quality + _MIN_GAIN:
            best, quality, waited = labels, now, 0
        weights, rows, own = links.matrix.data, links.rows, links.own
        sums, pull = level.sums(labels), level.degrees / level.total
        staying = -level.loops - pull * (sums[labels] - level.degrees)
        staying[rows[own]] += weights[own]
        going = np.where(own, -np.inf, weights - pull[rows] * sums[links.matrix.indices])
        largest, wanted = _largest(going, links)
        gains = largest > staying + _MIN_GAIN
        if waited == _PATIENCE or not gains.any():
            break
        moving = gains & (rng.random(level.nodes) < _MOVING_SHARE)
        labels = np.unique(np.where(moving, wanted, labels), return_inverse=True)[1]
    return best


def _largest(values: Floats, links: _Links) -> tuple[Floats, Integers]:
    """Return the largest value of each node, and the first community that has it."""
    nodes, indptr = links.matrix.shape[0], links.matrix.indptr
    best, column = np.full(nodes, -np.inf), np.zeros(nodes, dtype=np.int64)
    some = np.flatnonzero(np.diff(indptr))
    best[some] = np.maximum.reduceat(values, indptr[some])
    places = np.flatnonzero(values == best[links.rows])[::-1]
    column[links.rows[places]] = links.matrix.indices[places]  # of a node's places the last one counts
    return best, column

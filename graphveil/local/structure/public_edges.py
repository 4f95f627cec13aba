"""Edges that anyone may read, their communities, and what similar nodes add to a propagation along them."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse

from graphveil._util import checks
from graphveil.data import Adjacency
from graphveil.data.adjacency import AdjacencyVersion
from graphveil.errors import UnitError
from graphveil.privacy import Guarantee, LocalAttributes

Matrix = Any  # a csr_array; its typed form does not survive slicing and products
Integers = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]
_MIN_GAIN = 1e-12  # of a move, in edges: less is rounding
_CONVERGENCE_THRESHOLD = 1e-3  # the share of nodes that may still move when a level ends
_MAX_PASSES = 20
_ENTRIES = 1 << 22  # of a block of rows of S A, at most, or one row
# Public partitions of edges that are in memory: splits and further fits of one graph find them again.
_CACHE: WeakKeyDictionary[AdjacencyVersion, dict[float, Integers]] = WeakKeyDictionary()


@dataclass(frozen=True)
class PublicEdges:
    """Edges together with the reason why reading them costs nothing.

    Similar nodes are read off all edges at once, with no noise and no price. So the functions of this part of
    the package take no :class:`Adjacency`: what may be secret does not fit. Edges are public if the unit of
    protection leaves them so, or if they are what a private mechanism released (:meth:`released`).

    Args:
        adjacency: the in-edges.
        basis: why they are public, for guarantees and reports.

    Raises:
        UnitError: the basis is empty, or what is given is no adjacency.

    >>> path = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False)
    >>> PublicEdges(path, basis="unit 'local-attributes' leaves edges public")
    PublicEdges(nodes=3, basis="unit 'local-attributes' leaves edges public")
    """

    adjacency: Adjacency
    basis: str

    def __post_init__(self) -> None:
        """Check that a reason is given."""
        if not isinstance(self.adjacency, Adjacency):
            raise UnitError("public edges are made from an Adjacency, such as graph.adjacency")
        if not self.basis.strip():
            raise UnitError(
                "edges are public for a reason: pass basis=, like \"unit 'local-attributes' leaves them "
                'public"'
            )

    @classmethod
    def released(cls, adjacency: Adjacency, guarantee: Guarantee) -> Self:
        """Return the edges of a released graph, as post-processing of a release under a valid guarantee.

        Raises:
            UnitError: the guarantee is not valid, or protects no edges.
        """
        if not guarantee.valid:
            raise UnitError(
                "the graph was released without a valid guarantee, so what is computed from it has none "
                "either; release it in strict mode and without a fixed noise seed"
            )
        if guarantee.unit == LocalAttributes.name:
            raise UnitError(
                f"a guarantee of unit {guarantee.unit!r} says nothing of edges; pass the one under which the "
                "graph was released, or PublicEdges(adjacency, basis=...) if its edges are public"
            )
        return cls(adjacency, basis=f"released under unit {guarantee.unit!r}")

    @property
    def num_nodes(self) -> int:
        """The number of nodes N."""
        return self.adjacency.num_nodes

    def matrix(self) -> Matrix:
        """Return A as a float64 ``csr_array``: row v has a one for every node that sends to v."""
        indptr, indices = self.adjacency.indptr.numpy(), self.adjacency.indices.numpy()
        shape = (self.num_nodes, self.num_nodes)
        return sparse.csr_array((np.ones(len(indices)), indices, indptr), shape=shape)

    def __repr__(self) -> str:
        """Show public sizes and the reason."""
        return f"PublicEdges(nodes={self.num_nodes}, basis={self.basis!r})"


def require_public_edges(edges: object) -> PublicEdges:
    """Return public edges, and refuse everything else.

    Raises:
        UnitError: these edges are not known to be public.
    """
    if isinstance(edges, PublicEdges):
        return edges
    raise UnitError(
        f"similarity reads every edge without noise and takes PublicEdges, got {type(edges).__name__}: "
        "release private edges first (a noisy graph, then PublicEdges.released), and wrap edges that no unit "
        "protects as PublicEdges(adjacency, basis=...)"
    )


def undirected(edges: PublicEdges) -> Matrix:
    """Return which nodes have an edge, in either direction, as a symmetric ``csr_array`` without loops."""
    one_way = edges.matrix()
    both = (one_way + one_way.T).tocsr()
    both.setdiag(0)
    both.eliminate_zeros()
    both.data[:] = 1.0
    both.sort_indices()
    return both


# -- communities ----


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


# -- similar nodes in a propagation ----


def averaging(similar: Matrix, *, weighted: bool = False) -> Matrix:
    """Return D_S^-1 (I + S): each node takes the mean of itself and the nodes similar to it.

        D_S = diag(1 + |S_v|),   or 1 + sum_u s_vu if weighted by similarity; oneself has similarity 1.

    Shapes: S (N, N), of any values, to float32 ``csr_array`` (N, N).

    >>> similar = sparse.csr_array(np.array([[0, 0.5], [0, 0]], dtype=np.float32))
    >>> averaging(similar).toarray().tolist()
    [[0.5, 0.5], [0.0, 1.0]]
    """
    if not weighted:
        similar = _ones(similar)
    total = (sparse.eye_array(similar.shape[0], format="csr") + similar).tocsr()
    total.sort_indices()
    sums = np.asarray(total.sum(axis=1))
    total.data /= np.repeat(sums, np.diff(total.indptr))
    return total.astype(np.float32)


def union(edges: PublicEdges, similar: Matrix, *, max_union_degree: int | None = None) -> Adjacency:
    """Return the graph in which a node also hears from those that its similar nodes hear from.

        A_S = 1[A + S A > 0] without the diagonal.

    With ``max_union_degree`` a node keeps its own neighbors and takes further ones up to that number, first
    those that more of its similar nodes hear from, then lower node numbers. With S = 0 the graph stays as it
    is.

    Args:
        edges: A.
        similar: S (N, N); its values do not matter.
        max_union_degree: the degree above which nothing is added; None for no limit.

    >>> path = Adjacency.from_edges([0, 1, 2], [1, 2, 3], num_nodes=4, directed=False)
    >>> similar = sparse.csr_array(([1.0], ([0], [2])), shape=(4, 4))
    >>> union(PublicEdges(path, basis="drawn here"), similar).indices[:2]
    tensor([1, 3], dtype=torch.int32)
    """
    own, similar = edges.matrix(), _ones(similar)
    parts = [_joined(own, similar, part, max_union_degree) for part in _parts(own, similar)]
    rows = sparse.vstack(parts, format="csr") if parts else own
    return Adjacency(
        torch.from_numpy(rows.indptr.astype(np.int64)),
        torch.from_numpy(rows.indices.astype(np.int32)),
        directed=True,  # S is not symmetric
        edge_set=edges.adjacency.edge_set,
    )


def _joined(own: Matrix, similar: Matrix, part: slice, max_union_degree: int | None) -> Matrix:
    """Return some rows of A_S, with ascending columns."""
    more = (similar[part] @ own).tocoo()
    first = own[part].tocoo()
    size = own.shape[0]
    known = first.coords[0] * size + first.coords[1]
    pairs = more.coords[0].astype(np.int64) * size + more.coords[1]
    new = ~np.isin(pairs, known) & (more.coords[0] + part.start != more.coords[1])
    added, support = pairs[new], more.data[new]
    if max_union_degree is not None:
        room = np.maximum(0, max_union_degree - np.diff(own.indptr)[part])
        added = _first(added, support, room, size)
    rows, columns = np.divmod(np.sort(np.concatenate([known, added])), size)
    shape = (part.stop - part.start, size)
    return sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)


def _first(pairs: _Array, support: _Array, room: _Array, size: int) -> _Array:
    """Return of each row's pairs those with the most support, as many as there is room for."""
    order = np.lexsort((pairs, -support, pairs // size))
    rows = pairs[order] // size
    place = np.arange(len(rows)) - np.searchsorted(rows, rows)
    first: _Array = pairs[order[place < room[rows]]]
    return first


def _parts(own: Matrix, similar: Matrix) -> list[slice]:
    """Return runs of rows of S A with a bounded number of entries."""
    upto = np.cumsum(similar @ np.diff(own.indptr))
    cuts = np.searchsorted(upto, np.arange(_ENTRIES, upto[-1] if len(upto) else 0, _ENTRIES))
    bounds = np.unique(np.concatenate([[0], cuts, [len(upto)]]))
    return [slice(int(start), int(stop)) for start, stop in pairwise(bounds)]


def _ones(similar: Matrix) -> Matrix:
    ones = np.ones(len(similar.data))
    return sparse.csr_array((ones, similar.indices, similar.indptr), shape=similar.shape)

"""Public edges, their communities, and the use of similar nodes in a propagation."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse

from graphveil._util import checks
from graphveil._util.louvain import Integers, Matrix, louvain
from graphveil.core.edges.adjacency import Adjacency, AdjacencyVersion
from graphveil.core.unit import LocalAttributes
from graphveil.errors import UnitError
from graphveil.privacy import Guarantee

_Array = npt.NDArray[Any]
_ENTRIES = 1 << 22  # of a block of rows of S A, at most, or one row
# Cached partitions of edges, which are public. Splits and further fits of one graph reuse them.
_CACHE: WeakKeyDictionary[AdjacencyVersion, dict[float, Integers]] = WeakKeyDictionary()


@dataclass(frozen=True)
class PublicEdges:
    """Edges together with the reason why they are public.

    Similarities read all edges without noise and without spending privacy budget. Therefore the functions of
    this package do not accept an ``Adjacency``, which may be private. Edges are public if the privacy unit
    does not protect them, or if a private mechanism released them (``released``).

    Args:
        adjacency: The in-edges.
        basis: Why they are public, for guarantees and reports.

    Raises:
        UnitError: The basis is empty, or ``adjacency`` is not an ``Adjacency``.

    >>> path = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False)
    >>> PublicEdges(path, basis="unit 'local-attributes' leaves edges public")
    PublicEdges(nodes=3, basis="unit 'local-attributes' leaves edges public")
    """

    adjacency: Adjacency
    basis: str

    def __post_init__(self) -> None:
        """Check that a reason is given."""
        if not isinstance(self.adjacency, Adjacency):
            raise UnitError("Public edges must be made from an Adjacency, for example graph.adjacency.")
        if not self.basis.strip():
            raise UnitError(
                'basis= is missing. State why the edges are public, for example basis="unit '
                "'local-attributes' leaves them public\"."
            )

    @classmethod
    def released(cls, adjacency: Adjacency, guarantee: Guarantee) -> Self:
        """Return the edges of a released graph, as post-processing of a release with a valid guarantee.

        Raises:
            UnitError: The guarantee is invalid, or does not protect edges.
        """
        if not guarantee.valid:
            raise UnitError(
                "The graph was released without a valid guarantee, so results computed from it have "
                "none. Release it in strict mode and without a fixed noise seed."
            )
        if guarantee.unit == LocalAttributes.name:
            raise UnitError(
                f"A guarantee of unit {guarantee.unit!r} does not cover edges. Pass the guarantee of the "
                "released graph, or PublicEdges(adjacency, basis=...) if its edges are public."
            )
        return cls(adjacency, basis=f"released under unit {guarantee.unit!r}")

    @property
    def num_nodes(self) -> int:
        """The number of nodes N."""
        return self.adjacency.num_nodes

    @property
    def mean_degree(self) -> float:
        """The mean number of in-neighbors."""
        return len(self.adjacency.indices) / max(1, self.num_nodes)

    def matrix(self) -> Matrix:
        """Return A as a float64 ``csr_array``: A[v, u] = 1 for every edge u -> v."""
        indptr, indices = self.adjacency.indptr.numpy(), self.adjacency.indices.numpy()
        shape = (self.num_nodes, self.num_nodes)
        return sparse.csr_array((np.ones(len(indices)), indices, indptr), shape=shape)

    def __repr__(self) -> str:
        """Show public sizes and the reason."""
        return f"PublicEdges(nodes={self.num_nodes}, basis={self.basis!r})"


def require_public_edges(edges: object) -> PublicEdges:
    """Return public edges, and reject any other type.

    Raises:
        UnitError: The edges are not known to be public.
    """
    if isinstance(edges, PublicEdges):
        return edges
    raise UnitError(
        "similarity reads every edge without noise, so it needs PublicEdges, not "
        f"{type(edges).__name__}. Release private edges first and pass PublicEdges.released, or "
        "wrap edges that no unit protects as PublicEdges(adjacency, basis=...)."
    )


def undirected(edges: PublicEdges) -> Matrix:
    """Return the undirected adjacency as a symmetric ``csr_array`` without self-loops."""
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

    It maximizes modularity at resolution g (Reichardt, Bornholdt 2006), greedily:

        sum_{u, v in one community} (A_uv - g d_u d_v / 2m).

    In the order of their numbers, nodes move to the neighboring community with the largest gain, until few
    nodes move. Then communities become nodes, and this repeats until nothing moves. Larger g gives smaller
    communities. Edge directions are ignored. The result depends only on the edges and the order of nodes.

    Args:
        edges: Public edges.
        resolution: g, above 0.

    Raises:
        UnitError: The edges are not known to be public.
        ConfigError: The resolution is not above 0.

    Privacy:
        Reads: public edges, and neither features nor labels. Charges: nothing.

    >>> from graphveil.data import Adjacency
    >>> ends = [0, 1, 2, 3, 4, 5, 2], [1, 2, 0, 4, 5, 3, 3]  # two triangles and a bridge
    >>> pair = Adjacency.from_edges(*ends, num_nodes=6, directed=False)
    >>> communities(PublicEdges(pair, basis="drawn here")).tolist()
    [0, 0, 0, 1, 1, 1]
    """
    checks.positive(resolution=resolution)
    kept = _CACHE.setdefault(require_public_edges(edges).adjacency.version, {})
    if resolution not in kept:
        kept[resolution] = louvain(undirected(edges), resolution)
    return kept[resolution]


# -- similar nodes in a propagation ----


def averaging(similar: Matrix, *, weighted: bool = False) -> Matrix:
    """Return D_S^-1 (I + S): each node gets the mean of itself and its similar nodes.

        D_S = diag(1 + |S_v|),   or 1 + sum_u s_vu if weighted by similarity; a node has similarity 1 to
        itself.

    Shapes: S (N, N), of any values, to float32 ``csr_array`` (N, N).

    >>> similar = sparse.csr_array(np.array([[0, 0.5], [0, 0]], dtype=np.float32))
    >>> averaging(similar).toarray().tolist()
    [[0.5, 0.5], [0.0, 1.0]]
    """
    if not weighted:
        similar = _with_ones(similar)
    total = (sparse.eye_array(similar.shape[0], format="csr") + similar).tocsr()
    total.sort_indices()
    sums = np.asarray(total.sum(axis=1))
    total.data /= np.repeat(sums, np.diff(total.indptr))
    return total.astype(np.float32)


def union(edges: PublicEdges, similar: Matrix, *, max_union_degree: int | None = None) -> Adjacency:
    """Return the graph with additional edges from the in-neighbors of each node's similar nodes.

        A_S = 1[A + S A > 0] without the diagonal.

    With ``max_union_degree`` a node keeps its own in-neighbors and gets further ones up to that number. Those
    of more similar nodes are first, then lower node numbers. With S = 0 the graph is unchanged.

    Args:
        edges: A.
        similar: S (N, N); its values are not used.
        max_union_degree: Degree above which nothing is added; None for no limit.

    >>> path = Adjacency.from_edges([0, 1, 2], [1, 2, 3], num_nodes=4, directed=False)
    >>> similar = sparse.csr_array(([1.0], ([0], [2])), shape=(4, 4))
    >>> union(PublicEdges(path, basis="drawn here"), similar).indices[:2]
    tensor([1, 3], dtype=torch.int32)
    """
    own, similar = edges.matrix(), _with_ones(similar)
    # Slices of rows, so that no slice of S A has too many entries.
    upto = np.cumsum(similar @ np.diff(own.indptr))
    cuts = np.searchsorted(upto, np.arange(_ENTRIES, upto[-1] if len(upto) else 0, _ENTRIES))
    bounds = pairwise(np.unique(np.concatenate([[0], cuts, [len(upto)]])))
    slices = [slice(int(start), int(stop)) for start, stop in bounds]
    parts = [_joined(own, similar, part, max_union_degree) for part in slices]
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
    """Return the pairs with the most support in each row, up to its number of free places."""
    order = np.lexsort((pairs, -support, pairs // size))
    rows = pairs[order] // size
    place = np.arange(len(rows)) - np.searchsorted(rows, rows)
    first: _Array = pairs[order[place < room[rows]]]
    return first


def _with_ones(similar: Matrix) -> Matrix:
    ones = np.ones(len(similar.data))
    return sparse.csr_array((ones, similar.indices, similar.indptr), shape=similar.shape)

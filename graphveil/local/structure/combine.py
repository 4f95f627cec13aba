"""What similar nodes do to a propagation: averaged afterwards, or counted as neighbors."""

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse

from graphveil.data import Adjacency
from graphveil.local.structure.edges import Matrix, PublicEdges

_Array = npt.NDArray[Any]
_ENTRIES = 1 << 22  # of a block of rows of S A, at most, or one row


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

"""Check sparse matrices in CSR format from outside, and make a triangular pattern symmetric.

SciPy and torch trust the arrays of a sparse matrix: an index beyond its end is read, and sometimes written,
where it points. So arrays of a file or a caller are checked here first. Work on rows is done in pieces that
stay in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from graphveil.errors import GraphError

Ints = npt.NDArray[np.integer]
Offsets = npt.NDArray[np.int64]
Ids32 = npt.NDArray[np.int32]
Pattern = sparse.csr_array[np.bool_]
MAX_INDEX = 2**31 - 1  # rows, columns and entries that 32 bits can count
_REMEDY = "build it again from rows, columns and values"
_ENTRIES = 1 << 18  # at a time


def check_rows(indptr: Any, indices: Any, columns: int, what: str = "a sparse matrix") -> None:
    _whole(indptr, "row offsets", what)
    _whole(indices, "column indices", what)
    if not 0 <= columns <= MAX_INDEX:
        raise GraphError(f"{what} of {columns} columns is too large. Use at most {MAX_INDEX:,} columns.")
    rises = len(indptr) > 0 and indptr[0] == 0 and not (indptr[1:] < indptr[:-1]).any()
    if not rises or indptr[-1] != len(indices):
        raise GraphError(f"{what} has row offsets that do not fit its entries; {_REMEDY}")
    _inside(indices, columns, what)


def checked_matrix(x: Any) -> Any:
    if x.format == "lil" and [len(row) for row in x.rows] != [len(row) for row in x.data]:
        raise GraphError(f"a sparse matrix has rows with different numbers of indices and values; {_REMEDY}")
    if x.format not in ("csr", "csc", "coo"):
        x = x.tocoo()  # which reads Python objects, or copies by NumPy, and neither follows an index
    if x.ndim != 2:
        raise GraphError(
            f"Features must be a matrix with one row per node, but they have {x.ndim} dimension(s)."
        )
    data = x.data
    if not isinstance(data, np.ndarray) or data.ndim != 1 or data.dtype.kind not in "biuf":
        raise GraphError("A sparse matrix must contain one real number per entry. Encode text as numbers.")
    if x.format != "coo":
        major, minor = x.shape if x.format == "csr" else x.shape[::-1]
        check_rows(x.indptr, x.indices, minor)
        if len(x.indptr) != major + 1 or len(data) != len(x.indices):
            raise GraphError(f"a sparse matrix has arrays that do not fit its shape; {_REMEDY}")
        return x
    for places, size in zip(x.coords, x.shape, strict=True):
        _whole(places, "indices", "a sparse matrix")
        _inside(places, size, "a sparse matrix")
        if len(places) != len(data):
            raise GraphError(f"a sparse matrix has arrays of different lengths; {_REMEDY}")
    return x


def _whole(array: Any, part: str, what: str) -> None:
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in "iu":
        raise GraphError(f"the {part} of {what} must be a vector of whole numbers; {_REMEDY}")


def _inside(indices: Ints, size: int, what: str) -> None:
    if len(indices) and (indices.min() < 0 or indices.max() >= size):
        raise GraphError(f"{what} has an index outside its shape; {_REMEDY}")


def pattern(indptr: Ints, indices: Ints, num_nodes: int) -> Pattern:
    """Return a square matrix of ones, one byte per entry, with offsets of 32 bits if these are enough."""
    if len(indices) <= MAX_INDEX:
        indptr = indptr.astype(np.int32, copy=False)  # SciPy brings both to the wider type of the two
    ones = np.ones(len(indices), dtype=np.bool_)
    return sparse.csr_array((ones, indices, indptr), shape=(num_nodes, num_nodes))


def row_pieces(indptr: Ints) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows with a bounded number of entries, or of one row.

    >>> list(row_pieces(np.array([0, 3, 3, 1 << 18, (1 << 18) + 5])))
    [(0, 3), (3, 4)]
    """
    cuts = np.searchsorted(indptr, np.arange(0, indptr[-1], _ENTRIES))
    cuts = np.unique(np.append(cuts, [0, len(indptr) - 1]))
    yield from zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)


def mirrored(indptr: Offsets, sources: Ids32) -> tuple[Offsets, Ids32]:
    """Return the rows of a lower triangle, each followed by those of its transpose, in ascending order.

    >>> [part.tolist() for part in mirrored(np.array([0, 0, 1, 2]), np.array([0, 0], dtype=np.int32))]
    [[0, 2, 3, 4], [1, 2, 0, 0]]
    """
    nodes = len(indptr) - 1
    upper = pattern(indptr, sources, nodes).tocsc()
    above = upper.indptr.astype(np.int64)
    both = indptr + above
    out = np.empty(both[-1], dtype=np.int32)
    for first, last in row_pieces(both):
        rows = slice(first, last + 1)
        counts = np.column_stack([np.diff(indptr[rows]), np.diff(above[rows])]).reshape(-1)
        is_lower = np.repeat(np.arange(len(counts)) % 2 == 0, counts)
        some = out[both[first] : both[last]]
        some[is_lower] = sources[indptr[first] : indptr[last]]
        some[~is_lower] = upper.indices[above[first] : above[last]]
    return both, out

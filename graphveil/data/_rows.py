"""Compressed rows, worked on in pieces that stay in the cache: a triangle becomes a symmetric pattern."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse

Offsets = npt.NDArray[np.int64]
Ids32 = npt.NDArray[np.int32]
Pattern = sparse.csr_array[np.bool_]

_ENTRIES = 1 << 18  # at a time
_MAX_INT32 = 2**31 - 1


def pattern(indptr: npt.NDArray[np.integer], indices: npt.NDArray[np.integer], num_nodes: int) -> Pattern:
    """Return a square matrix of ones, one byte an entry; 32 bits are enough for offsets, if they can be."""
    if len(indices) <= _MAX_INT32:
        indptr = indptr.astype(np.int32, copy=False)  # SciPy brings both to the wider type of the two
    ones = np.ones(len(indices), dtype=np.bool_)
    return sparse.csr_array((ones, indices, indptr), shape=(num_nodes, num_nodes))


def row_pieces(indptr: npt.NDArray[np.integer]) -> Iterator[tuple[int, int]]:
    """Yield runs of rows of about so many entries, or of one row.

    >>> list(row_pieces(np.array([0, 3, 3, 1 << 18, (1 << 18) + 5])))
    [(0, 3), (3, 4)]
    """
    cuts = np.searchsorted(indptr, np.arange(0, indptr[-1], _ENTRIES))
    cuts = np.unique(np.append(cuts, [0, len(indptr) - 1]))
    yield from zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)


def mirrored(indptr: Offsets, sources: Ids32) -> tuple[Offsets, Ids32]:
    """Return the rows of a lower triangle with those of its transpose behind them, ascending as they are.

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


def as_mask(given: Any) -> Any:
    """Return a list or an array of bools as the tensor that it stands for, anything else as it was.

    >>> as_mask([True, False])
    tensor([ True, False])
    """
    with suppress(ValueError):  # lists of different lengths are no mask
        bools = np.asarray(given) if isinstance(given, list | tuple | np.ndarray) else None
        if bools is not None and bools.dtype == np.bool_:
            return torch.tensor(bools)
    return given

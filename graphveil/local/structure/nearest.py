"""The nodes whose vectors point the same way, a block of rows at a time."""

import numpy as np
import numpy.typing as npt
from scipy import sparse

from graphveil.local.structure.edges import Matrix

Vectors = npt.NDArray[np.float32]
_ROWS = 256


def nearest(vectors: Vectors, *, top: int | None, above: float) -> Matrix:
    """Return for every row the others of cosine above a threshold, the nearest ``top`` of them if given.

    A row of zeros is like none. Cosines exist for a block of rows at a time.

    Args:
        vectors: float32 (N, d).
        top: how many at most, or None for all.
        above: the cosine to pass.

    >>> vectors = np.array([[1, 0], [2, 0], [1, 1], [0, 0]], dtype=np.float32)
    >>> nearest(vectors, top=1, above=0.0).toarray().round(2)
    array([[0.  , 1.  , 0.  , 0.  ],
           [1.  , 0.  , 0.  , 0.  ],
           [0.71, 0.  , 0.  , 0.  ],
           [0.  , 0.  , 0.  , 0.  ]], dtype=float32)
    """
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
    blocks = []
    for start in range(0, len(unit), _ROWS):
        cosines = unit[start : start + _ROWS] @ unit.T
        rows = np.arange(len(cosines))
        cosines[rows, start + rows] = -1
        blocks.append(_select_entries(cosines, top, above))
    return sparse.vstack(blocks, format="csr")


def _select_entries(cosines: Vectors, top: int | None, above: float) -> Matrix:
    """Return the entries that are kept of a few rows."""
    if top is not None and top < cosines.shape[1]:
        beyond = np.argpartition(cosines, -top, axis=1)[:, :-top]
        np.put_along_axis(cosines, beyond, np.float32(-1), axis=1)
    cosines[cosines <= max(above, 0.0)] = 0
    return sparse.csr_array(cosines)

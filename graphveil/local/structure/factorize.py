"""The matrix that DeepWalk factorizes without saying so, and its singular vectors."""

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse.linalg import svds

from graphveil.local.structure.edges import Matrix
from graphveil.local.structure.nearest import Vectors

_ROWS = 256


def factorized(
    matrix: Matrix, *, dim: int, window: int, negative: int, first: npt.NDArray[np.float64]
) -> Vectors:
    """Return U sqrt(Sigma), float32 (N, dim), of the clipped logarithms; ``first`` starts the iteration."""
    left, sizes, _ = svds(logarithms(matrix, window=window, negative=negative), k=dim, v0=first)
    vectors: Vectors = (left * np.sqrt(np.maximum(sizes, 0))).astype(np.float32)
    return vectors


def logarithms(matrix: Matrix, *, window: int, negative: int) -> Matrix:
    """Return max(0, log(vol/(b T) sum_{r<=T} (D^-1 A)^r D^-1)): made a block of rows at a time, and sparse.

    >>> pair = sparse.csr_array(np.array([[0.0, 1.0], [1.0, 0.0]]))
    >>> logarithms(pair, window=1, negative=1).toarray().round(4).tolist()
    [[0.0, 0.6931], [0.6931, 0.0]]
    """
    degrees = np.diff(matrix.indptr)
    inverse = np.divide(1.0, degrees, out=np.zeros(len(degrees)), where=degrees > 0)
    step = sparse.diags_array(inverse) @ matrix
    backwards = step.T.tocsr()
    scale = degrees.sum() / (negative * window)
    blocks = []
    for start in range(0, len(degrees), _ROWS):
        power = total = step[start : start + _ROWS].toarray()
        for _ in range(window - 1):
            power = (backwards @ power.T).T
            total = total + power
        blocks.append(sparse.csr_array(np.log(np.maximum(1.0, scale * total * inverse))))
    return sparse.vstack(blocks, format="csr")

"""Feature rows in the form that suits a computation: dense where that is faster, scaled to norm one."""

from collections.abc import Iterator

import numpy as np
from scipy import sparse
from torch import Tensor
from torch.nn.functional import normalize

from graphveil.data import Features, to_dense

_DENSE = 0.05  # share of non-zero features from which dense products are faster


def densify_if_dense(x: Features) -> Features:
    """Return sparse features as dense ones if too few of their entries are zero."""
    if isinstance(x, sparse.csr_array) and x.nnz > _DENSE * x.shape[0] * x.shape[1]:
        return to_dense(x)
    return x


def iter_row_blocks(x: Features, most: int = 1 << 17) -> Iterator[Features]:
    """Yield consecutive rows, so many at a time: what a network makes of all at once may not fit.

    >>> import torch
    >>> [len(part) for part in iter_row_blocks(torch.ones(5, 2), most=2)]
    [2, 2, 1]
    """
    if x.shape[0] <= most:
        yield x
        return
    for first in range(0, x.shape[0], most):
        yield x[first : first + most]


def unit_rows(x: Features) -> Features:
    """Return the features with every row scaled to norm one; zero rows stay zero.

    >>> import torch
    >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    if isinstance(x, Tensor):
        return normalize(x, dim=1)
    norms = np.sqrt(np.add.reduceat(np.append(x.data, 0.0) ** 2, x.indptr[:-1]) * (np.diff(x.indptr) > 0))
    scale = np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0)
    values = (x.data * np.repeat(scale, np.diff(x.indptr))).astype(np.float32)
    return sparse.csr_array((values, x.indices, x.indptr), shape=x.shape)

"""Ranges of the columns of features, dense or sparse."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from graphveil.core.features import Features, to_dense


def columns_beyond(x: Features, limit: float) -> list[int]:
    """Return the columns in which the absolute value of some entry exceeds a limit.

    >>> columns_beyond(torch.tensor([[1.0, -3.0], [2.0, 0.0]]), 2.0)
    [1]
    """
    values = x if isinstance(x, Tensor) else torch.from_numpy(x.data)
    if not values.numel() or max(map(abs, torch.aminmax(values))) <= limit:
        return []
    low, high = _column_range(x)
    return np.flatnonzero((low < -limit) | (high > limit)).tolist()


def unit_interval(x: Features, *, drop_constant: bool = False) -> Features:
    """Return the features with every column shifted and scaled to [0, 1]; constant columns become 0.

    Args:
        x: Features (N, d).
        drop_constant: Whether to leave out constant columns. The number of columns then depends on the data.

    >>> unit_interval(torch.tensor([[2.0, 7.0], [4.0, 7.0], [3.0, 7.0]]))
    tensor([[0.0000, 0.0000],
            [1.0000, 0.0000],
            [0.5000, 0.0000]])
    """
    low, high = _column_range(x)
    width = high - low
    scale = np.divide(1, width, out=np.zeros_like(width), where=width > 0)
    if isinstance(x, Tensor) or low.any():  # a shift would fill the zeros of a sparse matrix
        scaled: Features = (to_dense(x) - torch.from_numpy(low)) * torch.from_numpy(scale)
    else:
        scaled = sparse.csr_array((x.data * scale[x.indices], x.indices, x.indptr), shape=x.shape)
    if not drop_constant:
        return scaled
    keep = width > 0
    if isinstance(scaled, Tensor):
        return scaled[:, torch.from_numpy(keep)]
    return scaled[:, np.flatnonzero(keep)]


def _column_range(x: Features) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return the minimum and maximum of every column, including zeros that are not stored."""
    if isinstance(x, Tensor):
        return x.amin(dim=0).numpy(), x.amax(dim=0).numpy()
    columns: Any = x.tocsc()
    return columns.min(axis=0).toarray().ravel(), columns.max(axis=0).toarray().ravel()

"""How features come into their public range: not at all, each node's by itself, or by everybody's data."""

from typing import Any, Literal

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from graphveil.data import Features, to_dense
from graphveil.data.features import unit_interval

Scaling = Literal["none", "row", "columns"]
SCALINGS: tuple[Scaling, ...] = ("none", "row", "columns")
ROW_SCALED = (
    "each node brings its features to [0, 1] by its own smallest and largest one, before anything else"
)


def scaled(x: Features, how: Scaling) -> Features:
    """Return the features, scaled.

    ``"row"`` reads one record at a time, so it is part of what a node does before it randomizes.
    ``"columns"`` reads all records (LPGNN's own preparation).

    >>> scaled(torch.tensor([[2.0, 4.0, 3.0], [5.0, 5.0, 5.0]]), "row")
    tensor([[0.0000, 1.0000, 0.5000],
            [0.0000, 0.0000, 0.0000]])
    """
    if how == "none":
        return x
    return unit_interval(x) if how == "columns" else _rows(x)


def _rows(x: Features) -> Features:
    if isinstance(x, Tensor):
        low, high = x.amin(dim=1, keepdim=True), x.amax(dim=1, keepdim=True)
        return (x - low) * _inverse(high - low)
    if x.min(axis=1).toarray().any():  # a shift would fill the zeros
        return _rows(to_dense(x))
    scale = _inverse(torch.from_numpy(x.max(axis=1).toarray().ravel())).numpy()
    parts: Any = (x.data * np.repeat(scale, np.diff(x.indptr)), x.indices, x.indptr)
    return sparse.csr_array(parts, shape=x.shape)


def _inverse(width: Tensor) -> Tensor:
    """Return 1 / width, 0 for 0."""
    return torch.where(width > 0, 1 / width.clamp(min=torch.finfo(torch.float32).tiny), 0.0)

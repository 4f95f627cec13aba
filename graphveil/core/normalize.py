"""L2 normalization of rows: every sensitivity depends on the bound of one."""

import math

import torch
from torch import Tensor

from graphveil.errors import InputError

_MARGIN = 1 + 1e-6  # keeps the norm below one after any rounding
_ENTRIES = 1 << 17  # entries per block: the intermediate arrays stay in the cache


def safe_unit(x: Tensor) -> Tensor:
    """Scale each row to norm one, just below it in floating point; zero rows stay zero. Returns float64.

    >>> safe_unit(torch.tensor([[3.0, 4.0], [0.0, 0.0], [1e300, 0.0]], dtype=torch.float64)).norm(dim=1) <= 1
    tensor([True, True, True])

    Raises:
        InputError: An entry is NaN or infinite, or the rows carry gradients.
    """
    return _rescaled(x, 0.0, torch.float64)


def shrink_unit(noisy: Tensor, std: float) -> Tensor:
    """Normalize noisy rows for the next hop, shrunk by the expected share of noise.

    Computes max(0, 1 - d s^2 / |r|^2) r / |r|, with the James-Stein factor of a d-dimensional row with noise
    s. The norm is at most one. Computed in float64; returns the dtype of the rows.

    >>> shrink_unit(torch.tensor([[3.0, 4.0]]), 1.0).norm().item() <= 1 - 2 / 25
    True

    Raises:
        InputError: An entry is NaN or infinite, or the rows carry gradients.
    """
    return _rescaled(noisy, math.sqrt(noisy.shape[1]) * std, noisy.dtype)


def plain_unit(x: Tensor) -> Tensor:
    """Scale each row to norm one as in the papers; zero rows stay zero. Returns float64."""
    return torch.nn.functional.normalize(x.to(torch.float64), dim=1)


def _rescaled(x: Tensor, noise: float, dtype: torch.dtype) -> Tensor:
    """Scale each row to length max(0, 1 - (noise / norm)^2), minus a margin above any rounding error."""
    if x.requires_grad:
        raise InputError(
            "The rows require gradients, which a release cannot propagate. Call rows.detach() first."
        )
    out = torch.empty(x.shape, dtype=dtype)
    norms = torch.empty((len(x), 1), dtype=torch.float64)
    at_once = max(1, _ENTRIES // max(1, x.shape[1]))
    scratch = torch.empty((min(len(x), at_once), x.shape[1]), dtype=torch.float64)
    for first in range(0, len(x), at_once):
        norm = norms[first : first + at_once]
        rows = scratch[: len(norm)].copy_(x[first : first + at_once])
        size: Tensor | float = 1.0  # squares of float32 rows are within the range of float64
        if x.dtype == torch.float64:  # the largest entry becomes one, so that squares stay finite
            largest = rows.abs().amax(dim=1, keepdim=True)
            size = torch.where(largest > 0, largest, 1.0)
            rows.div_(size)
        torch.linalg.vector_norm(rows, dim=1, keepdim=True, out=norm)
        length = (noise / (norm * size)).square_().neg_().add_(1.0).clamp_min_(0.0)
        rows.mul_(length.div_(norm * _MARGIN).nan_to_num_(0.0, 0.0))  # a row of norm zero stays zero
        out[first : first + at_once] = rows
    if not bool(norms.isfinite().all()):
        raise InputError(
            "The rows have NaN or infinite entries, so they cannot be normalized. Replace or remove them."
        )
    return out

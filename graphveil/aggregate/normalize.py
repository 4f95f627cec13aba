"""Rows of norm at most one: the bound that every sensitivity rests on."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from graphveil.aggregate.arrays import empty_rows
from graphveil.errors import InputError

_MARGIN = 1 + 1e-6  # keeps the norm below one after any rounding
_ENTRIES = 1 << 16  # at a time: the intermediate arrays stay in the cache


def safe_unit(x: Tensor) -> Tensor:
    """Scale each row to norm one, just below it in floating point; zero rows stay zero. Returns float64.

    >>> safe_unit(torch.tensor([[3.0, 4.0], [0.0, 0.0], [1e300, 0.0]], dtype=torch.float64)).norm(dim=1) <= 1
    tensor([True, True, True])

    Raises:
        InputError: an entry is NaN or infinite, or the rows carry gradients.
    """
    return _rescaled(x, torch.ones_like)


def shrink_unit(noisy: Tensor, std: float) -> Tensor:
    """Turn a noisy row into the next hop's input: its direction, shrunk by how much of it may be noise.

    max(0, 1 - d s^2 / |r|^2) r / |r|: the James-Stein factor of a d-dimensional row with noise s. The norm
    is at most one always. Returns float64.

    >>> shrink_unit(torch.tensor([[3.0, 4.0]]), 1.0).norm().item() <= 1 - 2 / 25
    True

    Raises:
        InputError: an entry is NaN or infinite, or the rows carry gradients.
    """
    noise = math.sqrt(noisy.shape[1]) * std
    return _rescaled(noisy, lambda norm: (1 - (noise / norm).square()).clamp_min(0.0))


def plain_unit(x: Tensor) -> Tensor:
    """Scale each row to norm one as the papers do; zero rows stay zero. Returns float64."""
    return torch.nn.functional.normalize(x.to(torch.float64), dim=1)


def _rescaled(x: Tensor, length: Callable[[Tensor], Tensor]) -> Tensor:
    """Return each row at ``length`` of its norm, less the margin."""
    if x.requires_grad:
        raise InputError("the rows carry gradients, which a release cannot pass on; call detach() first")
    out = empty_rows(len(x), x.shape[1], torch.float64)
    at_once = max(1, _ENTRIES // max(1, x.shape[1]))
    finite = True
    for first in range(0, len(x), at_once):
        part = x[first : first + at_once]
        rows = out[first : first + at_once].copy_(part)
        if x.dtype == torch.float64:  # squares of huge and tiny entries leave the range; float32 ones do not
            largest = rows.abs().amax(dim=1, keepdim=True)
            rows.div_(torch.where(largest > 0, largest, 1.0))
        else:
            largest = torch.ones((), dtype=torch.float64)
        norm = rows.norm(dim=1, keepdim=True)
        finite = finite and bool(norm.isfinite().all())
        rows.mul_(torch.where(norm > 0, length(norm * largest) / (_MARGIN * norm), 0.0))
    if not finite:
        raise InputError(
            "the rows hold NaN or infinite entries, which have no direction; replace or drop them"
        )
    return out

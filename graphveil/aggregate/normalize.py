"""Rows of norm at most one: the bound that every sensitivity rests on."""

import torch
from torch import Tensor

_MARGIN = 1 + 1e-6  # keeps the norm below one after any rounding


def safe_unit(x: Tensor) -> Tensor:
    """Scale each row to norm one, just below it in floating point; zero rows stay zero. Returns float64.

    The first division by the largest entry keeps the squares of huge and tiny rows finite.

    >>> safe_unit(torch.tensor([[3.0, 4.0], [0.0, 0.0], [1e300, 0.0]], dtype=torch.float64)).norm(dim=1) <= 1
    tensor([True, True, True])
    """
    x = x.to(torch.float64)
    largest = x.abs().amax(dim=1, keepdim=True)
    x = torch.where(largest > 0, x / largest, 0.0)
    norm = x.norm(dim=1, keepdim=True)
    return torch.where(norm > 0, x / (_MARGIN * norm), 0.0)


def shrink_unit(noisy: Tensor, std: float) -> Tensor:
    """Turn a noisy row into the next hop's input: its direction, shrunk by how much of it may be noise.

    max(0, 1 - d s^2 / |r|^2) r / |r|: the James-Stein factor of a d-dimensional row with noise s. The norm
    is at most one always. Returns float64.

    >>> shrink_unit(torch.tensor([[3.0, 4.0]]), 1.0).norm().item() <= 1 - 2 / 25
    True
    """
    r = noisy.to(torch.float64)
    squared = r.square().sum(dim=1, keepdim=True)
    factor = torch.where(squared > 0, (1 - r.shape[1] * std**2 / squared).clamp_min(0.0), 0.0)
    return factor * safe_unit(r)


def plain_unit(x: Tensor) -> Tensor:
    """Scale each row to norm one as the papers do; zero rows stay zero. Returns float64."""
    return torch.nn.functional.normalize(x.to(torch.float64), dim=1)

"""Simplex codes: one unit vector per class, all equally far apart."""

import torch
from torch import Tensor


def simplex_codes(classes: int) -> Tensor:
    """Return C unit vectors in R^(C-1) with pairwise inner product -1/(C-1), float64, shape (C, C-1).

    Of all sets of C unit vectors these are the farthest apart. A convex combination has norm at most one,
    so soft labels need no normalization.

    >>> codes = simplex_codes(3)
    >>> torch.round(codes @ codes.T, decimals=6).tolist()
    [[1.0, -0.5, -0.5], [-0.5, 1.0, -0.5], [-0.5, -0.5, 1.0]]
    """
    # Row k of the Helmert basis is orthogonal to the ones vector; its columns, rescaled, are the codes.
    basis = torch.zeros(classes - 1, classes, dtype=torch.float64)
    for k in range(1, classes):
        basis[k - 1, :k] = 1.0
        basis[k - 1, k] = -float(k)
        basis[k - 1] /= (k * (k + 1)) ** 0.5
    codes = basis.T.contiguous()
    lengths: Tensor = codes.norm(dim=1, keepdim=True)
    return codes / lengths


def soft_codes(log_posteriors: Tensor, codes: Tensor) -> Tensor:
    """Return the mean code under each posterior: norm at most one, float64, shape (N, C-1)."""
    return log_posteriors.exp().to(torch.float64) @ codes

"""What a published row says about its node's class: a mixture fitted to the published rows alone.

Nothing here reads a label, a feature or an edge, so all of it is post-processing. Which component is which
class is known from the codes that the nodes sent.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

STRENGTHS = 10
_SPAN = (-2.2, 1.4)  # of the strengths' logarithms
_LENGTH, _SPREAD = 0.5, 0.03  # of the start: mean profiles rho0 M_k with covariance 0.03 I
_TIES = 50.0  # pseudo-nodes that hold profiles, covariances and class shares at the start
_BLOCK = 1 << 14  # rows at a time: their joint posteriors stay in the cache


@dataclass(frozen=True)
class Decoded:
    """What the rows say of each node.

    Shapes: ``log_likelihoods`` (n, C), zero in the mean over classes; ``strengths`` and ``doubts`` (n): the
    expected strength of a row, and the entropy of its class posterior as a share of the largest possible.
    """

    log_likelihoods: Tensor
    strengths: Tensor
    doubts: Tensor


def decode(rows: Tensor, sigma: float, codes: Tensor, iterations: int = 12) -> Decoded:
    """Fit the mixture to rows (n, C-1) with noise of standard deviation sigma, and read every row by it.

    A row of class k and strength s is N(s h_k, sigma^2 I + s^2 S_k): its neighbours' codes have the mean
    profile h_k, which varies from node to node with covariance S_k. Ten strengths span the rows' lengths.
    EM starts from h_k = codes_k / 2, which assumes that friends are alike, and is held near it by 50
    pseudo-nodes per class. The log-likelihood leaves the classes' shares out.

    >>> from graphveil.models.classcode.codes import simplex_codes
    >>> codes = simplex_codes(3)
    >>> decode(4 * codes, 0.1, codes).log_likelihoods.argmax(dim=1).tolist()
    [0, 1, 2]
    """
    mixture = _Mixture.start(rows, sigma, codes)
    blocks = [_moments(block) for block in torch.split(rows.to(torch.float64), _BLOCK)]
    for _ in range(iterations):
        mixture = mixture.updated(sum((mixture.joint(block).T @ block for block in blocks), torch.zeros(())))
    parts = [mixture.read(block) for block in blocks]
    return Decoded(*(torch.cat(kind) for kind in zip(*parts, strict=True)))


@dataclass(frozen=True)
class _Mixture:
    """The mixture's parameters: J strengths (public grid), C profiles and covariances, and two priors."""

    codes: Tensor
    variance: float
    strengths: Tensor  # (J)
    profiles: Tensor  # h, (C, d)
    covariances: Tensor  # S, (C, d, d)
    strength_prior: Tensor  # (J), logarithms
    class_prior: Tensor  # (C), logarithms

    @classmethod
    def start(cls, rows: Tensor, sigma: float, codes: Tensor) -> "_Mixture":
        """Return the start: strengths around the rows' own length beyond the noise."""
        classes, dim = codes.shape
        noise = dim * sigma**2
        squared = float(rows.to(torch.float64).square().sum(dim=1).mean()) if len(rows) else noise
        length = math.sqrt(max(squared - noise, 0.05 * noise))
        grid = torch.linspace(*_SPAN, STRENGTHS, dtype=torch.float64).exp()
        return cls(
            codes,
            sigma**2,
            grid * length / _LENGTH,
            _LENGTH * codes,
            _SPREAD * torch.eye(dim, dtype=torch.float64).repeat(classes, 1, 1),
            torch.full((STRENGTHS,), -math.log(STRENGTHS), dtype=torch.float64),
            torch.full((classes,), -math.log(classes), dtype=torch.float64),
        )

    def log_densities(self, block: Tensor) -> Tensor:
        """Return log N(row; strength, class), shape (n, J, C): one product with the rows' moments."""
        dim = self.codes.shape[1]
        s = self.strengths[:, None, None, None]
        total = self.variance * torch.eye(dim, dtype=torch.float64) + s**2 * self.covariances  # (J, C, d, d)
        inverse = total.inverse()
        mean = self.strengths[:, None, None] * self.profiles
        linear = (inverse @ mean[..., None])[..., 0]
        constant = -0.5 * ((linear * mean).sum(dim=-1) + total.logdet() + dim * math.log(2 * math.pi))
        weights = torch.cat([constant[..., None], linear, -0.5 * inverse.flatten(2)], dim=-1)
        densities: Tensor = block @ weights.flatten(0, 1).T
        return densities.reshape(-1, STRENGTHS, len(self.codes))

    def joint(self, block: Tensor) -> Tensor:
        """Return the posterior of strength and class, shape (n, J C)."""
        prior = self.strength_prior[:, None] + self.class_prior
        return (self.log_densities(block) + prior).flatten(1).softmax(dim=1)

    def read(self, block: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return centred log-likelihoods (n, C), expected strengths (n) and doubts (n)."""
        weighted = self.log_densities(block) + self.strength_prior[:, None]
        likely = weighted.logsumexp(dim=1)
        posterior = (likely + self.class_prior).softmax(dim=1)
        entropy = -torch.xlogy(posterior, posterior).sum(dim=1) / math.log(len(self.codes))
        strength = self.joint(block).reshape(-1, STRENGTHS, len(self.codes))
        return (
            likely - likely.mean(dim=1, keepdim=True),
            strength.sum(dim=2) @ self.strengths,
            entropy.clamp(0, 1),
        )

    def updated(self, moments: Tensor) -> "_Mixture":
        """Return the parameters after one EM step, from the rows' weighted moments, (J C, 1 + d + d^2)."""
        classes, dim = self.codes.shape
        shaped = moments.reshape(STRENGTHS, classes, -1)
        n, first, second = shaped[..., 0], shaped[..., 1 : dim + 1], shaped[..., dim + 1 :]
        latent = _latent_moments(self, n, first, second.reshape(STRENGTHS, classes, dim, dim))
        count, total, square = (part.sum(dim=0) for part in latent)
        start = _LENGTH * self.codes
        weight = (count + _TIES)[:, None]
        h = (total + _TIES * start) / weight
        cross = h[:, :, None] * total[:, None, :]
        around = square - cross - cross.mT + count[:, None, None] * h[:, :, None] * h[:, None, :]
        flat = _SPREAD * torch.eye(dim, dtype=torch.float64)
        covariances = (around + _TIES * flat) / weight[..., None]
        return _Mixture(
            self.codes,
            self.variance,
            self.strengths,
            h,
            (covariances + covariances.mT) / 2,
            _log_shares(n.sum(dim=1) + 1),
            _log_shares(count + _TIES),
        )


def _latent_moments(mixture: _Mixture, n: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, ...]:
    """Return the moments of the nodes' own profiles f, given their rows: counts, sums and squares.

    Given a row z, f is N(h + G (z - s h), S - s G S) with the gain G = s S (s^2 S + sigma^2 I)^-1.
    """
    s = mixture.strengths[:, None, None]
    h, S = mixture.profiles, mixture.covariances
    eye = torch.eye(h.shape[1], dtype=torch.float64)
    gain = s[..., None] * S @ (mixture.variance * eye + s[..., None] ** 2 * S).inverse()
    mean = s * h
    off = first - n[..., None] * mean  # sum of z - s h
    cross = first[..., :, None] * mean[..., None, :]
    spread = second - cross - cross.mT + n[..., None, None] * mean[..., :, None] * mean[..., None, :]
    moved = (gain @ off[..., None])[..., 0]
    cross = h[:, :, None] * moved[..., None, :]
    left = n[..., None, None] * (h[:, :, None] * h[:, None, :] + S - s[..., None] * gain @ S)
    return n, n[..., None] * h + moved, left + cross + cross.mT + gain @ spread @ gain.mT


def _moments(rows: Tensor) -> Tensor:
    """Return [1, z, z z^T] of every row, shape (n, 1 + d + d^2)."""
    squares = (rows[:, :, None] * rows[:, None, :]).flatten(1)
    return torch.cat([torch.ones(len(rows), 1, dtype=torch.float64), rows, squares], dim=1)


def _log_shares(counts: Tensor) -> Tensor:
    return (counts / counts.sum()).log()

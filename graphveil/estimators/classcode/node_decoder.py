"""Class likelihoods from published aggregates: a mixture fitted to the published aggregates alone.

Nothing here reads a label, a feature or an edge, so all of it is post-processing. The codes that the nodes
sent determine which component belongs to which class.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

STRENGTHS = 10
_LOG_STRENGTH_RANGE = (-2.2, 1.4)  # of the strengths' logarithms
_LENGTH, _SPREAD = 0.5, 0.03  # of the start: mean profiles rho0 M_k with covariance 0.03 I
_TIES = 50.0  # pseudo-nodes that hold profiles, covariances and class shares at the start
_BLOCK = 1 << 14  # aggregates at a time: their joint posteriors stay in the CPU cache
_MIN_BLOCK = 1 << 8  # for smaller blocks, reading the coefficients takes longer than the products
_NEAR = 1 << 22  # maximum bytes of one array of covariances at all strengths
_MAX_STORED_BYTES = 1 << 28  # maximum bytes of moments in memory
_COPIES = 4  # arrays with one moment per component: coefficients, and partial sums


@dataclass(frozen=True)
class DecodedRows:
    """The decoded aggregate of each node.

    Shapes: ``log_likelihoods`` (n, C), zero in the mean over classes; ``strengths`` and ``uncertainties``
    (n). The latter are the expected strength of an aggregate, and the entropy of its class posterior as a
    share of the largest possible.
    """

    log_likelihoods: Tensor
    strengths: Tensor
    uncertainties: Tensor


def decode(rows: Tensor, sigma: float, codes: Tensor, iterations: int = 12) -> DecodedRows:
    """Fit the mixture to aggregates (n, C-1) with noise of standard deviation sigma, and decode each of them.

    An aggregate of class k and strength s is N(s h_k, sigma^2 I + s^2 S_k): its neighbors' codes have the
    mean profile h_k, which varies from node to node with covariance S_k. Ten strengths cover the lengths of
    the aggregates. EM starts from h_k = codes_k / 2, which assumes homophily, with a prior of 50 pseudo-nodes
    per class. The log-likelihood excludes the classes' shares.

    >>> from graphveil.core.queries.out_edge_sums import simplex_codes
    >>> codes = simplex_codes(3)
    >>> decode(4 * codes, 0.1, codes).log_likelihoods.argmax(dim=1).tolist()
    [0, 1, 2]
    """
    mixture = _Mixture.start(rows, sigma, codes)
    blocks = _Moments.of(rows.to(torch.float64))
    for _ in range(iterations):
        mixture = mixture.updated(sum((mixture.joint(block).T @ block for block in blocks), torch.zeros(())))
    parts = [mixture.read(block) for block in blocks]
    return DecodedRows(*(torch.cat(kind) for kind in zip(*parts, strict=True)))


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
        """Return the start: strengths around the aggregates' length beyond the noise."""
        classes, dim = codes.shape
        noise = dim * sigma**2
        squared = float(rows.to(torch.float64).square().sum(dim=1).mean()) if len(rows) else noise
        length = math.sqrt(max(squared - noise, 0.05 * noise))
        grid = torch.linspace(*_LOG_STRENGTH_RANGE, STRENGTHS, dtype=torch.float64).exp()
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
        """Return log N(row; strength, class), shape (n, J, C): one product with the aggregates' moments."""
        densities: Tensor = block @ self.weights.flatten(0, 1).T
        return densities.reshape(-1, STRENGTHS, len(self.codes))

    @cached_property
    def weights(self) -> Tensor:
        """Coefficients of each component's log-density by the moments, shape (J, C, 1 + d + d^2)."""
        classes, dim = self.codes.shape
        weights = self.codes.new_empty(STRENGTHS, classes, moments_of(dim))
        for part in self.parts:
            total = self.totals(part)
            inverse = total.inverse()
            mean = self.strengths[:, None, None] * self.profiles[part]
            linear = (inverse @ mean[..., None])[..., 0]
            constant = (linear * mean).sum(dim=-1) + total.logdet() + dim * math.log(2 * math.pi)
            weights[:, part, 0] = -0.5 * constant
            weights[:, part, 1 : dim + 1] = linear
            weights[:, part, dim + 1 :] = -0.5 * inverse.flatten(2)
        return weights

    @property
    def parts(self) -> tuple[slice, ...]:
        """Blocks of classes, so that their temporary arrays fit into the CPU cache."""
        classes, dim = self.codes.shape
        each = max(1, _NEAR // (STRENGTHS * 8 * dim**2))
        return tuple(slice(first, first + each) for first in range(0, classes, each))

    def totals(self, part: slice) -> Tensor:
        """Return the covariance of an aggregate of each strength and class with noise, (J, part, d, d)."""
        s = self.strengths[:, None, None, None]
        eye = torch.eye(self.codes.shape[1], dtype=torch.float64)
        return self.variance * eye + s**2 * self.covariances[part]

    def joint(self, block: Tensor) -> Tensor:
        """Return the posterior of strength and class, shape (n, J C)."""
        prior = self.strength_prior[:, None] + self.class_prior
        return (self.log_densities(block) + prior).flatten(1).softmax(dim=1)

    def read(self, block: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return centered log-likelihoods (n, C), expected strengths (n) and uncertainties (n)."""
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
        """Return the parameters after one EM step, from the weighted moments, (J C, 1 + d + d^2)."""
        shaped = moments.reshape(STRENGTHS, len(self.codes), -1)
        flat = _SPREAD * torch.eye(self.codes.shape[1], dtype=torch.float64)
        each = list[tuple[Tensor, Tensor, Tensor]]()
        for part in self.parts:
            latent = _latent_moments(self, part, shaped[:, part])
            count, total, square = (sums.sum(dim=0) for sums in latent)
            weight = (count + _TIES)[:, None]
            h = (total + _TIES * _LENGTH * self.codes[part]) / weight
            cross = h[:, :, None] * total[:, None, :]
            around = square - cross - cross.mT + count[:, None, None] * h[:, :, None] * h[:, None, :]
            covariance = (around + _TIES * flat) / weight[..., None]
            each.append((count, h, (covariance + covariance.mT) / 2))
        count, profiles, covariances = (torch.cat(kind) for kind in zip(*each, strict=True))
        return _Mixture(
            self.codes,
            self.variance,
            self.strengths,
            profiles,
            covariances,
            _log_shares(shaped[..., 0].sum(dim=1) + 1),
            _log_shares(count + _TIES),
        )


def _latent_moments(mixture: _Mixture, part: slice, moments: Tensor) -> tuple[Tensor, ...]:
    """Return the moments of the nodes' own profiles f, given their aggregates: counts, sums and squares.

    Given an aggregate z, f is N(h + G (z - s h), S - s G S) with the gain G = s S (s^2 S + sigma^2 I)^-1.
    """
    s = mixture.strengths[:, None, None]
    h, S = mixture.profiles[part], mixture.covariances[part]
    dim = h.shape[1]
    n, first = moments[..., 0], moments[..., 1 : dim + 1]
    second = moments[..., dim + 1 :].reshape(*n.shape, dim, dim)
    gain = s[..., None] * S @ mixture.totals(part).inverse()
    mean = s * h
    off = first - n[..., None] * mean  # sum of z - s h
    cross = first[..., :, None] * mean[..., None, :]
    spread = second - cross - cross.mT + n[..., None, None] * mean[..., :, None] * mean[..., None, :]
    moved = (gain @ off[..., None])[..., 0]
    cross = h[:, :, None] * moved[..., None, :]
    left = n[..., None, None] * (h[:, :, None] * h[:, None, :] + S - s[..., None] * gain @ S)
    return n, n[..., None] * h + moved, left + cross + cross.mT + gain @ spread @ gain.mT


@dataclass(frozen=True)
class _Moments:
    """The moments of aggregates in blocks: stored if they are small, otherwise computed on each access.

    There are d^2 numbers per aggregate, so all of them would be much larger than the aggregates.
    """

    blocks: tuple[Tensor, ...]
    made: tuple[Tensor, ...] | None

    @classmethod
    def of(cls, rows: Tensor) -> "_Moments":
        """Choose the blocks by public sizes."""
        each = rows.element_size() * moments_of(rows.shape[1])
        blocks = torch.split(rows, min(_BLOCK, max(_MIN_BLOCK, _MAX_STORED_BYTES // each)))
        return cls(blocks, tuple(map(_moments, blocks)) if each * len(rows) <= _MAX_STORED_BYTES else None)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.made) if self.made is not None else map(_moments, self.blocks)


def decoding_memory(classes: int) -> float:
    """Return the approximate memory of decoding in bytes, without the aggregates.

    >>> round(decoding_memory(500) / 2**30)
    37
    """
    return 8 * _COPIES * STRENGTHS * classes * moments_of(classes - 1) + _MAX_STORED_BYTES


def moments_of(dim: int) -> int:
    """Return the number of moments of an aggregate of this width."""
    return 1 + dim + dim**2


def _moments(rows: Tensor) -> Tensor:
    """Return [1, z, z z^T] of every aggregate, shape (n, 1 + d + d^2)."""
    dim = rows.shape[1]
    found = rows.new_ones(len(rows), moments_of(dim))
    found[:, 1 : dim + 1] = rows
    torch.mul(rows[:, :, None], rows[:, None, :], out=found[:, dim + 1 :].view(len(rows), dim, dim))
    return found


def _log_shares(counts: Tensor) -> Tensor:
    return (counts / counts.sum()).log()

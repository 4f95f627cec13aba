"""Integer Gaussian noise, drawn from a keyed row stream, with the slack that its resolution costs.

Two samplers with one contract. Both return integers, in units of the release's grid step:

* :class:`RoundedGaussian` rounds a Box-Muller normal of 53-bit uniforms. Rounding is post-processing, so
  the continuous formula holds up to the generator's resolution, which is charged as a little of delta.
* :class:`DiscreteGaussian` draws P(n) proportional to exp(-n^2 / 2 s^2) exactly.

Row i's noise depends on the key and i alone, so any partition of the rows draws the same matrix.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from graphveil import _check
from graphveil._random import RowStream
from graphveil.errors import CalibrationError
from graphveil.mechanisms import _exact

Integers = npt.NDArray[np.int64]
_RESOLUTION = 12 * 2.0**-53
CHUNK = 1 << 18  # samples drawn at once: bounds the memory of the intermediate arrays


@dataclass(frozen=True)
class IntegerNoise(ABC):
    """Integer noise of standard deviation ``sigma`` grid steps."""

    sigma: float

    def __post_init__(self) -> None:
        _check.positive(sigma=self.sigma)

    @abstractmethod
    def slack(self, *, epsilon: float, delta: float, changed: int) -> float:
        """Return the part of delta to set aside when ``changed`` coordinates may differ."""

    def draw(self, stream: RowStream, rows: Integers, dim: int) -> Integers:
        """Return the noise of these rows, shape (rows, dim)."""
        out = np.empty((len(rows), dim), dtype=np.int64)
        chunk = max(1, CHUNK // dim)
        for first in range(0, len(rows), chunk):
            out[first : first + chunk] = self._draw(stream, rows[first : first + chunk], dim)
        return out

    @abstractmethod
    def _draw(self, stream: RowStream, rows: Integers, dim: int) -> Integers:
        """Return the noise of a few rows."""


@dataclass(frozen=True)
class RoundedGaussian(IntegerNoise):
    """round(sigma g), g standard normal by Box-Muller from 53-bit uniforms.

    Slack: changed (1 + e^epsilon) 12 2^-53 sigma, a bound on what the finite uniforms can tell.

    >>> noise = RoundedGaussian(100.0).draw(RowStream(bytes(32)), np.arange(1000), 3)
    >>> bool(95 < noise.std() < 105)
    True
    """

    def slack(self, *, epsilon: float, delta: float, changed: int) -> float:
        """Return changed (1 + e^epsilon) 12 2^-53 sigma."""
        return changed * (1 + math.exp(epsilon)) * _RESOLUTION * self.sigma

    def _draw(self, stream: RowStream, rows: Integers, dim: int) -> Integers:
        """Return the rounded normals; an odd row drops its last one."""
        normals = _box_muller(stream.words(rows, words_per_row=dim + dim % 2))
        return normals.mul_(self.sigma).round_()[:, :dim].numpy().astype(np.int64)


@dataclass(frozen=True)
class DiscreteGaussian(IntegerNoise):
    """The discrete Gaussian on the integers, sampled exactly by rejection (Karney; Canonne et al.).

    ``sigma`` is kept as a multiple of 2^-10, rounded up. Slack: delta is inflated by 1e-3 relative, which
    covers the difference from the continuous curve when a contribution is at least 64 steps.

    >>> noise = DiscreteGaussian(100.0).draw(RowStream(bytes(32)), np.arange(1000), 3)
    >>> bool(95 < noise.std() < 105)
    True
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "sigma", math.ceil(self.sigma * _exact.DENOMINATOR) / _exact.DENOMINATOR)

    def slack(self, *, epsilon: float, delta: float, changed: int) -> float:
        """Return 1e-3 of delta."""
        return delta * (1 - 1 / 1.001)

    def _draw(self, stream: RowStream, rows: Integers, dim: int) -> Integers:
        """Return exact samples."""
        return _exact.discrete_gaussian(stream, rows, dim, round(self.sigma * _exact.DENOMINATOR))


MIN_STEPS_FOR_EXACT = 64
_NEGLIGIBLE, _TOLERABLE = 1e-3, 0.1  # slack of the rounded sampler, as a share of delta
_LARGE_RELEASE = 4_000_000  # samples; above it the rounded sampler may cost up to a tenth of delta


def choose_sampler(
    sigma: float, *, epsilon: float, delta: float, changed: int, samples: int, steps: int
) -> IntegerNoise:
    """Return the sampler for a release: rounded while that costs next to nothing, exact otherwise.

    Everything here is public: sigma and the number of ``samples`` follow from shapes, ``changed`` from the
    unit, ``steps`` (the largest contribution in grid steps) from the grid.
    """
    rounded = RoundedGaussian(sigma)
    share = rounded.slack(epsilon=epsilon, delta=delta, changed=changed) / delta
    if share <= _NEGLIGIBLE or (samples > _LARGE_RELEASE and share <= _TOLERABLE):
        return rounded
    if steps < MIN_STEPS_FOR_EXACT:
        raise CalibrationError(
            f"the grid gives the largest contribution {steps} steps, and exact noise needs "
            f"{MIN_STEPS_FOR_EXACT}; use a finer grid"
        )
    return DiscreteGaussian(sigma)


def _box_muller(words: npt.NDArray[np.uint64]) -> torch.Tensor:
    """Turn words (rows, 2m) into standard normals of the same shape, a pair of words into a pair of them."""
    bits = torch.from_numpy((words >> np.uint64(11)).view(np.int64)).to(torch.float64)
    first, second = bits[:, 0::2], bits[:, 1::2]
    radius = first.add(1).mul_(2.0**-53).log_().mul_(-2).sqrt_()
    angle = second.mul(2 * math.pi * 2.0**-53)
    out = torch.empty_like(bits)
    torch.mul(radius, angle.cos(), out=out[:, 0::2])
    torch.mul(radius, angle.sin_(), out=out[:, 1::2])
    return out

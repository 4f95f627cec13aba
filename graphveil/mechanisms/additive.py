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
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from graphveil._util import checks
from graphveil._util.random import Integers, RowStream, Words
from graphveil._util.typed import checked
from graphveil.errors import CalibrationError, ConfigError
from graphveil.mechanisms import _exact

Noise = npt.NDArray[np.signedinteger[Any]]
_RESOLUTION = 12 * 2.0**-53
_CHUNK = 1 << 16  # samples at a time: the intermediate arrays stay in the cache


@dataclass(frozen=True)
class IntegerNoise(ABC):
    """Integer noise of standard deviation ``sigma`` grid steps.

    ``min_steps`` is how many grid steps the largest contribution must have for the slack to be proved, and
    ``min_sigma`` how many the standard deviation.
    """

    min_steps: ClassVar[int] = 1
    min_sigma: ClassVar[float] = 0.0

    sigma: float

    def __post_init__(self) -> None:
        """Refuse to add no noise."""
        checks.positive(sigma=self.sigma)

    @abstractmethod
    def slack(self, *, epsilon: float, delta: float, changed: int) -> float:
        """Return the part of delta to set aside when ``changed`` coordinates may differ."""

    @abstractmethod
    def draw(self, stream: RowStream, rows: Integers, dim: int) -> Noise:
        """Return the noise of these rows, shape (rows, dim)."""


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

    def draw(self, stream: RowStream, rows: Integers, dim: int) -> Noise:
        """Return the rounded normals; the last one of a row of odd length is dropped."""
        out = np.empty((len(rows), dim), dtype=np.int64)
        count = max(1, _CHUNK // dim)
        for first in range(0, len(rows), count):
            part = slice(first, first + count)
            normals = _box_muller(stream.words(rows[part], words_per_row=dim + dim % 2), self.sigma)
            out[part] = np.rint(normals, out=normals)[:, :dim]
        return out


@dataclass(frozen=True)
class DiscreteGaussian(IntegerNoise):
    """The discrete Gaussian on the integers, sampled exactly by rejection (Canonne, Kamath, Steinke 2020).

    ``sigma`` is kept as a multiple of 2^-10, rounded up. Slack: delta is inflated by a factor of

        1 + max(1e-3, z (z + sqrt(2 epsilon)) / (8 sigma^2)),   z^2 = 2 log(1 / delta),

    which covers the difference from the continuous curve where the largest contribution and sigma have at
    least 64 steps (``docs/guarantees.md``, Proposition 9).

    >>> noise = DiscreteGaussian(100.0).draw(RowStream(bytes(32)), np.arange(1000), 3)
    >>> bool(95 < noise.std() < 105)
    True
    """

    min_steps: ClassVar[int] = 64
    min_sigma: ClassVar[float] = 64.0

    def __post_init__(self) -> None:
        """Round sigma up to what the sampler can draw."""
        super().__post_init__()
        if self.sigma > _exact.MAX_SIGMA:
            raise ConfigError(
                f"sigma={self.sigma:g} grid steps is above {_exact.MAX_SIGMA}, and no more noise is drawn; "
                "allow a larger epsilon or delta (--epsilon, --delta), or count in larger steps"
            )
        object.__setattr__(self, "sigma", self._numerator / _exact.DENOMINATOR)

    def slack(self, *, epsilon: float, delta: float, changed: int) -> float:
        """Return 1e-3 of delta, and more where sigma is few steps."""
        z = math.sqrt(2 * math.log(1 / delta))
        finite = z * (z + math.sqrt(2 * epsilon)) / (8 * self.sigma**2)
        return delta * (1 - 1 / max(1.001, 1 + finite))

    def draw(self, stream: RowStream, rows: Integers, dim: int) -> Noise:
        """Return exact samples."""
        return _exact.discrete_gaussian(stream, rows, dim, self._numerator)

    @property
    def _numerator(self) -> int:
        return math.ceil(self.sigma * _exact.DENOMINATOR)


_TOLERABLE = 0.1  # slack of the rounded sampler, as a share of delta


@checked
def choose_sampler(sigma: float, *, epsilon: float, delta: float, changed: int, steps: int) -> IntegerNoise:
    """Return the sampler for a release: the exact one, unless the grid is too coarse for its slack.

    Everything here is public: sigma follows from the budget, ``changed`` from the unit, ``steps`` (those
    in the largest contribution) from the grid.
    """
    if steps >= DiscreteGaussian.min_steps:
        return DiscreteGaussian(sigma)
    rounded = RoundedGaussian(sigma)
    if rounded.slack(epsilon=epsilon, delta=delta, changed=changed) <= _TOLERABLE * delta:
        return rounded
    raise CalibrationError(
        f"the grid gives the largest contribution {steps} steps, and exact noise needs "
        f"{DiscreteGaussian.min_steps}; raise grid_bits of the queries"
    )


def _box_muller(words: Words, sigma: float) -> npt.NDArray[np.float64]:
    """Turn words (rows, 2m) into normals of the same shape: words 2j and 2j + 1 into coordinates j, m + j."""
    rows, half = words.shape[0], words.shape[1] // 2
    bits = (words >> np.uint64(11)).view(np.int64).reshape(-1, 2)
    first, second = (torch.from_numpy(np.ascontiguousarray(bits[:, k])).to(torch.float64) for k in (0, 1))
    radius = first.add_(1).mul_(2.0**-53).log_().mul_(-2 * sigma**2).sqrt_().view(rows, half)
    angle = second.mul_(2 * math.pi * 2.0**-53).view(rows, half)
    out = torch.empty((rows, 2, half), dtype=torch.float64)
    torch.mul(radius, angle.cos(), out=out[:, 0])
    torch.mul(radius, angle.sin_(), out=out[:, 1])
    normals: npt.NDArray[np.float64] = out.view(rows, 2 * half).numpy()
    return normals

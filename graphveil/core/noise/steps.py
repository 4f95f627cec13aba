"""Randomness of noisy training steps: the batch of each step, and the noise on its sum.

A key and a step determine both, so a resumed run reuses the same draws, and no two steps share a draw.
"""

import hmac
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.core.noise.discrete_gaussian import MAX_DIM, MAX_SIGMA, DiscreteGaussian, Noise
from graphveil.core.noise.random import KEY_BYTES, Integers, RowStream
from graphveil.errors import CalibrationError, ConfigError

RATE_STEPS = 1 << 32  # sampling rates are multiples of its inverse, so that comparing 32 bits is exact
MAX_STEPS = 1 << 20  # grid steps in one clipping norm
MAX_COUNT = 1 << 31  # records that a step can sample from

_OWN = 1 << 31  # a step's blocks from here on belong to single records
# Both powers of two. The sampler's tables exceed a cache and would be reloaded between two steps.
_STEPS_AHEAD = 32  # steps per draw
_NUMBERS_AHEAD = 1 << 20  # maximum numbers per draw, unless one step needs more

Halves = npt.NDArray[np.uint16]


@checked
def public_rate(expected: int, count: int) -> float:
    """Return the sampling rate expected / count, rounded up to a multiple of 2^-32.

    Args:
        expected: Expected size of a batch.
        count: Public number of records.

    Returns:
        The probability that a record is in a batch.

    Raises:
        ConfigError: If the expected batch is larger than the number of records.

    >>> public_rate(256, 1024)
    0.25
    """
    checks.integer_at_least(1, expected=expected, count=count)
    if expected > count:
        raise ConfigError(
            f"The expected batch size {expected} is larger than the number of records, {count}. Use a "
            f"batch size of at most {count}."
        )
    return -(-expected * RATE_STEPS // count) / RATE_STEPS


class StepNoise:
    """Randomness of noisy training steps, addressed by step: Poisson batches and integer noise, from one key.

    Step t's batch contains each record independently with probability q. Its noise is p independent samples
    of the discrete Gaussian of standard deviation

        sigma = z (m + 2 sqrt(p)),

    in units of the grid, where m = ``steps`` grid steps make one clipping norm C. Truncating a sum of p
    coordinates to the grid moves the difference of two sums by at most 2 sqrt(p) grid steps. The truncated
    sums of neighboring datasets therefore differ by at most C (1 + 2 sqrt(p) / m): sigma is z times that.

    Args:
        key: Secret key of 32 bytes.
        parameters: Number p of coordinates.
        noise_multiplier: Noise multiplier z.
        sampling_rate: Sampling rate q, a multiple of 2^-32 (``public_rate``); 1 is every record in every
            step.

    Raises:
        ConfigError: If a parameter is outside its range.
        CalibrationError: If the noise leaves less than 64 grid steps in a clipping norm.

    Privacy:
        A step that adds this noise to a truncated sum whose sensitivity is C is the Poisson-subsampled
        Gaussian mechanism of multiplier z and rate q. The exact sampler uses a thousandth of delta.
        Both keys are derived from the given one; batch and noise of all steps are independent.

    >>> noise = StepNoise(bytes(32), parameters=3, noise_multiplier=2.0, sampling_rate=0.25)
    >>> noise.batch(7, 10).dtype, noise.noise(7).shape
    (torch.int64, (3,))
    >>> bool((noise.noise(7) == noise.noise(7)).all())
    True
    """

    def __init__(
        self, key: bytes, *, parameters: int, noise_multiplier: float, sampling_rate: float = 1.0
    ) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"the noise of steps needs a key of {KEY_BYTES} bytes, got {len(key)}")
        checks.integer_at_least(1, parameters=parameters)
        checks.positive(noise_multiplier=noise_multiplier, sampling_rate=sampling_rate)
        checks.within(0, 1, sampling_rate=sampling_rate)
        if not (sampling_rate * RATE_STEPS).is_integer():
            raise ConfigError(
                f"sampling_rate={sampling_rate!r} must be a multiple of 2^-32. Use public_rate to compute it."
            )
        self.parameters, self.noise_multiplier = parameters, noise_multiplier
        self.sampling_rate = float(sampling_rate)
        self.steps = _grid_steps(parameters, noise_multiplier)
        self._law = DiscreteGaussian(noise_multiplier * (self.steps + 2 * math.sqrt(parameters)))
        self.sigma = self._law.sigma
        # Rows of the stream per step of noise; a power of two, for which counters are cheap.
        self._rows = 1 << (-(-parameters // MAX_DIM) - 1).bit_length()
        self._noise = _Ahead(self._draw_noise)
        self._coins = _Ahead(self._draw_coins)
        self._identity = _derived(key, "identity")
        self._batch_stream = RowStream(_derived(key, "batch"))
        self._noise_stream = RowStream(_derived(key, "noise"))

    def batch(self, step: int, count: int) -> Tensor:
        """Return the records of a step, int64 in ascending order: each of range(count) with probability q.

        Record i is included if its 32 uniform bits are below q 2^32. The first 16 decide for all but one
        record in 65,536, and that one draws the rest from its own block.
        """
        checks.integer_at_least(0, step=step)
        checks.within(0, MAX_COUNT, count=count)
        if self.sampling_rate == 1:
            return torch.arange(count)
        high, low = divmod(int(self.sampling_rate * RATE_STEPS), 1 << 16)
        coins = self._coins(step, count)
        chosen = np.flatnonzero(coins <= high)
        tied = np.flatnonzero(coins[chosen] == high)
        if tied.size:
            records = chosen[tied]
            rest = self._batch_stream.blocks(np.full(records.size, step), _OWN + records)[:, 0]
            chosen = np.delete(chosen, tied[(rest >> np.uint64(48)) >= low])
        return torch.from_numpy(chosen)

    def noise(self, step: int) -> Noise:
        """Return a step's noise in grid steps, shape (parameters,)."""
        checks.integer_at_least(0, step=step)
        return self._noise(step, self.parameters)

    def fingerprint(self, *arrays: npt.NDArray[Any]) -> str:
        """Return a digest of the key and some data; without the key it reveals nothing about either."""
        digest = hmac.new(self._identity, digestmod="sha256")
        for array in arrays:
            flat = np.ascontiguousarray(array)
            digest.update(f"{flat.dtype}{flat.shape}".encode())
            digest.update(flat.data.cast("B") if flat.size else b"")
        return digest.hexdigest()

    def _draw_coins(self, steps: Integers, count: int) -> Halves:
        words = self._batch_stream.words(steps, words_per_row=-(-count // 4))
        return words.view("<u2")[:, :count]

    def _draw_noise(self, steps: Integers, count: int) -> Noise:
        rows = (steps[:, None] * self._rows + np.arange(self._rows)).reshape(-1)
        samples = self._law.draw(self._noise_stream, rows, -(-count // self._rows))
        return samples.reshape(len(steps), -1)[:, :count]


class _Ahead:
    """Draws for several steps at once: they share the overhead of a call, and the numbers are the same."""

    def __init__(self, draw: Callable[[Integers, int], npt.NDArray[Any]]) -> None:
        self._draw = draw
        self._count, self._first, self._drawn = -1, 0, np.empty((0, 0))

    def __call__(self, step: int, count: int) -> npt.NDArray[Any]:
        """Return the step's ``count`` numbers, in an array owned by the caller."""
        if count != self._count or not 0 <= step - self._first < len(self._drawn):
            ahead = min(_STEPS_AHEAD, 1 << max(0, (_NUMBERS_AHEAD // max(1, count)).bit_length() - 1))
            self._count, self._first = count, step - step % ahead
            self._drawn = self._draw(np.arange(self._first, self._first + ahead), count)
        drawn: npt.NDArray[Any] = self._drawn[step - self._first].copy()
        return drawn


def _grid_steps(parameters: int, noise_multiplier: float) -> int:
    """Return the grid steps in a clipping norm: as many as the exact sampler's largest sigma allows."""
    most = MAX_SIGMA / noise_multiplier - 2 * math.sqrt(parameters) - 1  # one to spare for rounding
    steps = math.floor(min(MAX_STEPS, most))
    if steps < DiscreteGaussian.min_steps:
        raise CalibrationError(
            f"noise_multiplier={noise_multiplier:g} with {parameters} parameters leaves {max(0, steps)} "
            f"grid steps per clipping norm, but exact noise needs {DiscreteGaussian.min_steps}. Use a "
            "larger epsilon, fewer steps or fewer parameters."
        )
    return steps


def _derived(key: bytes, label: str) -> bytes:
    return hmac.new(key, label.encode(), "sha256").digest()

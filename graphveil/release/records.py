"""Questions about records alone, not about edges: noisy training steps, and noisy counts for selection."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from graphveil import _check
from graphveil._random import KEY_BYTES, RowStream
from graphveil.errors import ConfigError, ReleaseError, UnitError
from graphveil.mechanisms import IntegerNoise, StepNoise
from graphveil.mechanisms.additive import Noise
from graphveil.privacy import ByGroup, Composed, Event, Gaussian, NodeUnit, PoissonGaussian, Unit
from graphveil.release.queries import GRID_BITS, MAX_DIM, Query, check_noise


@dataclass(frozen=True, kw_only=True)
class StepsQuery(Query):
    """Noisy training steps on records, whose gradients are each clipped to a norm C.

    Step t releases the sum of the clipped gradients of its batch, of p coordinates, plus N(0, (z C)^2). With
    q < 1 each record is in a batch with probability q, independently; with q = 1 every batch is all records.

    Guarantee (units of records): a record that ``pays`` meets T Poisson-subsampled Gaussian steps of
    multiplier z and rate q, under the unit's relation (null-out changes a sum by C, replacing by 2 C). For
    q = 1 that is exactly one Gaussian with mu = change sqrt(T) / z. Other records must not be among the data.

    With a ``reach`` D a record's gradient reads others' records, too, and at most D gradients read a record:
    besides its own, of norm C, it changes D gradients by 2 C each. How many of them a sampled batch
    holds is a mixture without a proved bound, so every step counts as if it held all of them: mu = change
    (2 D + 1) sqrt(T) / z, and 2 D instead for a record that does not pay itself.

    Args:
        parameters: p.
        steps: T.
        noise_multiplier: z.
        sampling_rate: q, a multiple of 2^-32 (:func:`graphveil.mechanisms.public_rate`).
        clip: C.
        partition: the name of the public groups of records.
        pays: by group, whether its records are trained on.
        reach: D, how many other records' gradients read a record.

    Raises:
        ConfigError: a field is outside its range.
        CalibrationError: the noise leaves less than 64 grid steps in a clipping norm.

    >>> from graphveil.privacy import NodeOwner
    >>> StepsQuery(parameters=10, steps=100, noise_multiplier=20.0).event(NodeOwner())
    Gaussian(mu=0.5)
    """

    kind: ClassVar[str] = "steps"

    parameters: int
    steps: int
    noise_multiplier: float
    sampling_rate: float = 1.0
    clip: float = 1.0
    partition: str = "records"
    pays: tuple[bool, ...] = (True,)
    reach: int = 0

    def __post_init__(self) -> None:
        """Check every field, those of the noise by making one that draws nothing."""
        _check.integer_at_least(1, parameters=self.parameters, steps=self.steps)
        _check.positive(noise_multiplier=self.noise_multiplier, clip=self.clip)
        _check.integer_at_least(0, reach=self.reach)
        _check_pays(self.pays)
        self.spent()

    def randomness(self, key: bytes) -> StepNoise:
        """Return the batches and the noise of all steps, which a key fixes."""
        return self._noise(StepNoise, key)

    def spent(self) -> StepNoise:
        """Return the law of the noise without a key: whoever asks for a batch or for noise is refused."""
        return self._noise(_Spent, bytes(KEY_BYTES))

    def _noise(self, kind: type[StepNoise], key: bytes) -> StepNoise:
        return kind(
            key,
            parameters=self.parameters,
            noise_multiplier=self.noise_multiplier,
            sampling_rate=self.sampling_rate,
        )

    def event(self, unit: Unit) -> Event:
        """Return the steps as one Gaussian if q = 1, and as sampled Gaussian steps otherwise.

        Raises:
            UnitError: the unit is not about records.
        """
        protected = _of_records(unit)
        if self.reach:
            whole = protected.change * math.sqrt(self.steps) / self.noise_multiplier
            return ByGroup(
                self.partition, tuple(Gaussian((2 * self.reach + own) * whole) for own in self.pays)
            )
        sampled = PoissonGaussian(self.noise_multiplier, self.sampling_rate, self.steps, protected.relation)
        full = Gaussian(protected.change * math.sqrt(self.steps) / self.noise_multiplier)
        return _by_group(self.partition, self.pays, full if self.sampling_rate == 1 else sampled)

    def sensitivity(self, unit: Unit) -> float:
        """Return change * C, for the sum of one step; a reach D makes that 2 D + 1 times as much."""
        return _of_records(unit).change * (2 * self.reach + 1) * self.clip

    def changed(self, unit: Unit) -> int:
        """Return the coordinates of all steps."""
        return self.parameters * self.steps

    @property
    def groups(self) -> int:
        """The number of groups of records."""
        return len(self.pays)

    @property
    def noise(self) -> tuple[float, ...]:
        """The noise multiplier z: the standard deviation of a step, over C."""
        return (self.noise_multiplier,)

    @property
    def finest(self) -> float:
        """Grid steps in a clipping norm."""
        return float(self.spent().steps)

    @property
    def widest(self) -> float:
        """Return 0: the plan's sampler draws none of it."""
        return 0.0


class _Spent(StepNoise):
    """The noise of steps whose key is erased: its law is known, and it draws nothing."""

    def batch(self, step: int, count: int) -> Tensor:
        """Refuse."""
        raise ReleaseError(_ERASED)

    def noise(self, step: int) -> Noise:
        """Refuse."""
        raise ReleaseError(_ERASED)


_ERASED = (
    "this release is closed and its noise key erased, so its training cannot go on; start a new run in a new "
    "folder, which is a new release"
)


@dataclass(frozen=True, kw_only=True)
class TallyQuery(Query):
    """How many of some records each candidate classifies correctly, noisy: to choose one, or to publish.

    Guarantee (units of records): a record that ``pays`` changes each count by at most one, whether it is
    nulled or replaced, so the counts move by at most sqrt(candidates): mu = sqrt(candidates) / sigma.

    Args:
        candidates: how many counts.
        sigma: the noise's standard deviation, in records.
        partition: the name of the public groups of records.
        pays: by group, whether its records are counted.
        grid_bits: one record is 2^grid_bits grid steps.

    Raises:
        ConfigError: a field is outside its range.

    >>> from graphveil.privacy import NodeOwner
    >>> TallyQuery(candidates=4, sigma=10.0).event(NodeOwner())
    Gaussian(mu=0.2)
    """

    kind: ClassVar[str] = "tally"

    candidates: int
    sigma: float
    partition: str = "records"
    pays: tuple[bool, ...] = (True,)
    grid_bits: int = GRID_BITS

    def __post_init__(self) -> None:
        """Check every field."""
        _check.integer_at_least(1, candidates=self.candidates)
        _check.within(1, MAX_DIM, candidates=self.candidates)
        check_noise((self.sigma,), 1, self.grid_bits)
        _check_pays(self.pays)

    def event(self, unit: Unit) -> Event:
        """Return one Gaussian for every record that pays.

        Raises:
            UnitError: the unit is not about records.
        """
        return _by_group(self.partition, self.pays, Gaussian(self.sensitivity(unit) / self.sigma))

    def sensitivity(self, unit: Unit) -> float:
        """Return sqrt(candidates), under either relation."""
        _of_records(unit)
        return math.sqrt(self.candidates)

    def changed(self, unit: Unit) -> int:
        """Return the number of counts."""
        return self.candidates

    @property
    def groups(self) -> int:
        """The number of groups of records."""
        return len(self.pays)

    @property
    def noise(self) -> tuple[float, ...]:
        """The noise's standard deviation."""
        return (self.sigma,)

    @property
    def steps(self) -> float:
        """Grid steps in one record."""
        return 2.0**self.grid_bits

    @property
    def finest(self) -> float:
        """Grid steps in one record."""
        return self.steps

    @property
    def widest(self) -> float:
        """Grid steps in the noise's standard deviation."""
        return self.sigma * self.steps


def noisy_tally(correct: Tensor, query: TallyQuery, noise: IntegerNoise, stream: RowStream) -> Tensor:
    """Return the noisy counts, float64; the exact ones live and die here."""
    counts = correct.sum(dim=0).numpy()
    drawn = noise.draw(stream, np.arange(query.candidates), 1)[:, 0]
    return torch.from_numpy((counts * int(query.steps) + drawn) / query.steps)


def _of_records(unit: Unit) -> NodeUnit:
    if not isinstance(unit, NodeUnit):
        raise UnitError(
            f"unit {unit.name!r} does not protect records: features and labels are public there and need no "
            "noise; use a unit of records, or none of this"
        )
    return unit


def _by_group(partition: str, pays: tuple[bool, ...], event: Event) -> Event:
    """Return what a step costs each group; groups that do not pay are not touched."""
    if all(pays):
        return event
    return ByGroup(partition, tuple(event if one else Composed(()) for one in pays))


def _check_pays(pays: tuple[bool, ...]) -> None:
    if not any(pays):
        raise ConfigError(f"pays={pays!r} must name a group whose records are read")

"""Noisy training steps on clipped gradients: of records, and of trees, in which a record reaches more."""

import math
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.core.clipping import dpsgd
from graphveil.core.clipping.clipped_sums import ClippedSum
from graphveil.core.clipping.dpsgd import PrivateSchedule
from graphveil.core.events import ByGroup, Event, Gaussian, PoissonGaussian, PoissonRoots
from graphveil.core.keys import check_process
from graphveil.core.noise.discrete_gaussian import Noise
from graphveil.core.noise.random import KEY_BYTES
from graphveil.core.noise.steps import StepNoise
from graphveil.core.private_edges import PrivateEdges, forms_private_sum
from graphveil.core.query import (
    NoiseGrid,
    PreparedData,
    PublicInputs,
    Query,
    QueryData,
    QueryDescription,
    by_group,
    check_pays,
    reject_if,
    require_record_unit,
)
from graphveil.core.unit import Node, NodeBoundedDegree, NodeUnit, Unit
from graphveil.errors import CalibrationError, ConfigError, ReleaseError, UnitError


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DPSGDData(QueryData[Tensor]):
    """Training inputs; the answer is the parameters, float64 (p).

    A resumed release continues from its checkpoint. The noise is bound to the arrays that gradients are
    computed from (``gradients.arrays``): a resumed release rejects other arrays.

    Args:
        settings: All other public values that determine the gradients: initial parameters and code.
    """

    gradients: ClippedSum
    schedule: PrivateSchedule
    settings: Sequence[Tensor] = ()
    on_step: Callable[[int], None] = lambda done: None
    checkpoint: Path | None = None
    checkpoint_every: int = 100


class NoisyStepsQuery(Query):
    """A query of noisy gradient steps. They draw their own exact noise, on a grid of their own."""

    exact_noise: ClassVar[bool] = True

    parameters: int
    steps: int
    noise_multiplier: float
    sampling_rate: float
    clip: float

    def randomness(self, key: bytes) -> StepNoise:
        return OneProcessNoise(
            key,
            parameters=self.parameters,
            noise_multiplier=self.noise_multiplier,
            sampling_rate=self.sampling_rate,
        )

    def noisy_means(self, gradients: ClippedSum, noise: StepNoise) -> Callable[[int], Tensor]:
        """Return the function of a step's noisy mean: the noise of a step is used for one sum and charged."""
        taken, lock = -1, threading.Lock()

        def noisy_mean_of(step: int) -> Tensor:
            nonlocal taken
            with lock:
                if not taken < step < self.steps:
                    raise ReleaseError(
                        f"step {step} was already taken, or is not among the {self.steps} planned steps"
                    )
                taken = step
                return noisy_mean(gradients, self.clip, noise, step)

        return noisy_mean_of

    def changed(self, unit: Unit) -> int:
        return self.parameters * self.steps

    def describe(self) -> QueryDescription:
        return replace(super().describe(), steps=self.steps, sampling_rate=self.sampling_rate)

    @property
    def noise(self) -> tuple[float, ...]:
        """The noise multiplier z: the standard deviation of a step divided by C."""
        return (self.noise_multiplier,)

    @property
    def grid(self) -> NoiseGrid:
        noise = self.randomness(bytes(KEY_BYTES))
        return NoiseGrid(float(noise.steps), noise.sigma, 0.0)


@dataclass(frozen=True, kw_only=True)
class DPSGDQuery(NoisyStepsQuery):
    """Release noisy training steps on records, with each gradient clipped to a norm C.

    Step t releases the sum of the clipped gradients of its batch, of p coordinates, plus N(0, (z C)^2). With
    q < 1 each record is in a batch with probability q, independently; with q = 1 every batch is all records.

    Args:
        sampling_rate: Sampling rate q, a multiple of 2^-32 (``graphveil.mechanisms.public_rate``).
        reach: Number D of other records' gradients that read a record.

    Privacy:
        Unit: node-level. Reads: node records. A training record (``pays``) is charged T Poisson-subsampled
        Gaussian steps of multiplier z and rate q, under the unit's relation (null-out changes a sum by C,
        replacing by 2 C). For q = 1 that is exactly one Gaussian with mu = change sqrt(T) / z. Other records
        must not be among the data.

        With a ``reach`` D the gradient of a record also reads other records, and at most D gradients read a
        record. Besides its own gradient, of norm C, a record changes D gradients by 2 C each. The number of
        these in a sampled batch is a mixture without a proved bound, so every step is charged for all of
        them: mu = change (2 D + 1) sqrt(T) / z, and 2 D instead for a record that is not trained on itself.

    >>> from graphveil.privacy import NodeRecord
    >>> DPSGDQuery(parameters=10, steps=100, noise_multiplier=20.0).event(NodeRecord())
    Gaussian(mu=0.5)
    """

    kind: ClassVar[str] = "steps"
    wire_name: ClassVar[str] = "StepsQuery"
    stage: ClassVar[str] = "training"
    data: ClassVar[type[DPSGDData]] = DPSGDData
    without_example: ClassVar[str] = "the method decides what the steps read; its own tests cover them"
    reads_edges: ClassVar[bool] = False

    parameters: int
    steps: int
    noise_multiplier: float
    sampling_rate: float = 1.0
    clip: float = 1.0
    partition: str = "records"
    pays: tuple[bool, ...] = (True,)
    reach: int = 0

    def __post_init__(self) -> None:
        checks.integer_at_least(1, parameters=self.parameters, steps=self.steps)
        checks.positive(noise_multiplier=self.noise_multiplier, clip=self.clip)
        checks.integer_at_least(0, reach=self.reach)
        check_pays(self.pays)
        self.randomness(bytes(KEY_BYTES))

    def event(self, unit: Unit) -> Event:
        protected = require_record_unit(unit)
        if self.reach:
            if isinstance(protected, Node):
                raise UnitError(
                    "Gradients that read other records have no bound under unit 'node'. Use unit "
                    "'node-record'."
                )
            whole = protected.change * math.sqrt(self.steps) / self.noise_multiplier
            return ByGroup(
                self.partition, tuple(Gaussian((2 * self.reach + own) * whole) for own in self.pays)
            )
        sampled = PoissonGaussian(self.noise_multiplier, self.sampling_rate, self.steps, protected.relation)
        full = Gaussian(protected.change * math.sqrt(self.steps) / self.noise_multiplier)
        return by_group(self.partition, self.pays, full if self.sampling_rate == 1 else sampled)

    def sensitivity(self, unit: Unit) -> float:
        return require_record_unit(unit).change * (2 * self.reach + 1) * self.clip

    def prepare(self, data: DPSGDData, public: PublicInputs) -> PreparedData:
        gradients, schedule = data.gradients, data.schedule
        count = gradients.count
        planned = schedule.steps(count), schedule.sampling_rate(count), schedule.clip
        names = ("parameters", "steps", "sampling_rate", "clip")
        for name, value in zip(names, (len(gradients.weights), *planned), strict=True):
            reject_if(
                value != getattr(self, name),
                f"the plan has {name}={getattr(self, name)!r} for its training steps, but the training "
                f"uses {name}={value!r}",
            )
        return PreparedData(public, (*gradients._arrays, *data.settings), data)

    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        training: DPSGDData = data.parts
        noise, gradients, schedule = self.randomness(key), training.gradients, training.schedule
        # Otherwise noise would be drawn for a second sum.
        binding = {
            "schedule": asdict(schedule),
            "shapes": gradients.shapes,
            "noise": [noise.noise_multiplier, noise.sampling_rate, noise.steps],
            "data": noise.fingerprint(*(array.numpy() for array in data.arrays)),
        }
        return dpsgd.descend(
            gradients,
            schedule,
            self.noisy_means(gradients, noise),
            binding=binding,
            on_step=training.on_step,
            checkpoint=training.checkpoint,
            checkpoint_every=training.checkpoint_every,
        )

    @property
    def groups(self) -> int:
        return len(self.pays)


class OneProcessNoise(StepNoise):
    """The noise of steps for the process that opened it, one thread at a time.

    A copy in a forked process would add the same noise to other sums: their difference is exact. Noise that
    is drawn ahead for several steps belongs to one thread at a time. Otherwise a step could get the noise of
    another.
    """

    def __init__(self, key: bytes, **law: Any) -> None:
        super().__init__(key, **law)
        self._process, self._lock = os.getpid(), threading.Lock()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise ReleaseError("The noise of training steps cannot be copied or pickled. Resume the run instead.")

    def batch(self, step: int, count: int) -> Tensor:
        check_process(self._process)
        with self._lock:
            return super().batch(step, count)

    def noise(self, step: int) -> Noise:
        """Return a step's noise in grid steps."""
        check_process(self._process)
        with self._lock:
            return super().noise(step)


@forms_private_sum(
    "DPSGDQuery",
    "TreeStepsQuery",
    "EdgeAttentionQuery",
    note="the clipped gradients come from `core/clipping/` and `core/queries/edge_training.py`",
)
@torch.no_grad()
def noisy_mean(gradients: ClippedSum, clip: float, noise: StepNoise, step: int) -> Tensor:
    """Return the noisy mean of clipped gradients over the batch that a step draws, float64 (p).

    It overwrites the clipped sum, which is not exposed elsewhere. The mean is over the expected size of a
    batch, which is public.
    """
    sums = gradients._total.zero_()
    gradients.begin(step)
    gradients.add(noise.batch(step, gradients.count), clip)
    grid = sums.mul_(noise.steps / clip).numpy()  # truncated toward zero to the grid, in place
    np.trunc(grid, out=grid)  # one vector instruction, unlike torch's version
    grid += noise.noise(step)
    return sums.mul_(clip / (noise.steps * noise.sampling_rate * gradients.count))


MAX_SHIFT = 4.0  # maximum shift of a sum by a record's roots, in noise deviations: the exact law is
# known within 13 of them (docs/privacy/proofs/noise.md, Proposition 9)


@dataclass(frozen=True)
class Reach:
    """The number of roots that one record can change, with list bound D and trees of depth r.

    ``slots`` is None if whole lists are used, which an asserted degree bounds.

    >>> from graphveil.privacy import NodeRecord
    >>> Reach.from_unit(NodeRecord(), slots=2, depth=2), Reach.from_unit(NodeRecord(replace_one=True),
    ...     slots=2, depth=1)
    (Reach(slots=2, roots=7), Reach(slots=2, roots=5))
    """

    slots: int | None
    roots: int

    @classmethod
    def from_unit(cls, unit: NodeUnit, *, slots: int, depth: int) -> "Reach":
        """Return the reach under a unit; under an assumption about degrees, the smaller of two mechanisms.

        ``node-record``: 1 + D + ... + D^r. ``node-bounded-degree`` with a degree of at most M: with whole
        lists, the ball 1 + M (1 + (M - 1) + ... + (M - 1)^(r - 1)); or with bounded lists, where a neighbor
        replaces q by another node, 1 + (D + M) (1 + D + ... + D^(r - 1)). Replacing a record is nulling it
        and filling it again: all roots but its own count twice.
        """
        checks.integer_at_least(1, slots=slots, depth=depth)
        if isinstance(unit, Node):
            raise UnitError(
                "Ego graphs have no bound under unit 'node', because one node may be in the lists of all "
                "others. Use unit 'node-record', or method 'classcode' or 'gap'."
            )
        below = sum(slots**level for level in range(depth))
        kept: int | None = slots
        others = slots * below
        if isinstance(unit, NodeBoundedDegree):
            ball = unit.max_degree * sum((unit.max_degree - 1) ** level for level in range(depth))
            others = (slots + unit.max_degree) * below
            if slots >= unit.max_degree or ball <= others:
                kept, others = None, ball
        return cls(kept, 1 + (2 if unit.replace_one else 1) * others)


@dataclass(frozen=True, kw_only=True)
class TreeStepsQuery(DPSGDQuery):
    """Release noisy steps on clipped gradients of roots, each with its tree (``BoundedTrees``).

    Step t releases the sum over a Poisson sample of roots, each with norm at most C, plus N(0, (z C)^2).

    Privacy:
        Unit: node-level. Theorem A (``proofs/accounting.md``) for the number of roots that a record
        reaches (``Reach``), T times. It covers the sums, and so the parameters after all steps. It covers
        nothing else that is computed from the trees.

    >>> from graphveil.privacy import NodeRecord
    >>> steps = TreeStepsQuery(parameters=9, steps=200, noise_multiplier=5.0, sampling_rate=0.125, slots=1,
    ...                        depth=1)
    >>> steps.event(NodeRecord())
    PoissonRoots(noise_multiplier=5.0, sampling_rate=0.125, steps=200, roots=2, relation='add_remove')
    """

    wire_name: ClassVar[str] = "TreeStepsQuery"
    without_example: ClassVar[str] = (
        "the method decides what the steps read; tests of sampled ego graphs cover them"
    )

    slots: int
    depth: int

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.integer_at_least(1, slots=self.slots, depth=self.depth)
        if self.reach or len(self.pays) > 1:
            raise ConfigError(
                "the reach of an ego graph must follow from its slots and depth, and all records must be "
                "charged"
            )

    def event(self, unit: Unit) -> Event:
        records, roots = self._reach(unit)
        event = PoissonRoots(self.noise_multiplier, self.sampling_rate, self.steps, roots, records.relation)
        if event.change > MAX_SHIFT * self.noise_multiplier:
            raise CalibrationError(
                f"noise_multiplier={self.noise_multiplier:.4g} is too small if one record is in {roots} "
                f"ego graphs. It must be at least {event.change / MAX_SHIFT:.4g}. Use a smaller epsilon."
            )
        return event

    def sensitivity(self, unit: Unit) -> float:
        """Return (2 N - 1) C for the sum of one step, or 2 N C under replace-one."""
        records, roots = self._reach(unit)
        return (2 * roots - (not records.replace_one)) * self.clip

    def _reach(self, unit: Unit) -> tuple[NodeUnit, int]:
        records = require_record_unit(unit)
        return records, Reach.from_unit(records, slots=self.slots, depth=self.depth).roots

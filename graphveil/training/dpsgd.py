"""Differentially private gradient descent: Poisson batches, clipped gradients, exact noise, last iterate."""

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from graphveil._util import checks
from graphveil.errors import ConfigError
from graphveil.mechanisms import StepNoise, public_rate
from graphveil.training import snapshot
from graphveil.training.adam import Adam
from graphveil.training.clipped_sums import ClippedSum, GhostClippedSum
from graphveil.training.devices import CPU
from graphveil.training.ghost_modules import GhostModule
from graphveil.training.momentum import Momentum
from graphveil.training.per_sample import PerSampleClippedSum
from graphveil.training.records import Inputs, arrays_of


@dataclass(frozen=True, kw_only=True)
class PrivateSchedule:
    """How long, how fast and how tightly clipped to train. All of it is public configuration.

    Args:
        epochs: expected passes over the records.
        batch_size: records expected in a batch; None is every record in every step.
        clip: C, the norm that a record's gradient is clipped to.
        learning_rate: the step size.
        optimizer: ``"adam"`` or ``"sgd"``, on the noisy mean gradient.
        momentum: of ``"sgd"``.
        weight_decay: the penalty on squared weights.
        decay: how the rate falls: ``"constant"`` or ``"cosine"``.
        average: the share of the steps, counted from the last, whose iterates are averaged; 0 keeps the last.

    Raises:
        ConfigError: a parameter is outside its range.

    >>> schedule = PrivateSchedule(epochs=10, batch_size=256)
    >>> schedule.steps(20_000), round(schedule.sampling_rate(20_000), 6)
    (781, 0.0128)
    """

    epochs: int = 10
    batch_size: int | None = 256
    clip: float = 1.0
    learning_rate: float = 0.01
    optimizer: Literal["adam", "sgd"] = "adam"
    momentum: float = 0.9
    weight_decay: float = 0.0
    decay: Literal["constant", "cosine"] = "constant"
    average: float = 0.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        checks.integer_at_least(1, epochs=self.epochs)
        if self.batch_size is not None:
            checks.integer_at_least(1, batch_size=self.batch_size)
        checks.positive(clip=self.clip, learning_rate=self.learning_rate)
        checks.one_of(("adam", "sgd"), optimizer=self.optimizer)
        checks.within(0, 0.999, momentum=self.momentum)
        checks.non_negative(weight_decay=self.weight_decay)
        checks.one_of(("constant", "cosine"), decay=self.decay)
        checks.within(0, 1, average=self.average)

    def sampling_rate(self, count: int) -> float:
        """Return q for so many records: the batch size over their number, a multiple of 2^-32.

        Raises:
            ConfigError: the batch is larger than the data.
        """
        return public_rate(count if self.batch_size is None else self.batch_size, count)

    def steps(self, count: int) -> int:
        """Return the number of steps on so many records."""
        batch = min(count, self.batch_size or count)
        return max(1, self.epochs * count // batch)

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate of a step."""
        share = (1 + math.cos(math.pi * step / steps)) / 2 if self.decay == "cosine" else 1.0
        return self.learning_rate * share


def train_private(
    network: GhostModule | nn.Module,
    inputs: Inputs,
    labels: Tensor,
    schedule: PrivateSchedule,
    *,
    noise: StepNoise,
    on_step: Callable[[int], None] = lambda done: None,
    checkpoint: Path | None = None,
    checkpoint_every: int = 100,
) -> None:
    """Train in place by DP-SGD or DP-Adam (Abadi et al.: Deep learning with differential privacy, 2016).

    Step t draws each record into the batch B_t with probability q, independently, and moves along

        (sum over B_t of clip(g_i) + C z N(0, I)) / (q N),    clip(g) = g min(1, C / ((1 + 10^-6) |g|)).

    Gradients, norms and sums are float64; the sum is truncated toward zero to the grid C / m, and the noise
    is whole grid steps from the exact sampler (:class:`StepNoise`). An empty batch is a step of noise alone.

    Guarantee: one record enters a sum with norm at most C, so each step is the Poisson-subsampled Gaussian
    mechanism of multiplier z and rate q when a record becomes null (twice the change if it is replaced), and
    the iterates of all steps are one composition of ``schedule.steps(N)`` of them. Batches and their
    sizes are never logged; the last iterate (or average) is kept, whatever its quality. One ``noise`` must
    serve one training only: its key has to be bound to data, network and schedule by whoever derives it.

    Shapes: ``inputs`` (N, d) dense or sparse, or a sequence of blocks (N, d_k); ``labels`` (N) int64, where a
    value that is no class keeps a record out, or class probabilities (N, C).

    Args:
        network: a :class:`GhostModule` network, with closed-form norms; or a torch module that treats records
            one by one, whose per-record gradients are formed by ``vmap(grad)``.
        inputs: the records.
        labels: their classes.
        schedule: steps, rates, clipping.
        noise: batches and noise, for the network's number of parameters and the schedule's sampling rate.
        on_step: called after each step with the number done.
        checkpoint: where to save the state; a file that is there already is resumed from, to the same bits.
        checkpoint_every: steps between two saves.

    Raises:
        ConfigError: the module mixes records, the batch is larger than the data, or the noise is for another
            training. Nothing is drawn then.
        GraphError: the shapes of inputs and labels disagree.
        ArtifactError: the checkpoint is another training's.

    >>> x = torch.linspace(-1, 1, 64)[:, None]
    >>> network = nn.Linear(1, 2)
    >>> schedule = PrivateSchedule(epochs=5, batch_size=16)
    >>> noise = StepNoise(bytes(32), parameters=4, noise_multiplier=1.0, sampling_rate=0.25)
    >>> train_private(network, x, (x[:, 0] > 0).long(), schedule, noise=noise)
    """
    train_with_clipped_sum(
        clipped_sum(network, inputs, labels),
        schedule,
        noise=noise,
        data=(*arrays_of(inputs), labels.numpy()),
        on_step=on_step,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
    )


def train_with_clipped_sum(
    gradients: ClippedSum,
    schedule: PrivateSchedule,
    *,
    noise: StepNoise,
    data: Iterable[npt.NDArray[Any]],
    on_step: Callable[[int], None] = lambda done: None,
    checkpoint: Path | None = None,
    checkpoint_every: int = 100,
) -> None:
    """Run :func:`train_private` on a sum of clipped gradients, whoever forms it.

    While ``on_step`` runs, ``gradients.store()`` writes the weights of that step into the model.

    Args:
        gradients: the records' clipped gradients at its own weights.
        schedule: steps, rates, clipping.
        noise: batches and noise, for the number of weights and the schedule's sampling rate.
        data: what the gradients read, for a checkpoint to be bound to.
        on_step: called after each step with the number done.
        checkpoint: where to save the state.
        checkpoint_every: steps between two saves.

    Raises:
        ConfigError: the noise is for another training. Nothing is drawn then.
        ArtifactError: the checkpoint is another training's.
    """
    checks.integer_at_least(1, checkpoint_every=checkpoint_every)
    _check_noise(gradients, schedule, noise)
    steps = schedule.steps(gradients.count)
    state = _TrainingState(gradients.weights, schedule)
    binding: snapshot.Binding = {}
    if checkpoint is not None:
        binding = _binding(gradients, schedule, noise, *data)
    if checkpoint is not None and checkpoint.exists():
        state.restore(snapshot.load(checkpoint, binding))
    while state.done < steps:
        gradient = _noisy_mean(gradients, schedule.clip, noise, state.done)
        last = state.done >= steps * (1 - schedule.average)
        state.move(gradient, rate=schedule.rate(state.done, steps), last=last)
        if checkpoint is not None and (state.done == steps or state.done % checkpoint_every == 0):
            snapshot.save(checkpoint, state.tensors(), binding)
        on_step(state.done)
    gradients.weights.copy_(state.result())
    gradients.store()


@torch.no_grad()
def _noisy_mean(gradients: ClippedSum, clip: float, noise: StepNoise, step: int) -> Tensor:
    """Return a step's noisy mean gradient; the clipped sum is overwritten by it and never seen outside."""
    sums = gradients.sums.zero_()
    gradients.begin(step)
    gradients.add(noise.batch(step, gradients.count), clip)
    grid = sums.mul_(noise.steps / clip).numpy()
    np.trunc(grid, out=grid)  # in one vector instruction, which torch's own is not
    grid += noise.noise(step)
    return sums.mul_(clip / (noise.steps * noise.sampling_rate * gradients.count))


class _Optimizer(Protocol):
    """What moves the weights along their ``grad``."""

    def step(self, *, rate: float) -> None: ...

    def state(self) -> dict[str, Tensor]: ...

    def restore(self, state: dict[str, Tensor]) -> None: ...


class _TrainingState:
    """Where a training stands: weights, moments, the average of the last iterates, and the steps done."""

    def __init__(self, weights: Tensor, schedule: PrivateSchedule) -> None:
        self._weights, self.done = weights, 0
        self._optimizer = _optimizer(weights, schedule)
        self._mean, self._averaged = torch.zeros_like(weights), 0

    def move(self, gradient: Tensor, *, rate: float, last: bool) -> None:
        """Take one step; an iterate among the last ones enters the average."""
        self._weights.grad = gradient
        self._optimizer.step(rate=rate)
        self.done += 1
        if last:
            self._averaged += 1
            self._mean.lerp_(self._weights, 1 / self._averaged)

    def result(self) -> Tensor:
        """Return the average if there is one, the last iterate otherwise."""
        return self._mean if self._averaged else self._weights

    def tensors(self) -> dict[str, Tensor]:
        """Return all of it."""
        named = {f"optimizer/{name}": value for name, value in self._optimizer.state().items()}
        counts = torch.tensor([self.done, self._averaged])
        return named | {"weights": self._weights, "mean": self._mean, "counts": counts}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Continue from what :meth:`tensors` returned."""
        self._weights.copy_(tensors.pop("weights"))
        self._mean.copy_(tensors.pop("mean"))
        self.done, self._averaged = tensors.pop("counts").tolist()
        self._optimizer.restore({name.removeprefix("optimizer/"): value for name, value in tensors.items()})


def _optimizer(weights: Tensor, schedule: PrivateSchedule) -> _Optimizer:
    if schedule.optimizer == "adam":
        return Adam([weights], weight_decay=schedule.weight_decay)
    return Momentum(weights, momentum=schedule.momentum, weight_decay=schedule.weight_decay)


def clipped_sum(
    network: GhostModule | nn.Module, inputs: Inputs, labels: Tensor, device: torch.device = CPU
) -> ClippedSum:
    """Return the route for a network, whose gradients are formed on a device."""
    if isinstance(network, GhostModule):
        return GhostClippedSum(network, inputs, labels, device)
    return PerSampleClippedSum(network, inputs, labels, device)


def _check_noise(gradients: ClippedSum, schedule: PrivateSchedule, noise: StepNoise) -> None:
    """Refuse noise that was made for another training."""
    rate, parameters = schedule.sampling_rate(gradients.count), len(gradients.weights)
    if noise.sampling_rate != rate:
        raise ConfigError(
            f"the noise is for sampling_rate={noise.sampling_rate!r} and the schedule asks for {rate!r} on "
            f"{gradients.count} records; make it with schedule.sampling_rate({gradients.count})"
        )
    if noise.parameters != parameters:
        raise ConfigError(
            f"the noise is for {noise.parameters} parameters and the network has {parameters}; "
            f"make it with parameters={parameters}"
        )


def _binding(
    gradients: ClippedSum, schedule: PrivateSchedule, noise: StepNoise, *data: npt.NDArray[Any]
) -> snapshot.Binding:
    """Return what a checkpoint must agree in; with anything else noise would be drawn for a second sum."""
    return {
        "schedule": asdict(schedule),
        "shapes": gradients.shapes,
        "noise": [noise.noise_multiplier, noise.sampling_rate, noise.steps],
        "data": noise.fingerprint(*data),
    }

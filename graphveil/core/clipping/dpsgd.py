"""Gradient descent on noisy clipped sums: its schedule, and the loop, which reads only noisy sums.

``Adam`` replaces that of ``torch.optim``, whose first use takes a second of CPU time to import a compiler.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from graphveil._util import checks
from graphveil.core.clipping.clipped_sums import ClippedSum, GhostClippedSum, PerSampleClippedSum, labels_with
from graphveil.core.clipping.ghost_modules import GhostModule
from graphveil.core.journal import Binding, load_snapshot, save_snapshot
from graphveil.core.noise.steps import public_rate
from graphveil.core.view import unwrapped

_FIRST, _SECOND = 0.9, 0.999  # decay of the two moments
_EPSILON = 1e-8


class Adam:
    """Adam with the usual moments (Kingma and Ba: Adam, a method for stochastic optimization).

    m <- b1 m + (1 - b1) g,  v <- b2 v + (1 - b2) g^2,
    w <- w - rate (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + 1e-8),  with g + weight_decay w in place of g.

    >>> weight = torch.nn.Parameter(torch.tensor([1.0]))
    >>> optimizer = Adam([weight])
    >>> (3 * weight).sum().backward()
    >>> optimizer.step(rate=0.1)
    >>> round(weight.item(), 4)
    0.9
    """

    def __init__(self, parameters: Iterable[Tensor], *, weight_decay: float = 0.0) -> None:
        self._parameters = list(parameters)
        self._weight_decay = weight_decay
        self._steps = 0
        self._first = [torch.zeros_like(p) for p in self._parameters]
        self._second = [torch.zeros_like(p) for p in self._parameters]

    def zero_grad(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self, *, rate: float) -> None:
        self._steps += 1
        rate = rate / (1 - _FIRST**self._steps)
        correction = (1 - _SECOND**self._steps) ** 0.5
        for weight, first, second in zip(self._parameters, self._first, self._second, strict=True):
            if weight.grad is None:
                continue
            grad = weight.grad
            if self._weight_decay:
                grad = grad.add(weight, alpha=self._weight_decay)
            first.lerp_(grad, 1 - _FIRST)
            second.mul_(_SECOND).addcmul_(grad, grad, value=1 - _SECOND)
            weight.addcdiv_(first, second.sqrt().div_(correction).add_(_EPSILON), value=-rate)

    def state(self) -> dict[str, Tensor]:
        named = {"steps": torch.tensor(self._steps)}
        for i, (first, second) in enumerate(zip(self._first, self._second, strict=True)):
            named |= {f"first/{i}": first, f"second/{i}": second}
        return named

    def restore(self, state: dict[str, Tensor]) -> None:
        self._steps = int(state["steps"])
        for i, (first, second) in enumerate(zip(self._first, self._second, strict=True)):
            first.copy_(state[f"first/{i}"])
            second.copy_(state[f"second/{i}"])


@dataclass(frozen=True, kw_only=True)
class PrivateSchedule:
    """Public configuration of private training: duration, step size, and clipping.

    Args:
        batch_size: Expected records per batch; None is every record in every step.
        optimizer: ``"adam"`` or ``"sgd"``, on the noisy mean gradient.
        momentum, dampening: Parameters of ``"sgd"``, with v = momentum v + (1 - dampening) g.
        decay: Decay of the learning rate: ``"constant"`` or ``"cosine"``.
        average: Share of the last steps whose iterates are averaged; 0 keeps the last iterate.

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
    dampening: float = 0.0
    weight_decay: float = 0.0
    decay: Literal["constant", "cosine"] = "constant"
    average: float = 0.0

    def __post_init__(self) -> None:
        checks.integer_at_least(1, epochs=self.epochs)
        if self.batch_size is not None:
            checks.integer_at_least(1, batch_size=self.batch_size)
        checks.positive(clip=self.clip, learning_rate=self.learning_rate)
        checks.one_of(("adam", "sgd"), optimizer=self.optimizer)
        checks.within(0, 0.999, momentum=self.momentum, dampening=self.dampening)
        checks.non_negative(weight_decay=self.weight_decay)
        checks.one_of(("constant", "cosine"), decay=self.decay)
        checks.within(0, 1, average=self.average)

    def sampling_rate(self, count: int) -> float:
        """Return q for ``count`` records: the batch size over their number, a multiple of 2^-32."""
        return public_rate(count if self.batch_size is None else self.batch_size, count)

    def steps(self, count: int) -> int:
        batch = min(count, self.batch_size or count)
        return max(1, self.epochs * count // batch)

    def rate(self, step: int, steps: int) -> float:
        share = (1 + math.cos(math.pi * step / steps)) / 2 if self.decay == "cosine" else 1.0
        return self.learning_rate * share

    @classmethod
    def full_batch(
        cls, *, steps: int, learning_rate: float, momentum: float = 0.9, clip: float = 1.0
    ) -> Self:
        """Return full-batch steps: V = m V + (1 - m) G, W = W - rate V, averaged over the last half.

        Full batches cost one exact Gaussian, without any amplification argument.

        >>> PrivateSchedule.full_batch(steps=60, learning_rate=1.0).steps(20_000)
        60
        """
        return cls(
            epochs=steps,
            batch_size=None,
            clip=clip,
            learning_rate=learning_rate,
            optimizer="sgd",
            momentum=momentum,
            dampening=momentum,
            average=0.5,
        )

    @property
    def averaged_noise(self) -> float:
        """Standard deviation of one parameter after ``full_batch`` steps that add only N(0, 1) each.

        Without curvature the iterates are sums of noise, and so is their mean over the last half: noise of
        standard deviation s in each G becomes s ``averaged_noise`` in the output.

        >>> round(PrivateSchedule.full_batch(steps=60, learning_rate=1.0).averaged_noise, 5)
        5.44347
        """
        averaged, path = max(1, self.epochs // 2), np.zeros(self.epochs)
        for step in range(self.epochs):  # factor of each step's noise in the sum of the last half's iterates
            kept = np.arange(max(step, self.epochs - averaged), self.epochs)
            path[step] = np.sum(1 - self.momentum ** (kept - step + 1))
        return self.learning_rate * float(np.linalg.norm(path)) / averaged


def descend(
    gradients: ClippedSum,
    schedule: PrivateSchedule,
    noisy_means: Callable[[int], Tensor],
    *,
    binding: Binding,
    on_step: Callable[[int], None] = lambda done: None,
    checkpoint: Path | None = None,
    checkpoint_every: int = 100,
) -> Tensor:
    """Update the parameters along noisy gradients: DP-SGD or DP-Adam, with sums and noise of a release.

    (Abadi et al.: Deep learning with differential privacy, 2016.) Every number here follows from noisy means
    and public settings, so it is post-processing. While ``on_step`` runs, ``gradients.store()`` writes the
    parameters of that step into the model.

    Args:
        noisy_means: Returns a step's noisy mean gradient at the current parameters, float64 (p). It is the
            only input about records.
        binding: Values that a checkpoint must match.

    Returns:
        The last iterate, or the average of the last ones, float64 (p).
    """
    checks.integer_at_least(1, checkpoint_every=checkpoint_every)
    steps = schedule.steps(gradients.count)
    state = _TrainingState(gradients.weights, schedule)
    if checkpoint is not None and checkpoint.exists():
        state.restore(load_snapshot(checkpoint, binding))
    while state.done < steps:
        gradient = noisy_means(state.done)
        last = state.done >= steps * (1 - schedule.average)
        state.move(gradient, rate=schedule.rate(state.done, steps), last=last)
        if checkpoint is not None and (state.done == steps or state.done % checkpoint_every == 0):
            save_snapshot(checkpoint, state.tensors(), binding)
        on_step(state.done)
    return state.result().clone()


class Momentum:
    """Gradient descent with momentum: v <- momentum v + (1 - dampening) g, w <- w - rate v.

    >>> weight = torch.tensor([1.0])
    >>> optimizer = Momentum(weight, momentum=0.5)
    >>> for _ in range(2):
    ...     weight.grad = torch.tensor([1.0])
    ...     optimizer.step(rate=0.1)
    >>> round(weight.item(), 4)
    0.75
    """

    def __init__(
        self, weight: Tensor, *, momentum: float, dampening: float = 0.0, weight_decay: float = 0.0
    ) -> None:
        self._weight, self._momentum, self._weight_decay = weight, momentum, weight_decay
        self._share = 1 - dampening
        self._velocity = torch.zeros_like(weight)

    @torch.no_grad()
    def step(self, *, rate: float) -> None:
        if self._weight.grad is None:
            return
        self._velocity.mul_(self._momentum).add_(self._weight.grad, alpha=self._share)
        if self._weight_decay:
            self._velocity.add_(self._weight, alpha=self._weight_decay * self._share)
        self._weight.add_(self._velocity, alpha=-rate)

    def state(self) -> dict[str, Tensor]:
        return {"velocity": self._velocity}

    def restore(self, state: dict[str, Tensor]) -> None:
        self._velocity.copy_(state["velocity"])


class _TrainingState:
    """The training state: parameters, moments, the average of the last iterates, and the completed steps."""

    def __init__(self, weights: Tensor, schedule: PrivateSchedule) -> None:
        self._weights, self.done = weights, 0
        self._optimizer: Adam | Momentum
        if schedule.optimizer == "adam":
            self._optimizer = Adam([weights], weight_decay=schedule.weight_decay)
        else:
            self._optimizer = Momentum(
                weights,
                momentum=schedule.momentum,
                dampening=schedule.dampening,
                weight_decay=schedule.weight_decay,
            )
        self._mean, self._averaged = torch.zeros_like(weights), 0

    def move(self, gradient: Tensor, *, rate: float, last: bool) -> None:
        self._weights.grad = gradient
        self._optimizer.step(rate=rate)
        self.done += 1
        if last:
            self._averaged += 1
            self._mean.lerp_(self._weights, 1 / self._averaged)

    def result(self) -> Tensor:
        return self._mean if self._averaged else self._weights

    def tensors(self) -> dict[str, Tensor]:
        named = {f"optimizer/{name}": value for name, value in self._optimizer.state().items()}
        counts = torch.tensor([self.done, self._averaged])
        return named | {"weights": self._weights, "mean": self._mean, "counts": counts}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self._weights.copy_(tensors.pop("weights"))
        self._mean.copy_(tensors.pop("mean"))
        self.done, self._averaged = tensors.pop("counts").tolist()
        self._optimizer.restore({name.removeprefix("optimizer/"): value for name, value in tensors.items()})


def clipped_sum(network: GhostModule | nn.Module, inputs: Any, labels: Any) -> ClippedSum:
    inputs, labels = unwrapped(inputs), labels_with(inputs, labels)
    if isinstance(network, GhostModule):
        return GhostClippedSum(network, inputs, labels)
    return PerSampleClippedSum(network, inputs, labels)

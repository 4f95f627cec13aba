"""The question that learns attention from the edges: noisy training steps on the targets' own in-edges."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphveil import _check
from graphveil.errors import UnitError
from graphveil.mechanisms import StepNoise
from graphveil.privacy import Event, NodeUnit, PoissonGaussian, UndirectedEdge, Unit
from graphveil.release.query import Query


@dataclass(frozen=True, kw_only=True)
class EdgeAttentionQuery(Query):
    """Noisy gradients of a network that weighs in-edges, each target's gradient clipped to a norm C.

    The example of target v is the loss of its class, given its own row and the sum of its in-neighbours'
    rows weighed by the network (:mod:`graphveil.release._edge_gradients`). Step t releases the sum of the
    clipped gradients of a batch of targets plus N(0, (z C)^2), where each target is in the batch with
    probability q, independently.

    Guarantee (edge units): features and labels are public, and an edge enters the gradient of its target
    alone. Toggling it replaces one clipped gradient by another, a change of 2 C, so the steps are T
    Poisson-subsampled Gaussian steps of multiplier z and rate q under the REPLACE relation. For that an
    undirected graph has to be ``oriented``: a friendship counts in one public direction. If it counts in
    both, two targets change; giving each half of the noise's variance, the steps cost at most what 2 T steps
    of multiplier z / sqrt 2 cost.

    Args:
        dim: d, the width of the rows, and of the network's hidden layer.
        classes: C of the head.
        steps: T.
        noise_multiplier: z, in clipping norms.
        sampling_rate: q, a multiple of 2^-32 (:func:`graphveil.mechanisms.public_rate`).
        learning_rate: of the descent; it is here because noise must not serve two descents.
        clip: C.
        oriented: whether a friendship counts in one direction only.
        forward_noise: the standard deviation of noise that is added to the weighed sums while training, drawn
            anew for each target and step: it protects nothing, it shows the network what the hop will be.

    Raises:
        ConfigError: a field is outside its range.
        CalibrationError: the noise leaves less than 64 grid steps in a clipping norm.

    >>> query = EdgeAttentionQuery(
    ...     dim=2, classes=3, steps=100, noise_multiplier=2.0, sampling_rate=0.25, learning_rate=0.01
    ... )
    >>> query.event(UndirectedEdge()), query.parameters
    (PoissonGaussian(noise_multiplier=2.0, sampling_rate=0.25, steps=100, relation='replace'), 28)
    """

    kind: ClassVar[str] = "attention"
    wire: ClassVar[str] = "AttentionStepsQuery"

    dim: int
    classes: int
    steps: int
    noise_multiplier: float
    sampling_rate: float
    learning_rate: float
    clip: float = 1.0
    oriented: bool = True
    forward_noise: float = 0.0

    def __post_init__(self) -> None:
        """Check every field, those of the noise by making one that draws nothing."""
        _check.integer_at_least(1, dim=self.dim, steps=self.steps)
        _check.integer_at_least(2, classes=self.classes)
        _check.positive(learning_rate=self.learning_rate, clip=self.clip)
        _check.non_negative(forward_noise=self.forward_noise)
        self.randomness(bytes(32))

    def randomness(self, key: bytes) -> StepNoise:
        """Return the batches and the noise of all steps, which a key fixes."""
        return StepNoise(
            key,
            parameters=self.parameters,
            noise_multiplier=self.noise_multiplier,
            sampling_rate=self.sampling_rate,
        )

    def event(self, unit: Unit) -> Event:
        """Return the sampled steps.

        Raises:
            UnitError: a unit of records, whose labels and features are not public.
        """
        if isinstance(unit, NodeUnit):
            raise UnitError(
                f"attention is learned from rows and labels that unit {unit.name!r} protects; use "
                "weights='one', or protect edges"
            )
        moved = self._targets_moved(unit)
        return PoissonGaussian(
            self.noise_multiplier / math.sqrt(moved), self.sampling_rate, moved * self.steps, "replace"
        )

    def sensitivity(self, unit: Unit) -> float:
        """Return 2 C for each target that an edge may move, for the sum of one step."""
        return 2 * self.clip * self._targets_moved(unit)

    def changed(self, unit: Unit) -> int:
        """Return the coordinates of all steps."""
        return self.parameters * self.steps

    def _targets_moved(self, unit: Unit) -> int:
        return 2 if isinstance(unit, UndirectedEdge) and not self.oriented else 1

    @property
    def parameters(self) -> int:
        """The number of weights: of the network, and of the head that it is trained with."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The parts of the vector of weights, in order."""
        d, c = self.dim, self.classes
        network = {"source": (d, d), "target": (d, d), "bias": (d,), "readout": (d,), "offset": (1,)}
        return network | {"head_own": (d, c), "head_sum": (d, c), "head_bias": (c,)}

    def parts(self, weights: Tensor) -> dict[str, Tensor]:
        """Return a vector of weights (p) as its parts, in their shapes, without copying."""
        split = torch.split(weights, list(map(math.prod, self.shapes.values())))
        return {
            name: part.view(shape) for part, (name, shape) in zip(split, self.shapes.items(), strict=True)
        }

    @property
    def groups(self) -> int:
        """One: targets are told apart when the question is asked, and all edges are charged."""
        return 1

    @property
    def noise(self) -> tuple[float, ...]:
        """The noise multiplier z: the standard deviation of a step, over C."""
        return (self.noise_multiplier,)

    @property
    def finest(self) -> float:
        """Grid steps in a clipping norm."""
        return float(self.randomness(bytes(32)).steps)

    @property
    def widest(self) -> float:
        """Return 0: the plan's sampler draws none of it."""
        return 0.0

    @property
    def one_way(self) -> bool:
        """Return True: all of a person's edges may count at that person."""
        return True

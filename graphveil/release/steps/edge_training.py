"""Attention learned from the edges: noisy training steps on the targets' own in-edges.

Training receives only noisy gradients about the edges, step by step.
"""

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from graphveil._util import checks
from graphveil._util.random import PublicStreams
from graphveil.errors import ReleaseError
from graphveil.mechanisms import StepNoise
from graphveil.privacy import Event, PoissonGaussian, UndirectedEdge, Unit
from graphveil.release.private_edges import PrivateEdges
from graphveil.release.query import (
    PreparedData,
    PublicInputs,
    Query,
    QueryData,
    QueryDescription,
    are_numbers,
    check_rows,
    outside,
    require_edge_unit,
)
from graphveil.release.sites import forms_private_sum
from graphveil.release.steps.edge_gradients import MAX_WEIGHT, Examples, clipped_sum
from graphveil.release.steps.training_steps import OneProcessNoise, add_step_noise

_ROUNDING = 1e-6  # rounding of the norm of a float32 row of norm one

Gradients = Callable[[Tensor], Tensor]
Descent = Callable[[Tensor, Gradients], Tensor]


@dataclass(frozen=True, eq=False, repr=False)
class EdgeAttentionData(QueryData[Tensor]):
    """Training inputs; the answer is the last parameters, float64, shape (p).

    Args:
        rows: z, public or released earlier, shape (N, d), of norm at most one.
        labels: Class indices, shape (N); only those of targets are read.
        targets: Training nodes, each once, shape (n).
        start: Initial parameters, public, shape (p).
        descend: Maps the start and the noisy gradients to the last parameters. It must be deterministic,
            because a resumed release draws the same noise.
    """

    rows: Tensor
    labels: Tensor
    targets: Tensor
    start: Tensor
    descend: Descent


@dataclass(frozen=True, eq=False, repr=False)
class _PreparedTraining(PreparedData):
    """Rows, targets, their classes, the start, and the descent."""

    descend: Descent


@dataclass(frozen=True, kw_only=True)
class EdgeAttentionQuery(Query):
    """Release noisy gradients of an edge attention network, each target's gradient clipped to a norm C.

    The example of target v is the loss of its class, given its own row and the weighted sum of its
    in-neighbors' rows. The network computes the weights (``graphveil.release.steps.edge_gradients``). Step t
    releases the sum of the clipped gradients of a batch of targets plus N(0, (z C)^2). Each target is in the
    batch with probability q, independently.

    Args:
        dim: d, the width of the rows, and of the network's hidden layer.
        classes: C of the head.
        steps: T.
        noise_multiplier: z, in clipping norms.
        sampling_rate: q, a multiple of 2^-32 (``graphveil.mechanisms.public_rate``).
        learning_rate: Learning rate of the descent. It is a field because noise must not be used for two
            descents.
        clip: C.
        oriented: Whether an undirected edge counts in one direction only.
        forward_noise: Standard deviation of the noise added to the weighted sums in training, drawn
            for each target and step. It gives no protection; it simulates the noise of the hop.

    Raises:
        ConfigError: If a field is outside its range.
        CalibrationError: If the noise leaves less than 64 grid steps in a clipping norm.

    Privacy:
        Unit: edge-level. Features and labels are public, and an edge enters the gradient of its target alone.
        Toggling it replaces one clipped gradient by another, a change of 2 C. The steps are T
        Poisson-subsampled Gaussian steps of multiplier z and rate q under the REPLACE relation. For this an
        undirected graph has to be ``oriented``: each undirected edge counts in one public direction. If it
        counts in both, two targets change. Each half gets half of the noise variance, so the cost of the
        steps is at most that of 2 T steps of multiplier z / sqrt 2.

    >>> query = EdgeAttentionQuery(
    ...     dim=2, classes=3, steps=100, noise_multiplier=2.0, sampling_rate=0.25, learning_rate=0.01
    ... )
    >>> query.event(UndirectedEdge()), query.parameters
    (PoissonGaussian(noise_multiplier=2.0, sampling_rate=0.25, steps=100, relation='replace'), 28)
    """

    kind: ClassVar[str] = "attention"
    wire_name: ClassVar[str] = "AttentionStepsQuery"
    stage: ClassVar[str] = "training on edges"
    data: ClassVar[type[EdgeAttentionData]] = EdgeAttentionData
    exact_noise: ClassVar[bool] = True

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
        """Check every field; the noise fields are checked by creating a noise source."""
        checks.integer_at_least(1, dim=self.dim, steps=self.steps)
        checks.integer_at_least(2, classes=self.classes)
        checks.positive(learning_rate=self.learning_rate, clip=self.clip)
        checks.non_negative(forward_noise=self.forward_noise)
        self.randomness(bytes(32))

    def randomness(self, key: bytes) -> StepNoise:
        """Return the batches and the noise of all steps, which a key determines."""
        return OneProcessNoise(
            key,
            parameters=self.parameters,
            noise_multiplier=self.noise_multiplier,
            sampling_rate=self.sampling_rate,
        )

    def event(self, unit: Unit) -> Event:
        """Return the sampled steps.

        Raises:
            UnitError: If the unit is node-level, where labels and features are not public.
        """
        require_edge_unit(
            unit, "attention is learned from rows and labels as if they were public (weights='one')"
        )
        moved = self._targets_moved(unit)
        return PoissonGaussian(
            self.noise_multiplier / math.sqrt(moved), self.sampling_rate, moved * self.steps, "replace"
        )

    def sensitivity(self, unit: Unit) -> float:
        """Return the sensitivity of the sum of one step: 2 C for each target that an edge may move."""
        return 2 * self.clip * self._targets_moved(unit)

    def changed(self, unit: Unit) -> int:
        """Return the number of coordinates of all steps."""
        return self.parameters * self.steps

    def _targets_moved(self, unit: Unit) -> int:
        return 2 if isinstance(unit, UndirectedEdge) and not self.oriented else 1

    def describe(self) -> QueryDescription:
        """Return the public description of the query."""
        return replace(super().describe(), steps=self.steps, sampling_rate=self.sampling_rate)

    def prepare(self, data: EdgeAttentionData, public: PublicInputs) -> _PreparedTraining:
        """Reject rows of norm above one, and targets that are not nodes, have no class, or occur twice.

        One edge would move two examples of a target that occurs twice. Rows are bounded because rounding
        errors must be: the clipping margin covers rounding of rows of norm at most one.
        """
        check_rows(data.rows, public.num_nodes, self.dim)
        if not bool((data.rows.to(torch.float64).norm(dim=1) <= 1 + _ROUNDING).all()):
            raise ReleaseError(
                "the rows of training have norms of at most one, and every number in them is finite; the "
                "release stays charged"
            )
        targets, labels = data.targets, data.labels
        nodes = are_numbers(targets, len(targets)) and not outside(targets, public.num_nodes)
        if not nodes or not len(targets) or len(torch.unique(targets)) < len(targets):
            raise ReleaseError("the targets of training are nodes, each once; the release stays charged")
        if not are_numbers(labels, public.num_nodes) or outside(labels[targets], self.classes):
            raise ReleaseError(
                f"training takes {public.num_nodes} labels, those of targets from 0 to {self.classes - 1}; "
                "the release stays charged"
            )
        arrays = data.rows.to(torch.float64), targets, labels[targets], data.start
        return _PreparedTraining(public, arrays, data.descend)

    def answer(self, private: PrivateEdges, data: _PreparedTraining, key: bytes) -> Tensor:
        """Return the last parameters of the descent."""
        rows, targets, classes, start = data.arrays
        gradients = NoisyGradients(Examples(private, rows, targets, classes), self, key)
        return data.descend(start.to(torch.float64), gradients).to(torch.float64)

    @property
    def parameters(self) -> int:
        """The number of parameters: of the network, and of the head that it is trained with."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The parts of the parameter vector, in order."""
        d, c = self.dim, self.classes
        network = {"source": (d, d), "target": (d, d), "bias": (d,), "readout": (d,), "offset": (1,)}
        return network | {"head_own": (d, c), "head_sum": (d, c), "head_bias": (c,)}

    def parts(self, weights: Tensor) -> dict[str, Tensor]:
        """Return a parameter vector (p) as its parts, in their shapes, without copying."""
        split = torch.split(weights, list(map(math.prod, self.shapes.values())))
        return {
            name: part.view(shape) for part, (name, shape) in zip(split, self.shapes.items(), strict=True)
        }

    @property
    def groups(self) -> int:
        """One: targets are chosen when the query is answered, and all edges are charged."""
        return 1

    @property
    def noise(self) -> tuple[float, ...]:
        """The noise multiplier z: the standard deviation of a step divided by C."""
        return (self.noise_multiplier,)

    @property
    def contribution_steps(self) -> float:
        """Grid steps in a clipping norm."""
        return float(self.randomness(bytes(32)).steps)

    @property
    def min_noise_steps(self) -> float:
        """Grid steps in a step's standard deviation."""
        return self.randomness(bytes(32)).sigma

    @property
    def max_noise_steps(self) -> float:
        """Return 0: the plan's sampler draws none of this noise."""
        return 0.0

    @property
    def linear_group_scaling(self) -> bool:
        """Return True: all edges of one node may count at that node."""
        return True


@forms_private_sum("EdgeAttentionQuery")
class NoisyGradients:
    """Map parameters (p) to the next step's noisy mean gradient (p), once per step of the query.

    Step t draws its batch B_t and returns

        (trunc(sum over B_t of clip(g_v)) + N(0, (z C)^2)) / (q n),

    with the sum truncated toward zero to the grid C / m and noise in whole grid steps
    (``graphveil.mechanisms.StepNoise``). An empty batch is a step of noise alone.

    Privacy:
        See ``EdgeAttentionQuery``. The noise of each step is used for one call. The parameters of a call may
        depend on earlier answers.
    """

    def __init__(self, examples: Examples, query: EdgeAttentionQuery, key: bytes) -> None:
        """Store data, law and randomness; no data are read yet."""
        self._examples, self._query = examples, query
        self._noise = query.randomness(key)
        self._done, self._lock = 0, threading.Lock()

    def __repr__(self) -> str:
        """Show public facts only."""
        return f"NoisyGradients({self._done} of {self._query.steps} steps taken)"

    @torch.no_grad()
    def __call__(self, weights: Tensor) -> Tensor:
        """Return the next step's noisy mean gradient, float64.

        Raises:
            ReleaseError: If all steps are done, or the parameters are not p finite numbers.
        """
        query = self._query
        if weights.shape != (query.parameters,) or not bool(weights.isfinite().all()):
            raise ReleaseError(f"a gradient is requested at {query.parameters} finite weights")
        return self._noisy(weights.to(torch.float64).clamp(-MAX_WEIGHT, MAX_WEIGHT), self._step())

    def _step(self) -> int:
        """Return the index of the next step, each once."""
        with self._lock:
            step = self._done
            if step >= self._query.steps:
                raise ReleaseError(f"all {self._query.steps} steps are taken; one more would not be paid for")
            self._done += 1
        return step

    def _noisy(self, weights: Tensor, step: int) -> Tensor:
        """Return a step's noisy mean; the clipped sum is discarded here."""
        query, noise, count = self._query, self._noise, len(self._examples.targets)
        batch = noise.batch(step, count)
        shown = torch.randn(
            (len(batch), query.dim), dtype=torch.float64, generator=PublicStreams(step).torch("attention")
        )
        total = clipped_sum(weights, self._examples, batch, shown * query.forward_noise, query)
        return add_step_noise(total, query.clip, noise, step, count)

"""Training on protected records, as one question of a release: what it asks, what it costs, how it runs.

Under a unit of records each node is in one public group, and only the records of training nodes pay for
training. Membership is public, a label is not: a training node without a label is a null record, which takes
part in every batch and contributes nothing.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor

from graphveil.data import Features, Graph, rows
from graphveil.estimators.public_sizes import PARTITION, members
from graphveil.estimators.session import Session
from graphveil.privacy import NodeUnit
from graphveil.release import DPSGDData, DPSGDQuery, Release
from graphveil.training import ClippedSum, GhostModule, PrivateSchedule, clipped_sum
from graphveil.training.devices import device_tag

_TRAINED = (True, False, False)  # the groups whose records are trained on

State = dict[str, Tensor]
Inputs = Features | Sequence[Tensor]


class HasStateDict(Protocol):
    """A network, as far as its weights are concerned."""

    def state_dict(self) -> State:
        """Return the weights."""

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> object:
        """Set the weights."""

    def eval(self) -> object:
        """Leave training mode."""


class PrivatelyTrainable(HasStateDict, Protocol):
    """A network that can be trained privately, record by record."""

    def ghost(self) -> GhostModule:
        """Return the network for private training."""


def count_parameters(*widths: int) -> int:
    """Return the weights and biases of affine maps between these widths.

    >>> count_parameters(3, 2, 1)
    11
    """
    return sum((inputs + 1) * outputs for inputs, outputs in pairwise(widths))


@dataclass(frozen=True, kw_only=True)
class DPSGDTraining:
    """The noisy steps that train one network, before the size of their noise is chosen.

    Args:
        schedule: steps, rates, clipping.
        parameters: p of the network.
        records: the public number of training nodes.

    Raises:
        ConfigError: the batch is larger than the number of records.
    """

    schedule: PrivateSchedule
    parameters: int
    records: int
    rate: float = field(init=False)  # q
    steps: int = field(init=False)  # T

    def __post_init__(self) -> None:
        """Derive rate and steps, refusing a batch that is too large."""
        object.__setattr__(self, "rate", self.schedule.sampling_rate(self.records))
        object.__setattr__(self, "steps", self.schedule.steps(self.records))

    def multiplier(self, mu: float, unit: NodeUnit) -> float:
        """Return the noise multiplier at which the steps cost about mu.

        For full batches it is exact: z = change sqrt(T) / mu. For sampled ones it inverts the central limit
        mu = q sqrt(T (e^(1/z^2) - 1)) (Bu, Dong, Long, Su: Deep learning with Gaussian differential privacy,
        2020). It only shapes the plan; what the plan costs is accounted for elsewhere.
        """
        if self.rate == 1:
            return unit.change * math.sqrt(self.steps) / mu
        return unit.change / math.sqrt(math.log1p((mu / self.rate) ** 2 / self.steps))

    def mu(self, multiplier: float, unit: NodeUnit) -> float:
        """Return the inverse of :meth:`multiplier`."""
        if self.rate == 1:
            return unit.change * math.sqrt(self.steps) / multiplier
        return self.rate * math.sqrt(self.steps * math.expm1((unit.change / multiplier) ** 2))

    def query(self, multiplier: float) -> DPSGDQuery:
        """Return the steps as a question to the training records."""
        return DPSGDQuery(
            parameters=self.parameters,
            steps=self.steps,
            noise_multiplier=multiplier,
            sampling_rate=self.rate,
            clip=self.schedule.clip,
            partition=PARTITION,
            pays=_TRAINED,
        )


def fit_dpsgd(
    stage: str,
    network: PrivatelyTrainable,
    inputs: Inputs,
    graph: Graph,
    training: DPSGDTraining,
    release: Release,
    context: Session,
    *,
    candidates: int = 1,
) -> list[State]:
    """Train a network on the training nodes' records, as the release's next question.

    A fit that is resumed continues with the same initial weights, batches and noise, to the same bits.

    Args:
        stage: what checkpoints and progress call it.
        network: to be trained in place; it is left with the last weights.
        inputs: a row for every node, or blocks of them.
        graph: labels and split.
        training: what the plan of the release has for this stage.
        release: open, with the steps as its next question.
        context: progress and workspace.
        candidates: how many weights to return.

    Returns:
        The weights passed at equal distances, the last ones last.
    """
    nodes = members(graph, "train")
    records, labels = _select_rows(inputs, nodes), graph.y[nodes]
    return fit_dpsgd_from_sums(
        stage,
        network,
        lambda: clipped_sum(network.ghost(), records, labels, context.private_device),
        training,
        release,
        context,
        candidates=candidates,
    )


def fit_dpsgd_from_sums(
    stage: str,
    network: HasStateDict,
    sums: Callable[[], ClippedSum],
    training: DPSGDTraining,
    release: Release,
    context: Session,
    *,
    fingerprint: Sequence[Tensor] = (),
    candidates: int = 1,
) -> list[State]:
    """Run :func:`fit_dpsgd` on sums of clipped gradients, whoever forms them.

    Args:
        stage: what checkpoints and progress call it.
        network: holds the weights, and is left with the last ones.
        sums: returns the sums, at the weights that the network then has.
        training: what the plan of the release has for this stage.
        release: open, with the steps as its next question.
        context: progress and workspace.
        fingerprint: of code that gradients are formed by, public.
        candidates: how many weights to return.
    """
    # Kept with the workspace: the release binds its noise to the weights that the steps start from, and to
    # the configuration: other rates or another network would draw the same noise for other gradients.
    start = context.load_or_compute(f"{stage}-start", lambda: _copied(network))
    network.load_state_dict(start)
    configured = torch.frombuffer(bytearray(context.configuration.encode() or b"-"), dtype=torch.uint8)
    ordered = [start[name] for name in network.state_dict()]  # files have them in another order
    gradients = sums()
    passed = _CheckpointRecorder(stage, network, gradients, training.steps, candidates, context)
    weights = release.answer(
        DPSGDData(
            gradients=gradients,
            schedule=training.schedule,
            settings=(*fingerprint, *ordered, configured, *device_tag(context.private_device)),
            on_step=passed,
            checkpoint=context.checkpoint(stage),
        )
    )
    gradients.store(weights)
    network.eval()
    return [*passed.states(), _copied(network)]


class _CheckpointRecorder:
    """Notes the weights that a training passes at equal distances, all but the last."""

    def __init__(
        self,
        stage: str,
        network: HasStateDict,
        gradients: ClippedSum,
        steps: int,
        count: int,
        context: Session,
    ) -> None:
        self._stage, self._network, self._gradients = stage, network, gradients
        self._steps, self._context = steps, context
        self._marks = [k * steps // count for k in range(1, count)]
        self._kept: dict[int, State] = {}

    def __call__(self, done: int) -> None:
        """Report a step, and keep the weights at a mark."""
        self._context.on_progress(self._stage, done, self._steps)
        if done in self._marks:
            self._gradients.store()
            self._kept[done] = self._context.load_or_compute(self._name(done), lambda: _copied(self._network))

    def states(self) -> list[State]:
        """Return what was kept: in this process, or in the workspace by one that this one resumed."""
        return [
            self._kept.get(mark) or self._context.load_or_compute(self._name(mark), dict)
            for mark in self._marks
        ]

    def _name(self, mark: int) -> str:
        return f"{self._stage}-{mark}"


def _select_rows(inputs: Inputs, nodes: Tensor) -> Inputs:
    """Return the rows of some nodes, of every block."""
    return [block[nodes] for block in inputs] if isinstance(inputs, Sequence) else rows(inputs, nodes)


def _copied(network: HasStateDict) -> State:
    return {name: value.detach().clone() for name, value in network.state_dict().items()}

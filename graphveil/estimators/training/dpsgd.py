"""Training on protected records as one query of a release: the query, its privacy cost, its execution.

Under node-level units each node is in one public group, and only the records of training nodes are charged
for training. Membership is public, labels are not. A training node without a label is a null record, which
takes part in every batch and contributes nothing.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from graphveil.core.clipping.clipped_sums import ClippedSum
from graphveil.core.clipping.dpsgd import PrivateSchedule, clipped_sum
from graphveil.core.clipping.ghost_modules import GhostModule
from graphveil.core.features import Features, ProtectedRows, rows
from graphveil.core.queries.training_steps import DPSGDData, DPSGDQuery
from graphveil.core.release import Release
from graphveil.core.unit import NodeUnit
from graphveil.data import Graph
from graphveil.estimators.public_sizes import PARTITION, members
from graphveil.estimators.session import Session

_TRAINED = (True, False, False)  # the groups whose records are trained on

State = dict[str, Tensor]
Inputs = Features | ProtectedRows | Sequence[Any]


class HasStateDict(Protocol):
    """A network with a state dict."""

    def state_dict(self) -> State:
        """Return the parameters."""

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> object:
        """Set the parameters."""

    def eval(self) -> object:
        """Leave training mode."""


class PrivatelyTrainable(HasStateDict, Protocol):
    """A network that can be trained privately, with per-record gradients."""

    def ghost(self) -> GhostModule:
        """Return the network for private training."""


def count_parameters(*widths: int) -> int:
    """Return the number of parameters of affine maps between these widths.

    >>> count_parameters(3, 2, 1)
    11
    """
    return sum((inputs + 1) * outputs for inputs, outputs in pairwise(widths))


@dataclass(frozen=True, kw_only=True)
class DPSGDTraining:
    """The noisy steps that train one network, before their noise multiplier is chosen.

    Args:
        schedule: Steps, learning rate, clipping.
        parameters: p of the network.
        records: Public number of training nodes.

    Raises:
        ConfigError: If the batch is larger than the number of records.
    """

    schedule: PrivateSchedule
    parameters: int
    records: int
    rate: float = field(init=False)  # q
    steps: int = field(init=False)  # T

    def __post_init__(self) -> None:
        """Derive rate and steps, rejecting a batch that is too large."""
        object.__setattr__(self, "rate", self.schedule.sampling_rate(self.records))
        object.__setattr__(self, "steps", self.schedule.steps(self.records))

    @classmethod
    def for_module(cls, module: nn.Module, schedule: PrivateSchedule, records: int) -> "DPSGDTraining":
        """Return the steps that train a module, counting its parameters."""
        count = sum(weight.numel() for weight in module.parameters() if weight.requires_grad)
        return cls(schedule=schedule, parameters=count, records=records)

    def multiplier(self, mu: float, unit: NodeUnit) -> float:
        """Return the noise multiplier at which the steps cost about mu.

        For full batches it is exact: z = change sqrt(T) / mu. For sampled ones it inverts the central limit
        mu = q sqrt(T (e^(1/z^2) - 1)) (Bu, Dong, Long, Su: Deep learning with Gaussian differential privacy,
        2020). This only shapes the plan, whose privacy cost is computed elsewhere.
        """
        if self.rate == 1:
            return unit.change * math.sqrt(self.steps) / mu
        return unit.change / math.sqrt(math.log1p((mu / self.rate) ** 2 / self.steps))

    def mu(self, multiplier: float, unit: NodeUnit) -> float:
        """Return the inverse of ``multiplier``."""
        if self.rate == 1:
            return unit.change * math.sqrt(self.steps) / multiplier
        return self.rate * math.sqrt(self.steps * math.expm1((unit.change / multiplier) ** 2))

    def query(self, multiplier: float) -> DPSGDQuery:
        """Return the steps as a query of the training records."""
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
    view: Graph,
    targets: Any,
    training: DPSGDTraining,
    release: Release,
    context: Session,
    *,
    candidates: int = 1,
) -> list[State]:
    """Train a network on the training nodes' records, as the release's next query.

    A resumed fit continues with the same initial parameters, batches and noise. Results are bit-identical.

    Args:
        stage: Name for checkpoints and progress.
        network: Network, trained in place; it has the last parameters afterwards.
        inputs: Inputs of all nodes, or blocks of columns.
        view: Public members of the training set.
        targets: Classes or numbers of all nodes (N), or targets (N, C).
        training: Steps of this stage in the plan of the release.
        release: Open release with the steps as its next query.
        context: Progress and workspace.
        candidates: Number of checkpoints to return.

    Returns:
        Parameters of equidistant checkpoints, the last ones last.
    """
    nodes = members(view, "train")
    records = [rows(each, nodes) for each in inputs] if isinstance(inputs, Sequence) else rows(inputs, nodes)
    labels = rows(targets, nodes)
    return fit_dpsgd_from_sums(
        stage,
        network,
        lambda: clipped_sum(network.ghost(), records, labels),
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
    """Run ``fit_dpsgd`` on sums of clipped gradients from any source.

    Args:
        stage: Name for checkpoints and progress.
        network: Holds the parameters; it has the last ones afterwards.
        sums: Returns the sums at the network's current parameters.
        training: Steps of this stage in the plan of the release.
        release: Open release with the steps as its next query.
        context: Progress and workspace.
        fingerprint: Public fingerprint of the code that computes gradients.
        candidates: Number of checkpoints to return.
    """
    # Stored in the workspace: the release binds its noise to the initial parameters of the steps, and to
    # the configuration: other rates or another network would draw the same noise for other gradients.
    start = context.load_or_compute(f"{stage}-start", lambda: _copied(network))
    network.load_state_dict(start)
    configured = torch.frombuffer(bytearray(context.configuration.encode() or b"-"), dtype=torch.uint8)
    ordered = [start[name] for name in network.state_dict()]  # files store them in another order
    gradients = sums()
    passed = _CheckpointRecorder(stage, network, gradients, training.steps, candidates, context)
    weights = release.answer(
        DPSGDData(
            gradients=gradients,
            schedule=training.schedule,
            settings=(*fingerprint, *ordered, configured),
            on_step=passed,
            checkpoint=context.checkpoint(stage),
        )
    )
    gradients.store(weights)
    network.eval()
    return [*passed.states(), _copied(network)]


class _CheckpointRecorder:
    """Records the parameters at equidistant steps, except the last."""

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
        """Report a step, and record the parameters at a mark."""
        self._context.on_progress(self._stage, done, self._steps)
        if done in self._marks:
            self._gradients.store()
            self._kept[done] = self._context.load_or_compute(self._name(done), lambda: _copied(self._network))

    def states(self) -> list[State]:
        """Return the recorded parameters, from this process or from the workspace of a resumed run."""
        return [
            self._kept.get(mark) or self._context.load_or_compute(self._name(mark), dict)
            for mark in self._marks
        ]

    def _name(self, mark: int) -> str:
        return f"{self._stage}-{mark}"


def _copied(network: HasStateDict) -> State:
    return {name: value.detach().clone() for name, value in network.state_dict().items()}

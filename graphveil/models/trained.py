"""What MLP and GAP have in common: networks trained in the clear or, on protected records, privately."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor

from graphveil import _check
from graphveil.errors import ConfigError
from graphveil.graph import Graph
from graphveil.models.base import Estimator, State
from graphveil.models.session import Session
from graphveil.models.training.private import (
    Inputs,
    Trainable,
    Training,
    check_members,
    fit_records,
    members,
    public_count,
)
from graphveil.models.training.record_plan import RecordPlan, chosen_candidate, released_accuracies
from graphveil.networks.layers import ACTIVATIONS
from graphveil.privacy import Event, NodeUnit, compose, renyi
from graphveil.release import Release, ReleasePlan, calibrate_plan
from graphveil.train import PrivateSchedule, Schedule

_CANDIDATES = 10  # weights that a selection chooses from
_PRIVATE_EPOCHS, _PRIVATE_RATE = 60, 0.03  # on full batches: docs/decisions/008-node-level-gap.md
_PAPER_EPOCHS, _PAPER_BATCH = 10, 256


@dataclass(kw_only=True, eq=False)
class TrainedEstimator(Estimator):
    """Base of methods whose networks learn from records, without the edges.

    Where labels and features are public, networks are trained by Adam, and the epoch of the best validation
    accuracy is kept. Under a node unit they are trained by DP-Adam on the training nodes' records, without
    batch norm or dropout, and the last weights are kept: validation records are secret, too.

    Args:
        hidden: width of the hidden layers.
        activation: ``"selu"``, ``"relu"`` or ``"tanh"``.
        batch_norm: whether hidden layers normalise over the batch; None for yes, but under node units no.
        dropout: share of hidden entries dropped while training.
        epochs: passes over the training nodes; None for 100, under node units 60, in paper mode there 10.
        learning_rate: the step size of Adam; None for 0.01, under node units 0.03, in paper mode there 0.01.
        weight_decay: the penalty on squared weights.
        batch_size: nodes in a batch, expected ones under node units; None for all of them at once, in paper
            mode under node units 256.
        patience: stop after so many epochs without a better validation accuracy; None never stops.
        clip: under node units: the norm that a record's gradient is clipped to.
        selection: under node units: ``"last"`` keeps the last weights; ``"private"`` chooses among ten by
            noisy counts of correct validation nodes, for which validation records pay.
    """

    node_units: ClassVar[tuple[str, ...]] = ("node-owner", "node-promise")

    hidden: int = 16
    activation: str = "selu"
    batch_norm: bool | None = None
    dropout: float = 0.0
    epochs: int | None = None
    learning_rate: float | None = None
    weight_decay: float = 0.0
    batch_size: int | None = None
    patience: int | None = None
    clip: float = 1.0
    selection: Literal["last", "private"] = "last"

    def _check_config(self) -> None:
        super()._check_config()
        _check.width(hidden=self.hidden)
        _check.one_of(ACTIVATIONS, activation=self.activation)
        _check.within(0, 0.99, dropout=self.dropout)
        _check.one_of(("last", "private"), selection=self.selection)
        self._schedule(self._epochs)
        self._private_schedule(self._epochs)
        if self._on_records:
            self._refuse_for_records()
        elif self.selection != "last":
            raise ConfigError(
                f"selection={self.selection!r} is for node units; under unit {self.unit!r} validation labels "
                "are public, and the best epoch is chosen at no cost; drop it"
            )

    def _refuse_for_records(self) -> None:
        """Refuse what mixes records, or asks validation records without paying."""
        if self.batch_norm:
            raise ConfigError(
                f"batch_norm mixes the records of a batch, and unit {self.unit!r} protects each of them; use "
                "LayerNorm or GroupNorm in networks of your own, and here leave batch_norm out"
            )
        if self.dropout:
            raise ConfigError(f"dropout={self.dropout:g} is not available under node units; set it to 0")
        if self.patience is not None:
            raise ConfigError(
                "patience asks validation records after every epoch, which node units protect; drop it, or "
                "choose weights once with selection='private'"
            )
        if self.device == "cuda":
            raise ConfigError("private training runs on the CPU; pass device='cpu' or 'auto'")
        if self.mode == "paper" and (self.selection == "private" or self.private_metrics):
            raise ConfigError("papers select and report in the clear; drop selection and private_metrics")

    # -- what suits the unit -------------------------------------------------------------------------------

    @property
    def _on_records(self) -> bool:
        """Whether the unit protects the records that networks learn from."""
        return isinstance(self.protected_unit, NodeUnit)

    @property
    def _paper_on_records(self) -> bool:
        return self._on_records and self.mode == "paper"

    @property
    def _node_unit(self) -> NodeUnit:
        return cast(NodeUnit, self.protected_unit)

    @property
    def _normed(self) -> bool:
        return not self._on_records if self.batch_norm is None else self.batch_norm

    @property
    def _epochs(self) -> int:
        if self.epochs is not None:
            return self.epochs
        if self._on_records:
            return _PAPER_EPOCHS if self.mode == "paper" else _PRIVATE_EPOCHS
        return 100

    @property
    def _rate(self) -> float:
        if self.learning_rate is not None:
            return self.learning_rate
        return _PRIVATE_RATE if self._on_records and self.mode == "strict" else 0.01

    @property
    def _private_batch(self) -> int | None:
        paper = self._paper_on_records and self.batch_size is None
        return _PAPER_BATCH if paper else self.batch_size

    def _layers(self) -> dict[str, Any]:
        return {"activation": self.activation, "batch_norm": self._normed, "dropout": self.dropout}

    def _schedule(self, epochs: int) -> Schedule:
        return Schedule(
            epochs=epochs,
            learning_rate=self._rate,
            weight_decay=self.weight_decay,
            batch_size=self.batch_size,
            patience=self.patience,
        )

    def _private_schedule(self, epochs: int) -> PrivateSchedule:
        return PrivateSchedule(
            epochs=epochs,
            batch_size=self._private_batch,
            clip=self.clip,
            learning_rate=self._rate,
            weight_decay=self.weight_decay,
        )

    # -- training on records -------------------------------------------------------------------------------

    @abstractmethod
    def _record_plan(self, num_nodes: int, num_classes: int) -> RecordPlan:
        """Return what a fit asks of records."""

    def _plan(self, delta: float, num_nodes: int, num_classes: int) -> ReleasePlan:
        """Return the questions to records: calibrated jointly, or by the papers' accounting."""
        epsilon, unit = self._budgeted(), self.protected_unit
        asked = self._record_plan(num_nodes, num_classes)
        if self.mode == "strict":
            return calibrate_plan(unit, epsilon, delta, asked.queries, num_nodes=num_nodes)

        def event(multiplier: float) -> Event:
            return compose(*(query.event(unit) for query in asked.equal_queries(multiplier)))

        queries = asked.equal_queries(renyi.multiplier_of(epsilon, delta, event))
        return ReleasePlan(unit, queries, delta)

    def _training(self, epochs: int, num_nodes: int, parameters: int) -> Training:
        records = public_count(self._sizes, num_nodes)
        return Training(schedule=self._private_schedule(epochs), parameters=parameters, records=records)

    def _tallied(self, training: Training) -> int:
        """Return how many counts a selection asks for."""
        return self._candidates(training, final=True) if self.selection == "private" else 0

    def _candidates(self, training: Training, *, final: bool) -> int:
        """Return how many weights of a training are to be chosen from."""
        if self.mode == "paper":
            return min(training.schedule.epochs, training.steps)
        return min(_CANDIDATES, training.steps) if final and self.selection == "private" else 1

    def _train_on_records(
        self,
        stage: str,
        network: Trainable,
        inputs: Inputs,
        logits: Callable[[Tensor], Tensor],
        graph: Graph,
        training: Training,
        release: Release,
        context: Session,
        *,
        final: bool = False,
    ) -> None:
        """Train a network as the release's next question, and leave it with the weights that are kept.

        Args:
            logits: maps nodes to the network's logits.
            final: whether it is the one that predicts, and selection is about.
        """
        count = self._candidates(training, final=final)
        states = fit_records(stage, network, inputs, graph, training, release, context, candidates=count)
        nodes = members(graph, "val")
        if count == 1 or not len(nodes):
            return

        def correct(state: State) -> Tensor:
            network.load_state_dict(state)
            with torch.no_grad():
                return logits(nodes).argmax(dim=1) == graph.y[nodes]

        table = torch.stack([correct(state) for state in states], dim=1)
        exact = self.mode == "paper"  # one of its deviations
        best = int(table.sum(dim=0).argmax()) if exact else chosen_candidate(release, table)
        network.load_state_dict(states[best])

    def _close(self, release: Release, proba: Tensor, graph: Graph) -> None:
        """Release the accuracies that were planned, and publish."""
        if self.private_metrics:
            self.private_accuracy_ = released_accuracies(release, proba.argmax(dim=1), graph)
        release.close()

    def _check_graph(self, graph: Graph) -> None:
        super()._check_graph(graph)
        if self.selection == "private":
            check_members(graph, "val")

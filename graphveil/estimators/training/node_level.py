"""Training of a method's networks on protected records: settings, plan, and steps of each network."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from graphveil.core.accounting.gaussian import require_delta
from graphveil.core.events import Event, compose
from graphveil.core.features import rows
from graphveil.core.plan import ReleasePlan
from graphveil.core.release import Release
from graphveil.core.view import map_records
from graphveil.data import Graph
from graphveil.estimators.privacy_config import PrivacyConfig
from graphveil.estimators.public_sizes import PublicSizes, members
from graphveil.estimators.session import Session
from graphveil.estimators.training.dpsgd import DPSGDTraining, Inputs, PrivatelyTrainable, State, fit_dpsgd
from graphveil.estimators.training.objective import Objective
from graphveil.estimators.training.record_plan import RecordPlan, choose_candidate
from graphveil.privacy import renyi
from graphveil.training.heads import MULTICLASS, TaskHead

_CANDIDATES = 10  # number of checkpoints of a private selection

Select = Literal["last", "private", "exact"]


def plan_node_level(
    privacy_config: PrivacyConfig, record_plan: RecordPlan, sizes: PublicSizes
) -> ReleasePlan:
    """Return the queries of records, calibrated jointly or by the papers' accounting."""
    if not privacy_config.paper:
        return privacy_config.calibrated(sizes, record_plan.queries)
    unit, delta = privacy_config.unit, privacy_config.delta_for(sizes.nodes)
    require_delta(delta, "DPSGDQuery")

    def event(multiplier: float) -> Event:
        return compose(*(query.event(unit) for query in record_plan.equal_queries(multiplier)))

    queries = record_plan.equal_queries(renyi.multiplier_of(privacy_config.budget, delta, event))
    return ReleasePlan(unit, queries, delta)


@dataclass(frozen=True)
class CheckpointSelection:
    """The rule that selects a checkpoint of a training.

    ``"last"`` keeps the last one. ``"private"`` selects one of ten checkpoints of the predicting network by
    noisy counts of correct validation nodes, charged to validation records. ``"exact"`` is that of the
    papers: by exact counts after every epoch, which are not charged.
    """

    kind: Select

    def candidates(self, training: DPSGDTraining, *, final: bool) -> int:
        """Return the number of checkpoints of a training to select from."""
        if self.kind == "exact":
            return min(training.schedule.epochs, training.steps)
        return min(_CANDIDATES, training.steps) if final and self.kind == "private" else 1

    def num_counts(self, training: DPSGDTraining) -> int:
        """Return the number of noisy counts that the selection queries, for the predicting network."""
        return self.candidates(training, final=True) if self.kind == "private" else 0

    def chosen(self, release: Release, correct: Any) -> int:
        """Return the best candidate, from a table (M, candidates) of correct validation nodes."""
        return (
            int(correct.sum(dim=0).argmax()) if self.kind == "exact" else choose_candidate(release, correct)
        )


def fit_node_level(
    network: PrivatelyTrainable,
    inputs: Inputs,
    logits: Callable[..., Tensor],
    view: Graph,
    objective: Objective,
    training: DPSGDTraining,
    release: Release,
    session: Session,
    *,
    stage: str,
    selection: CheckpointSelection,
    final: bool = False,
    head: TaskHead = MULTICLASS,
) -> None:
    """Train a network as the release's next query, and load the selected parameters.

    Args:
        network: Network, trained in place.
        inputs: Inputs of all nodes, or blocks of columns.
        logits: Maps inputs of some nodes to the network's logits.
        view: Labels and split.
        objective: Class weights.
        training: Steps of this stage in the plan of the release.
        release: Open release with the steps as its next query.
        session: Progress and workspace.
        stage: Name for checkpoints and progress.
        selection: Rule that selects a checkpoint.
        final: Whether it is the network that predicts.
        head: Meaning of logits, and the labels to learn.
    """
    count = selection.candidates(training, final=final)
    targets = objective.clipped_targets(view, head)
    states = fit_dpsgd(stage, network, inputs, view, targets, training, release, session, candidates=count)
    nodes = members(view, "val")
    if count == 1 or not len(nodes):
        return

    blocks = [rows(each, nodes) for each in (inputs if isinstance(inputs, Sequence) else (inputs,))]

    def correct(state: State) -> Any:
        network.load_state_dict(state)
        with torch.no_grad():
            return map_records(lambda y, *own: logits(*own).argmax(dim=1) == y, rows(view.y, nodes), *blocks)

    table = map_records(lambda *each: torch.stack(each, dim=1), *map(correct, states))
    network.load_state_dict(states[selection.chosen(release, table)])

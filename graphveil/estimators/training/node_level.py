"""How a method's networks learn from protected records: settings, plan, and the steps of each network."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from graphveil.data import Graph
from graphveil.estimators.privacy_config import PrivacyConfig
from graphveil.estimators.public_sizes import members
from graphveil.estimators.session import Session
from graphveil.estimators.training.dpsgd import DPSGDTraining, Inputs, PrivatelyTrainable, State, fit_dpsgd
from graphveil.estimators.training.record_plan import RecordPlan, choose_candidate
from graphveil.privacy import Event, compose, renyi
from graphveil.privacy.gaussian import require_delta
from graphveil.release import Release, ReleasePlan, calibrate_plan

_CANDIDATES = 10  # weights that a private selection chooses from

Select = Literal["last", "private", "exact"]


def plan_node_level(privacy_config: PrivacyConfig, record_plan: RecordPlan, nodes: int) -> ReleasePlan:
    """Return the questions to records: calibrated jointly, or by the papers' accounting."""
    unit, delta = privacy_config.unit, privacy_config.delta_for(nodes)
    if not privacy_config.paper:
        return calibrate_plan(unit, privacy_config.budget, delta, record_plan.queries, num_nodes=nodes)

    require_delta(delta, "DPSGDQuery")

    def event(multiplier: float) -> Event:
        return compose(*(query.event(unit) for query in record_plan.equal_queries(multiplier)))

    queries = record_plan.equal_queries(renyi.multiplier_of(privacy_config.budget, delta, event))
    return ReleasePlan(unit, queries, delta)


@dataclass(frozen=True)
class CheckpointSelection:
    """Which of a training's weights are kept.

    ``"last"`` keeps the last. ``"private"`` chooses among ten of the network that predicts by noisy counts of
    correct validation nodes, for which validation records pay. ``"exact"`` is the papers': by exact counts
    after every epoch, for which nobody pays.
    """

    kind: Select

    def candidates(self, training: DPSGDTraining, *, final: bool) -> int:
        """Return how many weights of a training are to be chosen from."""
        if self.kind == "exact":
            return min(training.schedule.epochs, training.steps)
        return min(_CANDIDATES, training.steps) if final and self.kind == "private" else 1

    def num_counts(self, training: DPSGDTraining) -> int:
        """Return how many noisy counts the selection asks for, of the training that predicts."""
        return self.candidates(training, final=True) if self.kind == "private" else 0

    def chosen(self, release: Release, correct: Tensor) -> int:
        """Return the best candidate, from a table (M, candidates) of correct validation nodes."""
        return (
            int(correct.sum(dim=0).argmax()) if self.kind == "exact" else choose_candidate(release, correct)
        )


def fit_node_level(
    network: PrivatelyTrainable,
    inputs: Inputs,
    logits: Callable[[Tensor], Tensor],
    graph: Graph,
    training: DPSGDTraining,
    release: Release,
    session: Session,
    *,
    stage: str,
    selection: CheckpointSelection,
    final: bool = False,
) -> None:
    """Train a network as the release's next question, and leave it with the weights that are kept.

    Args:
        network: trained in place.
        inputs: a row for every node, or blocks of them.
        logits: maps nodes to the network's logits.
        graph: labels and split.
        training: what the plan of the release has for this stage.
        release: open, with the steps as its next question.
        session: progress and workspace.
        stage: what checkpoints and progress call it.
        selection: which weights are kept.
        final: whether it is the network that predicts.
    """
    count = selection.candidates(training, final=final)
    states = fit_dpsgd(stage, network, inputs, graph, training, release, session, candidates=count)
    nodes = members(graph, "val")
    if count == 1 or not len(nodes):
        return

    def correct(state: State) -> Tensor:
        network.load_state_dict(state)
        with torch.no_grad():
            return logits(nodes).argmax(dim=1) == graph.y[nodes]

    table = torch.stack([correct(state) for state in states], dim=1)
    network.load_state_dict(states[selection.chosen(release, table)])

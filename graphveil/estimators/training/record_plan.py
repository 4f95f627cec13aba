"""Training of a method's networks on protected records: one budget over its queries, and their execution.

The queries are training steps, hops, and counts of correct predictions.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from graphveil.core.features import rows
from graphveil.core.queries.neighbor_sums import GroupWeights, NeighborSumQuery
from graphveil.core.queries.out_edge_sums import OutEdgeSumQuery
from graphveil.core.queries.record_counts import (
    AccuracyCountData,
    AccuracyCountQuery,
    OutcomeCountData,
    OutcomeCountQuery,
    RecordHistogramData,
    RecordHistogramQuery,
)
from graphveil.core.query import Query
from graphveil.core.release import Release
from graphveil.core.unit import NodeRecord, NodeUnit
from graphveil.core.view import map_records
from graphveil.data import Graph
from graphveil.data.tables.encoding import UNLABELED
from graphveil.estimators.objective import Objective
from graphveil.estimators.public_sizes import GROUPS, OTHER, PARTITION, VAL, members
from graphveil.estimators.session import Session
from graphveil.estimators.training.dpsgd import DPSGDTraining, Inputs, PrivatelyTrainable, State, fit_dpsgd
from graphveil.training.heads import MULTICLASS, TaskHead
from graphveil.training.metrics import PrivateMetrics, cells_of, histogram_cells, private_metrics

_ACCURACY_GROUPS = {
    "val": VAL,
    "test": OTHER,
}  # parts of the split whose accuracy can be released, and their groups


@dataclass(frozen=True, kw_only=True)
class RecordPlan:
    """The queries of records of a method, and the division of the budget over them.

    In order: the first training if there are two, the hops, the last training, the counts for a selection,
    the counts of the validation and of the test accuracy, and a histogram of test nodes. At a scale m each
    training costs mu = m sqrt(share), and the hops together what remains of m^2. Records outside of training
    are not charged for the trainings, so this part of their budget is used for the counts about them.

    Args:
        unit: Node-level unit.
        trainings: One or two, the last of them after the hops.
        shares: Shares of mu^2, one per training.
        multiplier: Noise multiplier of all trainings instead; the scale is then the hops' mu.
        hops: K.
        dim: Width of the aggregates.
        out_degree_bound: D, for unit ``node-record``.
        candidates: Number of counts of correct validation nodes for a selection; 0 for none.
        classes: C.
        metrics: Whether accuracies and other metrics are released.
    """

    unit: NodeUnit
    trainings: tuple[DPSGDTraining, ...]
    shares: tuple[float, ...]
    multiplier: float | None = None
    hops: int = 0
    dim: int = 1
    out_degree_bound: int | None = None
    candidates: int = 0
    classes: int = 2
    metrics: bool = False

    def queries(self, scale: float) -> tuple[Query, ...]:
        """Return the queries; a larger scale has a higher privacy cost."""
        steps = [
            training.query(self.multiplier or training.multiplier(scale * math.sqrt(share), self.unit))
            for training, share in zip(self.trainings, self.shares, strict=True)
        ]
        spare = math.hypot(
            *(
                training.mu(query.noise_multiplier, self.unit)
                for training, query in zip(self.trainings, steps, strict=True)
            )
        )
        left = scale if self.multiplier else scale * math.sqrt(1 - sum(self.shares))
        counts = list[Query]()
        if self.candidates:  # the selection, which is charged to validation records with their accuracy
            mu = spare / math.sqrt(2 if self.metrics else 1)
            counts.append(
                AccuracyCountQuery(
                    candidates=self.candidates,
                    sigma=math.sqrt(self.candidates) / mu,
                    partition=PARTITION,
                    pays=_only(VAL),
                )
            )
        if self.metrics:
            val_mu = spare / math.sqrt(2 if self.candidates else 1)
            counts += metric_queries(self.unit, self.classes, val_mu, spare)
        return (*steps[:-1], *self._hops(left), *steps[-1:], *counts)

    def _hops(self, mu: float) -> tuple[Query, ...]:
        if not self.hops:
            return ()
        sigma = math.sqrt(self.hops) / mu  # for sensitivity one
        if isinstance(self.unit, NodeRecord):
            push = OutEdgeSumQuery(
                dim=self.dim, sigma=sigma * self.unit.change, out_degree_bound=self.out_degree_bound or 1
            )
            return (push,) * self.hops
        weights = GroupWeights.unit_weights()
        return (NeighborSumQuery(weights, (sigma * weights.sensitivity(self.unit),), self.dim),) * self.hops


def accuracy_count_query(unit: NodeUnit, group: int, mu: float) -> OutcomeCountQuery:
    """Return the query for a released accuracy, which costs the records of a group this mu."""
    change = OutcomeCountQuery(sigma=1.0).sensitivity(unit)
    return OutcomeCountQuery(sigma=change / mu, partition=PARTITION, pays=_only(group))


def metric_queries(unit: NodeUnit, classes: int, val_mu: float, test_mu: float) -> tuple[Query, ...]:
    """Return the queries for released metrics: accuracies, and a histogram of test nodes.

    Args:
        unit: Node-level unit.
        classes: C.
        val_mu: Cost for validation records.
        test_mu: Cost for test records. Both queries about them have half of its square.

    >>> [query.kind for query in metric_queries(NodeRecord(), 2, 0.1, 0.1)]
    ['outcomes', 'outcomes', 'histogram']
    """
    cells = histogram_cells(classes)
    part = test_mu / math.sqrt(2) if cells else test_mu
    accuracies = accuracy_count_query(unit, VAL, val_mu), accuracy_count_query(unit, OTHER, part)
    if not cells:
        return accuracies
    change = RecordHistogramQuery(cells=cells, sigma=1.0).sensitivity(unit)
    histogram = RecordHistogramQuery(cells=cells, sigma=change / part, partition=PARTITION, pays=_only(OTHER))
    return (*accuracies, histogram)


def _only(group: int) -> tuple[bool, ...]:
    return tuple(group == other for other in range(GROUPS))


def release_accuracies(release: Release, proba: Any, view: Graph) -> dict[str, float]:
    """Return the accuracy on validation and test nodes from noisy counts, the release's next two queries.

    Only nodes with a label count. The number of labels is private, so both correct and wrong predictions are
    counted. The number of members is public and bounds their sum.
    """
    found = {}
    for split in _ACCURACY_GROUPS:
        nodes = members(view, split)
        own = rows(proba, nodes), rows(view.y, nodes)
        correct = map_records(lambda proba, y: proba.argmax(dim=1) == y, *own)
        wrong = map_records(lambda y, correct: (y != UNLABELED) & ~correct, own[1], correct)
        counts = release.answer(OutcomeCountData(correct, wrong))
        found[split] = accuracy_from_counts(counts, len(nodes))
    return found


def release_histogram(release: Release, query: RecordHistogramQuery, proba: Any, view: Graph) -> Tensor:
    """Return the noisy histogram of test nodes, (C, columns), the next answer of the release."""
    nodes, classes = members(view, "test"), proba.shape[1]
    cells = map_records(cells_of, rows(view.y, nodes), rows(proba, nodes))
    return release.answer(RecordHistogramData(cells)).reshape(classes, query.cells // classes)


def release_metrics(
    release: Release, proba: Any, view: Graph, session: Session, objective: Objective
) -> tuple[dict[str, float], PrivateMetrics | None]:
    """Release metrics of predictions by the remaining queries of the session's plan.

    Returns:
        Accuracies by part of the split, and metrics of test nodes; None for very many classes.
    """
    assert session.plan is not None  # a release has one
    accuracy = release_accuracies(release, proba, view)
    *_, outcomes, histogram = session.plan.queries
    if not isinstance(histogram, RecordHistogramQuery) or not isinstance(outcomes, OutcomeCountQuery):
        return accuracy, None
    found = private_metrics(
        release_histogram(release, histogram, proba, view),
        histogram.sigma,
        (accuracy["test"], outcomes.sigma),
        len(members(view, "test")),
        view.class_names,
        session.streams.numpy("private-metrics"),
        objective.positive_number,
    )
    return accuracy, found


def accuracy_from_counts(counts: Tensor, most: int) -> float:
    """Return the accuracy from noisy counts of correct and wrong predictions, with a bound on their sum.

    >>> accuracy_from_counts(torch.tensor([30.0, 10.0]), 50), accuracy_from_counts(torch.tensor([3.0, -9.0]),
    ...     50)
    (0.75, 1.0)
    """
    correct, wrong = map(float, counts)
    labeled = min(max(1.0, correct + wrong), max(1, most))
    return min(1.0, max(0.0, correct / labeled))


_CANDIDATES = 10  # number of checkpoints of a private selection

Select = Literal["last", "private"]


@dataclass(frozen=True)
class CheckpointSelection:
    """The rule that selects a checkpoint of a training.

    ``"last"`` keeps the last one. ``"private"`` selects one of ten checkpoints of the predicting network by
    noisy counts of correct validation nodes, charged to validation records.
    """

    kind: Select

    def candidates(self, training: DPSGDTraining, *, final: bool) -> int:
        """Return the number of checkpoints of a training to select from."""
        return min(_CANDIDATES, training.steps) if final and self.kind == "private" else 1

    def num_counts(self, training: DPSGDTraining) -> int:
        """Return the number of noisy counts that the selection queries, for the predicting network."""
        return self.candidates(training, final=True) if self.kind == "private" else 0

    def chosen(self, release: Release, correct: Any) -> int:
        """Return the candidate with the largest noisy count of a table (M, candidates), the next query."""
        return int(torch.argmax(release.answer(AccuracyCountData(correct))))


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

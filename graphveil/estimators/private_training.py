"""Training on protected records: its queries, their privacy cost, and their execution.

Under node-level units each node is in one public group, and only the records of training nodes are charged
for training. Membership is public, labels are not. A training node without a label is a null record, which
takes part in every batch and contributes nothing.

``DPSGDTraining`` and ``fit_dpsgd`` train any network by DP-SGD. ``RecordPlan`` divides one budget over the
trainings, hops and counts of correct predictions of a method. ``fit_softmax`` trains a softmax regression:
with a small budget, a linear model of rows with equal norm is most accurate. The noise in a logit depends on
the norm of the row, not on the number of features, and every step is one exact Gaussian.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor, nn

from graphveil.core.clipping.clipped_sums import ClippedSum
from graphveil.core.clipping.dpsgd import PrivateSchedule, clipped_sum
from graphveil.core.clipping.ghost_modules import Affine
from graphveil.core.features import Features, ProtectedRows, rows
from graphveil.core.queries.neighbor_sums import GroupWeights, NeighborSumQuery
from graphveil.core.queries.out_edge_sums import OutEdgeSumQuery
from graphveil.core.queries.projected_sums import DegreeHIndexQuery, ProjectedSumQuery
from graphveil.core.queries.record_counts import (
    OutcomeCountData,
    OutcomeCountQuery,
    RecordHistogramData,
    RecordHistogramQuery,
)
from graphveil.core.queries.training_steps import DPSGDData, DPSGDQuery
from graphveil.core.query import Query
from graphveil.core.release import Release
from graphveil.core.unit import Node, NodeRecord, NodeUnit
from graphveil.core.view import map_records
from graphveil.data import Graph
from graphveil.data.tables.encoding import UNLABELED
from graphveil.estimators.objective import Objective
from graphveil.estimators.public_sizes import GROUPS, OTHER, PARTITION, TRAIN, VAL, members, training_groups
from graphveil.estimators.session import Session
from graphveil.nn.hops import Encoder, HopClassifier
from graphveil.nn.layers import FeedForward
from graphveil.training import State, copied_state
from graphveil.training.heads import MULTICLASS, TaskHead
from graphveil.training.metrics import PrivateMetrics, cells_of, histogram_cells, private_metrics


def count_parameters(*widths: int) -> int:
    """Return the number of parameters of affine maps between these widths.

    >>> count_parameters(3, 2, 1)
    11
    """
    return sum((inputs + 1) * outputs for inputs, outputs in pairwise(widths))


@dataclass(frozen=True, kw_only=True)
class DPSGDTraining:
    """The noisy steps that train one network, before their noise multiplier is chosen."""

    schedule: PrivateSchedule
    parameters: int
    records: int
    rate: float = field(init=False)  # q
    steps: int = field(init=False)  # T

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", self.schedule.sampling_rate(self.records))
        object.__setattr__(self, "steps", self.schedule.steps(self.records))

    @classmethod
    def for_module(cls, module: nn.Module, schedule: PrivateSchedule, records: int) -> "DPSGDTraining":
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
        if self.rate == 1:
            return unit.change * math.sqrt(self.steps) / multiplier
        return self.rate * math.sqrt(self.steps * math.expm1((unit.change / multiplier) ** 2))

    def query(self, multiplier: float) -> DPSGDQuery:
        return DPSGDQuery(
            parameters=self.parameters,
            steps=self.steps,
            noise_multiplier=multiplier,
            sampling_rate=self.rate,
            clip=self.schedule.clip,
            partition=PARTITION,
            pays=_only(TRAIN),
        )


def fit_dpsgd(
    stage: str,
    network: nn.Module,
    sums: Callable[[], ClippedSum],
    training: DPSGDTraining,
    release: Release,
    context: Session,
    *,
    fingerprint: Sequence[Tensor] = (),
    candidates: int = 1,
) -> list[State]:
    """Train a network on sums of clipped gradients, as the release's next query.

    A resumed fit continues with the same initial parameters, batches and noise. Results are bit-identical.

    Args:
        network: Holds the parameters; it has the last ones afterwards.
        sums: Returns the sums at the network's current parameters.
        fingerprint: Public fingerprint of the code that computes gradients.

    Returns:
        Parameters of equidistant checkpoints, the last ones last.
    """
    # Stored in the workspace: the release binds its noise to the initial parameters of the steps, and to
    # the configuration: other rates or another network would draw the same noise for other gradients.
    start = context.load_or_compute(f"{stage}-start", lambda: copied_state(network))
    network.load_state_dict(start)
    configured = torch.frombuffer(bytearray(context.configuration.encode() or b"-"), dtype=torch.uint8)
    ordered = [start[name] for name in network.state_dict()]  # files store them in another order
    gradients = sums()
    marks = [k * training.steps // candidates for k in range(1, candidates)]
    kept: dict[int, State] = {}

    def passed(done: int) -> None:
        context.on_progress(stage, done, training.steps)
        if done in marks:
            gradients.store()
            kept[done] = context.load_or_compute(f"{stage}-{done}", lambda: copied_state(network))

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
    # From this process, or from the workspace of a resumed run.
    states = [kept.get(mark) or context.load_or_compute(f"{stage}-{mark}", dict) for mark in marks]
    return [*states, copied_state(network)]


def full_batch_steps(
    parameters: int, steps: int, noise_multiplier: float, *, metrics: bool, clip: float = 1.0
) -> DPSGDQuery:
    """Return noisy steps on all records of the training groups at once."""
    return DPSGDQuery(
        parameters=parameters,
        steps=steps,
        noise_multiplier=noise_multiplier,
        clip=clip,
        partition=PARTITION,
        pays=training_groups(metrics=metrics),
    )


# -- one budget over the queries of a method ----------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RecordPlan:
    """The queries of records of a method, and the division of the budget over them.

    In order: the first training if there are two, the hops, the last training, the counts of the validation
    and of the test accuracy, and a histogram of test nodes. At a scale m each
    training costs mu = m sqrt(share), and the hops together what remains of m^2. Records outside of training
    are not charged for the trainings, so this part of their budget is used for the counts about them.

    Args:
        nodes, delta: Public number of nodes, and delta of the release: hops under unit ``node`` need them.
        multiplier: Noise multiplier of all trainings instead; the scale is then the hops' mu.
    """

    unit: NodeUnit
    trainings: tuple[DPSGDTraining, ...]
    shares: tuple[float, ...]
    multiplier: float | None = None
    hops: int = 0
    dim: int = 1
    nodes: int = 1
    delta: float = 0.0
    out_degree_bound: int | None = None
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
        bound = self._degree_bound(scale)
        shares = DEGREE_SHARE * len(bound) + (0.0 if self.multiplier else sum(self.shares))
        left = scale * math.sqrt(1 - shares)
        counts = metric_queries(self.unit, self.classes, spare) if self.metrics else ()
        return (*steps[:-1], *bound, *self._hops(left), *steps[-1:], *counts)

    def _degree_bound(self, scale: float) -> tuple[Query, ...]:
        known = isinstance(self.unit, Node) and self.hops
        return (degree_query(scale, self.delta),) if known else ()

    def _hops(self, mu: float) -> tuple[Query, ...]:
        if not self.hops:
            return ()
        if isinstance(self.unit, Node):
            each = mu / math.sqrt(self.hops)
            return (projected_sum(self.unit, self.nodes, self.dim, each),) * self.hops
        sigma = math.sqrt(self.hops) / mu  # for sensitivity one
        if isinstance(self.unit, NodeRecord):
            push = OutEdgeSumQuery(
                dim=self.dim, sigma=sigma * self.unit.change, out_degree_bound=self.out_degree_bound or 1
            )
            return (push,) * self.hops
        weights = GroupWeights.unit_weights()
        return (NeighborSumQuery(weights, (sigma * weights.sensitivity(self.unit),), self.dim),) * self.hops


DEGREE_SHARE = 0.02  # of mu^2, for the noisy h-index of the degrees
_FAILURE_SHARE = 0.1  # of delta, for a degree bound that is too small
RADIUS = 2.0  # of projected sums: 1.5 and 3 were less accurate on Berkeley13 and Photo


def degree_query(mu: float, delta: float) -> DegreeHIndexQuery:
    """Return the query of the degree bound, for a total mu and the delta of the release."""
    sigma = 1 / (mu * math.sqrt(DEGREE_SHARE))
    return DegreeHIndexQuery(sigma=sigma, failure=_FAILURE_SHARE * delta)


def projected_sum(unit: Node, nodes: int, dim: int, mu: float) -> ProjectedSumQuery:
    """Return the query of projected sums of ``dim`` numbers per node that costs this mu."""
    bits = ProjectedSumQuery.grid_for(nodes, dim)
    one = ProjectedSumQuery(dim=dim, sigma=1.0, radius=RADIUS, grid_bits=bits)
    return replace(one, sigma=one.sensitivity(unit) / mu)


def accuracy_count_query(unit: NodeUnit, group: int, mu: float) -> OutcomeCountQuery:
    """Return the query for a released accuracy, which costs the records of a group this mu."""
    change = OutcomeCountQuery(sigma=1.0).sensitivity(unit)
    return OutcomeCountQuery(sigma=change / mu, partition=PARTITION, pays=_only(group))


def metric_queries(unit: NodeUnit, classes: int, mu: float) -> tuple[Query, ...]:
    """Return the queries for released metrics: accuracies, and a histogram of test nodes.

        mu: Cost for validation records, and for test records. Both queries about these have half of its
            square.

    >>> [query.kind for query in metric_queries(NodeRecord(), 2, 0.1)]
    ['outcomes', 'outcomes', 'histogram']
    """
    cells = histogram_cells(classes)
    part = mu / math.sqrt(2) if cells else mu
    accuracies = accuracy_count_query(unit, VAL, mu), accuracy_count_query(unit, OTHER, part)
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
    for split in ("val", "test"):
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


def fit_node_level(
    network: FeedForward | Encoder | HopClassifier,
    inputs: Features | ProtectedRows | Sequence[Any],
    view: Graph,
    objective: Objective,
    training: DPSGDTraining,
    release: Release,
    session: Session,
    *,
    stage: str,
    head: TaskHead = MULTICLASS,
    candidates: int = 1,
) -> list[State]:
    """Train a network as the release's next query, and return parameters as ``fit_dpsgd`` does."""
    nodes = members(view, "train")
    records = [rows(each, nodes) for each in inputs] if isinstance(inputs, Sequence) else rows(inputs, nodes)
    labels = rows(objective.clipped_targets(view, head), nodes)
    return fit_dpsgd(
        stage,
        network,
        lambda: clipped_sum(network.ghost(), records, labels),
        training,
        release,
        session,
        candidates=candidates,
    )


# -- softmax regression -------------------------------------------------------------------------------------

Matrix = npt.NDArray[np.float64]
OnStep = Callable[[int], None]

STEPS = 60
ROW_NORM = 5.0
_RATE, _USUAL, _POWER = 5.0, 900.0, 1.1
_SLOWEST, _FASTEST, _CROWDED = 2.0, 80.0, 20.0


@dataclass(frozen=True)
class NoisySoftmax:
    """A linear classifier of scaled features, and the public noise of its parameters.

    Shapes: ``weights`` (f + 1, C), the last row the bias.
    """

    weights: Tensor
    weight_noise: float

    def state(self) -> State:
        return {"encoder": self.weights, "noise": torch.tensor(self.weight_noise, dtype=torch.float64)}

    @classmethod
    def restore(cls, state: State) -> "NoisySoftmax":
        return cls(state["encoder"], float(state["noise"]))

    def log_posteriors(self, x: Features) -> Tensor:
        """Return log-posteriors (N, C), float64: logits shrunk by the variance from the parameters' noise.

        A logit's noise has standard deviation sqrt(|x|^2 + 1) s_w; the mean of a softmax over it is close
        to the softmax of the logits divided by sqrt(1 + pi/8 (|x|^2 + 1) s_w^2).
        """
        inputs, weights = scaled_rows(x), self.weights.numpy()
        logits = inputs @ weights[:-1] + weights[-1]
        lengths = inputs * inputs if isinstance(inputs, np.ndarray) else inputs.multiply(inputs)
        variance = (np.asarray(lengths.sum(axis=1)).ravel() + 1) * self.weight_noise**2
        shrunk = logits / np.sqrt(1 + math.pi / 8 * variance)[:, None]
        return torch.from_numpy(shrunk).log_softmax(dim=1)


def softmax_schedule(
    noise_multiplier: float, records: int, features: int, steps: int = STEPS
) -> PrivateSchedule:
    """Return the schedule; the step size is a function of the noise multiplier and public sizes.

    rate = max(2, min(5 (m / 900)^1.1, 80, 20 n / f)) with m = n sqrt(T) / z, the descent's mu times the n
    records, and f features. With few records per feature, long steps memorize records and noise.

    >>> [round(softmax_schedule(z, 14000, 500).learning_rate, 1) for z in (28.9, 8.37, 2.67)]
    [24.0, 80.0, 80.0]
    """
    loudness = records * math.sqrt(steps) / noise_multiplier
    fastest = min(_FASTEST, _CROWDED * records / features)
    rate = max(_SLOWEST, min(_RATE * math.pow(loudness / _USUAL, _POWER), fastest))
    return PrivateSchedule.full_batch(steps=steps, learning_rate=rate)


def fit_softmax(
    release: Release,
    query: DPSGDQuery,
    records: Any,
    labels: Any,
    classes: int,
    schedule: PrivateSchedule,
    *,
    on_step: OnStep = lambda done: None,
) -> NoisySoftmax:
    """Train as the release's next query, from parameters of zero.

    Args:
        labels: Their classes (n); a member without a label (-1) is a null record.
    """
    start = torch.zeros(records.shape[1] + 1, classes, dtype=torch.float64)
    inputs = map_records(scaled_inputs, records)
    weights = descend_softmax(release, inputs, labels, start, schedule, on_step=on_step)
    return NoisySoftmax(weights, query.noise_multiplier / len(labels) * schedule.averaged_noise)


def descend_softmax(
    release: Release,
    inputs: Any,
    labels: Any,
    start: Tensor,
    schedule: PrivateSchedule,
    *,
    on_step: OnStep = lambda done: None,
) -> Tensor:
    """Return parameters (f + 1, C) of a linear classifier of inputs (n, f), the release's next result."""
    weight, bias = start[:-1].clone(), start[-1].clone()
    gradients = clipped_sum(Affine(weight, bias), inputs, labels)
    settings = (weight, bias)
    data = DPSGDData(gradients=gradients, schedule=schedule, settings=settings, on_step=on_step)
    gradients.store(release.answer(data))
    return torch.cat([weight, bias[None]])


def scaled_inputs(x: Features) -> Features:
    rows = scaled_rows(x)
    return torch.from_numpy(rows) if isinstance(rows, np.ndarray) else cast(Features, rows)


def scaled_rows(x: Features) -> Matrix | sparse.csr_array[np.float64]:
    """Return the features in float64 with every row scaled to norm 5, independently; zeros stay.

    >>> scaled_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[3.0, 4.0], [0.0, 0.0]]
    """
    if isinstance(x, Tensor):
        dense = x.to(torch.float64, copy=True).numpy()
        dense *= _scales(np.einsum("nf,nf->n", dense, dense))[:, None]  # in place: they may be large
        return dense
    rows = x.astype(np.float64)
    scales = _scales(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    values = rows.data * np.repeat(scales, np.diff(rows.indptr))
    return sparse.csr_array((values, rows.indices, rows.indptr), shape=rows.shape)


def _scales(squared: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.divide(ROW_NORM, np.sqrt(squared), out=np.zeros_like(squared), where=squared > 0)

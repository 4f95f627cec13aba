"""Canaries in whole runs: random edges or records of a training run, and many records of local mechanisms.

*Training.* Edges or records are in by a coin, and guessed from the outputs of one run. The lower bound is
valid for any mechanism, since only the coins are assumed. It is weak where noise is large: compare it with
the maximum certifiable epsilon. ``audit_plan`` gives larger bounds for single queries.

*Local mechanisms.* Records are of the two worst kinds, and reports are counted exactly.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.audit.bounds import (
    CONFIDENCE,
    LowerBound,
    _check_confidence,
    counted_runs,
    odds_of_runs,
    one_run,
    one_run_gaussian,
    repeated_runs,
)
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.unit import NodeUnit
from graphveil.data import Graph
from graphveil.errors import ConfigError
from graphveil.estimators.base import Estimator
from graphveil.mechanisms import FeatureMechanism, FeatureRR, LabelMechanism, LocalNoise, MultiBit

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Split = Callable[[Graph], Graph]
_GUESSED = 0.2  # share of the canaries to guess: those with the most extreme scores


@dataclass(frozen=True, eq=False)
class CanaryGraph:
    """A graph with canaries: which are included, and where each is.

    Args:
        query_graph: Graph whose predictions are scored: for edges the same, for records with all of them
            included.
        places: An edge's two ends (m, 2), or a record's node (m,).
    """

    graph: Graph
    query_graph: Graph
    places: npt.NDArray[np.int64]
    present: Bools


Score = Callable[[Estimator, CanaryGraph], Floats]


def insert_edges(graph: Graph, count: int, rng: np.random.Generator) -> CanaryGraph:
    """Let fair coins decide about random node pairs without common ends, edges or not.

    In tables each canary is the only row of a random person, to a random far end.
    """
    sources, targets = graph.adjacency.edge_index().numpy()
    if graph.num_far_ends:
        owners, present = _persons(graph, count, rng), rng.random(count) < 0.5
        ends = np.stack([owners, graph.num_nodes + rng.integers(graph.num_far_ends, size=count)], axis=1)
        replaced = np.isin(sources, owners)
    else:
        if 2 * count > graph.num_nodes:
            raise ConfigError(
                f"{count} canary edges need {2 * count} distinct nodes, but the graph has "
                f"{graph.num_nodes}. Use fewer canaries."
            )
        ends = rng.permutation(graph.num_nodes)[: 2 * count].reshape(count, 2)
        present = rng.random(count) < 0.5
        low, high = np.minimum(sources, targets), np.maximum(sources, targets)
        slots = ends.min(axis=1) * graph.num_nodes + ends.max(axis=1)
        replaced = np.isin(low * graph.num_nodes + high, slots)
    rest = np.stack([sources, targets], axis=1)[~replaced]
    with_canaries = _with_edges(graph, *np.concatenate([rest, ends[present]]).T)
    return CanaryGraph(with_canaries, with_canaries, ends, present)


def insert_records(graph: Graph, count: int, rng: np.random.Generator) -> CanaryGraph:
    """Give random nodes a random label and no edges; coins decide whether their labels are removed.

    In tables each has one row, to a far end that few of them share, which is removed with the label.
    """
    places = _persons(graph, count, rng)
    present, labels = rng.random(count) < 0.5, graph.y.clone()
    labels[torch.from_numpy(places)] = torch.from_numpy(rng.integers(graph.num_classes, size=count))
    sources, targets = graph.adjacency.edge_index().numpy()
    kept = ~(np.isin(sources, places) | np.isin(targets, places))
    rest, own = np.stack([sources[kept], targets[kept]], axis=1), np.empty((0, 2), dtype=np.int64)
    if graph.num_far_ends:
        own = np.stack([places, graph.num_nodes + np.arange(count) % graph.num_far_ends], axis=1)
    every = _with_edges(graph, *np.concatenate([rest, own]).T).replace(y=labels)
    nulled = labels.clone()
    nulled[torch.from_numpy(places[~present])] = -1
    some = _with_edges(graph, *np.concatenate([rest, own[present[: len(own)]]]).T)
    return CanaryGraph(some.replace(y=nulled), every, places, present)


def _persons(graph: Graph, count: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    if count > graph.num_nodes:
        raise ConfigError(
            f"{count} canary records need as many nodes, but the graph has {graph.num_nodes}. Use "
            "fewer canaries."
        )
    return rng.permutation(graph.num_nodes)[:count]


def _with_edges(graph: Graph, sources: npt.NDArray[np.int64], targets: npt.NDArray[np.int64]) -> Graph:
    count, directed = graph.adjacency.num_nodes, graph.directed
    return graph.replace(adjacency=Adjacency.from_edges(sources, targets, num_nodes=count, directed=directed))


def from_predictions(model: Estimator, inserted: CanaryGraph) -> Floats:
    """Return the likelihood of a record's label, the similarity of two ends, or the certainty of an owner."""
    proba, places = model.fitted.own_proba.to(torch.float64).numpy(), inserted.places
    if places.ndim == 1:
        return np.asarray(proba[places, inserted.query_graph.y.numpy()[places]])
    if inserted.graph.num_far_ends:
        return np.asarray(proba[places[:, 0]].max(axis=1))
    return np.asarray((proba[places[:, 0]] * proba[places[:, 1]]).sum(axis=1))


@dataclass(frozen=True, eq=False)
class TrainingAudit:
    """Lower bounds from one training run with canaries.

    Args:
        gaussian: Bound for Gaussian claims, if the plan's cost is one mu; else None.
    """

    bound: LowerBound
    gaussian: LowerBound | None
    canaries: int
    guesses: int
    correct: int
    claimed: float

    @property
    def is_valid(self) -> bool:
        found = [self.bound.epsilon, 0.0 if self.gaussian is None else self.gaussian.epsilon]
        return max(found) <= self.claimed


@checked
def audit_training(
    model: Estimator,
    graph: Graph,
    *,
    split: Split,
    canaries: int = 200,
    score: Score = from_predictions,
    seed: int = 0,
    confidence: float = CONFIDENCE,
    **fit: Any,
) -> TrainingAudit:
    """Insert canaries at random, fit once, guess the canaries from the model's outputs, and bound epsilon.

    Under edge-level privacy units canaries are node pairs, under node-level ones records of the training
    part; in tables, the only row of a person, or a person with one row. A fifth of them is guessed: those
    with the highest scores as included, with the lowest as left out.

    Args:
        model: Estimator to fit.
        graph: Graph without a split.
        split: Function that splits the graph with the canaries.
        canaries: Number of canaries.
        score: Function that scores canaries, higher for included ones; by default from predictions.
        seed: Seed of the canaries' places and coins.
        confidence: Confidence of each bound.
        fit: Further keywords of ``model.fit``.

    Returns:
        The bounds and the claimed epsilon.

    Raises:
        ConfigError: If the graph has too few nodes for the canaries.

    Privacy:
        Unit: that of the model. Reads: the graph, with canaries. Charges: the fit, like any other. The
        result is internal if the graph is protected.
    """
    checks.integer_at_least(10, canaries=canaries)
    checks.integer_at_least(0, seed=seed)
    rng, records = np.random.default_rng(seed), isinstance(model.protected_unit, NodeUnit)
    inserted = (insert_records if records else insert_edges)(graph, canaries, rng)
    ready = split(inserted.graph)
    if records:
        assert ready.train_mask is not None
        trained = ready.train_mask.numpy()[inserted.places]
        places, present = inserted.places[trained], inserted.present[trained]
        inserted = replace(inserted, graph=ready, places=places, present=present)
    model.fit(ready, **fit)
    scores, present = score(model, inserted), inserted.present
    count = len(scores)
    each = max(1, int(_GUESSED * count) // 2)  # of a public number, so the guesses are fixed beforehand
    order = np.argsort(scores, kind="stable")
    correct = int(present[order[-each:]].sum() + (~present[order[:each]]).sum())
    guarantee, plan = model.fitted.guarantee, model.fitted.plan
    delta = guarantee.delta or 1e-5
    bound, gaussian = (
        kind(count, 2 * each, correct, delta=delta, confidence=confidence)
        for kind in (one_run, one_run_gaussian)
    )
    has_mu = plan is None or plan.mu
    return TrainingAudit(
        bound, gaussian if has_mu else None, count, 2 * each, correct, claimed=guarantee.epsilon
    )


NUM_RECORDS = 1 << 18
_NUMBERS = 1 << 22  # of features that are drawn at a time
_MIN_REPORTS, MAX_REPORTS = 1 << 16, 1 << 28  # features of one law, on either side
_NEEDED, _NEEDED_OF_BITS = 4000, 1700  # over epsilon squared: for a bound some 8 % below
_MAX_LAWS = 4
_MAX_RECORDS = 1 << 32


@checked
def audit_label_mechanism(
    mechanism: LabelMechanism,
    *,
    num_records: int = NUM_RECORDS,
    confidence: float = CONFIDENCE,
    noise: LocalNoise | None = None,
) -> LowerBound:
    """Compute a lower bound on the epsilon of a label mechanism, from records of class 0 and of class 1.

    The event is "class 0 is among the reported classes, and class 1 is not". Its likelihood ratio is
    e^epsilon.

    Args:
        mechanism: Local randomizer of labels.
        num_records: Number of records of each class.
        confidence: Confidence of the bound.
        noise: Source of the noise; secret noise by default.

    Returns:
        The bound on epsilon at delta = 0.

    Raises:
        ConfigError: If an argument is out of range.

    Privacy:
        Reads: synthetic records only. Charges: nothing. The result is public.

    >>> from graphveil.mechanisms import LabelRR
    >>> found = audit_label_mechanism(LabelRR(epsilon=1.0, classes=4), noise=LocalNoise(unsafe_noise_seed=0))
    >>> 0.95 < found.epsilon <= 1.0
    True
    """
    _check_num_records(num_records, confidence)
    labels = np.arange(2 * num_records) % 2
    reported = mechanism.perturb(labels, stream=(noise or LocalNoise()).stream("labels"))
    members = mechanism.members(reported)
    detected = members[:, 0] & ~members[:, 1]
    return counted_runs(detected, labels == 0, confidence)


@checked
def audit_feature_mechanism(
    mechanism: FeatureMechanism,
    *,
    num_records: int = NUM_RECORDS,
    confidence: float = CONFIDENCE,
    noise: LocalNoise | None = None,
    most: int = MAX_REPORTS,
) -> LowerBound | None:
    """Compute a lower bound on the epsilon of a feature mechanism.

    Half of the records have the highest value in every feature, the others the lowest. The event is that
    every reported value is as high as possible; with one bit per feature its likelihood ratio is e^epsilon.
    If every feature is reported separately (FeatureRR), that event is rare. Features of one law are then
    counted together: they are independent, so their bounds add up. Features of two bins are counted by odds.
    All features high, and all low, are each at most e^epsilon more likely under one record, so the product
    of the features' odds ratios is at most e^(2 epsilon).

    Args:
        mechanism: Local randomizer of the features of a record.
        num_records: Number of records of each kind; not used for features that are reported separately.
        confidence: Confidence of the bound.
        noise: Source of the noise; secret noise by default.
        most: Largest number of reported features of one law, for each of the two worst records.

    Returns:
        The bound on epsilon at delta = 0; None if the event is too rare to count.

    Raises:
        ConfigError: If an argument is out of range.

    Privacy:
        Reads: synthetic records only. Charges: nothing. The result is public.
    """
    _check_num_records(num_records, confidence)
    checks.integer_at_least(1, most=most)
    if isinstance(mechanism, FeatureRR) and mechanism.dim > 1:
        return _by_feature(mechanism, confidence, noise or LocalNoise(), most)
    if not isinstance(mechanism, MultiBit) and mechanism.dim > 1:
        return None
    detected, inside = [], []
    for is_high, outcome in _reports(mechanism, num_records, noise or LocalNoise()):
        detected.append((outcome >= outcome.max()).all(axis=1))
        inside.append(is_high)
    return counted_runs(np.concatenate(detected), np.concatenate(inside), confidence)


def _reports(
    mechanism: FeatureMechanism, num_records: int, noise: LocalNoise
) -> Iterator[tuple[Bools, np.ndarray]]:
    """Yield which records of a block have the highest features, others the lowest, and reported values."""
    stream, bounds = noise.stream("features"), mechanism.bounds
    low, high = (np.broadcast_to(end, mechanism.dim) for end in (bounds.low, bounds.high))
    block = max(2, _NUMBERS // mechanism.dim)
    for start in range(0, 2 * num_records, block):
        rows = np.arange(start, min(2 * num_records, start + block))
        is_high = rows % 2 == 0
        x = np.where(is_high[:, None], high, low)
        yield is_high, mechanism.perturb(x, stream=stream, rows=rows).values


def _check_num_records(num_records: int, confidence: float) -> None:
    checks.within(1, _MAX_RECORDS, num_records=num_records)
    _check_confidence(confidence)


def _by_feature(mechanism: FeatureRR, confidence: float, noise: LocalNoise, most: int) -> LowerBound | None:
    """Add up the bounds of features, from how often the worst records report the highest bin."""
    laws = list(dict.fromkeys(mechanism.features))
    if len(laws) > _MAX_LAWS:
        return None
    which = np.array([laws.index(law) for law in mechanism.features])
    sizes = np.bincount(which)
    num_records = 0
    for law, size in zip(laws, sizes.tolist(), strict=True):
        needed = _MIN_REPORTS
        if law.epsilon:
            wanted = math.ceil((_NEEDED_OF_BITS if law.k == 2 else _NEEDED) / law.epsilon**2)
            needed = min(most, max(needed, wanted))
        num_records = max(num_records, math.ceil(needed / size))
    # How often the highest and the lowest record report a feature's highest bin.
    reported = np.zeros((2, mechanism.dim), dtype=np.int64)
    for is_high, values in _reports(mechanism, num_records, noise):
        at_top = values == mechanism.limits
        reported += [at_top[is_high].sum(axis=0), at_top[~is_high].sum(axis=0)]
    detected = np.stack([np.bincount(which, weights=counts).astype(np.int64) for counts in reported])
    significance = (1 - confidence) / len(laws)
    bounds = [
        (odds_of_runs if law.k == 2 else repeated_runs)(
            tp, num_records * size, fp, num_records * size, confidence=1 - significance
        )
        for law, size, tp, fp in zip(laws, sizes.tolist(), *detected.tolist(), strict=True)
    ]
    pairs = list(zip(sizes, bounds, strict=True))
    return replace(
        bounds[0],
        epsilon=float(sum(size * bound.epsilon for size, bound in pairs)),
        confidence=confidence,
        max_certifiable=float(sum(size * bound.max_certifiable for size, bound in pairs)),
        method="counts of runs, feature by feature",
    )

"""Canaries in one training run: random edges or records that are in by a coin, guessed from its outputs.

The lower bound is valid for any mechanism, since only the coins are assumed. It is weak where noise is large:
compare it with the maximum certifiable epsilon. ``audit_plan`` gives larger bounds for single queries.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.audit.bounds import CONFIDENCE, LowerBound, one_run, one_run_gaussian
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.unit import NodeUnit
from graphveil.data import Graph
from graphveil.errors import ConfigError
from graphveil.estimators.base import Estimator

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
    """Let fair coins decide about random node pairs without common ends, edges or not."""
    if 2 * count > graph.num_nodes:
        raise ConfigError(
            f"{count} canary edges need {2 * count} distinct nodes, but the graph has "
            f"{graph.num_nodes}. Use fewer canaries."
        )
    ends = rng.permutation(graph.num_nodes)[: 2 * count].reshape(count, 2)
    present = rng.random(count) < 0.5
    sources, targets = _edges(graph.adjacency)
    low, high = np.minimum(sources, targets), np.maximum(sources, targets)
    slots = ends.min(axis=1) * graph.num_nodes + ends.max(axis=1)
    rest = ~np.isin(low * graph.num_nodes + high, slots)
    edges = Adjacency.from_edges(
        np.concatenate([sources[rest], ends[present, 0]]),
        np.concatenate([targets[rest], ends[present, 1]]),
        num_nodes=graph.num_nodes,
        directed=graph.directed,
    )
    with_canaries = graph.replace(adjacency=edges)
    return CanaryGraph(with_canaries, with_canaries, ends, present)


def insert_records(graph: Graph, count: int, rng: np.random.Generator) -> CanaryGraph:
    """Give random nodes a random label and no edges; coins decide whether their labels are removed."""
    if count > graph.num_nodes:
        raise ConfigError(
            f"{count} canary records need as many nodes, but the graph has {graph.num_nodes}. Use "
            "fewer canaries."
        )
    places = rng.permutation(graph.num_nodes)[:count]
    present, labels = rng.random(count) < 0.5, graph.y.clone()
    labels[torch.from_numpy(places)] = torch.from_numpy(rng.integers(graph.num_classes, size=count))
    sources, targets = _edges(graph.adjacency)
    kept = ~(np.isin(sources, places) | np.isin(targets, places))
    edges = Adjacency.from_edges(
        sources[kept], targets[kept], num_nodes=graph.num_nodes, directed=graph.directed
    )
    every = graph.replace(y=labels, adjacency=edges)
    nulled = labels.clone()
    nulled[torch.from_numpy(places[~present])] = -1
    return CanaryGraph(every.replace(y=nulled), every, places, present)


def _edges(adjacency: Adjacency) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    targets = np.repeat(np.arange(adjacency.num_nodes), adjacency.indptr.diff().numpy())
    return adjacency.indices.numpy().astype(np.int64), targets


def prediction_similarity(model: Estimator, inserted: CanaryGraph) -> Floats:
    """Score an edge by the similarity of the predictions for its two ends."""
    proba = model.fitted.own_proba.to(torch.float64).numpy()
    first, second = (proba[inserted.places[:, end]] for end in (0, 1))
    return np.asarray((first * second).sum(axis=1))


def label_likelihood(model: Estimator, inserted: CanaryGraph) -> Floats:
    """Score a record by the predicted probability of its random label."""
    proba = model.fitted.own_proba.to(torch.float64).numpy()
    return np.asarray(proba[inserted.places, inserted.query_graph.y.numpy()[inserted.places]])


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
        """Whether neither bound is above the claim."""
        found = [self.bound.epsilon, 0.0 if self.gaussian is None else self.gaussian.epsilon]
        return max(found) <= self.claimed


@checked
def audit_training(
    model: Estimator,
    graph: Graph,
    *,
    split: Split,
    canaries: int = 200,
    score: Score | None = None,
    seed: int = 0,
    confidence: float = CONFIDENCE,
    **fit: Any,
) -> TrainingAudit:
    """Insert canaries at random, fit once, guess the canaries from the model's outputs, and bound epsilon.

    Under edge-level privacy units canaries are node pairs, under node-level ones records of the training
    part. A fifth of them is guessed: those with the highest scores as included, with the lowest as left out.

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
        inserted = CanaryGraph(
            ready, inserted.query_graph, inserted.places[trained], inserted.present[trained]
        )
    model.fit(ready, **fit)
    scores = (score or (label_likelihood if records else prediction_similarity))(model, inserted)
    count, present = len(scores), inserted.present
    each = max(1, int(_GUESSED * count) // 2)  # of a public number, so the guesses are fixed beforehand
    order = np.argsort(scores, kind="stable")
    correct = int(present[order[-each:]].sum() + (~present[order[:each]]).sum())
    guarantee, plan = model.fitted.guarantee, model.fitted.plan
    delta = guarantee.delta or 1e-5
    gaussian = None
    if plan is None or plan.mu:
        gaussian = one_run_gaussian(count, 2 * each, correct, delta=delta, confidence=confidence)
    return TrainingAudit(
        bound=one_run(count, 2 * each, correct, delta=delta, confidence=confidence),
        gaussian=gaussian,
        canaries=count,
        guesses=2 * each,
        correct=correct,
        claimed=guarantee.epsilon,
    )

"""Predicting graphs that were not fitted: their nodes randomize their features first, and tell no label.

An edge set stands for the people of its graph, and has the ledger of what they told. The new nodes of a graph
that has grown are people who were not there before: they tell once, and what the others told is kept.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from graphveil.data import EdgeSet, Graph, rows
from graphveil.data.adjacency import GrowthStep
from graphveil.data.features import stacked
from graphveil.errors import ConfigError
from graphveil.estimators.inference.ledger import PredictionLedger
from graphveil.estimators.inference.prediction_cache import CachedPrediction, PredictionCache
from graphveil.estimators.inference.requests import (
    PredictionOptions,
    PredictionRequest,
    PredictionState,
    prediction_session,
)
from graphveil.estimators.method import TrainedModel
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.estimators.session import Session
from graphveil.local.lpgnn.randomized_records import RandomizedRecords
from graphveil.nn.inputs import FeatureEstimates
from graphveil.privacy import Guarantee
from graphveil.release import ReleasePlan


@dataclass(frozen=True, eq=False)
class CachedReports(CachedPrediction):
    """What is known about one graph, with the randomized records behind it."""

    records: RandomizedRecords

    @property
    def nodes(self) -> int:
        """How many nodes there were."""
        return len(self.records.labels)


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedOnReports(TrainedModel):
    """What was learned from randomized records.

    Args:
        reports: what it was learned from; None for a model from a file, which does not hold them.
    """

    reports: RandomizedRecords | None

    def plan_for(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return None: nothing is asked of edges, which are public."""
        return None


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedOnRecords(TrainedOnReports):
    """What was learned from whole records: nodes of another graph tell about their features, too."""

    @abstractmethod
    def privacy_cost(self, graph: Graph, fitted: Guarantee) -> Guarantee:
        """Return what nodes of another graph pay, no more valid than the guarantee of the fit."""

    @abstractmethod
    def collect(
        self,
        graph: Graph,
        before: CachedReports | None,
        session: Session,
        collection_index: int,
    ) -> CachedReports:
        """Have nodes randomize their features, which is booked, and return what is known then.

        Args:
            graph: the graph to predict.
            before: what was told by its first nodes; all others are asked.
            session: where the collection is booked, and at which price.
            collection_index: the number of this collection: no two have the same noise, whatever the seed.
        """


@dataclass(frozen=True, eq=False)
class CollectionRequest:
    """One collection of features: whose, at what price, and what was told before.

    Args:
        graph: the graph to predict.
        privacy_cost: the guarantee of this collection alone.
        steps: those by which the graph has grown since ``before``; none if all of its nodes are asked.
        before: what the nodes of the graph told that it has grown from.
        disjoint: the caller's word that nobody here was asked before.
    """

    graph: Graph
    privacy_cost: Guarantee
    steps: tuple[GrowthStep, ...]
    before: CachedReports | None
    disjoint: bool

    @property
    def edge_sets(self) -> EdgeSet:
        """The edge sets of those who are asked."""
        return EdgeSet(parts=[step.added.edge_set for step in self.steps] or [self.graph.edge_set])

    def record_in(self, ledger: PredictionLedger) -> PredictionLedger:
        """Enter the collection into a model's ledger, and return it."""
        for step in self.steps:
            ledger.apart(step.added.edge_set, step.apart)
        if self.disjoint:
            ledger.apart(self.edge_sets)
        ledger.note(self.edge_sets, self.privacy_cost)
        return ledger

    def execute(self, prediction_state: PredictionState) -> None:
        """Have the nodes randomize their features, which is booked, and keep what is known then."""
        collection_index, session = (
            prediction_state.ledger.releases,
            prediction_session(prediction_state, self),
        )
        collected = _trained(prediction_state).collect(self.graph, self.before, session, collection_index)
        prediction_state.cache.keep(self.graph.adjacency.version, self.graph.x, collected)


def collection_requests(
    prediction_state: PredictionState, graph: Graph, options: PredictionOptions
) -> Sequence[PredictionRequest]:
    """Return what predicting a graph collects: of a graph that has grown, from its new nodes alone.

    Raises:
        ConfigError: the model learned from LDP reports, or the caller's word cannot be true.
    """
    fitted = prediction_state.fitted
    if not fitted.method.privacy_config.protects:
        return []
    if fitted.guarantee.received:
        raise ConfigError(
            f"this {fitted.method.name} learned from LDP reports, and no raw features are asked here: have "
            "the nodes of the other graph answer the survey, and learn from all LDP reports "
            "(fit_from_collector, "
            "collect learn), which costs those who have answered nothing more"
        )
    privacy_cost = _trained(prediction_state).privacy_cost(graph, fitted.guarantee)
    found = CollectionRequest(
        graph, privacy_cost, *_grown(prediction_state.cache, graph), options.assume_disjoint_nodes
    )
    if options.assume_disjoint_nodes and prediction_state.ledger.fitted(found.edge_sets):
        raise ConfigError(
            "assume_disjoint_nodes (--assume-disjoint-nodes) does not hold: the graph is of the people that "
            "the model "
            "was fitted on. Drop it, or build each of the two graphs from edges of its own"
        )
    return [found]


def _trained(prediction_state: PredictionState) -> TrainedOnRecords:
    trained = prediction_state.fitted.trained
    assert isinstance(trained, TrainedOnRecords)
    return trained


def _grown(cache: PredictionCache, graph: Graph) -> tuple[tuple[GrowthStep, ...], CachedReports | None]:
    """Return the steps of growth since the last state whose reports are kept, and those; or nothing."""
    pending = list[GrowthStep]()
    for step in reversed(graph.adjacency.history):
        pending.insert(0, step)
        kept = cache.find(step.base, rows(graph.x, torch.arange(step.base_nodes)))
        if isinstance(kept, CachedReports):
            return tuple(pending), kept
    return (), None


def concatenate_records(before: CachedReports | None, new: RandomizedRecords) -> RandomizedRecords:
    """Return the records that were kept with those of further nodes after them."""
    if before is None:
        return new
    old = before.records
    deviations = stacked(old.features.deviations, new.features.deviations)
    return RandomizedRecords(
        FeatureEstimates(deviations, old.features.middle),
        torch.cat([old.labels, new.labels]),
        new.release_id,
        old.reproducible or new.reproducible,
    )

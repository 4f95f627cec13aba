"""Methods on records that their own nodes randomize: the guarantee, one collection, and graphs not fitted.

The nodes of another graph randomize their features before it is predicted, and report no label. An edge set
stands for the people of its graph, and has the ledger of their reports. The new nodes of a graph that has
grown report once, and the reports of the others are kept.
"""

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from graphveil.artifacts.snapshot import ReleaseRow
from graphveil.data import EdgeSet, Graph, rows
from graphveil.data.adjacency import GrowthStep
from graphveil.data.features import stacked
from graphveil.data.recipes import RANGES_PUBLIC
from graphveil.data.tables.labels import empty_part_message
from graphveil.errors import ConfigError, GraphError
from graphveil.estimators.inference import (
    PredictionOptions,
    PredictionRequest,
    PredictionState,
    prediction_session,
)
from graphveil.estimators.method import Method, State, TrainedModel
from graphveil.estimators.prediction_cache import CachedPrediction, PredictionCache
from graphveil.estimators.privacy_config import SEEDED
from graphveil.estimators.public_sizes import PublicSizes, check_members
from graphveil.estimators.requirements import check_unit
from graphveil.estimators.session import Session
from graphveil.ledger import Entry
from graphveil.ledger.predictions import PredictionComposition
from graphveil.local.randomized_records import (
    RandomizedRecords,
    ReportFile,
    collect_reports,
    exact_records,
    outside,
)
from graphveil.local.report_config import ROW_SCALED, ReportConfig, scaled
from graphveil.mechanisms.claim import LocalDPClaim
from graphveil.mechanisms.features import FROM_DATA
from graphveil.nn.inputs import FeatureEstimates
from graphveil.privacy import Guarantee, LocalAttributes, LocalReport, compose
from graphveil.release import ReleasePlan

LABEL_PRESENCE_NOTE = (
    "a training or validation node without a label says a class at random, so eps_y covers who has one, too"
)
NO_FEATURE_REPORTS_NOTE = "nothing is told about features, so that their budget is not spent"
_Part = Literal["features", "label"]


@dataclass(frozen=True, kw_only=True, eq=False)
class ReceivedReports:
    """Reports that a fit learns from, in the place of records that it would have randomized.

    Args:
        records: the reports.
        guarantee: that of the model which was fitted to them first; None for LDP reports from devices.
        clipped: what that model counted; None where only the devices know.
    """

    records: RandomizedRecords
    guarantee: Guarantee | None = None
    clipped: int | None = None


@dataclass(frozen=True, eq=False)
class CollectionResult:
    """One collection: what the server has of all records, and what was cut (which is private)."""

    records: RandomizedRecords
    clipped: int | None = None


@dataclass(frozen=True, kw_only=True)
class LocalMethod(Method):
    """A method that learns from records which each node randomizes, over public edges.

    Args:
        report_config: how a node randomizes its record.
        received: reports that this one fit is given; None to have records randomized.
    """

    report_config: ReportConfig
    received: ReceivedReports | None = field(default=None, repr=False, compare=False)

    def plan(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return None: a record pays before it leaves its node, and edges are public."""
        return None

    def check(self, graph: Graph) -> None:
        """Refuse a graph that cannot be used; no label is read, nor who has one if that is covered."""
        check_unit(self.privacy_config, graph, reads_edges=self.reads_edges)
        if self.protects_labels:
            check_members(graph, "train", "val")
            return
        for split in ("train", "val"):
            if not bool(graph.mask(split).any()):
                raise GraphError(empty_part_message(split))

    @property
    def protects_labels(self) -> bool:
        """Whether labels are randomized, and with them who has one."""
        return self.privacy_config.protects and not math.isinf(self.report_config.eps_y)

    # -- the guarantee -------------------------------------------------------------------------------------

    def guarantee(self, plan: ReleasePlan | None, graph: Graph) -> Guarantee:
        """Return the guarantee of the LDP reports of this graph's nodes."""
        if self.received is not None and self.received.guarantee is not None:
            return self.received.guarantee
        if not self.privacy_config.protects:
            return super().guarantee(plan, graph)
        guarantee = self.guarantee_for_sizes(graph.num_features, graph.num_classes)
        guarantee = guarantee.with_deviations(*record_deviations(graph))
        received = self.received is not None  # then devices saw to it
        labels = (LABEL_PRESENCE_NOTE,) if self.protects_labels and not received else ()
        return dataclasses.replace(guarantee, notes=(*self.notes(graph), *labels), received=received)

    def guarantee_for_sizes(self, features: int, classes: int) -> Guarantee:
        """Return the guarantee for records of so many features and classes, whatever the graph."""
        law = self.report_config.mechanism(features)
        poisoning_estimate: dict[_Part, LocalDPClaim] = {} if law is None else {"features": law.claim}
        poisoning_estimate["label"] = self.report_config.label(classes).claim
        parts = [LocalReport(part, claim.epsilon, claim.delta) for part, claim in poisoning_estimate.items()]
        return Guarantee.from_event(
            LocalAttributes(),
            compose(*parts),
            delta=sum(claim.delta for claim in poisoning_estimate.values()),
            releases=1,
            mode=self.privacy_config.mode,
            deviations=self._deviations(*poisoning_estimate.values()),
        )

    def feature_report_cost(self, graph: Graph, fitted: Guarantee) -> Guarantee:
        """Return the guarantee of one report on the features of each node, no more valid than the fit's."""
        law = self.report_config.mechanism(graph.num_features)
        assert law is not None  # or there would be nothing to pay
        claim = law.claim
        alone = Guarantee.from_event(
            LocalAttributes(),
            compose(LocalReport("features", claim.epsilon, claim.delta)),
            delta=claim.delta,
            releases=1,
            mode=self.privacy_config.mode,
            notes=self.notes(graph),
        )
        return alone.with_deviations(*self._deviations(claim), *record_deviations(graph), *fitted.deviations)

    def notes(self, graph: Graph) -> tuple[str, ...]:
        """Return what the statement has to add about the data."""
        notes = tuple(note for note in graph.notes if note != RANGES_PUBLIC)
        if self.privacy_config.protects and self.report_config.features is None:
            notes = (*notes, NO_FEATURE_REPORTS_NOTE)
        return (*notes, ROW_SCALED) if self.report_config.scaling == "row" else notes

    def rows(self, plan: ReleasePlan | None, sizes: PublicSizes) -> tuple[ReleaseRow, ...]:
        """Return what leaves each node."""
        return self.report_config.rows(sizes.width, sizes.classes) if self.privacy_config.protects else ()

    def _deviations(self, *poisoning_estimate: LocalDPClaim) -> tuple[str, ...]:
        """Return why a node's LDP report has no valid guarantee; empty if it has."""
        paper = self.privacy_config.paper_deviations if self.privacy_config.paper else ()
        seeded = () if self.privacy_config.unsafe_noise_seed is None else (SEEDED,)
        return (*(why for claim in poisoning_estimate for why in claim.deviations), *paper, *seeded)

    # -- one collection ------------------------------------------------------------------------------------

    def collected(self, graph: Graph, session: Session) -> CollectionResult:
        """Have every node randomize its record, and book what that costs; exact records without a unit."""
        if self.received is not None:
            return CollectionResult(self.received.records, self.received.clipped)
        x = scaled(graph.x, self.report_config.scaling)
        if not self.privacy_config.protects:
            return CollectionResult(exact_records(graph, x))
        randomizer = self.report_config.randomizer(graph.num_features, graph.num_classes)
        folder = session.workspace
        kept = (
            None if folder is None else ReportFile(folder / "reports.safetensors", randomizer.binding(graph))
        )
        given = self.report_config.features
        clipped = None if given is None else outside(given.bounds, x)
        found = self.collect_reports(graph, session, lambda: randomizer(graph, x, session.noise_seed), kept)
        return CollectionResult(randomizer.received(found, x), clipped)

    def collect_reports(
        self, graph: Graph, session: Session, randomize: Callable[[], State], kept: ReportFile | None = None
    ) -> State:
        """Have nodes randomize what they tell, at the session's price, which is booked first."""
        guarantee = session.guarantee
        assert guarantee is not None  # the price is known before anybody is asked
        return collect_reports(
            graph,
            session,
            lambda release_id: Entry(release_id, self.name, guarantee.event, unit=LocalAttributes()),
            randomize,
            kept,
        )


def record_deviations(graph: Graph) -> tuple[str, ...]:
    """Return why records have no valid guarantee: a recipe that scales columns reads everybody's data."""
    ranges = (FROM_DATA,) if RANGES_PUBLIC in graph.notes else ()
    return (*graph.deviations, *ranges)


# -- graphs that were not fitted ----


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

    def record_in(self, ledger: PredictionComposition) -> PredictionComposition:
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

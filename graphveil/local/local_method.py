"""Methods on locally randomized node records: guarantee, collection, and prediction of other graphs.

The nodes of another graph randomize their features before it is predicted, and report no label. The edge set
of a graph identifies its privacy ledger. When a graph has grown, its new nodes report once, and the reports
of the other nodes are kept.
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
    "a training or validation node without a label reports a random class, so eps_y covers who has one, too"
)
NO_FEATURE_REPORTS_NOTE = "features are not reported, so their budget is not spent"
_Part = Literal["features", "label"]


@dataclass(frozen=True, kw_only=True, eq=False)
class ReceivedReports:
    """Existing reports for a fit, in place of records that the fit would randomize.

    Args:
        records: The reports.
        guarantee: Guarantee of the model that was fitted to them first; None for LDP reports of clients.
        clipped: Number of clipped values in that model; None if only the clients know it.
    """

    records: RandomizedRecords
    guarantee: Guarantee | None = None
    clipped: int | None = None


@dataclass(frozen=True, eq=False)
class CollectionResult:
    """Result of one collection: the randomized records, and the number of clipped values (private)."""

    records: RandomizedRecords
    clipped: int | None = None


@dataclass(frozen=True, kw_only=True)
class LocalMethod(Method):
    """Base of methods that learn from locally randomized node records and public edges.

    Args:
        report_config: How a node randomizes its record.
        received: Existing reports for this fit; None to randomize records.
    """

    report_config: ReportConfig
    received: ReceivedReports | None = field(default=None, repr=False, compare=False)

    def plan(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return None: records are charged when they are reported, and edges are public."""
        return None

    def check(self, graph: Graph) -> None:
        """Reject an unusable graph; if labels are protected, neither labels nor their presence are read."""
        check_unit(self.privacy_config, graph, reads_edges=self.reads_edges)
        if self.protects_labels:
            check_members(graph, "train", "val")
            return
        for split in ("train", "val"):
            if not bool(graph.mask(split).any()):
                raise GraphError(empty_part_message(split))

    @property
    def protects_labels(self) -> bool:
        """Whether labels, and the presence of a label, are protected."""
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
        received = self.received is not None  # then clients randomized their records
        labels = (LABEL_PRESENCE_NOTE,) if self.protects_labels and not received else ()
        return dataclasses.replace(guarantee, notes=(*self.notes(graph), *labels), received=received)

    def guarantee_for_sizes(self, features: int, classes: int) -> Guarantee:
        """Return the guarantee for records with these numbers of features and classes, for any graph."""
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
        """Return the guarantee of one feature report per node; it inherits the deviations of the fit."""
        law = self.report_config.mechanism(graph.num_features)
        assert law is not None  # or there would be no cost
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
        """Return the notes about the data for the guarantee."""
        notes = tuple(note for note in graph.notes if note != RANGES_PUBLIC)
        if self.privacy_config.protects and self.report_config.features is None:
            notes = (*notes, NO_FEATURE_REPORTS_NOTE)
        return (*notes, ROW_SCALED) if self.report_config.scaling == "row" else notes

    def rows(self, plan: ReleasePlan | None, sizes: PublicSizes) -> tuple[ReleaseRow, ...]:
        """Return table rows that describe the LDP report of each node."""
        return self.report_config.rows(sizes.width, sizes.classes) if self.privacy_config.protects else ()

    def _deviations(self, *poisoning_estimate: LocalDPClaim) -> tuple[str, ...]:
        """Return the reasons why the guarantee of an LDP report is invalid; empty if it is valid."""
        paper = self.privacy_config.paper_deviations if self.privacy_config.paper else ()
        seeded = () if self.privacy_config.unsafe_noise_seed is None else (SEEDED,)
        return (*(why for claim in poisoning_estimate for why in claim.deviations), *paper, *seeded)

    # -- one collection ------------------------------------------------------------------------------------

    def collected(self, graph: Graph, session: Session) -> CollectionResult:
        """Randomize every node record and charge the ledger; return exact records if the unit is ``none``."""
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
        """Charge the guarantee of the session to the ledger, then randomize the node records."""
        guarantee = session.guarantee
        assert guarantee is not None  # the cost is known before the collection
        return collect_reports(
            graph,
            session,
            lambda release_id: Entry(release_id, self.name, guarantee.event, unit=LocalAttributes()),
            randomize,
            kept,
        )


def record_deviations(graph: Graph) -> tuple[str, ...]:
    """Return why records have no valid guarantee, such as column scaling that reads all records."""
    ranges = (FROM_DATA,) if RANGES_PUBLIC in graph.notes else ()
    return (*graph.deviations, *ranges)


# -- prediction of other graphs ----


@dataclass(frozen=True, eq=False)
class CachedReports(CachedPrediction):
    """Stored predictions of one graph, with the randomized records that they are based on."""

    records: RandomizedRecords

    @property
    def nodes(self) -> int:
        """The number of nodes with stored records."""
        return len(self.records.labels)


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedOnReports(TrainedModel):
    """A model that was fitted to randomized records.

    Args:
        reports: Reports that it was fitted to; None for a model from a file, which does not contain them.
    """

    reports: RandomizedRecords | None

    def plan_for(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return None: edges are public, so there is no edge query."""
        return None


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedOnRecords(TrainedOnReports):
    """A model that was fitted to whole records; nodes of another graph also report their features."""

    @abstractmethod
    def privacy_cost(self, graph: Graph, fitted: Guarantee) -> Guarantee:
        """Return the guarantee of predicting another graph; it inherits the deviations of the fit."""

    @abstractmethod
    def collect(
        self,
        graph: Graph,
        before: CachedReports | None,
        session: Session,
        collection_index: int,
    ) -> CachedReports:
        """Randomize the features of nodes, charge the ledger, and return the predictions.

        Args:
            graph: Graph to predict.
            before: Stored reports of its first nodes; all other nodes report now.
            session: Ledger and guarantee of the collection.
            collection_index: Number of this collection, so that its noise is independent of others.
        """


@dataclass(frozen=True, eq=False)
class CollectionRequest:
    """One collection of features on another graph.

    Args:
        graph: Graph to predict.
        privacy_cost: Guarantee of this collection alone.
        steps: Growth steps of the graph since ``before``; empty if all of its nodes report.
        before: Stored reports of the graph that it has grown from.
        disjoint: Assumption of the caller that no node here has reported before.
    """

    graph: Graph
    privacy_cost: Guarantee
    steps: tuple[GrowthStep, ...]
    before: CachedReports | None
    disjoint: bool

    @property
    def edge_sets(self) -> EdgeSet:
        """The edge sets of the reporting nodes."""
        return EdgeSet(parts=[step.added.edge_set for step in self.steps] or [self.graph.edge_set])

    def record_in(self, ledger: PredictionComposition) -> PredictionComposition:
        """Record the collection in the composition of a model's predictions, and return it."""
        for step in self.steps:
            ledger.apart(step.added.edge_set, step.apart)
        if self.disjoint:
            ledger.apart(self.edge_sets)
        ledger.note(self.edge_sets, self.privacy_cost)
        return ledger

    def execute(self, prediction_state: PredictionState) -> None:
        """Randomize features, charge the ledger, and store the result in the cache."""
        collection_index, session = (
            prediction_state.ledger.releases,
            prediction_session(prediction_state, self),
        )
        collected = _trained(prediction_state).collect(self.graph, self.before, session, collection_index)
        prediction_state.cache.keep(self.graph.adjacency.version, self.graph.x, collected)


def collection_requests(
    prediction_state: PredictionState, graph: Graph, options: PredictionOptions
) -> Sequence[PredictionRequest]:
    """Return the collections that a prediction needs; if a graph has grown, only its new nodes report.

    Raises:
        ConfigError: The model was fitted to LDP reports, or ``assume_disjoint_nodes`` is contradicted.
    """
    fitted = prediction_state.fitted
    if not fitted.method.privacy_config.protects:
        return []
    if fitted.guarantee.received:
        raise ConfigError(
            f"this {fitted.method.name} learned from LDP reports, and no raw features are read here: have "
            "the nodes of the other graph answer the survey, and learn from all LDP reports "
            "(fit_from_collector, collect learn), which costs those who have answered nothing more"
        )
    privacy_cost = _trained(prediction_state).privacy_cost(graph, fitted.guarantee)
    found = CollectionRequest(
        graph, privacy_cost, *_grown(prediction_state.cache, graph), options.assume_disjoint_nodes
    )
    if options.assume_disjoint_nodes and prediction_state.ledger.fitted(found.edge_sets):
        raise ConfigError(
            "assume_disjoint_nodes (--assume-disjoint-nodes) does not hold: the graph is of the people that "
            "the model was fitted on. Drop it, or build each of the two graphs from edges of its own"
        )
    return [found]


def _trained(prediction_state: PredictionState) -> TrainedOnRecords:
    trained = prediction_state.fitted.trained
    assert isinstance(trained, TrainedOnRecords)
    return trained


def _grown(cache: PredictionCache, graph: Graph) -> tuple[tuple[GrowthStep, ...], CachedReports | None]:
    """Return the growth steps since the last graph with stored reports, and these reports; else nothing."""
    pending = list[GrowthStep]()
    for step in reversed(graph.adjacency.history):
        pending.insert(0, step)
        kept = cache.find(step.base, rows(graph.x, torch.arange(step.base_nodes)))
        if isinstance(kept, CachedReports):
            return tuple(pending), kept
    return (), None


def concatenate_records(before: CachedReports | None, new: RandomizedRecords) -> RandomizedRecords:
    """Return stored records followed by the records of new nodes."""
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

"""Methods of local privacy: one collection of LDP reports, its guarantee, and predictions of other graphs.

The nodes of another graph randomize their features before it is predicted, and report no label. The edge set
of a graph identifies its privacy ledger. When a graph has grown, its new nodes report once, and the reports
of the other nodes are kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from graphveil.core.edges.adjacency import EdgeSet, GrowthStep
from graphveil.core.features import rows
from graphveil.core.noise.random import PublicStreams
from graphveil.core.plan import ReleasePlan
from graphveil.core.view import protected_view
from graphveil.data import Graph
from graphveil.data.recipes import RANGES_PUBLIC
from graphveil.data.tables.encoding import empty_part_message
from graphveil.errors import ConfigError, GraphError
from graphveil.estimators.choice import ChosenModel
from graphveil.estimators.inference import (
    PredictionComposition,
    PredictionOptions,
    PredictionRequest,
    PredictionState,
    prediction_session,
)
from graphveil.estimators.method import Method, State, TrainedModel
from graphveil.estimators.prediction_cache import PredictionCache
from graphveil.estimators.privacy_config import SEEDED
from graphveil.estimators.public_sizes import PublicSizes, check_members
from graphveil.estimators.requirements import check_unit
from graphveil.estimators.session import Session
from graphveil.local.collect.protocol import report_guarantee
from graphveil.local.posterior_mixture import (
    PRIORS,
    EdgeContext,
    NoisyLabels,
    PosteriorMixture,
    Prior,
    Steps,
    mixed_posterior,
)
from graphveil.local.reports import (
    RandomizedRecords,
    Randomizer,
    ReportConfig,
    array_digest,
    reported_nodes,
)
from graphveil.mechanisms import LabelMechanism
from graphveil.mechanisms.features import FROM_DATA
from graphveil.nn.message_passing import Propagation
from graphveil.privacy import Guarantee
from graphveil.publish.queries import QueryRow

LABEL_PRESENCE_NOTE = (
    "a training or validation node without a label reports a random class, so eps_y covers who has one, too"
)


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedOnReports(TrainedModel):
    """A model that was fitted to LDP reports.

    Args:
        reports: The reports that it was fitted to; None for a model from a file.
    """

    reports: RandomizedRecords | None

    @property
    def reads_features(self) -> bool:
        return False

    def plan_for(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return None: edges are public, so there is no edge query."""
        return None


# -- prediction of other graphs ----


@dataclass(frozen=True, eq=False)
class CollectionRequest:
    """One collection of features on another graph.

    Args:
        model: The trained model, which collects.
        privacy_cost: Guarantee of this collection alone.
        steps: Growth steps of the graph since ``before``; empty if all of its nodes report.
        before: Stored reports of the graph that it has grown from.
        disjoint: Assumption of the caller that no node here has reported before.
    """

    model: Any
    graph: Graph
    privacy_cost: Guarantee
    steps: tuple[GrowthStep, ...]
    before: RandomizedRecords | None
    disjoint: bool

    @property
    def edge_sets(self) -> EdgeSet:
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
        view, session = self.graph, prediction_session(prediction_state, self)
        collected = self.model.collect(view, self.before, session)
        prediction_state.cache.keep(view.version, view.features_digest(), collected)


def collection_requests(
    prediction_state: PredictionState, graph: Graph, options: PredictionOptions
) -> Sequence[PredictionRequest]:
    """Return the collections that a prediction needs; if a graph has grown, only its new nodes report."""
    fitted = prediction_state.fitted
    method, model = cast("LocalMethod", fitted.method), fitted.trained
    if isinstance(model, ChosenModel):
        model = model.model
    assert isinstance(model, TrainedOnReports)
    if not method.privacy_config.protects or not model.reads_features:
        return []
    if fitted.guarantee.received:
        raise ConfigError(
            f"This {method.name} was trained on LDP reports and cannot read raw features. "
            "Collect LDP reports of the nodes of the other graph, and train on all LDP reports "
            "(fit_from_collector, collect learn). Nodes that have reported are not charged again."
        )
    view = method.view(graph)
    privacy_cost = method.feature_report_cost(view, fitted.guarantee)
    steps, before = _growth(prediction_state.cache, view)
    found = CollectionRequest(model, view, privacy_cost, steps, before, options.assume_disjoint_nodes)
    if options.assume_disjoint_nodes and prediction_state.ledger.fitted(found.edge_sets):
        raise ConfigError(
            "assume_disjoint_nodes (--assume-disjoint-nodes) is not valid, because this graph has "
            "the same people as the training graph. Remove it, or build the two graphs from "
            "different edges."
        )
    return [found]


def _growth(cache: PredictionCache, view: Graph) -> tuple[tuple[GrowthStep, ...], RandomizedRecords | None]:
    pending = list[GrowthStep]()
    for step in reversed(view.adjacency.history):
        pending.insert(0, step)
        kept = cache.find(step.base, view.features_digest(step.base_nodes))
        if kept is not None and kept.reports is not None:
            return tuple(pending), kept.reports
    return (), None


# -- the method ----


@dataclass(frozen=True, kw_only=True)
class LocalMethod(Method):
    """A model that is fitted to locally randomized node records and public edges.

    Args:
        missing_labels: Share of reporting nodes without a label. It is part of the label noise.
        received: Existing reports for this fit; None to randomize records.
    """

    prediction_requests: ClassVar[Any] = staticmethod(collection_requests)

    report_config: ReportConfig
    missing_labels: float = 0.0
    received: RandomizedRecords | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.missing_labels and not self.protects_labels:
            raise ConfigError(
                f"missing_labels={self.missing_labels:g} is only for randomized labels, which need a "
                "finite eps_y. Remove missing_labels."
            )

    def view(self, graph: Graph) -> Graph:
        """Return what a fit sees: edges, which are public, and handles of what clients randomize."""
        return protected_view(graph, self.privacy_config.unit, self.report_config.public_fields)

    def check(self, view: Graph) -> None:
        """Reject an unusable graph; if labels are protected, neither labels nor their presence are read."""
        check_unit(self.privacy_config, view, reads_edges=self.reads_edges)
        if self.protects_labels:
            check_members(view, "train", "val")
        else:
            for split in ("train", "val"):
                if not bool(view.labeled_in(split).any()):
                    raise GraphError(empty_part_message(split))

    @property
    def protects_labels(self) -> bool:
        """Whether labels, and the presence of a label, are protected."""
        return self.report_config.protects_labels

    # -- the guarantee -------------------------------------------------------------------------------------

    def guarantee(self, plan: ReleasePlan | None, view: Graph) -> Guarantee:
        if self.received is not None and self.received.guarantee is not None:
            return self.received.guarantee
        if not self.privacy_config.protects:
            return super().guarantee(plan, view)
        guarantee = self.guarantee_for(view.num_features, view.num_classes)
        guarantee = guarantee.with_deviations(*record_deviations(view))
        received = self.received is not None  # then clients randomized their records
        labels = (LABEL_PRESENCE_NOTE,) if self.protects_labels and not received else ()
        return replace(guarantee, notes=(*self.notes(view), *labels), received=received)

    def guarantee_for(self, features: int, classes: int) -> Guarantee:
        """Return the guarantee for records with these numbers of features and classes, for any graph."""
        return self._report_guarantee(self.report_config.randomizer(features, classes))

    def feature_report_cost(self, view: Graph, fitted: Guarantee) -> Guarantee:
        """Return the guarantee of one feature report per node; it inherits the deviations of the fit."""
        alone = replace(self._report_guarantee(self._feature_randomizer(view)), notes=self.notes(view))
        return alone.with_deviations(*record_deviations(view), *fitted.deviations)

    def _report_guarantee(self, randomizer: Randomizer) -> Guarantee:
        config, claims = self.privacy_config, randomizer.claims
        own = (why for claim in claims.values() for why in claim.deviations)
        seeded = () if config.unsafe_noise_seed is None else (SEEDED,)
        return report_guarantee(claims, deviations=(*own, *config.deviations, *seeded))

    def notes(self, view: Graph) -> tuple[str, ...]:
        notes = (note for note in view.notes if note != RANGES_PUBLIC)
        return (*notes, *self.report_config.notes)

    def rows(self, plan: ReleasePlan | None, sizes: PublicSizes) -> tuple[QueryRow, ...]:
        return self.report_config.rows(sizes.width, sizes.classes)

    # -- one collection ------------------------------------------------------------------------------------

    def collected(self, view: Graph, session: Session) -> RandomizedRecords:
        """Randomize every node record and charge the ledger; return exact records if the unit is ``none``.

        Privacy:
            Unit: ``local-attributes``. Reads: node records, through the randomizer. Charges: the guarantee of
            the session, once.
        """
        config, edges = self.report_config, view.adjacency
        if self.received is not None:
            return self.received
        if config.exact:
            return config.exact_records(view)
        randomizer = config.randomizer(view.num_features, view.num_classes)
        digest = array_digest(edges.indptr.numpy(), edges.indices.numpy())
        found = randomizer.collect(view, session, self.name, stored="reports", edges=digest)
        clipped = None if config.features is None else config.clipped(view.x)
        return RandomizedRecords(randomizer.estimates(found, view.x), found["labels"], clipped)

    def collected_features(self, view: Graph, session: Session, first: int) -> RandomizedRecords:
        """Randomize the features of nodes from ``first`` on, which report no label; charge the ledger."""
        randomizer, x = self._feature_randomizer(view), view.x
        own = rows(x, torch.arange(first, view.num_nodes)) if first else x
        found = randomizer.collect(view, session, self.name, x=own)
        unknown = self.label_mechanism(view.num_classes).missing_reports(own.shape[0])
        return RandomizedRecords(randomizer.estimates(found, own), torch.from_numpy(unknown))

    def _feature_randomizer(self, view: Graph) -> Randomizer:
        return replace(self.report_config.randomizer(view.num_features, view.num_classes), label=None)

    def label_mechanism(self, classes: int) -> LabelMechanism:
        label = self.report_config.label_mechanism(classes)
        assert label is not None  # every method on LDP reports learns from labels
        return label

    # -- reported labels -----------------------------------------------------------------------------------

    def noisy(
        self, view: Graph, labels: Tensor, *, corrected: bool = True, smoothing: Propagation | None = None
    ) -> NoisyLabels:
        """Return the randomized labels of a graph and the parameters of their noise.

        ``corrected`` is whether the loss includes the label noise (forward correction).
        """
        return NoisyLabels(
            labels=labels,
            law=self.label_mechanism(view.num_classes),
            train=reported_nodes(view, labels, "train"),
            val=reported_nodes(view, labels, "val"),
            missing=self.missing_labels,
            corrected=corrected,
            smoothing=smoothing,
        )

    def fold_generator(self) -> torch.Generator:
        return PublicStreams(self.privacy_config.seed or 0).torch("held-out labels")

    def mixture(self, view: Graph, noisy: NoisyLabels, prior: Prior, steps: Steps) -> PosteriorMixture:
        assert isinstance(steps, int)  # ``"auto"`` was resolved
        return mixed_posterior(
            noisy,
            EdgeContext(view.adjacency, steps),
            self.fold_generator(),
            names=PRIORS[prior],
            robust=prior == "robust",
        )

    def released(self, records: RandomizedRecords) -> State:
        """Return the reported labels for ``aggregates_``; none if they are exact."""
        return {} if self.report_config.exact else {"labels": records.labels}


def record_deviations(view: Graph) -> tuple[str, ...]:
    """Return why records have no valid guarantee, such as column scaling that reads all records."""
    ranges = (FROM_DATA,) if RANGES_PUBLIC in view.notes else ()
    return (*view.deviations, *ranges)

"""The method of local privacy: locally randomized node records, their guarantee, and one collection.

A ``LocalMethod`` charges and collects the reports. Its ``Learner`` fits a model to them: ``NetworkLearner`` a
network, ``PosteriorLearner`` the posterior of each node's class.
"""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from graphveil.core.collection import ReportFile
from graphveil.core.events import LocalReport, compose
from graphveil.core.ledger import Entry
from graphveil.core.plan import ReleasePlan
from graphveil.core.unit import LocalAttributes
from graphveil.core.view import protected_view
from graphveil.data import Graph
from graphveil.data.recipes import RANGES_PUBLIC
from graphveil.data.tables.labels import empty_part_message
from graphveil.errors import ConfigError, GraphError
from graphveil.estimators.method import FitResult, Method, State, TrainedModel
from graphveil.estimators.privacy_config import SEEDED
from graphveil.estimators.public_sizes import PublicSizes, check_members
from graphveil.estimators.requirements import check_unit
from graphveil.estimators.session import Session
from graphveil.local.noisy_labels import NoisyLabels
from graphveil.local.randomized_records import (
    RandomizedRecords,
    clipped_values,
    collect_reports,
    exact_records,
    label_report_nodes,
    reported_nodes,
)
from graphveil.local.report_config import ROW_SCALED, ReportConfig
from graphveil.mechanisms.claim import LocalDPClaim
from graphveil.mechanisms.features import FROM_DATA
from graphveil.privacy import Guarantee
from graphveil.propagation import Propagation
from graphveil.publish.queries import QueryRow

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
        clipped: Clipped values of each node in that model; None if only the clients know them.
    """

    records: RandomizedRecords
    guarantee: Guarantee | None = None
    clipped: Any = None


@dataclass(frozen=True, eq=False)
class CollectionResult:
    """Result of one collection: the randomized records, and a handle of the clipped values of each node."""

    records: RandomizedRecords
    clipped: Any = None


class Learner(ABC):
    """Fits a model to the reports that a ``LocalMethod`` collects."""

    @property
    def decision(self) -> str:
        """State what a fit selects and by which criterion, as ``Method.decision``."""
        return ""

    # Most learners need no optional package.
    def check(self) -> None:  # noqa: B027
        """Reject a configuration that cannot be computed on this machine, before anything is spent."""

    @abstractmethod
    def fit(self, method: "LocalMethod", view: Graph, session: Session) -> FitResult:
        """Collect the reports by ``method.collected``, and fit a model to them."""

    @abstractmethod
    def restore(self, method: "LocalMethod", state: State, sizes: PublicSizes) -> TrainedModel:
        """Return the model with stored parameters; reports are not stored with them."""


@dataclass(frozen=True, kw_only=True)
class LocalMethod(Method):
    """A model that is fitted to locally randomized node records and public edges.

    Args:
        report_config: Randomization of a node record.
        learner: Fits the model to the reports.
        missing_labels: Share of reporting nodes without a label. It is part of the label noise.
        received: Existing reports for this fit; None to randomize records.
    """

    report_config: ReportConfig
    learner: Learner
    missing_labels: float = 0.0
    received: ReceivedReports | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Reject a share of missing labels if labels are not randomized."""
        if self.missing_labels and not self.protects_labels:
            raise ConfigError(
                f"missing_labels={self.missing_labels:g} is only for randomized labels, which need a "
                "finite eps_y. Remove missing_labels."
            )

    @property
    def decision(self) -> str:
        """State what the learner selects and by which criterion."""
        return self.learner.decision

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
        self.learner.check()

    def fit(self, view: Graph, session: Session) -> FitResult:
        """Collect the reports, and fit the model."""
        return self.learner.fit(self, view, session)

    def restore(self, state: State, sizes: PublicSizes, released: State) -> TrainedModel:
        """Return the model with the stored parameters."""
        return self.learner.restore(self, state, sizes)

    @property
    def protects_labels(self) -> bool:
        """Whether labels, and the presence of a label, are protected."""
        return self.privacy_config.protects and not math.isinf(self.report_config.eps_y)

    # -- the guarantee -------------------------------------------------------------------------------------

    def guarantee(self, plan: ReleasePlan | None, view: Graph) -> Guarantee:
        """Return the guarantee of the LDP reports of this graph's nodes."""
        if self.received is not None and self.received.guarantee is not None:
            return self.received.guarantee
        if not self.privacy_config.protects:
            return super().guarantee(plan, view)
        guarantee = self.guarantee_for_sizes(view.num_features, view.num_classes)
        guarantee = guarantee.with_deviations(*record_deviations(view))
        received = self.received is not None  # then clients randomized their records
        labels = (LABEL_PRESENCE_NOTE,) if self.protects_labels and not received else ()
        return dataclasses.replace(guarantee, notes=(*self.notes(view), *labels), received=received)

    def guarantee_for_sizes(self, features: int, classes: int) -> Guarantee:
        """Return the guarantee for records with these numbers of features and classes, for any graph."""
        mechanism = self.report_config.mechanism(features)
        claims: dict[_Part, LocalDPClaim] = {} if mechanism is None else {"features": mechanism.claim}
        claims["label"] = self.report_config.label(classes).claim
        return Guarantee.from_event(
            LocalAttributes(),
            compose(*(LocalReport(part, claim.epsilon, claim.delta) for part, claim in claims.items())),
            delta=sum(claim.delta for claim in claims.values()),
            releases=1,
            mode=self.privacy_config.mode,
            deviations=self._deviations(*claims.values()),
        )

    def feature_report_cost(self, view: Graph, fitted: Guarantee) -> Guarantee:
        """Return the guarantee of one feature report per node; it inherits the deviations of the fit."""
        mechanism = self.report_config.mechanism(view.num_features)
        assert mechanism is not None  # or there would be no cost
        claim = mechanism.claim
        alone = Guarantee.from_event(
            LocalAttributes(),
            compose(LocalReport("features", claim.epsilon, claim.delta)),
            delta=claim.delta,
            releases=1,
            mode=self.privacy_config.mode,
            notes=self.notes(view),
        )
        return alone.with_deviations(*self._deviations(claim), *record_deviations(view), *fitted.deviations)

    def notes(self, view: Graph) -> tuple[str, ...]:
        """Return the notes about the data for the guarantee."""
        notes = tuple(note for note in view.notes if note != RANGES_PUBLIC)
        if self.privacy_config.protects and self.report_config.features is None:
            notes = (*notes, NO_FEATURE_REPORTS_NOTE)
        return (*notes, ROW_SCALED) if self.report_config.scaling == "row" else notes

    def rows(self, plan: ReleasePlan | None, sizes: PublicSizes) -> tuple[QueryRow, ...]:
        """Return table rows that describe the LDP report of each node."""
        return self.report_config.rows(sizes.width, sizes.classes) if self.privacy_config.protects else ()

    def _deviations(self, *claims: LocalDPClaim) -> tuple[str, ...]:
        """Return the reasons why the guarantee of an LDP report is invalid; empty if it is valid."""
        paper = self.privacy_config.paper_deviations if self.privacy_config.paper else ()
        seeded = () if self.privacy_config.unsafe_noise_seed is None else (SEEDED,)
        return (*(why for claim in claims for why in claim.deviations), *paper, *seeded)

    # -- one collection ------------------------------------------------------------------------------------

    def collected(self, view: Graph, session: Session) -> CollectionResult:
        """Randomize every node record and charge the ledger; return exact records if the unit is ``none``."""
        if self.received is not None:
            return CollectionResult(self.received.records, self.received.clipped)
        config = self.report_config
        if not self.privacy_config.protects:
            return CollectionResult(exact_records(view, config.scaling))
        randomizer = config.randomizer(view.num_features, view.num_classes)
        report_file = None
        if session.workspace is not None:
            path = session.workspace / "reports.safetensors"
            report_file = ReportFile(path, randomizer.binding(view))
        randomize = partial(randomizer, label_report_nodes(view), session.noise_seed)
        found = self.collect_reports(view, session, randomize, randomizer.parts(view), report_file)
        features = config.features
        clipped = None if features is None else clipped_values(features.bounds, view.x, config.scaling)
        return CollectionResult(randomizer.received(found, view.x), clipped)

    def collect_reports(
        self,
        view: Graph,
        session: Session,
        randomize: Callable[..., State],
        records: Sequence[Any],
        report_file: ReportFile | None = None,
    ) -> State:
        """Charge the guarantee of the session to the ledger, then randomize these parts of the records."""
        guarantee = session.guarantee
        assert guarantee is not None  # the cost is known before the collection
        return collect_reports(
            view,
            session,
            lambda release_id: Entry(release_id, self.name, guarantee.event, unit=LocalAttributes()),
            randomize,
            records,
            report_file,
        )

    # -- reported labels -----------------------------------------------------------------------------------

    def noisy(
        self, view: Graph, labels: Tensor, *, corrected: bool = True, smoothing: Propagation | None = None
    ) -> NoisyLabels:
        """Return the randomized labels of a graph and the parameters of their noise.

        Args:
            view: Graph whose split tells training and validation nodes.
            labels: Reported labels.
            corrected: Whether the loss includes the label noise (forward correction).
            smoothing: Propagation of labels; None for none.
        """
        label = self.report_config.label(view.num_classes)
        return NoisyLabels(
            labels=labels,
            classes=view.num_classes,
            train=reported_nodes(view, labels, "train"),
            val=reported_nodes(view, labels, "val"),
            keep=label.keep_with(self.missing_labels),
            blind=label.blind,
            transition=self.transition(view.num_classes) if corrected else None,
            smoothing=smoothing,
        )

    def transition(self, classes: int) -> Tensor:
        """Return the distribution of the report for each class, including nodes without a label, (C, C)."""
        label = self.report_config.label(classes)
        return torch.from_numpy(label.transition_with(self.missing_labels)).float()


def record_deviations(view: Graph) -> tuple[str, ...]:
    """Return why records have no valid guarantee, such as column scaling that reads all records."""
    ranges = (FROM_DATA,) if RANGES_PUBLIC in view.notes else ()
    return (*view.deviations, *ranges)


@dataclass(frozen=True, eq=False)
class HeldOutFit:
    """A fit to all reports, and its predictions of held-out reports.

    Args:
        result: Result of the fit.
        held_out: Probabilities (N, C) of reporting nodes, from a fit without the reports of their fold.
    """

    result: FitResult
    held_out: Tensor


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedOnReports:
    """The reports of a trained model; mixed into a ``TrainedModel``.

    Args:
        reports: Reports that the model was fitted to; None for a model from a file, which contains none.
    """

    reports: RandomizedRecords | None

    def plan_for(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return None: edges are public, so there is no edge query."""
        return None

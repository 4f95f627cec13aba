"""Methods on records that their own nodes randomize: the guarantee of an LDP report, and one collection."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from graphveil.artifacts.rows import ReleaseRow
from graphveil.data import Graph
from graphveil.data.recipes import RANGES_PUBLIC
from graphveil.data.tables.split_parts import empty_part_message
from graphveil.errors import GraphError
from graphveil.estimators.method import Method
from graphveil.estimators.privacy_config import SEEDED
from graphveil.estimators.public_sizes import PublicSizes, check_members
from graphveil.estimators.requirements import check_unit
from graphveil.estimators.session import Session
from graphveil.local.lpgnn.randomized_records import RandomizedRecords, exact_records, outside
from graphveil.local.lpgnn.report_config import ReportConfig
from graphveil.local.lpgnn.report_store import ReportFile, State, collect_reports
from graphveil.local.lpgnn.scaling import ROW_SCALED, scaled
from graphveil.mechanisms.claim import LocalDPClaim
from graphveil.mechanisms.features import FROM_DATA
from graphveil.privacy import Entry, Guarantee, LocalAttributes, LocalReport, compose
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

"""Methods on records that their own nodes randomize: the guarantee of an LDP report, and one collection."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from graphveil.artifacts.rows import ReleaseRow
from graphveil.errors import GraphError
from graphveil.graph import Graph
from graphveil.graph.recipes import RANGES_PUBLIC
from graphveil.mechanisms.claim import Claim
from graphveil.mechanisms.local.bounds import FROM_DATA
from graphveil.models.lpgnn.booking import Kept, State, booked
from graphveil.models.lpgnn.randomised import Randomised, no_reports, outside
from graphveil.models.lpgnn.reporting import Reporting
from graphveil.models.lpgnn.scaling import ROW_SCALED, scaled
from graphveil.models.membership import check_members
from graphveil.models.method import Method
from graphveil.models.promises import SEEDED
from graphveil.models.requirements import check_unit
from graphveil.models.session import Session
from graphveil.models.sizes import PublicSizes
from graphveil.privacy import Entry, Guarantee, LocalReport, NodeFeatures, compose
from graphveil.release import ReleasePlan
from graphveil.tables.parts import refusal

WHO_HAS_A_LABEL = (
    "a training or validation node without a label says a class at random, so eps_y covers who has one, too"
)
NOTHING_OF_FEATURES = "nothing is told about features, so that their budget is not spent"
_Part = Literal["features", "label"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Received:
    """Reports that a fit learns from, in the place of records that it would have randomised.

    Args:
        records: the reports.
        guarantee: that of the model which was fitted to them first; None for LDP reports from devices.
        clipped: what that model counted; None where only the devices know.
    """

    records: Randomised
    guarantee: Guarantee | None = None
    clipped: int | None = None


@dataclass(frozen=True, eq=False)
class Collected:
    """One collection: what the server has of all records, and what was cut (which is private)."""

    records: Randomised
    clipped: int | None = None


@dataclass(frozen=True, kw_only=True)
class LocalMethod(Method):
    """A method that learns from records which each node randomises, over public edges.

    Args:
        reporting: how a node randomises its record.
        received: reports that this one fit is given; None to have records randomised.
    """

    reporting: Reporting
    received: Received | None = field(default=None, repr=False, compare=False)

    def plan(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return None: a record pays before it leaves its node, and edges are public."""
        return None

    def check(self, graph: Graph) -> None:
        """Refuse a graph that cannot be used; no label is read, nor who has one if that is covered."""
        check_unit(self.terms, graph, reads_edges=self.reads_edges)
        if self.hides_labels:
            check_members(graph, "train", "val")
            return
        for split in ("train", "val"):
            if not bool(graph.mask(split).any()):
                raise GraphError(refusal(split))

    @property
    def hides_labels(self) -> bool:
        """Whether labels are randomised, and with them who has one."""
        return self.terms.protects and not math.isinf(self.reporting.eps_y)

    # -- the guarantee -------------------------------------------------------------------------------------

    def guarantee(self, plan: ReleasePlan | None, graph: Graph) -> Guarantee:
        """Return the guarantee of the LDP reports of this graph's nodes."""
        if self.received is not None and self.received.guarantee is not None:
            return self.received.guarantee
        if not self.terms.protects:
            return super().guarantee(plan, graph)
        promise = self.promised(graph.num_features, graph.num_classes)
        promise = promise.with_deviations(*deviations_of(graph))
        received = self.received is not None  # then devices saw to it
        labels = (WHO_HAS_A_LABEL,) if self.hides_labels and not received else ()
        return dataclasses.replace(promise, notes=(*self.notes(graph), *labels), received=received)

    def promised(self, features: int, classes: int) -> Guarantee:
        """Return the guarantee for records of so many features and classes, whatever the graph."""
        law = self.reporting.mechanism(features)
        claims: dict[_Part, Claim] = {} if law is None else {"features": law.claim}
        claims["label"] = self.reporting.label(classes).claim
        parts = [LocalReport(part, claim.epsilon, claim.delta) for part, claim in claims.items()]
        return Guarantee.of(
            NodeFeatures(),
            compose(*parts),
            delta=sum(claim.delta for claim in claims.values()),
            releases=1,
            mode=self.terms.mode,
            deviations=self._deviations(*claims.values()),
        )

    def price_of_features(self, graph: Graph, fitted: Guarantee) -> Guarantee:
        """Return the guarantee of one report on the features of each node, no more valid than the fit's."""
        law = self.reporting.mechanism(graph.num_features)
        assert law is not None  # or there would be nothing to pay
        claim = law.claim
        alone = Guarantee.of(
            NodeFeatures(),
            compose(LocalReport("features", claim.epsilon, claim.delta)),
            delta=claim.delta,
            releases=1,
            mode=self.terms.mode,
            notes=self.notes(graph),
        )
        return alone.with_deviations(*self._deviations(claim), *deviations_of(graph), *fitted.deviations)

    def notes(self, graph: Graph) -> tuple[str, ...]:
        """Return what the statement has to add about the data."""
        notes = tuple(note for note in graph.notes if note != RANGES_PUBLIC)
        if self.terms.protects and self.reporting.features is None:
            notes = (*notes, NOTHING_OF_FEATURES)
        return (*notes, ROW_SCALED) if self.reporting.scaling == "row" else notes

    def rows(self, plan: ReleasePlan | None, sizes: PublicSizes) -> tuple[ReleaseRow, ...]:
        """Return what leaves each node."""
        return self.reporting.rows(sizes.width, sizes.classes) if self.terms.protects else ()

    def _deviations(self, *claims: Claim) -> tuple[str, ...]:
        """Return why a node's LDP report has no valid guarantee; empty if it has."""
        paper = self.terms.paper_deviations if self.terms.paper else ()
        seeded = () if self.terms.unsafe_noise_seed is None else (SEEDED,)
        return (*(why for claim in claims for why in claim.deviations), *paper, *seeded)

    # -- one collection ------------------------------------------------------------------------------------

    def collected(self, graph: Graph, session: Session) -> Collected:
        """Have every node randomise its record, and book what that costs; exact records without a unit."""
        if self.received is not None:
            return Collected(self.received.records, self.received.clipped)
        x = scaled(graph.x, self.reporting.scaling)
        if not self.terms.protects:
            return Collected(no_reports(graph, x))
        randomiser = self.reporting.randomiser(graph.num_features, graph.num_classes)
        folder = session.workspace
        kept = None if folder is None else Kept(folder / "reports.safetensors", randomiser.binding(graph))
        given = self.reporting.features
        clipped = None if given is None else outside(given.bounds, x)
        found = self.booked(graph, session, lambda: randomiser(graph, x, session.noise_seed), kept)
        return Collected(randomiser.received(found, x), clipped)

    def booked(
        self, graph: Graph, session: Session, randomise: Callable[[], State], kept: Kept | None = None
    ) -> State:
        """Have nodes randomise what they tell, at the session's price, which is booked first."""
        guarantee = session.guarantee
        assert guarantee is not None  # the price is known before anybody is asked
        return booked(
            graph,
            session,
            lambda release_id: Entry(release_id, self.name, guarantee.event, unit=NodeFeatures()),
            randomise,
            kept,
        )


def deviations_of(graph: Graph) -> tuple[str, ...]:
    """Return why records have no valid guarantee: a recipe that scales columns reads everybody's data."""
    ranges = (FROM_DATA,) if RANGES_PUBLIC in graph.notes else ()
    return (*graph.deviations, *ranges)

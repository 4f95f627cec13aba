"""Predicting graphs that were not fitted: their nodes randomise their features first, and tell no label.

An edge set stands for the people of its graph, and has the ledger of what they told. The new nodes of a graph
that has grown are people who were not there before: they tell once, and what the others told is kept.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from graphveil.errors import ConfigError
from graphveil.graph import EdgeSet, Graph, rows
from graphveil.graph.adjacency import Step
from graphveil.graph.features import stacked
from graphveil.models.inference.cache import Answer, PredictionCache
from graphveil.models.inference.ledger import PredictionLedger
from graphveil.models.inference.requests import Books, PredictionRequest, Words, booking
from graphveil.models.lpgnn.randomised import Randomised
from graphveil.models.method import Trained
from graphveil.models.session import Session
from graphveil.models.sizes import PublicSizes
from graphveil.networks.inputs import Estimates
from graphveil.privacy import Guarantee
from graphveil.release import ReleasePlan


@dataclass(frozen=True, eq=False)
class CollectedReports(Answer):
    """What is known about one graph, with the randomised records behind it."""

    records: Randomised

    @property
    def nodes(self) -> int:
        """How many nodes there were."""
        return len(self.records.labels)


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedOnReports(Trained):
    """What was learned from randomised records.

    Args:
        reports: what it was learned from; None for a model from a file, which does not hold them.
    """

    reports: Randomised | None

    def plan_for(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return None: nothing is asked of edges, which are public."""
        return None


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedOnRecords(TrainedOnReports):
    """What was learned from whole records: nodes of another graph tell about their features, too."""

    @abstractmethod
    def price(self, graph: Graph, fitted: Guarantee) -> Guarantee:
        """Return what nodes of another graph pay, no more valid than the guarantee of the fit."""

    @abstractmethod
    def hear(
        self,
        graph: Graph,
        before: CollectedReports | None,
        session: Session,
        occasion: int,
    ) -> CollectedReports:
        """Have nodes randomise their features, which is booked, and return what is known then.

        Args:
            graph: the graph to predict.
            before: what was told by its first nodes; all others are asked.
            session: where the collection is booked, and at which price.
            occasion: the number of this collection: no two have the same noise, whatever the seed.
        """


@dataclass(frozen=True, eq=False)
class CollectionRequest:
    """One collection of features: whose, at what price, and what was told before.

    Args:
        graph: the graph to predict.
        price: the guarantee of this collection alone.
        steps: those by which the graph has grown since ``before``; none if all of its nodes are asked.
        before: what the nodes of the graph told that it has grown from.
        disjoint: the caller's word that nobody here was asked before.
    """

    graph: Graph
    price: Guarantee
    steps: tuple[Step, ...]
    before: CollectedReports | None
    disjoint: bool

    @property
    def people(self) -> EdgeSet:
        """The edge sets of those who are asked."""
        return EdgeSet(parts=[step.added.edge_set for step in self.steps] or [self.graph.edge_set])

    def enter(self, ledger: PredictionLedger) -> PredictionLedger:
        """Enter the collection into a model's ledger, and return it."""
        for step in self.steps:
            ledger.apart(step.added.edge_set, step.apart)
        if self.disjoint:
            ledger.apart(self.people)
        ledger.note(self.people, self.price)
        return ledger

    def ask(self, books: Books) -> None:
        """Have the nodes randomise their features, which is booked, and keep what is known then."""
        occasion, session = books.ledger.releases, booking(books, self)
        heard = _trained(books).hear(self.graph, self.before, session, occasion)
        books.cache.keep(self.graph.adjacency.version, self.graph.x, heard)


def requests_of_people(books: Books, graph: Graph, words: Words) -> Sequence[PredictionRequest]:
    """Return what predicting a graph collects: of a graph that has grown, from its new nodes alone.

    Raises:
        ConfigError: the model learned from LDP reports, or the caller's word cannot be true.
    """
    fitted = books.fitted
    if not fitted.method.terms.protects:
        return []
    if fitted.guarantee.received:
        raise ConfigError(
            f"this {fitted.method.name} learned from LDP reports, and no raw features are asked here: have "
            "the nodes of the other graph answer the survey, and learn from all LDP reports (fit_collected, "
            "collect learn), which costs those who have answered nothing more"
        )
    price = _trained(books).price(graph, fitted.guarantee)
    found = CollectionRequest(graph, price, *_grown(books.cache, graph), words.disjoint_people)
    if words.disjoint_people and books.ledger.fitted(found.people):
        raise ConfigError(
            "disjoint_people (--disjoint-people) does not hold: the graph is of the people that the model "
            "was fitted on. Drop it, or build each of the two graphs from edges of its own"
        )
    return [found]


def _trained(books: Books) -> TrainedOnRecords:
    trained = books.fitted.trained
    assert isinstance(trained, TrainedOnRecords)
    return trained


def _grown(cache: PredictionCache, graph: Graph) -> tuple[tuple[Step, ...], CollectedReports | None]:
    """Return the steps of growth since the last state whose reports are kept, and those; or nothing."""
    pending = list[Step]()
    for step in reversed(graph.adjacency.history):
        pending.insert(0, step)
        kept = cache.find(step.base, rows(graph.x, torch.arange(step.base_nodes)))
        if isinstance(kept, CollectedReports):
            return tuple(pending), kept
    return (), None


def joined(before: CollectedReports | None, new: Randomised) -> Randomised:
    """Return the records that were kept with those of further nodes after them."""
    if before is None:
        return new
    old = before.records
    deviations = stacked(old.features.deviations, new.features.deviations)
    return Randomised(
        Estimates(deviations, old.features.middle),
        torch.cat([old.labels, new.labels]),
        new.release_id,
        old.reproducible or new.reproducible,
    )

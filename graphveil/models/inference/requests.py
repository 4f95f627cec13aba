"""What predicting another graph asks: the whole graph once, or of a graph that has grown what is new."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch

from graphveil._random import PublicStreams
from graphveil.errors import ConfigError, NotYetError, UnitError
from graphveil.graph import Graph, rows
from graphveil.graph.adjacency import Step
from graphveil.graph.history import Batch, batches
from graphveil.graph.identity import Version
from graphveil.models.fitted import Fitted
from graphveil.models.inference.cache import Answer, PredictionCache
from graphveil.models.inference.ledger import PredictionLedger
from graphveil.models.session import Session
from graphveil.privacy import Guarantee, NodeFeatures, joint_ledger
from graphveil.release import NeighborCountQuery, NeighborSumQuery, ReleasePlan
from graphveil.release.release import check_weights


@dataclass(frozen=True)
class Words:
    """What the caller asserts, accepts, or provides when another graph is predicted."""

    disjoint_edges: bool = False
    disjoint_people: bool = False
    accept_price: bool = False
    workspace: Path | None = None  # where a release that is interrupted can be finished

    @property
    def settled(self) -> bool:
        """Whether the caller knows that another graph is asked, and is charged."""
        return self.disjoint_edges or self.disjoint_people or self.accept_price


@dataclass(kw_only=True, eq=False)
class Books:
    """What a fitted model has told, and what it keeps of it."""

    fitted: Fitted
    ledger: PredictionLedger
    cache: PredictionCache


class PredictionRequest(Protocol):
    """What predicting a graph asks under a budget: its price, its entry in the ledger, the asking."""

    @property
    def graph(self) -> Graph:
        """The graph that is asked."""

    @property
    def price(self) -> Guarantee:
        """What it costs alone."""

    def enter(self, ledger: PredictionLedger) -> PredictionLedger:
        """Enter it into a model's ledger, and return that."""

    def ask(self, books: Books) -> None:
        """Record it, ask it, and keep the answer."""


Requesting = Callable[[Books, Graph, Words], Sequence[PredictionRequest]]


@dataclass(frozen=True, eq=False)
class GraphRequest:
    """One release: the graph whose edges it asks, its plan and price, and what its answer is kept under.

    With a ``step`` the graph has the edges of one step of growth alone, and the rows of the nodes that were
    there before are kept. ``disjoint`` is the caller's word that the edges were not asked before.
    """

    graph: Graph
    version: Version
    plan: ReleasePlan
    price: Guarantee
    step: Step | None
    disjoint: bool
    workspace: Path | None = None

    def enter(self, ledger: PredictionLedger) -> PredictionLedger:
        """Enter the release into a model's ledger, and return it."""
        if self.step is not None:
            ledger.apart(self.graph.edge_set, self.step.apart)
        if self.disjoint:
            ledger.apart(self.graph.edge_set)
        ledger.note(self.graph.edge_set, self.price)
        return ledger

    def ask(self, books: Books) -> None:
        """Record the release, ask the edges, and keep the answer."""
        kept = None if self.step is None else _before(self.graph, self.step, books.cache)
        answer = books.fitted.trained.answer(
            self.graph, booking(books, self, self.plan, self.workspace), kept
        )
        books.cache.keep(self.version, self.graph.x, answer)


def booking(
    books: Books,
    asked: PredictionRequest,
    plan: ReleasePlan | None = None,
    workspace: Path | None = None,
) -> Session:
    """Return the session that records a release where it belongs, and then enters it into the ledger."""
    tried, method = asked.enter(books.ledger.copy()), books.fitted.method

    def booked() -> None:
        books.ledger = tried

    return Session(
        streams=PublicStreams(method.terms.seed),
        plan=plan,
        guarantee=asked.price,
        label=method.name,
        noise_seed=method.terms.unsafe_noise_seed,
        ledger=joint_ledger(tried.last.booked),
        on_booked=booked,
        workspace=workspace,
        occasion=books.ledger.releases,
    )


def requests_of_graph(books: Books, graph: Graph, words: Words) -> Sequence[PredictionRequest]:
    """Return what has to be asked of a graph's edges, in order, before it can be predicted; None for nothing.

    Raises:
        UnitError, ConfigError: the caller's word settles nothing, or cannot be true.
        NotYetError: the method has no answer from such a graph.
    """
    fitted = books.fitted
    plan = fitted.trained.plan_for(fitted.trained.sizes_for(graph, fitted.sizes))
    if plan is None:
        return []
    check_weights(plan, graph.adjacency)
    price, version = price_of(fitted, plan, graph), graph.adjacency.version
    whole = GraphRequest(graph, version, plan, price, None, words.disjoint_edges, words.workspace)
    asked = _new_batches(books, graph, words.disjoint_edges) or [whole]
    if words.disjoint_edges:
        for request in asked:
            _check_word(books, request.graph)
    return asked


def check_no_groups(name: str, plan: ReleasePlan) -> None:
    """Refuse a plan that asks by who has a public label, which another graph need not say."""
    if any(query.groups > 1 for query in plan.queries):
        raise NotYetError(
            f"{name} under its unit asks by who has a public label, which another graph need not say, and "
            "does not yet predict one; fit it on that graph (its own release and budget), or use gap, which "
            "predicts other graphs"
        )


def price_of(fitted: Fitted, plan: ReleasePlan, graph: Graph) -> Guarantee:
    """Return the guarantee of another graph's release alone, no more valid than the model's own."""
    return fitted.method.guarantee(plan, graph).voided_by(fitted.guarantee)


def _new_batches(books: Books, graph: Graph, disjoint: bool) -> list[GraphRequest]:
    """Return the steps of growth after the last state that something is known about; none if there is none.

    Under a unit of records an old node's record grows, too, so what is new cannot be told from what is old.
    """
    method = books.fitted.method
    if not method.grows or method.terms.on_records:
        return []
    pending = list[Batch]()
    for batch in reversed(list(batches(graph))):
        pending.insert(0, batch)
        kept = _before(batch.graph, batch.step, books.cache)
        if kept is not None and kept.plan is not None:
            plan = _rows_alone(kept.plan)
            return [_of_step(books.fitted, new, plan, disjoint) for new in pending]
    return []


def _of_step(fitted: Fitted, new: Batch, plan: ReleasePlan, disjoint: bool) -> GraphRequest:
    price = price_of(fitted, plan, new.graph)
    return GraphRequest(new.graph, new.version, plan, price, new.step, disjoint)


def _rows_alone(plan: ReleasePlan) -> ReleasePlan:
    """Return the plan for new rows, with the noise of the old ones: what else a fit asked holds for them."""
    return replace(
        plan,
        queries=tuple(
            query for query in plan.queries if isinstance(query, NeighborSumQuery | NeighborCountQuery)
        ),
    )


def _before(graph: Graph, step: Step, answers: PredictionCache) -> Answer | None:
    """Return what is known of the graph before a step of growth."""
    return answers.find(step.base, rows(graph.x, torch.arange(step.base_nodes)))


def _check_word(books: Books, graph: Graph) -> None:
    """Refuse an assertion that says nothing about what is protected, or that is known to be false."""
    terms = books.fitted.method.terms
    if terms.on_records:
        raise UnitError(
            "disjoint_edges (--disjoint-edges) says nothing about records, which unit "
            f"{terms.unit.name!r} protects: somebody may be in both graphs. Drop it; the two releases add up"
        )
    if books.ledger.fitted(graph.edge_set):
        raise ConfigError(
            "disjoint_edges (--disjoint-edges) does not hold: the graph's edges belong to the edge set that "
            "the model was fitted on. Drop it, or build each of the two graphs from edges of its own"
        )


def check_words(unit: str, words: Words) -> None:
    """Refuse a word about edges where it is people who tell, and about people where edges are asked."""
    of_people = unit == NodeFeatures.name
    if words.disjoint_edges and of_people:
        raise UnitError(
            f"disjoint_edges (--disjoint-edges) says nothing about records, which unit {unit!r} protects: "
            "somebody may be in both graphs. If you know that nobody is, pass disjoint_people "
            "(--disjoint-people); else drop it, and the reports add up"
        )
    if words.disjoint_people and not of_people:
        raise UnitError(
            "disjoint_people (--disjoint-people) is for unit 'node-features', where each person pays for its "
            f"own reports, and the unit is {unit!r}; drop it"
        )

"""What predicting another graph asks: the whole graph once, or of a graph that has grown what is new."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import torch

from graphveil._random import PublicStreams
from graphveil.errors import ConfigError, UnitError
from graphveil.graph import Graph, rows
from graphveil.graph.adjacency import Step
from graphveil.graph.history import Batch, batches
from graphveil.graph.identity import Version
from graphveil.models.inference.cache import Answer, PredictionCache
from graphveil.models.inference.ledger import PredictionLedger
from graphveil.models.session import Session
from graphveil.privacy import Guarantee, NodeFeatures, NodeUnit, joint_ledger
from graphveil.release import NeighborSumQuery, ReleasePlan

if TYPE_CHECKING:
    from graphveil.models.base import Estimator


class PredictionRequest(Protocol):
    """What predicting a graph asks under a budget: its price, its entry in the ledger, the asking."""

    @property
    def graph(self) -> Graph:
        """The graph that is asked."""

    @property
    def price(self) -> Guarantee:
        """What it costs alone."""

    def enter(self, told: PredictionLedger) -> PredictionLedger:
        """Enter it into a model's ledger, and return that."""

    def ask(self, model: "Estimator") -> None:
        """Book it, ask it, and keep the answer."""


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

    def enter(self, told: PredictionLedger) -> PredictionLedger:
        """Enter the release into a model's ledger, and return it."""
        if self.step is not None:
            told.apart(self.graph.edge_set, self.step.apart)
        if self.disjoint:
            told.apart(self.graph.edge_set)
        told.note(self.graph.edge_set, self.price)
        return told

    def kept(self, answers: PredictionCache) -> Answer | None:
        """Return what is known of the nodes that were there before; None for a graph that is asked whole."""
        return None if self.step is None else _before(self.graph, self.step, answers)

    def ask(self, model: "Estimator") -> None:
        """Book the release, ask the edges, and keep the answer."""
        context = booking(model, self)
        answer = model._answer(self.graph, self.plan, context, self.kept(model._answers))
        model._answers.keep(self.version, self.graph.x, answer)


def booking(model: "Estimator", asked: PredictionRequest) -> Session:
    """Return the context that books a release where it belongs, and then enters it into the ledger."""
    tried = asked.enter(model._told.copy())

    def booked() -> None:
        model._told = tried

    budget = joint_ledger(tried.last.booked)
    return Session(PublicStreams(model.seed), budget=budget, on_booked=booked)


def questions(model: "Estimator", graph: Graph, plan: ReleasePlan, disjoint: bool) -> list[GraphRequest]:
    """Return what has to be asked, in order, for predictions of a graph that nothing is kept about.

    Args:
        model: the fitted model.
        graph: the graph to predict.
        plan: the release on the whole graph, for when it has not grown from one that was predicted.
        disjoint: the caller's word that its edges were not asked before.

    Raises:
        UnitError, ConfigError: the caller's word settles nothing, or cannot be true.
    """
    asked = _new_batches(model, graph, disjoint) or [
        GraphRequest(graph, graph.adjacency.version, plan, model._price_of(plan, graph), None, disjoint)
    ]
    if disjoint:
        for question in asked:
            _check_word(model, question.graph)
    return asked


def _new_batches(model: "Estimator", graph: Graph, disjoint: bool) -> list[GraphRequest]:
    """Return the steps of growth after the last state that something is known about; none if there is none.

    Under a unit of records an old node's record grows, too, so what is new cannot be told from what is old.
    """
    if not model.grows or isinstance(model.protected_unit, NodeUnit):
        return []
    pending = list[Batch]()
    for batch in reversed(list(batches(graph))):
        pending.insert(0, batch)
        kept = _before(batch.graph, batch.step, model._answers)
        if kept is not None and kept.plan is not None:
            plan = _rows_alone(kept.plan)
            return [
                GraphRequest(
                    new.graph, new.version, plan, model._price_of(plan, new.graph), new.step, disjoint
                )
                for new in pending
            ]
    return []


def _of_step(model: "Estimator", new: Batch, plan: ReleasePlan, disjoint: bool) -> GraphRequest:
    price = model._price_of(plan, new.graph)
    return GraphRequest(new.graph, new.version, plan, price, new.step, disjoint)


def _rows_alone(plan: ReleasePlan) -> ReleasePlan:
    """Return the plan for new rows, with the noise of the old ones: what else a fit asked holds for them."""
    return replace(
        plan, queries=tuple(query for query in plan.queries if isinstance(query, NeighborSumQuery))
    )


def _before(graph: Graph, step: Step, answers: PredictionCache) -> Answer | None:
    """Return what is known of the graph before a step of growth."""
    return answers.find(step.base, rows(graph.x, torch.arange(step.base_nodes)))


def _check_word(model: "Estimator", graph: Graph) -> None:
    """Refuse an assertion that says nothing about what is protected, or that is known to be false."""
    if isinstance(model.protected_unit, NodeUnit):
        raise UnitError(
            f"disjoint_edges (--disjoint-edges) says nothing about records, which unit {model.unit!r} "
            "protects: somebody may be in both graphs. Drop it; the two releases add up"
        )
    if model._told.fitted(graph.edge_set):
        raise ConfigError(
            "disjoint_edges (--disjoint-edges) does not hold: the graph's edges belong to the edge set that "
            "the model was fitted on. Drop it, or build each of the two graphs from edges of its own"
        )


def check_subject(model: "Estimator", disjoint_edges: bool, disjoint_people: bool) -> None:
    """Refuse a word about edges where it is people who tell, and about people where edges are asked."""
    of_people = isinstance(model.protected_unit, NodeFeatures)
    if disjoint_edges and of_people:
        raise UnitError(
            f"disjoint_edges (--disjoint-edges) says nothing about records, which unit {model.unit!r} "
            "protects: somebody may be in both graphs. If you know that nobody is, pass disjoint_people "
            "(--disjoint-people); else drop it, and the reports add up"
        )
    if disjoint_people and not of_people:
        raise UnitError(
            "disjoint_people (--disjoint-people) is for unit 'node-features', where each person pays for its "
            f"own reports, and the unit is {model.unit!r}; drop it"
        )

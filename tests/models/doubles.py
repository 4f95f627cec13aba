"""A method for units of records that learns nothing: what it releases is true to its plan, and quick.

Its rows are real releases, so that books, folders and guarantees can be tested without training.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from graphveil.graph import Graph
from graphveil.models.base import Estimator
from graphveil.models.inference.cache import Answer
from graphveil.models.method import Method, Outcome, State, Trained
from graphveil.models.session import Session
from graphveil.models.sizes import PublicSizes
from graphveil.privacy import NodeOwner
from graphveil.release import NeighborSumData, PushData, PushQuery, ReleasePlan, calibrate_plan
from graphveil.release.plan import hops

DIM = 4


@dataclass(kw_only=True, eq=False)
class Double(Estimator):
    """Releases one noisy row a node, and predicts by the row's largest entries."""

    method: ClassVar[str] = "double"
    node_units: ClassVar[tuple[str, ...]] = ("node-owner", "node-promise")
    needs_degree_budget: ClassVar[bool] = True

    hidden: int = 3

    def _configured(self) -> Method:
        return DoubleMethod(
            name=self.method, terms=self._terms(), degree_budget=self.degree_budget or 1, hidden=self.hidden
        )


@dataclass(frozen=True, kw_only=True)
class DoubleMethod(Method):
    """One hop."""

    degree_budget: int
    hidden: int

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        unit = self.terms.unit

        def queries(mu: float) -> tuple[Any, ...]:
            if not isinstance(unit, NodeOwner):
                return hops(mu, 1, DIM, unit)
            return (PushQuery(dim=DIM, sigma=unit.change / mu, degree_budget=self.degree_budget),)

        delta = self.terms.delta_for(sizes.nodes)
        return calibrate_plan(unit, self.terms.budget, delta, queries, num_nodes=sizes.nodes)

    def fit(self, graph: Graph, session: Session) -> Outcome:
        assert session.plan is not None
        release = session.open(graph)
        vectors = torch.zeros(graph.num_nodes, DIM)
        vectors[:, 0] = 1.0
        with session.stage("aggregate"):
            pushes = isinstance(session.plan.unit, NodeOwner)
            rows = release.ask(PushData(vectors) if pushes else NeighborSumData(vectors))
            release.close()
        return Outcome(
            trained=TrainedDouble(self.hidden, graph.num_classes),
            proba=rows[:, : graph.num_classes].softmax(dim=1),
            released={"hop1": rows},
            private_accuracy={"val": 0.4, "test": 0.5} if self.terms.private_metrics else {},
        )

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedDouble":
        assert len(state["weights"]) == self.hidden
        return TrainedDouble(self.hidden, sizes.classes)


@dataclass(frozen=True)
class TrainedDouble(Trained):
    """Predicts nothing of other graphs, for nothing."""

    hidden: int
    classes: int

    def plan_for(self, sizes: PublicSizes) -> ReleasePlan | None:
        return None

    def answer(self, graph: Graph, session: Session, kept: Answer | None) -> Answer:
        return Answer(None, (), torch.full((graph.num_nodes, self.classes), 1 / self.classes))

    def state(self) -> State:
        return {"weights": torch.ones(self.hidden)}

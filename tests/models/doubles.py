"""A method for units of records that learns nothing: what it releases is true to its plan, and quick.

Its rows are real releases, so that books, folders and guarantees can be tested without training.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from graphveil.graph import Graph
from graphveil.models.base import Estimator, State
from graphveil.models.session import Session
from graphveil.privacy import NodeOwner
from graphveil.release import PushQuery, ReleasePlan, calibrate_plan
from graphveil.release.plan import hops

DIM = 4


@dataclass(kw_only=True, eq=False)
class Double(Estimator):
    """Releases one noisy row a node, and predicts by the row's largest entries."""

    method: ClassVar[str] = "double"
    node_units: ClassVar[tuple[str, ...]] = ("node-owner", "node-promise")
    needs_degree_budget: ClassVar[bool] = True

    hidden: int = 3

    def _plan(self, delta: float, num_nodes: int, num_classes: int) -> ReleasePlan:
        unit = self.protected_unit

        def queries(mu: float) -> tuple[Any, ...]:
            if not isinstance(unit, NodeOwner):
                return hops(mu, 1, DIM, unit)
            assert self.degree_budget is not None
            return (PushQuery(dim=DIM, sigma=unit.change / mu, degree_budget=self.degree_budget),)

        return calibrate_plan(unit, self._budgeted(), delta, queries, num_nodes=num_nodes)

    def _fit(self, graph: Graph, plan: ReleasePlan | None, context: Session) -> Tensor:
        assert plan is not None
        release = self._release(plan, graph, context)
        vectors = torch.zeros(graph.num_nodes, DIM)
        vectors[:, 0] = 1.0
        with context.stage("aggregate"):
            ask = release.push if isinstance(plan.unit, NodeOwner) else release.rows
            rows = ask(vectors)
            release.close()
        self.aggregates_ = {"hop1": rows}
        if self.private_metrics:
            self.private_accuracy_ = {"val": 0.4, "test": 0.5}
        return rows[:, : graph.num_classes].softmax(dim=1)

    def _predict_other(self, graph: Graph) -> Tensor:
        return torch.full((graph.num_nodes, self._shape["classes"]), 1 / self._shape["classes"])

    def _state(self) -> State:
        return {"weights": torch.ones(self.hidden)}

    def _restore(self, state: State) -> None:
        assert len(state["weights"]) == self.hidden

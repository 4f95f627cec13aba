"""A quick method for node-level units that learns nothing and releases according to its plan.

Its aggregates are real releases, so that ledgers, folders and guarantees can be tested without training.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from graphveil.core.plan import ReleasePlan, calibrate_plan, hops
from graphveil.core.queries.neighbor_sums import NeighborSumData
from graphveil.core.queries.out_edge_sums import OutEdgeSumData, OutEdgeSumQuery
from graphveil.core.unit import NodeRecord
from graphveil.data import Graph
from graphveil.estimators.base import Estimator
from graphveil.estimators.method import FitResult, Method, State, TrainedModel
from graphveil.estimators.prediction_cache import CachedPrediction
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.estimators.requirements import Rejections
from graphveil.estimators.session import Session

DIM = 4


@dataclass(kw_only=True, eq=False)
class Double(Estimator):
    """Releases one noisy row a node, and predicts by the row's largest entries."""

    method: ClassVar[str] = "double"
    rejections: ClassVar[Rejections] = {}
    needs_out_degree_bound: ClassVar[bool] = True

    hidden: int = 3

    def _build_method(self) -> Method:
        return DoubleMethod(
            name=self.method,
            privacy_config=self.privacy_config,
            out_degree_bound=self.out_degree_bound or 1,
            hidden=self.hidden,
        )


@dataclass(frozen=True, kw_only=True)
class DoubleMethod(Method):
    """One hop."""

    out_degree_bound: int
    hidden: int

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        unit = self.privacy_config.unit

        def queries(mu: float) -> tuple[Any, ...]:
            if not isinstance(unit, NodeRecord):
                return hops(mu, 1, DIM, unit)
            return (OutEdgeSumQuery(dim=DIM, sigma=unit.change / mu, out_degree_bound=self.out_degree_bound),)

        delta = self.privacy_config.delta_for(sizes.nodes)
        return calibrate_plan(unit, self.privacy_config.budget, delta, queries, num_nodes=sizes.nodes)

    def fit(self, graph: Graph, session: Session) -> FitResult:
        assert session.plan is not None
        release = session.open(graph)
        vectors = torch.zeros(graph.num_nodes, DIM)
        vectors[:, 0] = 1.0
        with session.stage("aggregate"):
            pushes = isinstance(session.plan.unit, NodeRecord)
            rows = release.answer(OutEdgeSumData(vectors) if pushes else NeighborSumData(vectors))
            release.close()
        return FitResult(
            trained=TrainedDouble(self.hidden, graph.num_classes),
            proba=rows[:, : graph.num_classes].softmax(dim=1),
            released={"hop1": rows},
            private_accuracy={"val": 0.4, "test": 0.5} if self.privacy_config.private_metrics else {},
        )

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedDouble":
        assert len(state["weights"]) == self.hidden
        return TrainedDouble(self.hidden, sizes.classes)


@dataclass(frozen=True)
class TrainedDouble(TrainedModel):
    """Predicts nothing of other graphs, for nothing."""

    hidden: int
    classes: int

    def plan_for(self, sizes: PublicSizes) -> ReleasePlan | None:
        return None

    def answer(self, graph: Graph, session: Session, kept: CachedPrediction | None) -> CachedPrediction:
        return CachedPrediction(None, (), torch.full((graph.num_nodes, self.classes), 1 / self.classes))

    def state(self) -> State:
        return {"weights": torch.ones(self.hidden)}

"""A fit of ClassCode at edge level, as a value: it reads the rows of any graph of the same kind."""

from dataclasses import dataclass, replace

import torch

from graphveil.data import Graph
from graphveil.estimators.classcode.edge.groups import (
    groups_of,
    labeled_count,
    prediction_groups,
    public_labels,
)
from graphveil.estimators.classcode.edge.head import PosteriorHead
from graphveil.estimators.classcode.edge.inductive import InductivePredictor
from graphveil.estimators.classcode.edge.plan import EdgeReleaseConfig
from graphveil.estimators.classcode.edge.rounds import build_rounds
from graphveil.estimators.classcode.edge.weights import EdgeWeightModel, weight_model_state
from graphveil.estimators.inference.prediction_cache import CachedPrediction
from graphveil.estimators.method import State, TrainedModel, networks_state
from graphveil.estimators.privacy_config import PrivacyConfig
from graphveil.estimators.public_sizes import PublicSizes, check_classes
from graphveil.estimators.session import Session
from graphveil.release import ReleasePlan


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedEdgeLevelClassCode(TrainedModel):
    """What a fit at edge level leaves; heads and gate stay with the graph that they were fitted to.

    Args:
        privacy_config: what is protected, at which budget.
        edge_plan: what is asked of the edges of a graph.
        classes: C.
        inductive_predictor: reads rows of graphs that were not fitted.
        weight_model: what weighs messages; None for weights of one.
        heads: networks that read rows of the fitted graph.
        gate: the weights of heads, likelihood and features there.
    """

    privacy_config: PrivacyConfig
    edge_plan: EdgeReleaseConfig
    classes: int
    inductive_predictor: InductivePredictor
    weight_model: EdgeWeightModel | None
    heads: tuple[PosteriorHead, ...]
    gate: tuple[float, ...]

    def check(self, graph: Graph, class_names: tuple[str, ...]) -> None:
        """Refuse public labels that do not mean what they meant in training."""
        check_classes(graph, class_names, self.classes)

    def sizes_for(self, graph: Graph, fitted: PublicSizes) -> PublicSizes:
        """Return the sizes of another graph, with the number of its own public labels."""
        return replace(super().sizes_for(graph, fitted), labeled=labeled_count(graph))

    def plan_for(self, sizes: PublicSizes) -> ReleasePlan:
        """Return rounds of rows alone."""
        return self.edge_plan.prediction_plan(self.privacy_config, sizes)

    def answer(self, graph: Graph, session: Session, kept: CachedPrediction | None) -> CachedPrediction:
        """Ask all rounds; of a graph that has grown, for its new nodes, to which the old ones speak."""
        assert session.plan is not None  # there is always something to ask
        first = 0 if kept is None else len(kept.proba)
        groups = prediction_groups(graph, first)
        release = session.open(graph, groups, first=first)
        labels, queries = public_labels(graph, groups_of(graph)), session.plan.queries
        rounds = build_rounds(queries, graph, groups, labels, release, self.weight_model, first)
        proba = self.inductive_predictor.predict(
            rounds, graph, session, kept, previous=self.edge_plan.reads_previous
        )
        release.close()
        return CachedPrediction(session.plan, tuple(rounds.rows), proba)

    def state(self) -> State:
        """Return the weights of all networks, and the public figures beside them."""
        return {
            "gate": torch.tensor(self.gate),
            **networks_state("heads", self.heads),
            **weight_model_state(self.weight_model),
            **self.inductive_predictor.state(),
        }

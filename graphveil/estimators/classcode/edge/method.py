"""ClassCode where features and labels are public and edges are protected."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from graphveil.data import Graph
from graphveil.errors import ConfigError
from graphveil.estimators.classcode.edge.groups import groups_of, labeled_count, public_labels
from graphveil.estimators.classcode.edge.head import restore_heads
from graphveil.estimators.classcode.edge.inductive import InductivePredictor
from graphveil.estimators.classcode.edge.likelihood import Affinity
from graphveil.estimators.classcode.edge.plan import EdgeReleaseConfig
from graphveil.estimators.classcode.edge.posterior_estimation import PosteriorEstimate, PosteriorEstimator
from graphveil.estimators.classcode.edge.rounds import (
    AnyAggregationRounds,
    build_rounds,
    estimate_affinity,
    query_class_counts,
)
from graphveil.estimators.classcode.edge.trained import TrainedEdgeLevelClassCode
from graphveil.estimators.classcode.edge.weights import fit_weight_model, restore_weight_model
from graphveil.estimators.features.crossfit import CrossFitPosteriors, public_posteriors
from graphveil.estimators.method import FitResult, Method, State
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.estimators.session import Session
from graphveil.release import EdgeCountQuery, ReleasePlan

_MAX_SELF_TRAINING_NODES = 5000  # labeled nodes


@dataclass(frozen=True, kw_only=True)
class EdgeLevelClassCode(Method):
    """ClassCode for edge units: counts and steered rounds of rows, one release.

    Labels are public here, so how many there are is one of the sizes that a plan may depend on.

    Args:
        edge_plan: what is asked of the edges.
        self_training: whether features are learned a second time, from decisions; None where labels are few.
    """

    supports_growing_graphs: ClassVar[bool] = True
    tables: ClassVar[float] = 14.0
    pairs: ClassVar[float] = 8.0

    edge_plan: EdgeReleaseConfig
    self_training: bool | None = None

    @property
    def samples(self) -> bool:
        """Return True: networks learn from a sample of very many nodes."""
        return True

    def sizes_of(self, graph: Graph) -> PublicSizes:
        """Return the sizes, with the number of public labels."""
        return replace(super().sizes_of(graph), labeled=labeled_count(graph))

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        """Return the counts and the rounds of rows."""
        return self.edge_plan.fit_plan(self.privacy_config, sizes)

    def fit(self, graph: Graph, session: Session) -> FitResult:
        """Learn from features, ask counts and rows, and decide after each round of them."""
        if session.plan is None:
            raise ConfigError("ClassCode asks under a plan, and this session has none")
        with session.stage("encoder"):
            public = public_posteriors(graph, session)
            weight_model = fit_weight_model(self.edge_plan.edge_weighting, graph, public.log, session)
        groups, queries = groups_of(graph), session.plan.queries
        release, known, counts = session.open(graph, groups), None, {}
        if isinstance(queries[0], EdgeCountQuery):
            with session.stage("aggregate"):
                counts["counts"], known = query_class_counts(release, queries[0], graph, groups)
            queries = queries[1:]
        rounds = build_rounds(queries, graph, groups, public_labels(graph, groups), release, weight_model)
        decider = PosteriorEstimator(graph, session, public, self_training=self._uses_self_training(graph))
        decision = self._run_rounds(rounds, decider, public, session, known)
        release.close()
        affinity = estimate_affinity(rounds, known)
        trained = TrainedEdgeLevelClassCode(
            privacy_config=self.privacy_config,
            edge_plan=self.edge_plan,
            classes=graph.num_classes,
            inductive_predictor=InductivePredictor.from_fit(
                public, decider.distilled, affinity, decision.shape
            ),
            weight_model=weight_model,
            heads=decision.heads,
            gate=decision.gate,
        )
        rows = {f"rows{number}": rows for number, rows in enumerate(rounds.rows, start=1)}
        proba = decision.log.exp().to(torch.float32)
        learned = {"homophily": affinity.homophily}
        return FitResult(trained=trained, proba=proba, released={**counts, **rows}, learned=learned)

    def restore(self, state: State, sizes: PublicSizes, released: State) -> TrainedEdgeLevelClassCode:
        """Return the fit with these weights.

        Raises:
            ArtifactError: they are not those of so many features and classes.
        """
        return TrainedEdgeLevelClassCode(
            privacy_config=self.privacy_config,
            edge_plan=self.edge_plan,
            classes=sizes.classes,
            inductive_predictor=InductivePredictor.restore(state, sizes.width, sizes.classes),
            weight_model=restore_weight_model(self.edge_plan.edge_weighting, state, sizes.classes),
            heads=restore_heads(state),
            gate=tuple(state["gate"].tolist()),
        )

    def _run_rounds(
        self,
        rounds: AnyAggregationRounds,
        decider: PosteriorEstimator,
        public: CrossFitPosteriors,
        session: Session,
        known: Affinity | None,
    ) -> PosteriorEstimate:
        """Return the decision after all rounds, each of which sends what was decided before it."""
        decision = PosteriorEstimate.from_features(public.log)
        for number, _ in enumerate(rounds.hops, start=1):
            # No node's own label is in either of the two that weights may read.
            seen = decision.likely if self.edge_plan.reads_previous else public.log
            with session.stage("aggregate"):
                rounds.aggregate(decision.log, seen, session.streams.torch(f"weighed-pairs-{number}"))
            decision = decider.update(rounds, number, estimate_affinity(rounds, known))
        return decision

    def _uses_self_training(self, graph: Graph) -> bool:
        return (
            labeled_count(graph) < _MAX_SELF_TRAINING_NODES
            if self.self_training is None
            else self.self_training
        )

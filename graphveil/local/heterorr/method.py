"""HeteroRR as a frozen method: what is told of features, what is released of edges, a network on both."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from graphveil.artifacts.rows import ReleaseRow
from graphveil.data import Graph
from graphveil.estimators.full_graph import PerturbedFullGraph, TrainedPerturbed
from graphveil.estimators.inference.prediction_cache import CachedPrediction
from graphveil.estimators.method import FitResult, State
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.estimators.session import Session
from graphveil.local.heterorr.randomized_features import FeatureRandomizer
from graphveil.privacy import Guarantee
from graphveil.release import ReleasePlan

GRAPH_AND_FEATURE_INPUT_NOTE = (
    "the model was trained on a released graph, drawn once by {mechanism}, and on features as they were "
    "told, and predicts on these alone: no prediction reads a true private edge or a true feature"
)


@dataclass(frozen=True, kw_only=True)
class HeteroFullGraph(PerturbedFullGraph):
    """A network over one released graph and features that their own nodes randomized.

    Args:
        feature_randomizer: how they do.
    """

    input_note: ClassVar[str] = GRAPH_AND_FEATURE_INPUT_NOTE

    feature_randomizer: FeatureRandomizer

    @property
    def protects_features(self) -> bool:
        """Whether features are randomized before anybody reads them."""
        return not math.isinf(self.feature_randomizer.report_config.epsilon)

    def guarantee(self, plan: ReleasePlan | None, graph: Graph) -> Guarantee:
        """Return the guarantee of private edges, and with it that of features."""
        of_features = self.feature_randomizer.guarantee(graph, self.privacy_config)
        return super().guarantee(plan, graph).with_additional(of_features)

    def rows(self, plan: ReleasePlan | None, sizes: PublicSizes) -> tuple[ReleaseRow, ...]:
        """Return what is released of edges, and what leaves each node of its features."""
        return (*super().rows(plan, sizes), self.feature_randomizer.row(sizes.width))

    def fit(self, graph: Graph, session: Session) -> FitResult:
        """Have features told, release the graph, and train on what came out of both."""
        randomized_features = self.feature_randomizer.randomize(graph, session)
        outcome = super().fit(graph.replace(x=randomized_features.x), session)
        assert isinstance(outcome.trained, TrainedPerturbed)
        return replace(
            outcome,
            trained=self._with_feature_randomizer(outcome.trained),
            released={**outcome.released, **randomized_features.released},
            learned={"clipped": randomized_features.clipped},
        )

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedHetero":
        """Return the network with these weights."""
        return self._with_feature_randomizer(super().restore(state, sizes, released))

    def _with_feature_randomizer(self, trained: TrainedPerturbed) -> "TrainedHetero":
        return TrainedHetero(trained.network, trained.mechanism, trained.unit, self.feature_randomizer)


@dataclass(frozen=True, eq=False)
class TrainedHetero(TrainedPerturbed):
    """A trained network; another graph is released, and its nodes tell their features, before it predicts."""

    feature_randomizer: FeatureRandomizer

    def answer(self, graph: Graph, session: Session, kept: CachedPrediction | None) -> CachedPrediction:
        """Have features told, release the other graph, and predict from what came out of both."""
        randomized_features = self.feature_randomizer.randomize(graph, session)
        return super().answer(graph.replace(x=randomized_features.x), session, kept)

"""HeteroRR as a frozen method: what is told of features, what is released of edges, a network on both."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from graphveil.artifacts.rows import ReleaseRow
from graphveil.graph import Graph
from graphveil.models.heterorr.told import Teller
from graphveil.models.inference.cache import Answer
from graphveil.models.method import Outcome, State
from graphveil.models.perturbed import PerturbedFullGraph, TrainedPerturbed
from graphveil.models.session import Session
from graphveil.models.sizes import PublicSizes
from graphveil.privacy import Guarantee
from graphveil.release import ReleasePlan

SEES_BOTH = (
    "the model was trained on a released graph, drawn once by {mechanism}, and on features as they were "
    "told, and predicts on these alone: no prediction reads a true private edge or a true feature"
)


@dataclass(frozen=True, kw_only=True)
class HeteroFullGraph(PerturbedFullGraph):
    """A network over one released graph and features that their own nodes randomised.

    Args:
        teller: how they do.
    """

    sees: ClassVar[str] = SEES_BOTH

    teller: Teller

    @property
    def hides_features(self) -> bool:
        """Whether features are randomised before anybody reads them."""
        return not math.isinf(self.teller.reporting.epsilon)

    def guarantee(self, plan: ReleasePlan | None, graph: Graph) -> Guarantee:
        """Return the guarantee of private edges, and with it that of features."""
        of_features = self.teller.guarantee(graph, self.terms)
        return super().guarantee(plan, graph).with_beside(of_features)

    def rows(self, plan: ReleasePlan | None, sizes: PublicSizes) -> tuple[ReleaseRow, ...]:
        """Return what is released of edges, and what leaves each node of its features."""
        return (*super().rows(plan, sizes), self.teller.row(sizes.width))

    def fit(self, graph: Graph, session: Session) -> Outcome:
        """Have features told, release the graph, and train on what came out of both."""
        told = self.teller.tell(graph, session)
        outcome = super().fit(graph.replace(x=told.x), session)
        assert isinstance(outcome.trained, TrainedPerturbed)
        return replace(
            outcome,
            trained=self._told(outcome.trained),
            released={**outcome.released, **told.released},
            learned={"clipped": told.clipped},
        )

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedHetero":
        """Return the network with these weights."""
        return self._told(super().restore(state, sizes, released))

    def _told(self, trained: TrainedPerturbed) -> "TrainedHetero":
        return TrainedHetero(trained.network, trained.mechanism, trained.unit, self.teller)


@dataclass(frozen=True, eq=False)
class TrainedHetero(TrainedPerturbed):
    """A trained network; another graph is released, and its nodes tell their features, before it predicts."""

    teller: Teller

    def answer(self, graph: Graph, session: Session, kept: Answer | None) -> Answer:
        """Have features told, release the other graph, and predict from what came out of both."""
        told = self.teller.tell(graph, session)
        return super().answer(graph.replace(x=told.x), session, kept)

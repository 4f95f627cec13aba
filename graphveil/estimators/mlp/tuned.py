"""The floor: the best that features alone say in public; every choice is made on held-out labels."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphveil.data import Graph
from graphveil.errors import ArtifactError
from graphveil.estimators.features.crossfit import fits, mean_posterior, public_posteriors, restore_networks
from graphveil.estimators.inference.prediction_cache import CachedPrediction
from graphveil.estimators.method import FitResult, Method, State, TrainedModel
from graphveil.estimators.parts import networks_state
from graphveil.estimators.session import Session
from graphveil.estimators.sizes import PublicSizes
from graphveil.nn.layers import FeedForward
from graphveil.release import ReleasePlan

_FEATURES, _UNIT_ROWS = "features", "unit_rows"


@dataclass(frozen=True, kw_only=True)
class TunedMLP(Method):
    """The cross-fitted networks and votes of similar nodes that ClassCode begins with, as a method.

    Whatever ClassCode has above it was learned from edges: at the same seed both have the same posteriors.
    """

    reads_edges: ClassVar[bool] = False
    tables: ClassVar[float] = 6.0

    @property
    def samples(self) -> bool:
        """Return True: networks learn from a sample of very many nodes."""
        return True

    def plan(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return None: nothing protected is read."""
        return None

    def fit(self, graph: Graph, session: Session) -> FitResult:
        """Choose and train the networks on training and validation labels."""
        with session.stage("classifier"):
            public = public_posteriors(graph, session)
        trained = TrainedFoldEnsemble(public.networks, public.candidate.unit_rows)
        return FitResult(trained=trained, proba=public.log.exp().to(torch.float32))

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedFoldEnsemble":
        """Return the networks with these weights.

        Raises:
            ArtifactError: they are not those of so many features and classes.
        """
        networks = restore_networks(state, _FEATURES)
        if not fits(networks, sizes.width, sizes.classes):
            raise ArtifactError(
                f"the model's weights are not those of {sizes.width} features and {sizes.classes} classes; "
                "take them from the original run"
            )
        return TrainedFoldEnsemble(networks, bool(state[_UNIT_ROWS]))


@dataclass(frozen=True, eq=False)
class TrainedFoldEnsemble(TrainedModel):
    """One network a fold; together they know nodes of other graphs by their features.

    Args:
        networks: the feature networks.
        unit_rows: whether they take features scaled to rows of norm one.
    """

    networks: tuple[FeedForward, ...]
    unit_rows: bool

    def plan_for(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return None: nothing protected is read."""
        return None

    def answer(self, graph: Graph, session: Session, kept: CachedPrediction | None) -> CachedPrediction:
        """Predict from features alone."""
        return CachedPrediction(None, (), self.proba(graph))

    def proba(self, graph: Graph) -> Tensor:
        """Return probabilities (N, C): the networks' geometric mean, without votes of similar nodes."""
        return mean_posterior(self.networks, graph.x, unit=self.unit_rows).exp().to(torch.float32)

    def state(self) -> State:
        """Return the weights."""
        return {**networks_state(_FEATURES, self.networks), _UNIT_ROWS: torch.tensor(self.unit_rows)}

"""Edge weights of hops, computed from public or released vectors; this does not spend privacy budget."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from graphveil.core.features import Features
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.weights import Similarity
from graphveil.core.release import Release
from graphveil.data import Graph
from graphveil.errors import ConfigError
from graphveil.estimators.session import Session
from graphveil.nn.layers import FeedForward, batch_of
from graphveil.release.weights import DotWeight, parse_weight


class PublicNetworkWeight(DotWeight):
    """A weight whose rows are outputs of a network, which is trained on public labels. Edges are not read."""

    reads = "learned"

    @abstractmethod
    def network(self, width: int, generator: torch.Generator) -> FeedForward:
        """Return an untrained network for rows of a width."""

    @abstractmethod
    def fit(self, network: FeedForward, x: Tensor, y: Tensor, generator: torch.Generator) -> None:
        """Train the network in place on public rows and their public labels."""


class EdgeTrainedWeight(Similarity):
    """A weight whose parameters are learned from edges, by the first query of a release.

    Args:
        parameters: Names of the learned parameters.
    """

    reads = "attention"
    parameters: ClassVar[tuple[str, ...]]

    @abstractmethod
    def training(self, **settings: Any) -> "EdgeTraining":
        """Return the training for public settings: unit, sizes, hops, and steps and noise of users."""

    @abstractmethod
    def learn(self, view: Graph, rows: Tensor, release: Release, session: Session) -> dict[str, Tensor]:
        """Answer the release's first query, and return the parameters, now released."""

    @abstractmethod
    def keys(self, learned: Mapping[str, Tensor], rows: Tensor) -> tuple[Tensor, ...]:
        """Return the keys of the weight from learned parameters and public rows."""


class EdgeTraining(Protocol):
    """A plan of training steps and of the hops that follow."""

    def plan(self, epsilon: float, delta: float, *, num_nodes: int) -> ReleasePlan:
        """Return the plan with all queries for a budget."""


@dataclass(frozen=True)
class EdgeWeighting:
    """An edge weight. Its inputs are public; no edge is read."""

    similarity: Similarity

    @classmethod
    def from_config(
        cls, weights: str, *, encoder: bool, records: bool, trained_on_edges: bool = False
    ) -> "EdgeWeighting | None":
        similarity = parse_weight(weights)
        if similarity is None:
            return None
        if records:
            raise ConfigError(
                f"weights={weights!r} depends on node features, which node-level units protect. Use "
                "weights='one', or an edge-level unit."
            )
        if similarity.reads == "attention" and not trained_on_edges:
            raise ConfigError(
                f"weights={weights!r} is trained on the edges with privacy budget, which only gap with an "
                "edge-level unit supports. Use weights='learned_public', which is trained on public "
                "labels and does not spend budget."
            )
        if similarity.reads == "posteriors" and not encoder:
            raise ConfigError(
                f"weights={weights!r} needs the encoder's class probabilities. Use use_encoder=True."
            )
        return cls(similarity)

    @property
    def learned_from_edges(self) -> bool:
        """Whether edge weights are attention that is learned from the edges, for a part of the budget."""
        return self.similarity.reads == "attention"

    def weight_network(self, width: int, generator: torch.Generator) -> FeedForward | None:
        weight = self.similarity
        return weight.network(width, generator) if isinstance(weight, PublicNetworkWeight) else None

    def learned(self, view: Graph, rows: Tensor, session: Session) -> FeedForward | None:
        """Return the network that is trained on public labels, or None. Edges are not read."""
        generator = session.streams.torch("weights")
        network = self.weight_network(rows.shape[1], generator)
        if network is not None and isinstance(self.similarity, PublicNetworkWeight):
            nodes = view.labeled_in("train")
            self.similarity.fit(network, rows[nodes].float(), view.y[nodes], generator)
        return network

    def keys(
        self,
        view: Graph,
        rows: Tensor,
        encoder: nn.Module | None,
        network: nn.Module | None,
        session: Session,
    ) -> Features:
        if self.similarity.reads == "features":
            return view.x
        if self.similarity.reads == "rows":
            return rows

        @torch.no_grad()
        def compute() -> dict[str, Tensor]:
            if network is not None:
                return {"keys": network.eval()(rows.float())}
            assert encoder is not None  # from_config rejects such weights without an encoder
            return {"keys": encoder.eval()(batch_of(view.x)).softmax(dim=1)}

        # Stored in the workspace, as the aggregates are: a resumed release needs bit-identical inputs.
        return session.load_or_compute("weights", compute)["keys"]

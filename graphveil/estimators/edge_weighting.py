"""Edge weights of hops, computed from public or released vectors; this does not spend privacy budget."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.weights import Similarity
from graphveil.core.release import Release
from graphveil.data import Graph
from graphveil.errors import ConfigError
from graphveil.estimators.session import Session
from graphveil.nn.layers import FeedForward
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


def edge_weight(
    weights: str, *, encoder: bool, records: bool, trained_on_edges: bool = False
) -> Similarity | None:
    """Return the edge weight that a keyword names; None for weights of one."""
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
    return similarity


def weight_network(
    similarity: Similarity | None, width: int, generator: torch.Generator
) -> FeedForward | None:
    """Return an untrained network of an edge weight; None if it has none."""
    return similarity.network(width, generator) if isinstance(similarity, PublicNetworkWeight) else None


def trained_weight_network(
    similarity: Similarity | None, view: Graph, inputs: Tensor, session: Session
) -> FeedForward | None:
    """Return the network that is trained on public labels, or None. Edges are not read."""
    generator = session.streams.torch("weights")
    network = weight_network(similarity, inputs.shape[1], generator)
    if network is None or not isinstance(similarity, PublicNetworkWeight):
        return None

    def learn() -> dict[str, Tensor]:
        nodes = view.labeled_in("train")
        similarity.fit(network, inputs[nodes].float(), view.y[nodes], generator)
        return dict(network.state_dict())

    network.load_state_dict(session.load_or_compute("weight-network", learn))
    return network

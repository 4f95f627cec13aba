"""What the models have in common that send messages along the exact edges in every training step."""

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from graphveil import _check
from graphveil._random import PublicStreams
from graphveil.errors import ConfigError, NotYetError
from graphveil.graph import Graph
from graphveil.models.base import Estimator, State, nodes_of
from graphveil.models.requirements import check_local
from graphveil.models.session import Session
from graphveil.networks.layers import ACTIVATIONS, batch_of
from graphveil.privacy import NoUnit, parse_unit
from graphveil.release import ReleasePlan
from graphveil.train import Schedule, train


@dataclass(kw_only=True, eq=False)
class FullGraphEstimator(Estimator):
    """Base of the non-private reference models: full batches over the whole graph, on the CPU.

    They read the exact edges again in every step, so no single noisy release covers them; a private unit is
    refused.

    Args:
        hidden: width of the hidden layers.
        layers: number of message-passing layers; None for 2.
        activation: ``"selu"``, ``"relu"`` or ``"tanh"``.
        batch_norm: whether hidden layers normalise over the nodes; None for yes.
        dropout: share of hidden entries dropped while training.
        epochs: training epochs; None for 100.
        learning_rate: the step size of Adam.
        weight_decay: the penalty on squared weights.
        patience: stop after so many epochs without a better validation accuracy; None never stops.
    """

    hidden: int = 16
    layers: int | None = None
    activation: str = "selu"
    batch_norm: bool | None = None
    dropout: float = 0.0
    epochs: int | None = None
    learning_rate: float = 0.01
    weight_decay: float = 0.0
    patience: int | None = None

    _network: nn.Module | None = field(default=None, init=False, repr=False)

    @abstractmethod
    def _build(self, generator: torch.Generator) -> nn.Module:
        """Return an untrained network that maps a batch of all nodes and an adjacency to logits."""

    def _check_config(self) -> None:
        self._check_available()
        super()._check_config()
        _check.width(hidden=self.hidden)
        _check.depth(layers=self._depth)
        _check.one_of(ACTIVATIONS, activation=self.activation)
        _check.within(0, 0.99, dropout=self.dropout)
        if self.device == "cuda":
            raise ConfigError(f"{self.method} runs on the CPU in this version; pass device='cpu' or 'auto'")
        self._schedule()

    def _check_available(self) -> None:
        """Refuse every unit that protects something."""
        if self.unit != NoUnit.name:
            check_local(self, parse_unit(self.unit, max_degree=self.assured_max_degree))
            raise NotYetError(
                f"{self.method} reads the exact edges in every training step and is available with unit "
                f"'none' only, got unit {self.unit!r}; use 'classcode' or 'gap' for private edges"
            )

    def _plan(self, delta: float, num_nodes: int, num_classes: int) -> ReleasePlan:
        raise NotYetError(f"{self.method} has no private release; use 'classcode' or 'gap'")

    def _fit(self, graph: Graph, plan: ReleasePlan | None, context: Session) -> Tensor:
        generator = context.streams.torch(self.method)
        network = self._network = self._build(generator)
        everything = batch_of(graph.x)
        with context.stage("classifier"):
            history = train(
                network,
                lambda index: network(everything, graph.adjacency)[index],
                graph.y,
                nodes_of(graph.mask("train")),
                nodes_of(graph.mask("val")),
                self._schedule(),
                generator=generator,
                on_epoch=context.epochs("classifier", self._schedule().epochs),
                checkpoint=context.checkpoint("classifier"),
            )
        context.record("classifier", history)
        return self._predict_other(graph)

    @torch.no_grad()
    def _predict_other(self, graph: Graph) -> Tensor:
        """Return probabilities for another graph, from its exact edges."""
        self._check_features(graph)
        assert self._network is not None
        logits: Tensor = self._network(batch_of(graph.x), graph.adjacency)
        return logits.softmax(dim=1)

    def _state(self) -> State:
        return {} if self._network is None else dict(self._network.state_dict())

    def _restore(self, state: State) -> None:
        self._network = self._build(PublicStreams(0).torch("restore"))
        self._network.load_state_dict(state)
        self._network.eval()

    @property
    def _depth(self) -> int:
        return 2 if self.layers is None else self.layers

    @property
    def _normed(self) -> bool:
        return self.batch_norm is None or self.batch_norm

    def _layers(self) -> dict[str, Any]:
        return {"activation": self.activation, "batch_norm": self._normed, "dropout": self.dropout}

    def _schedule(self) -> Schedule:
        return Schedule(
            epochs=100 if self.epochs is None else self.epochs,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            patience=self.patience,
        )

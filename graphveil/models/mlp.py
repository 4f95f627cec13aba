"""MLP: the baseline that never reads an edge."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from graphveil import _check
from graphveil._random import PublicStreams
from graphveil.aggregate import ReleasePlan
from graphveil.graph import Graph
from graphveil.models.base import Estimator, State, nodes_of
from graphveil.models.context import FitContext
from graphveil.models.layers import ACTIVATIONS, FeedForward, batch_of, batches_of
from graphveil.train import Schedule, train


@dataclass(kw_only=True, eq=False)
class MLP(Estimator):
    """A multi-layer perceptron on the nodes' own features.

    It reads no edge, so at edge level it costs nothing: every private method must beat it, or is not worth
    its epsilon.

    Args:
        hidden: width of the hidden layers.
        layers: number of layers, the output layer included.

    >>> from graphveil.graph.synthetic import synthetic
    >>> from graphveil.graph.recipes import RECIPES
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> model = MLP(unit="undirected-edge", seed=0, epochs=20).fit(graph)
    >>> model.predict_proba().shape[0] == graph.num_nodes, model.guarantee.epsilon
    (True, 0.0)
    """

    method: ClassVar[str] = "mlp"
    reads_edges: ClassVar[bool] = False

    hidden: int = 16
    layers: int = 3
    activation: str = "selu"
    batch_norm: bool = True
    dropout: float = 0.0
    epochs: int = 100
    learning_rate: float = 0.01
    weight_decay: float = 0.0
    batch_size: int | None = None
    patience: int | None = None

    _network: FeedForward | None = field(default=None, init=False, repr=False)

    def _check_config(self) -> None:
        super()._check_config()
        _check.integer_at_least(1, hidden=self.hidden, layers=self.layers)
        _check.one_of(ACTIVATIONS, activation=self.activation)
        _check.within(0, 0.99, dropout=self.dropout)
        self._schedule()

    def _plan(self, delta: float, num_nodes: int, num_classes: int) -> ReleasePlan:
        raise AssertionError("an MLP reads no edges")

    def _fit(self, graph: Graph, plan: ReleasePlan | None, context: FitContext) -> Tensor:
        generator = context.streams.torch("mlp")
        network = self._build(generator).to(context.device)
        self._network = network

        inputs = batches_of(graph.x, context.device)
        with context.stage("classifier"):
            history = train(
                network,
                lambda index: network(inputs(index)).cpu(),
                graph.y,
                nodes_of(graph.mask("train")),
                nodes_of(graph.mask("val")),
                self._schedule(),
                generator=generator,
                on_epoch=context.epochs("classifier", self.epochs),
                checkpoint=context.checkpoint("mlp"),
            )
        context.record("classifier", history)
        return self._predict_other(graph)

    @torch.no_grad()
    def _predict_other(self, graph: Graph) -> Tensor:
        self._check_features(graph)
        assert self._network is not None
        device = next(self._network.parameters()).device
        logits: Tensor = self._network(batch_of(graph.x, device=device))
        return logits.softmax(dim=1).cpu()

    def _state(self) -> State:
        return {} if self._network is None else dict(self._network.state_dict())

    def _restore(self, state: State) -> None:
        self._network = self._build(PublicStreams(0).torch("restore"))
        self._network.load_state_dict(state)
        self._network.eval()

    def _build(self, generator: torch.Generator) -> FeedForward:
        widths = [self._shape["features"], *[self.hidden] * (self.layers - 1), self._shape["classes"]]
        return FeedForward(
            widths,
            generator=generator,
            activation=self.activation,
            batch_norm=self.batch_norm,
            dropout=self.dropout,
        )

    def _schedule(self) -> Schedule:
        return Schedule(
            epochs=self.epochs,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            batch_size=self.batch_size,
            patience=self.patience,
        )

"""MLP: the baseline that never reads an edge."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from graphveil import _check
from graphveil._random import PublicStreams
from graphveil.graph import Graph
from graphveil.models.base import State, nodes_of
from graphveil.models.session import Session
from graphveil.models.trained import TrainedEstimator
from graphveil.models.training.private import count_parameters, record_groups
from graphveil.models.training.record_plan import RecordPlan
from graphveil.networks.layers import FeedForward, batch_of, batches_of
from graphveil.release import ReleasePlan
from graphveil.train import train


@dataclass(kw_only=True, eq=False)
class MLP(TrainedEstimator):
    """A multi-layer perceptron on the nodes' own features.

    It reads no edge, so at edge level it costs nothing: every private method must beat it, or is not worth
    its epsilon.

    Guarantee under node units: its training steps are one question to the training nodes' records, booked
    before the first one. A record that is nulled moves each clipped sum by at most C, and the noise is the
    least whose exact accounting meets (epsilon, delta). The prediction for a node reads that node's features
    and the released weights, no other record. In paper mode (MLP-DP of Sajadmanesh et al.: GAP, 2023) the
    noise follows the paper's Renyi accounting, and the epoch of the best exact validation accuracy is kept.

    Shapes: features (N, d) to probabilities (N, C).

    Args:
        layers: number of layers, the output layer included; None for 3, under node units 2, since more
            weights are more noise, in paper mode there 3.

    Raises:
        ConfigError: a parameter is outside its range or not for the unit; on ``fit``, the batch is larger
            than the training set.

    >>> from graphveil.graph.synthetic import synthetic
    >>> from graphveil.graph.recipes import RECIPES
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> model = MLP(unit="undirected-edge", seed=0, epochs=20).fit(graph)
    >>> model.predict_proba().shape[0] == graph.num_nodes, model.guarantee.epsilon
    (True, 0.0)
    >>> private = MLP(unit="node-owner", epsilon=4.0, seed=0, epochs=20).fit(graph)
    >>> private.guarantee.releases, private.guarantee.epsilon <= 4.0
    (1, True)
    """

    method: ClassVar[str] = "mlp"
    reads_edges: ClassVar[bool] = False
    paper_deviations: ClassVar[tuple[str, ...]] = (
        "noise calibrated by the paper's Renyi accounting",
        "the epoch of the best exact validation accuracy is kept, for which nobody pays",
    )

    layers: int | None = None

    _network: FeedForward | None = field(default=None, init=False, repr=False)

    def _check_config(self) -> None:
        super()._check_config()
        _check.depth(layers=self._depth)

    def _record_plan(self, num_nodes: int, num_classes: int) -> RecordPlan:
        widths = self._widths(self._sizes.get("features", self.hidden), num_classes)
        training = self._training(self._epochs, num_nodes, count_parameters(*widths))
        return RecordPlan(
            unit=self._node_unit,
            trainings=(training,),
            shares=(1.0,),
            candidates=self._tallied(training),
            metrics=self.private_metrics,
        )

    def _plan_of_other(self, graph: Graph) -> ReleasePlan | None:
        """Return None: a prediction reads its node's own features, and nothing else that is protected."""
        return None

    def _fit(self, graph: Graph, plan: ReleasePlan | None, context: Session) -> Tensor:
        release = None if plan is None else self._release(plan, graph, context, record_groups(graph))
        generator = context.streams.torch("mlp")
        network = self._network = self._build(generator).to(context.device)
        with context.stage("classifier"):
            if release is None:
                self._train(network, graph, generator, context)
            else:
                training = self._record_plan(graph.num_nodes, graph.num_classes).trainings[-1]
                self._train_on_records(
                    "classifier",
                    network,
                    graph.x,
                    lambda index: network(batch_of(graph.x, index)),
                    graph,
                    training,
                    release,
                    context,
                    final=True,
                )
        proba = self._predict_other(graph)
        if release is not None:
            self._close(release, proba, graph)
        return proba

    def _train(
        self, network: FeedForward, graph: Graph, generator: torch.Generator, context: Session
    ) -> None:
        """Train in the clear, and keep the best epoch."""
        inputs = batches_of(graph.x, context.device)
        history = train(
            network,
            lambda index: network(inputs(index)).cpu(),
            graph.y,
            nodes_of(graph.mask("train")),
            nodes_of(graph.mask("val")),
            self._schedule(self._epochs),
            generator=generator,
            on_epoch=context.epochs("classifier", self._epochs),
            checkpoint=context.checkpoint("mlp"),
        )
        context.record("classifier", history)

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
        widths = self._widths(self._shape["features"], self._shape["classes"])
        return FeedForward(widths, generator=generator, **self._layers())

    @property
    def _depth(self) -> int:
        if self.layers is not None:
            return self.layers
        return 2 if self._on_records and self.mode == "strict" else 3

    def _widths(self, features: int, classes: int) -> list[int]:
        return [features, *[self.hidden] * (self._depth - 1), classes]

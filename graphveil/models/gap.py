"""GAP: aggregate encoded features over noisy hops once, then train on what came out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from graphveil import _check
from graphveil._random import PublicStreams
from graphveil.aggregate import (
    Release,
    ReleasePlan,
    calibrate_plan,
    plain_unit,
    safe_unit,
    shrink_unit,
    sum_in_neighbors,
)
from graphveil.aggregate.plan import hops as equal_hops
from graphveil.errors import ConfigError
from graphveil.graph import Graph, to_dense
from graphveil.models.base import Estimator, State, nodes_of
from graphveil.models.context import FitContext
from graphveil.models.hops import Encoder, FixedRows, HopClassifier, scaled_by_norm
from graphveil.models.layers import (
    ACTIVATIONS,
    COMBINATIONS,
    batch_of,
    batches_of,
)
from graphveil.privacy import Guarantee, renyi
from graphveil.train import Schedule, train

Ask = Callable[[Tensor], Tensor]  # rows of norm at most one in, their sums over in-neighbours out


@dataclass(kw_only=True, eq=False)
class GAP(Estimator):
    """GNN with aggregation perturbation (Sajadmanesh, Shamsabadi, Bellet, Gatica-Perez: GAP, 2023).

    An encoder learns low-dimensional rows from features and labels alone; ``hops`` rounds of summing over the
    in-neighbours, each with Gaussian noise, turn them into rows that know the graph; a classifier learns from
    all of these and never asks the edges again:

        x_0 = unit(encoder(features)),   r_k = A^T x_{k-1} + N(0, s^2),   x_k = unit(r_k),
        y = head(combine(base_0(x_0), ..., base_K(x_K))).

    Guarantee: the noisy rows of all hops are one release, booked when ``fit`` asks for it; all else is
    computed from them and from public data. The K hops cost mu = sqrt(K) D / s, where D is 1 for a stored
    directed edge and sqrt 2 for an undirected one. In strict mode a row's norm is at most one whatever the
    rounding (``safe_unit``), a noisy row is shrunk by how much of it may be noise before it is summed again,
    and the classifier sees its length too. Paper mode keeps the paper's unit rows, encoder and accounting.

    A prediction for another graph asks that graph's edges: it is a new release, booked on that graph's budget
    each time. This object's ``guarantee`` is then not the whole price; the total is what the budgets say, and
    for edge sets that share no edge the larger of the two.

    Shapes: features (N, d) to probabilities (N, C). ``aggregates_`` holds the noisy rows r_1 to r_K, each
    (N, hidden).

    Args:
        hops: K, the number of aggregations.
        hidden: width of the encoded rows and of all hidden layers.
        encoder_layers: layers of the encoder, without the linear head that it is trained with.
        base_layers: layers that each hop's rows pass on their own.
        head_layers: layers after the hops are combined, the output layer included.
        combine: ``"concat"``, ``"sum"`` or ``"attention"``.
        activation: ``"selu"``, ``"relu"`` or ``"tanh"``.
        batch_norm: whether hidden layers normalise over the batch.
        dropout: share of hidden entries dropped while training.
        epochs: training epochs of the classifier.
        encoder_epochs: training epochs of the encoder; None means ``epochs``.
        learning_rate: the step size of Adam.
        weight_decay: the penalty on squared weights.
        batch_size: nodes in a batch; None is all of them at once.
        patience: stop after so many epochs without a better validation accuracy; None never stops.
        use_encoder: False aggregates the raw features instead (the paper's ablation).

    Raises:
        ConfigError: a parameter is outside its range.
        UnitError: on ``fit``, the unit does not fit the graph's edges.

    >>> from graphveil.graph.recipes import RECIPES
    >>> from graphveil.graph.synthetic import synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> model = GAP(unit="undirected-edge", epsilon=1.0, seed=0, epochs=5).fit(graph)
    >>> model.predict_proba().shape == (graph.num_nodes, graph.num_classes)
    True
    >>> model.guarantee.releases, model.guarantee.epsilon <= 1.0
    (2, True)
    """

    method: ClassVar[str] = "gap"
    paper_deviations: ClassVar[tuple[str, ...]] = ("noise calibrated by the paper's Renyi accounting",)

    hops: int = 2
    hidden: int = 16
    encoder_layers: int = 2
    base_layers: int = 1
    head_layers: int = 1
    combine: str = "concat"
    activation: str = "selu"
    batch_norm: bool = True
    dropout: float = 0.0
    epochs: int = 100
    encoder_epochs: int | None = None
    learning_rate: float = 0.01
    weight_decay: float = 0.0
    batch_size: int | None = None
    patience: int | None = None
    use_encoder: bool = True

    _features: int | None = field(default=None, init=False, repr=False)
    _encoder: Encoder | None = field(default=None, init=False, repr=False)
    _classifier: HopClassifier | None = field(default=None, init=False, repr=False)

    def _check_config(self) -> None:
        super()._check_config()
        _check.integer_at_least(1, hops=self.hops, hidden=self.hidden, encoder_layers=self.encoder_layers)
        _check.integer_at_least(1, base_layers=self.base_layers, head_layers=self.head_layers)
        _check.one_of(COMBINATIONS, combine=self.combine)
        _check.one_of(ACTIVATIONS, activation=self.activation)
        _check.within(0, 0.99, dropout=self.dropout)
        self._schedule(self.epochs)
        self._schedule(self._encoder_epochs)

    def promise(self, graph: Graph) -> tuple[ReleasePlan | None, Guarantee]:
        """Check the graph as ``fit`` does, and return a fit's plan and guarantee; nothing is spent."""
        self._features = graph.num_features
        return super().promise(graph)

    def _plan(self, delta: float, num_nodes: int, num_classes: int) -> ReleasePlan:
        """Return K equal hops of weight one."""
        unit, epsilon = self.protected_unit, self._budgeted()
        if self.mode == "paper":
            queries = equal_hops(renyi.mu_of(epsilon, delta), self.hops, self._width, unit)
            return ReleasePlan(unit, queries, delta)
        return calibrate_plan(
            unit, epsilon, delta, lambda mu: equal_hops(mu, self.hops, self._width, unit), num_nodes=num_nodes
        )

    def _fit(self, graph: Graph, plan: ReleasePlan | None, context: FitContext) -> Tensor:
        release = None if plan is None else self._release(plan, graph, context)  # booked before any work
        with context.stage("encoder"):
            self._encoder = self._trained_encoder(graph, context) if self.use_encoder else None
            # Kept with the workspace: a resumed release takes the very rows that it was asked with.
            rows = context.once("encoder", lambda: {"rows": self._encode(graph)})["rows"]
        with context.stage("aggregate"):
            answers = self._aggregate(graph, rows, release, plan)
        if plan is not None:
            self.aggregates_ = {f"hop{k}": answer for k, answer in enumerate(answers, start=1)}
        views = self._views(rows, answers, plan)
        with context.stage("classifier"):
            self._classifier = self._trained_classifier(graph, views, context)
        return self._classify(views)

    def _predict_other(self, graph: Graph) -> Tensor:
        """Return probabilities for another graph: a new release, booked on that graph's budget."""
        self._check_unit(graph)
        self._check_features(graph)
        plan = self.plan(num_nodes=graph.num_nodes, num_classes=self._shape["classes"])
        release = None if plan is None else self._release(plan, graph, FitContext(PublicStreams(self.seed)))
        rows = self._encode(graph)
        return self._classify(self._views(rows, self._aggregate(graph, rows, release, plan), plan))

    # -- the three modules: encoder, aggregation, classifier ------------------------------------------------

    def _trained_encoder(self, graph: Graph, context: FitContext) -> Encoder:
        generator = context.streams.torch("encoder")
        encoder = self._build_encoder(generator).to(context.device)
        inputs = batches_of(graph.x, context.device)
        self._train("encoder", encoder, lambda index: encoder(inputs(index)), graph, generator, context)
        return encoder

    @torch.no_grad()
    def _encode(self, graph: Graph) -> Tensor:
        """Return hop 0: rows of norm one, float64."""
        if self._encoder is None:
            rows = to_dense(graph.x)
        else:
            rows = self._encoder.rows(batch_of(graph.x, device=_device(self._encoder))).cpu()
        return self._unit(rows)

    def _aggregate(
        self, graph: Graph, rows: Tensor, release: Release | None, plan: ReleasePlan | None
    ) -> list[Tensor]:
        """Return the K answers of the edges: noisy rows, or exact ones where nothing is protected."""
        if release is None or plan is None:
            return self._walk(rows, lambda x: sum_in_neighbors(graph.adjacency, x.float()), [0.0] * self.hops)
        answers = self._walk(rows, release.rows, plan.noise_std)
        release.close()
        return answers

    def _walk(self, rows: Tensor, ask: Ask, stds: Sequence[float]) -> list[Tensor]:
        answers: list[Tensor] = []
        for std in stds:
            answers.append(ask(rows))
            rows = self._between(answers[-1], std)
        return answers

    def _unit(self, rows: Tensor) -> Tensor:
        return plain_unit(rows) if self.mode == "paper" else safe_unit(rows)

    def _between(self, answer: Tensor, std: float) -> Tensor:
        """Return the next hop's input from a noisy answer."""
        return plain_unit(answer) if self.mode == "paper" else shrink_unit(answer, std)

    def _views(self, rows: Tensor, answers: Sequence[Tensor], plan: ReleasePlan | None) -> list[Tensor]:
        """Return what the classifier sees of each hop: post-processing of public and noisy rows only."""
        if plan is None or self.mode == "paper":
            views = list(map(plain_unit, answers))
        else:
            views = [scaled_by_norm(answer, std) for answer, std in zip(answers, plan.noise_std, strict=True)]
        return [view.float() for view in (rows, *views)]

    def _trained_classifier(
        self, graph: Graph, views: Sequence[Tensor], context: FitContext
    ) -> HopClassifier:
        generator = context.streams.torch("classifier")
        classifier = self._build_classifier(generator).to(context.device)

        def rows(index: Tensor) -> list[FixedRows]:
            return [FixedRows(view[index].to(context.device)) for view in views]

        inputs = lru_cache(maxsize=2)(rows)  # full batches ask for the same two indices in every epoch
        self._train(
            "classifier", classifier, lambda index: classifier(inputs(index)), graph, generator, context
        )
        return classifier

    @torch.no_grad()
    def _classify(self, views: Sequence[Tensor]) -> Tensor:
        if self._classifier is None:
            raise ConfigError("the model is not fitted yet; call fit(graph) first")
        device = _device(self._classifier)
        logits: Tensor = self._classifier([FixedRows(view.to(device)) for view in views])
        return logits.softmax(dim=1).cpu()

    def _train(
        self,
        stage: str,
        network: nn.Module,
        logits: Callable[[Tensor], Tensor],
        graph: Graph,
        generator: torch.Generator,
        context: FitContext,
    ) -> None:
        epochs = self._encoder_epochs if stage == "encoder" else self.epochs
        history = train(
            network,
            lambda index: logits(index).cpu(),
            graph.y,
            nodes_of(graph.mask("train")),
            nodes_of(graph.mask("val")),
            self._schedule(epochs),
            generator=generator,
            on_epoch=context.epochs(stage, epochs),
            checkpoint=context.checkpoint(stage),
        )
        context.record(stage, history)

    # -- files ---------------------------------------------------------------------------------------------

    def _state(self) -> State:
        parts = {"encoder": self._encoder, "classifier": self._classifier}
        return {
            f"{name}.{key}": value
            for name, network in parts.items()
            if network is not None
            for key, value in network.state_dict().items()
        }

    def _restore(self, state: State) -> None:
        generator = PublicStreams(0).torch("restore")
        self._encoder = self._build_encoder(generator) if self.use_encoder else None
        self._classifier = self._build_classifier(generator)
        for name, network in (("encoder.", self._encoder), ("classifier.", self._classifier)):
            if network is not None:
                network.load_state_dict(
                    {k.removeprefix(name): v for k, v in state.items() if k.startswith(name)}
                )
                network.eval()

    # -- configuration -------------------------------------------------------------------------------------

    @property
    def _width(self) -> int:
        """The width of the aggregated rows."""
        return self.hidden if self.use_encoder else self._features or self._shape.get("features", self.hidden)

    @property
    def _encoder_epochs(self) -> int:
        return self.epochs if self.encoder_epochs is None else self.encoder_epochs

    def _budgeted(self) -> float:
        if self.epsilon is None:
            raise ConfigError("gap with a private unit needs a budget: pass epsilon=")
        return self.epsilon

    def _build_encoder(self, generator: torch.Generator) -> Encoder:
        widths = [self._shape["features"], *[self.hidden] * self.encoder_layers]
        classes, layers = self._shape["classes"], self._layers()
        return Encoder(widths, classes, plain_head=self.mode == "strict", generator=generator, **layers)

    def _build_classifier(self, generator: torch.Generator) -> HopClassifier:
        base = [self._width, *[self.hidden] * self.base_layers]
        head = [*[self.hidden] * (self.head_layers - 1), self._shape["classes"]]
        return HopClassifier(self.hops + 1, base, head, self.combine, generator=generator, **self._layers())

    def _layers(self) -> dict[str, Any]:
        return {"activation": self.activation, "batch_norm": self.batch_norm, "dropout": self.dropout}

    def _schedule(self, epochs: int) -> Schedule:
        return Schedule(
            epochs=epochs,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            batch_size=self.batch_size,
            patience=self.patience,
        )


def _device(network: nn.Module) -> torch.device:
    return next(network.parameters()).device

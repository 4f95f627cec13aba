"""GAP: aggregate encoded features over noisy hops once, then train on what came out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from graphveil import _check
from graphveil._random import PublicStreams
from graphveil.errors import ConfigError
from graphveil.graph import Graph, to_dense
from graphveil.models.attention import (
    NETWORK,
    PAPER_DEVIATIONS,
    SIMILARITY,
    AttentionTraining,
    attention_keys,
    attention_start,
    learn_attention,
)
from graphveil.models.base import State, nodes_of
from graphveil.models.bounded import at_most
from graphveil.models.inference.cache import Answer
from graphveil.models.session import Session
from graphveil.models.trained import TrainedEstimator
from graphveil.models.training.private import Training, count_parameters, public_count, record_groups
from graphveil.models.training.record_plan import RecordPlan
from graphveil.models.weighting import PAPER_WEIGHTED, Weighting, charged_as_one
from graphveil.networks.hops import Encoder, FixedRows, HopClassifier, UnitHopClassifier, scaled_by_norm
from graphveil.networks.layers import COMBINATIONS, batch_of, batches_of
from graphveil.privacy import NodeOwner, NoUnit, renyi
from graphveil.propagation import plain_unit, safe_unit, shrink_unit
from graphveil.release import (
    EdgeAttentionQuery,
    NeighborSumQuery,
    PushQuery,
    Release,
    ReleasePlan,
    calibrate_plan,
    sum_in_neighbors,
    weighted_sum_in_neighbors,
)
from graphveil.release.engines.row_range import RowRange
from graphveil.release.neighbor_sums import Keys
from graphveil.release.plan import hops as equal_hops
from graphveil.train import train

PAPER_ON_RECORDS = (
    "the epoch of the best exact validation accuracy is kept, for which nobody pays",
    "the paper claims to hide all edges at a node; a sample of each node's own edges hides those that "
    "the node declares, at most",
)
Ask = Callable[[Tensor], Tensor]  # rows of norm at most one in, their sums over in-neighbours out


@dataclass(kw_only=True, eq=False)
class GAP(TrainedEstimator):
    """GNN with aggregation perturbation (Sajadmanesh, Shamsabadi, Bellet, Gatica-Perez: GAP, 2023).

    An encoder learns low-dimensional rows from features and labels alone; ``hops`` rounds of summing over the
    in-neighbours, each with Gaussian noise, turn them into rows that know the graph; a classifier learns from
    all of these and never asks the edges again:

        x_0 = unit(encoder(features)),   r_k = A^T x_{k-1} + N(0, s^2),   x_k = unit(r_k),
        y = head(combine(base_0(x_0), ..., base_K(x_K))).

    Guarantee at edge level: the noisy rows of all hops are one release, booked when ``fit`` asks for it; all
    else is computed from them and from public data. The K hops cost mu = sqrt(K) D / s, where D is 1 for a
    stored directed edge and sqrt 2 for an undirected one. In strict mode a row's norm is at most one whatever
    the rounding (``safe_unit``), a noisy row is shrunk by how much of it may be noise before it is summed
    again, and the classifier sees its length too. Paper mode keeps the paper's unit rows, encoder and
    accounting.

    Guarantee under node units: encoder steps, hops and classifier steps are one release, calibrated jointly.
    With ``node-owner`` a source divides one budget over its own list,

        r_k = W^T x_{k-1} + N(0, s^2),   w_uv = 1 / sqrt(max(out-degree of u, D)),

    so its record moves the rows of a hop by at most one (GAP-NDP). With ``node-promise`` the sum is plain and
    a node moves it by sqrt(assured_max_degree); the node's own row is not covered. Between hops a node sends
    what the encoder's head makes of its own row and its noisy rows (:meth:`Encoder.message`). Paper mode
    samples D out-edges a node, takes one noise multiplier for steps and hops, and has the networks of the
    paper's reference: the encoder's head and the classifier's read activations of rows of norm one.

    A prediction for another graph asks that graph's edges: it is a new release, booked once
    (:meth:`predict_proba`). The total is then ``guarantee_with_predictions``. Of a graph that has grown, the
    new edges alone are asked, for the rows of the new nodes; old rows and predictions stay as they are.

    Shapes: features (N, d) to probabilities (N, C). ``aggregates_`` holds the noisy rows r_1 to r_K, each
    (N, hidden).

    Args:
        hops: K, the number of aggregations.
        encoder_layers: layers of the encoder, without the linear head that it is trained with; None for 2,
            under node units 1, since more weights are more noise.
        base_layers: layers that each hop's rows pass on their own.
        head_layers: layers after the hops are combined, the output layer included.
        combine: ``"concat"``, ``"sum"`` or ``"attention"``; under node units ``"concat"`` only.
        encoder_epochs: training epochs of the encoder; None means ``epochs``.
        use_encoder: False aggregates the raw features instead (the paper's ablation).
        encoder_share: under node units: the encoder's part of the squared mu.
        classifier_share: the classifier's; the hops have the rest.
        sgd_multiplier: the noise multiplier of both trainings instead of shares; what they leave of the
            budget goes to the hops.
        weights: at edge level, what a message counts, by both ends' public or released rows: ``"one"``,
            ``"sigmoid_cos"``, ``"exp_cos(0.5)"``, and others that ``graphveil.weights.parse_weight`` knows.
            D is multiplied by the largest value that the weight can take.
        attention_steps: of ``weights="attention"``, learned from the edges: the noisy steps; None for
            100, in paper mode 1000.
        attention_multiplier: their noise multiplier; None for one at which they take about a tenth of the
            squared mu, in paper mode for 1.3.
        weight_rows: the rows that weights by cosine read: ``"input"``, or the ``"previous"`` hop's.

    Raises:
        ConfigError: a parameter is outside its range, or not for the unit.
        UnitError: the unit lacks a parameter, or on ``fit`` does not fit the graph's edges.
        CalibrationError: the trainings alone cost more than the budget.

    >>> from graphveil.graph.recipes import RECIPES
    >>> from graphveil.graph.synthetic import synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> model = GAP(unit="undirected-edge", epsilon=1.0, seed=0, epochs=5).fit(graph)
    >>> model.predict_proba().shape == (graph.num_nodes, graph.num_classes)
    True
    >>> model.guarantee.releases, model.guarantee.epsilon <= 1.0
    (2, True)
    >>> GAP(unit="node-owner", degree_budget=5, epsilon=8.0, seed=0, epochs=5).fit(graph).guarantee.releases
    4
    """

    method: ClassVar[str] = "gap"
    grows: ClassVar[bool] = True
    needs_degree_budget: ClassVar[bool] = True
    paper_deviations: ClassVar[tuple[str, ...]] = ("noise calibrated by the paper's Renyi accounting",)

    hops: int = 2
    encoder_layers: int | None = None
    base_layers: int = 1
    head_layers: int = 1
    combine: str = "concat"
    encoder_epochs: int | None = None
    use_encoder: bool = True
    encoder_share: float = 0.2
    classifier_share: float = 0.1
    sgd_multiplier: float | None = None
    weights: str = "one"
    weight_rows: str = "input"
    attention_steps: int | None = None
    attention_multiplier: float | None = None

    _encoder: Encoder | None = field(default=None, init=False, repr=False)
    _classifier: HopClassifier | UnitHopClassifier | None = field(default=None, init=False, repr=False)
    _weighting: Weighting | None = field(default=None, init=False, repr=False)
    _tower: nn.Module | None = field(default=None, init=False, repr=False)
    _attention: State = field(default_factory=dict, init=False, repr=False)

    def _check_config(self) -> None:
        super()._check_config()
        _check.depth(hops=self.hops, encoder_layers=self._depth)
        _check.depth(base_layers=self.base_layers, head_layers=self.head_layers)
        _check.one_of(COMBINATIONS, combine=self.combine)
        _check.positive(encoder_share=self.encoder_share, classifier_share=self.classifier_share)
        _check.within(0, 0.99, **{"encoder_share + classifier_share": sum(self._shares)})
        if self.sgd_multiplier is not None:
            _check.positive(sgd_multiplier=self.sgd_multiplier)
            if not self._on_records:
                raise ConfigError(
                    f"sgd_multiplier is for node units; under unit {self.unit!r} training costs nothing"
                )
        self._schedule(self._encoder_epochs)
        self._weighting = Weighting.named(
            self.weights,
            self.weight_rows,
            encoder=self.use_encoder,
            records=self._on_records,
            attention=None if isinstance(self.protected_unit, NoUnit) else SIMILARITY,
        )
        self._check_attention()

    def _check_attention(self) -> None:
        given = {"attention_steps": self.attention_steps, "attention_multiplier": self.attention_multiplier}
        for name, value in given.items():
            if value is not None and not self._attends:
                raise ConfigError(
                    f"{name} is for weights='attention', and weights are {self.weights!r}; drop it"
                )
        if self.attention_steps is not None:
            _check.integer_at_least(1, attention_steps=self.attention_steps)
        if self.attention_multiplier is not None:
            _check.positive(attention_multiplier=self.attention_multiplier)

    def _refuse_for_records(self) -> None:
        super()._refuse_for_records()
        if self.combine != "concat":
            raise ConfigError(
                f"combine={self.combine!r} has no closed form of a record's gradient, which node units need; "
                "use 'concat'"
            )

    def _plan(self, delta: float, num_nodes: int, num_classes: int) -> ReleasePlan:
        """Return K equal hops, under node units between two trainings."""
        if self._on_records:
            return super()._plan(delta, num_nodes, num_classes)
        unit, epsilon = self.protected_unit, self._budgeted()
        if self._attends:
            return self._attention_training(num_nodes, num_classes).plan(epsilon, delta, num_nodes=num_nodes)
        similarity = None if self._weighting is None else self._weighting.similarity

        def queries(mu: float) -> tuple[NeighborSumQuery, ...]:
            return equal_hops(mu, self.hops, self._width, unit, similarity)

        if self.mode == "paper":
            mu = renyi.mu_of(epsilon, delta)
            asked = queries(mu) if similarity is None else charged_as_one(queries(mu), mu)
            return ReleasePlan(unit, asked, delta)
        return calibrate_plan(unit, epsilon, delta, queries, num_nodes=num_nodes)

    def _attention_training(self, num_nodes: int, num_classes: int) -> AttentionTraining:
        return AttentionTraining(
            unit=self.protected_unit,
            dim=self._width,
            classes=num_classes,
            targets=public_count(self._sizes, num_nodes),
            hops=self.hops,
            steps=self.attention_steps,
            multiplier=self.attention_multiplier,
            paper=self.mode == "paper",
        )

    def _record_plan(self, num_nodes: int, num_classes: int) -> RecordPlan:
        *_, classifier = trainings = self._trainings(num_nodes, num_classes)
        return RecordPlan(
            unit=self._node_unit,
            trainings=trainings,
            shares=self._shares[-len(trainings) :],
            multiplier=self.sgd_multiplier,
            hops=self.hops,
            dim=self._width,
            degree_budget=self.degree_budget,
            candidates=self._tallied(classifier),
            metrics=self.private_metrics,
        )

    def _trainings(self, num_nodes: int, num_classes: int) -> tuple[Training, ...]:
        """Return the classifier's training, after the encoder's if there is one."""
        encoder = count_parameters(*self._encoder_widths, num_classes)
        branches = (self.hops + 1) * count_parameters(*self._base_widths)
        head = count_parameters((self.hops + 1) * self.hidden, *self._head_widths, num_classes)
        classifier = self._training(self._epochs, num_nodes, branches + head)
        if not self.use_encoder:
            return (classifier,)
        return self._training(self._encoder_epochs, num_nodes, encoder), classifier

    def _plan_of_other(self, graph: Graph) -> ReleasePlan | None:
        """Return the hops alone, with the noise of the fit: nothing is trained on another graph."""
        plan = super()._plan_of_other(graph)
        if plan is None or not (self._on_records or self._attends):
            return plan
        return ReleasePlan(plan.unit, tuple(_hops_of(plan)), plan.delta)

    def _deviations(self, plan: ReleasePlan, graph: Graph) -> tuple[str, ...]:
        more = PAPER_ON_RECORDS if self._paper_on_records else ()
        if self.mode == "paper" and self._weighting is not None:
            more = (*more, *(PAPER_DEVIATIONS if self._attends else (PAPER_WEIGHTED,)))
        return (*super()._deviations(plan, graph), *more)

    def _fit(self, graph: Graph, plan: ReleasePlan | None, context: Session) -> Tensor:
        release = None if plan is None else self._open(plan, graph, context)  # booked before any work
        with context.stage("encoder"):
            self._encoder = self._trained_encoder(graph, release, context) if self.use_encoder else None
            # Kept with the workspace: a resumed release takes the very rows that it was asked with.
            rows = context.once("encoder", lambda: {"rows": self._encode(graph)})["rows"]
            if self._weighting is not None:
                self._tower = self._weighting.learned(graph, rows, context)
        if self._attends and release is not None and plan is not None:
            with context.stage("attention"):
                self._attention = self._learned_attention(graph, rows, release, plan, context)
        with context.stage("aggregate"):
            answers = self._aggregate(graph, rows, release, plan, context)
            if release is not None and not self._on_records:
                release.close()
        if plan is not None:
            self.aggregates_ = {f"hop{k}": answer for k, answer in enumerate(answers, start=1)}
        views = self._views(rows, answers, plan)
        with context.stage("classifier"):
            self._classifier = self._trained_classifier(graph, views, release, context)
        proba = self._classify(views)
        if release is not None and self._on_records:
            self._close(release, proba, graph)
        return proba

    def _open(self, plan: ReleasePlan, graph: Graph, context: Session, first: int = 0) -> Release:
        """Open the release, for the rows from ``first`` on; a paper's asks a sample of the edges."""
        if self._paper_on_records and isinstance(plan.unit, NodeOwner):
            sample = at_most(graph.adjacency, self.degree_budget or 1, context.streams.numpy("edges"))
            graph = graph.replace(adjacency=sample)
        told_apart = any(query.groups > 1 for query in plan.queries)  # on a graph to predict nobody is
        groups = record_groups(graph) if told_apart else None
        return self._release(plan, graph, context, groups, engine=RowRange(first) if first else None)

    def _predict_other(self, graph: Graph) -> Tensor:
        """Return probabilities of another graph from its exact edges, where nothing is protected."""
        self._check_unit(graph)
        self._check_features(graph)
        rows = self._encode(graph)
        answers = self._aggregate(graph, rows, None, None, Session(PublicStreams(self.seed)))
        return self._classify(self._views(rows, answers, None))

    def _answer(self, graph: Graph, plan: ReleasePlan, context: Session, kept: Answer | None) -> Answer:
        release = self._open(plan, graph, context, 0 if kept is None else len(kept.proba))
        rows = self._encode(graph)
        if kept is None:
            answers = self._aggregate(graph, rows, release, plan, context)
            proba = self._classify(self._views(rows, answers, plan))
        else:
            answers = self._continued(graph, rows, release, plan, context, kept)
            new = slice(len(kept.proba), None)
            views = self._views(rows[new], [answer[new] for answer in answers], plan)
            proba = torch.cat([kept.proba, self._classify(views)])
        release.close()
        return Answer(plan, tuple(answers), proba)

    def _continued(
        self,
        graph: Graph,
        rows: Tensor,
        release: Release,
        plan: ReleasePlan,
        context: Session,
        kept: Answer,
    ) -> list[Tensor]:
        """Return the K answers of a graph that has grown: old rows as they are, and the new ones below."""
        known, ask = iter(kept.rows), _asking(release, self._keys(graph, rows, context))
        return self._walk(rows, lambda x: torch.cat([next(known), ask(x)]), _noise_of(plan))

    # -- the three modules: encoder, aggregation, classifier ------------------------------------------------

    def _trained_encoder(self, graph: Graph, release: Release | None, context: Session) -> Encoder:
        generator = context.streams.torch("encoder")
        encoder = self._build_encoder(generator).to(context.device)
        if release is not None and self._on_records:
            training = self._trainings(graph.num_nodes, graph.num_classes)[0]
            self._train_on_records(
                "encoder",
                encoder,
                graph.x,
                lambda index: encoder(batch_of(graph.x, index)),
                graph,
                training,
                release,
                context,
            )
            return encoder
        inputs = batches_of(graph.x, context.device)
        self._train("encoder", encoder, lambda index: encoder(inputs(index)), graph, generator, context)
        return encoder

    def _learned_attention(
        self, graph: Graph, rows: Tensor, release: Release, plan: ReleasePlan, context: Session
    ) -> State:
        """Return the network that weighs in-edges, the answer to the plan's first question."""
        query, targets = plan.queries[0], nodes_of(graph.mask("train"))
        assert isinstance(query, EdgeAttentionQuery)
        generator = context.streams.torch("attention")
        start = context.once(
            "attention", lambda: {"start": attention_start(query, rows, graph.y, targets, generator)}
        )["start"]
        told = context.epochs("attention", query.steps)
        return learn_attention(release, query, start, rows, graph.y, targets, on_step=told)

    @torch.no_grad()
    def _encode(self, graph: Graph) -> Tensor:
        """Return hop 0: rows of norm one, float64."""
        if self._encoder is None:
            rows = to_dense(graph.x)
        else:
            rows = self._encoder.rows(batch_of(graph.x, device=_device(self._encoder))).cpu()
        return self._unit(rows)

    def _aggregate(
        self,
        graph: Graph,
        rows: Tensor,
        release: Release | None,
        plan: ReleasePlan | None,
        context: Session,
    ) -> list[Tensor]:
        """Return the K answers of the edges: noisy rows, or exact ones where nothing is protected."""
        keys = self._keys(graph, rows, context)
        if release is None or plan is None:
            return self._walk(rows, lambda x: self._exact(graph, x.float(), keys), [0.0] * self.hops)
        asked = _hops_of(plan)
        if isinstance(asked[0], PushQuery):
            return self._walk(rows, release.push, _noise_of(plan))
        return self._walk(rows, _asking(release, keys), _noise_of(plan))

    def _exact(self, graph: Graph, x: Tensor, keys: Keys | None) -> Tensor:
        if self._weighting is None:
            return sum_in_neighbors(graph.adjacency, x)
        return weighted_sum_in_neighbors(graph.adjacency, x, self._weighting.similarity, keys)

    def _keys(self, graph: Graph, rows: Tensor, context: Session) -> Keys | None:
        """Return what every hop's weights read, or None for each hop's own vectors."""
        if self._weighting is None:
            return None
        if self._attends:
            return attention_keys(self._attention, rows)
        return self._weighting.keys(graph, rows, self._encoder, self._tower, context)

    def _walk(self, rows: Tensor, ask: Ask, stds: Sequence[float]) -> list[Tensor]:
        answers: list[Tensor] = []
        sent = rows
        for std in stds:
            answers.append(ask(sent))
            sent = self._between(rows, answers, std)
        return answers

    def _unit(self, rows: Tensor) -> Tensor:
        if self.mode == "paper":
            return plain_unit(rows)
        return safe_unit(_finite(rows) if self._on_records else rows)

    def _between(self, rows: Tensor, answers: Sequence[Tensor], std: float) -> Tensor:
        """Return the next hop's input from a node's own row and its noisy answers."""
        if self.mode == "paper":
            return plain_unit(answers[-1])
        if self._on_records and self._encoder is not None:
            return self._unit(self._encoder.message(rows, [scaled_by_norm(a, std) for a in answers]))
        return shrink_unit(answers[-1], std)

    def _views(self, rows: Tensor, answers: Sequence[Tensor], plan: ReleasePlan | None) -> list[Tensor]:
        """Return what the classifier sees of each hop: post-processing of own and noisy rows only."""
        if plan is None or self.mode == "paper":
            views = list(map(plain_unit, answers))
        else:
            views = [scaled_by_norm(a, std) for a, std in zip(answers, _noise_of(plan), strict=True)]
        return [view.float() for view in (rows, *views)]

    def _trained_classifier(
        self, graph: Graph, views: Sequence[Tensor], release: Release | None, context: Session
    ) -> HopClassifier | UnitHopClassifier:
        generator = context.streams.torch("classifier")
        classifier = self._build_classifier(generator).to(context.device)

        def rows(index: Tensor) -> list[FixedRows]:
            return [FixedRows(view[index].to(context.device)) for view in views]

        inputs = lru_cache(maxsize=2)(rows)  # full batches ask for the same two indices in every epoch

        def logits(index: Tensor) -> Tensor:
            scores: Tensor = classifier(inputs(index))
            return scores

        if release is not None and self._on_records:
            training = self._trainings(graph.num_nodes, graph.num_classes)[-1]
            self._train_on_records(
                "classifier", classifier, views, logits, graph, training, release, context, final=True
            )
            return classifier
        self._train("classifier", classifier, logits, graph, generator, context)
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
        context: Session,
    ) -> None:
        epochs = self._encoder_epochs if stage == "encoder" else self._epochs
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
        parts = {"encoder": self._encoder, "classifier": self._classifier, "tower": self._tower}
        attention = {f"attention.{name}": part for name, part in self._attention.items()}
        return attention | {
            f"{name}.{key}": value
            for name, network in parts.items()
            if network is not None
            for key, value in network.state_dict().items()
        }

    def _restore(self, state: State) -> None:
        generator = PublicStreams(0).torch("restore")
        self._encoder = self._build_encoder(generator) if self.use_encoder else None
        self._classifier = self._build_classifier(generator)
        self._tower = None if self._weighting is None else self._weighting.tower(self._width, generator)
        self._attention = {name: state[f"attention.{name}"] for name in NETWORK} if self._attends else {}
        parts = {"encoder.": self._encoder, "classifier.": self._classifier, "tower.": self._tower}
        for name, network in parts.items():
            if network is not None:
                network.load_state_dict(
                    {k.removeprefix(name): v for k, v in state.items() if k.startswith(name)}
                )
                network.eval()

    # -- configuration -------------------------------------------------------------------------------------

    @property
    def _attends(self) -> bool:
        """Whether weights are learned from the edges."""
        return self._weighting is not None and self._weighting.similarity.reads == "attention"

    @property
    def _width(self) -> int:
        """The width of the aggregated rows."""
        return self._encoder_widths[-1] if self.use_encoder else self._features

    @property
    def _features(self) -> int:
        """The public number of features; a hidden row's width stands in where no graph is known."""
        return self._sizes.get("features") or self._shape.get("features", self.hidden)

    @property
    def _depth(self) -> int:
        if self.encoder_layers is not None:
            return self.encoder_layers
        return 1 if self._on_records and self.mode == "strict" else 2

    @property
    def _encoder_epochs(self) -> int:
        return self._epochs if self.encoder_epochs is None else self.encoder_epochs

    @property
    def _shares(self) -> tuple[float, float]:
        return self.encoder_share, self.classifier_share

    @property
    def _encoder_widths(self) -> list[int]:
        return [self._features, *[self.hidden] * self._depth]

    @property
    def _base_widths(self) -> list[int]:
        return [self._width, *[self.hidden] * self.base_layers]

    @property
    def _head_widths(self) -> list[int]:
        return [self.hidden] * (self.head_layers - 1)

    def _build_encoder(self, generator: torch.Generator) -> Encoder:
        plain = self.mode == "strict"
        classes = self._shape["classes"]
        return Encoder(
            self._encoder_widths,
            classes,
            plain_head=plain,
            activated=self._paper_on_records,
            generator=generator,
            **self._layers(),
        )

    def _build_classifier(self, generator: torch.Generator) -> HopClassifier | UnitHopClassifier:
        head = [*self._head_widths, self._shape["classes"]]
        if self._paper_on_records:
            return UnitHopClassifier(
                self.hops + 1, self._base_widths, head, generator=generator, activation=self.activation
            )
        layers = self._layers()
        return HopClassifier(
            self.hops + 1, self._base_widths, head, self.combine, generator=generator, **layers
        )


def _hops_of(plan: ReleasePlan) -> list[NeighborSumQuery | PushQuery]:
    """Return what a plan asks of the edges."""
    return [query for query in plan.queries if isinstance(query, NeighborSumQuery | PushQuery)]


def _noise_of(plan: ReleasePlan) -> list[float]:
    """Return the noise of each hop."""
    return [query.noise[-1] for query in _hops_of(plan)]


def _asking(release: Release, keys: Keys | None) -> Ask:
    """Return a hop, with what its weights read, if that is not the vectors."""
    return release.rows if keys is None else partial(release.rows, keys=keys)


def _device(network: nn.Module) -> torch.device:
    return next(network.parameters()).device


def _finite(rows: Tensor) -> Tensor:
    """Return the rows with those that overflowed at zero: an error would tell of one protected record."""
    return torch.where(rows.isfinite().all(dim=1, keepdim=True), rows, 0.0)

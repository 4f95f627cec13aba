"""LPGNN: a graph neural network that learns from randomized records over public edges."""

from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from graphveil._util import checks
from graphveil._util.random import PublicStreams
from graphveil.data import Adjacency, Graph, rows
from graphveil.errors import ConfigError
from graphveil.estimators.method import FitResult, State
from graphveil.estimators.prediction_cache import CachedPrediction
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.estimators.session import Session
from graphveil.local.local_estimator import RecordEstimator
from graphveil.local.local_method import CachedReports, LocalMethod, TrainedOnRecords, concatenate_records
from graphveil.local.noisy_labels import SELECT, NoisyLabels, Select, fit_noisy_labels, log_posterior
from graphveil.local.posterior_mixture import (
    PRIORS,
    GraphContext,
    PosteriorMixture,
    PredictionRule,
    Prior,
    choose_prediction_rule,
    combine_predictions,
    mixed_posterior,
    without_labels,
)
from graphveil.local.randomized_records import known, reported_nodes
from graphveil.local.report_config import scaled
from graphveil.nn.backbones import BACKBONES, Backbone, LayerSizes, backbone
from graphveil.nn.inputs import FeatureEstimates, PropagatedInputs, propagated
from graphveil.nn.layers import ACTIVATIONS
from graphveil.privacy import Guarantee
from graphveil.propagation import KProp, Propagation
from graphveil.propagation.linear import AGGREGATORS, ISOLATED, Aggregator, Isolated
from graphveil.training import EpochRecord, TrainingSchedule

PosteriorUse = Literal["product", "evidence"]
POSTERIOR_USE: tuple[PosteriorUse, ...] = ("product", "evidence")
_REPORTING_SPLITS = ("train", "val")


@dataclass(kw_only=True, eq=False, repr=False)
class LpgnnKeywords:
    """How a network learns from randomized records and public edges.

    Args:
        x_steps: K_x.
        y_steps: K_y; 0 learns what each node said about itself.
        aggregator: A^: ``"gcn"`` or ``"mean"``.
        self_loops: whether A^ has them.
        isolated: a node without neighbors gets ``"zero"`` from A^, or is left as it is (``"keep"``).
        backbone: ``"sage"``, ``"gcn"``, ``"gat"``, or ``"mlp"``, which sends no messages.
        forward_correction: whether the noise of labels is part of the model (T); otherwise it is learned.
        missing_labels: the share of training and validation nodes without a label, who say a class at random:
            public, since it cannot be told from what is said. It is part of T; a wrong one costs accuracy and
            no privacy.
        posterior_steps: if above 0, the network's probabilities are multiplied by what the randomized labels
            around a node say about it, from so many hops away (``log_posterior``): 16 for sparse graphs, 8
            for denser ones.
        prior: what those labels say: ``"diffusion"`` (a guess from afar, and what neighbors are guessed to
            be), ``"mixture"`` (with belief propagation and communities, as in
            :class:`~graphveil.local.label_posterior.LabelPosterior`) or ``"robust"`` (the same, and classes
            that false clients claim are not taken to be more common).
        posterior_use: ``"product"`` of both, or by ``"evidence"`` network, posterior or product: whatever
            makes what nodes said likeliest that neither heard. That trains a network for each of three parts.
        select: which epoch is kept: ``"paper"`` (every figure on noisy labels has to improve, none may pass
            what is possible) or ``"likelihood"`` (the least loss on randomized validation labels).
        hidden: width of the hidden layer (of each of four heads, for ``"gat"``).
        activation: ``"selu"``, ``"relu"`` or ``"tanh"``.
        dropout: share of hidden entries dropped while training.
        epochs: training epochs.
        learning_rate: the step size of Adam.
        weight_decay: the penalty on squared weights.
    """

    x_steps: int = 4
    y_steps: int = 4
    aggregator: Aggregator = "gcn"
    self_loops: bool = False
    isolated: Isolated = "zero"
    backbone: str = "sage"
    forward_correction: bool = True
    missing_labels: float = 0.0
    posterior_steps: int = 0
    prior: Prior = "diffusion"
    posterior_use: PosteriorUse = "product"
    select: Select = "paper"
    hidden: int = 16
    activation: str = "selu"
    dropout: float = 0.0
    epochs: int = 500
    learning_rate: float = 0.01
    weight_decay: float = 0.0


@dataclass(kw_only=True, eq=False, repr=False)
class LPGNN(LpgnnKeywords, RecordEstimator):
    """Locally private graph neural network (Sajadmanesh, Gatica-Perez: LPGNN, CCS 2021).

    Every node randomizes its features at ``eps_x`` and, if it is a training or validation node, its label at
    ``eps_y``. From then on a server sees randomized records and public edges:

        H = A^^K_x X',   P(y|x) = softmax(GNN(H)),   P(y'|x) = P(y|x) T,
        P(y~|x) = softmax(A^^K_y P(y'|x)),   learned against argmax A^^K_y Y'      (Drop),

    with X' the estimated features, Y' the randomized labels, T the law of what is said for each class, and A^
    the normalized edges without self-loops. The epoch that is kept is chosen on randomized labels alone. Test
    labels are read for the score of the test nodes and for nothing else.

    Guarantee, unit ``local-attributes``: eps_x-LDP for each node's whole feature vector and eps_y-LDP for its
    label, so eps_x + eps_y for the record; with ``features="agm"`` it is (epsilon, delta). Unit ``none`` is
    the reference without noise.

    Shapes: features (N, d) to probabilities (N, C).

    Arguments are those of :class:`~graphveil.local.report_config.LocalKeywords` (how a node randomizes its
    record) and :class:`~graphveil.local.report_config.LpgnnKeywords` (how the network learns).

    Raises:
        UnitError: the unit is neither ``"local-attributes"`` nor ``"none"``.

    >>> from graphveil.data.recipes import RECIPES
    >>> from graphveil.data import synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> model = LPGNN(unit="local-attributes", eps_x=1.0, eps_y=2.0, seed=0, epochs=5).fit(graph)
    >>> model.guarantee.epsilon, model.guarantee.local_budgets
    (3.0, (1.0, 2.0))
    """

    method: ClassVar[str] = "lpgnn"

    def no_graph_baseline(self) -> "LPGNN":
        """Return the unfitted baseline that reads no edge: an MLP on each node's own X' and Y'.

        It is for the same reports (:meth:`fit_same_reports`, or :meth:`fit_from_collector` on the same LDP
        reports), which were paid for already. What is learned are P(y'|x) = softmax(MLP(X')) T; the width,
        the learning parameters and how the epoch is chosen are this model's own.

        >>> beside = LPGNN(unit="local-attributes", eps_x=1.0, eps_y=2.0, hidden=8).no_graph_baseline()
        >>> beside.backbone, beside.x_steps, beside.y_steps, beside.hidden, beside.eps_x
        ('mlp', 0, 0, 8, 1.0)
        """
        return baseline_of(self)

    def _build_method(self) -> "LpgnnMethod":
        return LpgnnMethod(
            name=self.method,
            privacy_config=self.privacy_config,
            device=self.device,
            report_config=self._report_config(),
            propagation_config=KPropConfig.from_keywords(self, self.x_steps),
            smoothing=KPropConfig.from_keywords(self, self.y_steps) if self.y_steps else None,
            learning=LearningConfig.from_keywords(self),
        )


def baseline_of(model: RecordEstimator) -> LPGNN:
    """Return the baseline of a method that learns as LPGNN does, see :meth:`LPGNN.no_graph_baseline`."""
    own = {part.name for part in fields(LPGNN) if part.init}
    kept = {name: value for name, value in model.get_params().items() if name in own}
    none_before_fit: dict[str, Any] = {
        "x_steps": 0,
        "y_steps": 0,
        "posterior_steps": 0,
        "forward_correction": True,
    }
    no_posterior = {"prior": "diffusion", "posterior_use": "product"}
    return LPGNN(**{**kept, "backbone": "mlp", **none_before_fit, **no_posterior})


class PropagationConfig(ABC):
    """Makes the map of a graph that features are propagated by; it may read the public edges."""

    @abstractmethod
    def propagation(self, graph: Graph, session: Session) -> Propagation:
        """Return the map. It is asked for before anybody pays: it may turn out to be impossible."""

    def check(self) -> None:  # noqa: B027  # most need nothing that could be missing
        """Refuse what cannot be computed on this machine."""


@dataclass(frozen=True, kw_only=True)
class KPropConfig(PropagationConfig):
    """A fixed number of hops, see :class:`~graphveil.propagation.KProp`.

    >>> KPropConfig.from_keywords(LpgnnKeywords(), steps=2).steps
    2
    """

    steps: int
    aggregator: Aggregator
    self_loops: bool
    isolated: Isolated

    @classmethod
    def from_keywords(cls, given: LpgnnKeywords, steps: int) -> "KPropConfig":
        """Return so many hops by the keywords, checked."""
        checks.one_of(AGGREGATORS, aggregator=given.aggregator)
        checks.one_of(ISOLATED, isolated=given.isolated)
        checks.integer_at_least(0, x_steps=given.x_steps, y_steps=given.y_steps)
        return cls(
            steps=steps, aggregator=given.aggregator, self_loops=given.self_loops, isolated=given.isolated
        )

    def propagation(self, graph: Graph, session: Session) -> KProp:
        """Return the hops along a graph's edges."""
        return self.along(graph.adjacency)

    def along(self, adjacency: Adjacency) -> KProp:
        """Return the hops along some edges."""
        return KProp(
            adjacency=adjacency,
            steps=self.steps,
            aggregator=self.aggregator,
            self_loops=self.self_loops,
            isolated=self.isolated,
        )


@dataclass(frozen=True, kw_only=True)
class LearningConfig:
    """How the network learns; see :class:`~graphveil.local.report_config.LpgnnKeywords`."""

    backbone: str
    hidden: int
    activation: str
    dropout: float
    forward_correction: bool
    missing_labels: float
    posterior_steps: int
    prior: Prior
    posterior_use: PosteriorUse
    select: Select
    schedule: TrainingSchedule

    @classmethod
    def from_keywords(cls, given: LpgnnKeywords) -> "LearningConfig":
        """Check the keywords.

        >>> LearningConfig.from_keywords(LpgnnKeywords(hidden=8)).hidden
        8
        """
        checks.one_of(tuple(BACKBONES), backbone=given.backbone)
        checks.one_of(ACTIVATIONS, activation=given.activation)
        checks.one_of(SELECT, select=given.select)
        checks.one_of(tuple(PRIORS), prior=given.prior)
        checks.one_of(POSTERIOR_USE, posterior_use=given.posterior_use)
        if not given.posterior_steps and (given.prior, given.posterior_use) != ("diffusion", "product"):
            raise ConfigError(
                "around and posterior_use say how a posterior is heeded, and posterior_steps=0 heeds none; "
                "set it (16 for sparse graphs, 8 for denser ones), or drop them"
            )
        checks.integer_at_least(0, posterior_steps=given.posterior_steps)
        checks.width(hidden=given.hidden)
        checks.within(0, 0.99, dropout=given.dropout, missing_labels=given.missing_labels)
        return cls(
            backbone=given.backbone,
            hidden=given.hidden,
            activation=given.activation,
            dropout=given.dropout,
            forward_correction=given.forward_correction,
            missing_labels=given.missing_labels,
            posterior_steps=given.posterior_steps,
            prior=given.prior,
            posterior_use=given.posterior_use,
            select=given.select,
            schedule=TrainingSchedule(
                epochs=given.epochs, learning_rate=given.learning_rate, weight_decay=given.weight_decay
            ),
        )

    def build(self, sizes: PublicSizes, generator: torch.Generator) -> Backbone:
        """Return an untrained network, on no edges yet."""
        widths = LayerSizes(features=sizes.width, hidden=self.hidden, classes=sizes.classes)
        return backbone(
            self.backbone, widths, activation=self.activation, dropout=self.dropout, generator=generator
        )


@dataclass(frozen=True, kw_only=True)
class LpgnnMethod(LocalMethod):
    """LPGNN, whatever its features are propagated through.

    Args:
        propagation_config: what features are propagated through.
        smoothing: what labels are; None for nothing.
        learning: the network, and how it learns.
    """

    propagation_config: PropagationConfig
    smoothing: KPropConfig | None
    learning: LearningConfig

    def __post_init__(self) -> None:
        """Refuse a share of missing labels where nobody randomizes one, and missing ones are left out."""
        if self.learning.missing_labels and not self.protects_labels:
            raise ConfigError(
                f"missing_labels={self.learning.missing_labels:g} is for labels that are randomized, which "
                "without a finite eps_y none is; drop it"
            )

    def check(self, graph: Graph) -> None:
        """Refuse a graph that cannot be used, and a propagation that cannot be computed."""
        super().check(graph)
        self.propagation_config.check()

    def fit(self, graph: Graph, session: Session) -> FitResult:
        """Have records randomized, propagate what was told, and learn from it."""
        propagation_config = self.propagation_config.propagation(
            graph, session
        )  # before records pay: it may prove impossible
        with session.stage("randomize"):
            collected = self.collected(graph, session)
        records = collected.records
        with session.stage("aggregate"):
            inputs = propagated(records.features, propagation_config)
        noisy = self.noisy(graph, records.labels)
        with session.stage("classifier"):
            network, history = self._trained(graph, inputs, noisy, session)
        session.record("classifier", history)
        with torch.no_grad():
            alone: Tensor = network(inputs).softmax(dim=1)
        rule: PredictionRule = "product"
        if self.learning.posterior_use == "evidence":
            with session.stage("evidence"):
                rule = self._choose_rule(graph, inputs, noisy, session)
        agreement = {
            part: noisy.agreement(alone, reported_nodes(graph, records.labels, part))
            for part in _REPORTING_SPLITS
        }
        return FitResult(
            trained=TrainedLpgnn(reports=records, method=self, network=network, rule=rule),
            proba=self.apply_posterior(alone, graph, records.labels, rule),
            released={"labels": records.labels} if self.privacy_config.protects else {},
            learned={"clipped": collected.clipped, "agreement": agreement, "way": rule},
        )

    def _trained(
        self, graph: Graph, inputs: PropagatedInputs, noisy: NoisyLabels, session: Session
    ) -> tuple[Backbone, list[EpochRecord]]:
        """Return a network that learned from told labels, and its epochs."""
        network = self.learning.build(self.sizes_of(graph), session.streams.torch(self.name))
        network.on(graph.adjacency)
        epochs = session.epochs("classifier", self.learning.schedule.epochs)
        history = fit_noisy_labels(
            network, inputs, noisy, self.learning.schedule, select=self.learning.select, on_epoch=epochs
        )
        return network, history

    def _choose_rule(
        self, graph: Graph, inputs: PropagatedInputs, noisy: NoisyLabels, session: Session
    ) -> PredictionRule:
        """Return what to predict by, by labels that no network and no guess heard: one network a part."""
        found = self._posterior_mixture(graph, noisy)
        without = torch.full((graph.num_nodes, graph.num_classes), 1 / graph.num_classes)
        for away in found.parts:
            left = without_labels(noisy, away)
            if len(left.train) and len(left.val):
                network, _ = self._trained(graph, inputs, left, session)
                with torch.no_grad():
                    without[away] = network(inputs).softmax(dim=1)[away]
        return choose_prediction_rule(without, found, noisy)

    def noisy(self, graph: Graph, labels: Tensor) -> NoisyLabels:
        """Return what is known about a graph's randomized labels."""
        label = self.report_config.label(graph.num_classes)
        keep = label.keep_with(self.learning.missing_labels)
        corrected = self.learning.forward_correction and keep < 1
        return NoisyLabels(
            labels=labels,
            classes=graph.num_classes,
            train=reported_nodes(graph, labels, "train"),
            val=reported_nodes(graph, labels, "val"),
            keep=keep,
            blind=label.blind,
            transition=self._transition(graph) if corrected else None,
            smoothing=None if self.smoothing is None else self.smoothing.along(graph.adjacency),
        )

    def apply_posterior(self, proba: Tensor, graph: Graph, labels: Tensor, rule: PredictionRule) -> Tensor:
        """Return probabilities that heed what was told around each node, if they are to."""
        if not self.learning.posterior_steps or rule == "network":
            return proba
        noisy = self.noisy(graph, labels)
        if self.learning.prior == "diffusion":
            steps = self.learning.posterior_steps
            log_posterior_mixture = log_posterior(noisy, self._transition(graph), graph.adjacency, steps)
        else:
            log_posterior_mixture = self._posterior_mixture(graph, noisy).log_proba
        return combine_predictions(rule, proba, log_posterior_mixture)

    def _posterior_mixture(self, graph: Graph, noisy: NoisyLabels) -> PosteriorMixture:
        """Return what is said around each node; the seed deals the parts that are held out."""
        return mixed_posterior(
            noisy,
            self._transition(graph),
            GraphContext(graph.adjacency, self.learning.posterior_steps),
            PublicStreams(self.privacy_config.seed or 0).torch("held-out labels"),
            names=PRIORS[self.learning.prior],
            robust=self.learning.prior == "robust",
        )

    def _transition(self, graph: Graph) -> Tensor:
        """Return the law of what is said for each class, where a share of those asked has no label."""
        label = self.report_config.label(graph.num_classes)
        return torch.from_numpy(label.transition_with(self.learning.missing_labels)).float()

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedLpgnn":
        """Return the network with these weights; reports are not kept with them."""
        network = self.learning.build(sizes, PublicStreams(0).torch("restore"))
        network.load_state_dict(state)
        network.eval()
        return TrainedLpgnn(reports=None, method=self, network=network)


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedLpgnn(TrainedOnRecords):
    """A trained network, and the choices by which nodes of another graph randomize what it reads.

    Args:
        method: how records are randomized and propagated.
        network: its weights; which edges it is on is of no importance.
        rule: what predicts where labels were told: the network, the posterior or both.
    """

    method: LpgnnMethod
    network: Backbone
    rule: PredictionRule = "product"

    def answer(self, graph: Graph, session: Session, kept: CachedPrediction | None) -> CachedPrediction:
        """Predict another graph from exact features and nobody's labels, without a unit."""
        if self.method.privacy_config.protects:
            raise ConfigError("nodes of another graph must report their records before they are predicted")
        estimates = FeatureEstimates(scaled(graph.x, self.method.report_config.scaling))
        return CachedPrediction(
            None, (), self.proba(graph, estimates, self.method.propagation_config.propagation(graph, session))
        )

    def privacy_cost(self, graph: Graph, fitted: Guarantee) -> Guarantee:
        """Return the guarantee of one report on the features of each node."""
        return self.method.feature_report_cost(graph, fitted)

    def collect(
        self,
        graph: Graph,
        before: CachedReports | None,
        session: Session,
        collection_index: int,
    ) -> CachedReports:
        """Have the nodes that were not asked before randomize their features, and predict the graph."""
        propagation_config = self.method.propagation_config.propagation(
            graph, session
        )  # before its nodes pay
        first = 0 if before is None else before.nodes
        own = scaled(rows(graph.x, torch.arange(first, graph.num_nodes)), self.method.report_config.scaling)
        randomizer = self.method.report_config.randomizer(graph.num_features, graph.num_classes)
        found = self.method.collect_reports(
            graph,
            session,
            lambda: randomizer.randomize_features_only(own, session.noise_seed, collection_index),
        )
        records = concatenate_records(before, randomizer.received(found, own))
        proba = self.proba(graph, records.features, propagation_config)
        if bool(known(records.labels).any()):  # labels are heeded if anybody told one
            proba = self.method.apply_posterior(proba, graph, records.labels, self.rule)
        return CachedReports(None, (), proba, records)

    @torch.no_grad()
    def proba(self, graph: Graph, estimates: FeatureEstimates, propagation_config: Propagation) -> Tensor:
        """Return probabilities (N, C) from what nodes told."""
        network = copy(self.network).on(graph.adjacency)  # the same weights, on other edges
        logits: Tensor = network(propagated(estimates, propagation_config))
        return logits.softmax(dim=1)

    def state(self) -> State:
        """Return the weights."""
        return dict(self.network.state_dict())

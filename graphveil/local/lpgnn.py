"""LPGNN: train a graph neural network on locally randomized records and public edges."""

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
    """Keywords of networks that are trained on randomized records and public edges.

    Args:
        x_steps: K_x, the number of hops that average features.
        y_steps: K_y, the number of hops that average labels; 0 learns each node's own reported label.
        aggregator: A^: ``"gcn"`` or ``"mean"``.
        self_loops: Whether A^ has self-loops.
        isolated: A node without neighbors gets ``"zero"`` from A^, or keeps its own row (``"keep"``).
        backbone: ``"sage"``, ``"gcn"``, ``"gat"``, or ``"mlp"``, which does not aggregate.
        forward_correction: Whether the loss includes the label noise T (forward correction).
        missing_labels: Share of training and validation nodes without a label, which report a random class.
            A public parameter, because it cannot be estimated from the reports. It is part of T. A wrong
            value reduces accuracy and does not affect the guarantee.
        posterior_steps: If above 0, multiply the network's probabilities by a posterior from the reported
            labels around each node, over this many hops: 16 for sparse graphs, 8 for denser ones.
        prior: Candidates for that posterior. ``"diffusion"`` uses diffusion and direct neighbors.
            ``"mixture"`` adds belief propagation and communities, as in ``LabelPosterior``. ``"robust"`` also
            corrects class shares for malicious clients (poisoning).
        posterior_use: ``"product"`` multiplies both. ``"evidence"`` selects the network, the posterior or the
            product by the likelihood of held-out reported labels. This trains a network for each of 3 folds.
        select: Which epoch is kept. ``"paper"`` requires all metrics on noisy labels to improve, within their
            theoretical bounds. ``"likelihood"`` takes the smallest loss on randomized validation labels.
        hidden: Width of the hidden layer (of each of four heads, for ``"gat"``).
        activation: ``"selu"``, ``"relu"`` or ``"tanh"``.
        dropout: Share of hidden entries that are dropped in training.
        epochs: Number of training epochs.
        learning_rate: Learning rate of Adam.
        weight_decay: L2 penalty on the parameters.
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

    Every node randomizes its features at ``eps_x``. Training and validation nodes also randomize their label
    at ``eps_y``. The server reads only randomized records and public edges:

        H = A^^K_x X',   P(y|x) = softmax(GNN(H)),   P(y'|x) = P(y|x) T,
        P(y~|x) = softmax(A^^K_y P(y'|x)),   learned against argmax A^^K_y Y'      (Drop).

    X' are the estimated features, Y' the randomized labels, and T the distribution of the report for each
    class. A^ is the normalized adjacency without self-loops. The epoch is selected by randomized labels
    alone. Labels of test nodes are read only to score the test nodes.

    Shapes: features (N, d) to probabilities (N, C).

    Arguments are those of ``LocalKeywords`` (how a node randomizes its record) and ``LpgnnKeywords`` (how the
    network is trained).

    Raises:
        UnitError: The unit is neither ``"local-attributes"`` nor ``"none"``.

    Privacy:
        Unit ``local-attributes``: eps_x-LDP for the feature vector of each node and eps_y-LDP for its label,
        so eps_x + eps_y for the node record. With ``features="agm"`` it is (epsilon, delta)-LDP. Charges:
        these budgets, once per collection. Unit ``none`` is the reference without noise.

    >>> from graphveil.data.recipes import RECIPES
    >>> from graphveil.data import synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> model = LPGNN(unit="local-attributes", eps_x=1.0, eps_y=2.0, seed=0, epochs=5).fit(graph)
    >>> model.guarantee.epsilon, model.guarantee.local_budgets
    (3.0, (1.0, 2.0))
    """

    method: ClassVar[str] = "lpgnn"

    def no_graph_baseline(self) -> "LPGNN":
        """Return the unfitted no-graph baseline: an MLP on each node's own X' and Y'.

        Fit it to the same reports, with ``fit_same_reports`` or ``fit_from_collector``. This does not spend
        privacy budget (post-processing). The model is P(y'|x) = softmax(MLP(X')) T. Width, training
        parameters and the selection of the epoch are those of this model.

        >>> beside = LPGNN(unit="local-attributes", eps_x=1.0, eps_y=2.0, hidden=8).no_graph_baseline()
        >>> beside.backbone, beside.x_steps, beside.y_steps, beside.hidden, beside.eps_x
        ('mlp', 0, 0, 8, 1.0)
        """
        return baseline_of(self)

    def _build_method(self) -> "LpgnnMethod":
        return LpgnnMethod(
            name=self.method,
            privacy_config=self.privacy_config,
            report_config=self._report_config(),
            propagation_config=KPropConfig.from_keywords(self, self.x_steps),
            smoothing=KPropConfig.from_keywords(self, self.y_steps) if self.y_steps else None,
            learning=LearningConfig.from_keywords(self),
        )


def baseline_of(model: RecordEstimator) -> LPGNN:
    """Return the no-graph baseline of a method that trains like LPGNN; see ``LPGNN.no_graph_baseline``."""
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
    """Builds the linear map that propagates features; it may read the public edges."""

    @abstractmethod
    def propagation(self, graph: Graph, session: Session) -> Propagation:
        """Return the map. It is built before records are charged, because it may be impossible to compute."""

    def check(self) -> None:  # noqa: B027  # most need no optional package
        """Reject a map that cannot be computed on this machine."""


@dataclass(frozen=True, kw_only=True)
class KPropConfig(PropagationConfig):
    """A fixed number of hops; see ``KProp``.

    >>> KPropConfig.from_keywords(LpgnnKeywords(), steps=2).steps
    2
    """

    steps: int
    aggregator: Aggregator
    self_loops: bool
    isolated: Isolated

    @classmethod
    def from_keywords(cls, given: LpgnnKeywords, steps: int) -> "KPropConfig":
        """Check the keywords and return the configuration for ``steps`` hops."""
        checks.one_of(AGGREGATORS, aggregator=given.aggregator)
        checks.one_of(ISOLATED, isolated=given.isolated)
        checks.integer_at_least(0, x_steps=given.x_steps, y_steps=given.y_steps)
        return cls(
            steps=steps, aggregator=given.aggregator, self_loops=given.self_loops, isolated=given.isolated
        )

    def propagation(self, graph: Graph, session: Session) -> KProp:
        """Return the hops on the edges of a graph."""
        return self.along(graph.adjacency)

    def along(self, adjacency: Adjacency) -> KProp:
        """Return the hops on the given edges."""
        return KProp(
            adjacency=adjacency,
            steps=self.steps,
            aggregator=self.aggregator,
            self_loops=self.self_loops,
            isolated=self.isolated,
        )


@dataclass(frozen=True, kw_only=True)
class LearningConfig:
    """Configuration of the network and its training; see ``LpgnnKeywords``."""

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
                "around and posterior_use define how a posterior is used, and posterior_steps=0 uses none; "
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
        """Return an untrained network, not yet bound to edges."""
        widths = LayerSizes(features=sizes.width, hidden=self.hidden, classes=sizes.classes)
        return backbone(
            self.backbone, widths, activation=self.activation, dropout=self.dropout, generator=generator
        )


@dataclass(frozen=True, kw_only=True)
class LpgnnMethod(LocalMethod):
    """LPGNN with a configurable propagation of features.

    Args:
        propagation_config: Propagation of features.
        smoothing: Propagation of labels; None for none.
        learning: The network and its training.
    """

    propagation_config: PropagationConfig
    smoothing: KPropConfig | None
    learning: LearningConfig

    def __post_init__(self) -> None:
        """Reject a share of missing labels if labels are not randomized."""
        if self.learning.missing_labels and not self.protects_labels:
            raise ConfigError(
                f"missing_labels={self.learning.missing_labels:g} is for labels that are randomized, which "
                "without a finite eps_y none is; drop it"
            )

    def check(self, graph: Graph) -> None:
        """Reject an unusable graph, and a propagation that cannot be computed."""
        super().check(graph)
        self.propagation_config.check()

    def fit(self, graph: Graph, session: Session) -> FitResult:
        """Randomize records, propagate the estimated features, and train on them."""
        propagation_config = self.propagation_config.propagation(
            graph, session
        )  # before records are charged: it may be impossible
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
        """Return a network that was trained on reported labels, and its epochs."""
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
        """Return the prediction rule by held-out reported labels, with one network per held-out fold."""
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
        """Return the randomized labels of a graph and the parameters of their noise."""
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
        """Combine probabilities with the posterior from reported labels, if configured."""
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
        """Return the posterior from reported labels; the seed determines the held-out folds."""
        return mixed_posterior(
            noisy,
            self._transition(graph),
            GraphContext(graph.adjacency, self.learning.posterior_steps),
            PublicStreams(self.privacy_config.seed or 0).torch("held-out labels"),
            names=PRIORS[self.learning.prior],
            robust=self.learning.prior == "robust",
        )

    def _transition(self, graph: Graph) -> Tensor:
        """Return the distribution of the report for each class, including nodes without a label."""
        label = self.report_config.label(graph.num_classes)
        return torch.from_numpy(label.transition_with(self.learning.missing_labels)).float()

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedLpgnn":
        """Return the network with the stored parameters; reports are not stored with them."""
        network = self.learning.build(sizes, PublicStreams(0).torch("restore"))
        network.load_state_dict(state)
        network.eval()
        return TrainedLpgnn(reports=None, method=self, network=network)


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedLpgnn(TrainedOnRecords):
    """A trained network, and the configuration that randomizes the records of other graphs.

    Args:
        method: How records are randomized and propagated.
        network: The network; the edges that it is bound to do not matter.
        rule: Prediction rule for graphs with reported labels: the network, the posterior or their product.
    """

    method: LpgnnMethod
    network: Backbone
    rule: PredictionRule = "product"

    def answer(self, graph: Graph, session: Session, kept: CachedPrediction | None) -> CachedPrediction:
        """Predict another graph from exact features and no labels, if the unit is ``none``.

        Raises:
            ConfigError: The unit is ``local-attributes``; use ``collect``.
        """
        if self.method.privacy_config.protects:
            raise ConfigError("nodes of another graph must report their records before they are predicted")
        estimates = FeatureEstimates(scaled(graph.x, self.method.report_config.scaling))
        return CachedPrediction(
            None, (), self.proba(graph, estimates, self.method.propagation_config.propagation(graph, session))
        )

    def privacy_cost(self, graph: Graph, fitted: Guarantee) -> Guarantee:
        """Return the guarantee of one feature report per node."""
        return self.method.feature_report_cost(graph, fitted)

    def collect(
        self,
        graph: Graph,
        before: CachedReports | None,
        session: Session,
        collection_index: int,
    ) -> CachedReports:
        """Randomize the features of nodes without stored reports, and predict the graph."""
        propagation_config = self.method.propagation_config.propagation(
            graph, session
        )  # before its nodes are charged
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
        if bool(known(records.labels).any()):  # use labels if any were reported
            proba = self.method.apply_posterior(proba, graph, records.labels, self.rule)
        return CachedReports(None, (), proba, records)

    @torch.no_grad()
    def proba(self, graph: Graph, estimates: FeatureEstimates, propagation_config: Propagation) -> Tensor:
        """Return probabilities (N, C) from estimated features."""
        network = copy(self.network).on(graph.adjacency)  # the same parameters, on other edges
        logits: Tensor = network(propagated(estimates, propagation_config))
        return logits.softmax(dim=1)

    def state(self) -> State:
        """Return the parameters of the network."""
        return dict(self.network.state_dict())

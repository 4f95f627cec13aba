"""Networks that are trained on locally randomized records and public edges, as LPGNN and SimGAT do.

The nodes of another graph randomize their features before it is predicted, and report no label. The edge set
of a graph identifies its privacy ledger. When a graph has grown, its new nodes report once, and the reports
of the other nodes are kept.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf
from typing import Any, Literal, Protocol, Self

import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.core.edges.adjacency import Adjacency, EdgeSet, GrowthStep
from graphveil.core.features import rows, stacked
from graphveil.core.noise.random import PublicStreams
from graphveil.data import Graph
from graphveil.errors import ConfigError
from graphveil.estimators.choice import ChosenModel
from graphveil.estimators.inference import (
    PredictionComposition,
    PredictionOptions,
    PredictionRequest,
    PredictionState,
    prediction_session,
)
from graphveil.estimators.method import FitResult, State, TrainedModel
from graphveil.estimators.prediction_cache import CachedPrediction, PredictionCache
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.estimators.session import Session
from graphveil.local.local_method import HeldOutFit, Learner, LocalMethod, TrainedOnReports
from graphveil.local.noisy_labels import (
    SELECT,
    NoisyLabels,
    Select,
    fit_noisy_labels,
    log_posterior,
    reported_shares,
)
from graphveil.local.posterior_mixture import (
    AUTO,
    PRIORS,
    EdgeContext,
    PosteriorMixture,
    PredictionRule,
    Prior,
    Steps,
    check_steps,
    choose_prediction_rule,
    combine_predictions,
    diffusion_hops,
    held_out_folds,
    mixed_posterior,
    without_labels,
)
from graphveil.local.randomized_records import RandomizedRecords, known, reported_nodes, scaled
from graphveil.local.structure import PublicEdges
from graphveil.nn.layers import ACTIVATIONS
from graphveil.nn.lpgnn import (
    BACKBONES,
    Backbone,
    FeatureEstimates,
    LayerSizes,
    PropagatedInputs,
    backbone,
    propagated,
)
from graphveil.privacy import Guarantee
from graphveil.propagation import KProp, Propagation
from graphveil.propagation.linear import AGGREGATORS, ISOLATED, Aggregator, Isolated
from graphveil.training import EpochRecord, TrainingSchedule

PosteriorUse = Literal["product", "evidence", "validation"]
POSTERIOR_USE: tuple[PosteriorUse, ...] = ("product", "evidence", "validation")
CANDIDATE_STEPS = ((2, 1), (4, 2), (16, 8))  # (x_steps, y_steps) for "auto": few, some and many hops
EXACT_CANDIDATE_STEPS = ((2, 0), (4, 0), (16, 0))  # the same if labels are exact
SPARSE_DEGREE = 8.0  # mean degree up to which a graph is sparse, for "auto"
_SELECTED_STEPS = "selected_x_steps"
PAPER_SETTINGS: Mapping[str, Any] = {  # settings of the paper, for reproductions
    "x_steps": 4,
    "y_steps": 4,
    "posterior_steps": 0,
    "labels": "rr",
    "select": "paper",
    "epochs": 500,
    "weight_decay": 0.0,
    "dropout": 0.0,
}


@dataclass(kw_only=True, eq=False, repr=False)
class LpgnnKeywords:
    """Keywords of networks that are trained on randomized records and public edges.

    Args:
        x_steps: K_x, the number of hops that average features. ``"auto"`` trains with few, some and many hops
            and keeps the network with the smallest loss on randomized validation labels, which the training
            does not use.
        y_steps: K_y, the number of hops that average labels; 0 learns each node's own reported label.
            ``"auto"`` selects it with ``x_steps``, and is 0 if labels are not randomized.
        aggregator: A^: ``"gcn"`` or ``"mean"``.
        self_loops: Whether A^ has self-loops.
        isolated: A node without neighbors gets ``"zero"`` from A^, or keeps its own row (``"keep"``).
        backbone: ``"sage"``, ``"gcn"``, ``"gat"``, or ``"mlp"``, which does not aggregate.
        forward_correction: Whether the loss includes the label noise T (forward correction).
        missing_labels: Share of training and validation nodes without a label, which report a random class.
            A public parameter, because it cannot be estimated from the reports. It is part of T. A wrong
            value reduces accuracy and does not affect the guarantee.
        posterior_steps: If above 0, multiply the network's probabilities by a posterior from the reported
            labels around each node, over this many hops. ``"auto"`` is 64 / mean degree, between 2 and 16.
        prior: Candidates for that posterior. ``"diffusion"`` uses diffusion and direct neighbors.
            ``"mixture"`` adds belief propagation and communities, as in ``LabelPosterior``. ``"robust"`` also
            corrects class shares for malicious clients (poisoning). None is ``"mixture"`` if
            ``posterior_steps="auto"`` and the mean degree is at most 8, else ``"diffusion"``.
        posterior_use: ``"product"`` multiplies both. ``"evidence"`` selects the network, the posterior or the
            product by the likelihood of held-out reported labels. This trains a network for each of 3 folds.
            ``"validation"`` holds out the validation labels only, and trains no further network. It predicts
            class shares if nothing predicts these labels better. None is ``"validation"`` if
            ``posterior_steps="auto"``, else ``"product"``.
        select: Which epoch is kept. ``"paper"`` requires all metrics on noisy labels to improve, within their
            theoretical bounds. ``"likelihood"`` takes the smallest loss on randomized validation labels.
            ``"calibrated"`` takes the smallest loss after calibration, because averages of labels make
            predictions overconfident.
        hidden: Width of the hidden layer (of each of four heads, for ``"gat"``).
        activation: ``"selu"``, ``"relu"`` or ``"tanh"``.
        dropout: Share of hidden entries that are dropped in training.
        epochs: Number of training epochs.
        learning_rate: Learning rate of Adam.
        weight_decay: L2 penalty on the parameters.
    """

    x_steps: Steps = AUTO
    y_steps: Steps = AUTO
    aggregator: Aggregator = "gcn"
    self_loops: bool = False
    isolated: Isolated = "zero"
    backbone: str = "sage"
    forward_correction: bool = True
    missing_labels: float = 0.0
    posterior_steps: Steps = AUTO
    prior: Prior | None = None
    posterior_use: PosteriorUse | None = None
    select: Select = "calibrated"
    hidden: int = 16
    activation: str = "selu"
    dropout: float = 0.5
    epochs: int = 100
    learning_rate: float = 0.01
    weight_decay: float = 0.01


class PropagationConfig(ABC):
    """Builds the linear map that propagates features; it may read the public edges."""

    @abstractmethod
    def along(self, view: Graph, session: Session) -> Propagation:
        """Return the map of a graph."""

    @property
    @abstractmethod
    def steps(self) -> Steps:
        """The number of hops, or ``"auto"``."""

    @abstractmethod
    def with_steps(self, steps: int) -> Self:
        """Return the configuration with this number of hops."""

    def candidates(self, view: Graph, session: Session, steps: Sequence[int]) -> list[Propagation]:
        """Return the map of a graph for each number of hops."""
        return [self.with_steps(each).along(view, session) for each in steps]

    def check(self) -> None:  # noqa: B027  # most need no optional package
        """Reject a map that cannot be computed on this machine."""


@dataclass(frozen=True, kw_only=True)
class KPropConfig(PropagationConfig):
    """A fixed number of hops; see ``KProp``.

    >>> KPropConfig.from_keywords(LpgnnKeywords(), steps=2).steps
    2
    """

    steps: Steps = AUTO
    aggregator: Aggregator
    self_loops: bool
    isolated: Isolated

    @classmethod
    def from_keywords(cls, given: LpgnnKeywords, steps: Steps) -> "KPropConfig":
        """Check the keywords and return the configuration for ``steps`` hops."""
        checks.one_of(AGGREGATORS, aggregator=given.aggregator)
        checks.one_of(ISOLATED, isolated=given.isolated)
        check_steps(0, x_steps=given.x_steps, y_steps=given.y_steps)
        return cls(
            steps=steps, aggregator=given.aggregator, self_loops=given.self_loops, isolated=given.isolated
        )

    def along(self, view: Graph, session: Session) -> KProp:
        """Return the hops on the edges of a graph."""
        return self.hops(view.adjacency)

    def with_steps(self, steps: int) -> Self:
        """Return the configuration with this number of hops."""
        return replace(self, steps=steps)

    def hops(self, adjacency: Adjacency) -> KProp:
        """Return the hops on the given edges."""
        assert isinstance(self.steps, int)  # selected by ``NetworkLearner.fit``
        return KProp(
            adjacency=adjacency,
            steps=self.steps,
            aggregator=self.aggregator,
            self_loops=self.self_loops,
            isolated=self.isolated,
        )


@dataclass(frozen=True, kw_only=True)
class NetworkLearner(Learner):
    """A network, its training on reported labels, and the posterior that is combined with it.

    Args:
        propagation: Propagation of features.
        smoothing: Propagation of labels.
        schedule: Epochs, learning rate and weight decay.

    Further fields are those of ``LpgnnKeywords``.
    """

    propagation: PropagationConfig
    smoothing: KPropConfig
    backbone: str
    hidden: int
    activation: str
    dropout: float
    forward_correction: bool
    posterior_steps: Steps
    prior: Prior | None
    posterior_use: PosteriorUse | None
    select: Select
    schedule: TrainingSchedule

    @classmethod
    def from_keywords(cls, given: LpgnnKeywords, propagation: PropagationConfig) -> "NetworkLearner":
        """Check the keywords, and return the learner for a propagation of features."""
        smoothing = KPropConfig.from_keywords(given, given.y_steps)
        checks.one_of(tuple(BACKBONES), backbone=given.backbone)
        checks.one_of(ACTIVATIONS, activation=given.activation)
        checks.one_of(SELECT, select=given.select)
        if given.prior is not None:
            checks.one_of(tuple(PRIORS), prior=given.prior)
        if given.posterior_use is not None:
            checks.one_of(POSTERIOR_USE, posterior_use=given.posterior_use)
        check_steps(0, posterior_steps=given.posterior_steps)
        plain = given.prior in (None, "diffusion") and given.posterior_use in (None, "product")
        if not given.posterior_steps and not plain:
            raise ConfigError(
                "prior and posterior_use have no effect with posterior_steps=0. Set posterior_steps, for "
                "example posterior_steps=4, or remove them."
            )
        checks.width(hidden=given.hidden)
        checks.within(0, 0.99, dropout=given.dropout, missing_labels=given.missing_labels)
        return cls(
            propagation=propagation,
            smoothing=smoothing,
            backbone=given.backbone,
            hidden=given.hidden,
            activation=given.activation,
            dropout=given.dropout,
            forward_correction=given.forward_correction,
            posterior_steps=given.posterior_steps,
            prior=given.prior,
            posterior_use=given.posterior_use,
            select=given.select,
            schedule=TrainingSchedule(
                epochs=given.epochs, learning_rate=given.learning_rate, weight_decay=given.weight_decay
            ),
        )

    def check(self) -> None:
        """Reject a propagation that cannot be computed on this machine."""
        self.propagation.check()

    def build(self, sizes: PublicSizes, generator: torch.Generator) -> Backbone:
        """Return an untrained network, not yet bound to edges."""
        widths = LayerSizes(features=sizes.width, hidden=self.hidden, classes=sizes.classes)
        return backbone(
            self.backbone, widths, activation=self.activation, dropout=self.dropout, generator=generator
        )

    def fit(self, method: LocalMethod, view: Graph, session: Session) -> FitResult:
        """Randomize records, propagate the estimated features, and train on them."""
        options = self.options(method, view, session)
        with session.stage("randomize"):
            collected = method.collected(view, session)
        best = select_network(options, method, view, collected.records, session)
        with session.stage("evidence"):
            rule, proba = best.learner._predicted(method, view, best, session)
        learned = {"clipped": collected.clipped, **best.learned(view, rule)}
        return best.result(method, collected.records, rule, proba, learned)

    def options(self, method: LocalMethod, view: Graph, session: Session) -> "list[NetworkOption]":
        """Return the learners to select from with their maps, before records are charged.

        A map may be impossible to compute on this machine.
        """
        learners = self.candidates(method, view)
        steps = [learner.propagation.steps for learner in learners]
        maps = self.propagation.candidates(view, session, [each for each in steps if each != AUTO])
        return list(zip(learners, maps, strict=True))

    def candidates(self, method: LocalMethod, view: Graph) -> list["NetworkLearner"]:
        """Return the learners to select from, without ``"auto"``; they follow from public edges and sizes."""
        automatic = self.posterior_steps == AUTO
        edges = PublicEdges(view.adjacency, basis="the unit does not protect edges")
        sparse = edges.mean_degree <= SPARSE_DEGREE
        fixed = replace(
            self,
            posterior_steps=diffusion_hops(edges) if automatic else self.posterior_steps,
            prior=self.prior or ("mixture" if automatic and sparse else "diffusion"),
            posterior_use=self.posterior_use or ("validation" if automatic else "product"),
        )
        x, y = self.propagation.steps, self.smoothing.steps
        known_steps = CANDIDATE_STEPS if method.protects_labels else EXACT_CANDIDATE_STEPS
        pairs = dict.fromkeys((a if x == AUTO else x, b if y == AUTO else y) for a, b in known_steps)
        return [
            replace(
                fixed,
                propagation=self.propagation.with_steps(first),
                smoothing=self.smoothing.with_steps(second),
            )
            for first, second in pairs
        ]

    def _predicted(
        self,
        method: LocalMethod,
        view: Graph,
        fitted: "FittedNetwork",
        session: Session,
    ) -> tuple[PredictionRule, Tensor]:
        """Return the prediction rule and the probabilities of all nodes."""
        noisy, alone = fitted.noisy, fitted.proba
        if self.posterior_use == "validation" and self.posterior_steps:
            mixture = self._posterior_mixture(method, view, noisy)
            validation, training = (without_labels(noisy, part) for part in (noisy.train, noisy.val))
            shares = reported_shares(training, method.transition(view.num_classes))
            rule = choose_prediction_rule(alone, mixture, validation, shares)
            if rule != "shares":
                return rule, combine_predictions(rule, alone, mixture.log_proba)
            return rule, self.apply_posterior(method, alone, view, noisy.labels, rule)
        rule = "product"
        if self.posterior_use == "evidence":
            mixture = self._posterior_mixture(method, view, noisy)
            without = self.held_out(method, view, fitted, mixture.parts, session)
            rule = choose_prediction_rule(without, mixture, noisy)
        return rule, self.apply_posterior(method, alone, view, noisy.labels, rule)

    def _trained(
        self,
        method: LocalMethod,
        view: Graph,
        inputs: PropagatedInputs,
        noisy: NoisyLabels,
        session: Session,
    ) -> tuple[Backbone, list[EpochRecord]]:
        """Return a network that was trained on reported labels, and its epochs."""
        network = self.build(method.sizes_of(view), session.streams.torch(method.name))
        network.on(view.adjacency)
        on_epoch = session.epochs("classifier", self.schedule.epochs)
        history = fit_noisy_labels(
            network, inputs, noisy, self.schedule, select=self.select, on_epoch=on_epoch
        )
        return network, history

    def held_out(
        self,
        method: LocalMethod,
        view: Graph,
        fitted: "FittedNetwork",
        folds: Sequence[Tensor],
        session: Session,
    ) -> Tensor:
        """Return probabilities (N, C) of reporting nodes, from networks without the reports of their fold.

        Args:
            method: Randomization of records.
            view: The graph.
            fitted: Network whose inputs and labels are used.
            folds: Reporting nodes of each fold.
            session: Session of the fit.
        """
        without = torch.full((view.num_nodes, view.num_classes), 1 / view.num_classes)
        for fold in folds:
            left = without_labels(fitted.noisy, fold)
            if len(left.train) and len(left.val):
                network, _ = self._trained(method, view, fitted.inputs, left, session)
                with torch.no_grad():
                    without[fold] = network(fitted.inputs).softmax(dim=1)[fold]
        return without

    def cross_fit(
        self,
        method: LocalMethod,
        view: Graph,
        records: RandomizedRecords,
        options: "Sequence[NetworkOption]",
        session: Session,
    ) -> HeldOutFit:
        """Train a network on all reports, and for each fold on the others; no posterior is used.

        Args:
            method: Randomization of records.
            view: The graph.
            records: Its reports.
            options: The result of ``options``.
            session: Session of the fit.
        """
        best = select_network(options, method, view, records, session)
        with session.stage("evidence"):
            generator = PublicStreams(method.privacy_config.seed or 0).torch("held-out labels")
            folds = held_out_folds(best.noisy, generator)
            without = self.held_out(method, view, best, folds, session)
        learned = best.learned(view, "network")
        return HeldOutFit(best.result(method, records, "network", best.proba, learned), without)

    def noisy(self, method: LocalMethod, view: Graph, labels: Tensor) -> NoisyLabels:
        """Return the randomized labels of a graph, with the configured correction and smoothing."""
        smoothing = self.smoothing.hops(view.adjacency) if self.smoothing.steps else None
        return method.noisy(view, labels, corrected=self.forward_correction, smoothing=smoothing)

    def apply_posterior(
        self, method: LocalMethod, proba: Tensor, view: Graph, labels: Tensor, rule: PredictionRule
    ) -> Tensor:
        """Combine probabilities with the posterior from reported labels, if configured."""
        if not self.posterior_steps or rule == "network":
            return proba
        assert isinstance(self.posterior_steps, int)  # ``candidates`` has resolved it
        noisy = self.noisy(method, view, labels)
        transition = method.transition(view.num_classes)
        if rule == "shares":
            return reported_shares(noisy, transition).repeat(view.num_nodes, 1)
        if self.prior == "diffusion":
            posterior = log_posterior(noisy, transition, view.adjacency, self.posterior_steps)
        else:
            posterior = self._posterior_mixture(method, view, noisy).log_proba
        return combine_predictions(rule, proba, posterior)

    def _posterior_mixture(self, method: LocalMethod, view: Graph, noisy: NoisyLabels) -> PosteriorMixture:
        """Return the posterior from reported labels; the seed determines the held-out folds."""
        assert isinstance(self.posterior_steps, int)  # ``candidates`` has resolved it, and the prior
        assert self.prior is not None
        return mixed_posterior(
            noisy,
            method.transition(view.num_classes),
            EdgeContext(view.adjacency, self.posterior_steps),
            PublicStreams(method.privacy_config.seed or 0).torch("held-out labels"),
            names=PRIORS[self.prior],
            robust=self.prior == "robust",
        )

    def restore(self, method: LocalMethod, state: State, sizes: PublicSizes) -> "TrainedLpgnn":
        """Return the network with the stored parameters; reports are not stored with them."""
        parameters, learner = dict(state), self
        if self.propagation.steps == AUTO:
            steps = int(parameters.pop(_SELECTED_STEPS))
            learner = replace(self, propagation=self.propagation.with_steps(steps))
        network = self.build(sizes, PublicStreams(0).torch("restore"))
        network.load_state_dict(parameters)
        network.eval()
        return TrainedLpgnn(reports=None, method=method, learner=learner, network=network)


NetworkOption = tuple[NetworkLearner, Propagation]


@dataclass(frozen=True, eq=False)
class FittedNetwork:
    """A trained option of a ``NetworkLearner`` with its inputs and its reported labels."""

    learner: NetworkLearner
    inputs: PropagatedInputs
    noisy: NoisyLabels
    network: Backbone
    history: list[EpochRecord]

    def val_loss(self) -> float:
        """Return the smallest loss on randomized validation labels; inf if there are none."""
        return min(
            (record.val_loss for record in self.history if record.val_loss == record.val_loss), default=inf
        )

    @cached_property
    def proba(self) -> Tensor:
        """Probabilities (N, C) by the network alone."""
        with torch.no_grad():
            logits: Tensor = self.network(self.inputs)
        return logits.softmax(dim=1)

    def learned(self, view: Graph, rule: PredictionRule) -> dict[str, Any]:
        """Return the agreement with reported labels, and what was selected."""
        labels = self.noisy.labels
        agreement = {
            part: self.noisy.agreement(self.proba, reported_nodes(view, labels, part))
            for part in ("train", "val")
        }
        found = {
            "x_steps": self.learner.propagation.steps,
            "y_steps": self.learner.smoothing.steps,
            "rule": rule if self.learner.posterior_steps else "network",
        }
        return {"agreement": agreement, "selected": found}

    def result(
        self,
        method: LocalMethod,
        records: RandomizedRecords,
        rule: PredictionRule,
        proba: Tensor,
        learned: Mapping[str, Any],
    ) -> FitResult:
        """Return the result of a fit that predicts with this network by a rule."""
        trained = TrainedLpgnn(
            reports=records, method=method, learner=self.learner, network=self.network, rule=rule
        )
        released = {"labels": records.labels} if method.privacy_config.protects else {}
        return FitResult(trained=trained, proba=proba, released=released, learned=learned)


def select_network(
    options: Sequence[NetworkOption],
    method: LocalMethod,
    view: Graph,
    records: RandomizedRecords,
    session: Session,
) -> FittedNetwork:
    """Train each option on reports, and return the one with the smallest loss on validation labels."""
    trained = list[FittedNetwork]()
    for learner, propagation in options:
        with session.stage("aggregate"):
            inputs = propagated(records.features, propagation)
        noisy = learner.noisy(method, view, records.labels)
        noisy = replace(noisy, holds_out=len(options) > 1 or learner.posterior_use == "validation")
        with session.stage("classifier"):
            network, history = learner._trained(method, view, inputs, noisy, session)
        trained.append(FittedNetwork(learner, inputs, noisy, network, history))
    best = min(trained, key=FittedNetwork.val_loss)
    session.record("classifier", best.history)
    return best


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedLpgnn(TrainedOnReports, TrainedModel):
    """A trained network, and the configuration that randomizes the records of other graphs.

    Args:
        method: Randomization of records.
        learner: Propagation of features, and use of the posterior.
        network: The network; the edges that it is bound to do not matter.
        rule: Prediction rule for graphs with reported labels: the network, the posterior or their product.
    """

    method: LocalMethod
    learner: NetworkLearner
    network: Backbone
    rule: PredictionRule = "product"

    def answer(self, view: Graph, session: Session, kept: CachedPrediction | None) -> CachedPrediction:
        """Predict another graph from exact features and no labels, if the unit is ``none``.

        Raises:
            ConfigError: The unit is ``local-attributes``; use ``collect``.
        """
        if self.method.privacy_config.protects:
            raise ConfigError(
                "The nodes of another graph must send LDP reports before the model can predict them."
            )
        estimates = FeatureEstimates(scaled(view.x, self.method.report_config.scaling))
        propagation = self.learner.propagation.along(view, session)
        return CachedPrediction(None, (), self.proba(view, estimates, propagation))

    def collect(
        self, view: Graph, before: "CachedReports | None", session: Session, collection_index: int
    ) -> "CachedReports":
        """Randomize the features of nodes without stored reports, charge the ledger, and predict the graph.

        Args:
            view: Graph to predict.
            before: Stored reports of its first nodes; all other nodes report now.
            session: Ledger and guarantee of the collection.
            collection_index: Number of this collection, so that its noise is independent of others.
        """
        propagation = self.learner.propagation.along(view, session)  # before its nodes are charged
        first = 0 if before is None else len(before.records.labels)
        own = rows(view.x, torch.arange(first, view.num_nodes))
        randomizer = self.method.report_config.randomizer(view.num_features, view.num_classes)
        randomize = partial(randomizer.randomize_features_only, session.noise_seed, collection_index)
        found = self.method.collect_reports(view, session, randomize, (own,))
        records = randomizer.received(found, own)
        if before is not None:
            old = before.records
            features = stacked(old.features.deviations, records.features.deviations)
            records = RandomizedRecords(
                FeatureEstimates(features, old.features.middle),
                torch.cat([old.labels, records.labels]),
                records.release_id,
                old.reproducible or records.reproducible,
            )
        return CachedReports(None, (), self._predicted(view, records, propagation), records)

    def predicted(self, view: Graph, records: RandomizedRecords, session: Session) -> Tensor:
        """Return probabilities (N, C) from reports that are already charged."""
        return self._predicted(view, records, self.learner.propagation.along(view, session))

    def _predicted(self, view: Graph, records: RandomizedRecords, propagation: Propagation) -> Tensor:
        proba = self.proba(view, records.features, propagation)
        if bool(known(records.labels).any()):  # use labels if any were reported
            proba = self.learner.apply_posterior(self.method, proba, view, records.labels, self.rule)
        return proba

    @torch.no_grad()
    def proba(self, view: Graph, estimates: FeatureEstimates, propagation: Propagation) -> Tensor:
        """Return probabilities (N, C) from estimated features."""
        network = copy(self.network).on(view.adjacency)  # the same parameters, on other edges
        logits: Tensor = network(propagated(estimates, propagation))
        return logits.softmax(dim=1)

    def state(self) -> State:
        """Return the parameters of the network, and the selected number of hops."""
        learner = self.method.learner
        assert isinstance(learner, NetworkLearner)
        state = dict(self.network.state_dict())
        if learner.propagation.steps == AUTO:
            state[_SELECTED_STEPS] = torch.tensor(int(self.learner.propagation.steps))
        return state


# -- prediction of other graphs ----


@dataclass(frozen=True, eq=False)
class CachedReports(CachedPrediction):
    """Stored predictions of one graph, with the randomized records that they are based on."""

    records: RandomizedRecords


@dataclass(frozen=True, eq=False)
class CollectionRequest:
    """One collection of features on another graph.

    Args:
        graph: View of the graph to predict.
        privacy_cost: Guarantee of this collection alone.
        steps: Growth steps of the graph since ``before``; empty if all of its nodes report.
        before: Stored reports of the graph that it has grown from.
        disjoint: Assumption of the caller that no node here has reported before.
    """

    graph: Graph
    privacy_cost: Guarantee
    steps: tuple[GrowthStep, ...]
    before: CachedReports | None
    disjoint: bool

    @property
    def edge_sets(self) -> EdgeSet:
        """The edge sets of the reporting nodes."""
        return EdgeSet(parts=[step.added.edge_set for step in self.steps] or [self.graph.edge_set])

    def record_in(self, ledger: PredictionComposition) -> PredictionComposition:
        """Record the collection in the composition of a model's predictions, and return it."""
        for step in self.steps:
            ledger.apart(step.added.edge_set, step.apart)
        if self.disjoint:
            ledger.apart(self.edge_sets)
        ledger.note(self.edge_sets, self.privacy_cost)
        return ledger

    def execute(self, prediction_state: PredictionState) -> None:
        """Randomize features, charge the ledger, and store the result in the cache."""
        index, session = prediction_state.ledger.releases, prediction_session(prediction_state, self)
        view = self.graph
        collected = _collecting_model(prediction_state).collect(view, self.before, session, index)
        prediction_state.cache.keep(view.version, view.features_digest(), collected)


def collection_requests(
    prediction_state: PredictionState, graph: Graph, options: PredictionOptions
) -> Sequence[PredictionRequest]:
    """Return the collections that a prediction needs; if a graph has grown, only its new nodes report.

    Raises:
        ConfigError: The model was fitted to LDP reports, or ``assume_disjoint_nodes`` is contradicted.
    """
    fitted = prediction_state.fitted
    if not fitted.method.privacy_config.protects:
        return []
    if fitted.guarantee.received:
        raise ConfigError(
            f"This {fitted.method.name} was trained on LDP reports and cannot read raw features. "
            "Collect LDP reports of the nodes of the other graph, and train on all LDP reports "
            "(fit_from_collector, collect learn). Nodes that have reported are not charged again."
        )
    view = fitted.method.view(graph)
    privacy_cost = _collecting_model(prediction_state).method.feature_report_cost(view, fitted.guarantee)
    steps, before = _growth(prediction_state.cache, view)
    found = CollectionRequest(view, privacy_cost, steps, before, options.assume_disjoint_nodes)
    if options.assume_disjoint_nodes and prediction_state.ledger.fitted(found.edge_sets):
        raise ConfigError(
            "assume_disjoint_nodes (--assume-disjoint-nodes) is not valid, because this graph has "
            "the same people as the training graph. Remove it, or build the two graphs from "
            "different edges."
        )
    return [found]


class CollectingModel(Protocol):
    """A model that nodes of another graph report their features to."""

    @property
    def method(self) -> LocalMethod:
        """Randomization of records."""

    def collect(
        self, view: Graph, before: CachedReports | None, session: Session, collection_index: int
    ) -> CachedReports:
        """Randomize features, charge the ledger, and predict; see ``TrainedLpgnn.collect``."""


def _collecting_model(prediction_state: PredictionState) -> CollectingModel:
    trained = prediction_state.fitted.trained
    model: Any = trained.model if isinstance(trained, ChosenModel) else trained
    collecting: CollectingModel = model  # other models request no collection
    return collecting


def _growth(cache: PredictionCache, view: Graph) -> tuple[tuple[GrowthStep, ...], CachedReports | None]:
    """Return the growth steps since the last graph with stored reports, and these reports; else nothing."""
    pending = list[GrowthStep]()
    for step in reversed(view.adjacency.history):
        pending.insert(0, step)
        kept = cache.find(step.base, view.features_digest(step.base_nodes))
        if isinstance(kept, CachedReports):
            return tuple(pending), kept
    return (), None

"""LPGNN: networks that are trained on locally randomized records and public edges."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import inf
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.features import stacked
from graphveil.core.noise.random import PublicStreams
from graphveil.data import Graph
from graphveil.errors import ConfigError
from graphveil.estimators.base import Estimator
from graphveil.estimators.fitted import FittedAttribute
from graphveil.estimators.method import FitResult, State
from graphveil.estimators.prediction_cache import CachedPrediction
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.estimators.session import Session
from graphveil.local.local_estimator import LocalEstimator
from graphveil.local.local_method import LocalMethod, TrainedOnReports
from graphveil.local.posterior_mixture import (
    AUTO,
    PRIORS,
    SELECT,
    EdgeContext,
    NoisyLabels,
    PosteriorContext,
    PosteriorMixture,
    PredictionRule,
    Prior,
    Select,
    Steps,
    check_steps,
    choose_prediction_rule,
    combine_predictions,
    diffusion_hops,
    fit_noisy_labels,
    held_out_folds,
    mean_degree,
    without_labels,
)
from graphveil.local.reports import FeatureKeywords, RandomizedRecords, known, reported_nodes, scaled
from graphveil.nn.layers import ACTIVATIONS
from graphveil.nn.lpgnn import (
    BACKBONES,
    Backbone,
    FeatureEstimates,
    PropagatedInputs,
    propagated,
)
from graphveil.nn.message_passing import (
    AGGREGATORS,
    ISOLATED,
    Aggregator,
    Isolated,
    Propagation,
    k_prop,
)
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


NetworkOption = tuple["NetworkMethod", Propagation]


@dataclass(frozen=True, kw_only=True)
class NetworkMethod(LocalMethod):
    """A network, its training on reported labels, and the posterior that is combined with it.

    Args:
        settings: Keywords of the network and its training. In a candidate (``options``) all but ``x_steps``
            are resolved.
        steps: Number of hops that average features, resolved in a candidate.
    """

    settings: LpgnnKeywords
    steps: Steps
    schedule: TrainingSchedule

    @classmethod
    def from_estimator(cls, model: LocalEstimator) -> Self:
        given = LpgnnKeywords(**model._named(LpgnnKeywords))
        checks.one_of(AGGREGATORS, aggregator=given.aggregator)
        checks.one_of(ISOLATED, isolated=given.isolated)
        check_steps(0, x_steps=given.x_steps, y_steps=given.y_steps)
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
        schedule = TrainingSchedule(
            epochs=given.epochs, learning_rate=given.learning_rate, weight_decay=given.weight_decay
        )
        return model._method(
            cls,
            report_config=model.report_config(),
            settings=given,
            steps=given.x_steps,
            schedule=schedule,
        )

    # -- the propagation of features -----------------------------------------------------------------------

    def hops(self, adjacency: Adjacency, steps: Steps) -> Propagation:
        """Return an average over a fixed number of hops on the public edges; see ``k_prop``."""
        assert isinstance(steps, int)  # resolved by ``options``
        given = self.settings
        own: dict[str, Any] = {"self_loops": given.self_loops, "isolated": given.isolated}
        return k_prop(adjacency, steps, aggregator=given.aggregator, **own)

    def maps(self, view: Graph, session: Session, steps: Sequence[Steps]) -> Sequence[Propagation]:
        return [self.hops(view.adjacency, each) for each in steps]

    def along(self, view: Graph, session: Session) -> Propagation:
        return self.maps(view, session, [self.steps])[0]

    # -- a fit ---------------------------------------------------------------------------------------------

    def build(self, sizes: PublicSizes, generator: torch.Generator) -> Backbone:
        """Return an untrained network, not yet bound to edges."""
        given = self.settings
        widths = sizes.width, given.hidden, sizes.classes
        return BACKBONES[given.backbone](widths, given.activation, given.dropout, generator)

    def fit(self, view: Graph, session: Session) -> FitResult:
        options = self.options(view, session)
        with session.stage("randomize"):
            records = self.collected(view, session)
        best = select_network(options, view, records, session)
        with session.stage("evidence"):
            rule, proba = best.method.predicted(view, best, session)
        learned = {"clipped": records.clipped, **best.learned(view, rule)}
        return best.result(records, rule, proba, learned)

    def options(self, view: Graph, session: Session) -> list[NetworkOption]:
        """Return the methods to select from, without ``"auto"``, and the maps of their hops.

        They follow from public edges and sizes, before records are charged. A map may be impossible to
        compute on this machine.
        """
        given = self.settings
        automatic, sparse = given.posterior_steps == AUTO, mean_degree(view.adjacency) <= SPARSE_DEGREE
        fixed = replace(
            given,
            posterior_steps=diffusion_hops(view.adjacency) if automatic else given.posterior_steps,
            prior=given.prior or ("mixture" if automatic and sparse else "diffusion"),
            posterior_use=given.posterior_use or ("validation" if automatic else "product"),
        )
        x, y = self.steps, given.y_steps
        known_steps = CANDIDATE_STEPS if self.protects_labels else EXACT_CANDIDATE_STEPS
        pairs = dict.fromkeys((a if x == AUTO else x, b if y == AUTO else y) for a, b in known_steps)
        found = [replace(self, settings=replace(fixed, y_steps=b), steps=a) for a, b in pairs]
        return list(zip(found, self.maps(view, session, [a for a, _ in pairs]), strict=True))

    def predicted(
        self, view: Graph, fitted: "FittedNetwork", session: Session
    ) -> tuple[PredictionRule, Tensor]:
        noisy, alone, given = fitted.noisy, fitted.proba, self.settings
        rule: PredictionRule = "product"
        if given.posterior_use == "validation" and given.posterior_steps:
            mixture = self.posterior_mixture(view, noisy)
            validation, training = (without_labels(noisy, part) for part in (noisy.train, noisy.val))
            rule = choose_prediction_rule(alone, mixture, validation, training.shares)
            if rule != "shares":
                return rule, combine_predictions(rule, alone, mixture.log_proba)
        elif given.posterior_use == "evidence":
            mixture = self.posterior_mixture(view, noisy)
            without = self.held_out(view, fitted, mixture.parts, session)
            rule = choose_prediction_rule(without, mixture, noisy)
        return rule, self.apply_posterior(alone, view, noisy.labels, rule)

    def trained(
        self, view: Graph, inputs: PropagatedInputs, noisy: NoisyLabels, session: Session
    ) -> tuple[Backbone, list[EpochRecord]]:
        network = self.build(self.sizes_of(view), session.streams.torch(self.stream_name))
        network.on(view.adjacency)
        on_epoch = session.epochs("classifier", self.schedule.epochs)
        history = fit_noisy_labels(
            network, inputs, noisy, self.schedule, select=self.settings.select, on_epoch=on_epoch
        )
        return network, history

    def held_out(
        self, view: Graph, fitted: "FittedNetwork", folds: Sequence[Tensor], session: Session
    ) -> Tensor:
        without = torch.full((view.num_nodes, view.num_classes), 1 / view.num_classes)
        for fold in folds:
            left = without_labels(fitted.noisy, fold)
            if len(left.train) and len(left.val):
                network, _ = self.trained(view, fitted.inputs, left, session)
                with torch.no_grad():
                    without[fold] = network(fitted.inputs).softmax(dim=1)[fold]
        return without

    def cross_fit(
        self, view: Graph, records: RandomizedRecords, options: Sequence[NetworkOption], session: Session
    ) -> tuple[FitResult, Tensor]:
        """Return a fit, and the probabilities of reporting nodes without the reports of their fold."""
        best = select_network(options, view, records, session)
        with session.stage("evidence"):
            folds = held_out_folds(best.noisy, self.fold_generator())
            without = self.held_out(view, best, folds, session)
        return best.result(records, "network", best.proba, best.learned(view, "network")), without

    def smoothed(self, view: Graph, labels: Tensor) -> NoisyLabels:
        given, smoothing = self.settings, None
        if given.y_steps:
            smoothing = self.hops(view.adjacency, given.y_steps)
        return self.noisy(view, labels, corrected=given.forward_correction, smoothing=smoothing)

    def apply_posterior(self, proba: Tensor, view: Graph, labels: Tensor, rule: PredictionRule) -> Tensor:
        steps = self.settings.posterior_steps
        if not steps or rule == "network":
            return proba
        assert isinstance(steps, int)  # ``candidates`` has resolved it
        noisy = self.smoothed(view, labels)
        if rule == "shares":
            return noisy.shares.repeat(view.num_nodes, 1)
        if self.settings.prior == "diffusion":
            posterior = PosteriorContext(noisy, EdgeContext(view.adjacency, steps)).log_posterior
        else:
            posterior = self.posterior_mixture(view, noisy).log_proba
        return combine_predictions(rule, proba, posterior)

    def posterior_mixture(self, view: Graph, noisy: NoisyLabels) -> PosteriorMixture:
        assert self.settings.prior is not None  # ``candidates`` has resolved it, and the steps
        return self.mixture(view, noisy, self.settings.prior, self.settings.posterior_steps)

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedLpgnn":
        parameters, method = dict(state), self
        if self.settings.x_steps == AUTO:
            steps = int(parameters.pop(_SELECTED_STEPS))
            method = replace(self, steps=steps)
        network = self.build(sizes, PublicStreams(0).torch("restore"))
        network.load_state_dict(parameters)
        network.eval()
        return TrainedLpgnn(reports=None, method=method, network=network)


@dataclass(frozen=True, eq=False)
class FittedNetwork:
    """A trained candidate of a ``NetworkMethod`` with its inputs and its reported labels."""

    method: NetworkMethod
    inputs: PropagatedInputs
    noisy: NoisyLabels
    network: Backbone
    history: list[EpochRecord]

    def val_loss(self) -> float:
        return min(
            (record.val_loss for record in self.history if record.val_loss == record.val_loss), default=inf
        )

    @cached_property
    def proba(self) -> Tensor:
        with torch.no_grad():
            logits: Tensor = self.network(self.inputs)
        return logits.softmax(dim=1)

    def learned(self, view: Graph, rule: PredictionRule) -> dict[str, Any]:
        labels, settings = self.noisy.labels, self.method.settings
        agreement = {
            part: self.noisy.agreement(self.proba, reported_nodes(view, labels, part))
            for part in ("train", "val")
        }
        found = {
            "x_steps": self.method.steps,
            "y_steps": settings.y_steps,
            "rule": rule if settings.posterior_steps else "network",
        }
        return {"agreement": agreement, "selected": found}

    def result(
        self, records: RandomizedRecords, rule: PredictionRule, proba: Tensor, learned: Mapping[str, Any]
    ) -> FitResult:
        trained = TrainedLpgnn(reports=records, method=self.method, network=self.network, rule=rule)
        return FitResult(
            trained=trained, proba=proba, released=self.method.released(records), learned=learned
        )


def select_network(
    options: Sequence[NetworkOption], view: Graph, records: RandomizedRecords, session: Session
) -> FittedNetwork:
    """Train each option on reports, and return the one with the smallest loss on validation labels."""
    trained = list[FittedNetwork]()
    for method, propagation in options:
        with session.stage("aggregate"):
            inputs = propagated(records.features, propagation)
        holds_out = len(options) > 1 or method.settings.posterior_use == "validation"
        noisy = replace(method.smoothed(view, records.labels), holds_out=holds_out)
        with session.stage("classifier"):
            network, history = method.trained(view, inputs, noisy, session)
        trained.append(FittedNetwork(method, inputs, noisy, network, history))
    best = min(trained, key=FittedNetwork.val_loss)
    session.record("classifier", best.history)
    return best


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedLpgnn(TrainedOnReports):
    """A trained network, and the configuration that randomizes the records of other graphs.

    Args:
        network: The network; the edges that it is bound to do not matter.
    """

    method: NetworkMethod
    network: Backbone
    rule: PredictionRule = "product"

    @property
    def reads_features(self) -> bool:
        return True

    def answer(self, view: Graph, session: Session, kept: CachedPrediction | None) -> CachedPrediction:
        """Predict another graph from exact features and no labels, if the unit is ``none``."""
        if self.method.privacy_config.protects:
            raise ConfigError(
                "The nodes of another graph must send LDP reports before the model can predict them."
            )
        estimates = FeatureEstimates(scaled(view.x, self.method.report_config.scaling))
        propagation = self.method.along(view, session)
        return CachedPrediction(None, (), self.proba(view, estimates, propagation))

    def collect(self, view: Graph, before: RandomizedRecords | None, session: Session) -> CachedPrediction:
        """Randomize features of nodes without stored reports (``before``), charge them, and predict."""
        propagation = self.method.along(view, session)  # before its nodes are charged
        records = self.method.collected_features(view, session, 0 if before is None else len(before.labels))
        if before is not None:
            features = stacked(before.features.deviations, records.features.deviations)
            records = RandomizedRecords(
                FeatureEstimates(features, before.features.middle), torch.cat([before.labels, records.labels])
            )
        return CachedPrediction(None, (), self._predicted(view, records, propagation), records)

    def predicted(self, view: Graph, records: RandomizedRecords, session: Session) -> Tensor:
        """Return probabilities (N, C) from reports that are already charged."""
        return self._predicted(view, records, self.method.along(view, session))

    def _predicted(self, view: Graph, records: RandomizedRecords, propagation: Propagation) -> Tensor:
        proba = self.proba(view, records.features, propagation)
        if bool(known(records.labels).any()):  # use labels if any were reported
            proba = self.method.apply_posterior(proba, view, records.labels, self.rule)
        return proba

    @torch.no_grad()
    def proba(self, view: Graph, estimates: FeatureEstimates, propagation: Propagation) -> Tensor:
        network = copy(self.network).on(view.adjacency)  # the same parameters, on other edges
        logits: Tensor = network(propagated(estimates, propagation))
        return logits.softmax(dim=1)

    def state(self) -> State:
        state = dict(self.network.state_dict())
        if self.method.settings.x_steps == AUTO:
            state[_SELECTED_STEPS] = torch.tensor(int(self.method.steps))
        return state


@dataclass(kw_only=True, eq=False, repr=False)
class LPGNN(LpgnnKeywords, FeatureKeywords, LocalEstimator):
    """Locally private graph neural network (Sajadmanesh, Gatica-Perez: LPGNN, CCS 2021).

    Every node randomizes its features at ``eps_x``. Training and validation nodes also randomize their label
    at ``eps_y``. The server reads only randomized records and public edges:

        H = A^^K_x X',   P(y|x) = softmax(GNN(H)),   P(y'|x) = P(y|x) T,
        P(y~|x) = softmax(A^^K_y P(y'|x)),   learned against argmax A^^K_y Y'      (Drop).

    X' are the estimated features, Y' the randomized labels, and T the distribution of the report for each
    class. A^ is the normalized adjacency without self-loops. The epoch is selected by randomized labels
    alone. Labels of test nodes are read only to score the test nodes.

    Shapes: features (N, d) to probabilities (N, C).

    Arguments are those of ``FeatureKeywords`` and ``LabelKeywords`` (randomization of a node record), and of
    ``LpgnnKeywords`` (training of the network).

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

    selected_ = FittedAttribute[dict[str, int | str]](lambda fit: dict(fit.learned.get("selected", {})), dict)

    def no_graph_baseline(self) -> "LPGNN":
        """Return the unfitted no-graph baseline: an MLP on each node's own X' and Y'.

        Fit it to the same reports, with ``fit_same_reports`` or ``fit_from_collector``. This does not spend
        privacy budget (post-processing). The model is P(y'|x) = softmax(MLP(X')) T. Width, training
        parameters and the selection of the epoch are those of this model.

        Privacy:
            Reads: no data. Charges: nothing.

        >>> baseline = LPGNN(unit="local-attributes", eps_x=1.0, eps_y=2.0, hidden=8).no_graph_baseline()
        >>> baseline.backbone, baseline.x_steps, baseline.y_steps, baseline.hidden, baseline.eps_x
        ('mlp', 0, 0, 8, 1.0)
        """
        return baseline_of(self)

    def _build_method(self) -> NetworkMethod:
        return NetworkMethod.from_estimator(self)


def baseline_of(model: Estimator) -> LPGNN:
    own = {part.name for part in fields(LPGNN) if part.init}
    kept = {name: value for name, value in model.get_params().items() if name in own}
    no_hops = {"backbone": "mlp", "x_steps": 0, "y_steps": 0, "forward_correction": True}
    no_posterior = {"posterior_steps": 0, "prior": None, "posterior_use": None}
    return LPGNN(**{**kept, **no_hops, **no_posterior})

"""Label posterior: infer classes from public edges and one noisy label per node, without features."""

from dataclasses import dataclass
from typing import Any, ClassVar, Self
from weakref import ReferenceType, ref

import torch
from torch import Tensor

from graphveil._util import checks
from graphveil._util.random import PublicStreams
from graphveil.data import Graph
from graphveil.data.adjacency import AdjacencyVersion
from graphveil.errors import ConfigError
from graphveil.estimators.fitted import FittedAttribute
from graphveil.estimators.inference import RequestFactory
from graphveil.estimators.method import FitResult, State
from graphveil.estimators.prediction_cache import CachedPrediction
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.estimators.session import Session
from graphveil.local.collect import CollectionProtocol, Collector
from graphveil.local.local_estimator import LocalEstimator, complete_label_from_protocol
from graphveil.local.local_method import LocalMethod, TrainedOnReports
from graphveil.local.noisy_labels import NoisyLabels
from graphveil.local.posterior_mixture import (
    PRIORS,
    GraphContext,
    PosteriorMixture,
    Prior,
    mixed_posterior,
)
from graphveil.local.randomized_records import extend_without_labels, reported_nodes
from graphveil.local.report_config import ReportConfig
from graphveil.nn.inputs import FeatureEstimates


@dataclass(kw_only=True, eq=False, repr=False)
class LabelPosterior(LocalEstimator):
    """Infer the posterior of each node's class from public edges and one noisy label per node.

    Every training and validation node randomizes its label at ``eps_y``. Features are not read, and no
    feature budget is spent. The labels that are reported around a node determine the posterior of its class,

        P(y_v | reported labels) by the exact distribution of the noise.

    There are several candidates: diffusion with direct neighbors, belief propagation, and each of them with
    communities of the public edges as a prior. ``mixed_posterior`` weights the candidates by the likelihood
    of held-out reported labels, so that candidates that do not fit the graph get a small weight. There is no
    network; only these mixture weights (``weights_``) are fitted.

    Shapes: labels (N) to probabilities (N, C).

    Args:
        eps_x: Must be 0, because no features are reported. It exists so that budgets can be compared by name.
        eps_y, labels: See ``LabelKeywords``.
        prior: How reported labels around a node are used. ``"mixture"`` mixes all candidates. ``"robust"``
            also corrects class shares for malicious clients (poisoning). ``"diffusion"`` uses diffusion and
            direct neighbors only. ``"nothing"`` uses only the node's own label, as a no-graph baseline.
        posterior_steps: Number of diffusion hops: 16 for sparse graphs, 8 for denser ones.
        missing_labels: Share of training and validation nodes without a label, which report a random class.
            A public parameter, because it cannot be estimated from the reports.

    Raises:
        UnitError: The unit is neither ``"local-attributes"`` nor ``"none"``.

    Privacy:
        Unit ``local-attributes``: eps_y-LDP for each node's label. Reads: labels of training and validation
        nodes, and public edges. Charges: eps_y per collection. Unit ``none`` is the reference without noise.

    >>> from graphveil.data.recipes import RECIPES
    >>> from graphveil.data import synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> model = LabelPosterior(unit="local-attributes", eps_y=2.0, seed=0).fit(graph)
    >>> model.guarantee.epsilon, model.guarantee.local_budgets
    (2.0, (0.0, 2.0))
    """

    method: ClassVar[str] = "label-posterior"
    needs_features: ClassVar[bool] = False
    report_parameters: ClassVar[tuple[str, ...]] = ("unit", "mode", "eps_y", "labels")

    eps_x: float | None = 0.0
    prior: Prior = "mixture"
    posterior_steps: int = 16
    missing_labels: float = 0.0

    weights_ = FittedAttribute[dict[str, float]](lambda fit: dict(fit.learned.get("weights", {})), dict)

    def no_graph_baseline(self) -> "LabelPosterior":
        """Return the unfitted no-graph baseline: the posterior given only a node's own label.

        Fit it to the same reports, with ``fit_same_reports`` or ``fit_from_collector``. A node without a
        reported label gets the most frequent class.

        >>> LabelPosterior(unit="local-attributes", eps_y=1.0).no_graph_baseline().prior
        'nothing'
        """
        return LabelPosterior(**{**self.get_params(), "prior": "nothing"})

    @classmethod
    def from_protocol(cls, protocol: CollectionProtocol, **configuration: Any) -> Self:
        """Return an estimator for the LDP reports of a collection protocol; see ``fit_from_collector``.

        Args:
            protocol: The collection protocol.
            configuration: Further constructor keywords.

        Raises:
            ConfigError: A keyword contradicts the protocol, or the protocol does not collect the label alone.

        >>> from graphveil.mechanisms import SubsetSelection
        >>> LabelPosterior.from_protocol(CollectionProtocol(label=SubsetSelection(epsilon=1.0,
        ...     classes=7))).labels
        'subset'
        """
        return cls(**complete_label_from_protocol(protocol, configuration))

    def _build_method(self) -> "LabelPosteriorMethod":
        checks.one_of(tuple(PRIORS), prior=self.prior)
        checks.integer_at_least(1, posterior_steps=self.posterior_steps)
        checks.within(0, 0.99, missing_labels=self.missing_labels)
        if self.eps_x not in (None, 0):
            raise ConfigError(
                f"eps_x={self.eps_x!r}: {self.method} reads no features, so they are not reported; drop "
                "it (0), or use 'lpgnn', which learns from both"
            )
        return LabelPosteriorMethod(
            name=self.method,
            privacy_config=self.privacy_config,
            report_config=ReportConfig.from_label_keywords(self, self.privacy_config, self.method),
            prior=self.prior,
            steps=self.posterior_steps,
            missing_labels=self.missing_labels,
        )

    def _check_protocol(self, protocol: CollectionProtocol) -> None:
        complete_label_from_protocol(protocol, {**self.get_params(), "eps_x": 0.0})

    def _public(self, collector: Collector, given: object) -> FeatureEstimates | None:
        """Return zeros in place of features, which are not read."""
        if given is not None:
            raise ConfigError(f"{self.method} reads no features; drop public_features (--nodes)")
        return FeatureEstimates(torch.zeros(collector.nodes, 1))

    def _request_factory(self) -> RequestFactory:
        """Return a factory without requests: other graphs have no features to report."""
        return lambda prediction_state, graph, options: ()


@dataclass(frozen=True, kw_only=True)
class LabelPosteriorMethod(LocalMethod):
    """Frozen configuration of ``LabelPosterior``.

    Args:
        prior: Which candidate posteriors are mixed.
        steps: Number of diffusion hops.
        missing_labels: Share of reporting nodes without a label.
    """

    prior: Prior
    steps: int
    missing_labels: float

    def __post_init__(self) -> None:
        """Reject a share of missing labels if labels are not randomized."""
        if self.missing_labels and not self.protects_labels:
            raise ConfigError(
                f"missing_labels={self.missing_labels:g} is for labels that are randomized, which without a "
                "finite eps_y none is; drop it"
            )

    def fit(self, graph: Graph, session: Session) -> FitResult:
        """Randomize labels, and infer classes from the reported labels."""
        with session.stage("randomize"):
            records = self.collected(graph, session).records
        with session.stage("classifier"):
            found = self.inferred(graph, records.labels)
        agreement = {
            part: self.noisy(graph, records.labels).agreement(
                found.held_out, reported_nodes(graph, records.labels, part)
            )
            for part in ("train", "val")
        }
        return FitResult(
            trained=TrainedLabelPosterior(reports=records, method=self, of=ref(graph.adjacency.version)),
            proba=found.log_proba.exp(),
            released={"labels": records.labels} if self.privacy_config.protects else {},
            learned={"agreement": agreement, "weights": found.weights},
        )

    def inferred(self, graph: Graph, labels: Tensor) -> PosteriorMixture:
        """Return the posterior of all nodes. The seed determines the held-out folds and so the results."""
        return mixed_posterior(
            self.noisy(graph, labels),
            self._transition(graph),
            GraphContext(graph.adjacency, self.steps),
            PublicStreams(self.privacy_config.seed or 0).torch("held-out labels"),
            names=PRIORS[self.prior],
            robust=self.prior == "robust",
        )

    def noisy(self, graph: Graph, labels: Tensor) -> NoisyLabels:
        """Return the randomized labels of a graph and the parameters of their noise."""
        label = self.report_config.label(graph.num_classes)
        return NoisyLabels(
            labels=labels,
            classes=graph.num_classes,
            train=reported_nodes(graph, labels, "train"),
            val=reported_nodes(graph, labels, "val"),
            keep=label.keep_with(self.missing_labels),
            blind=label.blind,
            transition=self._transition(graph),
        )

    def _transition(self, graph: Graph) -> Tensor:
        label = self.report_config.label(graph.num_classes)
        return torch.from_numpy(label.transition_with(self.missing_labels)).float()

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedLabelPosterior":
        """Return a fitted object without reports, which are not stored with a model."""
        return TrainedLabelPosterior(reports=None, method=self, of=None)


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedLabelPosterior(TrainedOnReports):
    """Reported labels, and the edges that they were fitted on.

    Args:
        method: Configuration of the inference.
        of: Version of the fitted edges; None for a model that was loaded from a file.
    """

    method: LabelPosteriorMethod
    of: "ReferenceType[AdjacencyVersion] | None"

    def answer(self, graph: Graph, session: Session, kept: CachedPrediction | None) -> CachedPrediction:
        """Predict the fitted graph or a graph that has grown from it, without spending privacy budget.

        Raises:
            ConfigError: No node of this graph has reported a label.
        """
        grown = {step.base for step in graph.adjacency.history} | {graph.adjacency.version}
        fitted = None if self.of is None else self.of()
        if self.reports is None or fitted not in grown:
            raise ConfigError(
                f"{self.method.name} predicts a class from labels reported near a node, and no node of this "
                "graph reported one: fit it there, which is a collection with a budget of its own. Graphs "
                "that grow from the fitted one (Graph.grow) are predicted at no cost, in the process that "
                "fitted it"
            )
        labels = extend_without_labels(self.reports.labels, graph.num_nodes)
        return CachedPrediction(None, (), self.method.inferred(graph, labels).log_proba.exp())

    def state(self) -> State:
        """Return an empty state, because there are no parameters."""
        return {}

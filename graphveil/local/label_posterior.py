"""Label posterior: infer classes from public edges and one noisy label per node, without features."""

from dataclasses import dataclass, replace
from typing import ClassVar
from weakref import ReferenceType, ref

import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.core.edges.adjacency import AdjacencyVersion
from graphveil.data import Graph
from graphveil.errors import ConfigError
from graphveil.estimators.fitted import FittedAttribute
from graphveil.estimators.method import FitResult, State
from graphveil.estimators.prediction_cache import CachedPrediction
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.estimators.session import Session
from graphveil.local.local_estimator import LocalEstimator
from graphveil.local.local_method import LocalMethod, TrainedOnReports
from graphveil.local.posterior_mixture import AUTO, PRIORS, Prior, Steps, check_steps, diffusion_hops
from graphveil.local.reports import UNKNOWN, RandomizedRecords, reported_nodes


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
        posterior_steps: Number of diffusion hops. ``"auto"`` is 64 / mean degree of the public edges, between
            2 and 16, because few hops reach many reports on dense graphs.
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

    eps_x: float | None = 0.0
    prior: Prior = "mixture"
    posterior_steps: Steps = AUTO
    missing_labels: float = 0.0

    weights_ = FittedAttribute[dict[str, float]](lambda fit: dict(fit.learned.get("weights", {})), dict)

    def no_graph_baseline(self) -> "LabelPosterior":
        """Return the unfitted no-graph baseline: the posterior given only a node's own label.

        Fit it to the same reports, with ``fit_same_reports`` or ``fit_from_collector``. A node without a
        reported label gets the most frequent class.

        Privacy:
            Reads: no data. Charges: nothing.

        >>> LabelPosterior(unit="local-attributes", eps_y=1.0).no_graph_baseline().prior
        'nothing'
        """
        return LabelPosterior(**{**self.get_params(), "prior": "nothing"})

    def _build_method(self) -> "PosteriorMethod":
        checks.one_of(tuple(PRIORS), prior=self.prior)
        check_steps(1, posterior_steps=self.posterior_steps)
        checks.within(0, 0.99, missing_labels=self.missing_labels)
        if self.eps_x not in (None, 0):
            raise ConfigError(
                f"eps_x={self.eps_x!r} has no effect, because {self.method} does not read features. Set "
                "eps_x=0, or use 'lpgnn', which reads features and labels."
            )
        return self._method(PosteriorMethod, report_config=self.report_config(), steps=self.posterior_steps)


@dataclass(frozen=True, kw_only=True)
class PosteriorMethod(LocalMethod):
    """The posterior of each node's class, from reported labels and public edges."""

    prior: Prior
    steps: Steps

    def fit(self, view: Graph, session: Session) -> FitResult:
        with session.stage("randomize"):
            records = self.collected(view, session)
        with session.stage("classifier"):
            return self.cross_fit(view, records)[0]

    def cross_fit(self, view: Graph, records: RandomizedRecords) -> tuple[FitResult, Tensor]:
        """Return a fit, and the probabilities of reporting nodes without the reports of their fold."""
        labels, method = records.labels, self
        if self.steps == AUTO:  # predictions of a graph that has grown have the same number of hops
            method = replace(self, steps=diffusion_hops(view.adjacency))
        noisy = method.noisy(view, labels)
        mixture = method.mixture(view, noisy, method.prior, method.steps)
        agreement = {
            part: noisy.agreement(mixture.held_out, reported_nodes(view, labels, part))
            for part in ("train", "val")
        }
        result = FitResult(
            trained=TrainedLabelPosterior(
                reports=records, method=method, version=ref(view.adjacency.version)
            ),
            proba=mixture.log_proba.exp(),
            released=method.released(records),
            learned={"agreement": agreement, "weights": mixture.weights},
        )
        return result, mixture.held_out.exp()

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedLabelPosterior":
        return TrainedLabelPosterior(reports=None, method=self, version=None)


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedLabelPosterior(TrainedOnReports):
    """Reported labels, and the edges that they were fitted on.

    Args:
        version: Version of the fitted edges; None for a model that was loaded from a file.
    """

    method: PosteriorMethod
    version: "ReferenceType[AdjacencyVersion] | None"

    def answer(self, view: Graph, session: Session, kept: CachedPrediction | None) -> CachedPrediction:
        """Predict the fitted graph or a graph that has grown from it, without spending privacy budget."""
        if self.reports is None or not self.is_fitted_on(view):
            raise ConfigError(
                f"{self.method.name} predicts a class from labels reported by nearby nodes, but no node "
                "of this graph has reported. Fit it to this graph, which is a new collection with its "
                "own budget. Graphs grown from the fitted graph (Graph.grow) need no new budget in the "
                "same process."
            )
        labels, method = self.reports.labels, self.method
        new = torch.full((view.num_nodes - len(labels), *labels.shape[1:]), UNKNOWN)  # report no label
        noisy = method.noisy(view, torch.cat([labels, new]))
        found = method.mixture(view, noisy, method.prior, method.steps)
        return CachedPrediction(None, (), found.log_proba.exp())

    def is_fitted_on(self, view: Graph) -> bool:
        """Return whether the graph is the fitted one or has grown from it, and its reports are in memory."""
        versions = {step.base for step in view.adjacency.history} | {view.adjacency.version}
        return self.reports is not None and self.version is not None and self.version() in versions

    def state(self) -> State:
        return {}

"""Estimators on randomized records: one collection a fit, further models of it for free, other graphs."""

import dataclasses
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self, cast

import torch

from graphveil._util.threads import one_thread
from graphveil.artifacts.rows import ReleaseRow
from graphveil.data import Adjacency, Graph
from graphveil.errors import ConfigError, GraphError
from graphveil.estimators.base import Estimator
from graphveil.estimators.fitted import FittedAttribute, FittedModel, none_before_fit
from graphveil.estimators.inference.prediction_cache import CachedPrediction
from graphveil.estimators.inference.requests import RequestFactory
from graphveil.estimators.requirements import check_on_cpu
from graphveil.estimators.session import OnProgress, no_progress
from graphveil.local.collect import CollectionProtocol, Collector
from graphveil.local.lpgnn.collected_reports import Ids, as_graph, complete_from_protocol
from graphveil.local.lpgnn.inductive import CachedReports, TrainedOnReports, collection_requests
from graphveil.local.lpgnn.keywords import LabelKeywords
from graphveil.local.lpgnn.method import LocalMethod, ReceivedReports
from graphveil.local.lpgnn.randomized_records import (
    RandomizedRecords,
    known,
    label_report_nodes,
    reported_nodes,
)
from graphveil.mechanisms import LabelMechanism
from graphveil.nn.inputs import FeatureEstimates
from graphveil.privacy import Guarantee


@dataclass(kw_only=True, eq=False, repr=False)
class LocalEstimator(LabelKeywords, Estimator):
    """Base of methods that learn from records which each node randomizes, over public edges.

    A fit is one collection: booked before it, resumed without another one. Its reports serve further models,
    and the new nodes of a graph that grows are asked alone. How many values lay outside the public range is
    counted in ``clipped_``, which is private; ``agreement_`` is how often the network alone predicts what
    training and validation nodes said.
    """

    local: ClassVar[bool] = True
    scales_features: ClassVar[bool] = False
    needs_features: ClassVar[bool] = True
    report_parameters: ClassVar[tuple[str, ...]]  # the parameters that say what a report is

    clipped_ = FittedAttribute[int | None](lambda fit: fit.learned.get("clipped"), none_before_fit)
    agreement_ = FittedAttribute[dict[str, float]](lambda fit: dict(fit.learned.get("agreement", {})), dict)

    # -- configuration -------------------------------------------------------------------------------------

    @abstractmethod
    def _build_method(self) -> LocalMethod:
        """Return the frozen method of this configuration."""

    @property
    def config(self) -> LocalMethod:
        """The frozen configuration."""
        return cast(LocalMethod, super().config)

    @abstractmethod
    def no_graph_baseline(self) -> "LocalEstimator":
        """Return the unfitted baseline that reads no edge, for the same reports."""

    def _check_config(self) -> None:
        super()._check_config()
        check_on_cpu(self.method, self.device)

    @property
    def _spends_budget(self) -> bool:
        """Whether a fit asks anything under a budget of the server's: a record pays before it leaves."""
        return False

    def label_mechanism(self, classes: int) -> LabelMechanism:
        """Return what randomizes a label of so many classes."""
        return self.config.report_config.label(classes)

    def guarantee_for(self, features: int, classes: int) -> Guarantee:
        """Return the guarantee for records of so many features and classes, whatever the graph."""
        return self.config.guarantee_for_sizes(features, classes)

    def reports_for(self, features: int, classes: int) -> tuple[ReleaseRow, ...]:
        """Return what leaves a node of so many features and classes, as lines of a table."""
        return self.config.report_config.rows(features, classes)

    @classmethod
    def from_protocol(cls, protocol: CollectionProtocol, **configuration: Any) -> Self:
        """Return an estimator for what devices answer to a survey, see :meth:`fit_from_collector`.

        Args:
            protocol: says what is protected, how, and at which budgets.
            configuration: further constructor keywords.

        Raises:
            ConfigError: a keyword contradicts the survey; it does not collect labels, or took its bounds from
                data.

        >>> from graphveil.mechanisms import LabelRR, MultiBit
        >>> from graphveil.local.lpgnn import LPGNN
        >>> label_report_nodes = CollectionProtocol(features=MultiBit(epsilon=1.0, dim=8),
        ...     label=LabelRR(epsilon=2.0, classes=3))
        >>> model = LPGNN.from_protocol(label_report_nodes, x_steps=16)
        >>> model.eps_x, model.eps_y, model.mechanism(8) == label_report_nodes.features
        (1.0, 2.0, True)
        """
        return cls(**complete_from_protocol(protocol, configuration))

    # -- one collection ------------------------------------------------------------------------------------

    @one_thread()
    def fit_from_collector(
        self,
        collector: Collector,
        adjacency: Adjacency,
        *,
        public_features: object = None,
        ids: Ids | None = None,
        on_progress: OnProgress = no_progress,
    ) -> Self:
        """Learn from what devices sent, over public edges, and predict all nodes.

        Nothing is randomized here: no noise is drawn, and nothing booked, because every node paid before its
        LDP report left. The guarantee is the survey's, about what had left the devices. A node that has not
        answered has the middle of every feature's range and no label. Two thirds of those that have are
        trained on, and the epoch is chosen on the others; ``seed`` says which. There is no accuracy to be
        had: no exact label is here.

        Args:
            collector: the LDP reports, of the survey that the estimator is from.
            adjacency: the public edges between its nodes, numbered as there.
            public_features: features (N, d) of all nodes that are no secret, for a survey that asks for the
                label alone. The guarantee says eps_x = inf of them, which is no protection.
            ids: the nodes' own ids (N), for tables of predictions.

        Raises:
            ConfigError: the estimator is not of the collector's survey, or ``unsafe_noise_seed`` is given;
                public features are missing, not asked for, or outside ``low`` and ``high``.
            GraphError: the sizes differ, or fewer than two nodes have answered.
        """
        self._check_protocol(collector.protocol)
        public = self._public(collector, public_features)
        graph, received = as_graph(collector, adjacency, seed=self.seed, ids=ids, public=public)
        return self.fit_from_reports(graph, ReceivedReports(records=received), on_progress)

    def _check_protocol(self, protocol: CollectionProtocol) -> None:
        """Refuse another survey than the one that the estimator is from."""
        complete_from_protocol(protocol, self.get_params())

    @abstractmethod
    def _public(self, collector: Collector, given: object) -> FeatureEstimates | None:
        """Return what takes the place of estimated features, where the survey asks for none."""

    @one_thread()
    def fit_same_reports(
        self, fitted: "LocalEstimator", graph: Graph, *, on_progress: OnProgress = no_progress
    ) -> Self:
        """Learn from the reports that another model was fitted to, on the same graph, at no further cost.

        Nothing is randomized here, and nothing booked: whatever is computed from reports that were paid for
        is free. The guarantee is the other model's. What it says about a node holds for both models together.

        Args:
            fitted: fitted in this process; reports are not saved with a model.
            graph: the graph it was fitted to, with the same split.

        Raises:
            ConfigError: the two models randomize records differently, or the other one has no reports.
            GraphError: the nodes, or those that told their label, are not those of the reports.
        """
        reports = _reports_of(fitted._fit)
        if reports is None:
            raise ConfigError(
                "the other model has no reports: it is not fitted, or comes from a file, which does not hold "
                "them; fit it in this process first"
            )
        self._check_same_records(fitted.fitted)
        has_report_expected = (
            label_report_nodes(graph)
            if self.config.protects_labels
            else label_report_nodes(graph) & graph.labeled
        )
        if not torch.equal(known(reports.labels), has_report_expected):
            raise GraphError(
                "the reports are of other nodes or another split; pass the graph that the other model was "
                "fitted to"
            )
        received = ReceivedReports(records=reports, guarantee=fitted.guarantee, clipped=fitted.clipped_)
        return self.fit_from_reports(graph, received, on_progress)

    def _check_same_records(self, fitted: FittedModel) -> None:
        """Require that both models mean the same by a report."""
        for name in self.report_parameters:
            own, other = getattr(self, name), fitted.parameters.get(name)
            if own != other:
                raise ConfigError(
                    f"{name}={own!r} is not how the reports were made, which is {name}={other!r}; take that, "
                    "or fit(graph), which is a collection of its own"
                )

    def fit_from_reports(
        self, graph: Graph, received: ReceivedReports, on_progress: OnProgress = no_progress
    ) -> Self:
        """Learn from reports that were paid for already."""
        method = dataclasses.replace(self.config, received=received)
        return self._fit_by(method, graph, self._session(on_progress))

    # -- afterwards ----------------------------------------------------------------------------------------

    def score(self, graph: Graph, split: str = "test") -> float:
        """Return the accuracy on test nodes or, on training and validation nodes, on what they said.

        Their own labels are protected under ``local-attributes``, so it is their randomized ones, of the
        fitted graph, that predictions are compared with; the best that can be expected there is the
        probability that a label is kept.
        """
        if not self.fitted.method.privacy_config.protects or split == "test":
            return super().score(graph, split)
        reported = self.aggregates_["labels"]
        if len(reported) != graph.num_nodes:
            raise GraphError("what training and validation nodes said is known of the fitted graph only")
        nodes = reported_nodes(graph, reported, split)
        own = self.predict()[nodes, None] == reported.reshape(len(reported), -1)[nodes]  # or one of several
        return float(own.any(dim=1).float().mean())

    def _request_factory(self) -> RequestFactory:
        """Return what nodes of another graph have to tell."""
        return collection_requests

    def _cached_prediction(self, fitted: FittedModel) -> CachedPrediction:
        """Return what is known of the fitted graph, with the reports behind it."""
        reports = _reports_of(fitted)
        assert reports is not None  # this process has just learned from them
        return CachedReports(None, (), fitted.own_proba, reports)


def _reports_of(fitted: FittedModel | None) -> RandomizedRecords | None:
    """Return what a model learned from; None before a fit, and for one from a file."""
    trained = None if fitted is None else fitted.trained
    return trained.reports if isinstance(trained, TrainedOnReports) else None

"""Estimators on randomized records: one collection a fit, further models of it for free, other graphs."""

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse

from graphveil._util.threads import one_thread
from graphveil.artifacts.snapshot import ReleaseRow
from graphveil.data import Adjacency, Graph
from graphveil.data.features import as_features
from graphveil.data.recipes import random_split
from graphveil.errors import ConfigError, GraphError
from graphveil.estimators.base import Estimator
from graphveil.estimators.fitted import FittedAttribute, FittedModel, none_before_fit
from graphveil.estimators.inference import RequestFactory
from graphveil.estimators.prediction_cache import CachedPrediction
from graphveil.estimators.requirements import check_on_cpu
from graphveil.estimators.session import OnProgress, no_progress
from graphveil.local.collect import CollectionProtocol, Collector
from graphveil.local.local_method import (
    CachedReports,
    LocalMethod,
    ReceivedReports,
    TrainedOnReports,
    collection_requests,
)
from graphveil.local.randomized_records import (
    RandomizedRecords,
    known,
    label_report_nodes,
    outside,
    reported_nodes,
    sparse_estimates,
)
from graphveil.local.report_config import (
    LabelKeywords,
    LocalKeywords,
    ReportConfig,
    label_mechanism_name,
    scaled,
)
from graphveil.mechanisms import FeatureMechanism, FeatureRR, LabelMechanism, WeightedAllocation
from graphveil.nn.inputs import FeatureEstimates
from graphveil.privacy import Guarantee, LocalAttributes

Ids: TypeAlias = npt.NDArray[Any]
_TRAIN = 2 / 3  # of the nodes that have answered


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

    @property
    def config(self) -> LocalMethod:
        """The frozen configuration."""
        return cast(LocalMethod, super().config)

    @abstractmethod
    def _build_method(self) -> LocalMethod:
        """Return the frozen method of this configuration."""

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


@dataclass(kw_only=True, eq=False, repr=False)
class RecordEstimator(LocalKeywords, LocalEstimator):
    """Base of methods whose nodes randomize their features, too."""

    report_parameters: ClassVar[tuple[str, ...]] = (
        *("unit", "mode", "delta", "eps_x", "eps_y", "features", "m", "theta", "k", "rounding", "decode"),
        *("low", "high", "scaling", "data_dependent_bounds", "labels"),
    )

    def mechanism(self, dim: int) -> FeatureMechanism:
        """Return what randomizes a vector of so many features."""
        found = self._report_config().mechanism(dim)
        assert found is not None  # records have features
        return found

    def _report_config(self) -> ReportConfig:
        return ReportConfig.from_keywords(self, self.privacy_config, self.method)

    def _public(self, collector: Collector, given: object) -> FeatureEstimates | None:
        """Return public features in the place of estimates, where the survey asks for none."""
        if (given is None) != (collector.protocol.features is not None):
            raise ConfigError(
                "the survey asks for no features, so public ones are needed: public_features=, one row per "
                "node"
                if given is None
                else "the survey asks for features, and what was said is learned from; drop public_features"
            )
        if given is None:
            return None
        x = scaled(as_features(given), self.scaling)
        report_config = self._report_config().features
        assert report_config is not None
        if count := outside(report_config.bounds, x):
            raise ConfigError(
                f"{count:,} values of the public features lie outside low={self.low!r} and "
                f"high={self.high!r}, and would be cut; say their range (--set low=.. --set high=..), or "
                "scaling='row'"
            )
        return FeatureEstimates(x)


# -- what a survey decides, and what clients sent ----


def complete_from_protocol(protocol: CollectionProtocol, configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration completed by what a survey says.

    Raises:
        ConfigError: a keyword contradicts the survey, or it is none to learn from.

    >>> from graphveil.mechanisms import LabelRR
    >>> asked = CollectionProtocol(features=MultiBit(epsilon=1.0, dim=8), label=LabelRR(epsilon=2.0,
    ...     classes=3))
    >>> complete_from_protocol(asked, {"eps_x": 3.0})
    Traceback (most recent call last):
    graphveil.errors.ConfigError: eps_x=3.0 contradicts the survey, whose answers have eps_x=1.0; drop it
    """
    return _merge_parameters(configuration, _protocol_parameters(protocol))


def complete_label_from_protocol(
    protocol: CollectionProtocol, configuration: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a configuration completed by what a survey of a label alone says.

    Raises:
        ConfigError: a keyword contradicts the survey, or it asks for no label, or for features, too.

    >>> from graphveil.mechanisms import SubsetSelection
    >>> complete_label_from_protocol(CollectionProtocol(label=SubsetSelection(epsilon=1.0, classes=7)),
    ...     {})["labels"]
    'subset'
    """
    if protocol.features is not None:
        raise ConfigError(
            "the survey asks for features, too, and nothing would be learned from them; ask for the label "
            "alone, or learn with 'lpgnn' or 'simgat'"
        )
    return _merge_parameters(configuration, _protocol_label_parameters(protocol))


def _merge_parameters(configuration: Mapping[str, Any], reported: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in reported.items():
        if name in configuration and configuration[name] != value:
            raise ConfigError(
                f"{name}={configuration[name]!r} contradicts the survey, whose answers have "
                f"{name}={value!r}; drop it"
            )
    return {**configuration, **reported}


def _protocol_parameters(protocol: CollectionProtocol) -> dict[str, Any]:
    """Return the constructor keywords that a survey decides."""
    mechanism, common = protocol.features, _protocol_label_parameters(protocol)
    if mechanism is None:
        return {**common, "eps_x": math.inf}  # public ones
    if mechanism.bounds.from_data:
        raise ConfigError(
            "the survey's bounds were taken from data and depend on them; ask with public bounds"
        )
    choices: dict[str, Any] = {"features": "1bm", "m": "best", "theta": None}
    choices |= {"k": "auto", "rounding": "stochastic", "decode": "unbiased"}
    if isinstance(mechanism, FeatureRR):
        allocation = mechanism.allocation
        theta = allocation.theta if isinstance(allocation, WeightedAllocation) else None
        choices |= {"features": "feature-rr", "theta": theta}
        choices |= {"k": mechanism.k, "rounding": mechanism.mode, "decode": mechanism.decode}
    elif mechanism.m != "all":
        choices |= {"features": "multi-bit", "m": mechanism.m}
    return {
        **common,
        "eps_x": mechanism.epsilon,
        "low": mechanism.bounds.low,
        "high": mechanism.bounds.high,
        **choices,
        "scaling": "none",
    }


def _protocol_label_parameters(protocol: CollectionProtocol) -> dict[str, Any]:
    """Return the constructor keywords that a survey decides, whatever it asks about features."""
    if protocol.label is None:
        raise ConfigError("the survey collects no labels, so there is nothing to learn; ask for them, too")
    return {
        "unit": LocalAttributes.name,
        "eps_y": protocol.label.epsilon,
        "labels": label_mechanism_name(protocol.label),
        "unsafe_noise_seed": None,  # the devices' noise has no seed
    }


def as_graph(
    collector: Collector,
    adjacency: Adjacency,
    *,
    seed: int | None,
    ids: Ids | None = None,
    public: FeatureEstimates | None = None,
) -> tuple[Graph, RandomizedRecords]:
    """Return what the server has as a graph with a split, and as randomized records.

    The graph's features are the estimates' deviations, or public ones where the survey asked for none, and
    its labels the randomized ones. Nodes that have not answered are in no part of the split.

    Raises:
        GraphError: the edges are of other nodes, or fewer than two nodes have answered.
    """
    protocol, answered = collector.protocol, collector.answered
    assert protocol.label is not None
    if adjacency.num_nodes != collector.nodes:
        raise GraphError(
            f"the edges are of {adjacency.num_nodes} nodes and the LDP reports of {collector.nodes}; number "
            "nodes alike in both"
        )
    if answered.sum() < 2:
        raise GraphError("fewer than two nodes have answered: one to learn from, one to choose by; wait")
    labels = protocol.label.missing_reports(collector.nodes)
    labels[answered] = collector.labels()
    estimates, reported = estimates_of(collector) if public is None else public, torch.from_numpy(labels)
    graph = Graph(
        x=estimates.deviations,
        y=reported.reshape(collector.nodes, -1)[:, 0],  # of several classes one, to show who has answered
        adjacency=adjacency,
        num_classes=protocol.label.classes,
        class_names=protocol.class_names,
        ids=ids,
        name="collected",
    )
    graph = random_split(graph, train=_TRAIN, val=1 - _TRAIN, seed=seed)
    return graph, RandomizedRecords(estimates, reported, release_id="", reproducible=False)


def estimates_of(collector: Collector) -> FeatureEstimates:
    """Return the estimated features of all nodes; of one that has not answered, the middle of the range."""
    mechanism, reports, answered = collector.protocol.features, collector.reports(), collector.answered
    assert mechanism is not None and reports is not None
    if reports.indices is None:
        rows = mechanism.bounds.real(np.full((collector.nodes, mechanism.dim), 0.5, dtype=np.float32))
        rows[answered] = mechanism.estimate(reports)
        return FeatureEstimates(torch.from_numpy(rows))
    sparse_reports = sparse_estimates(mechanism, reports)
    assert isinstance(sparse_reports.deviations, sparse.csr_array)
    starts = np.concatenate([[0], np.cumsum(answered * reports.indices.shape[1])])
    entries: Any = (sparse_reports.deviations.data, sparse_reports.deviations.indices, starts)
    return FeatureEstimates(
        sparse.csr_array(entries, shape=(collector.nodes, mechanism.dim)), sparse_reports.middle
    )

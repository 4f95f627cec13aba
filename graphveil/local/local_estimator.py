"""Local privacy for estimators: one collection per fit, and further models on the same reports."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse

from graphveil._util.threads import one_thread
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.features import as_features
from graphveil.core.unit import LocalAttributes
from graphveil.core.view import owner_total
from graphveil.data import Graph
from graphveil.data.recipes import random_split
from graphveil.errors import ConfigError, GraphError
from graphveil.estimators.base import Estimator
from graphveil.estimators.fitted import FittedAttribute
from graphveil.estimators.requirements import REPORTS_ONLY, Rejections
from graphveil.estimators.session import OnProgress, no_progress
from graphveil.local.collect import CollectionProtocol, Collector
from graphveil.local.local_method import LocalMethod
from graphveil.local.reports import (
    FeatureKeywords,
    LabelKeywords,
    RandomizedRecords,
    ReportConfig,
    check_budgets,
    known,
    label_report_nodes,
    outside,
    reported_nodes,
    scaled,
    sparse_estimates,
)
from graphveil.mechanisms import FeatureRR, LabelMechanism, MultiBit, WeightedAllocation
from graphveil.nn.lpgnn import FeatureEstimates
from graphveil.training.metrics import Evaluation

Ids: TypeAlias = npt.NDArray[Any]
_TRAIN = 2 / 3  # share of the reporting nodes


@dataclass(kw_only=True, eq=False, repr=False)
class LocalEstimator(LabelKeywords, Estimator):
    """Base of estimators that train on locally randomized node records and public edges.

    Each fit is one collection. It is charged to the privacy ledger first, and an interrupted fit is resumed
    without another collection. Further models can be fitted to its reports. When a graph grows, only its new
    nodes report. ``clipped_`` counts values outside the public range, and is private. ``agreement_`` is how
    often the network alone predicts the reported labels of training and validation nodes.
    """

    scales_features: ClassVar[bool] = False
    rejections: ClassVar[Rejections] = REPORTS_ONLY

    clipped_ = FittedAttribute[int | None](lambda fit: owner_total(fit.learned.get("clipped")))
    agreement_ = FittedAttribute[dict[str, float]](lambda fit: dict(fit.learned.get("agreement", {})), dict)

    # -- configuration -------------------------------------------------------------------------------------

    @classmethod
    def is_local(cls, unit: str | None) -> bool:
        return True

    @classmethod
    def reads_labels_only(cls, configuration: Mapping[str, Any]) -> bool:
        return not issubclass(cls, FeatureKeywords)

    @abstractmethod
    def no_graph_baseline(self) -> Estimator:
        """Return the unfitted no-graph baseline for the same reports."""

    def report_config(self) -> ReportConfig:
        """Return how a node randomizes its record by these keywords, whose budgets are checked here."""
        labels_only = self.reads_labels_only(self.get_params())
        features = None if labels_only else FeatureKeywords(**self._named(FeatureKeywords))
        label = LabelKeywords(**self._named(LabelKeywords))
        check_budgets(self.privacy_config, self.method, label, features)
        return ReportConfig.from_privacy_config(self.privacy_config, features=features, label=label)

    @property
    def _local_method(self) -> LocalMethod:
        if not isinstance(self.config, LocalMethod):  # of a method that has other units, too
            raise ConfigError(f"Unit {self.unit!r} collects no LDP reports. Pass unit='local-attributes'.")
        return self.config

    def label_mechanism(self, classes: int) -> LabelMechanism:
        return self._local_method.label_mechanism(classes)

    @classmethod
    def from_protocol(cls, protocol: CollectionProtocol, **configuration: Any) -> Self:
        """Return an estimator for the LDP reports of a collection protocol; see ``fit_from_collector``.

        Args:
            protocol: Public parameters of the collection: mechanisms and their budgets.
            configuration: Further constructor keywords.

        Raises:
            ConfigError: A keyword contradicts the protocol, or the method cannot learn from the protocol: it
                collects no labels, features that the method does not read, or bounds taken from data.

        Privacy:
            Reads: public parameters only. Charges: nothing.

        >>> from graphveil.mechanisms import LabelRR, MultiBit
        >>> from graphveil.local.lpgnn import LPGNN
        >>> protocol = CollectionProtocol(features=MultiBit(epsilon=1.0, dim=8), label=LabelRR(epsilon=2.0,
        ...     classes=3))
        >>> model = LPGNN.from_protocol(protocol, x_steps=16)
        >>> model.eps_x, model.eps_y, model.report_config().mechanism(8) == protocol.features
        (1.0, 2.0, True)
        """
        label_only = cls.reads_labels_only(configuration)
        return cls(**complete_from_protocol(protocol, configuration, label_only=label_only))

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
        """Fit to the LDP reports of clients and to public edges, and predict all nodes.

        A node without a report gets the middle of every feature's range and no label. Two thirds of the
        reporting nodes are used for training, and the others select the epoch; ``seed`` determines the split.
        No accuracy is available, because no exact label is known.

        Args:
            collector: LDP reports, of the protocol that the estimator was built from.
            adjacency: Public edges between the nodes, numbered as in the collector.
            public_features: Public features (N, d) of all nodes, for a protocol that collects only the label.
                Their guarantee is eps_x = inf, which is no protection.

        Raises:
            ConfigError: The estimator does not match the protocol of the collector, or ``unsafe_noise_seed``
                is given. Public features are missing, not expected, or outside ``low`` and ``high``.
            GraphError: The sizes differ, or fewer than two nodes have reported.

        Privacy:
            Unit: ``local-attributes``. Reads: LDP reports and public edges. Charges: nothing, because each
            report was charged on its client. The guarantee is that of the protocol.
        """
        keywords, seed = self.get_params(), self.seed
        complete_from_protocol(collector.protocol, keywords, label_only=self.reads_labels_only(keywords))
        public = self._public_features(collector, public_features)
        graph, received = as_graph(collector, adjacency, seed=seed, ids=ids, public=public)
        return self.fit_from_reports(graph, received, on_progress)

    def _public_features(self, collector: Collector, given: object) -> FeatureEstimates | None:
        config = self._local_method.report_config
        reads = config.features is not None
        check_public_features(collector.protocol, given=given is not None, reads=reads)
        if not reads:
            return FeatureEstimates(torch.zeros(collector.nodes, 1))
        if given is None:
            return None
        x, bounds = scaled(as_features(given), config.scaling), config.bounds
        if count := int(outside(bounds, x).sum()):
            raise ConfigError(
                f"{count:,} values of the public features are outside low={bounds.low!r} and "
                f"high={bounds.high!r} and would be clipped. Set their range (--set low=.. --set "
                "high=..), or use scaling='row'."
            )
        return FeatureEstimates(x)

    @one_thread()
    def fit_same_reports(
        self, fitted: Estimator, graph: Graph, *, on_progress: OnProgress = no_progress
    ) -> Self:
        """Fit to the reports of another model on the same graph, without spending privacy budget.

        Nothing is randomized or charged (post-processing). The guarantee is that of the other model, and
        covers both models together.

        Args:
            fitted: Model that was fitted in this process; reports are not saved with a model.
            graph: The graph that it was fitted to, with the same split.

        Raises:
            ConfigError: The two models randomize records differently, or the other model has no reports.
            GraphError: The nodes, or the nodes with a reported label, differ from those of the reports.

        Privacy:
            Unit: ``local-attributes``. Reads: stored reports and public edges. Charges: nothing.
        """
        reports = None if fitted._fit is None else fitted._fit.trained.reports
        if reports is None:
            raise ConfigError(
                "The other model has no LDP reports, because it is not fitted or was loaded from a file. "
                "Fit it in this process first."
            )
        names = ["unit"]
        if issubclass(type(self), FeatureKeywords):
            names += ["delta", *(part.name for part in fields(FeatureKeywords))]
        for name in (*names, *(part.name for part in fields(LabelKeywords))):
            own, other = getattr(self, name), fitted.fitted.parameters.get(name)
            if own != other:
                raise ConfigError(
                    f"{name}={own!r} differs from {name}={other!r}, with which the reports were made. Use "
                    "that value, or call fit(graph), which is a new collection with its own budget."
                )
        view = self._local_method.view(graph)
        expected = label_report_nodes(view)
        if not self._local_method.protects_labels:
            expected &= view.labeled
        if not torch.equal(known(reports.labels), expected):
            raise GraphError(
                "The LDP reports belong to other nodes or another split. Pass the graph that the other "
                "model was fitted to."
            )
        return self.fit_from_reports(graph, replace(reports, guarantee=fitted.guarantee), on_progress)

    def fit_from_reports(
        self, graph: Graph, received: RandomizedRecords, on_progress: OnProgress = no_progress
    ) -> Self:
        """Fit to reports that are already charged."""
        method = replace(self._local_method, received=received)
        prepared = method.prepare(graph, self._scaling(method, graph))
        return self._fit_in(self._session(on_progress), graph, prepared)

    # -- afterwards ----------------------------------------------------------------------------------------

    def score(self, graph: Graph, split: str = "test", metric: str | None = None) -> float:
        """Return a metric on test nodes, or the agreement with reported labels on the other splits.

        Under ``local-attributes`` the labels of training and validation nodes are protected. There,
        predictions are compared with the randomized labels of the fitted graph. The best expected agreement
        is the probability that a label is kept.
        """
        exact = split == "test" or metric not in (None, "accuracy")
        if exact or self.fitted.guarantee.unit != LocalAttributes.name:
            return super().score(graph, split, metric)
        reported = self.aggregates_["labels"]
        if len(reported) != graph.num_nodes:
            raise GraphError(
                "Training and validation nodes have LDP reports only in the fitted graph. Pass that graph."
            )
        nodes = reported_nodes(graph, reported, split)
        own = self.predict()[nodes, None] == reported.reshape(len(reported), -1)[nodes]  # or one of several
        return float(own.any(dim=1).float().mean())

    def evaluate(
        self,
        graph: Graph,
        split: str = "test",
        *,
        threshold: float | None = None,
        positive: str | None = None,
    ) -> Evaluation:
        """Return metrics on test nodes; other labels are protected under ``local-attributes``."""
        if self.fitted.guarantee.unit == LocalAttributes.name and split != "test":
            raise ConfigError(
                "Metrics need exact labels, but unit 'local-attributes' protects those of "
                f"split={split!r}. Pass split='test'."
            )
        return super().evaluate(graph, split, threshold=threshold, positive=positive)


# -- parameters of a protocol, and reports of clients ----


def check_public_features(protocol: CollectionProtocol, *, given: bool, reads: bool) -> None:
    """Reject public features that a method does not use, and a lack of those that it needs."""
    if given and not reads:
        raise ConfigError("This method does not read features. Remove public_features= (--nodes).")
    if given and protocol.features is not None:
        raise ConfigError(
            "The protocol collects features, and their reports are used. Remove public_features= (--nodes)."
        )
    if reads and not given and protocol.features is None:
        raise ConfigError(
            "The protocol collects only labels, and the method also needs features. Pass public features of "
            "all nodes with public_features= (--nodes), or collect features as well."
        )


def complete_from_protocol(
    protocol: CollectionProtocol, configuration: Mapping[str, Any], *, label_only: bool = False
) -> dict[str, Any]:
    """Return a configuration completed with the parameters of a collection protocol.

    >>> from graphveil.mechanisms import LabelRR, MultiBit
    >>> protocol = CollectionProtocol(features=MultiBit(epsilon=1.0, dim=8), label=LabelRR(epsilon=2.0,
    ...     classes=3))
    >>> complete_from_protocol(protocol, {"eps_x": 3.0})
    Traceback (most recent call last):
    graphveil.errors.ConfigError: eps_x=3.0 differs from the protocol, which has eps_x=1.0. Remove it.
    """
    if label_only and protocol.features is not None:
        raise ConfigError(
            "The protocol also collects features, which this method does not use. Collect only the "
            "label, or use 'lpgnn' or 'simgat'."
        )
    if protocol.label is None:
        raise ConfigError(
            "The protocol collects no labels, so no classifier can be trained. Use a protocol that "
            "also collects labels."
        )
    reported = {
        "unit": LocalAttributes.name,
        "eps_y": protocol.label.epsilon,
        "labels": protocol.label.name,
        "unsafe_noise_seed": None,  # the clients' noise has no seed
    }
    if not label_only:
        reported |= _feature_parameters(protocol.features)
    for name, value in reported.items():
        if name in configuration and configuration[name] != value:
            raise ConfigError(
                f"{name}={configuration[name]!r} differs from the protocol, which has {name}={value!r}. "
                "Remove it."
            )
    return {**configuration, **reported}


def _feature_parameters(mechanism: MultiBit | FeatureRR | None) -> dict[str, Any]:
    if mechanism is None:
        return {"eps_x": math.inf}  # public features
    if mechanism.bounds.from_data:
        raise ConfigError(
            "The bounds in the protocol were computed from data and depend on private values. Use "
            "public bounds."
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
        "eps_x": mechanism.epsilon,
        "low": mechanism.bounds.low,
        "high": mechanism.bounds.high,
        **choices,
        "scaling": "none",
    }


def as_graph(
    collector: Collector,
    adjacency: Adjacency,
    *,
    seed: int | None,
    ids: Ids | None = None,
    public: FeatureEstimates | None = None,
) -> tuple[Graph, RandomizedRecords]:
    """Return the data of the server as a graph with a split, and as randomized records.

    The features of the graph are the deviations of the estimates, or public features if the protocol collects
    none. Its labels are the randomized labels. Nodes without a report are in no part of the split.
    """
    protocol, answered = collector.protocol, collector.answered
    assert protocol.label is not None
    if adjacency.num_nodes != collector.nodes:
        raise GraphError(
            f"The edges have {adjacency.num_nodes} nodes, but the LDP reports have {collector.nodes}. "
            "Use the same node numbers in both."
        )
    if answered.sum() < 2:
        raise GraphError(
            "Fewer than two nodes have reported. At least one is needed for training and one for "
            "validation. Wait for more reports."
        )
    labels = protocol.label.missing_reports(collector.nodes)
    labels[answered] = collector.labels()
    estimates, reported = estimates_of(collector) if public is None else public, torch.from_numpy(labels)
    graph = Graph(
        x=estimates.deviations,
        y=reported.reshape(collector.nodes, -1)[:, 0],  # the first of several, to mark reporting nodes
        adjacency=adjacency,
        num_classes=protocol.label.classes,
        class_names=protocol.class_names,
        ids=ids,
        name="collected",
    )
    graph = random_split(graph, train=_TRAIN, val=1 - _TRAIN, seed=seed)
    return graph, RandomizedRecords(estimates, reported)


def estimates_of(collector: Collector) -> FeatureEstimates:
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

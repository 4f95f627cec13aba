"""The base class of all estimators: public configuration, ``fit``, predictions and the guarantee.

An estimator holds a frozen configuration (``Estimator.config``, a ``Method``), a fit (``Estimator.fitted``,
a ``FittedModel``), and the predictions of other graphs (``PredictionManager``).
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from torch import Tensor

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil._util.display import shown_progress
from graphveil._util.files import as_path, writing_folder
from graphveil._util.threads import one_thread
from graphveil.core.accounting.gaussian import calibrate_mu
from graphveil.core.backends import AggregationBackend, backend_for, check_backend, using
from graphveil.core.edges.adjacency import EdgeSet
from graphveil.core.owner import exact_labels
from graphveil.core.plan import ReleasePlan
from graphveil.core.unit import parse_unit
from graphveil.data import Graph
from graphveil.data.fingerprint import GraphFingerprint
from graphveil.data.graph import NO_FOLDS
from graphveil.data.tables.encoding import REGRESSION, UNLABELED, Encoding, Task
from graphveil.errors import ConfigError, GraphError
from graphveil.estimators.features.scaling import (
    FeatureScaling,
    FeatureScalingMode,
    aligned,
    learnable,
    numeric_columns,
    ranges_of,
)
from graphveil.estimators.fitted import FittedAttribute, FittedModel, save_fitted
from graphveil.estimators.inference import (
    PredictionManager,
    PredictionOptions,
)
from graphveil.estimators.lifecycle import Model, cost_line
from graphveil.estimators.method import FitResult, Method, PreparedFit, State
from graphveil.estimators.objective import (
    DEFAULT_OBJECTIVE,
    ClassWeight,
    Objective,
    check_objective,
    check_positive,
    training_sample_description,
)
from graphveil.estimators.privacy_config import PrivacyConfig
from graphveil.estimators.public_sizes import PublicSizes, members
from graphveil.estimators.requirements import (
    EXACT_RECORDS,
    MIXED_EDGES,
    RECORDS_WITHOUT_NOISE,
    TABLES_ONLY,
    Rejections,
    as_graph,
    check_config,
    check_encoding,
    column_names,
)
from graphveil.estimators.session import OnProgress, Session, no_progress
from graphveil.privacy import Guarantee
from graphveil.training import EpochRecord
from graphveil.training.heads import MULTICLASS, MultilabelHead, RegressionHead, TaskHead
from graphveil.training.metrics import (
    METRICS,
    NUMBER_METRICS,
    Evaluation,
    Metric,
    PrivateMetrics,
    check_evaluation,
    class_places,
    evaluate,
    evaluate_numbers,
    rarer_class,
)

_log = logging.getLogger("graphveil")  # only public values are logged: sizes, units, budgets
_checked = partial(checked, skip=("graph", "workspace", "cache", "folder", "per_node"))  # checked inside


@dataclass(kw_only=True, eq=False, repr=False)
class Estimator(Model):
    """Base class of all models. Constructor keywords are public configuration; data are call arguments.

    Keywords are checked and frozen into ``config`` when they are set. A fit is stored in ``fitted``. Keywords
    that are set after a fit apply to the next fit only. They do not affect predictions, privacy costs or
    saved files of the current one.

    Args:
        unit: Privacy unit, such as ``"undirected-edge"`` or ``"node-record"``. Required; there is no default.
        epsilon: Privacy budget. Not needed for unit ``none`` or a model that does not read the edges.
        delta: A number, or ``"auto"``.
        seed: Seed of public randomness (splits, initial parameters, batches). None draws a new seed.
        unsafe_noise_seed: Also fixes the noise, for tests. The guarantee is then invalid.
        max_units: Public bound on the number of protected units, for ``delta="auto"``.
        out_degree_bound: D of unit ``node-record``. A node with at most D out-edges sends at full weight. A
            node with more divides the weight of D among them. Any public D keeps the guarantee.
        max_degree: Maximum degree, an assumption asserted by the data owner. For unit
            ``node-bounded-degree``.
        replace_one: Node-level units: use the replace-one instead of the add-or-remove (null-record)
            neighboring relation.
        private_metrics: Node-level units: also release noisy counts of correct predictions, and a noisy
            confusion matrix, so that ``private_accuracy_`` and ``private_metrics_`` are covered. They are
            charged to validation and test nodes, from the part of their budget that training leaves.
        metric: Public labels: metric of validation nodes that selects epochs and models, as in ``evaluate``:
            ``"accuracy"``, ``"balanced_accuracy"``, ``"macro_f1"``, ``"roc_auc"`` or
            ``"average_precision"``. None for the rule of the method: networks select by accuracy, and
            posteriors are tuned by likelihood.
        class_weight: Weights of classes in the loss of networks, as in scikit-learn: ``"balanced"``, or a
            public mapping such as ``{"fraud": 5}``, in which other classes have weight one. Under node-level
            units only a mapping. Gradients are weighted before they are clipped, with weights divided by the
            largest. The clipping norm bounds each of them as before, so the privacy cost is the same.
        positive: For two classes: name of the positive class, of which ``average_precision`` and
            ``threshold`` are. None for the rarer class where labels are public. Under node-level units labels
            are protected, and there is then no average precision.
        backend: Aggregation backend of fits and predictions that name no other: ``"memory"``, ``"disk"``,
            ``"ray"``, or an object of ``graphveil.backends``. By default edges are summed where
            they are stored. The choice does not affect results and is not saved.
        feature_scaling: ``"auto"`` scales columns of large values, by public data or, under node-level units,
            by ``feature_range`` or by ranges from a noisy query. ``"none"`` uses all features as they are.
        feature_range: Public range of feature columns, such as ``"salary=0:200000,born=1900:2020"``, or
            ``"0:255"`` for all. Values are mapped to [-1, 1] and clipped. Without it, a fit under a
            node-level unit learns the ranges of numeric columns by its first query, with 2 % of mu^2.
        task: ``"classification"``, or ``"regression"`` to predict the numbers ``Graph.targets``, for methods
            ``gap``, ``mlp``, ``module`` and ``gnn``.
        target_range: Public range (low, high) of numeric targets. Targets and predictions are clipped to it.
            Required under node-level units. Otherwise targets are public, and their mean and standard
            deviation in training are used instead. With outliers among them, it is the median and a robust
            deviation, and network targets are clipped to ten of these.

    Privacy:
        Unit: ``unit``. Each method documents what it reads, what is charged and which outputs are public.
        ``guarantee`` and ``guarantee_with_predictions`` return the total cost.
    """

    method: ClassVar[str]
    reads_edges: ClassVar[bool] = True
    scales_features: ClassVar[bool] = True  # False if nodes perturb features in their own ranges
    rejections: ClassVar[Rejections] = EXACT_RECORDS | RECORDS_WITHOUT_NOISE | MIXED_EDGES
    needs_out_degree_bound: ClassVar[bool] = False  # for unit node-record
    predicts_numbers: ClassVar[bool] = False  # whether the method supports task="regression"
    as_published: ClassVar[bool] = False  # whether a graph is prepared and split as in a paper
    fits: ClassVar[str] = "graph"  # what it needs: a graph, or tables
    reads_tables: ClassVar[bool] = False  # whether it supports units of several tables
    baseline: ClassVar[str] = "mlp"  # no-graph baseline
    baseline_keywords: ClassVar[tuple[str, ...]] = ()  # that it shares, besides unit and budget

    unit: str | None = None
    epsilon: float | None = None
    delta: float | str = "auto"
    seed: int | None = None
    unsafe_noise_seed: int | None = None
    max_units: int | None = None
    out_degree_bound: int | None = None
    max_degree: int | None = None
    replace_one: bool = False
    private_metrics: bool = False
    metric: Metric | None = None
    class_weight: ClassWeight | None = None
    positive: str | None = None
    backend: AggregationBackend | str | None = None
    feature_scaling: FeatureScalingMode = "auto"
    feature_range: str | None = None
    task: Task = "classification"
    target_range: tuple[float, float] | None = None

    guarantee_ = FittedAttribute[Guarantee | None](lambda fit: fit.guarantee)
    proba_ = FittedAttribute[Tensor | None](lambda fit: fit.proba)
    ids_ = FittedAttribute[npt.NDArray[Any] | None](lambda fit: fit.ids)
    encoding_ = FittedAttribute[Encoding | None](lambda fit: fit.encoding)
    class_names_ = FittedAttribute[tuple[str, ...]](lambda fit: fit.class_names, tuple)
    aggregates_ = FittedAttribute[State](lambda fit: dict(fit.released), dict)
    history_ = FittedAttribute[list[tuple[str, EpochRecord]]](lambda fit: list(fit.history), list)
    seconds_ = FittedAttribute[dict[str, float]](lambda fit: dict(fit.seconds), dict)
    private_accuracy_ = FittedAttribute[dict[str, float]](lambda fit: dict(fit.private_accuracy), dict)
    private_metrics_ = FittedAttribute[PrivateMetrics | None](lambda fit: fit.private_metrics)

    def __post_init__(self) -> None:
        self._predictions: PredictionManager | None = None
        super().__post_init__()
        self._config = self._with_objective(self._config)

    # -- configuration -------------------------------------------------------------------------------------

    def _build_privacy_config(self) -> PrivacyConfig:
        unit = parse_unit(self.unit, replace_one=self.replace_one, max_degree=self.max_degree)
        return replace(super()._build_privacy_config(), unit=unit)

    def _with_objective(self, method: Method) -> Method:
        objective = Objective.from_keywords(self.metric, self.class_weight, self.positive)
        if objective == DEFAULT_OBJECTIVE:
            return method
        if isinstance(method.head, RegressionHead):
            raise ConfigError(
                "metric (--metric), class_weight (--class-weight) and positive (--positive) apply to "
                "classification only. Omit them with task='regression', which selects models by the "
                "squared error."
            )
        if isinstance(method.head, MultilabelHead) and self.positive is not None:
            raise ConfigError(
                f"positive={self.positive!r} (--positive) applies to two classes, but the nodes have "
                "label sets. Omit it."
            )
        one_class = not isinstance(method.head, MultilabelHead)
        check_objective(
            objective,
            self.method,
            self.protected_unit.name,
            on_records=self.privacy_config.on_records,
            selects=method.selects_by_metric and one_class,
            weighs=method.weighs_classes and one_class,
        )
        return replace(method, objective=objective)

    # -- fitting -------------------------------------------------------------------------------------------

    @_checked
    @one_thread()
    def plan(
        self,
        *,
        num_nodes: int,
        num_classes: int,
        num_features: int | None = None,
        num_training: int | None = None,
        num_labeled: int | None = None,
    ) -> ReleasePlan | None:
        """Return the query plan of a fit.

        Args:
            num_nodes: Number of nodes.
            num_classes: Number of classes.
            num_features: Number of features; None assumes 500.
            num_training: Number of training nodes; None assumes three quarters of the nodes.
            num_labeled: Number of nodes with a public label, for edge-level units.

        Returns:
            The plan with its privacy cost, or None if a fit queries nothing.

        Raises:
            CalibrationError: If no plan meets the budget.

        Privacy:
            Unit: ``unit``. Reads: the given public sizes only. Charges: nothing.
        """
        sizes = PublicSizes(
            nodes=num_nodes,
            classes=num_classes,
            features=num_features,
            train_records=num_training,
            labeled=num_labeled,
        )
        columns = self._learned_columns([tuple(range(sizes.width))], sizes.records, num_nodes)
        return self.config.plan(replace(sizes, learned_columns=len(columns)))

    @one_thread()
    def prepare(self, graph: Graph) -> PreparedFit:
        """Check the graph as ``fit`` does, and plan the fit.

        Args:
            graph: Graph to fit.

        Returns:
            The planned fit. Pass it to ``fit`` in place of the graph to execute exactly this plan.

        Raises:
            ConfigError, UnitError, GraphError: As ``fit`` does.

        Privacy:
            Unit: ``unit``. Reads: public sizes and flags of the graph, and features where they are public.
            Charges: nothing.
        """
        graph = as_graph(graph, self.unit, tables=self.reads_tables)
        return self.config.prepare(graph, self._scaling(self.config, graph))

    def scaling_summary(self, graph: Graph) -> str:
        """Describe how a fit scales feature columns.

        Args:
            graph: Graph to fit.

        Returns:
            The scaled columns and their scaling; empty if all values are used as they are.

        Raises:
            GraphError: If ``feature_range`` names a column that the graph lacks.

        Privacy:
            Unit: ``unit``. Reads: features where they are public. Charges: nothing.
        """
        return self._scaling(self.config, graph).words(column_names(graph))

    def no_graph_baseline(self) -> "Estimator | None":
        """Return the unfitted no-graph baseline of a method that defines one; None for a tuned MLP."""
        return None

    def with_reported_features(self, graph: Graph) -> Graph:
        """Return the fitted graph as networks read it; methods that randomize features override this."""
        return graph

    def training_sample_note(self, graph: Graph) -> str:
        """Describe the sample of training nodes of a fit.

        Args:
            graph: Graph to fit.

        Returns:
            A sentence; empty if all training nodes are used.

        Privacy:
            Unit: edge-level or ``none``. Reads: the public split. Charges: nothing.
        """
        return training_sample_description(graph) if self.config.samples else ""

    @_checked
    @one_thread()
    def fit(
        self,
        graph: Graph | PreparedFit,
        *labels: object,
        on_progress: OnProgress = no_progress,
        workspace: Path | str | None = None,
        backend: AggregationBackend | str | None = None,
        cache: Path | str | None = None,
        progress: bool = False,
    ) -> Self:
        """Train on a graph's training nodes, select on its validation nodes, and predict all its nodes.

        Args:
            graph: Graph, or ``PreparedFit`` to execute as it was planned. A ``torch_geometric.data.Data`` is
                accepted here and in prediction methods. Its edges are undirected unless the unit is
                ``directed-edge`` (``Graph.from_pyg``).
            labels: Rejected; the graph holds its labels.
            on_progress: Function of stage, finished and total epochs.
            workspace: Private folder in which an interrupted fit can be resumed. This does not spend
                additional budget, because the noise is never redrawn.
            backend: Backend of this fit, in place of that of the constructor. It does not affect results.
            cache: Folder of tensors that depend on public features and labels only. Fits with the same seed
                share them, also across budgets and methods. It does not affect results.
            progress: Show progress bars on a terminal or in a notebook.

        Returns:
            This estimator, fitted.

        Raises:
            ConfigError: If parameters were set after the fit was prepared, or a folder cannot be written.
            UnitError: If the unit does not fit the graph.
            GraphError: If the graph has no split or a part of it is empty, or labels are passed as a second
                argument, as scikit-learn's cross-validation does.
            BudgetError: If the graph's ledger rejects the release.

        Privacy:
            Unit: ``unit``. Reads: the graph, by the query plan of the method (see ``preview``). Charges: the
            plan, recorded in the graph's privacy ledger before the edges are read. A second ``fit`` is a
            second charge.
        """
        if labels:
            raise GraphError(
                "fit takes one graph, which contains the labels, but additional arguments were given: "
                f"{NO_FOLDS}"
            )
        ready = self._prepared(graph)
        found = ready.graph if ready is not None else as_graph(graph, self.unit, tables=self.reads_tables)
        chosen = backend_for(self.backend if backend is None else backend, found.adjacency)
        with shown_progress(on_progress, progress=progress) as shown:
            return self._fit_in(self._session(shown, workspace, chosen, cache), found, ready)

    def _result(self, ready: PreparedFit, session: Session) -> tuple[FitResult, PreparedFit]:
        self._predictions = None
        if ready.scaling.compresses_only and self._misses_ranges(ready.graph):
            _log.warning(
                "%s: there are too few training nodes or too many feature columns for private ranges. Values "
                "beyond 3 are compressed. If columns have large values, set feature_range='NAME=LOW:HIGH'.",
                self.method,
            )
        ready = ready.with_learned_ranges(session)
        method, graph = ready.method, ready.scaled
        return method.for_graph(graph).fit(method.view(graph), session), ready

    def _keep(self, fitted: FittedModel, ready: PreparedFit) -> None:
        graph = ready.scaled
        self._set_fit(fitted, graph.edge_set, GraphFingerprint.from_graph(graph))
        if fitted.proba is not None:
            self._prediction_manager.keep(graph, fitted.prediction)

    # -- predictions ---------------------------------------------------------------------------------------

    @_checked
    def predict_proba(
        self,
        graph: Graph | None = None,
        *,
        assume_disjoint_edges: bool = False,
        assume_disjoint_nodes: bool = False,
        allow_spend: bool = False,
        workspace: Path | None = None,
    ) -> Tensor:
        """Return probabilities (N, C) of classes or labels.

        With ``task="regression"`` there are none, and ``predict`` returns the numbers.

        Predictions of the fitted graph do not spend privacy budget. The fitted graph is recognized even if it
        was read from its files again. A prediction of another graph is a new release. It is stored for as
        long as the graph's edges are in memory, and predicting the same graph again returns bit-identical
        results without a charge. If a predicted graph has grown (``Graph.grow``), only its new edges are
        charged, and its old nodes keep their predictions. Other features on the same edges are a different
        query.

        Args:
            graph: Graph to predict; by default the fitted one.
            assume_disjoint_edges: Your assumption that the graph shares no edge with the fitted one, nor with
                any other graph that this model has predicted. The release is then charged to its own edges
                only (parallel composition). Otherwise it is added to all previous ones.
            assume_disjoint_nodes: The same for people, under unit ``local-attributes``: your assumption that
                no person in the graph is in the fitted one, nor in any other that this model has predicted.
            allow_spend: Query and charge a graph that may be the fitted one. A model that was loaded without
                its run's ``internal`` folder cannot recognize the fitted graph.
            workspace: Private folder for this query only, for methods that query edges. If the process is
                interrupted, call this again with the same folder to finish the same release with the same
                noise. This needs a durable ledger.

        Returns:
            Probabilities, float32.

        Raises:
            UnitError: If the unit does not fit the graph, or ``assume_disjoint_edges`` is given for a unit
                that protects records.
            ConfigError: If the edges are known to be those of the fitted graph, or may be and neither
                ``allow_spend`` nor an assumption is given.
            GraphError: If the graph has other features than the fitted one.
            BudgetError: If a ledger rejects the release, which is then not recorded. Of a graph that has
                grown in several steps, earlier steps may have been recorded and are kept.
            NotImplementedGuaranteeError: If the method does not predict other graphs.

        Privacy:
            Unit: inherited from the model. Reads: nothing new for the fitted graph; the other graph's edges
            or records otherwise. Charges: the guarantee of ``privacy_cost(graph)``. Under node-level units
            the prediction of node v is only for people who are authorized to access v's record.
        """
        if isinstance(self.fitted.method.head, RegressionHead):
            raise ConfigError(
                "task='regression' predicts one number per node, so there are no probabilities. Use "
                "predict()."
            )
        options = PredictionOptions(assume_disjoint_edges, assume_disjoint_nodes, allow_spend, workspace)
        return self.outputs(graph, options)

    @one_thread()
    def outputs(self, graph: Graph | None, options: PredictionOptions | None = None) -> Tensor:
        """Return the stored output of each node: probabilities (N, C), or numbers (N, 1) of a regression.

        Args:
            graph: Graph to predict; None for the fitted one.
            options: Assumptions and confirmations, as the arguments of ``predict_proba``.

        Returns:
            Outputs, float32.

        Raises:
            UnitError, ConfigError, GraphError, BudgetError, NotImplementedGuaranteeError: As
                ``predict_proba`` does.

        Privacy:
            Unit, reads and charges: as ``predict_proba``.
        """
        if graph is None:
            return self.fitted.own_proba
        graph = self._as_graph(graph)
        with using(self.backend):
            return self._prediction_manager.of(graph, options or PredictionOptions())

    @_checked
    @one_thread()
    def privacy_cost(
        self, graph: Graph, *, assume_disjoint_edges: bool = False, assume_disjoint_nodes: bool = False
    ) -> Guarantee | None:
        """Return the guarantee of predicting another graph.

        Args:
            graph: Graph to predict.
            assume_disjoint_edges: As for ``predict_proba``.
            assume_disjoint_nodes: As for ``predict_proba``.

        Returns:
            The guarantee of that graph's release alone, which is invalid if that of the model is. None if the
            prediction does not spend privacy budget, as of a graph that was predicted before. See
            ``guarantee_after`` for the total.

        Raises:
            UnitError, ConfigError, GraphError, NotImplementedGuaranteeError: As ``predict_proba`` does.

        Privacy:
            Whether the result is None is an exact answer about the private edges: it compares them with those
            of the fitted graph and of graphs that were predicted before. Nothing is charged for it. Only
            people who are authorized to access these edges may see it. Never return it through a server.
        """
        graph = self._as_graph(graph)
        return self._prediction_manager.privacy_cost(
            graph, PredictionOptions(assume_disjoint_edges, assume_disjoint_nodes)
        )

    def is_fitted_graph(self, graph: Graph) -> bool:
        """Return whether a graph is the fitted one, or was predicted before.

        Args:
            graph: Graph to recognize, also if it was read from its files again.

        Returns:
            Whether predicting the graph is not charged. False for the fitted graph of a model that was loaded
            from a release alone.

        Raises:
            ConfigError: If the model is not fitted.

        Privacy:
            The result is an exact equality test on private edges, and nothing is charged for it. Repeated
            calls with guessed graphs reveal single edges. Only people who are authorized to access the
            fitted edges may see it. Never return it through a server.

        >>> import graphveil as gv
        >>> graph = gv.load_dataset("synthetic/tiny")
        >>> model = gv.MLP(unit="none", seed=0, epochs=2, tuned=False).fit(graph)
        >>> model.is_fitted_graph(graph), model.is_fitted_graph(graph.subgraph(graph.y == 0))
        (True, False)
        """
        return self._prediction_manager.is_fitted_graph(self._as_graph(graph))

    @_checked
    def guarantee_after(
        self, graph: Graph, *, assume_disjoint_edges: bool = False, assume_disjoint_nodes: bool = False
    ) -> Guarantee:
        """Return the value of ``guarantee_with_predictions`` after predicting this graph.

        Args:
            graph: Graph to predict.
            assume_disjoint_edges: As for ``predict_proba``.
            assume_disjoint_nodes: As for ``predict_proba``.

        Returns:
            The guarantee of the fit and all predictions, this one included.

        Raises:
            UnitError, ConfigError, GraphError, NotImplementedGuaranteeError: As ``predict_proba`` does.

        Privacy:
            Charges: nothing. The result is as private as that of ``privacy_cost``.
        """
        graph = self._as_graph(graph)
        return self._prediction_manager.guarantee_after(
            graph, PredictionOptions(assume_disjoint_edges, assume_disjoint_nodes)
        )

    @_checked
    @one_thread()
    def predict(
        self,
        graph: Graph | None = None,
        *,
        assume_disjoint_edges: bool = False,
        assume_disjoint_nodes: bool = False,
        allow_spend: bool = False,
    ) -> Tensor:
        """Return class numbers, shape (N), label sets, bool (N, L), or numbers, float32 (N), of a regression.

        Args:
            graph: Graph to predict; by default the fitted one.
            assume_disjoint_edges: As for ``predict_proba``.
            assume_disjoint_nodes: As for ``predict_proba``.
            allow_spend: As for ``predict_proba``.

        Returns:
            The class of the highest probability, the labels with probability above one half, or the predicted
            number in the unit of the target.

        Raises:
            UnitError, ConfigError, GraphError, BudgetError, NotImplementedGuaranteeError: As
                ``predict_proba`` does.

        Privacy:
            Unit, reads and charges: as ``predict_proba``.
        """
        options = PredictionOptions(assume_disjoint_edges, assume_disjoint_nodes, allow_spend)
        return self.fitted.method.head.predicted(self.outputs(graph, options))

    def _as_graph(self, graph: Graph) -> Graph:
        """Return another graph or ``Data`` as a graph whose features may be read under the unit."""
        method = self.fitted.method
        unit = method.privacy_config.unit
        found = as_graph(graph, unit.name, tables=self.reads_tables)
        check_encoding(found, unit, protects_features=method.protects_features)
        return self.fitted.scaling.graph(aligned(found, self.fitted.encoding))

    @_checked
    @one_thread()
    def score(self, graph: Graph, split: str = "test", metric: str | None = None) -> float:
        """Return a metric on one part of a graph's split.

        By default it is the accuracy, the micro F1 of label sets, or R² of a regression.

        Args:
            graph: Graph to predict.
            split: ``"train"``, ``"val"`` or ``"test"``.
            metric: ``"accuracy"``, ``"balanced_accuracy"``, ``"macro_f1"``, ``"roc_auc"`` or
                ``"average_precision"``, as in ``evaluate``; of a regression ``"r2"``, ``"mae"`` or
                ``"rmse"``.

        Returns:
            The exact value; NaN if it is not defined, such as ``"roc_auc"`` without a node of each class.

        Raises:
            UnitError, ConfigError, GraphError, BudgetError, NotImplementedGuaranteeError: As
                ``predict_proba`` does.

        Privacy:
            Unit: inherited from the model. Reads: labels, and the graph as ``predict_proba`` does. Charges:
            the prediction only. Under units that protect labels the result is private: do not publish. Use
            ``private_metrics`` instead.
        """
        metrics = NUMBER_METRICS if isinstance(self.fitted.method.head, RegressionHead) else METRICS
        metric = metrics[0] if metric is None else metric
        checks.one_of(metrics, metric=metric)
        if metric != "accuracy":
            return self.evaluate(graph, split)[metric]
        graph = as_graph(graph, self.fitted.method.privacy_config.unit.name, tables=self.reads_tables)
        mask, head = graph.labeled_in(split), self.fitted.method.head
        return head.score(self.predict(graph)[mask], head.labels(graph)[mask])

    @_checked
    @one_thread()
    def evaluate(
        self,
        graph: Graph,
        split: str = "test",
        *,
        threshold: float | None = None,
        positive: str | None = None,
    ) -> Evaluation:
        """Return metrics for imbalanced classes, metrics of each class, and the confusion matrix.

        Of a regression: R², mean absolute error and root mean squared error.

        Args:
            graph: Graph to predict.
            split: ``"train"``, ``"val"`` or ``"test"``. Nodes without a label are left out.
            threshold: For two classes: probability from which a node is predicted as the positive class. By
                default the most probable class is predicted.
            positive: For two classes: name of the positive class. By default that of the constructor, or the
                rarer class where labels are public.

        Returns:
            The exact metrics.

        Raises:
            UnitError, ConfigError, GraphError, BudgetError, NotImplementedGuaranteeError: As
                ``predict_proba`` does; or if the model predicts label sets, no node has a label, or the
                positive class is unknown.

        Privacy:
            Unit: inherited from the model. Reads and charges: as ``score``. Under units that protect labels
            the result is private: do not publish.

        >>> import graphveil as gv
        >>> graph = gv.load_dataset("synthetic/tiny")
        >>> model = gv.MLP(unit="none", seed=0).fit(graph)
        >>> found = model.evaluate(graph)
        >>> abs(found["accuracy"] - model.score(graph)) < 1e-6  # score rounds to single precision
        True
        >>> found.confusion_matrix.shape, len(found.classes)
        ((3, 3), 3)
        """
        graph = as_graph(graph, self.fitted.method.privacy_config.unit.name, tables=self.reads_tables)
        if isinstance(self.fitted.method.head, MultilabelHead):
            raise ConfigError(
                "evaluate needs one class per node, but the nodes have label sets. Use score(), which "
                "returns the micro F1 score."
            )
        kept, labels = graph.labeled_in(split), exact_labels(graph)
        check_evaluation(int(kept.sum()), self.fitted.sizes.classes, threshold)  # before a charge
        place = self._positive_place(labels, kept, threshold, positive)
        if isinstance(self.fitted.method.head, RegressionHead):
            return evaluate_numbers(self.fitted.method.head.targets(graph)[kept], self.predict(graph)[kept])
        proba = self.predict_proba(graph)
        return evaluate(
            labels[kept], proba[kept], names=self.class_names_, threshold=threshold, positive=place
        )

    def _positive_place(
        self, labels: Tensor, kept: Tensor, threshold: float | None, positive: str | None
    ) -> int | None:
        """Return the number of the positive class; None if nothing public tells it, or of many classes."""
        classes, config = self.fitted.sizes.classes, self.fitted.method.privacy_config
        name = self.positive if positive is None else positive
        places = class_places(self.class_names_, classes)
        if name is not None:
            check_positive(name, places, classes)
            return places[name]
        if classes != 2:
            return None
        # Under ``local-attributes`` the labels of evaluated nodes are the only ones that are known.
        public = labels != UNLABELED
        counted = {"edge": public, "none": public, "local": kept, "node": None}[config.unit.level]
        if counted is not None:
            return rarer_class(labels[counted])
        if threshold is not None:
            raise ConfigError(
                f"threshold={threshold:g} needs the positive class, because unit {config.unit.name!r} "
                f"protects the labels that show which class is rarer. Pass positive={list(places)[-1]!r}."
            )
        return None

    @property
    def guarantee_with_predictions(self) -> Guarantee:
        """Guarantee of the fit and all predictions of other graphs together.

        Releases that may depend on the same edge compose sequentially. Graphs that were assumed to share no
        edge, and the growth steps of a graph, compose in parallel: the largest one counts.
        """
        return self._prediction_manager.guarantee

    @property
    def fitted_edges(self) -> EdgeSet:
        """Edge set that the model was fitted on. Its ledger is charged for predictions of overlapping graphs.

        A model that was loaded from a folder does not have these edges. Attach the ledger of the training
        data before the first prediction of another graph.
        """
        return self._prediction_manager.edges

    def restore_prediction(self, edges: EdgeSet, privacy_cost: Guarantee, *, disjoint: bool = False) -> None:
        """Restore a prediction of another graph that an earlier process made and recorded.

        ``guarantee_with_predictions`` includes it from then on. Later predictions are also charged to its
        edges, unless they are assumed to be disjoint. Call this in the order in which the graphs were
        predicted.

        Args:
            edges: Edge set of the other graph, with its ledger attached.
            privacy_cost: Guarantee of the prediction alone.
            disjoint: Whether ``assume_disjoint_edges`` or ``assume_disjoint_nodes`` was given for it.

        Raises:
            ConfigError: If the model is not fitted.

        Privacy:
            Unit: inherited from the model. Reads and charges: nothing.
        """
        self._prediction_manager.restore_prediction(edges, privacy_cost, disjoint=disjoint)

    @_checked
    def save(self, folder: str | Path, *, per_node: str | Path | None = None) -> None:
        """Write the public part of a run to a folder, atomically; read it with ``graphveil.load_model``.

        Args:
            folder: New or empty folder.
            per_node: Second folder for predictions that node-level units withhold from the first.

        Raises:
            ConfigError: If a folder is not empty, or cannot be written.

        Privacy:
            Charges: nothing. ``folder`` is safe to publish. Under node-level units, row v in ``per_node`` is
            only for people who are authorized to access v's record.
        """
        path = as_path(folder, "folder")
        rows = path if per_node is None else as_path(per_node, "per_node")
        with writing_folder(path), writing_folder(rows):
            save_fitted(self.fitted, path, per_node=None if per_node is None else rows)

    @property
    def _prediction_manager(self) -> PredictionManager:
        if self._predictions is None:
            raise ConfigError("The model is not fitted. Call fit(graph) first.")
        return self._predictions

    def _set_fit(
        self, fitted: FittedModel, edges: EdgeSet | None = None, own: GraphFingerprint | None = None
    ) -> Self:
        """Replace the fit. Without an edge set, the edges are unknown in this process."""
        self._fit, known = fitted, EdgeSet() if edges is None else edges
        self._predictions = PredictionManager(fitted, known, own)
        return self

    @property
    def named_classes(self) -> tuple[str, ...]:
        """The label of each class, or its number if labels have no names; empty for a regression."""
        if isinstance(self.fitted.method.head, RegressionHead):
            return ()
        return self.class_names_ or tuple(str(number) for number in range(self.fitted.sizes.classes))

    @property
    def graph_fingerprint(self) -> GraphFingerprint | None:
        """Fingerprint that identifies the fitted graph. Internal: keep it in a run's ``internal`` folder."""
        return self._prediction_manager.own

    # -- display -------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        if self._fit is None:
            return f"{self!r}\nnot fitted yet; fit(graph) trains it\nno guarantee before a fit"
        sizes, summary = self._fit.sizes, cost_line(self.guarantee_with_predictions)
        predicted = "a number" if self.task == REGRESSION else f"{sizes.classes} classes"
        return f"{self!r}\nfitted on {sizes.nodes:,} nodes, {predicted}\n{summary}"

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """The labels in class order, as names or numbers; empty before a fit and for a regression."""
        if self._fit is None or self.task == REGRESSION:
            return np.array([])
        names = self._fit.class_names
        return np.array(names) if names else np.arange(self._fit.sizes.classes)

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags

        inputs, regresses = InputTags(two_d_array=False), self.task == REGRESSION
        return Tags(
            estimator_type="regressor" if regresses else "classifier",
            target_tags=TargetTags(required=False),
            classifier_tags=None if regresses else ClassifierTags(),
            regressor_tags=RegressorTags() if regresses else None,
            input_tags=inputs,
            non_deterministic=True,
        )

    # -- what a method defines -----------------------------------------------------------------------------

    @property
    def _rejections(self) -> Rejections:
        return self.rejections if self.reads_tables else TABLES_ONLY | self.rejections

    def _check_config(self) -> None:
        super()._check_config()
        check_config(self, self.protected_unit)
        check_backend(self.backend)

    def _scaling(self, method: Method, graph: Graph) -> FeatureScaling:
        """Return how a fit scales feature columns.

        Privacy:
            Reads features only where they are public. Under units that protect node records the scaling
            follows from ``feature_range`` and constants, and names the columns whose ranges the fit queries.
            Locally perturbed features are left as they are.
        """
        level = self.protected_unit.level
        if not self.scales_features or self.feature_scaling == "none" or level == "local":
            return FeatureScaling()
        view = method.view(graph)
        ranges = ranges_of(self.feature_range, column_names(view), view.num_features)
        if level != "node":
            return FeatureScaling.from_public_features(view.x, ranges)
        scaling = FeatureScaling.from_public_ranges(ranges, dense=view.has_dense_features)
        records = len(members(graph, "train")) if graph.has_split else 0
        return replace(
            scaling, learned=self._learned_columns(numeric_columns(graph), records, graph.num_nodes)
        )

    def _learned_columns(
        self, choices: Sequence[tuple[int, ...]], records: int, nodes: int
    ) -> tuple[int, ...]:
        """Return the feature columns whose ranges a fit learns, by public sizes; empty for none."""
        config = self.privacy_config
        by_default = self.scales_features and self.feature_scaling == "auto" and self.feature_range is None
        if not (by_default and config.on_records):
            return ()
        delta = config.delta_for(nodes)
        if not delta:
            return ()  # the plan rejects Gaussian noise
        return learnable(choices, config.unit, calibrate_mu(config.budget, delta), records)

    def _misses_ranges(self, graph: Graph) -> bool:
        """Return whether columns may need ranges, by public facts: dense features, some of them numbers."""
        return graph.has_dense_features and bool(numeric_columns(graph)[0])

    @property
    def _task_head(self) -> TaskHead:
        return RegressionHead(self.target_range) if self.task == REGRESSION else MULTICLASS

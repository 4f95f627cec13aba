"""The contract of an estimator: public configuration in, a graph to fit, predictions and a guarantee out."""

import dataclasses
import logging
import time
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from graphveil._util import checks
from graphveil._util.files import as_path, check_writable
from graphveil._util.random import PublicStreams
from graphveil._util.threads import one_thread
from graphveil._util.typed import checked_except, fitting, hints_of
from graphveil.artifacts.rows import ReleaseRow
from graphveil.data import Graph
from graphveil.data.graph import NO_FOLDS, check_kind
from graphveil.errors import ConfigError, GraphError
from graphveil.estimators.display import DisplayMixin
from graphveil.estimators.features.scaling import (
    MODES,
    FeatureScaling,
    FeatureScalingMode,
    parse_range,
    ranges_of,
)
from graphveil.estimators.fitted import FittedModel
from graphveil.estimators.inference.graph_fingerprint import GraphFingerprint
from graphveil.estimators.inference.prediction_cache import CachedPrediction
from graphveil.estimators.method import Method
from graphveil.estimators.privacy_config import SEEDED, PrivacyConfig
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.estimators.requirements import (
    as_graph,
    check_encoding,
    check_magnitudes,
    check_parameters,
    column_names,
)
from graphveil.estimators.session import OnProgress, Session, no_progress, pick_device
from graphveil.estimators.training.sample import training_sample_description
from graphveil.privacy import (
    DirectedEdge,
    Guarantee,
    LocalAttributes,
    NodeUnit,
    NoUnit,
    Unit,
    check_delta,
    parse_unit,
)
from graphveil.privacy.guarantee import Mode
from graphveil.release import AggregationBackend, ReleasePlan
from graphveil.release.backends import backend_for, check_backend, using
from graphveil.release.keys import PARAMETERS_IN_KEYS, VALUES_IN_KEYS
from graphveil.release.release import check_weights
from graphveil.training.devices import private_device

_log = logging.getLogger("graphveil")  # what is said there is public: sizes, units, budgets


class FitPreview(NamedTuple):
    """Query plan, guarantee and outputs of a fit, computed without reading protected data."""

    plan: ReleasePlan | None
    guarantee: Guarantee
    rows: tuple[ReleaseRow, ...]


@dataclass(kw_only=True, eq=False, repr=False)
class Estimator(DisplayMixin, ABC):
    """Base of all models. Every constructor keyword is public configuration; data are call arguments.

    A fit takes a frozen copy of the configuration (:class:`~graphveil.estimators.method.Method`) and leaves a
    value (:class:`~graphveil.estimators.fitted.FittedModel`). Parameters that are set later are for the
    next fit: predictions, prices and saved files follow the one that was made.

    Args:
        unit: what is protected; never guessed.
        epsilon: the budget; not needed for unit ``none`` or a model that does not read the edges.
        delta: a number, or ``"auto"``.
        mode: ``"strict"``, or ``"paper"`` to reproduce a paper with its own accounting and flaws.
        seed: fixes public randomness (splits, weights, batches); None draws a fresh one.
        unsafe_noise_seed: also fixes the noise, for tests and paper mode, and voids the guarantee.
        max_units: public bound on the number of protected units, for ``delta="auto"``.
        out_degree_bound: D of unit ``node-record``: a node of at most D own edges sends at full weight, one
            of more shares the weight of D. Any public D is safe.
        max_degree: the largest degree that the data owner asserts, for unit ``node-bounded-degree``.
        replace_one: for node units: hide which of two records a node has, not only whether it has one.
        private_metrics: for node units: also release noisy counts of correct predictions, so that accuracies
            are covered. Validation and test nodes pay for them, with what training leaves of their budget.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``. Gradients of protected records are formed on a GPU under
            ``"cuda"`` alone, never under ``"auto"``.
        backend: where edges are read and summed, in fits and predictions that name no other: ``"memory"``,
            ``"disk"``, ``"ray"``, ``"cuda"``, or one of :mod:`graphveil.backends`; by default where the edges
            are. It changes no bit, so it is no part of what is saved or resumed.
        feature_scaling: ``"auto"`` scales columns of large values, by public data or public constants;
            ``"none"`` uses all features as they are.
        feature_range: Public range of feature columns, such as ``"salary=0:200000,born=1900:2020"``, or
            ``"0:255"`` for all. Values are mapped to [-1, 1] and clipped.
    """

    method: ClassVar[str]
    reads_edges: ClassVar[bool] = True
    scales_features: ClassVar[bool] = True  # False where nodes perturb features in ranges of their own
    local: ClassVar[bool] = False  # whether records are randomized before the method sees them
    node_units: ClassVar[tuple[str, ...]] = ()  # those whose guarantee the method can give
    needs_out_degree_bound: ClassVar[bool] = False  # for unit node-record
    paper_deviations: ClassVar[tuple[str, ...]] = ("a paper's own algorithm and accounting, not proved here",)

    unit: str | None = None
    epsilon: float | None = None
    delta: float | str = "auto"
    mode: Mode = "strict"
    seed: int | None = None
    unsafe_noise_seed: int | None = None
    max_units: int | None = None
    out_degree_bound: int | None = None
    max_degree: int | None = None
    replace_one: bool = False
    private_metrics: bool = False
    device: str = "auto"
    backend: AggregationBackend | str | None = None
    feature_scaling: FeatureScalingMode = "auto"
    feature_range: str | None = None

    def __post_init__(self) -> None:
        """Check the configuration; from now on every assignment of a parameter is checked, too."""
        for name, hint in hints_of(type(self)).items():
            if name in self.get_params():
                fitting(name, getattr(self, name), hint)
        self._check_config()
        object.__setattr__(self, "_checked", True)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; a parameter is checked as the constructor checks it."""
        value = checks.plain(value)
        if "_checked" in self.__dict__ and name in self.get_params():
            self.set_params(**{name: value})
        else:
            object.__setattr__(self, name, value)

    # -- configuration -------------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor keywords."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}

    def recorded_params(self) -> dict[str, Any]:
        """Return the keywords that a result may depend on: what is saved, and what a resumed fit repeats."""
        return {name: value for name, value in self.get_params().items() if name != "backend"}

    def set_params(self, **params: Any) -> Self:
        """Set constructor keywords for the next fit; an unknown one is an error that suggests the nearest."""
        known = self.get_params()
        for name in params:
            if name not in known:
                raise ConfigError(
                    f"{name!r} is not a parameter of {self.method}{checks.suggestion(name, known)}; "
                    f"parameters are {', '.join(known)}"
                )
        type(self)(**{**known, **params})  # refuses what the constructor refuses
        for name, value in params.items():
            object.__setattr__(self, name, checks.plain(value))
        return self

    @property
    def protected_unit(self) -> Unit:
        """The unit of protection."""
        return parse_unit(self.unit, replace_one=self.replace_one, max_degree=self.max_degree)

    # -- fitting -------------------------------------------------------------------------------------------

    def plan(
        self,
        *,
        num_nodes: int,
        num_classes: int,
        num_features: int | None = None,
        num_training: int | None = None,
        num_labeled: int | None = None,
    ) -> ReleasePlan | None:
        """Return what a fit would ask of the protected data and what that costs, or None for nothing.

        Only public sizes go in, of which those that are left out are assumed (:class:`PublicSizes`); nothing
        is spent.
        """
        sizes = PublicSizes(
            nodes=num_nodes,
            classes=num_classes,
            features=num_features,
            train_records=num_training,
            labeled=num_labeled,
        )
        return self._build_method().plan(sizes)

    def preview(self, graph: Graph) -> FitPreview:
        """Check the graph as ``fit`` does, and return the query plan and guarantee; nothing is spent.

        Only public sizes and flags of the graph are read.
        """
        graph = as_graph(graph, directed=self._directed)
        check_encoding(graph, self.protected_unit, protects_records=self._protects_records)
        method = self._build_method()
        scaling = self._scaling(method, graph)
        return _preview(method, scaling.graph(graph))

    def scaling_summary(self, graph: Graph) -> str:
        """Return which feature columns a fit scales, and how; empty if all values are used as they are."""
        return self._scaling(self._build_method(), graph).words(column_names(graph))

    def training_sample_note(self, graph: Graph) -> str:
        """Say which nodes a fit learns from, where there are too many for all of them; else nothing."""
        return training_sample_description(graph) if self._build_method().samples else ""

    @checked_except("graph", "labels", "workspace", "cache")
    def fit(
        self,
        graph: Graph,
        *labels: object,
        on_progress: OnProgress = no_progress,
        workspace: Path | str | None = None,
        backend: AggregationBackend | str | None = None,
        cache: Path | str | None = None,
    ) -> Self:
        """Train on a graph's training nodes, select on its validation nodes, and predict all its nodes.

        A ``Data`` of torch_geometric does for a graph, here and where predictions are asked for: its edges
        are undirected unless the unit is ``directed-edge`` (:meth:`Graph.from_pyg`).

        The release is recorded in the graph's ledger before the edges are read; a second ``fit`` records
        a second one. With a ``workspace`` folder an interrupted fit resumes there, at no further cost.
        ``backend`` is for this fit, instead of the constructor's. It changes no bit. Nor does ``cache``,
        a folder of what follows from public features and labels alone: fits that share it, other budgets and
        other methods at the same seed, learn that once.

        Raises:
            UnitError: the unit does not fit the graph.
            GraphError: the graph has no split or a part of it is empty; or labels come beside it, as from
                scikit-learn's cross-validation.
            BudgetError: the graph's ledger refuses the release.
        """
        if labels:
            raise GraphError(f"fit takes a graph, which holds its labels, and got more beside it: {NO_FOLDS}")
        graph = as_graph(graph, directed=self._directed)
        chosen = backend_for(self.backend if backend is None else backend, graph.adjacency)
        return self._fit_by(self._build_method(), graph, self._session(on_progress, workspace, chosen, cache))

    @one_thread()
    def _fit_by(self, method: Method, graph: Graph, session: Session) -> Self:
        """Fit a graph by a frozen method, and keep what that leaves."""
        started = time.perf_counter()
        check_encoding(graph, self.protected_unit, protects_records=self._protects_records)
        scaling = self._scaling(method, graph)
        graph = scaling.graph(graph)
        with session.stage("calibrate"):
            preview_result = _preview(method, graph)
        for folder in filter(None, (session.workspace, session.cache)):
            check_writable(folder)
        session.plan, session.guarantee = preview_result.plan, preview_result.guarantee
        _log.info(
            "%s: a fit of %d nodes begins, %s", self.method, graph.num_nodes, _release_summary(preview_result)
        )
        self._fit = self._predictions = None  # a fit that fails leaves no older predictions behind
        outcome = method.fit(graph, session)
        guarantee = preview_result.guarantee
        fitted = FittedModel(
            method=method,
            parameters=self.recorded_params(),
            sizes=method.sizes_of(graph),
            guarantee=guarantee.with_deviations_everywhere(SEEDED) if session.reproducible else guarantee,
            trained=outcome.trained,
            plan=preview_result.plan,
            proba=outcome.proba,
            released=outcome.released,
            rows=preview_result.rows,
            sampler=None if preview_result.plan is None else preview_result.plan.sampler.__name__,
            private_accuracy=outcome.private_accuracy,
            learned=outcome.learned,
            class_names=method.head.names(graph),
            ids=graph.ids,
            scaling=scaling,
            encoding=graph.encoding,
            history=session.history,
            seconds={**session.seconds, "total": time.perf_counter() - started},
        )
        self._set_fit(fitted, graph.edge_set, GraphFingerprint.from_graph(graph))
        if fitted.proba is not None:
            self._prediction_manager.keep(graph, self._cached_prediction(fitted))
        _log.info("%s: fitted; %s", self.method, self._summary_rows()[-1])
        return self

    # -- what a method defines -----------------------------------------------------------------------------

    @abstractmethod
    def _build_method(self) -> Method:
        """Return the frozen method of this configuration; the unit and the mode are asked for here, once."""

    def _check_config(self) -> None:
        """Check every public parameter; called on construction and by ``set_params``."""
        unit = self.protected_unit
        check_parameters(self, unit)
        checks.one_of(("strict", "paper"), mode=self.mode)
        self._check_scaling()
        checks.one_of(("auto", "cpu", "cuda"), device=self.device)
        check_backend(self.backend)
        if self.epsilon is not None:
            checks.positive(epsilon=self.epsilon)
        elif self._spends_budget:
            raise ConfigError(
                f"{self.method} with unit {unit.name!r} needs a budget: pass epsilon= (or --epsilon), "
                "for example 1.0, or unit 'none' for the non-private reference"
            )
        if self.delta != "auto":
            check_delta(unit, self.delta, 1)
        for name in ("seed", "unsafe_noise_seed"):
            if getattr(self, name) is not None:
                checks.integer_at_least(0, **{name: getattr(self, name)})
        for name in ("max_units", "out_degree_bound", "max_degree"):
            if getattr(self, name) is not None:
                checks.integer_at_least(1, **{name: getattr(self, name)})

    def _check_scaling(self) -> None:
        """Refuse a feature range without effect: it would be believed to have one."""
        checks.one_of(MODES, feature_scaling=self.feature_scaling)
        if self.feature_range is None:
            return
        if not isinstance(self.feature_range, str):
            raise ConfigError(
                f"feature_range={self.feature_range!r} must be text, such as 'salary=0:200000' or '0:255'."
            )
        parse_range(self.feature_range)
        if not self.scales_features:
            raise ConfigError(
                f"feature_range has no effect on {self.method}, where each node perturbs its own features. "
                "Set low= and high= instead."
            )
        if self.feature_scaling == "none":
            raise ConfigError("feature_range has no effect with feature_scaling='none'. Drop one of the two.")

    def _scaling(self, method: Method, graph: Graph) -> FeatureScaling:
        """Return how a fit scales feature columns.

        Privacy:
            Reads features only where they are public. Under units that protect node records the scaling
            follows from ``feature_range`` and constants. Locally perturbed features are left as they are.
        """
        on_records = isinstance(self.protected_unit, NodeUnit)
        perturbed = method.protects_features and not on_records
        if perturbed or not self.scales_features or self.feature_scaling == "none":
            return FeatureScaling()
        ranges = ranges_of(self.feature_range, column_names(graph), graph.num_features)
        return (FeatureScaling.from_public_ranges if on_records else FeatureScaling.from_public_features)(
            graph.x, ranges
        )

    @property
    def distinguishes_private_edges(self) -> bool:
        """Whether private edges are told from public ones, as unit ``edge-subset`` needs it."""
        return False

    @property
    def _spends_budget(self) -> bool:
        """Whether a fit asks anything under a budget: of secret edges, or of secret records."""
        unit = self.protected_unit
        return isinstance(unit, NodeUnit) or (self.reads_edges and not isinstance(unit, NoUnit))

    @property
    def _directed(self) -> bool:
        """Whether a ``Data`` has directed edges: the unit says, since one edge could flip any test."""
        return self.unit == DirectedEdge.name

    @property
    def _protects_records(self) -> bool:
        """Whether features or labels are protected, under whatever unit."""
        return isinstance(self.protected_unit, NodeUnit | LocalAttributes)

    # -- shared parts --------------------------------------------------------------------------------------

    def _with_backend(self) -> AbstractContextManager[None]:
        """Have the configured backend read the edges of graphs that are predicted."""
        return using(self.backend)

    def _build_privacy_config(self) -> PrivacyConfig:
        return PrivacyConfig(
            unit=self.protected_unit,
            mode=self.mode,
            epsilon=self.epsilon,
            delta=self.delta,
            max_units=self.max_units,
            seed=self.seed,
            unsafe_noise_seed=self.unsafe_noise_seed,
            private_metrics=self.private_metrics,
            paper_deviations=self.paper_deviations,
        )

    def _session(
        self,
        on_progress: OnProgress,
        workspace: Path | str | None = None,
        backend: AggregationBackend | None = None,
        cache: Path | str | None = None,
    ) -> Session:
        """Return the session of a fit."""
        return Session(
            streams=PublicStreams(self.seed),
            label=self.method,
            noise_seed=self.unsafe_noise_seed,
            backend=backend,
            on_progress=on_progress,
            workspace=None if workspace is None else as_path(workspace, "workspace"),
            cache=None if cache is None else as_path(cache, "cache"),
            configuration=self._configuration(),
            device=pick_device(self.device),
            private_device=private_device(self.device),
        )

    def _configuration(self) -> str:
        """Return what a resumed fit has to have in common with the first one, as text."""
        shared = {
            name: getattr(value, "__name__", value)  # of code, whose text may hold an address in memory
            for name, value in self.recorded_params().items()
            if name not in ("device", "unsafe_noise_seed")
        }
        named = {PARAMETERS_IN_KEYS.get(name, name): _in_keys(value) for name, value in shared.items()}
        return repr(sorted(named.items()))

    def _cached_prediction(self, fitted: FittedModel) -> CachedPrediction:
        """Return what is known of the fitted graph."""
        assert fitted.proba is not None
        return CachedPrediction(fitted.plan, tuple(fitted.released.values()), fitted.proba)


def _release_summary(preview_result: FitPreview) -> str:
    """Return how much a fit is about to ask, for the log."""
    return (
        "nothing is asked under a budget" if preview_result.plan is None else "its release is recorded first"
    )


def _preview(method: Method, graph: Graph) -> FitPreview:
    """Check a graph, and return the query plan, guarantee and outputs of a fit."""
    check_kind(graph)
    private_device(method.device)
    pick_device(method.device)  # a fit would find out that it is missing after it has booked
    method.check(graph)
    if not method.protects_features:
        check_magnitudes(graph)
    sizes = method.sizes_of(graph)
    plan = method.plan(sizes)
    if plan is not None:
        check_weights(plan, graph.adjacency)
    return FitPreview(plan, method.guarantee(plan, graph), method.rows(plan, sizes))


def _in_keys(value: Any) -> Any:
    return VALUES_IN_KEYS.get(value, value) if isinstance(value, str) else value

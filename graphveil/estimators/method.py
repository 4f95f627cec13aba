"""Interfaces of a method: a frozen configuration, and a trained model as a value.

An estimator builds its ``Method`` once per configuration; the unit is not parsed again below this level. The
method plans from public sizes, fits a graph in a session, and returns a ``TrainedModel``, which predicts
other graphs. ``docs/project/architecture.md`` describes the path of one fit.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NoReturn, Self

from torch import Tensor, nn

from graphveil._util.display import Facts
from graphveil._util.process import check_room
from graphveil.core.events import Composed
from graphveil.core.features import ProtectedRows, rows
from graphveil.core.guarantee import EdgeUse
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.record_counts import FeatureHistogramData, FeatureHistogramQuery
from graphveil.core.release import Release, check_max_degree, check_weights
from graphveil.core.unit import LocalAttributes, NodeUnit
from graphveil.core.view import map_records, protected_view
from graphveil.data import Graph
from graphveil.errors import ArtifactError, NotImplementedGuaranteeError, PrivacyError
from graphveil.estimators.features.scaling import FeatureScaling, magnitude_cells, noisy_range
from graphveil.estimators.objective import DEFAULT_OBJECTIVE, MAX_TRAINING_NODES, Objective
from graphveil.estimators.prediction_cache import CachedPrediction
from graphveil.estimators.privacy_config import SEEDED, PrivacyConfig, data_notes, plan_guarantee
from graphveil.estimators.private_training import release_metrics
from graphveil.estimators.public_sizes import PublicSizes, charged_members, members, nodes_of, record_groups
from graphveil.estimators.requirements import (
    check_encoding,
    check_head,
    check_learnable,
    check_magnitudes,
    check_unit,
    column_names,
)
from graphveil.estimators.session import Session
from graphveil.privacy import Guarantee
from graphveil.publish.queries import QueryRow, release_rows
from graphveil.training.heads import MULTICLASS, RegressionHead, TaskHead
from graphveil.training.metrics import PrivateMetrics

State = dict[str, Tensor]


class TrainedModel(ABC):
    """The result of a fit that predicts other graphs: frozen networks and public values."""

    reports: Any = None  # LDP reports of the fit, if there are any

    @property
    def chosen_method(self) -> str | None:
        """Name of the method that ``auto`` chose; None if there was no choice. It is public."""
        return None

    @abstractmethod
    def plan_for(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return the query plan for predicting another graph, or None if nothing is queried.

        Raises:
            NotImplementedGuaranteeError: If the method does not predict other graphs.
        """

    @abstractmethod
    def answer(self, view: Graph, session: Session, kept: CachedPrediction | None) -> CachedPrediction:
        """Predict another graph under the session's plan, and return noisy aggregates and probabilities.

        ``kept`` is the cached prediction of its first nodes. The graph then has only the new edges, and only
        aggregates of the remaining nodes are queried.
        """

    @abstractmethod
    def state(self) -> State:
        """Return the parameters as tensors by name."""

    def sizes_for(self, view: Graph, fitted: PublicSizes) -> PublicSizes:
        """Return the sizes that the plan for another graph depends on: its nodes, and the fitted sizes."""
        return replace(fitted, nodes=view.num_nodes, labeled=None, domain=None)

    # Most methods accept any graph with the same number of features.
    def check(self, view: Graph, class_names: tuple[str, ...]) -> None:  # noqa: B027
        """Reject another graph that cannot be read, before its privacy cost is computed."""


class FeatureModel(TrainedModel):
    """A trained model whose prediction reads the node's own features and no other protected data."""

    @abstractmethod
    def proba(self, view: Graph) -> Any:
        """Return probabilities (N, C), a handle if features are protected."""

    def plan_for(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return None: nothing protected is read."""
        return None

    def answer(self, view: Graph, session: Session, kept: CachedPrediction | None) -> CachedPrediction:
        return CachedPrediction(None, (), self.proba(view))


class FittedGraphModel(TrainedModel):
    """A trained model that predicts its fitted graph alone."""

    @abstractmethod
    def other_graph_error(self) -> PrivacyError:
        """Return the error of a prediction for another graph."""

    def plan_for(self, sizes: PublicSizes) -> NoReturn:
        raise self.other_graph_error()

    def answer(self, view: Graph, session: Session, kept: CachedPrediction | None) -> NoReturn:
        raise self.other_graph_error()


def unknown_training_nodes_error(method: str) -> NotImplementedGuaranteeError:
    return NotImplementedGuaranteeError(
        f"{method} with unit 'node-record' cannot predict another graph, because its predictions "
        "depend on which nodes have public labels. Fit it on that graph, which is a new release "
        "with its own budget, or use method gap."
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class FitResult:
    """The result of a fit.

    Args:
        proba: Probabilities (N, C) of the fitted graph, a handle under node-level units; None if the
            guarantee does not cover them.
        released: Noisy results by name; public as far as the unit allows.
        private_accuracy: Accuracies from noisy counts that were charged, by part of the split.
        private_metrics: Metrics of test nodes from noisy counts that were charged.
    """

    trained: TrainedModel
    proba: Tensor | ProtectedRows | None
    released: State = field(default_factory=dict)
    private_accuracy: Mapping[str, float] = field(default_factory=dict)
    private_metrics: PrivateMetrics | None = None
    learned: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedFit(Facts):
    """A fit that was checked and planned without reading protected data; ``fit`` executes exactly this plan.

    Args:
        scaled: The graph that is queried, with scaled features.
        plan: Query plan; None if nothing is queried.
        rows: Description of each output.
    """

    method: "Method"
    graph: Any
    scaled: Graph
    scaling: FeatureScaling
    sizes: PublicSizes
    plan: ReleasePlan | None
    guarantee: Guarantee
    rows: tuple[QueryRow, ...]

    def with_learned_ranges(self, session: Session) -> "PreparedFit":
        """Query the ranges of feature columns if they are planned, and return the fit with scaled columns.

        The session goes on with the open release and the rest of its plan.

        Privacy:
            Unit: node-level. Reads: features of training records. Charges: the whole plan of the session,
            recorded before anything is read.
        """
        if session.plan is None or not self.scaling.learned:
            return self
        query = session.query(0, FeatureHistogramQuery)
        session.release = session.open(self.scaled, record_groups(self.graph))
        nodes = nodes_of(charged_members(self.graph, query.pays))
        columns = list(self.scaling.learned)
        own = rows(self.method.view(self.graph).x, nodes)
        cells = map_records(lambda x: magnitude_cells(x[:, columns]), own)
        counts = session.release.answer(FeatureHistogramData(cells))
        session.plan = replace(session.plan, queries=session.plan.queries[1:])
        ranges = [noisy_range(each, query.sigma, len(nodes)) for each in counts.numpy()]
        scaling = self.scaling.with_ranges(ranges, dense=self.graph.has_dense_features)
        return replace(self, scaling=scaling, scaled=scaling.graph(self.graph))

    def facts(self) -> list[tuple[str, str]]:
        scaled = self.scaling_summary
        queries = [] if self.plan is None else self.plan.facts()[2:]  # the guarantee has unit and loss
        facts = [*self.guarantee.facts(), *(queries or [("queries", "none")])]
        return [*([("scaling", scaled)] if scaled else []), *facts]

    @property
    def scaling_summary(self) -> str:
        return self.scaling.words(column_names(self.scaled))


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """One method for one unit, with all constructor keywords resolved.

    Args:
        head: Meaning of logits; by default one class per node.
    """

    reads_edges: ClassVar[bool] = True
    supports_growing_graphs: ClassVar[bool] = (
        False  # whether only the new aggregates of a graph that has grown can be queried
    )
    tables: ClassVar[float] = 2.0  # how many float64 arrays (N, C) a fit holds at once
    pairs: ClassVar[float] = 0.0  # and how many (C, C)
    selects_by_metric: ClassVar[bool] = False  # whether a fit reads the metric of its objective
    weighs_classes: ClassVar[bool] = False  # and the class weights
    trains_on_sample: ClassVar[bool] = False  # of very many public training nodes
    copies: ClassVar[float] = 4.0  # bytes per feature of each training node, if features are dense
    prediction_requests: ClassVar[Any] = None  # of LDP reports; by default the releases of a graph

    name: str
    privacy_config: PrivacyConfig
    head: TaskHead = MULTICLASS
    objective: Objective = DEFAULT_OBJECTIVE

    @property
    def decision(self) -> str:
        """Describe in one sentence what a fit chooses and by which data; empty if it makes no choice."""
        return ""

    @property
    def stream_name(self) -> str:
        """Name of releases in the ledger, and of random streams."""
        return self.name

    @property
    def samples(self) -> bool:
        """Whether networks are trained on a sample if there are very many training nodes."""
        return self.trains_on_sample

    @property
    def protects_features(self) -> bool:
        """Whether features are protected, so that no error may depend on their values."""
        return isinstance(self.privacy_config.unit, NodeUnit | LocalAttributes)

    def plan(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return the calibrated query plan of a fit, or None if nothing is queried. A pure function.

        Without a plan a session opens no release, so a method that does not override this queries nothing.
        """
        return None

    @abstractmethod
    def fit(self, view: Graph, session: Session) -> FitResult:
        """Train, execute the session's plan, and predict all nodes."""

    @abstractmethod
    def restore(self, state: State, sizes: PublicSizes, released: State) -> TrainedModel:
        """Return the model from the result of ``TrainedModel.state``."""

    def check_task(self, graph: Graph) -> None:
        check_head(self.head, graph)

    def check(self, view: Graph) -> None:
        """Reject a graph that does not fit the unit, the training or the memory, before anything is spent."""
        self.check_edges(view)
        check_learnable(self.privacy_config, view)
        check_room(
            self.room(view),
            f"the predictions of {view.num_classes:,} classes for {view.num_nodes:,} nodes",
            "merge rare classes, or train where there is more memory",
        )
        learned = self.learned(view)
        if learned and view.has_dense_features:
            check_room(
                self.copies * view.num_features * learned,
                f"copies of {view.num_features:,} features of the {learned:,} nodes that are learned from",
                "leave features out, hash categories into fewer places, or train where there is more memory",
            )

    def check_edges(self, view: Graph) -> None:
        check_unit(self.privacy_config, view, reads_edges=self.reads_edges)

    def prepare(self, graph: Graph, scaling: FeatureScaling) -> PreparedFit:
        """Check a graph, and return the query plan, guarantee and outputs of a fit; nothing is spent."""
        check_encoding(graph, self.privacy_config.unit, protects_features=self.protects_features)
        self.check_task(graph)
        scaled = scaling.graph(graph)
        seen = self.view(scaled)
        if self.reads_edges:
            check_max_degree(seen.adjacency, self.privacy_config.unit)
        self.check(seen)
        self.objective.check_graph(seen)
        if not self.protects_features:
            check_magnitudes(seen)
        sizes = replace(self.sizes_of(seen), learned_columns=len(scaling.learned))
        plan = self.plan(sizes)
        if plan is None or not isinstance(plan.queries[0], FeatureHistogramQuery):
            scaling = replace(scaling, learned=())  # a method that does not plan the query
        if plan is not None:
            check_weights(plan, seen.adjacency)
        return PreparedFit(
            method=self,
            graph=graph,
            scaled=scaled,
            scaling=scaling,
            sizes=sizes,
            plan=plan,
            guarantee=self.guarantee(plan, seen),
            rows=self.rows(plan, sizes),
        )

    def view(self, graph: Graph) -> Graph:
        """Return what checks, plans, fits and predictions see of a graph: handles of protected fields."""
        return protected_view(graph, self.privacy_config.unit)

    def for_graph(self, view: Graph) -> Self:
        """Return the method with class names in its objective replaced by class numbers."""
        objective = self.objective.for_graph(view)
        return self if objective is self.objective else replace(self, objective=objective)

    def learned(self, view: Graph) -> int:
        """Return the number of nodes whose features a fit copies at once, from public masks; 0 if few."""
        # Which nodes have a label is protected where features are.
        nodes = len(members(view, "train")) if self.protects_features else int(view.labeled_in("train").sum())
        return min(nodes, MAX_TRAINING_NODES) if self.samples else 0

    def room(self, view: Graph) -> float:
        """Return the approximate memory of a fit in bytes in addition to the graph, from its public sizes."""
        nodes, classes = view.num_nodes, view.num_classes
        return 8 * classes * (self.tables * nodes + self.pairs * classes)

    def sizes_of(self, view: Graph) -> PublicSizes:
        return PublicSizes.from_graph(view)

    def guarantee(self, plan: ReleasePlan | None, view: Graph) -> Guarantee:
        """Return the guarantee of a release under the plan. Only public properties of the graph are read."""
        config = self.privacy_config
        if plan is not None:
            return plan_guarantee(
                config,
                plan,
                view,
                deviations=self.deviations(view),
                notes=self.notes(view),
                edge_use=self.edge_use(plan),
            )
        nothing = partial(
            Guarantee.from_event,
            config.unit,
            Composed(()),
            delta=config.delta_for(view.num_nodes),
            releases=0,
        )
        if not config.protects:
            from graphveil.perturb import guarantee_of

            return guarantee_of(view) or nothing()  # released edges keep their guarantee
        return nothing(deviations=view.deviations, notes=self.notes(view))

    def deviations(self, view: Graph) -> tuple[str, ...]:
        """Return the reasons why the guarantee is invalid; empty if it is valid."""
        known = self.privacy_config.deviations
        return known if self.privacy_config.unsafe_noise_seed is None else (*known, SEEDED)

    def notes(self, view: Graph) -> tuple[str, ...]:
        notes = data_notes(self.privacy_config, view)
        head = self.head
        if isinstance(head, RegressionHead) and head.target_range is not None:
            low, high = head.target_range
            notes = (*notes, f"targets are clipped to the range {low:g} to {high:g}, which is public")
        return notes

    def edge_use(self, plan: ReleasePlan) -> EdgeUse:
        """Return the use of edges under a node-level unit; ``read`` if predictions read own out-edges."""
        # Steps and counts read node records only.
        return "queried" if any(query.reads_edges for query in plan.queries) else "never"

    def rows(self, plan: ReleasePlan | None, sizes: PublicSizes) -> tuple[QueryRow, ...]:
        return () if plan is None else release_rows(plan)

    def closed(
        self,
        release: Release,
        trained: TrainedModel,
        proba: Any,
        view: Graph,
        session: Session,
        released: State | None = None,
    ) -> FitResult:
        """Release the planned metrics, close the release, and return the result of a fit on records."""
        accuracy, metrics = dict[str, float](), None
        if self.privacy_config.private_metrics:
            accuracy, metrics = release_metrics(release, proba, view, session, self.objective)
        release.close()
        return FitResult(
            trained=trained,
            proba=proba,
            released=released or {},
            private_accuracy=accuracy,
            private_metrics=metrics,
        )


def check_fits(fits: bool, sizes: PublicSizes) -> None:
    if not fits:
        raise ArtifactError(
            f"The model's parameters do not fit {sizes.width} features and {sizes.classes} classes. Copy the "
            "model folder from the original run again."
        )


def networks_state(part: str, networks: Sequence[nn.Module]) -> State:
    """Return the parameters of numbered networks, each under ``part/number/``."""
    return {
        f"{part}/{k}/{name}": value
        for k, network in enumerate(networks)
        for name, value in network.state_dict().items()
    }


def part_of(state: State, prefix: str) -> State:
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}

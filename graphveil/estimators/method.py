"""The contracts of a method: a frozen configuration, and a trained model as a value.

An estimator builds its :class:`Method` once per configuration; nothing below parses the unit again. The
method plans from public sizes, fits a graph in a session, and leaves a :class:`TrainedModel`, which predicts
other graphs. ``docs/project/architecture.md`` has the path of one fit.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

from graphveil._util.memory import check_room
from graphveil.artifacts.snapshot import ReleaseRow, release_rows
from graphveil.data import Graph
from graphveil.data.graph import check_kind
from graphveil.estimators.features.scaling import FeatureScaling
from graphveil.estimators.prediction_cache import CachedPrediction
from graphveil.estimators.privacy_config import (
    SEEDED,
    PrivacyConfig,
    data_notes,
    edge_level_mu,
    with_undirected_edge_deviation,
)
from graphveil.estimators.public_sizes import PublicSizes
from graphveil.estimators.requirements import check_graph, check_magnitudes, column_names
from graphveil.estimators.session import Session, pick_device
from graphveil.estimators.training.sample import MAX_TRAINING_NODES
from graphveil.perturb import guarantee_of
from graphveil.privacy import Composed, Guarantee, LocalAttributes, NodeUnit, NoUnit
from graphveil.privacy.statements import EdgeUse
from graphveil.release import ReleasePlan
from graphveil.release.release import check_weights
from graphveil.training.devices import private_device
from graphveil.training.heads import MULTICLASS, TaskHead

State = dict[str, Tensor]


class TrainedModel(ABC):
    """What a fit leaves that other graphs can be predicted with: frozen networks and public figures."""

    @abstractmethod
    def plan_for(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return the plan for predicting a graph that was not fitted, or None where that asks nothing.

        Raises:
            NotImplementedGuaranteeError: the method does not predict other graphs.
        """

    @abstractmethod
    def answer(self, graph: Graph, session: Session, kept: CachedPrediction | None) -> CachedPrediction:
        """Predict a graph that was not fitted, under the session's plan, and return rows and probabilities.

        With ``kept``, what is known of its first nodes, the graph has the new edges alone, and the rows of
        its other nodes alone are asked for.
        """

    @abstractmethod
    def state(self) -> State:
        """Return the trained weights as tensors by name."""

    def sizes_for(self, graph: Graph, fitted: PublicSizes) -> PublicSizes:
        """Return what the plan for another graph depends on, by the sizes of the fitted one."""
        return fitted.for_graph(graph)

    # Most methods take any graph of as many features.
    def check(self, graph: Graph, class_names: tuple[str, ...]) -> None:  # noqa: B027
        """Refuse another graph that cannot be read, before a price is named.

        Args:
            graph: the other graph.
            class_names: the labels of the fitted graph by class number; empty where they have no names.
        """


@dataclass(frozen=True, kw_only=True, eq=False)
class FitResult:
    """What a fit comes to.

    Args:
        trained: answers for other graphs.
        proba: probabilities (N, C) of the fitted graph; None where the guarantee covers none.
        released: noisy answers by name, which may be published as far as the unit lets them.
        private_accuracy: accuracies from booked noisy counts, by part of the split.
        learned: further attributes of the estimator that end in an underscore.
    """

    trained: TrainedModel
    proba: Tensor | None
    released: State = field(default_factory=dict)
    private_accuracy: Mapping[str, float] = field(default_factory=dict)
    learned: Mapping[str, Any] = field(default_factory=dict)


class FitPreview(NamedTuple):
    """Query plan, guarantee and outputs of a fit, computed without reading protected data."""

    plan: ReleasePlan | None
    guarantee: Guarantee
    rows: tuple[ReleaseRow, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedFit:
    """A fit that was checked and planned: what a preview shows is what :meth:`Estimator.fit` executes.

    Args:
        method: the frozen configuration.
        graph: as it was given.
        scaled: the graph with scaled features.
        scaling: how its feature columns are scaled.
        sizes: what the plan depends on.
        preview: plan, guarantee and outputs.
    """

    method: "Method"
    graph: Graph
    scaled: Graph
    scaling: FeatureScaling
    sizes: PublicSizes
    preview: FitPreview

    @property
    def scaling_summary(self) -> str:
        """Which feature columns are scaled, and how; empty if all values are used as they are."""
        return self.scaling.words(column_names(self.graph))


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """One method, for one unit and mode, with everything resolved that its constructor keywords leave open.

    Args:
        name: as in ``METHODS``.
        privacy_config: what is protected, and at which budget.
        device: where networks are trained in the clear.
        head: what logits mean; those of one class a node, but for methods that can do otherwise.
    """

    reads_edges: ClassVar[bool] = True
    supports_growing_graphs: ClassVar[bool] = (
        False  # whether a graph that has grown can be asked for its new rows alone
    )
    tables: ClassVar[float] = 2.0  # how many float64 arrays (N, C) a fit holds at once
    pairs: ClassVar[float] = 0.0  # and how many (C, C)
    copies: ClassVar[float] = 4.0  # bytes of each feature of each node that is learned from, if it is dense

    name: str
    privacy_config: PrivacyConfig
    device: str = "auto"
    head: TaskHead = MULTICLASS

    @property
    def samples(self) -> bool:
        """Whether networks learn from a sample where training nodes are very many."""
        return False

    @property
    def protects_features(self) -> bool:
        """Whether features are protected, so that no error may depend on what they are."""
        return isinstance(self.privacy_config.unit, NodeUnit | LocalAttributes)

    @abstractmethod
    def plan(self, sizes: PublicSizes) -> ReleasePlan | None:
        """Return what a fit asks of the protected data, calibrated, or None for nothing: a pure function."""

    @abstractmethod
    def fit(self, graph: Graph, session: Session) -> FitResult:
        """Train, ask the session's plan, and predict all nodes."""

    @abstractmethod
    def restore(self, state: State, sizes: PublicSizes, released: State) -> TrainedModel:
        """Return what :meth:`TrainedModel.state` was taken from."""

    def check(self, graph: Graph) -> None:
        """Refuse a graph that the unit, the training or the memory rules out, before anything is spent."""
        check_graph(self.privacy_config, graph, reads_edges=self.reads_edges)
        check_room(
            self.room(graph),
            f"the predictions of {graph.num_classes:,} classes for {graph.num_nodes:,} nodes",
            "merge rare classes, or train where there is more memory",
        )
        learned = self.learned(graph)
        if learned and isinstance(graph.x, Tensor):
            check_room(
                self.copies * graph.x[:1].numel() * learned,
                f"copies of {graph.num_features:,} features of the {learned:,} nodes that are learned from",
                "leave features out, hash categories into fewer places, or train where there is more memory",
            )

    def prepare(self, graph: Graph, scaling: FeatureScaling) -> PreparedFit:
        """Check a graph, and return the query plan, guarantee and outputs of a fit; nothing is spent."""
        scaled = scaling.graph(graph)
        check_kind(scaled)
        private_device(self.device)
        pick_device(self.device)  # a device that is missing is an error before anything is recorded
        self.check(scaled)
        if not self.protects_features:
            check_magnitudes(scaled)
        sizes = self.sizes_of(scaled)
        plan = self.plan(sizes)
        if plan is not None:
            check_weights(plan, scaled.adjacency)
        preview = FitPreview(plan, self.guarantee(plan, scaled), self.rows(plan, sizes))
        return PreparedFit(
            method=self, graph=graph, scaled=scaled, scaling=scaling, sizes=sizes, preview=preview
        )

    def learned(self, graph: Graph) -> int:
        """Return how many nodes a fit copies the features of at once, by public masks; 0 where it is few."""
        return min(int(graph.mask("train").sum()), MAX_TRAINING_NODES) if self.samples else 0

    def room(self, graph: Graph) -> float:
        """Return about how many bytes a fit takes besides the graph, from its public sizes."""
        nodes, classes = graph.num_nodes, graph.num_classes
        return 8 * classes * (self.tables * nodes + self.pairs * classes)

    def sizes_of(self, graph: Graph) -> PublicSizes:
        """Return what a plan for this graph depends on."""
        return PublicSizes.from_graph(graph)

    def guarantee(self, plan: ReleasePlan | None, graph: Graph) -> Guarantee:
        """Return the guarantee of a release under the plan; only public facts of the graph are read."""
        privacy_config = self.privacy_config
        delta = privacy_config.delta_for(graph.num_nodes) if plan is None else plan.delta
        if isinstance(privacy_config.unit, NoUnit):
            none = Guarantee.from_event(
                privacy_config.unit, Composed(()), delta=delta, releases=0, mode=privacy_config.mode
            )
            return guarantee_of(graph) or none  # edges that were released keep their guarantee
        guarantee = Guarantee.from_event(
            privacy_config.unit,
            Composed(()) if plan is None else plan.event,
            delta=delta,
            releases=0 if plan is None else 1,
            slack=0.0 if plan is None else plan.slack,
            mode=privacy_config.mode,
            deviations=(() if plan is None else self.deviations(graph)) + graph.deviations,
            notes=self.notes(graph),
            linear_group_scaling=plan is None or plan.linear_group_scaling,
            edge_use="queried" if plan is None else self.edge_use(plan),
            edge_mu=None if plan is None else edge_level_mu(plan, graph.num_nodes),
        )
        return guarantee if plan is None else with_undirected_edge_deviation(guarantee, graph)

    def deviations(self, graph: Graph) -> tuple[str, ...]:
        """Return why this method's release has no valid guarantee; empty if it has."""
        papers = self.privacy_config.paper_deviations if self.privacy_config.paper else ()
        return papers if self.privacy_config.unsafe_noise_seed is None else (*papers, SEEDED)

    def notes(self, graph: Graph) -> tuple[str, ...]:
        """Return what the statement has to add about the data."""
        return data_notes(self.privacy_config, graph)

    def edge_use(self, plan: ReleasePlan) -> EdgeUse:
        """Return how edges are used under a node unit: ``read`` is for a prediction from its own list."""
        # Steps and counts read records alone.
        return "queried" if any(query.reads_edges for query in plan.queries) else "never"

    def rows(self, plan: ReleasePlan | None, sizes: PublicSizes) -> tuple[ReleaseRow, ...]:
        """Return what a fit under a plan releases, in order."""
        return () if plan is None else release_rows(plan)


def networks_state(part: str, networks: Sequence[nn.Module]) -> State:
    """Return the weights of numbered networks, each under ``part/number/``."""
    return {
        f"{part}/{k}/{name}": value
        for k, network in enumerate(networks)
        for name, value in network.state_dict().items()
    }


def part_of(state: State, prefix: str) -> State:
    """Return the tensors under a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}

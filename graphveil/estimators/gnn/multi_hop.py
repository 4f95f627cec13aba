"""A custom module on trees of exact neighbors: private parameters, no predictions."""

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

from torch import Tensor, nn

from graphveil._util.figures import counted
from graphveil.core.accounting.gaussian import calibrate_mu, require_delta
from graphveil.core.clipping.dpsgd import PrivateSchedule
from graphveil.core.events import PoissonRoots
from graphveil.core.features import rows
from graphveil.core.guarantee import EdgeUse
from graphveil.core.noise.random import PublicStreams
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.bounded_lists import TreeRecords, tree_parents
from graphveil.core.queries.training_steps import MAX_SHIFT, Reach, TreeStepsQuery
from graphveil.core.query import Query
from graphveil.core.unit import NodeUnit
from graphveil.data import Graph
from graphveil.errors import UnitError
from graphveil.estimators.gnn.module_training import (
    check_trainable,
    fit_on_ego_graphs,
    new_module,
    plan_training,
    public_randomness_key,
    restore_module,
    state_of_weights,
)
from graphveil.estimators.method import FitResult, FittedGraphModel, Method, State
from graphveil.estimators.own.code import Factory
from graphveil.estimators.own.module_checks import reject_mixing, reject_unsupported_types
from graphveil.estimators.public_sizes import (
    PublicSizes,
    charged_members,
    nodes_of,
    record_groups,
    training_groups,
)
from graphveil.estimators.session import Session
from graphveil.publish.schemas import uncovered_weights_note
from graphveil.training import copied_state


@dataclass(frozen=True, kw_only=True)
class MultiHopGNN(Method):
    """A module on bounded trees of exact neighbors, for node-level units.

    Args:
        schedule: Schedule of its steps; ``batch_size`` None for 5 % of the training records.
        layers: r, the depth of a tree.
        slots: D, the number of out-edges that a node samples.
        cap: M, the maximum number of neighbors that a node receives.
    """

    weighs_classes: ClassVar[bool] = True

    module: Factory | str = field(repr=False)
    schedule: PrivateSchedule
    layers: int
    slots: int
    cap: int

    @property
    def reach(self) -> Reach:
        """Number of roots that a record can affect."""
        unit = self.privacy_config.unit
        assert isinstance(unit, NodeUnit)
        return Reach.from_unit(unit, slots=self.slots, depth=self.layers)

    def check(self, view: Graph) -> None:
        super().check(view)
        widths = view.num_features, view.num_classes
        module = new_module(self.module, widths, PublicStreams(0))
        reject_unsupported_types(module)
        reject_mixing(module, *widths)
        check_trainable(module, *widths, tree_parents(self.cap, self.layers))

    def sizes_of(self, view: Graph) -> PublicSizes:
        return replace(super().sizes_of(view), labeled=len(self._training_nodes(view)))

    def _training_nodes(self, view: Graph) -> Tensor:
        return nodes_of(charged_members(view, training_groups(metrics=False)))

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        """Return the steps, calibrated by Theorem A, or with the smallest supported noise if that is less.

        Steps of noise z have a privacy cost of about sqrt(T) q (2 N - 1) / z, and exactly that at q = 1.
        """
        unit, budget = self.privacy_config.unit, self.privacy_config.budget
        assert isinstance(unit, NodeUnit)
        delta = self.privacy_config.delta_for(sizes.nodes)
        require_delta(delta, "TreeStepsQuery")
        module = new_module(self.module, (sizes.width, sizes.classes), PublicStreams(0))
        training = plan_training(module, self.schedule, sizes)
        change = PoissonRoots(1.0, training.rate, 1, self.reach.roots, unit.relation).change

        def queries(mu: float) -> tuple[Query, ...]:
            wanted = math.sqrt(training.steps) * training.rate * change / mu
            steps = TreeStepsQuery(
                parameters=training.parameters,
                steps=training.steps,
                noise_multiplier=max(wanted, change / MAX_SHIFT),
                sampling_rate=training.rate,
                clip=training.schedule.clip,
                slots=self.slots,
                depth=self.layers,
            )
            return (steps,)

        ranges = self.privacy_config.range_queries(sizes, calibrate_mu(budget, delta))
        least = ReleasePlan(unit, (*ranges, *queries(math.inf)), delta)
        return least if least.epsilon <= budget else self.privacy_config.calibrated(sizes, queries)

    def edge_use(self, plan: ReleasePlan) -> EdgeUse:
        """Return the use of edges: parameters were trained on exact neighbors."""
        return "neighbors"

    def notes(self, view: Graph) -> tuple[str, ...]:
        how_many = counted(self.layers, "layer")
        return (*super().notes(view), f"the module was trained for {how_many} of messages")

    def fit(self, view: Graph, session: Session) -> FitResult:
        """Train the module on trees, which are sampled again for every pass; nothing is predicted."""
        widths = view.num_features, view.num_classes
        module = new_module(self.module, widths, session.streams)
        release = session.open(view, record_groups(view))
        with session.stage("aggregate"):
            key = public_randomness_key(session, "trees")
        with session.stage("classifier"):
            training = plan_training(module, self.schedule, self.sizes_of(view))
            nodes = self._training_nodes(view)
            a_pass = max(1, training.steps // training.schedule.epochs)
            inputs = TreeRecords.of_nodes(
                view, nodes, a_pass, slots=self.reach.slots, cap=self.cap, depth=self.layers, key=key
            )
            targets = rows(self.objective.clipped_targets(view, self.head), nodes)
            fit_on_ego_graphs(module, module, inputs, targets, widths, training, release, session)
        release.close()
        return FitResult(trained=TrainedMultiHopGNN(weights=copied_state(module), module=module), proba=None)

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedMultiHopGNN":
        weights, module = restore_module(self.module, (sizes.width, sizes.classes), state)
        return TrainedMultiHopGNN(weights=weights, module=module)


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedMultiHopGNN(FittedGraphModel):
    """Released parameters of the module, by name, and no predictions."""

    weights: State
    module: nn.Module | None

    def other_graph_error(self) -> UnitError:
        return uncovered_weights_note()

    def state(self) -> State:
        return state_of_weights(self.weights)

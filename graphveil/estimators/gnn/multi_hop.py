"""A custom module on trees of exact neighbors: private parameters, no predictions."""

import math
from dataclasses import dataclass

from torch import Tensor

from graphveil._util.figures import counted
from graphveil.core.accounting.gaussian import calibrate_mu, require_delta
from graphveil.core.events import PoissonRoots
from graphveil.core.features import rows
from graphveil.core.guarantee import EdgeUse
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.bounded_lists import TreeRecords, tree_parents
from graphveil.core.queries.training_steps import MAX_SHIFT, Reach, TreeStepsQuery
from graphveil.core.query import Query
from graphveil.core.unit import NodeUnit
from graphveil.data import Graph
from graphveil.estimators.gnn.module_training import EgoGraphMethod, TrainedGNN, public_randomness_key
from graphveil.estimators.method import FitResult
from graphveil.estimators.public_sizes import PublicSizes, nodes_of, record_groups
from graphveil.estimators.session import Session
from graphveil.training import copied_state


@dataclass(frozen=True, kw_only=True)
class MultiHopGNN(EgoGraphMethod):
    """A module on bounded trees of exact neighbors, for node-level units. It predicts nothing.

    Args:
        layers: r, the depth of a tree.
        slots: D, the number of out-edges that a node samples.
        cap: M, the maximum number of neighbors that a node receives.
    """

    layers: int
    slots: int
    cap: int

    @property
    def reach(self) -> Reach:
        """Number of roots that a record can affect."""
        unit = self.privacy_config.unit
        assert isinstance(unit, NodeUnit)
        return Reach.from_unit(unit, slots=self.slots, depth=self.layers)

    def widths(self, sizes: PublicSizes) -> tuple[int, int]:
        return sizes.width, sizes.classes

    @property
    def parents(self) -> Tensor:
        return tree_parents(self.cap, self.layers)

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        """Return the steps, calibrated by Theorem A, or with the smallest supported noise if that is less.

        Steps of noise z have a privacy cost of about sqrt(T) q (2 N - 1) / z, and exactly that at q = 1.
        """
        unit, budget = self.privacy_config.unit, self.privacy_config.budget
        assert isinstance(unit, NodeUnit)
        delta = self.privacy_config.delta_for(sizes.nodes)
        require_delta(delta, "TreeStepsQuery")
        training = self.training(sizes)
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
        sizes = self.sizes_of(view)
        module = self.new_module(sizes, session.streams)
        release = session.open(view, record_groups(view))
        with session.stage("aggregate"):
            key = public_randomness_key(session, "trees")
        with session.stage("classifier"):
            training, nodes = self.training(sizes), nodes_of(self.trained_on(view))
            a_pass = max(1, training.steps // training.schedule.epochs)
            inputs = TreeRecords.of_nodes(
                view, nodes, a_pass, slots=self.reach.slots, cap=self.cap, depth=self.layers, key=key
            )
            targets = rows(self.objective.clipped_targets(view, self.head), nodes)
            self.fit_on_ego_graphs(module, inputs, targets, sizes, release, session)
        release.close()
        return FitResult(trained=TrainedGNN(weights=copied_state(module), module=module), proba=None)

"""A custom module on trees of exact neighbors: private parameters, no predictions."""

import math
from dataclasses import dataclass, field, replace
from typing import NoReturn

from torch import Tensor, nn

from graphveil._util.random import PublicStreams
from graphveil.artifacts.snapshot import uncovered_weights_note
from graphveil.data import Adjacency, Graph
from graphveil.estimators.gnn.execution_route import check_trainable, choose_route
from graphveil.estimators.gnn.multi_hop_inputs import MultiHopInputs
from graphveil.estimators.gnn.trained import MODULE, weights_of
from graphveil.estimators.gnn.training_setup import public_randomness_key, training_members, with_batch_size
from graphveil.estimators.method import FitResult, Method, State, TrainedModel
from graphveil.estimators.own.code import Factory, build_module, is_registered
from graphveil.estimators.own.layer_checks import reject_unsupported_types
from graphveil.estimators.own.module_checks import reject_mixing
from graphveil.estimators.prediction_cache import CachedPrediction
from graphveil.estimators.public_sizes import PublicSizes, record_groups
from graphveil.estimators.session import Session
from graphveil.estimators.training.dpsgd import DPSGDTraining, fit_dpsgd_from_sums
from graphveil.privacy import NodeUnit, PoissonRoots
from graphveil.privacy.gaussian import require_delta
from graphveil.privacy.statements import EdgeUse, counted
from graphveil.release import Query, Release, ReleasePlan, TreeStepsQuery, calibrate_plan
from graphveil.release.steps.bounded_lists import BoundedTrees
from graphveil.release.steps.tree_steps import MAX_SHIFT, Reach
from graphveil.training import PrivateSchedule
from graphveil.training.ego_graphs import EgoGraphClippedSum

_STAGE = "module"


@dataclass(frozen=True, kw_only=True)
class MultiHopGNN(Method):
    """A module on bounded trees of exact neighbors, for node-level units.

    Args:
        module: Factory of the module, or the name of a registered one.
        schedule: Schedule of its steps; ``batch_size`` None for 5 % of the training records.
        layers: r, the depth of a tree.
        slots: D, the number of out-edges that a node samples.
        cap: M, the maximum number of neighbors that a node receives.
    """

    module: Factory | str = field(repr=False)
    schedule: PrivateSchedule
    layers: int
    slots: int
    cap: int

    def check(self, graph: Graph) -> None:
        """Reject a graph or a module that cannot be trained, before anything is charged."""
        super().check(graph)
        sizes = self.sizes_of(graph)
        module = self.build_module(sizes, PublicStreams(0))
        reject_unsupported_types(module)
        reject_mixing(module, sizes.width, sizes.classes)
        check_trainable(module, sizes.width, sizes.classes, self._parents(sizes))

    def _parents(self, sizes: PublicSizes) -> Tensor:
        """Return the parent of each position except the root, for every tree."""
        empty_graph = Adjacency.from_edges([], [], num_nodes=1, directed=True)
        slots = self.release_plan(sizes).reach.slots
        return BoundedTrees(empty_graph, slots=slots, cap=self.cap, depth=self.layers, key=bytes(32)).parents

    def sizes_of(self, graph: Graph) -> PublicSizes:
        """Return public sizes, with the number of training records."""
        return replace(PublicSizes.from_graph(graph), labeled=int(training_members(graph).sum()))

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        """Return the steps, calibrated by Theorem A, or with the smallest supported noise if that is less."""
        privacy_config, delta = self.privacy_config, self.privacy_config.delta_for(sizes.nodes)
        require_delta(delta, "TreeStepsQuery")
        release_plan = self.release_plan(sizes)
        least = ReleasePlan(release_plan.unit, release_plan.queries(math.inf), delta)
        if least.epsilon <= privacy_config.budget:
            return least
        return calibrate_plan(
            release_plan.unit, privacy_config.budget, delta, release_plan.queries, num_nodes=sizes.nodes
        )

    def release_plan(self, sizes: PublicSizes) -> "MultiHopPlan":
        """Return the query, before its noise is chosen."""
        unit = self.privacy_config.unit
        assert isinstance(unit, NodeUnit)
        return MultiHopPlan(unit=unit, training=self.training(sizes), slots=self.slots, depth=self.layers)

    def training(self, sizes: PublicSizes) -> DPSGDTraining:
        """Return the steps, before their noise multiplier is chosen."""
        module, records = self.build_module(sizes, PublicStreams(0)), sizes.labeled or sizes.records
        return DPSGDTraining(
            schedule=with_batch_size(self.schedule, records),
            parameters=sum(weight.numel() for weight in module.parameters() if weight.requires_grad),
            records=records,
        )

    def edge_use(self, plan: ReleasePlan) -> EdgeUse:
        """Return the use of edges: parameters were trained on exact neighbors."""
        return "neighbors"

    def notes(self, graph: Graph) -> tuple[str, ...]:
        """Return notes of the guarantee summary."""
        how_many = counted(self.layers, "layer")
        return (*super().notes(graph), f"the module was trained for {how_many} of messages")

    def build_module(self, sizes: PublicSizes, streams: PublicStreams) -> nn.Module:
        """Return the module with new parameters."""
        return build_module(self.module, sizes.width, sizes.classes, streams.torch(_STAGE)).eval()

    def fit(self, graph: Graph, session: Session) -> FitResult:
        """Train the module on trees; nothing is predicted."""
        sizes = self.sizes_of(graph)
        release_plan, module = self.release_plan(sizes), self.build_module(sizes, session.streams)
        release = session.open(graph, record_groups(graph))
        with session.stage("aggregate"):
            key = public_randomness_key(session, "trees")
            trees = BoundedTrees(
                graph.adjacency, slots=release_plan.reach.slots, cap=self.cap, depth=self.layers, key=key
            )
        with session.stage("classifier"):
            self._train(module, graph, trees, release_plan.training, release, session)
        release.close()
        weights = {name: value.detach().clone() for name, value in module.state_dict().items()}
        return FitResult(trained=TrainedMultiHopGNN(weights=weights, module=module), proba=None)

    def _train(
        self,
        module: nn.Module,
        graph: Graph,
        trees: BoundedTrees,
        training: DPSGDTraining,
        release: Release,
        session: Session,
    ) -> None:
        """Train the module on the trees of training nodes, which are sampled again for every pass."""
        nodes = training_members(graph).nonzero()[:, 0]
        a_pass = max(1, training.steps // training.schedule.epochs)
        inputs, labels = MultiHopInputs(graph.x, nodes, trees, a_pass), graph.y[nodes]
        route, code, dtype = choose_route(module, graph.num_features, graph.num_classes)
        fit_dpsgd_from_sums(
            _STAGE,
            module,
            lambda: EgoGraphClippedSum(module, inputs, labels, route=route, dtype=dtype),
            training,
            release,
            session,
            fingerprint=(code,),
        )

    def restore(self, state: State, sizes: PublicSizes, released: State) -> "TrainedMultiHopGNN":
        """Return the fit with these parameters, and the module if its code is registered."""
        weights = weights_of(state)
        if not is_registered(self.module):
            return TrainedMultiHopGNN(weights=weights)
        module = self.build_module(sizes, PublicStreams(0))
        module.load_state_dict(weights)
        return TrainedMultiHopGNN(weights=weights, module=module)


@dataclass(frozen=True, kw_only=True)
class MultiHopPlan:
    """The steps on trees as a query, for any scale.

    >>> from graphveil.privacy import NodeRecord
    >>> training = DPSGDTraining(schedule=PrivateSchedule(batch_size=25), parameters=50, records=500)
    >>> plan = MultiHopPlan(unit=NodeRecord(), training=training, slots=1, depth=1)
    >>> [query.kind for query in plan.queries(0.5)]
    ['steps']
    """

    unit: NodeUnit
    training: DPSGDTraining
    slots: int
    depth: int

    @property
    def reach(self) -> Reach:
        """Number of roots that a record can affect."""
        return Reach.from_unit(self.unit, slots=self.slots, depth=self.depth)

    def queries(self, mu: float) -> tuple[Query, ...]:
        """Return the query, which costs about sqrt(T) q (2 N - 1) / z = mu, and exactly that at q = 1.

        For a large mu it is the query with the smallest noise that can be accounted for.
        """
        training = self.training
        change = PoissonRoots(1.0, training.rate, 1, self.reach.roots, self.unit.relation).change
        wanted = math.sqrt(training.steps) * training.rate * change / mu
        steps = TreeStepsQuery(
            parameters=training.parameters,
            steps=training.steps,
            noise_multiplier=max(wanted, change / MAX_SHIFT),
            sampling_rate=training.rate,
            clip=training.schedule.clip,
            slots=self.slots,
            depth=self.depth,
        )
        return (steps,)


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedMultiHopGNN(TrainedModel):
    """Released parameters of the module, by name, and no predictions.

    ``module`` is the module itself, or None if its code is not registered.
    """

    weights: State
    module: nn.Module | None = None

    def plan_for(self, sizes: PublicSizes) -> NoReturn:
        """Raise an error: a prediction would read exact neighbors."""
        raise uncovered_weights_note()

    def answer(self, graph: Graph, session: Session, kept: CachedPrediction | None) -> NoReturn:
        """Raise an error, as ``plan_for`` does."""
        raise uncovered_weights_note()

    def state(self) -> State:
        """Return the parameters."""
        return {f"{MODULE}{name}": part for name, part in self.weights.items()}

"""A custom module on protected records: one noisy out-edge aggregation, then the module on ego graphs."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from graphveil._util.random import PublicStreams
from graphveil.data import Graph
from graphveil.errors import ArtifactError, ConfigError, UnitError
from graphveil.estimators.classcode.node_method import NodeMessages, train_encoder
from graphveil.estimators.features.noisy_softmax import NoisySoftmax
from graphveil.estimators.gnn.code_prior import CodePriorModule
from graphveil.estimators.gnn.execution_route import check_trainable, choose_route
from graphveil.estimators.gnn.one_hop_inputs import OneHopInputs
from graphveil.estimators.gnn.plan import OneHopPlan
from graphveil.estimators.gnn.trained import TrainedOneHopGNN, weights_of
from graphveil.estimators.gnn.training_setup import public_randomness_key, training_members, with_batch_size
from graphveil.estimators.method import FitResult, Method, State
from graphveil.estimators.own.code import Factory, build_module, is_registered
from graphveil.estimators.own.layer_checks import reject_unsupported_types
from graphveil.estimators.own.module_checks import reject_mixing
from graphveil.estimators.public_sizes import OTHER, PublicSizes, record_groups
from graphveil.estimators.session import Session
from graphveil.estimators.training.dpsgd import fit_dpsgd_from_sums
from graphveil.estimators.training.record_plan import release_accuracies
from graphveil.privacy import NodeRecord
from graphveil.privacy.statements import EdgeUse
from graphveil.release import (
    DPSGDQuery,
    OutEdgeSumData,
    OutEdgeSumQuery,
    Release,
    ReleasePlan,
    calibrate_plan,
)
from graphveil.release.steps.bounded_lists import read_ego_graphs
from graphveil.training import PrivateSchedule
from graphveil.training.ego_graphs import EgoGraphClippedSum, ego_graph_logits

_STAGE = "module"


@dataclass(frozen=True, kw_only=True)
class OneHopGNN(Method):
    """A module on 1-hop ego graphs of published aggregates, for unit ``node-record``.

    Args:
        module: Factory of the module, or the name of a registered one.
        epochs, batch_size, clip, learning_rate: Of the module's steps. ``batch_size`` None for 5 % of the
            training records.
        shares: Shares of mu^2 for encoder and module. None for the encoder is a public rule of sizes and
            budget.
        leaves: M.
        out_degree_bound: D of the out-edge aggregation.
        use_code_prior: Whether the module's logits are added to the prior from the codes.
    """

    module: Factory | str = field(repr=False)
    schedule: PrivateSchedule
    shares: tuple[float | None, float]
    leaves: int
    out_degree_bound: int = 1
    use_code_prior: bool = True

    def check(self, graph: Graph) -> None:
        """Reject a graph or a module that cannot be trained, before anything is charged."""
        super().check(graph)
        module = self.build_module(graph.num_classes, PublicStreams(0))
        reject_unsupported_types(module)
        widths = self._widths(graph.num_classes)
        reject_mixing(module, *widths)
        parents = torch.zeros(self.leaves, dtype=torch.int64)
        check_trainable(self._started(module, graph.num_classes), *widths, parents)

    def sizes_of(self, graph: Graph) -> PublicSizes:
        """Return public sizes, with the number of training records."""
        return replace(
            PublicSizes.from_graph(graph),
            labeled=int(training_members(graph, metrics=self.privacy_config.private_metrics).sum()),
        )

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        """Return the encoder's steps, the out-edge aggregation, the module's steps, and counts."""
        privacy_config, release_plan = self.privacy_config, self.release_plan(sizes)
        delta = privacy_config.delta_for(sizes.nodes)
        return calibrate_plan(
            release_plan.unit, privacy_config.budget, delta, release_plan.queries, num_nodes=sizes.nodes
        )

    def release_plan(self, sizes: PublicSizes) -> OneHopPlan:
        """Return the queries, before their noise is chosen."""
        unit = self.privacy_config.unit
        if not isinstance(unit, NodeRecord):
            raise UnitError(f"{self.name} on stars is for unit 'node-record', not {unit.name!r}")
        module, records = self.build_module(sizes.classes, PublicStreams(0)), sizes.labeled or sizes.records
        return OneHopPlan(
            unit=unit,
            features=sizes.width,
            classes=sizes.classes,
            parameters=sum(weight.numel() for weight in module.parameters() if weight.requires_grad),
            records=records,
            schedule=with_batch_size(self.schedule, records),
            shares=self.shares,
            metrics=self.privacy_config.private_metrics,
            out_degree_bound=self.out_degree_bound,
        )

    def edge_use(self, plan: ReleasePlan) -> EdgeUse:
        """Return the use of edges: predictions read the node's own out-edges."""
        return "read"

    def build_module(self, classes: int, streams: PublicStreams) -> nn.Module:
        """Return the module with new parameters."""
        return build_module(self.module, *self._widths(classes), streams.torch(_STAGE)).eval()

    def fit(self, graph: Graph, session: Session) -> FitResult:
        """Train the encoder, aggregate, train the module on ego graphs, and predict every node."""
        plan = session.plan
        if plan is None:
            raise ConfigError("a private GNN queries under a plan, and this session has none")
        module = self.build_module(graph.num_classes, session.streams)
        release = session.open(graph, record_groups(graph))
        first, push, steps = plan.queries[:3]
        assert (
            isinstance(first, DPSGDQuery)
            and isinstance(push, OutEdgeSumQuery)
            and isinstance(steps, DPSGDQuery)
        )
        with session.stage("encoder"):
            labeled = training_members(graph, metrics=self.privacy_config.private_metrics)
            encoder = train_encoder(graph, first, labeled, release)
            log_posteriors = encoder.log_posteriors(graph.x)
        with session.stage("aggregate"):
            sent = NodeMessages(graph.y, labeled, graph.num_classes, push.bounds[OTHER]).first(log_posteriors)
            rows = release.answer(OutEdgeSumData(sent))
            stars = read_ego_graphs(graph.adjacency, self.leaves, public_randomness_key(session, "leaves"))
            inputs = OneHopInputs.from_published_rows(
                log_posteriors, rows, push.sigma, sent, stars, push.out_degree_bound
            )
        with session.stage("classifier"):
            proba = self._trained(module, inputs, graph, labeled, release, session)
        accuracy = dict[str, float]()
        if self.privacy_config.private_metrics:
            accuracy = release_accuracies(release, proba.argmax(dim=1), graph)
        release.close()
        weights = {name: value.detach().clone() for name, value in module.state_dict().items()}
        return FitResult(
            trained=TrainedOneHopGNN(encoder=encoder, weights=weights, module=module),
            proba=proba,
            released={"rows": rows.to(torch.float32)},
            private_accuracy=accuracy,
        )

    def restore(self, state: State, sizes: PublicSizes, released: State) -> TrainedOneHopGNN:
        """Return the fit with these parameters, and the module if its code is registered."""
        if state["encoder"].shape != (sizes.width + 1, sizes.classes):
            raise ArtifactError(
                f"the model's weights are not those of {sizes.width} features and {sizes.classes} classes; "
                "take them from the original run"
            )
        weights, encoder = weights_of(state), NoisySoftmax.restore(state)
        if not is_registered(self.module):
            return TrainedOneHopGNN(encoder=encoder, weights=weights)
        module = self.build_module(sizes.classes, PublicStreams(0))
        module.load_state_dict(weights)
        return TrainedOneHopGNN(encoder=encoder, weights=weights, module=module)

    def _trained(
        self,
        module: nn.Module,
        inputs: OneHopInputs,
        graph: Graph,
        labeled: Tensor,
        release: Release,
        session: Session,
    ) -> Tensor:
        """Train the module on the ego graphs of training nodes, and return the probabilities of all nodes."""
        nodes = labeled.nonzero()[:, 0]
        started = self._started(module, graph.num_classes)
        route, code, dtype = choose_route(started, inputs.columns, graph.num_classes)
        training = self.release_plan(self.sizes_of(graph)).training
        records, labels = inputs.select(nodes), graph.y[nodes]
        fit_dpsgd_from_sums(
            _STAGE,
            module,
            lambda: EgoGraphClippedSum(started, records, labels, route=route, dtype=dtype),
            training,
            release,
            session,
            fingerprint=(code,),
        )
        logits = ego_graph_logits(started, inputs, graph.num_nodes, graph.num_classes, route=route)
        return logits.softmax(dim=1).to(torch.float32)

    def _started(self, module: nn.Module, classes: int) -> nn.Module:
        """Return the module, with the prior from the codes added to its logits if configured."""
        return CodePriorModule(module, classes) if self.use_code_prior else module

    def _widths(self, classes: int) -> tuple[int, int]:
        """Return the number of inputs per node of an ego graph, and the number of classes."""
        return 2 * classes, classes

"""ClassCode for unit ``node-record``: labeled codes pushed along the sources' own edges."""

from dataclasses import dataclass

import torch

from graphveil.data import Graph
from graphveil.errors import ConfigError, UnitError
from graphveil.estimators.classcode.owner import decoder
from graphveil.estimators.classcode.owner.fit import fit_node_level_classcode
from graphveil.estimators.classcode.owner.plan import NodeLevelReleasePlan
from graphveil.estimators.classcode.owner.targets import Targets, released_rows
from graphveil.estimators.classcode.owner.trained import TrainedNodeLevelClassCode
from graphveil.estimators.method import FitResult, Method, State
from graphveil.estimators.public_sizes import PublicSizes, record_groups
from graphveil.estimators.session import Session
from graphveil.estimators.training.record_plan import release_accuracies
from graphveil.privacy import NodeRecord
from graphveil.privacy.statements import EdgeUse
from graphveil.release import ReleasePlan, calibrate_plan


@dataclass(frozen=True, kw_only=True)
class NodeLevelClassCode(Method):
    """ClassCode on records: recipe S weighs features and rows, recipe R reads the rows on a node's own list.

    Args:
        reads_own_edges: recipe R.
        targets: whose rows are released; None for all.
        unlabeled_send: whether nodes that do not teach send messages.
        encoder_share: share of mu^2 that goes to the encoder; None for what suits.
        out_degree_bound: D of the pushes.
    """

    reads_own_edges: bool = False
    targets: Targets = None
    unlabeled_send: bool = True
    encoder_share: float | None = None
    out_degree_bound: int = 1

    def room(self, graph: Graph) -> float:
        """Return about how many bytes a fit takes: decoding has covariances of each class, of C^2 entries."""
        return super().room(graph) + decoder.room(graph.num_classes)

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        """Return the steps, pushes and counts."""
        privacy_config, release_plan = self.privacy_config, self.release_plan(sizes)
        delta = privacy_config.delta_for(sizes.nodes)
        return calibrate_plan(
            release_plan.unit, privacy_config.budget, delta, release_plan.queries, num_nodes=sizes.nodes
        )

    def release_plan(self, sizes: PublicSizes) -> NodeLevelReleasePlan:
        """Return the questions, before the size of their noise is chosen."""
        unit = self.privacy_config.unit
        if not isinstance(unit, NodeRecord):
            raise UnitError(f"{self.name} on records is for unit 'node-record', not {unit.name!r}")
        return NodeLevelReleasePlan(
            unit=unit,
            features=sizes.width,
            classes=sizes.classes,
            records=sizes.records,
            reads_own_edges=self.reads_own_edges,
            fits_evidence_weights=self.targets is None,
            share=self.encoder_share,
            unlabeled_send=self.unlabeled_send,
            metrics=self.privacy_config.private_metrics,
            out_degree_bound=self.out_degree_bound,
        )

    def edge_use(self, plan: ReleasePlan) -> EdgeUse:
        """Return how edges are used: recipe R predicts a node from its own list."""
        return "read" if self.reads_own_edges else super().edge_use(plan)

    def fit(self, graph: Graph, session: Session) -> FitResult:
        """Ask steps and pushes in order, and release the accuracies that were planned."""
        plan = session.plan
        if plan is None:
            raise ConfigError("ClassCode asks under a plan, and this session has none")
        released = released_rows(graph, plan, self.targets)  # refuses wrong names before anything is booked
        release = session.open(graph, record_groups(graph))
        decided = fit_node_level_classcode(
            graph, plan, release, session, released, read_own_edges=self.reads_own_edges
        )
        proba, accuracy = decided.log_posteriors.exp().to(torch.float32), dict[str, float]()
        if self.privacy_config.private_metrics:
            accuracy = release_accuracies(release, proba.argmax(dim=1), graph)
        release.close()
        return FitResult(
            trained=TrainedNodeLevelClassCode(encoder=decided.encoder, decider=decided.decider),
            proba=proba,
            released={"rows": decided.rows.to(torch.float32)},
            private_accuracy=accuracy,
        )

    def restore(self, state: State, sizes: PublicSizes, released: State) -> TrainedNodeLevelClassCode:
        """Return the fit with these weights."""
        return TrainedNodeLevelClassCode.restore(state, sizes)

"""ClassCode for unit ``node-owner``: labelled codes pushed along the sources' own edges."""

from dataclasses import dataclass

import torch

from graphveil.errors import ConfigError, UnitError
from graphveil.graph import Graph
from graphveil.models.classcode.owner import decoder
from graphveil.models.classcode.owner.fit import fit_owner
from graphveil.models.classcode.owner.plan import OwnerPlan
from graphveil.models.classcode.owner.targets import Targets, released_rows
from graphveil.models.classcode.owner.trained import TrainedClassCodeOwner
from graphveil.models.membership import record_groups
from graphveil.models.method import Method, Outcome, State
from graphveil.models.session import Session
from graphveil.models.sizes import PublicSizes
from graphveil.models.training.record_plan import released_accuracies
from graphveil.privacy import NodeOwner
from graphveil.privacy.wording import EdgeUse
from graphveil.release import ReleasePlan, calibrate_plan


@dataclass(frozen=True, kw_only=True)
class ClassCodeOwner(Method):
    """ClassCode on records: recipe S weighs features and rows, recipe R reads the rows on a node's own list.

    Args:
        reads_own_edges: recipe R.
        targets: whose rows are released; None for all.
        unlabelled_send: whether nodes that do not teach send messages.
        encoder_share: share of mu^2 that goes to the encoder; None for what suits.
        degree_budget: D of the pushes.
    """

    reads_own_edges: bool = False
    targets: Targets = None
    unlabelled_send: bool = True
    encoder_share: float | None = None
    degree_budget: int = 1

    def room(self, graph: Graph) -> float:
        """Return about how many bytes a fit takes: decoding has covariances of each class, of C^2 entries."""
        return super().room(graph) + decoder.room(graph.num_classes)

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        """Return the steps, pushes and counts."""
        terms, asked = self.terms, self.asked(sizes)
        delta = terms.delta_for(sizes.nodes)
        return calibrate_plan(asked.unit, terms.budget, delta, asked.queries, num_nodes=sizes.nodes)

    def asked(self, sizes: PublicSizes) -> OwnerPlan:
        """Return the questions, before the size of their noise is chosen."""
        unit = self.terms.unit
        if not isinstance(unit, NodeOwner):
            raise UnitError(f"{self.name} on records is for unit 'node-owner', not {unit.name!r}")
        return OwnerPlan(
            unit=unit,
            features=sizes.width,
            classes=sizes.classes,
            records=sizes.records,
            reads_own_edges=self.reads_own_edges,
            weighs=self.targets is None,
            share=self.encoder_share,
            unlabelled_send=self.unlabelled_send,
            metrics=self.terms.private_metrics,
            degree_budget=self.degree_budget,
        )

    def edge_use(self, plan: ReleasePlan) -> EdgeUse:
        """Return how edges are used: recipe R predicts a node from its own list."""
        return "read" if self.reads_own_edges else super().edge_use(plan)

    def fit(self, graph: Graph, session: Session) -> Outcome:
        """Ask steps and pushes in order, and release the accuracies that were planned."""
        plan = session.plan
        if plan is None:
            raise ConfigError("ClassCode asks under a plan, and this session has none")
        released = released_rows(graph, plan, self.targets)  # refuses wrong names before anything is booked
        release = session.open(graph, record_groups(graph))
        decided = fit_owner(graph, plan, release, session, released, read_own_edges=self.reads_own_edges)
        proba, accuracy = decided.log_posteriors.exp().to(torch.float32), dict[str, float]()
        if self.terms.private_metrics:
            accuracy = released_accuracies(release, proba.argmax(dim=1), graph)
        release.close()
        return Outcome(
            trained=TrainedClassCodeOwner(encoder=decided.encoder, decider=decided.decider),
            proba=proba,
            released={"rows": decided.rows.to(torch.float32)},
            private_accuracy=accuracy,
        )

    def restore(self, state: State, sizes: PublicSizes, released: State) -> TrainedClassCodeOwner:
        """Return the fit with these weights."""
        return TrainedClassCodeOwner.restore(state, sizes)

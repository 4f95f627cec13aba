"""ClassCode where features and labels are public and edges are protected."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from graphveil.errors import ConfigError
from graphveil.graph import Graph
from graphveil.models.classcode.edge.deciding import Decider, Decision
from graphveil.models.classcode.edge.groups import groups_of, labelled_count, public_labels
from graphveil.models.classcode.edge.head import restore_heads
from graphveil.models.classcode.edge.inductive import InductiveReader
from graphveil.models.classcode.edge.likelihood import Affinity
from graphveil.models.classcode.edge.plan import EdgePlan
from graphveil.models.classcode.edge.rounds import AnyRounds, affinity_of, ask_counts, rounds_for
from graphveil.models.classcode.edge.trained import TrainedClassCode
from graphveil.models.classcode.edge.weights import learned_weigher, restore_weigher
from graphveil.models.features.crossfit import Posteriors, public_posteriors
from graphveil.models.method import Method, Outcome, State
from graphveil.models.session import Session
from graphveil.models.sizes import PublicSizes
from graphveil.release import EdgeCountQuery, ReleasePlan

_FEW_TO_LEARN_FROM = 5000  # labelled nodes


@dataclass(frozen=True, kw_only=True)
class ClassCodeEdge(Method):
    """ClassCode for edge units: counts and steered rounds of rows, one release.

    Labels are public here, so how many there are is one of the sizes that a plan may depend on.

    Args:
        asked: what is asked of the edges.
        distil: whether features are learned a second time, from decisions; None where labels are few.
    """

    grows: ClassVar[bool] = True
    tables: ClassVar[float] = 14.0
    pairs: ClassVar[float] = 8.0

    asked: EdgePlan
    distil: bool | None = None

    @property
    def samples(self) -> bool:
        """Return True: networks learn from a sample of very many nodes."""
        return True

    def sizes_of(self, graph: Graph) -> PublicSizes:
        """Return the sizes, with the number of public labels."""
        return replace(super().sizes_of(graph), labelled=labelled_count(graph))

    def plan(self, sizes: PublicSizes) -> ReleasePlan:
        """Return the counts and the rounds of rows."""
        return self.asked.of_fit(self.terms, sizes)

    def fit(self, graph: Graph, session: Session) -> Outcome:
        """Learn from features, ask counts and rows, and decide after each round of them."""
        if session.plan is None:
            raise ConfigError("ClassCode asks under a plan, and this session has none")
        with session.stage("encoder"):
            public = public_posteriors(graph, session)
            weigher = learned_weigher(self.asked.weighting, graph, public.log, session)
        groups, queries = groups_of(graph), session.plan.queries
        release, known, counts = session.open(graph, groups), None, {}
        if isinstance(queries[0], EdgeCountQuery):
            with session.stage("aggregate"):
                counts["counts"], known = ask_counts(release, queries[0], graph, groups)
            queries = queries[1:]
        rounds = rounds_for(queries, graph, groups, public_labels(graph, groups), release, weigher)
        decider = Decider(graph, session, public, distils=self._distils(graph))
        decision = self._decided(rounds, decider, public, session, known)
        release.close()
        affinity = affinity_of(rounds, known)
        trained = TrainedClassCode(
            terms=self.terms,
            asked=self.asked,
            classes=graph.num_classes,
            reader=InductiveReader.of(public, decider.imitating, affinity, decision.shape),
            weigher=weigher,
            heads=decision.heads,
            gate=decision.gate,
        )
        rows = {f"rows{number}": rows for number, rows in enumerate(rounds.rows, start=1)}
        proba = decision.log.exp().to(torch.float32)
        learned = {"homophily": affinity.homophily}
        return Outcome(trained=trained, proba=proba, released={**counts, **rows}, learned=learned)

    def restore(self, state: State, sizes: PublicSizes, released: State) -> TrainedClassCode:
        """Return the fit with these weights.

        Raises:
            ArtifactError: they are not those of so many features and classes.
        """
        return TrainedClassCode(
            terms=self.terms,
            asked=self.asked,
            classes=sizes.classes,
            reader=InductiveReader.restore(state, sizes.width, sizes.classes),
            weigher=restore_weigher(self.asked.weighting, state, sizes.classes),
            heads=restore_heads(state),
            gate=tuple(state["gate"].tolist()),
        )

    def _decided(
        self,
        rounds: AnyRounds,
        decider: Decider,
        public: Posteriors,
        session: Session,
        known: Affinity | None,
    ) -> Decision:
        """Return the decision after all rounds, each of which sends what was decided before it."""
        decision = Decision.of(public.log)
        for number, _ in enumerate(rounds.hops, start=1):
            # No node's own label is in either of the two that weights may read.
            seen = decision.likely if self.asked.reads_previous else public.log
            with session.stage("aggregate"):
                rounds.listen(decision.log, seen, session.streams.torch(f"weighed-pairs-{number}"))
            decision = decider.decide(rounds, number, affinity_of(rounds, known))
        return decision

    def _distils(self, graph: Graph) -> bool:
        return labelled_count(graph) < _FEW_TO_LEARN_FROM if self.distil is None else self.distil

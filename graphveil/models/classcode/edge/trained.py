"""A fit of ClassCode at edge level, as a value: it reads the rows of any graph of the same kind."""

from dataclasses import dataclass, replace

import torch

from graphveil.graph import Graph
from graphveil.models.classcode.edge.groups import (
    groups_of,
    groups_to_predict,
    labelled_count,
    public_labels,
)
from graphveil.models.classcode.edge.head import Head
from graphveil.models.classcode.edge.inductive import InductiveReader
from graphveil.models.classcode.edge.plan import EdgePlan
from graphveil.models.classcode.edge.rounds import rounds_for
from graphveil.models.classcode.edge.weights import Weigher, weigher_state
from graphveil.models.inference.cache import Answer
from graphveil.models.membership import check_classes
from graphveil.models.method import State, Trained
from graphveil.models.parts import parts_state
from graphveil.models.session import Session
from graphveil.models.sizes import PublicSizes
from graphveil.models.terms import Terms
from graphveil.release import ReleasePlan


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedClassCode(Trained):
    """What a fit at edge level leaves; heads and gate stay with the graph that they were fitted to.

    Args:
        terms: what is protected, at which budget.
        asked: what is asked of the edges of a graph.
        classes: C.
        reader: reads rows of graphs that were not fitted.
        weigher: what weighs messages; None for weights of one.
        heads: networks that read rows of the fitted graph.
        gate: the weights of heads, likelihood and features there.
    """

    terms: Terms
    asked: EdgePlan
    classes: int
    reader: InductiveReader
    weigher: Weigher | None
    heads: tuple[Head, ...]
    gate: tuple[float, ...]

    def check(self, graph: Graph, class_names: tuple[str, ...]) -> None:
        """Refuse public labels that do not mean what they meant in training."""
        check_classes(graph, class_names, self.classes)

    def sizes_for(self, graph: Graph, fitted: PublicSizes) -> PublicSizes:
        """Return the sizes of another graph, with the number of its own public labels."""
        return replace(super().sizes_for(graph, fitted), labelled=labelled_count(graph))

    def plan_for(self, sizes: PublicSizes) -> ReleasePlan:
        """Return rounds of rows alone."""
        return self.asked.of_rows(self.terms, sizes)

    def answer(self, graph: Graph, session: Session, kept: Answer | None) -> Answer:
        """Ask all rounds; of a graph that has grown, for its new nodes, to which the old ones speak."""
        assert session.plan is not None  # there is always something to ask
        first = 0 if kept is None else len(kept.proba)
        groups = groups_to_predict(graph, first)
        release = session.open(graph, groups, first=first)
        labels, queries = public_labels(graph, groups_of(graph)), session.plan.queries
        rounds = rounds_for(queries, graph, groups, labels, release, self.weigher, first)
        proba = self.reader.predict(rounds, graph, session, kept, previous=self.asked.reads_previous)
        release.close()
        return Answer(session.plan, tuple(rounds.rows), proba)

    def state(self) -> State:
        """Return the weights of all networks, and the public figures beside them."""
        return {
            "gate": torch.tensor(self.gate),
            **parts_state("heads", self.heads),
            **weigher_state(self.weigher),
            **self.reader.state(),
        }

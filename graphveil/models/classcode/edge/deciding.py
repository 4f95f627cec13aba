"""Deciding after each round of rows: likelihood, heads and gate, and features taught by what was decided."""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphveil.graph import Graph
from graphveil.models.classcode.edge.distilling import distilled_posteriors
from graphveil.models.classcode.edge.head import Head, fit_gate, fit_heads
from graphveil.models.classcode.edge.likelihood import SHAPES, Affinity, Shape, fit_shape
from graphveil.models.classcode.edge.rounds import AnyRounds
from graphveil.models.features.crossfit import Posteriors
from graphveil.models.membership import nodes_of
from graphveil.models.session import Session
from graphveil.models.training.sample import learned_from


@dataclass(frozen=True, eq=False)
class Decision:
    """What was decided: the likelihood's shape, its log-posteriors, those of all experts, and how."""

    shape: Shape
    likely: Tensor
    log: Tensor
    heads: tuple[Head, ...] = ()
    gate: tuple[float, ...] = ()

    @classmethod
    def of(cls, features: Tensor) -> "Decision":
        """Return what features say, before any row."""
        return cls(SHAPES[0], features, features)


class Decider:
    """Decides on what features and the rows so far say; everything it reads is public or was released.

    Args:
        graph: labels and split.
        session: randomness and progress.
        public: posteriors from features.
        distils: whether features are learned a second time, from what was decided, before a last decision.
    """

    def __init__(self, graph: Graph, session: Session, public: Posteriors, *, distils: bool) -> None:
        """Begin with the public posteriors as the prior."""
        self._graph, self._session, self._distils = graph, session, distils
        self._public, self._prior = public, public

    @property
    def imitating(self) -> Posteriors | None:
        """The posteriors that imitate what was decided; None where nothing was distilled."""
        return None if self._prior is self._public else self._prior

    def decide(self, rounds: AnyRounds, number: int, affinity: Affinity) -> Decision:
        """Return what is decided after so many rounds, by how classes are connected."""
        decision = self._decide(rounds, affinity)
        if not self._distils:
            return decision
        with self._session.stage("classifier"):
            self._prior = distilled_posteriors(
                self._graph, self._session, self._public, decision.log, f"distilled-{number}"
            )
        return self._decide(rounds, affinity)

    def _decide(self, rounds: AnyRounds, affinity: Affinity) -> Decision:
        graph, session, prior = self._graph, self._session, self._prior.log
        train_nodes, val_nodes = (
            learned_from(graph, nodes_of(graph.mask(part))) for part in ("train", "val")
        )
        with session.stage("classifier"):
            rows, signal = rounds.heard(affinity)
            shape, likely = fit_shape(rows, signal, prior.to(torch.float64), graph.y, train_nodes)
            inputs = rounds.inputs(likely, prior, rows, signal)
            heads, headed = fit_heads(likely, inputs, graph.y, train_nodes, val_nodes, session)
            experts = (headed, likely, self._public.log.to(torch.float64))
            gate, decided = fit_gate(experts, graph.y, val_nodes)
        return Decision(shape, likely, decided, tuple(heads), gate)

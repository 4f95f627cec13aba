"""Deciding after each round of rows: likelihood, heads and gate, and features taught by what was decided."""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphveil.data import Graph
from graphveil.estimators.classcode.edge.head import PosteriorHead, fit_gate, fit_heads
from graphveil.estimators.classcode.edge.likelihood import (
    LIKELIHOOD_SHAPES,
    Affinity,
    LikelihoodShape,
    fit_shape,
)
from graphveil.estimators.classcode.edge.rounds import AnyAggregationRounds
from graphveil.estimators.classcode.edge.self_training import distilled_posteriors
from graphveil.estimators.features.crossfit import CrossFitPosteriors
from graphveil.estimators.public_sizes import nodes_of
from graphveil.estimators.session import Session
from graphveil.estimators.training.sample import sample_training_nodes


@dataclass(frozen=True, eq=False)
class PosteriorEstimate:
    """What was decided: the likelihood's shape, its log-posteriors, those of all experts, and how."""

    shape: LikelihoodShape
    likely: Tensor
    log: Tensor
    heads: tuple[PosteriorHead, ...] = ()
    gate: tuple[float, ...] = ()

    @classmethod
    def from_features(cls, features: Tensor) -> "PosteriorEstimate":
        """Return what features say, before any row."""
        return cls(LIKELIHOOD_SHAPES[0], features, features)


class PosteriorEstimator:
    """Decides on what features and the rows so far say; everything it reads is public or was released.

    Args:
        graph: labels and split.
        session: randomness and progress.
        public: posteriors from features.
        self_training: whether features are learned a second time, from what was decided, before a last
            decision.
    """

    def __init__(
        self, graph: Graph, session: Session, public: CrossFitPosteriors, *, self_training: bool
    ) -> None:
        """Begin with the public posteriors as the prior."""
        self._graph, self._session, self._self_training = graph, session, self_training
        self._public, self._prior = public, public

    @property
    def distilled(self) -> CrossFitPosteriors | None:
        """The posteriors that imitate what was decided; None where nothing was distilled."""
        return None if self._prior is self._public else self._prior

    def update(self, rounds: AnyAggregationRounds, number: int, affinity: Affinity) -> PosteriorEstimate:
        """Return what is decided after so many rounds, by how classes are connected."""
        decision = self._estimate(rounds, affinity)
        if not self._self_training:
            return decision
        with self._session.stage("classifier"):
            self._prior = distilled_posteriors(
                self._graph, self._session, self._public, decision.log, f"distilled-{number}"
            )
        return self._estimate(rounds, affinity)

    def _estimate(self, rounds: AnyAggregationRounds, affinity: Affinity) -> PosteriorEstimate:
        graph, session, prior = self._graph, self._session, self._prior.log
        train_nodes, val_nodes = (
            sample_training_nodes(graph, nodes_of(graph.mask(part))) for part in ("train", "val")
        )
        with session.stage("classifier"):
            rows, signal = rounds.combined_aggregates(affinity)
            shape, likely = fit_shape(rows, signal, prior.to(torch.float64), graph.y, train_nodes)
            inputs = rounds.inputs(likely, prior, rows, signal)
            heads, headed = fit_heads(likely, inputs, graph.y, train_nodes, val_nodes, session)
            experts = (headed, likely, self._public.log.to(torch.float64))
            gate, decided = fit_gate(experts, graph.y, val_nodes)
        return PosteriorEstimate(shape, likely, decided, tuple(heads), gate)

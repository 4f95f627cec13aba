"""Predicting graphs that were not fitted: what a fit knows of rows, and rounds of rows without a fit.

A fit's heads and gate know its own graph: how long rows are there, how noisy, and how many neighbors have a
label. The classes' affinities, the spread of degrees and the feature networks say as much about any graph of
the same kind, so its rows are read with the likelihood alone; its mean degree is fitted to the rows.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphveil.data import Graph
from graphveil.errors import ArtifactError
from graphveil.estimators.classcode.edge.likelihood import (
    Affinity,
    LikelihoodShape,
    fit_length,
    row_log_likelihood,
)
from graphveil.estimators.classcode.edge.rounds import AnyAggregationRounds
from graphveil.estimators.features.crossfit import CrossFitPosteriors, fits, mean_posterior, restore_networks
from graphveil.estimators.inference.prediction_cache import CachedPrediction
from graphveil.estimators.method import State, networks_state
from graphveil.estimators.session import Session
from graphveil.nn.layers import FeedForward

_MIN_PROBABILITY = 1e-30  # of a probability
_FEATURES, _IMITATING = "features", "imitating"


@dataclass(frozen=True, eq=False)
class InductivePredictor:
    """What a fit knows that holds for other graphs, too.

    Args:
        networks: the feature networks.
        distilled: those that imitate the fit's decisions, if there are any: the prior is the mean of both.
        unit_rows: whether they take features scaled to rows of norm one.
        affinity: between classes, and the mean degree.
        shape: the likelihood's.
    """

    networks: tuple[FeedForward, ...]
    distilled: tuple[FeedForward, ...]
    unit_rows: bool
    affinity: Affinity
    shape: LikelihoodShape

    @classmethod
    def from_fit(
        cls,
        public: CrossFitPosteriors,
        distilled: CrossFitPosteriors | None,
        affinity: Affinity,
        shape: LikelihoodShape,
    ) -> "InductivePredictor":
        """Return what a fit found: its feature networks, and what counts and likelihood came to."""
        also = () if distilled is None else distilled.networks
        return cls(public.networks, also, public.candidate.unit_rows, affinity, shape)

    def prior(self, graph: Graph) -> Tensor:
        """Return log-posteriors from features, float64, shape (N, C)."""
        public = mean_posterior(self.networks, graph.x, unit=self.unit_rows)
        if self.distilled:
            imitated = mean_posterior(self.distilled, graph.x, unit=self.unit_rows)
            public = ((public + imitated) / 2).log_softmax(dim=1)
        return public.to(torch.float64)

    def read(self, rounds: AnyAggregationRounds, prior: Tensor) -> Tensor:
        """Return log-posteriors of the nodes that have rows, from their features and rows."""
        rows, signal = rounds.combined_aggregates(self.affinity, unlabeled=True)
        fitted = fit_length(rows, signal, self.shape, prior)
        likelihood = row_log_likelihood(rows, fitted, self.shape.spread, self.shape.overdispersion)
        return (prior + self.shape.temperature * likelihood).log_softmax(dim=1)

    def predict(
        self,
        rounds: AnyAggregationRounds,
        graph: Graph,
        session: Session,
        kept: CachedPrediction | None,
        *,
        previous: bool,
    ) -> Tensor:
        """Ask all rounds and return probabilities, of nodes that are kept as they are, (N, C).

        Args:
            rounds: rounds that have not begun.
            graph: what they ask.
            session: has the randomness of estimates.
            kept: what is known of the first nodes, which speak with it.
            previous: whether a second round's weights read what the first one said.
        """
        prior = self.prior(graph)
        old = prior[:0] if kept is None else kept.proba.to(torch.float64).clamp_min(_MIN_PROBABILITY).log()
        new = prior[len(old) :]
        seen = prior
        for number, _ in enumerate(rounds.hops, start=1):
            generator = session.streams.torch(f"weighed-pairs-{number}")
            rounds.aggregate(torch.cat([old, new]), seen, generator)
            new = self.read(rounds, prior[len(old) :])
            seen = torch.cat([old, new]) if previous else prior
        proba = new.exp().to(torch.float32)
        return proba if kept is None else torch.cat([kept.proba, proba])

    def state(self) -> State:
        """Return it as tensors by name."""
        shape = (self.shape.spread, self.shape.overdispersion, self.shape.temperature)
        numbers = (self.affinity.mean_degree, *shape, float(self.unit_rows))
        return {
            "affinity": self.affinity.neighbors,
            "numbers": torch.tensor(numbers, dtype=torch.float64),
            **networks_state(_FEATURES, self.networks),
            **networks_state(_IMITATING, self.distilled),
        }

    @classmethod
    def restore(cls, state: State, features: int, classes: int) -> "InductivePredictor":
        """Return what :meth:`state` was taken from.

        Raises:
            ArtifactError: it does not read so many features, or tell so many classes apart.
        """
        networks, distilled = (restore_networks(state, part) for part in (_FEATURES, _IMITATING))
        whole = all(fits(some, features, classes) for some in (networks, distilled or networks))
        table, numbers = state["affinity"], state["numbers"]
        whole &= table.shape == (classes, classes) and bool((table > 0).all() & (numbers[:-1] >= 0).all())
        if not whole:
            raise ArtifactError(
                f"the model's weights are not those of {features} features and {classes} classes; take them "
                "from the original run"
            )
        degree, spread, overdispersion, temperature, unit = numbers.tolist()
        shape = LikelihoodShape(spread, overdispersion, temperature)
        return cls(networks, distilled, bool(unit), Affinity(table, degree), shape)

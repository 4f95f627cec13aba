"""How one query is asked in an audit of its plan, by whom and with what chance, and what canaries say."""

import math
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import ndtri
from torch import Tensor

from graphveil.audit.bounds import LowerBound, repeated_runs
from graphveil.audit.summed import summed_gaussian
from graphveil.audit.zero_noise import single_query_plan, zero_noise_plan
from graphveil.data import Adjacency
from graphveil.ledger import MemoryLedger
from graphveil.privacy import Event, Gaussian, Unit, privacy_curve
from graphveil.release import Release, ReleaseKey, ReleasePlan
from graphveil.release.query import Query

BLUR = 0.08  # how far below mu its bound may lie on average, relative
_MAX_ROUNDS = 64

Floats = npt.NDArray[np.float64]
Coins = npt.NDArray[np.bool_]

_PAPER = "it is as published, and known not to keep its claim"
WITHOUT_CANARIES = {  # kinds of queries that no canary has a place of its own in
    "TreeSearchQuery": (
        "a random walk over trees, which hides an edge far better than its bound says: no count of runs "
        "comes near"
    ),
    "ChunkDensityQuery": _PAPER,
    "ChunkResponseQuery": _PAPER,
    "SeededCellsQuery": _PAPER,
    "SeededResponseQuery": _PAPER,
    "SeededTotalQuery": _PAPER,
}


@dataclass(frozen=True, eq=False)
class CanaryContext:
    """What canaries are planted in: how one query is asked, by whom, and with what chance.

    Args:
        plan: whose query, unit, sampler and delta are meant.
        confidence: of each bound.
        rng: of the coins.
        group: the public group of the records that are planted.
        pair: the public groups of the two ends of an edge.
        seed: of reproducible noise, for tests; fresh noise by default.
    """

    plan: ReleasePlan
    confidence: float
    rng: np.random.Generator
    group: int = 0
    pair: tuple[int, int] = (0, 0)
    seed: int | None = None

    @property
    def unit(self) -> Unit:
        """What is protected."""
        return self.plan.unit

    def coins(self, count: int) -> Coins:
        """Return who is in."""
        return self.rng.random(count) < 0.5

    def key(self) -> ReleaseKey:
        """Return a key for one release."""
        if self.seed is None:
            return ReleaseKey.fresh()
        return ReleaseKey.from_seed(self.seed + int(self.rng.integers(1 << 30)), "audit")

    def noisy(self, query: Query, edges: Adjacency, groups: Tensor | None, data: Any) -> Floats:
        """Ask the query as the plan does."""
        return _run_query(single_query_plan(self.plan, query), edges, groups, data, self.key())

    def rounds(self, count: int, mu: float) -> int:
        """Return how many releases of so many canaries a bound on mu needs."""
        needed = (2 * float(ndtri(self.confidence)) / (BLUR * max(mu, 1e-3))) ** 2
        return max(1, min(_MAX_ROUNDS, math.ceil(needed / count)))

    def exact(self, query: Query, edges: Adjacency, groups: Tensor | None, data: Any) -> Floats:
        """Ask it without noise."""
        return _run_query(zero_noise_plan(self.unit, (query,)), edges, groups, data, None)

    def gaussian(self, scores: Floats, present: Coins) -> LowerBound:
        """Return the bound from scores of canaries that are in and out."""
        return summed_gaussian(
            scores[present], scores[~present], delta=self.plan.delta, confidence=self.confidence
        )

    def counted(self, detected: Coins, present: Coins) -> LowerBound:
        """Return the bound from counts of canaries that are heard, in and out."""
        tp, fp = int(detected[present].sum()), int(detected[~present].sum())
        inside = int(present.sum())
        return repeated_runs(tp, inside, fp, len(present) - inside, confidence=self.confidence)


def _run_query(
    plan: ReleasePlan, edges: Adjacency, groups: Tensor | None, data: Any, key: ReleaseKey | None
) -> Floats:
    answer = Release.open(plan, edges, groups, budget=MemoryLedger(), key=key, label="audit").answer(data)
    return np.asarray(answer.to(dtype=torch.float64).numpy())


@dataclass(frozen=True, eq=False)
class CanaryResult:
    """What canaries say of one query: its name, its event as certified, the bound, and what was claimed."""

    stage: str
    canaries: int
    certified: Event
    claimed: float
    bound: LowerBound


@singledispatch
def insert_canaries(query: Query, context: CanaryContext) -> CanaryResult | str:
    """Return what canaries in a query say, or why there are none.

    A new kind of query registers here; a kind that cannot have canaries stands in ``WITHOUT_CANARIES`` with
    its reason.
    """
    return WITHOUT_CANARIES[type(query).__name__]


def planted(
    query: Query, context: CanaryContext, count: int, certified: Event, bound: LowerBound
) -> CanaryResult:
    """Return what so many canaries certify, beside the query's own price."""
    claimed = privacy_curve(query.event(context.unit)).epsilon(context.plan.delta)
    return CanaryResult(query.stage, count, certified, claimed, bound)


def of_scores(
    query: Query, context: CanaryContext, scores: list[Floats], present: list[Coins]
) -> CanaryResult:
    """Return what scores of Gaussian canaries certify, release by release."""
    bound = context.gaussian(np.concatenate(scores), np.concatenate(present))
    return planted(query, context, sum(map(len, scores)), Gaussian(bound.mu or 0.0), bound)

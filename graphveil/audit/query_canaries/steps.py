"""Canaries in training steps: gradients that are the axes, each with a coordinate of its own."""

import math
from dataclasses import dataclass, replace

import numpy as np

from graphveil.audit.bounds import LowerBound
from graphveil.audit.query_canaries.context import (
    BLUR,
    CanaryContext,
    CanaryResult,
    Coins,
    Floats,
    insert_canaries,
    planted,
)
from graphveil.audit.summed import largest_multiplier
from graphveil.mechanisms import StepNoise
from graphveil.privacy import Event, Gaussian, PoissonGaussian, privacy_curve
from graphveil.privacy.events import Relation
from graphveil.release import DPSGDQuery, EdgeAttentionQuery, TreeStepsQuery
from graphveil.release.keys import canonical
from graphveil.release.query import Query

_COORDINATES = 1 << 11
_MAX_SCORES = 1 << 24


@insert_canaries.register
def _of_records(query: DPSGDQuery, context: CanaryContext) -> CanaryResult | str:
    """Records whose clipped gradients are the axes."""
    if isinstance(query, TreeStepsQuery) and query.sampling_rate < 1:
        return (
            "its price is that of opposite gradients at several roots, of which a batch holds a random number"
        )
    if query.groups > 1 and not query.pays[context.group]:
        return "records of this group are not trained on"
    if query.reach and query.sampling_rate < 1:
        return (
            "its price counts every batch as if it held all gradients that read a record, and no sampled "
            "batch comes near that"
        )
    wide = replace(query, parameters=_COORDINATES)  # the same law, with room for canaries
    noise = wide.randomness(context.key().query_key(canonical({"audit": query.stage})))
    if isinstance(query, TreeStepsQuery):
        return _of_all(query, context, noise, query.sensitivity(context.unit) / query.clip)
    if query.sampling_rate == 1:
        own = 2 * query.reach + query.pays[context.group if query.groups > 1 else 0]
        return _of_all(query, context, noise, own * getattr(context.unit, "change", 1.0))
    relation: Relation = getattr(context.unit, "relation", "add_remove")
    claimed = PoissonGaussian(query.noise_multiplier, query.sampling_rate, query.steps, relation)
    return _of_samples(query, context, noise, claimed)


@insert_canaries.register
def _of_edges(query: EdgeAttentionQuery, context: CanaryContext) -> CanaryResult | str:
    """Targets whose clipped gradients are the axes, and the opposite ones with the edge."""
    wide = replace(query, dim=math.ceil(math.sqrt(_COORDINATES / 2)))  # the same law, with room
    noise = wide.randomness(context.key().query_key(canonical({"audit": query.stage})))
    claimed = query.event(context.unit)
    assert isinstance(claimed, PoissonGaussian)
    if claimed.steps > query.steps:
        return "both ends learn, and are priced as if in batches of their own"
    return _of_samples(query, context, noise, claimed)


def _of_all(query: Query, context: CanaryContext, noise: StepNoise, change: float) -> CanaryResult:
    """Every record is in every batch: one Gaussian, of ``change`` clipping norms a step."""
    steps: int = query.steps  # type: ignore[attr-defined]
    seen = _StepScores.draw(query, context, noise, 1.0, change)
    bound = context.gaussian(seen.scores.ravel(), seen.present.ravel())
    whole = Gaussian((bound.mu or 0.0) * math.sqrt(steps))
    return _restated(query, context, seen.scores.size, whole, replace(bound, mu=whole.mu))


def _of_samples(
    query: Query, context: CanaryContext, noise: StepNoise, claimed: PoissonGaussian
) -> CanaryResult:
    """Batches are samples: the largest multiplier that scores do not reject, composed as is claimed.

    Under REPLACE both neighbors are in the batch, and move it in opposite directions: the multiplier that
    is certified of one of them is that of both.
    """
    z, q = claimed.noise_multiplier, claimed.sampling_rate
    seen = _StepScores.draw(query, context, noise, q)
    present = seen.present
    largest = largest_multiplier(seen.scores[present], seen.scores[~present], z, q, 1 - context.confidence)
    certified: Event = replace(claimed, noise_multiplier=largest) if math.isfinite(largest) else Gaussian(0.0)
    bound = LowerBound(
        epsilon=0.0,
        delta=context.plan.delta,
        confidence=context.confidence,
        max_certifiable=math.inf,
        method="likelihood ratio of steps",
    )
    return _restated(query, context, seen.scores.size, certified, bound)


def _restated(
    query: Query, context: CanaryContext, count: int, certified: Event, bound: LowerBound
) -> CanaryResult:
    """Return it with epsilon for all steps."""
    epsilon = privacy_curve(certified).epsilon(context.plan.delta)
    return planted(query, context, count, certified, replace(bound, epsilon=epsilon))


@dataclass(frozen=True, eq=False)
class _StepScores:
    """What single steps say of records: scores in noise units, and who is in, (steps, coordinates)."""

    scores: Floats
    present: Coins

    @classmethod
    def draw(
        cls, query: Query, context: CanaryContext, noise: StepNoise, rate: float, change: float = 1.0
    ) -> "_StepScores":
        """Draw as many steps as a bound on the multiplier needs; a record moves one by ``change`` norms."""
        mu_per_score = rate * math.sqrt(
            math.expm1(min((change / query.noise[0]) ** 2, 30.0))
        )  # by one score, as a mu
        needed = (2 * 3.5 / (BLUR * mu_per_score)) ** 2
        steps = math.ceil(min(max(needed, 1 << 16), _MAX_SCORES) / _COORDINATES)
        present = context.coins(steps * _COORDINATES).reshape(steps, -1)
        scores = np.empty((steps, _COORDINATES))
        for step in range(steps):
            inside = np.zeros(_COORDINATES)
            inside[noise.batch(step, _COORDINATES).numpy()] = 1.0
            drawn = np.asarray(noise.noise(step), dtype=np.float64)[:_COORDINATES]
            scores[step] = (inside * present[step] * change * noise.steps + drawn) / noise.sigma
        return cls(scores, present)

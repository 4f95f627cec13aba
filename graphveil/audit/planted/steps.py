"""Canaries in training steps: gradients that are the axes, each with a coordinate of its own."""

import math
from dataclasses import dataclass, replace

import numpy as np

from graphveil.audit.bounds import LowerBound
from graphveil.audit.planted.asking import BLUR, Asking, Coins, Floats, Planted, plant, planted
from graphveil.audit.summed import largest_multiplier
from graphveil.mechanisms import StepNoise
from graphveil.privacy import Event, Gaussian, PoissonGaussian, privacy_curve
from graphveil.privacy.events import Relation
from graphveil.release import DPSGDQuery, EdgeAttentionQuery, TreeStepsQuery
from graphveil.release.keys import canonical
from graphveil.release.query import Query

_COORDINATES = 1 << 11
_MOST_SCORES = 1 << 24


@plant.register
def _of_records(query: DPSGDQuery, asking: Asking) -> Planted | str:
    """Records whose clipped gradients are the axes."""
    if isinstance(query, TreeStepsQuery) and query.sampling_rate < 1:
        return (
            "its price is that of opposite gradients at several roots, of which a batch holds a random number"
        )
    if query.groups > 1 and not query.pays[asking.group]:
        return "records of this group are not trained on"
    if query.reach and query.sampling_rate < 1:
        return (
            "its price counts every batch as if it held all gradients that read a record, and no sampled "
            "batch comes near that"
        )
    wide = replace(query, parameters=_COORDINATES)  # the same law, with room for canaries
    noise = wide.randomness(asking.key().query_key(canonical({"audit": query.stage})))
    if isinstance(query, TreeStepsQuery):
        return _of_all(query, asking, noise, query.sensitivity(asking.unit) / query.clip)
    if query.sampling_rate == 1:
        own = 2 * query.reach + query.pays[asking.group if query.groups > 1 else 0]
        return _of_all(query, asking, noise, own * getattr(asking.unit, "change", 1.0))
    relation: Relation = getattr(asking.unit, "relation", "add_remove")
    claimed = PoissonGaussian(query.noise_multiplier, query.sampling_rate, query.steps, relation)
    return _of_samples(query, asking, noise, claimed)


@plant.register
def _of_edges(query: EdgeAttentionQuery, asking: Asking) -> Planted | str:
    """Targets whose clipped gradients are the axes, and the opposite ones with the edge."""
    wide = replace(query, dim=math.ceil(math.sqrt(_COORDINATES / 2)))  # the same law, with room
    noise = wide.randomness(asking.key().query_key(canonical({"audit": query.stage})))
    claimed = query.event(asking.unit)
    assert isinstance(claimed, PoissonGaussian)
    if claimed.steps > query.steps:
        return "both ends learn, and are priced as if in batches of their own"
    return _of_samples(query, asking, noise, claimed)


def _of_all(query: Query, asking: Asking, noise: StepNoise, change: float) -> Planted:
    """Every record is in every batch: one Gaussian, of ``change`` clipping norms a step."""
    steps: int = query.steps  # type: ignore[attr-defined]
    seen = _Seen.of(query, asking, noise, 1.0, change)
    bound = asking.gaussian(seen.scores.ravel(), seen.present.ravel())
    whole = Gaussian((bound.mu or 0.0) * math.sqrt(steps))
    return _restated(query, asking, seen.scores.size, whole, replace(bound, mu=whole.mu))


def _of_samples(query: Query, asking: Asking, noise: StepNoise, claimed: PoissonGaussian) -> Planted:
    """Batches are samples: the largest multiplier that scores do not reject, composed as is claimed.

    Under REPLACE both neighbours are in the batch, and move it in opposite directions: the multiplier that
    is certified of one of them is that of both.
    """
    z, q = claimed.noise_multiplier, claimed.sampling_rate
    seen = _Seen.of(query, asking, noise, q)
    present = seen.present
    largest = largest_multiplier(seen.scores[present], seen.scores[~present], z, q, 1 - asking.confidence)
    certified: Event = replace(claimed, noise_multiplier=largest) if math.isfinite(largest) else Gaussian(0.0)
    bound = LowerBound(
        epsilon=0.0,
        delta=asking.plan.delta,
        confidence=asking.confidence,
        ceiling=math.inf,
        how="likelihood ratio of steps",
    )
    return _restated(query, asking, seen.scores.size, certified, bound)


def _restated(query: Query, asking: Asking, count: int, certified: Event, bound: LowerBound) -> Planted:
    """Return it with epsilon for all steps."""
    epsilon = privacy_curve(certified).epsilon(asking.plan.delta)
    return planted(query, asking, count, certified, replace(bound, epsilon=epsilon))


@dataclass(frozen=True, eq=False)
class _Seen:
    """What single steps say of records: scores in noise units, and who is in, (steps, coordinates)."""

    scores: Floats
    present: Coins

    @classmethod
    def of(cls, query: Query, asking: Asking, noise: StepNoise, rate: float, change: float = 1.0) -> "_Seen":
        """Draw as many steps as a bound on the multiplier needs; a record moves one by ``change`` norms."""
        told = rate * math.sqrt(
            math.expm1(min((change / query.noise[0]) ** 2, 30.0))
        )  # by one score, as a mu
        needed = (2 * 3.5 / (BLUR * told)) ** 2
        steps = math.ceil(min(max(needed, 1 << 16), _MOST_SCORES) / _COORDINATES)
        present = asking.coins(steps * _COORDINATES).reshape(steps, -1)
        scores = np.empty((steps, _COORDINATES))
        for step in range(steps):
            inside = np.zeros(_COORDINATES)
            inside[noise.batch(step, _COORDINATES).numpy()] = 1.0
            drawn = np.asarray(noise.noise(step), dtype=np.float64)[:_COORDINATES]
            scores[step] = (inside * present[step] * change * noise.steps + drawn) / noise.sigma
        return cls(scores, present)

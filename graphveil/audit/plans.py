"""The audit of a plan: canaries are inserted into each of its queries."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.audit.bounds import CONFIDENCE, _check_confidence
from graphveil.audit.query_canaries import CanaryContext, CanaryResult, insert_canaries
from graphveil.core.accounting.accountant import privacy_curve
from graphveil.core.events import ByGroup, Composed, Event, PairwiseGaussian, compose
from graphveil.core.plan import ReleasePlan
from graphveil.core.query import Query, by_group
from graphveil.core.unit import NodeUnit, Unit


@checked
@dataclass(frozen=True, eq=False)
class PlanAudit:
    """Lower bound on the epsilon of a plan, from canaries in its queries.

    Args:
        epsilon: Lower bound on epsilon at ``delta``, composed of the certified events of all queries.
        claimed: Epsilon of the plan at its delta.
        delta: Delta of the plan.
        confidence: Confidence of the bound, over all queries together.
        planted: Result of each query with canaries.
        without_canaries: Reasons for queries without canaries, by stage. They count as if they revealed
            nothing.
    """

    epsilon: float
    claimed: float
    delta: float
    confidence: float
    planted: tuple[CanaryResult, ...]
    without_canaries: Mapping[str, str]

    @property
    def is_valid(self) -> bool:
        """Whether the bound is at most the claim; a larger bound proves a fault."""
        return self.epsilon <= self.claimed

    @property
    def share(self) -> float:
        """The bound as a share of the claim."""
        return self.epsilon / self.claimed if self.claimed else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "epsilon_at_least": self.epsilon,
            "claimed": self.claimed,
            "delta": self.delta,
            "confidence": self.confidence,
            "share": self.share,
            "valid": self.is_valid,
            "stages": [
                {
                    "stage": one.stage,
                    "canaries": one.canaries,
                    "epsilon_at_least": one.bound.epsilon,
                    "claimed": one.claimed,
                    "mu_at_least": one.bound.mu,
                    "max_certifiable_epsilon": most if math.isfinite(most) else None,
                    "bound": one.bound.method,
                }
                for one, most in ((one, one.bound.max_certifiable) for one in self.planted)
            ],
            "without_canaries": dict(self.without_canaries),
        }


@checked
def audit_plan(
    plan: ReleasePlan, *, confidence: float = CONFIDENCE, seed: int = 0, unsafe_noise_seed: int | None = None
) -> PlanAudit:
    """Insert canaries into every query of a plan, and compose the events that they certify.

    The release path answers each query as in the plan, on graphs of canaries alone. The composition of the
    certified events is a lower bound because one neighbor is the worst in each of them: an edge between the
    same two groups is in all hops, and a training record of one group also sends. The group with the largest
    bound counts.

    Args:
        plan: Plan to audit.
        confidence: Confidence of all bounds together.
        seed: Seed of the places and coins of canaries.
        unsafe_noise_seed: Seed of reproducible noise, for tests; secret noise by default.

    Returns:
        The composed bound, and the result of each query.

    Raises:
        ConfigError: If an argument is out of range.

    Privacy:
        Reads: the plan and synthetic canaries only. Charges: nothing. The result is public.

    >>> from graphveil.privacy import UndirectedEdge
    >>> from graphveil.core.plan import hops
    >>> plan = ReleasePlan(UndirectedEdge(), hops(1.0, 2, 16), delta=1e-5)
    >>> found = audit_plan(plan, unsafe_noise_seed=0)
    >>> found.is_valid, found.share > 0.9
    (True, True)
    """
    _check_confidence(confidence)
    checks.integer_at_least(0, seed=seed, unsafe_noise_seed=unsafe_noise_seed or 0)
    groups = range(max(query.groups for query in plan.queries) if isinstance(plan.unit, NodeUnit) else 1)
    num_tests = len(set(plan.queries)) * len(groups)
    rng, pair = np.random.default_rng(seed), _worst_pair(plan)
    audits = []
    for group in groups:
        context = CanaryContext(plan, 1 - (1 - confidence) / num_tests, rng, group, pair, unsafe_noise_seed)
        found = {query: insert_canaries(query, context) for query in dict.fromkeys(plan.queries)}
        planted = {query: one for query, one in found.items() if isinstance(one, CanaryResult)}
        bounds = [0.0]
        for path in plan.paths:  # a release answers one of the alternatives, so the worst one counts
            queries = [plan.queries[k] for k in path if plan.queries[k] in planted]
            events = [_charged(planted[query].certified, query, plan.unit) for query in queries]
            bounds += [privacy_curve(compose(*events)).epsilon(plan.delta)] if events else []
        without = {query.describe().stage: one for query, one in found.items() if isinstance(one, str)}
        results = tuple(planted.values())
        audits.append(PlanAudit(max(bounds), plan.epsilon, plan.delta, confidence, results, without))
    return max(audits, key=lambda audit: audit.epsilon)


def _charged(certified: Event, query: Query, unit: Unit) -> Event:
    """Return a certified event for the parts of node pairs that the query is charged to."""
    charged = query.event(unit)
    if isinstance(unit, NodeUnit) or not isinstance(charged, ByGroup):
        return certified  # of the group of records that is audited
    return by_group(charged.partition, tuple(part != Composed(()) for part in charged.events), certified)


def _worst_pair(plan: ReleasePlan) -> tuple[int, int]:
    """Return the groups of two ends between which an edge has the largest cost over all queries."""
    tables = [
        np.array(part.mu_squared) for part in compose(plan.event).events if isinstance(part, PairwiseGaussian)
    ]
    size = max((len(table) for table in tables), default=1)
    total = sum((np.broadcast_to(table, (size, size)) for table in tables), np.zeros((size, size)))
    here, there = np.unravel_index(int(total.argmax()), total.shape)
    return int(here), int(there)

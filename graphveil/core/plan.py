"""A release plan: an ordered list of queries with one privacy cost, and its calibration to a budget."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import accumulate, groupby, pairwise

from graphveil._util import checks
from graphveil._util.display import Facts
from graphveil._util.figures import format_epsilon_delta
from graphveil.core.accounting.accountant import (
    NoPrivacyCurve,
    adaptive_choice,
    privacy_curve,
    search_interval,
    total_mu,
)
from graphveil.core.accounting.gaussian import DELTA_RANGE, calibrate_mu, check_proved_delta, require_delta
from graphveil.core.events import Event, compose
from graphveil.core.noise.discrete_gaussian import (
    DiscreteGaussian,
    IntegerNoise,
    RoundedGaussian,
    choose_sampler,
)
from graphveil.core.queries.neighbor_sums import SIMILARITY_GRID_BITS, GroupWeights, NeighborSumQuery
from graphveil.core.queries.weights import Similarity
from graphveil.core.query import GRID_BITS
from graphveil.core.query import Query as Query  # re-exported for plans
from graphveil.core.unit import UndirectedEdge, Unit
from graphveil.errors import CalibrationError, ConfigError


@dataclass(frozen=True)
class ReleasePlan(Facts):
    """The ordered queries of a release, its sampler, and the share of delta that the sampler uses.

    ``slack`` is never less than what the sampler needs at the plan's own epsilon; a smaller value is raised.
    The exact sampler needs it once for any set of queries, including training steps.

    A plan with ``alternatives`` ends with several sequences of queries, of which a release answers one
    (``Release.choose``). They are the numbers of queries of each. The event charges the most expensive one.

    >>> plan = ReleasePlan(UndirectedEdge(), hops(0.2, 1, 16), delta=1e-7)
    >>> plan.mu, plan.epsilon < 1.0
    (0.2, True)
    """

    unit: Unit
    queries: tuple[Query, ...]
    delta: float
    slack: float = 0.0
    sampler: type[IntegerNoise] = field(default=DiscreteGaussian)
    alternatives: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        checks.within(0, 1, slack=self.slack)
        if self.alternatives:
            checks.integer_at_least(1, **{f"alternatives[{k}]": n for k, n in enumerate(self.alternatives)})
            if sum(self.alternatives) > len(self.queries):
                raise ConfigError("the alternatives contain more queries than the plan")
            _ = self.event  # which rejects noise without a bound
        if self.delta:
            check_proved_delta(self.delta)
        else:
            for query in self.queries:
                curve = privacy_curve(query.event(self.unit))
                if curve.epsilon(0.0) == math.inf and not isinstance(curve, NoPrivacyCurve):
                    require_delta(self.delta, type(query).__name__)
            return  # the samplers draw Gaussian noise, and no query uses it
        if not any(query.sampled for query in self.queries):
            return
        if self.sampler is RoundedGaussian and any(query.exact_noise for query in self.queries):
            raise CalibrationError(
                "RoundedGaussian cannot be used with training steps, whose noise needs its own share of "
                "delta. Use DiscreteGaussian."
            )
        grids = [query.grid for query in self.queries]
        if min(grid.contribution for grid in grids) < self.sampler.min_steps:
            raise CalibrationError(
                f"{self.sampler.__name__} needs at least {self.sampler.min_steps} grid steps per "
                "contribution. Use larger grid_bits in the queries."
            )
        if min(grid.min_noise for grid in grids) < self.sampler.min_sigma:
            raise CalibrationError(
                f"{self.sampler.__name__} needs a noise standard deviation of at least "
                f"{self.sampler.min_sigma:g} grid steps, and this plan has fewer. Use a smaller epsilon, "
                "or larger grid_bits in the queries."
            )
        epsilon = privacy_curve(self.event).epsilon(MAX_DELTA * self.delta)
        needed = slack_of(self.sampler, self.queries, self.unit, epsilon, self.delta)
        if needed > (1 - MAX_DELTA) * self.delta:
            raise CalibrationError(
                f"{self.sampler.__name__} would use {needed:.2g} of delta={self.delta:g}, which is more "
                "than a tenth. Use DiscreteGaussian, whose noise is exact."
            )
        object.__setattr__(self, "slack", max(self.slack, needed))

    def facts(self) -> list[tuple[str, str]]:
        rows = [
            ("privacy unit", str(self.unit.name)),
            ("privacy loss", format_epsilon_delta(self.epsilon, self.delta)),
        ]
        for query, equal in groupby(self.queries):
            description, times = query.describe(), len(list(equal))
            noise = ", ".join(f"{std:.4g}" for std in dict.fromkeys(description.noise))
            what = "noise standard deviation" if description.steps is None else "noise multiplier"
            steps = "" if description.steps is None else f", {description.steps:,} steps"
            often = "" if times == 1 else f", {times} times"
            rows.append((f"query: {description.stage}", f"{what} {noise}{steps}{often}"))
        return rows

    @cached_property
    def event(self) -> Event:
        return _event(self.unit, self.queries, self.alternatives)

    @property
    def paths(self) -> tuple[tuple[int, ...], ...]:
        """Indices of the queries that a release answers, for each alternative; of all queries without any.

        >>> plan = ReleasePlan(UndirectedEdge(), hops(0.2, 4, 16), delta=1e-7, alternatives=(2, 1))
        >>> plan.paths, round(plan.mu, 4)
        (((0, 1, 2), (0, 3)), 0.1732)
        """
        common = len(self.queries) - sum(self.alternatives)
        ends = list(accumulate(self.alternatives, initial=common))
        pairs = pairwise(ends) if self.alternatives else [(common, common)]
        return tuple((*range(common), *range(start, stop)) for start, stop in pairs)

    @property
    def mu(self) -> float:
        """The exact Gaussian-DP parameter of the release; 0 if it has none, as with sampled steps."""
        return total_mu(self.event) or 0.0

    @property
    def epsilon(self) -> float:
        """Epsilon of the release at its delta, including the sampler's slack."""
        return privacy_curve(self.event).epsilon(self.delta - self.slack)

    @property
    def linear_group_scaling(self) -> bool:
        """Whether k edges of one node may cost k times one edge: False only for rows of equal weight."""
        return any(query.linear_group_scaling for query in self.queries)

    @property
    def noise_std(self) -> list[float]:
        """One value per query: the noise of the rows that predictions use (the last group).

        For training steps it is the noise multiplier.
        """
        return [query.noise[-1] for query in self.queries]


def _event(unit: Unit, queries: tuple[Query, ...], alternatives: tuple[int, ...]) -> Event:
    """Return the event of queries, of which the last are alternatives with these numbers of queries."""
    events = [query.event(unit) for query in queries]
    common = len(events) - sum(alternatives)
    starts = accumulate(alternatives, initial=common)
    cases = [
        compose(*events[first : first + count]) for first, count in zip(starts, alternatives, strict=False)
    ]
    return compose(*events[:common], *([adaptive_choice(cases)] if cases else []))


MAX_DELTA = 0.9  # share of delta; the rest is for a sampler of finite resolution


def slack_of(
    sampler: type[IntegerNoise], queries: tuple[Query, ...], unit: Unit, epsilon: float, delta: float
) -> float:
    """Return the share of delta that a sampler uses: the maximum over its widest and its narrowest noise."""
    changed = sum(query.changed(unit) for query in queries)
    narrowest = min(query.grid.min_noise for query in queries)
    widest = max(narrowest, *(query.grid.max_noise for query in queries))
    return max(
        sampler(sigma).slack(epsilon=epsilon, delta=delta, changed=changed) for sigma in (widest, narrowest)
    )


def hops(
    mu: float, count: int, dim: int, unit: Unit | None = None, similarity: Similarity | None = None
) -> tuple[NeighborSumQuery, ...]:
    """Return equal hops with total privacy cost mu (for a unit, by default one undirected edge).

    Their weights are one, or those of a similarity.
    """
    bits = GRID_BITS if similarity is None else SIMILARITY_GRID_BITS
    unscaled = NeighborSumQuery(GroupWeights.unit_weights(), (1.0,), dim, bits, similarity)
    sigma = math.sqrt(count) * unscaled.sensitivity(unit or UndirectedEdge()) / mu
    return (replace(unscaled, sigma=(sigma,)),) * count


Queries = Callable[[float], tuple[Query, ...]]
Point = tuple[float, float]

_CLOSE = 2e-4  # relative tolerance of a certified epsilon below the target
_NEAR = 1e-5  # relative tolerance for one root
_ROUNDS = 6
_SLACKS = 4  # maximum number of increases of a slack
_STRETCHES = 120


def calibrate_plan(
    unit: Unit,
    epsilon: float,
    delta: float,
    queries: Queries,
    *,
    num_nodes: int,
    alternatives: tuple[int, ...] = (),
    fixed: Queries = lambda mu: (),
) -> ReleasePlan:
    """Return the plan that uses at most (epsilon, delta).

    The sampler is chosen at the first guess, its slack is reserved from delta, and the final plan is
    certified: its epsilon with the slack included is at most the target.

    If the queries are Gaussian and the scale is their total mu, the plan is exact and in closed form.
    Otherwise the largest scale is searched on coarse privacy-loss distributions and certified on fine ones,
    to 2e-4 of the target.

    Args:
        queries: Function that maps a scale to queries. Their cost increases with the scale: a total mu, or
            the inverse of a noise multiplier.
        fixed: Function that maps the Gaussian mu of the budget to Gaussian queries, which come first. They
            have a fixed part of it, and the other queries are calibrated to the rest.

    >>> from graphveil.core.plan import hops
    >>> from graphveil.privacy import UndirectedEdge
    >>> plan = calibrate_plan(UndirectedEdge(), 1.0, 1e-7, lambda mu: hops(mu, 1, 16), num_nodes=100)
    >>> round(plan.queries[0].sigma[0], 2), plan.epsilon <= 1.0
    (6.62, True)
    """
    checks.integer_at_least(0, num_nodes=num_nodes)
    checks.positive(epsilon=epsilon)
    checks.non_negative(delta=delta)
    if not delta:  # any scale: the noise is Gaussian, and so is the search target
        require_delta(delta, type(queries(calibrate_mu(epsilon, DELTA_RANGE[1]))[0]).__name__)
    check_proved_delta(delta)

    def at(scale: float, mu: float) -> tuple[Query, ...]:
        return (*fixed(mu), *queries(scale))

    mu = calibrate_mu(epsilon, delta)
    first = at(mu, mu)
    sampler = type(
        choose_sampler(  # the exact one, unless the grid is too coarse for it
            max(1.0, *(query.grid.max_noise for query in first)),
            epsilon=epsilon,
            delta=delta,
            changed=sum(query.changed(unit) for query in first),
            steps=int(min(query.grid.contribution for query in first)),
        )
    )

    def cost(scale: float, *, interval: float | None = None) -> float:
        try:
            event = _event(unit, at(scale, mu), alternatives)
        except (ConfigError, CalibrationError):  # no grid supports this little or this much noise
            return math.inf
        return privacy_curve(event, interval=interval).epsilon(delta - slack)

    # The slack depends slightly on the noise, and the noise on what the slack leaves of delta. Repeat until
    # the slack that was set aside covers the plan's own; one round is almost always enough.
    slack = slack_of(sampler, first, unit, epsilon, delta)
    for _ in range(1 + _SLACKS):
        mu = calibrate_mu(epsilon, delta, slack=slack)
        spent = total_mu(_event(unit, fixed(mu), ())) or 0.0
        final = at(math.sqrt(mu**2 - spent**2), mu)
        event = _event(unit, final, alternatives)
        total = total_mu(event)
        if total is None or not math.isclose(total, mu, rel_tol=1e-9):  # not Gaussian, or scaled differently
            scale = _largest_scale(cost, mu, epsilon, search_interval(event, mu))
            if scale is None:
                raise CalibrationError(
                    f"No noise scale reaches epsilon {epsilon:g} at delta {delta:g}: one query costs more at "
                    "any scale, the cost does not depend on the scale, or delta is too small for so many "
                    "training steps. Use a larger epsilon or delta, or fewer epochs."
                )
            final = at(scale, mu)
        plan = ReleasePlan(unit, final, delta, slack, sampler, alternatives)
        if plan.slack <= slack:
            break
        slack = plan.slack
    if not plan.epsilon <= epsilon * (1 + 1e-12):
        raise CalibrationError(
            f"The calibrated release would cost epsilon {plan.epsilon:g}, above the target "
            f"{epsilon:g}. This is a bug in graphveil; please report it. No privacy budget was spent."
        )
    return plan


def _largest_scale(cost: Callable[..., float], start: float, epsilon: float, interval: float) -> float | None:
    """Return the largest scale found whose certified cost is at most epsilon, or None.

    A coarse cost differs from the certified one by a factor that hardly depends on the scale. It is therefore
    searched for the target times that factor.
    """
    aim, near, best, factor = epsilon, start, 0.0, 2.0
    for _ in range(_ROUNDS):
        scale = _search(partial(cost, interval=interval), near, aim, factor)
        if scale is None:
            break
        certified = cost(scale)
        if certified <= epsilon:
            best = max(best, scale)
        if (1 - _CLOSE) * epsilon <= certified <= epsilon or not certified:
            break
        # An infinite cost gives no information about the factor.
        aim = aim / 2 if math.isinf(certified) else aim * (1 - _CLOSE / 4) * epsilon / certified
        near, factor = scale, 1.02
    return best or None


def _search(cost: Callable[[float], float], start: float, aim: float, factor: float) -> float | None:
    """Return a scale whose cost is at most the aim, and within 1e-5 of it unless the cost jumps there."""
    low = high = math.log(start)
    least = most = found = _excess(cost, start, aim)
    for _ in range(_STRETCHES):
        if found > 0:
            high, most = low, found
            low -= math.log(factor)
            least = found = _excess(cost, math.exp(low), aim)
        elif most <= 0:
            low, least = high, most
            high += math.log(factor)
            most = _excess(cost, math.exp(high), aim)
        else:
            return math.exp(_false_position(cost, aim, (low, least), (high, most)))
    return None


def _false_position(cost: Callable[[float], float], aim: float, low: Point, high: Point) -> float:
    """Narrow down where the cost exceeds the aim; return the lower end (Illinois rule, halving at jumps)."""
    (x, y), (end, over) = low, high
    kept = 0  # how often one end was kept: positive for the lower one, whose weight is then reduced
    while y < -_NEAR and end - x > _NEAR**2:
        left, right = abs(y) * 0.5 ** max(0, kept - 1), over * 0.5 ** max(0, -kept - 1)
        share = 0.5 if math.isinf(left) or math.isinf(right) else left / (left + right)
        middle = x + share * (end - x)
        found = _excess(cost, math.exp(middle), aim)
        if found > 0:
            end, over, kept = middle, found, max(0, kept) + 1
        else:
            x, y, kept = middle, found, min(0, kept) - 1
    return x


def _excess(cost: Callable[[float], float], scale: float, aim: float) -> float:
    found = cost(scale)
    return -math.inf if found == 0 else math.log(found / aim)

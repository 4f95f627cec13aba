"""What will be asked of the edges, with its price: frozen queries, a plan of them, and its calibration."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from graphveil import _check
from graphveil.aggregate.weights import GroupWeights
from graphveil.errors import CalibrationError
from graphveil.mechanisms import IntegerNoise, RoundedGaussian, choose_sampler
from graphveil.privacy import Event, PairwiseGaussian, Unit, calibrate_mu, compose, privacy_curve
from graphveil.privacy.accountant import total_mu

GRID_BITS = 10


@dataclass(frozen=True)
class HopQuery:
    """One noisy row a node: the weighted sum of its in-neighbours' vectors, each of norm at most one.

    ``sigma[h]`` is the noise's standard deviation in rows of group h, in units of a vector of norm one.
    """

    weights: GroupWeights
    sigma: tuple[float, ...]
    dim: int
    grid_bits: int = GRID_BITS

    def __post_init__(self) -> None:
        _check.integer_at_least(1, dim=self.dim)
        for sigma in self.sigma:
            _check.positive(sigma=sigma)

    def event(self, unit: Unit) -> PairwiseGaussian:
        """Return what the hop does to each pair of groups."""
        shifts = self.weights.shifts(unit, tuple(1 / s for s in self.sigma))
        return PairwiseGaussian(self.weights.partition, tuple(tuple(x * x for x in row) for row in shifts))

    def sensitivity(self, unit: Unit) -> float:
        """Return the L2 sensitivity before noise."""
        return self.weights.sensitivity(unit)

    def changed(self, unit: Unit) -> int:
        """Return how many coordinates one differing edge may change."""
        return 2 * self.dim

    def samples(self, num_nodes: int) -> int:
        """Return how many noise samples the query draws."""
        return num_nodes * self.dim

    @property
    def steps(self) -> float:
        """Grid steps in a contribution of norm one."""
        return 2.0**self.grid_bits / self.weights.largest


@dataclass(frozen=True)
class CellQuery:
    """Noisy counts of the edges inside the labelled groups, by the classes of their two ends.

    An undirected edge counts once, in one unordered cell; a differing edge moves one cell by one.
    """

    partition: str
    labelled: tuple[bool, ...]
    classes: int
    sigma: tuple[float, ...]
    grid_bits: int = GRID_BITS

    def __post_init__(self) -> None:
        _check.integer_at_least(2, classes=self.classes)
        for sigma in self.sigma:
            _check.positive(sigma=sigma)

    def event(self, unit: Unit) -> PairwiseGaussian:
        """Return what the counts do to each pair of groups."""
        cost = self.sigma[0] ** -2
        return PairwiseGaussian(
            self.partition, tuple(tuple(cost * (g and h) for h in self.labelled) for g in self.labelled)
        )

    def sensitivity(self, unit: Unit) -> float:
        """Return 1: one edge, one cell."""
        return 1.0

    def changed(self, unit: Unit) -> int:
        """Return 1: one edge, one cell."""
        return 1

    def samples(self, num_nodes: int) -> int:
        """Return how many noise samples the query draws at most."""
        return self.classes**2

    @property
    def steps(self) -> float:
        """Grid steps in one edge."""
        return 2.0**self.grid_bits


Query = HopQuery | CellQuery


@dataclass(frozen=True)
class ReleasePlan:
    """A release's queries in order, its sampler, and the share of delta that the sampler costs.

    >>> from graphveil.privacy import UndirectedEdge
    >>> plan = calibrate_plan(UndirectedEdge(), 1.0, 1e-7, lambda mu: hops(mu, 1, 16), num_nodes=100)
    >>> round(plan.queries[0].sigma[0], 2), plan.epsilon <= 1.0
    (6.62, True)
    """

    unit: Unit
    queries: tuple[Query, ...]
    delta: float
    slack: float = 0.0
    sampler: type[IntegerNoise] = field(default=RoundedGaussian)

    @property
    def event(self) -> Event:
        """The whole release as one event."""
        return compose(*(query.event(self.unit) for query in self.queries))

    @property
    def mu(self) -> float:
        """The exact Gaussian-DP parameter of the release."""
        return total_mu(self.event) or 0.0

    @property
    def epsilon(self) -> float:
        """Epsilon of the release at its delta, the sampler's slack included."""
        return privacy_curve(self.event).epsilon(self.delta - self.slack)

    @property
    def one_way(self) -> bool:
        """Whether any query weighs the two directions of an edge differently (a person's k edges add up)."""
        return any(isinstance(query, HopQuery) and not query.weights.symmetric for query in self.queries)

    @property
    def noise_std(self) -> list[float]:
        """One figure a query: the noise of the rows that predictions are read from (the last group)."""
        return [query.sigma[-1] for query in self.queries]


def hops(mu: float, count: int, dim: int, unit: Unit | None = None) -> tuple[HopQuery, ...]:
    """Return equal hops of weight one that together cost mu (for a unit, one undirected edge by default)."""
    from graphveil.privacy import UndirectedEdge

    weights = GroupWeights.one()
    sigma = math.sqrt(count) * weights.sensitivity(unit or UndirectedEdge()) / mu
    return (HopQuery(weights, (sigma,), dim),) * count


def calibrate_plan(
    unit: Unit,
    epsilon: float,
    delta: float,
    queries: Callable[[float], tuple[Query, ...]],
    *,
    num_nodes: int,
) -> ReleasePlan:
    """Return the plan that spends (epsilon, delta) and no more; ``queries`` maps a total mu to queries.

    The sampler is chosen at the first guess; its slack, taken generously, is set aside from delta; and the
    final plan is certified: its epsilon with the slack included is at most the target.
    """
    first = queries(calibrate_mu(epsilon, delta))
    changed = sum(query.changed(unit) for query in first)
    samples = sum(query.samples(num_nodes) for query in first)
    sigma = max(max(query.sigma) * query.steps for query in first)
    noise = choose_sampler(
        1.1 * sigma,
        epsilon=epsilon,
        delta=delta,
        changed=changed,
        samples=samples,
        steps=int(min(query.steps for query in first)),
    )
    slack = noise.slack(epsilon=epsilon, delta=delta, changed=changed)
    plan = ReleasePlan(
        unit, queries(calibrate_mu(epsilon, delta, slack=slack)), delta, slack, type(noise)
    )
    if not plan.epsilon <= epsilon * (1 + 1e-12) or max(max(q.sigma) * q.steps for q in plan.queries) > 1.1 * sigma:
        raise CalibrationError(
            f"the calibrated release would cost epsilon {plan.epsilon:g}, above the target {epsilon:g}; "
            "this is a defect of the library and nothing was spent"
        )
    return plan

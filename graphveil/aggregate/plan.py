"""What will be asked of the edges, with its price: frozen queries, a plan of them, and its calibration."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from graphveil import _check
from graphveil.aggregate.weights import GroupWeights
from graphveil.errors import CalibrationError, ConfigError
from graphveil.mechanisms import DiscreteGaussian, IntegerNoise, choose_sampler
from graphveil.privacy import (
    Event,
    PairwiseGaussian,
    UndirectedEdge,
    Unit,
    calibrate_mu,
    compose,
    privacy_curve,
)
from graphveil.privacy.accountant import total_mu

GRID_BITS = 10
MAX_GRID_BITS = 24  # float32 holds a contribution of one up to here
MAX_DIM = 1 << 20  # the exact sampler has blocks for so many coordinates of a row


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
        """Check every field."""
        _check.integer_at_least(1, dim=self.dim)
        _check.within(1, MAX_DIM, dim=self.dim)
        _check_noise(self.sigma, self.weights.groups, self.grid_bits)
        if self.weights.largest == 0:
            raise ConfigError(
                "every weight is zero: the hop would release noise alone; give some pair a weight"
            )

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

    @property
    def groups(self) -> int:
        """The number of groups that the weights tell apart."""
        return self.weights.groups

    @property
    def steps(self) -> float:
        """Grid steps in a vector of norm one: a power of two, so that going back to vectors rounds nothing.

        The largest contribution has between 2^(grid_bits - 1) and 2^grid_bits of them.
        """
        return 2.0 ** (self.grid_bits - math.ceil(math.log2(self.weights.largest)))


@dataclass(frozen=True)
class CellQuery:
    """Noisy counts of the edges inside the labelled groups, by the classes of their two ends.

    An undirected edge counts once, in one unordered cell; a differing edge moves one cell by one.
    ``sigma`` holds one number, the noise's standard deviation in edges.
    """

    partition: str
    labelled: tuple[bool, ...]
    classes: int
    sigma: tuple[float, ...]
    grid_bits: int = GRID_BITS

    def __post_init__(self) -> None:
        """Check every field."""
        _check.integer_at_least(2, classes=self.classes)
        _check_noise(self.sigma, 1, self.grid_bits)

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

    @property
    def groups(self) -> int:
        """The number of groups that the counts tell apart."""
        return len(self.labelled)

    @property
    def steps(self) -> float:
        """Grid steps in one edge."""
        return 2.0**self.grid_bits


Query = HopQuery | CellQuery


@dataclass(frozen=True)
class ReleasePlan:
    """A release's queries in order, its sampler, and the share of delta that the sampler costs.

    ``slack`` is never less than what the sampler needs at the plan's own epsilon; a smaller figure is raised.

    >>> plan = calibrate_plan(UndirectedEdge(), 1.0, 1e-7, lambda mu: hops(mu, 1, 16), num_nodes=100)
    >>> round(plan.queries[0].sigma[0], 2), plan.epsilon <= 1.0
    (6.62, True)

    Raises:
        CalibrationError: the sampler's slack leaves nothing of delta, or the grid is too coarse for it.
    """

    unit: Unit
    queries: tuple[Query, ...]
    delta: float
    slack: float = 0.0
    sampler: type[IntegerNoise] = field(default=DiscreteGaussian)

    def __post_init__(self) -> None:
        """Check that the sampler suits the grid, and set its slack aside."""
        if not self.queries:
            return
        if 2 ** min(query.grid_bits for query in self.queries) < self.sampler.min_steps:
            raise CalibrationError(
                f"{self.sampler.__name__} needs {self.sampler.min_steps} grid steps in the largest "
                "contribution; use a finer grid"
            )
        noise = self.sampler(max(max(query.sigma) * query.steps for query in self.queries))
        changed = sum(query.changed(self.unit) for query in self.queries)
        epsilon = privacy_curve(self.event).epsilon(MOST_DELTA * self.delta)
        needed = noise.slack(epsilon=epsilon, delta=self.delta, changed=changed)
        if needed > (1 - MOST_DELTA) * self.delta:
            raise CalibrationError(
                f"{self.sampler.__name__} would cost {needed:.2g} of delta={self.delta:g}, over a tenth; "
                "use DiscreteGaussian, whose noise is exact"
            )
        object.__setattr__(self, "slack", max(self.slack, needed))

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
        """Whether a person's k edges may add up to k times one edge: anything but rows of equal weight."""
        return any(
            isinstance(query, CellQuery) or not query.weights.symmetric or len(set(query.sigma)) > 1
            for query in self.queries
        )

    @property
    def noise_std(self) -> list[float]:
        """One figure a query: the noise of the rows that predictions are read from (the last group)."""
        return [query.sigma[-1] for query in self.queries]


MOST_DELTA = 0.9  # of delta; what a sampler of finite resolution may cost is the rest


def hops(mu: float, count: int, dim: int, unit: Unit | None = None) -> tuple[HopQuery, ...]:
    """Return equal hops of weight one that together cost mu (for a unit, one undirected edge by default)."""
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
    _check.integer_at_least(0, num_nodes=num_nodes)
    first = queries(calibrate_mu(epsilon, delta))
    sigma = 1.1 * max(max(query.sigma) * query.steps for query in first)
    changed = sum(query.changed(unit) for query in first)
    noise = choose_sampler(
        sigma,
        epsilon=epsilon,
        delta=delta,
        changed=changed,
        steps=2 ** min(query.grid_bits for query in first),
    )
    slack = noise.slack(epsilon=epsilon, delta=delta, changed=changed)
    final = queries(calibrate_mu(epsilon, delta, slack=slack))
    plan = ReleasePlan(unit, final, delta, slack, type(noise))
    generous = max(max(query.sigma) * query.steps for query in final) <= sigma
    if not (generous and plan.epsilon <= epsilon * (1 + 1e-12)):
        raise CalibrationError(
            f"the calibrated release would cost epsilon {plan.epsilon:g}, above the target {epsilon:g}; "
            "this is a defect of the library and nothing was spent"
        )
    return plan


def _check_noise(sigma: tuple[float, ...], groups: int, grid_bits: int) -> None:
    """Require one positive standard deviation a group, and a grid that the exact sums can hold."""
    if len(sigma) != groups:
        raise ConfigError(f"sigma has {len(sigma)} entries and needs {groups}: one for each group of rows")
    for value in sigma:
        _check.positive(sigma=value)
    _check.integer_at_least(1, grid_bits=grid_bits)
    _check.within(1, MAX_GRID_BITS, grid_bits=grid_bits)

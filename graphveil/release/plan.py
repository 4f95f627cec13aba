"""What will be asked, in order, as one release with one price."""

import math
from dataclasses import dataclass, field, replace

from graphveil._util import checks
from graphveil.errors import CalibrationError
from graphveil.mechanisms import DiscreteGaussian, IntegerNoise, RoundedGaussian
from graphveil.privacy import Event, UndirectedEdge, Unit, compose, privacy_curve
from graphveil.privacy.accountant import NoPrivacyCurve, total_mu
from graphveil.privacy.calibration import check_proved_delta, require_delta
from graphveil.release.query import GRID_BITS
from graphveil.release.query import Query as Query  # a plan's word, too
from graphveil.release.rows.group_weights import GroupWeights
from graphveil.release.rows.neighbor_sums import SIMILARITY_GRID_BITS, NeighborSumQuery
from graphveil.release.weights.base import Similarity


@dataclass(frozen=True)
class ReleasePlan:
    """A release's queries in order, its sampler, and the share of delta that the sampler costs.

    ``slack`` is never less than what the sampler needs at the plan's own epsilon; a smaller figure is raised.
    The exact sampler needs it once, whatever the queries, those for training steps included.

    >>> plan = ReleasePlan(UndirectedEdge(), hops(0.2, 1, 16), delta=1e-7)
    >>> plan.mu, plan.epsilon < 1.0
    (0.2, True)

    Raises:
        ConfigError: the slack is no share, or delta is 0 and a query needs more.
        CalibrationError: the sampler's slack leaves nothing of delta, or the grid is too coarse for it.
    """

    unit: Unit
    queries: tuple[Query, ...]
    delta: float
    slack: float = 0.0
    sampler: type[IntegerNoise] = field(default=DiscreteGaussian)

    def __post_init__(self) -> None:
        """Check that the sampler suits the grid, and set its slack aside."""
        checks.within(0, 1, slack=self.slack)
        if self.delta:
            check_proved_delta(self.delta)
        else:
            for query in self.queries:
                curve = privacy_curve(query.event(self.unit))
                if curve.epsilon(0.0) == math.inf and not isinstance(curve, NoPrivacyCurve):
                    require_delta(self.delta, type(query).__name__)
            return  # the samplers draw Gaussian noise, and no query has any
        if not any(query.sampled for query in self.queries):
            return
        if self.sampler is RoundedGaussian and any(query.exact_noise for query in self.queries):
            raise CalibrationError(
                "the noise of training steps is exact and has its own share of delta, which RoundedGaussian "
                "does not set aside; use DiscreteGaussian"
            )
        if min(query.contribution_steps for query in self.queries) < self.sampler.min_steps:
            raise CalibrationError(
                f"{self.sampler.__name__} needs {self.sampler.min_steps} grid steps in the largest "
                "contribution; raise grid_bits of the queries"
            )
        if min(query.min_noise_steps for query in self.queries) < self.sampler.min_sigma:
            raise CalibrationError(
                f"{self.sampler.__name__} needs {self.sampler.min_sigma:g} grid steps in the noise's "
                "standard deviation, and so little noise has fewer; use a smaller epsilon, or raise "
                "grid_bits of the queries"
            )
        epsilon = privacy_curve(self.event).epsilon(MAX_DELTA * self.delta)
        needed = slack_of(self.sampler, self.queries, self.unit, epsilon, self.delta)
        if needed > (1 - MAX_DELTA) * self.delta:
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
        """The exact Gaussian-DP parameter of the release; 0 if it has none, as with sampled steps."""
        return total_mu(self.event) or 0.0

    @property
    def epsilon(self) -> float:
        """Epsilon of the release at its delta, the sampler's slack included."""
        return privacy_curve(self.event).epsilon(self.delta - self.slack)

    @property
    def linear_group_scaling(self) -> bool:
        """Whether a person's k edges may add up to k times one edge: anything but rows of equal weight."""
        return any(query.linear_group_scaling for query in self.queries)

    @property
    def noise_std(self) -> list[float]:
        """One figure a query: the noise of the rows that predictions are read from (the last group).

        For training steps it is the noise multiplier.
        """
        return [query.noise[-1] for query in self.queries]


MAX_DELTA = 0.9  # of delta; what a sampler of finite resolution may cost is the rest


def slack_of(
    sampler: type[IntegerNoise], queries: tuple[Query, ...], unit: Unit, epsilon: float, delta: float
) -> float:
    """Return the share of delta that a sampler costs: the most over its widest and its narrowest noise."""
    changed = sum(query.changed(unit) for query in queries)
    min_noise_steps = min(query.min_noise_steps for query in queries)
    max_noise_steps = max(min_noise_steps, *(query.max_noise_steps for query in queries))
    return max(
        sampler(sigma).slack(epsilon=epsilon, delta=delta, changed=changed)
        for sigma in (max_noise_steps, min_noise_steps)
    )


def hops(
    mu: float, count: int, dim: int, unit: Unit | None = None, similarity: Similarity | None = None
) -> tuple[NeighborSumQuery, ...]:
    """Return equal hops that together cost mu (for a unit, one undirected edge by default).

    Their weights are one, or those of a similarity.
    """
    bits = GRID_BITS if similarity is None else SIMILARITY_GRID_BITS
    unscaled = NeighborSumQuery(GroupWeights.unit_weights(), (1.0,), dim, bits, similarity)
    sigma = math.sqrt(count) * unscaled.sensitivity(unit or UndirectedEdge()) / mu
    return (replace(unscaled, sigma=(sigma,)),) * count

"""A scalar mechanism on each feature, as papers use it.

``features=`` of a local method selects mechanisms of papers by name (``feature_mechanism``).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from graphveil._util import checks
from graphveil.core.noise.sampling import Draws, ExtraWords, Floats, Integers, Real, subsets
from graphveil.errors import ConfigError
from graphveil.mechanisms.features import (
    EvenAllocation,
    FeatureMechanism,
    LDPReports,
    Single,
    WeightedAllocation,
)
from graphveil.papers.scalar_mechanisms import SCALARS, ScalarMechanism, scalar


def feature_mechanism(
    name: str, *, theta: Sequence[float] | None, delta: float, **common: Any
) -> FeatureMechanism:
    """Return the mechanism of ``features=name``; those of numbers sample features, unless ``theta`` is given.

    >>> feature_mechanism("pm-sub", theta=None, delta=0.0, epsilon=6.0, dim=100).samples
    2
    """
    if name == "agm":
        from graphveil.papers.analytic_gaussian import AnalyticGaussian  # loads scipy

        return AnalyticGaussian(**common, delta=delta)
    allocation: Allocation = EvenAllocation() if name == "lpm" else SampledAllocation()
    if theta is not None:
        allocation = WeightedAllocation(theta)
    return PerFeature(**common, scalar="laplace" if name == "lpm" else name, allocation=allocation)


@dataclass(frozen=True)
class SampledAllocation:
    """Allocate epsilon / count to each of ``count`` features, drawn uniformly without replacement.

    The draw does not depend on the features. ``count`` None means max(1, min(d, floor(epsilon / 2.5))),
    which approximately minimizes the variance; it grows like d.

    >>> SampledAllocation().size(6.0, 100), SampledAllocation(3).size(6.0, 2)
    (2, 2)
    """

    count: int | None = None

    def __post_init__(self) -> None:
        if self.count is not None:
            checks.integer_at_least(1, count=self.count)

    def size(self, epsilon: float, dim: int) -> int:
        """Return the number of sampled features of ``dim``."""
        if self.count is not None:
            return min(self.count, dim)
        return dim if math.isinf(epsilon) else max(1, min(dim, int(epsilon / 2.5)))


Allocation = EvenAllocation | SampledAllocation | WeightedAllocation


@dataclass(frozen=True, kw_only=True)
class PerFeature(FeatureMechanism):
    """Divide the budget explicitly between features and apply a scalar mechanism to each.

    On the centered scale [-1, 1], with V the scalar mechanism's variance:

        EvenAllocation():           y_i at epsilon/d each;        Var = V_{epsilon/d}(x_i)
        WeightedAllocation(theta):  y_i at epsilon theta_i each;  Var = V_{epsilon theta_i}(x_i)
        SampledAllocation(k):       (d/k) y_i at epsilon/k for k of the features, 0 for the others;
                                    Var = (d/k) (V_{epsilon/k}(x_i) + x_i^2) - x_i^2

    and the estimate is unbiased. LPM of LPGNN is ``scalar="laplace"`` with ``EvenAllocation()``: noise of
    scale (beta - alpha) d/epsilon on every feature.

    Shapes: LDP reports have the numbers y, float32 (records, d or k), and indices if features are sampled.

    Args:
        epsilon, dim, bounds: Parameters of ``FeatureMechanism``.
        scalar: Name of the mechanism for numbers: ``"duchi"``, ``"piecewise"``, ``"pm-sub"``,
            ``"hybrid"``, ``"three-outputs"`` or ``"laplace"``.
        allocation: Budget allocation, ``EvenAllocation``, ``SampledAllocation`` or ``WeightedAllocation``.

    Raises:
        ConfigError: If a parameter is outside its range, or theta does not fit.

    Privacy:
        epsilon-LDP for the whole vector by composition. Which features are sampled does not depend on their
        values.

    >>> law = PerFeature(epsilon=1.0, dim=50, scalar="duchi", allocation=EvenAllocation())
    >>> round(float(law.variance(np.full((1, 50), 0.5))[0, 0]), 1)
    2500.2
    """

    scalar: str
    allocation: Allocation

    @cached_property
    def scalars(self) -> tuple[ScalarMechanism, ...]:
        """The mechanism of each feature, or a single one if all are the same."""
        if isinstance(self.allocation, WeightedAllocation):
            budgets = self.allocation.budgets(self.epsilon, self.dim).tolist()
            return tuple(scalar(self.scalar, budget) for budget in budgets)
        return (scalar(self.scalar, self.epsilon / self.samples),)

    @property
    def samples(self) -> int:
        """The number of features that a record reports."""
        if isinstance(self.allocation, SampledAllocation):
            return self.allocation.size(self.epsilon, self.dim)
        return self.dim

    def _check(self) -> None:
        checks.one_of(SCALARS, scalar=self.scalar)
        if not isinstance(self.allocation, EvenAllocation | SampledAllocation | WeightedAllocation):
            raise ConfigError("allocation must be Split(), Sample(count) or Weights(theta)")
        if isinstance(self.allocation, WeightedAllocation) and 0.0 in self.allocation.theta:
            raise ConfigError(
                "A feature of weight 0 cannot be estimated without bias. Give it a positive weight."
            )
        if not math.isinf(self.epsilon):
            _ = self.scalars  # checks that every feature's budget is positive

    def _empty(self, records: int) -> LDPReports:
        shape = (records, self.samples)
        indices = None if self.samples == self.dim else np.empty(shape, dtype=np.int32)
        return LDPReports(np.empty(shape, dtype=np.float32), indices)

    def _perturb(self, z: Real, rows: Integers, stream: Draws, out: LDPReports) -> None:
        k, each = self.samples, max(law.words for law in self.scalars)
        first = 0 if out.indices is None else k
        words = stream.words(rows, words_per_row=first + k * each)
        if out.indices is not None:
            out.indices[:] = subsets(words[:, :k], self.dim)
            z = np.take_along_axis(z, out.indices, axis=1)
        x, own = 2.0 * z.astype(np.float64) - 1, words[:, first:].reshape(len(rows), k, each)
        if len(self.scalars) == 1:
            out.values[:] = self.scalars[0].draw(x, own, ExtraWords(stream, rows, k))
            return
        for column, law in enumerate(self.scalars):
            one, place = slice(column, column + 1), ExtraWords(stream, rows, 1, column)
            out.values[:, one] = law.draw(x[:, one], own[:, one], place)

    def _reported_values(self, reports: LDPReports, out: Single) -> None:
        out[:] = 0.5 + self.dim / (2 * self.samples) * reports.values

    def _variance(self, z: Floats) -> Floats:
        x, more = 2 * z - 1, self.dim / self.samples
        if len(self.scalars) == 1:
            variance = self.scalars[0].variance(x)
        else:
            columns = [law.variance(x[:, column]) for column, law in enumerate(self.scalars)]
            variance = np.stack(columns, axis=1)
        return (more * (variance + x**2) - x**2) / 4

    def _worst(self) -> Floats:
        more = self.dim / self.samples
        return np.array([_largest(law, more) for law in self.scalars]) / 4


def _largest(law: ScalarMechanism, more: float) -> float:
    """Return the maximum of more (V(x) + x^2) - x^2: a parabola in |x|, as V is for every scalar mechanism.

    Three values determine it: its vertex, if that is between 0 and 1, or else an end.
    """
    size = np.array([0.0, 0.5, 1.0])
    start, middle, end = more * (law.variance(size) + size**2) - size**2
    bend, slope = 2 * (start - 2 * middle + end), 4 * middle - 3 * start - end
    top = -slope / (2 * bend) if bend < 0 else 0.0
    at_top = start + slope * top + bend * top**2 if 0 < top < 1 else start
    return float(max(start, at_top, end))

"""A scalar mechanism on every feature, or on a sample of them."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from graphveil._util import checks
from graphveil.errors import ConfigError
from graphveil.mechanisms._draws import Draws, ExtraWords, Floats, Integers, Real, subsets
from graphveil.mechanisms.local.allocation import (
    Allocation,
    EvenAllocation,
    SampledAllocation,
    WeightedAllocation,
)
from graphveil.mechanisms.local.features import FeatureMechanism, LDPReports, Single
from graphveil.mechanisms.scalar.base import ScalarMechanism
from graphveil.mechanisms.scalar.table import SCALARS, scalar


@dataclass(frozen=True, kw_only=True)
class PerFeature(FeatureMechanism):
    """Spend one budget on many features with a mechanism for numbers, by an explicit allocation.

    On the centered scale [-1, 1], with V the scalar mechanism's variance:

        Split():         y_i at epsilon/d each;               Var = V_{epsilon/d}(x_i)
        Weights(theta):  y_i at epsilon theta_i each;         Var = V_{epsilon theta_i}(x_i)
        Sample(k):       (d/k) y_i at epsilon/k for k of the features, 0 for the others;
                         Var = (d/k) (V_{epsilon/k}(x_i) + x_i^2) - x_i^2

    and the estimate is unbiased. LPM of LPGNN is ``scalar="laplace"`` with ``EvenAllocation()``: noise of
    scale (beta - alpha) d/epsilon on every feature.

    Guarantee: epsilon-LDP for the whole vector by composition; which features are sampled does not depend on
    their values.

    Shapes: reports have the numbers y, float32 (records, d or k), and indices if features are sampled.

    Args:
        epsilon, dim, bounds: see :class:`FeatureMechanism`.
        scalar: the name of the mechanism for numbers: ``"duchi"``, ``"piecewise"``, ``"pm-sub"``,
            ``"hybrid"``, ``"three-outputs"`` or ``"laplace"``.
        allocation: :class:`EvenAllocation`, :class:`SampledAllocation` or :class:`WeightedAllocation`.

    Raises:
        ConfigError: a parameter is outside its range, or theta does not fit.

    >>> law = PerFeature(epsilon=1.0, dim=50, scalar="duchi", allocation=EvenAllocation())
    >>> round(float(law.variance(np.full((1, 50), 0.5))[0, 0]), 1)
    2500.2
    """

    scalar: str
    allocation: Allocation

    @cached_property
    def scalars(self) -> tuple[ScalarMechanism, ...]:
        """The mechanism of each feature, or a single one where all are the same."""
        if isinstance(self.allocation, WeightedAllocation):
            budgets = self.allocation.budgets(self.epsilon, self.dim).tolist()
            return tuple(scalar(self.scalar, budget) for budget in budgets)
        return (scalar(self.scalar, self.epsilon / self.samples),)

    @property
    def samples(self) -> int:
        """How many features a record tells about."""
        if isinstance(self.allocation, SampledAllocation):
            return self.allocation.size(self.epsilon, self.dim)
        return self.dim

    def _check(self) -> None:
        checks.one_of(SCALARS, scalar=self.scalar)
        if not isinstance(self.allocation, EvenAllocation | SampledAllocation | WeightedAllocation):
            raise ConfigError("allocation must be Split(), Sample(count) or Weights(theta)")
        if isinstance(self.allocation, WeightedAllocation) and 0.0 in self.allocation.theta:
            raise ConfigError("a feature of weight 0 has no unbiased estimate; give it a weight")
        if not math.isinf(self.epsilon):
            _ = self.scalars  # every feature's budget is above zero

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
    """Return the most of more (V(x) + x^2) - x^2: in |x| it is one parabola, as V is for every scalar.

    Three of its values say all: its top, if that is between 0 and 1, or else an end.
    """
    size = np.array([0.0, 0.5, 1.0])
    start, middle, end = more * (law.variance(size) + size**2) - size**2
    bend, slope = 2 * (start - 2 * middle + end), 4 * middle - 3 * start - end
    top = -slope / (2 * bend) if bend < 0 else 0.0
    at_top = start + slope * top + bend * top**2 if 0 < top < 1 else start
    return float(max(start, at_top, end))

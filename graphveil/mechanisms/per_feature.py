"""Features randomized one by one: one bit for each of a few features, or a scalar mechanism on each."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from graphveil._util import checks
from graphveil.core.noise.sampling import (
    Draws,
    ExtraWords,
    Floats,
    Integers,
    Real,
    Words,
    halves,
    round_up_or_down,
    row_blocks,
    subsets,
)
from graphveil.errors import ConfigError
from graphveil.mechanisms.claim import coth
from graphveil.mechanisms.features import (
    Allocation,
    EvenAllocation,
    FeatureMechanism,
    LDPReports,
    SampledAllocation,
    Single,
    WeightedAllocation,
    distinct_rows,
)
from graphveil.mechanisms.scalar import SCALARS, Duchi, ScalarMechanism, scalar

_PAPER = 2.18  # LPGNN's divisor
_BEST = 2.17731898  # the root of sinh y = 2 y, which minimizes y coth(y/2)^2
_CHOICES = ("best", "floor", "all")


@dataclass(frozen=True, kw_only=True)
class MultiBit(FeatureMechanism):
    """Report one randomized bit for each of m random features (Sajadmanesh, Gatica-Perez, CCS 2021).

        Pr[bit_i = 1] = 1/(e^(epsilon/m) + 1) + z_i (e^(epsilon/m) - 1)/(e^(epsilon/m) + 1),
        x'_i = (alpha + beta)/2 +- d (beta - alpha)/(2 m) coth(epsilon/(2m)), without +- for the others,
        Var(x'_i) = (d/m) coth(epsilon/(2m))^2 ((beta - alpha)/2)^2 - (x_i - (alpha + beta)/2)^2,

    where z_i is x_i on the scale [0, 1] of its range [alpha, beta]. The estimate is unbiased.

    Shapes: LDP reports have bits and indices (records, m).

    Args:
        epsilon, dim, bounds: Parameters of ``FeatureMechanism``.
        m: Number of sampled features, or a rule. ``"best"`` is the integer next to epsilon / 2.177 with the
            smallest variance. ``"floor"`` is max(1, min(d, floor(epsilon / 2.18))), as in the paper.
            ``"all"`` is 1BM, one bit for every feature.

    Raises:
        ConfigError: If a parameter is outside its range.

    Privacy:
        epsilon-LDP for the whole vector, exactly: given the subset, the likelihood ratio is a product
        of m factors between e^(-epsilon/m) and e^(epsilon/m).

    >>> MultiBit(epsilon=4.0, dim=100, m="floor").samples, MultiBit(epsilon=4.0, dim=100).samples
    (1, 2)
    >>> from graphveil.mechanisms import LocalNoise
    >>> law = MultiBit(epsilon=1.0, dim=500)
    >>> reports = law.perturb(np.ones((3, 500)), stream=LocalNoise(unsafe_noise_seed=1).stream("features"))
    >>> reports.values.shape, round(law.scale, 8)
    ((3, 1), 540.98835343)
    """

    m: int | Literal["best", "floor", "all"] = "best"

    @property
    def samples(self) -> int:
        """The number m of features that a record reports."""
        if isinstance(self.m, int):
            return self.m
        if self.m == "all" or math.isinf(self.epsilon):
            return self.dim
        if self.m == "floor":
            return self._clipped(math.floor(self.epsilon / _PAPER))
        around = self.epsilon / _BEST
        return min(
            self._clipped(math.floor(around)),
            self._clipped(math.ceil(around)),
            key=lambda m: coth(self.epsilon / (2 * m)) ** 2 / m,
        )

    @property
    def scale(self) -> float:
        """The distance of an estimate on [0, 1] from 1/2, for a reported feature."""
        return self.dim / (2 * self.samples) * self.bit.bound

    @property
    def kept(self) -> Floats:
        """The probability that a reported bit of each feature is not flipped, (dim,)."""
        return np.full(self.dim, self.bit.table[1, 1])

    @cached_property
    def bit(self) -> Duchi:
        """The mechanism of one feature, at epsilon/m."""
        return Duchi(self.epsilon / self.samples)

    def bit_probability(self, z: Floats) -> Floats:
        """Return Pr[bit = 1] of a sampled feature, from its value on [0, 1]."""
        low, high = self.bit.table[:, 1]
        probability: Floats = low + z * (high - low)
        return probability

    def _check(self) -> None:
        if isinstance(self.m, str):
            checks.one_of(_CHOICES, m=self.m)
            return
        checks.integer_at_least(1, m=self.m)
        if self.m > self.dim:
            raise ConfigError(
                f"m={self.m} must be at most dim={self.dim}, the number of features. Use m='all'."
            )

    def _clipped(self, m: int) -> int:
        return max(1, min(self.dim, m))

    def _empty(self, records: int) -> LDPReports:
        shape = (records, self.samples)
        indices = None if self.samples == self.dim else np.empty(shape, dtype=np.int32)
        return LDPReports(np.empty(shape, dtype=np.uint8), indices)

    def perturb_features(
        self, x: Real, chosen: npt.NDArray[np.int32] | None, *, stream: Draws, rows: Integers | None = None
    ) -> LDPReports:
        """Return the LDP reports of records on features chosen by the caller.

        The guarantee is that of ``perturb``, which is valid for any reported features, if the choice does not
        depend on the records. Estimates are unbiased over the choice.

        Args:
            x: Float features (records, dim); values outside the bounds are clipped.
            chosen: Features of each record (records, m), ascending; None for all.
            stream: Random words.
            rows: Distinct numbers of the records; 0, 1, 2, ... if None.

        Raises:
            GraphError: If a shape is wrong, or a value is NaN or infinite.
            ConfigError: If two records have the same number, or a chosen feature does not exist.
            ReleaseError: If the stream was already used for a row.

        Privacy:
            Unit: one record. Reads: ``x``. The LDP reports may be public.
        """
        x = self.matrix(x)
        rows = distinct_rows(rows, len(x))
        if math.isinf(self.epsilon):
            return self.perturb(x, stream=stream, rows=rows)
        reports = LDPReports(self._empty(len(x)).values, chosen)
        self._check_reports(reports)
        if chosen is not None and chosen.size and not (chosen.min() >= 0 and chosen.max() < self.dim):
            raise ConfigError(
                f"a sampled feature must be an index of one of the {self.dim} features, counted from 0"
            )
        stream.reserve_rows(rows)
        for part in row_blocks(len(x), self.dim):
            z, own = self.bounds.unit(x[part]), reports.part(part)
            words = stream.words(rows[part], words_per_row=self.samples)
            self._bits(z, words, ExtraWords(stream, rows[part], self.samples), own)
        return reports

    def _perturb(self, z: Real, rows: Integers, stream: Draws, out: LDPReports) -> None:
        m = self.samples
        words = stream.words(rows, words_per_row=2 * m)
        if out.indices is not None:
            out.indices[:] = subsets(words[:, :m], self.dim)
        self._bits(z, words[:, m:], ExtraWords(stream, rows, m), out)

    def _bits(self, z: Real, words: Words, place: ExtraWords, out: LDPReports) -> None:
        """Fill the bits of the features that LDP reports cover."""
        if out.indices is not None:
            z = np.take_along_axis(z, out.indices, axis=1)
        low, high = halves(words)
        out.values[:] = self.bit.sampler.sample_outputs(round_up_or_down(z, low), high, place)

    def _reported_values(self, reports: LDPReports, out: Single) -> None:
        out[:] = np.array([0.5 - self.scale, 0.5 + self.scale], dtype=np.float32)[reports.values]

    def _variance(self, z: Floats) -> Floats:
        return self.dim / self.samples * (self.bit.bound / 2) ** 2 - (z - 0.5) ** 2

    def _worst(self) -> Floats:
        return self._variance(np.array([0.5]))


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

"""Mechanisms for features: a bit for each of a few features (multi-bit), or a bin for each (FeatureRR)."""

import math
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from graphveil._util import checks
from graphveil.core.noise.sampling import (
    MAX_OUTPUTS,
    Channel,
    Draws,
    ExtraWords,
    Floats,
    Integers,
    Real,
    Sampler,
    Words,
    halves,
    round_up_or_down,
    row_blocks,
    subsets,
)
from graphveil.errors import ConfigError
from graphveil.mechanisms.features import (
    EvenAllocation,
    FeatureMechanism,
    LDPReports,
    Single,
    WeightedAllocation,
    check_budget,
    coth,
    distinct_rows,
)

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
        return self.dim / (2 * self.samples) * self._bound

    @property
    def kept(self) -> Floats:
        """The probability that a reported bit of each feature is not flipped, (dim,)."""
        return np.full(self.dim, self._table[1, 1])

    @property
    def limits(self) -> Integers:
        """The largest value of each reported number: a bit."""
        return np.ones(self.samples, dtype=np.int64)

    @property
    def budgets(self) -> Floats:
        """The budget of each feature, given that it is reported, (dim,)."""
        return np.full(self.dim, self.epsilon / self.samples)

    @property
    def _bound(self) -> float:
        return coth(self.epsilon / self.samples / 2)

    @cached_property
    def _table(self) -> Floats:
        """Probabilities of the bit (columns) for a value that is rounded to 0 or 1, at epsilon/m."""
        epsilon = self.epsilon / self.samples
        check_budget(epsilon=epsilon)
        change = np.exp(-epsilon) / (1 + np.exp(-epsilon))
        return np.array([[1 - change, change], [change, 1 - change]])

    @cached_property
    def _sampler(self) -> Sampler:
        return Sampler((Channel.from_probabilities(self._table, self.epsilon / self.samples),))

    def bit_probability(self, z: Floats) -> Floats:
        """Return Pr[bit = 1] of a sampled feature, from its value on [0, 1]."""
        low, high = self._table[:, 1]
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
        if out.indices is not None:
            z = np.take_along_axis(z, out.indices, axis=1)
        low, high = halves(words)
        out.values[:] = self._sampler.sample_outputs(round_up_or_down(z, low), high, place)

    def _reported_values(self, reports: LDPReports, out: Single) -> None:
        out[:] = np.array([0.5 - self.scale, 0.5 + self.scale], dtype=np.float32)[reports.values]

    def _variance(self, z: Floats) -> Floats:
        return self.dim / self.samples * (self._bound / 2) ** 2 - (z - 0.5) ** 2

    def _worst(self) -> Floats:
        return self._variance(np.array([0.5]))


# -- FeatureRR ----

_NEAR = 20  # bins within a twentieth of the range have similar values

Mode = Literal["ceil", "stochastic"]
Decode = Literal["naive", "unbiased"]


@dataclass(frozen=True)
class Bins:
    """Mechanism for one feature: k bins, output u for input t with probability rho^|u-t| / C_t.

        rho = e^(-epsilon/(k-1)),   C_t = sum_u rho^|u-t| = (1 + rho - rho^t - rho^(k-t+1)) / (1 - rho).

    ``mode`` determines how z in [0, 1] becomes a bin: ``"ceil"`` uses t = max(1, ceil(k z)), ``"stochastic"``
    rounds to the grid (t-1)/(k-1) with expectation z. ``decode`` determines the value of a bin: ``"naive"``
    is the bin's own value (u/k, or its grid point), ``"unbiased"`` the g_u whose expectation is the value of
    t.

    Privacy:
        epsilon-LDP, exactly (u = 1 under t = 1 against t = k).

    >>> Bins(1.0, 5).table[0].round(8).tolist()
    [0.31002201, 0.24144538, 0.18803785, 0.14644403, 0.11405072]
    """

    epsilon: float
    k: int
    mode: Mode = "stochastic"
    decode: Decode = "unbiased"

    def __post_init__(self) -> None:
        checks.non_negative(epsilon=self.epsilon)
        checks.integer_at_least(2, k=self.k)
        checks.within(2, MAX_OUTPUTS, k=self.k)
        checks.one_of(("ceil", "stochastic"), mode=self.mode)
        checks.one_of(("naive", "unbiased"), decode=self.decode)
        if self.decode == "unbiased" and self.epsilon == 0:
            raise ConfigError(
                "A feature of weight 0 cannot be estimated without bias. Give it a positive weight, or "
                "use decode='naive'."
            )

    @cached_property
    def table(self) -> Floats:
        """Pr(u|t), shape (k, k): a row for each input bin."""
        table: Floats = self._powers / self._powers.sum(axis=1, keepdims=True)
        return table

    @cached_property
    def kept(self) -> float:
        """The largest probability that a bin is kept, or moves by at most a twentieth of the range.

        >>> round(Bins(1.0, 2).kept, 4), round(Bins(100.0, 256).kept, 2)
        (0.7311, 1.0)
        """
        bins = np.arange(self.k)
        near = np.abs(bins[:, None] - bins) <= (self.k - 1) // _NEAR
        return float((self.table * near).sum(axis=1).max())

    @property
    def channel(self) -> Channel:
        """The channel that samples are drawn from."""
        if self.epsilon == 0:  # uniform, up to the remainder of 2^64 / k, and the same for every input
            return Channel(
                (Channel.from_probabilities(np.full((1, self.k), 1 / self.k), 1.0).counts[0],) * self.k
            )
        return Channel.from_probabilities(self.table, self.epsilon)

    @property
    def values(self) -> Floats:
        """The number in [0, 1] that each input bin represents."""
        bins = np.arange(self.k)
        return (bins + 0.5) / self.k if self.mode == "ceil" else bins / (self.k - 1)

    @cached_property
    def estimates(self) -> Floats:
        """The number that each output bin is decoded to.

        Without bias these are g with sum_u g_u Pr(u|t) = values_t. The inverse of rho^|u-t| is tridiagonal.
        """
        if self.decode == "naive":
            return np.arange(1, self.k + 1) / self.k if self.mode == "ceil" else self.values
        step = -self.epsilon / (self.k - 1)
        rho, gap = math.exp(step), -math.expm1(2 * step)
        w = self.values * self._powers.sum(axis=1)
        g = (1 + rho**2) * w
        g[1:] -= rho * w[:-1]
        g[:-1] -= rho * w[1:]
        g[[0, -1]] -= rho**2 * w[[0, -1]]  # an end has one neighbor
        unbiased: Floats = g / gap
        return unbiased

    def probabilities(self, z: Floats) -> Floats:
        """Return the probability of each output bin for values in [0, 1], shape (values, k)."""
        return np.asarray(self._inputs(z) @ self.table)

    def moments(self, z: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance of the estimates of values in [0, 1]."""
        inputs = self._inputs(z)
        means, squares = (inputs @ (self.table @ self.estimates**power) for power in (1, 2))
        return means, squares - means**2

    @cached_property
    def worst_variance(self) -> float:
        """The largest variance of any value: between grid points the variance is a concave parabola."""
        points = self.values
        if self.mode == "stochastic":
            squares = self.table @ self.estimates**2
            means = self.table @ self.estimates
            rise, slope = np.diff(squares), np.diff(means)
            curved = 2 * slope**2  # 0 at epsilon 0, where all values have the same variance
            share = np.divide(
                rise - 2 * means[:-1] * slope, curved, out=np.zeros_like(rise), where=curved > 0
            )
            share = np.clip(share, 0, 1)
            points = np.concatenate([points, points[:-1] + share / (self.k - 1)])
        return float(self.moments(points)[1].max())

    @property
    def _powers(self) -> Floats:
        bins = np.arange(self.k)
        powers: Floats = np.exp(-self.epsilon / (self.k - 1) * np.abs(bins[:, None] - bins))
        return powers

    def _inputs(self, z: Floats) -> Floats:
        out = np.zeros((len(z), self.k))
        line = np.arange(len(z))
        if self.mode == "ceil":
            out[line, np.maximum(np.ceil(z * self.k) - 1, 0).astype(np.int64)] = 1
            return out
        position = z * (self.k - 1)
        below = np.minimum(position.astype(np.int64), self.k - 2)
        out[line, below] = 1 - (position - below)
        out[line, below + 1] = position - below
        return out


@lru_cache(maxsize=4096)
def best_bins(epsilon: float) -> int:
    """Return the number of bins with the smallest worst-case variance, stochastic and unbiased.

    >>> [best_bins(epsilon) for epsilon in (0.5, 2.0, 3.0, 5.0)]
    [2, 3, 4, 7]
    """
    best, least = 2, Bins(epsilon, 2).worst_variance
    for k in range(3, MAX_OUTPUTS + 1):
        variance = Bins(epsilon, k).worst_variance
        if variance >= least:  # it falls, then rises
            break
        best, least = k, variance
    return best


@dataclass(frozen=True, kw_only=True)
class FeatureRR(FeatureMechanism):
    """Map every feature to a bin, and randomize the bin at epsilon_i = epsilon theta_i (HeteroRR).

    Bin u is the output for t with probability rho_i^|u-t| / C_t, rho_i = e^(-epsilon_i/(k_i-1)): see
    ``Bins``, which has the law, the estimate and the variance of one feature.

    Shapes: LDP reports have bins 0..k-1, uint8 (records, dim).

    Args:
        epsilon, dim, bounds: Parameters of ``FeatureMechanism``.
        k: Number of bins; ``"auto"`` chooses, for each feature's budget, the one with the smallest worst-case
            variance (2 up to a budget of 1.6682), and needs the two defaults below.
        mode: Rounding to a bin: ``"stochastic"`` has no bias, ``"ceil"`` is the paper's.
        decode: Estimator, ``"unbiased"`` or the paper's ``"naive"``, which decodes a bin as its own value and
            biases estimates toward the middle. k=10, ``"ceil"``, ``"naive"`` reproduce the paper.
        allocation: Budget allocation, ``EvenAllocation`` or ``WeightedAllocation`` from public scores.

    Raises:
        ConfigError: If a parameter is outside its range, or theta does not fit.

    Privacy:
        epsilon-LDP for the whole vector, exactly: the epsilon_i sum to epsilon, because theta sums to one and
        is the same for all records.

    >>> law = FeatureRR(epsilon=1.0, dim=50)
    >>> law.features[0].k, round(float(law.variance(np.full((1, 50), 0.5))[0, 0]), 1)
    (2, 2500.2)
    >>> from graphveil.mechanisms import LocalNoise
    >>> reports = law.perturb(np.ones((3, 50)), stream=LocalNoise(unsafe_noise_seed=1).stream("features"))
    >>> reports.values.shape, reports.values.dtype
    ((3, 50), dtype('uint8'))
    """

    k: int | Literal["auto"] = "auto"
    mode: Mode = "stochastic"
    decode: Decode = "unbiased"
    allocation: EvenAllocation | WeightedAllocation = field(default=EvenAllocation())

    @cached_property
    def features(self) -> tuple[Bins, ...]:
        """The mechanism of each feature."""
        return tuple(self._laws[place] for place in self._which.tolist())

    @property
    def limits(self) -> Integers:
        """The largest value of each reported number: the last bin of each feature, (dim,)."""
        return np.array([law.k - 1 for law in self._laws])[self._which]

    @property
    def budgets(self) -> Floats:
        """The budget of each feature, (dim,)."""
        return self.allocation.budgets(self.epsilon, self.dim)

    @property
    def kept(self) -> Floats:
        """The probability that each feature's bin is kept, or nearly so, (dim,): see ``Bins.kept``."""
        return np.array([law.kept for law in self._laws])[self._which]

    @cached_property
    def _groups(self) -> tuple[Floats, Integers]:
        different, firsts, which = np.unique(self.budgets, return_index=True, return_inverse=True)
        order = np.argsort(firsts)
        return different[order], np.argsort(order)[which]

    @cached_property
    def _laws(self) -> tuple[Bins, ...]:
        return tuple(
            Bins(budget, best_bins(budget) if isinstance(self.k, str) else self.k, self.mode, self.decode)
            for budget in self._groups[0].tolist()
        )

    @property
    def _which(self) -> Integers:
        return self._groups[1]

    @cached_property
    def _sampler(self) -> Sampler:
        return Sampler(tuple(law.channel for law in self._laws))

    def _check(self) -> None:
        if isinstance(self.k, str):
            checks.one_of(("auto",), k=self.k)
            if (self.mode, self.decode) != ("stochastic", "unbiased"):
                raise ConfigError(
                    "k='auto' needs mode='stochastic' and decode='unbiased'. Use a number of bins, such as "
                    "k=2."
                )
        if not isinstance(self.allocation, EvenAllocation | WeightedAllocation):
            raise ConfigError(
                "allocation must be Split() or Weights(theta), because MultiBit already samples features"
            )
        if not math.isinf(self.epsilon):
            _ = self._sampler  # checks that the bins support every feature's budget

    @cached_property
    def _sizes(self) -> Floats:
        sizes = np.array([float(law.k) for law in self._laws])
        return sizes if len(sizes) == 1 else sizes[self._which]

    @cached_property
    def _starts(self) -> Integers | None:
        return None if len(self._laws) == 1 else self._sampler.starts[self._which]

    @cached_property
    def _numbers(self) -> tuple[Single, Integers | None]:
        numbers = np.concatenate([law.estimates for law in self._laws]).astype(np.float32)
        firsts = np.cumsum([0, *(law.k for law in self._laws)])[self._which]
        return numbers, None if len(self._laws) == 1 else firsts

    def _empty(self, records: int) -> LDPReports:
        return LDPReports(np.empty((records, self.dim), dtype=np.uint8))

    def _perturb(self, z: Real, rows: Integers, stream: Draws, out: LDPReports) -> None:
        low, high = halves(stream.words(rows, words_per_row=self.dim))
        if self.mode == "stochastic":
            inputs = round_up_or_down(z * (self._sizes - 1), low)
        else:
            inputs = np.ceil(z * self._sizes).astype(np.int64) - 1
            np.maximum(inputs, 0, out=inputs)
        place = ExtraWords(stream, rows, self.dim)
        out.values[:] = self._sampler.sample_outputs(inputs, high, place, self._starts)

    def _reported_values(self, reports: LDPReports, out: Single) -> None:
        numbers, firsts = self._numbers
        which = reports.values if firsts is None else reports.values + firsts
        np.take(numbers, which, out=out, mode="clip")  # in range; mode "raise" would buffer the output

    def _variance(self, z: Floats) -> Floats:
        out = np.empty_like(z)
        for feature, law in enumerate(self.features):
            out[:, feature] = law.moments(z[:, feature])[1]
        return out

    def _worst(self) -> Floats:
        return np.array([law.worst_variance for law in self._laws])[self._which]

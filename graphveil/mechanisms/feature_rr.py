"""FeatureRR of HeteroRR: a randomized bin for every feature, with and without debiasing.

``RecordFeatureRR`` has weights computed from each record, as in the paper: paper mode only.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.core.noise.sampling import (
    MAX_DIM,
    MAX_OUTPUTS,
    Channel,
    Draws,
    ExtraWords,
    Floats,
    Integers,
    Real,
    Sampler,
    halves,
    round_up_or_down,
    row_blocks,
)
from graphveil.errors import ConfigError, UnsupportedGuaranteeError
from graphveil.mechanisms.claim import REAL_VALUED, LocalDPClaim, check_budget
from graphveil.mechanisms.features import (
    Bounds,
    EvenAllocation,
    FeatureMechanism,
    LDPReports,
    Single,
    WeightedAllocation,
    distinct_rows,
)
from graphveil.mechanisms.importance import combined
from graphveil.mechanisms.scalar import StepDistribution

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

    def distribution(self, z: float) -> StepDistribution:
        """Return the law of the estimate of a value in [0, 1]."""
        return StepDistribution.discrete(self.estimates, self._inputs(np.array([z]))[0] @ self.table)

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
        """Return the probability of each input bin for each value, shape (values, k)."""
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
    def sizes(self) -> Integers:
        """The number of bins of each feature, (dim,)."""
        return np.array([law.k for law in self._laws])[self._which]

    @property
    def kept(self) -> Floats:
        """The probability that each feature's bin is kept, or nearly so, (dim,): see ``Bins.kept``."""
        return np.array([law.kept for law in self._laws])[self._which]

    @cached_property
    def _groups(self) -> tuple[Floats, Integers]:
        """The distinct budgets in the order of first occurrence, and each feature's index among them."""
        budgets = self.allocation.budgets(self.epsilon, self.dim)
        different, firsts, which = np.unique(budgets, return_index=True, return_inverse=True)
        order = np.argsort(firsts)
        return different[order], np.argsort(order)[which]

    @cached_property
    def _laws(self) -> tuple[Bins, ...]:
        """The distinct mechanisms of the features."""
        return tuple(
            Bins(budget, best_bins(budget) if isinstance(self.k, str) else self.k, self.mode, self.decode)
            for budget in self._groups[0].tolist()
        )

    @property
    def _which(self) -> Integers:
        """The index of each feature's mechanism among the distinct ones."""
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
        """The number of bins of each feature, or a single one if all have the same mechanism."""
        sizes = np.array([float(law.k) for law in self._laws])
        return sizes if len(sizes) == 1 else sizes[self._which]

    @cached_property
    def _starts(self) -> Integers | None:
        """The start of each feature's channel, None if there is one for all."""
        return None if len(self._laws) == 1 else self._sampler.starts[self._which]

    @cached_property
    def _numbers(self) -> tuple[Single, Integers | None]:
        """The estimates of all mechanisms, concatenated, and the start of each feature's estimates."""
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


_ROUNDING = 1e-9
_SHIFT, _UNIT = np.uint64(11), 2.0**-53


def record_weights(importance: npt.ArrayLike, sensitivity: npt.ArrayLike, *, gamma: float = 0.5) -> Floats:
    """Return theta of each record: equation 7 of HeteroRR, normalized.

    Args:
        importance: Scores of size of each record, (records, dim).
        sensitivity: Differences z - zhat of each record, (records, dim).
        gamma: Weight of the importance, from 0 (sensitivity only) to 1 (importance only).

    Returns:
        Weights (records, dim); each row sums to one.

    Raises:
        ConfigError: If scores are not finite or have different shapes, or gamma lies outside [0, 1].

    Privacy:
        No guarantee: a record's weights are as private as the record.

    >>> record_weights([[1.0, 1.0]], [[0.9, 0.1]]).tolist()
    [[0.3, 0.7]]
    """
    theta = combined(importance, sensitivity, gamma)
    normal: Floats = theta / theta.sum(axis=1, keepdims=True)
    return normal


@checked
def record_loss(epsilon: float, dim: int, k: int) -> float:
    """Return the largest log ratio of a record's LDP reports if theta is computed from the record.

        epsilon + ln C(epsilon) + (d - 1) ln k - d ln C(epsilon/d),   C(x) = sum_{u<k} e^(-u x/(k-1)).

    The denominators for one theta need not cancel with those for another: ln C is convex, so their sum is
    largest if one feature has the whole budget and smallest if all have equal shares. The bound is attained.

    Args:
        epsilon: Budget of a record.
        dim: Number d of features.
        k: Number of bins.

    Returns:
        The privacy loss of a record whose weights are not observed; it exceeds epsilon.

    >>> round(record_loss(2.0, 2, 3), 8), round(record_loss(9.0, 50, 10), 4)
    (2.14567891, 11.5736)
    """
    steps = np.arange(k) / (k - 1)
    whole, share = (math.log(np.exp(-steps * budget).sum()) for budget in (epsilon, epsilon / dim))
    return epsilon + whole + (dim - 1) * math.log(k) - dim * share


@dataclass(frozen=True, kw_only=True)
class RecordFeatureRR:
    """FeatureRR with one theta per record, as in HeteroRR, to reproduce its results. No guarantee.

        t = max(1, ceil(k z)),   Pr(u|t) = rho_i^|u-t| / C_t,   rho_i = e^(-epsilon theta_i/(k-1)),

    and u is decoded as u/k. Theta is computed from the record that it randomizes, so a record loses up to
    ``record_loss``, not epsilon. The loss is unbounded once theta is observed or used to decode.

    Shapes: LDP reports have bins 0..k-1, uint8 (records, dim).

    Args:
        epsilon, dim, bounds: Parameters of ``FeatureMechanism``.
        k: Number of bins.
        mode: Mode, ``"paper"``; this mechanism is not supported in strict mode.

    Raises:
        UnsupportedGuaranteeError: If ``mode`` is not ``"paper"``.
        ConfigError: If a parameter is outside its range.

    >>> RecordFeatureRR(epsilon=1.0, dim=50)
    Traceback (most recent call last):
    graphveil.errors.UnsupportedGuaranteeError: Weights must not be computed from the record that they \
randomize: a record loses up to 1.0494 of a budget of 1, and without bound if the weights are seen. \
Use FeatureRR with public_weights. mode='paper' reproduces the paper without a guarantee.
    >>> RecordFeatureRR(epsilon=1.0, dim=50, mode="paper").claim.certified
    False
    """

    epsilon: float
    dim: int
    bounds: Bounds = field(default=Bounds())
    k: int = 10
    mode: Literal["strict", "paper"] = "strict"

    def __post_init__(self) -> None:
        check_budget(epsilon=self.epsilon)
        checks.positive(epsilon=self.epsilon)
        checks.integer_at_least(1, dim=self.dim)
        checks.within(1, MAX_DIM, dim=self.dim)
        checks.integer_at_least(2, k=self.k)
        checks.within(2, MAX_OUTPUTS, k=self.k)
        checks.one_of(("strict", "paper"), mode=self.mode)
        self.bounds.check_dim(self.dim)
        if self.mode != "paper":
            raise UnsupportedGuaranteeError(
                "Weights must not be computed from the record that they randomize: a record "
                f"{self._loses}, and without bound if the weights are seen. Use FeatureRR with "
                "public_weights. mode='paper' reproduces the paper without a guarantee."
            )

    @property
    def loss(self) -> float:
        """The actual privacy loss of a record if its weights are not observed."""
        return record_loss(self.epsilon, self.dim, self.k)

    @property
    def claim(self) -> LocalDPClaim:
        """The paper's claim, and the reasons why it is not valid."""
        why = f"weights computed from the record that they randomize: it {self._loses}"
        return LocalDPClaim(self.epsilon, deviations=(why, REAL_VALUED, *self.bounds.deviations))

    @property
    def _loses(self) -> str:
        return f"loses up to {math.ceil(self.loss * 1e4) / 1e4:g} of a budget of {self.epsilon:g}"

    def perturb(self, x: Real, theta: Floats, *, stream: Draws, rows: Integers | None = None) -> LDPReports:
        """Return the randomized bins of records.

        Args:
            x: Features (records, dim); values outside the bounds are clipped.
            theta: Weights of each record (records, dim), as private as the record.
            stream: Random words.
            rows: Distinct numbers of the records; 0, 1, 2, ... if None.

        Raises:
            GraphError: If a value is NaN or infinite.
            ConfigError: If shapes do not match, or the weights of a record do not sum to one.
            ReleaseError: If the stream was already used for a row.

        Privacy:
            Unit: one record. Reads: ``x`` and ``theta``. No guarantee: theta depends on the record.
        """
        x, theta = np.asarray(x), self._checked(np.asarray(theta, dtype=np.float64))
        if x.shape != theta.shape:
            raise ConfigError(f"features of shape {x.shape} do not match weights of shape {theta.shape}")
        rows = distinct_rows(rows, len(x))
        stream.reserve_rows(rows)
        values = np.empty(x.shape, dtype=np.uint8)
        for part in row_blocks(len(x), self.dim):
            words = stream.words(rows[part], words_per_row=2 * self.dim)
            uniform = (words >> _SHIFT).astype(np.float64).reshape(-1, 2, self.dim) * _UNIT
            inputs = np.maximum(np.ceil(self.bounds.unit(x[part]) * self.k), 1.0).astype(np.float64)
            values[part] = _outputs(inputs, self.epsilon * theta[part], uniform, self.k) - 1
        return LDPReports(values)

    def estimate(self, reports: LDPReports) -> Single:
        """Return each bin as its upper end, float32 (records, dim)."""
        return self.bounds.real(((reports.values.astype(np.float64) + 1) / self.k).astype(np.float32))

    def _checked(self, theta: Floats) -> Floats:
        if theta.ndim != 2 or theta.shape[1] != self.dim or not np.isfinite(theta).all() or (theta < 0).any():
            raise ConfigError(
                f"theta must contain finite numbers of at least 0, with shape (records, {self.dim})"
            )
        if (np.abs(theta.sum(axis=1) - 1) > _ROUNDING).any():
            raise ConfigError("theta of a record does not sum to 1. Use record_weights, which normalizes it.")
        return theta


def _outputs(t: Floats, budgets: Floats, uniform: Floats, k: int) -> Floats:
    """Return u for inputs t from two uniforms each, (records, 2, dim): below t, t itself, or above it.

    The tails are geometric sums, so a tail and a place in it need two draws and no table.
    """
    step = -budgets / (k - 1)  # ln rho
    below, above = _tail(step, t - 1), _tail(step, k - t)
    where = uniform[:, 0] * (below + 1 + above)
    down, up = where < below, where >= below + 1
    offset = _place(step, np.where(down, t - 1, k - t), uniform[:, 1])
    moved: Floats = t + np.where(down, -offset, np.where(up, offset, 0))
    return moved


def _tail(step: Floats, cells: Floats) -> Floats:
    """Return rho + ... + rho^cells."""
    flat = step == 0
    safe = np.where(flat, -1.0, step)
    return np.where(flat, cells, np.exp(safe) * np.expm1(cells * safe) / np.expm1(safe))


def _place(step: Floats, cells: Floats, uniform: Floats) -> Floats:
    """Return j in 1..cells with probability proportional to rho^j; 1 if there is no cell."""
    flat = step == 0
    safe = np.where(flat, -1.0, step)
    drawn = np.where(flat, uniform * cells, np.log1p(uniform * np.expm1(cells * safe)) / safe)
    place: Floats = np.clip(1 + np.floor(drawn), 1, np.maximum(cells, 1))
    return place

"""FeatureRR with weights that are computed from each record, as HeteroRR describes it. No guarantee."""

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.core.noise.sampling import MAX_DIM, MAX_OUTPUTS, Draws, Floats, Integers, Real, row_blocks
from graphveil.errors import ConfigError, UnsupportedGuaranteeError
from graphveil.mechanisms.features import (
    REAL_VALUED,
    Bounds,
    LDPReports,
    LocalDPClaim,
    Single,
    check_budget,
    distinct_rows,
)
from graphveil.papers.feature_weights import combined

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

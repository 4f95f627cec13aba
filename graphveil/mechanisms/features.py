"""Guarantees of a randomizer of one record, and the common interface of mechanisms for its features.

A ``LocalDPClaim`` is a budget with the reasons against it. Private values enter only through ``Bounds``: they
are checked, clipped and rescaled. ``FeatureMechanism`` perturbs records and estimates them, with a budget for
each feature by an allocation.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from graphveil._util import checks
from graphveil._util.checks import checked, fitting
from graphveil._util.figures import ldp_statement
from graphveil.core.noise.sampling import MAX_DIM, Draws, Floats, Integers, Real, row_blocks
from graphveil.errors import ConfigError, GraphError, UnsupportedGuaranteeError

REAL_VALUED = "real-valued sampler"
_EXPONENT = 1023  # maximum bit length of integers that floats can represent
MIN_BUDGET = 2.0**-30  # minimum budget: below, rounding to 64 bits would affect the estimates


@dataclass(frozen=True)
class LocalDPClaim:
    """A claim that a record's outputs are (epsilon, delta)-indistinguishable from any other record's.

    It is valid for any two records within the public bounds. ``epsilon`` is inf if nothing is randomized and
    0 if nothing is reported. Claims on parts of one record add up.

    >>> LocalDPClaim(1.0) + LocalDPClaim(0.5, delta=1e-10)
    LocalDPClaim(epsilon=1.5, delta=1e-10, deviations=())
    """

    epsilon: float
    delta: float = 0.0
    deviations: tuple[str, ...] = ()

    @property
    def certified(self) -> bool:
        """Whether the claim is valid for the code as it runs."""
        return not self.deviations

    def __add__(self, other: "LocalDPClaim") -> "LocalDPClaim":
        return LocalDPClaim(
            self.epsilon + other.epsilon,
            self.delta + other.delta,
            tuple(dict.fromkeys(self.deviations + other.deviations)),
        )


def check_budget(**named: float) -> None:
    """Check that budgets are numbers above zero; inf means no noise.

    >>> check_budget(epsilon=0.0)
    Traceback (most recent call last):
    graphveil.errors.ConfigError: epsilon=0.0 must be a number above 0 (inf adds no noise)
    """
    for name, value in named.items():
        if isinstance(value, int) and value.bit_length() > _EXPONENT:  # not representable as a float
            raise ConfigError(
                f"{name} is an integer of {value.bit_length()} bits. It must be a number above 0 (inf "
                "adds no noise)."
            )
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ConfigError(f"{name}={value!r} must be a number above 0 (inf adds no noise)")
        if value < MIN_BUDGET:
            raise ConfigError(
                f"{name}={value!r} is below 2^-30, so the noise would hide all information. Use a larger "
                "value, or collect fewer values."
            )


def coth(x: float) -> float:
    """Return coth(x) for x > 0, accurate for small and large x."""
    return 1 / math.tanh(x)


NOT_RANDOMIZED = LocalDPClaim(math.inf)
NOT_COLLECTED = LocalDPClaim(0.0)


@checked
def node_features_statement(
    features: LocalDPClaim, label: LocalDPClaim, *, on_clients: bool | None = False
) -> str:
    """Return the guarantee summary of the unit ``local-attributes``, beginning with its deviations if any.

    Args:
        features: Claim on a node's features; ``NOT_RANDOMIZED`` if they are used without privacy.
        label: Claim on its label.
        on_clients: Whether only the nodes themselves ever held the raw data; None if only LDP reports
            arrived.

    Returns:
        The summary in sentences, which may be public.

    >>> print(node_features_statement(LocalDPClaim(1.0), LocalDPClaim(0.5))[:106])
    Each node's features are randomized on their own at eps_x = 1 and its label at eps_y = 0.5 (total 1.5; inf
    """
    deltas = features.delta, label.delta
    text = ldp_statement([features.epsilon], [label.epsilon], deltas, on_clients=on_clients)
    deviations = (features + label).deviations
    if deviations:
        return f"No valid guarantee. Known deviations: {'; '.join(deviations)}. It would read: {text}"
    return text


# -- ranges of features ----
FROM_DATA = "bounds taken from the data"

_LEAST, _LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)

Ends = float | tuple[float, ...]


@dataclass(frozen=True)
class Bounds:
    """Public bounds of the features, [low, high]: one range for all, or one each, fixed before collection.

    Values outside are clipped silently; ``outside`` counts them, and its result is private.

    Raises:
        ConfigError: If an end is not finite, or a range is empty.

    >>> Bounds(0.0, 2.0).unit(np.array([[0.5, 3.0]])).tolist()
    [[0.25, 1.0]]
    """

    low: Ends = 0.0
    high: Ends = 1.0
    from_data: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        low, high = _ends("low", self.low), _ends("high", self.high)
        if isinstance(low, tuple) != isinstance(high, tuple) or np.size(low) != np.size(high):
            raise ConfigError(
                "low and high must have the same form: one number each, or one number per feature each"
            )
        if not bool(np.all(np.less(low, high))):
            raise ConfigError(f"low={self.low!r} must be below high={self.high!r}")
        # With a width that is infinite in float32 all values would become equal.
        width = np.asarray(high) - np.asarray(low)
        if not bool(((width >= _LEAST) & (width <= _LARGEST)).all()):
            raise ConfigError(
                f"high - low must be between {_LEAST:.2g} and {_LARGEST:.2g}, because estimates are "
                "stored in single precision. Rescale the features."
            )
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @classmethod
    def of_data(cls, x: Real, *, data_dependent_bounds: bool = False) -> "Bounds":
        """Return the smallest range that contains the data, which depends on them.

        Args:
            x: Private features (records, dim).
            data_dependent_bounds: Whether to accept that no claim under these bounds is valid.

        Returns:
            One range for all features.

        Raises:
            ConfigError: If ``data_dependent_bounds`` is not True.
            GraphError: If a value is NaN or infinite.

        Privacy:
            No guarantee: the bounds are the most extreme values, and every claim states this deviation.
        """
        if data_dependent_bounds is not True:
            raise ConfigError(
                "Bounds computed from the data reveal the most extreme values. Pass public bounds low= "
                "and high=. data_dependent_bounds=True allows them, without a valid guarantee."
            )
        _check_finite(x)
        low, high = float(x.min()), float(x.max())
        return cls(low, high if high > low else low + 1.0, from_data=True)

    @property
    def deviations(self) -> tuple[str, ...]:
        """Reasons why a claim under these bounds is not valid, if any."""
        return (FROM_DATA,) if self.from_data else ()

    @property
    def width(self) -> Floats:
        """high - low, shape () or (features,)."""
        return np.asarray(self.high, dtype=np.float64) - np.asarray(self.low, dtype=np.float64)

    def check_dim(self, dim: int) -> None:
        """Require one range, or as many as there are features."""
        if isinstance(self.low, tuple) and len(self.low) != dim:
            raise ConfigError(
                f"low and high have {len(self.low)} entries, but dim={dim}. Pass one bound per feature."
            )

    def unit(self, x: Real) -> Real:
        """Return features rescaled to [0, 1], clipped.

        Raises:
            GraphError: If a value is NaN or infinite.
        """
        _check_finite(x)
        if (self.low, self.high) != (0.0, 1.0):
            x = (np.clip(x, np.asarray(self.low), np.asarray(self.high)) - np.asarray(self.low)) / self.width
        inside = x.size == 0 or (x.min() >= 0 and x.max() <= 1)
        return x if inside else np.clip(x, 0.0, 1.0)

    def real(self, z: Real) -> Real:
        """Return values of the unit scale on the features' scale, in place if they are floats."""
        if (self.low, self.high) != (0.0, 1.0):
            z *= self.width.astype(z.dtype)
            z += np.asarray(self.low, dtype=z.dtype)
        return z

    def beyond(self, x: Real) -> npt.NDArray[np.bool_]:
        """Return which values are outside and so are clipped. This is private: do not publish it."""
        return (x < np.asarray(self.low)) | (x > np.asarray(self.high))

    def outside(self, x: Real) -> int:
        """Return the number of values outside, which are clipped. This is private: do not publish it."""
        return int(self.beyond(x).sum())


def _ends(name: str, ends: Any) -> Ends:
    values = list(ends) if isinstance(ends, Iterable) else [ends]
    if not values or not all(
        isinstance(end, int | float | np.number) and -_LARGEST <= end <= _LARGEST for end in values
    ):
        raise ConfigError(
            f"{name}={ends!r} must be a finite number within ±3.4e38, or one such number per feature"
        )
    return tuple(float(end) for end in values) if isinstance(ends, Iterable) else float(values[0])


def _check_finite(x: npt.NDArray[Any]) -> None:
    """Raise if there are NaN or infinite values, without revealing their positions."""
    with np.errstate(invalid="ignore"):
        if x.size and not np.isfinite([x.min(), x.max()]).all():
            raise GraphError(
                "The features have NaN or infinite values. Replace them before the features are "
                "perturbed, for example with numpy.nan_to_num(x)."
            )


_ROUNDING = 1e-9  # tolerance for the sum of weights


@dataclass(frozen=True)
class EvenAllocation:
    """Allocate epsilon / d to every feature. The variance of a coordinate grows like d^2."""

    def budgets(self, epsilon: float, dim: int) -> Floats:
        """Return the budget of each feature."""
        return np.full(dim, epsilon / dim)


@dataclass(frozen=True, init=False)
class WeightedAllocation:
    """Allocate epsilon theta_i to feature i, where theta is public, >= 0 and sums to one.

    Theta is checked and never normalized, because a sum above one would exceed the budget. It must be the
    same for all records: a theta computed from a record depends on it, and its loss is unbounded if theta is
    used to decode.

    Raises:
        ConfigError: If a weight is negative or not finite, or the sum is not one.
        UnsupportedGuaranteeError: If there is one theta per record.

    >>> WeightedAllocation([0.5, 0.25])
    Traceback (most recent call last):
    graphveil.errors.ConfigError: theta sums to 0.75 instead of 1, so a record would spend 0.75 times its \
budget. Use WeightedAllocation.linear, which normalizes public scores.
    """

    theta: tuple[float, ...]

    def __init__(self, theta: Iterable[float]) -> None:
        object.__setattr__(self, "theta", _vector("theta", theta))
        total = math.fsum(self.theta)
        if abs(total - 1) > _ROUNDING:
            raise ConfigError(
                f"theta sums to {total:.6g} instead of 1, so a record would spend {total:.6g} times its "
                "budget. Use WeightedAllocation.linear, which normalizes public scores."
            )

    @classmethod
    def linear(cls, scores: Iterable[float]) -> "WeightedAllocation":
        """Return theta proportional to public scores."""
        return cls._normalized(np.array(_vector("scores", scores)))

    @classmethod
    def cube_root(cls, scores: Iterable[float]) -> "WeightedAllocation":
        """Return theta proportional to the cube roots of public scores w.

        For small budgets the variance of an unbiased estimate falls like 1/epsilon_i^2. This theta
        minimizes sum w_i / epsilon_i^2 for a given sum of budgets: the smallest weighted squared error.

        >>> WeightedAllocation.cube_root([8.0, 1.0]).theta
        (0.6666666666666666, 0.3333333333333333)
        """
        return cls._normalized(np.cbrt(_vector("scores", scores)))

    @classmethod
    def _normalized(cls, scores: Floats) -> "WeightedAllocation":
        if not scores.sum() > 0:
            raise ConfigError("All scores are zero, so they define no weights. Use Split().")
        return cls((scores / scores.sum()).tolist())

    def budgets(self, epsilon: float, dim: int) -> Floats:
        """Return the budget of each feature; their sum never exceeds epsilon."""
        if len(self.theta) != dim:
            raise ConfigError(
                f"theta has {len(self.theta)} weights for {dim} features. Pass one weight per feature."
            )
        return np.array(self.theta) * (epsilon / max(1.0, math.fsum(self.theta)))


def _vector(name: str, values: Iterable[float]) -> tuple[float, ...]:
    try:
        array = np.asarray(list(values), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} must be a list of numbers, one per feature") from error
    if array.ndim == 2:
        raise UnsupportedGuaranteeError(
            f"{name} has one row per record. Weights that depend on a record reveal it, which epsilon "
            "does not bound. Use one list of weights that is computed from public records."
        )
    if array.ndim != 1 or not array.size or not np.isfinite(array).all() or (array < 0).any():
        raise ConfigError(f"{name} must be a list of finite numbers of at least 0, one per feature")
    return tuple(array.tolist())


Single = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class LDPReports:
    """LDP reports: one row of perturbed values per record, and the features that each row covers.

    ``values`` is an array (records, k); the mechanism defines its meaning. ``indices`` (records, k) lists the
    features, ascending in each row; None means all of them, in order.
    """

    values: npt.NDArray[Any]
    indices: npt.NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def part(self, part: slice) -> "LDPReports":
        """Return the LDP reports of some records, as views."""
        return LDPReports(self.values[part], None if self.indices is None else self.indices[part])


@dataclass(frozen=True, kw_only=True)
class FeatureMechanism(ABC):
    """A randomizer of a record's features x, shape (dim,), under one budget for the whole vector.

    Fields are public and the same for all records. ``perturb`` maps private rows to LDP reports. ``estimate``
    maps LDP reports to rows, without further privacy cost; their expectation is x if the mechanism is
    documented as unbiased. With ``epsilon`` inf both leave x unchanged.

    Args:
        epsilon: Budget of the whole vector.
        dim: Number d of features.
        bounds: Public ranges of the features.
    """

    epsilon: float
    dim: int
    bounds: Bounds = field(default=Bounds())

    def __post_init__(self) -> None:
        check_budget(epsilon=self.epsilon)
        checks.integer_at_least(1, dim=self.dim)
        checks.within(1, MAX_DIM, dim=self.dim)
        fitting("bounds", self.bounds, Bounds)
        self.bounds.check_dim(self.dim)
        self._check()

    @property
    def claim(self) -> LocalDPClaim:
        """The guarantee of a record's LDP report."""
        return LocalDPClaim(self.epsilon, deviations=self.bounds.deviations)

    def perturb(self, x: Real, *, stream: Draws, rows: Integers | None = None) -> LDPReports:
        """Return the LDP reports of records.

        A row's randomness depends only on the stream and its number, so any partition of the records gives
        the same LDP reports. A stream is used for each row once, because equal noise on two records cancels.

        Args:
            x: Float features (records, dim); values outside the bounds are clipped.
            stream: Random words, from ``graphveil.mechanisms.LocalNoise`` or a client's own entropy.
            rows: Distinct numbers of the records; 0, 1, 2, ... if None.

        Raises:
            GraphError: If the shape is wrong, or a value is NaN or infinite.
            ConfigError: If two records have the same number.
            ReleaseError: If the stream was already used for a row.

        Privacy:
            Unit: one record. Reads: ``x``. The LDP reports may be public.
        """
        x = self.matrix(x)
        rows = distinct_rows(rows, len(x))
        if math.isinf(self.epsilon):
            return LDPReports(self.bounds.real(self.bounds.unit(x)).astype(x.dtype))
        stream.reserve_rows(rows)
        reports = self._empty(len(x))
        for part in row_blocks(len(x), self.dim):
            self._perturb(self.bounds.unit(x[part]), rows[part], stream, reports.part(part))
        return reports

    def estimate(self, reports: LDPReports) -> Single:
        """Return an estimate of each record's features, float32 (records, dim).

        Raises:
            GraphError: If the LDP reports have another shape than this mechanism's.
        """
        found = self.reported_values(reports)
        if reports.indices is None:
            return found
        # The estimate of a feature that was not reported is the middle of its range.
        out = self.bounds.real(np.full((len(reports), self.dim), 0.5, dtype=np.float32))
        np.put_along_axis(out, reports.indices, found, axis=1)
        return out

    def reported_values(self, reports: LDPReports) -> Single:
        """Return the estimates of the features that LDP reports cover, float32 (records, k).

        The result of ``estimate`` for all other features is the middle of their range, which is public. These
        k numbers per record are therefore equivalent to the full estimate.

        >>> from graphveil.mechanisms import MultiBit
        >>> reports = LDPReports(np.array([[1]], dtype=np.uint8), np.array([[2]], dtype=np.int32))
        >>> law = MultiBit(epsilon=1.0, dim=4)
        >>> bool(law.reported_values(reports)[0, 0] == law.estimate(reports)[0, 2])
        True
        """
        self._check_reports(reports)
        if math.isinf(self.epsilon):
            return reports.values.astype(np.float32)
        out = np.empty(reports.values.shape, dtype=np.float32)
        for part in row_blocks(len(reports), reports.values.shape[1]):
            self._reported_values(reports.part(part), out[part])
            if reports.indices is None or not isinstance(self.bounds.low, tuple):
                self.bounds.real(out[part])
            else:  # features have their own ranges
                indices = reports.indices[part]
                out[part] *= self.bounds.width.astype(np.float32)[indices]
                out[part] += np.asarray(self.bounds.low, dtype=np.float32)[indices]
        return out

    def variance(self, x: Real) -> Floats:
        """Return the variance of each coordinate's estimate, for features (records, dim)."""
        if math.isinf(self.epsilon):
            return np.zeros(x.shape)
        return self._variance(np.asarray(self.bounds.unit(x), dtype=np.float64)) * self.bounds.width**2

    @property
    def worst_variance(self) -> float:
        """The largest variance of any coordinate's estimate, over all features in the bounds.

        >>> from graphveil.mechanisms import PerFeature, EvenAllocation
        >>> law = PerFeature(epsilon=2.0, dim=2, scalar="three-outputs", allocation=EvenAllocation())
        >>> round(4 * law.worst_variance, 8)  # the scalar's at epsilon 1, on [-1, 1]
        4.45545172
        """
        return 0.0 if math.isinf(self.epsilon) else float(np.max(self._worst() * self.bounds.width**2))

    @abstractmethod
    def _check(self) -> None:
        """Check the fields of a subclass."""

    @abstractmethod
    def _empty(self, records: int) -> LDPReports:
        """Return LDP reports to fill."""

    @abstractmethod
    def _perturb(self, z: Real, rows: Integers, stream: Draws, out: LDPReports) -> None:
        """Fill the LDP reports of rows z in [0, 1]."""

    @abstractmethod
    def _reported_values(self, reports: LDPReports, out: Single) -> None:
        """Write, on the unit scale, the estimates of the features that LDP reports cover (records, k)."""

    @abstractmethod
    def _variance(self, z: Floats) -> Floats:
        """Return the variances on the unit scale."""

    @abstractmethod
    def _worst(self) -> Floats:
        """Return the largest variance of each coordinate on the unit scale, (dim,) or one for all."""

    def _check_reports(self, reports: LDPReports) -> None:
        like = LDPReports(np.empty((0, self.dim))) if math.isinf(self.epsilon) else self._empty(0)
        wanted = (len(reports), like.values.shape[1])
        shapes = [part.shape for part in (reports.values, reports.indices) if part is not None]
        if any(shape != wanted for shape in shapes) or (reports.indices is None) != (like.indices is None):
            raise GraphError(
                f"LDP reports of shape {shapes} do not belong to this mechanism, which needs {wanted}"
            )

    def matrix(self, x: Real) -> Real:
        """Return records as floats (records, dim).

        Raises:
            GraphError: If the shape is wrong, or the values are not numbers.
        """
        x = np.asarray(x)
        if x.ndim != 2 or x.shape[1] != self.dim or x.dtype.kind not in "fiub":
            raise GraphError(f"features of shape {x.shape} must have the shape (records, {self.dim})")
        return x if x.dtype in (np.float32, np.float64) else x.astype(np.float64)


def distinct_rows(rows: Integers | None, count: int) -> Integers:
    if rows is None:
        return np.arange(count)
    if rows.shape != (count,) or len(np.unique(rows)) != count or (count and rows.min() < 0):
        raise ConfigError(f"rows must be {count} distinct integers of at least 0, one per record")
    return rows.astype(np.int64)

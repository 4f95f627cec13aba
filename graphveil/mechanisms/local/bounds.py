"""The public range of features, and the only way in for private ones: checked, clipped, rescaled."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from graphveil.errors import ConfigError, GraphError
from graphveil.mechanisms._draws import Floats, Real

FROM_DATA = "bounds taken from the data"

_LEAST, _LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)

Ends = float | tuple[float, ...]


@dataclass(frozen=True)
class Bounds:
    """Features lie in [low, high]: one range for all, or one each. Public, agreed before anyone answers.

    Values outside are clipped, silently; :meth:`outside` counts them, and its answer is private.

    Raises:
        ConfigError: an end is not finite, or a range is empty.

    >>> Bounds(0.0, 2.0).unit(np.array([[0.5, 3.0]])).tolist()
    [[0.25, 1.0]]
    """

    low: Ends = 0.0
    high: Ends = 1.0
    from_data: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        """Check every range."""
        low, high = _ends("low", self.low), _ends("high", self.high)
        if isinstance(low, tuple) != isinstance(high, tuple) or np.size(low) != np.size(high):
            raise ConfigError("low and high must both be numbers, or both hold one number per feature")
        if not bool(np.all(np.less(low, high))):
            raise ConfigError(f"low={self.low!r} must be below high={self.high!r}")
        _check_width(np.asarray(low), np.asarray(high))
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @classmethod
    def of_data(cls, x: Real, *, data_dependent_bounds: bool = False) -> "Bounds":
        """Return the smallest range that holds the data, which depends on them.

        Raises:
            ConfigError: without ``data_dependent_bounds=True``, under which nothing is certified.
        """
        if data_dependent_bounds is not True:
            raise ConfigError(
                "bounds taken from the data tell the most extreme people's values; give public bounds, or "
                "data_dependent_bounds=True, which voids the guarantee"
            )
        _check_finite(x)
        low, high = float(x.min()), float(x.max())
        return cls(low, high if high > low else low + 1.0, from_data=True)

    @property
    def deviations(self) -> tuple[str, ...]:
        """Why a claim under these bounds does not hold, if it does not."""
        return (FROM_DATA,) if self.from_data else ()

    @property
    def width(self) -> Floats:
        """high - low, shape () or (features,)."""
        return np.asarray(self.high, dtype=np.float64) - np.asarray(self.low, dtype=np.float64)

    def check_dim(self, dim: int) -> None:
        """Require one range, or as many as there are features."""
        if isinstance(self.low, tuple) and len(self.low) != dim:
            raise ConfigError(f"bounds for {len(self.low)} features do not fit dim={dim}")

    def unit(self, x: Real) -> Real:
        """Return features rescaled to [0, 1], clipped.

        Raises:
            GraphError: a value is NaN or infinite.
        """
        _check_finite(x)
        if (self.low, self.high) != (0.0, 1.0):
            x = (np.clip(x, np.asarray(self.low), np.asarray(self.high)) - np.asarray(self.low)) / self.width
        inside = x.size == 0 or (x.min() >= 0 and x.max() <= 1)
        return x if inside else np.clip(x, 0.0, 1.0)

    def real(self, z: Real) -> Real:
        """Return values of the unit scale on the features' scale, in place where they are floats."""
        if (self.low, self.high) != (0.0, 1.0):
            z *= self.width.astype(z.dtype)
            z += np.asarray(self.low, dtype=z.dtype)
        return z

    def outside(self, x: Real) -> int:
        """Return how many values lie outside and are clipped. This is private: never publish it."""
        return int(((x < np.asarray(self.low)) | (x > np.asarray(self.high))).sum())


def _ends(name: str, ends: Any) -> Ends:
    values = list(ends) if isinstance(ends, Iterable) else [ends]
    if not values or not all(
        isinstance(end, int | float | np.number) and -_LARGEST <= end <= _LARGEST for end in values
    ):
        raise ConfigError(f"{name}={ends!r} must be a finite number within ±3.4e38, or one per feature")
    return tuple(float(end) for end in values) if isinstance(ends, Iterable) else float(values[0])


def _check_width(low: Floats, high: Floats) -> None:
    """Require widths that single precision holds: an infinite one would turn every value into the same."""
    width = high - low
    if not bool(((width >= _LEAST) & (width <= _LARGEST)).all()):
        raise ConfigError(
            f"high - low must be between {_LEAST:.2g} and {_LARGEST:.2g}, as estimates are numbers of single "
            "precision; measure in another unit"
        )


def _check_finite(x: npt.NDArray[Any]) -> None:
    """Refuse NaN and infinities without saying where they are."""
    with np.errstate(invalid="ignore"):
        if x.size and not np.isfinite([x.min(), x.max()]).all():
            raise GraphError("features hold NaN or infinite values; replace them before they are perturbed")

"""How one budget is spent on many features: split, on a sample of them, or by public weights."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from graphveil._util import checks
from graphveil.errors import ConfigError, UnsupportedGuaranteeError
from graphveil.mechanisms._draws import Floats

_ROUNDING = 1e-9  # how far the sum of weights may be off one


@dataclass(frozen=True)
class EvenAllocation:
    """Every feature gets epsilon / d. The variance of a coordinate grows like d^2."""

    def budgets(self, epsilon: float, dim: int) -> Floats:
        """Return the budget of each feature."""
        return np.full(dim, epsilon / dim)


@dataclass(frozen=True)
class SampledAllocation:
    """``count`` features drawn uniformly without replacement get epsilon / count each, the others nothing.

    What is drawn does not depend on the features. ``count`` None means max(1, min(d, floor(epsilon / 2.5))),
    at which the variance is about smallest; it grows like d.

    >>> SampledAllocation().size(6.0, 100), SampledAllocation(3).size(6.0, 2)
    (2, 2)
    """

    count: int | None = None

    def __post_init__(self) -> None:
        """Check the count."""
        if self.count is not None:
            checks.integer_at_least(1, count=self.count)

    def size(self, epsilon: float, dim: int) -> int:
        """Return how many of ``dim`` features are sampled."""
        if self.count is not None:
            return min(self.count, dim)
        return dim if math.isinf(epsilon) else max(1, min(dim, int(epsilon / 2.5)))


@dataclass(frozen=True, init=False)
class WeightedAllocation:
    """Feature i gets epsilon theta_i, where theta is public, >= 0 and adds up to one.

    Whether a theta fits is checked, never mended: a sum above one would spend more than the budget. And it
    is the same for all records: a theta computed from a record depends on it, beyond any bound if it is
    used to decode.

    Raises:
        ConfigError: a weight is negative or not finite, or the sum is not one.
        UnsupportedGuaranteeError: one theta per record.

    >>> WeightedAllocation([0.5, 0.25])
    Traceback (most recent call last):
    graphveil.errors.ConfigError: theta adds up to 0.75 instead of 1, so a record would spend 0.75 times its \
budget; take WeightedAllocation.linear, which normalizes public scores
    """

    theta: tuple[float, ...]

    def __init__(self, theta: Iterable[float]) -> None:
        """Take one weight per feature."""
        object.__setattr__(self, "theta", _vector("theta", theta))
        total = math.fsum(self.theta)
        if abs(total - 1) > _ROUNDING:
            raise ConfigError(
                f"theta adds up to {total:.6g} instead of 1, so a record would spend {total:.6g} times its "
                "budget; take WeightedAllocation.linear, which normalizes public scores"
            )

    @classmethod
    def linear(cls, scores: Iterable[float]) -> "WeightedAllocation":
        """Return theta proportional to public scores."""
        return cls._normalized(np.array(_vector("scores", scores)))

    @classmethod
    def cube_root(cls, scores: Iterable[float]) -> "WeightedAllocation":
        """Return theta proportional to the cube roots of public scores w.

        For small budgets the variance of an unbiased estimate falls like 1/epsilon_i^2, and this is the
        minimizer of sum w_i / epsilon_i^2 at a given sum of budgets: the least weighted squared error.

        >>> WeightedAllocation.cube_root([8.0, 1.0]).theta
        (0.6666666666666666, 0.3333333333333333)
        """
        return cls._normalized(np.cbrt(_vector("scores", scores)))

    @classmethod
    def _normalized(cls, scores: Floats) -> "WeightedAllocation":
        if not scores.sum() > 0:
            raise ConfigError("all scores are zero, so there is nothing to weigh by; take Split()")
        return cls((scores / scores.sum()).tolist())

    def budgets(self, epsilon: float, dim: int) -> Floats:
        """Return the budget of each feature; together never more than epsilon."""
        if len(self.theta) != dim:
            raise ConfigError(f"theta has {len(self.theta)} weights and there are {dim} features")
        return np.array(self.theta) * (epsilon / max(1.0, math.fsum(self.theta)))


Allocation = EvenAllocation | SampledAllocation | WeightedAllocation


def _vector(name: str, values: Iterable[float]) -> tuple[float, ...]:
    try:
        array = np.asarray(list(values), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} must be a list of numbers, one per feature") from error
    if array.ndim == 2:
        raise UnsupportedGuaranteeError(
            f"{name} has one row per record: weights that depend on a record answer about it, at a price "
            "above epsilon that has no bound once they are used to decode; compute them from public records"
        )
    if array.ndim != 1 or not array.size or not np.isfinite(array).all() or (array < 0).any():
        raise ConfigError(f"{name} must be a list of finite numbers of at least 0, one per feature")
    return tuple(array.tolist())

"""Which mechanism randomizes features, by the name that a configuration gives it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from graphveil._util import checks
from graphveil.artifacts.rows import ReleaseRow
from graphveil.errors import ConfigError
from graphveil.mechanisms import (
    AnalyticGaussian,
    Bounds,
    EvenAllocation,
    FeatureMechanism,
    FeatureRR,
    MultiBit,
    PerFeature,
    SampledAllocation,
    WeightedAllocation,
)
from graphveil.mechanisms.feature_rr import Decode
from graphveil.mechanisms.feature_rr import Mode as Rounding

Samples = int | Literal["best", "floor"]
BinCount = int | Literal["auto"]
GAUSSIAN_DELTA = 1e-10  # LPGNN's
IDENTITY_MECHANISM = "as it is"
_PLAIN_BINS = ("auto", "stochastic", "unbiased")


@dataclass(frozen=True, kw_only=True)
class FeatureReportConfig:
    """The public choices behind a mechanism, before the number of features is known.

    Args:
        name: a name of :data:`FEATURES`.
        epsilon: the budget of the whole vector; inf leaves features as they are.
        bounds: the public range of features.
        m: of ``"multi-bit"``: how many features tell a bit.
        theta: public weights of the features, which add up to one: feature i tells at epsilon theta_i. Of
            those in :data:`WEIGHTED_MECHANISMS`, where each feature has a mechanism of its own; None for
            equal weights, or for a sample of features.
        delta: of ``"agm"``.
        k, rounding, decode: of ``"feature-rr"``, see :class:`FeatureRR` (rounding is its mode).

    >>> FeatureReportConfig(name="multi-bit", epsilon=1.0).mechanism(500).samples
    1
    """

    name: str
    epsilon: float
    bounds: Bounds = field(default=Bounds())
    m: Samples = "best"
    theta: Sequence[float] | None = None
    delta: float = GAUSSIAN_DELTA
    k: BinCount = "auto"
    rounding: Rounding = "stochastic"
    decode: Decode = "unbiased"

    def __post_init__(self) -> None:
        """Refuse a choice that the mechanism does not have: it would be believed to do something."""
        checks.one_of(tuple(FEATURES), features=self.name)
        if self.theta is not None and self.name not in WEIGHTED_MECHANISMS:
            raise ConfigError(
                f"theta weighs the features of {', '.join(WEIGHTED_MECHANISMS)}, and features={self.name!r} "
                "has no "
                "budget for each; drop it"
            )
        if self.m != "best" and self.name != "multi-bit":
            raise ConfigError(f"m={self.m!r} is for features='multi-bit', not {self.name!r}; drop it")
        if self.name != "feature-rr" and (self.k, self.rounding, self.decode) != _PLAIN_BINS:
            raise ConfigError(
                f"k, rounding and decode are for features='feature-rr', not {self.name!r}; drop them"
            )

    def mechanism(self, dim: int) -> FeatureMechanism:
        """Return the mechanism for vectors of so many features."""
        return FEATURES[self.name](self, dim)


def _multi_bit(given: FeatureReportConfig, dim: int) -> FeatureMechanism:
    return MultiBit(epsilon=given.epsilon, dim=dim, bounds=given.bounds, m=given.m)


def _one_bit(given: FeatureReportConfig, dim: int) -> FeatureMechanism:
    return MultiBit(epsilon=given.epsilon, dim=dim, bounds=given.bounds, m="all")


def _laplace(given: FeatureReportConfig, dim: int) -> FeatureMechanism:
    allocation = _allocation(given)
    return PerFeature(
        epsilon=given.epsilon, dim=dim, bounds=given.bounds, scalar="laplace", allocation=allocation
    )


def _gaussian(given: FeatureReportConfig, dim: int) -> FeatureMechanism:
    return AnalyticGaussian(epsilon=given.epsilon, dim=dim, bounds=given.bounds, delta=given.delta)


def _sampled(scalar: str) -> Callable[[FeatureReportConfig, int], FeatureMechanism]:
    def build(given: FeatureReportConfig, dim: int) -> FeatureMechanism:
        allocation = SampledAllocation() if given.theta is None else WeightedAllocation(given.theta)
        return PerFeature(
            epsilon=given.epsilon, dim=dim, bounds=given.bounds, scalar=scalar, allocation=allocation
        )

    return build


def _feature_rr(given: FeatureReportConfig, dim: int) -> FeatureMechanism:
    return FeatureRR(
        epsilon=given.epsilon,
        dim=dim,
        bounds=given.bounds,
        allocation=_allocation(given),
        k=given.k,
        mode=given.rounding,
        decode=given.decode,
    )


def _feature_rr_naive(given: FeatureReportConfig, dim: int) -> FeatureMechanism:
    return FeatureRR(
        epsilon=given.epsilon,
        dim=dim,
        bounds=given.bounds,
        allocation=_allocation(given),
        k=10,
        mode="ceil",
        decode="naive",
    )


def _allocation(given: FeatureReportConfig) -> EvenAllocation | WeightedAllocation:
    return EvenAllocation() if given.theta is None else WeightedAllocation(given.theta)


FEATURES: dict[str, Callable[[FeatureReportConfig, int], FeatureMechanism]] = {
    "multi-bit": _multi_bit,
    "1bm": _one_bit,
    "lpm": _laplace,
    "agm": _gaussian,
    "duchi": _sampled("duchi"),
    "piecewise": _sampled("piecewise"),
    "pm-sub": _sampled("pm-sub"),
    "hybrid": _sampled("hybrid"),
    "three-outputs": _sampled("three-outputs"),
    "feature-rr": _feature_rr,
    "feature-rr-naive": _feature_rr_naive,
}
WEIGHTED_MECHANISMS = tuple(name for name in FEATURES if name not in ("multi-bit", "1bm", "agm"))


def feature_row(mechanism: FeatureMechanism) -> ReleaseRow:
    """Return what leaves each node of its features, as a line of a table."""
    return ReleaseRow(
        kind="features",
        sensitivity=float(np.max(mechanism.bounds.width)),
        noise_std=[math.sqrt(mechanism.worst_variance)],
        values_per_node=_num_reported(mechanism),
        words=feature_mechanism_summary(mechanism),
    )


def _num_reported(mechanism: FeatureMechanism) -> int:
    """Return how many features a node tells about."""
    return int(getattr(mechanism, "samples", mechanism.dim))


def feature_mechanism_summary(mechanism: FeatureMechanism) -> str:
    """Return what each node does to its features, in words.

    >>> feature_mechanism_summary(MultiBit(epsilon=1.0, dim=500))
    'MultiBit, 1 of 500 features told, epsilon 1, cut to [0, 1]'
    """
    features = f"{type(mechanism).__name__}, {_num_reported(mechanism)} of {mechanism.dim} features told"
    weighed = isinstance(getattr(mechanism, "allocation", None), WeightedAllocation)
    features += " by public weights" if weighed else ""
    low, high = np.min(mechanism.bounds.low), np.max(mechanism.bounds.high)
    cut = f", cut to [{low:g}, {high:g}]"
    if math.isinf(mechanism.epsilon):
        return IDENTITY_MECHANISM + cut
    return f"{features}, epsilon {mechanism.epsilon:g}{cut}"

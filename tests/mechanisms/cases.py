"""The case table of all local mechanisms: one of each kind, what it randomizes, which budgets are none."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from graphveil.mechanisms import (
    AnalyticGaussian,
    Bounds,
    EvenAllocation,
    FeatureMechanism,
    FeatureRR,
    LabelRR,
    LocalHashing,
    MultiBit,
    PerFeature,
    RecordFeatureRR,
    SampledAllocation,
    SubsetSelection,
    WeightedAllocation,
)
from graphveil.papers.scalar_mechanisms import SCALARS, scalar

Arrays = list[np.ndarray]
THETA = WeightedAllocation([0.5, 0.3, 0.2])

FEATURES: dict[str, Callable[..., FeatureMechanism]] = {
    "multi-bit": partial(MultiBit, m=2),
    "one bit": partial(MultiBit, m="all"),
    "feature-rr": FeatureRR,
    "feature-rr, weights": partial(FeatureRR, allocation=THETA),
    "feature-rr, many bins": partial(FeatureRR, k=7),
    "feature-rr, ceil": partial(FeatureRR, k=7, mode="ceil"),
    "feature-rr, paper": partial(FeatureRR, k=10, mode="ceil", decode="naive"),
    "gaussian": partial(AnalyticGaussian, delta=1e-6),
} | {
    f"{name}, {type(way).__name__}": partial(PerFeature, scalar=name, allocation=way)
    for name in SCALARS
    for way in (EvenAllocation(), SampledAllocation(2), THETA)
}
BIASED = {"feature-rr, paper", "feature-rr, ceil"}
ENUMERABLE = ["multi-bit", "one bit", *(name for name in FEATURES if name.startswith("feature-rr"))]
ENUMERABLE += [
    f"{name}, {way}"
    for name in ("duchi", "three-outputs")
    for way in ("EvenAllocation", "SampledAllocation", "WeightedAllocation")
]


def made(name: str, epsilon: float = 3.0, bounds: Bounds | None = None) -> FeatureMechanism:
    """Return a mechanism for three features."""
    return FEATURES[name](epsilon=epsilon, dim=3, bounds=bounds or Bounds())


def records(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((count, 3))


# -- whatever a record is ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """How a mechanism is made for a budget, and so many records as it takes them, one row each."""

    make: Callable[[float], Any]
    records: Callable[[int], Arrays]
    many: int = 300


def _labels(count: int) -> Arrays:
    return [np.arange(count) % 4]


def _weighed(count: int) -> Arrays:
    return [records(count), np.random.default_rng(1).dirichlet(np.ones(3), size=count)]


CASES = {name: Case(partial(made, name), lambda count: [records(count)]) for name in FEATURES} | {
    "labels": Case(lambda epsilon: LabelRR(epsilon=epsilon, classes=4), _labels, many=40_000),
    "several labels": Case(lambda epsilon: SubsetSelection(epsilon=epsilon, classes=9), _labels, many=40_000),
    "a group of labels": Case(lambda epsilon: LocalHashing(epsilon=epsilon, classes=9), _labels, many=40_000),
    "weights of each record": Case(
        lambda epsilon: RecordFeatureRR(epsilon=epsilon, dim=3, k=4, mode="paper"), _weighed
    ),
}


def reported_arrays(reports: Any) -> Arrays:
    """Return the parts of LDP reports: values, and the indices of sampled features."""
    parts = [getattr(reports, "values", reports), getattr(reports, "indices", None)]
    return [part for part in parts if part is not None]


# -- budgets -----------------------------------------------------------------------------------------------

BUDGETED: dict[str, Callable[[Any], object]] = {name: case.make for name, case in CASES.items()} | {
    f"one number: {name}": partial(scalar, name) for name in SCALARS
}
LABELS = ("labels", "several labels", "a group of labels")
NO_BUDGETS = [0, 0.0, -1.0, math.nan, -math.inf, "1", None, True]
BELOW_64_BITS = [*(name for name in BUDGETED if name.startswith("one number")), *LABELS]

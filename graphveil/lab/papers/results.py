"""From runs to results: the best setting of each point, its mean and interval, and the published value."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from graphveil.lab.papers.measures import Measurement
from graphveil.lab.papers.target import (
    VAL,
    CellPlace,
    Keywords,
    PublishedValue,
    ReproductionCell,
    ReproductionOptions,
    ReproductionTarget,
)

Verdict = Literal["agrees", "above", "below", "other data", "not published", "one run", "refused"]
Run = tuple[ReproductionCell, Measurement]
LEVEL = 0.05


@dataclass(frozen=True, kw_only=True)
class Point:
    """One value of ours, and the published one.

    Args:
        place: Dataset, panel, line, point on the axis.
        settings: The settings selected by mean validation accuracy.
        runs: Seed and values of each of their runs.
        metric: Name of the value that counts here.
        published: Published value there, or on the dataset that this one replaces.
        same_data: Whether it was published on these data.
        refused: Why there is no value.
    """

    place: CellPlace
    settings: Keywords
    runs: Mapping[int, Mapping[str, float]]
    metric: str
    published: PublishedValue | None = None
    same_data: bool = False
    refused: str = ""

    @property
    def values(self) -> list[float]:
        """The metric, run by run."""
        return [self.runs[seed][self.metric] for seed in sorted(self.runs)]

    @property
    def mean(self) -> float | None:
        """The mean; None if there is no run."""
        return None if not self.runs else sum(self.values) / len(self.values)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % bootstrap interval of the mean."""
        return interval(self.values)

    def verdict(self, scale: float) -> Verdict:
        """Compare with the published value: whether the two intervals overlap.

        Args:
            scale: Published unit in ours: 100 for percent.
        """
        if self.refused:
            return "refused"
        if self.published is None:
            return "not published"
        if not self.same_data:
            return "other data"
        if self.interval is None:
            return "one run"
        low, high = (scale * end for end in self.interval)
        if high < self.published.value - self.published.error:
            return "below"
        return "above" if low > self.published.value + self.published.error else "agrees"


@dataclass(frozen=True, kw_only=True)
class PairedComparison:
    """The difference of two lines at one place, over the seeds that both have.

    Args:
        place: of the first line.
        other: the second line's name.
        gains: by how much the first is above it, run by run.
        p_value: of a paired t-test, corrected for all comparisons of the target (Holm); None of one run.
    """

    place: CellPlace
    other: str
    gains: tuple[float, ...]
    p_value: float | None

    @property
    def mean(self) -> float:
        """The mean difference."""
        return sum(self.gains) / len(self.gains)

    @property
    def significant(self) -> bool:
        """Whether it is beyond chance, at the level of 5 % for all comparisons together."""
        return self.p_value is not None and self.p_value < LEVEL


def points_of(
    target: ReproductionTarget, run_options: ReproductionOptions, runs: Sequence[Run], metric: str = ""
) -> tuple[Point, ...]:
    """Return one point a place, in the order of the target."""
    by_place: dict[CellPlace, list[Run]] = {}
    for cell, found in runs:
        by_place.setdefault(cell.place, []).append((cell, found))
    return tuple(_point(target, place, there, metric or target.metric) for place, there in by_place.items())


def _point(target: ReproductionTarget, place: CellPlace, runs: list[Run], metric: str) -> Point:
    dataset, panel, line, x = place
    reference = (
        target.published_dataset(dataset) if metric == target.metric else None
    )  # of that one it was published
    shared: dict[str, Any] = {
        "place": place,
        "metric": metric,
        "published": target.published.get((reference, panel, line, x)) if reference else None,
        "same_data": reference == dataset,
    }
    settings = _by_settings(runs)
    whole = {key: some for key, some in settings.items() if not any(found.refused for _, found in some)}
    if not whole:
        return Point(settings={}, runs={}, refused=runs[0][1].refused, **shared)
    best = max(whole, key=lambda key: _selection(whole[key]))  # of equals the first
    values = {cell.work.seed: found.values for cell, found in whole[best]}
    return Point(settings=whole[best][0][0].settings, runs=values, **shared)


def _by_settings(runs: list[Run]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for cell, result in runs:
        found.setdefault(repr(sorted(cell.settings.items())), []).append((cell, result))
    return found


def _selection(runs: list[Run]) -> float:
    """Return what settings are chosen by: mean validation accuracy, where that was measured."""
    known = [found.values.get(VAL, 0.0) for _, found in runs]
    return sum(known) / len(known)


def is_chosen(point: Point, cell: ReproductionCell) -> bool:
    """Whether a cell belongs to a point."""
    return not point.refused and dict(cell.settings) == dict(point.settings)


def comparisons_of(target: ReproductionTarget, points: Sequence[Point]) -> tuple[PairedComparison, ...]:
    """Return the tested differences; p-values are corrected over all of them."""
    found = list(_pairs(target, {point.place: point for point in points}))
    raw = [paired_p_value(one, other) for _, _, one, other in found]
    known = [p for p in raw if p is not None]
    corrected = iter(holm(known))
    return tuple(
        PairedComparison(
            place=place,
            other=name,
            gains=tuple(a - b for a, b in zip(one, other, strict=True)),
            p_value=None if p is None else next(corrected),
        )
        for (place, name, one, other), p in zip(found, raw, strict=True)
    )


def _pairs(
    target: ReproductionTarget, points: Mapping[CellPlace, Point]
) -> Iterator[tuple[CellPlace, str, list[float], list[float]]]:
    """Yield the compared lines, with their values over the seeds that both have."""
    for place, point in points.items():
        dataset, panel, line, x = place
        for where, name, other in target.compared:
            if (where, name) != (panel, line):
                continue
            rival = points.get((dataset, panel, other, x)) or points.get((dataset, panel, other, None))
            both = sorted(set(point.runs) & set(rival.runs)) if rival is not None else []
            if rival is not None and both:
                own, reference = ([each.runs[seed][each.metric] for seed in both] for each in (point, rival))
                yield place, other, own, reference


CONFIDENCE, DRAWS = 0.95, 10_000


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % bootstrap interval of the mean (Efron 1979, percentiles); None for fewer than two.

    The bootstrap has a fixed seed, so equal values have equal intervals. For three values it is nearly their
    range, and covers less than its nominal level: 75 % if they are normally distributed.

    >>> interval([0.80, 0.82, 0.84])
    (0.8, 0.84)
    """
    if len(values) < 2:
        return None
    there = np.asarray(values, dtype=np.float64)
    drawn = np.random.default_rng(0).integers(len(there), size=(DRAWS, len(there)))
    tails = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(there[drawn].mean(axis=1), (tails, 100 - tails))
    return round(float(low), 6), round(float(high), 6)


def paired_p_value(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return the p-value of a paired two-sided t-test; None of fewer than two pairs.

    >>> round(paired_p_value([0.80, 0.82, 0.84], [0.70, 0.73, 0.73]), 4)
    0.0033
    """
    from scipy.stats import ttest_1samp

    gains = np.subtract(one, other)
    if len(gains) < 2:
        return None
    if np.ptp(gains) == 0:  # nothing varies, and nothing can be divided by
        return 1.0 if gains[0] == 0 else 0.0
    return float(ttest_1samp(gains, 0).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values corrected for being several (Holm 1979).

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values)
    scaled = np.asarray(p_values, dtype=np.float64)[order] * np.arange(len(p_values), 0, -1)
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(1, np.maximum.accumulate(scaled))
    return [float(p) for p in corrected]

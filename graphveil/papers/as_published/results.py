"""From runs to results: the best setting of each point, its mean and interval, and the published value."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from graphveil.papers.as_published.measures import Measurement
from graphveil.papers.as_published.target import (
    VAL,
    CellPlace,
    Keywords,
    PublishedValue,
    ReproductionCell,
    ReproductionOptions,
    ReproductionTarget,
)

Verdict = Literal["agrees", "above", "below", "other data", "not published", "one run", "rejected"]
Run = tuple[ReproductionCell, Measurement]
LEVEL = 0.05


@dataclass(frozen=True, kw_only=True)
class Point:
    """One reproduced value, and the published one.

    Args:
        place: Dataset, panel, line, point on the axis.
        settings: The settings selected by mean validation accuracy.
        runs: Seed and values of each of their runs.
        published: Published value for the place, or for the dataset that this one replaces.
        same_data: Whether the published value is for the same data.
    """

    place: CellPlace
    settings: Keywords
    runs: Mapping[int, Mapping[str, float]]
    metric: str
    published: PublishedValue | None = None
    same_data: bool = False
    rejected: str = ""

    @property
    def values(self) -> list[float]:
        return [self.runs[seed][self.metric] for seed in sorted(self.runs)]

    @property
    def mean(self) -> float | None:
        return None if not self.runs else sum(self.values) / len(self.values)

    @property
    def interval(self) -> tuple[float, float] | None:
        return interval(self.values)

    def verdict(self, scale: float) -> Verdict:
        """Compare the interval with that of the published value.

        Args:
            scale: Factor from a share to the published unit: 100 for percent.
        """
        if self.rejected:
            return "rejected"
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

    def as_dict(self, scale: float) -> dict[str, Any]:
        ends, known = self.interval, self.published
        return {
            **self.place.as_dict(),
            "settings": dict(self.settings),
            "runs": len(self.runs),
            "ours": None if self.mean is None else round(scale * self.mean, 4),
            "ci95": None if ends is None else [round(scale * end, 4) for end in ends],
            "published": None if known is None else known.value,
            "published_error": None if known is None else known.error,
            "published_source": None if known is None else known.source,
            "verdict": self.verdict(scale),
        }


@dataclass(frozen=True, kw_only=True)
class PairedComparison:
    """Difference of two lines at one place, over the seeds that both have.

    Args:
        gains: Difference of the two lines, run by run.
        p_value: P-value of a paired t-test, corrected for all comparisons of the target (Holm); None for a
            single run.
    """

    place: CellPlace
    other: str
    gains: tuple[float, ...]
    p_value: float | None

    @property
    def mean(self) -> float:
        return sum(self.gains) / len(self.gains)

    @property
    def significant(self) -> bool:
        return self.p_value is not None and self.p_value < LEVEL

    def as_dict(self, scale: float) -> dict[str, Any]:
        return {
            **self.place.as_dict(),
            "other": self.other,
            "difference": round(scale * self.mean, 4),
            "p_holm": None if self.p_value is None else float(f"{self.p_value:.4g}"),
            "significant": self.significant,
        }


def points_of(
    target: ReproductionTarget, run_options: ReproductionOptions, runs: Sequence[Run], metric: str = ""
) -> tuple[Point, ...]:
    """Return one point per place, in the order of the target, with its best settings.

    Settings are compared by mean validation accuracy; a setting with a rejected run is left out.
    """
    by_place: dict[CellPlace, dict[str, list[Run]]] = {}
    for cell, found in runs:
        settings = repr(sorted(cell.settings.items()))
        by_place.setdefault(cell.place, {}).setdefault(settings, []).append((cell, found))
    points = []
    for place, by_settings in by_place.items():
        # Published values are those of the target's own metric.
        reference = target.published_dataset(place.dataset) if metric in ("", target.metric) else None
        shared: dict[str, Any] = {
            "place": place,
            "metric": metric or target.metric,
            "published": target.published.get((reference, *place[1:])) if reference else None,
            "same_data": reference == place.dataset,
        }
        best, best_accuracy = list[Run](), -math.inf
        for some in by_settings.values():
            accuracy = sum(found.values.get(VAL, 0.0) for _, found in some) / len(some)
            if not any(found.rejected for _, found in some) and accuracy > best_accuracy:
                best, best_accuracy = some, accuracy  # of equal settings the first
        if best:
            values = {cell.work.seed: found.values for cell, found in best}
            points.append(Point(settings=best[0][0].settings, runs=values, **shared))
        else:
            (_, first), *_ = next(iter(by_settings.values()))
            points.append(Point(settings={}, runs={}, rejected=first.rejected, **shared))
    return tuple(points)


def is_chosen(point: Point, cell: ReproductionCell) -> bool:
    return not point.rejected and dict(cell.settings) == dict(point.settings)


def comparisons_of(target: ReproductionTarget, points: Sequence[Point]) -> tuple[PairedComparison, ...]:
    by_place, found = {point.place: point for point in points}, list[PairedComparison]()
    for place, point in by_place.items():
        for where, name, other in target.compared:
            at = place._replace(line=other)
            rival = by_place.get(at) or by_place.get(at._replace(x=None))
            both = sorted(set(point.runs) & set(rival.runs)) if rival is not None else []
            if (where, name) == (place.panel, place.line) and rival is not None and both:
                own, reference = ([each.runs[seed][each.metric] for seed in both] for each in (point, rival))
                gains = tuple(a - b for a, b in zip(own, reference, strict=True))
                p_value = paired_p_value(own, reference)
                found.append(PairedComparison(place=place, other=other, gains=gains, p_value=p_value))
    corrected = iter(holm([one.p_value for one in found if one.p_value is not None]))
    return tuple(one if one.p_value is None else replace(one, p_value=next(corrected)) for one in found)


CONFIDENCE, DRAWS = 0.95, 10_000


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % bootstrap interval of the mean (Efron 1979, percentiles); None for a single value.

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
    """Return the p-value of a paired two-sided t-test; None for fewer than two pairs.

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
    """Return p-values with the correction of Holm (1979) for multiple tests.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values)
    scaled = np.asarray(p_values, dtype=np.float64)[order] * np.arange(len(p_values), 0, -1)
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(1, np.maximum.accumulate(scaled))
    return [float(p) for p in corrected]

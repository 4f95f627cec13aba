"""From runs to figures: the best setting of each place, its mean and interval, beside what was published."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from graphveil.lab.papers.cells import ReproductionCell, ReproductionOptions
from graphveil.lab.papers.measures.measurement import Measurement
from graphveil.lab.papers.statistics import holm, interval, paired_p_value
from graphveil.lab.papers.target import VAL, CellPlace, Keywords, PublishedValue, ReproductionTarget

Verdict = Literal["agrees", "above", "below", "other data", "not published", "one run", "refused"]
Run = tuple[ReproductionCell, Measurement]
LEVEL = 0.05


@dataclass(frozen=True, kw_only=True)
class Point:
    """One figure of ours, beside the published one.

    Args:
        place: data set, panel, line, place on the axis.
        settings: those that were chosen, by mean validation accuracy.
        runs: seed and figures of each run of them.
        metric: which of the figures counts here.
        published: what was published there, or on the data set that this one stands in for.
        same_data: whether it was published on these data.
        refused: why there is no figure.
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
        """Return how it stands to the published figure: whether the intervals of both meet.

        Args:
            scale: of a published unit in ours: 100 for percent.
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
    """Whether a cell is one of those that a point stands for."""
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
    """Yield the lines that are compared, with their figures over the seeds that both have."""
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

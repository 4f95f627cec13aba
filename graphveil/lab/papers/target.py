"""What a target is: lines over an axis, as plain records, and what was published there."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from graphveil._util import checks
from graphveil.errors import ConfigError

Mode = Literal["paper", "strict"]
Keywords = Mapping[str, Any]
SearchSpace = Mapping[str, tuple[Any, ...]]
MODES: tuple[Mode, ...] = ("paper", "strict")
TEST, VAL = "test", "val"  # accuracies, among what a cell measures


@dataclass(frozen=True, kw_only=True)
class TargetLine:
    """One row of a table, one curve of a figure.

    Args:
        name: what tables call it; one name is one color.
        panel: the part of the table or figure that it stands in.
        method: a name of ``METHODS``.
        measure: how a cell is measured, a name of ``graphveil.lab.papers.measures.MEASURES``.
        parameters: constructor keywords in both modes.
        paper: keywords of paper mode alone.
        strict: keywords of strict mode alone: public settings, fixed beforehand.
        search: keywords that paper mode searches, and their values.
        quick: what ``--quick`` searches instead; as ``search`` where it is None.
        options: what the measure is told besides.
        keyword: the constructor keyword that the axis sets; the axis' own by default.
        xs: its places on the axis; None for all of them.
        level: whether the axis decides nothing about it.
        free: all keywords where the budget is infinite, in place of those above.
        by_dataset: further keywords of single data sets; those of a mode go before them.
        datasets: the data sets that it is run on; None for all.
        starts: for single data sets, its first place on the axis.
        left_out: why it is not run on other data sets, or before those places.
        modes: the modes that it is part of.
    """

    name: str
    method: str
    panel: str = ""
    measure: str = "fit"
    parameters: Keywords = field(default_factory=dict)
    paper: Keywords = field(default_factory=dict)
    strict: Keywords = field(default_factory=dict)
    search: SearchSpace = field(default_factory=dict)
    quick: SearchSpace | None = None
    options: Keywords = field(default_factory=dict)
    keyword: str | None = None
    xs: tuple[float, ...] | None = None
    level: bool = False
    free: Keywords | None = None
    by_dataset: Mapping[str, Keywords] = field(default_factory=dict)
    datasets: tuple[str, ...] | None = None
    starts: Mapping[str, float] = field(default_factory=dict)
    left_out: str = ""
    modes: tuple[Mode, ...] = MODES

    def keywords(self, mode: Mode, dataset: str) -> dict[str, Any]:
        """Return the constructor keywords of a mode, but for what the axis sets."""
        own = self.paper if mode == "paper" else self.strict
        return {**self.parameters, **self.by_dataset.get(dataset, {}), **own}

    def runs_on(self, dataset: str) -> bool:
        """Whether it is run on a data set at all."""
        return self.datasets is None or dataset in self.datasets

    def searched(self, mode: Mode, *, quick: bool) -> SearchSpace:
        """Return what is searched by validation accuracy: nothing in strict mode."""
        if mode == "strict":
            return {}
        return self.quick if quick and self.quick is not None else self.search


@dataclass(frozen=True, kw_only=True)
class Axis:
    """What changes along a figure, or from column to column of a table.

    Args:
        label: what stands below it.
        keyword: the constructor keyword that it sets.
        values: its places.
        quick: those of ``--quick``.
        log: whether its places stand at equal ratios.
    """

    label: str
    keyword: str
    values: tuple[float, ...]  # whole numbers are given as such
    quick: tuple[float, ...]
    log: bool = True

    @property
    def chosen(self) -> bool:
        """Whether its places were chosen by hand: then ``quick`` leaves none out."""
        return self.values == self.quick

    def at(self, places: Collection[float]) -> "Axis":
        """Return the axis with these of its places alone."""
        kept = tuple(x for x in self.values if x in places)
        return replace(self, values=kept, quick=kept)


@dataclass(frozen=True)
class PublishedValue:
    """A published figure, in percent unless the target says otherwise.

    Args:
        value: the figure.
        error: the half width of its interval, or of what can be read off a plot.
        source: ``"paper"``, the authors' published ``"notebook"``, or ``"read off"`` their plot.
    """

    value: float
    error: float
    source: Literal["paper", "notebook", "read off"] = "paper"


CellPlace = tuple[str, str, str, float | None]  # data set, panel, line, place on the axis
PublishedTable = Mapping[CellPlace, PublishedValue]


@dataclass(frozen=True, kw_only=True)
class ReproductionTarget:
    """One table or figure of a paper, declared: what is run, what was published, what is known to differ.

    Args:
        name: what the command calls it.
        title: what it shows, in one line.
        source: the paper, with the number of the table or figure.
        lines: its rows or curves.
        axis: what changes along it; None for a table of one column.
        datasets: what is run by default.
        stand_ins: for a data set, the published one whose figures stand beside it.
        published: what was published.
        recipe: how data are prepared and split.
        metrics: what is reported, of what the measure returns, with the words for it; the first one is
            drawn, and compared.
        percent: whether metrics are shares, and shown in percent.
        compared: pairs of lines, by panel, whose difference is tested.
        deviations: what is known to differ from the paper's own run, in paper mode.
        remarks: what else has to be said, in any mode.
        needs: what is missing for the published data, and how to get it.
        minutes: about how long it takes with three runs and two jobs: whole in paper mode, quick there, and
            in strict mode.
        figure: whether it is drawn, besides its table.
    """

    name: str
    title: str
    source: str
    lines: tuple[TargetLine, ...]
    axis: Axis | None = None
    datasets: tuple[str, ...]
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    published: PublishedTable = field(default_factory=dict)
    recipe: str = "gap"
    metrics: Mapping[str, str] = field(default_factory=lambda: {TEST: "test accuracy, %"})
    percent: bool = True
    compared: tuple[tuple[str, str, str], ...] = ()
    deviations: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    needs: str = ""
    minutes: tuple[float, float, float] = (0, 0, 0)
    figure: bool = True

    def __post_init__(self) -> None:
        """Check that lines are told apart, and comparisons name lines."""
        names = [(line.panel, line.name) for line in self.lines]
        if len(set(names)) != len(names):
            raise ValueError(f"target {self.name} has two lines with the same name")
        if not all(line.left_out for line in self.lines if line.datasets or line.starts):
            raise ValueError(f"target {self.name} has a partial line that does not say what is left out")
        if not all((panel, name) in names for panel, *pair in self.compared for name in pair):
            raise ValueError(f"target {self.name} compares a line that it does not have")

    @property
    def metric(self) -> str:
        """The metric that is drawn and compared."""
        return next(iter(self.metrics))

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The modes that it has, the default one first."""
        return tuple(mode for mode in MODES if any(mode in line.modes for line in self.lines))

    def lines_in(self, mode: Mode) -> tuple[TargetLine, ...]:
        """Return the lines of a mode."""
        return tuple(line for line in self.lines if mode in line.modes)

    def places(self, line: TargetLine, dataset: str = "", *, quick: bool) -> tuple[float | None, ...]:
        """Return a line's places on the axis, on a data set; one that is None where it has no axis."""
        if self.axis is None or line.level:
            return (None,)
        shown = self.axis.quick if quick else self.axis.values
        kept = shown if line.xs is None else tuple(x for x in line.xs if x in shown)
        return tuple(x for x in kept if x >= line.starts.get(dataset, -math.inf))

    def left_out(self, mode: Mode, *, quick: bool) -> Iterator[str]:
        """Yield what is not run though others are, line by line, each with why."""
        for line in self.lines_in(mode):
            gaps: dict[str, list[str]] = {}
            for name in self.datasets:
                if not line.runs_on(name):
                    gaps.setdefault("", []).append(name)
                elif self.places(line, name, quick=quick) != self.places(line, quick=quick):
                    gaps.setdefault(self._before(line.starts[name]), []).append(name)
            if gaps:
                where = "; ".join(f"on {', '.join(names)}{words}" for words, names in gaps.items())
                yield f"{line.name}, {where}: {line.left_out}"

    def _before(self, start: float) -> str:
        return f" below {'' if self.axis is None else self.axis.label} {start:g}"

    def published_dataset(self, dataset: str) -> str | None:
        """Return the published data set whose figures stand beside a data set; None if none do."""
        known = {place[0] for place in self.published}
        if dataset in known:
            return dataset
        return self.stand_ins.get(dataset, self.stand_ins.get(dataset.partition("/")[0]))

    def comparison_note(self, dataset: str) -> str:
        """Say what stands beside a data set."""
        known = self.published_dataset(dataset)
        if known is None:
            return f"nothing was published for {dataset}"
        return f"published on {known}" + ("" if known == dataset else f": other data than {dataset}")

    def on(self, datasets: Sequence[str]) -> "ReproductionTarget":
        """Return the target on other data sets."""
        return replace(self, datasets=tuple(datasets)) if datasets else self

    def at(self, places: Sequence[float]) -> "ReproductionTarget":
        """Return the target at some places of its axis alone, whatever ``--quick`` would leave out.

        Raises:
            ConfigError: there is no axis, or a place is not on it.
        """
        if not places:
            return self
        if self.axis is None:
            raise ConfigError(f"{self.name} has no axis, so no places can be chosen")
        kept, unknown = self.axis.at(places), sorted(set(places) - set(self.axis.values))
        if unknown:
            known = ", ".join(f"{x:g}" for x in self.axis.values)
            raise ConfigError(
                f"{self.axis.label} {unknown[0]:g} is no place of {self.name}, which has {known}"
            )
        return replace(self, axis=kept)


def table_of(
    dataset: str,
    panel: str,
    line: str,
    xs: Iterable[float | None],
    figures: Iterable[float | None],
    errors: Iterable[float] | float,
    source: Literal["paper", "notebook", "read off"] = "paper",
) -> Iterator[tuple[CellPlace, PublishedValue]]:
    """Yield published figures along an axis; a figure that is None was hidden in the plot.

    >>> dict(table_of("cora", "", "GAP", (1.0,), (70.1,), 0.5))
    {('cora', '', 'GAP', 1.0): PublishedValue(value=70.1, error=0.5, source='paper')}
    """
    places, values = list(xs), list(figures)
    spreads = [errors] * len(values) if isinstance(errors, int | float) else list(errors)
    for x, value, error in zip(places, values, spreads, strict=True):
        if value is not None:
            checks.positive(error=error)
            yield (dataset, panel, line, x), PublishedValue(value, error, source)

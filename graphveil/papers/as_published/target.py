"""A target, a table or figure of a paper: lines over an axis as plain records, cells, published values.

A cell is one run of one setting, and is computed once.
"""

import csv
import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

from graphveil import __version__
from graphveil.data import list_datasets
from graphveil.errors import ConfigError
from graphveil.papers.as_published.published import SUFFIX

Mode = Literal["paper", "strict"]
Keywords = Mapping[str, Any]
SearchSpace = Mapping[str, tuple[Any, ...]]
MODES: tuple[Mode, ...] = ("paper", "strict")
NO_METHOD = "-"
TEST, VAL = "test", "val"  # accuracies, among what a cell measures


@dataclass(frozen=True)
class TargetLine:
    """One row of a table, or one curve of a figure.

    Args:
        name: Name in tables; one name has one color.
        method: A name of ``METHODS``, which paper mode replaces by the method as published; ``-`` for none.
        measure: Measure of a cell, a name of ``measures.MEASURES``.
        parameters: Constructor keywords in both modes.
        paper: Keywords of paper mode alone.
        strict: Keywords of strict mode alone: public settings, fixed in advance.
        search: Values of the keywords that paper mode searches.
        quick: Search of ``--quick``; None for ``search``.
        keyword: Constructor keyword that the axis sets; the axis' own by default.
        xs: Points on the axis; None for all of them.
        level: Whether the result does not depend on the axis.
        free: All keywords for an infinite budget, replacing those above.
        by_dataset: Further keywords of single datasets; those of a mode take precedence.
        starts: For single datasets, the first point on the axis.
        left_out: Reason for leaving out other datasets, or earlier points.
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
        own = self.paper if mode == "paper" else self.strict
        return {**self.parameters, **self.by_dataset.get(dataset, {}), **own}

    def runs_on(self, dataset: str) -> bool:
        return self.datasets is None or dataset in self.datasets

    def searched(self, mode: Mode, *, quick: bool) -> SearchSpace:
        """Return the search by validation accuracy, which strict mode does not have."""
        if mode == "strict":
            return {}
        return self.quick if quick and self.quick is not None else self.search


@dataclass(frozen=True)
class Axis:
    """The quantity that varies along a figure, or between columns of a table."""

    label: str
    keyword: str
    values: tuple[float, ...]  # whole numbers are given as such
    quick: tuple[float, ...]
    log: bool = True

    @property
    def chosen(self) -> bool:
        """Whether the places are chosen by hand, so that ``quick`` leaves none out."""
        return self.values == self.quick

    def at(self, places: Collection[float]) -> "Axis":
        kept = tuple(x for x in self.values if x in places)
        return replace(self, values=kept, quick=kept)


@dataclass(frozen=True)
class PublishedValue:
    """A published value, in percent if the target does not define another unit.

    Args:
        error: Half width of its interval, or of the reading error of a plot.
        source: ``"paper"``, the authors' published ``"notebook"``, or ``"read off"`` their plot.
    """

    value: float
    error: float
    source: Literal["paper", "notebook", "read off"] = "paper"


class CellPlace(NamedTuple):
    """Where a cell is shown; ``x`` is its place on the axis."""

    dataset: str
    panel: str
    line: str
    x: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON, which has no infinity."""
        return {**self._asdict(), "x": "inf" if self.x == math.inf else self.x}


PublishedTable = Mapping[tuple[str, str, str, float | None], PublishedValue]


@dataclass(frozen=True, kw_only=True)
class ReproductionTarget:
    """One table or figure of a paper: its runs, its published values, and known differences.

    Args:
        source: The paper, with the number of the table or figure.
        axis: The varied quantity; None for a table of one column.
        stand_ins: For a dataset, the published one whose values are shown for comparison.
        metrics: Reported values of the measure, with their descriptions; the first one is
            plotted, and compared.
        compared: Pairs of lines, by panel, whose difference is tested.
        deviations: Known differences from the paper's own run, in paper mode.
        remarks: Further notes, in any mode.
        needs: What is missing for the published data, and how to get it.
        minutes: Approximate duration with three runs and two jobs: complete in paper mode, quick there, and
            in strict mode.
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
    plots_all_metrics: bool = False

    def __post_init__(self) -> None:
        names = [(line.panel, line.name) for line in self.lines]
        if len(set(names)) != len(names):
            raise ValueError(f"target {self.name} has two lines with the same name")
        if not all(line.left_out for line in self.lines if line.datasets or line.starts):
            raise ValueError(f"target {self.name} has a partial line that does not state what is omitted")
        if not all((panel, name) in names for panel, *pair in self.compared for name in pair):
            raise ValueError(f"target {self.name} compares with a line that it does not contain")

    @property
    def metric(self) -> str:
        return next(iter(self.metrics))

    @property
    def scale(self) -> float:
        return 100.0 if self.percent else 1.0

    @property
    def modes(self) -> tuple[Mode, ...]:
        return tuple(mode for mode in MODES if any(mode in line.modes for line in self.lines))

    def lines_in(self, mode: Mode) -> tuple[TargetLine, ...]:
        return tuple(line for line in self.lines if mode in line.modes)

    def places(self, line: TargetLine, dataset: str = "", *, quick: bool) -> tuple[float | None, ...]:
        if self.axis is None or line.level:
            return (None,)
        shown = self.axis.quick if quick else self.axis.values
        kept = shown if line.xs is None else tuple(x for x in line.xs if x in shown)
        return tuple(x for x in kept if x >= line.starts.get(dataset, -math.inf))

    def left_out(self, mode: Mode, *, quick: bool) -> Iterator[str]:
        for line in self.lines_in(mode):
            gaps: dict[str, list[str]] = {}
            for name in self.datasets:
                if not line.runs_on(name):
                    gaps.setdefault("", []).append(name)
                elif self.places(line, name, quick=quick) != self.places(line, quick=quick):
                    below = f" below {'' if self.axis is None else self.axis.label} {line.starts[name]:g}"
                    gaps.setdefault(below, []).append(name)
            if gaps:
                where = "; ".join(f"on {', '.join(names)}{words}" for words, names in gaps.items())
                yield f"{line.name}, {where}: {line.left_out}"

    def published_dataset(self, dataset: str) -> str | None:
        known = {place[0] for place in self.published}
        if dataset in known:
            return dataset
        return self.stand_ins.get(dataset, self.stand_ins.get(dataset.partition("/")[0]))

    def comparison_note(self, dataset: str) -> str:
        known = self.published_dataset(dataset)
        if known is None:
            return f"nothing was published for {dataset}"
        return f"published on {known}" + ("" if known == dataset else f": other data than {dataset}")

    def on(self, datasets: Sequence[str]) -> "ReproductionTarget":
        return replace(self, datasets=tuple(datasets)) if datasets else self

    def at(self, places: Sequence[float]) -> "ReproductionTarget":
        """Return the target restricted to some points of its axis, including those that ``--quick`` omits."""
        if not places:
            return self
        if self.axis is None:
            raise ConfigError(f"{self.name} has no x-axis, so points cannot be selected. Omit the selection.")
        kept, unknown = self.axis.at(places), sorted(set(places) - set(self.axis.values))
        if unknown:
            known = ", ".join(f"{x:g}" for x in self.axis.values)
            raise ConfigError(
                f"{self.axis.label} {unknown[0]:g} is not a point of {self.name}. Use one of {known}."
            )
        return replace(self, axis=kept)


@cache
def _published() -> dict[str, dict[tuple[str, str, str, float | None], PublishedValue]]:
    """Return the published values by target, from papers, authors' notebooks, or plots.

    The error of a value that was read off a plot is the reading error. Values that a plot hides are left out.
    """
    found = dict[str, Any]()
    with Path(__file__).with_name("published.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            place = (row["dataset"], row["panel"], row["line"], _number(row["x"]) if row["x"] else None)
            value, error = _number(row["value"]), _number(row["error"])
            source: Any = row["source"]
            found.setdefault(row["target"], {})[place] = PublishedValue(value, error, source)
    return found


def _number(text: str) -> float:
    return int(text) if text.isdigit() else float(text)


def published(target: str) -> PublishedTable:
    """Return the published values of a target; empty if ``published.csv`` has none.

    >>> published("gap:table2")["reddit", "no privacy", "SAGE-∞", None]
    PublishedValue(value=99.1, error=0.01, source='paper')
    """
    return _published().get(target, {})


def of_paper(prefix: str, paper: str, **shared: Any) -> Callable[..., ReproductionTarget]:
    """Return a function that makes targets of a paper, with the published values of their names.

    Its arguments are a name, a title, the place in the paper, the lines, and further fields of a target.
    """

    def make(
        name: str, title: str, place: str, lines: tuple[TargetLine, ...], **more: Any
    ) -> ReproductionTarget:
        known = {"published": published(f"{prefix}:{name}"), **shared, **more}
        source = f"{paper}, {place}"
        return ReproductionTarget(name=f"{prefix}:{name}", title=title, source=source, lines=lines, **known)

    return make


# -- cells -------------------------------------------------------------------------------------------------


_NAME = 10  # letters of a digest in a file's name
_PACKAGE = Path(__file__).parents[2]


@cache
def code_digest() -> str:
    """Return a digest of the package's own code, since one version has many states of it."""
    return digest_of(_PACKAGE)


def digest_of(package: Path) -> str:
    """Return a digest of a folder's Python files, by name and content: any of them can change a result."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        for part in (path.relative_to(package).as_posix().encode(), path.read_bytes()):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:_NAME]


@dataclass(frozen=True, kw_only=True)
class Work:
    """Computation of a cell as plain values, which name it and can be sent to another process."""

    measure: str
    method: str
    dataset: str
    recipe: str
    seed: int
    parameters: Keywords
    options: Keywords = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of its file: two cells of the same computation share one, independent of their lines."""
        code = {"version": __version__, "code": code_digest()}
        plain = json.dumps({**asdict(self), **code}, sort_keys=True)
        digest = hashlib.sha256(plain.encode()).hexdigest()[:_NAME]
        data = self.dataset.replace("/", "-")
        return f"{self.measure}-{self.method}-{data}-{self.seed}-{digest}"


@dataclass(frozen=True, kw_only=True)
class ReproductionCell:
    """One run of one setting, at its point in the target."""

    panel: str
    line: str
    x: float | None
    settings: Keywords
    work: Work

    @property
    def place(self) -> CellPlace:
        return CellPlace(self.work.dataset, self.panel, self.line, self.x)


@dataclass(frozen=True, kw_only=True)
class ReproductionOptions:
    """Options of a call.

    Args:
        seed: Seed of the first run; run r has ``seed + r``.
        quick: Fewer points, and a smaller search.
    """

    mode: Mode
    runs: int
    seed: int = 0
    quick: bool = False


def cells_of(target: ReproductionTarget, run_options: ReproductionOptions) -> tuple[ReproductionCell, ...]:
    """Return the cells of a target, the first run of everything first, one dataset after the other."""
    return tuple(
        cell
        for dataset in target.datasets
        for run in range(run_options.runs)
        for line in target.lines_in(run_options.mode)
        if line.runs_on(dataset)
        for cell in _cells(target, run_options, dataset, line, run_options.seed + run)
    )


def _cells(
    target: ReproductionTarget, run_options: ReproductionOptions, dataset: str, line: TargetLine, seed: int
) -> Iterator[ReproductionCell]:
    search = line.searched(run_options.mode, quick=run_options.quick)
    for x in target.places(line, dataset, quick=run_options.quick):
        for values in product(*search.values()):
            settings = dict(zip(search, values, strict=True))
            keywords = {**line.keywords(run_options.mode, dataset), **settings}
            if x is not None and target.axis is not None:
                keywords[line.keyword or target.axis.keyword] = x
                if x == math.inf and line.free is not None:
                    keywords = {**line.free, **line.by_dataset.get(dataset, {}), **settings}
            method = line.method
            if run_options.mode == "paper" and method != NO_METHOD:
                # Also without privacy: all lines then have one graph and one split.
                noise = {} if keywords.get("unit", "none") == "none" else {"unsafe_noise_seed": seed}
                method, keywords = f"{method}{SUFFIX}", {**keywords, **noise}
            yield ReproductionCell(
                panel=line.panel,
                line=line.name,
                x=x,
                settings=settings,
                work=Work(
                    measure=line.measure,
                    method=method,
                    dataset=dataset,
                    recipe=target.recipe,
                    seed=seed,
                    parameters=keywords,
                    options=line.options,
                ),
            )


# -- description -------------------------------------------------------------------------------------------


RUNS = 3


def overview(target: ReproductionTarget, root: Path | None) -> dict[str, Any]:
    return {
        "target": target.name,
        "title": target.title,
        "source": target.source,
        "datasets": list(target.datasets),
        "data": "available" if not missing(target, root) else f"missing: {', '.join(missing(target, root))}",
        "needs": target.needs,
        "cells": _cell_count(target),
        "minutes": ", ".join(f"{minutes:g}" if minutes else "-" for minutes in target.minutes),
        "published_figures": len(target.published),
    }


def missing(target: ReproductionTarget, root: Path | None) -> list[str]:
    here = {row["name"] for row in list_datasets(root) if row["local"]}
    return [name for name in target.datasets if name not in here]


def _cell_count(target: ReproductionTarget) -> int:
    return len(
        {cell.work.name for cell in cells_of(target, ReproductionOptions(mode=target.modes[0], runs=RUNS))}
    )


def describe(target: ReproductionTarget, root: Path | None) -> list[tuple[str, str]]:
    away, mode = missing(target, root), target.modes[0]
    names = ", ".join(f"{name}{' (not available)' if name in away else ''}" for name in target.datasets)
    facts = [("content", target.title), ("source", target.source), ("datasets", names)]
    facts.append(("compared with", "; ".join(dict.fromkeys(map(target.comparison_note, target.datasets)))))
    if target.needs:
        facts.append(("needs", target.needs))
    if (axis := target.axis) is not None:
        facts.append((axis.label, ", ".join(f"{x:g}" for x in axis.values)))
        facts.append((f"{axis.label}, --quick", ", ".join(f"{x:g}" for x in axis.quick)))
    for line in target.lines:
        search = "; ".join(f"{key} in {', '.join(map(str, values))}" for key, values in line.search.items())
        only = "" if line.modes == MODES else f"; {line.modes[0]} mode only"
        words = f"{line.method}{f', searched: {search}' if search else ''}{only}"
        facts.append((f"{line.panel + ': ' if line.panel else ''}{line.name}", words))
    facts += [("not reproduced", words) for words in target.left_out(mode, quick=False)]
    kinds = zip(("in paper mode", "with --quick", "in strict mode"), target.minutes, strict=True)
    known = ", ".join(f"{minutes:g} {how}" for how, minutes in kinds if minutes)
    return [
        *facts,
        ("cells", f"{_cell_count(target):,} in {mode} mode, {RUNS} runs"),
        ("minutes", f"{known}; {RUNS} runs, two jobs"),
        ("published", f"{len(target.published)} values"),
        *(("deviation of paper mode", words) for words in target.deviations),
        *(("remark", words) for words in target.remarks),
    ]

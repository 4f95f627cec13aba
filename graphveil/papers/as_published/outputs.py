"""Outputs of a finished grid: every run as CSV, tables for a page and for LaTeX, figures, a verdict."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from graphveil import __version__
from graphveil._util.escape import render
from graphveil._util.files import write_atomic
from graphveil.errors import ArtifactError
from graphveil.papers.as_published.measures import Measurement
from graphveil.papers.as_published.results import (
    PairedComparison,
    Point,
    Run,
    comparisons_of,
    is_chosen,
    points_of,
)
from graphveil.papers.as_published.target import (
    VAL,
    Keywords,
    Mode,
    PublishedValue,
    ReproductionCell,
    ReproductionOptions,
    ReproductionTarget,
    cells_of,
    code_digest,
)

PLACE = ("dataset", "panel", "line", "x", "settings", "seed")  # columns of results.csv that name its row
COSTS = ("unit", "epsilon", "delta", "valid")


@dataclass(frozen=True)
class Results:
    """Results of a finished grid."""

    target: ReproductionTarget
    run_options: ReproductionOptions
    runs: tuple[Run, ...]

    @cached_property
    def points(self) -> tuple[Point, ...]:
        return points_of(self.target, self.run_options, self.runs)

    @cached_property
    def comparisons(self) -> tuple[PairedComparison, ...]:
        return comparisons_of(self.target, self.points)

    @property
    def plotted(self) -> tuple[Point, ...]:
        if not self.target.plots_all_metrics:
            return self.points
        metrics = self.target.metrics
        return tuple(p for name in metrics for p in points_of(self.target, self.run_options, self.runs, name))

    @property
    def tables(self) -> list["ReportTable"]:
        found = list[ReportTable]()
        for metric, words in self.target.metrics.items():
            points = points_of(self.target, self.run_options, self.runs, metric)
            found += tables_of(self.target, points, words if len(self.target.metrics) > 1 else "")
        if self.comparisons:
            found.append(_table_of_differences(self.target, self.comparisons))
        return found

    @property
    def rejections(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for point in self.points:
            if point.rejected:
                lines = found.setdefault(point.rejected, [])
                lines += [point.place.line] if point.place.line not in lines else []
        return found

    @property
    def deviations(self) -> list[str]:
        known = self.target.deviations if self.run_options.mode == "paper" else ()
        return [*known, *dict.fromkeys(words for _, found in self.runs for words in found.deviations)]

    @property
    def not_run(self) -> list[str]:
        return list(self.target.left_out(self.run_options.mode, quick=self.run_options.quick))

    def write(self, folder: Path) -> list[Path]:
        from graphveil.papers.as_published.figures import figures_of

        files = {
            "results.csv": self.csv(),
            "table.md": self.page(),
            "table.tex": render("reproduction.tex", tables=self.tables),
            "verdict.json": json.dumps(self.verdict(), indent=1, allow_nan=False) + "\n",
        }
        drawn = figures_of(self.target, self.plotted) if self.target.figure else {}
        content = {**{name: text.encode() for name, text in files.items()}, **drawn}
        for name, data in content.items():
            write_atomic(folder / name, data, private=False)
        return [folder / name for name in content]

    def csv(self) -> str:
        def text_of(value: object) -> str:
            if value is None:
                return ""
            return f"{value:.6g}" if isinstance(value, float) else str(value)

        chosen = {point.place: point for point in self.points}
        metrics = [*self.target.metrics, VAL]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*PLACE, "chosen", *metrics, *COSTS, "rejected"])
        for cell, found in self.runs:
            is_best = is_chosen(chosen[cell.place], cell) and not found.rejected
            numbers = {name: float(value) for name, value in found.values.items()} | dict(found.cost or {})
            given = [numbers.get(name) for name in (*metrics, *COSTS)]
            row = [*_place_in_csv(cell), "yes" if is_best else "no", *map(text_of, given)]
            writer.writerow([*row, found.rejected])
        return text.getvalue()

    def page(self) -> str:
        target, run_options = self.target, self.run_options
        sentences = []
        if run_options.runs > 1:
            narrow = "; of three runs they are their range, and cover less" if run_options.runs == 3 else ""
            sentences.append(f"Brackets are 95 % bootstrap intervals over runs{narrow}.")
        if any(cell.settings for cell, _ in self.runs):
            sentences.append(
                "Settings are the best on validation nodes, which is not charged, as in the paper."
            )
        elif run_options.mode == "strict":
            sentences.append("Settings are public and fixed beforehand.")
        if run_options.quick:
            searched = target.axis is not None and target.axis.chosen
            sentences.append(
                f"{'The search is that' if searched else 'Places and search are those'} of --quick."
            )
        kept = [found.cost["valid"] for _, found in self.runs if found.cost is not None]
        if kept:
            some = f"{sum(kept)} of {len(kept)} guarantees hold." if any(kept) else "No guarantee holds."
            sentences.append("Every guarantee holds." if all(kept) else some)
        return render(
            "reproduction.md",
            title=target.title,
            source=target.source,
            mode=run_options.mode.capitalize(),
            runs="one run" if run_options.runs == 1 else f"{run_options.runs} runs",
            seed=run_options.seed,
            description=" ".join(sentences),
            metric=_sentence(target.metrics[target.metric]),
            remarks=[_sentence(words) for words in target.remarks],
            tables=self.tables,
            rejections=self.rejections,
            not_run=self.not_run,
            deviations=[_sentence(words) for words in self.deviations],
        )

    def verdict(self) -> dict[str, Any]:
        scale = self.target.scale
        options = self.run_options
        return {
            "target": self.target.name,
            **{name: getattr(options, name) for name in ("mode", "runs", "seed", "quick")},
            "version": __version__,
            "code": code_digest(),
            "points": [point.as_dict(scale) for point in self.points],
            "comparisons": [one.as_dict(scale) for one in self.comparisons],
            "rejected": [{"why": why, "lines": lines} for why, lines in self.rejections.items()],
            "not_run": self.not_run,
            "deviations": self.deviations,
        }


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


# -- tables ------------------------------------------------------------------------------------------------

NONE = ""  # if there is no value


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """One table, as text.

    Args:
        words: Number of text columns; the others are numeric.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1

    @property
    def filled(self) -> "ReportTable":
        blank = {place for place in range(self.words) if not any(row[place] for row in self.rows)}
        head, *rows = (
            tuple(cell for place, cell in enumerate(row) if place not in blank)
            for row in (self.head, *self.rows)
        )
        return replace(self, head=head, rows=tuple(rows), words=self.words - len(blank))


def tables_of(target: ReproductionTarget, points: Sequence[Point], what: str = "") -> list[ReportTable]:
    """Return a table for each dataset and panel; without an axis one for each dataset.

    Args:
        what: Suffix of the title: the description of the metric, if there are several.
    """
    after = f" ({what})" if what else ""
    tables = []
    for dataset in dict.fromkeys(point.place.dataset for point in points):
        known = target.published_dataset(dataset)
        reference = "published" if known in (None, dataset) else f"published, on {known}"
        there = [point for point in points if point.place.dataset == dataset]
        if target.axis is None:
            tables.append(_table_of_rows(target, there, f"{dataset}{after}", reference))
            continue
        for panel in dict.fromkeys(point.place.panel for point in there):
            title = f"{dataset}{f', {panel}' if panel else ''}{after}"
            own = [point for point in there if point.place.panel == panel]
            tables.append(_table_over_axis(target, own, title, reference))
    return tables


def _table_of_rows(
    target: ReproductionTarget, points: Sequence[Point], title: str, reference: str
) -> ReportTable:
    rows = tuple(
        (
            point.place.panel,
            point.place.line,
            _settings_text(point.settings),
            _figure(target, point),
            _published_text(target, point.published),
            point.verdict(target.scale),
        )
        for point in points
    )
    head = ("panel", "method", "chosen", "ours", reference, "verdict")
    return ReportTable(title=title, head=head, rows=rows, words=3).filled


def _table_over_axis(
    target: ReproductionTarget, points: Sequence[Point], title: str, reference: str
) -> ReportTable:
    xs = sorted({point.place.x for point in points if point.place.x is not None})
    rows = []
    for name in dict.fromkeys(point.place.line for point in points):
        own = {point.place.x: point for point in points if point.place.line == name}
        level = own.get(None)
        shown = [own.get(x, level) for x in xs] if xs else [level]
        rows.append((name, *(NONE if point is None else _figure(target, point) for point in shown)))
        if not any(point.published for point in own.values()):
            continue
        judged = []  # published values, each with the verdict on the reproduced one
        for point in shown:
            text = NONE if point is None else _published_text(target, point.published)
            verdict = NONE if point is None else point.verdict(target.scale)
            judged.append(f"{text} ({verdict})" if verdict in ("agrees", "above", "below") else text)
        rows.append((f"{name}, {reference}", *judged))
    label = target.axis.label if target.axis else ""
    return ReportTable(title=title, head=(label, *(tuple(f"{x:g}" for x in xs) or ("",))), rows=tuple(rows))


def _table_of_differences(target: ReproductionTarget, comparisons: Sequence[PairedComparison]) -> ReportTable:
    rows = []
    for one in comparisons:
        dataset, panel, line, x = one.place
        p = "one run" if one.p_value is None else f"{one.p_value:.2g}"
        gain = f"{target.scale * one.mean:+.1f}" if target.percent else f"{one.mean:+.4g}"
        at, judged = NONE if x is None else f"{x:g}", "yes" if one.significant else "no"
        rows.append((dataset, panel, f"{line} - {one.other}", at, gain, p, judged))
    unit = "points" if target.percent else "units"
    head = ("data set", "panel", "difference", "at", f"mean, {unit}", "p (Holm)", "beyond chance")
    return ReportTable(title="Differences, paired by run", head=head, rows=tuple(rows), words=4).filled


def _figure(target: ReproductionTarget, point: Point) -> str:
    def number(value: float) -> str:
        if target.percent:
            return f"{target.scale * value:.1f}"
        return f"{value:,.0f}" if value.is_integer() else f"{value:,.4g}"

    if point.mean is None:
        return "rejected"
    text, ends = number(point.mean), point.interval
    return text if ends is None else f"{text} [{number(ends[0])}, {number(ends[1])}]"


def _published_text(target: ReproductionTarget, known: PublishedValue | None) -> str:
    if known is None:
        return NONE
    sign = "~" if known.source == "read off" else ""
    if not target.percent:
        return f"{known.value:,}"
    digits = f".{1 + (known.error < 0.05)}f"
    error = f" ± {known.error:g}" if known.error and known.source != "read off" else ""
    return f"{sign}{known.value:{digits}}{error}"


# -- reading a CSV that was kept ---------------------------------------------------------------------------


def read_results_csv(text: str, target: ReproductionTarget, mode: Mode, *, quick: bool = False) -> Results:
    """Read the results of a CSV file, from which its page and figures can be recreated.

    Missing cells are left out. The file has no deviations of single guarantees, so pages made from it have
    none.
    """
    try:
        rows = {tuple(row[name] for name in PLACE): row for row in csv.DictReader(io.StringIO(text))}
    except KeyError:
        raise ArtifactError(
            "The file is not a results.csv, because a column is missing. Pass a file that `graphveil "
            "reproduce` wrote."
        ) from None
    if not rows:
        raise ArtifactError("The file has no rows. Create it again with `graphveil reproduce`.")
    seeds = sorted({int(place[-1]) for place in rows})
    run_options = ReproductionOptions(mode=mode, runs=1 + seeds[-1] - seeds[0], seed=seeds[0], quick=quick)
    target = target.on(list(dict.fromkeys(place[0] for place in rows)))
    found = {float(place[3]) for place in rows if place[3]}
    if found != {cell.x for cell in cells_of(target, run_options)} - {None}:  # places that were chosen
        target = target.at(sorted(found))
    runs = []
    for cell in cells_of(target, run_options):
        row = rows.get(_place_in_csv(cell))
        if row is None:
            continue
        cost: dict[str, Any] | None = None
        if row["unit"]:
            epsilon, delta = (float(row[name]) if row[name] else None for name in ("epsilon", "delta"))
            cost = dict(zip(COSTS, (row["unit"], epsilon, delta, row["valid"] == "True"), strict=True))
        values = {name: float(row[name]) for name in (*target.metrics, VAL) if row.get(name)}
        runs.append((cell, Measurement(values=values, cost=cost, rejected=row["rejected"])))
    if len(runs) != len(rows):
        raise ArtifactError(
            f"{len(rows) - len(runs)} of {len(rows)} rows do not belong to a configuration of "
            f"{target.name} in {mode} mode. Create the file again with `graphveil reproduce`."
        )
    return Results(target, run_options, tuple(runs))


def _place_in_csv(cell: ReproductionCell) -> tuple[str, ...]:
    dataset, panel, line, x = cell.place
    where = "" if x is None else f"{x:g}"
    return dataset, panel, line, where, _settings_text(cell.settings), str(cell.work.seed)


def _settings_text(settings: Keywords) -> str:
    return " ".join(f"{key}={value}" for key, value in settings.items())

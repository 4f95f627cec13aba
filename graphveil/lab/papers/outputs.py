"""What a finished grid leaves: every run as CSV, tables for a page and for LaTeX, figures, a verdict."""

import csv
import io
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from graphveil import __version__
from graphveil._util.files import write_atomic
from graphveil.lab.papers.cells import ReproductionOptions, code_digest
from graphveil.lab.papers.report_tables import ReportTable, ReportTables, latex, markdown
from graphveil.lab.papers.results import PairedComparison, Point, Run, comparisons_of, is_chosen, points_of
from graphveil.lab.papers.target import VAL, ReproductionTarget

COLUMNS = ("dataset", "panel", "line", "x", "settings", "seed", "chosen")
COSTS = ("unit", "epsilon", "delta", "valid")


@dataclass(frozen=True)
class Results:
    """A finished grid.

    Args:
        target: what was run.
        run_options: how.
        runs: every cell with what it found.
    """

    target: ReproductionTarget
    run_options: ReproductionOptions
    runs: tuple[Run, ...]

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """One point a place, of the metric that counts."""
        return points_of(self.target, self.run_options, self.runs)

    @cached_property
    def comparisons(self) -> tuple[PairedComparison, ...]:
        """The tested differences."""
        return comparisons_of(self.target, self.points)

    @property
    def blocks(self) -> list[ReportTable]:
        """All tables, the tested differences last."""
        metrics, found = self.target.metrics, list[ReportTable]()
        for metric, words in metrics.items():
            points = points_of(self.target, self.run_options, self.runs, metric)
            found += ReportTables(self.target, points).main(words if len(metrics) > 1 else "")
        tested = ReportTables(self.target, self.points).tested(self.comparisons)
        return [*found, *([tested] if tested else [])]

    @property
    def refusals(self) -> dict[str, list[str]]:
        """Why there is no figure, with the lines that have none."""
        found: dict[str, list[str]] = {}
        for point in self.points:
            if point.refused:
                lines = found.setdefault(point.refused, [])
                lines += [point.place[2]] if point.place[2] not in lines else []
        return found

    @property
    def deviations(self) -> list[str]:
        """Why guarantees do not hold, of all cells."""
        return list(dict.fromkeys(words for _, found in self.runs for words in found.deviations))

    def write(self, folder: Path) -> list[Path]:
        """Write all files, each in one step, and return them."""
        from graphveil.lab.papers.figures import figures_of

        files = {
            "results.csv": self.csv(),
            "table.md": "\n".join(self.page()) + "\n",
            "table.tex": "\n".join(line for block in self.blocks for line in latex(block)) + "\n",
            "verdict.json": json.dumps(self.verdict(), indent=1, allow_nan=False) + "\n",
        }
        drawn = figures_of(self.target, self.points) if self.target.figure else {}
        content = {**{name: text.encode() for name, text in files.items()}, **drawn}
        for name, data in content.items():
            write_atomic(folder / name, data, private=False)
        return [folder / name for name in content]

    def csv(self) -> str:
        """Return every run, those of settings that were not chosen among them."""
        chosen = {point.place: point for point in self.points}
        metrics = [*self.target.metrics, VAL]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*COLUMNS, *metrics, *COSTS, "refused"])
        for cell, found in self.runs:
            dataset, panel, line, x = cell.place
            settings = " ".join(f"{key}={value}" for key, value in cell.settings.items())
            point = chosen[cell.place]
            cost = found.cost or {}
            writer.writerow(
                [
                    *(dataset, panel, line, "" if x is None else f"{x:g}", settings, cell.work.seed),
                    "yes" if is_chosen(point, cell) and not found.refused else "no",
                    *(
                        "" if found.values.get(name) is None else f"{found.values[name]:.6g}"
                        for name in metrics
                    ),
                    *("" if cost.get(name) is None else _short(cost[name]) for name in COSTS),
                    found.refused,
                ]
            )
        return text.getvalue()

    def page(self) -> Iterator[str]:
        """Yield the lines of the page."""
        target, run_options = self.target, self.run_options
        yield from (f"# {target.title}", "")
        runs = "one run" if run_options.runs == 1 else f"{run_options.runs} runs"
        mode, seed = run_options.mode.capitalize(), run_options.seed
        yield f"{target.source}. {mode} mode, {runs} from seed {seed}. {self._description()}"
        yield from ("", next(iter(target.metrics.values())).capitalize() + ".", "")
        yield from (f"{words[0].upper()}{words[1:]}.\n" for words in target.remarks)
        for block in self.blocks:
            yield from markdown(block)
        if self.refusals:
            yield from ("## Refused", "")
            yield from (f"* {', '.join(lines)}: {why}." for why, lines in self.refusals.items())
            yield ""
        missing = list(target.left_out(run_options.mode, quick=run_options.quick))
        if missing:
            yield from ("## Not run", "")
            yield from (f"* {words}." for words in missing)
            yield ""
        known = [*(target.deviations if run_options.mode == "paper" else ()), *self.deviations]
        if known:
            yield from ("## Known deviations", "")
            yield from (f"* {words[0].upper()}{words[1:]}." for words in known)
            yield ""

    def _description(self) -> str:
        sentences = []
        if self.run_options.runs > 1:
            narrow = (
                "; of three runs they are their range, and cover less" if self.run_options.runs == 3 else ""
            )
            sentences.append(f"Brackets are 95 % bootstrap intervals over runs{narrow}.")
        if any(cell.settings for cell, _ in self.runs):
            sentences.append(
                "Settings are the best on validation nodes, which nobody pays for, as in the paper."
            )
        elif self.run_options.mode == "strict":
            sentences.append("Settings are public and fixed beforehand.")
        if self.run_options.quick:
            chosen = self.target.axis is not None and self.target.axis.chosen
            sentences.append(
                f"{'The search is that' if chosen else 'Places and search are those'} of --quick."
            )
        kept = [found.cost["valid"] for _, found in self.runs if found.cost is not None]
        if kept:
            sentences.append("Every guarantee holds." if all(kept) else _invalid_guarantees_note(kept))
        return " ".join(sentences)

    def verdict(self) -> dict[str, Any]:
        """Return every point with its verdict, the tested differences, refusals and deviations."""
        scale = 100.0 if self.target.percent else 1.0
        return {
            "target": self.target.name,
            "mode": self.run_options.mode,
            "runs": self.run_options.runs,
            "seed": self.run_options.seed,
            "quick": self.run_options.quick,
            "version": __version__,
            "code": code_digest(),
            "points": [_plain_point(point, scale) for point in self.points],
            "comparisons": [_plain_comparison(one, scale) for one in self.comparisons],
            "refused": [{"why": why, "lines": lines} for why, lines in self.refusals.items()],
            "not_run": list(self.target.left_out(self.run_options.mode, quick=self.run_options.quick)),
            "deviations": [
                *(self.target.deviations if self.run_options.mode == "paper" else ()),
                *self.deviations,
            ],
        }


def _invalid_guarantees_note(kept: list[bool]) -> str:
    """Say how many guarantees hold, of those that do not all."""
    return f"{sum(kept)} of {len(kept)} guarantees hold." if any(kept) else "No guarantee holds."


def _short(value: object) -> str:
    """Return a value as a table has it: nothing for none."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _plain_x(x: float | None) -> float | str | None:
    """Return a place as JSON has it, which knows no infinity."""
    return "inf" if x == math.inf else x


def _plain_point(point: Point, scale: float) -> dict[str, Any]:
    dataset, panel, line, x = point.place
    ends, known = point.interval, point.published
    return {
        "dataset": dataset,
        "panel": panel,
        "line": line,
        "x": _plain_x(x),
        "settings": dict(point.settings),
        "runs": len(point.runs),
        "ours": None if point.mean is None else round(scale * point.mean, 4),
        "ci95": None if ends is None else [round(scale * end, 4) for end in ends],
        "published": None if known is None else known.value,
        "published_error": None if known is None else known.error,
        "published_source": None if known is None else known.source,
        "verdict": point.verdict(scale),
    }


def _plain_comparison(one: PairedComparison, scale: float) -> dict[str, Any]:
    dataset, panel, line, x = one.place
    return {
        "dataset": dataset,
        "panel": panel,
        "line": line,
        "other": one.other,
        "x": _plain_x(x),
        "difference": round(scale * one.mean, 4),
        "p_holm": None if one.p_value is None else float(f"{one.p_value:.4g}"),
        "significant": one.significant,
    }

"""What a sweep found: one row a cell, as a table, a CSV file and a figure."""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from graphveil._util.files import write_atomic
from graphveil.privacy import Guarantee
from graphveil.runs.pages.charts import Series, accuracy_chart, has_epsilon, pdf_file, svg_file
from graphveil.runs.results import Summary
from graphveil.runs.sweeps.sweep_cell import SweepCell

COLUMNS = (
    "cell",
    "method",
    "settings",
    "include_nonprivate",
    "unit",
    "mode",
    "epsilon",
    "delta",
    "runs",
    "accuracy",
    "ci95_low",
    "ci95_high",
    "covered",
)


@dataclass(frozen=True)
class SweepResult:
    """A finished sweep.

    Args:
        grid: its cells as they were configured.
        cells: what ``train --json`` prints, of each.
        total: the guarantee of all cells together; None if nothing was asked of protected data.
        out: its folder.
    """

    grid: tuple[SweepCell, ...]
    cells: tuple[dict[str, Any], ...]
    total: Guarantee | None
    out: Path

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One flat record a cell, as in ``sweep.csv``; ``pandas.DataFrame(result.rows)`` is a frame."""
        return [_row(cell, metrics) for cell, metrics in zip(self.grid, self.cells, strict=True)]

    @property
    def uncovered(self) -> bool:
        """Whether an accuracy in it follows from protected data without a guarantee."""
        return not all(row["covered"] for row in self.rows)

    @property
    def series(self) -> list[Series]:
        """Accuracy over epsilon by method and settings; what has no epsilon is a level."""
        lines = dict[str, list[tuple[float | None, Summary]]]()
        for cell, metrics in zip(self.grid, self.cells, strict=True):
            lines.setdefault(cell.series, []).append((cell.epsilon, accuracy_of(metrics)))
        return [Series.from_points(name, points) for name, points in lines.items()]


def accuracy_of(metrics: Mapping[str, Any]) -> Summary:
    """Return a cell's test accuracy: from booked noisy counts where there are some, else the exact one."""
    private = metrics["private_accuracy"]
    return Summary.from_values((private["test"] if private else metrics["test_accuracy"])["values"])


def _row(cell: SweepCell, metrics: Mapping[str, Any]) -> dict[str, Any]:
    found, private = accuracy_of(metrics), metrics["private_accuracy"]
    low, high = found.ci95 or (None, None)
    values = (
        cell.name,
        cell.experiment.method,
        cell.settings_text,
        cell.include_nonprivate,
        metrics["unit"],
        metrics["mode"],
        cell.epsilon,
        metrics["delta"],
        metrics["runs"],
        found.mean,
        low,
        high,
        bool(private["covered"] if private else metrics["covered"]),
    )
    return dict(zip(COLUMNS, values, strict=True))


def write_results(result: SweepResult) -> None:
    """Write ``sweep.csv`` and, where there is more than levels to show, the figure; each file in one step."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(result.rows)
    write_atomic(result.out / "sweep.csv", text.getvalue().encode())
    if has_epsilon(result.series):
        draw, title = partial(accuracy_chart, result.series), "Test accuracy over epsilon"
        write_atomic(result.out / "curve.svg", svg_file(draw, title).encode())
        write_atomic(result.out / "curve.pdf", pdf_file(draw, title))

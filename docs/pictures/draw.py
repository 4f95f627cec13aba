"""Draw the pictures of the documentation: `python docs/pictures/draw.py`.

Figures come from the committed tables and from the library; a test draws them again and compares.
"""

import csv
import math
import re
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

import graphveil as gv
from graphveil.privacy import calibrate_mu
from graphveil.runs.charts import COLORS, INK, SOFT, Series, accuracy_chart, svg_file
from graphveil.runs.results import Summary

HERE = Path(__file__).parent
TABLES = HERE.parent / "topology-tables.md"
GROWTH = HERE.parents[1] / "benchmarks" / "prepare.csv"
DATA, EPSILONS = "facebook100/Berkeley13", (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
STUDENT = {3: 4.303, 5: 2.776}  # 97.5 % quantiles for the mean of so many runs
ACCENT, WARM = COLORS[:2]


def main() -> None:
    """Write every picture beside this file."""
    for name, text in pictures().items():
        (HERE / name).write_text(text, encoding="utf-8")


def pictures() -> dict[str, str]:
    """Return each picture's file name and its text."""
    titles = {
        "release.svg": (release, "The path of one release"),
        "attacker.svg": (attacker, "What an attacker gains, and what the noise does, over epsilon"),
        "frontier.svg": (frontier, "Test accuracy on Berkeley13 at equal epsilon; attack bounds differ"),
        "growth.svg": (growth, "Processor time an edge, of prepare and of one hop, over the number of edges"),
    }
    return {name: svg_file(draw, title) for name, (draw, title) in titles.items()}


# -- accuracy over epsilon ---------------------------------------------------------------------------------


def frontier() -> Figure:
    """Return test accuracy over epsilon on Berkeley13, from the tables of released graphs."""
    (floor, *classcode), gap = frontier_cells()
    series = [
        Series.from_points("ClassCode", _points(classcode, runs=5)),
        Series.from_points("GAP", _points(gap, runs=3)),
        Series.from_points("features alone, no edge read", [(None, _summary(*floor, runs=5))]),
    ]
    return accuracy_chart(series)


def frontier_cells() -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """Return means and errors of the baseline and ClassCode, and those of GAP, in the order of EPSILONS."""
    text = TABLES.read_text(encoding="utf-8")
    section = text[text.index(f"| {DATA} | private edges") :]
    ours = _cells(text, rf"^\| {DATA} \| (?=\d)(.*)\|$")
    return ours, _cells(section, r"^\| GAP \| 100 % \| (.*)\|$")


def _cells(text: str, row: str) -> list[tuple[float, float]]:
    found = re.search(row, text, re.MULTILINE)
    assert found is not None, row
    return [(float(mean), float(error)) for mean, error in re.findall(r"([\d.]+) ± ([\d.]+)", found[1])]


def _points(cells: list[tuple[float, float]], runs: int) -> list[tuple[float | None, Summary]]:
    return [(epsilon, _summary(*cell, runs=runs)) for epsilon, cell in zip(EPSILONS, cells, strict=True)]


def _summary(mean: float, error: float, *, runs: int) -> Summary:
    half = STUDENT[runs] * error
    return Summary(mean / 100, None, ((mean - half) / 100, (mean + half) / 100), ())


# -- what an attacker gains --------------------------------------------------------------------------------


def attacker() -> Figure:
    """Return the best attacker's true positives at 1 % false positives, and the noise of one count."""
    figure, (left, right) = _two_panels()
    epsilons = [2 ** (k / 4) for k in range(-12, 13)]
    rates = [
        100 * gv.calibrate("gap", "undirected-edge", epsilon=e, delta=1e-7).max_tpr_at_1pct_fpr
        for e in epsilons
    ]
    pure = [100 * min(0.01 * math.exp(e), _tail(e)) for e in epsilons]
    (gaussian,) = left.plot(epsilons, rates, color=WARM)
    (geometric,) = left.plot(epsilons, pure, color=ACCENT)
    left.set_ylabel("secret edges found, %")
    some = [e for e in epsilons if e >= 0.5]
    right.plot(some, [1 / calibrate_mu(e, 1e-7) for e in some], color=WARM)
    right.plot(some, [math.sqrt(2) / (2 * math.sinh(e / 2)) for e in some], color=ACCENT)
    right.set_ylabel("deviation of the noise on a count")
    for axes, ticks in ((left, (0.125, 0.25, 0.5, 1, 2, 4, 8)), (right, (0.5, 1, 2, 4, 8))):
        axes.set(xscale="log", xlabel="epsilon", xlim=(ticks[0], ticks[-1]), ylim=(0, None))
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
    names = (
        "Gaussian noise on sums of rows (GAP), delta 1e-7",
        "geometric noise on whole numbers (ClassCode): less noise, and a pure epsilon",
    )
    figure.legend([gaussian, geometric], names, loc="outside lower left")
    return figure


def _two_panels() -> tuple[Figure, tuple[Axes, Axes]]:
    figure = Figure(figsize=(920 / 72, 348 / 72), layout="constrained")
    left, right = figure.subplots(1, 2)
    return figure, (left, right)


def _tail(epsilon: float) -> float:
    return 1 - math.exp(-epsilon) * 0.99


# -- edges beyond memory -----------------------------------------------------------------------------------


def growth() -> Figure:
    """Return nanoseconds an edge over edges, of bringing a graph to disk and of hops over it."""
    with GROWTH.open(newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: float(row["edges"]))
    edges = [float(row["edges"]) for row in rows]
    figure, (left, right) = _two_panels()
    lines = (
        (left, "prepare ns/edge", "CPU of graphveil prepare", WARM),
        (right, "memory ns/edge", "hop in memory", WARM),
        (right, "disk ns/edge", "hop on disk, file in the page cache", ACCENT),
    )
    for axes, column, name, color in lines:
        axes.plot(edges, [float(row[column]) for row in rows], "o-", color=color, label=name, clip_on=False)
    for axes, label in ((left, "prepare, ns an edge"), (right, "private hop, ns an edge")):
        axes.set(xscale="log", xlabel="edges", ylabel=label, ylim=(0, None))
        axes.set_xlim(edges[0], edges[-1])
        axes.set_xticks(edges, [f"{count:.0e}".replace("e+0", "e") for count in edges])
        axes.minorticks_off()
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.16), ncols=2)
    return figure


# -- the path of one release -------------------------------------------------------------------------------


def release() -> Figure:
    """Return the path that protected data take."""
    figure = Figure(figsize=(896 / 72, 236 / 72))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, 896), ylim=(236, 0))
    axes.set_axis_off()
    boxes = [
        (16, 30, 192, "Public", ["features, labels (edge unit)", "budget, method, seed"], SOFT),
        (16, 150, 192, "Protected", ["edges, or whole records"], WARM),
        (256, 90, 168, "Plan", ["queries, sensitivity,", "noise, privacy cost"], INK),
        (472, 90, 184, "Release", ["recorded first; then an", "exact sum, keyed noise"], ACCENT),
        (704, 90, 180, "Post-processing", ["training, predictions,", "scores: no further cost"], INK),
    ]
    for box in boxes:
        _box(axes, *box)
    arrows = {
        ((208, 62), (256, 122)): "arc3,rad=-0.2",
        ((424, 122), (472, 122)): "arc3",
        ((656, 122), (704, 122)): "arc3",
        ((208, 190), (564, 164)): "angle,angleA=0,angleB=90,rad=12",
    }
    for (start, end), path in arrows.items():
        style = {"arrowstyle": "-|>", "color": SOFT, "connectionstyle": path, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", end, start, arrowprops=style)
    axes.text(256, 208, "read in one place only", color=SOFT, fontsize=12)
    return figure


def _box(axes: Axes, x: int, y: int, width: int, title: str, lines: list[str], color: str) -> None:
    style = {"boxstyle": "round,pad=0,rounding_size=8", "facecolor": "#ffffff", "edgecolor": color}
    axes.add_patch(FancyBboxPatch((x, y), width, 74, linewidth=1.6, **style))
    axes.text(x + 14, y + 24, title, color=color, fontsize=14, fontweight="bold")
    for row, line in enumerate(lines):
        axes.text(x + 14, y + 44 + 17 * row, line, color=SOFT, fontsize=11)


if __name__ == "__main__":
    main()

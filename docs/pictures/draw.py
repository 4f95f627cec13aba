"""Draw the pictures of the documentation: `python docs/pictures/draw.py`.

Figures come from the committed tables and from the library; a test draws them again and compares.
"""

import csv
import math
import re
from pathlib import Path

import graphveil as gv
from graphveil.privacy import calibrate_mu
from graphveil.runs.pages.charts import HEIGHT, WIDTH, PlotLine, plot
from graphveil.runs.results import Summary
from graphveil.runs.sweeps.sweep_chart import Series, sweep_chart

HERE = Path(__file__).parent
TABLES = HERE.parent / "topology-tables.md"
GROWTH = HERE.parents[1] / "benchmarks" / "prepare.csv"
DATA, EPSILONS = "facebook100/Berkeley13", (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
STUDENT = {3: 4.303, 5: 2.776}  # 97.5 % quantiles for the mean of so many runs
INK, SOFT, LINE, ACCENT, WARM = "#1d2127", "#626b76", "#c9ced4", "#0072b2", "#d55e00"


def main() -> None:
    """Write every picture beside this file."""
    for name, text in pictures().items():
        (HERE / name).write_text(text, encoding="utf-8")


def pictures() -> dict[str, str]:
    """Return each picture's file name and its text."""
    drawn = {"release.svg": release(), "attacker.svg": attacker(), "frontier.svg": frontier()}
    return drawn | {"growth.svg": growth()}


# -- accuracy over epsilon ---------------------------------------------------------------------------------


def frontier() -> str:
    """Return test accuracy over epsilon on Berkeley13, from the tables of released graphs."""
    (floor, *classcode), gap = frontier_cells()
    series = [
        Series.from_points("ClassCode", _points(classcode, runs=5)),
        Series.from_points("GAP", _points(gap, runs=3)),
        Series.from_points("features alone, no edge read", [(None, _summary(*floor, runs=5))]),
    ]
    drawn = sweep_chart(series, title="Test accuracy on Berkeley13 at equal epsilon; attack bounds differ")
    assert drawn is not None
    return drawn


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


def attacker() -> str:
    """Return the best attacker's true positives at 1 % false alarms, and the noise of one count."""
    epsilons = [2 ** (k / 4) for k in range(-12, 13)]
    rates = [
        100 * gv.calibrate("gap", "undirected-edge", epsilon=e, delta=1e-7).max_tpr_at_1pct_fpr
        for e in epsilons
    ]
    ceiling = PlotLine(
        "pure epsilon", [(math.log2(e), 100 * min(0.01 * math.exp(e), _tail(e))) for e in epsilons], "a1"
    )
    gaussian = PlotLine(
        "Gaussian", [(math.log2(e), rate) for e, rate in zip(epsilons, rates, strict=True)], "a0"
    )
    names = {math.log2(e): f"{e:g}" for e in (0.125, 0.25, 0.5, 1, 2, 4, 8)}
    left = plot([gaussian, ceiling], x_label="epsilon", y_label="secret edges found, %", x_names=names)
    laplace = [(math.log2(e), math.sqrt(2) / (2 * math.sinh(e / 2))) for e in epsilons if e >= 0.5]
    normal = [(math.log2(e), 1 / calibrate_mu(e, 1e-7)) for e in epsilons if e >= 0.5]
    some = {x: name for x, name in names.items() if x >= -1}
    right = plot(
        [PlotLine("", normal, "a0"), PlotLine("", laplace, "a1")],
        x_label="epsilon",
        y_label="deviation of the noise on a count",
        x_names=some,
    )
    keys = "".join(
        f'<polyline class="{style}" points="52,{y} 76,{y}"/>'
        f'<text class="key" x="84" y="{y + 4}">{name}</text>'
        for style, y, name in (
            ("a0", HEIGHT + 8, "Gaussian noise on sums of rows (GAP), delta 1e-7"),
            (
                "a1",
                HEIGHT + 26,
                "geometric noise on whole numbers (ClassCode): less noise, and a pure epsilon",
            ),
        )
    )
    return _svg(
        2 * WIDTH,
        HEIGHT + 40,
        "What an attacker gains, and what the noise does, over epsilon",
        f'<g>{left}</g><g transform="translate({WIDTH},0)">{right}</g>{keys}',
    )


def _tail(epsilon: float) -> float:
    return 1 - math.exp(-epsilon) * 0.99


# -- edges beyond memory -----------------------------------------------------------------------------------


def growth() -> str:
    """Return nanoseconds an edge over edges, of bringing a graph to disk and of hops over it."""
    with GROWTH.open(newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: float(row["edges"]))
    names = {
        math.log10(float(row["edges"])): f"{float(row['edges']):.0e}".replace("e+0", "e") for row in rows
    }

    def line(column: str, style: str) -> PlotLine:
        points = [(x, float(row[column])) for x, row in zip(names, rows, strict=True)]
        return PlotLine(column, [*points], style, dot=WARM if style == "a0" else ACCENT)

    bare = PlotLine("", [(x, 0.0) for x in names], "none")  # both axes begin at nothing
    left = plot(
        [bare, line("prepare ns/edge", "a0")], x_label="edges", y_label="prepare, ns an edge", x_names=names
    )
    hops = [bare, line("memory ns/edge", "a0"), line("disk ns/edge", "a1")]
    right = plot(hops, x_label="edges", y_label="private hop, ns an edge", x_names=names)
    keys = "".join(
        f'<polyline class="{style}" points="{x},{HEIGHT + 8} {x + 24},{HEIGHT + 8}"/>'
        f'<text class="key" x="{x + 32}" y="{HEIGHT + 12}">{name}</text>'
        for style, x, name in (
            ("a0", 52, "CPU of graphveil prepare"),
            ("a0", WIDTH + 52, "hop in memory"),
            ("a1", WIDTH + 212, "hop on disk, file in the page cache"),
        )
    )
    return _svg(
        2 * WIDTH,
        HEIGHT + 24,
        "Processor time an edge, of prepare and of one hop, over the number of edges",
        f'<g>{left}</g><g transform="translate({WIDTH},0)">{right}</g>{keys}',
    )


# -- the path of one release -------------------------------------------------------------------------------


def release() -> str:
    """Return the path that protected data take."""
    boxes = [
        (16, 30, 192, "Public", ["features, labels (edge unit)", "budget, method, seed"], SOFT),
        (16, 150, 192, "Protected", ["edges, or whole records"], WARM),
        (256, 90, 168, "Plan", ["queries, sensitivity,", "noise, price"], INK),
        (472, 90, 184, "Release", ["recorded first; then an", "exact sum, keyed noise"], ACCENT),
        (704, 90, 176, "Everything else", ["training, predictions,", "scores: free for ever"], INK),
    ]
    arrows = [
        "M208,62 C234,62 230,122 256,122",
        "M424,122 H472",
        "M656,122 H704",
        "M208,190 C380,190 564,215 564,164",
    ]
    drawn = "".join(_box(*box) for box in boxes)
    drawn += "".join(f'<path class="arrow" d="{path}" marker-end="url(#tip)"/>' for path in arrows)
    drawn += '<text class="note" x="256" y="214">read in one place only</text>'
    tip = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto">'
        f'<path d="M0,0 L8,4 L0,8 z" fill="{SOFT}"/></marker></defs>'
    )
    return _svg(896, 236, "The path of one release", tip + drawn)


def _box(x: int, y: int, width: int, title: str, lines: list[str], color: str) -> str:
    words = "".join(
        f'<text class="note" x="{x + 14}" y="{y + 44 + 17 * k}">{line}</text>' for k, line in enumerate(lines)
    )
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="74" rx="8" fill="#fff" stroke="{color}" '
        'stroke-width="1.6"/>'
        f'<text class="name" x="{x + 14}" y="{y + 24}" fill="{color}">{title}</text>{words}'
    )


def _svg(width: int, height: int, title: str, body: str) -> str:
    style = (
        'text { font-family: system-ui, "Segoe UI", Roboto, sans-serif; fill: #333; }'
        f".grid {{ stroke: #e3e6ea; }} .tick, .key {{ font-size: 11px; }} .label {{ font-size: 12px; }}"
        f".name {{ font-size: 15px; font-weight: 650; }} .note {{ font-size: 12.5px; fill: {SOFT}; }}"
        f".arrow {{ fill: none; stroke: {SOFT}; stroke-width: 1.5; }}"
        f"polyline {{ fill: none; stroke-width: 1.8; }} .a0 {{ stroke: {WARM}; }} .a1 {{ stroke: {ACCENT}; }}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img" '
        f'aria-label="{title}"><title>{title}</title><style>{style}</style>'
        f'<rect width="{width}" height="{height}" fill="#fff"/>{body}</svg>\n'
    )


if __name__ == "__main__":
    main()

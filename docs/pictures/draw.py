"""Draw the pictures of the documentation: `python docs/pictures/draw.py`.

Diagrams are drawn from the declarations below, plots from committed tables. A test draws all of them again
and compares.
"""

import csv
import json
import math
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Rectangle

import graphveil as gv
from graphveil.privacy import calibrate_mu
from graphveil.publish.charts import COLORS, GRAY, INK, SOFT, svg_file

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS = ROOT / "benchmarks" / "results"
FRONTIER = RESULTS / "graphveil-frontier.strict.csv"
BLUE, ORANGE, GREEN = COLORS[:3]
PALE = {BLUE: "#e3eff7", ORANGE: "#fbe9dd", GREEN: "#dff3ec", SOFT: "#f0f2f4", INK: "#f0f2f4"}
STUDENT = {3: 4.303, 5: 2.776}  # 97.5 % quantiles for the mean of so many runs


def main() -> None:
    """Write every picture beside this file."""
    for name, text in pictures().items():
        (HERE / name).write_text(text, encoding="utf-8")


def pictures() -> dict[str, str]:
    """Return each picture's file name and its text."""
    titles: dict[str, tuple[Callable[[], Figure], str]] = {
        "logo.svg": (logo, "graphveil"),
        "units.svg": (units, "Two neighboring graphs for each privacy unit"),
        "release.svg": (release, "The data flow of one release"),
        "choose-unit.svg": (choose_unit, "Decision tree for the privacy unit"),
        "choose-method.svg": (choose_method, "Decision tree for the method"),
        "auto.svg": (auto, "What auto chooses, and by what"),
        "run-folder.svg": (run_folder, "The run folder: public and internal files"),
        "classcode.svg": (classcode, "ClassCode in four panels"),
        "gap.svg": (gap, "GAP in four panels"),
        "lpgnn.svg": (lpgnn, "LPGNN in four panels"),
        "heterorr.svg": (heterorr, "HeteroRR in four panels"),
        "links.svg": (links, "Link prediction in four panels"),
        "recommender.svg": (recommender, "Recommender in four panels"),
        "relational.svg": (relational, "RelationalClassifier under unit row in four panels"),
        "ldp-flow.svg": (ldp_flow, "Data flow of local differential privacy"),
        "frontier.svg": (frontier, "Test accuracy on Berkeley13 over epsilon and over the attack bound"),
        "results-grid.svg": (results_grid, "Test accuracy over epsilon on seven graphs"),
        "results-bound.svg": (
            lambda: results_grid(bound),
            "Test accuracy over the attack bound on seven graphs",
        ),
        "attacker.svg": (attacker, "Attack bound and noise over epsilon"),
        "budget.svg": (budget, "The budget of a dataset over time"),
        "audit.svg": (audit, "Certified share of the claimed epsilon"),
        "linkteller.svg": (linkteller, "AUC of LinkTeller over epsilon on Reed98"),
        "growth.svg": (growth, "Processor time per edge over the number of edges"),
        "layers.svg": (layers, "The layers of the package"),
        "tutorial-classification.svg": (tutorial_classification, "ClassCode and the baseline over epsilon"),
        "tutorial-sweep.svg": (tutorial_sweep, "ClassCode, GAP and the baseline over epsilon"),
        "tutorial-audit.svg": (tutorial_audit, "ROC curves of LinkTeller"),
    }
    return {name: svg_file(draw, title) for name, (draw, title) in titles.items()}


# -- parts of diagrams -------------------------------------------------------------------------------------


def canvas(width: int, height: int) -> tuple[Figure, Axes]:
    """Return a figure whose axes have one unit per pixel, from the top left."""
    figure = Figure(figsize=(width / 72, height / 72))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    return figure, axes


def box(
    axes: Axes,
    x: float,
    y: float,
    width: float,
    lines: Sequence[str],
    color: str = INK,
    *,
    height: float = 0,
    bold: bool = True,
) -> None:
    """Draw a box with lines of text, the first one bold."""
    height = height or 16 + 17 * len(lines)
    style = {
        "boxstyle": "round,pad=0,rounding_size=6",
        "facecolor": PALE.get(color, "#ffffff"),
        "edgecolor": color,
    }
    axes.add_patch(FancyBboxPatch((x, y), width, height, linewidth=1.4, **style))
    top = y + height / 2 - 17 * (len(lines) - 1) / 2
    for row, line in enumerate(lines):
        first = row == 0 and bold
        axes.text(
            x + width / 2,
            top + 17 * row,
            line,
            ha="center",
            va="center",
            color=INK if first else SOFT,
            fontsize=12.5 if first else 11.5,
            fontweight="bold" if first else "normal",
        )


def arrow(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], color: str = SOFT, bend: float = 0
) -> None:
    """Draw an arrow."""
    path = f"arc3,rad={bend}"
    patch = FancyArrowPatch(
        start,
        end,
        arrowstyle="-|>",
        mutation_scale=13,
        color=color,
        linewidth=1.4,
        connectionstyle=path,
        shrinkA=0,
        shrinkB=0,
    )
    axes.add_patch(patch)


def nodes_and_edges(
    axes: Axes,
    places: Sequence[tuple[float, float]],
    edges: Sequence[tuple[int, int]],
    *,
    colors: Sequence[str] = (),
    different: Sequence[tuple[int, int]] = (),
    marked: Sequence[int] = (),
    hidden: bool = False,
    directed: bool = False,
    radius: float = 9,
) -> None:
    """Draw a small graph; what differs between neighbors is orange, and dashed where it is absent."""
    for a, b in (*edges, *different):
        differs = (a, b) in different
        if differs and hidden and not marked:
            style: dict[str, Any] = {"color": ORANGE, "linestyle": (0, (2, 2)), "linewidth": 1.3}
        elif differs and hidden:
            continue
        else:
            style = {"color": ORANGE if differs else GRAY, "linewidth": 2.6 if differs else 1.6}
        (xa, ya), (xb, yb) = places[a], places[b]
        if directed:
            length = math.hypot(xb - xa, yb - ya)
            end = (xb - (xb - xa) * radius / length, yb - (yb - ya) * radius / length)
            axes.add_patch(
                FancyArrowPatch(
                    (xa, ya), end, arrowstyle="-|>", mutation_scale=12, shrinkA=0, shrinkB=0, **style
                )
            )
        else:
            axes.plot([xa, xb], [ya, yb], zorder=1, **style)
    for number, (x, y) in enumerate(places):
        color = colors[number] if colors else BLUE
        if number in marked:
            fill, edge = ("#ffffff", ORANGE) if hidden else (ORANGE, ORANGE)
            axes.add_patch(Circle((x, y), radius, facecolor=fill, edgecolor=edge, linewidth=2, zorder=3))
        else:
            axes.add_patch(
                Circle((x, y), radius, facecolor=color, edgecolor="#ffffff", linewidth=1.2, zorder=2)
            )


def caption(
    axes: Axes, x: float, y: float, text: str, *, bold: bool = False, size: float = 11.5, center: bool = False
) -> None:
    """Write one line of text."""
    axes.text(
        x,
        y,
        text,
        color=INK if bold else SOFT,
        fontsize=size,
        fontweight="bold" if bold else "normal",
        ha="center" if center else "left",
        va="center",
    )


# -- diagrams ----------------------------------------------------------------------------------------------


def logo() -> Figure:
    """Return the logo: a graph of which one edge is veiled."""
    figure, axes = canvas(64, 64)
    figure.patch.set_visible(False)  # it stands on a light or a dark bar
    places = [(14, 18), (50, 14), (46, 50), (14, 48)]
    for a, b in ((0, 1), (1, 2), (0, 3)):
        axes.plot(*zip(places[a], places[b], strict=True), color="#4f7fe0", linewidth=3)
    axes.plot(
        *zip(places[2], places[3], strict=True), color="#e69f00", linewidth=3, linestyle=(0, (1.5, 1.2))
    )
    for x, y in places:
        axes.add_patch(Circle((x, y), 8, facecolor="#ffffff", edgecolor="#4f7fe0", linewidth=2, zorder=2))
    return figure


def units() -> Figure:
    """Return a pair of neighboring graphs for each privacy unit."""
    figure, axes = canvas(468, 1177)
    caption(axes, 12, 22, "A ~ B: neighboring datasets. Only the orange part differs.", bold=True, size=12.5)
    shape = [(36, 30), (96, 18), (126, 62), (70, 86), (24, 76)]
    edges = [(0, 1), (1, 2), (2, 3), (0, 4)]
    people, items = [(40, 14), (40, 52), (40, 90)], [(116, 10), (116, 38), (116, 66), (116, 94)]
    listed = [(0, 3), (0, 4), (2, 4), (2, 5), (2, 6)]
    rows: list[tuple[str, str, dict[str, Any]]] = [
        ("undirected-edge", "one edge", {"different": [(1, 3)]}),
        ("directed-edge", "one directed edge", {"different": [(3, 1)], "directed": True}),
        (
            "node-record",
            "features, label and out-edges of one node",
            {"different": [(3, 1), (3, 4)], "marked": [3], "directed": True},
        ),
        (
            "node-record",
            "users (circles) and items (squares): the list of one user",
            {"different": [(1, 3), (1, 5)], "marked": [1]},
        ),
        (
            "row",
            "people (circles) and films (squares): one row of one table",
            {"different": [(2, 5)], "directed": True},
        ),
        (
            "person",
            "attributes, label and all own rows of one person",
            {"different": [(1, 3), (1, 5)], "marked": [1], "directed": True},
        ),
        (
            "node",
            "one node with all its edges, in any graph",
            {"different": [(3, 1), (2, 3)], "marked": [3]},
        ),
        (
            "node-bounded-degree",
            "the same, if no degree exceeds a number",
            {"different": [(3, 1), (2, 3)], "marked": [3]},
        ),
        ("local-attributes", "features and label of one node", {"marked": [3]}),
        ("edge-subset", "one pair of a public list; gray edges are public", {"different": [(1, 3)]}),
    ]
    for row, (unit, meaning, style) in enumerate(rows):
        top = 44 + row * 113
        of_lists = "users" in meaning or unit in ("row", "person")
        caption(axes, 12, top + 38, unit, bold=True, size=13)
        words, line = meaning.split(), ""
        lines = []
        for word in words:
            if len(line) + len(word) > 22:
                lines.append(line)
                line = ""
            line = f"{line} {word}".strip()
        for number, text in enumerate((*lines, line)):
            caption(axes, 12, top + 58 + 16 * number, text)
        for side, hidden in enumerate((False, True)):
            places = [*people, *items] if of_lists else shape
            moved = [(x + 168 + 152 * side, y + top) for x, y in places]
            given = listed if of_lists else edges
            kept = [edge for edge in given if edge not in style.get("different", ())]
            nodes_and_edges(axes, moved, kept, hidden=hidden, **style)
            for x, y in moved[len(people) :] if of_lists else ():
                square = {"facecolor": GREEN, "edgecolor": "#ffffff", "linewidth": 1.2, "zorder": 3}
                axes.add_patch(Rectangle((x - 9, y - 9), 18, 18, **square))
        caption(axes, 316, top + 50, "~", size=17, bold=True, center=True)
    return figure


def release() -> Figure:
    """Return the data flow of one release, from top to bottom."""
    figure, axes = canvas(460, 400)
    box(axes, 16, 16, 250, ["Public data", "features, labels, split (edge-level units)"], SOFT)
    box(axes, 16, 100, 250, ["Query plan", "queries, noise, privacy cost"], INK)
    box(axes, 16, 184, 250, ["Privacy ledger", "charged before noise is drawn"], INK)
    box(axes, 290, 142, 154, ["Protected data", "edges, or whole", "records"], ORANGE)
    box(axes, 16, 268, 428, ["Release", "exact sum + exactly sampled noise, once"], BLUE)
    box(
        axes,
        16,
        346,
        428,
        ["Post-processing", "training, predictions, scores: no further privacy cost"],
        GREEN,
        height=46,
    )
    for y in (66, 150, 234):
        arrow(axes, (141, y), (141, y + 34))
    arrow(axes, (367, 209), (367, 268), ORANGE)
    arrow(axes, (230, 318), (230, 346))
    return figure


def tree(questions: Sequence[tuple[str, str, str]], last: str, width: int = 520) -> Figure:
    """Return a decision tree: question, answer that decides, result; then what is left."""
    figure, axes = canvas(width, 74 * len(questions) + 70)
    for row, (question, answer, result) in enumerate(questions):
        y = 14 + 74 * row
        box(axes, 12, y, 270, question.split("\n"), SOFT, height=48, bold=False)
        arrow(axes, (282, y + 24), (342, y + 24))
        caption(axes, 310, y + 14, answer, center=True, size=11)
        box(axes, 342, y, width - 350, result.split("\n"), BLUE, height=48)
        arrow(axes, (147, y + 48), (147, y + 74))
        caption(axes, 155, y + 62, "no", size=11)
    box(axes, 12, 14 + 74 * len(questions), 270, last.split("\n"), BLUE, height=42)
    return figure


def choose_unit() -> Figure:
    """Return the decision tree for the unit: three questions, then a branch for people and one for edges."""
    figure, axes = canvas(568, 594)
    first = [
        ("Do people perturb their attributes\nbefore you receive them?", "local-attributes"),
        (
            "Do you have users with lists of\nitems (recommender)?",
            "whole list: node-record\none item: directed-edge",
        ),
        (
            "Do you have people and tables\nof what they did?",
            "whole person: person\none row: row",
        ),
    ]
    for row, (question, result) in enumerate(first):
        y = 12 + 74 * row
        box(axes, 12, y, 270, question.split("\n"), SOFT, height=48, bold=False)
        arrow(axes, (282, y + 24), (342, y + 24))
        caption(axes, 311, y + 14, "yes", center=True, size=11)
        if "\n" in result:
            box(axes, 342, y, 214, result.split("\n"), BLUE, height=48, bold=False)
        else:
            box(axes, 342, y, 214, [result], BLUE, height=48)
        arrow(axes, (147, y + 48), (147, y + 74))
        caption(axes, 155, y + 61, "no", size=11)
    box(
        axes,
        12,
        234,
        270,
        ["Are features or labels private,", "not only edges?"],
        SOFT,
        height=48,
        bold=False,
    )
    arrow(axes, (147, 282), (147, 320))
    caption(axes, 155, 301, "yes: protect people", size=11)
    axes.plot([282, 425], [258, 258], color=SOFT, linewidth=1.4)
    arrow(axes, (425, 258), (425, 320))
    caption(axes, 433, 301, "no: protect edges", size=11)
    branches = [
        (
            ("Does each person declare only\ntheir own edges?", "node-record"),
            "node\n(edges are mutual)",
        ),
        (
            ("Are some edges public and\nothers private?", "edge-subset"),
            ("Do edges have a direction?", "directed-edge"),
            "undirected-edge",
        ),
    ]
    for x, (*questions, last) in zip((12, 290), branches, strict=True):
        for row, (question, result) in enumerate(questions):
            y = 320 + 106 * row
            box(axes, x, y, 266, question.split("\n"), SOFT, height=46, bold=False)
            arrow(axes, (x + 84, y + 46), (x + 84, y + 66))
            caption(axes, x + 92, y + 55, "yes", size=11)
            box(axes, x, y + 66, 168, [result], BLUE, height=30)
            arrow(axes, (x + 222, y + 46), (x + 222, y + 106))
            caption(axes, x + 230, y + 76, "no", size=11)
        box(axes, x, 320 + 106 * len(questions), 266, last.split("\n"), BLUE, height=48)
    return figure


def choose_method() -> Figure:
    """Return the decision tree for the method."""
    return tree(
        [
            (
                "Do nodes perturb their own\nattributes (local-attributes)?",
                "yes",
                "auto",
            ),
            ("Do you want to recommend items\nor to predict new edges?", "yes", "recommender\nor links"),
            ("Do you have people and tables\nof what they did?", "yes", "relational"),
            ("Do you want to publish a graph?", "yes", "perturb"),
            ("Do you have your own\nPyTorch module?", "yes", "private_hops, gnn\nor module"),
            ("Is the unit node-bounded-degree?", "yes", "gap"),
            ("Heterophilous graph, many equal\nneighbor lists, and ε ≥ 4?", "yes", "spectral"),
        ],
        "classcode",
    )


def auto() -> Figure:
    """Return what the method auto chooses under each unit."""
    return tree(
        [
            (
                "Unit node-record: is a noisy mean\nout-degree above a public threshold?",
                "yes",
                "classcode,\nelse mlp",
            ),
            (
                "Unit node: is a noisy h-index of\ndegrees above a public threshold?",
                "yes",
                "classcode,\nelse mlp",
            ),
            ("Unit node-bounded-degree?", "yes", "mlp"),
            (
                "Unit local-attributes: which ones\nexplain held-out LDP reports?",
                "yes",
                "their average\n(weighted)",
            ),
            ("Unit none: which one is best\non validation labels?", "yes", "gcn, sage, gat\nor mlp"),
            ("Edge-level: is mlp better\non public validation labels?", "yes", "mlp"),
        ],
        "classcode",
    )


def run_folder() -> Figure:
    """Return the tree of a run folder."""
    entries = [
        (0, "runs/first/", INK, ""),
        (1, "release/", GREEN, "public"),
        (2, "model.safetensors, model.json", GREEN, "model"),
        (2, "aggregates.safetensors", GREEN, "noisy aggregates"),
        (2, "predictions.parquet", GREEN, "predictions"),
        (2, "privacy.json, PRIVACY.md", GREEN, "guarantee"),
        (1, "per_node/", ORANGE, "node-level units: row v for v only"),
        (1, "PRIVACY.md", "#a32020", "compliance report"),
        (1, "internal/", "#a32020", "do not publish"),
        (2, "metrics.json, report.html", "#a32020", "exact scores"),
        (2, "receipts.json", "#a32020", "ledger receipts"),
    ]
    figure, axes = canvas(520, 24 * len(entries) + 24)
    for row, (depth, name, color, meaning) in enumerate(entries):
        y = 24 + 24 * row
        axes.add_patch(Rectangle((10 + 26 * depth, y - 6), 12, 12, facecolor=color, edgecolor="none"))
        axes.text(28 + 26 * depth, y, name, family="monospace", fontsize=11.5, color=INK, va="center")
        caption(axes, 318, y, meaning, size=11)
    return figure


PANEL = 250  # pixels of a panel of a method's diagram


def panels(titles: Sequence[tuple[str, str]]) -> tuple[Figure, Axes, list[tuple[float, float]]]:
    """Return a canvas with four titled panels, two in a row, and their top left corners."""
    figure, axes = canvas(2 * PANEL + 20, 440)
    corners = [(8.0, 8.0), (PANEL + 12.0, 8.0), (8.0, 226.0), (PANEL + 12.0, 226.0)]
    for number, ((x, y), (title, note)) in enumerate(zip(corners, titles, strict=True), start=1):
        style = {"boxstyle": "round,pad=0,rounding_size=6", "facecolor": "#ffffff", "edgecolor": "#c9ced6"}
        axes.add_patch(FancyBboxPatch((x, y), PANEL - 4, 206, linewidth=1, **style))
        caption(axes, x + 12, y + 18, f"{number}  {title}", bold=True, size=12.5)
        caption(axes, x + 12, y + 192, note, size=12)
    return figure, axes, corners


RING = [(40, 60), (100, 46), (160, 60), (184, 112), (128, 150), (62, 144), (108, 98)]
RING_EDGES = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (6, 1), (6, 4), (6, 5), (6, 3)]
CLASSES = [BLUE, BLUE, GREEN, GREEN, GREEN, BLUE, GRAY]


def ring(axes: Axes, corner: tuple[float, float], **style: Any) -> None:
    """Draw the example graph of the method diagrams into a panel."""
    places = [(x + corner[0], y + corner[1]) for x, y in RING]
    nodes_and_edges(axes, places, style.pop("edges", RING_EDGES), **style)


def bars(
    axes: Axes, x: float, y: float, values: Sequence[float], colors: Sequence[str], width: float = 16
) -> None:
    """Draw bars upwards from a base line."""
    for number, (value, color) in enumerate(zip(values, colors, strict=True)):
        axes.add_patch(
            Rectangle((x + number * (width + 4), y - value), width, value, facecolor=color, edgecolor="none")
        )
    axes.plot([x - 4, x + len(values) * (width + 4)], [y, y], color=SOFT, linewidth=1)


def classcode() -> Figure:
    """Return ClassCode in four panels."""
    figure, axes, at = panels(
        [
            ("Public classes", "labels, or predictions from features"),
            ("Noisy counts", "neighbors per class + Laplace noise"),
            ("Likelihood", "P(counts | class), from labeled nodes"),
            ("Prediction", "likelihood × features, then a head"),
        ]
    )
    ring(axes, at[0], colors=CLASSES)
    ring(axes, at[1], colors=[*CLASSES[:6], ORANGE])
    x, y = at[1]
    bars(axes, x + 206, y + 92, [22, 34], [BLUE, GREEN], 12)
    x, y = at[2]
    grid = np.linspace(0, 170, 80)
    for mean, color in ((60, BLUE), (112, GREEN)):
        axes.plot(x + 34 + grid, y + 150 - 90 * np.exp(-((grid - mean) ** 2) / 700), color=color)
    axes.plot([x + 30, x + 214], [y + 150, y + 150], color=SOFT, linewidth=1)
    caption(axes, x + 60, y + 164, "noisy count of class k", size=12)
    ring(axes, at[3], colors=[*CLASSES[:6], GREEN])
    return figure


def gap() -> Figure:
    """Return GAP in four panels."""
    figure, axes, at = panels(
        [
            ("Encode", "unit vectors from features"),
            ("Aggregate with noise", "sum of neighbors + Gaussian noise"),
            ("More hops", "normalize, aggregate again, K times"),
            ("Classify", "all hops together; post-processing"),
        ]
    )
    ring(axes, at[0], colors=[SOFT] * 7, edges=[])
    x, y = at[0]
    for number in range(7):
        px, py = RING[number]
        bars(axes, x + px + 16, y + py + 4, [8, 14, 6], [BLUE, BLUE, BLUE], 4)
    ring(axes, at[1], colors=[*[BLUE] * 6, ORANGE])
    for number in (1, 3, 4, 5):
        sx, sy = RING[number]
        tx, ty = RING[6]
        length = math.hypot(tx - sx, ty - sy)
        start = (at[1][0] + sx + (tx - sx) * 10 / length, at[1][1] + sy + (ty - sy) * 10 / length)
        end = (at[1][0] + tx - (tx - sx) * 11 / length, at[1][1] + ty - (ty - sy) * 11 / length)
        arrow(axes, start, end, ORANGE)
    x, y = at[2]
    for step, label in enumerate(("x⁽⁰⁾", "x⁽¹⁾", "x⁽²⁾")):
        box(axes, x + 14 + 78 * step, y + 78, 62, [label], BLUE if step else SOFT)
        if step:
            arrow(axes, (x + 76 + 78 * (step - 1), y + 94), (x + 92 + 78 * (step - 1), y + 94), ORANGE)
            caption(axes, x + 70 + 78 * (step - 1), y + 128, "A + noise", size=12)
    ring(axes, at[3], colors=[*CLASSES[:6], GREEN])
    return figure


def lpgnn() -> Figure:
    """Return LPGNN in four panels."""
    figure, axes, at = panels(
        [
            ("Perturb", "each node: features and label"),
            ("KProp", "average over K public hops"),
            ("Train with Drop", "loss corrected for label noise"),
            ("Predict", "post-processing"),
        ]
    )
    ring(axes, at[0], colors=[ORANGE] * 7, edges=[])
    caption(axes, at[0][0] + 44, at[0][1] + 76, "x, y → report", size=12)
    ring(axes, at[1], colors=[BLUE] * 7)
    x, y = at[2]
    box(axes, x + 16, y + 56, 96, ["GNN", "P(y | x)"], BLUE)
    box(axes, x + 138, y + 56, 92, ["× T", "law of noise"], ORANGE)
    arrow(axes, (x + 112, y + 81), (x + 138, y + 81))
    box(axes, x + 76, y + 126, 110, ["reported labels"], SOFT, bold=False)
    arrow(axes, (x + 184, y + 106), (x + 140, y + 126))
    ring(axes, at[3], colors=[*CLASSES[:6], GREEN])
    return figure


def heterorr() -> Figure:
    """Return HeteroRR in four panels."""
    figure, axes, at = panels(
        [
            ("FeatureRR", "features, eps_x-LDP"),
            ("EdgeRR", "private edges replaced, ε"),
            ("Released graph", "public edges kept"),
            ("GCN", "on noisy features and graph"),
        ]
    )
    ring(axes, at[0], colors=[ORANGE] * 7, edges=[])
    ring(axes, at[1], edges=RING_EDGES[:6], different=RING_EDGES[6:])
    ring(axes, at[2], edges=RING_EDGES[:6], different=[(0, 6), (2, 6), (1, 5), (2, 4)])
    ring(axes, at[3], colors=[*CLASSES[:6], GREEN], edges=[*RING_EDGES[:6], (0, 6), (2, 6)])
    return figure


def table(
    axes: Axes, x: float, y: float, values: Sequence[Sequence[float]], color: str, size: float = 22
) -> None:
    """Draw a table of squares, darker for larger values between 0 and 1."""
    for row, line in enumerate(values):
        for column, value in enumerate(line):
            corner = (x + column * size, y + row * size)
            axes.add_patch(Rectangle(corner, size - 2, size - 2, facecolor=PALE[SOFT], edgecolor="none"))
            axes.add_patch(
                Rectangle(corner, size - 2, size - 2, facecolor=color, edgecolor="none", alpha=value)
            )


def links() -> Figure:
    """Return link prediction in four panels."""
    figure, axes, at = panels(
        [
            ("Public vectors", "features, reduced to norm one"),
            ("Noisy sums", "degrees, products, cluster counts"),
            ("Scores", "of all pairs; post-processing"),
            ("Held-out edges", "noisy counts by score"),
        ]
    )
    ring(axes, at[0], colors=[*CLASSES[:6], GREEN], edges=[])
    shares = np.array([[3, 5, 2], [6, 1, 4], [2, 4, 6], [5, 2, 3], [1, 6, 5], [4, 3, 1]]) / 8
    x, y = at[0]
    for number, (place, row) in enumerate(zip(RING[:6], shares, strict=True)):
        color = CLASSES[number]
        table(axes, x + place[0] + 8, y + place[1] - 16, [row.tolist()], color, 8)
    ring(axes, at[1], colors=[*CLASSES[:6], GREEN])
    x, y = at[1]
    noisy = [[0.9, 0.3, 0.5], [0.3, 0.8, 0.2], [0.5, 0.2, 0.7]]
    table(axes, x + 196, y + 136, noisy, ORANGE, 14)
    likely = [(0, 6), (2, 6), (1, 5), (2, 4)]
    ring(axes, at[2], colors=[*CLASSES[:6], GREEN], edges=[], different=likely)
    x, y = at[3]
    bars(axes, x + 40, y + 150, [6, 9, 14, 24, 42, 66, 88], [ORANGE] * 7, 18)
    caption(axes, x + 78, y + 168, "score of the pair", size=12)
    return figure


def recommender() -> Figure:
    """Return the recommender in four panels."""
    figure, axes, at = panels(
        [
            ("Lists", "users (rows) and their items"),
            ("Noisy products", "items on lists together + noise"),
            ("Item model", "from eigenvalues; post-processing"),
            ("Recommend", "item model × the user's own list"),
        ]
    )
    lists = np.array([[1, 1, 1, 0, 0], [1, 1, 0, 0, 0], [0, 0, 1, 1, 1], [0, 0, 0, 1, 1], [1, 0, 1, 0, 0]])
    noise = np.array([[2, 6, 1, 3, 5], [6, 1, 4, 2, 0], [1, 4, 5, 6, 2], [3, 2, 6, 0, 4], [5, 0, 2, 4, 3]])
    weights = lists / np.sqrt(lists.sum(axis=1, keepdims=True))
    products = weights.T @ weights / 1.4
    clean = products * (1 - np.eye(5))
    x, y = at[0]
    table(axes, x + 68, y + 46, lists.tolist(), BLUE)
    x, y = at[1]
    table(axes, x + 68, y + 46, np.clip(0.8 * products + noise / 20, 0, 1).tolist(), ORANGE)
    x, y = at[2]
    table(axes, x + 68, y + 46, np.clip(1.3 * clean, 0, 1).tolist(), GREEN)
    x, y = at[3]
    table(axes, x + 68, y + 60, [lists[1].tolist()], BLUE)
    arrow(axes, (x + 122, y + 88), (x + 122, y + 122), GREEN)
    table(axes, x + 68, y + 128, [(np.clip(1.6 * lists[1] @ clean, 0, 1) * (1 - lists[1])).tolist()], GREEN)
    return figure


def relational() -> Figure:
    """Return RelationalClassifier under unit ``row`` in four panels."""
    figure, axes, at = panels(
        [
            ("Count at far ends", "rows of R, by label of the owner"),
            ("Codes", "similar class mixes: same code"),
            ("Count at owners", "all other rows, by code"),
            ("Classify", "counts → class, taught by V"),
        ]
    )
    people = [(56, 50), (56, 88), (56, 126), (56, 164)]
    films = [(150, 62), (150, 107), (150, 152)]
    first, second = [(0, 0), (0, 1), (1, 1), (1, 2)], [(2, 0), (2, 1), (3, 1), (3, 2)]

    def squares(corner: tuple[float, float], colors: Sequence[str]) -> None:
        for (x, y), color in zip(films, colors, strict=True):
            square = {"facecolor": color, "edgecolor": "#ffffff", "linewidth": 1.2, "zorder": 3}
            axes.add_patch(Rectangle((corner[0] + x - 9, corner[1] + y - 9), 18, 18, **square))

    def rows(corner: tuple[float, float], edges: Sequence[tuple[int, int]], colors: Sequence[str]) -> None:
        places = [(corner[0] + x, corner[1] + y) for x, y in (*people, *films)]
        given = [(a, b + len(people)) for a, b in edges]
        nodes_and_edges(axes, places, given, colors=[*colors, *[SOFT] * 3], directed=True)

    rows(at[0], first, [BLUE, GREEN, GRAY, GRAY])
    squares(at[0], [SOFT] * 3)
    for place, values in enumerate(((20, 4), (14, 12), (4, 19))):
        bars(axes, at[0][0] + 178, at[0][1] + films[place][1] + 10, values, [BLUE, GREEN], 12)
    codes = [BLUE, ORANGE, GREEN]
    squares(at[1], codes)
    for place, values in enumerate(((20, 4), (14, 12), (4, 19))):
        bars(axes, at[1][0] + 50, at[1][1] + films[place][1] + 10, values, [BLUE, GREEN], 12)
        y = at[1][1] + films[place][1]
        arrow(axes, (at[1][0] + 90, y), (at[1][0] + 134, y))
        caption(axes, at[1][0] + 174, y, f"code {place + 1}", size=12)
    rows(at[2], second, [GRAY, GRAY, INK, INK])
    squares(at[2], codes)
    for place, values in ((2, (18, 20, 3)), (3, (2, 17, 19))):
        x, y = at[2][0] + 178, at[2][1] + people[place][1] + 10 - (28 if place == 2 else 0)
        bars(axes, x, y, values, codes, 12)
    x, y = at[3]
    for row, (values, color) in enumerate((((18, 20, 3), BLUE), ((2, 17, 19), GREEN))):
        bars(axes, x + 44, y + 86 + 62 * row, values, codes, 12)
        arrow(axes, (x + 104, y + 76 + 62 * row), (x + 164, y + 76 + 62 * row))
        axes.add_patch(Circle((x + 186, y + 76 + 62 * row), 10, facecolor=color, edgecolor="#ffffff"))
    return figure


def ldp_flow() -> Figure:
    """Return the data flow of local privacy."""
    figure, axes = canvas(460, 300)
    box(axes, 14, 18, 200, ["Client", "true record and secret", "stay on the device"], ORANGE)
    box(axes, 246, 18, 200, ["Collection protocol", "public: mechanism, ε,", "bounds, purpose"], SOFT)
    box(axes, 14, 126, 200, ["LDP report", "a few bytes, perturbed"], BLUE)
    box(axes, 246, 126, 200, ["Public graph", "edges are not protected"], SOFT)
    box(axes, 110, 222, 240, ["Server", "collector, LPGNN, label posterior"], GREEN)
    arrow(axes, (246, 50), (214, 50))
    arrow(axes, (114, 85), (114, 126), ORANGE)
    caption(axes, 122, 106, "randomize_record", size=10.5)
    arrow(axes, (114, 176), (180, 222))
    arrow(axes, (346, 176), (290, 222))
    return figure


def layers() -> Figure:
    """Return the layers of the package, as the test of layers enforces them."""
    text = (ROOT / "tests" / "test_layers.py").read_text(encoding="utf-8")
    source = re.search(r"^LAYERS = \[.*?\n((?:    \{.*\},?.*\n)+)\]", text, re.MULTILINE)
    assert source is not None
    rows = [re.findall(r'"([a-z_]+)"', line) for line in source[1].splitlines()][::-1]
    figure, axes = canvas(480, 36 * len(rows) + 16)
    outer = {"papers", "serve", "cluster"}
    for number, names in enumerate(rows):
        y = 10 + 36 * number
        width = 440 / len(names)
        for place, name in enumerate(sorted(names)):
            color = GREEN if name in outer else SOFT if name == "cli" else BLUE
            box(axes, 20 + width * place + 2, y, width - 4, [name], color, height=30)
    return figure


def budget() -> Figure:
    """Return how the total of a dataset grows with releases, as the accountant composes them."""
    figure = Figure(figsize=(480 / 72, 270 / 72), layout="constrained")
    axes = figure.subplots()
    limit, delta = 2.5, 1e-7
    one = gv.calibrate("gap", "undirected-edge", epsilon=1.0, delta=delta).mu
    from graphveil.privacy import Gaussian, privacy_curve

    totals = [privacy_curve(Gaussian(one * math.sqrt(k))).epsilon(delta) for k in range(1, 7)]
    colors = [BLUE if total <= limit else ORANGE for total in totals]
    axes.bar(range(1, 7), totals, color=colors, width=0.6)
    axes.axhline(limit, color=INK, linewidth=1.4, linestyle=(0, (5, 3)))
    axes.text(0.55, limit + 0.05, "budget: epsilon 2.5", color=INK, fontsize=11)
    first = next(k for k, total in enumerate(totals, start=1) if total > limit)
    axes.text(first, totals[first - 1] + 0.05, "rejected", color=ORANGE, ha="center", fontsize=11)
    axes.set(xlabel="releases of GAP with epsilon 1", ylabel="total epsilon", ylim=(0, 3.2), xlim=(0.5, 6.5))
    axes.grid(visible=False, axis="x")
    return figure


# -- plots -------------------------------------------------------------------------------------------------


def cells(dataset: str) -> dict[str, list[tuple[float, float, float, float]]]:
    """Return (epsilon, mean, low, high) of test accuracy in percent by line, of chosen runs."""
    found: dict[str, dict[float, list[float]]] = {}
    with FRONTIER.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["dataset"] == dataset and row["chosen"] == "yes" and row["test"]:
                place = float(row["x"]) if row["x"] else 0.0  # a method without a budget
                found.setdefault(row["line"], {}).setdefault(place, []).append(100 * float(row["test"]))
    lines = {}
    for line, places in found.items():
        lines[line] = []
        for epsilon, values in sorted(places.items()):
            mean, half = float(np.mean(values)), 0.0
            if len(values) > 1:
                half = STUDENT.get(len(values), 2.0) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
            lines[line].append((epsilon, mean, mean - half, mean + half))
    return lines


STYLES = {
    "ClassCode": (BLUE, "-", "ClassCode"),
    "Spectral": (COLORS[3], "-", "Spectral"),
    "GAP": (ORANGE, "-", "GAP"),
    "LPGNet": (GREEN, "-", "LPGNet"),
    "SAGE on ARR": (COLORS[4], "-", "SAGE on ARR graph"),
    "GCN on EdgeRR": (COLORS[5], "-", "GCN on EdgeRR graph"),
    "MLP (floor)": (GRAY, (0, (4, 2)), "no-graph baseline"),
    "GCN, no privacy": (INK, (0, (1.5, 1.5)), "GCN without privacy"),
}
EPSILON_TICKS = (0.1, 0.5, 1, 2, 4, 8)
BOUND_TICKS = (1, 2, 5, 10, 50, 100)


def line_of(name: str) -> str:
    """Return the key of a line in STYLES, whatever the table calls the baseline."""
    return "MLP (floor)" if name.startswith("MLP") else name


def draw_lines(
    axes: Axes, dataset: str, names: Sequence[str], place: Callable[[str, float], float]
) -> dict[str, Any]:
    """Draw lines with intervals; return a handle for each label."""
    handles = {}
    for raw, points in cells(dataset).items():
        name = line_of(raw)
        if name not in names:
            continue
        color, dash, label = STYLES[name]
        if name in ("MLP (floor)", "GCN, no privacy"):
            handles[label] = axes.axhline(points[0][1], color=color, linestyle=dash, linewidth=1.6)
            continue
        x = [place(name, epsilon) for epsilon, *_ in points]
        (handles[label],) = axes.plot(
            x, [mean for _, mean, _, _ in points], "o-", color=color, markersize=3.5
        )
        axes.fill_between(
            x, [p[2] for p in points], [p[3] for p in points], color=color, alpha=0.15, linewidth=0
        )
    return handles


@cache
def bound(line: str, epsilon: float) -> float:
    """Return the attack bound of a line in percent; all lines but GAP satisfy pure differential privacy."""
    method = "gap" if line == "GAP" else "classcode"
    return 100 * gv.calibrate(method, "undirected-edge", epsilon=epsilon, delta=1e-7).max_tpr_at_1pct_fpr


def frontier() -> Figure:
    """Return accuracy over epsilon, and over the attack bound, on Berkeley13."""
    figure = Figure(figsize=(560 / 72, 330 / 72), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    names = ("ClassCode", "GAP", "MLP (floor)", "GCN, no privacy")
    handles = draw_lines(left, "facebook100/Berkeley13", names, lambda _, epsilon: epsilon)
    draw_lines(right, "facebook100/Berkeley13", names, bound)
    left.set(xscale="log", xlabel="epsilon", ylabel="test accuracy, %", ylim=(40, 92), xlim=(0.09, 9))
    left.set_xticks(EPSILON_TICKS, [f"{tick:g}" for tick in EPSILON_TICKS])
    right.set(xscale="log", xlabel="attack bound: TPR at 1 % FPR, %", xlim=(1, 100))
    right.set_xticks(BOUND_TICKS, [f"{tick:g}" for tick in BOUND_TICKS])
    for axes in (left, right):
        axes.minorticks_off()
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=2)
    return figure


def results_grid(place: Callable[[str, float], float] | None = None) -> Figure:
    """Return small multiples of all graphs of the frontier, over epsilon or another place."""
    datasets = (
        ("facebook100/Berkeley13", "Berkeley13"),
        ("facebook100/Reed98", "Reed98"),
        ("amazon/computers", "Computers"),
        ("cora", "Cora"),
        ("citeseer", "CiteSeer"),
        ("twitch/DE", "Twitch DE"),
        ("heterophilous/squirrel_filtered", "Filtered Squirrel"),
    )
    figure = Figure(figsize=(560 / 72, 900 / 72), layout="constrained")
    handles: dict[str, Any] = {}
    places = figure.subplots(4, 2).flat
    figure.delaxes(places[len(datasets)])
    for axes, (dataset, title) in zip(places, datasets, strict=False):
        handles |= draw_lines(axes, dataset, list(STYLES), place or (lambda _, epsilon: epsilon))
        ticks, over, limits = EPSILON_TICKS, "epsilon", (0.09, 9)
        if place is not None:
            ticks, over, limits = BOUND_TICKS, "attack bound, %", (1, 100)
        axes.set(xscale="log", xlim=limits)
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_title(f"{title} (over {over})", fontsize=12, color=INK, loc="left")
    figure.supylabel("test accuracy, %", fontsize=12, color=SOFT)
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=2)
    return figure


def attacker() -> Figure:
    """Return the attack bound, and the noise of one count, over epsilon."""
    figure = Figure(figsize=(560 / 72, 300 / 72), layout="constrained")
    left, right = figure.subplots(1, 2)
    epsilons = [2 ** (k / 4) for k in range(-12, 13)]
    pure = [100 * min(0.01 * math.exp(e), 1 - math.exp(-e) * 0.99) for e in epsilons]
    (gaussian,) = left.plot(epsilons, [bound("GAP", e) for e in epsilons], color=ORANGE)
    (laplace,) = left.plot(epsilons, pure, color=BLUE)
    left.set_ylabel("attack bound, %")
    some = [e for e in epsilons if e >= 0.5]
    right.plot(some, [1 / calibrate_mu(e, 1e-7) for e in some], color=ORANGE)
    right.plot(some, [math.sqrt(2) / (2 * math.sinh(e / 2)) for e in some], color=BLUE)
    right.set_ylabel("noise deviation on a count")
    for axes, ticks in ((left, (0.125, 0.5, 1, 2, 4, 8)), (right, (0.5, 1, 2, 4, 8))):
        axes.set(xscale="log", xlabel="epsilon", xlim=(ticks[0], ticks[-1]), ylim=(0, None))
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
    names = ("Gaussian noise, delta 1e-7 (GAP)", "discrete Laplace noise (ClassCode)")
    figure.legend([gaussian, laplace], names, loc="outside lower center", ncols=2)
    return figure


def audit() -> Figure:
    """Return a heat map of the certified share, from the table of audits."""
    text = (RESULTS / "audit.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| ([^|]+) \| ([a-z-]+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", text, re.MULTILINE
    )
    names = [f"{method}, {unit}" for method, unit, *_ in rows]
    values = np.array([[int(value) for value in row[2:]] for row in rows])
    figure = Figure(figsize=(420 / 72, (19 * len(rows) + 70) / 72), layout="constrained")
    axes = figure.subplots()
    axes.imshow(values, cmap="Blues", vmin=50, vmax=110, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        axes.text(
            column,
            row,
            str(value),
            ha="center",
            va="center",
            fontsize=11,
            color="#ffffff" if value > 90 else INK,
        )
    axes.set_xticks(range(5), ("0.5", "1", "2", "4", "8"))
    axes.set_yticks(range(len(names)), names, fontsize=11)
    axes.set(xlabel="claimed epsilon\n(cells: % certified)")
    axes.grid(visible=False)
    axes.autoscale(enable=False)
    axes.set(xlim=(-0.5, 4.5), ylim=(len(rows) - 0.5, -0.5))
    return figure


def linkteller() -> Figure:
    """Return LinkTeller's AUC over epsilon on Reed98, from the table of attacks."""
    text = (RESULTS / "attacks.md").read_text(encoding="utf-8")
    section = text[text.index("## LinkTeller over epsilon") :]
    rows = re.findall(
        r"^\| facebook100/Reed98 \| ([a-z-]+) \| ([\d.]+) \| [^|]+\| ([\d.]+) ± ([\d.]+) \| ([\d.]+)",
        section,
        re.MULTILINE,
    )
    figure = Figure(figsize=(480 / 72, 300 / 72), layout="constrained")
    axes = figure.subplots()
    lines: dict[str, list[tuple[float, float]]] = {}
    for method, epsilon, value, _, _ in rows:
        lines.setdefault(method, []).append((float(epsilon), float(value)))
    for number, (method, points) in enumerate(lines.items()):
        axes.plot(*zip(*points, strict=True), "o-", color=COLORS[number], label=method, markersize=4)
    axes.axhline(0.927, color=INK, linestyle=(0, (1.5, 1.5)), label="gcn without privacy")
    axes.axhline(float(rows[0][4]), color=GRAY, linestyle=(0, (4, 2)), label="public features only")
    axes.set(xscale="log", xlabel="epsilon", ylabel="AUC", ylim=(0.45, 1), xlim=(0.45, 9))
    axes.set_xticks((0.5, 1, 2, 4, 8), ("0.5", "1", "2", "4", "8"))
    axes.minorticks_off()
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def growth() -> Figure:
    """Return nanoseconds per edge over edges, of prepare and of one hop."""
    with (ROOT / "benchmarks" / "prepare.csv").open(newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: float(row["edges"]))
    edges = [float(row["edges"]) for row in rows]
    figure = Figure(figsize=(560 / 72, 300 / 72), layout="constrained")
    left, right = figure.subplots(1, 2)
    lines = (
        (left, "prepare ns/edge", "prepare", ORANGE),
        (right, "memory ns/edge", "hop in memory", ORANGE),
        (right, "disk ns/edge", "hop on disk", BLUE),
    )
    for axes, column, name, color in lines:
        axes.plot(edges, [float(row[column]) for row in rows], "o-", color=color, label=name, clip_on=False)
    for axes in (left, right):
        axes.set(
            xscale="log", xlabel="edges", ylabel="CPU ns per edge", ylim=(0, None), xlim=(edges[0], edges[-1])
        )
        axes.set_xticks(edges, [f"{count:.0e}".replace("e+0", "e") for count in edges])
        axes.minorticks_off()
        axes.legend(loc="lower right")
    return figure


# -- tutorials ---------------------------------------------------------------------------------------------


def measured() -> dict[str, Any]:
    """Return the committed numbers of the tutorials; ``docs/pictures/measure.py`` makes them."""
    found: dict[str, Any] = json.loads((HERE / "tutorials.json").read_text(encoding="utf-8"))
    return found


def tutorial_classification() -> Figure:
    """Return ClassCode next to the baseline."""
    return accuracy_lines(measured()["classification"])


def tutorial_sweep() -> Figure:
    """Return the sweep of the tutorial."""
    return accuracy_lines(measured()["sweep"])


def accuracy_lines(rows: list[dict[str, Any]]) -> Figure:
    """Return accuracy over epsilon with intervals; what has no epsilon is a level."""
    figure = Figure(figsize=(460 / 72, 290 / 72), layout="constrained")
    axes = figure.subplots()
    colors = {"classcode": BLUE, "gap": ORANGE}
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = [row for row in rows if row["method"] == method]
        if method not in colors:
            axes.axhline(100 * mine[0]["mean"], color=GRAY, linestyle=(0, (4, 2)), label="no-graph baseline")
            continue
        x = [row["epsilon"] for row in mine]
        axes.plot(
            x, [100 * row["mean"] for row in mine], "o-", color=colors[method], label=method, markersize=4
        )
        low, high = ([100 * row[key] for row in mine] for key in ("low", "high"))
        axes.fill_between(x, low, high, color=colors[method], alpha=0.15, linewidth=0)
    axes.set(xlabel="epsilon", ylabel="test accuracy, %")
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def tutorial_audit() -> Figure:
    """Return ROC curves of LinkTeller."""
    figure = Figure(figsize=(360 / 72, 360 / 72), layout="constrained")
    axes = figure.subplots()
    for number, (name, points) in enumerate(measured()["audit"].items()):
        axes.plot(*zip(*points, strict=True), color=(INK, BLUE)[number], label=name)
    axes.plot((0, 1), (0, 1), color=GRAY, linestyle=(0, (4, 2)), label="random guess")
    axes.set(xlabel="false-positive rate", ylabel="true-positive rate", xlim=(0, 1), ylim=(0, 1))
    figure.legend(loc="outside lower center")
    return figure


if __name__ == "__main__":
    main()

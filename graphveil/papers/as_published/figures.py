"""Figures of a target, one for each dataset, as SVG and PDF; equal results give equal bytes."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphveil.papers.as_published.results import Point
from graphveil.papers.as_published.target import ReproductionTarget
from graphveil.publish.charts import COLORS, INK, chart_style, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINE_COLORS = (*COLORS, "#7f7f7f")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "-.")  # where there are more lines than colors
_LETTERS = 14  # of a title, to an inch
_WIDTH, _HEIGHT, _ROW = 4.6, 3.4, 0.36  # inches: of a panel, and of a row of a table
_KEY = 0.19  # inches of a row of the legend
_STYLE: Any = {  # where it differs from that of other charts
    "font.size": 9,
    "axes.labelcolor": INK,
    "axes.labelsize": "medium",
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.autolimit_mode": "data",
    "axes.xmargin": 0.05,
    "axes.ymargin": 0.05,
    "axes.grid.axis": "y",
    "lines.linewidth": 1.7,
    "lines.markersize": 4.5,
    "xtick.bottom": True,
    "ytick.left": True,
    "legend.labelcolor": "None",
    "text.parse_math": True,
}
FORMATS = ("svg", "pdf")


def figures_of(
    target: ReproductionTarget, points: Sequence[Point], formats: Sequence[str] = FORMATS
) -> dict[str, bytes]:
    found = dict[str, bytes]()
    for dataset in dict.fromkeys(point.place.dataset for point in points):
        there = [point for point in points if point.place.dataset == dataset and point.mean is not None]
        if not there:
            continue
        with chart_style(_STYLE):
            places = {point.place.x for point in there} - {None}
            one_metric = [point for point in there if point.metric == target.metric]
            figure = _panels(target, there) if len(places) > 1 else _table(target, one_metric)
            reference = target.published_dataset(dataset)
            where = "the same data" if reference == dataset else reference
            known = "" if reference is None else f"; hollow marks: published, on {where}"
            width = round(_LETTERS * figure.get_figwidth())
            lines = [*textwrap.wrap(target.title, width), *textwrap.wrap(f"{dataset}{known}", width)]
            figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=10)
            for form in formats:
                name = f"{dataset.replace('/', '-')}.{form}"
                found[name] = save(figure, form, dpi=110, bbox_inches="tight")
    return found


def _figure(
    columns: int, rows: int, width: float, height: float, *, same_scale: bool = True
) -> tuple["Figure", list["Axes"]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharey=same_scale)
    return figure, list(axes.flat)


def _panels(target: ReproductionTarget, points: list[Point]) -> "Figure":
    panels = list(dict.fromkeys((point.place.panel, point.metric) for point in points))
    metrics = list(dict.fromkeys(metric for _, metric in panels))
    columns = min(2, len(panels)) if len(metrics) == 1 else len(metrics)
    rows, same_scale = -(-len(panels) // columns), len(metrics) == 1
    figure, axes = _figure(columns, rows, _WIDTH, _HEIGHT, same_scale=same_scale)
    names = list(dict.fromkeys(line.name for line in target.lines))  # of one color on all data sets
    for place, panel in zip(axes, panels, strict=False):
        own = [point for point in points if (point.place.panel, point.metric) == panel]
        _curves(place, target, own, names)
        place.set_title(panel[0])
        if panel in panels[::columns] or not same_scale:
            place.set_ylabel(target.metrics[panel[1]])
    for spare in axes[len(panels) :]:
        spare.set_visible(False)
    legends = [zip(*place.get_legend_handles_labels(), strict=True) for place in axes]
    shown = {label: line for legend in legends for line, label in legend}
    ordered = [name for name in names if name in shown]
    keys = min(2 * columns, len(ordered))  # in a row
    figure.legend(
        [shown[name] for name in ordered],
        ordered,
        loc="outside lower left",
        ncols=keys,
        frameon=False,
    )
    figure.set_figheight(figure.get_figheight() + -(-len(ordered) // keys) * _KEY)  # curves keep their room
    return figure


def _curves(place: "Axes", target: ReproductionTarget, points: list[Point], names: list[str]) -> None:
    """Draw the lines of one panel; infinity is one step after the last point."""
    axis, scale = target.axis, 100 if target.percent else 1
    assert axis is not None
    xs = sorted({point.place.x for point in points if point.place.x is not None and point.place.x < 1e9})
    endless = any(point.place.x == float("inf") for point in points)
    beyond: float | None = None  # position of infinity
    if endless and xs:
        last, before = xs[-1], xs[-2] if len(xs) > 1 else None
        if axis.log:
            beyond = last * 2 if before is None else last**2 / before
        else:
            beyond = last + 1 if before is None else 2 * last - before
    for name in dict.fromkeys(point.place.line for point in points):
        number = names.index(name)
        own = [point for point in points if point.place.line == name]
        style: dict[str, Any] = {"color": LINE_COLORS[number % len(LINE_COLORS)], "zorder": 3}
        if own[0].place.x is None:
            place.axhline(scale * (own[0].mean or 0), label=name, linestyle="--", linewidth=1.2, **style)
            continue
        style["linestyle"] = LINES[number // len(LINE_COLORS) % len(LINES)]
        own.sort(key=lambda point: point.place.x or 0)
        there = [point.place.x or 0.0 for point in own]
        there = [beyond if beyond is not None and x == float("inf") else x for x in there]
        means = [scale * (point.mean or 0) for point in own]
        place.plot(there, means, marker=MARKERS[number % len(MARKERS)], label=name, **style)
        for x, point in zip(there, own, strict=True):
            if point.interval is not None:
                ends = [scale * end for end in point.interval]
                place.plot([x, x], ends, color=style["color"], linewidth=1.1, zorder=2)
        known = [(x, point.published) for x, point in zip(there, own, strict=True) if point.published]
        place.plot(
            [x for x, _ in known],
            [one.value for _, one in known if one],
            marker=MARKERS[number % len(MARKERS)],
            markerfacecolor="none",
            linewidth=1.1,
            alpha=0.75,
            **{**style, "linestyle": ":", "zorder": 2},
        )
    if axis.log:
        place.set_xscale("log")
    ticks = [*xs, *([beyond] if beyond else [])]
    place.set_xticks(ticks, [f"{x:g}" for x in xs] + (["∞"] if beyond else []))
    place.minorticks_off()
    place.set_xlabel(axis.label)
    place.tick_params(labelleft=True)


def _table(target: ReproductionTarget, points: list[Point]) -> "Figure":
    """Return one row per line: the reproduced mean with its interval, and the published value.

    Used for targets without an axis, and for a single point on it.
    """
    scale = 100 if target.percent else 1
    figure, (place,) = _figure(1, 1, 1.5 * _WIDTH, (len(points) + 3) * _ROW)
    panels = list(dict.fromkeys(point.place.panel for point in points))
    for row, point in enumerate(points):
        color = LINE_COLORS[panels.index(point.place.panel) % len(LINE_COLORS)]
        mean, ends, known = scale * (point.mean or 0), point.interval, point.published
        if ends:
            place.plot([scale * end for end in ends], [row, row], color=color, linewidth=1.6, zorder=2)
        place.plot([mean], [row], "o", color=color, markersize=6, zorder=3)
        if known:
            place.plot([known.value], [row], "D", color=color, markerfacecolor="none", markersize=6, zorder=3)
    names = [f"{line}   ({panel})" if panel else line for _, panel, line, _ in (p.place for p in points)]
    place.set_yticks(range(len(points)), names)
    place.tick_params(axis="y", length=0, labelcolor=INK)
    place.set_ylim(len(points) - 0.5, -0.5)
    place.grid(axis="x")
    place.grid(visible=False, axis="y")
    where = "".join(
        f", at {target.axis.label} {x:g}" for x in {p.place.x for p in points} - {None} if target.axis
    )
    place.set_xlabel(f"{target.metrics[target.metric]}{where}")
    return figure

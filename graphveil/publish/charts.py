"""Charts, drawn by matplotlib: lines over an axis, accuracy over epsilon, ROC curves, and bars of an audit.

A chart in a page is inline SVG. Its colors are variables of the page's style sheet, which has values for
light and for dark screens. A chart in a separate file has a white background. Equal data give equal bytes.
"""

import io
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphveil._util.escape import html, one_line
from graphveil.publish.results import Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Point = tuple[float, float]

# The colors of Okabe and Ito, which are distinguishable with any kind of color vision.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (7, 2, 1.5, 2)))  # where there are more lines than colors
INK, SOFT, GRID, GRAY, WARN = "#1d2127", "#5b6470", "#e3e6ea", "#7f858c", "#a32020"
RANDOM_GUESS = "random guess"
_STYLE = Path(__file__).parents[1] / "templates" / "charts.mplstyle"
_WIDTH, _HEIGHT, _ROW = 360, 250, 20  # points, of which a page makes pixels: a chart, and a row of its legend
_LETTER, _KEY, _LONGEST = 7.6, 50, 52  # points: a letter, a legend key; maximum letters in a row of a legend
_DATELESS = {
    "svg": dict.fromkeys(("Date", "Creator", "Format", "Type")),
    "pdf": {"CreationDate": None, "ModDate": None},
    "png": {},
}
# What the style sheet of pages calls each color, which it changes on dark screens.
_VARIABLES = {
    **{color: f"--c{number}" for number, color in enumerate(COLORS)},
    INK: "--ink",
    SOFT: "--soft",
    GRID: "--line",
    GRAY: "--muted",
    WARN: "--warn",
}


@dataclass(frozen=True)
class PlotLine:
    """One line of a chart.

    Args:
        name: in the legend; lines of one name share an entry.
        number: of its color and dash; None for a gray reference line.
    """

    name: str
    points: Sequence[Point]
    number: int | None = None


@dataclass(frozen=True)
class Series:
    """Accuracy over epsilon: points, or a level where epsilon decides nothing."""

    name: str
    points: tuple[tuple[float, Summary], ...]
    level: Summary | None = None

    @classmethod
    def from_points(cls, name: str, points: Sequence[tuple[float | None, Summary]]) -> "Series":
        """Sort the points that have an epsilon; of several without, the first is the level."""
        placed = sorted(((x, y) for x, y in points if x is not None), key=lambda point: point[0])
        levels = [y for x, y in points if x is None]
        return cls(name, tuple(placed), levels[0] if levels and not placed else None)


@dataclass(frozen=True)
class Bar:
    """One stage of an audit: the lower bound on its epsilon, and its claim, which may be infinite."""

    name: str
    certified: float
    claimed: float


# -- output ------------------------------------------------------------------------------------------------


@contextmanager
def chart_style(changes: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Draw with our style, ignoring the user's own configuration of matplotlib."""
    import matplotlib as mpl

    style = dict[Any, Any](mpl.rc_params_from_file(_STYLE, use_default_template=True)) | dict(changes or {})
    del style["backend"]  # which a user may have chosen
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # the reader's fonts may have it
        with mpl.rc_context(style):
            yield


def save(figure: "Figure", form: str, *, title: str = "", **options: Any) -> bytes:
    """Encode a figure as ``svg``, ``pdf`` or ``png``, without a date; call it within ``chart_style``."""
    drawn = io.BytesIO()
    metadata = {**_DATELESS[form], **({"Title": title} if title else {})}
    figure.savefig(drawn, format=form, metadata=metadata, **options)
    return drawn.getvalue()


def inline_svg(draw: Callable[[], "Figure"], title: str) -> str:
    """Return a chart for an HTML page; ``title`` is its accessible name for screen readers.

    >>> line = PlotLine("a", [(0, 0), (1, 1)], 0)
    >>> inline_svg(lambda: line_chart([line], x_label="x", y_label="y"), "a line")[:4]
    '<svg'
    """
    with chart_style({"svg.hashsalt": title}):
        figure = draw()
        text = save(figure, "svg", transparent=True).decode()
    width, height = (round(72 * size) for size in figure.get_size_inches())
    body = text[text.index(">", text.index("<svg")) + 1 :]
    body = re.sub(r' id="[a-z0-9.]+_\d+"', "", body)  # other charts of the page have them, too
    for color, variable in _VARIABLES.items():
        body = body.replace(color, f"var({variable})")
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{html(title)}">{body}'


def svg_file(draw: Callable[[], "Figure"], title: str) -> str:
    """Return a chart as a separate file, on white, twice as wide as in a page."""
    with chart_style():
        text = save(draw(), "svg", title=title).decode()
    size = re.search(r'width="([\d.]+)pt" height="([\d.]+)pt"', text)
    assert size is not None
    width, height = (2 * float(part) for part in size.groups())
    named = f'width="{width:g}" height="{height:g}" role="img" aria-label="{html(title)}"'
    return text.replace(size[0], named, 1)


def pdf_file(draw: Callable[[], "Figure"], title: str) -> bytes:
    with chart_style():
        return save(draw(), "pdf", title=title)


# -- charts ------------------------------------------------------------------------------------------------


def line_chart(
    lines: Sequence[PlotLine],
    *,
    x_label: str,
    y_label: str,
    marks: Sequence[Point] = (),
    limits: tuple[float, float] | None = None,
) -> "Figure":
    """Return lines over two axes with a legend.

    Args:
        limits: of both axes; by default round numbers around the data.
    """
    figure, axes = _empty(x_label, y_label)
    keys = dict[str, Any]()
    for line in lines:
        xs, ys = [x for x, _ in line.points], [y for _, y in line.points]
        marker = "o" if len(xs) == 1 else ""  # a single point would have no line
        (keys[line.name],) = axes.plot(xs, ys, marker=marker, **_stroke(line.number))
    for x, y in marks:
        axes.plot([x], [y], "o", color=COLORS[0], markersize=7, clip_on=False, zorder=4)
    if limits is not None:
        axes.set(xlim=limits, ylim=limits)
    axes.minorticks_off()
    _legend(figure, keys)
    return figure


def accuracy_chart(
    series: Sequence[Series],
    *,
    label: str = "test accuracy, %",
    intervals: str = "bars and bands: 95 % intervals of the mean over the runs",
    name_of: Callable[[float], str] = "{:g}".format,
) -> "Figure":
    """Return accuracy or a metric in percent over epsilon; ``has_epsilon`` of them is true.

    Points at one epsilon are drawn next to each other.
    """
    figure, axes = _empty("epsilon", label)
    epsilons = sorted({x for one in series for x, y in one.points if y.mean is not None})
    low, high = epsilons[0], epsilons[-1]
    room = (high / low) ** 0.05 if high > low else 2.0
    placed, keys = [one for one in series if one.points], dict[str, Any]()
    for number, one in enumerate(series):
        if one.points:
            share = 0.012 * (placed.index(one) - (len(placed) - 1) / 2) / max(1, len(placed) / 4)
            keys[one.name] = _accuracies(axes, one, number, (high / low) ** share)
        else:
            keys[one.name] = _level(axes, one.level, number, (low / room, high * room))
    axes.set_xscale("log")
    axes.set_xlim(low / room, high * room)
    axes.set_xticks(epsilons, _apart(epsilons, name_of))
    axes.minorticks_off()
    shown = [y for one in series for y in (one.level, *(y for _, y in one.points)) if y is not None]
    _legend(figure, keys, intervals if any(y.ci95 for y in shown) else "")
    return figure


def result_chart(results: Sequence[tuple[str, Summary]]) -> "Figure":
    figure, axes = _empty("test accuracy, %", "", height=70 + 36 * len(results))
    _name_rows(axes, [name for name, _ in results], -0.6)
    for row, (_, result) in enumerate(results):
        if result.mean is None:
            continue
        low, high = result.ci95 or (result.mean, result.mean)
        axes.plot([100 * low, 100 * high], [row, row], color=COLORS[row], linewidth=2.5, alpha=0.5)
        axes.plot([100 * result.mean], [row], "o", color=COLORS[row], markersize=8)
        text = f"{100 * result.mean:.1f}"
        axes.annotate(text, (100 * result.mean, row), (0, 8), textcoords="offset points", ha="center")
    axes.set_xlim(0, 100)
    return figure


def has_epsilon(series: Iterable[Series]) -> bool:
    return any(y.mean is not None for one in series for _, y in one.points)


def held_out_charts(
    runs: Sequence[tuple[str, Mapping[str, Sequence[Sequence[float]]]]],
) -> list[tuple[str, str]]:
    drawn = (
        ("ROC curve", "roc", (0.0, 1.0), "false-positive rate", "true-positive rate"),
        ("Precision-recall curve", "precision_recall", (0.5, 0.5), "recall", "precision"),
    )
    charts = []
    for title, curve, guess, x_label, y_label in drawn:
        lines = [
            PlotLine(name, [(x, y) for x, y in curves[curve]], number)
            for number, (name, curves) in enumerate(runs)
        ]
        lines.append(PlotLine(RANDOM_GUESS, list(zip((0.0, 1.0), guess, strict=True))))
        draw = partial(line_chart, lines, x_label=x_label, y_label=y_label, limits=(0, 1))
        charts.append((title, inline_svg(draw, title)))
    return charts


def audit_chart(bars: Sequence[Bar]) -> "Figure":
    figure, axes = _empty("epsilon", "", height=64 + 34 * len(bars))
    _name_rows(axes, [bar.name for bar in bars], -0.5)
    for row, bar in enumerate(bars):
        color = COLORS[0] if bar.certified <= bar.claimed else WARN
        axes.barh([row], [bar.certified], height=0.44, color=color)
        if math.isfinite(bar.claimed):
            axes.plot([bar.claimed] * 2, [row - 0.36, row + 0.36], color=INK, linewidth=2)
        right = max(end for end in (bar.certified, bar.claimed) if math.isfinite(end))
        words = f"{bar.certified:.3g} of {bar.claimed:.3g}"
        axes.annotate(words, (right, row), (8, 0), textcoords="offset points", va="center", color=SOFT)
    ends = (end for bar in bars for end in (bar.certified, bar.claimed) if math.isfinite(end))
    axes.set_xlim(0, 1.3 * max([1e-6, *ends]))  # room for the numbers
    return figure


# -- parts of charts ---------------------------------------------------------------------------------------


def _empty(x_label: str, y_label: str, height: float = _HEIGHT) -> tuple["Figure", "Axes"]:
    from matplotlib.figure import Figure  # without pyplot, which keeps figures and requires a display

    figure = Figure(figsize=(_WIDTH / 72, height / 72), layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel=x_label, ylabel=y_label)
    return figure, axes


def _name_rows(axes: "Axes", names: Sequence[str], top: float) -> None:
    axes.set_yticks(range(len(names)), [_wrapped(name, 22) for name in names], color=INK)
    axes.set_ylim(len(names) - 0.5, top)
    axes.grid(visible=False, axis="y")


def _stroke(number: int | None) -> dict[str, Any]:
    if number is None:
        return {"color": GRAY, "linestyle": ":", "clip_on": False}
    dash = DASHES[number // len(COLORS) % len(DASHES)]
    return {"color": COLORS[number % len(COLORS)], "linestyle": dash, "clip_on": False}


def _accuracies(axes: "Axes", one: Series, number: int, aside: float) -> Any:
    """Draw the points of a series and their intervals, each ``aside`` times its epsilon; return the line."""
    there = [(aside * x, y) for x, y in one.points if y.mean is not None]
    means = [100 * y.mean for _, y in there if y.mean is not None]
    (line,) = axes.plot([x for x, _ in there], means, **_stroke(number), marker="o")
    ends = [(x, 100 * y.ci95[0], 100 * y.ci95[1]) for x, y in there if y.ci95 is not None]
    if ends:
        xs, lows, highs = zip(*ends, strict=True)
        spans = [high - low for low, high in zip(lows, highs, strict=True)]
        style: dict[str, Any] = {
            "ecolor": line.get_color(),
            "elinewidth": 1.2,
            "capsize": 3,
            "clip_on": False,
        }
        axes.errorbar(xs, lows, yerr=[[0.0] * len(spans), spans], fmt="none", **style)
    return line


def _level(axes: "Axes", level: Summary | None, number: int, ends: Point) -> Any:
    """Draw an accuracy that no epsilon decides, with its interval as a band, and return its line."""
    style = {**_stroke(number), "linestyle": "--", "linewidth": 1.3}
    if level is None or level.mean is None:
        (line,) = axes.plot([], [], **style)  # only its name is in the legend
        return line
    (line,) = axes.plot(ends, [100 * level.mean] * 2, **style)
    if level.ci95 is not None:
        low, high = level.ci95
        axes.axhspan(100 * low, 100 * high, color=style["color"], alpha=0.15, linewidth=0)
    return line


def _apart(epsilons: Sequence[float], name_of: Callable[[float], str]) -> list[str]:
    """Return the names of ticks on a logarithmic axis; one too close to the one before it has none."""
    names, last = list[str](), 0.0
    for epsilon in epsilons:
        near = last > 0 and (epsilon / last) < (epsilons[-1] / epsilons[0]) ** 0.08
        names.append("" if near else name_of(epsilon))
        last = last if near else epsilon
    return names


def _legend(figure: "Figure", keys: Mapping[str, Any], note: str = "") -> None:
    names = [_wrapped(name, _LONGEST) for name in keys]
    longest = max(len(part) for name in names for part in name.split("\n"))
    columns = max(1, min(len(names), int(_WIDTH // (_KEY + _LETTER * longest))))
    legend = figure.legend(list(keys.values()), names, loc="outside lower left", ncols=columns)
    if note:
        legend.set_title(note)
        legend.get_title().set_color(SOFT)
    legend.set_alignment("left")
    rows = [names[start : start + columns] for start in range(0, len(names), columns)]
    lines = sum(max(name.count("\n") + 1 for name in row) for row in rows) + bool(note)
    figure.set_figheight(figure.get_figheight() + _ROW * lines / 72)  # the axes keep their size


def _wrapped(name: str, width: int) -> str:
    return textwrap.fill(one_line(name), width, break_on_hyphens=False) or " "

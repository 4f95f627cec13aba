"""Accuracy over epsilon as one SVG file: a line a method, a level for what needs no budget."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from graphveil._util.escape import html
from graphveil.runs.pages.charts import HEIGHT, WIDTH, PlotLine, plot
from graphveil.runs.results import Summary

# Okabe and Ito's colors, which can be told apart by everybody; beyond them, lines are dashed.
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_DASHES = ("", "6 3", "2 3", "9 3 2 3")
_LEGEND_ROW, _LEGEND_LEFT = 18, 52
_LEGEND_WIDE, _LETTER, _KEY = (
    WIDTH - _LEGEND_LEFT - 14,
    6.2,
    50,
)  # pixels: a row, a letter, a key beside its name
_ROOM = 0.04  # of the axis' width, beside the first and the last budget
_SHIFT = 0.012  # of the axis' width, so that intervals at one epsilon stand side by side
_INTERVALS = "bars and bands: 95 % intervals of the mean over the runs"
_STYLE = """
text { font-family: system-ui, "Segoe UI", Roboto, sans-serif; fill: #333; }
.grid { stroke: #e3e6ea; stroke-width: 1; }
.tick, .key { font-size: 11px; }
.label { font-size: 12px; }
polyline, .bar { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.bar { stroke-width: 1.2; }
.level { stroke-width: 1.2; }
"""


@dataclass(frozen=True)
class Series:
    """One line: its points (epsilon, accuracy), or a level where epsilon decides nothing."""

    name: str
    points: tuple[tuple[float, Summary], ...]
    level: Summary | None = None

    @classmethod
    def from_points(cls, name: str, points: Sequence[tuple[float | None, Summary]]) -> "Series":
        """Sort the points that have an epsilon; of several without, the first is the level."""
        placed = sorted(((x, y) for x, y in points if x is not None), key=lambda point: point[0])
        levels = [y for x, y in points if x is None]
        return cls(name, tuple(placed), levels[0] if levels and not placed else None)


def sweep_chart(series: Sequence[Series], *, title: str = "Test accuracy over epsilon") -> str | None:
    """Return the figure, on a logarithmic axis of epsilon; None if no series has an epsilon to place.

    >>> gap = Series.from_points("gap", [(1.0, Summary.from_values([0.7, 0.8])), (4.0,
    ...     Summary.from_values([0.8, 0.9]))])
    >>> sweep_chart([gap])[:4], sweep_chart([Series.from_points("mlp", [(None, Summary.from_values([0.5]))])])
    ('<svg', None)
    """
    epsilons = sorted({x for one in series for x, y in one.points if y.mean is not None})
    if not epsilons:
        return None
    names = {math.log2(epsilon): f"{epsilon:g}" for epsilon in epsilons}
    low, high = min(names), max(names)
    room = _ROOM * (high - low) or 1.0  # a single budget stands in the middle
    names |= {low - room: "", high + room: ""}
    placed = [one for one in series if one.points]
    lines = [
        _line(number, one, placed.index(one) if one in placed else 0, len(placed), names)
        for number, one in enumerate(series)
    ]
    body = plot(
        [line for line in lines if line.points],
        x_label="epsilon",
        y_label="test accuracy, %",
        x_names=names,
    )
    rows = _legend_rows(series)
    legend_note = _INTERVALS if any(line.intervals or line.band for line in lines) else ""
    height = HEIGHT + _LEGEND_ROW * (len(rows) + bool(legend_note)) + 10
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{2 * WIDTH}" '
        f'role="img" aria-label="{html(title)}"><title>{html(title)}</title>'
        f"<style>{_STYLE}{_strokes(series)}</style>"
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>{body}{_legend(rows, legend_note)}</svg>\n'
    )


def _line(number: int, one: Series, place: int, count: int, names: dict[float, str]) -> PlotLine:
    """Return a series in percent, each a little aside of the others that have points."""
    low, high = min(names), max(names)
    if one.level is not None:
        level, between = one.level.mean, one.level.ci95
        ends = [] if level is None else [(low, 100 * level), (high, 100 * level)]
        pale = _pale(_COLORS[number % len(_COLORS)])
        band = None if between is None else (100 * between[0], 100 * between[1], pale)
        return PlotLine(one.name, ends, f"l{number} level", band=band)
    aside = (place - (count - 1) / 2) * _SHIFT / max(1, count / 4) * (high - low)
    there = [(math.log2(x) + aside, y) for x, y in one.points]
    return PlotLine(
        one.name,
        [(x, 100 * y.mean) for x, y in there if y.mean is not None],
        f"l{number}",
        [(x, 100 * y.ci95[0], 100 * y.ci95[1]) for x, y in there if y.ci95 is not None],
        _COLORS[number % len(_COLORS)],
    )


def _pale(color: str) -> str:
    """Return a color at a fifth of its strength on white: pages of PDF know no transparency here."""
    parts = (int(color[place : place + 2], 16) for place in (1, 3, 5))
    return "#" + "".join(f"{255 - (255 - part) // 5:02x}" for part in parts)


def _strokes(series: Sequence[Series]) -> str:
    return "".join(
        f".l{number} {{ stroke: {_COLORS[number % len(_COLORS)]}; {_dashes(number, one)}}}\n"
        for number, one in enumerate(series)
    )


def _dashes(number: int, one: Series) -> str:
    dash = "3 3" if one.level is not None else _DASHES[number // len(_COLORS) % len(_DASHES)]
    return f"stroke-dasharray: {dash}; " if dash else ""


def _legend_rows(series: Sequence[Series]) -> list[list[tuple[int, str, float]]]:
    """Return the keys of the legend in rows, as many in each as fit: number, name, and where it begins."""
    rows: list[list[tuple[int, str, float]]] = []
    x = 0.0
    for number, one in enumerate(series):
        wide = _KEY + _LETTER * len(one.name)
        if not rows or x + wide > _LEGEND_WIDE:
            rows.append([])
            x = 0.0
        rows[-1].append((number, one.name, _LEGEND_LEFT + x))
        x += wide
    return rows


def _legend(rows: Sequence[Sequence[tuple[int, str, float]]], legend_note: str) -> str:
    """Return the keys, and below them what bars and bands are."""
    below = HEIGHT + 16 + _LEGEND_ROW * len(rows)
    note = f'<text class="key" x="{_LEGEND_LEFT}" y="{below}">{legend_note}</text>' if legend_note else ""
    return note + "".join(
        f'<polyline class="l{number}" points="{x:g},{y} {x + 24:g},{y}"/>'
        f'<text class="key" x="{x + 32:g}" y="{y + 4}">{html(name)}</text>'
        for place, row in enumerate(rows)
        for number, name, x in row
        for y in (HEIGHT + 12 + _LEGEND_ROW * place,)
    )

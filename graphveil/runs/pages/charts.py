"""Line charts as inline SVG: no script, no font, no request. Colors come from the page's style sheet."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphveil._util.escape import html

WIDTH, HEIGHT = 460, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 14, 44

Point = tuple[float, float]


@dataclass(frozen=True)
class PlotLine:
    """One series: name, points, style class in the page, intervals (x, low, high), dots, a band."""

    name: str
    points: Sequence[Point]
    style: str
    intervals: Sequence[tuple[float, float, float]] = ()
    dot: str = ""  # the color of a dot at each point; none without one
    band: tuple[float, float, str] | None = None  # from, to, and its color, across the whole chart


def line_chart(
    lines: Sequence[PlotLine], *, x_label: str, y_label: str, title: str, marks: Sequence[Point] = ()
) -> str:
    """Return a chart of the lines with axes, grid and legend; ``marks`` are single dots.

    >>> line_chart([PlotLine("a", [(0, 0), (1, 1)], "s1")], x_label="x", y_label="y", title="t")[:4]
    '<svg'
    """
    body = plot(lines, x_label=x_label, y_label=y_label, marks=marks)
    keys = dict.fromkeys((line.style, line.name) for line in lines)
    legend = "".join(f'<span class="key"><i class="{style}"></i>{html(name)}</span>' for style, name in keys)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html(title)}">{body}</svg>'
        f'<div class="legend">{legend}</div>'
    )


def plot(
    lines: Sequence[PlotLine],
    *,
    x_label: str,
    y_label: str,
    marks: Sequence[Point] = (),
    x_names: Mapping[float, str] | None = None,
) -> str:
    """Return the inside of a chart; ``x_names`` are the ticks of the x axis with their words.

    A tick without a word has no line: it is room at the side.
    """
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points]
    ys += [end for line in lines for _, low, high in line.intervals for end in (low, high)]
    ys += [end for line in lines if line.band is not None for end in line.band[:2]]
    names = dict(x_names or {})
    scale = _Scale(sorted(names) or nice_ticks(min(xs), max(xs)), nice_ticks(min(ys), max(ys)), names)
    body = [_band(line.band, scale) for line in lines if line.band is not None]
    body += [*_grid(scale), *_axis_labels(x_label, y_label)]
    body += [bar for line in lines for bar in _bars(line, scale)]
    body += [_path(line, scale) for line in lines]
    body += [dot for line in lines if line.dot for dot in _dots(line, scale)]
    body += [f'<circle class="mark" cx="{scale.x(x):.1f}" cy="{scale.y(y):.1f}" r="4"/>' for x, y in marks]
    return "".join(body)


@dataclass(frozen=True)
class _Scale:
    """Ticks of both axes, and the way from values to pixels."""

    x_ticks: list[float]
    y_ticks: list[float]
    x_names: Mapping[float, str] = field(default_factory=dict)

    def x(self, value: float) -> float:
        """Return the horizontal pixel."""
        low, high = self.x_ticks[0], self.x_ticks[-1]
        return _LEFT + (value - low) / (high - low) * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        """Return the vertical pixel."""
        low, high = self.y_ticks[0], self.y_ticks[-1]
        return HEIGHT - _BOTTOM - (value - low) / (high - low) * (HEIGHT - _TOP - _BOTTOM)


def nice_ticks(low: float, high: float) -> list[float]:
    """Return four to eight round ticks that span the values."""
    if high <= low:
        low, high = low - 0.5, high + 0.5
    raw = (high - low) / 5
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = magnitude * next(factor for factor in (1, 2, 2.5, 5, 10) if factor * magnitude >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def _grid(scale: _Scale) -> list[str]:
    left, right = _LEFT, WIDTH - _RIGHT
    top, bottom = _TOP, HEIGHT - _BOTTOM
    parts = []
    for tick in scale.y_ticks:
        y = scale.y(tick)
        parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for tick in scale.x_ticks:
        x, name = scale.x(tick), html(scale.x_names.get(tick, f"{tick:g}"))
        if not name:
            continue
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{name}</text>')
    return parts


def _axis_labels(x_label: str, y_label: str) -> list[str]:
    middle = _TOP + (HEIGHT - _TOP - _BOTTOM) / 2
    return [
        f'<text class="label" x="{(_LEFT + WIDTH - _RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">'
        f"{html(x_label)}</text>",
        f'<text class="label" transform="translate(13 {middle}) rotate(-90)" text-anchor="middle">'
        f"{html(y_label)}</text>",
    ]


def _band(band: tuple[float, float, str], scale: _Scale) -> str:
    """Return an interval of a level, as high as a hair at least."""
    low, high, color = band
    top = scale.y(high)
    tall = max(scale.y(low) - top, 0.5)
    wide = WIDTH - _LEFT - _RIGHT
    return f'<rect x="{_LEFT}" y="{top:.1f}" width="{wide}" height="{tall:.1f}" fill="{color}"/>'


def _path(line: PlotLine, scale: _Scale) -> str:
    points = " ".join(f"{scale.x(x):.1f},{scale.y(y):.1f}" for x, y in line.points)
    return f'<polyline class="{line.style}" points="{points}"/>'


def _dots(line: PlotLine, scale: _Scale) -> list[str]:
    return [
        f'<circle fill="{line.dot}" cx="{scale.x(x):.1f}" cy="{scale.y(y):.1f}" r="2.6"/>'
        for x, y in line.points
    ]


def _bars(line: PlotLine, scale: _Scale) -> list[str]:
    return [
        f'<path class="bar {line.style}" d="M{scale.x(x) - 3:.1f} {scale.y(low):.1f}h6m-3 0'
        f'V{scale.y(high):.1f}m-3 0h6"/>'
        for x, low, high in line.intervals
    ]

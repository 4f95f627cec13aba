"""The page of an audit: what was certified at least of each stage, beside what was claimed."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from graphveil._util.escape import html
from graphveil.runs.pages._style import STYLE
from graphveil.runs.pages.charts import nice_ticks

_WIDTH, _LEFT, _RIGHT, _ROW, _BAR, _TOP, _BOTTOM = 760, 190, 76, 34, 14, 8, 40
_BARS = """
.certified { fill: var(--accent); }
.above { fill: var(--warn); }
.claimed { stroke: var(--ink); stroke-width: 2; }
.name { fill: var(--ink); font-size: 13px; }
.said { paint-order: stroke; stroke: var(--card); stroke-width: 5px; }
"""


@dataclass(frozen=True)
class Bar:
    """One stage: its name, the lower bound on its epsilon, and its claim, which may be infinite."""

    name: str
    certified: float
    claimed: float


def bar_chart(bars: Sequence[Bar]) -> str:
    """Return horizontal bars up to what is certified, each with a tick where its claim stands.

    >>> bar_chart([Bar("hop", 0.8, 1.0)])[:4]
    '<svg'
    """
    ticks = nice_ticks(0.0, max([1e-6, *(b.certified for b in bars), *_finite(b.claimed for b in bars)]))
    height = _TOP + _ROW * len(bars) + _BOTTOM
    bottom, width = height - _BOTTOM, _WIDTH - _LEFT - _RIGHT

    def x(value: float) -> float:
        return _LEFT + value / ticks[-1] * width

    parts = [
        f'<line class="grid" x1="{x(t):.1f}" x2="{x(t):.1f}" y1="{_TOP}" y2="{bottom}"/>'
        f'<text class="tick" x="{x(t):.1f}" y="{bottom + 16}" text-anchor="middle">{t:g}</text>'
        for t in ticks
    ]
    for number, bar in enumerate(bars):
        parts += _row(bar, _TOP + _ROW * number, x)
    label = (
        f'<text class="label" x="{_LEFT + width / 2}" y="{height - 6}" text-anchor="middle">epsilon</text>'
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="certified and claimed epsilon">'
        f"{''.join(parts)}{label}</svg>"
    )


def _row(bar: Bar, top: float, x: Callable[[float], float]) -> list[str]:
    middle = top + _ROW / 2
    kind = "certified" if bar.certified <= bar.claimed else "above"
    words = f"{bar.certified:.3g} of {bar.claimed:.3g}"
    right = x(max([bar.certified, *_finite([bar.claimed])]))
    parts = [
        f'<text class="name" x="{_LEFT - 10}" y="{middle + 4:.1f}" text-anchor="end">{html(bar.name)}</text>',
        f'<rect class="{kind}" x="{_LEFT}" y="{middle - _BAR / 2:.1f}" height="{_BAR}" rx="2" '
        f'width="{x(bar.certified) - _LEFT:.1f}"/>',
        f'<text class="tick said" x="{right + 8:.1f}" y="{middle + 4:.1f}">{words}</text>',
    ]
    if math.isfinite(bar.claimed):
        at = x(bar.claimed)
        parts.append(f'<path class="claimed" d="M{at:.1f} {middle - _BAR:.1f}V{middle + _BAR:.1f}"/>')
    return parts


def _finite(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def audit_page(title: str, bars: Sequence[Bar], notice: str, lines: Sequence[str]) -> str:
    """Return a page with the bars and what was not examined, complete in itself."""
    unseen = "".join(f"<li>{html(line)}</li>" for line in lines)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{html(title)}</title>\n<style>{STYLE}{_BARS}</style>\n</head>\n<body>\n<main>\n"
        f'<h1>{html(title)}</h1>\n<p class="lede">{html(notice)}</p>\n<section><figure>{bar_chart(bars)}'
        "<figcaption>Bars: the lower bound that canaries certify. Ticks: the claim, which none may pass."
        f"</figcaption></figure></section>\n<section><h2>Not examined</h2><ul>{unseen}</ul></section>\n"
        "</main>\n</body>\n</html>\n"
    )

"""ROC curves on logarithmic axes: what an attacker finds at the low false-positive rates that matter."""

import math
from collections.abc import Sequence

from graphveil._util.escape import html
from graphveil.runs.pages._style import STYLE
from graphveil.runs.pages.charts import PlotLine, Point, line_chart

MIN_RATE = 1e-4  # rates below it are drawn at it
STYLES = ("s1", "s2", "s3", "s1 dash", "s2 dash", "s3 dash")  # no two of six alike
RANDOM_GUESS = "coin"


def logarithmic(points: Sequence[Point]) -> list[Point]:
    """Return rates as powers of ten, the smallest ones at the axis.

    >>> logarithmic([(0.01, 0.1), (0.0, 0.0)])
    [(-2.0, -1.0), (-4.0, -4.0)]
    """
    return [(math.log10(max(x, MIN_RATE)), math.log10(max(y, MIN_RATE))) for x, y in points]


def roc_lines(curves: Sequence[tuple[str, Sequence[Point]]]) -> list[PlotLine]:
    """Return attackers' curves as lines of a chart, with a coin's."""
    lines = [
        PlotLine(name, logarithmic(points), STYLES[number % len(STYLES)])
        for number, (name, points) in enumerate(curves)
    ]
    return [*lines, PlotLine(RANDOM_GUESS, logarithmic([(MIN_RATE, MIN_RATE), (1.0, 1.0)]), "flat")]


def roc_page(title: str, lines: Sequence[PlotLine], notice: str) -> str:
    """Return a page with one chart, complete in itself."""
    chart = line_chart(
        lines,
        x_label="false-positive rate, log10",
        y_label="true-positive rate, log10",
        title=f"ROC of {title}",
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{html(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f'<h1>{html(title)}</h1>\n<p class="lede">{html(notice)}</p>\n<section><figure>{chart}</figure>'
        "</section>\n</main>\n</body>\n</html>\n"
    )

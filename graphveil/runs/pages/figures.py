"""Figures of a page of several runs: pictures that need nothing, or interactive ones where Plotly is there.

Both show the same lines, beside a table with the same numbers, which is what a screen reader reads.
"""

import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from graphveil._util.escape import html
from graphveil.runs.pages.charts import HEIGHT, WIDTH, PlotLine, plot

# Okabe and Ito's colors, which everybody can tell apart, less the yellow that vanishes on white.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9")
_DASHES = (("", "solid"), ("7 4", "dash"), ("2 3", "dot"), ("9 3 2 3", "dashdot"))
_UPLOADS = ("sendChartToCloud", "sendDataToCloud", "editInChartStudio")  # a report is internal
_GREY = "#7a8089"  # readable on light and on dark


def line_styles(count: int) -> str:
    """Return the style sheet of so many lines, ``l0`` and on."""
    rules = []
    for number in range(count):
        color, (dash, _) = COLORS[number % len(COLORS)], _DASHES[number // len(COLORS) % len(_DASHES)]
        rules.append(f".l{number} {{ stroke: {color}; stroke-dasharray: {dash or 'none'}; }}")
        rules.append(f".key .l{number} {{ border-color: {color}; }}")
    return "\n".join(rules)


def interactive_available() -> bool:
    """Whether the extra ``report`` is installed."""
    return find_spec("plotly") is not None


def figure(
    lines: Sequence[PlotLine],
    *,
    x_label: str,
    y_label: str,
    title: str,
    x_names: Mapping[float, str] | None = None,
    interactive: bool = False,
) -> str:
    """Return one figure with its legend; styles are ``l0``, ``l1`` ... and ``flat``."""
    if interactive:
        return _plotly(lines, x_label=x_label, y_label=y_label, title=title, x_names=x_names)
    body = plot(lines, x_label=x_label, y_label=y_label, x_names=x_names)
    keys = dict.fromkeys((line.style, line.name) for line in lines)
    legend = "".join(f'<span class="key"><i class="{style}"></i>{html(name)}</span>' for style, name in keys)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html(title)}">{body}</svg>'
        f'<div class="legend">{legend}</div>'
    )


def script() -> str:
    """Return Plotly itself, inline: the page asks no network for it."""
    from plotly.offline import get_plotlyjs

    return f"<script>{get_plotlyjs()}</script>"


def _plotly(
    lines: Sequence[PlotLine], *, x_label: str, y_label: str, title: str, x_names: Mapping[float, str] | None
) -> str:
    from plotly.graph_objects import Figure, Scatter

    drawn = Figure()
    for line in lines:
        spans = {round(x, 9): (low, high) for x, low, high in line.intervals}
        ends = [spans.get(round(x, 9)) for x, _ in line.points]
        drawn.add_trace(
            Scatter(
                x=[x for x, _ in line.points],
                y=[y for _, y in line.points],
                name=html(line.name),
                mode="lines+markers" if line.intervals or len(line.points) < 3 else "lines",
                line=_stroke(line.style),
                error_y=None
                if not line.intervals
                else {
                    "type": "data",
                    "symmetric": False,
                    "array": [e[1] - y if e else 0 for e, (_, y) in zip(ends, line.points, strict=True)],
                    "arrayminus": [y - e[0] if e else 0 for e, (_, y) in zip(ends, line.points, strict=True)],
                },
            )
        )
    ticks = {} if not x_names else {"tickvals": list(x_names), "ticktext": list(x_names.values())}
    axis = {"gridcolor": "rgba(122,128,137,0.25)", "zeroline": False, "linecolor": _GREY}
    drawn.update_layout(
        xaxis={"title": {"text": x_label}, **axis, **ticks},
        yaxis={"title": {"text": y_label}, **axis},
        font={"color": _GREY, "size": 12},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "y": -0.25},
        margin={"l": 56, "r": 12, "t": 40, "b": 56},  # the buttons stand above the picture
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": _GREY, "activecolor": COLORS[0]},
        height=380,
    )
    inner = drawn.to_html(
        full_html=False,
        include_plotlyjs=False,
        config={
            "responsive": True,
            "displaylogo": False,
            "modeBarButtonsToRemove": ["select2d", "lasso2d", *_UPLOADS],
            "plotlyServerURL": "",
        },
    )
    return f'<div role="group" aria-label="{html(title)}">{inner}</div>'


def _stroke(style: str) -> dict[str, str]:
    if not style.startswith("l"):
        return {"color": _GREY, "dash": "dot"}
    number = int(style[1:].partition(" ")[0])
    return {
        "color": COLORS[number % len(COLORS)],
        "dash": _DASHES[number // len(COLORS) % len(_DASHES)][1],
    }


def log_names(epsilons: Sequence[float]) -> dict[float, str]:
    """Return ticks of a logarithmic axis of these budgets; a single one stands in the middle.

    >>> log_names([1.0])
    {-1.0: '', 0.0: '1', 1.0: ''}
    """
    names = {math.log2(epsilon): f"{epsilon:g}" for epsilon in sorted(set(epsilons))}
    if len(names) == 1:
        (middle,) = names
        return {middle - 1: "", middle: names[middle], middle + 1: ""}
    return names

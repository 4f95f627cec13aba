"""One HTML page about one run, complete in itself: inline style, inline charts, no script, no request."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from graphveil._util.escape import render
from graphveil.artifacts.cards import (
    NOT_COVERED,
    TEST_LABELS,
    guarantee_text,
    invalid_mark,
    protected_parts,
    protected_things,
    release_cells,
    release_subject,
)
from graphveil.artifacts.rows import ReleaseRow
from graphveil.data.tables.encoding import NO_FEATURES
from graphveil.privacy import Guarantee, NoUnit
from graphveil.privacy.formatting import counted, format_delta, format_upper_bound, percent_up
from graphveil.privacy.guarantee import FALSE_POSITIVE_RATE
from graphveil.runs.pages.charts import PlotLine, Point, inline_svg, line_chart
from graphveil.runs.pages.compliance_report import ComplianceReport
from graphveil.runs.results import ABSENT, Cost, Summary, baseline_cost, cost_remarks, interval

_Table = tuple[Sequence[str], Sequence[Sequence[str]]]  # a head, and rows
_STEPS = 80  # points of the attacker's curve
_RATES = (0.001, 0.01, 0.05, 0.1, 0.25)


def report_page(
    metrics: Mapping[str, Any],
    history: Sequence[Sequence[Any]],
    guarantee: Guarantee,
    notice: ComplianceReport,
) -> str:
    """Return the page of a run.

    Args:
        metrics: what ``train --json`` prints.
        history: rows of seed, model, stage, epoch, train loss, validation loss, validation accuracy.
        guarantee: that of one run.
        notice: the page for the officer's file, which is printed on a page of its own.
    """
    return render(
        "run_report.html",
        title=f"{metrics['method']} on {metrics['dataset']}",
        lede=_lede(metrics),
        tiles=_tiles(metrics),
        results=_results(metrics),
        remarks=" ".join(_remarks(metrics)),
        summary=guarantee.summary(),
        valid=guarantee.all_valid,
        statement=guarantee.formal_statement(),
        attackers=[_attacker(one) for one in (guarantee, *guarantee.additional)],
        subject=release_subject(guarantee),
        releases=_releases(metrics),
        losses=_losses(history),
        seed=history[0][0] if history else None,
        times=_times(metrics),
        peak_mb=metrics["peak_rss_mb"],
        seconds=metrics["seconds_wall"],
        notice=notice.html(),
    )


def _lede(metrics: Mapping[str, Any]) -> str:
    runs = f"{metrics['runs']} run" + ("s" if metrics["runs"] > 1 else "")
    recipe = f" · recipe {metrics['recipe']}" if metrics["recipe"] else ""
    return (
        f"{counted(metrics['nodes'], 'node')} · {counted(metrics['features'], 'feature')} · "
        f"{counted(metrics['classes'], 'class', 'classes')}"
        f"{recipe} · {runs} from seed {metrics['seed']} · internal: do not publish this page"
    )


def _tiles(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the numbers at the top of the page, each with its words."""
    own, mark = Summary.from_values(metrics["test_accuracy"]["values"]), _mark(metrics)
    accuracy = ABSENT if own.mean is None else f"{100 * own.mean:.1f} %"
    tiles = [(accuracy, f"test accuracy{mark}")]
    if metrics["mlp_test_accuracy"] is not None:
        baseline = Summary.from_values(metrics["mlp_test_accuracy"]["values"])
        tiles.append((_gain(own, baseline), f"points over the no-graph baseline{mark}"))
    cost = Cost.from_guarantee(metrics["guarantee"])
    at_delta = f", at delta {format_delta(metrics['delta'])}" if metrics["delta"] else ""
    rate = f"an attacker's true-positive rate at 1\u00a0% false positives{cost.mark}"
    return [
        *tiles,
        (_figure(cost.epsilon), f"epsilon{at_delta}{cost.mark}"),
        (f"≤ {percent_up(cost.max_tpr)} %", rate),
    ]


def _gain(own: Summary, baseline: Summary) -> str:
    return ABSENT if own.mean is None or baseline.mean is None else f"{100 * (own.mean - baseline.mean):+.1f}"


def _mark(metrics: Mapping[str, Any]) -> str:
    """Return what stands beside an accuracy that no guarantee covers."""
    return "" if metrics["covered"] or metrics["unit"] == NoUnit.name else f" ({NOT_COVERED})"


def _results(metrics: Mapping[str, Any]) -> _Table:
    single, private = metrics["runs"] == 1, metrics["private_accuracy"]
    known = not single or metrics.get("tested")
    label = " [95 % interval]"
    head = [
        "method",
        f"test accuracy, %{label if known else ''}{_mark(metrics)}",
        *([f"from noisy counts, %{'' if single else label}"] if private else []),
        "epsilon",
        "delta",
        "true-positive rate at 1 % false positives",
    ]
    rows = [_row(metrics["method"], metrics, "", Cost.from_guarantee(metrics["guarantee"]))]
    if metrics["method"] != "mlp" and metrics["mlp_test_accuracy"] is not None:
        rows.append(_row("mlp (no graph)", metrics, "mlp_", baseline_cost(metrics)))
    return head, rows


def _remarks(metrics: Mapping[str, Any]) -> list[str]:
    """Return what the table of results does not show."""
    single, notes = metrics["runs"] == 1, list[str]()
    if single and metrics.get("tested"):
        notes.append("Single run: the interval reflects test-set size only, not variation between runs.")
    notes += cost_remarks(metrics)
    notes += [NO_FEATURES] if metrics.get("constant_feature") else []
    notes += [] if single and not metrics["baseline_guarantee"] else [_all_runs(metrics)]
    return notes


def _row(name: str, metrics: Mapping[str, Any], prefix: str, cost: Cost) -> tuple[str, ...]:
    private = metrics["private_accuracy"]
    accuracies = [interval(metrics[f"{prefix}test_accuracy"], metrics.get("tested")).percent()]
    if private:  # noise of counts is no sampling error: a single run has no interval
        accuracies.append(Summary.from_values(private[f"{prefix}test"]["values"]).percent())
    delta = format_delta(metrics["delta"]) if cost.epsilon else "0"
    rate = f"at most {percent_up(cost.max_tpr)} %{cost.mark}"
    return name, *accuracies, f"{_figure(cost.epsilon)}{cost.mark}", delta, rate


def _all_runs(metrics: Mapping[str, Any]) -> str:
    together, runs = metrics["guarantee_all_runs"], metrics["runs"]
    data = protected_things(metrics["unit"])
    models = f"All {runs} runs" if runs > 1 else "The model"
    baseline = " with the mlp" if metrics["baseline_guarantee"] else ""
    tested = f" {TEST_LABELS}" if runs > 1 and metrics["unit"] == "local-attributes" else ""
    page = ", with everything on this page" if metrics["covered"] else ""
    return (
        f"Epsilon is that of one model. {models}{baseline} on these {data} together{page}: epsilon "
        f"{_figure(together['epsilon'])} at delta {format_delta(together['delta'])}.{tested}"
    )


def _attacker(guarantee: Guarantee) -> dict[str, Any]:
    """Return the curve that no attacker exceeds, some of its points, and what it means."""
    inner = [(step / _STEPS) ** 3 for step in range(1, _STEPS)]  # dense where the curve is steep
    curve_of = guarantee.curve.tpr

    def rate(false: float) -> float:
        return min(1.0, curve_of(false) + guarantee.slack)

    about, mark = protected_parts(guarantee), invalid_mark(valid=guarantee.valid, unit=guarantee.unit)
    curve: list[Point] = [(0.0, 0.0), *((false, rate(false)) for false in inner), (1.0, 1.0)]
    lines = [
        PlotLine(f"best attacker{mark}", curve, 0),
        PlotLine("blind guessing", [(0.0, 0.0), (1.0, 1.0)]),
    ]
    words = guarantee_text(
        guarantee,
        f"No test about one {about[:-1]} does better than the curve, whatever the attacker knows about "
        "the rest. The dot is the figure at 1 % false positives. The closer to the diagonal, the less is "
        "learned.",
    )
    head = ("false positives", f"true positives, at most{mark}")
    return {
        "chart": inline_svg(
            lambda: line_chart(
                lines,
                x_label="false-positive rate",
                y_label="true-positive rate",
                marks=[(FALSE_POSITIVE_RATE, guarantee.max_tpr())],
                limits=(0, 1),
            ),
            f"The best attacker's trade-off between false and true positives about {about}",
        ),
        "rates": (head, [(f"{100 * false:g} %", f"{percent_up(rate(false))} %") for false in _RATES]),
        "words": words,
    }


def _releases(metrics: Mapping[str, Any]) -> _Table | None:
    if not metrics["releases"]:
        return None
    return release_cells(tuple(ReleaseRow(**row) for row in metrics["releases"]))


def _losses(history: Sequence[Sequence[Any]]) -> list[tuple[str, str]]:
    """Return a chart of the losses of each stage of the first run, under its name."""
    first = [row for row in history if row[0] == history[0][0]]
    charts = list[tuple[str, str]]()
    for model, stage in dict.fromkeys((row[1], row[2]) for row in first):
        lines = _loss_lines([row for row in first if (row[1], row[2]) == (model, stage)])
        if lines:
            title, draw = f"{model}: {stage}", partial(line_chart, lines, x_label="epoch", y_label="loss")
            charts.append((title, inline_svg(draw, title)))
    return charts


def _loss_lines(rows: Sequence[Sequence[Any]]) -> list[PlotLine]:
    """Return one stage's losses; a stage that trains several networks has a line for each."""
    lines = [
        PlotLine(name, [(row[3], row[column]) for row in fit if row[column] is not None], number)
        for number, (column, name) in enumerate(((4, "training loss"), (5, "validation loss")))
        for fit in _fits(rows)
    ]
    return [line for line in lines if line.points]


def _fits(rows: Sequence[Sequence[Any]]) -> list[list[Sequence[Any]]]:
    """Cut a stage's rows where the epochs start again."""
    fits: list[list[Sequence[Any]]] = []
    for row in rows:
        if not fits or row[3] <= fits[-1][-1][3]:
            fits.append([])
        fits[-1].append(row)
    return fits


def _times(metrics: Mapping[str, Any]) -> _Table:
    stages = [
        (stage, f"{seconds:.2f}")
        for stage, seconds in metrics["seconds"].items()
        if stage != "total" and seconds
    ]
    return ("stage", "seconds"), [*stages, ("total of one run", f"{metrics['seconds']['total']:.2f}")]


def _figure(epsilon: float | None) -> str:
    return "∞" if epsilon is None else format_upper_bound(epsilon)

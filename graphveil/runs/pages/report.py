"""One HTML page about one run, complete in itself: inline style, inline charts, no script, no request."""

from collections.abc import Mapping, Sequence
from typing import Any

from graphveil._util.escape import html
from graphveil.artifacts.cards import (
    NOT_COVERED,
    TEST_LABELS,
    guarantee_summary,
    guarantee_text,
    invalid_mark,
    percent_up,
    protected_parts,
    protected_things,
    release_cells,
    release_subject,
)
from graphveil.artifacts.rows import ReleaseRow
from graphveil.data.tables.encoding import NO_FEATURES
from graphveil.privacy import Guarantee, NoUnit
from graphveil.privacy.formatting import counted, format_delta, format_upper_bound
from graphveil.privacy.guarantee import FALSE_POSITIVE_RATE
from graphveil.runs.pages._style import STYLE
from graphveil.runs.pages.charts import PlotLine, Point, line_chart
from graphveil.runs.pages.compliance_report import ComplianceReport
from graphveil.runs.results import ABSENT, Cost, Summary, baseline_cost, cost_remarks, interval

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
    title = f"{metrics['method']} on {metrics['dataset']}"
    parts = [
        f"<h1>{html(title)}</h1>",
        f'<p class="lede">{html(_lede(metrics))}</p>',
        _tiles(metrics),
        _section("Results", _results(metrics)),
        _section("The guarantee", _guarantee(guarantee)),
        _section("What an attacker gains", "".join(map(_attacker, (guarantee, *guarantee.additional)))),
        _section(f"What was released about the {release_subject(guarantee)}", _releases(metrics)),
        _section("Training", _training(history)),
        _section("Where the time went", _times(metrics)),
        notice.html(),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in parts if part)
        + "\n</main>\n</body>\n</html>\n"
    )


def _lede(metrics: Mapping[str, Any]) -> str:
    runs = f"{metrics['runs']} run" + ("s" if metrics["runs"] > 1 else "")
    recipe = f" · recipe {metrics['recipe']}" if metrics["recipe"] else ""
    return (
        f"{counted(metrics['nodes'], 'node')} · {counted(metrics['features'], 'feature')} · "
        f"{counted(metrics['classes'], 'class', 'classes')}"
        f"{recipe} · {runs} from seed {metrics['seed']} · internal: do not publish this page"
    )


def _tiles(metrics: Mapping[str, Any]) -> str:
    own, mark = Summary.from_values(metrics["test_accuracy"]["values"]), _mark(metrics)
    accuracy = ABSENT if own.mean is None else f"{100 * own.mean:.1f} %"
    tiles = [(accuracy, f"test accuracy{mark}")]
    if metrics["mlp_test_accuracy"] is not None:
        baseline = Summary.from_values(metrics["mlp_test_accuracy"]["values"])
        tiles.append((_gain(own, baseline), f"points over the no-graph baseline{mark}"))
    cost = Cost.from_guarantee(metrics["guarantee"])
    format_epsilon_delta = f", at delta {format_delta(metrics['delta'])}" if metrics["delta"] else ""
    tiles += [
        (_figure(cost.epsilon), f"epsilon{format_epsilon_delta}{cost.mark}"),
        (
            f"≤ {percent_up(cost.max_tpr)} %",
            f"an attacker's true-positive rate at 1\u00a0% false positives{cost.mark}",
        ),
    ]
    return (
        '<div class="tiles">'
        + "".join(
            f'<div class="tile"><b>{html(value)}</b><span>{html(words)}</span></div>'
            for value, words in tiles
        )
        + "</div>"
    )


def _gain(own: Summary, baseline: Summary) -> str:
    return ABSENT if own.mean is None or baseline.mean is None else f"{100 * (own.mean - baseline.mean):+.1f}"


def _mark(metrics: Mapping[str, Any]) -> str:
    """Return what stands beside an accuracy that no guarantee covers."""
    return "" if metrics["covered"] or metrics["unit"] == NoUnit.name else f" ({NOT_COVERED})"


def _results(metrics: Mapping[str, Any]) -> str:
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
    notes = (
        ["Single run: the interval reflects test-set size only, not variation between runs."]
        if single and known
        else []
    )
    notes += cost_remarks(metrics)
    notes += [NO_FEATURES] if metrics.get("constant_feature") else []
    notes += [] if single and not metrics["baseline_guarantee"] else [_all_runs(metrics)]
    return _table(head, rows) + f'<p class="soft">{html(" ".join(notes))}</p>'


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


def _guarantee(guarantee: Guarantee) -> str:
    style = "" if guarantee.all_valid else ' class="warning"'
    formal_statement, words = html(guarantee.formal_statement()), html(guarantee_summary(guarantee))
    return f"<p>{words}</p><blockquote{style}>{formal_statement}</blockquote>"


def _attacker(guarantee: Guarantee) -> str:
    inner = [(step / _STEPS) ** 3 for step in range(1, _STEPS)]  # dense where the curve is steep
    curve_of = guarantee.curve.tpr

    def rate(false: float) -> float:
        return min(1.0, curve_of(false) + guarantee.slack)

    about, mark = protected_parts(guarantee), invalid_mark(valid=guarantee.valid, unit=guarantee.unit)
    curve: list[Point] = [(0.0, 0.0), *((false, rate(false)) for false in inner), (1.0, 1.0)]
    chart = line_chart(
        [PlotLine(f"best attacker{mark}", curve, "s1"), PlotLine("blind guessing", [(0, 0), (1, 1)], "flat")],
        x_label="false-positive rate",
        y_label="true-positive rate",
        title=f"The best attacker's trade-off between false and true positives about {about}",
        marks=[(FALSE_POSITIVE_RATE, guarantee.max_tpr())],
    )
    figures = [(f"{100 * false:g} %", f"{percent_up(rate(false))} %") for false in _RATES]
    table = _table(("false positives", f"true positives, at most{mark}"), figures)
    words = guarantee_text(
        guarantee,
        f"No test about one {about[:-1]} does better than the curve, whatever the attacker knows about "
        "the rest. The dot is the figure at 1 % false positives. The closer to the diagonal, the less is "
        "learned.",
    )
    baseline = f'{table}<p class="soft">{html(words)}</p>'
    return f'<div class="pair"><figure>{chart}</figure><div>{baseline}</div></div>'


def _releases(metrics: Mapping[str, Any]) -> str:
    if not metrics["releases"]:
        return "<p>No noisy release was made.</p>"
    return _table(*release_cells(tuple(ReleaseRow(**row) for row in metrics["releases"])))


def _training(history: Sequence[Sequence[Any]]) -> str:
    if not history:
        return ""
    first = [row for row in history if row[0] == history[0][0]]
    stages = list(dict.fromkeys((row[1], row[2]) for row in first))
    figures = [
        _curves(model, stage, [r for r in first if (r[1], r[2]) == (model, stage)]) for model, stage in stages
    ]
    return f'<div class="pair">{"".join(figures)}</div><p class="soft">Seed {html(str(first[0][0]))}.</p>'


def _curves(model: str, stage: str, rows: Sequence[Sequence[Any]]) -> str:
    """Return one stage's losses; a stage that trains several networks has a line for each."""
    lines = [
        PlotLine(name, [(row[3], row[column]) for row in fit if row[column] is not None], style)
        for column, name, style in ((4, "training loss", "s1"), (5, "validation loss", "s2"))
        for fit in _fits(rows)
    ]
    lines = [line for line in lines if line.points]
    if not lines:
        return ""
    title = f"{model}: {stage}"
    chart = line_chart(lines, x_label="epoch", y_label="loss", title=title)
    return f"<figure><figcaption>{html(title)}</figcaption>{chart}</figure>"


def _fits(rows: Sequence[Sequence[Any]]) -> list[list[Sequence[Any]]]:
    """Cut a stage's rows where the epochs start again."""
    fits: list[list[Sequence[Any]]] = []
    for row in rows:
        if not fits or row[3] <= fits[-1][-1][3]:
            fits.append([])
        fits[-1].append(row)
    return fits


def _times(metrics: Mapping[str, Any]) -> str:
    stages = [
        (stage, f"{seconds:.2f}")
        for stage, seconds in metrics["seconds"].items()
        if stage != "total" and seconds
    ]
    rows = [*stages, ("total of one run", f"{metrics['seconds']['total']:.2f}")]
    note = f"Peak memory {metrics['peak_rss_mb']:,} MB; {metrics['seconds_wall']:.1f} s for everything."
    return _table(("stage", "seconds"), rows) + f'<p class="soft">{html(note)}</p>'


def _section(title: str, body: str) -> str:
    return f"<section><h2>{html(title)}</h2>{body}</section>" if body else ""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = "".join(f"<th>{html(name)}</th>" for name in head)
    lines = "".join("<tr>" + "".join(f"<td>{html(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table></div>'


def _figure(epsilon: float | None) -> str:
    return "∞" if epsilon is None else format_upper_bound(epsilon)

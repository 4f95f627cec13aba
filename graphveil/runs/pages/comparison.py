"""One HTML page about several runs, complete in itself: what each costs and brings, what attackers get."""

import math
from collections.abc import Sequence
from datetime import date
from operator import itemgetter
from typing import Any

from graphveil._util.escape import html
from graphveil.artifacts.cards import guarantee_summary, invalid_mark, percent_up
from graphveil.privacy.formatting import counted, format_delta, format_upper_bound
from graphveil.runs.finished_run import FinishedRun
from graphveil.runs.pages._style import STYLE
from graphveil.runs.pages.charts import PlotLine, Point
from graphveil.runs.pages.figures import figure, line_styles, log_names, script
from graphveil.runs.results import ABSENT, Cost, Summary

_STEPS = 60  # points of an attacker's curve
_RATES = (0.001, 0.01, 0.05, 0.1, 0.25)
_COMPARABLE = {"dataset": "data sets", "unit": "units", "delta": "deltas", "recipe": "recipes"}
_MORE_STYLE = """
caption { text-align: left; color: var(--soft); font-size: .9rem; padding-bottom: 6px; }
td.number, th.number { text-align: right; }
td.number, td:first-child { white-space: nowrap; }
details { margin-top: 10px; } summary { cursor: pointer; color: var(--accent); }
summary:focus-visible, a:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.bar { fill: none; stroke-width: 1.2; }
.figure { max-width: 720px; }
.figure:has(.plotly-graph-div) { max-width: none; }
@media print { details > *:not(summary) { display: block; } .scroll { overflow: visible; } }
"""


def compared_page(runs: Sequence[FinishedRun], *, today: date, interactive: bool = False) -> str:
    """Return the page; ``interactive`` needs the extra ``report``.

    Args:
        runs: in the order of the tables.
        today: the date that the page shows.
        interactive: figures by Plotly, whose script is part of the page.
    """
    title = "Runs side by side" if len(runs) > 1 else f"{runs[0].group} on {runs[0].metrics['dataset']}"
    versions = sorted({run.versions.get("graphveil", "?") for run in runs})
    made = f"graphveil {', '.join(versions)} · {today.isoformat()}"
    lede = f"{counted(len(runs), 'run folder')} · {made} · internal: do not publish"
    sections = [
        ("Results", _remarks(runs) + _results(runs)),
        ("Accuracy over epsilon", _utility(runs, interactive)),
        ("What an attacker gains", _attackers(runs, interactive)),
        ("Attacks that were made", _attacks(runs)),
        ("Where the budget went", _budget(runs)),
        ("By class", _classes(runs)),
        ("The guarantees", "".join(map(_guarantee, runs))),
        ("Configuration", _configuration(runs)),
    ]
    body = "\n".join(
        f'<section aria-labeledby="s{number}"><h2 id="s{number}">{html(name)}</h2>{text}</section>'
        for number, (name, text) in enumerate(sections)
        if text
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{html(title)}</title>\n<style>{STYLE}{_MORE_STYLE}{line_styles(len(runs))}</style>\n"
        f"{script() if interactive else ''}</head>\n<body>\n<main>\n"
        f'<h1>{html(title)}</h1>\n<p class="lede">{html(lede)}</p>\n{body}\n</main>\n</body>\n</html>\n'
    )


def _remarks(runs: Sequence[FinishedRun]) -> str:
    """Say what makes the rows of the table different claims."""
    differ = [words for key, words in _COMPARABLE.items() if len({run.metrics[key] for run in runs}) > 1]
    if not differ:
        return ""
    words = " and ".join([", ".join(differ[:-1]), differ[-1]] if differ[1:] else differ)
    return f'<p class="warning">The runs have different {words}: their rows are not about the same thing.</p>'


def _results(runs: Sequence[FinishedRun]) -> str:
    head = (
        "run",
        "method",
        "data",
        "unit",
        "epsilon",
        "delta",
        "attacker, %",
        "test accuracy, %",
        "floor, %",
        "gain",
    )
    rows = [_result(run) for run in runs]
    notes = [
        "Attacker: the best one's true-positive rate at 1 % false positives. Floor: the network that reads "
        "no edge. In brackets 95 % intervals: Student's over runs, Wilson's over test nodes of a single run."
    ]
    if any(not run.metrics["covered"] for run in runs):
        notes.append("Exact accuracies of runs that hide labels are covered by no guarantee.")
    return _table(head, rows, numbers=range(4, 10)) + f'<p class="soft">{html(" ".join(notes))}</p>'


def _result(run: FinishedRun) -> tuple[str, ...]:
    cost, baseline = Cost.from_guarantee(run.metrics["guarantee"]), run.baseline
    gain = ABSENT
    if baseline is not None and baseline.mean is not None and run.accuracy.mean is not None:
        gain = f"{100 * (run.accuracy.mean - baseline.mean):+.1f}"
    return (
        run.name,
        run.group,
        str(run.metrics["dataset"]),
        str(run.metrics["unit"]),
        f"{_epsilon(cost.epsilon)}{cost.mark}",
        format_delta(run.metrics["delta"]) if run.metrics["delta"] else "0",
        f"{percent_up(cost.max_tpr)}{cost.mark}",
        run.accuracy.percent(),
        ABSENT if baseline is None else baseline.percent(),
        gain,
    )


def _utility(runs: Sequence[FinishedRun], interactive: bool) -> str:
    """Draw accuracy over epsilon, a line for each method; runs without a budget are levels."""
    placed = [(run, Cost.from_guarantee(run.metrics["guarantee"]).epsilon) for run in runs]
    budgets = [epsilon for _, epsilon in placed if epsilon]
    if not budgets:
        return ""
    names = log_names([float(format_upper_bound(epsilon)) for epsilon in budgets])
    lines = []
    for number, group in enumerate(dict.fromkeys(run.group for run in runs)):
        own = [(run.accuracy, epsilon) for run, epsilon in placed if run.group == group]
        there = [(math.log2(e), one) for one, e in own if e and one.mean is not None]
        there.sort(key=itemgetter(0))  # runs of one budget keep their order
        levels = [one for one, e in own if not e and one.mean is not None]
        lines += [_utility_line(group, there, number)] if there else []
        lines += [_level(f"{group}, epsilon {_of(own)}", one, names, number) for one in levels[:1]]
    baselines = [run.baseline for run in runs if run.baseline is not None and run.baseline.mean is not None]
    lines += [_level("floor: no edge read", baselines[0], names, None)] if baselines else []
    drawn = figure(
        lines,
        x_label="epsilon",
        y_label="test accuracy, %",
        title="Test accuracy over epsilon; the numbers are in the table of results",
        x_names=names,
        interactive=interactive,
    )
    return f'<figure class="figure">{drawn}</figure>'


def _utility_line(name: str, there: Sequence[tuple[float, Summary]], number: int) -> PlotLine:
    return PlotLine(
        name,
        [(x, 100 * one.mean) for x, one in there if one.mean is not None],
        f"l{number}",
        [(x, 100 * one.ci95[0], 100 * one.ci95[1]) for x, one in there if one.ci95 is not None],
    )


def _level(name: str, one: Summary, names: dict[float, str], number: int | None) -> PlotLine:
    style, value = "flat" if number is None else f"l{number}", 100 * (one.mean or 0.0)
    return PlotLine(name, [(min(names), value), (max(names), value)], style)


def _of(own: Sequence[tuple[Summary, float | None]]) -> str:
    return "0" if any(epsilon == 0 for _, epsilon in own) else "∞"


def _attackers(runs: Sequence[FinishedRun], interactive: bool) -> str:
    inner = [(step / _STEPS) ** 3 for step in range(1, _STEPS)]  # dense where curves are steep
    lines, rows = [], []
    for number, run in enumerate(runs):
        for one in (run.guarantee, *run.guarantee.additional):
            mark = invalid_mark(valid=one.valid, unit=one.unit)
            name = f"{run.name}{f', {one.unit}' if run.guarantee.additional else ''}{mark}"
            rate = [min(1.0, one.curve.tpr(false) + one.slack) for false in inner]
            curve: list[Point] = [(0.0, 0.0), *zip(inner, rate, strict=True), (1.0, 1.0)]
            lines.append(PlotLine(name, curve, f"l{number}"))
            at = [min(1.0, one.curve.tpr(false) + one.slack) for false in _RATES]
            rows.append((name, *(f"{percent_up(value)} %" for value in at)))
    lines.append(PlotLine("blind guessing", [(0.0, 0.0), (1.0, 1.0)], "flat"))
    drawn = figure(
        lines,
        x_label="false-positive rate",
        y_label="true-positive rate, at most",
        title="The best attacker's true positives over false positives; the numbers are in the table below",
        interactive=interactive,
    )
    head = ("run", *(f"at {100 * false:g} %" for false in _RATES))
    caption = "True positives, at most, at these false-positive rates"
    return f'<figure class="figure">{drawn}</figure>' + _table(
        head, rows, numbers=range(1, 6), caption=caption
    )


def _attacks(runs: Sequence[FinishedRun]) -> str:
    rows = [
        (run.name, attack, one["attacker"], *(_share(one.get(key)) for key in _ATTACK_KEYS))
        for run in runs
        for attack, found in run.attacks.items()
        for one in found.get("attackers", ())
    ]
    head = ("run", "attack", "attacker", "AUC", "true positives at 0.1 %", "at 1 %")
    return _table(head, rows, numbers=range(3, 6)) if rows else ""


_ATTACK_KEYS = ("auc", "tpr_at_01pct_fpr", "max_tpr_at_1pct_fpr")


def _share(value: Any) -> str:
    return ABSENT if value is None else f"{value:.3f}"


def _budget(runs: Sequence[FinishedRun]) -> str:
    rows = [
        (
            run.name,
            str(stage["kind"]),
            f"{stage['count']}",
            ABSENT if stage["share"] is None else f"{100 * stage['share']:.0f} %",
            _epsilon(stage["epsilon"]),
        )
        for run in runs
        for stage in run.metrics["stages"]
    ]
    head = ("run", "stage", "answers", "share of the budget", "epsilon alone")
    return _table(head, rows, numbers=range(2, 5)) if rows else ""


def _classes(runs: Sequence[FinishedRun]) -> str:
    rows = [
        (run.name, one["class"], f"{one['tested']:,}", _percent(one["recall"]), _percent(one["precision"]))
        for run in runs
        for one in run.metrics.get("per_class", ())
    ]
    if not rows:
        return ""
    head = ("run", "class", "test nodes", "recall, %", "precision, %")
    table = _table(head, rows, numbers=range(2, 5), caption="First run of each folder")
    return (
        f"<details{' open' if len(rows) <= 12 else ''}><summary>{len(rows)} rows</summary>{table}</details>"
    )


def _percent(share: float | None) -> str:
    return ABSENT if share is None else f"{100 * share:.1f}"


def _guarantee(run: FinishedRun) -> str:
    one = run.guarantee
    style = "" if one.all_valid else ' class="warning"'
    return (
        f"<details open><summary>{html(run.name)}</summary><p>{html(guarantee_summary(one))}</p>"
        f"<blockquote{style}>{html(one.formal_statement())}</blockquote></details>"
    )


def _configuration(runs: Sequence[FinishedRun]) -> str:
    keys = dict.fromkeys(key for run in runs for key in run.configuration)
    rows = [(key, *(_format_value(run.configuration.get(key)) for run in runs)) for key in keys]
    versions = dict.fromkeys(name for run in runs for name in run.versions)
    rows += [(name, *(run.versions.get(name, ABSENT) for run in runs)) for name in versions]
    return _table(("setting", *(run.name for run in runs)), rows)


def _format_value(value: Any) -> str:
    return ABSENT if value is None else str(value)


def _epsilon(epsilon: float | None) -> str:
    return "∞" if epsilon is None else format_upper_bound(epsilon)


def _table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = (), caption: str = ""
) -> str:
    def cell(kind: str, place: int, text: str) -> str:
        marks = (' scope="col"' if kind == "th" else "") + (' class="number"' if place in numbers else "")
        return f"<{kind}{marks}>{html(text)}</{kind}>"

    top = "".join(cell("th", place, text) for place, text in enumerate(head))
    lines = "".join(
        "<tr>" + "".join(cell("td", place, text) for place, text in enumerate(row)) + "</tr>" for row in rows
    )
    named = f"<caption>{html(caption)}</caption>" if caption else ""
    label = html(caption or f"Table: {', '.join(head)}")
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">'
        f"<table>{named}<thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table></div>"
    )

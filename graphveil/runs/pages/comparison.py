"""One HTML page about several runs, complete in itself: what each costs and brings, what attackers get."""

from collections.abc import Sequence
from datetime import date
from functools import partial
from typing import Any

from graphveil._util.escape import render
from graphveil.artifacts.cards import invalid_mark
from graphveil.privacy import Guarantee
from graphveil.privacy.formatting import counted, format_delta, format_upper_bound, percent_up
from graphveil.runs.finished_run import FinishedRun
from graphveil.runs.pages.charts import (
    PlotLine,
    Point,
    Series,
    accuracy_chart,
    has_epsilon,
    inline_svg,
    line_chart,
)
from graphveil.runs.results import ABSENT, Cost

_Table = tuple[Sequence[str], Sequence[Sequence[str]]]  # a head, and rows
_STEPS = 60  # points of an attacker's curve
_RATES = (0.001, 0.01, 0.05, 0.1, 0.25)
_COMPARABLE = {"dataset": "data sets", "unit": "units", "delta": "deltas", "recipe": "recipes"}


def compared_page(runs: Sequence[FinishedRun], *, today: date) -> str:
    """Return the page.

    Args:
        runs: in the order of the tables.
        today: the date that the page shows.
    """
    versions = sorted({run.versions.get("graphveil", "?") for run in runs})
    made = f"graphveil {', '.join(versions)} · {today.isoformat()}"
    return render(
        "run_comparison.html",
        title="Runs side by side" if len(runs) > 1 else f"{runs[0].group} on {runs[0].metrics['dataset']}",
        lede=f"{counted(len(runs), 'run folder')} · {made} · internal: do not publish",
        different=_differences(runs),
        results=_results(runs),
        notes=" ".join(_notes(runs)),
        accuracies=_accuracies(runs),
        attackers=_attackers(runs),
        rates=_rates(runs),
        attacks=_attacks(runs),
        budget=_budget(runs),
        classes=_classes(runs),
        guarantees=[
            {
                "name": run.name,
                "summary": run.guarantee.summary(),
                "valid": run.guarantee.all_valid,
                "statement": run.guarantee.formal_statement(),
            }
            for run in runs
        ],
        configuration=_configuration(runs),
    )


def _differences(runs: Sequence[FinishedRun]) -> str:
    """Say what makes the rows of the table different claims."""
    differ = [words for key, words in _COMPARABLE.items() if len({run.metrics[key] for run in runs}) > 1]
    if not differ:
        return ""
    words = " and ".join([", ".join(differ[:-1]), differ[-1]] if differ[1:] else differ)
    return f"The runs have different {words}: their rows are not about the same thing."


def _results(runs: Sequence[FinishedRun]) -> _Table:
    head = (
        "run",
        "method",
        "data",
        "unit",
        "epsilon",
        "delta",
        "attacker, %",
        "test accuracy, %",
        "baseline, %",
        "gain",
    )
    return head, [_result(run) for run in runs]


def _notes(runs: Sequence[FinishedRun]) -> list[str]:
    """Return what the columns of the table of results mean."""
    notes = [
        "Attacker: the best one's true-positive rate at 1 % false positives. Baseline: the network that "
        "reads no edge. In brackets 95 % intervals: Student's over runs, Wilson's over test nodes of a "
        "single run."
    ]
    if any(not run.metrics["covered"] for run in runs):
        notes.append("Exact accuracies of runs that hide labels are covered by no guarantee.")
    return notes


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


def _accuracies(runs: Sequence[FinishedRun]) -> str:
    """Return accuracy over epsilon, a line for each method; runs without a budget are levels."""
    placed = [(run, _shown_epsilon(run)) for run in runs]
    series = list[Series]()
    for group in dict.fromkeys(run.group for run in runs):
        own = [(epsilon, run.accuracy) for run, epsilon in placed if run.group == group]
        there = [(epsilon, one) for epsilon, one in own if epsilon and one.mean is not None]
        series += [Series.from_points(group, there)] if there else []
        levels = [one for epsilon, one in own if not epsilon and one.mean is not None]
        bound = "0" if any(epsilon == 0 for epsilon, _ in own) else "∞"
        series += [Series(f"{group}, epsilon {bound}", (), one) for one in levels[:1]]
    baselines = [run.baseline for run in runs if run.baseline is not None and run.baseline.mean is not None]
    series += [Series("baseline: no edge read", (), one) for one in baselines[:1]]
    if not has_epsilon(series):
        return ""
    return inline_svg(
        partial(
            accuracy_chart, series, intervals="bars and bands: 95 % intervals", name_of=format_upper_bound
        ),
        "Test accuracy over epsilon; the numbers are in the table of results",
    )


def _shown_epsilon(run: FinishedRun) -> float | None:
    """Return epsilon as the tables print it, so that runs of one budget share a place on the axis."""
    epsilon = Cost.from_guarantee(run.metrics["guarantee"]).epsilon
    return float(format_upper_bound(epsilon)) if epsilon else epsilon


def _attackers(runs: Sequence[FinishedRun]) -> str:
    """Return the best attackers' curves; both guarantees of a run have its color."""
    inner = [(step / _STEPS) ** 3 for step in range(1, _STEPS)]  # dense where curves are steep
    lines = list[PlotLine]()
    for number, run in enumerate(runs):
        for one in (run.guarantee, *run.guarantee.additional):
            rates = [min(1.0, one.curve.tpr(false) + one.slack) for false in inner]
            curve: list[Point] = [(0.0, 0.0), *zip(inner, rates, strict=True), (1.0, 1.0)]
            lines.append(PlotLine(_guarantee_name(run, one), curve, number))
    lines.append(PlotLine("blind guessing", [(0.0, 0.0), (1.0, 1.0)]))
    return inline_svg(
        lambda: line_chart(
            lines, x_label="false-positive rate", y_label="true-positive rate, at most", limits=(0, 1)
        ),
        "The best attacker's true positives over false positives; the numbers are in the table below",
    )


def _rates(runs: Sequence[FinishedRun]) -> _Table:
    rows = [
        (
            _guarantee_name(run, one),
            *(f"{percent_up(min(1.0, one.curve.tpr(false) + one.slack))} %" for false in _RATES),
        )
        for run in runs
        for one in (run.guarantee, *run.guarantee.additional)
    ]
    return ("run", *(f"at {100 * false:g} %" for false in _RATES)), rows


def _guarantee_name(run: FinishedRun, one: Guarantee) -> str:
    """Return the name of a run, with the unit where it has several guarantees, marked if one is not valid."""
    unit = f", {one.unit}" if run.guarantee.additional else ""
    return f"{run.name}{unit}{invalid_mark(valid=one.valid, unit=one.unit)}"


def _attacks(runs: Sequence[FinishedRun]) -> _Table:
    rows = [
        (run.name, attack, one["attacker"], *(_share(one.get(key)) for key in _ATTACK_KEYS))
        for run in runs
        for attack, found in run.attacks.items()
        for one in found.get("attackers", ())
    ]
    head = ("run", "attack", "attacker", "AUC", "true positives at 0.1 %", "at 1 %")
    return head, rows


_ATTACK_KEYS = ("auc", "tpr_at_01pct_fpr", "max_tpr_at_1pct_fpr")


def _share(value: Any) -> str:
    return ABSENT if value is None else f"{value:.3f}"


def _budget(runs: Sequence[FinishedRun]) -> _Table:
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
    return ("run", "stage", "answers", "share of the budget", "epsilon alone"), rows


def _classes(runs: Sequence[FinishedRun]) -> _Table:
    rows = [
        (run.name, one["class"], f"{one['tested']:,}", _percent(one["recall"]), _percent(one["precision"]))
        for run in runs
        for one in run.metrics.get("per_class", ())
    ]
    return ("run", "class", "test nodes", "recall, %", "precision, %"), rows


def _percent(share: float | None) -> str:
    return ABSENT if share is None else f"{100 * share:.1f}"


def _configuration(runs: Sequence[FinishedRun]) -> _Table:
    keys = dict.fromkeys(key for run in runs for key in run.configuration)
    rows = [(key, *(_format_value(run.configuration.get(key)) for run in runs)) for key in keys]
    versions = dict.fromkeys(name for run in runs for name in run.versions)
    rows += [(name, *(run.versions.get(name, ABSENT) for run in runs)) for name in versions]
    return ("setting", *(run.name for run in runs)), rows


def _format_value(value: Any) -> str:
    return ABSENT if value is None else str(value)


def _epsilon(epsilon: float | None) -> str:
    return "∞" if epsilon is None else format_upper_bound(epsilon)

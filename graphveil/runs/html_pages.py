"""HTML pages about one run and about several, complete in themselves.

Style and charts are inline: there is no script and no request.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import date
from functools import partial
from typing import Any

import numpy as np

from graphveil._util.escape import render
from graphveil._util.figures import counted, format_delta, format_upper_bound, percent_up
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
from graphveil.artifacts.snapshot import ReleaseRow
from graphveil.core.guarantee import FALSE_POSITIVE_RATE
from graphveil.core.unit import DirectedEdge, NoUnit
from graphveil.data.tables.encoding import NO_FEATURES
from graphveil.errors import ConfigError
from graphveil.links.folder import LINK_METRICS, METRIC_NOTES
from graphveil.links.folder import METRIC_NAMES as LINK_METRIC_NAMES
from graphveil.privacy import Guarantee
from graphveil.runs.calibration import stage_text
from graphveil.runs.charts import (
    PlotLine,
    Point,
    Series,
    accuracy_chart,
    has_epsilon,
    held_out_charts,
    inline_svg,
    line_chart,
    result_chart,
)
from graphveil.runs.compliance_report import ComplianceReport
from graphveil.runs.results import (
    ABSENT,
    CLASSIFIER,
    METRIC_NAMES,
    NUMBER_METRIC_NAMES,
    Cost,
    FinishedRun,
    Summary,
    baseline_cost,
    choice_text,
    cost_remarks,
    interval,
    metric_summary,
    metric_table,
    number_cells,
    predicts_numbers,
)

_Table = tuple[Sequence[str], Sequence[Sequence[str]]]  # a head, and rows
_SMALL_DELTA = 1e-6  # beyond its epsilon the attack curve is a line
_RATES = (0.001, 0.01, 0.05, 0.1, 0.25)  # false-positive rates of the tables
_MAX_CONFUSION = 10  # classes
BLIND = PlotLine("blind guessing", [(0.0, 0.0), (1.0, 1.0)])


# -- one run -----------------------------------------------------------------------------------------------


def report_page(
    metrics: Mapping[str, Any],
    history: Sequence[Sequence[Any]],
    guarantee: Guarantee,
    notice: ComplianceReport,
) -> str:
    """Return the HTML report of a run.

    Args:
        metrics: The object that ``train --json`` prints.
        history: Rows of seed, model, stage, epoch, train loss, validation loss, validation accuracy.
        guarantee: Guarantee of one run.
        notice: Privacy compliance report of the run.
    """
    releases = tuple(ReleaseRow(**row) for row in metrics["releases"])
    sizes = (
        f"{counted(metrics['nodes'], 'node')} · {counted(metrics['features'], 'feature')} · "
        f"{'a number' if predicts_numbers(metrics) else counted(metrics['classes'], 'class', 'classes')}"
    )
    recipe = f" · recipe {metrics['recipe']}" if metrics["recipe"] else ""
    runs = f"{metrics['runs']} run" + ("s" if metrics["runs"] > 1 else "")
    seconds = metrics["seconds"]
    times = [(stage, f"{spent:.2f}") for stage, spent in seconds.items() if stage != "total" and spent]
    return render(
        "run_report.html",
        title=f"{metrics['method']} on {metrics['dataset']}",
        lede=f"{sizes}{recipe} · {runs} from seed {metrics['seed']} · internal: do not publish this page",
        tiles=_tiles(metrics),
        chart="" if predicts_numbers(metrics) else _result_chart(metrics),
        results=_run_results(metrics),
        metrics=metric_table(metrics),
        confusion=_confusion(metrics),
        remarks=" ".join(_remarks(metrics)),
        summary=guarantee.summary(),
        valid=guarantee.all_valid,
        statement=guarantee.formal_statement(),
        attackers=[attack_bound(one) for one in (guarantee, *guarantee.additional)],
        subject=release_subject(guarantee),
        releases=release_cells(releases) if releases else None,
        losses=_losses(history),
        seed=history[0][0] if history else None,
        times=(("stage", "seconds"), [*times, ("total of one run", f"{seconds['total']:.2f}")]),
        peak_mb=metrics["peak_rss_mb"],
        seconds=metrics["seconds_wall"],
        facts=list(notice.sections),
        scope=notice.scope_table,
        record=notice.record,
    )


def _confusion(metrics: Mapping[str, Any]) -> _Table | None:
    """Return the confusion matrix of the first run, of a few classes; None where labels are secret."""
    counts, classes = metrics.get("confusion_matrix"), [one["class"] for one in metrics.get("per_class", ())]
    if not counts or len(counts) > _MAX_CONFUSION:
        return None
    rows = [(name, *(f"{count:,}" for count in row)) for name, row in zip(classes, counts, strict=True)]
    return ("true class \\ predicted", *classes), rows


def _tiles(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the numbers at the top of the page, each with its description."""
    if predicts_numbers(metrics):
        return [*_number_tiles(metrics), *_cost_tiles(metrics)]
    own, mark = Summary.from_values(metrics["test_accuracy"]["values"]), _mark(metrics)
    accuracy = ABSENT if own.mean is None else f"{100 * own.mean:.1f} %"
    tiles = [(accuracy, f"test accuracy{mark}")]
    if metrics["mlp_test_accuracy"] is not None:
        baseline = Summary.from_values(metrics["mlp_test_accuracy"]["values"])
        tiles.append((_gain(own, baseline), f"points over the no-graph baseline{mark}"))
    return [*tiles, *_cost_tiles(metrics)]


def _number_tiles(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return R² of a model that predicts numbers, and of its baseline."""
    named = {"": "test R²", "mlp_": "test R² of the no-graph baseline"}
    return [
        (number_cells(metrics, prefix)[0], f"{words}{_mark(metrics)}")
        for prefix, words in named.items()
        if metrics[f"{prefix}test_metrics"]
    ]


def _cost_tiles(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the privacy cost of one model."""
    cost = Cost.from_guarantee(metrics["guarantee"])
    at_delta = f", at δ = {format_delta(metrics['delta'])}" if metrics["delta"] else ""
    rate = f"attack bound: true-positive rate at 1\u00a0% false positives{cost.mark}"
    return [
        (f"ε = {_epsilon(cost.epsilon)}", f"privacy budget of one model{at_delta}{cost.mark}"),
        (f"≤ {percent_up(cost.max_tpr)} %", rate),
    ]


def _mark(metrics: Mapping[str, Any]) -> str:
    """Return the note next to an accuracy that no guarantee covers."""
    return "" if metrics["covered"] or metrics["unit"] == NoUnit.name else f" ({NOT_COVERED})"


def _run_results(metrics: Mapping[str, Any]) -> _Table:
    single, private = metrics["runs"] == 1, metrics["private_accuracy"]
    known = not single or metrics.get("tested")
    label = " [95 % interval]"
    if predicts_numbers(metrics):
        more = ("" if single else label) + _mark(metrics)
        titles = ["method", *(f"test {words}{more}" for words in NUMBER_METRIC_NAMES.values())]
        named = [(metrics["method"], "", Cost.from_guarantee(metrics["guarantee"]))]
        if metrics["method"] != "mlp" and metrics["mlp_test_metrics"]:
            named.append(("mlp (no-graph baseline)", "mlp_", baseline_cost(metrics)))
        lines = [
            (name, *(number_cells(metrics, prefix)), *_cost_cells(metrics, cost))
            for name, prefix, cost in named
            if metrics[f"{prefix}test_metrics"]
        ]
        return [*titles, "ε", "δ", "TPR at 1 % FPR"], lines
    head = [
        "method",
        f"test accuracy, %{label if known else ''}{_mark(metrics)}",
        *([f"from noisy counts, %{'' if single else label}"] if private else []),
        "ε",
        "δ",
        "TPR at 1 % FPR",
    ]
    rows = [_row(metrics["method"], metrics, "", Cost.from_guarantee(metrics["guarantee"]))]
    if metrics["method"] != "mlp" and metrics["mlp_test_accuracy"] is not None:
        rows.append(_row("mlp (no-graph baseline)", metrics, "mlp_", baseline_cost(metrics)))
    return head, rows


def _result_chart(metrics: Mapping[str, Any]) -> str:
    """Return the accuracies with their intervals as a chart."""
    results = [(str(metrics["method"]), interval(metrics["test_accuracy"], metrics.get("tested")))]
    if metrics["method"] != "mlp" and metrics["mlp_test_accuracy"] is not None:
        results.append(
            ("mlp (no-graph baseline)", interval(metrics["mlp_test_accuracy"], metrics.get("tested")))
        )
    return inline_svg(
        partial(result_chart, results), "Test accuracy with 95 % intervals; the numbers are in the table"
    )


def _remarks(metrics: Mapping[str, Any]) -> list[str]:
    """Return what the table of results does not show."""
    single, notes = metrics["runs"] == 1, list[str]()
    if single and metrics.get("tested"):
        notes.append("Single run: the interval reflects test-set size only, not variation between runs.")
    if choice := metrics.get("choice"):
        notes.append(choice_text(choice))
    notes += cost_remarks(metrics)
    notes += [NO_FEATURES] if metrics.get("constant_feature") else []
    baseline = metrics["baseline_guarantee"]
    if single and not baseline:
        return notes
    together = metrics["guarantee_all_runs"]
    models = "The model" if single else f"All {metrics['runs']} runs"
    mlp = " with the mlp" if baseline else ""
    page = ", with everything on this page" if metrics["covered"] else ""
    tested = f" {TEST_LABELS}" if not single and metrics["unit"] == "local-attributes" else ""
    notes.append(
        f"Epsilon is that of one model. {models}{mlp} on these {protected_things(metrics['unit'])} "
        f"together{page}: epsilon {_epsilon(together['epsilon'])} at delta "
        f"{format_delta(together['delta'])}.{tested}"
    )
    return notes


def _row(name: str, metrics: Mapping[str, Any], prefix: str, cost: Cost) -> tuple[str, ...]:
    private = metrics["private_accuracy"]
    accuracies = [interval(metrics[f"{prefix}test_accuracy"], metrics.get("tested")).percent()]
    if private:  # noise of counts is no sampling error: a single run has no interval
        accuracies.append(Summary.from_values(private[f"{prefix}test"]["values"]).percent())
    return name, *accuracies, *_cost_cells(metrics, cost)


def _cost_cells(metrics: Mapping[str, Any], cost: Cost) -> tuple[str, str, str]:
    delta = format_delta(metrics["delta"]) if cost.epsilon else "0"
    rate = f"≤ {percent_up(cost.max_tpr)} %{cost.mark}"
    return f"{_epsilon(cost.epsilon)}{cost.mark}", delta, rate


def attack_bound(guarantee: Guarantee) -> dict[str, Any]:
    """Return the curve that no attacker exceeds, some of its points, and what it means."""
    about, mark = protected_parts(guarantee), invalid_mark(valid=guarantee.valid, unit=guarantee.unit)
    one = "item on a list" if about == "lists" and guarantee.unit == DirectedEdge.name else about[:-1]
    lines = [PlotLine(f"upper bound for any attacker{mark}", _attack_curve(guarantee), 0), BLIND]
    words = guarantee_text(
        guarantee,
        f"No test about one {one} is above the curve, whatever the attacker knows about the rest of "
        "the data. The dot marks a false-positive rate of 1 %. On the diagonal the outputs reveal nothing.",
    )
    head = ("FPR", f"TPR, at most{mark}")
    rates = [(f"{100 * false:g} %", f"{percent_up(guarantee.max_tpr(false))} %") for false in _RATES]
    return {
        "chart": inline_svg(
            lambda: line_chart(
                lines,
                x_label="false-positive rate",
                y_label="true-positive rate",
                marks=[(FALSE_POSITIVE_RATE, guarantee.max_tpr())],
                limits=(0, 1),
            ),
            f"Upper bound on the true-positive rate of tests about {about}",
        ),
        "rates": (head, rates),
        "words": words,
    }


def _losses(history: Sequence[Sequence[Any]]) -> list[tuple[str, str]]:
    """Return a chart of the losses of each stage of the first run, under its name."""
    first = [row for row in history if row[0] == history[0][0]]
    charts = list[tuple[str, str]]()
    for model, stage in dict.fromkeys((row[1], row[2]) for row in first):
        fits: list[list[Sequence[Any]]] = []
        for row in first:
            if (row[1], row[2]) == (model, stage):
                # A stage that trains several networks begins its epochs again with each of them.
                if not fits or row[3] <= fits[-1][-1][3]:
                    fits.append([])
                fits[-1].append(row)
        lines = [
            PlotLine(name, [(row[3], row[column]) for row in fit if row[column] is not None], number)
            for number, (column, name) in enumerate(((4, "training loss"), (5, "validation loss")))
            for fit in fits
        ]
        lines = [line for line in lines if line.points]
        if lines:
            title, draw = f"{model}: {stage}", partial(line_chart, lines, x_label="epoch", y_label="loss")
            charts.append((title, inline_svg(draw, title)))
    return charts


# -- several runs ------------------------------------------------------------------------------------------


def compared_page(runs: Sequence[FinishedRun], *, today: date) -> str:
    """Return the page.

    Args:
        runs: in the order of the tables, all of one kind.
        today: the date that the page shows.

    Raises:
        ConfigError: If the runs have no common metric.
    """
    kinds = sorted({run.kind for run in runs})
    if len(kinds) > 1:
        raise ConfigError(
            f"These runs are of {' and '.join(kinds)}, which have no common metric. Write one report "
            "for each kind."
        )
    versions = sorted({run.versions.get("graphveil", "?") for run in runs})
    notes = (
        "TPR: upper bound on the true-positive rate of any attacker at 1 % false positives. Baseline: the "
        "no-graph baseline. Brackets: 95 % intervals, Student's t over runs, or Wilson's over the test nodes "
        "of a single run."
    )
    if kinds[0] != CLASSIFIER:
        notes = (
            "TPR: upper bound on the true-positive rate of any attacker at 1 % false positives. Brackets: "
            "95 % intervals, Student's t over runs, or of the noise of a single run. "
            f"{METRIC_NOTES[kinds[0]]}"
        )
    if any(not run.metrics["covered"] for run in runs):
        notes += " No guarantee covers exact accuracies of runs that protect labels."
    curves = [(run.name, run.curves) for run in runs if run.curves]
    made = f"graphveil {', '.join(versions)} · {today.isoformat()}"
    return render(
        "run_comparison.html",
        title="Comparison of runs" if len(runs) > 1 else f"{runs[0].group} on {runs[0].metrics['dataset']}",
        lede=f"{counted(len(runs), 'run folder')} · {made} · internal: do not publish",
        different=_differences(runs),
        results=_compared_results(runs) if kinds[0] == CLASSIFIER else _compared_link_results(runs),
        notes=notes,
        outcome="Accuracy" if kinds[0] == CLASSIFIER else _upper(LINK_METRIC_NAMES[LINK_METRICS[kinds[0]]]),
        accuracies=_accuracies(runs),
        curves=held_out_charts(curves) if curves else [],
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
    """Explain why the rows of the table have different guarantees."""
    comparable = {"dataset": "data sets", "unit": "units", "delta": "deltas", "recipe": "recipes"}
    differ = [words for key, words in comparable.items() if len({run.metrics.get(key) for run in runs}) > 1]
    if not differ:
        return ""
    words = " and ".join([", ".join(differ[:-1]), differ[-1]] if differ[1:] else differ)
    return f"The runs have different {words}, so their rows are not comparable."


def _compared_results(runs: Sequence[FinishedRun]) -> _Table:
    named = {name for run in runs if (name := run.metric) is not None}
    # One metric is the head of its column; several are named in the cells.
    metric = (METRIC_NAMES[next(iter(named))] if len(named) == 1 else "metric",) if named else ()
    head = (
        "run",
        "method",
        "data",
        "unit",
        "ε",
        "δ",
        "TPR at 1 % FPR, %",
        "test accuracy, %",
        "baseline, %",
        "gain",
        *metric,
    )
    rows = []
    for run in runs:
        name = run.metric
        text = ABSENT if name is None else metric_summary(run.metrics, name).decimal()
        label = "" if name is None or len(named) == 1 else f"{METRIC_NAMES[name]} "
        cost, baseline = Cost.from_guarantee(run.metrics["guarantee"]), run.baseline
        rows.append(
            (
                run.name,
                run.group,
                str(run.metrics["dataset"]),
                str(run.metrics["unit"]),
                f"{_epsilon(cost.epsilon)}{cost.mark}",
                format_delta(run.metrics["delta"]) if run.metrics["delta"] else "0",
                f"{percent_up(cost.max_tpr)}{cost.mark}",
                run.accuracy.percent(),
                ABSENT if baseline is None else baseline.percent(),
                _gain(run.accuracy, baseline),
                *([f"{label}{text}"] if named else []),
            )
        )
    return head, rows


def _compared_link_results(runs: Sequence[FinishedRun]) -> _Table:
    """Return budgets and released metrics of runs of links or of recommendations."""
    names = [name for name in LINK_METRIC_NAMES if any(name in run.metrics["metric_values"] for run in runs)]
    head = ("run", "data", "unit", "runs", "ε", "δ", "TPR at 1 % FPR, %")
    rows = []
    for run in runs:
        cost = Cost.from_guarantee(run.metrics["guarantee"])
        rows.append(
            (
                run.name,
                str(run.metrics["dataset"]),
                str(run.metrics["unit"]),
                f"{run.metrics['runs']}",
                f"{_epsilon(cost.epsilon)}{cost.mark}",
                format_delta(run.metrics["delta"]) if run.metrics["delta"] else "0",
                f"{percent_up(cost.max_tpr)}{cost.mark}",
                *(metric_summary(run.metrics, name).decimal() for name in names),
            )
        )
    return (*head, *(_upper(LINK_METRIC_NAMES[name]) for name in names)), rows


def _upper(words: str) -> str:
    return words[0].upper() + words[1:]


def _accuracies(runs: Sequence[FinishedRun]) -> str:
    """Return accuracy over epsilon, a line for each method; runs without a budget are levels.

    For links and recommenders it is the metric that takes its place.
    """
    placed = list[tuple[FinishedRun, float | None]]()
    for run in runs:  # epsilon as tables print it, so that runs of one budget share a place on the axis
        epsilon = Cost.from_guarantee(run.metrics["guarantee"]).epsilon
        placed.append((run, float(format_upper_bound(epsilon)) if epsilon else epsilon))
    series = list[Series]()
    for group in dict.fromkeys(run.group for run in runs):
        own = [(epsilon, run.accuracy) for run, epsilon in placed if run.group == group]
        there = [(epsilon, one) for epsilon, one in own if epsilon and one.mean is not None]
        series += [Series.from_points(group, there)] if there else []
        levels = [one for epsilon, one in own if not epsilon and one.mean is not None]
        bound = "0" if any(epsilon == 0 for epsilon, _ in own) else "∞"
        series += [Series(f"{group}, ε = {bound}", (), one) for one in levels[:1]]
    baselines = [run.baseline for run in runs if run.baseline is not None and run.baseline.mean is not None]
    series += [Series("no-graph baseline", (), one) for one in baselines[:1]]
    if not has_epsilon(series):
        return ""
    kind = runs[0].kind
    label = "test accuracy" if kind == CLASSIFIER else LINK_METRIC_NAMES[LINK_METRICS[kind]]
    return inline_svg(
        partial(
            accuracy_chart,
            series,
            label=f"{label}, %",
            intervals="bars and bands: 95 % intervals",
            name_of=format_upper_bound,
        ),
        f"{_upper(label)} over epsilon; the numbers are in the table of results",
    )


def _attackers(runs: Sequence[FinishedRun]) -> str:
    """Return the best attackers' curves; both guarantees of a run have its color."""
    lines = [
        PlotLine(_guarantee_name(run, one), _attack_curve(one), number)
        for number, run in enumerate(runs)
        for one in (run.guarantee, *run.guarantee.additional)
    ]
    lines.append(BLIND)
    return inline_svg(
        lambda: line_chart(
            lines, x_label="false-positive rate", y_label="true-positive rate, at most", limits=(0, 1)
        ),
        "Upper bound on the true-positive rate over the false-positive rate; the table has the numbers",
    )


def _rates(runs: Sequence[FinishedRun]) -> _Table:
    rows = [
        (
            _guarantee_name(run, one),
            *(f"{percent_up(rate)} %" for rate in map(one.max_tpr, _RATES)),
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
    rows = []
    for run in runs:
        for attack, found in run.attacks.items():
            for one in found.get("attackers", ()):
                values = [one.get(key) for key in ("auc", "tpr_at_01pct_fpr", "max_tpr_at_1pct_fpr")]
                shown = [ABSENT if value is None else f"{value:.3f}" for value in values]
                rows.append((run.name, attack, one["attacker"], *shown))
    head = ("run", "attack", "attacker", "AUC", "TPR at 0.1 % FPR", "TPR at 1 % FPR")
    return head, rows


def _budget(runs: Sequence[FinishedRun]) -> _Table:
    rows = [
        (
            run.name,
            stage_text(str(stage["kind"])),
            f"{stage['count']}",
            ABSENT if stage["share"] is None else f"{100 * stage['share']:.0f} %",
            _epsilon(stage["epsilon"]),
        )
        for run in runs
        for stage in run.metrics["stages"]
    ]
    return ("run", "query", "answers", "share of the budget", "ε of the query alone"), rows


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
    rows = []
    for key in keys:
        values = [run.configuration.get(key) for run in runs]
        rows.append((key, *(ABSENT if value is None else str(value) for value in values)))
    versions = dict.fromkeys(name for run in runs for name in run.versions)
    rows += [(name, *(run.versions.get(name, ABSENT) for run in runs)) for name in versions]
    return ("setting", *(run.name for run in runs)), rows


# -- both pages --------------------------------------------------------------------------------------------


def _epsilon(epsilon: float | None) -> str:
    return "∞" if epsilon is None else format_upper_bound(epsilon)


def _attack_curve(guarantee: Guarantee) -> list[Point]:
    """Return the curve that no attacker exceeds, from delta at one grid of epsilons.

    Each epsilon bounds every point, by e^epsilon FPR + delta and by 1 - e^-epsilon (1 - delta - FPR), so a
    coarse grid is an upper bound too. Evaluating delta is slow for distributions of privacy losses.
    """
    curve = guarantee.curve
    false = np.linspace(0, 1, 81)[1:-1] ** 3  # dense where the curve is steep
    highest = min(curve.epsilon(_SMALL_DELTA), -math.log(false[0]))  # above it the first bound exceeds 1
    grid = np.linspace(0, highest, 60)
    deltas = np.array([curve.delta(epsilon) for epsilon in grid.tolist()])[:, None]
    epsilons = grid[:, None]
    bounds = np.minimum(np.exp(epsilons) * false + deltas, 1 - np.exp(-epsilons) * (1 - deltas - false))
    true = np.minimum(1.0, bounds.min(axis=0) + guarantee.slack)
    return [(0.0, 0.0), *zip(false.tolist(), true.tolist(), strict=True), (1.0, 1.0)]


def _gain(own: Summary, baseline: Summary | None) -> str:
    """Return by how many points a method is above its baseline."""
    if baseline is None or own.mean is None or baseline.mean is None:
        return ABSENT
    return f"{100 * (own.mean - baseline.mean):+.1f}"

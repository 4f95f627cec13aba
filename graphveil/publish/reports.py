"""Reports about one run and about several, from plain values: HTML pages, and the privacy compliance report.

Pages are complete in themselves. Style and charts are inline: there is no script and no request.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any

import numpy as np

from graphveil._util.escape import render
from graphveil._util.figures import counted, format_delta, format_upper_bound, percent_up
from graphveil.core.guarantee import FALSE_POSITIVE_RATE
from graphveil.core.unit import DirectedEdge, NoUnit, Row
from graphveil.data.tables.encoding import NO_FEATURES
from graphveil.errors import ConfigError
from graphveil.privacy import Guarantee
from graphveil.publish.cards import (
    all_deviations,
    guarantee_text,
    invalid_mark,
    not_covered,
    protected_parts,
    release_subject,
)
from graphveil.publish.charts import (
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
from graphveil.publish.queries import QueryRow, Table, release_table, stage_text
from graphveil.publish.release_folder import withheld_files
from graphveil.publish.results import (
    ABSENT,
    CLASSIFIER,
    LINK_METRIC_NAMES,
    LINK_METRICS,
    METRIC_NAMES,
    METRIC_NOTES,
    Cost,
    FinishedRun,
    Summary,
    compared_models,
    epsilon_text,
    interval,
    link_metric_table,
    metric_summary,
    metric_table,
    number_cells,
    predicts_numbers,
    remarks,
    results_table,
    uncovered_mark,
)

_SMALL_DELTA = 1e-6  # beyond its epsilon the attack curve is a line
_RATES = (0.001, 0.01, 0.05, 0.1, 0.25)  # false-positive rates of the tables
_MAX_CONFUSION = 10  # classes
BLIND = PlotLine("blind guessing", [(0.0, 0.0), (1.0, 1.0)])


# -- the privacy compliance report -------------------------------------------------------------------------


@dataclass(frozen=True)
class ComplianceReport:
    """One dated page for a privacy officer: facts, a summary in plain language, the details.

    Args:
        totals: Scope, epsilon and delta of privacy losses, from the one model to everything released of the
            data.
    """

    about: str
    day: str
    guarantee: Guarantee
    covered: bool
    totals: Sequence[tuple[str, str, str]]
    record: Sequence[str]

    @property
    def sections(self) -> list[tuple[str, Sequence[str]]]:
        protected = "nothing: the guarantee is not valid, because of the deviations below"
        if self.guarantee.all_valid:
            protected = "; ".join(one.covers for one in (self.guarantee, *self.guarantee.additional))
        flaws = [f"deviation: {why}" for why in all_deviations(self.guarantee)]
        return [
            ("Protected", [protected]),
            ("Not protected", [*not_covered(self.guarantee), *flaws]),
            ("Access to the outputs", list(self._audience())),
        ]

    def _audience(self) -> Iterator[str]:
        guarantee = self.guarantee
        if guarantee.unit == NoUnit.name or not guarantee.all_valid:
            yield "All outputs: only people who are authorized to access the data."
            return
        own_rows = bool(withheld_files(guarantee.unit))
        if guarantee.edge_use == "lists":
            yield "`release/` (popularity of items, item model, and hit rate if there is one): public."
            yield (
                "Recommendations (`predict --top-k`): those for a user only for this user, and for people "
                "authorized to access the list of this user."
            )
        else:
            outputs = "model and noisy aggregates" if own_rows else "model, noisy aggregates, predictions"
            yield f"`release/` ({outputs}): public."
            if own_rows:
                yield "`per_node/`: row v only for people who are authorized to access the record of node v."
            uncovered = "internal, because no guarantee covers exact accuracies"
            yield f"Accuracies: {'public' if self.covered else uncovered}."
        yield "`internal/` and this report: only people who are authorized to access the data."

    @property
    def scope_table(self) -> Table:
        return ("scope", "ε", "δ"), self.totals

    def markdown(self) -> str:
        guarantee = self.guarantee
        bound = f"TPR at most {percent_up(guarantee.max_tpr())} % at 1 % FPR{mark_of(guarantee)}"
        return render("privacy_notice.md", report=self, total=total_of("", guarantee), bound=bound)


def total_of(what: str, guarantee: Guarantee) -> tuple[str, str, str]:
    return total_cells(what, guarantee.as_dict()["epsilon"], guarantee.delta, mark_of(guarantee))


def total_cells(what: str, epsilon: float | None, delta: float, mark: str = "") -> tuple[str, str, str]:
    """Return a row of totals: scope, epsilon, and delta; an epsilon of None is no bound.

    >>> total_cells("raw", None, 0.0), total_cells("the model", 1.0, 1e-5, " (not valid)")
    (('raw', 'no bound', '-'), ('the model', '1 (not valid)', '1e-05'))
    """
    return what, f"{epsilon_text(epsilon, 'no bound')}{mark}", "-" if epsilon is None else format_delta(delta)


def mark_of(guarantee: Guarantee) -> str:
    return invalid_mark(valid=guarantee.valid, unit=guarantee.unit)


# -- one run -----------------------------------------------------------------------------------------------


def report_page(
    metrics: Mapping[str, Any],
    history: Sequence[Sequence[Any]],
    guarantee: Guarantee,
    notice: ComplianceReport,
    curves: Mapping[str, Sequence[Sequence[float]]] | None = None,
) -> str:
    """Return the HTML report of a run.

    Args:
        history: Rows of seed, model, stage, epoch, train loss, validation loss, validation accuracy.
        curves: Curves of held-out edges, of a run of links.
    """
    linked = "metric_values" in metrics
    about, found = _link_results(metrics, curves) if linked else _results(metrics)
    releases = [QueryRow(**row) for row in metrics["releases"]]
    return render(
        "run_report.html",
        title=f"{metrics['method']} on {metrics['dataset']}",
        lede=f"{about} · internal: do not publish this page",
        guarantee=guarantee,
        notice=notice,
        attackers=[attack_bound(one) for one in (guarantee, *guarantee.additional)],
        releases=release_table(releases) if releases else None,
        subject=release_subject(guarantee),
        losses=_losses(history),
        seed=history[0][0] if history else None,
        **found,
    )


def _results(metrics: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return what a run is about, and the parts of its report that are of models of nodes."""
    target = "a number" if predicts_numbers(metrics) else counted(metrics["classes"], "class", "classes")
    sizes = f"{counted(metrics['nodes'], 'node')} · {counted(metrics['features'], 'feature')} · {target}"
    recipe = f" · recipe {metrics['recipe']}" if metrics["recipe"] else ""
    seconds, results = metrics["seconds"], results_table(metrics, page=True)
    times = [(stage, f"{spent:.2f}") for stage, spent in seconds.items() if stage != "total" and spent]
    return f"{sizes}{recipe} · {counted(metrics['runs'], 'run')} from seed {metrics['seed']}", {
        "tiles": [*_result_tiles(metrics), *_cost_tiles(metrics)],
        "charts": [] if predicts_numbers(metrics) else [("", _result_chart(metrics))],
        "results": results,
        "numbers": range(len(results[0]) - 3, len(results[0])),
        "metrics": metric_table(metrics),
        "confusion": _confusion(metrics),
        "remarks": " ".join([*remarks(metrics), *([NO_FEATURES] if metrics.get("constant_feature") else ())]),
        "times": (("stage", "seconds"), [*times, ("total of one run", f"{seconds['total']:.2f}")]),
        "peak_mb": metrics["peak_rss_mb"],
        "seconds": metrics["seconds_wall"],
    }


def _link_results(
    metrics: Mapping[str, Any], curves: Mapping[str, Sequence[Sequence[float]]] | None
) -> tuple[str, dict[str, Any]]:
    """Return what a run is about, and the parts of its report that are of links and recommenders."""
    released = metrics["private_metrics"]
    tiles = [(f"{one['value']:.3f}", LINK_METRIC_NAMES[name]) for name, one in released.items()]
    return f"{metrics['sizes']} · unit {metrics['unit']} · seed {metrics['seed']}", {
        **dict.fromkeys(("metrics", "confusion", "times")),
        "tiles": [*tiles, *_cost_tiles(metrics)],
        "charts": [] if curves is None else held_out_charts([("held-out edges", curves)]),
        "results": link_metric_table(metrics) if released else None,
        "numbers": (1, 2),
        "remarks": metrics["remarks"],
    }


def _confusion(metrics: Mapping[str, Any]) -> Table | None:
    """Return the confusion matrix of the first run, of a few classes; None where labels are secret."""
    counts, classes = metrics.get("confusion_matrix"), [one["class"] for one in metrics.get("per_class", ())]
    if not counts or len(counts) > _MAX_CONFUSION:
        return None
    rows = [(name, *(f"{count:,}" for count in row)) for name, row in zip(classes, counts, strict=True)]
    return ("true class \\ predicted", *classes), rows


def _result_tiles(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    mark = uncovered_mark(metrics)
    if predicts_numbers(metrics):
        named = {"": "test R²", "mlp_": "test R² of the no-graph baseline"}
        return [
            (number_cells(metrics, prefix)[0], f"{words}{mark}")
            for prefix, words in named.items()
            if metrics[f"{prefix}test_metrics"]
        ]
    own = Summary.from_values(metrics["test_accuracy"]["values"])
    tiles = [(ABSENT if own.mean is None else f"{100 * own.mean:.1f} %", f"test accuracy{mark}")]
    if metrics["mlp_test_accuracy"] is not None:
        baseline = Summary.from_values(metrics["mlp_test_accuracy"]["values"])
        tiles.append((_gain(own, baseline), f"points over the no-graph baseline{mark}"))
    return tiles


def _cost_tiles(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    cost = Cost.from_guarantee(metrics["guarantee"])
    at_delta = f", at δ = {format_delta(metrics['delta'])}" if metrics["delta"] else ""
    rate = f"attack bound: true-positive rate at 1\u00a0% false positives{cost.mark}"
    return [
        (f"ε = {epsilon_text(cost.epsilon)}", f"privacy budget of one model{at_delta}{cost.mark}"),
        (f"≤ {percent_up(cost.max_tpr)} %", rate),
    ]


def _result_chart(metrics: Mapping[str, Any]) -> str:
    results = [
        (name, interval(metrics[f"{prefix}test_accuracy"], metrics.get("tested")))
        for name, prefix, _ in compared_models(metrics, "mlp (no-graph baseline)")
    ]
    return inline_svg(
        partial(result_chart, results), "Test accuracy with 95 % intervals; the numbers are in the table"
    )


def attack_bound(guarantee: Guarantee) -> dict[str, Any]:
    """Return the curve that no attacker exceeds, some of its points, and what it means."""
    about, mark = protected_parts(guarantee), mark_of(guarantee)
    one = (
        "item on a list"
        if about == "lists" and guarantee.unit in (DirectedEdge.name, Row.name)
        else about[:-1]
    )
    draw = partial(
        line_chart,
        [PlotLine(f"upper bound for any attacker{mark}", _attack_curve(guarantee), 0), BLIND],
        x_label="false-positive rate",
        y_label="true-positive rate",
        marks=[(FALSE_POSITIVE_RATE, guarantee.max_tpr())],
        limits=(0, 1),
    )
    rates = [(f"{100 * false:g} %", f"{percent_up(guarantee.max_tpr(false))} %") for false in _RATES]
    return {
        "chart": inline_svg(draw, f"Upper bound on the true-positive rate of tests about {about}"),
        "rates": (("FPR", f"TPR, at most{mark}"), rates),
        "words": guarantee_text(
            guarantee,
            f"No test about one {one} is above the curve, whatever the attacker knows about the rest of "
            "the data. The dot marks a false-positive rate of 1 %. On the diagonal the outputs reveal "
            "nothing.",
        ),
    }


def _losses(history: Sequence[Sequence[Any]]) -> list[tuple[str, str]]:
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
    kinds = sorted({run.kind for run in runs})
    if len(kinds) > 1:
        raise ConfigError(
            f"These runs are of {' and '.join(kinds)}, which have no common metric. Write one report "
            "for each kind."
        )
    notes = "TPR: upper bound on the true-positive rate of any attacker at 1 % false positives. "
    if kinds[0] == CLASSIFIER:
        outcome = "accuracy"
        notes += (
            "Baseline: the no-graph baseline. Brackets: 95 % intervals, Student's t over runs, or Wilson's "
            "over the test nodes of a single run."
        )
    else:
        outcome = LINK_METRIC_NAMES[LINK_METRICS[kinds[0]]]
        notes += "Brackets: 95 % intervals, Student's t over runs, or of the noise of a single run. "
        notes += METRIC_NOTES[kinds[0]]
    if any(not run.metrics["covered"] for run in runs):
        notes += " No guarantee covers exact accuracies of runs that protect labels."
    curves = [(run.name, run.curves) for run in runs if run.curves]
    versions = ", ".join(sorted({run.versions.get("graphveil", "?") for run in runs}))
    made = f"graphveil {versions} · {today.isoformat()}"
    return render(
        "run_comparison.html",
        title="Comparison of runs" if len(runs) > 1 else f"{runs[0].group} on {runs[0].metrics['dataset']}",
        lede=f"{counted(len(runs), 'run folder')} · {made} · internal: do not publish",
        different=_differences(runs),
        results=_compared_results(runs),
        notes=notes,
        outcome=_upper(outcome),
        accuracies=_accuracies(runs),
        curves=held_out_charts(curves) if curves else [],
        attackers=_attackers(runs),
        rates=_rates(runs),
        attacks=_attacks(runs),
        budget=_budget(runs),
        classes=_classes(runs),
        runs=runs,
        configuration=_configuration(runs),
    )


def _differences(runs: Sequence[FinishedRun]) -> str:
    comparable = {"dataset": "data sets", "unit": "units", "delta": "deltas", "recipe": "recipes"}
    differ = [words for key, words in comparable.items() if len({run.metrics.get(key) for run in runs}) > 1]
    if not differ:
        return ""
    words = " and ".join([", ".join(differ[:-1]), differ[-1]] if differ[1:] else differ)
    return f"The runs have different {words}, so their rows are not comparable."


def _compared_results(runs: Sequence[FinishedRun]) -> Table:
    if runs[0].kind == CLASSIFIER:
        named = list(dict.fromkeys(run.metric for run in runs if run.metric is not None))
    else:
        released = {name for run in runs for name in run.metrics["metric_values"]}
        named = [name for name in LINK_METRIC_NAMES if name in released]
    rows = [_compared_row(run, named) for run in runs]
    return tuple(rows[0]), [tuple(row.values()) for row in rows]


def _compared_row(run: FinishedRun, named: Sequence[str]) -> dict[str, str]:
    metrics, cost = run.metrics, run.cost
    about = {"data": str(metrics["dataset"]), "unit": str(metrics["unit"])}
    bound = {
        "ε": cost.text(),
        "δ": format_delta(metrics["delta"]),
        "TPR at 1 % FPR, %": f"{percent_up(cost.max_tpr)}{cost.mark}",
    }
    if run.kind != CLASSIFIER:
        found = {_upper(LINK_METRIC_NAMES[name]): metric_summary(metrics, name).decimal() for name in named}
        return {"run": run.name, **about, "runs": str(metrics["runs"]), **bound, **found}
    results = {
        "test accuracy, %": run.accuracy.percent(),
        "baseline, %": ABSENT if run.baseline is None else run.baseline.percent(),
        "gain": _gain(run.accuracy, run.baseline),
    }
    text = ABSENT if run.metric is None else metric_summary(metrics, run.metric).decimal()
    if len(named) == 1:  # one metric is the head of its column; several are named in the cells
        results[METRIC_NAMES[named[0]]] = text
    elif named:
        results["metric"] = text if run.metric is None else f"{METRIC_NAMES[run.metric]} {text}"
    return {"run": run.name, "method": run.group, **about, **bound, **results}


def _upper(words: str) -> str:
    return words[0].upper() + words[1:]


def _accuracies(runs: Sequence[FinishedRun]) -> str:
    """Return accuracy over epsilon, a line for each method; runs without a budget are levels.

    For links and recommenders it is the metric that takes its place.
    """
    placed = list[tuple[FinishedRun, float | None]]()
    for run in runs:  # epsilon as tables print it, so that runs of one budget share a place on the axis
        epsilon = run.cost.epsilon
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


def _guarantees(runs: Sequence[FinishedRun]) -> Iterator[tuple[int, str, Guarantee]]:
    """Yield number and name of each run with its guarantees; with several, the name has their units."""
    for number, run in enumerate(runs):
        for one in (run.guarantee, *run.guarantee.additional):
            unit = f", {one.unit}" if run.guarantee.additional else ""
            yield number, f"{run.name}{unit}{mark_of(one)}", one


def _attackers(runs: Sequence[FinishedRun]) -> str:
    """Return the best attackers' curves; both guarantees of a run have its color."""
    lines = [PlotLine(name, _attack_curve(one), number) for number, name, one in _guarantees(runs)]
    return inline_svg(
        partial(
            line_chart,
            [*lines, BLIND],
            x_label="false-positive rate",
            y_label="true-positive rate, at most",
            limits=(0, 1),
        ),
        "Upper bound on the true-positive rate over the false-positive rate; the table has the numbers",
    )


def _rates(runs: Sequence[FinishedRun]) -> Table:
    rows = [
        (name, *(f"{percent_up(one.max_tpr(false))} %" for false in _RATES))
        for _, name, one in _guarantees(runs)
    ]
    return ("run", *(f"at {100 * false:g} %" for false in _RATES)), rows


def _attacks(runs: Sequence[FinishedRun]) -> Table:
    rows = []
    for run in runs:
        for attack, found in run.attacks.items():
            for one in found.get("attackers", ()):
                values = [one.get(key) for key in ("auc", "tpr_at_01pct_fpr", "max_tpr_at_1pct_fpr")]
                shown = [ABSENT if value is None else f"{value:.3f}" for value in values]
                rows.append((run.name, attack, one["attacker"], *shown))
    head = ("run", "attack", "attacker", "AUC", "TPR at 0.1 % FPR", "TPR at 1 % FPR")
    return head, rows


def _budget(runs: Sequence[FinishedRun]) -> Table:
    rows = [
        (
            run.name,
            stage_text(str(stage["kind"])),
            f"{stage['count']}",
            ABSENT if stage["share"] is None else f"{100 * stage['share']:.0f} %",
            epsilon_text(stage["epsilon"]),
        )
        for run in runs
        for stage in run.metrics["stages"]
    ]
    return ("run", "query", "answers", "share of the budget", "ε of the query alone"), rows


def _classes(runs: Sequence[FinishedRun]) -> Table:
    rows = [
        (run.name, one["class"], f"{one['tested']:,}", _percent(one["recall"]), _percent(one["precision"]))
        for run in runs
        for one in run.metrics.get("per_class", ())
    ]
    return ("run", "class", "test nodes", "recall, %", "precision, %"), rows


def _percent(share: float | None) -> str:
    return ABSENT if share is None else f"{100 * share:.1f}"


def _configuration(runs: Sequence[FinishedRun]) -> Table:
    keys = dict.fromkeys(key for run in runs for key in run.configuration)
    rows = []
    for key in keys:
        values = [run.configuration.get(key) for run in runs]
        rows.append((key, *(ABSENT if value is None else str(value) for value in values)))
    versions = dict.fromkeys(name for run in runs for name in run.versions)
    rows += [(name, *(run.versions.get(name, ABSENT) for run in runs)) for name in versions]
    return ("setting", *(run.name for run in runs)), rows


# -- both pages --------------------------------------------------------------------------------------------


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
    if baseline is None or own.mean is None or baseline.mean is None:
        return ABSENT
    return f"{100 * (own.mean - baseline.mean):+.1f}"

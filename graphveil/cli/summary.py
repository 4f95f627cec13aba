"""The plan that ``train`` prints before it spends budget, and the results at the end."""

from typing import TYPE_CHECKING, Any

from graphveil.cli.console import Screen

if TYPE_CHECKING:
    from graphveil.ledger.accounts import RunAccount
    from graphveil.privacy import Guarantee
    from graphveil.runs.calibration import Stage
    from graphveil.runs.preview import Preview
    from graphveil.runs.results import Cost
    from graphveil.runs.run_folder import RunFolder

Fact = tuple[str, str]
_NO_ESTIMATE = {
    "training": "training",
    "push": "push along own edges",
    "hop": "sum over neighbors",
    "edge counts": "counts of edges",
    "graph": "the graph",
    "neighbor counts": "counts of neighbors by class",
    "tally": "counts of correct predictions",
    "outcomes": "counts of correct and wrong predictions",
}
_SEES, _SEES_NEITHER = "reads the released graph alone, and no true private edge", ", nor a true feature"
_LIKE_IDS_HINT = "more classes than half of the nodes: the label looks like an id; check --label"


def plan_facts(
    plan: "Preview", folder: "RunFolder", account: "RunAccount | None" = None, *, resumed: bool = False
) -> list[Fact]:
    """Return names and values of the plan, in the order in which they are shown."""
    from graphveil.artifacts.cards import all_deviations
    from graphveil.privacy.statements import counted

    experiment, guarantee = plan.experiment, plan.guarantee
    classes = counted(plan.classes, "class", "classes")
    size = f"{counted(plan.nodes, 'node')}, {counted(plan.features, 'feature')}, {classes}"
    recipe = f"recipe {experiment.recipe_name}" if experiment.recipe_name else "split as in the files"
    runs = counted(experiment.runs, "run")
    rows = [
        ("data", f"{experiment.source.name}: {size}, {recipe}"),
        *([("", _LIKE_IDS_HINT)] if 2 * plan.classes > plan.nodes else []),
        *_columns(plan),
        *([("scaling", plan.scaled)] if plan.scaled else []),
        *([("public", plan.public)] if plan.public else []),
        ("method", f"{experiment.method}, {runs} from seed {experiment.seed}, {guarantee.mode} mode"),
        *([("sample", plan.sample)] if plan.sample else []),
        ("unit", f"{guarantee.unit}: protects {guarantee.covers}"),
        *_budget(plan),
        *(
            fact
            for one, all_runs in zip(guarantee.additional, plan.guarantee_all_runs.additional, strict=True)
            for fact in _additional_facts(one, all_runs, experiment.runs)
        ),
        *(("deviation", deviation) for deviation in all_deviations(guarantee)),
    ]
    if plan.estimate is not None:
        memory, seconds = plan.estimate.megabytes / 1000, plan.estimate.seconds
        rows.append(
            ("estimate", f"roughly {memory:.1f} GB and {seconds:.0f} s, for as many edges as you expect")
        )
    if account is not None:
        rows.append(("ledger", account.before(resumed=resumed)))
    return [*rows, ("folder", str(folder.root))]


def _columns(plan: "Preview") -> list[Fact]:
    """Return which columns of two tables are read, and which are not."""
    from graphveil.data.tables.labels import listed

    encoding = plan.encoding
    if encoding is None:
        return []
    ignored = [
        f"{', '.join(names)} (of the {table})"
        for table, names in (("nodes", encoding.ignored_nodes), ("edges", encoding.ignored_edges))
        if names
    ]
    dropped = [("unknown ids", "edges to ids that no node has are left out")]
    return [
        *([("classes", listed(plan.class_names))] if plan.class_names else []),
        ("features", encoding.words()),
        *(("note", note) for note in encoding.notes),
        *([("ignored", "; ".join(ignored))] if ignored else []),
        *(dropped if encoding.unknown_ids == "drop" else []),
    ]


def _budget(plan: "Preview") -> list[Fact]:
    from graphveil.artifacts.cards import attack_bound_text
    from graphveil.runs.calibration import unequal_shares_note, unspent_budget_note

    guarantee, runs = plan.guarantee, plan.experiment.runs
    reports = [(row.kind, row.words) for row in plan.releases if row.words]
    if guarantee.unit == "none":
        given = plan.experiment.parameters.get("epsilon")
        unused = "" if given is None else f"; epsilon {given:g} has no effect without a --unit to protect"
        return [("budget", f"none: this is the reference without privacy{unused}")]
    if guarantee.graph and not plan.releases:
        return [("budget", f"nothing more: the edges were released at {_epsilon(guarantee)}")]
    if not plan.releases:
        return [("budget", "epsilon 0: the edges are never read")]
    left = unspent_budget_note(plan.experiment.parameters.get("epsilon"), guarantee.epsilon)
    rows = [
        ("budget", f"{_epsilon(guarantee)} ({plan.delta_source})"),
        *([("", left)] if left else []),
        *reports,
        *(("release", _stage(stage)) for stage in plan.stages),
        *([("", words)] if (words := unequal_shares_note(plan.stages)) else []),
        ("attacker", attack_bound_text(guarantee)),
        *(
            [("inference", f"{_SEES}{_SEES_NEITHER if guarantee.additional else ''}")]
            if guarantee.graph
            else []
        ),
    ]
    if plan.baseline is not None:
        charge_note = "queries the same records and is charged to them (--no-baseline omits it)"
        rows.append(("baseline", f"mlp, {_epsilon(plan.baseline)} a run: {charge_note}"))
    elif guarantee.unit in ("node-record", "node-bounded-degree") and plan.experiment.method != "mlp":
        rows.append(
            ("baseline", "not trained, so the budget is the total (--baseline adds it, and its cost)")
        )
    elif plan.experiment.local and plan.experiment.compare:
        rows.append(("baseline", "mlp on the same reports, without edges: no further reports or charges"))
    if runs > 1 or plan.baseline is not None:
        total = plan.guarantee_all_runs
        name = "all runs" if runs > 1 else "both"
        rows.append((name, f"together {_epsilon(total)}; {attack_bound_text(total)}"))
    return rows


def _additional_facts(one: "Guarantee", all_runs: "Guarantee", runs: int) -> list[Fact]:
    """Return the cost of an additional guarantee, which is never added to the first."""
    from graphveil.artifacts.cards import attack_bound_text

    rows = [
        ("and unit", f"{one.unit}: protects {one.covers}"),
        ("its budget", f"{_epsilon(one)}, separate from the other and never added to it"),
        ("its attacker", attack_bound_text(one)),
    ]
    if runs > 1:
        rows.append(("its runs", f"together {_epsilon(all_runs)}; {attack_bound_text(all_runs)}"))
    return rows


def _epsilon(guarantee: "Guarantee") -> str:
    from graphveil.privacy.statements import format_epsilon_delta

    return format_epsilon_delta(guarantee.epsilon, guarantee.delta)


def _stage(stage: "Stage") -> str:
    from graphveil.privacy.statements import format_upper_bound

    noise = stage.noise.replace("std", "noise standard deviation").replace("multiplier", "noise multiplier")
    times = "" if stage.count == 1 else f", {stage.count} times"
    charged_groups = f"; paid by {stage.charged_groups}" if stage.charged_groups else ""
    cost = f"epsilon {format_upper_bound(stage.epsilon)} alone"
    return (
        f"{_NO_ESTIMATE.get(stage.kind, stage.kind)}{times}: {_steps(stage)}{noise}{charged_groups}; {cost}"
    )


def _steps(stage: "Stage") -> str:
    if stage.steps is None:
        return ""
    what = "records" if stage.pays else "nodes"
    whom = f"all {what}" if stage.sampling_rate == 1 else f"{what} sampled at rate {stage.sampling_rate:.3g}"
    return f"{stage.steps:,} steps on {whom}, "


def show_summary(metrics: dict[str, Any], folder: "RunFolder", screen: Screen) -> None:
    """Print the final table, the guarantee summary, and the locations of the files."""
    from graphveil.runs.compliance_report import FILE as NOTICE
    from graphveil.runs.compliance_report import unrecorded

    screen.print_line("")
    head, rows = _table(metrics)
    screen.table(head, rows)
    for line in _remarks(metrics):
        screen.print_line(line, style="dim")
    screen.print_line("")
    if "summary" in metrics:  # a run of an older version has the statement alone
        screen.print_paragraph(metrics["summary"])
    screen.print_paragraph(metrics["statement"])
    if metrics.get("ledger") is not None:
        screen.print_paragraph(f"In the ledger: {metrics['ledger']['words']}.")
    elif {"guarantee", "releases", "dataset"} <= metrics.keys():
        screen.print_paragraph(f"This run has {unrecorded(metrics)}.")
    screen.print_line("")
    screen.print_line(f"Run folder: {folder.root} ({_publishing(metrics, folder)})")
    screen.print_line(
        f"Report: {folder.internal / 'report.html'}   Guarantee: graphveil explain {folder.root}"
    )
    if (folder.root / NOTICE).is_file():
        screen.print_line(f"Privacy compliance report: {folder.root / NOTICE}")
    screen.emit_json(metrics)


def _table(metrics: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the methods side by side, each with its accuracy and its privacy cost.

    Charged noisy counts are shown if there are any; the exact accuracies stay in the metrics. The table head
    marks values that depend on protected records, because it may fold on a narrow screen.
    """
    from graphveil.artifacts.cards import NOT_COVERED
    from graphveil.runs.results import Cost, baseline_cost

    known = metrics["runs"] > 1 or (metrics.get("tested") and not metrics["private_accuracy"])
    interval = " [95 % CI]" if known else ""
    noisy = " from noisy counts" if metrics["private_accuracy"] else ""
    mark = f" ({NOT_COVERED})" if _accuracy_depends_on_records(metrics) and not noisy else ""
    rows = [_row(metrics, metrics["method"], "", Cost.from_guarantee(metrics["guarantee"]))]
    if metrics["method"] != "mlp" and metrics["mlp_test_accuracy"] is not None:
        rows.append(_row(metrics, "mlp (no graph)", "mlp_", baseline_cost(metrics)))
    accuracy = f"test accuracy{noisy}, %{interval}{mark}"
    return ("method", accuracy, "epsilon", "delta", "TPR at 1 % FPR"), rows


def _row(metrics: dict[str, Any], name: str, prefix: str, cost: "Cost") -> tuple[str, ...]:
    from graphveil.privacy.statements import format_delta, format_upper_bound, percent_up

    delta = format_delta(metrics["delta"]) if cost.epsilon else "0"
    none = "inf" if metrics["unit"] == "local-attributes" else "none"
    figure = none if cost.epsilon is None else format_upper_bound(cost.epsilon)
    rate = f"at most {percent_up(cost.max_tpr)} %"
    return name, _accuracy(metrics, prefix), f"{figure}{cost.mark}", delta, rate


def _accuracy(metrics: dict[str, Any], prefix: str) -> str:
    from graphveil.runs.results import Summary, interval

    private = metrics["private_accuracy"]
    if private:
        return Summary.from_values(private[f"{prefix}test"]["values"]).percent()
    return interval(metrics[f"{prefix}test_accuracy"], metrics.get("tested")).percent()


def _accuracy_depends_on_records(metrics: dict[str, Any]) -> bool:
    """Whether exact accuracies depend on protected records."""
    return metrics["unit"] != "none" and not metrics["covered"]


def _remarks(metrics: dict[str, Any]) -> list[str]:
    from graphveil.artifacts.cards import protected_things
    from graphveil.privacy.statements import percent_up
    from graphveil.runs.results import Cost, cost_remarks

    about, cost = protected_things(metrics["unit"])[:-1], Cost.from_guarantee(metrics["guarantee"])
    lines = []
    if cost.epsilon:
        rate = f"at most {percent_up(cost.max_tpr)} %{cost.mark}"
        what = f"What an attacker learns about one {about}"
        lines.append(f"{what}: true-positive rate at 1 % false positives: {rate}.")
    lines += _additional_cost(metrics)
    if metrics["runs"] == 1:
        lines.append("Single run: an interval reflects test-set size only (--runs 3 adds variation).")
    return [
        *lines,
        *_homophily_remark(metrics),
        *cost_remarks(metrics),
        *_total_cost(metrics),
        *_uncovered_remark(metrics),
    ]


def _homophily_remark(metrics: dict[str, Any]) -> list[str]:
    """Return the method to try instead, if the released counts indicate low homophily."""
    from graphveil.estimators.classcode.edge_rows import Homophily

    found = metrics.get("homophily")
    if found is None or metrics["unit"] != "undirected-edge" or not Homophily(**found).is_weak:
        return []
    figure = f"{found['adjusted']:.2f} ± {found['error']:.2f}"
    return [
        f"Neighbors are hardly of one class more often than by chance (adjusted homophily {figure}, from "
        "the counts that were released): read this way, edges add little to features. Method spectral reads "
        "who is listed with whom; it wants an epsilon of 4 or more."
    ]


def _additional_cost(metrics: dict[str, Any]) -> list[str]:
    """Return what is reported about other data or units, under an additional guarantee."""
    from graphveil.privacy.statements import format_upper_bound, percent_up
    from graphveil.runs.results import Cost

    lines = []
    for one, total in zip(
        metrics["guarantee"].get("additional", []),
        metrics["guarantee_all_runs"].get("additional", []),
        strict=True,
    ):
        cost, sum_ = Cost.from_guarantee(one), Cost.from_guarantee(total)
        if cost.epsilon is None or sum_.epsilon is None:
            lines.append("Features are used as they are: nothing hides them.")
            continue
        runs = (
            ""
            if metrics["runs"] == 1
            else f"; all {metrics['runs']} runs: {format_upper_bound(sum_.epsilon)}"
        )
        lines.append(
            "Features have a guarantee of their own, which is never added: epsilon "
            f"{format_upper_bound(cost.epsilon)}"
            f"{cost.mark}{runs}. True-positive rate at 1 % false positives: at most "
            f"{percent_up(cost.max_tpr)} %{cost.mark}."
        )
    return lines


def _total_cost(metrics: dict[str, Any]) -> list[str]:
    """Return the total cost of all queries of the same protected data."""
    from graphveil.artifacts.cards import TEST_LABELS, protected_things
    from graphveil.privacy.statements import format_delta, format_upper_bound, percent_up
    from graphveil.runs.results import Cost

    total, runs, baseline_guarantee = (
        metrics["guarantee_all_runs"],
        metrics["runs"],
        metrics["baseline_guarantee"],
    )
    tested = [TEST_LABELS] if runs > 1 and metrics["unit"] == "local-attributes" else []
    if total["epsilon"] is None:
        return [f"{runs} runs.", *tested] if runs > 1 else []
    if runs == 1 and baseline_guarantee is None:
        return []
    data = protected_things(metrics["unit"])
    names = f"all {runs} runs" if runs > 1 else "the model"
    names += " with the mlp" if baseline_guarantee is not None else ""
    rate = percent_up(metrics["max_tpr_at_1pct_fpr_all_runs"])
    return [
        f"Epsilon is that of one model; {names} on these {data} together: epsilon "
        f"{format_upper_bound(total['epsilon'])} at delta {format_delta(total['delta'])}, true-positive rate "
        f"at most {rate} %{Cost.from_guarantee(metrics['guarantee']).mark}.",
        *tested,
    ]


def _uncovered_remark(metrics: dict[str, Any]) -> list[str]:
    if not _accuracy_depends_on_records(metrics):
        return []
    if metrics["private_accuracy"]:
        return ["Exact accuracies are in internal/metrics.json: not covered, so keep them inside."]
    remedy = "; --private-metrics releases noisy ones that are covered" if metrics["mode"] == "strict" else ""
    return [f"Exact accuracies depend on the records they were counted on: keep them inside{remedy}."]


def _publishing(metrics: dict[str, Any], folder: "RunFolder") -> str:
    first = metrics["guarantee"]
    others = first.get("additional", [])
    if not first["valid"]:
        return f"no guarantee holds{' for edges' if others else ''}: publish none of it"
    if not all(one["valid"] for one in others):
        return "release/ contains features without a valid guarantee: publish it only if they may be known"
    if any(one["epsilon"] is None for one in others):
        return "release/ contains what was not randomized: publish it only if that may be known"
    if metrics["unit"] == "local-attributes" and metrics["epsilon"] is None:
        return "release/ contains what was not randomized: publish it only if that may be known"
    if folder.per_node.exists():
        return (
            "release/ may be published, internal/ must not; per_node/: row v only for someone entitled to "
            "v's record"
        )
    return "release/ may be published, internal/ must not"

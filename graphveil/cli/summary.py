"""The plan that ``train`` prints before it spends budget, and the results at the end."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from graphveil.cli.console import Screen
from graphveil.cli.options import LINK_METHODS
from graphveil.core.unit import NodeUnit
from graphveil.data.tables.encoding import REGRESSION

if TYPE_CHECKING:
    from graphveil.data.tables.encoding import Encoding
    from graphveil.privacy import Guarantee
    from graphveil.publish.queries import QueryRow
    from graphveil.runs.charges import RunAccount
    from graphveil.runs.experiment import Preview
    from graphveil.runs.run_folder import RunFolder

Fact = tuple[str, str]
UNCOMPARED = ("mlp", *LINK_METHODS)  # methods without a no-graph baseline
_LIKE_IDS_HINT = "the label looks like an id, with more classes than half of the nodes; check --label"


# -- the plan --------------------------------------------------------------------------------------------


def plan_facts(
    plan: "Preview", folder: "RunFolder", account: "RunAccount | None" = None, *, resumed: bool = False
) -> list[Fact]:
    from graphveil._util.figures import counted
    from graphveil.data.tables.encoding import listed_classes
    from graphveil.publish.cards import all_deviations
    from graphveil.runs.source import ListSource

    experiment, guarantee, graph = plan.experiment, plan.guarantee, plan.graph
    source, pairs = experiment.source, experiment.pairs
    numbers = experiment.parameters.get("task") == REGRESSION
    classes = "a number to predict" if numbers else counted(graph.num_classes, "class", "classes")
    recipe = f"recipe {experiment.recipe_name}" if experiment.recipe_name else "split as in the files"
    rows = [("data", f"{source.name}: {plan.sizes}{'' if pairs else f', {classes}, {recipe}'}")]
    if isinstance(source, ListSource):
        rows.append(("lists", source.words))
    if numbers and (public := experiment.parameters.get("target_range")):
        rows.append(("target", f"clipped to the public range {public[0]:g} to {public[1]:g}"))
    if 2 * graph.num_classes > graph.num_nodes and not (numbers or pairs):
        rows.append(("", _LIKE_IDS_HINT))
    if graph.encoding is not None and not isinstance(source, ListSource):
        if graph.class_names and not pairs:
            rows.append(("classes", listed_classes(graph.class_names)))
        rows += _encoding_facts(graph.encoding)
    runs = counted(experiment.runs, "run")
    rows += [
        ("scaling", plan.scaled),
        ("public", plan.public),
        ("method", f"{experiment.method}, {runs} from seed {experiment.seed}"),
        ("choice", plan.decision),
        ("sample", plan.sample),
        ("unit", f"{guarantee.unit}: protects {guarantee.covers}"),
        *_budget(plan),
        *_additional_budgets(plan),
        *(("deviation", deviation) for deviation in all_deviations(guarantee)),
        ("estimate", plan.estimate),
        ("ledger", "" if account is None else account.before(resumed=resumed)),
        ("folder", str(folder.root)),
    ]
    return [(name, text) for name, text in rows if text]


def _encoding_facts(encoding: "Encoding") -> list[Fact]:
    ignored = [
        f"{', '.join(names)} (of the {table})"
        for table, names in (("nodes", encoding.ignored_nodes), ("edges", encoding.ignored_edges))
        if names
    ]
    rows = [
        ("features", encoding.words()),
        *(("note", note) for note in encoding.notes),
        ("ignored", "; ".join(ignored)),
        ("unknown ids", "edges to unknown node ids are dropped" if encoding.unknown_ids == "drop" else ""),
    ]
    return [(name, text) for name, text in rows if text]


def _budget(plan: "Preview") -> list[Fact]:
    """Return the privacy budget, its shares, the attack bound, and the total with baselines and runs.

    Facts without text do not apply.
    """
    from graphveil.publish.cards import attack_bound_text
    from graphveil.publish.queries import unequal_shares_note
    from graphveil.runs.calibration import unspent_budget_note

    guarantee, experiment = plan.guarantee, plan.experiment
    given = experiment.parameters.get("epsilon")
    if guarantee.unit == "none":
        unused = "" if given is None else f"; epsilon {given:g} has no effect without a privacy unit"
        return [("budget", f"none: this is the non-private reference{unused}")]
    if guarantee.graph and not plan.releases:
        return [("budget", f"not charged: the edges were already released at {_epsilon(guarantee)}")]
    if not plan.releases:
        return [("budget", "epsilon 0: the edges are never read")]
    rows = [
        ("budget", f"{_epsilon(guarantee)} ({plan.delta_source})"),
        ("", unspent_budget_note(given, guarantee.epsilon)),
        *((row.kind, row.words) for row in plan.releases),
        *(("release", _stage_fact(stage)) for stage in plan.stages),
        ("", unequal_shares_note(plan.stages)),
        ("attack bound", attack_bound_text(guarantee)),
    ]
    if guarantee.graph:
        features = ", and no true feature" if guarantee.additional else ""
        rows.append(("predictions", f"read the released graph, no true private edge{features}"))
    if plan.baseline is not None:
        charge = "charged to the same records (--no-baseline skips it)"
        rows.append(("baseline", f"mlp, {_epsilon(plan.baseline)} per run, {charge}"))
    elif isinstance(guarantee.protected, NodeUnit) and experiment.method not in UNCOMPARED:
        rows.append(("baseline", "not trained (--baseline trains it and spends additional budget)"))
    elif experiment.local and experiment.compare:
        rows.append(("baseline", "mlp on the same LDP reports, which spends no additional budget"))
    if experiment.runs > 1 or plan.baseline is not None:
        total = plan.guarantee_all_runs
        name = "all runs" if experiment.runs > 1 else "both"
        rows.append((name, f"together {_epsilon(total)}; {attack_bound_text(total)}"))
    return rows


def _additional_budgets(plan: "Preview") -> Iterator[Fact]:
    """Yield the cost of each additional guarantee, which is never added to the first."""
    from graphveil.publish.cards import attack_bound_text

    pairs = zip(plan.guarantee.additional, plan.guarantee_all_runs.additional, strict=True)
    for one, all_runs in pairs:
        yield "second unit", f"{one.unit}: protects {one.covers}"
        yield "its budget", f"{_epsilon(one)}, a separate guarantee that is not added to the first"
        yield "its bound", attack_bound_text(one)
        if plan.experiment.runs > 1:
            yield "its runs", f"together {_epsilon(all_runs)}; {attack_bound_text(all_runs)}"


def _epsilon(guarantee: "Guarantee") -> str:
    from graphveil._util.figures import format_epsilon_delta

    return format_epsilon_delta(guarantee.epsilon, guarantee.delta)


def _stage_fact(stage: "QueryRow") -> str:
    from graphveil._util.figures import format_upper_bound
    from graphveil.publish.queries import stage_text

    noise = stage.noise.replace("std", "noise standard deviation").replace("multiplier", "noise multiplier")
    times = "" if stage.count == 1 else f", {stage.count} times"
    steps = ""
    if stage.steps is not None:
        what = "records" if stage.pays else "nodes"
        rate = f"{what} sampled at rate {stage.sampling_rate:.3g}"
        steps = f"{stage.steps:,} steps on {f'all {what}' if stage.sampling_rate == 1 else rate}, "
    charged = f"; charged to {stage.charged_groups}" if stage.charged_groups else ""
    cost = f"epsilon {format_upper_bound(stage.epsilon)} alone"
    return f"{stage.prefix}{stage_text(stage.kind)}{times}: {steps}{noise}{charged}; {cost}"


# -- results ---------------------------------------------------------------------------------------------


def show_summary(metrics: dict[str, Any], folder: "RunFolder", screen: Screen) -> None:
    from graphveil.publish.results import link_metric_table, metric_table, remarks, results_table
    from graphveil.runs.compliance_report import FILE as NOTICE

    screen.print_line("")
    if "metric_values" in metrics:  # of links, or of a recommender
        if metrics["private_metrics"]:
            screen.table(*link_metric_table(metrics))
        screen.print_paragraph(metrics["remarks"], style="dim")
        _show_guarantee(metrics, folder, screen)
        screen.print_line(f"Next: graphveil predict {folder.root} --top-k 10 --out best.csv")
        screen.emit_json(metrics)
        return
    screen.table(*results_table(metrics))
    imbalanced = metrics["classes"] == 2 or metrics.get("private_metrics")
    if imbalanced and (more := metric_table(metrics)):
        screen.print_line("")
        screen.table(*more)
    for line in remarks(metrics):
        screen.print_paragraph(line, style="dim")
    _show_guarantee(metrics, folder, screen)
    if (folder.root / NOTICE).is_file():
        screen.print_line(f"Privacy compliance report: {folder.root / NOTICE}")
    screen.print_line(f"Details of the guarantee: graphveil explain {folder.root}")
    screen.emit_json(metrics)


def _show_guarantee(metrics: dict[str, Any], folder: "RunFolder", screen: Screen) -> None:
    from graphveil.runs.compliance_report import unrecorded

    screen.print_line("")
    if "summary" in metrics:  # a run of an older version has the statement alone
        screen.print_paragraph(metrics["summary"])
    screen.print_paragraph(metrics["statement"])
    if metrics.get("ledger") is not None:
        screen.print_paragraph(f"Ledger: {metrics['ledger']['words']}.")
    elif {"guarantee", "releases", "dataset"} <= metrics.keys():
        screen.print_paragraph(f"This run has {unrecorded(metrics)}.")
    screen.print_line("")
    screen.print_line(f"Run folder: {folder.root}")
    screen.print_line(f"Publish: {_publishing(metrics, folder)}")
    screen.print_line(f"Report: {folder.internal / 'report.html'}")


def show_demo(metrics: dict[str, Any], folder: "RunFolder", screen: Screen) -> None:
    from graphveil._util.figures import counted, format_delta, format_upper_bound, percent_up
    from graphveil.publish.results import interval

    guarantee, classes = metrics["guarantee"], counted(metrics["classes"], "class", "classes")
    size = f"{counted(metrics['nodes'], 'node')}, {counted(metrics['features'], 'feature')}, {classes}"
    budget = f"epsilon {format_upper_bound(guarantee['epsilon'])}, delta {format_delta(guarantee['delta'])}"
    bound = f"TPR at 1 % FPR at most {percent_up(guarantee['max_tpr_at_1pct_fpr'])} %"
    own, baseline = (
        interval(metrics[f"{prefix}test_accuracy"], metrics.get("tested")).percent()
        for prefix in ("", "mlp_")
    )
    rows = [
        ("Trained", f"{metrics['method']} on {metrics['dataset']}: {size}"),
        ("Guarantee", f"edge-level {budget}; {bound}"),
        ("Accuracy", f"{own} %; no-graph baseline {baseline} %"),
        ("Folder", str(folder.root)),
        ("Publish", _publishing(metrics, folder)),
        ("Next", f"graphveil explain {folder.root}"),
    ]
    screen.box("Result of the demo", rows)
    screen.emit_json(metrics)


def _publishing(metrics: dict[str, Any], folder: "RunFolder") -> str:
    """Return which parts of a run folder may be published."""
    first = metrics["guarantee"]
    others = first.get("additional", [])
    if not first["valid"]:
        return f"nothing: there is no valid guarantee{' for edges' if others else ''}"
    if not all(one["valid"] for one in others):
        return "release/ only if the features are public: they have no valid guarantee"
    local = metrics["unit"] == "local-attributes" and metrics["epsilon"] is None
    if local or any(one["epsilon"] is None for one in others):
        return "release/ only if its values that are not randomized are public"
    if folder.per_node.exists():
        return (
            "release/; keep internal/ private; per_node/: row v only for someone authorized to access "
            "v's record"
        )
    return "release/; keep internal/ private"

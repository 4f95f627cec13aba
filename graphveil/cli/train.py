"""``train`` and ``demo``: the plan that is printed before budget is spent, the run, and its results."""

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from graphveil._util import checks
from graphveil.cli import options
from graphveil.cli.console import Screen
from graphveil.cli.failures import explain_resume_on_failure, report_output_failure
from graphveil.cli.options import LINK_METHODS, DataOrLists, PrivacyOptions
from graphveil.core.unit import NodeUnit, is_node_level
from graphveil.data.tables.encoding import REGRESSION
from graphveil.errors import ArtifactError, ConfigError
from graphveil.estimators import METHODS
from graphveil.runs.parameters import load_custom_module, parse_parameters
from graphveil.runs.source import PublicFlags

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from graphveil.core.backends import AggregationBackend
    from graphveil.data import Graph
    from graphveil.data.tables.encoding import Encoding
    from graphveil.privacy import Guarantee
    from graphveil.publish.queries import QueryRow
    from graphveil.runs.charges import RunAccount
    from graphveil.runs.experiment import Experiment, Preview
    from graphveil.runs.run_folder import RunFolder
    from graphveil.runs.tracking import PublicRecord

SYNTHETIC = "synthetic/"  # generated from a seed, so not protected
DEMO = f"{SYNTHETIC}demo"
RECOMMENDER = "recommender"
HETERO = "heterorr"  # protects features under a unit of edges
Fact = tuple[str, str]
UNCOMPARED = ("mlp", *LINK_METHODS)  # methods without a no-graph baseline
_LIKE_IDS_HINT = "the label looks like an id, with more classes than half of the nodes; check --label"


def demo(*, epsilon: float = 1.0, seed: int = 0, out: Path | None = None, json: bool = False) -> None:
    """Train on a built-in graph and print the result and its guarantee.

    Privacy:
        epsilon: Privacy budget epsilon.

    Examples:
        graphveil demo
        graphveil demo --epsilon 2 --out runs/demo
    """
    from graphveil.runs.experiment import Experiment
    from graphveil.runs.source import Source

    parameters = {"unit": "undirected-edge", "epsilon": epsilon}
    experiment = Experiment("classcode", Source(dataset=DEMO), parameters, seed=seed)
    folder = out or Path("runs") / f"demo-{secrets.token_hex(3)}"
    _train(experiment, folder, Screen(as_json=json), demo=True)


def train(
    method: options.AnyMethod,
    *,
    data: DataOrLists,
    public: PublicFlags,
    privacy: PrivacyOptions,
    recipe: str | None = None,
    expect_edges: Annotated[int, Ge(0)] | None = None,
    epsilon: float | None = None,
    ledger: str | None = None,
    module: str | None = None,
    backend: str | None = None,
    address: str | None = None,
    runs: int = 1,
    seed: int = 0,
    baseline: bool | None = None,
    out: Path | None = None,
    set: list[str] | None = None,
    track: list[str] | None = None,
    resume: bool = False,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Train a method and compare it with the no-graph baseline.

    Run:
        expect_edges: Expected number of edges, for an estimate of memory and time.
        track (mlflow:URI): Log of the public results in MLflow: mlflow, or mlflow:URI. Repeatable.
        resume: Finish the interrupted run in --out.

    Training:
        baseline: Train the no-graph baseline (mlp). Default: yes, except for node-level units, where it
            spends additional budget.

    Examples:
        graphveil train classcode --dataset synthetic/demo --unit undirected-edge --epsilon 1
        graphveil train gnn --module sage --dataset synthetic/demo --unit node-record --epsilon 8
    """
    keywords = {"unit": privacy.unit, "epsilon": epsilon, **privacy.keywords()}
    if module is not None:
        keywords["module"] = load_custom_module(module)  # may register METHOD
    if method not in METHODS:  # which finds methods as published that it does not list
        checks.one_of((*METHODS, *LINK_METHODS), METHOD=method)
    if data.task == REGRESSION:
        keywords["task"] = REGRESSION
    source = data.checked(to_predict=method in LINK_METHODS and data.label is None)
    if not resume and method != RECOMMENDER:  # a finished run is shown again without its tables
        # Before anything heavy is imported.
        source.inspect_tables(unit=privacy.unit, private_records=method.startswith(HETERO))
    from graphveil.core.backends import backend_by_name
    from graphveil.runs.experiment import Experiment
    from graphveil.runs.tracking import tracker_of

    parameters = parse_parameters(method, keywords, set or (), privacy.theta)
    compare = trains_baseline(privacy.unit, baseline)
    experiment = Experiment(method, source, parameters, recipe, runs, seed, compare=compare, public=public)
    _train(
        experiment,
        out,
        Screen(as_json=json),
        resume=resume,
        expect_edges=expect_edges,
        ledger=ledger,
        dry_run=dry_run,
        backend=backend_by_name(backend, address),
        trackers=list(map(tracker_of, track or ())),
    )


def trains_baseline(unit: str | None, baseline: bool | None) -> bool:
    """Return whether the no-graph baseline is trained.

    Under node-level units it queries the same records and adds to the total, so it is off by default there.

    >>> trains_baseline("undirected-edge", None), trains_baseline("node-record",
    ...     None), trains_baseline("node-record", True)
    (True, False, True)
    """
    return not is_node_level(unit) if baseline is None else baseline


def _train(
    experiment: "Experiment",
    out: Path | None,
    screen: Screen,
    *,
    resume: bool = False,
    expect_edges: int | None = None,
    ledger: str | None = None,
    backend: "AggregationBackend | str | None" = None,
    demo: bool = False,
    dry_run: bool = False,
    trackers: "Sequence[Callable[[PublicRecord], None]]" = (),
) -> None:
    from graphveil.core.ledger import ledger_of
    from graphveil.runs.charges import RunAccount
    from graphveil.runs.experiment import graph_of, preview
    from graphveil.runs.run import run
    from graphveil.runs.run_folder import RunFolder, default_folder, read_json

    if resume and out is None:
        raise ConfigError("--resume needs the run folder. Add --out with it.")
    folder = RunFolder(out or default_folder(experiment.method, experiment.source.name))
    folder.check(experiment.as_dict(), resume=resume)
    if resume and folder.complete and not dry_run:
        try:
            show_summary(read_json(folder.metrics), folder, screen)
        except (ArtifactError, KeyError, TypeError, ValueError, AttributeError):
            raise ArtifactError(
                f"{folder.metrics} is damaged. The run itself is finished: `graphveil explain` and "
                "`graphveil predict` read its release."
            ) from None
        return
    with screen.spinner(f"reading {experiment.source.name}"):
        raw = experiment.read()
        data = experiment.prepared(raw)
        graph_of(data).check_backend(backend)  # which may raise an error, before anything is written
        plan = preview(experiment, data, expect_edges=expect_edges)
        graph = plan.graph
        # Synthetic graphs protect nobody, and a released graph was charged when it was released.
        synthetic = (experiment.source.dataset or "").startswith(SYNTHETIC) and ledger is None
        account = None
        if plan.guarantee_all_runs.releases and not (dry_run or synthetic or graph.edge_set.released):
            account = RunAccount.from_graph(graph_of(raw), plan.guarantee, ledger, charge=graph)
        if account is not None and not resume:
            account.check_room(plan.guarantee_all_runs)
    title = "Plan (no privacy budget has been spent)"
    if resume:
        title = "Plan of the resumed run (finished queries are not charged again)"
    screen.print_facts(title, plan_facts(plan, folder, account, resumed=resume))
    if dry_run:
        screen.dry_run(plan.guarantee_all_runs)
        return
    # From here on budget may be spent: an error is a failed run, with the command that resumes it.
    with explain_resume_on_failure(folder.root, ledger_of(graph.edge_set), by_flag=not demo):
        with screen.bars() as bars:
            metrics = run(plan, folder, bars, account, resume=resume, backend=backend)
        for tracker in trackers:
            from graphveil.runs.tracking import PublicRecord

            try:
                tracker(PublicRecord.from_experiment(experiment, metrics, plan.guarantee))
            except Exception as error:  # an unreachable server does not undo the run
                screen.note(f"The run is finished, but could not be logged: {type(error).__name__}.")
        with report_output_failure(folder.root, again=True):
            show = show_demo if demo else show_summary
            show(metrics, folder, screen)


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
        rows += _encoding_facts(graph.encoding, "persons" if source.has_persons else "nodes")
    rows += _table_facts(graph)
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


def _table_facts(graph: "Graph") -> "Iterator[Fact]":
    """Yield what is public of each table of rows."""
    from graphveil._util.figures import counted
    from graphveil.data.relational import RelationalGraph

    for one in graph.relations if isinstance(graph, RelationalGraph) else ():
        attributes = "" if not one.columns else f" with attributes {', '.join(one.columns)}"
        far = "no far end" if one.entities == 1 else counted(one.entities, "far end")
        yield "rows", f"{one.name}: {far}{attributes}, {counted(one.values, 'value')}"


def _encoding_facts(encoding: "Encoding", nodes: str) -> list[Fact]:
    ignored = [
        f"{', '.join(names)} (of the {table})"
        for table, names in ((nodes, encoding.ignored_nodes), ("edges", encoding.ignored_edges))
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
    from graphveil.publish.queries import unequal_shares_note, unspent_budget_note

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


def _additional_budgets(plan: "Preview") -> "Iterator[Fact]":
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

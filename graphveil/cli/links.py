"""``train links`` and ``train recommender``, and the predictions of their runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphveil.cli.console import Screen
from graphveil.cli.failures import explain_resume_on_failure, report_output_failure
from graphveil.errors import ConfigError, UnitError

if TYPE_CHECKING:
    from graphveil.data.tables import Table
    from graphveil.runs.charges import RunAccount
    from graphveil.runs.experiment import Experiment
    from graphveil.runs.link_run import LinkExperiment, LinkPlan
    from graphveil.runs.run_folder import RunFolder
    from graphveil.runs.source import Source


def train_link_model(
    experiment: "LinkExperiment",
    out: Path | None,
    screen: Screen,
    *,
    ledger: str | None,
    resume: bool,
    dry_run: bool,
    synthetic: bool,
) -> None:
    """Show the plan, fit, and print the result and its guarantee."""
    from graphveil.core.ledger import ledger_of
    from graphveil.runs.charges import RunAccount
    from graphveil.runs.link_run import LinkPlan, execute
    from graphveil.runs.run_folder import read_json

    folder = run_folder(experiment, out, resume=resume)
    if resume and folder.complete and not dry_run:
        _show(read_json(folder.metrics), folder, screen)
        return
    with screen.spinner(f"reading {experiment.source.name}"):
        plan = LinkPlan.from_experiment(experiment)
        guarantee, account = plan.preview.guarantee, None
        if not (dry_run or synthetic):
            account = RunAccount.from_graph(plan.graph, guarantee, ledger)
            if not resume:
                account.check_room(plan.guarantee_all_runs)
    print_plan(screen, _facts(plan, folder, account, resume=resume), resume=resume)
    if dry_run:
        screen.dry_run(plan.guarantee_all_runs)
        return
    with explain_resume_on_failure(folder.root, ledger_of(plan.graph.edge_set)):
        with screen.spinner(f"fitting {experiment.method}"):
            metrics = execute(plan, folder, account, resume=resume)
        with report_output_failure(folder.root, again=True):
            _show(metrics, folder, screen)


def run_folder(experiment: "Experiment | LinkExperiment", out: Path | None, *, resume: bool) -> "RunFolder":
    """Return the folder of a run, which is new, or to be resumed with the same configuration."""
    from graphveil.runs.run_folder import RunFolder, default_folder

    if resume and out is None:
        raise ConfigError("--resume needs the run folder. Add --out with it.")
    folder = RunFolder(out or default_folder(experiment.method, experiment.source.name))
    folder.check(experiment.as_dict(), resume=resume)
    return folder


def print_plan(screen: Screen, facts: list[tuple[str, str]], *, resume: bool) -> None:
    """Print the plan of a run."""
    title = "Plan (no privacy budget has been spent)"
    if resume:
        title = "Plan of the resumed run (finished queries are not charged again)"
    screen.print_facts(title, facts)


def _facts(
    plan: "LinkPlan", folder: "RunFolder", account: "RunAccount | None", *, resume: bool
) -> list[tuple[str, str]]:
    """Return names and values of the plan."""
    from graphveil._util.figures import counted, format_epsilon_delta
    from graphveil.cli.summary import encoding_facts, stage_fact
    from graphveil.publish.cards import all_deviations, attack_bound_text
    from graphveil.publish.queries import stages_of

    experiment, guarantee, total = plan.experiment, plan.guarantee, plan.guarantee_all_runs
    encoding, lists = plan.graph.encoding, experiment.items is not None
    rows = [
        ("data", f"{experiment.source.name}: {plan.sizes}"),
        *([] if lists or encoding is None else encoding_facts(encoding)),
        ("lists", experiment.list_words() if lists else ""),
        ("method", f"{experiment.method}, {counted(experiment.runs, 'run')} from seed {experiment.seed}"),
        ("unit", f"{guarantee.unit}: protects {guarantee.covers}"),
        ("budget", f"{format_epsilon_delta(guarantee.epsilon, guarantee.delta)} ({plan.delta_source})"),
        *([] if experiment.runs == 1 else [("all runs", format_epsilon_delta(total.epsilon, total.delta))]),
        *(("release", stage_fact(stage)) for stage in stages_of(plan.preview.plan)),
        ("attack bound", attack_bound_text(guarantee)),
        *(("deviation", deviation) for deviation in all_deviations(guarantee)),
        ("ledger", "" if account is None else account.before(resumed=resume)),
        ("folder", str(folder.root)),
    ]
    return [(name, text) for name, text in rows if text]


def _show(metrics: dict[str, Any], folder: "RunFolder", screen: Screen) -> None:
    """Print the metrics, the guarantee summary, and the locations of the files."""
    from graphveil.cli.summary import show_guarantee
    from graphveil.publish.results import link_metric_table

    screen.print_line("")
    if metrics["private_metrics"]:
        screen.table(*link_metric_table(metrics))
    screen.print_paragraph(metrics["remarks"], style="dim")
    show_guarantee(metrics, folder, screen)
    screen.print_line(f"Next: graphveil predict {folder.root} --top-k 10 --out best.csv")
    screen.emit_json(metrics)


def predict_links(
    run: Path,
    screen: Screen,
    *,
    pairs: Path | None,
    top_k: int | None,
    out: Path | None,
    columns: dict[str, Any],
) -> None:
    """Write the scores of pairs, or the best candidates of each node or user.

    Args:
        run: Run folder.
        screen: Consoles.
        pairs: Table of pairs to score, with the columns of sources and targets.
        top_k: Number of candidates per node.
        out: Table to write; printed if None.
        columns: Options that name tables and columns; those of the run by default.
    """
    from graphveil._util.figures import counted
    from graphveil.runs.link_run import best_candidates, pair_scores, read_kind

    kind = read_kind(run)
    assert kind is not None  # else the options were rejected
    if (pairs is None) == (top_k is None):
        raise ConfigError(
            f"A run of {kind} predicts pairs. Add either --pairs FILE, or --top-k 10 for the best candidates."
        )
    if pairs is not None:
        table, note = pair_scores(run, pairs, columns), "Scores of pairs are post-processing of the release."
    else:
        assert top_k is not None
        table, note = best_candidates(run, top_k, columns)
    screen.note(note)
    record: dict[str, Any] = {"method": kind, "rows": table.num_rows, "out": None, "charged": None}
    deliver(table, out, screen, record, count=counted(table.num_rows, "row"), key="rows")


def deliver(
    table: "Table",
    out: Path | None,
    screen: Screen,
    record: dict[str, Any],
    *,
    count: str,
    key: str,
    shown: Sequence[str] | None = None,
) -> None:
    """Write a table of predictions to a file, or print it.

    Args:
        table: Table.
        out: File to write; None to print.
        screen: Consoles.
        record: JSON object.
        count: The number of rows as text.
        key: Where the JSON object has the rows.
        shown: Columns to print; None for all.
    """
    from graphveil.data import tables

    if out is not None:
        tables.write(out, tables.without_formulas(table) if out.suffix == ".csv" else table)
        record["out"] = str(out)
    part = table if shown is None else table.select(list(shown))
    with report_output_failure(out):
        if out is not None:
            screen.print_line(f"{count} in {out}")
        elif screen.as_json:
            record[key] = part.to_pylist()
        else:
            screen.write(tables.encode(tables.without_formulas(part), ".csv").decode())
        screen.emit_json(record)


def link_experiment(
    method: str,
    source: "Source",
    items: Path | None,
    flags: dict[str, Any],
    settings: list[str],
    seed: int,
    runs: int,
    *,
    rating: str | None = None,
    min_rating: float | None = None,
) -> "LinkExperiment":
    """Return the experiment of the given options.

    Raises:
        ConfigError: If an option is no parameter of the method, or a required one is missing.
    """
    from graphveil.core.unit import NoUnit, parse_unit
    from graphveil.runs.link_run import LinkExperiment
    from graphveil.runs.parameters import parse_parameters

    if parse_unit(flags.get("unit"), max_degree=1).name == NoUnit.name:
        raise UnitError(
            f"A run of {method} publishes results, and unit none does not protect them. Choose a "
            "unit, for example --unit undirected-edge for links or --unit node-record for "
            "recommender."
        )
    if flags.get("epsilon") is None:
        raise ConfigError("Missing privacy budget. Set --epsilon, for example --epsilon 1.")
    return LinkExperiment(
        method=method,
        source=source,
        items=items,
        rating=rating,
        min_rating=min_rating,
        parameters=parse_parameters(method, flags, settings),
        seed=seed,
        runs=runs,
    )

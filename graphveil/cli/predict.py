"""``predict``: the predictions of a saved run, without privacy cost, or new ones for another graph."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphveil._util.escape import csv_cell
from graphveil.cli import options
from graphveil.cli.console import Screen
from graphveil.cli.failures import report_charge_on_failure, report_output_failure
from graphveil.cli.options import (
    InputColumnOptions,
    PublicEdgeOptions,
    TableOptions,
    check_not_existing,
    given,
    grouped,
)
from graphveil.errors import ConfigError

if TYPE_CHECKING:
    from graphveil.artifacts.release_folder import Table
    from graphveil.data import Graph
    from graphveil.data.tables.encoding import Encoding
    from graphveil.estimators.base import Estimator
    from graphveil.privacy import Guarantee
    from graphveil.runs.charges import PredictionAccounts
    from graphveil.runs.source import PublicFlags

_TOTAL_ADDS_UP = {
    "edges": "as the two graphs may share edges; --assume-disjoint-edges is your word that they do not",
    "records": "as a person may be in both graphs",
}
_TOTAL_IS_MAX = "the larger of the two, on your word that the graphs share no {thing}"
_KNOWN = "none: this is the graph of the training, or one that was predicted before"
_NO_QUERY = "none: this model does not query the {about} under a budget"
_CHOICES = ("features", "drop", "categories")  # what training decided, unless flags do
_NO_FEATURES = ("id", "label", "split")  # what a column of the nodes may be instead


@grouped
def predict(
    run: options.RunFolderArgument,
    files: TableOptions,
    columns: InputColumnOptions,
    public: PublicEdgeOptions,
    assume_disjoint_edges: options.AssumeDisjointEdges = False,
    assume_disjoint_nodes: options.AssumeDisjointNodes = False,
    allow_spend: options.AllowSpend = False,
    ledger: options.Ledger = None,
    backend: options.AggregationBackend = None,
    address: options.Address = None,
    out: options.PredictionsOut = None,
    json: options.Json = False,
) -> None:
    """Predict nodes of a run's graph or of a new graph."""
    from graphveil.artifacts.cards import protected_parts
    from graphveil.artifacts.release_folder import predictions_table, withheld_files
    from graphveil.data import tables
    from graphveil.estimators.saved import load_model
    from graphveil.ledger import ledger_of
    from graphveil.release.backends import backend_by_name, backend_for, using
    from graphveil.runs.charges import restore_earlier_predictions
    from graphveil.runs.compliance_report import update_compliance_report

    chosen = backend_by_name(backend, address)
    screen = Screen(as_json=json)
    if out is not None:
        tables.check_output(out)
        check_not_existing(out, "predictions may have cost a budget; choose another --out")
    model = load_model(run)
    flags = public.flags()
    flags.check(model.guarantee.unit)
    chosen_columns = {**given(files), **given(columns)}
    directed = chosen_columns.pop("directed")
    if files.nodes is None and files.edges is None:
        described = directed or assume_disjoint_edges or assume_disjoint_nodes or allow_spend
        described = described or ledger is not None or chosen is not None or bool(flags.given)
        if described or any(value is not None for value in chosen_columns.values()):
            raise ConfigError(
                "column flags, --assume-disjoint-nodes, --assume-disjoint-edges, --allow-spend, --ledger and "
                "--backend are about another graph; add its --nodes and --edges, or drop them"
            )
        restore_earlier_predictions(run, model)
        table = predictions_table(model.predict_proba(), model.named_classes, model.ids_)
        withheld = withheld_files(model.guarantee.unit)
        audience = "; row v only for someone entitled to v's record" if withheld else ""
        screen.note(f"Predictions of {run}: stored with the run, so free{audience}.")
        _deliver(model, table, out, screen, privacy_cost=None)
        return
    graph = _other_graph(run, model, chosen_columns, directed, flags)
    backend_for(chosen, graph.adjacency)  # which may raise an error, before anything is spent
    assumptions: dict[str, Any] = {
        "assume_disjoint_edges": assume_disjoint_edges,
        "assume_disjoint_nodes": assume_disjoint_nodes,
    }
    privacy_cost = model.privacy_cost(graph, **assumptions)
    accounts = _accounts(run, model, graph, privacy_cost, ledger, assumed_disjoint=any(assumptions.values()))
    after, about = model.guarantee_after(graph, **assumptions), protected_parts(model.guarantee)
    apart = "edge" if assume_disjoint_edges else "person"
    why = _TOTAL_IS_MAX.format(thing=apart) if any(assumptions.values()) else _TOTAL_ADDS_UP[about]
    known = model.is_fitted_graph(graph)
    no_cost_note = _KNOWN if known else _NO_QUERY.format(about=about)
    rows = _facts(graph, privacy_cost, after, about, f"{why}{_earlier_predictions_note(run)}", no_cost_note)
    screen.print_facts(
        "The privacy cost of predicting this graph"
        if known
        else f"The privacy cost of querying another graph's {about}",
        rows if accounts is None else [*rows, *accounts.before()],
    )
    with report_charge_on_failure(ledger_of(graph.edge_set)):
        with using(chosen), nullcontext() if accounts is None else accounts.recorded_in_folder():
            proba = model.predict_proba(graph, **assumptions, allow_spend=allow_spend)
        if accounts is not None:
            update_compliance_report(run)
        table = predictions_table(proba, model.named_classes, graph.ids)
        for words_of_one in [] if accounts is None else accounts.after():
            screen.note(f"In the ledger: {words_of_one}.")
        _deliver(model, table, out, screen, privacy_cost=privacy_cost, accounts=accounts)


def _accounts(
    run: Path,
    model: "Estimator",
    graph: "Graph",
    privacy_cost: "Guarantee | None",
    ledger: str | None,
    *,
    assumed_disjoint: bool,
) -> "PredictionAccounts | None":
    """Return the accounts that a prediction of the other graph is charged to, if it queries edges."""
    from graphveil.runs.charges import PredictionAccounts, restore_earlier_predictions

    if privacy_cost is None or graph.edge_set.released:
        restore_earlier_predictions(run, model)
        return None
    accounts = PredictionAccounts.from_prediction(
        run, model, graph, privacy_cost, ledger, assumed_disjoint=assumed_disjoint
    )
    accounts.check_room()
    return accounts


def _earlier_predictions_note(run: Path) -> str:
    """Return how the reported total relates to earlier commands."""
    from graphveil.runs.charges import earlier_predictions
    from graphveil.runs.run_folder import RunFolder

    if not RunFolder(run).lock.is_file():
        return "; what earlier commands predicted comes on top"
    count = len(earlier_predictions(run))
    return f"; with {count:,} earlier predictions of other graphs" if count else ""


def _other_graph(
    run: Path, model: "Estimator", flags: dict[str, Any], directed: bool, public: "PublicFlags"
) -> "Graph":
    """Read the other graph; unnamed columns default to those of the training.

    It needs no labels and no split. Columns that were not features in training are ignored.
    """
    from graphveil.runs.source import GraphTableColumns, Source

    known = _trained_columns(run)
    chosen = any(flags[name] is not None for name in _CHOICES)
    aside = tuple(known[role] for role in _NO_FEATURES if known.get(role) is not None)
    wanted = {name: known.get(name) for name in flags if name != "label"}
    given = wanted | {name: value for name, value in flags.items() if value is not None}
    origin = Source(
        **given,
        directed=directed or bool(known.get("directed")),
        to_predict=True,
        aside=aside,
        encoding=None if chosen else _trained_encoding(run) or model.encoding_,
    )
    graph = origin.load(classes=model.named_classes)
    columns = GraphTableColumns(
        nodes=origin.nodes,
        id=origin.id,
        source=origin.source,
        target=origin.target,
        csv_format=origin.csv_format,
    )
    return graph.replace(public=public.part(graph, columns, seed=0))


def _trained_columns(run: Path) -> dict[str, Any]:
    """Return the column flags of the run's training, if its internal part is there."""
    from graphveil.runs.run_folder import RunFolder, read_json

    lock = RunFolder(run).lock
    if not lock.is_file():
        return {}
    configuration = read_json(lock)["configuration"]
    roles = (*_NO_FEATURES, "source", "target", "weight", "max_weight", "directed")
    return {role: configuration.get(f"data.{role}") for role in roles}


def _trained_encoding(run: Path) -> "Encoding | None":
    """Return the encoding of the run's training, if its internal part is there."""
    from graphveil.data.tables.encoding import Encoding
    from graphveil.runs.run_folder import RunFolder, read_json

    path = RunFolder(run).columns
    return Encoding.from_plain(read_json(path)) if path.is_file() else None


def _facts(
    graph: "Graph",
    privacy_cost: "Guarantee | None",
    after: "Guarantee",
    about: str,
    why: str,
    no_cost_note: str,
) -> list[tuple[str, str]]:
    from graphveil.artifacts.cards import attack_bound_text
    from graphveil.privacy.statements import counted, format_epsilon_delta

    rows = [("data", f"{counted(graph.num_nodes, 'node')}, {counted(graph.num_features, 'feature')}")]
    if privacy_cost is None:
        return [*rows, ("privacy cost", no_cost_note)]
    return [
        *rows,
        (
            "privacy cost",
            f"{format_epsilon_delta(privacy_cost.epsilon, privacy_cost.delta)}, on the {about} of this graph",
        ),
        ("attacker", attack_bound_text(privacy_cost)),
        *(
            ("and of features", f"{format_epsilon_delta(one.epsilon, one.delta)}; {attack_bound_text(one)}")
            for one in privacy_cost.additional
        ),
        (
            "with the training",
            f"{format_epsilon_delta(after.epsilon, after.delta)}, {why}",
        ),
        *(
            (
                "features with it",
                f"{format_epsilon_delta(one.epsilon, one.delta)}, as a person may be in both graphs",
            )
            for one in after.additional
        ),
        *(("deviation", deviation) for deviation in privacy_cost.deviations),
    ]


def _deliver(
    model: "Estimator",
    table: "Table",
    out: Path | None,
    screen: Screen,
    *,
    privacy_cost: "Guarantee | None",
    accounts: "PredictionAccounts | None" = None,
) -> None:
    from graphveil.artifacts.release_folder import NODE, PREDICTION
    from graphveil.data import tables
    from graphveil.privacy.statements import format_count_with_verb

    record: dict[str, Any] = {"method": model.method, "nodes": table.num_rows, "out": None}
    record["charged"] = None if privacy_cost is None else privacy_cost.as_dict()
    record |= {"ledger": None, "training_ledger": None} if accounts is None else accounts.as_plain()
    record["guarantee"] = model.guarantee.as_dict()
    record["guarantee_with_predictions"] = model.guarantee_with_predictions.as_dict()
    if out is not None:
        tables.write(out, _no_formulas(table) if out.suffix == ".csv" else table)
        record["out"] = str(out)
    with report_output_failure(out):
        if out is not None:
            screen.print_line(f"{format_count_with_verb(table.num_rows, 'prediction')} in {out}")
        elif screen.as_json:
            record["predictions"] = table.select([NODE, PREDICTION]).to_pylist()
        else:
            screen.write(tables.encode(_no_formulas(table.select([NODE, PREDICTION])), ".csv").decode())
        screen.emit_json(record)


def _no_formulas(table: "Table") -> "Table":
    """Return a table for a CSV, with text escaped that a spreadsheet would evaluate."""
    import pyarrow as pa

    columns = [
        pa.array([csv_cell(text) for text in column.to_pylist()], column.type)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        else column
        for column in table.columns
    ]
    return pa.table(columns, names=[csv_cell(name) for name in table.column_names])

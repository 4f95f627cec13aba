"""``predict``: the predictions of a saved run, without privacy cost, or new ones for another graph."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphveil.cli import options
from graphveil.cli.console import Screen, deliver
from graphveil.cli.failures import report_charge_on_failure
from graphveil.cli.help import Declaration, check_choice
from graphveil.cli.options import TablesToPredict, check_not_existing, given
from graphveil.data.tables.encoding import REGRESSION
from graphveil.runs.source import DataOptions, PublicFlags, plain_options
from graphveil.runs.table_source import with_keys_of

if TYPE_CHECKING:
    from graphveil.data import Graph
    from graphveil.estimators.base import Estimator
    from graphveil.privacy import Guarantee
    from graphveil.publish.release_folder import Table
    from graphveil.runs.charges import PredictionAccounts

_TOTAL_ADDS_UP = {
    "edges": "since the graphs may share edges (--assume-disjoint-edges asserts that they do not)",
    "records": "since a person may be in both graphs",
    "rows": "since the tables may share rows (--assume-disjoint-edges asserts that they do not)",
    "persons": "since a person may be in both data sets",
}
_WITHOUT_COST = Declaration("A prediction without privacy cost", frozenset())
_NO_FEATURES = ("id", "label", "split")  # what a column of the nodes may be instead


def predict(
    run: Path,
    *,
    data: TablesToPredict,
    public: PublicFlags,
    assume_disjoint_edges: bool = False,
    assume_disjoint_nodes: bool = False,
    allow_spend: bool = False,
    ledger: str | None = None,
    backend: str | None = None,
    address: str | None = None,
    pairs: Path | None = None,
    top_k: options.OneOrMore | None = None,
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Predict nodes of a run's graph or of a new graph, or links.

    Privacy:
        assume_disjoint_edges: Assert that this graph shares no edge with the training graph and with
            earlier queries. The total privacy loss is then the maximum instead of the sum.
        assume_disjoint_nodes: Assert that this graph shares no person with the training graph and with
            earlier queries. The total privacy loss is then the maximum instead of the sum. For unit
            local-attributes.
        allow_spend: Allow spending privacy budget if graphveil cannot determine whether this is the
            training graph.

    Data:
        pairs (FILE): Table of node pairs to score, with the columns --source and --target. For runs of
            links.
        top_k (K): Number of best candidates per node or user. For runs of links and recommender.

    Run:
        out (FILE): Table of predictions and probabilities to write, .parquet or .csv. Default: print
            predictions.

    Examples:
        graphveil predict runs/first --out predictions.parquet
        graphveil predict runs/links --top-k 10 --out best.csv
    """
    from graphveil.core.backends import backend_by_name, using
    from graphveil.core.ledger import ledger_of
    from graphveil.data import tables
    from graphveil.estimators.inference import PredictionOptions
    from graphveil.estimators.saved import load_model
    from graphveil.links import find_link_folder
    from graphveil.publish.cards import protected_parts
    from graphveil.publish.release_folder import predictions_table, withheld_files
    from graphveil.runs.charges import PredictionAccounts, restore_earlier_predictions
    from graphveil.runs.compliance_report import update_compliance_report

    chosen = backend_by_name(backend, address)
    screen = Screen(as_json=json)
    if out is not None:
        tables.check_output(out)
        check_not_existing(out, "Choose another --out.")
    linked = find_link_folder(run)
    if linked is not None:
        from graphveil.cli.links import predict_links

        columns = plain_options(data)
        predict_links(run, linked.kind, screen, pairs=pairs, top_k=top_k, out=out, columns=columns)
        return
    model = load_model(run)
    public.check(model.guarantee.unit)
    if data.nodes is None and data.edges is None and not data.has_persons:
        restore_earlier_predictions(run, model)
        table = predictions_table(model.outputs(None), model.named_classes, model.ids_)
        withheld = withheld_files(model.guarantee.unit)
        audience = " Show row v only to someone authorized to access v's record." if withheld else ""
        screen.note(f"Predictions stored in {run}. Reading them does not spend privacy budget.{audience}")
        _deliver(model, table, out, screen, privacy_cost=None)
        return
    graph = _other_graph(run, model, data, public)
    graph.check_backend(chosen)  # which may raise an error, before anything is spent
    assumptions: dict[str, Any] = {
        "assume_disjoint_edges": assume_disjoint_edges,
        "assume_disjoint_nodes": assume_disjoint_nodes,
    }
    privacy_cost = model.privacy_cost(graph, **assumptions)
    accounts = None
    if privacy_cost is None or graph.edge_set.released:
        if ledger is not None:
            check_choice(_WITHOUT_COST, {"ledger": "--ledger"})
        restore_earlier_predictions(run, model)
    else:
        accounts = PredictionAccounts.from_prediction(
            run, model, graph, privacy_cost, ledger, assumed_disjoint=any(assumptions.values())
        )
        accounts.check_room()
    after, about = model.guarantee_after(graph, **assumptions), protected_parts(model.guarantee)
    known = model.is_fitted_graph(graph)
    apart = "edge" if assume_disjoint_edges else "person" if assume_disjoint_nodes else None
    rows = _facts(run, graph, privacy_cost, after, about, apart, known=known)
    screen.print_facts(
        "Privacy cost of predicting this graph"
        if known
        else f"Privacy cost of querying another graph's {about}",
        rows if accounts is None else [*rows, *accounts.before()],
    )
    # An error after the charge must state that the budget is spent, also if only printing fails.
    with report_charge_on_failure(ledger_of(graph.edge_set)):
        with using(chosen), nullcontext() if accounts is None else accounts.recorded_in_folder():
            proba = model.outputs(graph, PredictionOptions(**assumptions, allow_spend=allow_spend))
        if accounts is not None:
            update_compliance_report(run)
        table = predictions_table(proba, model.named_classes, graph.ids)
        for words_of_one in [] if accounts is None else accounts.after():
            screen.note(f"Ledger: {words_of_one}.")
        _deliver(model, table, out, screen, privacy_cost=privacy_cost, accounts=accounts)


def _other_graph(run: Path, model: "Estimator", data: TablesToPredict, public: PublicFlags) -> "Graph":
    """Read the other graph; unnamed columns default to those of the training.

    It needs no labels and no split. Columns that were not features in training are ignored.
    """
    from graphveil.data.tables.encoding import Encoding
    from graphveil.runs.run_folder import RunFolder, read_json

    # Without the run's internal part nothing is known of the tables of the training.
    internal, encoding = RunFolder(run), None
    known = internal.data_options
    # Training decided on these, unless flags do.
    if data.features is None and data.drop is None and data.categories is None:
        trained = internal.columns.is_file()
        encoding = Encoding.from_plain(read_json(internal.columns)) if trained else model.encoding_
    aside = tuple(known[role] for role in _NO_FEATURES if known.get(role) is not None)
    named: dict[str, Any] = {
        name: known.get(name) for name in ("id", "source", "target", "weight", "max_weight")
    }
    named |= {name: value for name, value in given(data).items() if value is not None}
    named |= {
        "directed": data.directed or bool(known.get("directed")),
        "to_predict": True,
        "task": None if model.named_classes else REGRESSION,
        "classes": model.named_classes or None,
        "aside": aside,
        "encoding": encoding,
    }
    if data.has_persons:
        named["rows"] = with_keys_of(known.get("rows", ()), data.rows or ())
        named["public"] = data.public or known.get("public")
    origin = DataOptions(**named).checked()
    graph = origin.load()
    return graph.replace(public=public.part(graph, origin, seed=0))


def _facts(
    run: Path,
    graph: "Graph",
    privacy_cost: "Guarantee | None",
    after: "Guarantee",
    about: str,
    apart: str | None,
    *,
    known: bool,
) -> list[tuple[str, str]]:
    """Return names and values of the privacy cost of a prediction.

    ``apart`` is what the graphs share none of, as the caller asserts. ``known`` is whether this graph was
    trained on or predicted before.
    """
    from graphveil._util.figures import counted, format_epsilon_delta
    from graphveil.publish.cards import attack_bound_text
    from graphveil.runs.charges import earlier_predictions
    from graphveil.runs.run_folder import RunFolder

    node = "person" if graph.num_far_ends else "node"
    rows = [("data", f"{counted(graph.num_nodes, node)}, {counted(graph.num_features, 'feature')}")]
    if privacy_cost is None:
        reason = f"this model does not query the {about} of a graph to predict"
        if known:
            reason = "this is the training graph, or a graph that was predicted before"
        return [*rows, ("privacy cost", f"none: {reason}")]
    if apart is not None:
        why = f"the maximum of both, since you assert that the graphs share no {apart}"
    else:
        why = _TOTAL_ADDS_UP[about]
    if not RunFolder(run).lock.is_file():
        why += "; earlier predictions add to it"
    elif count := len(earlier_predictions(run)):
        why += f"; including {counted(count, 'earlier prediction')} of other graphs"
    return [
        *rows,
        (
            "privacy cost",
            f"{format_epsilon_delta(privacy_cost.epsilon, privacy_cost.delta)}, on the {about} of this graph",
        ),
        ("attack bound", attack_bound_text(privacy_cost)),
        *(
            ("features", f"{format_epsilon_delta(one.epsilon, one.delta)}; {attack_bound_text(one)}")
            for one in privacy_cost.additional
        ),
        ("total with training", f"{format_epsilon_delta(after.epsilon, after.delta)}, {why}"),
        *(
            (
                "features, total",
                f"{format_epsilon_delta(one.epsilon, one.delta)}, since a person may be in both graphs",
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
    from graphveil._util.figures import counted
    from graphveil.publish.release_folder import NODE, PREDICTION

    record: dict[str, Any] = {"method": model.method, "nodes": table.num_rows, "out": None}
    record["charged"] = None if privacy_cost is None else privacy_cost.as_dict()
    record |= {"ledger": None, "training_ledger": None} if accounts is None else accounts.as_plain()
    record["guarantee"] = model.guarantee.as_dict()
    record["guarantee_with_predictions"] = model.guarantee_with_predictions.as_dict()
    count = f"{counted(table.num_rows, 'prediction')} {'is' if table.num_rows == 1 else 'are'}"
    deliver(table, out, screen, record, count=count, key="predictions", shown=(NODE, PREDICTION))

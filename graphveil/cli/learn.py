"""``collect learn``: LDP reports and public edges to a model and its predictions."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from graphveil.cli import collect, options
from graphveil.cli.console import Screen
from graphveil.cli.failures import report_output_failure
from graphveil.errors import ConfigError

if TYPE_CHECKING:
    from graphveil.local.collect import CollectionProtocol
    from graphveil.local.local_estimator import LocalEstimator

_DATA, _RUN = "Data", "Run"


def _flag(panel: str, name: str, text: str) -> Any:
    return typer.Option(name, help=text, rich_help_panel=panel, show_default=False)


Edges = Annotated[Path, _flag(_DATA, "--edges", "Table of the public edges, parquet or CSV.")]
Nodes = Annotated[
    Path | None,
    _flag(
        _DATA,
        "--nodes",
        "For a survey of labels alone: table of all nodes' public features, with the same ids.",
    ),
]
Source = Annotated[str, _flag(_DATA, "--source", "Column of the edges' first ends.")]
Target = Annotated[str, _flag(_DATA, "--target", "Column of the edges' second ends.")]
Out = Annotated[Path, _flag(_RUN, "--out", "A new folder for the model and its predictions.")]
Method = Annotated[
    Literal["lpgnn", "simgat", "label-posterior"],
    typer.Option("--method", help="What learns.", rich_help_panel=_RUN),
]


def learn(
    protocol: collect.ProtocolFile,
    encoded_reports: collect.EncodedReports,
    id: collect.Id,
    edges: Edges,
    source: Source,
    target: Target,
    out: Out,
    nodes: Nodes = None,
    directed: options.Directed = False,
    method: Method = "lpgnn",
    set: options.Set = None,
    seed: options.Seed = 0,
    skip_bad: collect.SkipBad = False,
    no_baseline: options.NoBaseline = False,
    ledger: collect.ClientLedger = None,
    json: options.Json = False,
) -> None:
    """Check LDP reports and learn from them over public edges; nothing is randomized a second time."""
    from graphveil.data.tables import id_array
    from graphveil.privacy.formatting import counted
    from graphveil.runs.collection import receive_on_edges

    loaded_protocol, screen = collect.read_protocol(protocol), Screen(as_json=json)
    collect.check_not_existing(out, "a model goes to a new folder; choose another --out")
    model = _model(method, loaded_protocol, set or [], seed)
    columns = {"id": id, "source": source, "target": target}
    received, adjacency, public = receive_on_edges(
        loaded_protocol,
        encoded_reports,
        edges,
        **columns,
        directed=directed,
        nodes=nodes,
        features=model.needs_features,
    )
    if not (skip_bad and received.accepted):
        received.check()
    with collect.charge_clients(loaded_protocol, ledger) as account:
        models = [model] if no_baseline else [model, model.no_graph_baseline()]
        with screen.bars() as bars:
            for each in models:
                each.fit_from_collector(
                    received.collector,
                    adjacency,
                    public_features=public,
                    ids=id_array(received.ids),
                    on_progress=bars,
                )
        model.save(out)
        count = received.collector.nodes
        with report_output_failure(out):
            where = f"the model and its predictions of {counted(count, 'node')} are in {out}"
            collect.print_received(screen, received, where)
            collect.print_warnings(screen, loaded_protocol)
            found = _agreements(models, loaded_protocol)
            _show(found, screen)
            screen.print_paragraph(model.guarantee.formal_statement())
            collect.print_account(screen, account)
            about_ledger = {"ledger": None if account is None else account.as_plain()}
            guarantee = {"guarantee": model.guarantee.as_dict()}
            about = {"protocol": loaded_protocol.digest.hex(), "path": str(out), "method": method}
            screen.emit_json(about | collect.report_counts(received) | found | guarantee | about_ledger)


def _agreements(models: "list[LocalEstimator]", protocol: "CollectionProtocol") -> dict[str, Any]:
    """Return how often each model predicts what validation nodes said, and how often these keep labels."""
    assert protocol.label is not None
    own, *others = [model.agreement_["val"] for model in models]
    baseline_agreement = others[0] if others else None
    return {"val_agreement": own, "mlp_val_agreement": baseline_agreement, "label_kept": protocol.label.keep}


def _show(found: dict[str, Any], screen: Screen) -> None:
    """Print the models side by side: by what was said, since no exact label is here."""
    from graphveil.runs.results import SAME_REPORTS

    names = {"val_agreement": "the model", "mlp_val_agreement": "mlp (no graph)"}
    rows = [(name, f"{100 * found[key]:.1f}") for key, name in names.items() if found[key] is not None]
    screen.table(("method", "agrees with what validation nodes said, %"), rows)
    kept = f"{100 * found['label_kept']:.1f} %"
    screen.print_line(
        f"A node keeps its label with probability {kept}: no model can be expected to agree more often.",
        style="dim",
    )
    if found["mlp_val_agreement"] is not None:
        screen.print_line(SAME_REPORTS, style="dim")


def _model(method: str, protocol: "CollectionProtocol", settings: list[str], seed: int) -> "LocalEstimator":
    from graphveil.runs.parameters import method_class, parse_settings

    cls = cast("type[LocalEstimator]", method_class(method))
    parameters = parse_settings(cls, settings)
    if "seed" in parameters:
        raise ConfigError("--set seed: the seed has a flag of its own; use --seed")
    return cls.from_protocol(protocol, seed=seed, **parameters)

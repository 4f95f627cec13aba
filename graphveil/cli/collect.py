"""``collect``: collection protocols, randomization of records as LDP reports, and learning from these."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from graphveil._util.escape import one_line
from graphveil.cli import options
from graphveil.cli.console import Screen
from graphveil.cli.failures import report_charge_on_failure, report_output_failure
from graphveil.cli.options import check_not_existing, flag
from graphveil.errors import ArtifactError, BudgetError, ConfigError

if TYPE_CHECKING:
    from graphveil.ledger.accounts import RunAccount
    from graphveil.local.collect import CollectionProtocol
    from graphveil.local.collect.report_tables import ReceivedReports
    from graphveil.local.local_estimator import LocalEstimator
    from graphveil.mechanisms import LocalDPClaim

_SURVEY, _PRIVACY, _FILES, _DATA, _RUN = "Collection", "Privacy", "Files", "Data", "Run"
_MAX_SHOWN_REJECTIONS = 20  # rejected rows that are printed one by one

_BY_LIST = "one for all, or a,b,c"
EpsX = Annotated[float | None, flag(_PRIVACY, "--eps-x", "Privacy budget of all features of a record.")]
EpsY = Annotated[
    float | None, flag(_PRIVACY, "--eps-y", "Privacy budget of a record's label. inf: not protected.")
]
Columns = Annotated[str | None, flag(_SURVEY, "--columns", "The features' names, a,b,c.")]
Dim = Annotated[int | None, flag(_SURVEY, "--dim", "Number of features, if they have no names.")]
Low = Annotated[str, flag(_SURVEY, "--low", f"Public lower bound: {_BY_LIST}. Lower values are clipped.")]
High = Annotated[str, flag(_SURVEY, "--high", f"Public upper bound: {_BY_LIST}.")]
Classes = Annotated[str | None, flag(_SURVEY, "--classes", "Class labels, a,b,c, or their number.")]
Purpose = Annotated[str, flag(_SURVEY, "--purpose", "Purpose of the collection, shown to clients.")]
Mechanism = Annotated[
    Literal["multi-bit", "feature-rr"], flag(_PRIVACY, "--mechanism", "Randomizer of features.")
]
LabelMechanismName = Annotated[
    Literal["rr", "subset", "hashing"],
    flag(
        _PRIVACY,
        "--label-mechanism",
        "How the label is reported: one class (rr), several (subset), or a public group of classes "
        "(hashing).",
    ),
]
Theta = Annotated[
    Path | None,
    flag(_PRIVACY, "--theta", "feature-rr: a JSON list of public weights, one per feature, adding up to 1."),
]
Set = Annotated[
    list[str] | None,
    flag(
        _PRIVACY,
        "--set",
        "Parameters of the mechanism: m of multi-bit; k, mode, decode of feature-rr.",
        metavar="KEY=VALUE",
    ),
]
ProtocolOut = Annotated[Path, flag(_FILES, "--out", "The survey's file, JSON.", show_default=False)]

ProtocolFile = Annotated[Path, flag(_FILES, "--protocol", "The survey's file.", show_default=False)]
Nodes = Annotated[Path, flag(_FILES, "--nodes", "Table of nodes, private.", show_default=False)]
Id = Annotated[str, flag(_FILES, "--id", "Column of the nodes' ids.", show_default=False)]
ReportsOut = Annotated[Path, flag(_FILES, "--out", "The LDP reports, parquet or CSV.", show_default=False)]
Internal = Annotated[
    Path | None,
    flag(_FILES, "--internal", "File for counts of clipped and missing values. Must not be published."),
]
EncodedReports = Annotated[
    Path, flag(_FILES, "--reports", "Table of ids and LDP reports.", show_default=False)
]
NodesOut = Annotated[Path, flag(_FILES, "--out", "The table of nodes, parquet or CSV.", show_default=False)]
LabelOut = Annotated[str, flag(_FILES, "--label", "Name of the label column.")]
SecretFile = Annotated[
    Path | None,
    flag(
        _FILES,
        "--secret",
        "File of your secret key. Created if it does not exist. Default: in your state folder.",
    ),
]
MaxEps = Annotated[
    float, flag(_PRIVACY, "--max-eps", "Largest epsilon per record. A protocol that needs more is rejected.")
]
AllowUnprotectedLabel = Annotated[
    bool, flag(_PRIVACY, "--allow-unprotected-label", "Send unprotected labels if the protocol requires it.")
]
ProtocolArgument = Annotated[
    Path, typer.Argument(help="The survey's file.", metavar="SURVEY", show_default=False)
]
SkipBad = Annotated[bool, flag(_FILES, "--skip-bad", "Skip and count invalid LDP reports.")]

ClientLedger = Annotated[
    str | None,
    flag(
        _PRIVACY,
        "--ledger",
        "The people who answered, as a ledger calls them: the survey is recorded there, once. Without it "
        "nothing is: LDP reports are all that is here.",
        metavar="NAME|URL|URL#NAME",
        show_default=False,
    ),
]


LearnEdges = Annotated[
    Path, flag(_DATA, "--edges", "Table of the public edges, parquet or CSV.", show_default=False)
]
LearnNodes = Annotated[
    Path | None,
    flag(
        _DATA,
        "--nodes",
        "For a survey of labels alone: table of all nodes' public features, with the same ids.",
        show_default=False,
    ),
]
LearnSource = Annotated[str, flag(_DATA, "--source", "Column of the edges' first ends.", show_default=False)]
LearnTarget = Annotated[str, flag(_DATA, "--target", "Column of the edges' second ends.", show_default=False)]
LearnOut = Annotated[
    Path, flag(_RUN, "--out", "A new folder for the model and its predictions.", show_default=False)
]
LearnMethod = Annotated[
    Literal["lpgnn", "simgat", "label-posterior"], flag(_RUN, "--method", "Method to train.")
]


def protocol(
    out: ProtocolOut,
    eps_x: EpsX = None,
    columns: Columns = None,
    dim: Dim = None,
    low: Low = "0",
    high: High = "1",
    mechanism: Mechanism = "multi-bit",
    theta: Theta = None,
    set: Set = None,
    eps_y: EpsY = None,
    classes: Classes = None,
    label_mechanism: LabelMechanismName = "rr",
    purpose: Purpose = "",
    json: options.Json = False,
) -> None:
    """Write a collection protocol."""
    from graphveil.local.collect.encoded_report import report_bytes
    from graphveil.runs.collection import ProtocolBuilder

    loaded_protocol = ProtocolBuilder(
        eps_x=eps_x,
        eps_y=eps_y,
        columns=columns,
        dim=dim,
        low=low,
        high=high,
        classes=classes,
        mechanism=mechanism,
        label_mechanism=label_mechanism,
        theta=theta,
        purpose=purpose,
        settings=set or (),
    ).protocol()
    check_not_existing(out, "answers belong to one survey; choose another --out for a new one")
    screen = Screen(as_json=json)
    _write(out, loaded_protocol.to_json(), private=False)
    screen.print_line(f"The survey is in {out}, an answer to it has {report_bytes(loaded_protocol)} bytes")
    screen.print_paragraph(loaded_protocol.formal_statement())
    _warn_if_rejected(screen, loaded_protocol)
    screen.emit_json(
        _json_result(loaded_protocol, out, loaded_protocol.formal_statement())
        | {"report_bytes": report_bytes(loaded_protocol)}
    )


def show(protocol: ProtocolArgument, json: options.Json = False) -> None:
    """Show a collection protocol and its guarantee."""
    from graphveil.local.collect import MAX_EPS
    from graphveil.local.collect.protocol import largest_share

    loaded_protocol, screen = read_protocol(protocol), Screen(as_json=json)
    _show_protocol(screen, loaded_protocol, on_clients=True)
    refusal = _warn_if_rejected(screen, loaded_protocol)
    features, label = loaded_protocol.kept
    screen.emit_json(
        _json_result(loaded_protocol, protocol, loaded_protocol.formal_statement())
        | {
            "purpose": loaded_protocol.purpose,
            "columns": list(loaded_protocol.columns),
            "largest_share": largest_share(loaded_protocol),
            "kept": {"features": float(features.max(initial=0)), "label": label},
            "max_eps": MAX_EPS,
            "answered": not refusal,
        }
    )


def randomize(
    protocol: ProtocolFile,
    nodes: Nodes,
    id: Id,
    out: ReportsOut,
    label: options.Label = None,
    internal: Internal = None,
    secret: SecretFile = None,
    max_eps: MaxEps = 8.0,
    allow_unprotected_label: AllowUnprotectedLabel = False,
    ledger: options.Ledger = None,
    json: options.Json = False,
) -> None:
    """Randomize each record of a table of nodes into an LDP report."""
    from graphveil.data import tables
    from graphveil.ledger.accounts import CollectionAccount
    from graphveil.local.collect import check_limits, client_secret
    from graphveil.local.collect.report_tables import REPORT_COLUMN, read_records
    from graphveil.privacy.statements import format_count_with_verb

    loaded_protocol, screen = read_protocol(protocol), Screen(as_json=json)
    _show_protocol(screen, loaded_protocol, on_clients=False)
    check_limits(loaded_protocol, max_eps=max_eps, allow_unprotected_label=allow_unprotected_label)
    tables.check_output(out)
    check_not_existing(
        out, "a second answer doubles the privacy loss of its owner; send the LDP reports that exist"
    )
    if internal is not None:
        check_not_existing(internal, "--internal writes a file of its own; choose another one")
    records = read_records(nodes, loaded_protocol, id=id, label=label)
    known = CollectionAccount.from_records(
        records.ids.to_pylist(), loaded_protocol.guarantee, loaded_protocol.digest, ledger
    )
    encoded_reports = records.encoded_reports(
        loaded_protocol,
        id,
        secret=client_secret(secret),
        max_eps=max_eps,
        allow_unprotected_label=allow_unprotected_label,
    )
    sent = zip(*(encoded_reports[name].to_pylist() for name in (id, REPORT_COLUMN)), strict=True)
    with report_charge_on_failure(known.account.ledger, charged_message(loaded_protocol, again=True)):
        known.charge_reports(sent, records.each())
        if internal is not None:
            kept = {"clipped_values": records.outside(loaded_protocol), "missing_labels": records.unlabeled}
            _write(internal, dumps(kept) + "\n")
        try:
            tables.write(out, encoded_reports)
        except ConfigError:
            if internal is not None:
                internal.unlink()
            raise
        formal_statement = loaded_protocol.formal_statement(on_clients=False)
        with report_output_failure(out):
            count = format_count_with_verb(encoded_reports.num_rows, "report")
            screen.print_line(f"{count} in {out}; keep them: no client may report twice")
            screen.print_paragraph(f"In the ledger: {known.account.after()}.")
            ledger_result = {"reports": encoded_reports.num_rows, "ledger": known.account.as_plain()}
            screen.emit_json(_json_result(loaded_protocol, out, formal_statement) | ledger_result)


def decode(
    protocol: ProtocolFile,
    encoded_reports: EncodedReports,
    id: Id,
    out: NodesOut,
    label: LabelOut = "label",
    skip_bad: SkipBad = False,
    ledger: ClientLedger = None,
    json: options.Json = False,
) -> None:
    """Estimate features from LDP reports and write a table of nodes."""
    from graphveil.data import tables
    from graphveil.local.collect.report_tables import read_reports, receive_reports

    loaded_protocol, screen = read_protocol(protocol), Screen(as_json=json)
    tables.check_output(out)
    check_not_existing(out, "decode writes a file of its own. Choose another --out")
    received = receive_reports(loaded_protocol, *read_reports(encoded_reports, id=id))
    if not (skip_bad and received.accepted):
        received.check()
    table = received.estimates(id, label)
    with charge_clients(loaded_protocol, ledger) as account:
        tables.write(out, table)
        with report_output_failure(out):
            print_received(screen, received, f"the nodes are in {out}")
            formal_statement = loaded_protocol.formal_statement(on_clients=None)
            screen.print_paragraph(formal_statement)
            print_account(screen, account)
            plain = {"ledger": None if account is None else account.as_plain()}
            screen.emit_json(
                _json_result(loaded_protocol, out, formal_statement) | report_counts(received) | plain
            )


@contextmanager
def charge_clients(protocol: "CollectionProtocol", named: str | None) -> "Iterator[RunAccount | None]":
    """Charge people with ids for a collection protocol, once, and report the charge if the block fails."""
    from graphveil.ledger.accounts import CollectionAccount

    if named is None:
        yield None
        return
    known = CollectionAccount.from_name(named, protocol.guarantee, protocol.digest)
    with report_charge_on_failure(known.account.ledger, charged_message(protocol)):
        known.charge_received()
        yield known.account


def charged_message(protocol: "CollectionProtocol", *, again: bool = False) -> str:
    """Return what an LDP report has charged, for a command that fails afterwards."""
    from graphveil._util.ldp_statements import exact_sum_text

    budgets = [claim.epsilon for claim in protocol.claims]
    retry = "; the same command again sends the same LDP reports and charges nothing more" if again else ""
    return f"ε = {exact_sum_text(*budgets)} was spent and cannot be refunded{retry}"


def print_account(screen: Screen, account: "RunAccount | None") -> None:
    """Print what people have reported over all collections, if they have an account."""
    if account is not None:
        screen.print_paragraph(f"In the ledger: {account.after()}.")


def print_received(screen: Screen, received: "ReceivedReports", where: str) -> None:
    """Print how many LDP reports were accepted, the rejected rows, and the location of the nodes."""
    from graphveil.privacy.statements import counted

    for row, reason in list(received.refused.items())[:_MAX_SHOWN_REJECTIONS]:
        screen.note(f"refused, row {row}: {reason}")
    refused, silent = len(received.refused), received.collector.nodes - received.accepted
    screen.print_line(f"{counted(received.accepted, 'message')} accepted and {refused:,} refused; {where}")
    if silent:
        screen.print_line(
            f"{silent:,} of them have no LDP report: the middle of each feature's range, and no label"
        )


def print_warnings(screen: Screen, protocol: "CollectionProtocol") -> None:
    """Print a warning about values that are reported without noise."""
    for line in protocol.warnings:
        screen.print_line(line, style="bold")


def _show_protocol(screen: Screen, protocol: "CollectionProtocol", *, on_clients: bool) -> None:
    """Show a collection protocol; its texts come from its author and are escaped."""
    from graphveil.local.collect.protocol import feature_rows, overview

    screen.table(("the survey", ""), [(name, one_line(value)) for name, value in overview(protocol)])
    if rows := feature_rows(protocol):
        head = ("tells most", "low", "high", "epsilon", "kept")
        shown = [(one_line(name), *numbers) for name, *numbers in rows]
        screen.table(head, shown, right=(1, 2, 3, 4))
    screen.print_paragraph(protocol.formal_statement(on_clients=on_clients))


def _warn_if_rejected(screen: Screen, protocol: "CollectionProtocol") -> bool:
    """Print a warning if clients reject a protocol at the default limit; return whether they do."""
    from graphveil.local.collect import check_limits

    try:
        check_limits(protocol)
    except BudgetError as error:
        screen.print_line(f"It is not answered unless that is agreed to: {error}", style="bold")
        return True
    return False


def report_counts(received: "ReceivedReports") -> dict[str, Any]:
    """Return the fields of ``--json`` about LDP reports."""
    return {
        "nodes": received.collector.nodes,
        "accepted": received.accepted,
        "refused": len(received.refused),
        "refused_rows": list(received.refused),
    }


def _json_result(loaded_protocol: "CollectionProtocol", out: Path, formal_statement: str) -> dict[str, Any]:
    """Return the JSON object that all of these commands print."""
    features, label = loaded_protocol.claims
    guarantee = {
        "unit": "local-attributes",
        "valid": loaded_protocol.claim.certified,
        "epsilon": _finite(loaded_protocol.claim),
        "eps_x": _finite(features),
        "eps_y": _finite(label),
        "not_protected": list(loaded_protocol.unprotected_parts),
        "delta": loaded_protocol.claim.delta,
        "deviations": list(loaded_protocol.claim.deviations),
        "statement": formal_statement,
    }
    return {"protocol": loaded_protocol.digest.hex(), "path": str(out), "guarantee": guarantee}


def _finite(claim: "LocalDPClaim") -> float | None:
    """Return a budget for JSON, null if nothing is protected."""
    return None if math.isinf(claim.epsilon) else claim.epsilon


def read_protocol(path: Path) -> "CollectionProtocol":
    """Read a collection protocol, or raise an error for the file."""
    from graphveil.local.collect import CollectionProtocol
    from graphveil.local.collect.protocol import MAX_TEXT

    try:
        with path.open("rb") as file:  # a few more bytes than the longest has, and no gigabytes
            return CollectionProtocol.from_json(file.read(4 * MAX_TEXT + 4).decode())
    except (OSError, UnicodeDecodeError):
        raise ArtifactError(f"cannot read a collection protocol from {path}; check --protocol") from None


def _write(path: Path, text: str, *, private: bool = True) -> None:
    from graphveil._util.files import write_atomic

    try:
        write_atomic(path, text.encode(), private=private)
    except OSError as error:
        raise ConfigError(f"cannot write {path} ({error.strerror}); choose another file") from None


def learn(
    protocol: ProtocolFile,
    encoded_reports: EncodedReports,
    id: Id,
    edges: LearnEdges,
    source: LearnSource,
    target: LearnTarget,
    out: LearnOut,
    nodes: LearnNodes = None,
    directed: options.Directed = False,
    method: LearnMethod = "lpgnn",
    set: options.Set = None,
    seed: options.Seed = 0,
    skip_bad: SkipBad = False,
    no_baseline: options.NoBaseline = False,
    ledger: ClientLedger = None,
    json: options.Json = False,
) -> None:
    """Train a model on LDP reports and public edges."""
    from graphveil.data.tables import id_array
    from graphveil.privacy.statements import counted
    from graphveil.runs.collection import receive_on_edges

    loaded_protocol, screen = read_protocol(protocol), Screen(as_json=json)
    check_not_existing(out, "a model goes to a new folder; choose another --out")
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
    with charge_clients(loaded_protocol, ledger) as account:
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
            print_received(screen, received, where)
            print_warnings(screen, loaded_protocol)
            found = _agreements(models, loaded_protocol)
            _show(found, screen)
            screen.print_paragraph(model.guarantee.formal_statement())
            print_account(screen, account)
            about_ledger = {"ledger": None if account is None else account.as_plain()}
            guarantee = {"guarantee": model.guarantee.as_dict()}
            about = {"protocol": loaded_protocol.digest.hex(), "path": str(out), "method": method}
            screen.emit_json(about | report_counts(received) | found | guarantee | about_ledger)


def _agreements(models: "list[LocalEstimator]", protocol: "CollectionProtocol") -> dict[str, Any]:
    """Return each model's accuracy on the reported validation labels, and how often these are unchanged."""
    assert protocol.label is not None
    own, *others = [model.agreement_["val"] for model in models]
    baseline_agreement = others[0] if others else None
    return {"val_agreement": own, "mlp_val_agreement": baseline_agreement, "label_kept": protocol.label.keep}


def _show(found: dict[str, Any], screen: Screen) -> None:
    """Print the accuracies of the models on reported labels, since exact labels are not available."""
    from graphveil.runs.results import SAME_REPORTS

    names = {"val_agreement": "the model", "mlp_val_agreement": "mlp (no graph)"}
    rows = [(name, f"{100 * found[key]:.1f}") for key, name in names.items() if found[key] is not None]
    screen.table(("method", "agreement with reported validation labels, %"), rows)
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

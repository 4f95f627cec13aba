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
from graphveil.cli.failures import report_charge_on_failure, report_output_failure, words_of
from graphveil.cli.options import check_not_existing, flag
from graphveil.errors import ArtifactError, BudgetError, ConfigError

if TYPE_CHECKING:
    from graphveil.auto import AutoClassifier
    from graphveil.ledger.accounts import RunAccount
    from graphveil.local.collect import CollectionProtocol
    from graphveil.local.collect.report_tables import CheckedReports
    from graphveil.local.label_posterior import LabelPosterior
    from graphveil.local.lpgnn import LPGNN
    from graphveil.local.simgat import SimGAT

    LocalModel = LPGNN | SimGAT | LabelPosterior | AutoClassifier
    from graphveil.mechanisms import LocalDPClaim

_SURVEY, _PRIVACY, _FILES, _DATA, _RUN = "Collection", "Privacy", "Files", "Data", "Run"
_MAX_SHOWN_REJECTIONS = 20  # rejected rows that are printed one by one

_BY_LIST = "one number for all, or a comma-separated list"
EpsX = Annotated[
    float | None, flag(_PRIVACY, "--eps-x", "Privacy budget epsilon of all features of a record.")
]
EpsY = Annotated[
    float | None,
    flag(_PRIVACY, "--eps-y", "Privacy budget epsilon of a record's label, or inf for no protection."),
]
Columns = Annotated[
    str | None, flag(_SURVEY, "--columns", "Comma-separated feature names.", metavar="NAME,...")
]
Dim = Annotated[int | None, flag(_SURVEY, "--dim", "Number of features, instead of --columns.")]
Low = Annotated[
    str,
    flag(
        _SURVEY,
        "--low",
        f"Public lower bound of features: {_BY_LIST}. Lower values are clipped.",
        metavar="NUMBER,...",
    ),
]
High = Annotated[
    str, flag(_SURVEY, "--high", f"Public upper bound of features: {_BY_LIST}.", metavar="NUMBER,...")
]
Classes = Annotated[
    str | None,
    flag(_SURVEY, "--classes", "Comma-separated class labels, or the number of classes.", metavar="NAME,..."),
]
Purpose = Annotated[str, flag(_SURVEY, "--purpose", "Purpose of the collection, shown to clients.")]
Mechanism = Annotated[
    Literal["multi-bit", "feature-rr"], flag(_PRIVACY, "--mechanism", "Mechanism that randomizes features.")
]
LabelMechanismName = Annotated[
    Literal["rr", "subset", "hashing"],
    flag(
        _PRIVACY,
        "--label-mechanism",
        "Mechanism that randomizes the label: rr (randomized response), subset (subset selection), or "
        "hashing (local hashing).",
    ),
]
Theta = Annotated[
    Path | None,
    flag(
        _PRIVACY,
        "--theta",
        "JSON file with one public weight per feature, which sum to 1. For feature-rr.",
        metavar="FILE",
    ),
]
Set = Annotated[
    list[str] | None,
    flag(
        _PRIVACY,
        "--set",
        "Parameter of the mechanism: m of multi-bit; k, mode and decode of feature-rr. Repeatable.",
        metavar="NAME=VALUE",
    ),
]
ProtocolOut = Annotated[
    Path, flag(_FILES, "--out", "Protocol file to write (JSON).", show_default=False, metavar="FILE")
]

ProtocolFile = Annotated[
    Path, flag(_FILES, "--protocol", "Protocol file.", show_default=False, metavar="FILE")
]
Nodes = Annotated[Path, flag(_FILES, "--nodes", "Node table (private).", show_default=False, metavar="FILE")]
Id = Annotated[str, flag(_FILES, "--id", "Column with node ids.", show_default=False, metavar="COLUMN")]
ReportsOut = Annotated[
    Path,
    flag(
        _FILES,
        "--out",
        "Table of LDP reports to write (.parquet or .csv).",
        show_default=False,
        metavar="FILE",
    ),
]
Internal = Annotated[
    Path | None,
    flag(
        _FILES,
        "--internal",
        "File for the numbers of clipped and missing values. Do not publish it.",
        metavar="FILE",
    ),
]
EncodedReports = Annotated[
    Path, flag(_FILES, "--reports", "Table of ids and LDP reports.", show_default=False, metavar="FILE")
]
NodesOut = Annotated[
    Path, flag(_FILES, "--out", "Node table to write (.parquet or .csv).", show_default=False, metavar="FILE")
]
LabelOut = Annotated[str, flag(_FILES, "--label", "Name of the label column to write.", metavar="COLUMN")]
SecretFile = Annotated[
    Path | None,
    flag(
        _FILES,
        "--secret",
        "File with your secret key. Created if it does not exist. Default: in your state folder.",
        metavar="FILE",
    ),
]
MaxEps = Annotated[
    float, flag(_PRIVACY, "--max-eps", "Maximum epsilon per record. A protocol that needs more is rejected.")
]
AllowUnprotectedLabel = Annotated[
    bool,
    flag(
        _PRIVACY, "--allow-unprotected-label", "Send labels without protection if the protocol requires it."
    ),
]
ProtocolArgument = Annotated[
    Path, typer.Argument(help="Protocol file.", metavar="PROTOCOL", show_default=False)
]
SkipBad = Annotated[bool, flag(_FILES, "--skip-bad", "Skip and count invalid LDP reports.")]

ClientLedger = Annotated[
    str | None,
    flag(
        _PRIVACY,
        "--ledger",
        "Ledger account of the people who reported, charged once per protocol. Default: no account is "
        "charged.",
        metavar="NAME|URL|URL#NAME",
        show_default=False,
    ),
]


LearnEdges = Annotated[
    Path,
    flag(_DATA, "--edges", "Table of public edges (.parquet or .csv).", show_default=False, metavar="FILE"),
]
LearnNodes = Annotated[
    Path | None,
    flag(
        _DATA,
        "--nodes",
        "Table of public features of all nodes, with the same ids. For a protocol without features.",
        show_default=False,
        metavar="FILE",
    ),
]
LearnSource = Annotated[
    str, flag(_DATA, "--source", "Column with source nodes.", show_default=False, metavar="COLUMN")
]
LearnTarget = Annotated[
    str, flag(_DATA, "--target", "Column with target nodes.", show_default=False, metavar="COLUMN")
]
LearnOut = Annotated[
    Path,
    flag(
        _RUN, "--out", "New folder for the model and its predictions.", show_default=False, metavar="FOLDER"
    ),
]
LearnMethod = Annotated[
    Literal["lpgnn", "simgat", "label-posterior", "auto"],
    flag(_RUN, "--method", "Method to train; auto averages all by the likelihood of held-out LDP reports."),
]

NoBaseline = Annotated[
    bool,
    flag(
        "Training",
        "--no-baseline",
        "Skip the no-graph baseline (mlp), which uses the same LDP reports and spends no additional budget.",
    ),
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
    check_not_existing(out, "LDP reports belong to one protocol. Choose another --out.")
    screen = Screen(as_json=json)
    _write(out, loaded_protocol.to_json(), private=False)
    screen.print_line(f"Protocol: {out}. An LDP report has {report_bytes(loaded_protocol)} bytes.")
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
    rejection = _warn_if_rejected(screen, loaded_protocol)
    features, label = loaded_protocol.kept
    screen.emit_json(
        _json_result(loaded_protocol, protocol, loaded_protocol.formal_statement())
        | {
            "purpose": loaded_protocol.purpose,
            "columns": list(loaded_protocol.columns),
            "largest_share": largest_share(loaded_protocol),
            "kept": {"features": float(features.max(initial=0)), "label": label},
            "max_eps": MAX_EPS,
            "answered": not rejection,
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
    from graphveil._util.figures import counted
    from graphveil.data import tables
    from graphveil.ledger.accounts import CollectionAccount
    from graphveil.local.collect import check_limits, client_secret
    from graphveil.local.collect.report_tables import REPORT_COLUMN, read_records

    loaded_protocol, screen = read_protocol(protocol), Screen(as_json=json)
    _show_protocol(screen, loaded_protocol, on_clients=False)
    check_limits(loaded_protocol, max_eps=max_eps, allow_unprotected_label=allow_unprotected_label)
    tables.check_output(out)
    check_not_existing(out, "A second LDP report would double the privacy loss. Send the existing reports.")
    if internal is not None:
        check_not_existing(internal, "Choose another --internal.")
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
            count = counted(encoded_reports.num_rows, "LDP report")
            screen.print_line(f"{count}: {out}. Keep the file, because no client may report twice.")
            screen.print_paragraph(f"Ledger: {known.account.after()}.")
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
    check_not_existing(out, "Choose another --out.")
    received = receive_reports(loaded_protocol, *read_reports(encoded_reports, id=id))
    if not (skip_bad and received.accepted):
        received.check()
    table = received.estimates(id, label)
    with charge_clients(loaded_protocol, ledger) as account:
        tables.write(out, table)
        with report_output_failure(out):
            print_received(screen, received, f"Node table: {out}")
            formal_statement = loaded_protocol.formal_statement(on_clients=None)
            screen.print_paragraph(formal_statement)
            print_account(screen, account)
            plain = {"ledger": None if account is None else account.as_plain()}
            screen.emit_json(
                _json_result(loaded_protocol, out, formal_statement) | report_counts(received) | plain
            )


@contextmanager
def charge_clients(protocol: "CollectionProtocol", named: str | None) -> "Iterator[RunAccount | None]":
    """Charge the people with these ids for a collection protocol; report the charge if a later step fails."""
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
    retry = "The same command sends the same LDP reports again, without another charge. " if again else ""
    return f"{retry}ε = {exact_sum_text(*budgets)} was spent and cannot be refunded."


def print_account(screen: Screen, account: "RunAccount | None") -> None:
    """Print what people have reported over all collections, if they have an account."""
    if account is not None:
        screen.print_paragraph(f"Ledger: {account.after()}.")


def print_received(screen: Screen, received: "CheckedReports", where: str) -> None:
    """Print how many LDP reports were accepted, the rejected rows, and the location of the nodes."""
    from graphveil._util.figures import counted

    for row, reason in list(received.rejected.items())[:_MAX_SHOWN_REJECTIONS]:
        screen.note(f"Rejected row {row}: {reason}")
    rejected, silent = len(received.rejected), received.collector.nodes - received.accepted
    screen.print_line(f"{counted(received.accepted, 'LDP report')} accepted, {rejected:,} rejected. {where}")
    if silent:
        screen.print_line(
            f"{counted(silent, 'node')} without an LDP report: features in the middle of their ranges, no "
            "label"
        )


def _show_protocol(screen: Screen, protocol: "CollectionProtocol", *, on_clients: bool) -> None:
    """Show a collection protocol; its texts come from its author and are escaped."""
    from graphveil.local.collect.protocol import feature_rows, overview

    screen.table(("protocol", ""), [(name, one_line(value)) for name, value in overview(protocol)])
    if rows := feature_rows(protocol):
        head = ("largest shares", "low", "high", "epsilon", "kept")
        shown = [(one_line(name), *numbers) for name, *numbers in rows]
        screen.table(head, shown, right=(1, 2, 3, 4))
    screen.print_paragraph(protocol.formal_statement(on_clients=on_clients))


def _warn_if_rejected(screen: Screen, protocol: "CollectionProtocol") -> bool:
    """Print a warning if clients reject a protocol at the default limit; return whether they do."""
    from graphveil.local.collect import check_limits

    try:
        check_limits(protocol)
    except BudgetError as error:
        screen.print_line(f"Clients reject this protocol by default: {words_of(error)}", style="bold")
        return True
    return False


def report_counts(received: "CheckedReports") -> dict[str, Any]:
    """Return the fields of ``--json`` about LDP reports."""
    return {
        "nodes": received.collector.nodes,
        "accepted": received.accepted,
        "rejected": len(received.rejected),
        "rejected_rows": list(received.rejected),
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
        raise ArtifactError(f"Cannot read a collection protocol from {path}. Check --protocol.") from None


def _write(path: Path, text: str, *, private: bool = True) -> None:
    from graphveil._util.files import write_atomic

    try:
        write_atomic(path, text.encode(), private=private)
    except OSError as error:
        raise ConfigError(f"Cannot write {path} ({error.strerror}). Choose another file.") from None


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
    no_baseline: NoBaseline = False,
    ledger: ClientLedger = None,
    json: options.Json = False,
) -> None:
    """Train a model on LDP reports and public edges."""
    from graphveil._util.figures import counted
    from graphveil.data.tables import id_array
    from graphveil.publish.results import SAME_REPORTS, choice_text
    from graphveil.runs.collection import receive_on_edges
    from graphveil.runs.parameters import method_class, parse_settings

    loaded_protocol, screen = read_protocol(protocol), Screen(as_json=json)
    check_not_existing(out, "Choose another --out.")
    cls = cast("type[LocalModel]", method_class(method))
    parameters = parse_settings(cls, set or [])
    if "seed" in parameters:
        raise ConfigError("The seed is not a parameter of a method. Use --seed instead of --set seed.")
    if method == "auto" and loaded_protocol.features is None and nodes is None:
        parameters.setdefault("eps_x", 0.0)  # only labels are available
    model = cls.from_protocol(loaded_protocol, seed=seed, **parameters)
    columns = {"id": id, "source": source, "target": target}
    received, adjacency, public = receive_on_edges(
        loaded_protocol,
        encoded_reports,
        edges,
        **columns,
        directed=directed,
        nodes=nodes,
        features=not cls.reads_labels_only(parameters),
    )
    if not (skip_bad and received.accepted):
        received.check()
    with charge_clients(loaded_protocol, ledger) as account:
        models: list[LocalModel] = [model]
        if not no_baseline:
            models.append(cast("LocalModel", model.no_graph_baseline()))
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
            where = f"Model and predictions of {counted(count, 'node')}: {out}"
            print_received(screen, received, where)
            for line in loaded_protocol.warnings:  # about values that are reported without noise
                screen.print_line(line, style="bold")
            # Accuracies on reported validation labels, since exact labels are not available.
            shares = [one.agreement_["val"] for one in models]
            names = ("the model", "mlp (no graph)")[: len(shares)]
            choice = getattr(model, "choice_", None)
            if choice is not None:
                screen.print_line(choice_text(choice))
            rows = [(name, f"{100 * share:.1f}") for name, share in zip(names, shares, strict=True)]
            screen.table(("method", "agreement with reported validation labels, %"), rows)
            assert loaded_protocol.label is not None
            kept = loaded_protocol.label.keep
            screen.print_line(
                f"A node reports its true label with probability {100 * kept:.1f} %, so no model can be "
                "expected to agree more often.",
                style="dim",
            )
            if not no_baseline:
                screen.print_line(SAME_REPORTS, style="dim")
            found = {
                "val_agreement": shares[0],
                "mlp_val_agreement": None if no_baseline else shares[1],
                "label_kept": kept,
                "choice": choice,
            }
            screen.print_paragraph(model.guarantee.formal_statement())
            print_account(screen, account)
            about_ledger = {"ledger": None if account is None else account.as_plain()}
            guarantee = {"guarantee": model.guarantee.as_dict()}
            about = {"protocol": loaded_protocol.digest.hex(), "path": str(out), "method": method}
            screen.emit_json(about | report_counts(received) | found | guarantee | about_ledger)

"""``collect``: collection protocols, randomization of records as LDP reports, and learning from these.

Files:
    protocol (FILE): Protocol file.
    id (COLUMN): Column with node ids.
    reports (FILE): Table of ids and LDP reports.
    skip_bad: Skip and count invalid LDP reports.

Privacy:
    ledger (NAME|URL|URL#NAME): Ledger account of the people who reported, charged once per protocol. Default:
        no account is charged.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from graphveil._util.escape import one_line
from graphveil.cli.console import Screen
from graphveil.cli.failures import report_charge_on_failure, report_output_failure, words_of
from graphveil.cli.options import check_not_existing
from graphveil.errors import ArtifactError, BudgetError, ConfigError
from graphveil.runs.collection import ProtocolBuilder

if TYPE_CHECKING:
    from graphveil.auto import AutoClassifier
    from graphveil.local.collect import CollectionProtocol
    from graphveil.local.collect.report_tables import CheckedReports
    from graphveil.local.label_posterior import LabelPosterior
    from graphveil.local.lpgnn import LPGNN
    from graphveil.papers.simgat import SimGAT
    from graphveil.runs.charges import RunAccount

    LocalModel = LPGNN | SimGAT | LabelPosterior | AutoClassifier
    from graphveil.mechanisms import LocalDPClaim

_MAX_SHOWN_REJECTIONS = 20  # rejected rows that are printed one by one


def protocol(*, out: Path, flags: ProtocolBuilder, json: bool = False) -> None:
    """Write a collection protocol.

    Files:
        out (FILE): Protocol file to write (JSON).

    Examples:
        graphveil collect protocol --columns age,visits --high 100 --eps-x 2 --out survey.json
        graphveil collect protocol --dim 8 --classes yes,no --eps-x 2 --eps-y 1 --out survey.json
    """
    from graphveil.local.collect.protocol import report_bytes

    loaded_protocol = flags.protocol()
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


def show(protocol: Path, *, json: bool = False) -> None:
    """Show a collection protocol and its guarantee.

    Args:
        protocol (PROTOCOL): Protocol file.

    Examples:
        graphveil collect show survey.json
        graphveil collect show survey.json --json
    """
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
    *,
    protocol: Path,
    nodes: Path,
    id: str,
    out: Path,
    label: str | None = None,
    internal: Path | None = None,
    secret: Path | None = None,
    max_eps: float = 8.0,
    allow_unprotected_label: bool = False,
    ledger: str | None = None,
    json: bool = False,
) -> None:
    """Randomize each record of a table of nodes into an LDP report.

    Files:
        nodes (FILE): Node table (private).
        out (FILE): Table of LDP reports to write (.parquet or .csv).
        internal (FILE): File for the numbers of clipped and missing values. Do not publish it.
        secret (FILE): File with your secret key. Created if it does not exist. Default: in your state
            folder.

    Privacy:
        ledger (NAME|URL|URL#NAME): Ledger account to charge: a name in your ledger, or a database URL and a
            name. Default: the account of these data in your ledger.
        max_eps: Maximum epsilon per record. A protocol that needs more is rejected.
        allow_unprotected_label: Send labels without protection if the protocol requires it.

    Examples:
        graphveil collect randomize --protocol survey.json --nodes own.csv --id user --label plan
            --out reports.csv
        graphveil collect randomize --protocol survey.json --nodes own.csv --id user --label plan
            --max-eps 3 --out reports.csv
    """
    from graphveil._util.figures import counted
    from graphveil.data import tables
    from graphveil.data.fingerprint import id_fingerprint_parts
    from graphveil.local.collect import check_limits, client_secret
    from graphveil.local.collect.report_tables import REPORT_COLUMN, read_records
    from graphveil.runs.charges import RunAccount, charge_reports

    loaded_protocol, screen = read_protocol(protocol), Screen(as_json=json)
    _show_protocol(screen, loaded_protocol, on_clients=False)
    check_limits(loaded_protocol, max_eps=max_eps, allow_unprotected_label=allow_unprotected_label)
    tables.check_output(out)
    check_not_existing(out, "A second LDP report would double the privacy loss. Send the existing reports.")
    if internal is not None:
        check_not_existing(internal, "Choose another --internal.")
    records = read_records(nodes, loaded_protocol, id=id, label=label)
    people = id_fingerprint_parts(records.ids.to_pylist())
    account = RunAccount.from_parts(people, loaded_protocol.guarantee, ledger)
    encoded_reports = records.encoded_reports(
        loaded_protocol,
        id,
        secret=client_secret(secret),
        max_eps=max_eps,
        allow_unprotected_label=allow_unprotected_label,
    )
    sent = zip(*(encoded_reports[name].to_pylist() for name in (id, REPORT_COLUMN)), strict=True)
    with report_charge_on_failure(account.ledger, charged_message(loaded_protocol, again=True)):
        charge_reports(account, loaded_protocol, sent, records.each())
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
            screen.print_paragraph(f"Ledger: {account.after()}.")
            ledger_result = {"reports": encoded_reports.num_rows, "ledger": account.as_plain()}
            screen.emit_json(_json_result(loaded_protocol, out, formal_statement) | ledger_result)


def decode(
    *,
    protocol: Path,
    reports: Path,
    id: str,
    out: Path,
    label: str = "label",
    skip_bad: bool = False,
    ledger: str | None = None,
    json: bool = False,
) -> None:
    """Estimate features from LDP reports and write a table of nodes.

    Files:
        out (FILE): Node table to write (.parquet or .csv).
        label (COLUMN): Name of the label column to write.

    Examples:
        graphveil collect decode --protocol survey.json --reports reports.csv --id user --out nodes.csv
        graphveil collect decode --protocol survey.json --reports reports.csv --id user --skip-bad
            --out nodes.csv
    """
    from graphveil.data import tables
    from graphveil.local.collect.report_tables import read_reports, receive_reports

    loaded_protocol, screen = read_protocol(protocol), Screen(as_json=json)
    tables.check_output(out)
    check_not_existing(out, "Choose another --out.")
    received = receive_reports(loaded_protocol, *read_reports(reports, id=id))
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
    from graphveil.runs.charges import RunAccount, charge_received

    if named is None:
        yield None
        return
    account = RunAccount.from_name(named, protocol.guarantee)
    with report_charge_on_failure(account.ledger, charged_message(protocol)):
        charge_received(account, protocol)
        yield account


def charged_message(protocol: "CollectionProtocol", *, again: bool = False) -> str:
    from graphveil._util.figures import exact_sum_text

    budgets = [claim.epsilon for claim in protocol.claims]
    retry = "The same command sends the same LDP reports again, without another charge. " if again else ""
    return f"{retry}ε = {exact_sum_text(*budgets)} was spent and cannot be refunded."


def print_account(screen: Screen, account: "RunAccount | None") -> None:
    if account is not None:
        screen.print_paragraph(f"Ledger: {account.after()}.")


def print_received(screen: Screen, received: "CheckedReports", where: str) -> None:
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
    from graphveil.local.collect import check_limits

    try:
        check_limits(protocol)
    except BudgetError as error:
        screen.print_line(f"Clients reject this protocol by default: {words_of(error)}", style="bold")
        return True
    return False


def report_counts(received: "CheckedReports") -> dict[str, Any]:
    return {
        "nodes": received.collector.nodes,
        "accepted": received.accepted,
        "rejected": len(received.rejected),
        "rejected_rows": list(received.rejected),
    }


def _json_result(loaded_protocol: "CollectionProtocol", out: Path, formal_statement: str) -> dict[str, Any]:
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
    *,
    protocol: Path,
    reports: Path,
    id: str,
    edges: Path,
    source: str,
    target: str,
    out: Path,
    nodes: Path | None = None,
    directed: bool = False,
    method: Literal["lpgnn", "simgat", "label-posterior", "auto"] = "lpgnn",
    set: list[str] | None = None,
    seed: int = 0,
    skip_bad: bool = False,
    no_baseline: bool = False,
    ledger: str | None = None,
    json: bool = False,
) -> None:
    """Train a model on LDP reports and public edges.

    Data:
        edges (FILE): Table of public edges (.parquet or .csv).
        source (COLUMN): Column with source nodes.
        target (COLUMN): Column with target nodes.
        nodes (FILE): Table of public features of all nodes, with the same ids. For a protocol without
            features.

    Run:
        out (FOLDER): New folder for the model and its predictions.
        method: Method to train; auto averages all by the likelihood of held-out LDP reports.

    Training:
        no_baseline: Skip the no-graph baseline (mlp), which uses the same LDP reports and spends no
            additional budget.

    Examples:
        graphveil collect learn --protocol survey.json --reports reports.csv --id user --edges edges.csv
            --source a --target b --out model
        graphveil collect learn --protocol survey.json --reports reports.csv --id user --edges edges.csv
            --source a --target b --method simgat --out model
    """
    from graphveil._util.figures import counted
    from graphveil.data.tables import id_array
    from graphveil.publish.results import SAME_REPORTS, choice_text
    from graphveil.runs.collection import receive_on_edges
    from graphveil.runs.parameters import method_class, parse_parameters

    loaded_protocol, screen = read_protocol(protocol), Screen(as_json=json)
    check_not_existing(out, "Choose another --out.")
    cls = cast("type[LocalModel]", method_class(method))
    parameters = parse_parameters(method, {}, set or ())
    if method == "auto" and loaded_protocol.features is None and nodes is None:
        parameters.setdefault("eps_x", 0.0)  # only labels are available
    model = cls.from_protocol(loaded_protocol, seed=seed, **parameters)
    columns = {"id": id, "source": source, "target": target}
    received, adjacency, public = receive_on_edges(
        loaded_protocol,
        reports,
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

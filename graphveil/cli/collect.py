"""``collect``: a survey, people's records as LDP reports, and LDP reports as a table of nodes to train on."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from graphveil._escape import one_line
from graphveil.cli import options
from graphveil.cli.console import Screen
from graphveil.cli.failures import done_anyway, spending
from graphveil.errors import ArtifactError, BudgetError, ConfigError

if TYPE_CHECKING:
    from graphveil.collect import Survey
    from graphveil.collect.files import Received
    from graphveil.experiment.accounts.ledger_account import RunAccount
    from graphveil.mechanisms import Claim

_SURVEY, _PRIVACY, _FILES = "Survey", "Privacy", "Files"
_SHOWN = 20  # refused rows that are told one by one


def _flag(panel: str, name: str, text: str, **more: Any) -> Any:
    return typer.Option(name, help=text, rich_help_panel=panel, **more)


_BY_LIST = "one for all, or a,b,c"
EpsX = Annotated[float | None, _flag(_PRIVACY, "--eps-x", "Budget of a record's features together.")]
EpsY = Annotated[float | None, _flag(_PRIVACY, "--eps-y", "Budget of a record's label; inf leaves it open.")]
Columns = Annotated[str | None, _flag(_SURVEY, "--columns", "The features' names, a,b,c.")]
Dim = Annotated[int | None, _flag(_SURVEY, "--dim", "How many features, if they have no names.")]
Low = Annotated[str, _flag(_SURVEY, "--low", f"Public lower bound: {_BY_LIST}. Lower values are clipped.")]
High = Annotated[str, _flag(_SURVEY, "--high", f"Public upper bound: {_BY_LIST}.")]
Classes = Annotated[str | None, _flag(_SURVEY, "--classes", "The labels, a,b,c, or how many.")]
Purpose = Annotated[str, _flag(_SURVEY, "--purpose", "What the collection is for.")]
Mechanism = Annotated[
    Literal["multi-bit", "feature-rr"], _flag(_PRIVACY, "--mechanism", "How features are randomised.")
]
LabelHow = Annotated[
    Literal["rr", "subset", "hashing"],
    _flag(
        _PRIVACY,
        "--label-mechanism",
        "How the label is: one class is said (rr), several (subset), or a public group of them (hashing).",
    ),
]
Theta = Annotated[
    Path | None,
    _flag(_PRIVACY, "--theta", "feature-rr: a JSON list of public weights, one per feature, adding up to 1."),
]
Set = Annotated[
    list[str] | None,
    _flag(
        _PRIVACY,
        "--set",
        "More of the mechanism: m of multi-bit; k, mode, decode of feature-rr.",
        metavar="KEY=VALUE",
    ),
]
SurveyOut = Annotated[Path, _flag(_FILES, "--out", "The survey's file, JSON.", show_default=False)]

SurveyFile = Annotated[Path, _flag(_FILES, "--survey", "The survey's file.", show_default=False)]
Nodes = Annotated[Path, _flag(_FILES, "--nodes", "Table of nodes, private.", show_default=False)]
Id = Annotated[str, _flag(_FILES, "--id", "Column of the nodes' ids.", show_default=False)]
MessagesOut = Annotated[Path, _flag(_FILES, "--out", "The LDP reports, parquet or CSV.", show_default=False)]
Internal = Annotated[
    Path | None,
    _flag(_FILES, "--internal", "Write how much was clipped or missing here; it must not be published."),
]
Messages = Annotated[Path, _flag(_FILES, "--messages", "Table of ids and LDP reports.", show_default=False)]
NodesOut = Annotated[Path, _flag(_FILES, "--out", "The table of nodes, parquet or CSV.", show_default=False)]
LabelOut = Annotated[str, _flag(_FILES, "--label", "What to call the column of labels.")]
SecretFile = Annotated[
    Path | None,
    _flag(_FILES, "--secret", "Your secret, made the first time; by default one in your state folder."),
]
MaxEps = Annotated[
    float, _flag(_PRIVACY, "--max-eps", "How much a whole record may tell; a survey of more is refused.")
]
OpenLabel = Annotated[
    bool, _flag(_PRIVACY, "--open-label", "Send labels as they are, if the survey asks for that.")
]
Shown = Annotated[Path, typer.Argument(help="The survey's file.", metavar="SURVEY", show_default=False)]
SkipBad = Annotated[
    bool, _flag(_FILES, "--skip-bad", "Leave out LDP reports that are refused, count them, and go on.")
]

NamedLedger = Annotated[
    str | None,
    _flag(
        _PRIVACY,
        "--ledger",
        "The people who answered, as a ledger calls them: the survey is recorded there, once. Without it "
        "nothing is: LDP reports are all that is here.",
        metavar="NAME|URL|URL#NAME",
        show_default=False,
    ),
]


def survey(
    out: SurveyOut,
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
    label_mechanism: LabelHow = "rr",
    purpose: Purpose = "",
    json: options.Json = False,
) -> None:
    """Write the public parameters of a collection: what is asked, and how answers are randomised."""
    from graphveil.collect.message import message_bytes
    from graphveil.experiment.inputs.survey_builder import SurveyBuilder

    asked = SurveyBuilder(
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
    ).survey()
    check_new(out, "answers belong to one survey; choose another --out for a new one")
    screen = Screen(as_json=json)
    _write(out, asked.to_json(), private=False)
    screen.say(f"The survey is in {out}, an answer to it has {message_bytes(asked)} bytes")
    screen.prose(asked.statement())
    _tell_refusal(screen, asked)
    screen.emit(_record(asked, out, asked.statement()) | {"message_bytes": message_bytes(asked)})


def show(survey: Shown, json: options.Json = False) -> None:
    """Show what a survey asks for and how little it protects, before anything is answered."""
    from graphveil.collect import MAX_EPS
    from graphveil.collect.summary import largest_share

    asked, screen = read_survey(survey), Screen(as_json=json)
    _present(screen, asked, on_devices=True)
    refusal = _tell_refusal(screen, asked)
    features, label = asked.kept
    screen.emit(
        _record(asked, survey, asked.statement())
        | {
            "purpose": asked.purpose,
            "columns": list(asked.columns),
            "largest_share": largest_share(asked),
            "kept": {"features": float(features.max(initial=0)), "label": label},
            "max_eps": MAX_EPS,
            "answered": not refusal,
        }
    )


def answer(
    survey: SurveyFile,
    nodes: Nodes,
    id: Id,
    out: MessagesOut,
    label: options.Label = None,
    internal: Internal = None,
    secret: SecretFile = None,
    max_eps: MaxEps = 8.0,
    open_label: OpenLabel = False,
    ledger: options.Ledger = None,
    json: options.Json = False,
) -> None:
    """Randomise each record of a table of nodes on its own: a row with its id and its LDP report."""
    from graphveil import tables
    from graphveil.collect import check_limits, device_secret
    from graphveil.collect.files import MESSAGE, read_records
    from graphveil.experiment.accounts.survey_account import SurveyAccount
    from graphveil.privacy.figures import counted_are

    asked, screen = read_survey(survey), Screen(as_json=json)
    _present(screen, asked, on_devices=False)
    check_limits(asked, max_eps=max_eps, open_label=open_label)
    tables.check_output(out)
    check_new(out, "a second answer doubles the privacy loss of its owner; send the LDP reports that exist")
    if internal is not None:
        check_new(internal, "--internal writes a file of its own; choose another one")
    records = read_records(nodes, asked, id=id, label=label)
    known = SurveyAccount.of_records(asked, records.ids.to_pylist(), ledger)
    messages = records.messages(
        asked, id, secret=device_secret(secret), max_eps=max_eps, open_label=open_label
    )
    sent = zip(*(messages[name].to_pylist() for name in (id, MESSAGE)), strict=True)
    with spending(known.account.ledger, charged_words(asked, again=True)):
        known.book_messages(sent, records.each())
        if internal is not None:
            kept = {"clipped_values": records.outside(asked), "missing_labels": records.unlabelled}
            _write(internal, dumps(kept) + "\n")
        try:
            tables.write(out, messages)
        except ConfigError:
            if internal is not None:
                internal.unlink()
            raise
        statement = asked.statement(on_devices=False)
        with done_anyway(out):
            count = counted_are(messages.num_rows, "message")
            screen.say(f"{count} in {out}; keep them: nobody answers a survey twice")
            screen.prose(f"In the ledger: {known.account.after()}.")
            told = {"messages": messages.num_rows, "ledger": known.account.as_plain()}
            screen.emit(_record(asked, out, statement) | told)


def decode(
    survey: SurveyFile,
    messages: Messages,
    id: Id,
    out: NodesOut,
    label: LabelOut = "label",
    skip_bad: SkipBad = False,
    ledger: NamedLedger = None,
    json: options.Json = False,
) -> None:
    """Check LDP reports and write a table of nodes, estimated features and randomised labels, to train on."""
    from graphveil import tables
    from graphveil.collect.files import read_messages, receive

    asked, screen = read_survey(survey), Screen(as_json=json)
    tables.check_output(out)
    check_new(out, "decode writes a file of its own. Choose another --out")
    received = receive(asked, *read_messages(messages, id=id))
    if not (skip_bad and received.accepted):
        received.check()
    table = received.estimates(id, label)
    with booked_answers(asked, ledger) as booked:
        tables.write(out, table)
        with done_anyway(out):
            tell(screen, received, f"the nodes are in {out}")
            statement = asked.statement(on_devices=None)
            screen.prose(statement)
            tell_account(screen, booked)
            plain = {"ledger": None if booked is None else booked.as_plain()}
            screen.emit(_record(asked, out, statement) | counts(received) | plain)


@contextmanager
def booked_answers(survey: "Survey", named: str | None) -> "Iterator[RunAccount | None]":
    """Charge named people for a survey, once, and report the charge if the block fails."""
    from graphveil.experiment.accounts.survey_account import SurveyAccount

    if named is None:
        yield None
        return
    known = SurveyAccount.of_name(survey, named)
    with spending(known.account.ledger, charged_words(survey)):
        known.book_received()
        yield known.account


def charged_words(survey: "Survey", *, again: bool = False) -> str:
    """Return what an answer to a survey has charged, for a command that fails afterwards."""
    from graphveil._local_words import in_full

    budgets = [claim.epsilon for claim in survey.claims]
    retry = "; the same command again sends the same LDP reports and charges nothing more" if again else ""
    return f"ε = {in_full(*budgets)} was spent and cannot be refunded{retry}"


def tell_account(screen: Screen, account: "RunAccount | None") -> None:
    """Say what people have told over all surveys, if an account of theirs was named."""
    if account is not None:
        screen.prose(f"In the ledger: {account.after()}.")


def tell(screen: Screen, received: "Received", where: str) -> None:
    """Say what was accepted, the rows of what was not, and where the nodes are."""
    from graphveil.privacy.figures import counted

    for row, reason in list(received.refused.items())[:_SHOWN]:
        screen.note(f"refused, row {row}: {reason}")
    refused, silent = len(received.refused), received.collector.nodes - received.accepted
    screen.say(f"{counted(received.accepted, 'message')} accepted and {refused:,} refused; {where}")
    if silent:
        screen.say(f"{silent:,} of them have no LDP report: the middle of each feature's range, and no label")


def warn(screen: Screen, survey: "Survey") -> None:
    """Say loudly what is told as it is."""
    for line in survey.warnings:
        screen.say(line, style="bold")


def _present(screen: Screen, survey: "Survey", *, on_devices: bool) -> None:
    """Show a survey; its texts are those of whoever wrote it, and are shown, not obeyed."""
    from graphveil.collect.summary import feature_rows, overview

    screen.table(("the survey", ""), [(name, one_line(value)) for name, value in overview(survey)])
    if rows := feature_rows(survey):
        head = ("tells most", "low", "high", "epsilon", "kept")
        shown = [(one_line(name), *numbers) for name, *numbers in rows]
        screen.table(head, shown, right=(1, 2, 3, 4))
    screen.prose(survey.statement(on_devices=on_devices))


def _tell_refusal(screen: Screen, survey: "Survey") -> bool:
    """Say so if a device does not answer a survey unless its limit is raised."""
    from graphveil.collect import check_limits

    try:
        check_limits(survey)
    except BudgetError as error:
        screen.say(f"It is not answered unless that is agreed to: {error}", style="bold")
        return True
    return False


def counts(received: "Received") -> dict[str, Any]:
    """Return what ``--json`` says about LDP reports."""
    return {
        "nodes": received.collector.nodes,
        "accepted": received.accepted,
        "refused": len(received.refused),
        "refused_rows": list(received.refused),
    }


def _record(asked: "Survey", out: Path, statement: str) -> dict[str, Any]:
    """Return what ``--json`` prints of every one of these commands."""
    features, label = asked.claims
    guarantee = {
        "unit": "node-features",
        "valid": asked.claim.certified,
        "epsilon": _finite(asked.claim),
        "eps_x": _finite(features),
        "eps_y": _finite(label),
        "not_protected": list(asked.open_parts),
        "delta": asked.claim.delta,
        "deviations": list(asked.claim.deviations),
        "statement": statement,
    }
    return {"survey": asked.digest.hex(), "path": str(out), "guarantee": guarantee}


def _finite(claim: "Claim") -> float | None:
    """Return a budget for JSON, null where nothing is protected."""
    return None if math.isinf(claim.epsilon) else claim.epsilon


def read_survey(path: Path) -> "Survey":
    """Read a survey, or refuse the file."""
    from graphveil.collect import Survey
    from graphveil.collect.survey import MAX_TEXT

    try:
        with path.open("rb") as file:  # a few more bytes than the longest has, and no gigabytes
            return Survey.from_json(file.read(4 * MAX_TEXT + 4).decode())
    except (OSError, UnicodeDecodeError):
        raise ArtifactError(f"cannot read a survey from {path}; check --survey") from None


def check_new(path: Path, why: str) -> None:
    """Refuse to write over a file, or where none can be made: what is written may have cost a budget."""
    from graphveil._files import can_be_made

    if path.exists():
        raise ConfigError(f"{path} is there already: {why}")
    if not can_be_made(path):
        raise ConfigError(f"{path} cannot be made there; choose another place")


def _write(path: Path, text: str, *, private: bool = True) -> None:
    from graphveil._files import write_atomic

    try:
        write_atomic(path, text.encode(), private=private)
    except OSError as error:
        raise ConfigError(f"cannot write {path} ({error.strerror}); choose another file") from None

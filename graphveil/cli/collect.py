"""``collect``: a survey, people's records as messages, and messages as a table of nodes to train on."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from graphveil.cli import options
from graphveil.cli.console import Screen
from graphveil.errors import ArtifactError, ConfigError

if TYPE_CHECKING:
    from graphveil.collect import Survey
    from graphveil.collect.files import Received
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
Theta = Annotated[
    Path | None,
    _flag(_PRIVACY, "--theta", "feature-rr: a JSON list of public weights, one a feature, that add up to 1."),
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
MessagesOut = Annotated[Path, _flag(_FILES, "--out", "The messages, parquet or CSV.", show_default=False)]
Internal = Annotated[
    Path | None,
    _flag(_FILES, "--internal", "Write how many values were clipped here; it must not be published."),
]
Messages = Annotated[Path, _flag(_FILES, "--messages", "Table of ids and messages.", show_default=False)]
NodesOut = Annotated[Path, _flag(_FILES, "--out", "The table of nodes, parquet or CSV.", show_default=False)]
LabelOut = Annotated[str, _flag(_FILES, "--label", "What to call the column of labels.")]
SkipBad = Annotated[
    bool, _flag(_FILES, "--skip-bad", "Leave out messages that are refused, count them, and go on.")
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
    purpose: Purpose = "",
    json: options.Json = False,
) -> None:
    """Write the public parameters of a collection: what is asked, and how answers are randomised."""
    from graphveil.collect.message import message_bytes
    from graphveil.experiment.survey_builder import SurveyBuilder

    asked = SurveyBuilder(
        eps_x=eps_x,
        eps_y=eps_y,
        columns=columns,
        dim=dim,
        low=low,
        high=high,
        classes=classes,
        mechanism=mechanism,
        theta=theta,
        purpose=purpose,
        settings=set or (),
    ).survey()
    check_new(out, "answers belong to one survey; choose another --out for a new one")
    _write(out, asked.to_json(), private=False)
    screen = Screen(as_json=json)
    screen.say(f"The survey is in {out}, an answer to it has {message_bytes(asked)} bytes")
    warn(screen, asked)
    screen.prose(asked.statement())
    screen.emit(_record(asked, out, asked.statement()) | {"message_bytes": message_bytes(asked)})


def answer(
    survey: SurveyFile,
    nodes: Nodes,
    id: Id,
    out: MessagesOut,
    label: options.Label = None,
    internal: Internal = None,
    json: options.Json = False,
) -> None:
    """Randomise each record of a table of nodes on its own: a row with its id and its message."""
    from graphveil.collect.files import read_records
    from graphveil.graph import tables

    asked, screen = read_survey(survey), Screen(as_json=json)
    tables.check_output(out)
    check_new(out, "a second answer doubles what is told about its owner; send the messages that are there")
    if internal is not None:
        check_new(internal, "--internal writes a file of its own; choose another one")
    records = read_records(nodes, asked, id=id, label=label)
    messages = records.messages(asked, id)
    if internal is not None:
        _write(internal, f'{{"clipped_values": {records.outside(asked)}}}\n')
    try:
        tables.write(out, messages)
    except ConfigError:
        if internal is not None:
            internal.unlink()
        raise
    statement = asked.statement(on_devices=False)
    warn(screen, asked)
    screen.say(f"{messages.num_rows:,} messages are in {out}; keep them: nobody answers a survey twice")
    screen.prose(statement)
    screen.emit(_record(asked, out, statement) | {"messages": messages.num_rows})


def decode(
    survey: SurveyFile,
    messages: Messages,
    id: Id,
    out: NodesOut,
    label: LabelOut = "label",
    skip_bad: SkipBad = False,
    json: options.Json = False,
) -> None:
    """Check messages and write a table of nodes, estimated features and randomised labels, to train on."""
    from graphveil.collect.files import read_messages, receive
    from graphveil.graph import tables

    asked, screen = read_survey(survey), Screen(as_json=json)
    tables.check_output(out)
    if out.exists() and any(out.samefile(source) for source in (messages, survey) if source.exists()):
        raise ConfigError(f"{out} is what is read, and nobody answers twice; choose another --out")
    received = receive(asked, *read_messages(messages, id=id))
    if not (skip_bad and received.accepted):
        received.check()
    tables.write(out, received.estimates(id, label))
    tell(screen, received, f"the nodes are in {out}")
    statement = asked.statement(on_devices=None)
    warn(screen, asked)
    screen.prose(statement)
    screen.emit(_record(asked, out, statement) | counts(received))


def tell(screen: Screen, received: "Received", where: str) -> None:
    """Say what was accepted, the rows of what was not, and where the nodes are."""
    for row, reason in list(received.refused.items())[:_SHOWN]:
        screen.note(f"refused, row {row}: {reason}")
    refused, silent = len(received.refused), received.collector.nodes - received.accepted
    screen.say(f"{received.accepted:,} messages accepted and {refused:,} refused; {where}")
    if silent:
        screen.say(f"{silent:,} of them have no message: the middle of every feature's range, and no label")


def warn(screen: Screen, survey: "Survey") -> None:
    """Say loudly what is asked for as it is."""
    for part in survey.open_parts:
        screen.say(
            f"NOT PROTECTED: the {part} leaves each node as it is (epsilon inf), in every message.",
            style="bold",
        )


def counts(received: "Received") -> dict[str, Any]:
    """Return what ``--json`` says about messages."""
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

    try:
        return Survey.from_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        raise ArtifactError(f"cannot read a survey from {path}; check --survey") from None


def check_new(path: Path, why: str) -> None:
    """Refuse to write over a file."""
    if path.exists():
        raise ConfigError(f"{path} is there already: {why}")


def _write(path: Path, text: str, *, private: bool = True) -> None:
    from graphveil._files import write_atomic

    try:
        write_atomic(path, text.encode(), private=private)
    except OSError as error:
        raise ConfigError(f"cannot write {path} ({error.strerror}); choose another file") from None

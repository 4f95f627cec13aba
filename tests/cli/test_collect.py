"""Collection protocols, LDP reports and node tables on the command line: what is written and rejected."""

import base64
import inspect
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from command import NODES, SECRET, Answer, Files, Invoke, environment, read, rejected, write

from graphveil.cli import collect
from graphveil.errors import ConfigError
from graphveil.local.collect import MAX_EPS, CollectionProtocol, decode
from graphveil.mechanisms import LabelRR, MultiBit

FEATURES = "--eps-x 6 --columns age,height --low -10 --high 10,20"
BOTH = f"{FEATURES} --eps-y 2 --classes t0,t1,t2"
RECORDS = ("--id", "user", "--label", "team")
MADE = ("--protocol", "survey.json", "--reports", "messages.csv", "--id", "user", "--out")
DECODE = ("collect decode", *MADE, "nodes.csv")

Randomize = Callable[..., Answer]
Rows = list[list[str]]


@pytest.fixture
def randomize(invoke: Invoke, files: Files) -> Randomize:
    """Return what randomizes the records of the files by a protocol, s.json."""

    def call(
        *more: object, nodes: Path = files.nodes, out: str = "m.csv", protocol: str = "s.json"
    ) -> Answer:
        flags = ["--protocol", protocol, "--nodes", nodes, *(more or RECORDS), "--out", out]
        return invoke("collect randomize", *flags)

    return call


@pytest.fixture
def collected(invoke: Invoke, randomize: Randomize) -> None:
    """Write a protocol and LDP reports."""
    assert invoke(f"collect protocol {BOTH} --purpose pilot --out survey.json").code == 0
    assert randomize(protocol="survey.json", out="messages.csv").code == 0


def loaded(path: str) -> CollectionProtocol:
    return CollectionProtocol.from_json(Path(path).read_text())


# -- from records to LDP reports to a node table -----------------------------------------------------------


@pytest.mark.usefixtures("collected")
def test_decoded_reports_are_a_node_table_to_train_on(invoke: Invoke, files: Files) -> None:
    protocol = loaded("survey.json")
    head, *rows = read(Path("messages.csv"))
    assert head == ["user", "message"]
    reports = {row[0]: decode(protocol, row[0], base64.b64decode(row[1], validate=True)) for row in rows}
    record = invoke(*DECODE, "--label", "team", "--json").json
    assert (record["accepted"], record["rejected"], record["nodes"]) == (NODES, 0, NODES)
    head, *rows = read(Path("nodes.csv"))
    assert head == ["user", "age", "height", "team"]
    assert [row[0] for row in rows] == sorted(row[0] for row in read(files.nodes)[1:])
    assert [row[3] for row in rows] == [f"t{reports[row[0]].label}" for row in rows]
    stated = reports[rows[7][0]].features
    assert protocol.features is not None and stated is not None
    estimate = protocol.features.estimate(stated)[0]
    assert [float(cell) for cell in rows[7][1:3]] == pytest.approx(estimate, rel=1e-6)
    tables = ["--nodes", "nodes.csv", "--edges", files.edges, *files.flags[4:]]
    train = "train mlp --unit undirected-edge --epsilon 1 --set epochs=3 --json"
    trained = invoke(train, *tables).json
    assert (trained["nodes"], trained["features"], trained["classes"]) == (NODES, 2, 3)


def test_every_command_prints_the_statement_and_one_object(invoke: Invoke, randomize: Randomize) -> None:
    made = invoke(f"collect protocol {BOTH} --out s.json --json")
    randomized = randomize(*RECORDS, "--json", out="m.parquet")
    reports = "--protocol s.json --reports m.parquet --id user"
    decoded = invoke(f"collect decode {reports} --out n.parquet --json")
    held = ("own device ran the randomizer", "This process held the raw data", "saw only what had left")
    for answer, words in zip((made, randomized, decoded), held, strict=True):
        guarantee = answer.json["guarantee"]
        assert guarantee["unit"] == "local-attributes" and guarantee["valid"] is True
        assert (guarantee["epsilon"], guarantee["eps_x"], guarantee["eps_y"]) == (8, 6, 2)
        assert "eps_x = 6 and its label at eps_y = 2 (total 8; inf" in guarantee["statement"]
        assert guarantee["statement"] in answer.err and words in guarantee["statement"]
        assert answer.json["protocol"] == made.json["protocol"]
    assert made.json["report_bytes"] == 42
    assert parquet.read_table("n.parquet").column_names == ["user", "age", "height", "label"]


@pytest.mark.usefixtures("collected")
def test_without_json_people_read_the_same(invoke: Invoke) -> None:
    answer = invoke(*DECODE)
    assert f"{NODES} LDP reports accepted, 0 rejected. Node table: nodes.csv" in answer.out
    assert "Each node's features are randomized on their own at eps_x = 6" in answer.out
    with environment(FORCE_COLOR="1", COLUMNS="60"):  # the first makes a terminal of standard output
        lines = invoke(f"collect protocol {BOTH} --out s.json").out.splitlines()
    assert len(lines) > 3 and max(map(len, lines)) <= 60


def test_feature_rr_with_public_weights_and_settings(invoke: Invoke, randomize: Randomize) -> None:
    Path("theta.json").write_text("[0.75, 0.25]")
    settings = "--mechanism feature-rr --theta theta.json --set k=10 --set mode=ceil --set decode=naive"
    invoke(f"collect protocol {FEATURES} {settings} --out s.json")
    law = loaded("s.json").features
    assert [(feature.epsilon, feature.k) for feature in law.features] == [(4.5, 10), (1.5, 10)]
    randomize("--id", "user")
    assert invoke("collect decode --protocol s.json --reports m.csv --id user --out n.csv").code == 0
    assert read(Path("n.csv"))[0] == ["user", "age", "height"]


def test_features_without_names_are_a_list_or_all_columns(invoke: Invoke, randomize: Randomize) -> None:
    x = np.linspace(0, 1, 20, dtype=np.float32).reshape(5, 4)
    parquet.write_table(pa.table({"node": np.arange(5), "v": list(x)}), "nodes.parquet")
    invoke("collect protocol --eps-x 400 --dim 4 --set m=all --out s.json")
    assert randomize("--id", "node", "--max-eps", 400, nodes=Path("nodes.parquet")).code == 0
    assert invoke("collect decode --protocol s.json --id node --reports m.csv --out n.parquet").code == 0
    table = parquet.read_table("n.parquet")
    assert table.column_names == ["node", "x0", "x1", "x2", "x3"]
    assert table.column("node").to_pylist() == list(range(5))
    assert set(np.unique(np.stack(table.columns[1:]))) <= {0.0, 1.0}


def test_a_record_without_label_reports_like_all_others(
    invoke: Invoke, files: Files, randomize: Randomize
) -> None:
    head, *rows = read(files.nodes)
    for row in rows[:40]:
        row[3] = SECRET if row[0] == "u3" else ""  # a class that the protocol does not have, and none
    write(files.nodes, [head, *rows])
    invoke("collect protocol --eps-y 8 --classes t0,t1,t2 --out s.json")
    assert randomize(*RECORDS, "--internal", "i.json").code == 0
    decoded = "collect decode --protocol s.json --reports m.csv --id user --label team --out n.csv --json"
    assert invoke(decoded).json["accepted"] == NODES
    stated = dict(read(Path("n.csv"))[1:])
    assert set(stated.values()) == {"t0", "t1", "t2"}
    assert len({stated[row[0]] for row in rows[:40]}) == 3
    assert json.loads(Path("i.json").read_text())["missing_labels"] == 40


def test_labels_alone_and_classes_by_number(invoke: Invoke, randomize: Randomize) -> None:
    rows = [["a", "1"], ["b", "0"], ["c", "2"]]
    write(Path("nodes.csv"), [["node", "kind"], *rows])
    invoke("collect protocol --eps-y 50 --classes 3 --out s.json --json")
    given = ("--id", "node", "--label", "kind", "--max-eps", 50, "--json")
    guarantee = randomize(*given, nodes=Path("nodes.csv")).json["guarantee"]
    assert (guarantee["epsilon"], guarantee["eps_x"], guarantee["eps_y"]) == (50, 0, 50)
    assert guarantee["not_protected"] == ["label"]  # which is kept in all but 2 of e^50 times
    assert guarantee["statement"].startswith("NOT PROTECTED: the label leaves each node as it is")
    invoke("collect decode --protocol s.json --id node --reports m.csv --out n.csv")
    assert read(Path("n.csv")) == [["node", "label"], *rows]


@pytest.mark.parametrize(
    ("mechanism", "stated", "columns"),
    [
        ("subset", ["2 classes are reported, the label among them with probability 0.5209"], 2),
        (
            "hashing",
            [
                "one of 3 groups of classes, which the protocol and your id determine",
                "the label's own group with probability 0.5761",
            ],
            3,
        ),
    ],
)
def test_several_reported_classes_have_columns_of_their_own(
    invoke: Invoke, randomize: Randomize, mechanism: str, stated: list[str], columns: int
) -> None:
    names = [f"k{number}" for number in range(7)]
    rows = [[f"n{number:02}", names[number % 7] if number else ""] for number in range(20)]
    write(Path("nodes.csv"), [["node", "kind"], *rows])
    request = f"--eps-y 1 --classes {','.join(names)} --label-mechanism {mechanism} --out s.json"
    assert invoke(f"collect protocol {request} --json").json["guarantee"]["eps_y"] == 1
    shown = " ".join(invoke("collect show s.json").out.split())
    assert all(words in shown for words in stated)
    assert randomize("--id", "node", "--label", "kind", nodes=Path("nodes.csv")).code == 0
    invoke("collect decode --protocol s.json --id node --reports m.csv --label kind --out n.csv")
    head, *decoded = read(Path("n.csv"))
    assert head == ["node", *(f"kind_{number}" for number in range(1, columns + 1))]
    assert [row[0] for row in decoded] == [row[0] for row in rows]
    assert all(row[1] < row[2] and {*row[1:3]} <= {*names} for row in decoded)
    if mechanism == "hashing":  # a smaller group leaves a column empty
        assert {row[3] for row in decoded} > {""}


def test_an_unprotected_label_is_marked_by_every_command(
    invoke: Invoke, files: Files, randomize: Randomize
) -> None:
    features = "--eps-x 8 --columns age,height --low -10 --high 20"
    received = "--protocol s.json --reports m.csv --id user"
    edges = ["--edges", files.edges, "--source", "a", "--target", "b", "--set", "epochs=2"]
    answers = [
        invoke(f"collect protocol {features} --eps-y inf --classes t0,t1,t2 --out s.json --json"),
        invoke("collect show s.json --json"),
        randomize(*RECORDS, "--allow-unprotected-label", "--json"),
        invoke(f"collect decode {received} --out n.csv --json"),
        invoke(f"collect learn {received} --out model --json", *edges),
    ]
    for answer in answers:
        assert answer.code == 0, answer.err
        assert "NOT PROTECTED: the label leaves each node as it is" in answer.err
        assert answer.json["guarantee"]["eps_y"] is None
    assert all(answer.json["guarantee"]["not_protected"] == ["label"] for answer in answers[:-1])


@pytest.mark.usefixtures("collected")
def test_the_order_of_columns_has_no_effect(invoke: Invoke) -> None:
    invoke(*DECODE)
    rows = read(Path("messages.csv"))
    write(Path("messages.csv"), [["message", "note", "user"], *([row[1], "", row[0]] for row in rows[1:])])
    invoke(*DECODE[:-1], "again.csv")
    assert Path("again.csv").read_bytes() == Path("nodes.csv").read_bytes()


# -- what clients see before they report -------------------------------------------------------------------


def test_a_protocol_is_shown_before_anything_is_reported(invoke: Invoke) -> None:
    Path("theta.json").write_text("[0.9, 0.1]")
    invoke(f"collect protocol {BOTH} --mechanism feature-rr --theta theta.json --purpose pilot --out s.json")
    shown = invoke("collect show s.json")
    assert shown.code == 0
    for words in (
        *("pilot", "from -10 to 20", "0.9 of that budget is for a single feature", "t0, t1, t2"),
        *("epsilon 8 of a whole record", "Each node's features are randomized on their own"),
        "label with probability 0.787",
    ):
        assert words in shown.out
    ages = [line.split() for line in shown.out.splitlines() if "age " in line]
    assert ages == [["age", "-10", "10", "5.4", "0.5945"]]
    record = invoke("collect show s.json --json").json
    assert (record["purpose"], record["columns"]) == ("pilot", ["age", "height"])
    assert record["largest_share"] == 0.9
    kept = {"features": pytest.approx(0.6457, abs=1e-4), "label": pytest.approx(0.787, abs=1e-3)}
    assert record["kept"] == kept
    assert (record["answered"], record["guarantee"]["not_protected"]) == (True, [])


def test_the_statement_comes_before_the_reports(
    invoke: Invoke, randomize: Randomize, monkeypatch: pytest.MonkeyPatch
) -> None:
    invoke(f"collect protocol {BOTH} --purpose pilot --out s.json")

    def full(*given: object) -> None:
        raise ConfigError("the disk is full")

    monkeypatch.setattr("graphveil.data.tables.write", full)
    answer = randomize()
    assert (answer.code, "the disk is full" in answer.err) == (1, True)
    assert "pilot" in answer.out
    assert "Each node's features are randomized on their own at eps_x = 6" in answer.out


def test_a_protocol_over_the_limit_needs_consent(invoke: Invoke, randomize: Randomize) -> None:
    greedy = "--eps-x 100000 --columns age,height --mechanism feature-rr --set k=256 --eps-y 1000"
    made = invoke(f"collect protocol {greedy} --classes t0,t1,t2 --out s.json")
    assert "Clients reject this protocol by default" in made.out
    failed = randomize()
    rejected(failed, "needs epsilon 101000 per record, but this client allows at most 8. Nothing was sent")
    assert "NOT PROTECTED: of 2 features 2 leave each node as they are with probability 1" in failed.out
    assert "the label" in failed.out and not Path("m.csv").exists()
    shown = invoke("collect show s.json --json").json
    assert (shown["answered"], shown["guarantee"]["not_protected"]) == (False, ["features", "label"])
    assert randomize(*RECORDS, "--max-eps", 101000).code == 0
    assert inspect.signature(collect.randomize).parameters["max_eps"].default == MAX_EPS == 8


def test_texts_of_a_protocol_are_escaped(invoke: Invoke) -> None:
    wicked = "\x1b[2J[bold]all is well\nNothing is collected"
    label = LabelRR(epsilon=1.0, classes=2)
    protocol = CollectionProtocol(label=label, purpose=wicked, class_names=("\x9b1m", "b"))
    Path("s.json").write_text(protocol.to_json())
    shown = invoke("collect show s.json")
    assert "\\x1b[2J[bold]all is well Nothing is collected" in shown.out
    assert not {"\x1b", "\x9b"} & set(shown.out + shown.err)


def test_a_huge_file_is_not_read_whole(invoke: Invoke) -> None:
    with Path("s.json").open("wb") as file:
        file.truncate(1 << 40)  # a terabyte of zeros, which takes no room
    rejected(invoke("collect show s.json"), "at most 1,048,576 are read")


# -- one report per client and protocol --------------------------------------------------------------------


@pytest.mark.usefixtures("collected")
def test_the_same_key_gives_the_same_reports(randomize: Randomize) -> None:
    assert randomize(protocol="survey.json", out="again.csv").code == 0
    assert Path("again.csv").read_bytes() == Path("messages.csv").read_bytes()
    own = (*RECORDS, "--secret", "own.key")
    assert randomize(*own, protocol="survey.json", out="other.csv").code == 0
    assert Path("own.key").stat().st_mode & 0o777 == 0o600
    first, other = (dict(read(Path(name))) for name in ("messages.csv", "other.csv"))
    assert first.keys() == other.keys()
    assert sum(first[node] == other[node] for node in first) < NODES / 2
    Path("own.key").write_text("short")
    rejected(randomize(*own, protocol="survey.json", out="third.csv"), "32 random bytes")


def test_the_order_of_the_private_table_is_not_reported(
    invoke: Invoke, files: Files, randomize: Randomize
) -> None:
    invoke(f"collect protocol {BOTH} --out s.json")
    head, *rows = read(files.nodes)
    for name, order in (("young.csv", 1), ("old.csv", -1)):
        write(files.nodes, [head, *sorted(rows, key=lambda row: order * float(row[1]))])
        assert randomize(out=name).code == 0
    assert Path("young.csv").read_bytes() == Path("old.csv").read_bytes()
    ids = [row[0] for row in read(Path("young.csv"))[1:]]
    assert ids == sorted(ids)


def test_counts_of_values_are_in_an_internal_file_only(
    invoke: Invoke, files: Files, randomize: Randomize
) -> None:
    head, *rows = read(files.nodes)
    write(files.nodes, [head, *([row[0], "-12.5", *row[2:]] for row in rows[:7]), *rows[7:]])
    invoke(f"collect protocol {BOTH} --out s.json")
    answer = randomize(*RECORDS, "--internal", "in/ternal.json", "--json")
    assert json.loads(Path("in/ternal.json").read_text()) == {"clipped_values": 7, "missing_labels": 0}
    assert Path("in/ternal.json").stat().st_mode & 0o777 == 0o600
    assert Path("s.json").stat().st_mode & 0o777 == 0o644  # which is for clients
    assert "7" not in str(answer.json | {"protocol": "", "ledger": ""})  # digests may have any digit
    assert "clipped" not in answer.err


# -- invalid LDP reports -----------------------------------------------------------------------------------


# tests/collect/test_message.py has all errors of the format.
BAD: dict[str, tuple[Callable[[str, Rows], str], str]] = {
    "no base64": (lambda text, rows: SECRET, "not in base64"),
    "truncated": (lambda text, rows: text[:-4], "must have 42 bytes, but it has 39"),
    "replayed": (lambda text, rows: rows[1][1], "LDP report belongs to another node"),
}


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize("case", BAD)
def test_an_invalid_report_is_rejected_by_its_row(invoke: Invoke, case: str) -> None:
    spoil, why = BAD[case]
    rows = read(Path("messages.csv"))
    rows[5][1] = spoil(rows[5][1], rows)
    write(Path("messages.csv"), rows)
    answer = invoke(*DECODE, "--json")
    error = answer.json["error"]
    assert (answer.code, error["kind"]) == (2, "LDPReportError")
    assert error["message"].startswith("1 LDP report(s) were rejected. The first is in row 5: ")
    assert why in error["message"]
    assert "u4" not in answer.err and SECRET not in answer.err
    assert not Path("nodes.csv").exists()


@pytest.mark.usefixtures("collected")
def test_invalid_reports_can_be_skipped_and_are_counted(invoke: Invoke) -> None:
    rows = read(Path("messages.csv"))
    ids = [row[0] for row in rows]
    rows[5][1], rows[9][1], rows[11][:] = SECRET, rows[1][1], rows[2]
    write(Path("messages.csv"), rows)
    answer = invoke(*DECODE, "--skip-bad", "--json")
    record = answer.json
    assert (record["nodes"], record["accepted"], record["rejected"]) == (NODES - 1, NODES - 3, 3)
    assert record["rejected_rows"] == [5, 9, 11]
    assert "Rejected row 11: This node has already reported. A second report would double" in answer.err
    assert "2 nodes without an LDP report" in answer.err
    assert SECRET not in answer.err
    written = {row[0]: row[1:] for row in read(Path("nodes.csv"))[1:]}
    assert written[ids[5]] == written[ids[9]] == ["0", "5", ""]  # the middle of both ranges, no label
    assert ids[11] not in written
    assert read(Path("nodes.csv"))[5][0] == ids[5]
    assert sum(cells[2] == "" for cells in written.values()) == 2


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (
            [["user", "message"], ["u0", "x"], ["u1", ""]],
            "2 LDP report(s) were rejected. The first is in row 1",
        ),
        ([["user", "message"]], "has no rows"),
        ([["user", "text"], ["u0", "x"]], "no column 'message'"),
        ([["user", "message"], ["", "x"]], "'user' has missing values"),
        ([["user", "message"], ["u0", "17"], ["u1", "19"]], "row 1: an LDP report is not in base64"),
    ],
)
def test_a_table_without_a_valid_report_is_rejected(invoke: Invoke, rows: Rows, why: str) -> None:
    write(Path("messages.csv"), rows)
    rejected(invoke(*DECODE, "--skip-bad"), why)
    assert not Path("nodes.csv").exists()


@pytest.mark.usefixtures("collected")
def test_reports_must_be_text_and_of_this_protocol(invoke: Invoke) -> None:
    parquet.write_table(pa.table({"user": ["u0"], "message": [[1, 2]]}), "m.parquet")
    other = "collect decode --protocol survey.json --reports m.parquet --id user --out nodes.csv"
    rejected(invoke(other), "must contain LDP reports as base64 text")
    protocol = loaded("survey.json")
    assert protocol.label == LabelRR(epsilon=2.0, classes=3)
    Path("survey.json").write_text(protocol.to_json().replace('"epsilon":2.0', '"epsilon":3.0'))
    rejected(invoke(*DECODE), "row 1: The LDP report belongs to another protocol")
    Path("survey.json").write_text("[]")
    assert "not a JSON object" in invoke(*DECODE).err


# -- misuse ------------------------------------------------------------------------------------------------

BAD_PROTOCOLS = {
    "": "--eps-y with --classes for a label, or both",
    "--columns a,b": "--eps-x with --columns",
    "--eps-x 1": "--eps-x with --columns",
    "--eps-x 0 --dim 3": "epsilon 0.0 must be",
    "--eps-x -1 --dim 3": "epsilon -1.0 must be",
    "--eps-x nan --dim 3": "epsilon nan must be",
    "--eps-x inf --dim 3": "not randomized",
    "--eps-y 0 --classes 2": "epsilon 0.0 must be",
    "--eps-y inf --classes t0,t1": "it would protect nothing",
    "--eps-y 1 --classes a": "--classes 1",
    "--eps-y 1": "--eps-y with --classes",
    "--eps-x 1 --dim 2 --label-mechanism subset": "does not use --label-mechanism",
    "--eps-x 1 --columns a,a": "different names",
    "--eps-x 1 --columns a,b --dim 2": "Remove --dim",
    "--eps-x 1 --dim 2 --low 1 --high 1": "must be below",
    "--eps-x 1 --dim 2 --low zero": "--low zero is not valid",
    "--eps-x 1 --dim 3 --high 1,2": "but --dim 3",
    "--eps-x 1 --dim 2 --set k=3": "multi-bit has no such parameter",
    "--eps-x 1 --dim 2 --set m=3": "--set m=3 must be at most --dim 2",
    "--eps-x 1 --dim 2 --mechanism laplace": "--mechanism",
    "--eps-x 1 --dim 2 --theta t.json": "is only for --mechanism feature-rr",
}
BAD_WEIGHTS = {
    "[0.5, 0.6]": "theta sums to 1.1 instead of 1",
    "[0.25, 0.25]": "would spend 0.5 times its budget",
    "[1.5, -0.5]": "finite numbers of at least 0",
    "[[0.5, 0.5], [0.9, 0.1]]": "depend on a record",
    "[1.0]": "has 1 weights for 2 features",
    "{}": "must contain a JSON list",
    "[": "Cannot read a JSON list",
}


@pytest.mark.parametrize("flags", BAD_PROTOCOLS)
def test_an_invalid_protocol_is_rejected(invoke: Invoke, flags: str) -> None:
    rejected(invoke(f"collect protocol {flags} --out s.json"), BAD_PROTOCOLS[flags])
    assert not Path("s.json").exists()


@pytest.mark.parametrize("theta", BAD_WEIGHTS)
def test_invalid_feature_weights_are_rejected(invoke: Invoke, theta: str) -> None:
    Path("theta.json").write_text(theta)
    flags = "--eps-x 1 --dim 2 --mechanism feature-rr --theta theta.json"
    rejected(invoke(f"collect protocol {flags} --out s.json"), BAD_WEIGHTS[theta])


def test_bounds_from_data_have_no_valid_guarantee(randomize: Randomize) -> None:
    text = CollectionProtocol(features=MultiBit(epsilon=1.0, dim=2), columns=("age", "height")).to_json()
    Path("s.json").write_text(text.replace('"from_data":false', '"from_data":true'))
    guarantee = randomize("--id", "user", "--json").json["guarantee"]
    assert guarantee["valid"] is False
    assert guarantee["deviations"] == ["bounds taken from the data"]
    assert guarantee["statement"].startswith("No valid guarantee")


def cell(row: int, column: int, value: str) -> Callable[[Rows], None]:
    def change(rows: Rows) -> None:
        rows[row][column] = value

    return change


BAD_RECORDS: dict[str, tuple[Callable[[Rows], None], str]] = {
    "NaN": (cell(5, 1, "nan"), "column 'age' holds NaN"),
    "infinite": (cell(5, 2, "-inf"), "column 'height' holds NaN, infinite"),
    "missing": (cell(5, 1, ""), "column 'age' has missing values"),
    "text": (cell(5, 1, SECRET), "column 'age' is of type"),
    "no label": (
        lambda rows: [row.__setitem__(3, SECRET) for row in rows[1:]],
        "none of the labels of the protocol",
    ),
    "repeated id": (cell(5, 0, "u0"), "column 'user' repeats ids"),
    "no id": (cell(5, 0, ""), "column 'user' has missing values"),
    "no column": (cell(0, 1, "aeg"), "no column 'age'"),
    "nobody": (lambda rows: rows.__delitem__(slice(1, None)), "has no rows"),
}


@pytest.mark.parametrize("case", BAD_RECORDS)
def test_invalid_records_are_rejected_without_a_value(
    invoke: Invoke, files: Files, randomize: Randomize, case: str
) -> None:
    spoil, why = BAD_RECORDS[case]
    rows = read(files.nodes)
    spoil(rows)
    write(files.nodes, rows)
    invoke(f"collect protocol {BOTH} --out s.json")
    answer = randomize()
    rejected(answer, why)
    assert SECRET not in answer.err and not Path("m.csv").exists()


def test_columns_of_other_roles_and_widths_are_rejected(invoke: Invoke, randomize: Randomize) -> None:
    invoke("collect protocol --eps-x 1 --dim 3 --eps-y 1 --classes t0,t1,t2 --out s.json")
    rejected(randomize(), "collects 3")
    rejected(randomize("--id", "user"), "name its column with --label")
    rejected(randomize("--id", "user", "--label", "user"), "used for two different roles")
    rejected(randomize(out="m.txt"), "must end in .parquet or .csv")
    rejected(randomize(protocol="messages.json"), "Cannot read a collection protocol")
    invoke("collect protocol --eps-x 1 --columns age,height --out t.json")
    rejected(randomize(protocol="t.json"), "collects no label")


@pytest.mark.usefixtures("collected")
def test_existing_files_are_not_overwritten(invoke: Invoke, files: Files, randomize: Randomize) -> None:
    invoke("ledger init people --unit local-attributes")
    before = {path: Path(path).read_bytes() for path in ("messages.csv", "survey.json", str(files.nodes))}
    again = invoke(f"collect protocol {BOTH} --out survey.json")
    rejected(again, "LDP reports belong to one protocol")
    rejected(randomize(protocol="survey.json", out="messages.csv"), "second LDP report would double")
    for path in ("messages.csv", "./messages.csv"):
        rejected(invoke(*DECODE[:-1], path), "already exists")
    internal = (*RECORDS, "--internal", files.nodes)
    rejected(randomize(*internal, protocol="survey.json", out="again.csv"), "Choose another --internal")
    assert not Path("again.csv").exists()
    Path("file").write_text("")
    for path in ("file/again.csv", f"{'m' * 246}.csv"):
        answer = randomize(*RECORDS, "--internal", "count.json", protocol="survey.json", out=path)
        assert (answer.code, Path("count.json").exists()) == (2, False)
        rejected(invoke(*DECODE[:-1], path, "--ledger", "people"), "Choose another --out")
    charges = invoke("ledger list --json").json["data_sets"]
    assert {one["name"]: one["releases"] for one in charges}["people"] == 0
    assert before == {path: Path(path).read_bytes() for path in before}


@pytest.mark.usefixtures("collected")
def test_names_that_collide_are_rejected(invoke: Invoke, randomize: Randomize) -> None:
    for label in ("user", "age"):
        rejected(invoke(*DECODE, "--label", label), "different names")
    parquet.write_table(pa.table({"message": ["a"], "age": [1.0], "height": [1.0]}), "n.parquet")
    Path("s.json").write_text(CollectionProtocol(features=MultiBit(epsilon=1.0, dim=2)).to_json())
    rejected(randomize("--id", "message", nodes=Path("n.parquet")), "cannot be called 'message'")


# -- the ledger --------------------------------------------------------------------------------------------


def test_a_report_is_charged_once_and_changed_records_again(
    invoke: Invoke, files: Files, randomize: Randomize
) -> None:
    def charged(protocol: str, *ledger: str) -> dict[str, object]:
        Path("m.csv").unlink(missing_ok=True)
        found = randomize(*RECORDS, *ledger, "--json", protocol=protocol)
        assert found.code == 0, found.err
        ledger_of: dict[str, object] = found.json["ledger"]
        return ledger_of

    for name in ("one", "two"):
        invoke(f"collect protocol {BOTH} --purpose {name} --out {name}.json")
    first, again, second = charged("one.json"), charged("one.json"), charged("two.json")
    assert (first["epsilon"], again["epsilon"], second["epsilon"]) == (8.0, 8.0, 16.0)
    known = ("local-attributes", first["data_set"], 2)
    assert (first["unit"], second["data_set"], second["releases"]) == known
    head, *rows = read(files.nodes)
    write(files.nodes, [head, [rows[0][0], "9.5", *rows[0][2:]], *rows[1:]])
    assert charged("one.json")["epsilon"] == 24.0  # what has changed is reported a second time
    assert invoke("ledger init people --unit local-attributes --epsilon 10 --delta 0").code == 0
    charged("one.json", "--ledger", "people")
    Path("m.csv").unlink()
    failed = randomize(*RECORDS, "--ledger", "people", protocol="two.json")
    rejected(failed, "costs epsilon 8, but 8 of epsilon 10 is already spent")
    assert not Path("m.csv").exists()


@pytest.mark.usefixtures("collected")
def test_receivers_of_reports_record_a_protocol_once(invoke: Invoke, randomize: Randomize) -> None:
    invoke("ledger init people --unit local-attributes --epsilon 10 --delta 0")
    assert invoke(*DECODE, "--json").json["ledger"] is None
    for number in range(2):
        found = invoke(*DECODE[:-1], f"{number}.csv", "--ledger", "people", "--json").json["ledger"]
        assert (found["releases"], found["epsilon"]) == (1, 8.0)
    randomize(protocol="survey.json", out="n.csv")
    recognized = invoke("ledger list --json").json["data_sets"]
    assert {one["name"]: one["releases"] for one in recognized} == {"data-1": 1, "people": 1}

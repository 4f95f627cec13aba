"""Surveys, messages and tables of nodes on the command line: what is written, told and refused."""

import base64
import inspect
import json
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from command import NODES, SECRET, Files, Invoke, environment, read, write

from graphveil.cli import collect
from graphveil.errors import ConfigError
from graphveil.local.collect import MAX_EPS, CollectionProtocol, decode
from graphveil.mechanisms import LabelRR, MultiBit

FEATURES = ["--eps-x", 6, "--columns", "age,height", "--low", -10, "--high", "10,20"]
LABEL = ["--eps-y", 2, "--classes", "t0,t1,t2"]
RECORDS = ["--id", "user", "--label", "team"]


@pytest.fixture
def collected(invoke: Invoke, files: Files) -> list[str]:
    """Write a survey and messages; the flags that decode them."""
    invoke("collect", "protocol", *FEATURES, *LABEL, "--purpose", "pilot", "--out", "survey.json")
    nodes = ["--nodes", files.nodes, *RECORDS]
    invoke("collect", "randomize", "--protocol", "survey.json", *nodes, "--out", "messages.csv")
    return ["--protocol", "survey.json", "--reports", "messages.csv", "--id", "user", "--out", "nodes.csv"]


def ids(path: str) -> list[str]:
    return [row[0] for row in read(Path(path))[1:]]


# -- the way there and back --------------------------------------------------------------------------------


def test_a_node_file_to_messages_and_back_is_a_node_file_to_train_on(
    invoke: Invoke, files: Files, collected: list[str]
) -> None:
    protocol = CollectionProtocol.from_json(Path("survey.json").read_text())
    head, *rows = read(Path("messages.csv"))
    assert head == ["user", "message"]
    answers = {row[0]: decode(protocol, row[0], base64.b64decode(row[1], validate=True)) for row in rows}
    record = invoke("collect", "decode", *collected, "--label", "team", "--json").json
    assert (record["accepted"], record["refused"], record["nodes"]) == (NODES, 0, NODES)
    head, *rows = read(Path("nodes.csv"))
    assert head == ["user", "age", "height", "team"]
    assert [row[0] for row in rows] == sorted(ids(str(files.nodes)))
    assert [row[3] for row in rows] == [f"t{answers[row[0]].label}" for row in rows]
    stated = answers[rows[7][0]].features
    assert protocol.features is not None and stated is not None
    estimate = protocol.features.estimate(stated)[0]
    assert [float(cell) for cell in rows[7][1:3]] == pytest.approx(estimate, rel=1e-6)
    flags = ["--nodes", "nodes.csv", "--edges", files.edges, *files.flags[4:]]
    privacy = ["--unit", "undirected-edge", "--epsilon", 1, "--set", "epochs=3"]
    trained = invoke("train", "mlp", *flags, *privacy, "--json").json
    assert (trained["nodes"], trained["features"], trained["classes"]) == (NODES, 2, 3)


def test_every_command_prints_the_statement_and_one_object(invoke: Invoke, files: Files) -> None:
    request = invoke("collect", "protocol", *FEATURES, *LABEL, "--out", "s.json", "--json")
    nodes = ["--protocol", "s.json", "--nodes", files.nodes, *RECORDS]
    answered = invoke("collect", "randomize", *nodes, "--out", "m.parquet", "--json")
    messages = ["--protocol", "s.json", "--reports", "m.parquet", "--id", "user"]
    decoded = invoke("collect", "decode", *messages, "--out", "n.parquet", "--json")
    for answer in (request, answered, decoded):
        guarantee = answer.json["guarantee"]
        assert guarantee["unit"] == "local-attributes"
        assert (guarantee["epsilon"], guarantee["eps_x"], guarantee["eps_y"]) == (8, 6, 2)
        assert guarantee["valid"] is True
        assert "eps_x = 6 and its label at eps_y = 2 (total 8; inf" in guarantee["statement"]
        assert guarantee["statement"] in answer.err
        assert answer.json["protocol"] == request.json["protocol"]
    assert "own device ran the randomizer" in request.json["guarantee"]["statement"]
    assert "This process held the raw data" in answered.json["guarantee"]["statement"]
    assert "saw only what had left the randomizer" in decoded.json["guarantee"]["statement"]
    assert request.json["report_bytes"] == 42
    assert parquet.read_table("n.parquet").column_names == ["user", "age", "height", "label"]


def test_a_survey_is_for_handing_out_and_a_private_count_is_not(invoke: Invoke, files: Files) -> None:
    assert invoke("collect", "protocol", *FEATURES, *LABEL, "--out", "s.json").code == 0
    flags = ["--protocol", "s.json", "--nodes", files.nodes, "--id", "user", "--label", "team"]
    assert invoke("collect", "randomize", *flags, "--out", "m.csv", "--internal", "i.json").code == 0
    assert Path("s.json").stat().st_mode & 0o777 == 0o644
    assert Path("i.json").stat().st_mode & 0o777 == 0o600


def test_statements_break_between_words_on_a_terminal(invoke: Invoke) -> None:
    with environment(FORCE_COLOR="1", COLUMNS="60"):  # the first makes a terminal of standard output
        lines = invoke("collect", "protocol", *FEATURES, *LABEL, "--out", "s.json").out.splitlines()
    assert len(lines) > 3
    assert max(map(len, lines[1:])) <= 60


def test_without_json_people_read_the_same(invoke: Invoke, files: Files, collected: list[str]) -> None:
    answer = invoke("collect", "decode", *collected)
    assert f"{NODES} messages accepted and 0 refused; the nodes are in nodes.csv" in answer.out
    assert "Each node's features are randomized on their own at eps_x = 6" in answer.out


def test_feature_rr_with_public_weights_and_settings(invoke: Invoke, files: Files) -> None:
    Path("theta.json").write_text("[0.75, 0.25]")
    query = [*FEATURES, "--mechanism", "feature-rr", "--theta", "theta.json"]
    settings = ["--set", "k=10", "--set", "mode=ceil", "--set", "decode=naive"]
    invoke("collect", "protocol", *query, *settings, "--out", "s.json")
    law = CollectionProtocol.from_json(Path("s.json").read_text()).features
    assert [(feature.epsilon, feature.k) for feature in law.features] == [(4.5, 10), (1.5, 10)]
    invoke(
        "collect",
        "randomize",
        "--protocol",
        "s.json",
        "--nodes",
        files.nodes,
        "--id",
        "user",
        "--out",
        "m.csv",
    )
    flags = ["--protocol", "s.json", "--reports", "m.csv", "--id", "user", "--out", "n.csv"]
    assert invoke("collect", "decode", *flags).code == 0
    assert read(Path("n.csv"))[0] == ["user", "age", "height"]


def test_features_without_names_are_a_list_or_all_columns(invoke: Invoke) -> None:
    x = np.linspace(0, 1, 20, dtype=np.float32).reshape(5, 4)
    parquet.write_table(pa.table({"node": np.arange(5), "v": list(x)}), "nodes.parquet")
    invoke("collect", "protocol", "--eps-x", 400, "--dim", 4, "--set", "m=all", "--out", "s.json")
    flags = ["--protocol", "s.json", "--id", "node"]
    raised = ["--nodes", "nodes.parquet", "--out", "m.csv", "--max-eps", 400]
    assert invoke("collect", "randomize", *flags, *raised).code == 0
    assert invoke("collect", "decode", *flags, "--reports", "m.csv", "--out", "n.parquet").code == 0
    table = parquet.read_table("n.parquet")
    assert table.column_names == ["node", "x0", "x1", "x2", "x3"]
    assert table.column("node").to_pylist() == list(range(5))
    assert set(np.unique(np.stack(table.columns[1:]))) <= {0.0, 1.0}


def test_a_record_without_label_answers_like_all_others(invoke: Invoke, files: Files) -> None:
    head, *rows = read(files.nodes)
    for row in rows[:40]:
        row[3] = SECRET if row[0] == "u3" else ""  # a class that the survey does not know, and none
    write(files.nodes, [head, *rows])
    invoke("collect", "protocol", "--eps-y", 8, "--classes", "t0,t1,t2", "--out", "s.json")
    nodes = [
        "--protocol",
        "s.json",
        "--nodes",
        files.nodes,
        *RECORDS,
        "--out",
        "m.csv",
        "--internal",
        "i.json",
    ]
    assert invoke("collect", "randomize", *nodes).code == 0
    flags = [
        "--protocol",
        "s.json",
        "--reports",
        "m.csv",
        "--id",
        "user",
        "--label",
        "team",
        "--out",
        "n.csv",
    ]
    assert invoke("collect", "decode", *flags, "--json").json["accepted"] == NODES
    stated = dict(read(Path("n.csv"))[1:])
    assert set(stated.values()) == {"t0", "t1", "t2"}
    assert len({stated[row[0]] for row in rows[:40]}) == 3
    assert json.loads(Path("i.json").read_text())["missing_labels"] == 40


# -- before anything is answered ---------------------------------------------------------------------------


def test_a_survey_is_shown_before_anything_is_answered(invoke: Invoke) -> None:
    Path("theta.json").write_text("[0.9, 0.1]")
    query = [*FEATURES, "--mechanism", "feature-rr", "--theta", "theta.json", *LABEL, "--purpose", "a pilot"]
    invoke("collect", "protocol", *query, "--out", "s.json")
    shown = invoke("collect", "show", "s.json")
    assert shown.code == 0
    reported = ("a pilot", "from -10 to 20", "0.9 of that budget is for a single feature", "t0, t1, t2")
    for words in (
        *reported,
        "epsilon 8 of a whole record",
        "Each node's features are randomized on their own",
    ):
        assert words in shown.out
    assert [line.split() for line in shown.out.splitlines() if "age " in line] == [
        ["age", "-10", "10", "5.4", "0.5945"]
    ]
    assert "label with probability 0.787" in shown.out
    record = invoke("collect", "show", "s.json", "--json").json
    assert (record["purpose"], record["columns"], record["largest_share"]) == (
        "a pilot",
        ["age", "height"],
        0.9,
    )
    assert record["kept"] == {
        "features": pytest.approx(0.6457, abs=1e-4),
        "label": pytest.approx(0.787, abs=1e-3),
    }
    assert (record["answered"], record["guarantee"]["not_protected"]) == (True, [])


def test_the_statement_comes_before_the_messages(
    invoke: Invoke, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    invoke("collect", "protocol", *FEATURES, *LABEL, "--purpose", "pilot", "--out", "s.json")

    def full(*given: object) -> None:
        raise ConfigError("the disk is full")

    monkeypatch.setattr("graphveil.data.tables.write", full)
    nodes = ["--protocol", "s.json", "--nodes", files.nodes, *RECORDS, "--out", "m.csv"]
    answer = invoke("collect", "randomize", *nodes)
    assert (answer.code, "the disk is full" in answer.err) == (1, True)
    assert "pilot" in answer.out
    assert "Each node's features are randomized on their own at eps_x = 6" in answer.out


def test_a_protocol_over_the_limit_is_answered_after_consent_alone(invoke: Invoke, files: Files) -> None:
    greedy = ["--eps-x", "100000", "--columns", "age,height", "--mechanism", "feature-rr", "--set", "k=256"]
    made = invoke("collect", "protocol", *greedy, "--eps-y", 1000, "--classes", "t0,t1,t2", "--out", "s.json")
    assert "It is not answered unless that is agreed to" in made.out
    nodes = ["--protocol", "s.json", "--nodes", files.nodes, *RECORDS, "--out", "m.csv"]
    refused = invoke("collect", "randomize", *nodes)
    assert refused.code == 2
    assert (
        "needs epsilon 101000 of a record, and this client reports up to 8: nothing was sent" in refused.err
    )
    for words in (
        "NOT PROTECTED: of 2 features 2 leave each node as they are with probability 1",
        "the label",
    ):
        assert words in refused.out
    assert not Path("m.csv").exists()
    shown = invoke("collect", "show", "s.json", "--json").json
    assert (shown["answered"], shown["guarantee"]["not_protected"]) == (False, ["features", "label"])
    assert invoke("collect", "randomize", *nodes, "--max-eps", 101000).code == 0


def test_the_command_and_the_library_have_one_limit() -> None:
    assert inspect.signature(collect.randomize).parameters["max_eps"].default == MAX_EPS == 8


def test_texts_of_a_protocol_are_shown_and_not_obeyed(invoke: Invoke) -> None:
    wicked = "\x1b[2J[bold]all is well\nNothing is asked"
    protocol = CollectionProtocol(
        label=LabelRR(epsilon=1.0, classes=2), purpose=wicked, class_names=("\x9b1m", "b")
    )
    Path("s.json").write_text(protocol.to_json())
    shown = invoke("collect", "show", "s.json")
    assert "\\x1b[2J[bold]all is well Nothing is asked" in shown.out
    assert not {"\x1b", "\x9b"} & set(shown.out + shown.err)


def test_a_file_that_is_no_survey_is_not_read_whole(invoke: Invoke) -> None:
    with Path("s.json").open("wb") as file:
        file.truncate(1 << 40)  # a terabyte of zeros, which takes no room
    answer = invoke("collect", "show", "s.json")
    assert (answer.code, "a survey has at most 1,048,576 characters" in answer.err) == (2, True)


# -- one answer to one question ----------------------------------------------------------------------------


def test_answering_again_gives_the_same_messages(invoke: Invoke, files: Files, collected: list[str]) -> None:
    nodes = ["--protocol", "survey.json", "--nodes", files.nodes, *RECORDS]
    assert invoke("collect", "randomize", *nodes, "--out", "again.csv").code == 0
    assert Path("again.csv").read_bytes() == Path("messages.csv").read_bytes()
    assert invoke("collect", "randomize", *nodes, "--out", "other.csv", "--secret", "own.key").code == 0
    assert Path("own.key").stat().st_mode & 0o777 == 0o600
    first, other = (dict(read(Path(name))) for name in ("messages.csv", "other.csv"))
    assert first.keys() == other.keys()
    assert sum(first[node] == other[node] for node in first) < NODES / 2
    Path("own.key").write_text("short")
    refused = invoke("collect", "randomize", *nodes, "--out", "third.csv", "--secret", "own.key")
    assert (refused.code, "32 random bytes" in refused.err) == (2, True)


def test_the_order_of_the_private_table_is_not_reported(invoke: Invoke, files: Files) -> None:
    invoke("collect", "protocol", *FEATURES, *LABEL, "--out", "s.json")
    head, *rows = read(files.nodes)
    for name, order in (("young", 1), ("old", -1)):
        write(files.nodes, [head, *sorted(rows, key=lambda row: order * float(row[1]))])
        flags = ["--protocol", "s.json", "--nodes", files.nodes, *RECORDS]
        assert invoke("collect", "randomize", *flags, "--out", f"{name}.csv").code == 0
    assert Path("young.csv").read_bytes() == Path("old.csv").read_bytes()
    assert ids("young.csv") == sorted(ids("young.csv"))


def test_labels_alone_and_classes_by_number(invoke: Invoke) -> None:
    write(Path("nodes.csv"), [["node", "kind"], ["a", "1"], ["b", "0"], ["c", "2"]])
    invoke("collect", "protocol", "--eps-y", "50", "--classes", "3", "--out", "s.json", "--json")
    flags = ["--protocol", "s.json", "--id", "node"]
    nodes = ["--nodes", "nodes.csv", "--label", "kind", "--out", "m.csv", "--max-eps", 50]
    guarantee = invoke("collect", "randomize", *flags, *nodes, "--json").json["guarantee"]
    assert (guarantee["epsilon"], guarantee["eps_x"], guarantee["eps_y"]) == (50, 0, 50)
    assert guarantee["not_protected"] == ["label"]  # what is kept in all but 2 of e^50 times is told
    assert guarantee["statement"].startswith("NOT PROTECTED: the label leaves each node as it is")
    invoke("collect", "decode", *flags, "--reports", "m.csv", "--out", "n.csv")
    assert read(Path("n.csv")) == [["node", "label"], ["a", "1"], ["b", "0"], ["c", "2"]]


def test_several_reported_classes_have_columns_of_their_own(invoke: Invoke) -> None:
    write(Path("nodes.csv"), [["node", "kind"], ["a", "k1"], ["b", "k0"], ["c", ""]])
    names = ",".join(f"k{number}" for number in range(7))
    request = ["--eps-y", "1", "--classes", names, "--label-mechanism", "subset", "--out", "s.json"]
    assert invoke("collect", "protocol", *request, "--json").json["guarantee"]["eps_y"] == 1
    shown = invoke("collect", "show", "s.json")
    assert "2 classes are reported, the label among them with probability 0.5209" in " ".join(
        shown.out.split()
    )
    flags = ["--protocol", "s.json", "--id", "node"]
    nodes = ["--nodes", "nodes.csv", "--label", "kind", "--out", "m.csv"]
    assert invoke("collect", "randomize", *flags, *nodes).code == 0
    invoke("collect", "decode", *flags, "--reports", "m.csv", "--label", "kind", "--out", "n.csv")
    head, *rows = read(Path("n.csv"))
    assert head == ["node", "kind_1", "kind_2"]
    assert [row[0] for row in rows] == ["a", "b", "c"]
    assert all(first < second and {first, second} <= set(names.split(",")) for _, first, second in rows)


def test_a_group_of_classes_is_reported_and_a_smaller_one_leaves_a_column_empty(invoke: Invoke) -> None:
    write(Path("nodes.csv"), [["node", "kind"], *([f"n{number}", f"k{number % 7}"] for number in range(20))])
    names = ",".join(f"k{number}" for number in range(7))
    request = ["--eps-y", "1", "--classes", names, "--label-mechanism", "hashing", "--out", "s.json"]
    assert invoke("collect", "protocol", *request, "--json").json["guarantee"]["eps_y"] == 1
    shown = " ".join(invoke("collect", "show", "s.json").out.split())
    assert "one of 3 groups of classes, which the survey and your id make, not the answer" in shown
    assert "the label's own group with probability 0.5761" in shown
    flags = ["--protocol", "s.json", "--id", "node"]
    invoke("collect", "randomize", *flags, "--nodes", "nodes.csv", "--label", "kind", "--out", "m.csv")
    invoke("collect", "decode", *flags, "--reports", "m.csv", "--label", "kind", "--out", "n.csv")
    head, *rows = read(Path("n.csv"))
    assert head == ["node", "kind_1", "kind_2", "kind_3"]
    assert {row[3] for row in rows} > {""} and all(row[1] < row[2] for row in rows)


OPEN = ["--eps-y", "inf", "--classes", "t0,t1,t2"]


def test_a_label_without_privacy_is_marked_wherever_it_goes(invoke: Invoke, files: Files) -> None:
    features = ["--eps-x", 8, "--columns", "age,height", "--low", -10, "--high", 20]
    nodes = [
        "--nodes",
        files.nodes,
        "--id",
        "user",
        "--label",
        "team",
        "--out",
        "m.csv",
        "--allow-unprotected-label",
    ]
    edges = ["--edges", files.edges, "--source", "a", "--target", "b", "--set", "epochs=2"]
    received = ["--protocol", "s.json", "--reports", "m.csv", "--id", "user"]
    commands = [
        ["protocol", *features, *OPEN, "--out", "s.json"],
        ["show", "s.json"],
        ["randomize", "--protocol", "s.json", *nodes],
        ["decode", *received, "--out", "n.csv"],
        ["learn", *received, *edges, "--out", "model"],
    ]
    for command in commands:
        answer = invoke("collect", *command, "--json")
        assert answer.code == 0, answer.err
        assert "NOT PROTECTED: the label leaves each node as it is" in answer.err
        assert answer.json["guarantee"]["eps_y"] is None
        if command[0] != "learn":
            assert answer.json["guarantee"]["not_protected"] == ["label"]


def test_a_survey_that_protects_nothing_is_refused(invoke: Invoke) -> None:
    answer = invoke("collect", "protocol", *OPEN, "--out", "s.json")
    assert (answer.code, "it would protect nothing" in answer.err) == (2, True)
    assert not Path("s.json").exists()


def test_a_message_file_does_not_depend_on_the_order_of_columns(invoke: Invoke, collected: list[str]) -> None:
    invoke("collect", "decode", *collected)
    first = Path("nodes.csv").read_bytes()
    write(Path("messages.csv"), [[row[1], "", row[0]] for row in read(Path("messages.csv"))])
    _, *rows = read(Path("messages.csv"))
    write(Path("messages.csv"), [["message", "note", "user"], *rows])
    invoke("collect", "decode", *collected)
    assert Path("nodes.csv").read_bytes() == first


# -- what is private stays so ------------------------------------------------------------------------------


def test_clipped_values_are_counted_in_an_internal_file_only(invoke: Invoke, files: Files) -> None:
    head, *rows = read(files.nodes)
    for row in rows[:7]:
        row[1] = "-12.5"
    write(files.nodes, [head, *rows])
    invoke("collect", "protocol", *FEATURES, *LABEL, "--out", "s.json")
    flags = ["--protocol", "s.json", "--nodes", files.nodes, *RECORDS, "--out", "m.csv"]
    answer = invoke("collect", "randomize", *flags, "--internal", "in/ternal.json", "--json")
    assert json.loads(Path("in/ternal.json").read_text()) == {"clipped_values": 7, "missing_labels": 0}
    assert "7" not in str(answer.json | {"protocol": "", "ledger": ""})  # digests may have any digit
    assert "clipped" not in answer.err


def test_messages_are_not_drawn_again_over_those_that_are_there(invoke: Invoke, files: Files) -> None:
    invoke("collect", "protocol", *FEATURES, *LABEL, "--out", "s.json")
    again = invoke("collect", "protocol", *FEATURES, *LABEL, "--out", "s.json")
    assert (again.code, "answers belong to one survey" in again.err) == (2, True)
    flags = ["--protocol", "s.json", "--nodes", files.nodes, *RECORDS, "--out", "m.csv"]
    assert invoke("collect", "randomize", *flags).code == 0
    first = Path("m.csv").read_bytes()
    again = invoke("collect", "randomize", *flags)
    assert (again.code, "second answer doubles" in again.err) == (2, True)
    assert Path("m.csv").read_bytes() == first


# -- messages that are not in order ------------------------------------------------------------------------


def resigned(text: str, change: Callable[[bytearray], None]) -> str:
    """A message with something changed and a right checksum."""
    body = bytearray(base64.b64decode(text)[:-4])
    change(body)
    return base64.b64encode(bytes(body) + zlib.crc32(body).to_bytes(4, "big")).decode()


def bit(at: int) -> Callable[[bytearray], None]:
    def change(body: bytearray) -> None:
        body[at // 8] ^= 1 << at % 8

    return change


Rows = list[list[str]]
BAD: dict[str, tuple[Callable[[str, Rows], str], str]] = {
    "no base64": (lambda text, rows: SECRET, "not in base64"),
    "empty": (lambda text, rows: "", "has 42 bytes, and this one has 0"),
    "truncated": (lambda text, rows: text[:-4], "has 42 bytes, and this one has 39"),
    "damaged": (lambda text, rows: text[:52] + ("A" if text[52] != "A" else "B") + text[53:], "damaged"),
    "replayed": (lambda text, rows: rows[1][1], "a copy of another report is not accepted"),
    "under a fresh id": (lambda text, rows: resigned(text, bit(8 * 30)), "of another node"),
    "another version": (lambda text, rows: resigned(text, bit(8 * 4)), "version 2 only"),
    "another survey": (lambda text, rows: resigned(text, bit(8 * 9)), "answers another survey"),
    "no message": (lambda text, rows: resigned(text, bit(3)), "no LDP report of a survey"),
    "out of range": (lambda text, rows: resigned(text, lambda body: body.__setitem__(37, 0x30)), "not have"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_message_that_no_device_sends_is_refused_by_its_row(
    invoke: Invoke, collected: list[str], case: str
) -> None:
    spoil, why = BAD[case]
    rows = read(Path("messages.csv"))
    rows[5][1] = spoil(rows[5][1], rows)
    write(Path("messages.csv"), rows)
    answer = invoke("collect", "decode", *collected, "--json")
    assert answer.code == 2
    error = answer.json["error"]
    assert error["kind"] == "LDPReportError"
    assert error["message"].startswith("LDP reports refused: 1, the first in row 5: ")
    assert why in error["message"]
    assert "u4" not in answer.err
    assert SECRET not in answer.err
    assert not Path("nodes.csv").exists()


def test_what_is_refused_can_be_left_out_and_is_counted(invoke: Invoke, collected: list[str]) -> None:
    rows = read(Path("messages.csv"))
    ids_in_order = [row[0] for row in rows]
    rows[5][1], rows[9][1], rows[11][:] = SECRET, rows[1][1], rows[2]
    write(Path("messages.csv"), rows)
    answer = invoke("collect", "decode", *collected, "--skip-bad", "--json")
    record = answer.json
    assert (record["nodes"], record["accepted"], record["refused"]) == (NODES - 1, NODES - 3, 3)
    assert record["refused_rows"] == [5, 9, 11]
    assert "refused, row 11: this node has answered; a second report would double" in answer.err
    assert "2 of them have no LDP report" in answer.err
    assert SECRET not in answer.err
    written = {row[0]: row[1:] for row in read(Path("nodes.csv"))[1:]}
    assert (
        written[ids_in_order[5]] == written[ids_in_order[9]] == ["0", "5", ""]
    )  # the middle of both ranges, no label
    assert ids_in_order[11] not in written
    assert ids("nodes.csv")[4] == ids_in_order[5]
    assert sum(cells[2] == "" for cells in written.values()) == 2


def test_when_nothing_is_in_order_nothing_is_written(invoke: Invoke, collected: list[str]) -> None:
    write(Path("messages.csv"), [["user", "message"], ["u0", "x"], ["u1", ""]])
    answer = invoke("collect", "decode", *collected, "--skip-bad")
    assert (answer.code, "LDP reports refused: 2, the first in row 1" in answer.err) == (2, True)
    assert not Path("nodes.csv").exists()


# -- misuse ------------------------------------------------------------------------------------------------

BAD_SURVEYS = {
    "nothing": ([], "a label (--eps-y with --classes), or both, and neither is given"),
    "no budget": (["--columns", "a,b"], "--eps-x with --columns"),
    "no columns": (["--eps-x", 1], "--eps-x with --columns"),
    "zero budget": (["--eps-x", 0, "--dim", 3], "epsilon=0.0 must be"),
    "negative budget": (["--eps-x", -1, "--dim", 3], "epsilon=-1.0 must be"),
    "NaN budget": (["--eps-x", "nan", "--dim", 3], "epsilon=nan must be"),
    "no noise": (["--eps-x", "inf", "--dim", 3], "not randomized"),
    "zero label budget": (["--eps-y", 0, "--classes", "2"], "epsilon=0.0 must be"),
    "one class": (["--eps-y", 1, "--classes", "a"], "classes=1"),
    "no classes": (["--eps-y", 1], "--eps-y with --classes"),
    "no label": (["--eps-x", 1, "--dim", 2, "--label-mechanism", "subset"], "--label-mechanism is for a"),
    "twice the same": (["--eps-x", 1, "--columns", "a,a"], "different names"),
    "both": (["--eps-x", 1, "--columns", "a,b", "--dim", 2], "drop --dim"),
    "empty range": (["--eps-x", 1, "--dim", 2, "--low", 1, "--high", 1], "must be below"),
    "text range": (["--eps-x", 1, "--dim", 2, "--low", "zero"], "low='zero' cannot be read"),
    "too many ranges": (["--eps-x", 1, "--dim", 3, "--high", "1,2"], "do not fit dim=3"),
    "unknown key": (["--eps-x", 1, "--dim", 2, "--set", "k=3"], "multi-bit has no such parameter"),
    "bad m": (["--eps-x", 1, "--dim", 2, "--set", "m=3"], "m=3 of dim=2"),
    "unknown mechanism": (["--eps-x", 1, "--dim", 2, "--mechanism", "laplace"], "--mechanism"),
    "theta of another": (["--eps-x", 1, "--dim", 2, "--theta", "t.json"], "is for --mechanism feature-rr"),
}


@pytest.mark.parametrize("case", BAD_SURVEYS)
def test_a_survey_that_cannot_be_is_refused(invoke: Invoke, case: str) -> None:
    flags, why = BAD_SURVEYS[case]
    answer = invoke("collect", "protocol", *flags, "--out", "s.json")
    assert answer.code == 2
    assert why in answer.err
    assert not Path("s.json").exists()


@pytest.mark.parametrize(
    ("theta", "why"),
    [
        ("[0.5, 0.6]", "theta adds up to 1.1 instead of 1"),
        ("[0.25, 0.25]", "would spend 0.5 times its budget"),
        ("[1.5, -0.5]", "finite numbers of at least 0"),
        ("[[0.5, 0.5], [0.9, 0.1]]", "depend on a record"),
        ("[1.0]", "1 weights and there are 2"),
        ("{}", "must hold a JSON list"),
        ("[", "cannot read a JSON list"),
    ],
)
def test_a_theta_that_is_not_public_and_normalized_is_refused(invoke: Invoke, theta: str, why: str) -> None:
    Path("theta.json").write_text(theta)
    flags = ["--eps-x", 1, "--dim", 2, "--mechanism", "feature-rr", "--theta", "theta.json"]
    answer = invoke("collect", "protocol", *flags, "--out", "s.json")
    assert answer.code == 2
    assert why in answer.err


def test_a_protocol_with_bounds_from_data_states_that_it_guarantees_nothing(
    invoke: Invoke, files: Files
) -> None:
    text = CollectionProtocol(features=MultiBit(epsilon=1.0, dim=2), columns=("age", "height")).to_json()
    Path("s.json").write_text(text.replace('"from_data":false', '"from_data":true'))
    flags = ["--protocol", "s.json", "--nodes", files.nodes, "--id", "user", "--out", "m.csv"]
    guarantee = invoke("collect", "randomize", *flags, "--json").json["guarantee"]
    assert guarantee["valid"] is False
    assert guarantee["deviations"] == ["bounds taken from the data"]
    assert guarantee["statement"].startswith("NOT A VALID GUARANTEE")


def spoilt(row: int, column: int, value: str) -> Callable[[Rows], None]:
    def change(rows: Rows) -> None:
        rows[row][column] = value

    return change


BAD_RECORDS: dict[str, tuple[Callable[[Rows], None], str]] = {
    "NaN": (spoilt(5, 1, "nan"), "column 'age' holds NaN"),
    "infinite": (spoilt(5, 2, "-inf"), "column 'height' holds NaN, infinite"),
    "missing": (spoilt(5, 1, ""), "column 'age' has missing values"),
    "text": (spoilt(5, 1, SECRET), "column 'age' is of type"),
    "no label": (lambda rows: [row.__setitem__(3, SECRET) for row in rows[1:]], "no label of the survey's"),
    "repeated id": (spoilt(5, 0, "u0"), "column 'user' repeats ids"),
    "no id": (spoilt(5, 0, ""), "column 'user' has missing values"),
    "no column": (spoilt(0, 1, "aeg"), "no column 'age'"),
    "nobody": (lambda rows: rows.__delitem__(slice(1, None)), "has no rows"),
}


@pytest.mark.parametrize("case", BAD_RECORDS)
def test_records_that_cannot_answer_are_refused_without_a_value(
    invoke: Invoke, files: Files, case: str
) -> None:
    spoil, why = BAD_RECORDS[case]
    rows = read(files.nodes)
    spoil(rows)
    write(files.nodes, rows)
    invoke("collect", "protocol", *FEATURES, *LABEL, "--out", "s.json")
    flags = ["--protocol", "s.json", "--nodes", files.nodes, *RECORDS, "--out", "m.csv"]
    answer = invoke("collect", "randomize", *flags)
    assert answer.code == 2
    assert why in answer.err
    assert SECRET not in answer.err
    assert not Path("m.csv").exists()


def test_columns_of_other_roles_and_widths_are_refused(invoke: Invoke, files: Files) -> None:
    base = ["--nodes", files.nodes, "--id", "user"]
    invoke(
        "collect",
        "protocol",
        "--eps-x",
        1,
        "--dim",
        3,
        "--eps-y",
        1,
        "--classes",
        "t0,t1,t2",
        "--out",
        "s.json",
    )
    for flags, why in (
        (
            ["--protocol", "s.json", "--label", "team", "--out", "m.csv"],
            "collects 3",
        ),
        (["--protocol", "s.json", "--out", "m.csv"], "name its column with label= (--label)"),
        (["--protocol", "s.json", "--label", "user", "--out", "m.csv"], "named for two roles"),
        (["--protocol", "s.json", "--label", "team", "--out", "m.txt"], "must end in .parquet or .csv"),
        (
            ["--protocol", "messages.json", "--label", "team", "--out", "m.csv"],
            "cannot read a collection protocol",
        ),
    ):
        answer = invoke("collect", "randomize", *base, *flags)
        assert (answer.code, why in answer.err) == (2, True), answer.err
    invoke("collect", "protocol", "--eps-x", 1, "--columns", "age,height", "--out", "t.json")
    answer = invoke(
        "collect", "randomize", *base, "--protocol", "t.json", "--label", "team", "--out", "m.csv"
    )
    assert (answer.code, "collects no label" in answer.err) == (2, True)


def test_files_of_messages_that_are_none_are_refused(invoke: Invoke, collected: list[str]) -> None:
    for rows, why in (
        ([["user", "message"]], "has no rows"),
        ([["user", "text"], ["u0", "x"]], "no column 'message'"),
        ([["user", "message"], ["", "x"]], "'user' has missing values"),
    ):
        write(Path("messages.csv"), rows)
        answer = invoke("collect", "decode", *collected)
        assert (answer.code, why in answer.err) == (2, True), answer.err
    write(Path("messages.csv"), [["user", "message"], ["u0", "17"], ["u1", "19"]])
    assert "row 1: an LDP report is not in base64" in invoke("collect", "decode", *collected).err
    parquet.write_table(pa.table({"user": ["u0"], "message": [[1, 2]]}), "m.parquet")
    answer = invoke("collect", "decode", *collected[:2], "--reports", "m.parquet", *collected[4:])
    assert (answer.code, "must hold text" in answer.err) == (2, True)


def test_nothing_that_is_there_is_written_over(invoke: Invoke, files: Files, collected: list[str]) -> None:
    invoke("ledger", "init", "people", "--unit", "local-attributes")
    before = {path: Path(path).read_bytes() for path in ("messages.csv", "survey.json", str(files.nodes))}
    for path in ("messages.csv", "./messages.csv"):
        answer = invoke("collect", "decode", *collected[:-1], path)
        assert (answer.code, "is there already" in answer.err) == (2, True)
    nodes = ["--protocol", "survey.json", "--nodes", files.nodes, *RECORDS]
    answer = invoke("collect", "randomize", *nodes, "--out", "again.csv", "--internal", files.nodes)
    assert (answer.code, "choose another one" in answer.err) == (2, True)
    assert not Path("again.csv").exists()
    Path("file").write_text("")
    for path in ("file/again.csv", f"{'m' * 246}.csv"):
        answer = invoke("collect", "randomize", *nodes, "--out", path, "--internal", "count.json")
        assert (answer.code, Path("count.json").exists()) == (2, False)
        answer = invoke("collect", "decode", *collected[:-1], path, "--ledger", "people")
        assert (answer.code, "cannot" in answer.err) == (2, True)
    charges = invoke("ledger", "list", "--json").json["data_sets"]
    assert {one["name"]: one["releases"] for one in charges}["people"] == 0
    assert before == {path: Path(path).read_bytes() for path in before}


def test_names_that_collide_are_refused(invoke: Invoke, collected: list[str]) -> None:
    for label in ("user", "age"):
        answer = invoke("collect", "decode", *collected, "--label", label)
        assert (answer.code, "different names" in answer.err) == (2, True)
    parquet.write_table(pa.table({"message": ["a"], "age": [1.0], "height": [1.0]}), "n.parquet")
    Path("label.json").write_text(CollectionProtocol(features=MultiBit(epsilon=1.0, dim=2)).to_json())
    flags = ["--protocol", "label.json", "--nodes", "n.parquet", "--id", "message", "--out", "m.csv"]
    answer = invoke("collect", "randomize", *flags)
    assert (answer.code, "cannot be called 'message'" in answer.err) == (2, True)


def test_a_survey_that_was_changed_refuses_the_messages(invoke: Invoke, collected: list[str]) -> None:
    protocol = CollectionProtocol.from_json(Path("survey.json").read_text())
    assert protocol.label == LabelRR(epsilon=2.0, classes=3)
    Path("survey.json").write_text(protocol.to_json().replace('"epsilon":2.0', '"epsilon":3.0'))
    answer = invoke("collect", "decode", *collected)
    assert (answer.code, "row 1: an LDP report answers another survey" in answer.err) == (2, True)
    Path("survey.json").write_text("[]")
    assert "no JSON object" in invoke("collect", "decode", *collected).err


def test_help_lists_the_commands(invoke: Invoke) -> None:
    assert "collect" in invoke("--help").out
    text = invoke("collect", "--help").out
    assert all(name in text for name in ("protocol", "randomize", "decode"))


# -- the ledger --------------------------------------------------------------------------------------------


def test_answers_are_recorded_once_and_records_that_changed_again(invoke: Invoke, files: Files) -> None:
    def answered(protocol: str, *ledger: str) -> dict[str, object]:
        Path("m.csv").unlink(missing_ok=True)
        flags = ["--protocol", protocol, "--nodes", files.nodes, *RECORDS, "--out", "m.csv", "--json"]
        found = invoke("collect", "randomize", *flags, *ledger)
        assert found.code == 0, found.err
        ledger_of: dict[str, object] = found.json["ledger"]
        return ledger_of

    for name in ("one", "two"):
        invoke("collect", "protocol", *FEATURES, *LABEL, "--purpose", name, "--out", f"{name}.json")
    first, again, second = answered("one.json"), answered("one.json"), answered("two.json")
    assert (first["epsilon"], again["epsilon"], second["epsilon"]) == (8.0, 8.0, 16.0)
    assert (first["unit"], second["data_set"], second["releases"]) == (
        "local-attributes",
        first["data_set"],
        2,
    )
    head, *rows = read(files.nodes)
    write(files.nodes, [head, [rows[0][0], "9.5", *rows[0][2:]], *rows[1:]])
    assert answered("one.json")["epsilon"] == 24.0  # what has changed is told a second time
    limit = ["--unit", "local-attributes", "--epsilon", "10", "--delta", "0"]
    assert invoke("ledger", "init", "people", *limit).code == 0
    answered("one.json", "--ledger", "people")
    Path("m.csv").unlink()
    flags = ["--protocol", "two.json", "--nodes", files.nodes, *RECORDS, "--out", "m.csv"]
    refused = invoke("collect", "randomize", *flags, "--ledger", "people")
    assert (refused.code, Path("m.csv").exists()) == (2, False)
    assert "needs epsilon 8, and 8 of 10 at delta 0 are spent" in refused.err


def test_receivers_of_reports_record_a_protocol_once(
    invoke: Invoke, files: Files, collected: list[str]
) -> None:
    invoke("ledger", "init", "people", "--unit", "local-attributes", "--epsilon", "10", "--delta", "0")
    assert invoke("collect", "decode", *collected, "--json").json["ledger"] is None
    charges = [
        invoke("collect", "decode", *collected[:-1], f"{n}.csv", "--ledger", "people", "--json").json[
            "ledger"
        ]
        for n in range(2)
    ]
    assert [(one["releases"], one["epsilon"]) for one in charges] == [(1, 8.0), (1, 8.0)]
    invoke(
        "collect",
        "randomize",
        "--protocol",
        "survey.json",
        "--nodes",
        files.nodes,
        *RECORDS,
        "--out",
        "n.csv",
    )
    recognized = invoke("ledger", "list", "--json").json["data_sets"]
    assert {one["name"]: one["releases"] for one in recognized} == {"data-1": 1, "people": 1}

"""``check``, and tables that ``train`` rejects: all errors at once, and a suggested command."""

import importlib.util
import json
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet
import pytest
from command import SECRET, Answer, Files, Invoke, changed, read, recorded, write

ROOT = Path(__file__).parents[2]
COLUMNS = ["--id", "customer_id", "--label", "segment", "--source", "from_id", "--target", "to_id"]
PRIVATE = ["--unit", "undirected-edge", "--epsilon", "1", "--delta", "1e-7"]
FIXED = ["--drop", "note", "--categories", "country,plan", "--missing", "indicator", "--unknown-ids", "drop"]
QUICK = ["--set", "epochs=2", "--set", "encoder_epochs=2", "--no-baseline"]


def company() -> ModuleType:
    spec = importlib.util.spec_from_file_location("company_tables", ROOT / "benchmarks/company_tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def small(tmp_path: Path) -> list[str]:
    """The company's tables, small."""
    nodes, edges = company().write(tmp_path, parquet=False, seed=0, customers=300, transfers=900)
    return ["--nodes", str(nodes), "--edges", str(edges)]


def test_all_errors_are_listed_and_the_suggested_command_works(invoke: Invoke, small: list[str]) -> None:
    rejected = invoke("train gap", *small, *COLUMNS, *PRIVATE, *QUICK, "--out", "run", "--json")
    assert rejected.code == 2 and not Path("run").exists()
    error = rejected.json["error"]
    assert len(error["problems"]) == 7 and error["kind"] == "GraphError"
    for name in ("joined", "age", "balance", "country", "plan", "note", "to_id"):
        assert any(f"column {name!r}" in words for words in error["problems"])
    assert rejected.err.count("\n") == 9 and f"Suggested command: {error['command']}" in rejected.err
    passed = invoke(*shlex.split(error["command"])[1:])
    assert passed.code == 0 and passed.json["features"] == 2 * 4 + 12 + 3
    plan = passed.err
    assert "customers: 300 nodes" in plan and "joined (years since 2000, and whether it is missing)" in plan
    assert "note (of the nodes); amount, booked (of the edges)" in plan
    assert "edges to unknown node ids are dropped" in plan


def test_check_reports_the_same_errors_without_training(invoke: Invoke, small: list[str]) -> None:
    answer = invoke("check", *small, "--json")
    assert answer.code == 1 and not list(Path().iterdir()) and not recorded()
    found = answer.json
    assert len(found["problems"]) == 7 and "id = customer_id" in found["guessed"]
    becomes = {(column["table"], column["name"]): column["becomes"] for column in found["columns"]}
    assert (
        becomes["nodes", "segment"].startswith("label: 5 classes: business, family")
        and becomes["edges", "amount"] == "ignored"
    )
    assert (
        becomes["nodes", "newsletter"] == "feature: 0 or 1" and becomes["nodes", "note"] == "error, see below"
    )
    words = shlex.split(found["command"])
    assert words[:3] == ["graphveil", "train", "classcode"] and words[-len(FIXED) :] == FIXED
    again = invoke("check", *small, *COLUMNS, *FIXED)
    assert again.code == 0 and "No errors found." in again.out


@pytest.mark.parametrize(
    ("labels", "parts", "unit", "words"),
    [
        ("a" * 20, None, "undirected-edge", "fewer than two classes"),
        (" " * 20, None, "undirected-edge", "fewer than two classes"),
        ("abababab", None, "undirected-edge", "no labeled val nodes"),
        ("ababababa", None, "undirected-edge", None),
        ("ab" + " " * 18, None, "undirected-edge", "no labeled val nodes"),
        ("ababab ", "rrrvtrv", "undirected-edge", None),
        ("abab ab", "rrrtvrt", "undirected-edge", "no labeled val nodes"),
        ("ab b ab", "rrrrvvr", "undirected-edge", "no labeled test nodes"),
        ("ab b ab", "rrrrvvr", "node-record", "no labeled test nodes"),
        ("ab b ab", "rttvvvr", "undirected-edge", None),
        ("ab b a ", "rttvvvr", "undirected-edge", "one labeled train node"),
    ],
)
def test_check_and_train_agree_on_what_can_be_learned(
    invoke: Invoke, labels: str, parts: str | None, unit: str, words: str | None
) -> None:
    names = {"r": "train", "v": "val", "t": "test"}
    rows = [[f"u{n}", f"{n % 7}", label.strip()] for n, label in enumerate(labels)]
    head, flags = ["user", "age", "team"], ["--id", "user", "--label", "team"]
    if parts is not None:
        rows = [[*row, names[part]] for row, part in zip(rows, parts, strict=True)]
        head, flags = [*head, "fold"], [*flags, "--split", "fold"]
    write(Path("nodes.csv"), [head, *rows])
    write(Path("edges.csv"), [["source", "target"], ["u0", "u1"], ["u2", "u3"]])
    flags += ["--nodes", "nodes.csv", "--edges", "edges.csv", "--source", "source", "--target", "target"]
    checked = invoke("check", *flags, "--unit", unit, "--json")
    assert checked.code == (words is not None)
    assert [words in stated for stated in checked.json["problems"]] == [True] * (words is not None)
    private = ["--unit", unit, "--epsilon", 4, "--delta", 1e-3, *QUICK]
    private += ["--directed", "--classes", "a,b", "--out-degree-bound", 2] if unit == "node-record" else []
    trained = invoke("train gap", *flags, *private, "--out", "run")
    assert trained.code == (0 if words is None else 2), trained.err
    assert bool(recorded()) == (words is None)
    assert words is None or words in trained.err


def without_commas(files: Files, folder: Path) -> tuple[Path, Path]:
    """Both tables with semicolons."""
    for file in (files.nodes, files.edges):
        (folder / file.name).write_text(file.read_text().replace(",", ";"))
    return folder / files.nodes.name, folder / files.edges.name


@pytest.mark.parametrize("table", ["nodes", "edges"])
@pytest.mark.parametrize("command", ["check", "check with names", "train", "prepare"])
def test_a_csv_with_another_separator_is_reported_as_such(
    invoke: Invoke, files: Files, table: str, command: str
) -> None:
    nodes, edges = without_commas(files, Path())
    given = ["--nodes", nodes if table == "nodes" else files.nodes]
    given += ["--edges", edges if table == "edges" else files.edges]
    words: dict[str, list[object]] = {
        "check": ["check"],
        "check with names": ["check", *files.flags[4:]],
        "train": ["train", "gap", *files.flags[4:], *PRIVATE],
        "prepare": ["prepare", *files.flags[4:], "--out", "g"],
    }
    rejected = invoke(*words[command], *given)
    assert rejected.code in (1, 2)  # of `check`, something would be rejected, or it cannot guess
    assert not recorded()
    assert table in rejected.out + rejected.err
    assert "a CSV is read with commas between its columns" in rejected.out + rejected.err


def test_check_states_why_columns_cannot_be_guessed(invoke: Invoke, files: Files) -> None:
    rows = read(files.nodes)
    write(files.nodes, [*rows, rows[1]])
    repeats = invoke("check --nodes", files.nodes, "--edges", files.edges)
    assert (repeats.code, "column 'user' repeats ids" in repeats.err) == (2, True)
    assert SECRET not in repeats.err and rows[1][0] not in repeats.err
    folder = invoke("check --nodes . --edges", files.edges)
    assert (folder.code, ". is a folder. Name the table in it" in folder.err) == (2, True)


def test_check_does_not_load_torch(small: list[str]) -> None:
    code = (
        "import sys; from graphveil.cli import main\n"
        f"try: main({['check', *small]!r})\n"
        "except SystemExit: print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("False")


@pytest.mark.parametrize("unit", ["node", "node-record", "node-bounded-degree"])
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--drop", "note,country", "--categories", "plan", "--missing", "constant=0"], "plan=hash:32"),
        (["--features", "age,balance", "--missing", "median"], "a median would be computed from all records"),
    ],
)
def test_node_level_units_reject_encodings_from_the_data(
    invoke: Invoke, small: list[str], unit: str, flags: list[str], words: str
) -> None:
    budget = ["--unit", unit, "--epsilon", 4, *(["--max-degree", 9] if unit != "node" else [])]
    answer = invoke("train gap", *small, *COLUMNS, *flags, "--unknown-ids", "drop", *budget)
    assert answer.code == 2 and words in answer.err and not recorded()


def test_private_edges_do_not_add_public_nodes(invoke: Invoke, small: list[str]) -> None:
    flags = [*FIXED[:-1], "add"]
    answer = invoke("train gap", *small, *COLUMNS, *flags, *PRIVATE)
    assert answer.code == 2 and "publish a node" in answer.err and not recorded()
    open_graph = ["--unit", "none", "--set", "epochs=2", "--json"]
    counted = invoke("train gcn", *small, *COLUMNS, *flags, *open_graph)
    assert counted.code == 0 and counted.json["nodes"] > 300


def test_the_number_of_dropped_edges_is_not_released(invoke: Invoke, files: Files) -> None:
    """Two tables that differ in edges to unknown ids give the same words and figures, but for their paths."""
    stated = []
    for number, extra in enumerate((0, 7)):
        rows = read(files.edges)
        edges = files.edges.with_name(f"more{number}.csv")
        write(edges, [*rows, *([rows[1][0], "nobody", SECRET] for _ in range(extra))])
        flags = changed(files.flags, "--unknown-ids", "drop", "--edges", edges)
        answer = invoke("train gap --unsafe-noise-seed 1", *flags, *PRIVATE, *QUICK, "--out", f"r{number}")
        assert answer.code == 0
        folder = Path(f"r{number}/release")
        stated.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert stated[0] == stated[1]


def test_predict_reads_tables_with_the_encoding_of_training(
    invoke: Invoke, small: list[str], tmp_path: Path
) -> None:
    train = ["train", "gap", *small, *COLUMNS, *FIXED, *PRIVATE, *QUICK, "--out", "run"]
    assert invoke(*train).code == 0
    assert json.loads(Path("run/internal/columns.json").read_text())["format"] == "graphveil-columns"
    folder = tmp_path / "other"
    nodes, edges = company().write(folder, parquet=True, seed=1, customers=200, transfers=500)
    another = ["--nodes", str(nodes), "--edges", str(edges)]
    rejected = invoke("predict run", *another)
    assert rejected.code == 2 and "to_id" in rejected.err
    answer: Answer = invoke("predict run", *another, "--unknown-ids", "drop", "--json")
    assert answer.code == 0 and answer.json["nodes"] == 200


MISSPELT: list[tuple[list[str], str]] = [
    (["--drop", "notes"], "no column 'notes'"),
    (["--missing", "mean"], "--missing mean is not one of"),
    (["--unknown-ids", "keep"], "--unknown-ids keep is not one of"),
    (["--categories", "plan=hash:x"], "plan=hash:32"),
    (["--features", "segment"], "used for two different roles"),
]


@pytest.mark.parametrize(("flags", "words"), MISSPELT)
def test_invalid_column_options_are_rejected(
    invoke: Invoke, small: list[str], flags: list[str], words: str
) -> None:
    answer = invoke("train gap", *small, *COLUMNS, *flags, *PRIVATE)
    assert answer.code == 2 and words in answer.err


def test_a_table_without_features_gets_a_constant_one(invoke: Invoke, tmp_path: Path) -> None:
    nodes = pa.table({"user": range(12), "team": ["r", "b", "r"] * 4, "when": [[1, 2], [1], [2]] * 4})
    pa.parquet.write_table(nodes, tmp_path / "n.parquet")
    pa.parquet.write_table(pa.table({"a": [1], "b": [2]}), tmp_path / "e.parquet")
    tables = ["--nodes", tmp_path / "n.parquet", "--edges", tmp_path / "e.parquet"]
    answer = invoke("check", *tables, "--label", "team", "--json")
    assert "lists of different lengths" in answer.json["problems"][0]
    assert answer.json["command"].endswith("--drop when")
    again = invoke("check", *tables, "--label", "team", "--drop", "when", "--json")
    assert again.code == 0 and "constant feature" in again.json["notes"][0]
    named = invoke("check", *tables, "--label", "team", "--features", "when", "--json")
    assert named.code == 1 and named.json["command"] is None  # features were required


@pytest.mark.parametrize("unit", ["node", "node-record"])
def test_classes_that_no_private_label_has_are_explained(invoke: Invoke, files: Files, unit: str) -> None:
    answer = invoke("check", *files.flags, "--classes", "T0,T1", "--unit", unit, "--directed")
    assert "spelled otherwise than in --classes count as missing" in " ".join(answer.out.split())
    same = invoke("check", *files.flags, "--classes", "t0,t1", "--unit", unit, "--directed")
    assert same.out.replace("t0", "T0").replace("t1", "T1") == answer.out  # nothing depends on the labels


def test_edges_in_two_records_are_noted(invoke: Invoke, files: Files) -> None:
    found = {}
    for flags in ((), ("--directed",)):
        answer = invoke(
            "check", *files.flags, "--classes", "t0,t1,t2", "--unit", "node-record", *flags, "--json"
        )
        found[flags] = answer.json
    mutual, declared = found.values()
    assert any("in the records of both of its nodes" in note for note in mutual["notes"])
    assert "--unit node " in mutual["command"] and "--unit node-record " in declared["command"]
    assert not any("both of its nodes" in note for note in declared["notes"])

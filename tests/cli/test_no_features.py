"""Tables without feature columns: check, train, sweep, predict."""

import shlex
from pathlib import Path

import numpy as np
import pytest
from command import Invoke, read, write

NODES = 150
COLUMNS = ["--id", "id", "--source", "a", "--target", "b"]
TABLES = ["--nodes", "people.csv", "--edges", "knows.csv", *COLUMNS]
PRIVATE = ["--unit", "undirected-edge", "--epsilon", 2, "--delta", 1e-6]
QUICK = ["--set", "epochs=2", "--set", "encoder_epochs=2"]


@pytest.fixture(autouse=True)
def tables(invoke: Invoke) -> None:
    """Write two tables whose nodes have an id and a label alone."""
    rng = np.random.default_rng(0)
    team = rng.integers(0, 3, NODES)
    ids = [f"{number:04d}" for number in range(NODES)]
    rows = [[one, f"t{own}"] for one, own in zip(ids, team, strict=True)]
    write(Path("people.csv"), [["id", "team"], *rows])
    pairs = [(u, v) for u, v in rng.integers(0, NODES, (1200, 2)) if team[u] == team[v]]
    write(Path("knows.csv"), [["a", "b"], *([ids[u], ids[v]] for u, v in pairs)])


def test_check_notes_missing_features_and_its_command_trains(invoke: Invoke) -> None:
    checked = invoke("check", *TABLES, "--label", "team", "--json")
    assert checked.code == 0
    assert any("every node gets one constant feature" in note for note in checked.json["notes"])
    facts = {fact["name"]: fact["becomes"] for fact in checked.json["columns"]}
    assert facts["(constant)"] == "feature: 1 for every node, since no column is a feature"
    words = shlex.split(checked.json["command"])[1:]
    trained = invoke(*words, "--out", "run", "--set", "self_training=false")
    assert trained.code == 0, trained.err
    plan = " ".join((trained.out + trained.err).split())
    assert "every node gets one constant feature" in plan and "1 features" not in plan
    page = next(Path("run").rglob("report.html")).read_text()
    assert "every node gets one constant feature" in page and "predicts the most frequent class" in page
    assert invoke("predict run --out own.csv").code == 0
    assert [row[0] for row in read(Path("own.csv"))[1:]] == [f"{number:04d}" for number in range(NODES)]


def test_check_suggests_to_drop_the_only_text_column(invoke: Invoke) -> None:
    rows = read(Path("people.csv"))
    write(Path("people.csv"), [[*row, f"note {place}"] for place, row in enumerate(rows)])
    checked = invoke("check", *TABLES, "--label", "team", "--json")
    assert checked.code == 1
    words = shlex.split(checked.json["command"])
    assert words[-2:] == ["--drop", "note 0"]
    again = invoke("check", *words[words.index("--nodes") : words.index("--unit")], *words[-2:], "--json")
    assert again.code == 0 and again.json["problems"] == []


@pytest.mark.parametrize("where", ["run", "run/release"])
def test_another_graph_is_predicted_from_a_run_and_from_a_release(invoke: Invoke, where: str) -> None:
    trained = invoke("train gap", *TABLES, "--label", "team", *PRIVATE, *QUICK, "--out", "run")
    assert trained.code == 0, trained.err
    rows = read(Path("people.csv"))[: NODES // 2]
    write(Path("fewer.csv"), [["id"], *([row[0]] for row in rows[1:])])
    ids = {row[0] for row in rows}
    write(Path("few.csv"), [["a", "b"], *(row for row in read(Path("knows.csv"))[1:] if {*row} <= ids)])
    other = ["--nodes", "fewer.csv", "--edges", "few.csv", *COLUMNS]
    answer = invoke("predict", where, *other, "--allow-spend", "--out", "other.csv")
    assert answer.code == 0, answer.err
    assert len(read(Path("other.csv"))) == NODES // 2


def test_tables_without_features_can_be_swept(invoke: Invoke) -> None:
    budgets = ["--unit", "undirected-edge", "--epsilon", "1,2", "--delta", 1e-6]
    swept = invoke("sweep gap", *TABLES, "--label", "team", *budgets, *QUICK, "--out", "swept")
    assert swept.code == 0, swept.err


def test_a_protocol_of_features_needs_feature_columns(invoke: Invoke) -> None:
    made = invoke("collect protocol --dim 1 --eps-x 2 --out survey.json")
    assert made.code == 0, made.err
    request = ["--protocol", "survey.json", "--nodes", "people.csv", "--id", "id"]
    write(Path("people.csv"), [["id"], *([row[0]] for row in read(Path("people.csv"))[1:])])
    rejected = invoke("collect randomize", *request, "--out", "messages.csv")
    assert rejected.code == 2
    assert "has no feature column, and the protocol collects 1 feature" in " ".join(rejected.err.split())

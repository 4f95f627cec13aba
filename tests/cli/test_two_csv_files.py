"""Two CSV files: `check`, its suggested command, `predict`, and a join by id."""

import csv
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command import Invoke, write

PEOPLE = 240
WORDS = ["NULL", "N/A", ""]


@pytest.fixture
def ids(invoke: Invoke) -> list[str]:
    """Write two tables of people who know others of their own team, mostly."""
    rng = np.random.default_rng(0)
    team = rng.integers(0, 2, PEOPLE)
    ids = [f"{number:05d}" for number in range(PEOPLE)]
    rows = [["", "customer_id", "team", "income", "signup", "country", "notes", "note"]]
    for number, (one, own) in enumerate(zip(ids, team, strict=True)):
        label = WORDS[number % 3] if number % 8 == 0 else ["north", "south"][own]
        income = "NULL" if number % 17 == 0 else f"{20_000 + 9_000 * own + rng.integers(0, 4_000)}"
        day = f"20{10 + number % 14}-0{1 + number % 9}-1{number % 9}"
        rows.append([str(number), one, label, income, day, "DE", "", f"likes tea {number}"])
    write(Path("people.csv"), rows)
    ends = [(rng.integers(PEOPLE), rng.integers(PEOPLE)) for _ in range(4 * PEOPLE)]
    same = [(u, v) for u, v in ends if team[u] == team[v]]
    write(Path("knows.csv"), [["from", "to"], *([ids[u], ids[v]] for u, v in same)])
    return ids


def test_the_command_that_check_prints_trains_and_no_id_is_lost(invoke: Invoke, ids: list[str]) -> None:
    tables = ["--nodes", "people.csv", "--edges", "knows.csv", "--id", "customer_id", "--label", "team"]
    checked = invoke("check", *tables, "--json")
    assert checked.code == 1
    facts = {fact["name"]: fact["becomes"] for fact in checked.json["columns"] if fact["table"] == "nodes"}
    assert facts["team"] == "label: 2 classes: north, south"
    assert facts["signup"] == "feature: years since 2000" and facts[""].startswith("ignored: the index")
    problems = "\n".join(checked.json["problems"])
    assert "column 'notes' is empty" in problems and "'income' has missing values" in problems
    words = shlex.split(checked.json["command"])
    dropped = words[words.index("--drop") + 1].split(",")
    assert {"notes", "note"} <= set(dropped) and "income" not in dropped and "--categories" not in words
    trained = invoke(*words[1:], "--out", "run", "--seed", 0, "--set", "self_training=false")
    assert trained.code == 0, trained.err
    assert re.search(r"classes.*2 classes: north, south", trained.out + trained.err)
    assert invoke("predict run --out predictions.csv").code == 0
    assert invoke("predict run --out predictions.parquet").code == 0
    with Path("predictions.csv").open() as file:
        assert [row["node"] for row in csv.DictReader(file)] == ids
    people = pd.read_csv("people.csv", dtype=str)
    for found in (
        pd.read_csv("predictions.csv", dtype={"node": str}),
        pd.read_parquet("predictions.parquet"),
    ):
        joined = people.merge(found, left_on="customer_id", right_on="node", validate="one_to_one")
        assert len(joined) == PEOPLE and set(joined.prediction) == {"north", "south"}
        known = joined[joined.team.isin(["north", "south"])]
        assert (known.prediction == known.team).mean() > 0.5
    scaled = re.search(r"scaling\s+(.*?) by median", " ".join((trained.out + trained.err).split()))
    assert scaled is not None and set(scaled[1].split(", ")) == {"income", "signup"}
    free = invoke("check", *tables, "--source", "from", "--target", "to", *words[words.index("--drop") :])
    assert free.code == 0, free.out
    notes = " ".join(free.out.split())
    assert f"Scaling: {scaled[1]} by median and spread, outliers clipped" in notes  # as the plan says


def test_additional_columns_do_not_reduce_the_baseline_accuracy(invoke: Invoke, tmp_path: Path) -> None:
    people, (x, team) = 3000, _signal(3000)
    rng = np.random.default_rng(2)
    ids = [f"{number:06d}" for number in range(people)]
    plain = {"person": ids, "team": np.array(["north", "south", "west"])[team], **x}
    money = rng.lognormal(12, 1, people).round(2).astype(str)
    money[::19] = "NULL"
    awkward = plain | {
        "money": money,
        "signup": [f"20{10 + n % 14}-0{1 + n % 9}-1{n % 9}" for n in range(people)],
        "country": "DE",
        "notes": "",
    }
    lost = np.arange(people) % 10 == 0
    labels = np.where(lost, np.array(["NULL", "N/A"])[np.arange(people) % 20 // 10], plain["team"])
    ends = rng.integers(0, people, (2, 6000))
    pd.DataFrame({"from": np.array(ids)[ends[0]], "to": np.array(ids)[ends[1]]}).to_csv(
        "knows.csv", index=False
    )
    found = {}
    for name, columns in (("plain", plain), ("awkward", awkward)):
        pd.DataFrame({**columns, "team": labels}).to_csv(f"{name}.csv", index=False)
        tables = ["--nodes", f"{name}.csv", "--edges", "knows.csv", "--id", "person", "--label", "team"]
        words = shlex.split(invoke("check", *tables, "--json").json["command"])
        quick = ["--set", "self_training=false", "--seed", 0]
        trained = invoke(*words[1:], "--out", name, *quick, "--json")
        assert trained.code == 0, trained.err
        found[name] = trained.json["mlp_test_accuracy"]["mean"]
        assert invoke("predict", name, "--out", f"{name}_out.csv").code == 0
        joined = pd.read_csv(f"{name}.csv", dtype=str).merge(
            pd.read_csv(f"{name}_out.csv", dtype={"node": str}),
            left_on="person",
            right_on="node",
            validate="one_to_one",
        )
        assert len(joined) == people and set(joined.prediction) == {"north", "south", "west"}
    assert found["plain"] > 0.6
    assert abs(found["awkward"] - found["plain"]) < 0.02, found


def _signal(people: int) -> tuple[dict[str, object], "np.ndarray[tuple[int], np.dtype[np.int64]]"]:
    """Return three columns that tell a class, and the classes."""
    rng = np.random.default_rng(1)
    team = rng.integers(0, 3, people)
    return {f"x{k}": (rng.normal(size=people) + 3.0 * (team == k)).round(3) for k in range(3)}, team


def test_predict_uses_the_null_values_of_training(invoke: Invoke, ids: list[str]) -> None:
    text = Path("people.csv").read_text().replace("NULL", "unknown")
    Path("people.csv").write_text(text)
    columns = ["--id", "customer_id", "--source", "from", "--target", "to"]
    tables = ["--nodes", "people.csv", "--edges", "knows.csv", *columns]
    choice = ["--null-values", "unknown,N/A", "--drop", "notes,note,country", "--missing", "indicator"]
    private = ["--unit", "undirected-edge", "--epsilon", 1, "--delta", 1e-6, "--no-baseline"]
    quick = ["--set", "epochs=2", "--set", "encoder_epochs=2"]
    trained = invoke("train gap", *tables, "--label", "team", *choice, *private, *quick, "--out", "run")
    assert trained.code == 0, trained.err
    answer = invoke("predict run", *tables, "--out", "again.csv")
    assert answer.code == 0, answer.err
    with Path("again.csv").open() as file:
        assert [row["node"] for row in csv.DictReader(file)] == ids

"""``--task regression``: from tables to predicted numbers, a report and a server; and what is rejected."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from command import Files, Invoke, assert_rejected, changed, other_of, read, rejected, write
from fastapi.testclient import TestClient

from cli.conftest import Prepare, inside
from graphveil.serve import create_app, read_runs

TRAIN = ("--task", "regression", "--unit", "undirected-edge", "--epsilon", "4", "--out", "run")
METRICS = {"r2": "R²", "mae": "MAE", "rmse": "RMSE"}
RECORDS = ("--unit", "node-record", "--epsilon", "8", "--target-range", "0", "100")


def with_income(files: Files) -> list[str]:
    """Add a numeric column, which a linear map of age and height nearly is; return flags that name it."""
    rng, (head, *rows) = np.random.default_rng(1), read(files.nodes)
    incomes = [f"{50 + 10 * float(row[1]) - 5 * float(row[2]) + rng.normal():.2f}" for row in rows]
    write(files.nodes, [[*head, "income"], *([*row, one] for row, one in zip(rows, incomes, strict=True))])
    return named(files)


def named(files: Files) -> list[str]:
    """Return the flags that name the numeric column."""
    return [str(word) for word in changed(files.flags, "--label", "income", "--drop", "team")]


@pytest.fixture
def numbers(files: Files) -> list[str]:
    """The flags of two tables with a number to predict."""
    return with_income(files)


@pytest.fixture
def run(invoke: Invoke, prepare: Prepare) -> Iterator[Path]:
    """A finished run that predicts numbers."""
    with inside(prepare("numbers", lambda files: [["train", "gap", *with_income(files), *TRAIN]])):
        yield Path("run")


def made() -> Files:
    """Return the tables of the finished run."""
    folder = Path.cwd().parent
    return Files(folder / "nodes.csv", folder / "edges.csv")


def test_a_run_has_errors_of_numbers_in_its_table_report_and_card(invoke: Invoke, run: Path) -> None:
    done = invoke("train gap", *named(made()), *TRAIN, "--resume")
    assert done.code == 0, done.err
    table = done.out
    metrics = json.loads((run / "internal" / "metrics.json").read_text())
    report = (run / "internal" / "report.html").read_text()
    card = (run / "release" / "MODEL_CARD.md").read_text()
    for name, words in METRICS.items():
        shown = f"{metrics['test_metrics'][name]['mean']:.4g}"
        assert f"test {words}" in report
        assert shown in table and shown in report and shown in card
        assert metrics["mlp_test_metrics"][name]["mean"] is not None
    assert metrics["mlp_test_metrics"]["r2"]["mean"] > 0.5
    assert "predicts a number" in card
    assert "accuracy" not in table


def test_predict_prints_numbers_of_the_fitted_and_of_another_graph(invoke: Invoke, run: Path) -> None:
    kept = pq.read_table(run / "release" / "predictions.parquet")
    assert kept.column_names == ["node", "prediction"]
    done = invoke("predict", run)
    assert done.code == 0, done.err
    assert done.out.splitlines()[0] == '"node","prediction"'
    other = invoke("predict", run, *other_of(made()), "--assume-disjoint-edges")
    assert other.code == 0, other.err
    assert all(np.isfinite(float(line.split(",")[1])) for line in other.out.splitlines()[1:])


def test_a_server_returns_released_numbers(run: Path) -> None:
    client = TestClient(create_app(read_runs([run / "release"])))
    row = client.post("/v1/predict", json={"ids": ["u3"]}).json()["predictions"][0]
    kept = pq.read_table(run / "release" / "predictions.parquet").to_pydict()
    assert row == {"node": "u3", "prediction": kept["prediction"][kept["node"].index("u3")]}


def test_node_records_predict_within_the_public_range(
    invoke: Invoke, numbers: list[str], tmp_path: Path
) -> None:
    done = invoke("train mlp", *numbers, "--task", "regression", *RECORDS, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert "public range 0 to 100" in done.err
    found = pq.read_table(tmp_path / "run" / "per_node" / "predictions.parquet")["prediction"].to_numpy()
    assert found.min() >= 0 and found.max() <= 100
    card = (tmp_path / "run" / "release" / "MODEL_CARD.md").read_text()
    assert "No accuracy is published" in card


def test_a_numeric_label_needs_the_task(invoke: Invoke, numbers: list[str]) -> None:
    unit = ("--unit", "undirected-edge", "--epsilon", "4", "--out", "run")
    assert_rejected(invoke("train gap", *numbers, *unit), "--task regression")


def test_records_need_a_public_range(invoke: Invoke, numbers: list[str]) -> None:
    answer = invoke("train mlp", *numbers, "--task", "regression", *RECORDS[:4], "--out", "run")
    assert_rejected(answer, "--target-range LOW HIGH")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("sweep mlp,gap", "--unit", "undirected-edge", "--epsilon", "1", "--out", "s"), "sweep compares"),
        (("prepare", "--out", "graph"), "prepare writes graphs with classes"),
        (
            ("train gap", "--unit", "undirected-edge", "--epsilon", "1", "--classes", "a,b"),
            "there are no classes",
        ),
        (("train classcode", "--unit", "undirected-edge", "--epsilon", "1"), "predicts classes only"),
    ],
)
def test_commands_for_classes_reject_numbers(
    invoke: Invoke, numbers: list[str], words: tuple[str, ...], reason: str
) -> None:
    command, *more = words
    assert_rejected(invoke(command, *numbers, "--task", "regression", *more), reason)


def test_attacks_reject_a_run_of_numbers(invoke: Invoke, run: Path) -> None:
    rejected(invoke("attack linkteller", run), "this run predicts numbers")

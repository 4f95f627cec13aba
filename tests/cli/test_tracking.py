"""Logged runs: only public values reach MLflow."""

import json
from pathlib import Path
from typing import Any

import pytest
from command import SECRET, Files, Invoke, environment

from graphveil.runs import tracking
from graphveil.runs.tracking import PublicRecord

GAP = ["--unit", "undirected-edge", "--epsilon", "1", "--delta", "1e-7", "--set", "epochs=2", "--runs", "2"]
PLANTED = 4711.25  # a number that no public figure is


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[PublicRecord]:
    """What a tracker is given."""
    found: list[PublicRecord] = []
    monkeypatch.setattr(tracking, "tracker_of", lambda text: found.append)
    return found


def plant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a secret into everything private that a finished run knows, and into keys that nobody knows yet."""
    real = PublicRecord.from_experiment
    private = (
        "nodes",
        "features",
        "classes",
        "edges_stored",
        "peak_rss_mb",
        "seconds_wall",
        "seconds",
        "new",
    )

    def planted(experiment: Any, metrics: dict[str, Any], guarantee: Any) -> PublicRecord:
        secret = dict.fromkeys(private, PLANTED) | {SECRET: SECRET, "statement": SECRET, "out": SECRET}
        losses = {"val_accuracy": {"mean": PLANTED, "values": [PLANTED]}, "ledger": {"place": SECRET}}
        return real(experiment, metrics | secret | losses, guarantee)

    monkeypatch.setattr(PublicRecord, "from_experiment", planted)


def test_logged_values_are_public(
    invoke: Invoke, files: Files, logged: list[PublicRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    folder = files.nodes.rename(files.nodes.with_name(f"{SECRET}.csv"))
    flags = [str(folder) if word == str(files.nodes) else word for word in files.flags]
    answer = invoke("train gap", *flags, *GAP, "--out", SECRET, "--track", "any", "--json")
    (record,) = logged
    stated = json.dumps([record.name, dict(record.parameters), dict(record.figures), dict(record.series)])
    assert SECRET not in stated and str(PLANTED) not in stated
    assert record.parameters["dataset"] == "a private graph, read from files"
    assert record.parameters["set.epochs"] == "2"
    assert record.figures["epsilon"] == 1.0
    assert record.figures["all_runs_epsilon"] == answer.json["guarantee_all_runs"]["epsilon"]
    assert list(record.series["test_accuracy"]) == answer.json["test_accuracy"]["values"]


@pytest.mark.usefixtures("double")
def test_node_level_runs_log_noisy_accuracies_only(
    invoke: Invoke, files: Files, logged: list[PublicRecord]
) -> None:
    records = ["--unit", "node-record", "--out-degree-bound", "5", "--epsilon", "4", "--delta", "1e-5"]
    records += ["--no-baseline", "--track", "any"]
    assert invoke("train double", *files.flags, *records, "--out", "a").code == 0
    assert invoke("train double", *files.flags, *records, "--private-metrics", "--out", "b").code == 0
    names = [{name for name in record.figures if "accuracy" in name} for record in logged]
    assert names == [set(), {"noisy_test_accuracy", "noisy_val_accuracy"}]


@pytest.mark.filterwarnings("ignore")  # of the packages themselves
def test_runs_are_in_mlflow(invoke: Invoke, files: Files, tmp_path: Path) -> None:
    client = pytest.importorskip("mlflow.tracking").MlflowClient
    store = f"file:{tmp_path}/mlflow"
    places = ["--track", f"mlflow:{store}"]
    with environment(MLFLOW_ALLOW_FILE_STORE="true"):
        answer = invoke("train gap", *files.flags, *GAP[:-2], "--out", "a", "--json", *places)
        assert (answer.code, "could not be logged" in answer.err) == (0, False)
        known = client(tracking_uri=store)
        (run,) = known.search_runs([known.get_experiment_by_name("graphveil").experiment_id])
    assert run.data.params["unit"] == "undirected-edge"
    assert run.data.metrics["test_accuracy"] == pytest.approx(answer.json["test_accuracy"]["mean"], abs=1e-5)
    assert set(run.data.tags) == {"mlflow.runName"}
    assert run.data.metrics["epsilon"] == 1.0
    everything = b"".join(path.read_bytes() for path in (tmp_path / "mlflow").rglob("*") if path.is_file())
    for private in (SECRET, str(files.nodes), str(files.edges), "u17"):
        assert private.encode() not in everything


@pytest.mark.filterwarnings("ignore")  # of the packages themselves
def test_an_unreachable_tracking_server_does_not_affect_the_run(invoke: Invoke, files: Files) -> None:
    pytest.importorskip("mlflow.tracking")
    with environment(MLFLOW_HTTP_REQUEST_MAX_RETRIES="0"):
        flags = ["--out", "a", "--track", f"mlflow:http://127.0.0.1:1/{SECRET}"]
        answer = invoke("train gap", *files.flags, *GAP[:-2], *flags)
    assert (answer.code, "could not be logged: MlflowException." in answer.err) == (0, True)
    assert SECRET not in answer.err
    for text, words in (
        ("wandb", "Use mlflow or mlflow:URI"),
        ("tensorboard:x", "Use mlflow"),
    ):
        rejected = invoke("train gap", *files.flags, *GAP, "--out", "b", "--track", text)
        assert (rejected.code, words in rejected.err, Path("b").exists()) == (2, True, False)

"""A run recognizes its training graph: predictions are read from the folder, and nothing is charged."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import Files, Invoke

import graphveil as gv
from cli.conftest import Prepare, inside
from graphveil.errors import ConfigError

TRAIN = ["train", "gap", "--unit", "undirected-edge", "--epsilon", "4", "--delta", "1e-4", "--seed", "0"]


@pytest.fixture
def trained(invoke: Invoke, prepare: Prepare) -> Iterator[Path]:
    """Train on the files, quickly."""
    flags = ["--set", "epochs=2", "--out", "run"]
    folder = prepare("own graph", lambda files: [[*TRAIN, *files.flags, *flags]])
    with inside(folder):
        yield folder / "here" / "run"


def again(files: Files) -> gv.Graph:
    """Read the files once more, with a split."""
    columns = {"id": "user", "label": "team", "source": "a", "target": "b"}
    graph = gv.read_graph(files.nodes, files.edges, **columns, directed=False)
    return gv.data.random_split(graph, train=0.6, val=0.2, seed=1)


def test_a_loaded_run_scores_its_graph_without_a_charge(trained: Path, files: Files) -> None:
    model, graph = gv.load_model(trained), again(files)
    assert 0 <= model.score(graph) <= 1
    assert model.predict(graph).equal(model.predict())
    assert gv.ledger_of(graph.edge_set).entries == ()
    assert model.guarantee_with_predictions.epsilon == model.guarantee.epsilon


def test_a_prediction_of_the_training_graph_is_not_charged(
    trained: Path, files: Files, invoke: Invoke
) -> None:
    done = invoke("predict", trained, "--nodes", files.nodes, "--edges", files.edges, "--json")
    assert done.code == 0, done.err
    assert done.json["charged"] is None
    assert "Privacy cost of predicting this graph" in done.err and "this is the training graph" in done.err


def test_a_copied_release_needs_allow_spend(
    trained: Path, files: Files, invoke: Invoke, tmp_path: Path
) -> None:
    shutil.copytree(trained / "release", tmp_path / "copy")
    with pytest.raises(ConfigError, match="allow_spend=True"):
        gv.load_model(tmp_path / "copy").score(again(files))
    request = ["predict", tmp_path / "copy", *files.flags, "--json"]
    rejected = invoke(*request)
    assert rejected.code == 2
    assert "--allow-spend" in rejected.err
    accepted = invoke(*request, "--allow-spend")
    assert accepted.code == 0, accepted.err
    assert accepted.json["charged"]["epsilon"] > 0


def test_the_fingerprint_is_internal(trained: Path) -> None:
    (found,) = trained.rglob("graph_fingerprint.json")
    assert found.parent.name == "internal"
    assert found.parent.stat().st_mode & 0o077 == 0

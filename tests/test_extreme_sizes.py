"""Graphs of extreme sizes: trained, or rejected with an error before memory runs out.

The table has each case in a small size and in its real size (``-m slow``), which runs in a process with a
limit of six gigabytes.
"""

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from command import Invoke, recorded
from scipy import sparse

import graphveil as gv
from graphveil._util import process
from graphveil.data import Graph, split
from graphveil.errors import GraphError
from graphveil.estimators.base import Estimator

pytestmark = pytest.mark.usefixtures("quick_classcode")

METHODS = [("gap", "undirected-edge"), ("classcode", "undirected-edge"), ("mlp", "undirected-edge")]
METHODS += [("mlp", "node-record")]
ALLOWED = 6 << 30
_COLUMNS = ["--id", "id", "--label", "label", "--source", "a", "--target", "b"]


@dataclass(frozen=True)
class Case:
    """Nodes, edges and features of a graph in a small and in its real size, and expected errors."""

    nodes: tuple[int, int]
    ends: Callable[[int, np.random.Generator], npt.NDArray[np.int64]]
    classes: tuple[int, int] = (3, 3)
    columns: int = 2
    words: tuple[int, int] | None = None  # distinct words, and as many hash buckets
    small_error: dict[str, str] = field(default_factory=dict)  # by unit
    real_error: str = ""


def some(nodes: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    return rng.integers(nodes, size=(2, 5 * nodes))


CASES = {
    "a hub": Case((300, 1_000_001), lambda n, _: np.stack([np.zeros(n - 1, np.int64), np.arange(1, n)])),
    "classes": Case(
        (17_000, 200_000),
        some,
        classes=(17_000, 100_000),
        small_error=dict.fromkeys(("undirected-edge", "node-record"), "more than 16,384 classes"),
        real_error="more than 16,384 classes",
    ),
    "features": Case((60, 20_000), some, words=(1_000, 50_000), real_error="GiB are available"),
    "one feature": Case((60, 1000), some, columns=1),
    "two nodes": Case(
        (2, 2),
        lambda n, _: np.array([[0], [1]]),
        classes=(2, 2),
        small_error={"undirected-edge": "the split has no labeled"},
        real_error="the split has no labeled",
    ),
    "no edges": Case((60, 1000), lambda n, _: np.empty((2, 0), np.int64)),
    "complete": Case((60, 5_000), lambda n, _: np.stack(np.triu_indices(n, 1))),
}


def written(folder: Path, case: Case, real: bool) -> list[str]:
    """Write two tables; return the flags that name them."""
    rng, nodes = np.random.default_rng(0), case.nodes[real]
    labels = rng.permutation(np.arange(nodes) % case.classes[real])
    table = {"id": np.arange(nodes), "label": [f"c{label}" for label in labels]}
    table |= {f"x{number}": rng.normal(size=nodes) for number in range(case.columns)}
    flags: list[str] = []
    if case.words is not None:
        table["word"] = [f"w{word}" for word in rng.integers(case.words[real], size=nodes)]
        flags = ["--categories", f"word=hash:{case.words[real]}"]
    pa.parquet.write_table(pa.table(table), folder / "nodes.parquet")
    ends = case.ends(nodes, rng)
    pa.parquet.write_table(pa.table({"a": ends[0], "b": ends[1]}), folder / "edges.parquet")
    return ["--nodes", f"{folder}/nodes.parquet", "--edges", f"{folder}/edges.parquet", *_COLUMNS, *flags]


def train_of(method: str, unit: str, tables: list[str]) -> list[str]:
    settings = ["--set", "epochs=2"] if method == "gap" else []
    return ["train", method, *tables, "--unit", unit, "--epsilon", "1", *settings]


@pytest.mark.parametrize(("method", "unit"), METHODS)
@pytest.mark.parametrize("name", CASES)
def test_small_sizes_are_trained_or_rejected(
    invoke: Invoke, tmp_path: Path, name: str, method: str, unit: str
) -> None:
    tables, words = written(tmp_path, CASES[name], False), CASES[name].small_error.get(unit)
    alone = [] if method == "mlp" else ["--no-baseline"]
    answer = invoke(*train_of(method, unit, tables), *alone, "--out", "r")
    if words is None:
        assert answer.code == 0, answer.err
        assert Path("r/release/PRIVACY.md").is_file()
    else:
        assert answer.code == 2 and words in answer.err and not Path("r").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("method", "unit"), METHODS)
@pytest.mark.parametrize("name", CASES)
def test_real_sizes_are_trained_or_rejected_within_six_gigabytes(
    tmp_path: Path, name: str, method: str, unit: str
) -> None:
    tables = written(tmp_path, CASES[name], True)
    words = CASES[name].real_error if unit != "node-record" or name != "two nodes" else ""
    ended = subprocess.run(
        [sys.executable, "-m", "graphveil", *train_of(method, unit, tables), "--out", str(tmp_path / "r")],
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (ALLOWED, ALLOWED)),
        capture_output=True,
        text=True,
        check=False,
    )
    if words:
        assert ended.returncode == 2 and words in ended.stderr, ended.stderr
    else:
        assert ended.returncode == 0, ended.stderr


def sparse_graph(nodes: int, features: int) -> Graph:
    rng = np.random.default_rng(0)
    places = rng.integers(features, size=(nodes, 20))
    rows = np.repeat(np.arange(nodes), 20), places.ravel()
    x = sparse.csr_array((np.ones(places.size, np.float32), rows), shape=(nodes, features))
    return Graph.from_edges(x, np.arange(nodes) % 3, *some(nodes, rng), directed=False)


SIZES = [(300, 2_000), pytest.param(20_000, 50_000, marks=pytest.mark.slow)]


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that sets the free memory in bytes."""
    return lambda size: monkeypatch.setattr(process, "free", lambda: size)


def rejects(model: Estimator, graph: Graph, message: str) -> None:
    """Fail unless a fit raises an error with this message before anything is charged."""
    with pytest.raises(GraphError, match=message):
        model.fit(graph)
    assert not len(gv.ledger_of(graph.edge_set))


@pytest.mark.parametrize(("nodes", "features"), SIZES)
@pytest.mark.parametrize("model", [gv.GAP, gv.ClassCode, gv.MLP])
def test_sparse_features_are_not_converted_to_dense(
    model: type[Estimator], nodes: int, features: int, free: Callable[[int], None]
) -> None:
    graph = split(sparse_graph(nodes, features), unit="undirected-edge")
    free(nodes * features * 4 - 1)  # less than they take as a dense array
    assert model(unit="undirected-edge", epsilon=1.0, seed=0).fit(graph).predict().shape == (nodes,)


# -- too little memory ----


def test_rejects_features_of_tables_before_they_are_allocated(
    invoke: Invoke, tmp_path: Path, free: Callable[[int], None]
) -> None:
    tables = written(tmp_path, CASES["features"], False)
    free(60 * 1_002 * 4 - 1)
    answer = invoke(*train_of("gap", "undirected-edge", tables), "--out", "r")
    assert answer.code == 2 and not Path("r").exists() and not recorded()
    assert "1,002 columns of features for 60 nodes need 0.0 GiB of memory" in answer.err
    assert "hash categories into fewer places" in answer.err
    free(60 * 1_002 * 4)
    assert invoke(*train_of("gap", "undirected-edge", tables), "--no-baseline", "--out", "r").code == 0


@pytest.mark.parametrize(
    ("model", "unit", "size"),
    [
        *((model, "undirected-edge", 4) for model in (gv.GAP, gv.ClassCode, gv.MLP)),
        (gv.MLP, "node-record", 16),
    ],
)
def test_rejects_a_copy_of_features_before_anything_is_charged(
    model: type[Estimator], unit: str, size: int, free: Callable[[int], None]
) -> None:
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(rng.normal(size=(90, 700)), np.arange(90) % 3, *some(90, rng), directed=False)
    graph = split(graph, unit=unit)
    masks = ("train",) if unit == "undirected-edge" else ("train", "val")
    count = sum(int(graph.labeled_in(name).sum()) for name in masks)
    free(count * 700 * size - 1)
    rejects(
        model(unit=unit, epsilon=1.0),
        graph,
        rf"700 features of the {count} nodes that are learned from need",
    )


@pytest.mark.parametrize("model", [gv.GAP, gv.ClassCode, gv.MLP])
def test_rejects_predictions_before_anything_is_charged(
    model: type[Estimator], free: Callable[[int], None]
) -> None:
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(rng.normal(size=(900, 2)), np.arange(900) % 300, *some(900, rng), directed=False)
    graph = split(graph, unit="undirected-edge")
    free(2 * 8 * 300 * 900 - 1)
    words = r"predictions of 300 classes for 900 nodes need .* merge rare classes"
    rejects(model(unit="undirected-edge", epsilon=1.0), graph, words)


@pytest.mark.parametrize(("classes", "rejected"), [(500, True), (50, False)])
def test_rejects_covariances_of_many_classes_before_anything_is_charged(
    classes: int, rejected: bool, free: Callable[[int], None]
) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(1_000) % classes
    graph = Graph.from_edges(rng.normal(size=(1_000, 2)), y, *some(1_000, rng), directed=True)
    graph = split(graph, unit="node-record")
    model = gv.ClassCode(unit="node-record", epsilon=4.0, delta=1e-4, out_degree_bound=2)
    free(16 << 30)
    words = r"predictions of 500 classes for 1,000 nodes need 37\.\d GiB .* merge rare classes"
    with pytest.raises(GraphError, match=words) if rejected else nullcontext():
        model.preview(graph)
    assert not len(gv.ledger_of(graph.edge_set))


def test_rejects_a_dense_copy_of_sparse_features(free: Callable[[int], None]) -> None:
    graph = split(sparse_graph(300, 2_000), unit="undirected-edge")
    free(300 * 2_000 * 4 - 1)
    model = gv.GAP(unit="undirected-edge", epsilon=1.0, use_encoder=False)
    with pytest.raises(GraphError, match="2,000 features of 300 nodes"):
        model.fit(graph)


@pytest.mark.parametrize(
    "error", [MemoryError("of data"), RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")]
)
def test_out_of_memory_errors_are_reported_as_such(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def full(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(torch.Tensor, "softmax", full)
    tables = written(tmp_path, CASES["one feature"], False)
    answer = invoke(*train_of("gap", "undirected-edge", tables), "--out", "r")
    assert answer.code == 1 and "not enough memory" in answer.err


def test_limits_of_the_process_count_as_free_memory() -> None:
    code = "from graphveil._util import process; print(process.free())"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (1 << 28, 1 << 28)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert 0 < int(ended.stdout) < 1 << 28

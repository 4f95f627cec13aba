"""Nodes without features have one constant feature, with which every method fits and predicts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

import graphveil as gv
from graphveil.data import open_graph, prepare, read_graph
from graphveil.data.tables.encoding import NO_FEATURES
from graphveil.errors import GraphError

NODES = 120
COLUMNS: dict[str, Any] = {"id": "user", "label": "team", "source": "a", "target": "b"}
RNG = np.random.default_rng(0)
TEAM = np.where(RNG.random(NODES) < 0.6, "red", "blue")
_PAIRS = RNG.integers(0, NODES, (1600, 2))
PAIRS = _PAIRS[TEAM[_PAIRS[:, 0]] == TEAM[_PAIRS[:, 1]]]
IDS = np.array([f"{number:04d}" for number in range(NODES)])
PEOPLE = pd.DataFrame({"user": IDS, "team": TEAM})
KNOWS = pd.DataFrame({"a": IDS[PAIRS[:, 0]], "b": IDS[PAIRS[:, 1]]})


def from_files(folder: Path, suffix: str) -> gv.Graph:
    for name, table in (("people", PEOPLE), ("knows", KNOWS)):
        if suffix == ".csv":
            table.to_csv(folder / f"{name}.csv", index=False)
        else:
            pa.parquet.write_table(
                pa.Table.from_pandas(table, preserve_index=False), folder / f"{name}.parquet"
            )
    return read_graph(folder / f"people{suffix}", folder / f"knows{suffix}", **COLUMNS)


def prepared(folder: Path) -> gv.Graph:
    pytest.importorskip("duckdb")
    from_files(folder, ".csv")
    prepare(folder / "people.csv", [folder / "knows.csv"], folder / "graph", **COLUMNS)
    return open_graph(folder / "graph")


def from_networkx(_: Path) -> gv.Graph:
    networkx = pytest.importorskip("networkx")
    graph = networkx.Graph()
    graph.add_nodes_from((one, {"team": team}) for one, team in zip(IDS.tolist(), TEAM.tolist(), strict=True))
    graph.add_edges_from(zip(KNOWS.a, KNOWS.b, strict=True))
    return gv.Graph.from_networkx(graph, label="team")


def data_without_x() -> Any:
    Data = pytest.importorskip("torch_geometric.data").Data

    classes = torch.from_numpy((TEAM == "red").astype(np.int64))
    return Data(y=classes, edge_index=torch.from_numpy(PAIRS.T.copy()), num_nodes=NODES)


SOURCES: dict[str, Callable[[Path], gv.Graph]] = {
    "csv": lambda folder: from_files(folder, ".csv"),
    "parquet": lambda folder: from_files(folder, ".parquet"),
    "prepare": prepared,
    "pandas": lambda _: gv.Graph.from_frames(PEOPLE, KNOWS, **COLUMNS),
    "mapping": lambda _: gv.Graph.from_frames(dict(PEOPLE), dict(KNOWS), **COLUMNS),
    "all dropped": lambda _: gv.Graph.from_frames(
        PEOPLE.assign(note="x", age=3), KNOWS, drop=["note", "age"], **COLUMNS
    ),
    "none chosen": lambda _: gv.Graph.from_frames(PEOPLE.assign(age=3), KNOWS, features=[], **COLUMNS),
    "networkx": from_networkx,
    "torch_geometric": lambda _: gv.Graph.from_pyg(data_without_x()),
    "edges": lambda _: gv.Graph.from_edges(None, TEAM, PAIRS[:, 0], PAIRS[:, 1], directed=False),
}


@pytest.fixture(scope="module")
def graph() -> gv.Graph:
    return gv.split(gv.Graph.from_frames(PEOPLE, KNOWS, **COLUMNS), 0.6, 0.1, unit="undirected-edge")


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_of_graphs_gives_one_constant_feature(source: str, tmp_path: Path) -> None:
    graph = SOURCES[source](tmp_path)
    assert torch.equal(torch.as_tensor(graph.x), torch.ones(NODES, 1))
    assert graph.encoding is not None and graph.encoding.constant
    assert graph.encoding.notes == (NO_FEATURES,)
    assert "1 for every node" in graph.encoding.words()


class Rows(torch.nn.Module):
    """A custom module, which reads rows."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.out = torch.nn.Linear(inputs, classes)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.out(x)
        return out


EDGE = {"unit": "undirected-edge", "epsilon": 2.0, "delta": 1e-6, "seed": 0}
RECORD = {"unit": "node-record", "epsilon": 1.0, "delta": 1e-5, "seed": 0}
LOCAL = {"unit": "local-attributes", "eps_x": 2.0, "eps_y": 2.0, "seed": 0}
METHODS: dict[str, Callable[[], Any]] = {
    "classcode": lambda: gv.ClassCode(**EDGE),
    "gap": lambda: gv.GAP(**EDGE, epochs=3, encoder_epochs=3),
    "mlp": lambda: gv.MLP(unit="none", seed=0, epochs=5, tuned=False),
    "spectral": lambda: gv.METHODS["spectral"](**EDGE),
    "gcn": lambda: gv.GCN(unit="none", seed=0, epochs=3),
    "sage": lambda: gv.SAGE(unit="none", seed=0, epochs=3),
    "gat": lambda: gv.GAT(unit="none", seed=0, epochs=3),
    "classcode of records": lambda: gv.ClassCode(**RECORD, out_degree_bound=4),
    "gap of records": lambda: gv.GAP(**RECORD, out_degree_bound=4, epochs=2, encoder_epochs=2),
    "mlp of records": lambda: gv.MLP(**RECORD, epochs=2),
    "gnn of records": lambda: gv.PrivateGNN(**RECORD, module=Rows, out_degree_bound=4, epochs=2),
    "label-posterior": lambda: gv.LabelPosterior(unit="local-attributes", eps_y=2.0, seed=0),
    "lpgnn": lambda: gv.LPGNN(**LOCAL, epochs=3),
    "simgat": lambda: gv.SimGAT(**LOCAL, epochs=3),
}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_fits_and_predicts_without_features(name: str, graph: gv.Graph) -> None:
    unit = METHODS[name]().unit
    own = graph if unit == "undirected-edge" else gv.split(graph, 0.6, 0.1, unit=unit)
    model = METHODS[name]().fit(own)
    predicted = model.predict(own)
    assert len(predicted) == NODES
    if name == "mlp":
        assert set(predicted.tolist()) == {int(torch.bincount(graph.y).argmax())}
    if name == "classcode":
        assert model.score(own) > 0.85  # from edges alone


def test_a_data_without_features_is_fitted() -> None:
    data = data_without_x()
    order = torch.from_numpy(np.random.default_rng(1).permutation(NODES))
    data.train_mask, data.val_mask, data.test_mask = order[:70], order[70:85], order[85:]
    model = gv.ClassCode(**EDGE).fit(data)
    assert model.score(data) > 0.8


def frames(**more: object) -> gv.Graph:
    return gv.Graph.from_frames(PEOPLE.assign(**more), KNOWS, **COLUMNS)


def test_a_release_ignores_columns_that_training_lacked(graph: gv.Graph, tmp_path: Path) -> None:
    METHODS["gap"]().fit(graph).save(tmp_path / "release")
    for other in (frames(), frames(age=np.arange(NODES))):
        model = gv.load_model(tmp_path / "release")
        assert model.predict_proba(other, allow_spend=True).shape == (NODES, 2)
    assert gv.load_model(tmp_path / "release").encoding_.constant  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("training_graph", "other"),
    [
        (lambda: frames(age=np.arange(NODES) % 7), frames),
        (lambda: frames(age=np.arange(NODES) % 7), lambda: SOURCES["torch_geometric"](Path())),
        (lambda: gv.Graph.from_edges(np.ones((NODES, 1)), TEAM, *PAIRS.T, directed=False), frames),
        (lambda: gv.Graph.from_edges(np.eye(NODES), TEAM, *PAIRS.T, directed=False), frames),
    ],
)
def test_a_model_with_features_rejects_a_graph_without_features(
    training_graph: Callable[[], gv.Graph], other: Callable[[], gv.Graph]
) -> None:
    own = gv.split(training_graph(), 0.6, 0.1, unit="undirected-edge")
    model = gv.GAP(**EDGE, epochs=1, encoder_epochs=1).fit(own)
    with pytest.raises(GraphError, match="the model was trained on features"):
        model.predict(other(), allow_spend=True)

"""The record of a released graph counts for the rows that were released, and for no others."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import graphveil as gv
from graphveil import perturb
from graphveil.core.edges.adjacency import EdgeSet
from graphveil.data import Graph, prepare, read_graph, synthetic
from graphveil.data.graph_files import read_edges
from graphveil.data.tables import RELEASED
from graphveil.errors import GraphError

COLUMNS = {"id": "id", "label": "team", "source": "source", "target": "target"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A released graph, and the table of its nodes."""
    place = tmp_path_factory.mktemp("released")
    graph = synthetic("tiny")
    perturb.edge_rand(graph, epsilon=8.0, unit="undirected-edge", unsafe_noise_seed=0).save(place / "out")
    nodes = {"id": range(graph.num_nodes), "team": graph.y.tolist(), "x": graph.x[:, 0].tolist()}
    pq.write_table(pa.table(nodes), place / "nodes.parquet")
    return place


def true_edges(count: int) -> pa.Table:
    ends = synthetic("tiny").adjacency.edge_index()[:, :count].numpy()
    return pa.table({"source": ends[0], "target": ends[1]})


def swapped(table: pa.Table) -> pa.Table:
    """Return the table with one end of its last edge replaced."""
    ends = table.column("target").to_pylist()
    ends[-1] = (ends[-1] + 1) % 100
    return table.set_column(1, "target", pa.array(ends))


TAMPERED: dict[str, Callable[[pa.Table], pa.Table]] = {
    "true edges added": lambda table: pa.concat_tables([table, true_edges(150)]),
    "one edge added": lambda table: pa.concat_tables([table, true_edges(1)]),
    "rows replaced": lambda table: true_edges(table.num_rows).replace_schema_metadata(table.schema.metadata),
    "one edge replaced": swapped,
    "one edge removed": lambda table: table.slice(1),
    "all removed": lambda table: table.slice(0, 0),
    "filtered": lambda table: table.filter(pc.greater(table.column("source"), 3)),
    "reordered": lambda table: table.sort_by([("target", "descending")]),
    "repeated": lambda table: pa.concat_tables([table, table]),
    "weights added": lambda table: table.append_column("weight", pa.array([1.5] * table.num_rows)),
    "another type": lambda table: table.cast(pa.schema([("source", pa.string()), ("target", pa.string())])),
    "an old record": lambda table: table.replace_schema_metadata({RELEASED: b'{"format":"graphveil-graph"}'}),
    "no JSON": lambda table: table.replace_schema_metadata({RELEASED: b"yes"}),
    "a list": lambda table: table.replace_schema_metadata({RELEASED: b"[1]"}),
}


def tampered(folder: Path, tmp_path: Path, how: str) -> Path:
    table = pq.read_table(folder / "out/edges.parquet")
    changed = TAMPERED[how](table)
    if RELEASED not in (changed.schema.metadata or {}):
        changed = changed.replace_schema_metadata(table.schema.metadata)
    pq.write_table(changed, tmp_path / "edges.parquet")
    return tmp_path / "edges.parquet"


@pytest.mark.parametrize("how", TAMPERED)
def test_a_record_does_not_count_for_other_rows(folder: Path, tmp_path: Path, how: str) -> None:
    edges = tampered(folder, tmp_path, how)
    graph = synthetic("tiny")
    for read in (
        lambda: read_graph(folder / "nodes.parquet", edges, **COLUMNS),
        lambda: read_edges(edges, pq.read_table(folder / "nodes.parquet")["id"].to_numpy(), source="source",
                           target="target", directed=False),
        lambda: perturb.load(edges, graph),
        lambda: prepare(folder / "nodes.parquet", [edges], tmp_path / "prepared", **COLUMNS),
    ):  # fmt: skip
        with pytest.raises(GraphError, match=r"not the rows that were released|column 'weight' of"):
            read()


@pytest.mark.parametrize("how", ["as it is", "moved", "other compression", "row groups", "columns renamed"])
def test_the_released_rows_are_read_as_released(folder: Path, tmp_path: Path, how: str) -> None:
    columns, edges = dict(COLUMNS), folder / "out"
    if how == "moved":
        edges = Path(shutil.copy(folder / "out/edges.parquet", tmp_path / "other.parquet"))
    elif how != "as it is":
        table = pq.read_table(folder / "out/edges.parquet")
        if how == "columns renamed":
            renamed = table.rename_columns(["u", "v"]).replace_schema_metadata(table.schema.metadata)
            table, columns = renamed, columns | {"source": "u", "target": "v"}
        edges = tmp_path / "edges.parquet"
        pq.write_table(table, edges, compression="zstd", row_group_size=7 if how == "row groups" else None)
    graph = read_graph(folder / "nodes.parquet", edges, **columns)
    assert perturb.guarantee_of(graph).epsilon == 8.0  # type: ignore[union-attr]
    model = gv.GCN(unit="none", epochs=1, seed=0).fit(gv.split(graph))
    assert model.guarantee is not None


def test_saves_a_loaded_graph_again(folder: Path, tmp_path: Path) -> None:
    loaded = perturb.load(folder / "out", synthetic("tiny"))
    again = perturb.load(loaded.save(tmp_path / "again"), synthetic("tiny"))
    assert again.num_edges == loaded.num_edges and again.guarantee.epsilon == 8.0


def test_private_edges_that_join_a_released_graph_make_it_private(folder: Path) -> None:
    released: Graph = perturb.load(folder / "out", synthetic("tiny")).graph
    grown = released.grow(released.x[:1], released.y[:1], [released.num_nodes], [0])
    assert grown.edge_set.released == "" and isinstance(grown.edge_set, EdgeSet)
    assert perturb.guarantee_of(grown) is None

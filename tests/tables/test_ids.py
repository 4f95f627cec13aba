"""Ids keep their spelling in every pair of tables, and match only if both tables write them alike."""

import datetime as dt
import decimal
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from graphveil.data import Graph, open_graph, prepare, read_graph
from graphveil.data.graph_files import read_edges, read_ids, read_topology
from graphveil.data.tables.files import FileSource
from graphveil.data.tables.inspect_tables import TableFiles
from graphveil.errors import GraphError

ENDS = {"source": "a", "target": "b"}
ROLES = {"id": "id", "label": "team", **ENDS}
COUNT = 12
WRITTEN = {
    "zeros": [f"{n:05d}" for n in range(COUNT)],
    "1 and 01": ["1", "01", *map(str, range(2, COUNT))],
    "whole numbers": [str(n) for n in range(COUNT)],
    "negative": [str(-n) for n in range(COUNT)],
    "dates": [f"20{n:02d}-03-17" for n in range(10, 10 + COUNT)],
    "times": [f"10:{n:02d}" for n in range(COUNT)],
    "1.10": [f"1.{n:02d}" for n in range(COUNT)],
    "12e5": [f"{n}e5" for n in range(1, COUNT + 1)],
    "+49": [f"+49{n:06d}" for n in range(COUNT)],
    "uint64": [str(2**63 + n) for n in range(COUNT)],
    "30 digits": [str(10**30 + n) for n in range(COUNT)],
    "123.0": [f"{n}.0" for n in range(COUNT)],
    "uuid": [str(uuid.UUID(int=n)) for n in range(COUNT)],
    "bools": ["true", "false", *(f"x{n}" for n in range(2, COUNT))],
    "words": ["NA", "NULL", "nan", "-", "?", "None", *(f"x{n}" for n in range(6, COUNT))],
    "hexadecimal": [hex(n) for n in range(COUNT)],
    "commas": [f"1,{n}" for n in range(COUNT)],
    "blanks": [f" {n} " for n in range(COUNT)],
}


def nodes_of(ids: Any) -> dict[str, Any]:
    return {"id": ids, "team": ["a", "b"] * (COUNT // 2), "x": range(COUNT)}


def ends_of(ids: Any) -> dict[str, Any]:
    """Return the edges of a path."""
    return {"a": ids[: COUNT - 1], "b": ids[1:]}


def stored(columns: dict[str, Any], path: Path) -> Path:
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pa.table(columns), path)
    else:
        rows = zip(*(pa.array(column).to_pylist() for column in columns.values()), strict=True)
        cells = ([f'"{cell}"' if "," in str(cell) else str(cell) for cell in row] for row in rows)
        lines = [",".join(columns), *map(",".join, cells)]
        path.write_text("\n".join(lines) + "\n")
    return path


def is_path(graph: Graph) -> bool:
    expected = {pair for n in range(COUNT - 1) for pair in ((n, n + 1), (n + 1, n))}
    return set(map(tuple, graph.adjacency.edge_index().T.tolist())) == expected


@pytest.mark.parametrize("kind", WRITTEN)
@pytest.mark.parametrize("edges", ["e.csv", "e.parquet"])
def test_ids_of_a_csv_keep_their_spelling(tmp_path: Path, kind: str, edges: str) -> None:
    ids = WRITTEN[kind]
    nodes, ends = stored(nodes_of(ids), tmp_path / "n.csv"), stored(ends_of(ids), tmp_path / edges)
    graphs = [read_graph(nodes, ends, **ROLES, unknown_ids=unknown) for unknown in ("error", "drop")]
    graphs.append(read_topology(TableFiles(nodes=nodes, edges=ends, id="id", **ENDS)))
    adjacency = read_edges(ends, graphs[0].ids, directed=False, **ENDS)
    graphs.append(graphs[0].replace(adjacency=adjacency))
    assert read_ids(FileSource(nodes), graphs[0].ids, column="id").tolist() == [*range(COUNT)]
    pytest.importorskip("duckdb")
    prepare(nodes, [ends], tmp_path / "out", **ROLES)
    graphs.append(open_graph(tmp_path / "out"))
    for graph in graphs:
        assert graph.ids.tolist() == ids and is_path(graph)


TYPED: dict[str, tuple[Any, list[Any]]] = {
    "int64": (pa.array(range(COUNT)), [*range(COUNT)]),
    "int8": (pa.array(range(COUNT), pa.int8()), [*range(COUNT)]),
    "uint64": (pa.array(range(COUNT), pa.uint64()), [*range(COUNT)]),
    "large uint64": (
        pa.array([2**63 + n for n in range(COUNT)], pa.uint64()),
        [str(2**63 + n) for n in range(COUNT)],
    ),
    "text": (pa.array(WRITTEN["zeros"]), WRITTEN["zeros"]),
    "dictionary": (pa.array(WRITTEN["zeros"]).dictionary_encode(), WRITTEN["zeros"]),
    "bytes": (pa.array(WRITTEN["zeros"]).cast(pa.binary()), WRITTEN["zeros"]),
    "fixed bytes": (pa.array([one.encode() for one in WRITTEN["zeros"]], pa.binary(5)), WRITTEN["zeros"]),
    "date": (
        pa.array([dt.date(2011, 3, n + 1) for n in range(COUNT)]),
        [f"2011-03-{n + 1:02d}" for n in range(COUNT)],
    ),
    "decimal": (
        pa.array([decimal.Decimal(n).scaleb(-2) + 1 for n in range(COUNT)], pa.decimal128(5, 2)),
        [f"1.{n:02d}" for n in range(COUNT)],
    ),
    "uuid": (
        pa.array([uuid.UUID(int=n).bytes for n in range(COUNT)], pa.uuid()),
        [str(uuid.UUID(int=n)) for n in range(COUNT)],
    ),
    "16 bytes": (
        pa.array([uuid.UUID(int=n).bytes for n in range(COUNT)], pa.binary(16)),
        [str(uuid.UUID(int=n)) for n in range(COUNT)],
    ),
}


@pytest.mark.parametrize("kind", TYPED)
@pytest.mark.parametrize("suffixes", [(".parquet", ".parquet"), (".parquet", ".csv"), (".csv", ".parquet")])
def test_typed_ids_match_themselves_and_their_text(
    tmp_path: Path, kind: str, suffixes: tuple[str, str]
) -> None:
    ids, expected = TYPED[kind]
    texts = [*map(str, expected)]
    own, ends = (ids if suffix == ".parquet" else pa.array(texts) for suffix in suffixes)
    nodes = stored(nodes_of(own), tmp_path / f"n{suffixes[0]}")
    graph = read_graph(nodes, stored(ends_of(ends), tmp_path / f"e{suffixes[1]}"), **ROLES)
    assert graph.ids.tolist() == (expected if suffixes[0] == ".parquet" else texts) and is_path(graph)
    assert suffixes[0] != suffixes[1] or is_path(Graph.from_frames(nodes_of(own), ends_of(ends), **ROLES))


DIFFERENT = {
    "type": (WRITTEN["whole numbers"], [*range(COUNT)], "of type int64"),
    "floats": (WRITTEN["whole numbers"], [*map(float, range(COUNT))], "of type double"),
    "floats and numbers": (
        [*range(COUNT)],
        [*map(float, range(COUNT))],
        "dropna(subset=['a']).astype({'a': 'int64'})",
    ),
    "case": (
        [f"U{n}" for n in range(COUNT)],
        [f"u{n}" for n in range(COUNT)],
        "only in upper and lower case",
    ),
    "blanks": (WRITTEN["whole numbers"], WRITTEN["blanks"], "only in blanks"),
    "zeros": (WRITTEN["whole numbers"], WRITTEN["zeros"], "only in how numbers are written"),
    "Excel": (WRITTEN["whole numbers"], WRITTEN["123.0"], "only in how numbers are written"),
    "blanks and case": (
        [f"U{n}" for n in range(COUNT)],
        [f" u{n}" for n in range(COUNT)],
        "only in blanks, up",
    ),
    "all others": ([f"U{n}" for n in range(COUNT)], [f"V{n}" for n in range(COUNT)], "no edge has both ends"),
}


@pytest.mark.parametrize("kind", DIFFERENT)
@pytest.mark.parametrize("unknown", ["error", "drop"])
def test_ids_of_another_spelling_are_reported_and_not_dropped(
    tmp_path: Path, kind: str, unknown: str
) -> None:
    ids, others, message = DIFFERENT[kind]
    with pytest.raises(GraphError) as error:
        Graph.from_frames(nodes_of(ids), ends_of(others), **ROLES, unknown_ids=unknown)
    assert message in str(error.value) and "--unknown-ids drop" not in str(error.value)
    assert getattr(error.value, "flags", None) is None
    if unknown == "drop" and kind not in ("type", "floats", "floats and numbers"):
        pytest.importorskip("duckdb")
        nodes = stored(nodes_of(ids), tmp_path / "n.parquet")
        with pytest.raises(GraphError, match="no edge"):
            prepare(
                nodes,
                [stored(ends_of(others), tmp_path / "e.parquet")],
                tmp_path / "out",
                **ROLES,
                unknown_ids="drop",
            )


def test_blanks_around_the_ends_of_a_csv_count_only_if_ids_have_them(tmp_path: Path) -> None:
    nodes = stored(nodes_of(WRITTEN["whole numbers"]), tmp_path / "n.csv")
    edges = tmp_path / "e.csv"
    edges.write_text("a,b\n" + "".join(f"{n}, {n + 1}\n" for n in range(COUNT - 1)))
    assert is_path(read_graph(nodes, edges, **ROLES))

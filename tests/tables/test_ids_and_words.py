"""Ids keep their spelling in every pair of tables, and words for a missing value are no classes."""

import datetime as dt
import decimal
import uuid
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import graphveil as gv
from graphveil.data import Graph, open_graph, prepare, read_graph
from graphveil.data.graph_files import read_edges, read_ids, read_topology
from graphveil.data.tables import NULL_VALUES
from graphveil.errors import GraphError, GraphveilError

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


def nodes_of(ids: Any, path: Path) -> Path:
    return stored({"id": ids, "team": ["a", "b"] * (COUNT // 2), "x": range(COUNT)}, path)


def stored(columns: dict[str, Any], path: Path) -> Path:
    table = pa.table(columns)
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        pd.DataFrame({name: table[name].to_pylist() for name in table.column_names}).to_csv(path, index=False)
    return path


def ends_of(ids: Any) -> dict[str, Any]:
    return {"a": ids[: COUNT - 1], "b": ids[1:]}


def path_graph(graph: Graph) -> bool:
    return sorted(map(tuple, graph.adjacency.edge_index().T.tolist()))[::2] == [
        (n, n + 1) for n in range(COUNT - 1)
    ] or {*map(tuple, graph.adjacency.edge_index().T.tolist())} == {
        pair for n in range(COUNT - 1) for pair in ((n, n + 1), (n + 1, n))
    }


@pytest.mark.parametrize("kind", WRITTEN)
@pytest.mark.parametrize("edges", ["e.csv", "e.parquet"])
def test_ids_of_a_csv_keep_their_spelling(tmp_path: Path, kind: str, edges: str) -> None:
    ids = WRITTEN[kind]
    nodes, ends = nodes_of(ids, tmp_path / "n.csv"), stored(ends_of(ids), tmp_path / edges)
    for unknown in ("refuse", "drop"):
        graph = read_graph(nodes, ends, **ROLES, unknown_ids=unknown)
        assert graph.ids.tolist() == ids and path_graph(graph)
    known = read_topology(nodes, ends, id="id", directed=False, **ENDS)
    assert known.ids.tolist() == ids and path_graph(known)
    assert path_graph(graph.replace(adjacency=read_edges(ends, graph.ids, directed=False, **ENDS)))
    assert read_ids(nodes, graph.ids, column="id").tolist() == [*range(COUNT)]
    pytest.importorskip("duckdb")
    prepare(nodes, [ends], tmp_path / "out", **ROLES)
    opened = open_graph(tmp_path / "out")
    assert opened.ids.tolist() == ids and path_graph(opened)


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
@pytest.mark.parametrize("written", [(".parquet", ".parquet"), (".parquet", ".csv"), (".csv", ".parquet")])
def test_typed_ids_match_themselves_and_their_text(
    tmp_path: Path, kind: str, written: tuple[str, str]
) -> None:
    ids, expected = TYPED[kind]
    parts = [ids if suffix == ".parquet" else pa.array([*map(str, expected)]) for suffix in written]
    nodes = nodes_of(parts[0], tmp_path / f"n{written[0]}")
    edges = stored(ends_of(parts[1]), tmp_path / f"e{written[1]}")
    graph = read_graph(nodes, edges, **ROLES)
    assert graph.ids.tolist() == (expected if written[0] == ".parquet" else [*map(str, expected)])
    assert path_graph(graph)
    if written[0] == written[1]:
        columns = {"id": parts[0], "team": ["a", "b"] * (COUNT // 2), "x": range(COUNT)}
        assert path_graph(Graph.from_frames(columns, ends_of(parts[1]), **ROLES))


DIFFERENT = {
    "type": (WRITTEN["whole numbers"], [*range(COUNT)], "of type int64"),
    "floats": (WRITTEN["whole numbers"], [*map(float, range(COUNT))], "of type double"),
    "floats and numbers": ([*range(COUNT)], [*map(float, range(COUNT))], "astype('int64')"),
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
@pytest.mark.parametrize("unknown", ["refuse", "drop"])
def test_ids_that_differ_in_writing_are_not_to_be_dropped(tmp_path: Path, kind: str, unknown: str) -> None:
    ids, others, words = DIFFERENT[kind]
    columns = {"id": ids, "team": ["a", "b"] * (COUNT // 2), "x": range(COUNT)}
    with pytest.raises(GraphError) as error:
        Graph.from_frames(columns, ends_of(others), **ROLES, unknown_ids=unknown)
    assert words in str(error.value) and "--unknown-ids drop" not in str(error.value)
    assert getattr(error.value, "flags", None) is None
    if unknown == "drop" and kind not in ("type", "floats", "floats and numbers"):
        pytest.importorskip("duckdb")
        files = nodes_of(ids, tmp_path / "n.parquet"), stored(ends_of(others), tmp_path / "e.parquet")
        with pytest.raises(GraphError, match="no edge"):
            prepare(files[0], [files[1]], tmp_path / "out", **ROLES, unknown_ids="drop")


def test_blanks_around_the_ends_of_a_csv_count_only_if_ids_have_them(tmp_path: Path) -> None:
    nodes = nodes_of(WRITTEN["whole numbers"], tmp_path / "n.csv")
    edges = tmp_path / "e.csv"
    edges.write_text("a,b\n" + "".join(f"{n}, {n + 1}\n" for n in range(COUNT - 1)))
    assert path_graph(read_graph(nodes, edges, **ROLES))


@pytest.mark.parametrize("word", [*NULL_VALUES, " ", "\t", " NULL "])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_missing_word_is_no_class_and_leaves_numbers_numbers(
    tmp_path: Path, word: str, suffix: str
) -> None:
    edges = stored(ends_of(WRITTEN["whole numbers"]), tmp_path / "e.csv")
    columns = {"id": pa.array(WRITTEN["whole numbers"]), "team": ["a", "b", word] * 4, "x": range(COUNT)}
    graph = read_graph(stored(columns, tmp_path / f"n{suffix}"), edges, **ROLES)
    assert graph.class_names == ("a", "b") and graph.y.tolist() == [0, 1, -1] * 4
    kept = read_graph(tmp_path / f"n{suffix}", edges, **ROLES, null_values=["-9"])
    assert len(kept.class_names) == 2 + bool(word.strip())
    columns |= {"team": ["a", "b"] * 6, "x": [word, *(f"{n}.5" for n in range(1, COUNT))]}
    columns |= {"plan": ["p", word, "q"] * 4}
    nodes = stored(columns, tmp_path / f"m{suffix}")
    choices: dict[str, Any] = {"categories": ["plan"], "missing": "constant=-1"}
    if suffix == ".csv":
        graph = read_graph(nodes, edges, **ROLES, **choices)
        assert graph.x.tolist()[:3] == [[-1, 1, 0], [1.5, 0, 0], [2.5, 0, 1]]
    named = read_graph(nodes, edges, **ROLES, drop=["x"], categories={"plan": ["p", word]})
    if word.strip() and word == word.strip():
        assert named.x.tolist()[:3] == [[1, 0], [0, 1], [0, 0]]  # a value that was named is one


@pytest.mark.parametrize(
    ("values", "suggested"),
    [
        ([f"likes tea {n}" for n in range(COUNT)], "drop"),
        (["likes tea", "", "call back", *[""] * (COUNT - 3)], "drop"),
        (["DE"] * COUNT, "drop"),
        (["DE", "FR", "IT"] * 4, "categories"),
        (["x", "y", *[""] * (COUNT - 2)], "drop"),
    ],
)
def test_free_text_is_to_be_dropped(values: list[str], suggested: str) -> None:
    columns = {"id": range(COUNT), "team": ["a", "b"] * 6, "x": range(COUNT), "note": values}
    with pytest.raises(gv.errors.TableError) as error:
        Graph.from_frames(columns, ends_of([*range(COUNT)]), **ROLES)
    assert error.value.flags == (f"--{suggested}", "note")


def test_the_line_of_a_bad_csv_is_named(tmp_path: Path) -> None:
    edges = stored(ends_of([*range(COUNT)]), tmp_path / "e.csv")
    for text, words in {
        "id,team,x\n1,a,1\n2,b,2,Zanzibar\n": "line 3 has 4 fields, and the header has 3",
        "id,team,x\n1,a,1\n2,b\n": "line 3 has 2 fields",
        'id,team,x\n"1\n",a,1\n2,b,1,1\n': "line 4 has 4 fields",
    }.items():
        (tmp_path / "n.csv").write_text(text)
        with pytest.raises(GraphError) as error:
            read_graph(tmp_path / "n.csv", edges, **ROLES)
        assert words in str(error.value) and "Zanzibar" not in str(error.value)


FRAMES: dict[str, tuple[Any, str]] = {
    "twice": (
        lambda nodes: pd.concat([nodes, nodes[["x"]]], axis=1),
        "more than one column 'x'",
    ),
    "sparse": (
        lambda nodes: nodes.assign(z=pd.arrays.SparseArray([0] * COUNT)),
        "column 'z' of nodes is sparse",
    ),
    "complex": (lambda nodes: nodes.assign(z=1j), "column 'z' of nodes holds complex numbers"),
    "mixed": (
        lambda nodes: nodes.assign(z=[1, "a"] * (COUNT // 2)),
        "column 'z' of nodes has values of mixed types",
    ),
    "objects": (
        lambda nodes: nodes.assign(z=[object()] * COUNT),
        "column 'z' of nodes holds values (object)",
    ),
    "index": (lambda nodes: nodes.set_index("id"), "reset_index()"),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_a_frame_names_the_column_and_the_reason(kind: str) -> None:
    change, words = FRAMES[kind]
    nodes = pd.DataFrame({"id": range(COUNT), "team": ["a", "b"] * 6, "x": range(COUNT)})
    with pytest.raises(GraphError) as error:
        Graph.from_frames(change(nodes), ends_of([*range(COUNT)]), **ROLES)
    assert words in str(error.value)


BAD = {"id": 5, "source": ["a"], "target": 3, "label": 7, "split": 1.5, "features": 5, "drop": 5,
       "categories": 5, "missing": 3, "unknown_ids": None, "null_values": 5, "encoding": 5, "classes": 5,
       "weight": 5, "max_weight": "x", "directed": "yes", "name": 5}  # fmt: skip


@pytest.mark.parametrize("name", [*BAD, "nodes", "edges"])
def test_arguments_of_wrong_types_have_typed_errors(name: str) -> None:
    nodes: Any = {"id": [1, 2, 3], "team": ["a", "b", "a"], "x": [1, 2, 3]}
    edges: Any = {"a": [1], "b": [2], "w": [1.0]}
    if name in ("nodes", "edges"):
        with pytest.raises(GraphveilError):
            Graph.from_frames(*((5, edges) if name == "nodes" else (nodes, 5)), **ROLES)
        return
    keywords = ROLES | ({"weight": "w"} if name == "max_weight" else {}) | {name: BAD[name]}
    with pytest.raises(GraphveilError):
        Graph.from_frames(nodes, edges, **keywords)


@pytest.mark.parametrize("name", [5, None, b"cora", ["cora"]])
def test_a_data_set_is_named_by_text(name: Any) -> None:
    with pytest.raises(gv.errors.ConfigError, match="must be text"):
        gv.load_dataset(name)


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["p", "q"])], ids=["Categorical", "Enum"])
def test_categories_of_polars(kind: Any) -> None:
    nodes = pl.DataFrame({"id": [1, 2, 3, 4], "x": [1, 2, 3, 4]}).with_columns(
        team=pl.Series(["p", "q", "p", "q"], dtype=kind), plan=pl.Series(["p", "q", "p", "q"], dtype=kind)
    )
    graph = Graph.from_frames(nodes, {"a": [1], "b": [2]}, **ROLES, categories=["plan"])
    assert graph.class_names == ("p", "q") and graph.x.tolist()[0] == [1, 1, 0]


@pytest.mark.parametrize("missing", ["refuse", "indicator", "median", "constant=0"])
@pytest.mark.parametrize(
    "column", [pa.array([None] * 4, pa.list_(pa.float64())), pa.array([[]] * 4, pa.list_(pa.float64()))]
)
def test_lists_without_numbers_are_empty(column: Any, missing: str) -> None:
    nodes = {"id": range(4), "team": ["a", "b"] * 2, "x": range(4), "z": column}
    with pytest.raises(GraphError, match="column 'z' is empty"):
        Graph.from_frames(nodes, {"a": [1], "b": [2]}, **ROLES, missing=missing)


def test_index_columns_are_no_features_and_identifiers_are_named() -> None:
    phones = [491700000000 + n for n in range(4)]
    nodes = {"id": range(4), "team": ["a", "b"] * 2, "Unnamed: 0": range(4), "x": range(4), "phone": phones}
    graph = Graph.from_frames(nodes, {"a": [1], "b": [2]}, **ROLES)
    assert graph.encoding is not None and graph.num_features == 2
    assert "'phone'" in graph.encoding.notes[0] and "--drop phone" in graph.encoding.notes[0]
    assert graph.encoding.ignored_nodes == ("Unnamed: 0",)

"""Tables of nodes and edges as parquet or CSV: the graph that they give, or an error that quotes no value."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphveil.core.features import to_dense
from graphveil.data import Graph, read_graph
from graphveil.data.tables.encoding import CLASSES_FROM_LABELS
from graphveil.errors import GraphError

SECRET = "Zanzibar-4711"  # an id, label or feature that no message may contain

NODES: dict[str, Any] = {
    "user": ["u1", "u2", SECRET, "u4"],
    "team": ["red", "blue", "red", None],
    "age": [31.5, 45.0, 28.0, 60.0],
    "member": [True, False, True, True],
    "fold": ["train", "valid", "TEST", None],
}
EDGES: dict[str, Any] = {"a": ["u1", SECRET, "u1"], "b": ["u2", "u1", "u1"], "since": [2001, 2002, 2003]}
ROLES: dict[str, Any] = {"id": "user", "label": "team", "source": "a", "target": "b", "directed": False}
SPLIT = ROLES | {"split": "fold"}
Read = Callable[..., Graph]


@pytest.fixture(params=["parquet", "csv"])
def suffix(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def read(suffix: str, tmp_path: Path) -> Read:
    """Write two tables in one format, with changed columns (None drops one), and read the graph."""

    def run(nodes: Any = None, edges: Any = None, **roles: Any) -> Graph:
        paths = []
        for name, columns, changes in (("nodes", NODES, nodes), ("edges", EDGES, edges)):
            kept = {key: value for key, value in (columns | (changes or {})).items() if value is not None}
            paths.append(write(pa.table(kept), tmp_path / f"{name}.{suffix}"))
        return read_graph(*paths, **(SPLIT | roles))

    return run


def write(table: pa.Table, path: Path) -> Path:
    (pa.parquet.write_table if path.suffix == ".parquet" else pa.csv.write_csv)(table, path)
    return path


def error_of(read: Callable[..., object], *arguments: Any, **keywords: Any) -> str:
    """Return the message of the error, which contains no value."""
    with pytest.raises(GraphError) as error:
        read(*arguments, **keywords)
    message = str(error.value)
    assert SECRET not in message and error.value.__cause__ is None
    return message


# -- values ----


def test_reads_features_labels_split_and_edges(read: Read) -> None:
    graph = read()
    assert to_dense(graph.x).tolist() == [[31.5, 1], [45, 0], [28, 1], [60, 1]]
    assert graph.y.tolist() == [1, 0, 1, -1] and graph.class_names == ("blue", "red")
    assert graph.ids is not None and graph.ids.tolist() == NODES["user"] and graph.name == "nodes"
    assert graph.adjacency.edge_index().tolist() == [[1, 2, 0, 0], [0, 0, 1, 2]]
    assert [mask.nonzero().flatten().tolist() for mask in graph.masks.values()] == [[0], [1], [2]]
    assert graph.notes == (CLASSES_FROM_LABELS,)
    assert read(directed=True).adjacency.edge_index().tolist() == [[2, 0], [0, 1]]
    assert read(edges={"a": [], "b": [], "since": []}).adjacency.edge_index().shape == (2, 0)


def test_feature_columns_can_be_chosen_or_set_aside(read: Read) -> None:
    chosen = read(nodes={"note": ["p", "q", "r", "s"]}, features=["member"])
    assert to_dense(chosen.x).tolist() == [[1], [0], [1], [1]]
    aside = read(split=None, aside=["fold", "age", "elsewhere"])
    assert to_dense(aside.x).tolist() == [[1], [0], [1], [1]] and not aside.has_split
    assert not read(nodes={"fold": None}, split=None).has_split
    assert "column 'fold' is of type" in error_of(read, split=None)  # then it is a feature, and text


def test_ids_of_integers_are_numbers_in_parquet_and_text_in_csv(read: Read, suffix: str) -> None:
    graph = read(nodes={"user": [30, 10, 20, 40]}, edges={"a": [10, 20, 10], "b": [30, 30, 20]})
    kind = str if suffix == "csv" else int
    assert graph.ids is not None and graph.ids.tolist() == [*map(kind, [30, 10, 20, 40])]
    assert graph.adjacency.edge_index().tolist() == [[1, 2, 0, 2, 0, 1], [0, 0, 1, 1, 2, 2]]


@pytest.mark.parametrize(
    ("labels", "options", "names", "y"),
    [
        ([2009, 2004, 2009, None], {}, ("2004", "2009"), [1, 0, 1, -1]),
        ([10, 9, 10, 9], {}, ("9", "10"), [1, 0, 1, 0]),  # numbers are sorted as numbers
        ([2.0, 1.0, float("nan"), 2.0], {}, ("1", "2"), [1, 0, -1, 1]),  # without the decimal point
        (["01", "1", "1.0", " 1 "], {}, ("01", "1"), [0, 1, 1, 1]),  # the spelling counts
        (["red", "blue", "red", None], {"classes": ["red", "green", "blue"]}, None, [0, 2, 0, -1]),
        (["red", "blue", "red", None], {"classes": ["red", "green"]}, None, [0, -1, 0, -1]),  # no error
        (["NA", "red", "blue", None], {}, ("blue", "red"), [-1, 1, 0, -1]),
        (["NA", "red", "blue", None], {"null_values": ["-"]}, ("NA", "blue", "red"), [0, 2, 1, -1]),
        (["NA", "red", "blue", None], {"classes": ["NA", "red"]}, None, [0, 1, -1, -1]),
    ],
)
def test_labels_become_classes(read: Read, labels: Any, options: Any, names: Any, y: list[int]) -> None:
    graph = read(nodes={"team": labels, "fold": None}, split=None, **options)
    assert graph.class_names == (names or tuple(options["classes"])) and graph.y.tolist() == y


def test_bool_labels_are_named_as_in_their_format(read: Read, suffix: str) -> None:
    expected = ("false", "true") if suffix == "csv" else ("False", "True")
    assert read(nodes={"team": [True, False, True, None]}).class_names == expected


@pytest.mark.parametrize("value", ["x", "1.5", "2020-01-01", "true", "7" * 30, None])
def test_no_label_affects_how_others_are_read(read: Read, value: str | None) -> None:
    graph = read(nodes={"team": ["2", "01", "2", value]}, classes=["01", "2", "3"])
    assert graph.y.tolist() == [1, 0, 1, -1] and graph.class_names == ("01", "2", "3")
    assert graph.notes == ()


def test_labels_may_be_missing_if_the_classes_are_named(read: Read) -> None:
    changes: dict[str, Any] = {"nodes": {"team": None, "fold": None}, "label": None, "split": None}
    graph = read(classes=["red", "blue"], **changes)
    assert graph.y.tolist() == [-1] * 4 and graph.class_names == ("red", "blue")
    assert graph.num_features == read().num_features
    assert "label column is missing" in error_of(read, **changes)


def test_weights_are_read_from_a_column(read: Read) -> None:
    graph = read(directed=True, edges={"since": [3, 7, 1]}, weight="since", max_weight=6.0)
    assert graph.adjacency.weights is not None and graph.adjacency.weights.tolist() == [1.0, 0.5]
    missing = {"since": [3, None, 1]}
    assert "column 'since'" in error_of(read, edges=missing, weight="since", max_weight=6.0)


# -- errors ----


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        ({"user": ["u1", SECRET, SECRET, "u4"]}, {}, "column 'user' repeats ids. Keep one row per node"),
        ({"user": ["u1", None, SECRET, "u4"]}, {}, "column 'user' has missing values"),
        ({"user": [1, 2, 3, 4]}, {}, "lacks; add those nodes"),
        ({}, {"a": [1, 2, 3]}, "column 'user' of the nodes "),
        ({"user": ["u1", "u2", "u3", "u4"]}, {}, "column 'a' of the edges holds ids that column 'user'"),
        ({}, {"b": ["u2", None, "u1"]}, "column 'b' of the edges has missing values"),
        ({"age": [1.0, float("nan"), 2.0, 3.0]}, {}, "column 'age' holds NaN, infinite"),
        ({"age": [1.0, float("inf"), 2.0, 3.0]}, {}, "column 'age' holds NaN, infinite"),
        ({"age": [1.0, 1e300, 2.0, 3.0]}, {}, "column 'age' holds NaN, infinite"),
        ({"age": [1.0, None, 2.0, 3.0]}, {}, "column 'age' has missing values"),
        ({"age": ["a", SECRET, "b", "c"]}, {}, "not a number; drop it (--drop), or encode it as numbers"),
        ({"team": [SECRET] * 4, "fold": ["train"] * 4}, {}, "fewer than two classes"),
        ({"team": [None] * 4, "fold": None, "age": [1, 2, 3, 4]}, {}, "no column 'fold'"),
        ({"fold": ["train", SECRET, "val", "test"]}, {}, "column 'fold' must only contain train, val"),
        ({"fold": ["val", "val", "test", None]}, {}, "column 'fold' assigns no node to train"),
        ({"fold": [0, 1, 2, 3]}, {}, "column 'fold' must only contain train, val"),
        ({"user": None}, {}, "nodes.{suffix} has no column 'user'"),
        ({"team": None, "teams": ["a", "b"] * 2}, {}, "has no column 'team' among its 5; name a column"),
        ({}, {"a": None}, "edges.{suffix} has no column 'a'"),
        ({key: pa.array([], pa.string()) for key in NODES}, {}, "the graph has no nodes"),
    ],
)
def test_rejects_inconsistent_tables(read: Read, suffix: str, nodes: Any, edges: Any, message: str) -> None:
    assert message.format(suffix=suffix) in error_of(read, nodes=nodes, edges=edges)


@pytest.mark.parametrize("roles", [{"label": "user"}, {"target": "a"}, {"features": ["age", "team"]}])
def test_rejects_a_column_with_two_roles(read: Read, roles: Any) -> None:
    assert "is used for two different roles" in error_of(read, **roles)


def write_text(folder: Path, nodes: str | bytes = "", edges: str = "a,b\nu1,u2\n") -> tuple[Path, Path]:
    nodes = nodes or f"user,team,age\nu1,red,1\nu2,blue,2\n{SECRET},red,3\n"
    (folder / "nodes.csv").write_bytes(nodes.encode() if isinstance(nodes, str) else nodes)
    (folder / "edges.csv").write_text(edges)
    return folder / "nodes.csv", folder / "edges.csv"


def test_rejects_paths_that_are_not_tables(tmp_path: Path) -> None:
    nodes, edges = write_text(tmp_path)
    (tmp_path / "folder.csv").mkdir()
    missing = error_of(read_graph, nodes, tmp_path / "edge.csv", **ROLES)
    assert "There is no file" in missing and "Check the path" in missing
    assert "nodes.xlsx must end in" in error_of(read_graph, tmp_path / "nodes.xlsx", edges, **ROLES)
    assert "folder.csv is a folder" in error_of(read_graph, tmp_path / "folder.csv", edges, **ROLES)
    for content in (b"", b"not parquet " + SECRET.encode()):
        (tmp_path / "nodes.parquet").write_bytes(content)
        message = error_of(read_graph, tmp_path / "nodes.parquet", edges, **ROLES)
        assert "nodes.parquet cannot be read as Parquet" in message


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("\n", {}, "nodes.csv"),
        (f"user,team,age\nu1,red,1\nu2,blue,2,{SECRET}\n", {}, "line 3 has 4 fields, and the header has 3"),
        ("user,team,age\nu1,red,1\nu2,blue\n", {}, "line 3 has 2 fields"),
        ('user,team,age\n"1\n",red,1\nu2,blue,1,1\n', {}, "line 4 has 4 fields"),
        (f'user,team,age\nu1,red,1\n"{SECRET}', {}, "nodes.csv"),
        # A first row that is data is neither quoted nor used for a suggestion.
        (f"{SECRET},red,1\nu2,blue,2\n", {}, "a CSV needs a header row"),
        (f"{SECRET},red,1\nu2,blue,2\n", {"id": SECRET[:-1]}, "among its 3; "),
        ("user,team,age,age\nu1,red,1,1\nu2,blue,2,2\n", {}, "more than one column 'age'; rename or drop"),
        ("user,team,age\n", {}, "the graph has no nodes"),
        (b"user,team,age\nu1,\xff\xfe,1\nu2,blue,2\n", {}, "as CSV (comma-separated, UTF-8"),
        (b"user,team,age\n\xff\xfe,red,1\nu2,blue,2\n", {}, "line 2 is not text in UTF-8"),
    ],
)
def test_rejects_malformed_csv_by_line_number(
    tmp_path: Path, text: str | bytes, options: Any, message: str
) -> None:
    assert message in error_of(read_graph, *write_text(tmp_path, text), **(ROLES | options))


def test_csv_may_be_compressed_and_have_no_edges(tmp_path: Path) -> None:
    nodes, edges = write_text(tmp_path, edges="a,b\n")
    (tmp_path / "nodes.csv.gz").write_bytes(gzip.compress(nodes.read_bytes()))
    graph = read_graph(tmp_path / "nodes.csv.gz", edges, **ROLES)
    assert graph.num_nodes == 3 and graph.adjacency.edge_index().shape == (2, 0)


# -- damaged files ----
fuzzed = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def read_or_reject(nodes: Path, edges: Path) -> None:
    """Fail unless the tables are read or rejected with an error that quotes no value."""
    try:
        read_graph(nodes, edges, **ROLES)
    except GraphError as error:
        assert SECRET not in str(error)


@fuzzed
@given(st.lists(st.tuples(st.integers(30, 70), st.sampled_from('\n",\x00\xff;-.1'))))
def test_damaged_csv_is_read_or_rejected(tmp_path: Path, edits: list[tuple[int, str]]) -> None:
    text = f"user,team,age\nu1,red,1\nu2,blue,2\n{SECRET},red,3\nu4,red,4\n"
    for place, character in edits:
        text = text[:place] + character + text[place:]
    read_or_reject(*write_text(tmp_path, text))


@fuzzed
@given(st.lists(st.tuples(st.integers(0, 2000), st.binary(min_size=1, max_size=4)), min_size=1))
def test_damaged_parquet_is_read_or_rejected(tmp_path: Path, edits: list[tuple[int, bytes]]) -> None:
    _, edges = write_text(tmp_path)
    table = pa.table({key: NODES[key] for key in ("user", "team", "age")})
    path = write(table, tmp_path / "nodes.parquet")
    content = bytearray(path.read_bytes())
    for place, piece in edits:
        start = place % len(content)
        content[start : start + len(piece)] = piece
    path.write_bytes(content)
    read_or_reject(path, edges)


# -- types of parquet ----


def read_parquet(folder: Path, nodes: dict[str, Any], edges: dict[str, Any] | None = None) -> Graph:
    paths = write(pa.table(NODES | nodes), folder / "n.parquet"), folder / "e.parquet"
    return read_graph(paths[0], write(pa.table(edges or EDGES), paths[1]), **SPLIT)


@pytest.mark.parametrize(
    ("columns", "x"),
    [
        ({"age": pa.array([1, 2, 3, 4], pa.decimal128(5, 2)), "member": pa.array(np.ones(4, np.float16))},
         [[1, 1], [2, 1], [3, 1], [4, 1]]),
        ({"age": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(8.0)), 2),
          "member": pa.array([[1, 2], [3, 4], [5, 6], [7, 8]])},
         [[0, 1, 1, 2], [2, 3, 3, 4], [4, 5, 5, 6], [6, 7, 7, 8]]),
    ],
)  # fmt: skip
def test_decimals_small_floats_and_lists_are_features(tmp_path: Path, columns: Any, x: Any) -> None:
    assert to_dense(read_parquet(tmp_path, columns).x).tolist() == x


@pytest.mark.parametrize(
    ("age", "message"),
    [
        (pa.array([[1], [2, 3], [4], [5]]), "lists of different lengths"),
        (pa.array([["a"], [SECRET], ["b"], ["c"]]), "not a number"),
    ],
)
def test_rejects_other_lists_as_features(tmp_path: Path, age: Any, message: str) -> None:
    assert message in error_of(read_parquet, tmp_path, {"age": age})


def test_dictionaries_and_chunks_are_decoded(tmp_path: Path) -> None:
    coded = {key: pa.array(value).dictionary_encode() for key, value in NODES.items() if key != "age"}
    coded["user"] = pa.chunked_array([pa.array(["u1", "u2"]), pa.array([SECRET, "u4"])])
    graph = read_parquet(tmp_path, coded | {"member": NODES["member"]})
    assert graph.class_names == ("blue", "red") and graph.masks["train_mask"].sum() == 1
    assert graph.ids is not None and graph.ids.tolist() == NODES["user"]


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (pa.array(np.array([2.0, 1.0, np.nan, 1.5], np.float16)), ("1", "1.5", "2")),
        (pa.array([2, 1, None, 2], pa.date32()), ("1970-01-02", "1970-01-03")),
        (pa.array([2**31 - 1, 1, None, 1], pa.date32()), None),  # beyond the calendar
        (pa.array([2**64 - 1, 1, None, 2**64 - 1], pa.uint64()), ("1", str(2**64 - 1))),
        (pa.array([2, 1, None, 2]).cast(pa.decimal128(21, 2)), ("1.00", "2.00")),
    ],
)
def test_labels_of_rare_types(tmp_path: Path, labels: Any, names: Any) -> None:
    graph = read_parquet(tmp_path, {"team": labels})
    assert graph.y.tolist()[2] == -1 and (names is None or graph.class_names == names)


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.list_(pa.string()), pa.timestamp("s"), pa.timestamp("ns"), pa.duration("ns"), pa.time64("ns")),
        pa.timestamp("us", tz="Nowhere/Land"),
    ],
    ids=str,
)
def test_rejects_labels_of_other_types(tmp_path: Path, kind: Any) -> None:
    of = ["a"] if pa.types.is_nested(kind) else 2**40 + 1
    message = error_of(read_parquet, tmp_path, {"team": pa.array([of, None, of, None], kind)})
    assert "give one number or text per node" in message and "Nowhere" not in message


@pytest.mark.parametrize(
    ("user", "a", "b", "ids", "edges"),
    [
        (pa.array([3, 1, 2, 4], pa.uint64()), pa.array([1], pa.int8()), pa.array([3]), [3, 1, 2, 4], (1, 0)),
        (pa.array([3, 2**64 - 1, 2, 1], pa.uint64()), pa.array([2**64 - 1], pa.uint64()),
         pa.array([3], pa.uint64()), ["3", str(2**64 - 1), "2", "1"], (1, 0)),
        (["u", "u\0", SECRET, "u\0\0"], ["u\0"], ["u"], ["u", "u\0", SECRET, "u\0\0"], (1, 0)),
        (["u1", "ü" * 500, SECRET, "u4"], ["u4"], ["u1"], ["u1", "ü" * 500, SECRET, "u4"], (3, 0)),
    ],
    ids=["narrow and unsigned", "beyond 64 bits", "NUL at the end", "long"],
)  # fmt: skip
def test_ids_of_other_types_match(
    tmp_path: Path, user: Any, a: Any, b: Any, ids: list[Any], edges: tuple[int, int]
) -> None:
    graph = read_parquet(tmp_path, {"user": user}, {"a": a, "b": b})
    assert graph.ids is not None and graph.ids.tolist() == ids
    assert graph.ids.nbytes == 8 * 4  # a long id has no cost for the other nodes
    assert graph.adjacency.edge_index().tolist() == [[*edges], [*reversed(edges)]]


def test_rejects_ids_and_labels_of_more_than_1000_bytes(tmp_path: Path) -> None:
    for columns in ({"user": ["u1", "ü" * 501, SECRET, "u4"]}, {"team": ["x" * 1001, "blue", "blue", None]}):
        assert "more than 1,000 bytes" in error_of(read_parquet, tmp_path, columns)

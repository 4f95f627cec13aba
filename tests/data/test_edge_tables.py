"""No edge affects how others are read: between known ids, the result depends on the edges alone."""

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphveil.data import read_graph
from graphveil.errors import GraphError

ROLES = {"id": "user", "label": "team", "source": "a", "target": "b", "directed": True}
IDS = {  # as they are written in a CSV
    "int": ["7", "12", "3", "40", "-5"],
    "padded ints": ["007", "12", "0003", "40", "-5"],
    "text": ["ann", "bob", "7", "NA", " x"],
    "digits as text": ["7", "012", "x", "1e3", "true"],
    "dates and words": ["2020-01-01", "2020-01-02", "x", "nan", "0x10"],
    "floats": ["7.5", "12.5", "3.5", "1e9", "nan"],
}
edge_lists = st.lists(st.tuples(*[st.integers(0, 4)] * 2), max_size=4)
tables = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def outcome(nodes, edges):
    """Return the edges that were read, or the message of the error."""
    try:
        graph = read_graph(nodes, edges, **ROLES)
    except GraphError as error:
        return str(error)
    return set(map(tuple, graph.adjacency.edge_index().T.tolist()))


def written(path, rows):
    path.write_text("".join(",".join(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("kind", IDS)
@tables
@given(edges=edge_lists, quoted=st.booleans())
def test_csv_edges_are_read_one_by_one(tmp_path, kind, edges, quoted):
    ids, mark = IDS[kind], '"' if quoted else ""
    header = ("user", "team", "age")
    people = [(name, team, "1") for name, team in zip(ids, "xyxyx", strict=True)]
    nodes = written(tmp_path / "nodes.csv", [header, *people])
    rows = [(mark + ids[u] + mark, mark + ids[v] + mark) for u, v in edges]
    found = outcome(nodes, written(tmp_path / "edges.csv", [("a", "b"), *rows]))
    assert found == {(u, v) for u, v in edges if u != v}


@pytest.mark.parametrize("kind", [pa.int64(), pa.int16(), pa.uint64(), pa.string(), pa.float64()], ids=str)
@tables
@given(edges=edge_lists, without=st.sampled_from([None, pa.null(), pa.float64()]))
def test_parquet_edges_are_read_one_by_one(tmp_path, kind, edges, without):
    ids = pa.array([7, 12, 3, 40, 5]).cast(kind)
    pa.parquet.write_table(pa.table({"user": ids, "team": list("xyxyx"), "age": range(5)}), tmp_path / "n.pq")
    ends = [ids.take(pa.array(end, pa.int64())) for end in (zip(*edges, strict=True) if edges else ([], []))]
    if not edges and without is not None:  # as some libraries write a column without values
        ends = [pa.array([], without)] * 2
    pa.parquet.write_table(pa.table(ends, names=["a", "b"]), tmp_path / "e.pq")
    found = outcome(tmp_path / "n.pq", tmp_path / "e.pq")
    assert found == (
        "column 'user' is of type double; ids must be whole numbers or text. Convert it in both tables "
        "alike, for example table = table.dropna(subset=['user']).astype({'user': 'int64'})"
        if kind == pa.float64()
        else {(u, v) for u, v in edges if u != v}
    )


@pytest.mark.parametrize("unknown", ["13", "1.0", "zed", "9" * 20, "2020-01-01", "0.5", "true"])
def test_values_of_other_types_are_unknown_ids(tmp_path, unknown):
    nodes = written(tmp_path / "nodes.csv", [("user", "team", "age"), ("1", "x", "1"), ("2", "y", "1")])
    for rows in ([("1", unknown)], [("1", "2"), (unknown, "1")]):
        message = outcome(nodes, written(tmp_path / "edges.csv", [("a", "b"), *rows]))
        expected = "differ" if unknown == "1.0" else "that column 'user' of the nodes (text) lacks"
        assert expected in message
        assert unknown not in message


@pytest.mark.parametrize("weights", ["1,2", "1,0.5", "1,1e3", " 1,2 ", "0x1,2", "1,x", "true,true", "1,nan"])
def test_weights_are_read_one_by_one(tmp_path, weights):
    first, second = weights.split(",")
    nodes = written(tmp_path / "nodes.csv", [("user", "team", "age"), ("1", "x", "1"), ("2", "y", "1")])
    rows = [("a", "b", "w"), ("1", "2", first), ("2", "1", second)]
    keywords = ROLES | {"weight": "w", "max_weight": 4.0}
    try:
        graph = read_graph(nodes, written(tmp_path / "edges.csv", rows), **keywords)
        expected = [min(float(value), 4) / 4 for value in (second, first)]
        assert graph.adjacency.weights.tolist() == expected
    except GraphError as error:
        assert weights in ("0x1,2", "1,x", "true,true", "1,nan") and "column 'w' holds" in str(error)


def test_rejects_lists_as_weights(tmp_path):
    nodes = pa.table({"user": [1, 2], "team": ["x", "y"], "age": [1, 1]})
    edges = pa.table({"a": [1], "b": [2], "w": [[1.0, 2.0]]})
    pa.parquet.write_table(nodes, tmp_path / "n.pq")
    pa.parquet.write_table(edges, tmp_path / "e.pq")
    with pytest.raises(GraphError, match="one number per row"):
        read_graph(tmp_path / "n.pq", tmp_path / "e.pq", weight="w", max_weight=1.0, **ROLES)

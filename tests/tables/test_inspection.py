"""Inspection of two tables: features of each column, all validation errors, and options that pass."""

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

from graphveil.core.features import to_dense
from graphveil.data import Graph, Tables, prepare, read_graph
from graphveil.data.tables import NULL_VALUES
from graphveil.data.tables.encoding import Encoding
from graphveil.data.tables.files import FrameSource
from graphveil.data.tables.inspect_tables import TableInspection, inspect_tables
from graphveil.data.tables.options import TableOptions, parse_category
from graphveil.errors import ConfigError, GraphError, GraphveilError, TableError

SECRET = "Zanzibar-4711"
COLUMNS = TableOptions(id="user", label="team", source="a", target="b")
NODES: dict[str, Any] = {
    "user": ["u1", "u2", "u3", "u4"],
    "team": ["red", "blue", None, "red"],
    "age": [31, None, 28, 60],
    "member": [True, False, None, True],
    "joined": [dt.date(2000, 1, 1), dt.date(2001, 1, 1), None, dt.date(1999, 1, 1)],
    "plan": ["free", "pro", None, "free"],
    "note": [SECRET, "x" * 2000, None, "z"],
}
EDGES: dict[str, Any] = {
    "a": ["u1", "u2", SECRET, None],
    "b": ["u2", "u2", "u1", "u3"],
    "since": [1, 2, 3, 4],
}
PLAIN: dict[str, Any] = {"drop": "note,plan", "missing": "indicator"}
OPTIONS = ("features", "drop", "categories", "missing", "unknown_ids")


def inspect(nodes: Any = None, edges: Any = None, **options: Any) -> TableInspection:
    """Inspect both tables, with changed columns (None drops one)."""
    private = {name: options.pop(name) for name in ("private_records", "private_edges") if name in options}
    tables = []
    for title, columns, changes in (("nodes", NODES, nodes), ("edges", EDGES, edges)):
        kept = {name: value for name, value in (columns | (changes or {})).items() if value is not None}
        tables.append(FrameSource.from_frame(kept, title))
    return inspect_tables(*tables, replace(COLUMNS, **options), **private)


def encoding_of(found: TableInspection) -> Encoding:
    assert found.encoding is not None
    return found.encoding


def again(found: TableInspection, **options: Any) -> TableInspection:
    """Inspect the same tables with the suggested options."""
    assert found.suggestion is not None
    suggested = {name: getattr(found.suggestion, name) for name in OPTIONS}
    return inspect(**(suggested | {"categories": list(map(str, suggested["categories"]))} | options))


# -- problems and suggestions ----


def test_all_problems_are_reported_together_and_the_suggestion_passes() -> None:
    first = inspect()
    messages = "\n".join(first.problems)
    assert len(first.problems) == 6 and SECRET not in messages
    for name in ("age", "member", "joined", "plan", "note", "a"):
        assert f"column {name!r}" in messages
    fixed = first.suggestion
    assert fixed is not None and (fixed.missing, fixed.unknown_ids) == ("indicator", "drop")
    second = again(first)
    assert second.problems == [] and encoding_of(second).ignored_edges == ("since",)
    with pytest.raises(TableError) as error:
        first.raise_problems()
    assert error.value.problems == tuple(first.problems) and "missing='indicator'" in str(error.value)
    assert list(error.value.flags or ()) == fixed.flags() and SECRET not in str(error.value)


def test_problems_that_no_option_fixes_have_no_suggestion() -> None:
    found = inspect(nodes={"user": ["u1", "u1", "u3", "u4"]})
    assert any("repeats ids" in message for message in found.problems) and found.suggestion is None


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([1.0, np.nan, np.inf, 2.0]), "holds NaN, infinite"),
        (pa.array([[1, 2], None, [3, 4], [5, None]]), "has missing values"),
        (pa.array([[1, 2], [3], [3, 4], [5, 6]]), "lists of different lengths"),
        (pa.array([{"x": 1}] * 4), "not a number"),
        (pa.array([1, 2, 3, 4], pa.time32("s")), "not a number"),
        (pa.array([None] * 4, pa.list_(pa.float64())), "is empty"),
        (pa.array([[]] * 4, pa.list_(pa.float64())), "only lists without numbers"),
    ],
    ids=["infinite", "gap in a list", "ragged", "struct", "time of day", "no lists", "empty lists"],
)
@pytest.mark.parametrize("missing", ["error", "indicator", "median", "constant=0"])
def test_columns_that_no_replacement_fixes_are_to_be_dropped(column: Any, message: str, missing: str) -> None:
    found = inspect(nodes={"age": column}, features="age,member", missing=missing, unknown_ids="drop")
    assert [message in problem for problem in found.problems if "'age'" in problem] == [True]
    assert found.suggestion is not None and found.suggestion.features == ("member",)


@pytest.mark.parametrize(
    ("values", "suggested"),
    [
        ([f"likes tea {n}" for n in range(12)], "drop"),
        (["likes tea", "", "call back", *[""] * 9], "drop"),
        (["DE"] * 12, "drop"),
        (["DE", "FR", "IT"] * 4, "categories"),
        (["x", "y", *[""] * 10], "drop"),
    ],
)
def test_only_text_with_few_repeated_values_is_suggested_as_categories(
    values: list[str], suggested: str
) -> None:
    columns = {"id": range(12), "team": ["a", "b"] * 6, "x": range(12), "note": values}
    with pytest.raises(TableError) as error:
        Graph.from_frames(columns, {"a": [0], "b": [1]}, id="id", label="team", source="a", target="b")
    assert error.value.flags == (f"--{suggested}", "note")
    assert ("has one value only" in str(error.value)) == (len(set(values)) == 1)


# -- features ----


def test_columns_become_features_by_their_types() -> None:
    found = inspect(drop="note", categories="plan", missing="indicator", unknown_ids="drop")
    assert found.matrix().tolist() == [
        [31, 0, 1, 0, 0, 0, 1, 0],
        [0, 1, 0, 0, pytest.approx(366 / 365.25), 0, 0, 1],
        [28, 0, 0, 1, 0, 1, 0, 0],
        [60, 0, 1, 0, pytest.approx(-365 / 365.25), 0, 1, 0],
    ]
    assert encoding_of(found).fitted == ("plan",)
    description = encoding_of(found).words()
    assert "plan (2 categories (as in the table))" in description and "free" not in description
    columns = {
        "age": pa.array([1, 2, None, 4], pa.decimal128(5, 2)),
        "member": pa.array([[1, 2], None, [3, 4], [5, 6]]),
        "joined": pa.array([86_400 * 10957, None, 0, 0], pa.timestamp("s", tz="UTC")),
        "plan": pa.array([3600, 0, None, 7200], pa.duration("s")),
    }
    found = inspect(nodes=columns, drop="note", missing="constant=0", unknown_ids="drop")
    assert found.matrix()[:2].tolist() == [[1, 1, 2, 0, pytest.approx(1 / 24)], [2, 0, 0, 0, 0]]
    assert found.matrix()[2].tolist() == [0, 3, 4, pytest.approx(-10957 / 365.25), 0]


@pytest.mark.parametrize(
    ("missing", "age"), [("constant=-1", [31, -1, 28, 60]), ("median", [31, 31, 28, 60])]
)
def test_missing_numbers_are_replaced(missing: str, age: list[int]) -> None:
    found = inspect(features="age", missing=missing, unknown_ids="drop")
    assert found.matrix()[:, 0].tolist() == age
    assert encoding_of(found).fitted == ("age",) * (missing == "median")


def test_another_table_is_encoded_with_the_rules_of_the_first() -> None:
    first = inspect(drop="note", categories="plan", missing="indicator", unknown_ids="drop")
    encoding = Encoding.from_plain(encoding_of(first).as_plain())
    assert encoding.rules == first.rules
    other = {"plan": ["pro", SECRET, "pro", None], "note": None, "age": [None] * 4, "new": ["text"] * 4}
    found = inspect(nodes=other, encoding=encoding, unknown_ids="drop")
    assert found.problems == [] and found.matrix()[:, -2:].tolist() == [[0, 1], [0, 0], [0, 1], [0, 0]]
    assert found.matrix()[:, 1].tolist() == [1, 1, 1, 1] and encoding_of(found).ignored_nodes == ("new",)
    lacking = inspect(nodes={"age": None}, encoding=encoding, unknown_ids="drop")
    assert "no column 'age'" in lacking.problems[0]


def test_index_columns_are_no_features() -> None:
    nodes = {"id": range(4), "team": ["a", "b"] * 2, "Unnamed: 0": range(4), "x": range(4)}
    graph = Graph.from_frames(nodes, {"a": [1], "b": [2]}, id="id", label="team", source="a", target="b")
    assert graph.encoding is not None and graph.num_features == 1
    assert graph.encoding.ignored_nodes == ("Unnamed: 0",)


@pytest.mark.parametrize("word", [*NULL_VALUES, " ", "\t", " NULL "])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_null_values_are_missing_labels_and_features(tmp_path: Path, word: str, suffix: str) -> None:
    roles: dict[str, Any] = {"id": "id", "label": "team", "source": "a", "target": "b"}
    (tmp_path / "e.csv").write_text("a,b\n1,2\n")

    def graph_of(columns: dict[str, Any], **options: Any) -> Graph:
        table, path = pa.table({"id": [str(n) for n in range(12)], **columns}), tmp_path / f"n{suffix}"
        if suffix == ".parquet":
            pa.parquet.write_table(table, path)
        else:
            table.to_pandas().to_csv(path, index=False)
        return read_graph(path, tmp_path / "e.csv", **roles, **options)

    teams = {"team": ["a", "b", word] * 4, "x": range(12)}
    graph = graph_of(teams)
    assert graph.class_names == ("a", "b") and graph.y.tolist() == [0, 1, -1] * 4
    assert len(graph_of(teams, null_values=["-9"]).class_names) == 2 + bool(word.strip())
    columns = {"team": ["a", "b"] * 6, "x": [word, *(f"{n}.5" for n in range(1, 12))]}
    columns |= {"plan": ["p", word, "q"] * 4}
    if suffix == ".csv":  # numbers remain numbers next to a missing one
        graph = graph_of(columns, categories=["plan"], missing="constant=-1")
        assert to_dense(graph.x).tolist()[:3] == [[-1, 1, 0], [1.5, 0, 0], [2.5, 0, 1]]
    if word.strip() and word == word.strip():  # a value that the caller names is not missing
        named = graph_of(columns, drop=["x"], categories={"plan": ["p", word]})
        assert to_dense(named.x).tolist()[:3] == [[1, 0], [0, 1], [0, 0]]


# -- protected records ----


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"categories": "plan", "missing": "constant=0", "drop": "note"}, "--categories plan=hash:32"),
        ({"features": "age", "missing": "median"}, "median would be computed from all records"),
    ],
)
def test_rejects_encodings_that_are_read_from_protected_records(options: Any, message: str) -> None:
    found = inspect(**options, unknown_ids="drop", private_records=True)
    assert len(found.problems) == 1 and message in found.problems[0]
    fixed = again(found, private_records=True)
    assert fixed.problems == [] and encoding_of(fixed).fitted == ()


@pytest.mark.parametrize("plans", [["free", "pro", "free", None], [SECRET] * 4, [None, "a", "b", "c"]])
def test_no_protected_record_affects_the_columns_or_the_suggestion(plans: Any) -> None:
    common: dict[str, Any] = {
        "nodes": {"plan": pa.array(plans, pa.string())}, "private_records": True, "unknown_ids": "drop",
    }  # fmt: skip
    rejected = inspect(**common).suggestion
    assert rejected is not None and rejected.flags()[:2] == ["--drop", "plan,note"]
    for how in ("plan=hash:8", "plan=free|pro"):
        found = inspect(categories=how, drop="note", missing="indicator", **common)
        assert [rule.columns for rule in found.rules] == [2, 2, 2, 8 if "hash" in how else 2]
        assert encoding_of(found).fitted == ()


# -- edges to unknown ids ----


@pytest.mark.parametrize("unknown", ["x", "7", "1.5", "9" * 40, "", None])
def test_no_edge_affects_how_others_are_read(unknown: str | None) -> None:
    for ends in (["1", "2", unknown], ["1", unknown, "2"]):
        edges = {"a": ends, "b": ["3"] * 3, "since": None}
        found = inspect(nodes={"user": [1, 2, 3, 4]}, edges=edges, unknown_ids="drop", **PLAIN)
        assert found.problems == [] and found.ends is not None
        assert found.ends.tail.tolist() == [0, 1] and found.ends.head.tolist() == [2, 2]


def test_ids_of_types_that_can_never_match_are_rejected() -> None:
    found = inspect(edges={"a": [1, 2, 3, 4]}, unknown_ids="drop", **PLAIN)
    assert "write both ids alike" in found.problems[0] and found.suggestion is None


def test_weights_stay_with_their_edges() -> None:
    found = inspect(weight="since", unknown_ids="drop", **PLAIN)
    assert found.ends is not None and found.ends.weight is not None
    assert found.ends.weight.tolist() == [1, 2] and encoding_of(found).ignored_edges == ()


def test_nodes_that_edges_name_are_added_without_a_record() -> None:
    found = inspect(unknown_ids="add", edges={"a": ["u1", SECRET, "b", "b"]}, **PLAIN)
    assert found.problems == [] and encoding_of(found).nodes_from_edges
    assert found.ids is not None and found.y is not None and found.ends is not None
    assert found.ids.to_pylist()[4:] == [SECRET, "b"] and found.y.tolist()[4:] == [-1, -1]
    assert found.matrix()[4:].tolist() == [[0, 1, 0, 1, 0, 1]] * 2
    assert found.ends.tail.tolist() == [0, 4, 5, 5]


def test_protected_edges_add_only_nodes_of_a_public_list(tmp_path: Path) -> None:
    rejected = inspect(unknown_ids="add", private_edges=True, **PLAIN)
    assert "would publish a node" in rejected.problems[0]
    assert rejected.suggestion is not None and rejected.suggestion.unknown_ids == "drop"
    listed = tmp_path / "listed.csv"
    listed.write_text(f"user\n{SECRET}\nu1\nu9\n")
    for named in ("u1", SECRET):  # the nodes depend on the list alone
        edges = {"a": ["u1", "u2", named, "u1"]}
        found = inspect(edges=edges, unknown_ids="add", private_edges=True, node_ids=listed, **PLAIN)
        assert found.problems == [] and found.ids is not None
        assert found.ids.to_pylist()[4:] == [SECRET, "u9"] and not encoding_of(found).nodes_from_edges


# -- arguments ----


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"missing": "mean"}, "missing='mean'"),
        ({"missing": "constant=x"}, "needs a finite number"),
        ({"unknown_ids": "keep"}, "unknown_ids='keep'"),
        ({"categories": "plan=hash:many"}, "plan=hash:32"),
        ({"categories": "plan=hash:1"}, "places=1"),
        ({"categories": "plan=a|a"}, "names a value twice"),
        ({"categories": "=a"}, "cannot be read"),
        ({"features": "a,a"}, "names a column twice"),
        ({"features": "a", "drop": "a"}, "is listed both in the features and in the columns to drop"),
        *(({"delimiter": one}, "--delimiter") for one in ("", ";;", "a", "7", '"', "\n", "\r", ".", "é")),
        *(({"delimiter": one}, "--delimiter") for one in (5, ["a"], "tabs")),
        *(({"decimal": one}, "decimal") for one in ("", ";", "comma", 5)),
        *(
            ({name: text}, "is a list of empty items")
            for name in ("features", "drop", "categories", "null_values")
            for text in (",", " , ,")
        ),
    ],
)
def test_rejects_invalid_options(options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("|", r"\|")):
        TableOptions(**options)


@pytest.mark.parametrize("text", ["plan", "plan=a|b", "plan=hash:16"])
def test_categories_are_parsed_as_they_are_written(text: str) -> None:
    assert str(parse_category(text)) == text


SMALL: dict[str, Any] = {"id": [1, 2, 3], "team": ["a", "b", "a"], "x": [1, 2, 3]}
WRONG = {"id": 5, "source": ["a"], "target": 3, "label": 7, "split": 1.5, "features": 5, "drop": 5,
         "categories": 5, "missing": 3, "unknown_ids": None, "null_values": 5, "encoding": 5, "classes": 5,
         "weight": 5, "max_weight": "x", "directed": "yes", "name": 5, "nodes": 5, "edges": 5}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_from_frames_rejects_arguments_of_wrong_types(name: str) -> None:
    arguments = {"nodes": SMALL, "edges": {"a": [1], "b": [2], "w": [1.0]}, "source": "a", "target": "b"}
    arguments |= {"id": "id", "label": "team"} | ({"weight": "w"} if name == "max_weight" else {})
    with pytest.raises(GraphveilError):
        Graph.from_frames(**(arguments | {name: WRONG[name]}))


def test_rejects_unknown_options_with_the_nearest_one() -> None:
    columns: dict[str, Any] = {"id": "id", "label": "team", "source": "a", "target": "b"}
    edges = {"a": [1], "b": [2]}
    with pytest.raises(ConfigError, match="'feature' is no option of from_frames; did you mean 'features'"):
        Graph.from_frames(SMALL, edges, **columns, feature="x")
    with pytest.raises(ConfigError, match="'max_weight' is no option of prepare"):
        prepare("nodes.csv", ["edges.csv"], "out", **columns, max_weight=1.0)
    with pytest.raises(ConfigError, match="'weight' is no option of Tables"):
        Tables(SMALL, id="id", label="team", rows={}, weight="x")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda nodes: pd.concat([nodes, nodes[["x"]]], axis=1), "more than one column 'x'"),
        (lambda nodes: nodes.assign(z=pd.arrays.SparseArray([0] * 3)), "column 'z' of nodes is sparse"),
        (lambda nodes: nodes.assign(z=1j), "column 'z' of nodes holds complex numbers"),
        (lambda nodes: nodes.assign(z=[1, "a", 2]), "column 'z' of nodes has values of mixed types"),
        (lambda nodes: nodes.assign(z=[object()] * 3), r"column 'z' of nodes holds values \(object\)"),
        (lambda nodes: nodes.set_index("id"), r"reset_index\(\)"),
    ],
)
def test_unsupported_columns_of_frames_are_named_with_the_reason(change: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Graph.from_frames(
            change(pd.DataFrame(SMALL)), {"a": [1], "b": [2]}, id="id", label="team", source="a", target="b"
        )


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["p", "q"])], ids=["Categorical", "Enum"])
def test_categories_of_polars_are_read(kind: Any) -> None:
    plans = pl.Series(["p", "q", "p", "q"], dtype=kind)
    nodes = pl.DataFrame({"id": [1, 2, 3, 4], "x": [1, 2, 3, 4]}).with_columns(team=plans, plan=plans)
    roles: dict[str, Any] = {"id": "id", "label": "team", "source": "a", "target": "b"}
    graph = Graph.from_frames(nodes, {"a": [1], "b": [2]}, **roles, categories=["plan"])
    assert graph.class_names == ("p", "q") and to_dense(graph.x).tolist()[0] == [1, 1, 0]

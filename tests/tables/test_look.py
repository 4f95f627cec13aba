"""One look at two tables: what columns become, everything that is wrong, and no row decides for others."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from graphveil.data.tables.encoding import Category, Encoding, EncodingOptions
from graphveil.data.tables.files import FrameSource
from graphveil.data.tables.inspect_tables import Roles, inspect_tables
from graphveil.errors import ConfigError, TableError

SECRET = "Zanzibar-4711"
ROLES = Roles(id="user", label="team", source="a", target="b")
NODES = {
    "user": ["u1", "u2", "u3", "u4"],
    "team": ["red", "blue", None, "red"],
    "age": [31, None, 28, 60],
    "member": [True, False, None, True],
    "joined": [dt.date(2000, 1, 1), dt.date(2001, 1, 1), None, dt.date(1999, 1, 1)],
    "plan": ["free", "pro", None, "free"],
    "note": [SECRET, "x" * 2000, None, "z"],
}
EDGES = {"a": ["u1", "u2", SECRET, None], "b": ["u2", "u2", "u1", "u3"], "since": [1, 2, 3, 4]}


def seen(nodes=None, edges=None, roles=ROLES, **choices):
    """Look at both tables, with changed columns (None drops one)."""
    extra = {
        name: choices.pop(name) for name in list(choices) if name not in EncodingOptions.__dataclass_fields__
    }
    tables = []
    for title, columns, changes in (("nodes", NODES, nodes), ("edges", EDGES, edges)):
        kept = {name: value for name, value in (columns | (changes or {})).items() if value is not None}
        tables.append(FrameSource.from_frame(kept, title))
    return inspect_tables(*tables, roles, EncodingOptions.from_arguments(**choices), **extra)


def test_everything_is_said_at_once_and_what_is_suggested_passes():
    first = seen()
    said = "\n".join(first.problems)
    assert len(first.problems) == 6 and SECRET not in said
    for name in ("age", "member", "joined", "plan", "note", "a"):
        assert f"column {name!r}" in said
    fixed = first.suggestion
    assert fixed.missing == "indicator" and fixed.unknown_ids == "drop"
    second = inspect_tables(
        FrameSource.from_frame(NODES, "nodes"), FrameSource.from_frame(EDGES, "edges"), ROLES, fixed
    )
    assert second.problems == [] and second.encoding.ignored_edges == ("since",)
    with pytest.raises(TableError) as error:
        first.raise_problems()
    assert error.value.problems == tuple(first.problems) and "missing='indicator'" in str(error.value)
    assert list(error.value.flags) == fixed.flags() and SECRET not in str(error.value)


def test_what_no_choice_mends_has_no_suggestion():
    found = seen(nodes={"user": ["u1", "u1", "u3", "u4"]})
    assert any("repeats ids" in words for words in found.problems) and found.suggestion is None


def test_what_columns_become():
    found = seen(drop="note", categories="plan", missing="indicator", unknown_ids="drop")
    assert found.matrix().tolist() == [
        [31, 0, 1, 0, 0, 0, 1, 0],
        [0, 1, 0, 0, pytest.approx(366 / 365.25), 0, 0, 1],
        [28, 0, 0, 1, 0, 1, 0, 0],
        [60, 0, 1, 0, pytest.approx(-365 / 365.25), 0, 1, 0],
    ]
    assert found.encoding.fitted == ("plan",)
    words = found.encoding.words()
    assert "plan (2 categories (as in the table))" in words and "free" not in words


@pytest.mark.parametrize(
    ("missing", "age"), [("constant=-1", [31, -1, 28, 60]), ("median", [31, 31, 28, 60])]
)
def test_fills(missing, age):
    found = seen(features="age", missing=missing, unknown_ids="drop")
    assert found.matrix()[:, 0].tolist() == age and found.encoding.fitted == ("age",) * (missing == "median")


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array([1.0, np.nan, np.inf, 2.0]), "holds NaN, infinite"),
        (pa.array([[1, 2], None, [3, 4], [5, None]]), "has missing values"),
        (pa.array([[1, 2], [3], [3, 4], [5, 6]]), "lists of different lengths"),
        (pa.array([{"x": 1}] * 4), "not a number"),
        (pa.array([1, 2, 3, 4], pa.time32("s")), "not a number"),
    ],
    ids=["infinite", "gap in a list", "ragged", "struct", "time of day"],
)
@pytest.mark.parametrize("missing", ["refuse", "indicator"])
def test_what_no_fill_mends_is_to_be_dropped(column, words, missing):
    found = seen(nodes={"age": column}, features="age,member", missing=missing, unknown_ids="drop")
    assert [words in said for said in found.problems if "'age'" in said] == [True]
    assert found.suggestion.features == ("member",)


def test_types_that_become_numbers():
    columns = {
        "age": pa.array([1, 2, None, 4], pa.decimal128(5, 2)),
        "member": pa.array([[1, 2], None, [3, 4], [5, 6]]),
        "joined": pa.array([86_400 * 10957, None, 0, 0], pa.timestamp("s", tz="UTC")),
        "plan": pa.array([3600, 0, None, 7200], pa.duration("s")),
    }
    found = seen(nodes=columns, drop="note", missing="constant=0", unknown_ids="drop")
    assert found.matrix()[:2].tolist() == [[1, 1, 2, 0, pytest.approx(1 / 24)], [2, 0, 0, 0, 0]]
    assert found.matrix()[2].tolist() == [0, 3, 4, pytest.approx(-10957 / 365.25), 0]


class TestPublicOnly:
    """Where records are protected, nothing may be read from all of them."""

    @pytest.mark.parametrize(
        ("choices", "words"),
        [
            ({"categories": "plan", "missing": "constant=0"}, "--categories plan=hash:32"),
            ({"features": "age", "missing": "median"}, "median is read from all records"),
        ],
    )
    def test_what_is_read_from_a_table_is_refused(self, choices, words):
        fixed = {"drop": "note"} if "features" not in choices else {}
        found = seen(**choices, **fixed, unknown_ids="drop", private_records=True)
        assert len(found.problems) == 1 and words in found.problems[0]
        again = seen(private_records=True, **vars_of(found.suggestion))
        assert again.problems == [] and again.encoding.fitted == ()

    @pytest.mark.parametrize("plans", [["free", "pro", "free", None], [SECRET] * 4, [None, "a", "b", "c"]])
    def test_no_record_decides_which_columns_there_are_or_what_is_suggested(self, plans):
        common = {"private_records": True, "unknown_ids": "drop"}
        refused = seen(nodes={"plan": pa.array(plans, pa.string())}, **common)
        assert refused.suggestion.flags()[:2] == ["--drop", "plan,note"]
        for how in ("plan=hash:8", "plan=free|pro"):
            found = seen(
                nodes={"plan": pa.array(plans, pa.string())},
                categories=how,
                drop="note",
                missing="indicator",
                **common,
            )
            assert [rule.columns for rule in found.rules] == [2, 2, 2, 8 if "hash" in how else 2]
            assert found.encoding.fitted == ()


def vars_of(choices):
    return {name: getattr(choices, name) for name in ("features", "drop", "missing", "unknown_ids")} | {
        "categories": list(map(str, choices.categories))
    }


PLAIN = {"drop": "note,plan", "missing": "indicator"}


class TestUnknownIds:
    @pytest.mark.parametrize("stranger", ["x", "7", "1.5", "9" * 40, "", None])
    def test_no_edge_decides_what_becomes_of_another(self, stranger):
        """One secret edge may have any text at its end, and the others are read as before."""
        nodes = {"user": [1, 2, 3, 4]}
        for ends in (["1", "2", stranger], ["1", stranger, "2"]):
            edges = {"a": ends, "b": ["3"] * 3, "since": None}
            found = seen(nodes=nodes, edges=edges, unknown_ids="drop", **PLAIN)
            assert found.problems == []
            assert found.ends.tail.tolist() == [0, 1] and found.ends.head.tolist() == [2, 2]

    def test_ids_of_types_that_can_never_match_are_refused_and_not_dropped_to_the_last(self):
        found = seen(edges={"a": [1, 2, 3, 4]}, unknown_ids="drop", **PLAIN)
        assert "write both ids alike" in found.problems[0] and found.suggestion is None

    def test_weights_stay_with_their_edges(self):
        roles = Roles(id="user", label="team", source="a", target="b", weight="since")
        found = seen(roles=roles, unknown_ids="drop", **PLAIN)
        assert found.ends.weight.tolist() == [1, 2] and found.encoding.ignored_edges == ()

    def test_a_node_that_an_edge_names_is_added_without_a_record(self):
        found = seen(unknown_ids="add", edges={"a": ["u1", SECRET, "b", "b"]}, **PLAIN)
        assert found.problems == [] and found.encoding.nodes_from_edges
        assert found.ids.to_pylist()[4:] == [SECRET, "b"] and found.y.tolist()[4:] == [-1, -1]
        assert found.matrix()[4:].tolist() == [[0, 1, 0, 1, 0, 1]] * 2
        assert found.ends.tail.tolist() == [0, 4, 5, 5]

    def test_where_edges_are_protected_none_may_add_a_node_that_is_on_no_public_list(self):
        refused = seen(unknown_ids="add", private_edges=True, **PLAIN)
        assert "publish a node" in refused.problems[0] and refused.suggestion.unknown_ids == "drop"
        for named in ("u1", SECRET):  # who is a node follows from the list, whatever edges there are
            edges = {"a": ["u1", "u2", named, "u1"]}
            listed = pa.array([SECRET, "u1", "u9"], pa.large_string())
            found = seen(edges=edges, unknown_ids="add", private_edges=True, listed=listed, **PLAIN)
            assert found.problems == [] and found.ids.to_pylist()[4:] == [SECRET, "u9"]
            assert not found.encoding.nodes_from_edges


def test_another_table_follows_the_rules_of_the_first():
    first = seen(drop="note", categories="plan", missing="indicator", unknown_ids="drop")
    rules = Encoding.from_plain(first.encoding.as_plain()).rules
    assert rules == first.rules
    other = {"plan": ["pro", SECRET, "pro", None], "note": None, "age": [None] * 4, "new": ["text"] * 4}
    found = seen(nodes=other, rules=rules, unknown_ids="drop")
    assert found.problems == [] and found.matrix()[:, -2:].tolist() == [[0, 1], [0, 0], [0, 1], [0, 0]]
    assert found.matrix()[:, 1].tolist() == [1, 1, 1, 1] and found.encoding.ignored_nodes == ("new",)
    lacking = seen(nodes={"age": None}, rules=rules, unknown_ids="drop")
    assert "no column 'age'" in lacking.problems[0]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"missing": "mean"}, "missing='mean'"),
        ({"missing": "constant=x"}, "needs a finite number"),
        ({"unknown_ids": "keep"}, "unknown_ids='keep'"),
        ({"categories": "plan=hash:many"}, "plan=hash:32"),
        ({"categories": "plan=hash:1"}, "places=1"),
        ({"categories": "plan=a|a"}, "names a value twice"),
        ({"categories": "=a"}, "is not understood"),
        ({"features": "a,a"}, "names a column twice"),
        ({"features": "a", "drop": "a"}, "is dropped and wanted"),
    ],
)
def test_choices_that_say_nothing_are_refused(bad, words):
    with pytest.raises(ConfigError, match=words.replace("|", r"\|").replace(":", ":")):
        EncodingOptions.from_arguments(**bad)


@pytest.mark.parametrize("text", ["plan", "plan=a|b", "plan=hash:16"])
def test_categories_are_read_back_as_they_are_written(text):
    assert str(Category.parse(text)) == text

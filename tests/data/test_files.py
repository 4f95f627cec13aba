import gzip

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphveil.data import read_graph, to_dense
from graphveil.data.tables.labels import CLASSES_FROM_LABELS
from graphveil.errors import GraphError

SECRET = "Zanzibar-4711"  # stands in ids, labels and features; must never stand in a message

NODES = {
    "user": ["u1", "u2", SECRET, "u4"],
    "team": ["red", "blue", "red", None],
    "age": [31.5, 45.0, 28.0, 60.0],
    "member": [True, False, True, True],
    "fold": ["train", "valid", "TEST", None],
}
EDGES = {"a": ["u1", SECRET, "u1"], "b": ["u2", "u1", "u1"], "since": [2001, 2002, 2003]}
ROLES = {"id": "user", "label": "team", "source": "a", "target": "b", "directed": False, "split": "fold"}


@pytest.fixture(params=["parquet", "csv"])
def read(request, tmp_path):
    """Write two tables in one format, with changed columns (None drops one), and read the graph."""

    def run(nodes=None, edges=None, **roles):
        paths = []
        for name, columns, changes in (("nodes", NODES, nodes), ("edges", EDGES, edges)):
            kept = {key: value for key, value in (columns | (changes or {})).items() if value is not None}
            paths.append(tmp_path / f"{name}.{request.param}")
            write(pa.table(kept), paths[-1])
        return read_graph(*paths, **(ROLES | roles))

    return run


def write(table, path):
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path)
    else:
        pa.csv.write_csv(table, path)


def refused(read, *arguments, **keywords):
    """The message of the refusal, which never holds a value."""
    with pytest.raises(GraphError) as error:
        read(*arguments, **keywords)
    message = str(error.value)
    assert SECRET not in message and error.value.__cause__ is None
    return message


class TestReading:
    def test_the_whole_graph(self, read):
        graph = read()
        assert to_dense(graph.x).tolist() == [[31.5, 1], [45, 0], [28, 1], [60, 1]]
        assert graph.y.tolist() == [1, 0, 1, -1] and graph.class_names == ("blue", "red")
        assert graph.ids.tolist() == NODES["user"] and graph.name == "nodes"
        assert graph.adjacency.edge_index().tolist() == [[1, 2, 0, 0], [0, 0, 1, 2]]
        masks = [graph.train_mask, graph.val_mask, graph.test_mask]
        assert [mask.nonzero().flatten().tolist() for mask in masks] == [[0], [1], [2]]

    def test_directed(self, read):
        assert read(directed=True).adjacency.edge_index().tolist() == [[2, 0], [0, 1]]

    def test_without_a_split(self, read):
        graph = read(nodes={"fold": None}, split=None)
        assert not graph.has_split

    def test_a_split_column_that_is_not_named_is_a_feature_and_text(self, read):
        assert "column 'fold' is of type" in refused(read, split=None)

    def test_chosen_features(self, read):
        assert read(nodes={"note": ["p", "q", "r", "s"]}, features=["member"]).x.tolist() == [
            [1],
            [0],
            [1],
            [1],
        ]

    def test_columns_set_aside_are_no_features_and_need_not_be_there(self, read):
        graph = read(split=None, aside=["fold", "age", "elsewhere"])
        assert to_dense(graph.x).tolist() == [[1], [0], [1], [1]] and not graph.has_split

    def test_whole_number_ids_and_labels(self, read, request):
        graph = read(
            nodes={"user": [30, 10, 20, 40], "team": [2009, 2004, 2009, None]},
            edges={"a": [10, 20, 10], "b": [30, 30, 20]},
        )
        assert graph.class_names == ("2004", "2009")
        kind = str if request.node.callspec.params["read"] == "csv" else int  # a CSV has no types
        assert graph.ids.tolist() == [*map(kind, [30, 10, 20, 40])]
        assert graph.adjacency.edge_index().tolist() == [[1, 2, 0, 2, 0, 1], [0, 0, 1, 1, 2, 2]]

    def test_number_labels_sort_as_numbers(self, read):
        assert read(nodes={"team": [10, 9, 10, 9]}).class_names == ("9", "10")

    def test_whole_float_labels_lose_the_point(self, read):
        graph = read(nodes={"team": [2.0, 1.0, float("nan"), 2.0], "fold": ["train", "val", None, "test"]})
        assert graph.class_names == ("1", "2") and graph.y.tolist() == [1, 0, -1, 1]

    def test_bool_labels(self, read, request):
        written = request.node.callspec.params["read"] == "csv"  # where they are text like any other
        expected = ("false", "true") if written else ("False", "True")
        assert read(nodes={"team": [True, False, True, None]}).class_names == expected

    def test_labels_are_told_apart_by_what_is_written(self, read):
        graph = read(nodes={"team": ["01", "1", "1.0", " 1 "], "fold": None}, split=None)
        assert graph.class_names == ("01", "1") and graph.y.tolist() == [0, 1, 1, 1]

    @pytest.mark.parametrize("stranger", ["x", "1.5", "2020-01-01", "true", "7" * 30, None])
    def test_no_label_decides_how_others_are_read(self, read, stranger):
        """Under units of records one label may turn into any other, and tells nothing about the rest."""
        graph = read(nodes={"team": ["2", "01", "2", stranger]}, classes=["01", "2", "3"])
        assert graph.y.tolist() == [1, 0, 1, -1] and graph.class_names == ("01", "2", "3")
        assert graph.notes == ()

    def test_a_list_of_classes_from_labels_is_said(self, read):
        assert read().notes == (CLASSES_FROM_LABELS,)

    def test_classes_fixed_beforehand(self, read):
        graph = read(classes=["red", "green", "blue"])
        assert graph.y.tolist() == [0, 2, 0, -1] and graph.num_classes == 3
        assert read(classes=["red", "green"]).y.tolist() == [0, -1, 0, -1]  # refusing would tell of a label

    def test_without_labels_the_classes_are_given(self, read):
        changes = {"nodes": {"team": None, "fold": None}, "label": None, "split": None}
        graph = read(classes=["red", "blue"], **changes)
        assert graph.y.tolist() == [-1] * 4 and graph.class_names == ("red", "blue")
        assert graph.num_features == read().num_features
        assert "name the label column" in refused(read, **changes)

    def test_no_edges(self, read):
        graph = read(edges={"a": [], "b": [], "since": []})
        assert graph.adjacency.edge_index().shape == (2, 0)

    def test_words_for_a_missing_label_are_labels_where_they_are_named(self, read):
        teams = {"team": ["NA", "red", "blue", None]}
        assert read(nodes=teams).class_names == ("blue", "red")
        assert read(nodes=teams, null_values=["-"]).class_names == ("NA", "blue", "red")
        assert read(nodes=teams, classes=["NA", "red"]).y.tolist() == [0, 1, -1, -1]


class TestRefusals:
    @pytest.mark.parametrize(
        ("nodes", "edges", "message"),
        [
            ({"user": ["u1", SECRET, SECRET, "u4"]}, {}, "column 'user' repeats ids; give one row per node"),
            ({"user": ["u1", None, SECRET, "u4"]}, {}, "column 'user' has missing values"),
            ({"user": [1, 2, 3, 4]}, {}, "lacks; add those nodes"),
            ({}, {"a": [1, 2, 3]}, "column 'user' of the nodes "),
            ({"user": ["u1", "u2", "u3", "u4"]}, {}, "column 'a' of the edges holds ids that column 'user'"),
            ({}, {"b": ["u2", None, "u1"]}, "column 'b' has missing values"),
            ({"age": [1.0, float("nan"), 2.0, 3.0]}, {}, "column 'age' holds NaN, infinite"),
            ({"age": [1.0, float("inf"), 2.0, 3.0]}, {}, "column 'age' holds NaN, infinite"),
            ({"age": [1.0, 1e300, 2.0, 3.0]}, {}, "column 'age' holds NaN, infinite"),
            ({"age": [1.0, None, 2.0, 3.0]}, {}, "column 'age' has missing values"),
            ({"age": ["a", SECRET, "b", "c"]}, {}, "not a number; drop it (--drop), or encode it as numbers"),
            ({"team": [SECRET] * 4, "fold": ["train"] * 4}, {}, "fewer than two classes"),
            ({"team": [None] * 4, "fold": None, "age": [1, 2, 3, 4]}, {}, "no column 'fold'"),
            ({"fold": ["train", SECRET, "val", "test"]}, {}, "column 'fold' may hold train, val"),
            ({"fold": ["val", "val", "test", None]}, {}, "column 'fold' puts no node into train"),
            ({"fold": [0, 1, 2, 3]}, {}, "column 'fold' may hold train, val"),
            ({"user": None}, {}, "nodes.{suffix} has no column 'user'"),
            (
                {"team": None, "teams": ["a", "b", "a", "b"]},
                {},
                "has no column 'team' among its 5; name a column",
            ),
            ({}, {"a": None}, "edges.{suffix} has no column 'a'"),
        ],
    )
    def test_malformed_tables(self, read, request, nodes, edges, message):
        suffix = request.node.callspec.params["read"]
        assert message.format(suffix=suffix) in refused(read, nodes=nodes, edges=edges)

    def test_no_nodes(self, read):
        empty = {key: pa.array([], pa.string()) for key in NODES}
        assert "the graph has no nodes" in refused(read, nodes=empty)

    @pytest.mark.parametrize("roles", [{"label": "user"}, {"target": "a"}, {"features": ["age", "team"]}])
    def test_one_column_cannot_play_two_roles(self, read, roles):
        assert "is named for two roles" in refused(read, **roles)


def write_text(tmp_path, nodes=None, edges="a,b\nu1,u2\n"):
    nodes = nodes or f"user,team,age\nu1,red,1\nu2,blue,2\n{SECRET},red,3\n"
    (tmp_path / "nodes.csv").write_text(nodes)
    (tmp_path / "edges.csv").write_text(edges)
    return tmp_path / "nodes.csv", tmp_path / "edges.csv"


class TestFiles:
    roles = ROLES | {"split": None}

    def test_a_missing_file(self, tmp_path):
        nodes, edges = write_text(tmp_path)
        message = refused(read_graph, nodes, edges.with_name("edge.csv"), **self.roles)
        assert "there is no file" in message and "check the path" in message

    def test_an_unknown_format(self, tmp_path):
        _, edges = write_text(tmp_path)
        assert "nodes.xlsx must end in" in refused(read_graph, tmp_path / "nodes.xlsx", edges, **self.roles)

    def test_a_folder(self, tmp_path):
        _, edges = write_text(tmp_path)
        (tmp_path / "folder.csv").mkdir()
        assert "folder.csv is a folder" in refused(read_graph, tmp_path / "folder.csv", edges, **self.roles)

    @pytest.mark.parametrize("content", [b"", b"not parquet " + SECRET.encode()])
    def test_damaged_parquet(self, tmp_path, content):
        _, edges = write_text(tmp_path)
        (tmp_path / "nodes.parquet").write_bytes(content)
        message = refused(read_graph, tmp_path / "nodes.parquet", edges, **self.roles)
        assert "nodes.parquet cannot be read as parquet" in message

    @pytest.mark.parametrize(
        "text",
        [
            f"user,team,age\nu1,red,1\nu2,blue,2,{SECRET}\n",
            "",
            f'user,team,age\nu1,red,1\n"{SECRET}',
        ],
    )
    def test_damaged_csv(self, tmp_path, text):
        message = refused(read_graph, *write_text(tmp_path, text or "\n"), **self.roles)
        assert "nodes.csv" in message

    def test_a_header_that_is_data_is_not_quoted(self, tmp_path):
        paths = write_text(tmp_path, f"{SECRET},red,1\nu2,blue,2\n")
        assert "a CSV needs a header row" in refused(read_graph, *paths, **self.roles)

    def test_a_name_that_nearly_matches_data_is_not_corrected_to_it(self, tmp_path):
        paths = write_text(tmp_path, f"{SECRET},red,1\nu2,blue,2\n")
        assert "among its 3; " in refused(read_graph, *paths, **(self.roles | {"id": SECRET[:-1]}))

    def test_repeated_columns_are_named(self, tmp_path):
        paths = write_text(tmp_path, "user,team,age,age\nu1,red,1,1\nu2,blue,2,2\n")
        assert "more than one column 'age'; rename or drop" in refused(read_graph, *paths, **self.roles)

    def test_header_only_edges_are_no_edges(self, tmp_path):
        graph = read_graph(*write_text(tmp_path, edges="a,b\n"), **self.roles)
        assert graph.adjacency.edge_index().shape == (2, 0)

    def test_header_only_nodes_are_no_nodes(self, tmp_path):
        paths = write_text(tmp_path, nodes="user,team,age\n")
        assert "the graph has no nodes" in refused(read_graph, *paths, **self.roles)

    def test_compressed_csv(self, tmp_path):
        nodes, edges = write_text(tmp_path)
        (tmp_path / "nodes.csv.gz").write_bytes(gzip.compress(nodes.read_bytes()))
        assert read_graph(tmp_path / "nodes.csv.gz", edges, **self.roles).num_nodes == 3

    def test_text_that_is_not_utf8(self, tmp_path):
        nodes, edges = write_text(tmp_path)
        nodes.write_bytes(b"user,team,age\nu1,\xff\xfe,1\nu2,blue,2\n")
        assert "as CSV (comma-separated, UTF-8" in refused(read_graph, nodes, edges, **self.roles)
        nodes.write_bytes(b"user,team,age\n\xff\xfe,red,1\nu2,blue,2\n")
        assert "line 2 is not text in UTF-8" in refused(read_graph, nodes, edges, **self.roles)


class TestFuzz:
    """Whatever the bytes, the answer is a graph or one typed refusal that quotes no cell."""

    roles = ROLES | {"split": None}

    @settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.lists(st.tuples(st.integers(30, 70), st.sampled_from('\n",\x00\xff;-.1'))))
    def test_damaged_csv(self, tmp_path, edits):
        text = f"user,team,age\nu1,red,1\nu2,blue,2\n{SECRET},red,3\nu4,red,4\n"
        for place, character in edits:
            text = text[:place] + character + text[place:]
        self.attempt(*write_text(tmp_path, text))

    @settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.lists(st.tuples(st.integers(0, 2000), st.binary(min_size=1, max_size=4)), min_size=1))
    def test_damaged_parquet(self, tmp_path, edits):
        _, edges = write_text(tmp_path)
        path = tmp_path / "nodes.parquet"
        write(pa.table({key: NODES[key] for key in ("user", "team", "age")}), path)
        content = bytearray(path.read_bytes())
        for place, piece in edits:
            start = place % len(content)
            content[start : start + len(piece)] = piece
        path.write_bytes(content)
        self.attempt(path, edges)

    def attempt(self, nodes, edges):
        try:
            read_graph(nodes, edges, **self.roles)
        except GraphError as error:
            assert SECRET not in str(error)


class TestParquetTypes:
    def read(self, tmp_path, nodes, edges=None):
        write(pa.table(nodes), tmp_path / "nodes.parquet")
        write(pa.table(edges or EDGES), tmp_path / "edges.parquet")
        return read_graph(tmp_path / "nodes.parquet", tmp_path / "edges.parquet", **ROLES)

    def test_dictionaries_are_decoded(self, tmp_path):
        coded = {key: pa.array(value).dictionary_encode() for key, value in NODES.items() if key != "age"}
        graph = self.read(tmp_path, NODES | coded | {"member": NODES["member"]})
        assert graph.class_names == ("blue", "red") and graph.train_mask.sum() == 1

    def test_lists_are_several_features(self, tmp_path):
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(8.0)), 2)
        lists = pa.array([[1, 2], [3, 4], [5, 6], [7, 8]])
        graph = self.read(tmp_path, NODES | {"age": vectors, "member": lists})
        assert graph.x.tolist() == [[0, 1, 1, 2], [2, 3, 3, 4], [4, 5, 5, 6], [6, 7, 7, 8]]

    def test_ragged_lists_are_refused(self, tmp_path):
        ragged = pa.array([[1], [2, 3], [4], [5]])
        assert "lists of different lengths" in refused(self.read, tmp_path, NODES | {"age": ragged})

    def test_lists_of_text_are_refused(self, tmp_path):
        words = pa.array([["a"], [SECRET], ["b"], ["c"]])
        assert "not a number" in refused(self.read, tmp_path, NODES | {"age": words})

    @pytest.mark.parametrize(
        "kind",
        [
            pa.list_(pa.string()),
            pa.timestamp("s"),
            pa.timestamp("ns"),
            pa.timestamp("us", tz="Nowhere/Land"),
            pa.duration("ns"),
            pa.time64("ns"),
        ],
        ids=str,
    )
    def test_labels_of_other_types_are_refused(self, tmp_path, kind):
        of = ["a"] if pa.types.is_nested(kind) else 2**40 + 1
        labels = pa.array([of, None, of, None], kind)
        message = refused(self.read, tmp_path, NODES | {"team": labels})
        assert "give one number or text per node" in message and "Nowhere" not in message

    @pytest.mark.parametrize(
        ("labels", "names"),
        [
            (pa.array(np.array([2.0, 1.0, np.nan, 1.5], np.float16)), ("1", "1.5", "2")),
            (pa.array([2, 1, None, 2], pa.date32()), ("1970-01-02", "1970-01-03")),
            (pa.array([2**31 - 1, 1, None, 1], pa.date32()), None),  # beyond what has a name
            (pa.array([2**64 - 1, 1, None, 2**64 - 1], pa.uint64()), ("1", str(2**64 - 1))),
            (pa.array([2, 1, None, 2]).cast(pa.decimal128(21, 2)), ("1.00", "2.00")),
        ],
    )
    def test_labels_of_rare_types(self, tmp_path, labels, names):
        graph = self.read(tmp_path, NODES | {"team": labels})
        assert graph.y.tolist()[2] == -1 and (names is None or graph.class_names == names)

    def test_a_label_is_no_essay(self, tmp_path):
        essays = NODES | {"team": ["x" * 1001, "blue", "blue", None]}
        assert "more than 1,000 bytes" in refused(self.read, tmp_path, essays)

    def test_narrow_and_unsigned_ids_match(self, tmp_path):
        nodes = NODES | {"user": pa.array([3, 1, 2, 4], pa.uint64())}
        edges = {"a": pa.array([1], pa.int8()), "b": pa.array([3], pa.int64())}
        assert self.read(tmp_path, nodes, edges).adjacency.edge_index().tolist() == [[1, 0], [0, 1]]

    def test_ids_beyond_64_bits_become_text(self, tmp_path):
        ids = pa.array([3, 1, 2, 2**64 - 1], pa.uint64())
        graph = self.read(tmp_path, NODES | {"user": ids}, {"a": ids[3:], "b": ids[:1]})
        assert graph.ids.tolist() == ["3", "1", "2", str(2**64 - 1)]
        assert graph.adjacency.edge_index().tolist() == [[3, 0], [0, 3]]

    def test_ids_may_differ_in_a_nul_at_the_end(self, tmp_path):
        names = ["u", "u\0", SECRET, "u\0\0"]
        graph = self.read(tmp_path, NODES | {"user": names}, {"a": ["u\0"], "b": ["u"]})
        assert graph.ids.tolist() == names and graph.adjacency.edge_index().tolist() == [[1, 0], [0, 1]]

    def test_a_long_id_costs_its_own_length_only_and_a_longer_one_is_refused(self, tmp_path):
        names = ["u1", "ü" * 500, SECRET, "u4"]
        graph = self.read(tmp_path, NODES | {"user": names}, {"a": ["u1"], "b": ["u4"]})
        assert graph.ids.tolist() == names and graph.ids.nbytes == 8 * 4
        longer = NODES | {"user": ["u1", "ü" * 501, SECRET, "u4"]}
        assert "more than 1,000 bytes" in refused(self.read, tmp_path, longer)

    def test_decimals_and_small_floats_are_numbers(self, tmp_path):
        decimals = pa.array([1, 2, 3, 4], pa.decimal128(5, 2))
        graph = self.read(tmp_path, NODES | {"age": decimals, "member": pa.array(np.ones(4, np.float16))})
        assert graph.x.tolist() == [[1, 1], [2, 1], [3, 1], [4, 1]]

    def test_chunked_columns_are_one(self, tmp_path):
        chunked = pa.chunked_array([pa.array(["u1", "u2"]), pa.array([SECRET, "u4"])])
        assert self.read(tmp_path, NODES | {"user": chunked}).ids.tolist() == NODES["user"]

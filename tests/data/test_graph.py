import numpy as np
import pytest
import torch
from scipy import sparse

from graphveil.data import EdgeSet, Graph
from graphveil.data.tables.labels import CLASSES_FROM_LABELS
from graphveil.errors import GraphError

# A path 0 - 1 - 2 - 3 - 4 whose last node has no label.
X = torch.arange(10.0).reshape(5, 2)
Y = [0, 1, 1, 2, -1]


def path(**changes):
    fields = {"x": X, "y": Y, "source": [0, 1, 2, 3], "target": [1, 2, 3, 4], "directed": False}
    return Graph.from_edges(**(fields | changes))


def mask(*bits):
    return torch.tensor(bits, dtype=torch.bool)


SPLIT = (mask(1, 1, 0, 0, 0), mask(0, 0, 1, 0, 0), mask(0, 0, 0, 1, 1))


class TestFields:
    def test_sizes(self):
        graph = path()
        assert (graph.num_nodes, graph.num_features, graph.num_classes) == (5, 2, 3)
        assert not graph.directed and not graph.has_split
        assert graph.y.dtype == torch.int64 and graph.x.dtype == torch.float32

    def test_labeled(self):
        assert path().labeled.tolist() == [True, True, True, True, False]

    def test_a_label_column_counts_as_a_vector(self):
        assert path(y=torch.tensor(Y)[:, None]).y.tolist() == Y

    def test_sparse_features_stay_sparse(self):
        graph = path(x=sparse.csr_matrix(X.numpy()))
        assert isinstance(graph.x, sparse.csr_array) and graph.num_features == 2

    def test_classes_can_be_announced(self):
        assert path(num_classes=7).num_classes == 7

    def test_without_edges_it_is_valid(self):
        assert path(source=[], target=[]).num_nodes == 5

    def test_fields_cannot_be_set(self):
        with pytest.raises(AttributeError):
            path().name = "other"

    def test_the_repr_is_the_same_for_neighbors(self):
        assert repr(path()) == repr(path(source=[], target=[]))
        assert repr(path()) == "Graph('graph', nodes=5, features=2, classes=3, directed=False, split=False)"


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"y": [], "x": torch.empty(0, 2), "source": [], "target": []}, "no nodes; give at least one"),
            ({"x": X[:4]}, r"features have 4 rows, labels 5 and the adjacency 5 nodes"),
            ({"x": torch.empty(5, 0)}, "no features; add at least one column"),
            ({"x": X.log()}, "NaN, infinite"),
            ({"y": [0, 0, 0, 0, 0]}, "fewer than two classes"),
            ({"num_classes": 1, "y": [0, 0, -1, -1, 0]}, "fewer than two classes"),
            ({"y": [-1] * 5}, "must be class numbers|fewer than two classes"),
            ({"num_classes": "3"}, "num_classes must be a whole number, not a str"),
            ({"num_classes": 3.0}, "num_classes must be a whole number, not a float"),
            ({"label_sets": "sets"}, "label sets must be a matrix"),
            ({"num_classes": 2}, r"from 0 to num_classes - 1 = 1, or -1"),
            ({"y": [0, 1, 1, 2, -2]}, "or -1 where there is none"),
            ({"y": [0.0, 1.0, 1.0, 2.0, 0.0]}, "one whole class number per node"),
            ({"y": torch.ones(5, 3, dtype=torch.int64)}, "one whole class number per node"),
            ({"y": [[0], [1], [1, 2], [0], [1]]}, "one whole class number per node"),
            ({"class_names": ("a", "b")}, "2 class names for 3 classes"),
            ({"ids": np.arange(4)}, "4 ids for 5 nodes"),
            ({"source": [0, 1, 2, 9]}, "node that does not exist"),
        ],
    )
    def test_malformed_graphs(self, changes, message):
        with pytest.raises(GraphError, match=message):
            path(**changes)

    @pytest.mark.parametrize(
        ("split", "message"),
        [
            ((SPLIT[0], SPLIT[1], None), "needs train_mask, val_mask and test_mask"),
            ((SPLIT[0], SPLIT[1], SPLIT[1]), "disjoint"),
            ((SPLIT[0], SPLIT[1], mask(0, 0, 1)), r"bool of shape \(5,\)"),
            ((SPLIT[0], SPLIT[1], SPLIT[2].int()), r"bool of shape \(5,\)"),
            ((SPLIT[0], SPLIT[1], [0, 0, 0, 1, 1]), r"bool of shape \(5,\)"),
            ((SPLIT[0], SPLIT[1], [[True], [True, False]]), r"bool of shape \(5,\)"),
            ((SPLIT[0], SPLIT[1], "test"), r"bool of shape \(5,\)"),
        ],
    )
    def test_malformed_splits(self, split, message):
        with pytest.raises(GraphError, match=message):
            path().with_split(*split)


@pytest.mark.parametrize("wrap", [torch.Tensor.tolist, torch.Tensor.numpy, lambda part: tuple(part.tolist())])
def test_masks_may_be_lists_and_arrays_of_bools(wrap):
    split, kept = [wrap(part) for part in SPLIT], mask(1, 1, 1, 0, 0)
    assert all(map(torch.equal, path().with_split(*split).masks.values(), SPLIT))
    assert torch.equal(path().subgraph(wrap(kept)).y, path().subgraph(kept).y)
    with pytest.raises(GraphError, match=r"a node mask must be bool of shape \(5,\)"):
        path().subgraph([0, 1])


class TestSplit:
    def test_members_without_a_label_are_left_out(self):
        # Node 4 keeps its place in the split, which is public, when its label is withdrawn, which is not.
        graph = path().with_split(*SPLIT)
        assert graph.test_mask.tolist() == [False, False, False, True, True]
        assert graph.mask("test").tolist() == [False, False, False, True, False]

    def test_no_split(self):
        with pytest.raises(
            GraphError, match=r"no split; call with_split\(train, val, test\) or name a split"
        ):
            path().mask("train")

    def test_an_unknown_part(self):
        with pytest.raises(GraphError, match="split='holdout' is not one of train, val, test"):
            path().with_split(*SPLIT).mask("holdout")


class TestDerived:
    def test_subgraph_rows(self):
        graph = path(ids=np.array(list("abcde"))).with_split(*SPLIT)
        part = graph.subgraph(mask(0, 1, 1, 1, 0))
        assert part.x.tolist() == X[1:4].tolist() and part.y.tolist() == [1, 1, 2]
        assert part.ids.tolist() == ["b", "c", "d"] and part.num_classes == 3
        assert part.train_mask.tolist() == [True, False, False]
        assert part.adjacency.edge_index().tolist() == [[1, 0, 2, 1], [0, 1, 1, 2]]

    def test_derived_graphs_share_the_edge_set(self):
        graph = path()
        derived = [
            graph.with_split(*SPLIT),
            graph.replace(name="other"),
            graph.subgraph(mask(1, 1, 1, 1, 0)),
            graph.replace(adjacency=graph.adjacency.without_crossing(SPLIT[0])),
        ]
        assert all(other.edge_set is graph.edge_set for other in derived)

    def test_an_edge_set_can_be_named(self):
        edges = EdgeSet("dataset:path")
        assert path(edge_set=edges).edge_set is edges

    def test_replace_checks_again(self):
        with pytest.raises(GraphError, match="from 0 to num_classes - 1 = 2"):
            path().replace(y=torch.full((5,), 3))

    def test_a_graph_to_predict_needs_the_number_of_classes_and_no_label(self):
        graph = path(y=[-1] * 5, num_classes=3)
        assert (graph.num_classes, int(graph.labeled.sum())) == (3, 0)
        assert path().subgraph(mask(1, 0, 0, 0, 1)).num_classes == 3  # of one class only
        with pytest.raises(GraphError, match="a graph to predict only needs num_classes"):
            path(y=[-1] * 5)


class TestPyg:
    def test_there_and_back(self):
        graph = path().with_split(*SPLIT)
        back = Graph.from_pyg(graph.to_pyg(), name="back")
        assert torch.equal(back.adjacency.indices, graph.adjacency.indices)
        assert torch.equal(back.x, graph.x) and torch.equal(back.y, graph.y)
        assert torch.equal(back.test_mask, graph.test_mask) and back.name == "back"

    def test_what_was_done_to_the_data_goes_there_and_back(self):
        graph = path(notes=("a note",), deviations=("a flaw",), num_classes=3)
        back = Graph.from_pyg(graph.to_pyg(), num_classes=3)
        assert (back.notes, back.deviations) == (("a note",), ("a flaw",))
        assert Graph.from_pyg(graph.to_pyg()).notes == ("a note", CLASSES_FROM_LABELS)  # it counted labels
        plain = path(num_classes=3).to_pyg()
        assert "graphveil_notes" not in plain and Graph.from_pyg(plain).deviations == ()

    def test_sparse_features_are_written_dense(self):
        assert torch.equal(path(x=sparse.csr_array(X.numpy())).to_pyg().x, X)

    def test_directed_keeps_edges_as_they_are(self):
        data = path(directed=True).to_pyg()
        assert Graph.from_pyg(data, directed=True).adjacency.edge_index().tolist() == [
            [0, 1, 2, 3],
            [1, 2, 3, 4],
        ]
        assert Graph.from_pyg(data).adjacency.edge_index().shape == (2, 8)

    def test_missing_masks_are_empty(self):
        data = path().to_pyg()
        data.train_mask = SPLIT[0]
        assert Graph.from_pyg(data).test_mask.tolist() == [False] * 5

    def test_several_splits_are_refused(self):
        data = path().to_pyg()
        data.train_mask = torch.stack(SPLIT, dim=1)
        with pytest.raises(GraphError, match=r"choose one: data.train_mask = data.train_mask\[:, 0\]"):
            Graph.from_pyg(data)

    @pytest.mark.parametrize("part", ["y", "edge_index"])
    def test_missing_parts_are_named(self, part):
        data = path().to_pyg()
        del data[part]
        with pytest.raises(GraphError, match=f"'{part}'.*; set data.{part}"):
            Graph.from_pyg(data)

    @pytest.mark.parametrize(
        "edges", [[[0.5], [1]], torch.tensor([0, 1]), np.zeros((2, 1)), torch.zeros(1, 2)]
    )
    def test_edges_are_a_tensor_of_two_rows(self, edges):
        data = path().to_pyg()
        data.edge_index = edges
        with pytest.raises(GraphError, match="'edge_index' is no tensor"):
            Graph.from_pyg(data)
        with pytest.raises(GraphError, match="split must be a mapping"):
            Graph.from_pyg(path().to_pyg(), split=[0, 1])

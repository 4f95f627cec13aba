"""Fields of a graph: conversions, checks, splits, and derived graphs."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

from graphveil.core.edges.adjacency import EdgeSet
from graphveil.data import Graph
from graphveil.errors import GraphError

# A path 0 - 1 - 2 - 3 - 4 whose last node has no label.
X = torch.arange(10.0).reshape(5, 2)
Y = [0, 1, 1, 2, -1]


def path(**changes: Any) -> Graph:
    fields = {"x": X, "y": Y, "source": [0, 1, 2, 3], "target": [1, 2, 3, 4], "directed": False}
    return Graph.from_edges(**(fields | changes))


def mask(*bits: int) -> torch.Tensor:
    return torch.tensor(bits, dtype=torch.bool)


SPLIT = (mask(1, 1, 0, 0, 0), mask(0, 0, 1, 0, 0), mask(0, 0, 0, 1, 1))


def test_fields_have_fixed_types_and_public_sizes() -> None:
    graph = path()
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (5, 2, 3)
    assert not graph.directed and not graph.has_split
    assert graph.y.dtype == torch.int64 and graph.x.dtype == torch.float32
    assert graph.labeled.tolist() == [True, True, True, True, False]
    assert path(num_classes=7).num_classes == 7
    assert path(y=torch.tensor(Y)[:, None]).y.tolist() == Y  # a matrix of one column is a vector
    assert isinstance(path(x=sparse.csr_matrix(X.numpy())).x, sparse.csr_array)
    edges = EdgeSet("dataset:path")
    assert path(edge_set=edges).edge_set is edges


def test_fields_are_frozen() -> None:
    with pytest.raises(AttributeError):
        path().name = "other"  # type: ignore[misc]


def test_repr_does_not_depend_on_the_edges() -> None:
    assert repr(path()) == repr(path(source=[], target=[]))
    assert repr(path()) == "Graph('graph', nodes=5, features=2, classes=3, directed=False, split=False)"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": [], "x": torch.empty(0, 2), "source": [], "target": []}, "no nodes. Give at least one"),
        ({"x": X[:4]}, r"Features have 4 rows, labels 5 and the adjacency 5 nodes"),
        ({"x": torch.empty(5, 0)}, "no features. Add at least one column"),
        ({"x": X.log()}, "NaN, infinite"),
        ({"y": [0, 0, 0, 0, 0]}, "fewer than two classes"),
        ({"num_classes": 1, "y": [0, 0, -1, -1, 0]}, "fewer than two classes"),
        ({"y": [-1] * 5}, "only used for prediction, pass num_classes"),
        ({"num_classes": "3"}, "num_classes must be a whole number, not a str"),
        ({"num_classes": 3.0}, "num_classes must be a whole number, not a float"),
        ({"label_sets": "sets"}, "Label sets must be a matrix"),
        ({"num_classes": 2}, r"from 0 to num_classes - 1 = 1, or -1"),
        ({"y": [0, 1, 1, 2, -2]}, "or -1 for nodes without a label"),
        ({"y": [0.0, 1.0, 1.0, 2.0, 0.0]}, "one class number per node"),
        ({"y": torch.ones(5, 3, dtype=torch.int64)}, "one class number per node"),
        ({"y": [[0], [1], [1, 2], [0], [1]]}, "one class number per node"),
        ({"y": [0, 1, 2, 2, 2**40]}, "more than 16,384 classes"),
        ({"class_names": ("a", "b")}, "2 class names were given for 3 classes"),
        ({"ids": np.arange(4)}, "4 ids were given for 5 nodes"),
        ({"source": [0, 1, 2, 9]}, "node that does not exist"),
    ],
)
def test_rejects_inconsistent_fields(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message) as error:
        path(**changes)
    assert str(2**40) not in str(error.value)


def test_labels_may_all_be_missing_if_the_number_of_classes_is_given() -> None:
    graph = path(y=[-1] * 5, num_classes=3)
    assert (graph.num_classes, int(graph.labeled.sum())) == (3, 0)
    assert path().subgraph(mask(1, 0, 0, 0, 1)).num_classes == 3  # although one class remains
    with pytest.raises(GraphError, match="from 0 to num_classes - 1 = 2"):
        path().replace(y=torch.full((5,), 3))


# -- splits ----


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (None, "needs train_mask, val_mask and test_mask"),
        (SPLIT[1], "must not overlap"),
        *(
            (wrong, r"bool arrays? of shape \(5,\)")
            for wrong in (mask(0, 0, 1), SPLIT[2].int(), [0, 0, 0, 1, 1], [[True], [True, False]], "test")
        ),
    ],
)
def test_rejects_invalid_masks(test: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        path().with_split(*SPLIT[:2], test)


@pytest.mark.parametrize("wrap", [torch.Tensor.tolist, torch.Tensor.numpy, lambda part: tuple(part.tolist())])
def test_masks_may_be_lists_and_arrays_of_bools(wrap: Any) -> None:
    split, kept = [wrap(part) for part in SPLIT], mask(1, 1, 1, 0, 0)
    assert all(map(torch.equal, path().with_split(*split).masks.values(), SPLIT))
    assert torch.equal(path().subgraph(wrap(kept)).y, path().subgraph(kept).y)
    with pytest.raises(GraphError, match=r"A node mask must be a bool array of shape \(5,\)"):
        path().subgraph([0, 1])  # type: ignore[arg-type]


def test_mask_omits_unlabeled_members_and_rejects_unknown_parts() -> None:
    # Node 4 stays in the split, which is public, without its label, which is not.
    graph = path().with_split(*SPLIT)
    assert graph.test_mask is not None and graph.test_mask.tolist() == [False, False, False, True, True]
    assert graph.labeled_in("test").tolist() == [False, False, False, True, False]
    with pytest.raises(GraphError, match=r"no split\. Call gv\.split\(graph, unit='undirected-edge'\)"):
        path().labeled_in("train")
    with pytest.raises(GraphError, match="split='holdout' is not one of train, val, test"):
        graph.labeled_in("holdout")


# -- derived graphs ----


def test_subgraph_selects_rows_of_every_field() -> None:
    graph = path(ids=np.array(list("abcde"))).with_split(*SPLIT)
    part = graph.subgraph(mask(0, 1, 1, 1, 0))
    assert part.x.tolist() == X[1:4].tolist() and part.y.tolist() == [1, 1, 2]
    assert part.ids is not None and part.ids.tolist() == ["b", "c", "d"] and part.num_classes == 3
    assert part.masks["train_mask"].tolist() == [True, False, False]
    assert part.adjacency.edge_index().tolist() == [[1, 0, 2, 1], [0, 1, 1, 2]]


def test_derived_graphs_share_the_edge_set() -> None:
    graph = path()
    for other in (graph.with_split(*SPLIT), graph.replace(name="a"), graph.subgraph(mask(1, 1, 1, 1, 0))):
        assert other.edge_set is graph.edge_set

"""Frames, networkx and torch_geometric: each gives the graph that files would give, or a typed error."""

import gc
import sys
from collections.abc import Callable
from typing import Any

import networkx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
import torch

import graphveil as gv
from graphveil.core.features import to_dense
from graphveil.core.ledger import ledger_of
from graphveil.data import Graph
from graphveil.data.conversion import load_pyg
from graphveil.data.tables.encoding import CLASSES_FROM_LABELS
from graphveil.errors import GraphError, MissingDependencyError, TableError, UnitError
from graphveil.estimators.private_hops import private_hops

Data, HeteroData, Batch = load_pyg("data").Data, load_pyg("data").HeteroData, load_pyg("data").Batch
SECRET = "Zanzibar-4711"
TERMS: dict[str, Any] = {"unit": "undirected-edge", "epsilon": 1.0, "delta": 1e-6, "seed": 0}
QUICK: dict[str, Any] = {"encoder_epochs": 1, "epochs": 1}


# -- frames ----
NODES: dict[str, Any] = {
    "user": ["u1", "u2", "u3"],
    "team": ["red", "blue", None],
    "age": [31.0, None, 28.0],
    "on": [True, False, True],
}
EDGES = {"a": ["u1", "u3", "u9"], "b": ["u2", "u1", "u1"]}
COLUMNS: dict[str, Any] = {"id": "user", "label": "team", "source": "a", "target": "b"}
ROLES = COLUMNS | {"unknown_ids": "drop", "missing": "constant=7"}


@pytest.mark.parametrize(
    "frame",
    [pd.DataFrame, pl.DataFrame, pl.LazyFrame, pa.table, dict],
    ids=["pandas", "polars", "lazy", "arrow", "dict"],
)
def test_frames_of_any_library_give_the_same_graph(frame: Any) -> None:
    graph = Graph.from_frames(frame(NODES), frame(EDGES), **ROLES)
    assert to_dense(graph.x).tolist() == [[31, 1], [7, 0], [28, 1]]
    assert graph.y.tolist() == [1, 0, -1] and graph.class_names == ("blue", "red")
    assert graph.ids is not None and graph.ids.tolist() == NODES["user"]
    assert graph.adjacency.edge_index().tolist() == [[1, 2, 0, 0], [0, 0, 1, 2]]


def test_pandas_index_is_no_feature_and_categoricals_are_read() -> None:
    nodes = pd.DataFrame(NODES, index=[5, 6, 9]).assign(plan=pd.Categorical(["p", "q", "p"]))
    graph = Graph.from_frames(nodes, pd.DataFrame(EDGES), **ROLES, categories={"plan": ["q", "p"]})
    assert to_dense(graph.x).tolist() == [[31, 1, 0, 1], [7, 0, 1, 0], [28, 1, 0, 1]]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (3, "nodes is a int. Pass a pandas"),
        (pd.DataFrame({"user": ["u1", 2, SECRET], "team": ["a", "b", "a"]}), "one type"),
        (NODES | {"note": [SECRET] * 3}, r"drop=\['note'\]"),
        (NODES | {"age": [1, 10**30, 2]}, "column 'age' of nodes holds integers beyond 64 bits"),
    ],
)
def test_rejects_invalid_frames_without_printing_values(nodes: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message) as error:
        Graph.from_frames(nodes, EDGES, **ROLES)
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    ("options", "unit", "message"),
    [
        (
            {"categories": "on"},
            {"unit": "node-record", "out_degree_bound": 2},
            "was computed from all records",
        ),
        (
            {"missing": "median"},
            {"unit": "node-bounded-degree", "max_degree": 9},
            "was computed from all records",
        ),
        ({"unknown_ids": "add"}, {"unit": "undirected-edge"}, "would reveal an edge"),
    ],
)
def test_fit_rejects_encodings_that_read_protected_data(options: Any, unit: Any, message: str) -> None:
    graph = Graph.from_frames(NODES, EDGES, **(ROLES | options))
    with pytest.raises(UnitError, match=message):
        gv.GAP(epsilon=4.0, delta=1e-4, **unit).fit(gv.split(graph))
    assert len(ledger_of(graph.edge_set)) == 0


def test_text_labels_become_sorted_classes() -> None:
    graph = Graph.from_edges(np.eye(3), np.array(["b", "a", "b"]), [0], [1], directed=False)
    assert graph.class_names == ("a", "b") and graph.y.tolist() == [1, 0, 1] and graph.notes
    with pytest.raises(GraphError, match="Labels must be text"):
        Graph.from_edges(np.eye(2), ["a", 1], [0], [1], directed=False)


# -- networkx ----


def test_networkx_attributes_become_features_and_direction_is_kept() -> None:
    made = networkx.MultiDiGraph()
    made.add_node("v", team="a", age=1)
    made.add_node("w", team="b")
    made.add_edges_from([("v", "w"), ("v", "w"), ("w", "w")])
    graph = Graph.from_networkx(made, label="team", missing="indicator")
    assert graph.directed and graph.adjacency.edge_index().tolist() == [[0], [1]]
    assert to_dense(graph.x).tolist() == [[1, 0], [0, 1]]
    assert graph.ids is not None and graph.ids.tolist() == ["v", "w"]
    with pytest.raises(TableError, match="'age' has missing values"):
        Graph.from_networkx(made, label="team")
    with pytest.raises(GraphError, match="convert_node_labels_to_integers"):
        Graph.from_networkx(networkx.grid_2d_graph(2, 2), label="t")


def test_networkx_edge_weights_are_read() -> None:
    made = networkx.Graph()
    made.add_nodes_from([(1, {"t": "a", "x": 0.5}), (2, {"t": "b", "x": 1.5})])
    made.add_edge(1, 2, w=0.5)
    graph = Graph.from_networkx(made, label="t", weight="w", max_weight=2.0)
    assert graph.adjacency.weights is not None and graph.adjacency.weights.tolist() == [0.25, 0.25]


# -- torch_geometric ----
COUNT = 40
ENDS = torch.stack([torch.arange(COUNT - 1), torch.arange(1, COUNT)])
PARTS = torch.arange(COUNT) % 4
DENSE = np.zeros((COUNT, COUNT))
DENSE[ENDS[1], ENDS[0]] = 1
SPARSE = torch.sparse_coo_tensor(ENDS.flip(0), torch.ones(COUNT - 1), (COUNT, COUNT), check_invariants=False)


class TorchSparse:
    """The interface of a SparseTensor of torch_sparse, which is not installed."""

    def coo(self) -> tuple[torch.Tensor, torch.Tensor, None]:
        return ENDS[1], ENDS[0], None


def data(**changes: Any) -> Any:
    fields = {"x": torch.ones(COUNT, 3), "y": torch.arange(COUNT) % 2, "edge_index": ENDS}
    masks = {"train_mask": PARTS < 2, "val_mask": PARTS == 2, "test_mask": PARTS == 3}
    return Data(**{**fields, **masks, **changes})


def masks(convert: Callable[[torch.Tensor], Any]) -> dict[str, Any]:
    return {name: convert(data()[name]) for name in ("train_mask", "val_mask", "test_mask")}


def indices(mask: torch.Tensor) -> torch.Tensor:
    return mask.nonzero().view(-1)


EQUIVALENT: dict[str, dict[str, Any]] = {
    "x and y": {"x": np.ones((COUNT, 3)), "y": np.arange(COUNT) % 2},
    "x and y as lists": {"x": [[1.0] * 3] * COUNT, "y": [n % 2 for n in range(COUNT)]},
    "y as floats": {"y": np.arange(COUNT) % 2 * 1.0},
    "edge_index": {"edge_index": ENDS.numpy()},
    "edge_index as lists": {"edge_index": ENDS.tolist()},
    "masks": masks(torch.Tensor.numpy),
    "masks as lists": masks(torch.Tensor.tolist),
    "masks as integers": masks(lambda mask: mask.numpy().astype(int)),
    "masks as tensors of indices": masks(indices),
    "masks as lists of indices": masks(lambda mask: indices(mask).tolist()),
    "masks as arrays of indices": masks(lambda mask: indices(mask).numpy()),
    "adj_t, torch": {"edge_index": None, "adj_t": SPARSE},
    "adj_t, torch_sparse": {"edge_index": None, "adj_t": TorchSparse()},
}


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")  # of torch, when it makes one
@pytest.mark.parametrize("kind", [*EQUIVALENT, "adj_t, torch CSR"])
def test_data_may_hold_tensors_arrays_lists_and_matrices(kind: str) -> None:
    csr = {"edge_index": None, "adj_t": SPARSE.to_sparse_csr()} if kind == "adj_t, torch CSR" else {}
    held = data(**EQUIVALENT.get(kind, csr))
    graph, expected = Graph.from_pyg(held, directed=True), Graph.from_pyg(data(), directed=True)
    assert torch.equal(graph.adjacency.edge_index(), expected.adjacency.edge_index())
    assert torch.equal(to_dense(graph.x), to_dense(expected.x)) and torch.equal(graph.y, expected.y)
    assert all(torch.equal(mask, expected.masks[name]) for name, mask in graph.masks.items())
    assert Graph.from_pyg(held).edge_set is Graph.from_pyg(held).edge_set  # and one budget


def test_data_labels_of_nan_are_missing() -> None:
    y = (torch.arange(COUNT) % 2).float()[:, None]
    y[2] = float("nan")
    assert Graph.from_pyg(data(y=y)).y[:4].tolist() == [0, 1, -1, 1]


def test_data_is_directed_only_if_requested_and_is_never_tested_for_symmetry() -> None:
    assert torch.equal(Graph.from_pyg(data(), directed=True).adjacency.edge_index(), ENDS)
    assert Graph.from_pyg(data()).adjacency.edge_index().shape == (2, 2 * COUNT - 2)


def test_split_of_ogb_and_partial_masks() -> None:
    split = {"train": indices(PARTS < 2), "valid": indices(PARTS == 2).numpy(), "test": [3, 7]}
    graph = Graph.from_pyg(data(), split=split)
    assert torch.equal(graph.masks["train_mask"], PARTS < 2) and torch.equal(
        graph.masks["val_mask"], PARTS == 2
    )
    assert indices(graph.masks["test_mask"]).tolist() == [3, 7]
    partial = Graph.from_pyg(data(val_mask=None, test_mask=None))
    assert torch.equal(partial.masks["train_mask"], PARTS < 2) and not partial.masks["test_mask"].any()


def both_ways(graph: Graph, **fields: Any) -> Graph:
    return Graph.from_pyg(graph.to_pyg(), **fields)


def test_to_pyg_is_the_inverse_of_from_pyg() -> None:
    x = sp.csr_array(np.eye(5, 3, dtype=np.float32))  # written dense
    graph = Graph.from_edges(
        x, [0, 1, 1, 2, -1], [0, 1], [1, 2], directed=False, num_classes=3, weight=[1, 9], max_weight=4,
        notes=("a note",), deviations=("a flaw",),
    ).with_split(*torch.eye(3, 5, dtype=torch.bool))  # fmt: skip
    back = both_ways(graph, max_weight=4, num_classes=3, name="back")
    assert all(map(torch.equal, back.adjacency.arrays, graph.adjacency.arrays))
    assert torch.equal(to_dense(back.x), to_dense(graph.x)) and torch.equal(back.y, graph.y)
    assert all(torch.equal(back.masks[name], mask) for name, mask in graph.masks.items())
    assert (back.name, back.notes, back.deviations) == ("back", ("a note",), ("a flaw",))
    assert both_ways(graph, max_weight=4).notes == ("a note", CLASSES_FROM_LABELS)  # classes were counted
    plain = graph.replace(notes=(), deviations=()).to_pyg()
    assert "graphveil_notes" not in plain and Graph.from_pyg(plain, max_weight=4).deviations == ()


@pytest.mark.parametrize("convert", [torch.tensor, np.array, list], ids=["tensor", "array", "list"])
def test_edge_weights_of_a_data_are_read_with_their_bound(convert: Any) -> None:
    for held in (
        data(edge_weight=convert([0.5] * (COUNT - 1))),
        data(edge_index=None, adj_t=torch.from_numpy(DENSE * 0.5).to_sparse()),
    ):
        graph = Graph.from_pyg(held, max_weight=2.0)
        assert graph.adjacency.weights is not None and set(graph.adjacency.weights.tolist()) == {0.25}


IGNORED: dict[str, dict[str, Any]] = {
    "edge_weight": {"edge_weight": torch.rand(COUNT - 1)},
    "edge_weight of ones": {"edge_weight": torch.ones(COUNT - 1)},
    "edge_weight as a list": {"edge_weight": [0.5] * (COUNT - 1)},
    "edge_attr": {"edge_attr": torch.rand(COUNT - 1, 2)},
    "adj_t": {"edge_index": None, "adj_t": torch.from_numpy(DENSE * 0.5).to_sparse()},
}


@pytest.mark.parametrize("kind", IGNORED)
def test_rejects_weights_and_features_of_edges_that_would_be_ignored(kind: str) -> None:
    held = data(**IGNORED[kind])
    for use in (
        Graph.from_pyg,
        gv.GAP(**TERMS).fit,
        lambda one: private_hops(one, unit="undirected-edge", epsilon=1.0, delta=1e-6),
    ):
        with pytest.raises(GraphError, match=f"'{kind.partition(' ')[0].strip(',')}'"):
            use(held)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": None}, r"'y'.*Set data\.y"),
        ({"edge_index": None}, r"'edge_index'.*Set data\.edge_index"),
        ({"edge_index": [[0.5], [1]]}, "'edge_index' of the Data object is not an integer tensor"),
        ({"edge_index": torch.tensor([0, 1])}, "'edge_index' of the Data object is not an integer tensor"),
        ({"edge_index": np.zeros((2, 1))}, "'edge_index' of the Data object is not an integer tensor"),
        ({"edge_index": torch.zeros(1, 2)}, "'edge_index' of the Data object is not an integer tensor"),
        ({"edge_index": None, "adj_t": object()}, r"data\.adj_t is a object"),
        ({"edge_index": None, "adj_t": sp.csr_matrix(DENSE)}, r"data\.adj_t is a csr_matrix"),
        ({"train_mask": "all"}, r"data\.train_mask is a str"),
        (
            {"train_mask": torch.eye(COUNT, 3).bool()},
            r"Choose one: data.train_mask = data.train_mask\[:, 0\]",
        ),
    ],
)
def test_rejects_a_data_with_missing_or_invalid_parts(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Graph.from_pyg(data(**changes))


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({"train": [COUNT]}, "larger than the 40 nodes"),
        ({"dev": [1]}, "parts other than 'train'"),
        ([0, 1], "split must be a mapping"),
    ],
)
def test_rejects_invalid_splits_of_a_data(split: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Graph.from_pyg(data(), split=split)


def test_from_pyg_and_fit_reject_datasets_and_heterogeneous_graphs() -> None:
    hetero = HeteroData()
    hetero["user"].x = torch.eye(2)
    for use in (Graph.from_pyg, gv.GAP(**TERMS).fit):
        for dataset in ([data()], (data(), data())):
            with pytest.raises(GraphError, match=r"dataset\[0\]"):
                use(dataset)  # type: ignore[arg-type]
        with pytest.raises(GraphError, match="to_homogeneous"):
            use(hetero)


def test_fits_of_one_data_share_a_budget() -> None:
    graph = gv.load_dataset("synthetic/tiny")
    held = graph.to_pyg()
    model = gv.GAP(**TERMS, **QUICK).fit(held)
    assert torch.equal(model.predict(held), model.predict()) and model.score(held) >= 0
    assert model.privacy_cost(held) is None or model.privacy_cost(held).releases == 0
    gv.GAP(**TERMS, **QUICK).fit(held)
    assert len(ledger_of(Graph.from_pyg(held).edge_set)) == 2
    del model, held
    gc.collect()
    assert len(ledger_of(Graph.from_pyg(graph.to_pyg()).edge_set)) == 0


def test_a_batch_is_fitted_and_hops_of_a_data_are_charged() -> None:
    model = gv.GAP(**TERMS, **QUICK).fit(Batch.from_data_list([data(), data()]))
    assert len(model.predict()) == 2 * COUNT
    one = data()
    released = private_hops(one, unit="undirected-edge", epsilon=1.0, delta=1e-6)
    assert released.rows.shape == (COUNT, 3)
    assert len(ledger_of(Graph.from_pyg(one).edge_set)) == 1


def test_missing_torch_geometric_is_reported_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in {"torch_geometric", *(one for one in sys.modules if one.startswith("torch_geometric."))}:
        monkeypatch.setitem(sys.modules, name, None)  # as if the package were missing
    graph = gv.load_dataset("synthetic/tiny")
    gv.MLP(unit="none", seed=0, epochs=1, tuned=False).fit(graph)
    with pytest.raises(MissingDependencyError, match=r"graphveil\[pyg\]"):
        graph.to_pyg()

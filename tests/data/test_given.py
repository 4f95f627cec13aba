"""Frames, networkx and torch_geometric: the graph that files would give, or one typed refusal."""

import gc
import subprocess
import sys

import networkx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

import graphveil as gv
from graphveil.data import Graph, to_dense
from graphveil.data.conversion import load_pyg
from graphveil.errors import GraphError, TableError, UnitError
from graphveil.ledger import ledger_of

SECRET = "Zanzibar-4711"
Data, HeteroData = load_pyg("data").Data, load_pyg("data").HeteroData
NODES = {
    "user": ["u1", "u2", "u3"],
    "team": ["red", "blue", None],
    "age": [31.0, None, 28.0],
    "on": [True, False, True],
}
EDGES = {"a": ["u1", "u3", "u9"], "b": ["u2", "u1", "u1"]}
ROLES = {
    "id": "user",
    "label": "team",
    "source": "a",
    "target": "b",
    "unknown_ids": "drop",
    "missing": "constant=7",
}


@pytest.mark.parametrize(
    "frame",
    [pd.DataFrame, pl.DataFrame, pl.LazyFrame, pa.table, dict],
    ids=["pandas", "polars", "lazy", "arrow", "dict"],
)
def test_frames_of_any_kind_give_one_graph(frame):
    graph = Graph.from_frames(frame(NODES), frame(EDGES), **ROLES)
    assert to_dense(graph.x).tolist() == [[31, 1], [7, 0], [28, 1]]
    assert graph.y.tolist() == [1, 0, -1] and graph.class_names == ("blue", "red")
    assert graph.ids.tolist() == NODES["user"]
    assert graph.adjacency.edge_index().tolist() == [[1, 2, 0, 0], [0, 0, 1, 2]]


def test_an_index_of_pandas_is_no_feature_and_its_categories_are_read():
    nodes = pd.DataFrame(NODES, index=[5, 6, 9]).assign(plan=pd.Categorical(["p", "q", "p"]))
    graph = Graph.from_frames(nodes, pd.DataFrame(EDGES), **ROLES, categories={"plan": ["q", "p"]})
    assert to_dense(graph.x).tolist() == [[31, 1, 0, 1], [7, 0, 1, 0], [28, 1, 0, 1]]


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        (3, "nodes is a int; give a frame"),
        (pd.DataFrame({"user": ["u1", 2, SECRET], "team": ["a", "b", "a"]}), "one type"),
        (NODES | {"note": [SECRET] * 3}, "drop=['note']"),
        (NODES | {"age": [1, 10**30, 2]}, "column 'age' of nodes holds integers beyond 64 bits"),
    ],
)
def test_what_is_no_table_is_refused_without_a_value(nodes, words):
    with pytest.raises(GraphError) as error:
        Graph.from_frames(nodes, EDGES, **ROLES)
    assert words in str(error.value) and SECRET not in str(error.value)


def test_networkx():
    made = networkx.MultiDiGraph()
    made.add_node("v", team="a", age=1)
    made.add_node("w", team="b")
    made.add_edges_from([("v", "w"), ("v", "w"), ("w", "w")])
    graph = Graph.from_networkx(made, label="team", missing="indicator")
    assert graph.directed and graph.adjacency.edge_index().tolist() == [[0], [1]]
    assert to_dense(graph.x).tolist() == [[1, 0], [0, 1]] and graph.ids.tolist() == ["v", "w"]
    with pytest.raises(TableError, match="'age' has missing values"):
        Graph.from_networkx(made, label="team")
    weighted = networkx.Graph()
    weighted.add_nodes_from([(1, {"t": "a", "x": 0.5}), (2, {"t": "b", "x": 1.5})])
    weighted.add_edge(1, 2, w=0.5)
    graph = Graph.from_networkx(weighted, label="t", weight="w", max_weight=2.0)
    assert graph.adjacency.weights.tolist() == [0.25, 0.25]
    with pytest.raises(GraphError, match="relabel them"):
        Graph.from_networkx(networkx.grid_2d_graph(2, 2), label="t")


def data(**changes):
    fields = {
        "x": torch.eye(4),
        "y": torch.tensor([0, 1, 1, 0]),
        "edge_index": torch.tensor([[0, 1], [1, 2]]),
    }
    return Data(**(fields | changes))


class TestPyg:
    @pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")  # torch's own, on making one
    @pytest.mark.parametrize("kind", ["coo", "csr", "SparseTensor"])
    def test_adj_t_has_a_row_for_each_target(self, kind):
        ends = torch.tensor([[1, 2], [0, 1]])
        sparse = torch.sparse_coo_tensor(ends, torch.ones(2), (4, 4), check_invariants=False)
        made = {
            "coo": lambda: sparse,
            "csr": lambda: sparse.to_sparse_csr(),
            "SparseTensor": lambda: Coo(ends),
        }
        graph = Graph.from_pyg(data(edge_index=None, adj_t=made[kind]()), directed=True)
        expected = Graph.from_pyg(data(), directed=True)
        assert graph.adjacency.edge_index().tolist() == expected.adjacency.edge_index().tolist()

    def test_index_masks_and_splits_as_ogb_has_them(self):
        places = {"train": [0, 2], "val": [1], "test": [3]}
        indices = {"train": torch.tensor([2, 0]), "valid": np.array([1]), "test": [3]}
        for graph in (
            Graph.from_pyg(data(), split=indices),
            Graph.from_pyg(data(**{f"{part}_mask": torch.tensor(at) for part, at in places.items()})),
        ):
            masks = [graph.train_mask, graph.val_mask, graph.test_mask]
            assert [mask.nonzero().flatten().tolist() for mask in masks] == [[0, 2], [1], [3]]
        with pytest.raises(GraphError, match="beyond the 4 nodes"):
            Graph.from_pyg(data(), split={"train": [4]})
        with pytest.raises(GraphError, match="parts besides train"):
            Graph.from_pyg(data(), split={"dev": [1]})

    def test_labels_beside_nan(self):
        graph = Graph.from_pyg(data(y=torch.tensor([[0.0], [1.0], [float("nan")], [1.0]])))
        assert graph.y.tolist() == [0, 1, -1, 1]

    def test_several_types_are_refused_with_what_to_do(self):
        hetero = HeteroData()
        hetero["user"].x = torch.eye(2)
        for use in (Graph.from_pyg, gv.GAP(unit="undirected-edge", epsilon=1).fit):
            with pytest.raises(GraphError, match="to_homogeneous"):
                use(hetero)

    def test_a_data_is_fitted_and_its_second_fit_is_charged_to_the_same_budget(self):
        graph = gv.load_dataset("synthetic/tiny")
        held = graph.to_pyg()
        keywords = {"unit": "undirected-edge", "epsilon": 1, "delta": 1e-5, "encoder_epochs": 1, "epochs": 1}
        model = gv.GAP(**keywords).fit(held)
        assert torch.equal(model.predict(held), model.predict()) and model.score(held) >= 0
        assert model.privacy_cost(held) is None or model.privacy_cost(held).releases == 0
        gv.GAP(**keywords).fit(held)
        edges = Graph.from_pyg(held).edge_set
        assert len(ledger_of(edges)) == 2
        del model, held
        gc.collect()
        assert len(ledger_of(Graph.from_pyg(graph.to_pyg()).edge_set)) == 0


class Coo:
    """What torch_sparse's tensor is asked for."""

    def __init__(self, ends):
        self.ends = ends

    def coo(self):
        return self.ends[0], self.ends[1], None


def test_labels_as_text():
    graph = Graph.from_edges(np.eye(3), np.array(["b", "a", "b"]), [0], [1], directed=False)
    assert graph.class_names == ("a", "b") and graph.y.tolist() == [1, 0, 1] and graph.notes
    with pytest.raises(GraphError, match="labels must be text"):
        Graph.from_edges(np.eye(2), ["a", 1], [0], [1], directed=False)


@pytest.mark.parametrize("unit", [None, "node-record", "local-attributes"])
def test_a_split_for_records_follows_from_ids_alone(unit):
    graph = gv.load_dataset("synthetic/tiny", recipe=None)
    relabeled = graph.replace(y=torch.full_like(graph.y, -1))
    first, second = gv.split(graph, unit=unit), gv.split(relabeled, unit=unit)
    assert torch.equal(first.train_mask, second.train_mask) and torch.equal(first.test_mask, second.test_mask)


def test_a_split_for_edges_has_exact_shares_of_labeled_nodes():
    graph = gv.load_dataset("synthetic/tiny", recipe=None)
    y = graph.y.clone()
    y[:40] = -1
    made = gv.split(graph.replace(y=y), 0.5, 0.25, unit="undirected-edge")
    assert int(made.train_mask.sum()) == (graph.num_nodes - 40) // 2 and not made.train_mask[:40].any()
    with pytest.raises(gv.errors.ConfigError, match="did you mean 'undirected-edge'"):
        gv.split(graph, unit="undirected-edges")


@pytest.mark.parametrize(
    ("choices", "unit", "words"),
    [
        ({"categories": "on"}, "node-record", "protects each record"),
        ({"missing": "median"}, "node-bounded-degree", "protects each record"),
        ({"unknown_ids": "add"}, "undirected-edge", "publish a node"),
    ],
)
def test_a_fit_refuses_what_was_read_from_what_it_protects(choices, unit, words):
    graph = Graph.from_frames(NODES, EDGES, **(ROLES | choices))
    keywords = {"out_degree_bound": 2} if unit == "node-record" else {}
    if unit == "node-bounded-degree":
        keywords = {"max_degree": 9}
    model = gv.GAP(unit=unit, epsilon=4.0, delta=1e-4, **keywords)
    with pytest.raises(UnitError, match=words):
        model.fit(gv.split(graph))
    assert len(ledger_of(graph.edge_set)) == 0


def test_without_torch_geometric_the_message_names_the_extra():
    code = """
import sys
sys.modules["torch_geometric"] = None  # what a missing package looks like
import graphveil as gv
from graphveil.errors import MissingDependencyError
graph = gv.load_dataset("synthetic/tiny")
gv.MLP(unit="none", seed=0, epochs=1, tuned=False).fit(graph)
try:
    graph.to_pyg()
except MissingDependencyError as error:
    print(error)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "graphveil[pyg]" in found.stdout

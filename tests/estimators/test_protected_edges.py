"""The door: methods receive a handle of protected edges, which queries read and nothing else."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

import graphveil as gv
from estimators.conftest import grouped
from graphveil.core.edges.adjacency import Adjacency, ProtectedEdges
from graphveil.core.edges.blocks import blocks, in_edges
from graphveil.core.exact_sums import sum_in_neighbors
from graphveil.core.unit import NodeRecord, UndirectedEdge
from graphveil.core.view import protected_view
from graphveil.data import Graph
from graphveil.errors import ProtectedDataError
from graphveil.estimators.method import Method
from graphveil.estimators.session import Session

EDGES = Adjacency.from_edges(
    [0, 1, 2], [1, 2, 0], num_nodes=4, directed=True, weight=[1.0, 0.5, 2.0], max_weight=2.0
)
HANDLE = ProtectedEdges(EDGES, "directed-edge")
PUBLIC = {"directed", "edge_set", "folder", "max_weight", "num_nodes", "version"}
MADE_FROM_OTHERS = {"from_edges", "from_rows"}  # class methods
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "subgraph": (torch.ones(4, dtype=torch.bool),),
    "without_crossing": (torch.ones(4, dtype=torch.bool),),
    "with_stored_zeros": (torch.ones(3),),
}
READERS = {name for name in dir(EDGES) if not name.startswith("_")} - PUBLIC - MADE_FROM_OTHERS


def test_what_is_public_is_that_of_the_edges() -> None:
    for name in PUBLIC:
        assert getattr(HANDLE, name) is getattr(EDGES, name) or getattr(HANDLE, name) == getattr(EDGES, name)
    assert repr(HANDLE) == "ProtectedEdges(nodes=4, directed=True)"


@pytest.mark.parametrize("name", sorted(READERS))
def test_everything_else_raises(name: str) -> None:
    with pytest.raises(ProtectedDataError, match="protects the edges, so"):
        found = getattr(HANDLE, name)
        found(*ARGUMENTS.get(name, ()))


@pytest.mark.parametrize(
    "read",
    [
        len,
        list,
        copy.copy,
        copy.deepcopy,
        pickle.dumps,
        lambda edges: edges[0],
        lambda edges: list(blocks(edges, 2)),
        lambda edges: in_edges(edges, torch.tensor([0]).numpy()),
        lambda edges: sum_in_neighbors(edges, torch.ones(4, 1)),
        lambda edges: torch.as_tensor(edges),
    ],
)
def test_functions_that_read_edges_raise(read: Any) -> None:
    with pytest.raises((ProtectedDataError, TypeError, RuntimeError)):
        read(HANDLE)


def test_a_graph_shares_its_budget_with_its_handle() -> None:
    graph = grouped(nodes=30)
    seen = protected_view(graph, UndirectedEdge())
    assert seen.edge_set is graph.edge_set and seen.x is graph.x
    with pytest.raises(ProtectedDataError):
        seen.subgraph(torch.ones(30, dtype=torch.bool))
    released = gv.perturb.edge_rand(graph, unit="undirected-edge", epsilon=5.0).graph
    assert type(protected_view(released, UndirectedEdge()).adjacency) is Adjacency


EDGE: dict[str, Any] = {"unit": "undirected-edge", "epsilon": 2.0, "delta": 1e-6}
RECORD: dict[str, Any] = {"unit": "node-record", "epsilon": 8.0, "delta": 1e-5}
FITS: dict[str, tuple[str, dict[str, Any]]] = {
    "mlp": ("mlp", EDGE),
    "gap": ("gap", {**EDGE, "epochs": 1}),
    "classcode": ("classcode", EDGE),
    "lpgnet": ("lpgnet", {**EDGE, "epochs": 1}),
    "spectral": ("spectral", EDGE),
    "auto": ("auto", EDGE),
    "gcn": ("gcn", {**EDGE, "epochs": 1, "perturb": "edge-rand"}),
    "mlp, records": ("mlp", RECORD),
    "gap, records": ("gap", {**RECORD, "epochs": 1, "out_degree_bound": 4}),
    "classcode, records": ("classcode", {**RECORD, "out_degree_bound": 4}),
}


@pytest.mark.parametrize("name", FITS)
def test_a_method_that_reads_edges_is_stopped_before_anything_is_charged(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, given = FITS[name]
    graph, model = grouped(nodes=30), gv.METHODS[method](**given)

    def leaking(self: Method, graph: Graph, session: Any) -> Any:
        sum_in_neighbors(graph.adjacency, torch.ones(graph.num_nodes, 1))
        raise AssertionError("the edges were read")

    monkeypatch.setattr(type(model.config), "fit", leaking)
    with pytest.raises(ProtectedDataError, match=given["unit"]):
        model.fit(graph)
    assert gv.ledger.ledger_of(graph.edge_set).entries == ()


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("part", ["sizes_of", "notes"])
def test_no_plan_or_guarantee_reads_edges(name: str, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method, given = FITS[name]
    model = gv.METHODS[method](**given)

    def leaking(self: Method, graph: Graph) -> Any:
        return len(graph.adjacency.indices)

    monkeypatch.setattr(type(model.config), part, leaking)
    with pytest.raises(ProtectedDataError, match=given["unit"]):
        model.prepare(grouped(nodes=30))


RECORD_FITS = [name for name in FITS if "records" in name]


@pytest.mark.parametrize("name", RECORD_FITS)
@pytest.mark.parametrize("part", ["check", "sizes_of", "notes"])
@pytest.mark.parametrize(
    "read",
    [
        lambda graph: int(graph.labeled.sum()),
        lambda graph: graph.mask("train").sum(),
        lambda graph: graph.x.sum(),
        lambda graph: graph.x[0],
        lambda graph: graph.y[graph.y >= 0],
    ],
    ids=["labeled", "mask", "sum", "row", "labels"],
)
def test_no_check_plan_or_guarantee_reads_records(
    name: str, part: str, read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, given = FITS[name]
    model = gv.METHODS[method](**given)
    monkeypatch.setattr(type(model.config), part, lambda self, graph: read(graph))
    with pytest.raises(ProtectedDataError, match="protects node records"):
        model.prepare(grouped(nodes=30))


@pytest.mark.parametrize("part", ["_guarantee", "_answers"])
def test_links_receive_a_handle_of_edges(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, seen = grouped(nodes=30), list[Any]()
    shipped = getattr(gv.LinkPredictor, part)

    def recorded(self: Any, *arguments: Any) -> Any:
        seen.extend(one for one in arguments if isinstance(one, Graph))
        return shipped(self, *arguments)

    monkeypatch.setattr(gv.LinkPredictor, part, recorded)
    gv.LinkPredictor(**EDGE).fit(graph)
    assert [type(one.adjacency) for one in seen] == [ProtectedEdges]


def test_a_prediction_of_another_graph_receives_a_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    model = gv.GAP(**EDGE, epochs=1).fit(grouped(nodes=30))

    def leaking(self: Any, graph: Graph, session: Any, kept: Any) -> Any:
        sum_in_neighbors(graph.adjacency, torch.ones(graph.num_nodes, 1))
        raise AssertionError("the edges were read")

    monkeypatch.setattr(type(model.fitted.trained), "answer", leaking)
    other = grouped(nodes=30, seed=1)
    with pytest.raises(ProtectedDataError, match="undirected-edge"):
        model.predict_proba(other)
    assert gv.ledger.ledger_of(other.edge_set).entries == ()


def test_recommenders_query_a_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, seen = Session.open, list[Any]()

    def recorded(self: Session, graph: Graph, *arguments: Any, **keywords: Any) -> Any:
        seen.append(graph.adjacency)
        return opened(self, graph, *arguments, **keywords)

    monkeypatch.setattr(Session, "open", recorded)
    lists = np.random.default_rng(0).random((40, 12)) < 0.4
    gv.Recommender(unit="node-record", epsilon=4.0, delta=1e-5).fit(gv.Interactions.from_matrix(lists))
    assert [type(one) for one in seen] == [ProtectedEdges]


def test_no_check_of_another_graph_reads_records(monkeypatch: pytest.MonkeyPatch) -> None:
    model = gv.MLP(**RECORD, epochs=1).fit(grouped(nodes=30))
    monkeypatch.setattr(type(model.fitted.trained), "check", lambda self, graph, names: graph.labeled)
    with pytest.raises(ProtectedDataError, match="protects node records"):
        model.predict_proba(grouped(nodes=30, seed=1))


def test_rows_of_records_have_a_shape_and_nothing_else() -> None:
    seen = protected_view(grouped(nodes=30), NodeRecord())
    assert (seen.num_nodes, seen.num_features, len(seen.y)) == (30, 8, 30)
    assert seen.members("train").sum() == 18
    for read in (list, bool, np.asarray, torch.as_tensor, hash):
        with pytest.raises((ProtectedDataError, TypeError, ValueError)):
            read(seen.x)


def test_unit_none_reads_the_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = gv.GCN(unit="none", epochs=1), list[Any]()
    fit = type(model.config).fit

    def recorded(self: Method, graph: Graph, session: Any) -> Any:
        seen.append(graph.adjacency)
        return fit(self, graph, session)

    monkeypatch.setattr(type(model.config), "fit", recorded)
    model.fit(grouped(nodes=30))
    assert type(seen[0]) is Adjacency

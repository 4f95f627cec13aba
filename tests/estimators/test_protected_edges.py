"""The door: methods receive handles of protected edges and records, which queries read and nothing else."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

import graphveil as gv
from estimators.conftest import grouped
from graphveil.core.clipping.dpsgd import clipped_sum
from graphveil.core.edges.adjacency import Adjacency, ProtectedEdges
from graphveil.core.edges.blocks import blocks, in_edges
from graphveil.core.exact_sums import neighbor_sums
from graphveil.core.features import ProtectedRows, to_dense
from graphveil.core.features import rows as rows_of
from graphveil.core.queries.bounded_lists import own_ego_graphs
from graphveil.core.queries.out_edge_sums import own_list_sums
from graphveil.core.unit import DirectedEdge, NodeRecord, UndirectedEdge
from graphveil.core.view import kept_rows, map_records, per_node, protected_view
from graphveil.data import Graph
from graphveil.errors import ProtectedDataError
from graphveil.estimators.method import Method
from graphveil.estimators.session import Session
from graphveil.links.link_method import LinkMethod
from graphveil.links.recommender import RecommenderMethod

EDGES = Adjacency.from_edges(
    [0, 1, 2], [1, 2, 0], num_nodes=4, directed=True, weight=[1.0, 0.5, 2.0], max_weight=2.0
)
HANDLE = ProtectedEdges(EDGES, "directed-edge")
PUBLIC = {"directed", "edge_set", "folder", "max_weight", "num_nodes", "version"}
MADE_FROM_OTHERS = {"from_edges", "from_rows"}  # class methods
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "subgraph": (torch.ones(4, dtype=torch.bool),),
    "without_crossing": (torch.ones(4, dtype=torch.bool),),
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
        lambda edges: neighbor_sums(edges, torch.ones(4, 1)),
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
        neighbor_sums(graph.adjacency, torch.ones(graph.num_nodes, 1))
        raise AssertionError("the edges were read")

    monkeypatch.setattr(type(model.config), "fit", leaking)
    with pytest.raises(ProtectedDataError, match=given["unit"]):
        model.fit(graph)
    assert gv.ledger_of(graph.edge_set).entries == ()


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
        lambda graph: graph.labeled_in("train").sum(),
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


@pytest.mark.parametrize("part", ["guarantee", "fit"])
def test_links_receive_a_handle_of_edges(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, seen = grouped(nodes=30), list[Any]()
    shipped = getattr(LinkMethod, part)

    def recorded(self: Any, *arguments: Any) -> Any:
        seen.extend(one for one in arguments if isinstance(one, Graph))
        return shipped(self, *arguments)

    monkeypatch.setattr(LinkMethod, part, recorded)
    gv.LinkPredictor(**EDGE).fit(graph)
    assert [type(one.adjacency) for one in seen] == [ProtectedEdges]


def test_a_prediction_of_another_graph_receives_a_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    model = gv.GAP(**EDGE, epochs=1).fit(grouped(nodes=30))

    def leaking(self: Any, graph: Graph, session: Any, kept: Any) -> Any:
        neighbor_sums(graph.adjacency, torch.ones(graph.num_nodes, 1))
        raise AssertionError("the edges were read")

    monkeypatch.setattr(type(model.fitted.trained), "answer", leaking)
    other = grouped(nodes=30, seed=1)
    with pytest.raises(ProtectedDataError, match="undirected-edge"):
        model.predict_proba(other)
    assert gv.ledger_of(other.edge_set).entries == ()


def test_recommenders_query_a_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, seen = Session.open, list[Any]()

    def recorded(self: Session, graph: Graph, *arguments: Any, **keywords: Any) -> Any:
        seen.append(graph.adjacency)
        return opened(self, graph, *arguments, **keywords)

    monkeypatch.setattr(Session, "open", recorded)
    lists = np.random.default_rng(0).random((40, 12)) < 0.4
    gv.Recommender(unit="node-record", epsilon=4.0, delta=1e-5).fit(gv.Interactions.from_matrix(lists))
    assert [type(one) for one in seen] == [ProtectedEdges]


def test_a_recommender_that_reads_lists_is_stopped_before_anything_is_charged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def leaking(self: Any, view: Graph, session: Session) -> Any:
        gv.Interactions(view, np.arange(40), np.arange(12)).lists()
        raise AssertionError("the lists were read")

    table = gv.Interactions.from_matrix(np.random.default_rng(0).random((40, 12)) < 0.4)
    monkeypatch.setattr(RecommenderMethod, "fit", leaking)
    with pytest.raises(ProtectedDataError, match="node-record"):
        gv.Recommender(unit="node-record", epsilon=4.0, delta=1e-5).fit(table)
    assert gv.ledger_of(table.graph.edge_set).entries == ()


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


@pytest.mark.parametrize("name", RECORD_FITS)
@pytest.mark.parametrize(
    "read",
    [
        lambda view: int(view.labeled.sum()),
        lambda view: view.x.mean(),
        lambda view: view.y[0],
        lambda view: map_records(lambda x: x - x.mean(dim=0), view.x),
        lambda view: map_records(lambda y: (y == y.max()).long(), view.y),
        lambda view: own_list_sums(view.adjacency, torch.ones(view.num_nodes, 1))[0].sum(),
    ],
    ids=["labeled", "mean", "label", "centered", "largest", "lists"],
)
def test_a_fit_that_reads_records_is_stopped_before_anything_is_charged(
    name: str, read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, given = FITS[name]
    graph, model = grouped(nodes=30), gv.METHODS[method](**given)

    def leaking(self: Method, view: Graph, session: Any) -> Any:
        read(view)
        raise AssertionError("records were read")

    monkeypatch.setattr(type(model.config), "fit", leaking)
    with pytest.raises(ProtectedDataError, match="records"):
        model.fit(graph)
    assert gv.ledger_of(graph.edge_set).entries == ()


ROWS = torch.tensor([[1.0, -2.0], [0.5, 4.0], [3.0, 0.0], [2.0, 2.0], [-1.0, 7.0], [0.0, 1.0]])
HANDLES = {"dense": ProtectedRows(ROWS, "node-record"), "sparse": ProtectedRows(csr_array(ROWS.numpy()), "u")}


@pytest.mark.parametrize("rows", HANDLES.values(), ids=HANDLES)
def test_a_function_of_one_record_returns_a_handle_of_its_results(rows: ProtectedRows) -> None:
    found = map_records(lambda x: 2 * to_dense(x), rows)
    assert isinstance(found, ProtectedRows) and found.shape == (6, 2)
    assert torch.equal(per_node(found), 2 * ROWS)
    first, second = map_records(lambda x, w: (to_dense(x) * w, w), rows, torch.arange(6.0)[:, None])
    assert torch.equal(per_node(first), ROWS * torch.arange(6.0)[:, None])
    assert torch.equal(per_node(second), torch.arange(6.0)[:, None])
    assert torch.equal(per_node(rows_of(found, torch.tensor([3, 0]))), 2 * ROWS[[3, 0]])


@pytest.mark.parametrize(
    "mixing",
    [
        lambda x: x - x.mean(dim=0),
        lambda x: x / x.norm(),
        lambda x: x.cumsum(dim=0).flip(0),
        lambda x: (x == x.amax(dim=0)).long(),
        lambda x: x.roll(1, dims=0),
        lambda x: x + len(x),
    ],
    ids=["mean", "norm", "sums", "largest", "shift", "count"],
)
def test_a_function_of_other_records_is_rejected(mixing: Any) -> None:
    with pytest.raises(ProtectedDataError, match="depends on other records"):
        map_records(mixing, HANDLES["dense"])
    assert torch.equal(map_records(mixing, ROWS), mixing(ROWS))  # public rows may be mixed


def test_a_function_needs_one_row_per_record_in_every_argument() -> None:
    with pytest.raises(ProtectedDataError, match="one row per record"):
        map_records(torch.add, HANDLES["dense"], torch.ones(5, 1))


def test_only_a_node_record_reads_its_own_edges() -> None:
    for unit, fails in ((DirectedEdge(), True), (NodeRecord(), False)):
        edges = protected_view(grouped(nodes=30), unit).adjacency
        if fails:
            with pytest.raises(ProtectedDataError, match="no node may read its own"):
                own_list_sums(edges, torch.ones(30, 1))
        else:
            assert all(isinstance(each, ProtectedRows) for each in own_list_sums(edges, torch.ones(30, 1)))
            assert isinstance(own_ego_graphs(edges, 2, bytes(32)).leaves, ProtectedRows)


def test_stored_rows_of_records_stay_a_handle() -> None:
    stored: dict[str, Any] = {}

    def keep(name: str, compute: Any) -> Any:
        return stored.setdefault(name, compute())

    found = kept_rows(keep, "encoder", lambda: HANDLES["dense"], HANDLES["dense"])
    assert isinstance(found, ProtectedRows) and torch.equal(stored["encoder"]["rows"], ROWS)
    assert kept_rows(keep, "public", lambda: ROWS, ROWS) is ROWS


@pytest.mark.parametrize("read", [copy.copy, copy.deepcopy, pickle.dumps, list, iter, torch.as_tensor, float])
def test_a_handle_of_records_is_not_copied_or_converted(read: Any) -> None:
    with pytest.raises((ProtectedDataError, TypeError, ValueError, RuntimeError)):
        read(HANDLES["dense"])


@pytest.mark.parametrize("own", ["inputs", "labels"])
@pytest.mark.parametrize("name", ["sums", "arrays"])
def test_a_clipped_sum_of_protected_records_is_not_read(own: str, name: str) -> None:
    labels = torch.tensor([0, 1, 0, 1, 0, 1])
    network = torch.nn.Linear(2, 2)
    inputs = HANDLES["dense"] if own == "inputs" else ROWS
    targets = ProtectedRows(labels, "node-record") if own == "labels" else labels
    gradients = clipped_sum(network, inputs, targets)
    gradients.add(torch.arange(6), 1.0)
    with pytest.raises(ProtectedDataError, match="gradients of protected records"):
        getattr(gradients, name)
    assert len(getattr(clipped_sum(network, ROWS, labels), name)) > 0  # of public records


@pytest.mark.parametrize("handle", [HANDLE, HANDLES["dense"]], ids=["edges", "records"])
def test_no_attribute_of_a_handle_holds_what_it_protects(handle: Any) -> None:
    hidden = {name for name in vars(handle) if name.isidentifier() and not name.startswith("_Protected")}
    assert not [name for name in hidden if isinstance(vars(handle)[name], torch.Tensor | Adjacency)]


def test_unit_none_reads_the_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = gv.GCN(unit="none", epochs=1), list[Any]()
    fit = type(model.config).fit

    def recorded(self: Method, graph: Graph, session: Any) -> Any:
        seen.append(graph.adjacency)
        return fit(self, graph, session)

    monkeypatch.setattr(type(model.config), "fit", recorded)
    model.fit(grouped(nodes=30))
    assert type(seen[0]) is Adjacency

"""The door of local methods: a fit has handles of what clients randomize, and one collection opens them."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

import graphveil as gv
from estimators.conftest import grouped
from graphveil.core.edges.adjacency import ProtectedEdges
from graphveil.core.features import ProtectedRows
from graphveil.core.queries.neighbor_sums import NeighborSumData
from graphveil.core.view import map_records, unwrapped_fields
from graphveil.data import Graph
from graphveil.errors import BudgetError, ProtectedDataError
from graphveil.estimators.method import Method

LOCAL: dict[str, Any] = {"unit": "local-attributes", "eps_y": 2.0, "seed": 0}
BOTH: dict[str, Any] = {**LOCAL, "eps_x": 1.0, "epochs": 1}
HETERO: dict[str, Any] = {"unit": "edge-subset", "epsilon": 2.0, "eps_x": 2.0, "epochs": 1}
FITS: dict[str, tuple[str, dict[str, Any]]] = {
    "lpgnn": ("lpgnn", BOTH),
    "lpgnn, scaled": ("lpgnn", {**BOTH, "scaling": "row"}),
    "simgat": ("simgat", BOTH),
    "label-posterior": ("label-posterior", LOCAL),
    "auto": ("auto", {**LOCAL, "eps_x": 1.0}),
    "auto, labels": ("auto", {**LOCAL, "eps_x": 0.0}),
    "heterorr": ("heterorr", HETERO),
    "heterorr, paper": ("heterorr-paper", HETERO),
}
READS: dict[str, Any] = {
    "x": lambda view: view.x.sum(),
    "row": lambda view: view.x[0],
    "y": lambda view: view.y.sum(),
    "labeled": lambda view: view.labeled,
    "mask": lambda view: view.labeled_in("train"),
}
CASES = [(name, read) for name in FITS for read in READS if read in ("x", "row") or "heterorr" not in name]
PRIVATE = pytest.mark.parametrize(("name", "read"), CASES, ids=["-".join(case) for case in CASES])


def people(nodes: int = 30, seed: int = 0) -> Graph:
    """Return a graph that every local method can fit."""
    graph = grouped(nodes=nodes, seed=seed)
    listed = torch.ones(nodes, dtype=torch.bool)
    return graph.with_public(gv.perturb.sample_public_edges(graph.adjacency, 0.2, seed=0), listed)


@PRIVATE
def test_a_local_method_that_reads_records_is_stopped_before_anything_is_charged(
    name: str, read: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, given = FITS[name]
    graph, model = people(), gv.METHODS[method](**given)

    def leaking(self: Method, view: Graph, session: Any) -> Any:
        READS[read](view)
        raise AssertionError("the records were read")

    monkeypatch.setattr(type(model.config), "fit", leaking)
    with pytest.raises(ProtectedDataError, match="'local-attributes' protects node records"):
        model.fit(graph)
    assert gv.ledger_of(graph.edge_set).entries == ()


@PRIVATE
@pytest.mark.parametrize("part", ["check", "sizes_of", "notes"])
def test_no_check_plan_or_guarantee_of_a_local_method_reads_records(
    name: str, read: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, given = FITS[name]
    kind = type(gv.METHODS[method](**given).config)
    if part == "notes" and method.startswith("heterorr"):
        part = "guarantee"  # whose notes are those of the graph mechanism
    monkeypatch.setattr(kind, part, lambda self, *arguments: READS[read](arguments[-1]))
    with pytest.raises(ProtectedDataError, match="'local-attributes' protects node records"):
        gv.METHODS[method](**given).prepare(people())


def test_no_prediction_depends_on_exact_records(monkeypatch: pytest.MonkeyPatch) -> None:
    model = gv.LPGNN(**BOTH)
    shipped = type(model.config).fit

    def leaking(self: Method, view: Graph, session: Any) -> Any:
        return replace(shipped(self, view, session), proba=map_records(lambda x: x.softmax(dim=1), view.x))

    monkeypatch.setattr(type(model.config), "fit", leaking)
    with pytest.raises(ProtectedDataError, match="no query or prediction may depend on exact records"):
        model.fit(people())


def test_no_query_sums_exact_records_of_clients() -> None:
    view = gv.METHODS["heterorr"](**HETERO).config.view(people())
    with pytest.raises(ProtectedDataError, match="no query or prediction may depend on exact records"):
        unwrapped_fields(NeighborSumData(view.x))


def handles(view: Graph) -> set[str]:
    fields = ("x", "y", "adjacency")
    return {name for name in fields if isinstance(getattr(view, name), ProtectedRows | ProtectedEdges)}


@pytest.mark.parametrize(
    ("method", "given", "expected"),
    [
        pytest.param("lpgnn", BOTH, {"x", "y"}, id="both"),
        pytest.param("lpgnn-paper", BOTH, {"x", "y"}, id="paper"),
        pytest.param("lpgnn", {**BOTH, "eps_x": math.inf}, {"y"}, id="public features"),
        pytest.param("lpgnn", {**BOTH, "eps_y": math.inf}, {"x"}, id="public labels"),
        pytest.param("lpgnn", {**BOTH, "eps_x": math.inf, "eps_y": math.inf}, set(), id="public records"),
        pytest.param(
            "lpgnn", {**BOTH, "scaling": "columns", "data_dependent_bounds": True}, {"y"}, id="no guarantee"
        ),
        pytest.param("label-posterior", LOCAL, {"x", "y"}, id="labels"),
        pytest.param("label-posterior", {**LOCAL, "eps_y": math.inf}, {"x"}, id="exact labels"),
        pytest.param("lpgnn", {"unit": "none"}, set(), id="none"),
        pytest.param("heterorr", HETERO, {"x", "adjacency"}, id="private edges"),
        pytest.param("heterorr", {**HETERO, "eps_x": math.inf}, {"adjacency"}, id="private edges alone"),
        pytest.param("heterorr-paper", HETERO, {"x", "adjacency"}, id="paper edges"),
    ],
)
def test_what_a_fit_sees(method: str, given: dict[str, Any], expected: set[str]) -> None:
    graph = people()
    assert handles(gv.METHODS[method](**given).config.view(graph)) == expected
    assert handles(graph) == set()


@pytest.mark.parametrize("name", FITS)
def test_records_are_opened_after_the_collection_is_charged(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, given = FITS[name]
    graph, charged, shipped = people(), list[int](), ProtectedRows._unwrap

    def recorded(self: ProtectedRows) -> Any:
        charged.append(len(gv.ledger_of(graph.edge_set).entries))
        return shipped(self)

    monkeypatch.setattr(ProtectedRows, "_unwrap", recorded)
    gv.METHODS[method](**given).fit(graph)
    assert charged and min(charged) >= 1


def test_no_record_is_opened_if_the_ledger_rejects_the_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = people()
    gv.attach_ledger(graph.edge_set, gv.MemoryLedger(epsilon=0.1, delta=0.0))
    monkeypatch.setattr(ProtectedRows, "_unwrap", lambda self: pytest.fail("a record was opened"))
    with pytest.raises(BudgetError):
        gv.LPGNN(**BOTH).fit(graph)


def test_a_prediction_of_another_graph_receives_handles_of_records(monkeypatch: pytest.MonkeyPatch) -> None:
    model, other = gv.LPGNN(**BOTH).fit(people()), people(seed=1)

    def leaking(self: Any, view: Graph, *arguments: Any) -> Any:
        view.x.sum()
        raise AssertionError("the records were read")

    monkeypatch.setattr(type(model.fitted.trained), "collect", leaking)
    with pytest.raises(ProtectedDataError, match="'local-attributes' protects node records"):
        model.predict_proba(other)
    assert gv.ledger_of(other.edge_set).entries == ()

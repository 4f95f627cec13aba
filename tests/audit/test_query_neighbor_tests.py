"""Neighbor replay of plans: every query keeps its price under every unit, and faults show by kind."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

from graphveil.audit import (
    NeighborTestResult,
    neighbor_test_plan,
    neighbor_test_query,
    query_neighbor_tests,
)
from graphveil.audit.noise import LossLowerBound
from graphveil.audit.query_neighbor_tests import ChargedLoss, NeighborView, charged_loss, query_data
from graphveil.audit.small_graphs import Family, adjacency, family
from graphveil.privacy import (
    ByGroup,
    Composed,
    DirectedEdge,
    EdgeSubset,
    Gaussian,
    LocalAttributes,
    NodeBoundedDegree,
    NodeRecord,
    PoissonGaussian,
    PureDP,
    UndirectedEdge,
    Unit,
)
from graphveil.privacy.events import NonPrivate
from graphveil.release import (
    AccuracyCountQuery,
    BlockCountQuery,
    DPSGDQuery,
    EdgeAttentionQuery,
    EdgeCountQuery,
    EdgeResponseQuery,
    EdgeTotalQuery,
    GroupWeights,
    NeighborCountQuery,
    NeighborSumData,
    NeighborSumQuery,
    OutcomeCountQuery,
    OutEdgeSumData,
    OutEdgeSumQuery,
)
from graphveil.release.plan import hops
from graphveil.release.query import Query
from graphveil.release.weights import GivenWeight

Patch = pytest.MonkeyPatch
EDGE, STORED, SLOT = UndirectedEdge(), DirectedEdge(), EdgeSubset()
OWNER, REPLACED, PROMISE = NodeRecord(), NodeRecord(replace_one=True), NodeBoundedDegree(max_degree=2)
HOP = NeighborSumQuery(GroupWeights.target_weighted(), (1.0, 2.0, 0.9), 2)
STEPS = EdgeAttentionQuery(
    dim=2, classes=3, steps=9, noise_multiplier=2.0, sampling_rate=0.25, learning_rate=0.1
)
CASES: dict[str, tuple[tuple[Unit, ...], Any]] = {  # by name: units, and the queries under each
    "hops and counts": (
        (EDGE, STORED),
        lambda unit: (HOP, EdgeCountQuery("train/val/target", (True,) * 3, 3, (4.0,))),
    ),
    "given weights": ((EDGE, STORED), lambda unit: hops(1.0, 1, 2, unit, GivenWeight())),
    "one end counts": ((EDGE, STORED), lambda unit: (NeighborCountQuery("s", (0, 1, 2), 1.0, 3),)),
    "pushes": ((OWNER, REPLACED), lambda unit: (OutEdgeSumQuery(dim=3, sigma=2.0, levels=(0, 16, 81)),)),
    "promised": ((PROMISE, replace(PROMISE, replace_one=True)), lambda unit: hops(1.0, 2, 2, unit)),
    "records are counted": (
        (OWNER, REPLACED, PROMISE),
        lambda unit: (AccuracyCountQuery(candidates=3, sigma=2.0), OutcomeCountQuery(sigma=3.0)),
    ),
    "slots": ((EDGE, STORED, SLOT), lambda unit: (EdgeTotalQuery(0.5), EdgeResponseQuery(1.0))),
    "blocks": ((EDGE, SLOT), lambda unit: (BlockCountQuery(30.0),)),
    "steps on edges": ((EDGE, STORED), lambda unit: (STEPS,)),
    "steps of both ends": ((EDGE,), lambda unit: (replace(STEPS, oriented=False),)),
}
EVERY = [(name, unit) for name, (units, _) in CASES.items() for unit in units]


def said(unit: Unit) -> str:
    return f"{unit.name}{', replaced' * getattr(unit, 'replace_one', False)}"


def replayed(unit: Unit, *queries: Query, pairs: int = 80) -> NeighborTestResult:
    found = neighbor_test_plan(unit, queries, pairs=pairs)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "unit"), EVERY, ids=lambda value: value if isinstance(value, str) else said(value)
)
def test_a_query_keeps_its_price_under_a_unit(name: str, unit: Unit) -> None:
    found = replayed(unit, *CASES[name][1](unit))
    assert not found.broken, str(found)
    assert found.pairs == 80
    least = 0.3 if name.startswith("steps") else 0.8  # random networks seldom turn a gradient round
    assert least < max(found.attained.values()) <= 1 + 1e-6


@pytest.mark.parametrize(
    ("name", "unit"), EVERY[::3], ids=lambda value: value if isinstance(value, str) else said(value)
)
def test_a_query_that_is_priced_too_low_is_found(name: str, unit: Unit, monkeypatch: Patch) -> None:

    monkeypatch.setattr(
        query_neighbor_tests,
        "charged_loss",
        lambda event, groups: ChargedLoss(
            *(0.2 * part for part in vars(charged_loss(event, groups)).values())
        ),
    )
    assert replayed(unit, *CASES[name][1](unit)).kinds == ("change",)


def test_what_no_small_graph_is_about_is_not_replayed() -> None:
    assert neighbor_test_query(DPSGDQuery(parameters=3, steps=2, noise_multiplier=9.0), OWNER) is None
    assert family(LocalAttributes(), np.random.default_rng(0), (0,)) is None


class DividedByDegree(NeighborSumQuery):
    """Divides what every node sends by its degree, as a row-normalized sum would."""

    def answer(self, private: Any, data: Any, key: bytes) -> torch.Tensor:
        degree = torch.bincount(private._adjacency.indices, minlength=len(data.arrays[0])).clamp_min(1)
        return super().answer(private, replace(data, arrays=(data.arrays[0] / degree[:, None],)), key)


class WithoutIsolatedNodes(NeighborSumQuery):
    """Returns the rows of nodes with neighbors alone."""

    def answer(self, private: Any, data: Any, key: bytes) -> torch.Tensor:
        return super().answer(private, data, key)[private._adjacency.indptr.diff() > 0]


class QuieterWithEdges(NeighborSumQuery):
    """Adds noise that shrinks with the number of edges."""

    def answer(self, private: Any, data: Any, key: bytes) -> torch.Tensor:
        sampler, stored = data.public.sampler, len(private._adjacency.indices)
        public = replace(data.public, sampler=lambda sigma: sampler(sigma / (1 + stored)))
        return super().answer(private, replace(data, public=public), key)


@pytest.mark.parametrize(
    ("kind", "finding"),
    [(DividedByDegree, "reach"), (WithoutIsolatedNodes, "shape"), (QuieterWithEdges, "noise scale")],
)
def test_an_answer_that_follows_the_edges_is_found(kind: type[NeighborSumQuery], finding: str) -> None:
    (hop,) = hops(1.0, 1, 2) if kind is DividedByDegree else (HOP,)
    kinds = replayed(EDGE, kind(**vars(hop))).kinds
    assert finding in kinds if kind is DividedByDegree else kinds == (finding,)


def test_a_release_that_is_booked_below_a_pair_is_found(monkeypatch: Patch) -> None:

    monkeypatch.setattr(query_neighbor_tests, "total_mu", lambda event: 0.5)
    assert "privacy_cost" in replayed(EDGE, *hops(1.0, 1, 2)).kinds


def test_prices_are_those_of_the_groups() -> None:
    target_weighted = HOP.event(EDGE)
    assert charged_loss(target_weighted, (0, 2)).mu ** 2 == pytest.approx(target_weighted.mu_squared[0][2])
    assert charged_loss(ByGroup("p", (Gaussian(1.0), Composed(()))), (1,)) == ChargedLoss()
    together = Composed(
        (Gaussian(3.0), PoissonGaussian(1.0, 0.1, 16), PureDP(2.0), EdgeTotalQuery(1.0).event(EDGE))
    )
    assert charged_loss(together, (0,)) == ChargedLoss(5.0, 3.0)
    assert ChargedLoss(1.0).is_satisfied_by(LossLowerBound(mu_squared=1.0)) and not ChargedLoss(
        1.0
    ).is_satisfied_by(LossLowerBound(mu_squared=1.01))
    assert (
        ChargedLoss().is_satisfied_by(LossLowerBound())
        and not ChargedLoss().is_satisfied_by(LossLowerBound(pure=1e-9))
        and not ChargedLoss(9.0, 9.0).is_satisfied_by(LossLowerBound(certain=1.0))
    )
    with pytest.raises(NotImplementedError, match="NonPrivate"):
        charged_loss(NonPrivate(), (0,))


# -- neighbors ----------------------------------------------------------------------------------------------


def families(unit: Unit, count: int = 60) -> Iterator[Family]:
    for number in range(count):
        found = family(unit, np.random.default_rng([3, number]), (3, number))
        assert found is not None
        yield found


@pytest.mark.parametrize("unit", [EDGE, STORED, SLOT], ids=said)
def test_neighbors_differ_in_one_edge(unit: Unit) -> None:
    for found in families(unit):
        for other in found.neighbors:
            u, v = other.place
            stored = {(u, v)} if unit is STORED else {(u, v), (v, u)}
            assert set(other.graph.edges) ^ set(found.graph.edges) == stored
            assert (other.graph.x == found.graph.x).all()
            if unit is SLOT:
                assert found.public.listed[u] and found.public.listed[v]
                assert (min(u, v), max(u, v)) not in found.public.known
                assert found.public.known <= set(other.graph.edges)


@pytest.mark.parametrize("unit", [OWNER, REPLACED, PROMISE, replace(PROMISE, replace_one=True)], ids=said)
def test_neighbors_differ_in_one_record(unit: Any) -> None:
    kinds = set()
    for found in families(unit):
        for other in found.neighbors:
            (q,) = other.place
            rest = np.arange(found.graph.nodes) != q
            assert (other.graph.x[rest] == found.graph.x[rest]).all()
            changed = set(other.graph.edges) ^ set(found.graph.edges)
            assert all(q in pair if isinstance(unit, NodeBoundedDegree) else pair[0] == q for pair in changed)
            if isinstance(unit, NodeBoundedDegree):
                assert (
                    max(found.graph.a.sum(axis=0).max(), found.graph.a.sum(axis=1).max()) <= unit.max_degree
                )
            kinds.add((bool(other.graph.y[q] < 0), bool(changed), found.public.mutual))
    assert {(True, True, True), (True, True, False), (True, False, True)} <= kinds
    assert any(not nulled for nulled, _, _ in kinds) == unit.replace_one


def test_graphs_are_stored_as_they_are_however_edges_are_ordered() -> None:
    sizes = set()
    for unit in (EDGE, STORED, OWNER):
        for found in families(unit):
            graph = found.graph
            stored = adjacency(graph, found.public)
            target = np.repeat(np.arange(graph.nodes), stored.indptr.diff().numpy())
            assert set(zip(stored.indices.tolist(), target.tolist(), strict=True)) == set(graph.edges)
            assert stored.directed != found.public.mutual
            sizes.add((graph.nodes == 1, not graph.edges))
    assert sizes == {(True, True), (False, True), (False, False)}


def test_vectors_belong_to_records() -> None:
    push, seen = OutEdgeSumQuery(dim=3, sigma=2.0, bounds=(1.0, 1.2), partition="p"), set()
    for found in families(REPLACED, 20):
        groups = torch.arange(found.graph.nodes) % 2
        view = NeighborView(found.graph, found.public, groups, 0)
        before = query_data(push, view)
        assert isinstance(before, OutEdgeSumData)
        longest = before.vectors.norm(dim=1) / torch.tensor([1.0, 1.2])[groups]
        seen |= {bool(length > 1) for length in longest} | {"zero" for length in longest if not length}
        for other in found.neighbors:
            after = query_data(push, replace(view, graph=other.graph))
            assert isinstance(after, OutEdgeSumData)
            (q,) = other.place
            assert torch.equal(
                after.vectors[torch.arange(len(groups)) != q], before.vectors[torch.arange(len(groups)) != q]
            )
            if other.graph.y[q] < 0:
                assert not after.vectors[q].any()
    assert seen == {True, False, "zero"}


def test_edges_protected_vectors_are_the_same_on_both_sides() -> None:
    for found in families(EDGE, 10):
        view = NeighborView(found.graph, found.public, torch.zeros(found.graph.nodes), 0)
        for other in islice(found.neighbors, 3):
            asked = [
                query_data(hops(1.0, 1, 2)[0], replace(view, graph=graph))
                for graph in (found.graph, other.graph)
            ]
            assert all(isinstance(one, NeighborSumData) for one in asked)
            assert torch.equal(asked[0].vectors, asked[1].vectors)  # type: ignore[union-attr]

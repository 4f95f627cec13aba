"""Hops with weights by similarity: the shipped ones pass every check, and every seeded bug fails one."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from contracts import pairs
from contracts.pairs import CHECKS, WEIGHTS
from graphveil.audit.replayed.questions import keys_of
from graphveil.graph import Adjacency
from graphveil.graph.blocks import Edges
from graphveil.privacy import DirectedEdge, UndirectedEdge, Unit
from graphveil.release import NeighborSumQuery, Release
from graphveil.release.plan import hops
from graphveil.release.rows import neighbor_sums, private_sums
from graphveil.release.rows.neighbor_sums import NeighborSumData
from graphveil.weights import DotWeight, Landmarks, SigmoidCos, Similarity
from graphveil.weights import base as similarity
from graphveil.weights import tables as _pairs
from graphveil.weights.compiled import fused_sum as _fused

Patch = pytest.MonkeyPatch
BUGS: list[tuple[Callable[[Patch], None], Callable[[], None]]] = []


def named(weight: Similarity) -> str:
    return type(weight).__name__


def caught_by(check: Callable[[], None]) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def register(bug: Callable[[Patch], None]) -> Callable[[Patch], None]:
        BUGS.append((bug, check))
        return bug

    return register


def _slowly(patch: Patch) -> None:
    """Take the way without a compiler, which writes each edge's weight down."""
    patch.setattr(private_sums, "fused_sum", lambda table, pairs: None)


def _edge_weights(patch: Patch, broken: Callable[[Edges, Tensor], Tensor]) -> None:
    of = _pairs.Dots.of
    _slowly(patch)
    patch.setattr(_pairs.Dots, "of", lambda self, edges: broken(edges, of(self, edges)))


@caught_by(pairs.a_user_cannot_misstate_a_bound)
def a_weight_that_reaches_more_than_one_is_booked_with_one(patch: Patch) -> None:
    patch.setattr(DotWeight, "bound", property(lambda self: 1.0))
    patch.setattr(
        similarity,
        "levels_of",
        lambda values, bound: torch.from_numpy(np.rint(values * 32).astype(np.float32)),
    )
    patch.setattr(_pairs.Dots, "closed", True)  # a release checks the tables again


@caught_by(pairs.one_edge_changes_no_other_edges_contribution)
def the_bound_is_the_largest_weight_of_an_edge_that_is_there(patch: Patch) -> None:
    _edge_weights(
        patch, lambda edges, weight: (weight / weight.max() * 32).round() if len(weight) else weight
    )


@caught_by(pairs.weights_that_differ_by_direction_are_charged_for_both)
def asymmetric_weights_are_charged_once(patch: Patch) -> None:
    patch.setattr(UndirectedEdge, "pair_shift", lambda self, forward, backward: max(forward, backward))


@caught_by(pairs.one_edge_changes_no_other_edges_contribution)
def weights_are_divided_by_the_degree(patch: Patch) -> None:
    def by_degree(edges: Edges, weight: Tensor) -> Tensor:
        return (weight / edges.degrees.repeat_interleave(edges.degrees)).round()

    _edge_weights(patch, by_degree)


@caught_by(pairs.every_weight_costs_what_it_is_booked_with)
def keys_are_exact_sums_over_neighbours(patch: Patch) -> None:
    ask = Release.ask

    def from_the_edges(self: Release, data: NeighborSumData) -> Any:
        graph, keys = self._private._adjacency, data.keys
        if not isinstance(self._plan.queries[0].similarity, SigmoidCos):
            return ask(self, data)
        exact = torch.zeros(len(keys), keys.shape[1], dtype=keys.dtype)
        into = torch.arange(len(keys)).repeat_interleave(graph.indptr.diff())
        exact.index_add_(0, into, keys[graph.indices.long()])
        return ask(self, replace(data, keys=keys + exact))

    patch.setattr(Release, "ask", from_the_edges)


@caught_by(pairs.every_weight_costs_what_it_is_booked_with)
def weights_are_a_softmax_over_the_neighbours(patch: Patch) -> None:
    def softmax(edges: Edges, weight: Tensor) -> Tensor:
        row = torch.arange(len(edges)).repeat_interleave(edges.degrees)
        total = torch.zeros(len(edges)).index_add_(0, row, weight)
        return (32 * weight / total[row].clamp_min(1)).round()

    _edge_weights(patch, softmax)


@caught_by(pairs.sums_depend_on_nothing_but_the_edges)
def weights_depend_on_the_place_in_a_block(patch: Patch) -> None:
    _edge_weights(patch, lambda edges, weight: (weight - torch.arange(len(weight)) % 2).clamp_min(0))


@caught_by(pairs.sums_depend_on_nothing_but_the_edges)
def weights_stay_off_the_grid(patch: Patch) -> None:
    _edge_weights(patch, lambda edges, weight: weight * 0.987)


@caught_by(pairs.keys_are_bound_to_the_noise)
def a_hop_is_not_bound_to_its_keys(patch: Patch) -> None:
    commit = Release._commit
    patch.setattr(Release, "_commit", lambda self, data: commit(self, data[:1]))


@caught_by(pairs.a_hub_is_summed_exactly)
def long_rows_are_summed_in_float32(patch: Patch) -> None:
    _slowly(patch)  # a compiled pass adds in 32-bit integers
    patch.setattr(neighbor_sums, "FLOAT32_EXACT", 1 << 40)


@caught_by(pairs.one_edge_changes_no_other_edges_contribution)
def weights_are_those_of_the_next_edge(patch: Patch) -> None:
    _edge_weights(patch, lambda edges, weight: weight.roll(1))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_shipped_weights_pass(check: Callable[[], None]) -> None:
    check()


@pytest.mark.parametrize("check", CHECKS[2:], ids=lambda check: check.__name__)
def test_they_pass_without_a_compiler(check: Callable[[], None], monkeypatch: Patch) -> None:
    _slowly(monkeypatch)
    check()


_SUMMED = _fused.FusedSum.__call__


def _compiled(patch: Patch, broken: Callable[[_fused.FusedSum, Edges, Tensor], Tensor]) -> None:
    pytest.importorskip("llvmlite", minversion="0.45")
    patch.setattr(_fused.FusedSum, "__call__", broken)


@caught_by(pairs.one_edge_changes_no_other_edges_contribution)
def a_compiled_sum_is_divided_by_the_degree(patch: Patch) -> None:
    def by_degree(self: _fused.FusedSum, edges: Edges, sources: Tensor) -> Tensor:
        return _SUMMED(self, edges, sources) // edges.degrees.clamp_min(1)[:, None]

    _compiled(patch, by_degree)


@caught_by(pairs.sums_depend_on_nothing_but_the_edges)
def a_compiled_sum_takes_the_next_edge(patch: Patch) -> None:
    _compiled(patch, lambda self, edges, sources: _SUMMED(self, edges, sources.roll(1)))


def test_each_check_catches_a_bug() -> None:
    assert {check for _, check in BUGS} == set(CHECKS)


@pytest.mark.slow
@pytest.mark.parametrize("weight", WEIGHTS, ids=named)
def test_no_change_exceeds_its_price_in_many_graphs(weight: Similarity) -> None:
    for unit in pairs.UNITS:
        pairs.no_change_exceeds_its_price(weight, unit, pairs=6000, seed=17)


def moved_by_twins(weight: Similarity, unit: Unit) -> float:
    """Return how far an edge between two nodes that are alike moves a hop without noise."""
    alike = torch.tensor([[1.0, 0.0, 0.0]] * 2, dtype=torch.float64)
    network = (torch.full((2, 1), 4.0), torch.full((2, 1), 4.0), torch.tensor([9.0]), torch.tensor(0.0))
    keys = network if weight.reads == "attention" else alike
    graph = Adjacency.from_edges([0], [1], num_nodes=2, directed=isinstance(unit, DirectedEdge))
    vectors = torch.tensor([[1.0, 0.0]] * 2)
    return float(pairs.answer(weight, unit, graph, vectors, keys).norm())


@pytest.mark.parametrize("unit", pairs.UNITS, ids=lambda unit: unit.name)
@pytest.mark.parametrize("weight", WEIGHTS, ids=named)
def test_the_price_is_attained_by_two_nodes_that_are_alike(weight: Similarity, unit: Unit) -> None:
    (query,) = hops(1.0, 1, 2, unit, weight)
    assert moved_by_twins(weight, unit) == pytest.approx(query.sensitivity(unit), abs=1e-3)
    assert moved_by_twins(weight, unit) <= query.sensitivity(unit) * (1 + 1e-6)


@pytest.mark.parametrize("unit", pairs.UNITS, ids=lambda unit: unit.name)
@pytest.mark.parametrize("weight", WEIGHTS, ids=named)
def test_no_weight_could_be_charged_less(weight: Similarity, unit: Unit, monkeypatch: Patch) -> None:
    largest = NeighborSumQuery._largest_similarity
    monkeypatch.setattr(
        NeighborSumQuery, "_largest_similarity", lambda self, unit: 0.99 * largest(self, unit)
    )
    (query,) = hops(1.0, 1, 2, unit, weight)
    assert moved_by_twins(weight, unit) > query.sensitivity(unit)


@pytest.mark.parametrize("weight", [w for w in WEIGHTS if not isinstance(w, Landmarks)], ids=named)
def test_other_numbers_for_the_nodes_permute_the_answers(weight: Similarity) -> None:
    # Not so for landmarks, which are means of every so many rows.
    rng, nodes, unit = np.random.default_rng(8), 12, DirectedEdge()
    order = torch.from_numpy(rng.permutation(nodes))
    ends = torch.from_numpy(rng.integers(nodes, size=(50, 2)))
    keys, vectors = keys_of(weight, nodes, rng), torch.from_numpy(np.eye(2)[rng.integers(2, size=nodes)])

    def of_new_numbers(rows: Tensor) -> Tensor:
        return rows[order] if rows.ndim == 2 else rows

    moved = tuple(map(of_new_numbers, keys)) if isinstance(keys, tuple) else of_new_numbers(keys)
    before, after = (
        pairs.answer(weight, unit, pairs.directed(nodes, e.tolist()), rows, z)
        for e, rows, z in ((ends, vectors, keys), (order.argsort()[ends], vectors[order], moved))
    )
    assert torch.equal(after, before[order])


def test_sensitivities_are_golden() -> None:
    # guarantees.md, 9.5
    (query,) = hops(1.0, 1, 2, UndirectedEdge(), SigmoidCos())
    assert query.similarity is not None
    assert query.similarity.bound == pytest.approx(0.731058578630, abs=1e-12)
    assert query.sensitivity(UndirectedEdge()) == pytest.approx(1.03387295, abs=1e-8)
    assert query.sensitivity(DirectedEdge()) == pytest.approx(0.731058578630, abs=1e-12)
    assert query.sigma == (pytest.approx(0.731058578630 * math.sqrt(2)),)

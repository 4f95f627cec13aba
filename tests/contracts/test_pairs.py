"""Hops with weights by similarity: the shipped ones pass every check, and every seeded bug fails one."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from kernels import no_kernels
from torch import Tensor

from contracts import pairs
from contracts.pairs import CHECKS, WEIGHTS
from graphveil.audit.example_data import example_keys
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.plan import hops
from graphveil.core.queries.neighbor_sums import NeighborSumQuery
from graphveil.core.queries.weights import Similarity
from graphveil.core.unit import DirectedEdge, UndirectedEdge, Unit
from graphveil.papers.weights import Landmarks, SigmoidCos

Patch = pytest.MonkeyPatch


def named(weight: Similarity) -> str:
    return type(weight).__name__


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_shipped_weights_pass(check: Callable[[], None]) -> None:
    check()


@pytest.mark.parametrize("check", CHECKS[2:], ids=lambda check: check.__name__)
def test_they_pass_without_a_compiler(check: Callable[[], None]) -> None:
    with no_kernels():
        check()


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
    keys, vectors = example_keys(weight, nodes, rng), torch.from_numpy(np.eye(2)[rng.integers(2, size=nodes)])

    def of_new_numbers(rows: Tensor) -> Tensor:
        return rows[order] if rows.ndim == 2 else rows

    moved = tuple(map(of_new_numbers, keys)) if isinstance(keys, tuple) else of_new_numbers(keys)
    before, after = (
        pairs.answer(weight, unit, pairs.directed(nodes, e.tolist()), rows, z)
        for e, rows, z in ((ends, vectors, keys), (order.argsort()[ends], vectors[order], moved))
    )
    assert torch.equal(after, before[order])


def test_sensitivities_are_golden() -> None:
    # the specification, guarantees 9.5
    (query,) = hops(1.0, 1, 2, UndirectedEdge(), SigmoidCos())
    assert query.similarity is not None
    assert query.similarity.bound == pytest.approx(0.731058578630, abs=1e-12)
    assert query.sensitivity(UndirectedEdge()) == pytest.approx(1.03387295, abs=1e-8)
    assert query.sensitivity(DirectedEdge()) == pytest.approx(0.731058578630, abs=1e-12)
    assert query.sigma == (pytest.approx(0.731058578630 * math.sqrt(2)),)

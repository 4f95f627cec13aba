"""Out-edge sums of class codes: the rows, which vectors count, and the privacy cost."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from graphveil.audit.query_neighbor_tests import zero_noise_plan
from graphveil.core.accounting.accountant import total_mu
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.ledger import MemoryLedger
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.out_edge_sums import (
    OutEdgeCodeSumQuery,
    OutEdgeSumData,
    OutEdgeSumQuery,
    simplex_codes,
)
from graphveil.core.release import Release
from graphveil.core.unit import NodeRecord, UndirectedEdge
from graphveil.errors import ConfigError, UnitError

REPLACED = NodeRecord(replace_one=True)


def rows(query: OutEdgeSumQuery, graph: Adjacency, vectors: Tensor, groups: Tensor | None = None) -> Tensor:
    """Return the rows of one query without noise."""
    release = Release.open(zero_noise_plan(NodeRecord(), (query,)), graph, groups, budget=MemoryLedger())
    return release.answer(OutEdgeSumData(vectors)).double()


def star(degree: int) -> Adjacency:
    """Return a graph in which node 0 lists the other nodes."""
    return Adjacency.from_edges([0] * degree, range(1, degree + 1), num_nodes=degree + 1, directed=True)


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_rows_are_those_of_an_out_edge_sum_up_to_the_steps_for_truncation(classes: int) -> None:
    rng = np.random.default_rng(classes)
    source, target = rng.integers(40, size=(2, 200))
    graph = Adjacency.from_edges(source, target, num_nodes=40, directed=True)
    mixed = torch.from_numpy(rng.dirichlet(np.full(classes, 0.3), size=40)) @ simplex_codes(classes)
    fields = {"dim": classes - 1, "sigma": 1.0, "grid_bits": 18}
    sums, codes = (rows(query(**fields), graph, mixed) for query in (OutEdgeSumQuery, OutEdgeCodeSumQuery))
    assert codes.numpy() == pytest.approx(sums.numpy(), abs=200 * classes**1.5 * 2.0**-17)
    assert not torch.equal(codes, sums)


@pytest.mark.parametrize("classes", [2, 3, 6])
@pytest.mark.parametrize("bound", [1.0, 1.118033988749895])
def test_codes_of_exactly_their_bound_always_count(classes: int, bound: float) -> None:
    query = OutEdgeCodeSumQuery(dim=classes - 1, sigma=1.0, bounds=(bound,), grid_bits=16)
    middle = -simplex_codes(classes)[:1] / (classes - 1)  # the mean of all codes but one
    for vector in torch.cat([simplex_codes(classes), middle]):
        for degree in (1, 2, 3, 17, 64):
            vectors = torch.cat([bound * vector[None], torch.zeros(degree, classes - 1, dtype=torch.float64)])
            found = rows(query, star(degree), vectors)[1:]
            assert found.numpy() == pytest.approx(
                (vectors[:1] / math.sqrt(degree)).expand(degree, -1).numpy(), abs=classes**1.5 * 2.0**-14
            )


@pytest.mark.parametrize("classes", [3, 6])
def test_a_vector_outside_the_hull_counts_for_nothing(classes: int) -> None:
    opposite = -simplex_codes(classes)[0]  # of norm one, but opposite to a code
    for vector in (opposite, opposite / (classes - 1) * 1.01, torch.full_like(opposite, math.nan)):
        vectors = torch.stack([vector, torch.zeros_like(vector)])
        assert not rows(OutEdgeCodeSumQuery(dim=classes - 1, sigma=1.0), star(1), vectors).any()


@pytest.mark.parametrize("classes", [2, 3, 6, 40])
def test_replaced_codes_are_charged_for_their_distance(classes: int) -> None:
    query = OutEdgeCodeSumQuery(
        dim=classes - 1, sigma=4.0, partition="p", bounds=(1.0, 0.5, 0.0), grid_bits=16
    )
    distance = float((simplex_codes(classes)[0] - simplex_codes(classes)[1]).norm())
    for unit, change in ((NodeRecord(), 1.0), (REPLACED, distance)):
        found = [event.mu for event in query.event(unit).events]  # type: ignore[union-attr]
        assert found == pytest.approx([change / 4, change / 8, 0.0])
        assert query.sensitivity(unit) == pytest.approx(change)
    plain = OutEdgeSumQuery(dim=classes - 1, sigma=4.0)
    assert total_mu(query.event(REPLACED)) <= total_mu(plain.event(REPLACED)) == 0.5


def test_groups_that_send_nothing_count_for_nothing() -> None:
    query = OutEdgeCodeSumQuery(dim=2, sigma=1.0, partition="p", bounds=(1.0, 0.0))
    vectors, groups = simplex_codes(3)[:2], torch.tensor([1, 0])
    assert not rows(query, star(1), vectors, groups).any()


def test_two_records_with_one_list_attain_the_bound() -> None:
    query, first = OutEdgeCodeSumQuery(dim=2, sigma=1.0, grid_bits=18), simplex_codes(3)
    one, other = (
        rows(query, star(9), torch.cat([first[k : k + 1], torch.zeros(9, 2, dtype=torch.float64)]))
        for k in (0, 1)
    )
    share = float((one - other).norm()) / query.sensitivity(REPLACED)
    assert 0.999 < share <= 1


@pytest.mark.parametrize(("dim", "bits"), [(40, 8), (5, 4)])
def test_a_grid_too_coarse_for_the_classes_is_rejected(dim: int, bits: int) -> None:
    OutEdgeSumQuery(dim=dim, sigma=100.0, grid_bits=bits)
    with pytest.raises(ConfigError, match=f"codes of {dim + 1} classes. Use a larger value"):
        OutEdgeCodeSumQuery(dim=dim, sigma=100.0, grid_bits=bits)


def test_code_sums_support_node_record_only() -> None:
    with pytest.raises(UnitError, match="NeighborSumQuery"):
        ReleasePlan(UndirectedEdge(), (OutEdgeCodeSumQuery(dim=2, sigma=4.0),), delta=1e-5)

import math

import pytest
import torch

from contracts import replay
from contracts.replay import EQUAL, FEW_LABELS, METHODS, MU, ONE, STEERED, UNITS, Method
from graphveil.audit.query_neighbor_tests import RecordingZeroNoise, zero_noise_plan
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.ledger import MemoryLedger
from graphveil.core.queries.neighbor_sums import GroupWeights, NeighborSumData, NeighborSumQuery
from graphveil.core.query import GRID_BITS
from graphveil.core.release import Release
from graphveil.core.unit import DirectedEdge, UndirectedEdge, Unit

FINE = 20  # grid bits: a step is below 1e-6
EVERY = [pytest.param(method, unit, id=f"{method}, {unit.name}") for method in METHODS for unit in UNITS]
PAIR_TYPES = {f"{g}-{h}" for g in range(3) for h in range(g, 3)}


@pytest.mark.parametrize(("method", "unit"), EVERY)
def test_no_change_exceeds_its_price_and_some_attain_it(method: Method, unit: Unit) -> None:
    attained = replay.of_method(method, unit, seed=3)
    # A vector loses at most one step in each of its two coordinates.
    types = {"0-0"} if method is ONE else PAIR_TYPES if isinstance(unit, UndirectedEdge) else {"0-2", "1-2"}
    assert types <= set(attained)
    assert min(attained[name] for name in types) > 1 - math.sqrt(2) * 2 ** (1 - GRID_BITS), attained


@pytest.mark.slow
@pytest.mark.parametrize(("method", "unit"), EVERY)
def test_no_change_exceeds_its_price_in_ten_thousand_pairs(method: Method, unit: Unit) -> None:
    replay.of_method(method, unit, pairs=10_000, seed=17)


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_on_a_fine_grid_the_price_is_attained_by_every_type_of_pair(method: Method) -> None:
    attained = replay.of_method(method, UndirectedEdge(), seed=3, bits=FINE)
    assert set(attained) == ({"0-0"} if method is ONE else PAIR_TYPES)
    assert min(attained.values()) > 1 - 1e-5, attained


@pytest.mark.parametrize("method", [ONE, EQUAL, STEERED], ids=str)
def test_every_type_of_pair_costs_the_whole_budget_and_no_more(method: Method) -> None:
    # classcode_edge.md, golden checks: 1.000000 for Tr-Tr, Tr-V, Tr-T, V-V, V-T, and T-T with hard codes.
    queries = method.queries(UndirectedEdge(), MU, GRID_BITS)
    tables = [query.event(UndirectedEdge()).mu_squared for query in queries]
    size = len(tables[0])
    for g in range(size):
        for h in range(size):
            assert math.sqrt(sum(table[g][h] for table in tables)) == pytest.approx(MU, rel=1e-12)


def test_few_labels_charge_no_pair_more_than_the_budget() -> None:
    # L-L 1, T-T 1, and T-L (1 - b^2) + (1 - rho) b^2 < 1.
    tables = [
        query.event(UndirectedEdge()).mu_squared for query in FEW_LABELS.queries(UndirectedEdge(), MU, 10)
    ]
    costs = {(g, h): sum(table[g][h] for table in tables) / MU**2 for g in range(3) for h in range(3)}
    back = 0.3**2
    for (g, h), cost in costs.items():
        mixed = (g == 2) != (h == 2)
        assert cost == pytest.approx((1 - back) + 0.95 * back if mixed else 1.0)


def test_every_row_of_every_hop_is_given_noise() -> None:
    sampler = RecordingZeroNoise.with_new_list()
    queries = ONE.queries(UndirectedEdge(), MU, GRID_BITS)
    star = Adjacency.from_edges([0, 0], [1, 2], num_nodes=5, directed=False)  # two nodes without edges
    release = Release.open(zero_noise_plan(UndirectedEdge(), queries, sampler), star, budget=MemoryLedger())
    for query in queries:
        release.answer(NeighborSumData(torch.ones(5, 2) / 2))
        ((sigma, rows, dim),) = sampler.drawn
        assert (sigma, rows, dim) == (query.sigma[0] * query.unit_steps, (0, 1, 2, 3, 4), 2)
        sampler.drawn.clear()


@pytest.mark.parametrize(
    ("unit", "weight", "moved"),
    [
        (DirectedEdge(), 1.0, 1.0),
        (UndirectedEdge(), 1.0, 1.41421356),
        (UndirectedEdge(), 0.731058578630, 1.03387295),
    ],
)
def test_one_toggled_edge_moves_the_release_by_the_golden_length(
    unit: Unit, weight: float, moved: float
) -> None:
    # rows (1,0), (0,1), (0.6,0.8); the edge 1 -> 2, or the friendship {1, 2}.
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], dtype=torch.float64)
    query = NeighborSumQuery(GroupWeights("all", ((weight,),)), (1.0,), 2, grid_bits=FINE)
    answers = [
        Release.open(
            zero_noise_plan(unit, (query,)),
            Adjacency.from_edges(*ends, num_nodes=3, directed=isinstance(unit, DirectedEdge)),
            budget=MemoryLedger(),
        ).answer(NeighborSumData(rows))
        for ends in (([0], [1]), ([0, 1], [1, 2]))
    ]
    change = float((answers[1].double() - answers[0].double()).norm())
    assert change == pytest.approx(moved, abs=3e-6)
    assert change <= query.sensitivity(unit) == pytest.approx(moved, abs=1e-8)

import math

import pytest
import torch

from contracts import replay
from contracts.graphs import KINDS, Drawn
from contracts.replay import EQUAL, FEW_LABELS, METHODS, MU, ONE, STEERED, UNITS, Case, Method
from graphveil.privacy import DirectedEdge, UndirectedEdge, Unit
from graphveil.release import GroupWeights, NeighborSumQuery
from graphveil.release.query import GRID_BITS

FINE = 20  # grid bits: a step is below 1e-6
EVERY = [pytest.param(method, unit, id=f"{method}, {unit.name}") for method in METHODS for unit in UNITS]
PAIR_TYPES = ("Tr-Tr", "Tr-V", "Tr-T", "V-V", "V-T", "T-T")


@pytest.mark.parametrize(("method", "unit"), EVERY)
def test_no_change_exceeds_its_price(method: Method, unit: Unit) -> None:
    replay.no_change_exceeds_its_price(method, unit, pairs=200)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "unit"), EVERY)
def test_no_change_exceeds_its_price_in_ten_thousand_pairs(method: Method, unit: Unit) -> None:
    replay.no_change_exceeds_its_price(method, unit, pairs=10_000, seed=17)


@pytest.mark.parametrize("bits", [GRID_BITS, FINE])
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_the_price_is_attained_by_some_change_of_every_type_of_pair(method: Method, bits: int) -> None:
    attained = replay.no_change_exceeds_its_price(method, UndirectedEdge(), pairs=250, seed=3, bits=bits)
    # A vector loses at most one step in each of its two coordinates.
    least = 1 - math.sqrt(2) * 2 ** (1 - bits) if bits == GRID_BITS else 1 - 1e-5
    assert set(attained) == set(PAIR_TYPES)
    assert min(attained.values()) > least, attained


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


def test_a_directed_edge_into_a_target_costs_the_whole_budget() -> None:
    attained = replay.no_change_exceeds_its_price(STEERED, DirectedEdge(), pairs=250, seed=4, bits=FINE)
    assert attained["Tr-T"] > 1 - 1e-5
    assert attained["V-T"] > 1 - 1e-5


@pytest.mark.parametrize(("method", "unit"), EVERY)
def test_neighbours_draw_the_same_noise(method: Method, unit: Unit) -> None:
    replay.neighbours_draw_the_same_noise(method, unit)


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
    # guarantees.md, 9.5: rows (1,0), (0,1), (0.6,0.8); the edge 1 -> 2, or the friendship {1, 2}.
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], dtype=torch.float64)
    query = NeighborSumQuery(GroupWeights("all", ((weight,),)), (1.0,), 2, grid_bits=FINE)
    case = Case(unit, (query,), torch.zeros(3, dtype=torch.int64), torch.zeros(3), (rows,))
    graph = Drawn(3, ((0, 1),), directed=isinstance(unit, DirectedEdge))
    change = case.changed(case.answers(graph), case.answers(graph.toggled((1, 2))))
    assert change == pytest.approx(moved, abs=3e-6)
    assert change <= query.sensitivity(unit) == pytest.approx(moved, abs=1e-8)


def test_every_kind_of_graph_is_replayed() -> None:
    seen = set()
    for _, graph, pairs in replay.cases(ONE, UndirectedEdge(), pairs=200, seed=0, bits=GRID_BITS):
        seen.add((graph.nodes == 1, not graph.edges, len(graph.edges) > len(set(graph.edges))))
        assert len(list(pairs)) == graph.nodes * (graph.nodes - 1) // 2
    assert {(True, True, False), (False, True, False), (False, False, True)} <= seen
    assert len(KINDS) == 9

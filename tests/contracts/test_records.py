"""Records and promised nodes: neighbor replay, and what one mutual edge moves."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from contracts import replay
from contracts.replay import BOUNDS, OWNER, REPLACED, pushes
from graphveil.audit import neighbor_test_mutual_edges
from graphveil.audit.query_neighbor_tests import zero_noise_plan
from graphveil.audit.small_graphs import PublicGraphFacts, adjacency, draw_graph
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.ledger import MemoryLedger
from graphveil.core.plan import hops
from graphveil.core.private_edges import PrivateEdges
from graphveil.core.queries.out_edge_sums import (
    OutEdgeSumData,
    OutEdgeSumQuery,
    out_edge_table,
    out_neighbor_sums,
)
from graphveil.core.release import Release
from graphveil.core.unit import NodeBoundedDegree, NodeUnit

UNITS = pytest.mark.parametrize("unit", [OWNER, REPLACED], ids=["nulled", "replaced"])
FINE = 22  # grid bits: a step is below 1e-6


@pytest.mark.parametrize("budget", [1, 4])
@UNITS
def test_no_record_exceeds_its_price_and_some_attain_it(unit: NodeUnit, budget: int) -> None:
    attained = replay.no_change_exceeds_its_price(pushes(budget), unit, pairs=150)
    assert attained["2"] == 0.0  # the silent group
    assert min(attained["0"], attained["1"]) > 1 - 1e-3, attained


@pytest.mark.slow
@UNITS
def test_no_record_of_thousands_exceeds_its_price(unit: NodeUnit) -> None:
    for budget in (1, 2, 3, 4):
        replay.no_change_exceeds_its_price(pushes(budget), unit, pairs=5000, seed=23)


@pytest.mark.parametrize("replace_one", [False, True], ids=["nulled", "replaced"])
def test_no_node_of_bounded_degree_exceeds_its_cost_and_some_attain_it(replace_one: bool) -> None:
    unit = NodeBoundedDegree(max_degree=3, replace_one=replace_one)
    attained = replay.no_change_exceeds_its_price(hops(0.5, 1, 3, unit), unit)
    assert attained["0"] > 1 - 2e-3


def test_no_mutual_edge_exceeds_its_bound_and_some_attain_it() -> None:
    attained = [replay.nothing_breaks(neighbor_test_mutual_edges(query, pairs=150)) for query in pushes()]
    assert max(attained[0].values()) > 1 - 1e-3


def test_every_contribution_is_within_its_cap_in_whole_numbers() -> None:
    rng = np.random.default_rng(7)
    for number in range(30):
        graph = draw_graph(rng, directed=True)
        lists = [[v for u, v in graph.edges if u == node] for node in range(graph.nodes)]
        groups = torch.from_numpy(rng.integers(len(BOUNDS), size=graph.nodes))
        edges = PrivateEdges(adjacency(graph, PublicGraphFacts(graph.nodes, (number,), mutual=False)))
        for query in pushes(int(rng.integers(1, 5))):
            squared = np.array(query.levels)[rng.integers(len(query.levels), size=graph.nodes)]
            listed = np.array([sum(int(squared[v]) for v in own) for own in lists])
            assert (out_neighbor_sums(edges, squared) == listed).all()
            x = torch.nn.functional.normalize(torch.from_numpy(rng.normal(size=(graph.nodes, query.dim))))
            longer = [0.4, 1.0, BOUNDS[1], 1 + 1e-9, 40.0, 1e200, math.nan]
            scaled = x * torch.from_numpy(rng.choice(longer, size=(len(x), 1)))
            table = out_edge_table(scaled, groups, listed, query).double().numpy()
            for u, row in enumerate(table):
                length = sum(int(t) ** 2 for t in row) * max(int(listed[u]), 16 * query.out_degree_bound)
                assert length <= query.caps[int(groups[u])] <= 16 * (BOUNDS[1] * query.unit_steps) ** 2


# -- numbers of the specification ----------------------------------------------------------------------------


def moved_by(before: Adjacency, after: Adjacency, vectors: Tensor, **fields: object) -> float:
    query = OutEdgeSumQuery(dim=vectors.shape[1], sigma=1.0, grid_bits=FINE, **fields)  # type: ignore[arg-type]
    plan = zero_noise_plan(OWNER, (query,))
    answers = [
        Release.open(plan, graph, budget=MemoryLedger()).answer(OutEdgeSumData(vectors)).double()
        for graph in (before, after)
    ]
    return float((answers[0] - answers[1]).norm())


def star(degree: int) -> Adjacency:
    return Adjacency.from_edges([0] * degree, range(1, degree + 1), num_nodes=18, directed=True)


def test_a_source_of_sixteen_edges_and_budget_four() -> None:
    vectors = torch.zeros(18, 2, dtype=torch.float64)
    vectors[0, 0] = 1.0
    query = OutEdgeSumQuery(dim=2, sigma=1.0, out_degree_bound=4, grid_bits=FINE)
    rows = Release.open(zero_noise_plan(OWNER, (query,)), star(16), budget=MemoryLedger()).answer(
        OutEdgeSumData(vectors)
    )
    assert rows[1:17, 0].tolist() == [0.25] * 16
    assert moved_by(star(16), star(0), vectors, out_degree_bound=4) == pytest.approx(1.0, abs=1e-9)
    assert moved_by(star(16), star(15), vectors, out_degree_bound=4) == pytest.approx(0.504017 / 2, abs=1e-5)


# -- one mutual edge ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "level", "bound"),
    [
        (1, 16, math.sqrt(2)),
        (4, 16, math.sqrt(1 / 2)),
        (20, 16, math.sqrt(1 / 10)),
        (4, 32, 1.0),
        (1, 64, 2**0.5),
    ],
)
def test_equal_weights_move_by_root_two_over_the_budget(budget: int, level: int, bound: float) -> None:
    query = OutEdgeSumQuery(dim=2, sigma=1.0, out_degree_bound=budget, levels=(level,), grid_bits=FINE)
    assert query.edge_shift(18) == pytest.approx(bound, rel=1e-4)
    assert OutEdgeSumQuery(
        dim=5, sigma=1.0, out_degree_bound=budget, levels=(level,), bounds=(1.0, 1.5)
    ).edge_shift(100_000) == pytest.approx(1.5 * bound, rel=5e-2)
    pair = Adjacency.from_edges([0, 1], [1, 0], num_nodes=18, directed=True)
    vectors = torch.zeros(18, 2, dtype=torch.float64)
    vectors[:2] = torch.eye(2)
    moved = moved_by(pair, star(0), vectors, out_degree_bound=budget, levels=(level,))
    assert moved == pytest.approx(bound, rel=1e-5)


@pytest.mark.parametrize("heavy", [16, 64, 1024, 65536])
def test_ends_that_share_a_list_and_weigh_much_align(heavy: int) -> None:
    # The rescaled rows of both ends point the same way: with a heavy pair the move passes 2, up to sqrt(6).
    squared = (16, heavy)
    shared = [(0, 2), (1, 2)]
    lists = [shared, [*shared, (0, 1), (1, 0)]]
    graphs = [Adjacency.from_edges(*zip(*pairs, strict=True), num_nodes=3, directed=True) for pairs in lists]
    query = OutEdgeSumQuery(dim=1, sigma=1.0, levels=squared, grid_bits=FINE)
    plan, vectors = zero_noise_plan(OWNER, (query,)), torch.ones(3, 1, dtype=torch.float64)
    index = torch.tensor([1, 1, 0])
    before, after = (
        Release.open(plan, graph, budget=MemoryLedger()).answer(OutEdgeSumData(vectors, index)).double()
        for graph in graphs
    )
    h = heavy / 16
    r = math.sqrt(1 / (1 + h))
    moved = float((before - after).norm())
    assert moved == pytest.approx(math.sqrt(2 * (1 - r) * (3 - r)), rel=1e-5)
    assert moved <= query.edge_shift(3)
    if h > 2:  # below, two ends without other friends move further
        assert query.edge_shift(3) == pytest.approx(moved, rel=1e-4)
    assert query.edge_shift(3) < math.sqrt(6)


def test_the_bound_covers_what_the_grid_adds_to_lists_just_above_the_budget() -> None:
    rng = np.random.default_rng(3)
    budget, dim, nodes = 100, 40, 140
    for degree in (99, 100, 101, 105, 130):
        own = [(u, v) for u in (0, 1) for v in range(2, 2 + degree)]
        graphs = [
            Adjacency.from_edges(*zip(*pairs, strict=True), num_nodes=nodes, directed=True)
            for pairs in (own, [*own, (0, 1), (1, 0)])
        ]
        vectors = torch.nn.functional.normalize(torch.from_numpy(rng.normal(size=(1, dim)))).repeat(nodes, 1)
        query = OutEdgeSumQuery(dim=dim, sigma=1.0, out_degree_bound=budget)
        plan = zero_noise_plan(OWNER, (query,))
        before, after = (
            Release.open(plan, graph, budget=MemoryLedger())
            .answer(OutEdgeSumData(vectors * (1 - 1e-6)))
            .double()
            for graph in graphs
        )
        assert float((before - after).norm()) <= query.edge_shift(nodes)
        assert query.edge_shift(nodes) == pytest.approx(math.sqrt(2 / budget), rel=2e-2)

"""Out-edge sums: the rows, the privacy cost, and rejected parameters."""

import math

import numpy as np
import pytest
import torch
from contracts.checks import Broken
from contracts.inside import reachable
from scipy.special import ndtr
from torch import Tensor

from graphveil.audit.query_neighbor_tests import zero_noise_plan
from graphveil.core.accounting.accountant import total_mu
from graphveil.core.accounting.gaussian import delta_of, mu_of
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.ledger import MemoryLedger
from graphveil.core.plan import ReleasePlan, hops
from graphveil.core.private_edges import PrivateEdges
from graphveil.core.queries import out_edge_sums
from graphveil.core.queries.edge_counts import EdgeCountQuery
from graphveil.core.queries.neighbor_sums import GroupWeights, NeighborSumData, NeighborSumQuery
from graphveil.core.queries.out_edge_sums import OutEdgeSumData, OutEdgeSumQuery
from graphveil.core.query import Query
from graphveil.core.release import Release
from graphveil.core.unit import DirectedEdge, NodeBoundedDegree, NodeRecord, NoUnit, UndirectedEdge, Unit
from graphveil.errors import ConfigError, ReleaseError, UnitError

CODES = torch.tensor([[1.0, 0.0], [-0.5, 0.8660254], [-0.5, -0.8660254]], dtype=torch.float64)
STEP = 2.0**-14


def pushed(
    graph: Adjacency,
    vectors: Tensor,
    chosen: Tensor | None = None,
    groups: Tensor | None = None,
    **fields: object,
) -> Tensor:
    """Return the rows of one query without noise."""
    query = OutEdgeSumQuery(dim=vectors.shape[1], sigma=1.0, **fields)  # type: ignore[arg-type]
    plan = zero_noise_plan(NodeRecord(), (query,))
    return (
        Release.open(plan, graph, groups, budget=MemoryLedger())
        .answer(OutEdgeSumData(vectors, chosen))
        .double()
    )


def oracle(
    graph: Adjacency,
    vectors: Tensor,
    squared: list[float],
    out_degree_bound: int = 1,
) -> np.ndarray:
    """Return the specification's formula in plain loops."""
    source, target = graph.edge_index().tolist()
    rows = np.zeros(vectors.shape)
    for u in range(graph.num_nodes):
        own = [v for s, v in zip(source, target, strict=True) if s == u]
        total = max(sum(squared[v] for v in own), out_degree_bound)
        for v in own:
            rows[v] += math.sqrt(squared[v] / total) * vectors[u].numpy()
    return rows


def drawn(nodes: int, edges: int, *, directed: bool, seed: int = 0) -> Adjacency:
    rng = np.random.default_rng(seed)
    source, target = rng.integers(nodes, size=(2, edges))
    return Adjacency.from_edges(source, target, num_nodes=nodes, directed=directed)


# -- what is summed ----------------------------------------------------------------------------------------


def test_hand_example() -> None:
    # classcode_node.md, section 7: C = 3, D = 1, lists 0 -> {2, 3}, 1 -> {2}, y0 = 0, y1 = 1.
    graph = Adjacency.from_edges([0, 0, 1], [2, 3, 2], num_nodes=4, directed=True)
    rows = pushed(graph, CODES[[0, 1, 2, 2]] / (1 + 1e-6))
    expected = [[0, 0], [0, 0], [0.2071068, 0.8660254], [0.7071068, 0]]
    assert rows.numpy() == pytest.approx(np.array(expected), abs=3 * STEP)


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("out_degree_bound", [1, 3, 50])
def test_out_edge_sums_follow_the_formula_on_the_grid(directed: bool, out_degree_bound: int) -> None:
    graph = drawn(40, 300, directed=directed)
    rng = np.random.default_rng(1)
    vectors = torch.nn.functional.normalize(torch.from_numpy(rng.normal(size=(40, 3)))) * (1 - 1e-6)
    levels, choice = (0, 4, 16, 49), torch.from_numpy(rng.integers(4, size=40))
    for some, index in ((levels, choice), ((16,), None), ((9,), None)):
        squared = (np.array(some) / 16)[np.zeros(40, int) if index is None else index].tolist()
        rows = pushed(graph, vectors, index, levels=some, out_degree_bound=out_degree_bound)
        exact = oracle(graph, vectors, squared, out_degree_bound)
        assert rows.numpy() == pytest.approx(exact, abs=40 * 2 * STEP)


def test_out_edge_sums_run_along_out_edges() -> None:
    # 0 sends to three nodes and 1 is sent to by three.
    graph = Adjacency.from_edges([0, 0, 0, 2, 3], [1, 2, 3, 1, 1], num_nodes=4, directed=True)
    rows = pushed(graph, torch.eye(4, dtype=torch.float64))
    third = 1 / math.sqrt(3)
    expected = [[0, 0, 0, 0], [third, 0, 1, 1], [third, 0, 0, 0], [third, 0, 0, 0]]
    assert rows.numpy() == pytest.approx(np.array(expected), abs=STEP)


def test_rows_of_level_zero_take_no_share_of_a_list() -> None:
    graph = Adjacency.from_edges([0, 0, 1], [2, 3, 3], num_nodes=4, directed=True)
    rows = pushed(graph, torch.ones(4, 1), torch.tensor([0, 0, 1, 0]), levels=(0, 16))
    assert rows.flatten().tolist() == [0, 0, 1, 0]


def test_a_vector_over_its_groups_bound_counts_for_nothing() -> None:
    graph = Adjacency.from_edges([0, 1, 2, 3, 4, 5, 6], [7] * 7, num_nodes=8, directed=True)
    vectors = torch.tensor([1.0, 1.001, 0.5, 0.501, float("nan"), float("inf"), 1e300, 0.0])[:, None].double()
    groups = torch.tensor([0, 0, 1, 1, 0, 0, 0, 2])
    rows = pushed(graph, vectors, groups=groups, bounds=(1.0, 0.5, 0.0))
    assert rows.flatten().tolist() == [0.0] * 7 + [1.5]


def test_a_vector_of_exactly_its_bound_always_counts() -> None:
    for bound in (1.0, 1.118033988749895, 1 / 3):
        for degree in range(1, 70):
            graph = Adjacency.from_edges([0] * degree, range(1, degree + 1), num_nodes=80, directed=True)
            rows = pushed(graph, torch.full((80, 1), bound, dtype=torch.float64), bounds=(bound,))
            assert rows[1] == pytest.approx(bound / math.sqrt(degree), abs=2 * STEP)


def test_hubs_are_summed_exactly() -> None:
    for degree in (1023, 1024, 1025, 5000):
        nodes = degree + 2
        graph = Adjacency.from_edges(np.arange(2, nodes), np.full(degree, 1), num_nodes=nodes, directed=True)
        vectors = torch.rand(nodes, 3, generator=torch.Generator().manual_seed(degree)).double() / 2
        integers = np.trunc(vectors.numpy()[2:] / STEP).astype(np.int64).sum(axis=0)
        assert pushed(graph, vectors)[1].tolist() == (integers * STEP).astype(np.float32).tolist()


def test_no_reachable_object_contains_a_degree_a_contribution_or_a_sum() -> None:
    graph = drawn(200, 1500, directed=True)
    vectors = torch.nn.functional.normalize(torch.rand(200, 3, dtype=torch.float64)) * (1 - 1e-6)
    query = OutEdgeSumQuery(dim=3, sigma=2.0)
    sums = pushed(graph, vectors).numpy()
    listed = out_edge_sums.out_neighbor_sums(PrivateEdges(graph), np.array([16]))
    table = out_edge_sums.out_edge_table(vectors, None, listed, query).numpy().copy()
    release = Release.open(
        ReleasePlan(NodeRecord(), (query, query), delta=1e-5), graph, budget=MemoryLedger()
    )
    answer = release.answer(OutEdgeSumData(vectors)).double().numpy()
    secrets = [
        sums,
        sums / STEP,
        answer - sums,
        table,
        table * STEP,
        listed,
        listed / 16,
        1 / np.sqrt(listed / 16),
    ]
    held = reachable(release)
    assert graph.indices.numpy().shape in {array.shape for array in held}  # the walk gets there
    for array in held:
        for secret in secrets:
            assert array.shape != secret.shape or not np.allclose(array, secret, rtol=0.01)
    with pytest.raises(MemoryError):
        broken = Release.open(
            ReleasePlan(NodeRecord(), (query,), delta=1e-5), graph, budget=MemoryLedger(), backend=Broken()
        )
        broken.answer(OutEdgeSumData(vectors))
    assert not any(array.any() for array in reachable(broken) if array.shape == table.shape)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 8.0, 16.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-7, 1e-9])
def test_exact_noise_is_as_good_as_continuous_for_a_billion_coordinates(epsilon: float, delta: float) -> None:
    # proofs/sensitivity.md, where one record may change every coordinate of every row. Q is a rounded
    # normal of variance s^2 - 1/12; f = log Q/P is at most b up to 12 s and has variance v, so its sum over m
    # coordinates stays below a but for a chance of 1e-25 (Bernstein). Both fall with s^4: f is about
    # -He_4(n / s) / (2880 s^4), and is evaluated where float64 can.
    mu, m, chance = mu_of(epsilon, delta / 1.001), 1e9, 1e-25
    s, fine = 128.0, max(128.0, 64 / mu)  # the least noise that a query and a plan accept
    n = np.arange(0, 12 * s)
    narrow = math.sqrt(s**2 - 1 / 12)
    q = ndtr(-(n - 0.5) / narrow) - ndtr(-(n + 0.5) / narrow)
    p = np.exp(-0.5 * np.square(n / s))
    p /= 2 * p[::-1].sum() - p[0]
    f = np.log(q / p)
    b, v = np.abs(f).max(), float(np.where(n > 0, 2.0, 1.0) * p @ np.square(f))
    assert b < 8 / s**4
    assert v == pytest.approx(24 / (2880 * s**4) ** 2, rel=1e-3)
    bits = math.log(2 / chance)
    a = m * v + bits * b / 3 + math.sqrt((bits * b / 3) ** 2 + 2 * bits * m * v)
    a *= (s / fine) ** 4
    closest = delta_of(epsilon - 2 * a, mu / math.sqrt(1 - 1 / (12 * fine**2)))
    rest = m * 2 * ndtr(-12.0) + chance
    assert math.exp(a) * closest + (1 + math.exp(epsilon)) * rest <= delta


# -- privacy cost ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("replace_one", "change"), [(False, 1.0), (True, 2.0)])
def test_a_record_is_charged_for_the_bound_of_its_group(replace_one: bool, change: float) -> None:
    unit = NodeRecord(replace_one=replace_one)
    query = OutEdgeSumQuery(dim=2, sigma=4.0, partition="train/val/target", bounds=(1.0, 0.5, 1.25))
    event = query.event(unit)
    assert [part.mu for part in event.events] == [change / 4, change / 8, change * 1.25 / 4]  # type: ignore[union-attr]
    assert query.sensitivity(unit) == change * 1.25
    plan = ReleasePlan(unit, (query,) * 4, delta=1e-5)
    assert plan.mu == pytest.approx(2 * change * 1.25 / 4)
    assert total_mu(OutEdgeSumQuery(dim=2, sigma=4.0).event(unit)) == change / 4


@pytest.mark.parametrize(
    "unit", [UndirectedEdge(), DirectedEdge(), NodeBoundedDegree(max_degree=3), NoUnit()]
)
def test_out_edge_sums_support_node_record_only(unit: Unit) -> None:
    with pytest.raises(UnitError, match="NeighborSumQuery"):
        ReleasePlan(unit, (OutEdgeSumQuery(dim=2, sigma=4.0),), delta=1e-5)


@pytest.mark.parametrize(
    "query", [hops(1.0, 1, 2)[0], EdgeCountQuery("all", (True,), 3, (4.0,))], ids=["hop", "cells"]
)
def test_edge_queries_are_rejected_for_node_record(query: Query) -> None:
    with pytest.raises(UnitError, match=r"(have|has) no bound|no guarantee"):
        ReleasePlan(NodeRecord(), (query,), delta=1e-5)


def test_a_degree_assumption_bounds_hops_but_not_edge_counts() -> None:
    query = NeighborSumQuery(GroupWeights.unit_weights(), (6.0,), 2)
    assert ReleasePlan(NodeBoundedDegree(max_degree=9), (query,), delta=1e-5).mu == pytest.approx(0.5)
    assert ReleasePlan(
        NodeBoundedDegree(max_degree=9, replace_one=True), (query,), delta=1e-5
    ).mu == pytest.approx(1)
    with pytest.raises(UnitError, match=r"(have|has) no bound|no guarantee"):
        ReleasePlan(NodeBoundedDegree(max_degree=9), (EdgeCountQuery("all", (True,), 3, (4.0,)),), delta=1e-5)


# -- rejections --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"dim": 0},
        {"sigma": 0.0},
        {"out_degree_bound": 0},
        {"levels": ()},
        {"levels": (0, 0)},
        {"levels": (-1,)},
        {"levels": (1 << 17,)},
        {"bounds": ()},
        {"bounds": (0.0,)},
        {"bounds": (-1.0, 1.0)},
        {"bounds": (math.inf,)},
        {"grid_bits": 25},
        {"sigma": 0.005},
        {"levels": (65536,), "grid_bits": 12, "sigma": 1.0},
    ],
)
def test_a_field_outside_its_range_is_rejected(fields: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        OutEdgeSumQuery(**({"dim": 2, "sigma": 1.0} | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "levels",
    [None, torch.tensor([0, 1]), torch.tensor([0, 1, 2]), torch.tensor([-1, 0, 1]), torch.ones(3)],
)
def test_rejects_levels_that_do_not_match_and_accepts_a_correction(levels: Tensor | None) -> None:
    graph = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=True)
    plan = ReleasePlan(NodeRecord(), (OutEdgeSumQuery(dim=1, sigma=1.0, levels=(0, 16)),), delta=1e-5)
    release = Release.open(plan, graph, budget=MemoryLedger())
    with pytest.raises(ReleaseError, match="from 0 to 1"):
        release.answer(OutEdgeSumData(torch.ones(3, 1), levels))
    assert release.answer(OutEdgeSumData(torch.ones(3, 1), torch.tensor([1, 1, 1]))).shape == (3, 1)


def test_rejects_data_of_another_query_or_shape() -> None:
    graph = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=True)
    plan = ReleasePlan(NodeRecord(), (OutEdgeSumQuery(dim=1, sigma=1.0),), delta=1e-5)
    with pytest.raises(ReleaseError, match="answer it with OutEdgeSumData"):
        Release.open(plan, graph, budget=MemoryLedger()).answer(NeighborSumData(torch.ones(3, 1)))
    with pytest.raises(ReleaseError, match=r"shape \(3, 1\)"):
        Release.open(plan, graph, budget=MemoryLedger()).answer(OutEdgeSumData(torch.ones(3, 2)))


@pytest.mark.parametrize("directed", [True, False])
def test_a_violated_degree_assumption_is_rejected_uncharged_without_a_number(directed: bool) -> None:
    star = ([0, 0, 0, 1], [1, 2, 3, 4])
    for source, target in (star, star[::-1]) if directed else (star,):
        graph = Adjacency.from_edges(source, target, num_nodes=5, directed=directed)
        for most, kept in ((2, False), (3, True)):
            budget = MemoryLedger()
            plan = ReleasePlan(NodeBoundedDegree(max_degree=most), hops(1.0, 1, 2), delta=1e-3)
            if kept:
                Release.open(plan, graph, budget=budget)
                continue
            with pytest.raises(UnitError, match="assumption") as caught:
                Release.open(plan, graph, budget=budget)
            assert not budget.entries
            text = str(caught.value).replace(f"max_degree={most}", "")  # the assumption, which is public
            assert not any(letter.isdigit() for letter in text)

"""Unit ``node``: the three queries on thousands of random and adversarial graphs, and what a release rejects.

Each pair has a graph and the same graph without one node, or with another one in its place. Pairs are
components of one large graph, so a single release without noise answers hundreds of them. A release then has
more hubs than its degree bound, but the bound of each pair needs the h-index of its own component only.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from graphveil.audit.query_neighbor_tests import ZeroNoise, with_degree_bound, zero_noise_plan
from graphveil.core.accounting.accountant import total_mu
from graphveil.core.accounting.gaussian import epsilon_of
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.events import without_failures
from graphveil.core.features import ProtectedRows, rows
from graphveil.core.keys import ReleaseKey
from graphveil.core.ledger import MemoryLedger
from graphveil.core.noise.discrete_gaussian import DiscreteGaussian
from graphveil.core.noise.random import RowStream
from graphveil.core.plan import ReleasePlan
from graphveil.core.private_edges import PrivateEdges
from graphveil.core.queries.projected_sums import (
    ROUNDING,
    ClassMomentsData,
    ClassMomentsQuery,
    DegreeHIndexData,
    DegreeHIndexQuery,
    ProjectedSumData,
    ProjectedSumQuery,
    fixed_point_bits,
    fixed_point_weights,
    h_index,
)
from graphveil.core.queries.record_counts import (
    AccuracyCountData,
    AccuracyCountQuery,
    FeatureHistogramData,
    FeatureHistogramQuery,
    OutcomeCountData,
    OutcomeCountQuery,
    RecordHistogramData,
    RecordHistogramQuery,
)
from graphveil.core.queries.row_sums import grid_vectors
from graphveil.core.query import PublicInputs
from graphveil.core.release import Release
from graphveil.core.unit import Node, NodeBoundedDegree, NodeRecord, UndirectedEdge
from graphveil.core.view import map_records, own_rows, protected_view
from graphveil.data import Graph
from graphveil.errors import ConfigError, ProtectedDataError, ReleaseError, UnitError

Rng = np.random.Generator
Floats = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.bool_]  # entry (u, v): u lists v

KEY = bytes(range(32))
NODE, OTHER = Node(), Node(replace_one=True)
BOUNDS = (1, 2, 3, 5, 8, 13)
FAST, ALL = 1, 18  # releases, of PAIRS pairs for each bound
PAIRS = 100
DEGREES = DegreeHIndexQuery(sigma=2.0, failure=1e-6)


@dataclass(frozen=True)
class Pair:
    """Two graphs and the vectors that their nodes send; they differ in node 0."""

    before: Matrix
    after: Matrix
    sent: Floats
    sent_after: Floats


# -- graphs of a given degree bound --------------------------------------------------------------------------


def any_graph(rng: Rng, bound: int) -> Matrix:
    nodes = int(rng.integers(2, 12))
    return np.asarray(rng.random((nodes, nodes)) < rng.random())


def star(rng: Rng, bound: int) -> Matrix:
    nodes = int(rng.integers(2, 6 * bound + 3))
    lists = np.zeros((nodes, nodes), dtype=bool)
    center = int(rng.integers(2))
    lists[center] = lists[:, center] = True
    return lists


def clique(rng: Rng, bound: int) -> Matrix:
    """A clique whose degrees are D, in which some nodes have a further neighbor and degree D + 1."""
    nodes, above = bound + 1, int(rng.integers(bound + 1))
    lists = np.zeros((nodes + above, nodes + above), dtype=bool)
    lists[:nodes, :nodes] = True
    lists[np.arange(above), nodes + np.arange(above)] = True
    return lists | lists.T


def hubs(rng: Rng, bound: int) -> Matrix:
    """A node that is adjacent to D hubs, which share all or most of their other neighbors."""
    number = bound if rng.random() < 0.7 else int(rng.integers(1, bound + 1))
    others = int(rng.choice([bound, bound + 1, 2 * bound, 3 * bound]))
    first = 1 + number
    lists = np.zeros((first + others, first + others), dtype=bool)
    lists[1:first, 0] = True
    lists[1:first, first:] = rng.random((number, others)) < rng.choice([1.0, 1.0, 0.9])
    listed = rng.choice([0, bound, rng.integers(others + 1)])
    lists[0, rng.permutation(others)[:listed] + first] = True
    return lists | lists.T if rng.random() < 0.5 else lists


def hub(rng: Rng, bound: int) -> Matrix:
    """The same graph, but the node that changes is one of the hubs."""
    lists = hubs(rng, bound)
    order = np.r_[1, 0, np.arange(2, len(lists))]
    return lists[np.ix_(order, order)]


def balanced_hubs(rng: Rng, bound: int) -> Matrix:
    """D hubs list a node, and D others do not; the sums of both kinds cancel out if they send opposites."""
    first, last = 1 + 2 * bound, 1 + 3 * bound
    lists = np.zeros((last, last), dtype=bool)
    lists[:first, first:] = True
    lists[1 : 1 + bound, 0] = True
    return lists


KINDS = (any_graph, star, clique, hubs, hubs, hub, balanced_hubs)


def without(lists: Matrix) -> Matrix:
    found = lists.copy()
    found[0] = found[:, 0] = False
    return found


def sent_by(rng: Rng, lists: Matrix, dim: int, bound: int) -> Floats:
    """Return vectors: equal ones of all hubs and the opposite of node 0, or any, at most of norm one."""
    vectors = rng.normal(size=(len(lists), dim))
    if rng.random() < 0.6:
        vectors[:] = np.eye(dim)[rng.integers(dim)]
        vectors[0] *= rng.choice([-1.0, -1.0, 1.0])
        vectors[1 + bound : 1 + 2 * bound] *= -1
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True) * (1 + 1e-12)
    return np.asarray(vectors * rng.choice([1.0, rng.random()]))


def pair_of(rng: Rng, bound: int, dim: int, *, replaced: bool) -> Pair:
    """Draw graphs until the h-index of both is at most the degree bound."""
    while True:
        lists = KINDS[rng.integers(len(KINDS))](rng, bound)
        np.fill_diagonal(lists, False)
        if rng.random() < 0.3:
            lists = lists | lists.T
        sent = sent_by(rng, lists, dim, bound)
        after, sent_after = without(lists), sent.copy()
        sent_after[0] = 0.0
        if replaced:
            after, sent_after[0] = other_node(rng, lists, bound), -sent[0]
        if max(h_index(one.sum(axis=1)) for one in (lists, after)) <= bound:
            return Pair(lists, after, sent, sent_after)


def other_node(rng: Rng, lists: Matrix, bound: int) -> Matrix:
    """Return the graph with other edges of node 0: to the nodes that it was not adjacent to, or to any."""
    found = without(lists)
    column = rng.random(len(lists)) < rng.random()
    if rng.random() < 0.6:
        column = np.zeros(len(lists), dtype=bool)
        column[1 + bound : 1 + 2 * bound] = True
    found[:, 0] = column
    found[0] = lists[0] if rng.random() < 0.6 else column
    found[0, 0] = False
    return found


# -- their answers without noise -----------------------------------------------------------------------------


def answered(query: ProjectedSumQuery, bound: int, graphs: list[Matrix], sent: list[Floats]) -> Floats:
    """Return the released integers of all graphs, in units of one, from one release."""
    starts = np.cumsum([0, *map(len, graphs)])
    ends = [np.stack(np.nonzero(lists)) + start for lists, start in zip(graphs, starts[:-1], strict=True)]
    source, target = np.concatenate(ends, axis=1)
    nodes = int(starts[-1])
    edges = Adjacency.from_edges(source, target, num_nodes=nodes, directed=True)
    data = ProjectedSumData(torch.from_numpy(np.concatenate(sent)))
    given = with_degree_bound(query, bound)
    prepared = given.prepare(data, PublicInputs(nodes, None, ZeroNoise))
    steps = given.answer(PrivateEdges(edges), prepared, KEY).double().numpy() * query.unit_steps
    assert (steps == np.rint(steps)).all()
    return np.asarray(steps / query.unit_steps)


def changes(query: ProjectedSumQuery, bound: int, pairs: list[Pair]) -> tuple[Floats, Floats]:
    """Return by how much the rows of all other nodes move, and that of node 0, for each pair."""
    before = answered(query, bound, [pair.before for pair in pairs], [pair.sent for pair in pairs])
    after = answered(query, bound, [pair.after for pair in pairs], [pair.sent_after for pair in pairs])
    squares = np.square(before - after).sum(axis=1)
    starts = np.cumsum([0, *(len(pair.before) for pair in pairs)])[:-1]
    own = squares[starts]
    return np.sqrt(np.add.reduceat(squares, starts) - own), np.sqrt(own)


def of_grid(bound: int, dim: int, radius: float) -> ProjectedSumQuery:
    nodes = PAIRS * (6 * bound + 12)
    return ProjectedSumQuery(
        dim=dim, sigma=1.0, radius=radius, grid_bits=ProjectedSumQuery.grid_for(nodes, dim)
    )


SIZES = pytest.mark.parametrize("releases", [FAST, pytest.param(ALL, marks=pytest.mark.slow)])
UNITS = pytest.mark.parametrize("unit", [NODE, OTHER], ids=["nulled", "replaced"])


@UNITS
@SIZES
def test_no_graph_moves_projected_sums_by_more_than_the_bound(unit: Any, releases: int) -> None:
    rng, shares = np.random.default_rng(releases), list[float]()
    largest_others = 0.0
    for _ in range(releases):
        for bound in BOUNDS:
            dim, radius = int(rng.integers(1, 4)), float(rng.choice([0.5, 1.0, 2.0, 5.0]))
            query = of_grid(bound, dim, radius)
            pairs = [pair_of(rng, bound, dim, replaced=unit.replace_one) for _ in range(PAIRS)]
            others, own = changes(query, bound, pairs)
            assert others.max() <= unit.change * (1.5 + 2 * ROUNDING)
            assert own.max() <= unit.change * (radius + ROUNDING)
            shares += (np.hypot(others, own) / query.sensitivity(unit)).tolist()
            largest_others = max(largest_others, float(others.max()))
    assert max(shares) <= 1
    assert len(shares) == releases * len(BOUNDS) * PAIRS
    assert max(shares) > 0.9 and largest_others > 1.4 * unit.change  # so the graphs are bad enough


def test_rounded_weights_of_many_hubs_stay_within_half() -> None:
    """Products that are truncated would move by one step in each entry of each hub, beyond the bound."""
    hubs, recipients, dim = 200, 3000, 4
    first = 1 + hubs
    lists = np.zeros((first + recipients, first + recipients), dtype=bool)
    lists[1:first, 0] = lists[1:first, first:] = True
    query = ProjectedSumQuery(
        dim=dim, sigma=1.0, radius=100.0, grid_bits=ProjectedSumQuery.grid_for(len(lists), dim)
    )
    # Messages on their own grid whose products with both weights are on different sides of a step.
    messages = np.arange(2**13) / 2**14
    with_node, without_it = (
        np.floor(messages * query.unit_steps / degree**0.5) for degree in (recipients + 1, recipients)
    )
    sent = np.zeros((len(lists), dim))
    sent[1:first] = messages[without_it > with_node].max()
    (others,), _ = changes(query, hubs, [Pair(lists, without(lists), sent, sent)])
    assert others <= hubs * (1 - (recipients / (recipients + 1)) ** 0.5) + 2 * ROUNDING < 0.5


@pytest.mark.parametrize("pairs", [1, 50, 1000])
def test_a_hub_of_separate_pairs_moves_no_message_of_a_pair(pairs: int) -> None:
    """The graph on which sampled edges have no guarantee (``docs/privacy/proofs/rejected.md``)."""
    nodes = 1 + 2 * pairs
    lists = np.zeros((nodes, nodes), dtype=bool)
    first = np.arange(1, nodes, 2)
    lists[first, first + 1] = lists[first + 1, first] = True
    lists[0, 1:] = lists[1:, 0] = True
    sent = np.zeros((nodes, 1))
    sent[0], sent[1:] = -1.0, 1.0
    query = ProjectedSumQuery(dim=1, sigma=1.0)
    assert (h_index(lists.sum(axis=1)), h_index(without(lists).sum(axis=1))) == (2, 1)
    (others,), (own,) = changes(query, 2, [Pair(lists, without(lists), sent, without_sent(sent))])
    assert others <= 1 + 2 * ROUNDING and own <= query.radius + ROUNDING


def without_sent(sent: Floats) -> Floats:
    found = sent.copy()
    found[0] = 0.0
    return found


def test_weights_and_messages_are_whole_numbers_and_their_products_are_exact() -> None:
    query, bound = of_grid(3, 2, 50.0), 3
    pair = pair_of(np.random.default_rng(5), bound, 2, replaced=False)
    weight_bits, message_bits = fixed_point_bits(len(pair.before), bound)
    messages = grid_vectors(torch.from_numpy(pair.sent), message_bits, np.int64)
    weights = fixed_point_weights(np.maximum(pair.before.sum(axis=1), bound), weight_bits)
    sums = pair.before.T.astype(np.int64) @ (messages * weights[:, None])
    expected = np.trunc(sums / 2.0 ** (weight_bits + message_bits) * query.unit_steps)
    rows_found = answered(query, bound, [pair.before], [pair.sent]) * query.unit_steps
    assert rows_found.tolist() == expected.tolist()


@pytest.mark.parametrize("nodes", [2, 1000, 1_000_000, 10_000_000])
def test_sums_fit_in_64_bits_for_any_public_sizes(nodes: int) -> None:
    for bound in {1, 2, min(5000, nodes), nodes}:
        weight_bits, message_bits = fixed_point_bits(nodes, bound)
        (weight,) = fixed_point_weights(np.array([bound]), weight_bits).tolist()
        assert nodes * weight * 2**message_bits < 2**63
        assert bound * nodes**0.5 * 2.0**-weight_bits <= ROUNDING
        assert message_bits >= 7


# -- people who know their own lists -------------------------------------------------------------------------


def coalition(rng: Rng, bound: int, dim: int) -> Pair:
    """A node whose edges with a coalition stay; what else it lists, and who else lists it, is removed."""
    while True:
        pair = pair_of(rng, bound, dim, replaced=False)
        lists, sent = pair.before.copy(), pair.sent.copy()
        members = rng.random(len(lists)) < rng.choice([0.2, 0.5, 0.8])
        if rng.random() < 0.6 and len(lists) > 2 * bound:  # neighbors of both kinds that send opposites
            members[:] = False
            members[1 + bound : 1 + 2 * bound] = True
            lists[1 : 1 + 2 * bound, 0] = True
        after, sent_after = lists.copy(), sent.copy()
        after[0], after[:, 0] = lists[0] & members, lists[:, 0] & members
        sent_after[0] = rng.choice([-1.0, 0.0]) * sent[0]  # also null records send what all may know
        if h_index(lists.sum(axis=1)) <= bound:
            return Pair(lists, after, sent, sent_after)


@SIZES
def test_no_coalition_sees_more_than_its_bound(releases: int) -> None:
    rng, shares, rows_moved = np.random.default_rng(7), list[float](), 0.0
    for _ in range(releases):
        for bound in BOUNDS:
            radius = float(rng.choice([0.5, 1.0, 3.0]))
            query = of_grid(bound, 2, radius)
            others, own = changes(query, bound, [coalition(rng, bound, 2) for _ in range(PAIRS)])
            assert others.max() <= 2.5 + 2 * ROUNDING and own.max() <= 2 * radius + ROUNDING
            shares += (np.hypot(others, own) / query.coalition_sensitivity(NODE)).tolist()
            rows_moved = max(rows_moved, float(own.max()) / radius)
    assert max(shares) <= 1
    assert rows_moved > 1.9  # more than the radius


def test_a_coalition_costs_the_own_row_twice() -> None:
    """Two neighbors in the coalition, and four others with the opposite vector, around a node."""
    lists = np.zeros((7, 7), dtype=bool)
    lists[0, 1:] = lists[1:, 0] = True
    after = lists.copy()
    after[0, 3:] = after[3:, 0] = False
    sent = np.zeros((7, 1))
    sent[1:3], sent[3:] = 1.0, -1.0
    query = ProjectedSumQuery(dim=1, sigma=1.0, radius=1.0)
    _, (own,) = changes(query, 1, [Pair(lists, after, sent, sent)])
    assert own == pytest.approx(2 * query.radius, abs=1e-3)
    assert own > query.sensitivity(NODE) - 0.6
    assert query.coalition_sensitivity(NODE) == pytest.approx(np.hypot(2.51, 2 * query.radius + ROUNDING))
    assert query.coalition_sensitivity(OTHER) == 2 * query.coalition_sensitivity(NODE)


# -- the h-index and the degree bound ------------------------------------------------------------------------


def released_h_index(lists: Matrix) -> float:
    edges = Adjacency.from_edges(*np.nonzero(lists), num_nodes=len(lists), directed=True)
    prepared = DEGREES.prepare(DegreeHIndexData(), PublicInputs(len(lists), None, ZeroNoise))
    (found,) = DEGREES.answer(PrivateEdges(edges), prepared, KEY).tolist()
    return float(found)


@SIZES
def test_no_node_moves_the_h_index_by_more_than_one(releases: int) -> None:
    rng, moved = np.random.default_rng(releases), set[tuple[bool, float]]()
    for number in range(releases * len(BOUNDS) * PAIRS):
        replaced, bound = bool(number % 2), BOUNDS[number % len(BOUNDS)]
        pair = pair_of(rng, bound, 1, replaced=replaced)
        before, after = released_h_index(pair.before), released_h_index(pair.after)
        assert before == h_index(pair.before.sum(axis=1))
        moved.add((replaced, before - after))
    assert moved == {(False, 0), (False, 1), (True, -1), (True, 0), (True, 1)}


@pytest.mark.parametrize("failure", [0.02, 0.2])
def test_the_degree_bound_is_below_the_h_index_of_a_neighbor_as_often_as_stated(failure: float) -> None:
    query, exact, draws = DegreeHIndexQuery(sigma=3.0, failure=failure), 40, 4000
    steps = query.unit_steps
    noise = DiscreteGaussian(query.sigma * steps).draw(RowStream(KEY), np.arange(draws), 1)[:, 0] / steps
    bounds = [query.bound(torch.tensor([exact + one]), 1000) for one in noise.tolist()]
    too_small = sum(bound < exact + 1 for bound in bounds)
    assert too_small <= draws * failure + 4 * (draws * failure) ** 0.5
    assert too_small > draws * failure / 8  # so that the bound is not much larger than it must be
    assert query.bound(torch.tensor([-50.0]), 1000) == 1
    assert query.bound(torch.tensor([5000.0]), 1000) == 1000


def test_the_h_index_costs_its_noise_and_its_failure() -> None:
    for unit in (NODE, OTHER):  # two graphs that differ in one node have h-indices within one
        plan = ReleasePlan(unit, (DEGREES,), delta=1e-5)
        assert total_mu(without_failures(plan.event)) == 0.5
        left = plan.delta - plan.slack - DEGREES.failure
        assert plan.epsilon == pytest.approx(epsilon_of(0.5, left), rel=1e-9)
        assert plan.epsilon > epsilon_of(0.5, plan.delta - plan.slack)


# -- moments -------------------------------------------------------------------------------------------------


@UNITS
@SIZES
@pytest.mark.parametrize("share", [0.01, 0.1, 0.6])
def test_no_record_moves_moments_by_more_than_the_bound(unit: Any, releases: int, share: float) -> None:
    """Each pair has three classes of its own, so one release answers all of them."""
    rng, count, dim = np.random.default_rng(3), 300, 3
    largest = 0.0
    for _ in range(2 * releases):
        query = ClassMomentsQuery(
            classes=3 * count, dim=dim, radius=float(rng.choice([0.3, 2.0])), sigma=1.0, count_share=share
        )
        lengths = query.radius * rng.choice([0.0, 0.5, 1.0, 1.0, 1.0, 1.5, 1e6], size=(2, count, 1))
        vectors = rng.normal(size=(2, count, dim))
        vectors[1] = np.where(rng.random((count, 1)) < 0.5, -vectors[0], vectors[1])
        vectors *= lengths / np.linalg.norm(vectors, axis=2, keepdims=True)
        vectors[0, 0], vectors[0, 1], vectors[0, 2] = np.nan, np.inf, 1e300
        own = 3 * np.arange(count)
        classes = np.stack([own, own + rng.integers(2, size=count)])
        if not unit.replace_one:
            classes[1] = -1
        first, second = (moments(query, *one) for one in zip(vectors, classes, strict=True))
        moved = np.sqrt(np.square(first - second).reshape(count, -1).sum(axis=1))
        assert moved.max() <= query.sensitivity(unit)
        largest = max(largest, float(moved.max()))
    attained = 2 * max((1 - share) ** 0.5, 0.5**0.5) if unit.replace_one else 1.0
    assert largest == pytest.approx(attained, abs=0.01)


def moments(query: ClassMomentsQuery, vectors: Floats, classes: npt.NDArray[np.int64]) -> Floats:
    """Return the released moments in units of the noise."""
    release = Release.open(zero_noise_plan(NODE, (query,)), EMPTY, budget=MemoryLedger())
    answer = release.answer(ClassMomentsData(torch.from_numpy(vectors), torch.from_numpy(classes)))
    return np.asarray((answer * query.factors()).numpy())


def test_moments_are_sums_and_numbers_of_records_by_class() -> None:
    query = ClassMomentsQuery(classes=2, dim=2, radius=5.0, sigma=1.0)
    rows_given = np.array([[3.0, 4.0], [6.0, 8.0], [1.0, 0.0], [9.0, 9.0]])
    answer = torch.from_numpy(moments(query, rows_given, np.array([0, 0, 1, -1]))) / query.factors()
    expected = torch.tensor([[6.0, 8.0, 2.0], [1.0, 0.0, 1.0]]).double()
    assert torch.allclose(answer, expected, atol=1e-4)


# -- rejected ------------------------------------------------------------------------------------------------

EMPTY = Adjacency.from_edges([], [], num_nodes=4, directed=True)
SUMS = ProjectedSumQuery(dim=2, sigma=3.0)


@pytest.mark.parametrize(
    ("queries", "alternatives"),
    [((SUMS,), ()), ((SUMS, DEGREES), ()), ((SUMS, SUMS), (1, 1)), ((DEGREES, SUMS, SUMS), None)],
)
def test_a_sum_without_a_degree_bound_before_it_is_rejected_before_the_charge(
    queries: tuple[Any, ...], alternatives: tuple[int, ...] | None
) -> None:
    ledger = MemoryLedger()
    plan = ReleasePlan(NODE, queries, delta=1e-5, alternatives=alternatives or ())
    if alternatives is None:
        Release.open(plan, EMPTY, budget=ledger)
        return
    with pytest.raises(ConfigError, match="Start the plan with a DegreeHIndexQuery"):
        Release.open(plan, EMPTY, budget=ledger)
    assert not ledger.entries


def test_the_degree_bound_of_a_release_is_that_of_its_first_answer() -> None:
    first = DegreeHIndexQuery(sigma=2.0, failure=0.5)
    release = Release.open(zero_noise_plan(NODE, (first, SUMS)), EMPTY, budget=MemoryLedger())
    assert release.answer(DegreeHIndexData()).tolist() == [0.0]
    assert release._public.degree_bound == first.bound(torch.tensor([0.0]), 4) == 2
    assert release.answer(ProjectedSumData(torch.zeros(4, 2))).shape == (4, 2)


def test_a_grid_that_is_too_coarse_for_the_number_of_rows_is_rejected() -> None:
    assert ProjectedSumQuery.grid_for(1_000_000, 9) == 20
    coarse = ProjectedSumQuery(dim=9, sigma=3.0, grid_bits=19)
    vectors = torch.zeros(1, 9).expand(1_000_000, 9)
    public = PublicInputs(1_000_000, None, DiscreteGaussian, degree_bound=5)
    with pytest.raises(ReleaseError, match=r"grid_bits=19 is too small .* ProjectedSumQuery.grid_for"):
        coarse.prepare(ProjectedSumData(vectors), public)


@pytest.mark.parametrize("unit", [NodeRecord(), NodeBoundedDegree(3), UndirectedEdge()])
@pytest.mark.parametrize("query", [DEGREES, SUMS], ids=["degrees", "sums"])
def test_other_units_have_no_bound(query: Any, unit: Any) -> None:
    with pytest.raises(UnitError, match="has a bound under unit 'node' only"):
        query.event(unit)


@pytest.mark.parametrize(
    "fields", [{"radius": 0.0}, {"dim": 0}, {"sigma": -1.0}, {"grid_bits": 60}, {"radius": float("nan")}]
)
def test_rejects_fields_of_sums_outside_their_range(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ProjectedSumQuery(**({"dim": 2, "sigma": 1.0} | fields))


@pytest.mark.parametrize("failure", [0.0, 0.6, -1.0, float("nan")])
def test_rejects_a_probability_of_failure_outside_its_range(failure: float) -> None:
    with pytest.raises(ConfigError):
        DegreeHIndexQuery(sigma=1.0, failure=failure)


# -- rows from own lists -------------------------------------------------------------------------------------


def own_sums() -> ProtectedRows:
    """Return rows that nodes compute from their own lists under unit ``node``."""
    graph = Graph.from_edges(np.eye(4), [0, 1, 0, 1], [0, 1, 2], [1, 2, 3], directed=False)
    view = protected_view(graph, NODE)
    (found,) = own_rows(view.adjacency, torch.ones(4, 2))
    assert isinstance(found, ProtectedRows)
    return found


DERIVED: dict[str, Any] = {
    "itself": lambda handle: handle,
    "mapped": lambda handle: map_records(lambda each: 2 * each, handle),
    "mapped with public rows": lambda handle: map_records(torch.add, torch.ones(4, 2), handle),
    "one of two results": lambda handle: map_records(lambda each: (each, each + 1), handle)[1],
    "chosen": lambda handle: rows(handle, torch.arange(4)),
    "mapped and chosen": lambda handle: map_records(lambda each: each.exp(), handle.at(torch.ones(4) > 0)),
}
YES = torch.ones(4, dtype=torch.bool)
READERS: dict[str, Any] = {
    "sums": (SUMS, lambda own: ProjectedSumData(own)),
    "moments": (
        ClassMomentsQuery(classes=2, dim=2, radius=1.0, sigma=9.0),
        lambda own: ClassMomentsData(own, torch.zeros(4, dtype=torch.int64)),
    ),
    "classes of moments": (
        ClassMomentsQuery(classes=2, dim=2, radius=1.0, sigma=9.0),
        lambda own: ClassMomentsData(torch.zeros(4, 2), map_records(lambda each: each[:, 0].long(), own)),
    ),
    "accuracy counts": (
        AccuracyCountQuery(candidates=2, sigma=9.0),
        lambda own: AccuracyCountData(map_records(lambda each: each > 0, own)),
    ),
    "outcomes": (
        OutcomeCountQuery(sigma=9.0),
        lambda own: OutcomeCountData(map_records(lambda each: each[:, 0] > 0, own), YES),
    ),
    "histogram": (
        RecordHistogramQuery(cells=4, sigma=9.0),
        lambda own: RecordHistogramData(map_records(lambda each: each[:, 0].long(), own)),
    ),
    "feature histograms": (
        FeatureHistogramQuery(columns=2, cells=3, sigma=9.0),
        lambda own: FeatureHistogramData(map_records(lambda each: each.long(), own)),
    ),
}


@pytest.mark.parametrize("derived", DERIVED)
@pytest.mark.parametrize("reader", READERS)
def test_no_query_reads_rows_from_own_lists(reader: str, derived: str) -> None:
    query, data = READERS[reader]
    first = () if reader != "sums" else (DEGREES,)
    key = ReleaseKey.from_seed(0, "own lists")
    plan = ReleasePlan(NODE, (*first, query), delta=1e-5)
    release = Release.open(plan, EMPTY, budget=MemoryLedger(), key=key)
    for _ in first:
        release.answer(DegreeHIndexData())
    with pytest.raises(ProtectedDataError, match="no query may read rows that depend on a node's own list"):
        release.answer(data(DERIVED[derived](own_sums())))


def test_rows_from_own_lists_are_accepted_where_lists_belong_to_one_record() -> None:
    graph = Graph.from_edges(np.eye(4), [0, 1, 0, 1], [0, 1, 2], [1, 2, 3], directed=True)
    view = protected_view(graph, NodeRecord())
    (found,) = own_rows(view.adjacency, torch.ones(4, 2))
    plan = ReleasePlan(NodeRecord(), (AccuracyCountQuery(candidates=2, sigma=9.0),), delta=1e-5)
    release = Release.open(plan, EMPTY, budget=MemoryLedger())
    answer = release.answer(AccuracyCountData(map_records(lambda each: each > 0, found)))
    assert answer.shape == (2,)

"""Products of lists: exact sums, sensitivity to a record and to an edge, noise, and rejected data."""

import itertools
import math

import numpy as np
import pytest
import torch
from contracts.laws import are_unrelated, has_the_law

from graphveil.audit.query_neighbor_tests import zero_noise_plan
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.events import Gaussian
from graphveil.core.keys import ReleaseKey
from graphveil.core.ledger import MemoryLedger
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries import list_products
from graphveil.core.queries.list_products import ListProductData, ListProductQuery, unpack_products
from graphveil.core.release import Release
from graphveil.core.unit import DirectedEdge, NodeBoundedDegree, NodeRecord, UndirectedEdge, Unit
from graphveil.errors import ConfigError, ReleaseError, UnitError

USERS, ITEMS = 5, 6
NODES = USERS + ITEMS
COLUMNS = torch.cat([torch.full((USERS,), -1), torch.arange(ITEMS)])
ALL = torch.ones(NODES, dtype=torch.bool)
LISTS = [[0, 1, 2], [2, 3], [5], [], [0, 1, 2, 3, 4, 5]]


def stored(lists: list[list[int]]) -> Adjacency:
    pairs = [(user, USERS + item) for user, items in enumerate(lists) for item in items]
    sources, targets = zip(*pairs, strict=True) if pairs else ((), ())
    return Adjacency.from_edges(sources, targets, num_nodes=NODES, directed=True)


def exact(
    query: ListProductQuery,
    lists: list[list[int]],
    unit: Unit | None = None,
    data: ListProductData | None = None,
) -> torch.Tensor:
    plan = zero_noise_plan(unit or NodeRecord(), (query,))
    release = Release.open(plan, stored(lists), budget=MemoryLedger())
    return release.answer(data or ListProductData(COLUMNS, ALL))


def by_hand(lists: list[list[int]], least: int) -> np.ndarray:
    total = np.zeros((ITEMS, ITEMS))
    for items in lists:
        z = np.isin(np.arange(ITEMS), items) / math.sqrt(max(len(items), least))
        total += np.outer(z, z)
    return total


@pytest.mark.parametrize("least", [1, 4])
def test_products_are_the_sums_of_outer_products(least: int) -> None:
    query = ListProductQuery(columns=ITEMS, sigma=1.0, out_degree_bound=least)
    matrix = unpack_products(exact(query, LISTS), ITEMS)
    np.testing.assert_allclose(matrix, by_hand(LISTS, least), atol=1e-4)


def test_long_tables_are_summed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    query = ListProductQuery(columns=ITEMS, sigma=1.0)
    whole = exact(query, LISTS)
    for at_once in (1, 3, 4, 12):
        monkeypatch.setattr(list_products, "_ENTRIES", at_once)
        assert torch.equal(exact(query, LISTS), whole)


def test_lists_that_do_not_count_and_items_without_a_column_are_left_out() -> None:
    query = ListProductQuery(columns=ITEMS, sigma=1.0)
    columns, counted = COLUMNS.clone(), ALL.clone()
    columns[USERS + 2], counted[4] = -1, False
    found = exact(query, LISTS, data=ListProductData(columns, counted))
    lists = [[item for item in items if item != 2] for items in LISTS[:4]]
    np.testing.assert_allclose(unpack_products(found, ITEMS), by_hand(lists, 1), atol=1e-4)


@pytest.mark.parametrize("least", [1, 2, 3, 9])
def test_one_edge_moves_the_sum_by_at_most_the_sensitivity_which_is_attained(least: int) -> None:
    query = ListProductQuery(columns=ITEMS, sigma=1.0, out_degree_bound=least)
    bound, reached = query.sensitivity(DirectedEdge()), 0.0
    for length in range(ITEMS):
        before, after = (exact(query, [list(range(n))], DirectedEdge()) for n in (length, length + 1))
        reached = max(reached, float((after - before).norm()))
    assert reached == pytest.approx(bound, rel=1e-12)
    most = ITEMS if least > ITEMS else least  # the bound of the proof, with lists of up to six items
    assert bound <= math.sqrt(2 * most - 1) / least * (1 + 1e-4)


@pytest.mark.parametrize("least", range(1, 60, 7))
def test_the_bound_of_the_proof_is_valid_for_lists_of_all_lengths(least: int) -> None:
    query = ListProductQuery(columns=3000, sigma=1.0, out_degree_bound=least)
    assert query.sensitivity(DirectedEdge()) <= math.sqrt(2 * least - 1) / least * (1 + 2e-3)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_list_moves_the_sum_by_at_most_the_sensitivity(replaced: bool) -> None:
    query, unit = ListProductQuery(columns=ITEMS, sigma=1.0), NodeRecord(replace_one=replaced)
    every = [list(items) for n in range(4) for items in itertools.combinations(range(ITEMS), n)]
    answers = [exact(query, [items], unit) for items in every]
    others = answers if replaced else [torch.zeros_like(answers[0])]
    moved = max(float((one - other).norm()) for one in answers for other in others)
    assert query.sensitivity(unit) * (1 - 1e-3) < moved <= query.sensitivity(unit)
    assert query.event(unit) == Gaussian(query.sensitivity(unit))


@pytest.mark.parametrize("unit", [UndirectedEdge(), NodeBoundedDegree(max_degree=3)])
def test_units_without_a_bound_are_rejected(unit: Unit) -> None:
    with pytest.raises(UnitError, match="Use unit 'node-record' or 'directed-edge'"):
        ListProductQuery(columns=3, sigma=1.0).event(unit)


def test_every_number_has_the_charged_noise() -> None:
    query = ListProductQuery(columns=200, sigma=3.0)
    plan = ReleasePlan(NodeRecord(), (query,), delta=1e-5)
    key = ReleaseKey.from_seed(3, "products")
    release = Release.open(plan, stored([]), budget=MemoryLedger(), key=key)
    columns = torch.full((NODES,), -1)
    noise = release.answer(ListProductData(columns, ALL)).numpy() * query.unit_steps
    has_the_law(noise, 3.0 * query.unit_steps)
    are_unrelated(noise[:-1], noise[1:])
    assert len(noise) == 200 * 201 // 2


@pytest.mark.parametrize(
    ("columns", "counted", "reason"),
    [
        (torch.zeros(NODES, dtype=torch.int64), ALL, "share a column"),
        (COLUMNS.clamp_min(-1) + 1, ALL, "an integer from 0 to 5"),
        (COLUMNS - 1, ALL, "an integer from 0 to 5"),
        (COLUMNS.float(), ALL, "an integer from 0 to 5"),
        (COLUMNS[1:], ALL, "an integer from 0 to 5"),
        (COLUMNS, ALL.long(), "one bool"),
        (COLUMNS, ALL[1:], "one bool"),
    ],
)
def test_data_that_do_not_fit_are_rejected(columns: torch.Tensor, counted: torch.Tensor, reason: str) -> None:
    with pytest.raises(ReleaseError, match=reason):
        exact(ListProductQuery(columns=ITEMS, sigma=1.0), LISTS, data=ListProductData(columns, counted))


@pytest.mark.parametrize(
    "wrong",
    [{"columns": 0}, {"columns": 4097}, {"sigma": 0.0}, {"out_degree_bound": 0}, {"out_degree_bound": 1.5}],
)
def test_fields_outside_their_range_are_rejected(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        ListProductQuery(**{"columns": 4, "sigma": 2.0, **wrong})  # type: ignore[arg-type]

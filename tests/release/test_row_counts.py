"""Counts of rows: a row moves one integer by one, and rows of owners in other groups are not read."""

from typing import Any

import numpy as np
import pytest
import torch
from contracts.laws import are_unrelated, has_the_law

from graphveil.audit.query_neighbor_tests import zero_noise_plan
from graphveil.core import private_edges
from graphveil.core.accounting.accountant import privacy_curve
from graphveil.core.backends import InMemoryBackend
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.events import ByGroup, Composed, PureDP, compose
from graphveil.core.journal import FolderJournal
from graphveil.core.keys import ReleaseKey
from graphveil.core.ledger import MemoryLedger
from graphveil.core.noise.discrete_laplace import DiscreteLaplace
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries import row_counts
from graphveil.core.queries.row_counts import RowCountData, RowCountQuery
from graphveil.core.release import Release
from graphveil.core.unit import (
    DirectedEdge,
    EdgeSubset,
    Node,
    NodeBoundedDegree,
    NodeRecord,
    Person,
    Row,
    UndirectedEdge,
    Unit,
)
from graphveil.errors import ConfigError, ReleaseError, UnitError

Pair = tuple[int, int]
NODES, CELLS = 8, 12
UNITS = (Row(), DirectedEdge())
FIRST = RowCountQuery("owners", (True, False), 1.0, CELLS)
SECOND = RowCountQuery("owners", (False, True), 1.0, CELLS)
EVERY = [(u, v) for u in range(NODES) for v in range(NODES) if u != v]


def stored(edges: list[Pair], nodes: int = NODES) -> Adjacency:
    ends = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    return Adjacency.from_edges(*ends, num_nodes=nodes, directed=True)


def drawn(seed: int) -> tuple[list[Pair], torch.Tensor, RowCountData]:
    """Return rows, groups, and where rows count: any starts and columns, also without a cell."""
    rng = np.random.default_rng(seed)
    rows = [pair for pair in EVERY if rng.random() < rng.choice([0.1, 0.5, 1.0])]
    ranks = rng.integers(0, rng.choice([1, 2, NODES + 1]), size=NODES)
    starts, columns = rng.integers(-1, CELLS, size=(2, NODES))
    groups = torch.from_numpy(rng.integers(2, size=NODES))
    return rows, groups, RowCountData(*map(torch.from_numpy, (ranks, starts, columns)))


def exact(
    rows: list[Pair], groups: torch.Tensor, data: RowCountData, query: RowCountQuery, unit: Unit | None = None
) -> torch.Tensor:
    plan = zero_noise_plan(unit or Row(), (query,))
    return Release.open(plan, stored(rows), groups, budget=MemoryLedger()).answer(data)


def by_hand(
    rows: list[Pair], groups: torch.Tensor, data: RowCountData, query: RowCountQuery
) -> list[list[float]]:
    """Return the counts if rows between equal ranks count at the owner, and if they count at the far end."""
    found = [[0.0] * CELLS for _ in range(2)]
    for owner, far in rows:
        ahead = int(data.ranks[far] - data.ranks[owner])
        for side, equal in enumerate((-1, 1)):
            at, other = (far, owner) if (ahead or equal) > 0 else (owner, far)
            start, column = int(data.starts[at]), int(data.columns[other])
            if query.pays[groups[owner]] and min(start, column) >= 0 and start + column < CELLS:
                found[side][start + column] += 1
    return found


# -- sensitivity ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
@pytest.mark.parametrize("seed", range(12))
def test_a_row_moves_one_integer_of_one_answer_by_one(seed: int, unit: Unit) -> None:
    rows, groups, data = drawn(seed)
    before = {query: exact(rows, groups, data, query, unit) for query in (FIRST, SECOND)}
    counted = 0
    for pair in EVERY:
        other = [row for row in rows if row != pair] + [pair] * (pair not in rows)
        for query, answer in before.items():
            change = (exact(other, groups, data, query, unit) - answer).abs()
            moved = float(change.sum())
            assert moved in (0.0, 1.0) and change.max() == moved
            assert query.pays[groups[pair[0]]] or not moved
            counted += int(moved)
    assert counted <= len(EVERY)


@pytest.mark.parametrize("seed", range(12))
def test_rows_of_owners_outside_the_counted_groups_are_not_read(seed: int) -> None:
    rows, groups, data = drawn(seed)
    for query in (FIRST, SECOND):
        own = [(owner, far) for owner, far in rows if query.pays[groups[owner]]]
        others = [pair for pair in EVERY if not query.pays[groups[pair[0]]]]
        answer = exact(rows, groups, data, query)
        assert torch.equal(exact(own, groups, data, query), answer)
        assert torch.equal(exact([*own, *others], groups, data, query), answer)


def test_rows_count_by_ranks_starts_and_columns() -> None:
    for seed in range(20):
        rows, groups, data = drawn(seed)
        for query in (FIRST, SECOND):
            found = exact(rows, groups, data, query)
            one_by_one = [exact([row], groups, data, query) for row in rows]
            assert torch.equal(found, sum(one_by_one, 0 * found))
            for row, counts in zip(rows, one_by_one, strict=True):
                assert counts.tolist() in by_hand([row], groups, data, query)


def test_a_row_that_is_listed_twice_counts_once() -> None:
    data = RowCountData(*(torch.zeros(NODES, dtype=torch.int64) for _ in range(3)))
    groups = torch.zeros(NODES, dtype=torch.int64)
    assert exact([(0, 1), (0, 1), (0, 2)], groups, data, FIRST)[0] == 2


@pytest.mark.parametrize("kind", [torch.bool, torch.uint8, torch.int8, torch.int32])
def test_small_integers_do_not_overflow(kind: torch.dtype) -> None:
    wide = RowCountQuery("owners", (True, False), 1.0, 300)
    ranks, ends = (
        torch.zeros(NODES, dtype=torch.int64),
        torch.full((NODES,), 1 if kind == torch.bool else 100),
    )
    groups, rows = torch.zeros(NODES, dtype=torch.int64), [(0, 1), (2, 1)]
    plain = exact(rows, groups, RowCountData(ranks, ends, ends), wide)
    small = RowCountData(*(each.to(kind) for each in (ranks, ends, ends)))
    assert plain.sum() == 2 and torch.equal(exact(rows, groups, small, wide), plain)


def test_many_rows_are_counted_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, groups, data = drawn(2)
    whole = exact(rows, groups, data, FIRST)
    for at_once in (1, 3, 7):
        monkeypatch.setattr(private_edges, "_EDGES", at_once)
        assert torch.equal(exact(rows, groups, data, FIRST), whole)


# -- privacy cost --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_disjoint_groups_of_owners_cost_no_more_together_than_one(unit: Unit) -> None:
    assert FIRST.event(unit) == ByGroup("owners", (PureDP(1.0), Composed(())))
    assert SECOND.event(unit) == ByGroup("owners", (Composed(()), PureDP(1.0)))
    one, both = ReleasePlan(unit, (FIRST,), 1e-6), ReleasePlan(unit, (FIRST, SECOND), 1e-6)
    assert 0.999 < one.epsilon <= both.epsilon <= 1.0
    assert ReleasePlan(unit, (FIRST, FIRST), 1e-6).epsilon > 1.9
    overlapping = RowCountQuery("owners", (True, True), 1.0, CELLS)
    assert ReleasePlan(unit, (FIRST, overlapping), 1e-6).epsilon > 1.9
    assert ReleasePlan(unit, (FIRST, RowCountQuery("others", (False, True), 1.0, 1)), 1e-6).epsilon > 1.9


def test_a_release_records_the_cost_of_one_query() -> None:
    ledger, (rows, groups, data) = MemoryLedger(), drawn(0)
    release = Release.open(ReleasePlan(Row(), (FIRST, SECOND), 1e-6), stored(rows), groups, budget=ledger)
    for _ in range(2):
        release.answer(data)
    (entry,) = ledger.entries
    assert privacy_curve(entry.event).epsilon(0.0) == pytest.approx(1.0)
    assert privacy_curve(compose(entry.event, entry.event)).epsilon(0.0) == pytest.approx(2.0)


@pytest.mark.parametrize(
    "unit",
    [UndirectedEdge(), EdgeSubset(), NodeRecord(), Person(), Node(), NodeBoundedDegree(max_degree=3)],
    ids=lambda unit: unit.name,
)
def test_other_units_are_rejected(unit: Unit) -> None:
    with pytest.raises(UnitError, match="does not protect single rows"):
        FIRST.event(unit)


def test_rows_that_are_stored_in_both_directions_are_rejected_uncharged() -> None:
    path, ledger = Adjacency.from_edges([0], [1], num_nodes=NODES, directed=False), MemoryLedger()
    plan = ReleasePlan(Row(), (FIRST,), 1e-6)
    with pytest.raises(UnitError, match="directed=True"):
        Release.open(plan, path, torch.zeros(NODES, dtype=torch.int64), budget=ledger)
    assert not ledger.entries


# -- noise ---------------------------------------------------------------------------------------------------


def noisy(query: RowCountQuery, rows: list[Pair] = [], count: int = 1, **given: Any) -> list[torch.Tensor]:  # noqa: B006
    """Return answers of equal queries in one release with a known key."""
    nodes, key = torch.zeros(NODES, dtype=torch.int64), ReleaseKey.from_seed(3, "rows")
    plan = ReleasePlan(Row(), (query,) * count, 1e-6)
    release = Release.open(plan, stored(rows), nodes, budget=MemoryLedger(), **{"key": key, **given})
    return [release.answer(RowCountData(nodes, nodes, nodes)) for _ in range(count)]


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_every_count_has_the_charged_noise(epsilon: float) -> None:
    query = RowCountQuery("owners", (True, False), epsilon, 200_000)
    law = DiscreteLaplace(epsilon)
    first, second = (answer.double().numpy() for answer in noisy(query, count=2))
    for drawn_noise in (first, second):
        assert (drawn_noise == np.rint(drawn_noise)).all()
        assert drawn_noise.std() == pytest.approx(law.sigma, rel=0.02)
        assert abs(drawn_noise.mean()) < 5 * law.sigma / np.sqrt(len(drawn_noise))
        shares = [float(np.mean(np.abs(drawn_noise) == k)) for k in range(2)]
        q = np.exp(-epsilon)
        assert shares == pytest.approx([(1 - q) / (1 + q), 2 * q * (1 - q) / (1 + q)], abs=0.006)
        are_unrelated(drawn_noise[:-1], drawn_noise[1:])
        are_unrelated(drawn_noise[:-1024], drawn_noise[1024:])
    are_unrelated(first, second)


def test_the_sum_of_many_counts_has_the_law_of_their_noise() -> None:
    query = RowCountQuery("owners", (True, False), 0.5, 1 << 19)
    (answer,) = noisy(query)
    sums = answer.double().reshape(-1, 64).sum(dim=1).numpy()
    has_the_law(sums, 8 * DiscreteLaplace(0.5).sigma)


def test_noise_of_long_answers_is_drawn_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    query = RowCountQuery("owners", (True, False), 1.0, 3000)
    (whole,) = noisy(query)
    monkeypatch.setattr(row_counts, "_ROWS", 1)
    assert torch.equal(noisy(query)[0], whole)
    assert len(set(whole.split(1024)[0].tolist()) | set(whole.split(1024)[1].tolist())) > 3
    assert not torch.equal(whole[:1024], whole[1024:2048])


def test_a_release_resumes_with_the_noise_of_its_key(tmp_path: Any) -> None:
    rows = [(0, 1), (2, 1)]
    plan, groups, ledger = ReleasePlan(Row(), (FIRST, FIRST), 1e-6), torch.zeros(NODES).long(), MemoryLedger()

    def answered() -> list[torch.Tensor]:
        journal = FolderJournal(tmp_path / "release")
        release = Release.open(plan, stored(rows), groups, budget=ledger, journal=journal)
        return [release.answer(RowCountData(groups, groups, groups)) for _ in range(2)]

    first, again = answered(), answered()
    assert all(map(torch.equal, first, again)) and not torch.equal(*first)
    assert len(ledger) == 1


@pytest.mark.parametrize("block_rows", [1, 3, 100])
def test_blocks_give_the_same_bytes(block_rows: int) -> None:
    rows = drawn(3)[0]
    whole, blocks = noisy(FIRST, rows), noisy(FIRST, rows, backend=InMemoryBackend(block_rows=block_rows))
    assert torch.equal(*whole, *blocks)


# -- rejected ------------------------------------------------------------------------------------------------

GOOD = torch.zeros(NODES, dtype=torch.int64)


@pytest.mark.parametrize("wrong", [GOOD - 1, GOOD + NODES + 1, GOOD.float(), GOOD[1:]])
def test_ranks_out_of_range_are_rejected(wrong: torch.Tensor) -> None:
    with pytest.raises(ReleaseError, match="a rank from 0 on"):
        exact([(0, 1)], GOOD, RowCountData(wrong, GOOD, GOOD), FIRST)


@pytest.mark.parametrize("wrong", [GOOD - 2, GOOD + CELLS, GOOD.double(), GOOD[1:]])
def test_starts_and_columns_out_of_range_are_rejected(wrong: torch.Tensor) -> None:
    for data in (RowCountData(GOOD, wrong, GOOD), RowCountData(GOOD, GOOD, wrong)):
        with pytest.raises(ReleaseError, match=r"a rank from 0 on|from -1 to 11"):
            exact([(0, 1)], GOOD, data, FIRST)


@pytest.mark.parametrize(
    "wrong",
    [
        {"pays": ()},
        {"pays": (False, False)},
        {"cells": 0},
        {"cells": 1 << 31},
        {"epsilon": 0.0},
        {"epsilon": -1},
    ],
)
def test_fields_outside_their_range_are_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        RowCountQuery(**{"partition": "p", "pays": (True,), "epsilon": 1.0, "cells": 3, **wrong})

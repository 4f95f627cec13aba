"""A release is booked each time, whatever key it brings."""

import math
from pathlib import Path

import pytest
import torch

from graphveil.data import Adjacency
from graphveil.errors import BudgetError, ConfigError
from graphveil.ledger import Entry, Ledger, MemoryLedger
from graphveil.privacy import Gaussian, NodeBoundedDegree, UndirectedEdge
from graphveil.release import (
    FolderJournal,
    KeyStore,
    NeighborSumData,
    Release,
    ReleaseKey,
    ReleasePlan,
)
from graphveil.release.plan import hops

PATH = Adjacency.from_edges(torch.tensor([0, 1]), torch.tensor([1, 2]), num_nodes=3, directed=False)


def test_a_key_brought_twice_cannot_open_a_second_release_for_free() -> None:
    budget, key = MemoryLedger(), ReleaseKey.fresh()
    cheap = ReleasePlan(UndirectedEdge(), hops(0.1, 1, 2), delta=1e-5)
    dear = ReleasePlan(UndirectedEdge(), hops(5.0, 1, 2), delta=1e-5)
    Release.open(cheap, PATH, budget=budget, key=key)
    with pytest.raises(BudgetError, match="already recorded"):
        Release.open(dear, PATH, budget=budget, key=key)
    assert len(budget.entries) == 1


def test_a_key_serves_one_release_also_where_equal_bookings_cost_once(tmp_path: Path) -> None:
    key, plan = ReleaseKey.fresh(), ReleasePlan(UndirectedEdge(), hops(0.1, 1, 2), delta=1e-5)
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.init("friends", "undirected-edge")
    book = ledger.data_set("friends")
    Release.open(plan, PATH, budget=book, key=key)
    with pytest.raises(BudgetError, match="a key serves one release"):
        Release.open(plan, PATH, budget=book, key=key)
    ledger.close()


def test_what_a_closed_release_has_answered_is_not_given_back(tmp_path: Path) -> None:
    plan, keys = ReleasePlan(UndirectedEdge(), hops(0.1, 1, 2), delta=1e-5), KeyStore(tmp_path / "keys")

    def opened(budget: MemoryLedger) -> Release:
        return Release.open(plan, PATH, budget=budget, journal=FolderJournal(tmp_path / "run", keys))

    first = opened(MemoryLedger())
    answer = first.answer(NeighborSumData(torch.eye(3, 2)))
    first.close()
    again = opened(MemoryLedger())  # a new process begins with an empty one
    assert torch.equal(again.answer(NeighborSumData(torch.eye(3, 2))), answer)
    assert not again.refund_if_undrawn()


@pytest.mark.parametrize("slack", [-1e-9, 1.5, math.nan])
def test_a_slack_that_is_no_share_is_refused(slack: float) -> None:
    with pytest.raises(ConfigError, match="slack="):
        ReleasePlan(UndirectedEdge(), hops(0.1, 1, 2), delta=1e-5, slack=slack)
    with pytest.raises(ConfigError, match="slack="):
        Entry("a", "rows", Gaussian(0.1), slack)


def test_a_release_is_booked_for_its_unit_and_does_not_add_up_with_another_ones() -> None:
    budget = MemoryLedger(epsilon=10.0, delta=1e-5)
    Release.open(ReleasePlan(UndirectedEdge(), hops(0.1, 1, 2), delta=1e-5), PATH, budget=budget)
    assert [entry.unit for entry in budget.entries] == [UndirectedEdge()]
    promise = NodeBoundedDegree(2)
    records = ReleasePlan(promise, hops(0.1, 1, 2, promise), delta=1e-5)
    with pytest.raises(BudgetError, match="different units"):
        Release.open(records, PATH, budget=budget)

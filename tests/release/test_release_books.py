"""A release is booked each time, whatever key it brings."""

import pytest
import torch

from graphveil.errors import BudgetError
from graphveil.graph import Adjacency
from graphveil.privacy import MemoryLedger, NodePromise, UndirectedEdge
from graphveil.release import Release, ReleaseKey, ReleasePlan
from graphveil.release.plan import hops

PATH = Adjacency.from_edges(torch.tensor([0, 1]), torch.tensor([1, 2]), num_nodes=3, directed=False)


def test_a_key_brought_twice_cannot_open_a_second_release_for_free() -> None:
    budget, key = MemoryLedger(), ReleaseKey.fresh()
    cheap = ReleasePlan(UndirectedEdge(), hops(0.1, 1, 2), delta=1e-5)
    dear = ReleasePlan(UndirectedEdge(), hops(5.0, 1, 2), delta=1e-5)
    Release(cheap, PATH, budget=budget, key=key)
    with pytest.raises(BudgetError, match="already recorded"):
        Release(dear, PATH, budget=budget, key=key)
    assert len(budget.entries) == 1


def test_a_release_is_booked_for_its_unit_and_does_not_add_up_with_another_ones() -> None:
    budget = MemoryLedger(epsilon=10.0, delta=1e-5)
    Release(ReleasePlan(UndirectedEdge(), hops(0.1, 1, 2), delta=1e-5), PATH, budget=budget)
    assert [entry.unit for entry in budget.entries] == [UndirectedEdge()]
    promise = NodePromise(2)
    records = ReleasePlan(promise, hops(0.1, 1, 2, promise), delta=1e-5)
    with pytest.raises(BudgetError, match="different units"):
        Release(records, PATH, budget=budget)

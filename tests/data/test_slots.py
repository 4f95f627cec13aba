"""Slots: every pair has one number, in the order of destination rows."""

from itertools import combinations, permutations

import numpy as np
import pytest

from graphveil.data.node_pairs import NodePairIndex
from graphveil.errors import GraphError


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("nodes", [0, 1, 2, 3, 9])
def test_every_pair_has_one_number(nodes: int, directed: bool) -> None:
    slots = NodePairIndex(nodes, directed)
    source, target = slots.ends(np.arange(slots.total))
    pairs = permutations(range(nodes), 2) if directed else combinations(range(nodes), 2)
    assert sorted(zip(source.tolist(), target.tolist(), strict=True)) == sorted(pairs)
    assert slots.number(source, target).tolist() == list(range(slots.total))
    for row in range(nodes):
        assert (target[slots.start(row) : slots.start(row + 1)] == row).all()


@pytest.mark.parametrize("nodes", [100_000, 2**31 - 1])
def test_large_numbers_are_exact(nodes: int) -> None:
    slots = NodePairIndex(nodes, directed=False)
    rows = np.array([1, 2, nodes // 3, nodes - 2, nodes - 1])
    edge = np.array([slots.start(int(row)) for row in rows])  # where a row begins is where roots are rounded
    for near in (edge - 1, edge, edge + 1):
        near = near[(near >= 0) & (near < slots.total)]
        source, target = slots.ends(near)
        assert (source < target).all() and (source >= 0).all()
        assert (slots.number(source, target) == near).all()


def test_many_slots_in_order_have_the_ends_of_any_others() -> None:
    slots = NodePairIndex(40, directed=False)
    chosen = np.sort(np.random.default_rng(0).choice(slots.total, 300, replace=False))
    shuffled = np.random.default_rng(1).permutation(300)
    for ordered, other in zip(slots.ends(chosen), slots.ends(chosen[shuffled]), strict=True):
        assert ordered[shuffled].tolist() == other.tolist()


def test_too_many_nodes_are_refused() -> None:
    with pytest.raises(GraphError):
        NodePairIndex(2**31, directed=False)

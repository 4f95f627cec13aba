"""Bounded trees: whose tree one record changes, by brute force, and the orders of choosing that break."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.events import PoissonRoots
from graphveil.core.noise.random import RowStream
from graphveil.core.queries.bounded_lists import NO_NODE, BoundedTrees, cut_lists
from graphveil.core.queries.training_steps import Reach, TreeStepsQuery
from graphveil.core.unit import NodeBoundedDegree, NodeRecord, NodeUnit, UndirectedEdge
from graphveil.errors import CalibrationError, ConfigError, UnitError

Pairs = list[tuple[int, int]]


def graph_of(edges: Any, nodes: int) -> Adjacency:
    source, target = (np.array([edge[end] for edge in edges], dtype=np.int64) for end in (0, 1))
    return Adjacency.from_edges(source, target, num_nodes=nodes, directed=True)


def trees_of(edges: Any, nodes: int, slots: int | None, cap: int, depth: int, number: int = 0) -> np.ndarray:
    trees = BoundedTrees(graph_of(edges, nodes), slots=slots, cap=cap, depth=depth, key=bytes(32))
    trees.draw(number)
    return trees.of_roots(torch.arange(nodes)).numpy()


def with_hubs(seed: int, nodes: int) -> Pairs:
    """Lists of every length: some nodes list nearly all, some are listed by nearly all."""
    rng = np.random.default_rng(seed)
    out, into = rng.random(nodes) ** 3, rng.random(nodes) ** 2
    out[0], into[-1] = 0.9, 0.9
    there = rng.random((nodes, nodes)) < np.maximum(out[:, None], into[None, :] * rng.random()) * 0.7
    np.fill_diagonal(there, False)
    return [(int(u), int(v)) for u, v in np.argwhere(there)]


def changed(before: np.ndarray, after: np.ndarray, q: int) -> int:
    """How many roots but q's own have another tree; a tree without q is the same wherever q is null."""
    rows = (before != after).any(axis=1)
    return int(rows.sum()) - int(rows[q])


# -- the lemma of reach ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("depth", "slots"), list(product((1, 2, 3), (1, 2, 3))))
def test_a_nulled_record_changes_no_more_trees_than_its_reach(depth: int, slots: int) -> None:
    nodes, most = 12, 0
    reach = Reach.from_unit(NodeRecord(), slots=slots, depth=depth)
    assert (reach.slots, reach.roots) == (slots, sum(slots**level for level in range(depth + 1)))
    for seed, cap in product(range(4), (2, nodes)):
        if cap**depth > 200:
            cap = 5
        edges = with_hubs(seed, nodes)
        before = trees_of(edges, nodes, slots, cap, depth)
        for q in range(nodes):
            after = trees_of([edge for edge in edges if edge[0] != q], nodes, slots, cap, depth)
            most = max(most, changed(before, after, q))
    assert most <= reach.roots - 1
    if depth == 1:
        assert most == reach.roots - 1  # and it is attained


def test_the_bound_for_two_layers_is_attained() -> None:
    edges, most = [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5), (2, 6)], 0
    before = trees_of(edges, 7, 2, 4, 2)
    most = changed(before, trees_of([edge for edge in edges if edge[0] != 0], 7, 2, 4, 2), 0)
    assert most == Reach.from_unit(NodeRecord(), slots=2, depth=2).roots - 1 == 6


def test_a_replaced_record_changes_up_to_twice_as_many() -> None:
    nodes, slots, most = 12, 2, 0
    bound = Reach.from_unit(NodeRecord(replace_one=True), slots=slots, depth=1).roots - 1
    for seed in range(8):
        edges = with_hubs(seed, nodes)
        before = trees_of(edges, nodes, slots, nodes, 1)
        for q in range(nodes):
            rest = [edge for edge in edges if edge[0] != q]
            listed = {v for u, v in edges if u == q}
            others = [(q, v) for v in range(nodes) if v != q and v not in listed]
            most = max(most, changed(before, trees_of(rest + others, nodes, slots, nodes, 1), q))
    assert bound - 1 <= most <= bound == 4


@pytest.mark.parametrize(
    ("depth", "slots", "degree"), [(1, 1, 4), (1, 9, 4), (2, 1, 4), (2, 9, 3), (2, 2, 5)]
)
def test_a_node_that_loses_all_edges_changes_at_most_its_reach_of_trees(
    depth: int, slots: int, degree: int
) -> None:
    nodes, most = 14, 0
    reach = Reach.from_unit(NodeBoundedDegree(degree), slots=slots, depth=depth)
    for seed in range(6):
        edges = list(of_degree(seed, nodes, degree))
        before = trees_of(edges, nodes, reach.slots, degree, depth)
        for q in range(nodes):
            rest = [edge for edge in edges if q not in edge]
            most = max(most, changed(before, trees_of(rest, nodes, reach.slots, degree, depth), q))
    assert most <= reach.roots - 1
    if depth == 1 or slots > degree:
        assert reach.slots is None
    if depth == 1:
        assert most == degree


@pytest.mark.parametrize(("slots", "degree"), [(1, 5), (2, 7)])
def test_a_node_leaving_long_lists_changes_no_choice_among_other_nodes(slots: int, degree: int) -> None:
    """Node 0 is first in its neighbors' lists: hash values by position would all move to the next entry."""
    edges = list(rooted(degree))
    nodes = 1 + max(v for _, v in edges)
    reach = Reach.from_unit(NodeBoundedDegree(degree), slots=slots, depth=2)
    assert reach.slots == slots
    before = trees_of(edges, nodes, slots, degree, 2)
    after = trees_of([edge for edge in edges if 0 not in edge], nodes, slots, degree, 2)
    assert changed(before, after, 0) <= reach.roots - 1


def rooted(degree: int) -> Iterator[tuple[int, int]]:
    """Yield both directions of a tree's edges: node 0 and three levels below it."""
    above, made = [0], 1
    for level in range(3):
        new: list[int] = []
        for node in above:
            for child in range(made, made + degree - (level > 0)):
                yield from ((node, child), (child, node))
                new.append(child)
            made += degree - (level > 0)
        above = new


def of_degree(seed: int, nodes: int, degree: int) -> Iterator[tuple[int, int]]:
    """Yield both directions of undirected edges, at most ``degree`` per node."""
    rng, room = np.random.default_rng(seed), [degree] * nodes
    for u, v in rng.permutation(np.argwhere(np.tri(nodes, k=-1))).tolist():
        if room[u] and room[v]:
            room[u], room[v] = room[u] - 1, room[v] - 1
            yield from ((u, v), (v, u))


@pytest.mark.parametrize(
    ("unit", "slots", "depth", "expected"),
    [
        (NodeRecord(), 1, 1, (1, 2)),
        (NodeRecord(), 2, 3, (2, 15)),
        (NodeRecord(replace_one=True), 2, 2, (2, 13)),
        (NodeBoundedDegree(10), 1, 1, (None, 11)),
        (NodeBoundedDegree(10), 1, 2, (1, 23)),  # 1 + 1 + 1 + 10 (1 + 1)
        (NodeBoundedDegree(3), 2, 2, (None, 10)),  # 1 + 3 + 3 * 2
        (NodeBoundedDegree(10, replace_one=True), 1, 1, (None, 21)),
    ],
)
def test_golden_reach(unit: NodeUnit, slots: int, depth: int, expected: tuple[int | None, int]) -> None:
    found = Reach.from_unit(unit, slots=slots, depth=depth)
    assert (found.slots, found.roots) == expected


# -- orders of choosing that break -------------------------------------------------------------------------


def receivers_first(edges: Pairs, nodes: int) -> np.ndarray:
    """Each node keeps one source that lists it; then each source keeps one of these nodes."""
    pairs = sorted(edges, key=lambda edge: edge[1])
    owner, listed = np.array([v for _, v in pairs]), np.array([u for u, _ in pairs])
    received_from = cut_lists(owner, listed, nodes, 1, bytes(32)).numpy()[:, 0]
    listeners = sorted((int(u), v) for v, u in enumerate(received_from) if u != NO_NODE)
    sources, targets = (np.array([pair[end] for pair in listeners], dtype=np.int64) for end in (0, 1))
    kept = cut_lists(sources, targets, nodes, 1, bytes([1]) * 32).numpy()[:, 0]
    out = np.full((nodes, 1), NO_NODE)
    for source, target in enumerate(kept):
        if target != NO_NODE:
            out[target] = source
    return out


def greedy(edges: Pairs, nodes: int) -> np.ndarray:
    """Edges in order; each is kept while both of its ends have room for one."""
    out, used = np.full((nodes, 1), NO_NODE), set[int]()
    for source, target in edges:
        if source not in used and target not in used:
            used |= {source, target}
            out[target] = source
    return out


@pytest.mark.parametrize("pairs", [5, 20, 80])
def test_caps_before_list_bounds_would_let_a_hub_change_all_trees(pairs: int) -> None:
    """A hub lists both ends of every pair: without it, each end keeps the other one instead."""
    nodes = 2 * pairs + 1
    friends = [(2 * k + 1 + a, 2 * k + 2 - a) for k in range(pairs) for a in (0, 1)]
    edges = friends + [(0, v) for v in range(1, nodes)]
    broken = changed(receivers_first(edges, nodes), receivers_first(friends, nodes), 0)
    assert broken > pairs / 2 and broken > Reach.from_unit(NodeRecord(), slots=1, depth=1).roots
    before, after = (trees_of(some, nodes, 1, 1, 1) for some in (edges, friends))
    assert changed(before, after, 0) <= 1


def test_greedy_capping_lets_a_record_change_a_whole_path() -> None:
    path = [(k, k + 1) for k in range(14)]
    assert changed(greedy(path, 15), greedy(path[1:], 15), 0) > 6
    assert changed(trees_of(path, 15, 1, 1, 1), trees_of(path[1:], 15, 1, 1, 1), 0) <= 1


def by_position(edges: Pairs, nodes: int, slots: int) -> np.ndarray:
    """List bounds by hash values of positions in the array of edges, which another record's length shifts."""
    coins = RowStream(bytes(32)).blocks(np.arange(len(edges)), np.zeros(1, dtype=np.int64))[:, 0]
    kept: Pairs = []
    for node in range(nodes):
        own = sorted((int(coin), edge) for coin, edge in zip(coins, edges, strict=True) if edge[0] == node)
        kept += [edge for _, edge in own[:slots]]
    return np.array([[(u, v) in kept for u in range(nodes)] for v in range(nodes)])


def by_one_generator(edges: Pairs, nodes: int, slots: int) -> np.ndarray:
    """List bounds drawn in turn from one generator, whose state depends on the lengths of lists."""
    rng, there = np.random.default_rng(0), np.zeros((nodes, nodes), dtype=bool)
    for node in range(nodes):
        listed = [v for u, v in edges if u == node]
        if len(listed) > slots:
            listed = [listed[k] for k in rng.permutation(len(listed))[:slots]]
        there[listed, node] = True
    return there


@pytest.mark.parametrize("draw", [by_position, by_one_generator])
def test_hash_values_by_position_would_let_a_record_change_unrelated_trees(
    draw: Callable[[Pairs, int, int], np.ndarray],
) -> None:
    nodes, slots = 24, 1
    edges = sorted((u, v) for u in range(nodes) for v in range(nodes) if u != v and (u + v) % 2)
    shorter = [edge for edge in edges if edge[0] != 0]
    assert changed(draw(edges, nodes, slots), draw(shorter, nodes, slots), 0) > 3 * slots
    before, after = (trees_of(some, nodes, slots, 4, 1) for some in (edges, shorter))
    assert changed(before, after, 0) <= slots


# -- the trees ---------------------------------------------------------------------------------------------


def test_trees_by_hand() -> None:
    trees = BoundedTrees(graph_of([(0, 2), (1, 2), (3, 0)], 4), slots=2, cap=2, depth=2, key=bytes(32))
    assert trees.parents.tolist() == [0, 0, 1, 1, 2, 2] and trees.places == 7
    found = trees.of_roots(torch.tensor([2, 3])).tolist()
    assert found == [[2, 0, 1, 3, -1, -1, -1], [3, -1, -1, -1, -1, -1, -1]]


def test_rounds_draw_other_trees_and_the_same_ones_again() -> None:
    edges = [(u, v) for u in range(9) for v in range(9) if u != v]
    drawn = [trees_of(edges, 9, 2, 3, 2, number).tobytes() for number in (0, 1, 2, 1)]
    assert len(set(drawn)) == 3 and drawn[1] == drawn[3]


def test_noise_is_bound_to_the_owner_of_each_list_entry() -> None:
    bound = [
        BoundedTrees(graph_of(edges, 4), slots=1, cap=2, depth=1, key=bytes(32)).tensors
        for edges in ([(0, 2), (0, 3)], [(0, 2), (1, 3)])
    ]
    assert any(not torch.equal(one, other) for one, other in zip(*bound, strict=True))


def test_list_bounds_and_caps_are_met() -> None:
    edges = with_hubs(3, 30)
    trees = trees_of(edges, 30, 2, 3, 1)
    received_from = [(int(u), v) for v in range(30) for u in trees[v, 1:] if u != NO_NODE]
    assert set(received_from) <= set(edges)
    assert (
        np.bincount([u for u, _ in received_from]).max() <= 2
        and np.bincount([v for _, v in received_from]).max() == 3
    )


# -- what they cost ----------------------------------------------------------------------------------------


def steps(**changes: Any) -> TreeStepsQuery:
    fields = {
        "parameters": 4,
        "steps": 9,
        "noise_multiplier": 9.0,
        "sampling_rate": 0.25,
        "slots": 2,
        "depth": 1,
    }
    return TreeStepsQuery(**{**fields, **changes})


def test_steps_are_charged_for_all_roots_that_a_record_reaches() -> None:
    assert steps().event(NodeRecord()) == PoissonRoots(9.0, 0.25, 9, 3)
    assert steps().event(NodeRecord(replace_one=True)) == PoissonRoots(9.0, 0.25, 9, 5, "replace")
    assert steps().event(NodeBoundedDegree(4)) == PoissonRoots(9.0, 0.25, 9, 5)
    assert steps(clip=2.0).sensitivity(NodeRecord()) == 10.0
    assert steps().sensitivity(NodeRecord(replace_one=True)) == 10.0
    for unit in (NodeRecord(), NodeRecord(replace_one=True)):
        assert steps().event(unit).change == steps().sensitivity(unit)


def test_rejects_invalid_tree_steps() -> None:
    with pytest.raises(UnitError, match="leaves features and labels public"):
        steps().event(UndirectedEdge())
    with pytest.raises(CalibrationError, match=r"at least 1\.25"):
        steps(noise_multiplier=1.0).event(NodeRecord())
    for changes in ({"slots": 0}, {"depth": 0}, {"reach": 2}, {"pays": (True, False)}):
        with pytest.raises(ConfigError):
            steps(**changes)

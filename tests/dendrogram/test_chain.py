"""Chains over dendrograms: counts that are kept up to date, and a loop in C that agrees with Python."""

import numpy as np
import pytest
from kernels import no_kernels

from dendrogram.trees import all_trees, dendrogram, ends, likelihood, shape_of
from graphveil.core.noise import _kernels
from graphveil.core.noise.random import RowStream
from graphveil.core.queries.dendrogram import ChainSchedule, Dendrogram, DendrogramChain, no_pairs, score
from graphveil.errors import ConfigError

STREAM = RowStream(bytes(31) + b"c")
SCHEDULES = {
    "public": ChainSchedule(),
    "lazy": ChainSchedule(every=1, kappa=0.5),
    "some lazy": ChainSchedule(every=7, kappa=0.1),
    "joint": ChainSchedule(every=1, private=0.3, joint=True),
    "private": ChainSchedule(every=1, private=0.3),
}


def graph(leaves: int, seed: int = 0) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    one, other = np.triu_indices(leaves, 1)
    kind = rng.choice(3, len(one), p=[0.9, 0.05, 0.05])
    return (one[kind == 1], other[kind == 1]), (one[kind == 2], other[kind == 2])


def chain_of(leaves: int = 50) -> DendrogramChain:
    return DendrogramChain(Dendrogram.balanced(leaves, np.random.default_rng(1)), *graph(leaves))


def counts_are_right(chain: DendrogramChain, leaves: int = 50) -> None:
    """What was kept up to date is what counting again finds."""
    fresh = DendrogramChain(chain.tree, *graph(leaves))
    assert (fresh._counts == chain._counts).all(), "counts are not those of the tree"
    assert likelihood(fresh) == pytest.approx(likelihood(chain), rel=1e-12), "likelihoods are not the tree's"
    assert (fresh._size == chain._size).all() and (fresh._parent == chain._parent).all()


@pytest.mark.parametrize("name", SCHEDULES)
def test_counts_and_likelihoods_are_those_of_the_tree_after_ten_thousand_moves(name: str) -> None:
    chain = chain_of()
    chain.run(10_000, SCHEDULES[name], STREAM)
    assert chain._done[0] > 500
    counts_are_right(chain)


@pytest.mark.skipif(not _kernels.available(), reason="the loops in C were not built")
@pytest.mark.parametrize("name", SCHEDULES)
def test_the_loop_in_c_takes_the_same_steps_as_python(name: str) -> None:
    fast, plain = chain_of(), chain_of()
    fast.run(3000, SCHEDULES[name], STREAM)
    plain.run(3000, SCHEDULES[name], STREAM, plain=True)
    for one, other in zip(fast._arrays, plain._arrays, strict=True):
        assert (one == other).all()


def test_parts_of_a_walk_are_the_walk() -> None:
    whole, parts = chain_of(), chain_of()
    whole.run(3000, SCHEDULES["some lazy"], STREAM)
    for steps in (1, 999, 2000):
        parts.run(steps, SCHEDULES["some lazy"], STREAM)
    assert (whole.tree.left == parts.tree.left).all()


def test_without_the_loop_the_plain_way_is_taken() -> None:
    chain = chain_of(12)
    with no_kernels():
        chain.run(200, ChainSchedule(), STREAM)
    assert chain._done[0] > 10


@pytest.mark.parametrize("leaves", [2, 3])
def test_two_leaves_have_one_tree(leaves: int) -> None:
    chain = DendrogramChain(Dendrogram.balanced(leaves, np.random.default_rng(0)), no_pairs(), no_pairs())
    chain.run(50, ChainSchedule(), STREAM)
    assert chain._done[0] == (0 if leaves == 2 else 50)


def test_a_search_finds_a_better_tree() -> None:
    chain = chain_of()
    before = likelihood(chain)[0]
    chain.run(20_000, ChainSchedule(), STREAM)
    assert likelihood(chain)[0] > before + 20


def test_every_tree_is_reached() -> None:
    chain, seen = DendrogramChain(all_trees(5)[0], no_pairs(), no_pairs()), set()
    for _ in range(1200):
        chain.run(3, ChainSchedule(), STREAM)
        seen.add(shape_of(chain.tree))
    assert len(seen) == 105


def test_golden_scores() -> None:
    golden = {(4, 1): -2.249340578, (4, 2): -2.772588722, (6, 1): -2.703367253, (6, 2): -3.819085010}
    for (slots, edges), value in {**golden, (9, 3): -5.728627515}.items():
        assert score(slots, edges) == pytest.approx(value, abs=1e-9)
    assert score(0, 0) == score(4, 0) == score(4, 4) == 0


def test_golden_likelihoods_of_four_leaves() -> None:
    edges = np.array([0, 2, 0]), np.array([1, 3, 2])
    for shape, value in (
        ((0, 1, 2, 3), -2.249340578),
        ((0, 2, 1, 3), -2.772588722),
    ):
        pairs = frozenset([frozenset(shape[:2]), frozenset(shape[2:])])
        chain = DendrogramChain(dendrogram(pairs, 4), no_pairs(), edges)
        assert likelihood(chain)[1] == pytest.approx(value, abs=1e-9)


def test_private_node_pairs_exclude_public_edges() -> None:
    tree = all_trees(5)[17]
    public, private = ends(5, 0b11), ends(5, 0b100)
    chain, expected = DendrogramChain(tree, public, private), 0.0
    one, other = np.triu_indices(5, 1)
    at = tree.lowest_common_ancestors(one, other)
    for node in np.unique(at):
        inside = np.flatnonzero(at == node)
        slots = [bit for bit in inside if bit not in (0, 1)]
        expected += score(len(slots), sum(bit == 2 for bit in slots))
    assert likelihood(chain)[1] == pytest.approx(expected)


def test_trees_have_two_leaves_at_least() -> None:
    with pytest.raises(ConfigError):
        Dendrogram.balanced(1, np.random.default_rng(0))


def test_parents_are_a_way_to_write_a_tree() -> None:
    for tree in all_trees(5)[::9]:
        assert shape_of(Dendrogram.from_parents(tree.parents)) == shape_of(tree)
        order, start = tree.spans()
        for node in range(9):
            below = {int(leaf) for leaf in order[start[node] : start[node] + tree.size[node]]}
            found = shape_of(tree, node)
            assert below == ({found} if isinstance(found, int) else set(_leaves(found)))


def _leaves(shape: object) -> list[int]:
    if isinstance(shape, int):
        return [shape]
    return [leaf for part in shape for leaf in _leaves(part)]  # type: ignore[attr-defined]

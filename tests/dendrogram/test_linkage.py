"""Average linkage: the closest merge, whatever is left is joined by size, and the tree is a good one."""

from itertools import combinations

import numpy as np
import pytest

from dendrogram.trees import likelihood
from graphveil.core.queries.dendrogram import Dendrogram, DendrogramChain, no_pairs
from graphveil.perturb.edge_rr import average_linkage


def members(tree: Dendrogram) -> list[set[int]]:
    """Return the leaves under each node."""
    order, start = tree.spans()
    return [set(order[at : at + size].tolist()) for at, size in zip(start, tree.size, strict=True)]


def cliques(groups: int, each: int) -> list[list[int]]:
    """Return groups of leaves, in no order."""
    return np.random.default_rng(0).permutation(groups * each).reshape(groups, each).tolist()


@pytest.mark.parametrize("seed", range(5))
def test_merged_groups_are_mutually_closest(seed: int) -> None:
    rng = np.random.default_rng(seed)
    edges = np.array([pair for pair in combinations(range(12), 2) if rng.random() < 0.3]).T
    tree = average_linkage(12, *edges, rng)
    under, groups = members(tree), {leaf: {leaf} for leaf in range(12)}

    def share(one: set[int], other: set[int]) -> float:
        across = sum((u in one and v in other) or (u in other and v in one) for u, v in edges.T)
        return across / (len(one) * len(other))

    for node in range(12, 23):
        left, right = groups.pop(int(tree.left[node])), groups.pop(int(tree.right[node]))
        here = share(left, right)
        others = [share(side, group) for side in (left, right) for group in groups.values()]
        assert here >= max(others, default=0)
        groups[node] = under[node]


def test_separate_cliques_are_subtrees() -> None:
    wanted = cliques(6, 8)
    one, other = np.array([pair for group in wanted for pair in combinations(group, 2)]).T
    tree = average_linkage(48, one, other, np.random.default_rng(1))
    assert all(set(group) in members(tree) for group in wanted)
    assert likelihood(DendrogramChain(tree, (one, other), no_pairs()))[0] == pytest.approx(0)


@pytest.mark.parametrize("rounds", [0, 3, 1000])
def test_remaining_groups_merge_by_size(rounds: int) -> None:
    star = np.zeros(20, dtype=np.int64), np.arange(1, 21)
    tree = average_linkage(40, *star, np.random.default_rng(0), rounds)
    assert tree.size[tree.root] == 40 and (tree.left[40:] >= 0).all()
    assert len(members(tree)[tree.root]) == 40

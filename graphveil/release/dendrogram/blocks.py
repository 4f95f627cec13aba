"""Which counts a dendrogram is made of: one for each node, or one for a small subtree."""

from dataclasses import dataclass

import numpy as np

from graphveil._kernels import Ints
from graphveil.data.node_pairs import NodePairIndex
from graphveil.release.dendrogram.tree import Dendrogram

ACROSS_TAU, INSIDE_TAU = 0.05, 0.01


@dataclass(frozen=True, eq=False)
class DendrogramBlocks:
    """Disjoint blocks of slots: across a node, or all inside a subtree that is counted as one.

    Where noise of scale 1 / eps would drown what is across a node (at most 1 / (tau_1 eps) slots) and what is
    inside (at most 1 / (tau_2 eps)), the whole subtree has one count. Sizes alone decide, which depend on no
    private edge; every slot is in one block.

    >>> tree = Dendrogram.from_parents(np.array([4, 4, 5, 5, 6, 6, -1]))
    >>> blocks = DendrogramBlocks.from_tree(tree, np.array([], dtype=np.int64), 100.0)
    >>> blocks.node.tolist(), blocks.collapsed.tolist(), blocks.slots.tolist()
    ([6, 4, 5], [False, False, False], [4, 1, 1])
    """

    tree: Dendrogram
    node: Ints
    collapsed: np.typing.NDArray[np.bool_]
    slots: Ints  # private ones in each block
    owner: Ints  # of each internal node, the block that its slots are in; -1 for none

    @classmethod
    def from_tree(cls, tree: Dendrogram, public: Ints, epsilon: float) -> "DendrogramBlocks":
        """Return the blocks for a budget; ``public`` are the slots of public edges."""
        across = private_slots(tree, public)
        inside = across.copy()
        for node in tree.top_down[::-1].tolist():
            inside[node] += inside[tree.left[node]] + inside[tree.right[node]]
        found: list[tuple[int, bool, int]] = []
        owner, waiting = np.full(len(tree.left), -1), [tree.root]
        while waiting:
            node = waiting.pop()
            if node < tree.leaves:
                continue
            small = across[node] * ACROSS_TAU * epsilon <= 1 and inside[node] * INSIDE_TAU * epsilon <= 1
            if small or across[node]:
                owner[_below(tree, node) if small else node] = len(found)
                found.append((node, bool(small), int(inside[node] if small else across[node])))
            if not small:
                waiting += [int(tree.right[node]), int(tree.left[node])]
        table = np.array(found, dtype=np.int64).reshape(-1, 3)
        return cls(tree, table[:, 0], table[:, 1] == 1, table[:, 2], owner)

    def counts(self, one: Ints, other: Ints) -> Ints:
        """Return how many pairs of leaves lie in each block: exact, for the release path alone."""
        return np.bincount(
            self.owner[self.tree.lowest_common_ancestors(one, other)], minlength=len(self.node)
        )


def private_slots(tree: Dendrogram, public: Ints) -> Ints:
    """Return how many slots across each node have no public edge, int64 (2n - 1)."""
    size, inner = tree.size, np.arange(tree.leaves, len(tree.left))
    pairs = np.zeros(len(tree.left), dtype=np.int64)
    pairs[inner] = size[tree.left[inner]] * size[tree.right[inner]]
    ends = NodePairIndex(tree.leaves, directed=False).ends(public)
    return pairs - np.bincount(tree.lowest_common_ancestors(*ends), minlength=len(pairs))


def _below(tree: Dendrogram, node: int) -> list[int]:
    """Return a node and all internal nodes below it."""
    found, waiting = list[int](), [node]
    while waiting:
        here = waiting.pop()
        if here >= tree.leaves:
            found.append(here)
            waiting += [int(tree.left[here]), int(tree.right[here])]
    return found

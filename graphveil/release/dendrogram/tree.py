"""Dendrograms: full binary trees over the nodes of a graph, as arrays, and where they begin."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from graphveil._kernels import Ints
from graphveil.errors import ConfigError


@dataclass(frozen=True, eq=False)
class Dendrogram:
    """A rooted full binary tree: leaves 0 .. n - 1, internal nodes n .. 2n - 2, the last of them the root.

    ``left`` and ``right`` are int64 (2n - 1), -1 at leaves, and stay as they are.

    >>> tree = Dendrogram.from_parents(np.array([4, 4, 5, 5, 6, 6, -1]))
    >>> tree.leaves, tree.size.tolist()
    (4, [1, 1, 1, 1, 2, 2, 4])
    """

    left: Ints
    right: Ints

    @classmethod
    def balanced(cls, leaves: int, rng: np.random.Generator) -> "Dendrogram":
        """Return a balanced tree over the leaves in random order; no edge is looked at."""
        if leaves < 2:
            raise ConfigError(f"leaves={leaves} must be at least 2")
        left, right = np.full(2 * leaves - 1, -1), np.full(2 * leaves - 1, -1)
        order, following = rng.permutation(leaves), 2 * leaves - 2
        waiting = [(following, 0, leaves)]
        while waiting:
            node, start, stop = waiting.pop()
            middle = (start + stop) // 2
            for side, first, last in ((left, start, middle), (right, middle, stop)):
                if last - first == 1:
                    side[node] = order[first]
                else:
                    following -= 1
                    side[node] = following
                    waiting.append((following, first, last))
        return cls(left, right)

    @classmethod
    def from_parents(cls, parent: Ints) -> "Dendrogram":
        """Return the tree in which each node hangs at its parent, the root at -1."""
        left, right = np.full(len(parent), -1), np.full(len(parent), -1)
        for node, above in enumerate(parent.tolist()):
            if above >= 0:
                side = left if left[above] < 0 else right
                side[above] = node
        return cls(left, right)

    @property
    def leaves(self) -> int:
        """The number of leaves n."""
        return (len(self.left) + 1) // 2

    @property
    def root(self) -> int:
        """The root, which is the last node."""
        return len(self.left) - 1

    @cached_property
    def parents(self) -> Ints:
        """The parent of each node, -1 for the root."""
        found = np.full(len(self.left), -1)
        inner = np.arange(self.leaves, len(self.left))
        found[self.left[inner]], found[self.right[inner]] = inner, inner
        return found

    @cached_property
    def top_down(self) -> Ints:
        """The internal nodes, each before those below it."""
        found, waiting, leaves = list[int](), [self.root], self.leaves
        left, right = self.left.tolist(), self.right.tolist()
        while waiting:
            node = waiting.pop()
            if node >= leaves:
                found.append(node)
                waiting += [right[node], left[node]]
        return np.array(found, dtype=np.int64)

    @cached_property
    def size(self) -> Ints:
        """How many leaves lie under each node."""
        found = np.ones(len(self.left), dtype=np.int64)
        for node in self.top_down[::-1].tolist():
            found[node] = found[self.left[node]] + found[self.right[node]]
        return found

    def spans(self) -> tuple[Ints, Ints]:
        """Return the leaves in the order of the tree, and where each node's begin among them."""
        size, start = self.size, np.zeros(len(self.left), dtype=np.int64)
        for node in self.top_down.tolist():
            start[self.left[node]] = start[node]
            start[self.right[node]] = start[node] + size[self.left[node]]
        order = np.empty(self.leaves, dtype=np.int64)
        order[start[: self.leaves]] = np.arange(self.leaves)
        return order, start

    def lowest_common_ancestors(self, one: Ints, other: Ints) -> Ints:
        """Return for each pair of leaves the node at which they meet, in few steps even in a deep tree.

        A path goes on into the larger child, so that few paths lead to any leaf (heavy paths).
        """
        depth, head = np.zeros(len(self.left), dtype=np.int64), np.arange(len(self.left))
        for node in self.top_down.tolist():
            children = self.left[node], self.right[node]
            depth[[*children]] = depth[node] + 1
            head[max(children, key=self.size.__getitem__)] = head[node]
        one, other = one.copy(), other.copy()
        apart = np.flatnonzero(head[one] != head[other])
        while apart.size:
            a, b = head[one[apart]], head[other[apart]]
            lower = depth[a] >= depth[b]
            one[apart] = np.where(lower, self.parents[a], one[apart])
            other[apart] = np.where(lower, other[apart], self.parents[b])
            apart = apart[head[one[apart]] != head[other[apart]]]
        return np.where(depth[one] < depth[other], one, other)

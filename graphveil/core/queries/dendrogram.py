"""Dendrograms: full binary trees over the nodes of a graph, as arrays, and noisy counts of their blocks.

A walk over dendrograms (``dendrogram_walk.py``) starts at ``Dendrogram.balanced`` or, with public edges, at
``average_linkage``. ``DendrogramBlocks`` determines, from sizes alone, which counts a tree consists of.
``BlockCountQuery`` releases these counts.
"""

import heapq
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from graphveil.core.edges.node_pairs import NodePairIndex
from graphveil.core.noise._kernels import Floats, Ints
from graphveil.core.noise.random import RowStream
from graphveil.core.private_edges import PrivateEdges
from graphveil.core.queries.graph_queries import (
    LaplaceCountQuery,
    NodePairData,
    PreparedNodePairs,
    exact_node_pairs,
)
from graphveil.core.query import ExampleGraph, PreparedData, PublicInputs
from graphveil.core.sites import forms_private_sum
from graphveil.errors import ConfigError, ReleaseError


@dataclass(frozen=True, eq=False)
class Dendrogram:
    """A rooted full binary tree: leaves 0 .. n - 1, internal nodes n .. 2n - 2, the last of them the root.

    ``left`` and ``right`` are int64 (2n - 1), -1 at leaves, and must not be changed.

    >>> tree = Dendrogram.from_parents(np.array([4, 4, 5, 5, 6, 6, -1]))
    >>> tree.leaves, tree.size.tolist()
    (4, [1, 1, 1, 1, 2, 2, 4])
    """

    left: Ints
    right: Ints

    @classmethod
    def balanced(cls, leaves: int, rng: np.random.Generator) -> "Dendrogram":
        """Return a balanced tree over the leaves in random order; no edge is read."""
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
        """Return the tree with the given parent of each node, -1 for the root."""
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
        """The number of leaves below each node."""
        found = np.ones(len(self.left), dtype=np.int64)
        for node in self.top_down[::-1].tolist():
            found[node] = found[self.left[node]] + found[self.right[node]]
        return found

    def spans(self) -> tuple[Ints, Ints]:
        """Return the leaves in the order of the tree, and the start of each node's leaves in it."""
        size, start = self.size, np.zeros(len(self.left), dtype=np.int64)
        for node in self.top_down.tolist():
            start[self.left[node]] = start[node]
            start[self.right[node]] = start[node] + size[self.left[node]]
        order = np.empty(self.leaves, dtype=np.int64)
        order[start[: self.leaves]] = np.arange(self.leaves)
        return order, start

    def lowest_common_ancestors(self, one: Ints, other: Ints) -> Ints:
        """Return the lowest common ancestor of each pair of leaves, in few steps even in a deep tree.

        A path continues into the larger child, so that few paths lead to any leaf (heavy paths).
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


ROUNDS = 1000  # merge rounds; a star needs one for each leaf, most graphs about two hundred in total


def average_linkage(
    leaves: int, one: Ints, other: Ints, rng: np.random.Generator, rounds: int = ROUNDS
) -> Dendrogram:
    """Return the average-linkage tree of public edges.

    Two groups merge if each is the other's closest group. The closest group is the one with the largest share
    of edges among the pairs across, p_r = e_r / N_r: the probability of the node above them in a hierarchical
    random graph. All such pairs of groups merge in one round. Groups that no edge joins, or that remain after
    ``ROUNDS``, merge by size, smallest first.

    Args:
        leaves: Number of leaves.
        one, other: Ends of each edge.
        rng: Generator that breaks ties, which are frequent at first.
        rounds: Maximum number of rounds.

    Privacy:
        Reads: public edges only. Charges: nothing.

    >>> tree = average_linkage(4, np.array([0, 1]), np.array([2, 3]), np.random.default_rng(0))
    >>> bool(tree.parents[0] == tree.parents[2] != tree.parents[1])
    True
    """
    parent, size = np.full(2 * leaves - 1, -1), np.ones(2 * leaves - 1, dtype=np.int64)
    edges, made = np.ones(len(one)), leaves
    for _ in range(rounds):
        if not len(one):
            break
        merged = _mutual_nearest_pairs(edges / (size[one] * size[other]), one, other, rng)
        above = made + np.arange(len(merged))
        group, made = np.arange(made), made + len(merged)
        for end in (one[merged], other[merged]):
            parent[end], group[end] = above, above
            size[above] += size[end]
        size[above] -= 1
        one, other, edges = _between(group[one], group[other], edges)
    return Dendrogram.from_parents(_by_size(parent, size, made, rng))


def _mutual_nearest_pairs(shares: Floats, one: Ints, other: Ints, rng: np.random.Generator) -> Ints:
    """Return the pairs of groups that are each other's closest, with ties broken symmetrically."""
    rank = np.empty(len(one), dtype=np.int64)
    rank[np.lexsort((rng.random(len(one)), shares))] = np.arange(len(one))
    closest = np.zeros(1 + max(one.max(), other.max()), dtype=np.int64)
    for end in (one, other):
        np.maximum.at(closest, end, rank)
    return np.flatnonzero((closest[one] == rank) & (closest[other] == rank))


def _between(one: Ints, other: Ints, edges: Floats) -> tuple[Ints, Ints, Floats]:
    """Return the pairs of groups with edges between them, each once, and the number of these edges."""
    apart = one != other
    low, high = np.minimum(one, other)[apart], np.maximum(one, other)[apart]
    keys, place = np.unique(low << 32 | high, return_inverse=True)
    many = np.bincount(place, edges[apart], minlength=len(keys)).astype(np.float64)
    return keys >> 32, keys & 0xFFFFFFFF, many


def _by_size(parent: Ints, size: Ints, made: int, rng: np.random.Generator) -> Ints:
    """Merge the groups without a parent, the two smallest at a time."""
    loose = rng.permutation(np.flatnonzero(parent[:made] < 0))
    waiting = [(int(size[node]), place, int(node)) for place, node in enumerate(loose)]
    heapq.heapify(waiting)
    for node in range(made, len(parent)):
        (few, _, left), (more, _, right) = heapq.heappop(waiting), heapq.heappop(waiting)
        parent[[left, right]] = node
        heapq.heappush(waiting, (few + more, node, node))
    return parent


ACROSS_TAU, INSIDE_TAU = 0.05, 0.01


@dataclass(frozen=True, eq=False)
class DendrogramBlocks:
    """Disjoint blocks of node pairs: the pairs across a node, or all pairs inside a collapsed subtree.

    A subtree has one count if noise of scale 1 / eps would dominate its counts: at most 1 / (tau_1 eps) node
    pairs across its node, and at most 1 / (tau_2 eps) inside. The decision depends on sizes alone, not on
    private edges. Every node pair is in one block.

    >>> tree = Dendrogram.from_parents(np.array([4, 4, 5, 5, 6, 6, -1]))
    >>> blocks = DendrogramBlocks.from_tree(tree, np.array([], dtype=np.int64), 100.0)
    >>> blocks.node.tolist(), blocks.collapsed.tolist(), blocks.slots.tolist()
    ([6, 4, 5], [False, False, False], [4, 1, 1])
    """

    tree: Dendrogram
    node: Ints
    collapsed: np.typing.NDArray[np.bool_]
    slots: Ints  # private node pairs in each block
    owner: Ints  # the block of each internal node's pairs; -1 for none

    @classmethod
    def from_tree(cls, tree: Dendrogram, public: Ints, epsilon: float) -> "DendrogramBlocks":
        """Return the blocks for a budget; ``public`` are the node pairs of public edges."""
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
        """Return the number of given pairs of leaves in each block: exact, for the release path only."""
        return np.bincount(
            self.owner[self.tree.lowest_common_ancestors(one, other)], minlength=len(self.node)
        )


def private_slots(tree: Dendrogram, public: Ints) -> Ints:
    """Return the number of node pairs across each node without a public edge, int64 (2n - 1)."""
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


@dataclass(frozen=True, eq=False, repr=False)
class BlockCountData(NodePairData):
    """The node pairs, and a dendrogram over the listed nodes, public or an earlier answer of the release.

    The answer is the counts of the blocks, int64, which may be negative or exceed the size of a block.
    """

    tree: Dendrogram | None = None


@dataclass(frozen=True, eq=False, repr=False)
class _PreparedBlocks(PreparedNodePairs):
    blocks: DendrogramBlocks


@dataclass(frozen=True)
class BlockCountQuery(LaplaceCountQuery):
    """One count per block, each with independent discrete Laplace noise.

    Privacy:
        Unit: edge-level. Blocks are disjoint and determined by sizes alone. One edge therefore moves one
        count by
        one: epsilon in total, for any number of blocks.

    >>> round(BlockCountQuery(0.5).noise[0], 4)
    2.7992
    """

    kind: ClassVar[str] = "blocks"
    wire_name: ClassVar[str] = "BlockCountQuery"
    stage: ClassVar[str] = "counts of blocks"
    data: ClassVar[type[BlockCountData]] = BlockCountData

    def example_data(self, graph: ExampleGraph) -> BlockCountData | None:
        """Return all node pairs, with a random tree over the listed nodes."""
        leaves = graph.domain.slots.nodes
        if leaves < 2:
            return None
        return BlockCountData(graph.domain, tree=Dendrogram.balanced(leaves, graph.generator("tree")))

    def prepare(self, data: Any, public: PublicInputs) -> PreparedData:
        """Check that the tree is over the listed nodes."""
        found = super().prepare(data, public)
        tree: Dendrogram | None = data.tree
        if tree is None or tree.leaves != data.domain.slots.nodes:
            raise ReleaseError(
                "the query needs a dendrogram over the listed nodes; the release stays charged"
            )
        arrays = (*found.arrays, torch.from_numpy(tree.parents))
        blocks = DendrogramBlocks.from_tree(tree, data.domain.public, self.epsilon)
        return _PreparedBlocks(public, arrays, data.domain, data.number, blocks)

    @forms_private_sum("BlockCountQuery")
    def answer(self, private: PrivateEdges, data: _PreparedBlocks, key: bytes) -> Tensor:
        """Return noisy counts; the exact ones are discarded here."""
        ends = data.domain.slots.ends(exact_node_pairs(private, data.domain))
        counts = data.blocks.counts(*ends)
        noise = self.law.draw(RowStream(key), np.arange(len(counts)))
        return torch.from_numpy(counts + noise[:, 0])

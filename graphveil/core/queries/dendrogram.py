"""Dendrograms: full binary trees over the nodes of a graph, noisy counts of their blocks, and their search.

In a step of the walk an internal node y = (i, j) with its parent x = (y, k) becomes ((i, k), j) or
((j, k), i). Only the counts at x and y change, and all relevant edges cross x. Every internal node therefore
keeps the list of its edges, and a proposal reads the list of x. The counts of all nodes add up to the number
of edges, so a list is short on average. A walk up from an end finds which of i, j and k it belongs to.

`_native.c` has the operations of ``walk`` in the same order, and so is bit-identical: keep both in sync.
A step takes about ten microseconds when interpreted, and one or two in C.

One edge moves the likelihood by at most ``sensitivity``, and few steps depend on it (``touched_steps``).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, log, log1p
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.core.edges.node_pairs import Domain, NodePairIndex
from graphveil.core.events import ApproximateDP
from graphveil.core.noise import _kernels
from graphveil.core.noise._kernels import Floats, Ints
from graphveil.core.noise.random import RowStream
from graphveil.core.noise.sampling import uniform_below
from graphveil.core.private_edges import PrivateEdges, forms_private_sum
from graphveil.core.queries.graph_queries import (
    BoundedQuery,
    LaplaceCountQuery,
    NodePairData,
    exact_node_pairs,
)
from graphveil.core.query import PreparedData, PublicInputs, reject_if
from graphveil.core.unit import Unit
from graphveil.errors import ConfigError


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
        left, right = np.full(len(parent), -1), np.full(len(parent), -1)
        for node, above in enumerate(parent.tolist()):
            if above >= 0:
                side = left if left[above] < 0 else right
                side[above] = node
        return cls(left, right)

    @property
    def leaves(self) -> int:
        return (len(self.left) + 1) // 2

    @property
    def root(self) -> int:
        return len(self.left) - 1

    @cached_property
    def parents(self) -> Ints:
        found = np.full(len(self.left), -1)
        inner = np.arange(self.leaves, len(self.left))
        found[self.left[inner]], found[self.right[inner]] = inner, inner
        return found

    def below(self, node: int) -> list[int]:
        """Return the internal nodes of a subtree, from the top down."""
        found, waiting = list[int](), [node]
        while waiting:
            node = waiting.pop()
            if node >= self.leaves:
                found.append(node)
                waiting += [int(self.right[node]), int(self.left[node])]
        return found

    @cached_property
    def top_down(self) -> Ints:
        return np.array(self.below(self.root), dtype=np.int64)

    @cached_property
    def size(self) -> Ints:
        found = np.ones(len(self.left), dtype=np.int64)
        for node in self.top_down[::-1].tolist():
            found[node] = found[self.left[node]] + found[self.right[node]]
        return found

    def spans(self) -> tuple[Ints, Ints]:
        size, start = self.size, np.zeros(len(self.left), dtype=np.int64)
        for node in self.top_down.tolist():
            start[self.left[node]] = start[node]
            start[self.right[node]] = start[node] + size[self.left[node]]
        order = np.empty(self.leaves, dtype=np.int64)
        order[start[: self.leaves]] = np.arange(self.leaves)
        return order, start

    def lowest_common_ancestors(self, one: Ints, other: Ints) -> Ints:
        """Return the lowest common ancestor of each pair of leaves, in few steps (heavy paths)."""
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
                owner[tree.below(node) if small else node] = len(found)
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


@dataclass(frozen=True, eq=False, repr=False)
class BlockCountData(NodePairData):
    """The node pairs, and a dendrogram over the listed nodes, public or an earlier answer of the release.

    The answer is the counts of the blocks, int64, which may be negative or exceed the size of a block.
    """

    tree: Dendrogram | None = None


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
    stage: ClassVar[str] = "counts of blocks"
    data: ClassVar[type[BlockCountData]] = BlockCountData

    def prepare(self, data: Any, public: PublicInputs) -> PreparedData:
        arrays = super().prepare(data, public).arrays
        tree = data.tree
        reject_if(
            tree is None or tree.leaves != data.domain.slots.nodes,
            "the query needs a dendrogram over the listed nodes",
        )
        blocks = DendrogramBlocks.from_tree(tree, data.domain.public, self.epsilon)
        return PreparedData(public, (*arrays, torch.from_numpy(tree.parents)), (data.domain, blocks))

    @forms_private_sum("BlockCountQuery")
    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        domain, blocks = data.parts
        counts = blocks.counts(*domain.slots.ends(exact_node_pairs(private, domain)))
        noise = self.law.draw(RowStream(key), np.arange(len(counts)))
        return torch.from_numpy(counts + noise[:, 0])


def score(slots: int, edges: int) -> float:
    """Return l(N, e) = e ln(e / N) + (N - e) ln(1 - e / N), the log-likelihood of a block at its best p."""
    if not 0 < edges < slots:
        return 0.0
    return edges * log(edges / slots) + (slots - edges) * log1p(-1.0 * edges / slots)


def step_bound(slots: int) -> float:
    """Return f(N) = ln N + (N - 1) ln(N / (N - 1)): the maximum change of l(N, e) by one edge."""
    return log(slots) + (slots - 1) * log1p(1.0 / (slots - 1)) if slots > 1 else 0.0


def walk(numbers: tuple[int, ...], arrays: Sequence[Any]) -> None:
    """Run steps of the chain, in place.

    With ``joint`` private steps also use the public change. With ``lazy`` they stay with probability 1/2, and
    use the exact weight of each move. ``weights`` are those of the public change and of the private one, and
    the loss kappa of a lazy step. Each step has an internal node (``pick``), one of two moves (``turn``; a
    lazy step stays for 2 and 3), and a uniform in [0, 1) (``coin``). Nodes have public and private ``counts``
    and ``scores``, and their first edge (``head``), and edges have the next one (``following``); -1 is none.
    """
    steps, first, leaves, every, joint, lazy = numbers
    weights, pick, turn, coin, left, right, parent, size, counts, scores, *lists = arrays
    head, following, one, other, kind, under, done = lists
    for step in range(steps):
        private = int((first + step + 1) % every == 0)
        if private and lazy and turn[step] > 1:
            continue
        y = leaves + pick[step]
        x = parent[y]
        i, j = left[y], right[y]
        k = right[x] if left[x] == y else left[x]
        if turn[step] % 2 == 1:
            i, j = j, i
        public_new = private_new = 0
        edge = head[x]
        while edge >= 0:
            end = one[edge]
            while end != i and end != j and end != k:
                end = parent[end]
            if end == k:
                end = other[edge]
                while end != i and end != j:
                    end = parent[end]
            under[edge] = int(end == i)
            if end == i and kind[edge] == 0:
                public_new += 1
            elif end == i:
                private_new += 1
            edge = following[edge]
        pairs_y, pairs_x = size[i] * size[j], size[y] * size[k]
        pairs_new, pairs_rest = size[i] * size[k], (size[i] + size[k]) * size[j]
        public_rest = counts[2 * x] + counts[2 * y] - public_new
        private_rest = counts[2 * x + 1] + counts[2 * y + 1] - private_new
        public_y = score(pairs_new, public_new)
        public_x = score(pairs_rest, public_rest)
        private_y = score(pairs_new - public_new, private_new)
        private_x = score(pairs_rest - public_rest, private_rest)
        ratio = weights[0] * (public_y + public_x - scores[2 * y] - scores[2 * x])
        if private:
            gain = private_y + private_x - scores[2 * y + 1] - scores[2 * x + 1]
            weight = weights[1]
            if lazy:
                was_y = step_bound(pairs_y - counts[2 * y])
                was_x = step_bound(pairs_x - counts[2 * x])
                new_y = step_bound(pairs_new - public_new)
                new_x = step_bound(pairs_rest - public_rest)
                bound = max(was_y + new_x, was_x + new_y, was_x + new_x)
                weight = weights[2] / bound if bound > 0.0 else 0.0
            ratio = (ratio if joint else 0.0) + weight * gain
            if lazy:  # a probability that 53-bit uniforms resolve; clipping adds no privacy loss
                ratio = max(ratio, -13.0)
        if not (ratio >= 0.0 or coin[step] < exp(ratio)):
            continue
        to_y = to_x = -1
        edge = head[x]
        while edge >= 0:
            after = following[edge]
            if under[edge] == 1:
                following[edge], to_y = to_y, edge
            else:
                following[edge], to_x = to_x, edge
            edge = after
        edge = head[y]
        while edge >= 0:
            after = following[edge]
            following[edge], to_x = to_x, edge
            edge = after
        head[y], head[x] = to_y, to_x
        left[y], right[y], left[x], right[x] = i, k, y, j
        parent[k], parent[j] = y, x
        size[y] = size[i] + size[k]
        counts[2 * y : 2 * y + 2] = public_new, private_new
        counts[2 * x : 2 * x + 2] = public_rest, private_rest
        scores[2 * y : 2 * y + 2] = public_y, private_y
        scores[2 * x : 2 * x + 2] = public_x, private_x
        done[0] += 1
        done[1] += private


_TINY = 1e-6  # replaces a sensitivity of zero, where there is nothing to choose
_ROUNDING = 1e-6  # relative, far above the effect of floats and 53-bit uniforms on a step's loss


def sensitivity(leaves: int) -> float:
    """Return the sensitivity of the log-likelihood of any dendrogram to one private edge.

    Delta(n) = ln N + (N - 1) ln(1 + 1 / (N - 1)), N = floor(n / 2) ceil(n / 2): l(N, e) is convex in e, so
    the first edge of the largest block moves it most. The bound is valid if the number of node pairs of a
    block does not depend on the edges.

    >>> [round(sensitivity(leaves), 8) for leaves in (3, 4, 8, 2708)]
    [1.38629436, 2.24934058, 3.74066654, 15.42163663]
    """
    return max(_TINY, step_bound((leaves // 2) * ((leaves + 1) // 2)))


def touched_steps(steps: int, leaves: int, failure: float) -> int:
    """Return a bound on the private steps that one edge affects, with failure probability ``failure``.

    A step involves the two nodes at which three subtrees meet. An edge belongs to one node, and at most 3 of
    the n - 2 possible steps touch a node. The choice of the step depends on no edge, so the number of steps
    that an edge affects is at most binomial.

    >>> touched_steps(5000, 1000, 1e-7), touched_steps(50_000, 1000, 1e-7), touched_steps(54_160, 2708, 1e-7)
    (39, 218, 104)
    """
    from scipy.stats import binom  # slow to import

    return int(binom.isf(failure, steps, min(1.0, 3 / max(1, leaves - 2))))


def step_loss(epsilon: float, delta: float, steps: int, leaves: int) -> float:
    """Return kappa: the loss allowed for each lazy private step, for (epsilon, delta) over all of them.

    With K = ``touched_steps`` the trajectory is (K kappa, delta)-indistinguishable; or, with delta in two
    halves, rho = K kappa^2 / 2 gives epsilon = rho + 2 sqrt(rho ln(2 / delta)). The larger kappa is used.

    >>> round(step_loss(1.0, 1e-7, 54_160, 2708), 4)
    0.0165
    """
    checks.positive(epsilon=epsilon, delta=delta)
    pure = epsilon / max(1, touched_steps(steps, leaves, delta))
    log = math.log(2 / delta)
    rho = (math.sqrt(log + epsilon) - math.sqrt(log)) ** 2
    spread = math.sqrt(2 * rho / max(1, touched_steps(steps, leaves, delta / 2)))
    return max(pure, spread) * (1 - _ROUNDING)


STEPS = 1 << 14  # steps per chunk, one row of the stream per chunk
NEVER = 1 << 62
_UNIT = 2.0**-53

Pairs = tuple[Ints, Ints]


@dataclass(frozen=True, kw_only=True)
class ChainSchedule:
    """Weights of the steps of a chain; see ``graphveil.core.queries.dendrogram.walk``.

    Public steps accept with min(1, exp(public dL_pub)). Every ``every``-th step is private (none for 0), and
    accepts with min(1, exp(private dL_pri)). With ``joint`` the public part is added. Lazy private steps stay
    with probability 1/2. They weight dL_pri by kappa over the most that one edge can change it in that move.
    """

    public: float = 1.0
    private: float = 0.0
    every: int = 0
    joint: bool = False
    kappa: float | None = None

    @property
    def numbers(self) -> tuple[int, int, int]:
        return self.every or NEVER, int(self.joint), int(self.kappa is not None)

    @property
    def weights(self) -> Floats:
        return np.array([self.public, self.private, self.kappa or 0.0])


class DendrogramChain:
    """A dendrogram with the counts that moves change, over public and private edges.

    Private node pairs are the pairs of leaves without a public edge; public node pairs are all pairs.

    >>> tree = Dendrogram.balanced(4, np.random.default_rng(0))
    >>> chain = DendrogramChain(tree, no_pairs(), (np.array([0]), np.array([1])))
    >>> chain.run(10, ChainSchedule(), RowStream(bytes(32)))
    >>> chain.tree.leaves
    4
    """

    def __init__(self, tree: Dendrogram, public: Pairs, private: Pairs) -> None:
        nodes = len(tree.left)
        self._left, self._right = tree.left.copy(), tree.right.copy()
        self._parent, self._size = tree.parents.copy(), tree.size.copy()
        self._one, self._other = (np.concatenate(both) for both in zip(public, private, strict=True))
        self._kind = np.repeat(np.arange(2), [len(public[0]), len(private[0])])
        at = tree.lowest_common_ancestors(self._one, self._other)
        self._counts = np.bincount(2 * at + self._kind, minlength=2 * nodes)
        self._head, self._next = _lists(at, nodes)
        self._under, self._done = np.zeros_like(self._one), np.zeros(2, dtype=np.int64)
        self._scores = _scores(tree, self._counts)
        self._steps = 0

    @property
    def tree(self) -> Dendrogram:
        return Dendrogram(self._left.copy(), self._right.copy())

    def run(self, steps: int, schedule: ChainSchedule, stream: RowStream, *, plain: bool = False) -> None:
        """Run steps with the words of a keyed stream; splitting a run into parts does not change the result.

        ``plain`` runs them in Python; the C loop is bit-identical. Two leaves have only one tree, so there is
        nothing to choose.
        """
        last = self._steps + steps
        while self._steps < last and self._leaves > 2:
            row, within = divmod(self._steps, STEPS)
            count = min(STEPS - within, last - self._steps)
            some = slice(within, within + count)
            words = stream.words(np.array([row]), words_per_row=2 * STEPS)[0].reshape(-1, 2)[some]
            pick = uniform_below(words[:, 0], self._leaves - 2)
            turn = (words[:, 1] & np.uint64(3)).astype(np.int64)
            coin = (words[:, 1] >> np.uint64(11)) * _UNIT
            numbers = count, self._steps, self._leaves, *schedule.numbers
            arrays = schedule.weights, pick, turn, coin, *self._arrays
            if _kernels.available() and not plain:
                _kernels.walk(numbers, arrays)
            else:  # on lists of plain numbers, which are faster to read one by one
                lists = [array.tolist() for array in arrays]
                walk(numbers, lists)
                for array, changed in zip(arrays, lists, strict=True):
                    array[:] = changed
            self._steps += count
        self._steps = last

    @property
    def _leaves(self) -> int:
        return (len(self._left) + 1) // 2

    @property
    def _arrays(self) -> tuple[Ints | Floats, ...]:
        """The arrays that steps change, in the order of ``graphveil.core.queries.dendrogram.walk``."""
        tree = self._left, self._right, self._parent, self._size
        lists = self._head, self._next, self._one, self._other, self._kind, self._under
        return (*tree, self._counts, self._scores, *lists, self._done)


def no_pairs() -> Pairs:
    return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)


def _lists(at: Ints, nodes: int) -> tuple[Ints, Ints]:
    """Return the edges of each node as linked lists: its first, and the next of each edge; -1 ends them."""
    head, following = np.full(nodes, -1), np.full(len(at), -1)
    for edge, node in enumerate(at.tolist()):
        following[edge], head[node] = head[node], edge
    return head, following


def _scores(tree: Dendrogram, counts: Ints) -> Floats:
    size, found = tree.size, np.zeros(2 * len(tree.left))
    for node in range(tree.leaves, len(tree.left)):
        pairs = int(size[tree.left[node]] * size[tree.right[node]])
        public, private = counts[2 * node : 2 * node + 2].tolist()
        found[2 * node : 2 * node + 2] = score(pairs, public), score(pairs - public, private)
    return found


_START = 1 << 60  # the row of a stream for the first tree, far behind those of steps

Walk = Literal["lazy_audited", "joint_mh", "paper"]


@dataclass(frozen=True, eq=False, repr=False)
class TreeSearchData(NodePairData):
    """The node pairs: listed nodes are leaves. The answer is the parent of each node, int64 (2n - 1)."""


@dataclass(frozen=True)
class TreeSearchQuery(BoundedQuery):
    """Run a chain over dendrograms, with steps on private edges, and release the last tree.

    ``lazy_audited``: every ``every``-th step is private and lazy. It stays with probability 1/2, and
    otherwise accepts by the private likelihood, weighted so that one step loses at most kappa. One edge
    affects few of these steps, so the walk is (epsilon, delta)-indistinguishable after any number of steps
    (``graphveil.core.queries.dendrogram``). All other steps read only public edges.

    ``joint_mh``: plain Metropolis steps on exp(L_pub + epsilon L_pri / (2 Delta)), the exponential mechanism.
    Its epsilon is valid for the limit of the chain; nothing is proved for a finite number of steps.

    ``paper``: ``public_rounds`` steps on exp(L_pub) and ``private_rounds`` steps on exp(epsilon L_pri /
    Delta) alternate. The limit is neither law, and the exponent lacks the factor 1/2: no guarantee.
    """

    kind: ClassVar[str] = "tree"
    stage: ClassVar[str] = "tree"
    data: ClassVar[type[TreeSearchData]] = TreeSearchData
    without_example: ClassVar[str] = (
        "the random walk over trees reveals far less than its bound; unit tests enumerate its distribution"
    )

    walk: Walk
    steps: int
    every: int
    delta: float = 0.0
    public_rounds: int = 1000
    private_rounds: int = 10
    use_public_edges: bool = True  # in the likelihood; their node pairs are excluded in both cases

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.one_of(("lazy_audited", "joint_mh", "paper"), walk=self.walk)
        checks.integer_at_least(1, steps=self.steps, every=self.every)
        checks.integer_at_least(1, public_rounds=self.public_rounds, private_rounds=self.private_rounds)
        if self.walk == "lazy_audited":
            checks.positive(delta=self.delta)

    def event(self, unit: Unit) -> ApproximateDP:
        self.sensitivity(unit)
        return ApproximateDP(self.epsilon, self.delta)

    @property
    def noise(self) -> tuple[float, ...]:
        """The inverse of epsilon: a walk has no additive noise."""
        return (1 / self.epsilon,)

    @forms_private_sum("TreeSearchQuery", note="the counts of a tree, and its random walk")
    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        domain: Domain = data.parts.domain
        leaves = domain.slots.nodes
        if leaves < 3:
            return torch.from_numpy(Dendrogram.balanced(leaves, np.random.default_rng(0)).parents)
        stream = RowStream(key)
        rng = np.random.default_rng(stream.words(np.array([_START]), words_per_row=4)[0])
        chain = DendrogramChain(
            Dendrogram.balanced(leaves, rng),
            public_pairs(domain),
            domain.slots.ends(exact_node_pairs(private, domain)),
        )
        self._take(chain, stream, leaves)
        return torch.from_numpy(chain.tree.parents)

    def _take(self, chain: DendrogramChain, stream: RowStream, leaves: int) -> None:
        if self.walk == "lazy_audited":
            taken = self.steps // self.every
            kappa = step_loss(self.epsilon, self.delta, taken, leaves)
            chain.run(self.steps, ChainSchedule(every=self.every, kappa=kappa), stream)
        elif self.walk == "joint_mh":
            weight = self.epsilon / (2 * sensitivity(leaves))
            public = 1.0 if self.use_public_edges else 0.0
            chain.run(self.steps, ChainSchedule(public=public, every=1, private=weight, joint=True), stream)
        else:
            private = ChainSchedule(every=1, private=self.epsilon / sensitivity(leaves))
            turns = [(self.public_rounds, ChainSchedule()), (self.private_rounds, private)]
            left = self.steps
            while left > 0:
                for rounds, schedule in turns if self.use_public_edges else [(left, private)]:
                    chain.run(min(rounds, left), schedule, stream)
                    left -= min(rounds, left)


def public_pairs(domain: Domain) -> tuple[np.ndarray, np.ndarray]:
    return domain.slots.ends(domain.public)

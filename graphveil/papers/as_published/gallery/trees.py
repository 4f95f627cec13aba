"""Published mechanisms on dendrograms: the choice of a tree, and the counts of its blocks.

A tree over n leaves has n - 1 inner nodes; each pair of leaves has one of them as lowest common ancestor.
Inner node r has N_r pairs and e_r edges, and the tree's score is L = sum_r l(N_r, e_r), with
l(N, e) = e ln(e/N) + (N - e) ln(1 - e/N).
"""

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations

import numpy as np
from scipy.special import xlogy

from graphveil.audit.noise import NoiseRecorder
from graphveil.audit.small_graphs import SmallGraph
from graphveil.papers.as_published.gallery.published_mechanism import RestatedValue, published_mechanism

LEAVES = 5  # of the private part; 105 trees
EPSILON = 2.0

Tree = tuple["Tree", "Tree"] | int


def trees(leaves: tuple[int, ...]) -> Iterator[Tree]:
    """Yield every rooted binary tree over the leaves."""
    if len(leaves) == 1:
        yield leaves[0]
        return
    first, rest = leaves[0], leaves[1:]
    for size in range(len(rest)):
        for with_first in combinations(rest, size):
            others = tuple(leaf for leaf in rest if leaf not in with_first)
            for left in trees((first, *with_first)):
                yield from ((left, right) for right in trees(others))


def _leaves(tree: Tree) -> list[int]:
    return [tree] if isinstance(tree, int) else _leaves(tree[0]) + _leaves(tree[1])


def _blocks(tree: Tree) -> Iterator[list[tuple[int, int]]]:
    """Yield for every inner node the pairs across it."""
    if isinstance(tree, int):
        return
    yield [(u, v) for u in _leaves(tree[0]) for v in _leaves(tree[1])]
    yield from _blocks(tree[0])
    yield from _blocks(tree[1])


@lru_cache(maxsize=8)
def membership(n: int) -> np.ndarray:
    """Return which pairs lie across which inner node of which tree, (trees, n - 1, n, n)."""
    every = list(trees(tuple(range(n))))
    table = np.zeros((len(every), max(1, n - 1), n, n))
    for t, tree in enumerate(every):
        for r, block in enumerate(_blocks(tree)):
            table[(t, r, *np.array(block).T)] = 1
    return table + table.transpose(0, 1, 3, 2)


def scores(edges: np.ndarray, there: np.ndarray | None = None) -> np.ndarray:
    """Return the score of every tree; ``there`` marks the leaves that count, all by default."""
    table = membership(len(edges))
    counts = np.ones_like(edges) if there is None else np.outer(there, there)
    size = np.einsum("trij,ij->tr", table, counts) / 2
    held = np.einsum("trij,ij->tr", table, edges) / 2
    share = held / np.maximum(size, 1)
    return np.asarray((xlogy(held, share) + xlogy(size - held, 1 - share)).sum(axis=1))


def sensitivity(n: int) -> float:
    """Return Delta: the most that one edge moves a tree's score.

    >>> round(sensitivity(5), 8)
    2.70336725
    """
    most = (n // 2) * -(-n // 2)
    return math.log(most) + (most - 1) * math.log1p(1 / (most - 1)) if most > 1 else 0.0


def _law(edges: np.ndarray, exponent: float) -> np.ndarray:
    weights = exponent * scores(edges)
    law = np.exp(weights - weights.max())
    return np.asarray(law / law.sum())


@published_mechanism(
    "exponent without the factor two",
    "HeteroRR, equation 14 (structure search of EdgeRR)",
    unit="undirected-edge",
    kind="change",
    claim={"epsilon": EPSILON},
    figure=RestatedValue(
        "probability that ((0, 1), (2, 3)) gives way to ((0, 2), (1, 3)); edges 01, 23, 02, at 1",
        "equation 14, with Delta as in the appendix",
        0.7924523456,
        lambda: accepted(((0, 1), (2, 3)), ((0, 2), (1, 3)), [(0, 1), (2, 3), (0, 2)], 1.0),
        1e-9,
    ),
    cost=RestatedValue(
        "worst loss at epsilon 2, n = 5, over all graphs",
        "equation 14, over all graphs",
        2.2181,
        lambda: worst_loss(5, 2.0),
        1e-4,
    ),
)
def chosen_tree(graph: SmallGraph, noise: NoiseRecorder, halves: float = 1.0) -> None:
    """The exponential mechanism over trees with exponent epsilon / Delta (halves 2: epsilon / (2 Delta)).

    Trees are drawn with exponent epsilon L / Delta. L is not monotone in edges, so numerator and normalizer
    both change: the exponential mechanism needs epsilon / (2 Delta). Correction: the factor two.
    """
    edges = graph.a[:LEAVES, :LEAVES]  # among the first five nodes, which are publicly the private part
    if len(edges) > 2:
        noise.choose(_law(edges, EPSILON / (halves * sensitivity(len(edges)))))


@published_mechanism(
    "a tree by the exponential mechanism",
    "exponent epsilon / (2 Delta)",
    unit="undirected-edge",
    claim={"epsilon": 2.0},
)
def sound_tree(graph: SmallGraph, noise: NoiseRecorder) -> None:
    """The exponential mechanism as proved.

    As proved by McSherry and Talwar.
    """
    chosen_tree(graph, noise, halves=2.0)


def worst_loss(n: int, epsilon: float, halves: float = 1.0) -> float:
    """Return the worst loss of the exponential mechanism over all graphs of n nodes and all edges."""
    slots = list(combinations(range(n), 2))
    bits = (np.arange(1 << len(slots))[:, None] >> np.arange(len(slots))) & 1
    graphs = np.zeros((len(bits), n, n))
    for s, (u, v) in enumerate(slots):
        graphs[:, u, v] = graphs[:, v, u] = bits[:, s]
    logs = np.log([_law(graph, epsilon / (halves * sensitivity(n))) for graph in graphs])
    flipped = [np.arange(len(bits)) ^ (1 << s) for s in range(len(slots))]
    return float(max(np.abs(logs - logs[other]).max() for other in flipped))


def accepted(before: Tree, after: Tree, edges: list[tuple[int, int]], epsilon: float) -> float:
    """Return the probability of equation 14 that a tree of four leaves gives way to another."""
    graph = SmallGraph.from_edges(4, edges, directed=False).a
    law, every = _law(graph, epsilon / sensitivity(4)), list(trees((0, 1, 2, 3)))
    return float(min(1.0, law[every.index(after)] / law[every.index(before)]))


@published_mechanism(
    "who has private edges",
    "HeteroRR (V_pri and block sizes from the data)",
    unit="undirected-edge",
    kind="shape",
    claim={"epsilon": EPSILON},
    cost=RestatedValue(
        "largest change of a score by one edge, n = 5 (Delta is 2.7034)",
        "the score of trees",
        6.0684,
        lambda: moved_by_presence(5),
        1e-4,
    ),
)
def people_with_private_edges(graph: SmallGraph, noise: NoiseRecorder) -> None:
    """A tree and blocks over nodes with an edge only.

    Only nodes with a private edge have a place in the tree. One edge changes the set of these nodes, and
    therefore the shape of the release. Correction: a public list of nodes that may have private edges.
    """
    there = graph.a.sum(axis=1) > 0
    edges = graph.a[there][:, there]
    noise.laplace([edges.sum() / 2], 1 / EPSILON)
    noise.release(np.zeros(int(there.sum())))  # each of these nodes has a place in the release


def moved_by_presence(n: int) -> float:
    """Return the largest change of a score by one edge if blocks count only nodes with an edge."""
    rng, most = np.random.default_rng(0), 0.0
    for _ in range(3000):
        upper = np.triu(rng.random((n, n)) < rng.random(), 1).astype(float)
        edges = upper + upper.T
        u, v = rng.choice(n, 2, replace=False)
        other = edges.copy()
        other[u, v] = other[v, u] = 1 - other[u, v]
        both = [scores(graph, (graph.sum(axis=0) > 0).astype(float)) for graph in (edges, other)]
        most = max(most, float(np.abs(both[0] - both[1]).max()))
    return most


@published_mechanism(
    "a draw for every descendant",
    "HeteroRR, CalculateNoisyProb as printed",
    unit="undirected-edge",
    kind="change",
    claim={"epsilon": EPSILON},
    figure=RestatedValue(
        "draws for one block of five leaves",
        "pseudo-code of CalculateNoisyProb: one for each inner node",
        4,
        lambda: draws_of_one_block(5),
    ),
)
def fresh_noise_for_descendants(graph: SmallGraph, noise: NoiseRecorder, once: bool = False) -> None:
    """CalculateNoisyProb on a subtree that is small enough to be one block: a draw for every inner node.

    A subtree that is small enough is counted as one block, but its noise is drawn again for each of its inner
    nodes, so the noise averages out. Correction: one draw, as in the authors' program.
    """
    blocks = 1 if once else max(1, graph.nodes - 1)
    for _ in range(blocks):
        noise.laplace(np.triu(graph.a).sum(), 1 / EPSILON)


def draws_of_one_block(leaves: int) -> int:
    """Return the number of draws for one block with this number of leaves."""
    noise = NoiseRecorder(np.random.default_rng(0))
    fresh_noise_for_descendants(SmallGraph.from_edges(leaves, [], directed=False), noise)
    return len(noise.steps)


@published_mechanism(
    "a block counted once",
    "CalculateNoisyProb as the authors' program has it",
    unit="undirected-edge",
    claim={"epsilon": 2.0},
)
def noise_drawn_once(graph: SmallGraph, noise: NoiseRecorder) -> None:
    """CalculateNoisyProb with one noise draw for the complete block.

    One draw for the block.
    """
    fresh_noise_for_descendants(graph, noise, once=True)

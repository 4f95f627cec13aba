"""Where a walk over dendrograms begins if some edges are public: what is linked most is grouped first."""

import heapq

import numpy as np

from graphveil._kernels import Floats, Ints
from graphveil.release.dendrogram.tree import Dendrogram

ROUNDS = 1000  # of merging; a star needs one for each of its leaves, most graphs some two hundred in all


def average_linkage(leaves: int, one: Ints, other: Ints, rng: np.random.Generator) -> Dendrogram:
    """Return the tree that average linkage makes of public edges; no private edge is looked at.

    Two groups merge where each is the other's closest: the largest share of the pairs across are edges, which
    is the probability p_r = e_r / N_r that the node above them will have in a hierarchical random graph. All
    such couples merge in one round. What no edge joins, or is left after :data:`ROUNDS`, merges by size, the
    smallest first.

    Args:
        leaves: how many.
        one, other: the ends of each edge.
        rng: breaks ties, of which there are many at first.

    >>> tree = average_linkage(4, np.array([0, 1]), np.array([2, 3]), np.random.default_rng(0))
    >>> bool(tree.parents[0] == tree.parents[2] != tree.parents[1])
    True
    """
    parent, size = np.full(2 * leaves - 1, -1), np.ones(2 * leaves - 1, dtype=np.int64)
    edges, made = np.ones(len(one)), leaves
    for _ in range(ROUNDS):
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
    """Return the pairs of groups that are each other's closest, ties broken alike for both."""
    rank = np.empty(len(one), dtype=np.int64)
    rank[np.lexsort((rng.random(len(one)), shares))] = np.arange(len(one))
    closest = np.zeros(1 + max(one.max(), other.max()), dtype=np.int64)
    for end in (one, other):
        np.maximum.at(closest, end, rank)
    return np.flatnonzero((closest[one] == rank) & (closest[other] == rank))


def _between(one: Ints, other: Ints, edges: Floats) -> tuple[Ints, Ints, Floats]:
    """Return the pairs of groups with edges between them, each once, and how many those are."""
    apart = one != other
    low, high = np.minimum(one, other)[apart], np.maximum(one, other)[apart]
    keys, place = np.unique(low << 32 | high, return_inverse=True)
    many = np.bincount(place, edges[apart], minlength=len(keys)).astype(np.float64)
    return keys >> 32, keys & 0xFFFFFFFF, many


def _by_size(parent: Ints, size: Ints, made: int, rng: np.random.Generator) -> Ints:
    """Merge what has no parent, two smallest groups at a time."""
    loose = rng.permutation(np.flatnonzero(parent[:made] < 0))
    waiting = [(int(size[node]), place, int(node)) for place, node in enumerate(loose)]
    heapq.heapify(waiting)
    for node in range(made, len(parent)):
        (few, _, left), (more, _, right) = heapq.heappop(waiting), heapq.heappop(waiting)
        parent[[left, right]] = node
        heapq.heappush(waiting, (few + more, node, node))
    return parent

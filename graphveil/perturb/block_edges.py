"""Edges drawn from noisy counts of blocks: post-processing, which reads nothing that is private."""

import math

import numpy as np

from graphveil._kernels import Ints
from graphveil.data.node_pairs import Domain
from graphveil.release.dendrogram import DendrogramBlocks

_TRIES = 3  # of what is wanted at a time, where some are taken already


def draw_edges(
    blocks: DendrogramBlocks, counts: Ints, domain: Domain, rng: np.random.Generator, max_edges: int
) -> Ints:
    """Return the slots of a random graph with the counts of blocks, ascending, at most so many.

    A block of N slots with the noisy count e has p = e / N, cut to [0, 1], and a binomial number of its slots
    becomes edges, all subsets alike; none of them is a public edge.
    """
    order, start = blocks.tree.spans()
    size = blocks.tree.size
    chance = np.clip(counts / np.maximum(1, blocks.slots), 0, 1)
    wanted = rng.binomial(blocks.slots, chance)
    found = [np.empty(0, dtype=np.int64)]
    for block in np.flatnonzero(wanted).tolist():
        node = int(blocks.node[block])
        first, last = int(start[node]), int(start[node] + size[node])
        middle = first + int(size[blocks.tree.left[node]])
        ends = (first, last) if blocks.collapsed[block] else (first, middle, last)
        found.append(_sample_block(order, ends, int(wanted[block]), int(blocks.slots[block]), domain, rng))
    slots = np.concatenate(found)
    if len(slots) > max_edges:
        slots = rng.choice(slots, max_edges, replace=False)
    return np.sort(slots)


def expected_count(edges: float, scale: float, slots: float) -> float:
    """Return E[clip(e + Lap(b), 0, N)]: how many edges a block is expected to get.

    >>> [round(expected_count(e, 2, n), 6) for e, n in ((0, 10), (3, 10), (9, 10), (0, 1))]
    [0.993262, 3.192933, 8.404578, 0.393469]
    """
    return edges + scale / 2 * (math.exp(-edges / scale) - math.exp(-(slots - edges) / scale))


def _sample_block(
    order: Ints, ends: tuple[int, ...], wanted: int, slots: int, domain: Domain, rng: np.random.Generator
) -> Ints:
    """Return so many slots of a block: drawn until they are distinct, or from all if most are wanted."""
    if 2 * wanted > slots:
        everything = _all_pairs(order, ends, domain)
        return rng.choice(everything, wanted, replace=False)
    found = np.empty(0, dtype=np.int64)
    while len(found) < wanted:
        tried = _random_pairs(order, ends, _TRIES * wanted, domain, rng)
        merged = np.concatenate([found, tried])
        _, places = np.unique(merged, return_index=True)
        found = merged[np.sort(places)][:wanted]  # the first that came, not the smallest
    return found


def _random_pairs(
    order: Ints, ends: tuple[int, ...], count: int, domain: Domain, rng: np.random.Generator
) -> Ints:
    """Return random protected slots of a block."""
    middle = ends[1] if len(ends) == 3 else None
    one = rng.integers(ends[0], ends[-1] if middle is None else middle, count)
    other = rng.integers(ends[0] if middle is None else middle, ends[-1], count)
    apart = one != other
    return _protected(order[one[apart]], order[other[apart]], domain)


def _all_pairs(order: Ints, ends: tuple[int, ...], domain: Domain) -> Ints:
    """Return all protected slots of a block."""
    if len(ends) == 3:
        across = np.meshgrid(order[ends[0] : ends[1]], order[ends[1] : ends[2]])
        return _protected(across[0].ravel(), across[1].ravel(), domain)
    leaves = order[ends[0] : ends[1]]
    one, other = np.triu_indices(len(leaves), 1)
    return _protected(leaves[one], leaves[other], domain)


def _protected(one: Ints, other: Ints, domain: Domain) -> Ints:
    slots = domain.slots.number(np.minimum(one, other), np.maximum(one, other))
    return slots[domain.protects(slots)]

"""Lengths of shortest paths, from all nodes or from sampled ones."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graphveil._util import checks
from graphveil.lab.fidelity.simple_graph import Integers, SimpleGraph

ALL_UP_TO = 4096  # nodes: from so many, paths are measured from each
SOURCES = 512  # else from so many of them
_BITS = 64
_ONES = np.array([byte.bit_count() for byte in range(256)], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class PathLengths:
    """How long shortest paths are from some nodes to all others.

    Args:
        counts: ``counts[l - 1]`` pairs have a shortest path of l edges, for l up to the longest.
        apart: so many pairs have no path.
        complete: whether the paths of all nodes were measured.
    """

    counts: Integers
    apart: int
    complete: bool

    @property
    def diameter(self) -> int:
        """The longest shortest path between two nodes that have one; if not complete, at most that."""
        return len(self.counts)

    @property
    def average(self) -> float | None:
        """The mean length over pairs of different nodes that have a path; None if there is no such pair."""
        pairs = int(self.counts.sum())
        return float(self.counts @ np.arange(1, len(self.counts) + 1)) / pairs if pairs else None


def sample_sources(nodes: int, count: int | None, *, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Return the nodes that paths are measured from: all of few nodes, else 512, or ``count`` if given.

    >>> sample_sources(3, None, rng=np.random.default_rng(0))
    array([0, 1, 2])
    """
    if count is None:
        count = nodes if nodes <= ALL_UP_TO else SOURCES
    checks.integer_at_least(1, sources=count)
    if count >= nodes:
        return np.arange(nodes)
    return np.sort(rng.choice(nodes, size=count, replace=False))


def path_lengths(graph: SimpleGraph, sources: npt.NDArray[np.intp]) -> PathLengths:
    """Return the lengths of shortest paths from some nodes.

    A search goes out from 64 sources at once, each a bit of a node's word: what a round reaches is the union
    of the neighbors' words. So 64 sources take O(m) a round, and as many rounds as their longest path.

    >>> from graphveil.data import Adjacency
    >>> path = SimpleGraph.from_adjacency(Adjacency.from_edges([0, 1], [1, 2], num_nodes=4, directed=False))
    >>> found = path_lengths(path, np.arange(4))
    >>> found.counts, found.apart, found.diameter
    (array([4, 2]), 6, 2)
    """
    counts: list[int] = []
    for start in range(0, len(sources), _BITS):
        reached = _search(graph, sources[start : start + _BITS])
        counts += [0] * (len(reached) - len(counts))
        for length, pairs in enumerate(reached):
            counts[length] += pairs
    pairs = len(sources) * (graph.nodes - 1)
    return PathLengths(
        np.array(counts, dtype=np.int64), pairs - sum(counts), complete=len(sources) == graph.nodes
    )


def _search(graph: SimpleGraph, sources: npt.NDArray[np.intp]) -> list[int]:
    """Return how many pairs of a source and another node are one edge apart, two, and so on."""
    some = np.flatnonzero(graph.degrees)  # a union over no neighbors is no union to numpy
    seen = np.zeros(graph.nodes, dtype=np.uint64)
    seen[sources] = np.uint64(1) << np.arange(len(sources), dtype=np.uint64)
    newest, counts = seen.copy(), list[int]()
    while len(some):
        reached_now = np.zeros_like(seen)
        reached_now[some] = np.bitwise_or.reduceat(newest[graph.indices], graph.indptr[some])
        newest = reached_now & ~seen
        pairs = int(_ONES[newest.view(np.uint8)].sum())
        if not pairs:
            break
        counts.append(pairs)
        seen |= newest
    return counts

"""Small graphs, and which kinds of them there are."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, permutations

import numpy as np

from graphveil.graph import Adjacency

Pair = tuple[int, int]

KINDS = ("random", "star", "clique", "hubs", "multi-edges", "isolated", "path", "empty", "one node")


@dataclass(frozen=True)
class Drawn:
    """A drawn graph: its nodes and its edges, in any order and with any repeats."""

    nodes: int
    edges: tuple[Pair, ...]
    directed: bool

    def adjacency(self) -> Adjacency:
        """Build it."""
        source, target = np.array(self.edges, dtype=np.int64).reshape(-1, 2).T
        return Adjacency.from_edges(source, target, num_nodes=self.nodes, directed=self.directed)

    def toggled(self, pair: Pair) -> "Drawn":
        """Return the neighbouring graph: without the pair's edge if it has it, with it otherwise."""
        same = {pair} if self.directed else {pair, pair[::-1]}
        rest = tuple(edge for edge in self.edges if edge not in same)
        return Drawn(self.nodes, rest if len(rest) < len(self.edges) else (*rest, pair), self.directed)

    def pairs(self) -> Iterator[Pair]:
        """Yield every pair whose edge may differ."""
        every = range(self.nodes)
        yield from permutations(every, 2) if self.directed else combinations(every, 2)


def draw(kind: str, *, directed: bool, rng: np.random.Generator) -> Drawn:
    """Draw a graph of 2 to 9 nodes (or one) of this kind, its nodes in random order."""
    n = 1 if kind == "one node" else int(rng.integers(2, 10))
    every = list(permutations(range(n), 2))
    some = [pair for pair in every if rng.random() < 0.35]
    edges: list[Pair] = {
        "random": some,
        "star": [(0, v) for v in range(1, n)],
        "clique": every,
        "hubs": [(u, v) for u in range(min(2, n)) for v in range(n) if u != v] + some,
        "multi-edges": some * 3,
        "isolated": [pair for pair in some if max(pair) < n // 2],
        "path": [(v, v + 1) for v in range(n - 1)],
        "empty": [],
        "one node": [],
    }[kind]
    order = rng.permutation(n).tolist()
    return Drawn(n, tuple((order[u], order[v]) for u, v in edges), directed)

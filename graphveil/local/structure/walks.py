"""Random walks from many nodes at once, uniform (DeepWalk) or with a memory of one step (node2vec)."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graphveil.local.structure.edges import PublicEdges

Nodes = npt.NDArray[np.int32]
Draws = np.random.Generator
ENDED = -1


@dataclass(frozen=True, kw_only=True)
class RandomWalk:
    """The law of node2vec's walk (Grover, Leskovec, KDD 2016); p = q = 1 is DeepWalk's.

    A walker at w that came from r goes to a node x that w hears from with a probability proportional to

        1/p   if x = r,        1   if r hears from x,        1/q   otherwise.

    The first step is uniform. Next nodes are drawn uniformly for all walkers at once and kept with a
    probability of weight / max(1/p, 1, 1/q), which is exact and needs no table for each edge.

    >>> from graphveil.data import Adjacency
    >>> pair = PublicEdges(Adjacency.from_edges([0], [1], num_nodes=2, directed=False), basis="drawn current")
    >>> RandomWalk(length=4).paths(pair, np.array([0, 1], dtype=np.int32),
    ...     rng=np.random.default_rng(0)).tolist()
    [[0, 1, 0, 1], [1, 0, 1, 0]]
    """

    length: int
    p: float = 1.0
    q: float = 1.0

    def paths(self, edges: PublicEdges, starts: Nodes, *, rng: Draws) -> Nodes:
        """Return a walk from each start, int32 (starts, length): after a dead end the rest is -1."""
        steps = _Steps(edges)
        paths = np.full((len(starts), self.length), ENDED, dtype=np.int32)
        paths[:, 0] = starts
        for place in range(1, self.length):
            current = paths[:, place - 1]
            going = np.flatnonzero((current != ENDED) & (steps.degrees[current] > 0))
            previous = paths[going, place - 2] if place > 1 else None
            paths[going, place] = self._next(steps, current[going], previous, rng)
        return paths

    def _next(self, steps: "_Steps", current: Nodes, previous: Nodes | None, rng: Draws) -> Nodes:
        if previous is None or self.p == self.q == 1:
            return steps.uniform(current, rng)
        most = max(1 / self.p, 1.0, 1 / self.q)
        chosen, waiting = np.empty_like(current), np.arange(len(current))
        while len(waiting):
            offered = steps.uniform(current[waiting], rng)
            back = offered == previous[waiting]
            weight = np.where(steps.joined(previous[waiting], offered), 1.0, 1 / self.q)
            weight[back] = 1 / self.p
            kept = rng.random(len(waiting)) * most < weight
            chosen[waiting[kept]] = offered[kept]
            waiting = waiting[~kept]
        return chosen


class _Steps:
    """What walkers ask of the edges."""

    def __init__(self, edges: PublicEdges) -> None:
        self._starts = edges.adjacency.indptr.numpy()
        self._sources = edges.adjacency.indices.numpy()
        self._nodes = edges.num_nodes
        self.degrees = np.diff(self._starts)
        targets = np.repeat(np.arange(self._nodes, dtype=np.int64), self.degrees)
        self._pairs = targets * self._nodes + self._sources  # ascending

    def uniform(self, current: Nodes, rng: Draws) -> Nodes:
        """Return one of the nodes that each of these hears from."""
        return self._sources[self._starts[current] + rng.integers(self.degrees[current])]

    def joined(self, target: Nodes, source: Nodes) -> npt.NDArray[np.bool_]:
        """Return whether each target hears from its source."""
        pairs = target.astype(np.int64) * self._nodes + source
        place = np.searchsorted(self._pairs, pairs)
        found: npt.NDArray[np.bool_] = self._pairs[np.minimum(place, len(self._pairs) - 1)] == pairs
        return found

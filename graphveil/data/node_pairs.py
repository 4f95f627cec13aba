"""Slots: the pairs of nodes between which an edge may be, numbered from 0 without a gap."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graphveil.data._rows import Ids32, row_pieces
from graphveil.errors import GraphError

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class NodePairIndex:
    """The slots of a graph, in the order of its destination rows.

    Undirected: {u, v} with u < v has the number v (v - 1) / 2 + u, and there are N (N - 1) / 2. Directed:
    u -> v has the number v (N - 1) + u, less one if u > v, and there are N (N - 1). So the slots of
    destination rows a .. b - 1 are a range, and neither order knows where edges are.

    >>> slots = NodePairIndex(4, directed=False)
    >>> slots.total, slots.number(np.array([0, 1]), np.array([1, 3])).tolist()
    (6, [0, 4])
    >>> [ends.tolist() for ends in slots.ends(np.array([0, 4]))]
    [[0, 1], [1, 3]]
    """

    nodes: int
    directed: bool

    def __post_init__(self) -> None:
        """Check that 64 bits hold the numbers."""
        if not 0 <= self.nodes < 1 << 31:
            raise GraphError(f"nodes={self.nodes} must lie between 0 and 2^31 - 1")

    @property
    def total(self) -> int:
        """How many there are."""
        return self.start(self.nodes)

    def start(self, row: int) -> int:
        """Return the first slot of a destination row."""
        return row * (self.nodes - 1) if self.directed else row * (row - 1) // 2

    def number(self, source: npt.NDArray[np.integer], target: Integers) -> Integers:
        """Return the slots of pairs; of an undirected pair the larger end is the target."""
        if self.directed:
            of_directed: Integers = target * (self.nodes - 1) + source - (source > target)
            return of_directed
        found: Integers = (target * (target - 1) >> 1) + source
        return found

    def ends(self, slots: Integers) -> tuple[Integers, Integers]:
        """Return sources and targets of slots; of an undirected pair the larger end is the target."""
        if not self.directed and len(slots) > self.nodes and bool((slots[1:] >= slots[:-1]).all()):
            indptr, sources = self.rows(slots)
            return sources.astype(np.int64), np.repeat(np.arange(self.nodes), np.diff(indptr))
        if self.directed:
            target, source = np.divmod(slots, max(1, self.nodes - 1))
            return source + (source >= target), target
        target = (np.sqrt(8.0 * slots + 1) / 2 + 0.5).astype(np.int64)  # right to one, and then mended
        target -= target * (target - 1) // 2 > slots
        target += target * (target + 1) // 2 <= slots
        return slots - target * (target - 1) // 2, target

    def rows(self, slots: Integers) -> tuple[Integers, Ids32]:
        """Return ascending slots as compressed rows of targets: their offsets, and the sources, ascending.

        >>> [part.tolist() for part in NodePairIndex(4, directed=False).rows(np.array([0, 4, 5]))]
        [[0, 0, 1, 1, 3], [0, 1, 2]]
        """
        nodes = np.arange(self.nodes + 1)
        starts = nodes * (self.nodes - 1) if self.directed else nodes * (nodes - 1) // 2
        indptr = np.searchsorted(slots, starts)
        sources = np.empty(len(slots), dtype=np.int32)
        for first, last in row_pieces(indptr):
            some, counts = slice(indptr[first], indptr[last]), np.diff(indptr[first : last + 1])
            within = slots[some] - np.repeat(starts[first:last], counts)
            if self.directed:
                within += within >= np.repeat(nodes[first:last], counts)
            sources[some] = within
        return indptr, sources

"""Which slots of a graph are protected: those between listed nodes that no public edge takes."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil.data._rows import Ids32
from graphveil.data.adjacency import Adjacency
from graphveil.data.blocks import EdgeBlock
from graphveil.data.node_pairs import Integers, NodePairIndex
from graphveil.data.public_part import PublicPart

Whole = npt.NDArray[np.integer]


@dataclass(frozen=True, eq=False, repr=False)
class Domain:
    """The slots that a release is about: all, or those of a public list of nodes without public edges.

    Slots are numbered among the listed nodes alone, in their order. Everything here is public.

    >>> public = Adjacency.from_edges([0], [2], num_nodes=4, directed=False)
    >>> domain = Domain.within(public, torch.tensor([True, False, True, True]))
    >>> domain.slots.total, domain.public.tolist(), domain.size
    (3, [0], 2)
    """

    slots: NodePairIndex
    nodes: Integers  # the listed ones, ascending
    rank: Integers  # of every node among them, -1 for the others
    public: Integers = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # slots of public edges

    @classmethod
    def whole(cls, num_nodes: int, *, directed: bool) -> "Domain":
        """Return all slots: no edge is public."""
        all_nodes = np.arange(num_nodes)
        return cls(NodePairIndex(num_nodes, directed), all_nodes, all_nodes)

    @classmethod
    def within(cls, public: Adjacency, listed: Tensor) -> "Domain":
        """Return the pairs of listed nodes that are no public edges.

        Args:
            public: the public edges, undirected.
            listed: which nodes may have private edges, as :class:`PublicPart` takes them. It is
                public, and never read from the edges.

        Raises:
            GraphError: the list does not fit, or the public edges are directed.
        """
        nodes = np.flatnonzero(PublicPart(public, listed).private_nodes.numpy())
        rank = np.full(public.num_nodes, -1)
        rank[nodes] = np.arange(len(nodes))
        empty = cls(NodePairIndex(len(nodes), directed=False), nodes, rank)
        source, target = (part.numpy() for part in public.edge_index())
        return cls(empty.slots, nodes, rank, np.sort(empty.between(source, target)))

    @property
    def size(self) -> int:
        """How many slots are protected."""
        return self.slots.total - len(self.public)

    def between(self, source: Whole, target: Whole) -> Integers:
        """Return the slots of stored edges between listed nodes; of an undirected edge, once."""
        if not self.slots.directed:  # ranks have the order of nodes, and half of what is stored is enough
            lower = source < target
            source, target = source[lower], target[lower]
        if len(self.nodes) == len(self.rank):
            return self.slots.number(source, target.astype(np.int64))
        tail, head = self.rank[source], self.rank[target]
        inside = (tail >= 0) & (head >= 0)
        return self.slots.number(tail[inside], head[inside])

    def pairs_in_block(self, edges: EdgeBlock) -> tuple[Integers, int, int]:
        """Return a block's protected edges as slots, ascending, and the range of its slots."""
        rows = np.arange(edges.start, edges.stop, dtype=np.int32)
        target = np.repeat(rows, edges.degrees.numpy())
        own = self.between(edges.sources.numpy(), target)
        own = self.keep_protected(own)
        first, last = (int(np.searchsorted(self.nodes, row)) for row in (edges.start, edges.stop))
        return own, self.slots.start(first), self.slots.start(last)

    def count(self, edges: EdgeBlock) -> int:
        """Return how many of a block's edges are protected: exact."""
        if len(self.nodes) < len(self.rank) or len(self.public):
            return len(self.pairs_in_block(edges)[0])
        if self.slots.directed:
            return len(edges.sources)
        target = np.repeat(np.arange(edges.start, edges.stop, dtype=np.int32), edges.degrees.numpy())
        return int(np.count_nonzero(edges.sources.numpy() < target))

    def protects(self, slots: Integers) -> npt.NDArray[np.bool_]:
        """Return which of some slots are protected: those without a public edge."""
        if not len(self.public):
            return np.ones(len(slots), dtype=bool)
        place = np.minimum(np.searchsorted(self.public, slots), len(self.public) - 1)
        found: npt.NDArray[np.bool_] = self.public[place] != slots
        return found

    def keep_protected(self, slots: Integers) -> Integers:
        """Return those of some slots that are protected."""
        return slots[self.protects(slots)] if len(self.public) else slots

    def ends(self, slots: Integers) -> tuple[Integers, Integers]:
        """Return sources and targets of slots, as nodes of the graph."""
        source, target = self.slots.ends(slots)
        return self.nodes[source], self.nodes[target]

    def rows(self, slots: Integers) -> tuple[Integers, Ids32]:
        """Return ascending slots as compressed rows of the graph's nodes: offsets, and ascending sources."""
        indptr, sources = self.slots.rows(slots)
        if len(self.nodes) == len(self.rank):
            return indptr, sources
        counts = np.zeros(len(self.rank) + 1, dtype=np.int64)
        counts[self.nodes + 1] = np.diff(indptr)
        return np.cumsum(counts), self.nodes[sources].astype(np.int32)

    @property
    def arrays(self) -> tuple[Tensor, ...]:
        """What a query's key is bound to: everything that the slots' numbers mean."""
        return torch.from_numpy(self.nodes), torch.from_numpy(self.public)

"""Node pairs (potential edges): their numbers, and the public and the protected ones among them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.blocks import EdgeBlock
from graphveil.core.edges.csr import Ids32, row_pieces
from graphveil.errors import GraphError

Integers = npt.NDArray[np.int64]
Whole = npt.NDArray[np.integer]


@dataclass(frozen=True)
class NodePairIndex:
    """The node pairs (potential edges) of a graph, in the order of its destination rows.

    Undirected: {u, v} with u < v has the number v (v - 1) / 2 + u, and there are N (N - 1) / 2. Directed:
    u -> v has the number v (N - 1) + u, less one if u > v, and there are N (N - 1). The pairs of destination
    rows a .. b - 1 are therefore a range, and the order does not depend on the edges.

    >>> slots = NodePairIndex(4, directed=False)
    >>> slots.total, slots.number(np.array([0, 1]), np.array([1, 3])).tolist()
    (6, [0, 4])
    >>> [ends.tolist() for ends in slots.ends(np.array([0, 4]))]
    [[0, 1], [1, 3]]
    """

    nodes: int
    directed: bool

    def __post_init__(self) -> None:
        if not 0 <= self.nodes < 1 << 31:
            raise GraphError(f"nodes={self.nodes} must lie between 0 and 2^31 - 1")

    @property
    def total(self) -> int:
        return self.start(self.nodes)

    def start(self, row: int) -> int:
        return row * (self.nodes - 1) if self.directed else row * (row - 1) // 2

    def number(self, source: npt.NDArray[np.integer], target: Integers) -> Integers:
        """Return the numbers of pairs; of an undirected pair the larger end is the target."""
        if self.directed:
            of_directed: Integers = target * (self.nodes - 1) + source - (source > target)
            return of_directed
        found: Integers = (target * (target - 1) >> 1) + source
        return found

    def ends(self, slots: Integers) -> tuple[Integers, Integers]:
        """Return sources and targets of pairs; of an undirected pair the larger end is the target."""
        if not self.directed and len(slots) > self.nodes and bool((slots[1:] >= slots[:-1]).all()):
            indptr, sources = self.rows(slots)
            return sources.astype(np.int64), np.repeat(np.arange(self.nodes), np.diff(indptr))
        if self.directed:
            target, source = np.divmod(slots, max(1, self.nodes - 1))
            return source + (source >= target), target
        # The root is exact up to 1, because float64 rounds; the two corrections make it exact.
        target = (np.sqrt(8.0 * slots + 1) / 2 + 0.5).astype(np.int64)
        target -= target * (target - 1) // 2 > slots
        target += target * (target + 1) // 2 <= slots
        return slots - target * (target - 1) // 2, target

    def rows(self, slots: Integers) -> tuple[Integers, Ids32]:
        """Return ascending pair numbers as compressed rows of targets: offsets, and ascending sources.

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


@dataclass(frozen=True, eq=False, repr=False)
class PublicPart:
    """Public edges, and the public list of nodes that may have private edges.

    The list is never computed from the edges: it would distinguish a graph with one private edge from a graph
    without any.

    Args:
        private_nodes: Nodes that may have private edges, bool (N), or their numbers, each once. A tensor, an
            array or a sequence; stored as bool (N).

    Privacy:
        Unit: ``edge-subset``. Everything here is public.

    >>> path = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False)
    >>> PublicPart(path, torch.tensor([True, True, False]))
    PublicPart(edges=2, private_nodes=2)
    """

    edges: Adjacency
    private_nodes: Tensor

    def __post_init__(self) -> None:
        if not isinstance(self.edges, Adjacency):
            raise GraphError(
                f"Public edges must be an Adjacency, not a {type(self.edges).__name__}. Create one with "
                "Adjacency.from_edges(source, target, num_nodes=N, directed=False)."
            )
        object.__setattr__(self, "private_nodes", _listed(self.private_nodes, self.edges.num_nodes))
        if self.edges.directed:
            raise GraphError(
                "The public and private edges of a graph must be undirected. Use directed=False."
            )

    def check_nodes(self, num_nodes: int) -> None:
        if len(self.private_nodes) != num_nodes:
            raise GraphError(
                f"The public edges have {len(self.private_nodes)} nodes, but the graph has {num_nodes}. "
                "Use the same node numbers in both."
            )

    def __repr__(self) -> str:
        """Show public sizes."""
        return f"PublicPart(edges={self.num_edges}, private_nodes={self.num_private_nodes})"

    @property
    def num_edges(self) -> int:
        return len(self.edges.indices) // 2

    @property
    def num_private_nodes(self) -> int:
        return int(self.private_nodes.sum())

    @property
    def arrays(self) -> tuple[Tensor, ...]:
        return self.private_nodes, self.edges.indptr, self.edges.indices

    def subgraph(self, keep: Tensor) -> PublicPart:
        return PublicPart(self.edges.subgraph(keep), self.private_nodes[keep])

    def without_crossing(self, side: Tensor) -> PublicPart:
        return PublicPart(self.edges.without_crossing(side), self.private_nodes)


def _listed(given: Any, num_nodes: int) -> Tensor:
    try:
        nodes = given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)
    except (TypeError, ValueError):  # lists of different lengths
        nodes = np.empty(())
    if nodes.shape == (num_nodes,) and nodes.dtype == np.bool_:
        return torch.from_numpy(nodes)
    if nodes.shape == (0,):
        nodes = nodes.astype(np.int64)
    # Repeated numbers are rejected: a mask of 0 and 1 could not be distinguished from them otherwise.
    numbers = nodes.ndim == 1 and nodes.dtype.kind in "iu"
    inside = numbers and (not len(nodes) or 0 <= int(nodes.min()) <= int(nodes.max()) < num_nodes)
    if not inside or len(np.unique(nodes)) < len(nodes):
        raise GraphError(
            f"private_nodes must be a bool array of shape ({num_nodes},), or node indices from 0 to "
            f"{num_nodes - 1} without duplicates."
        )
    listed = torch.zeros(num_nodes, dtype=torch.bool)
    listed[torch.from_numpy(nodes.astype(np.int64))] = True
    return listed


def no_public_edges(num_nodes: int) -> Adjacency:
    """Return an adjacency with no edges.

    >>> no_public_edges(3).num_nodes
    3
    """
    none = np.empty(0, dtype=np.int64)
    return Adjacency.from_edges(none, none, num_nodes=num_nodes, directed=False)


@dataclass(frozen=True, eq=False, repr=False)
class Domain:
    """The node pairs that a release covers: all, or those of a public list of nodes without public edges.

    Slots are numbered among the listed nodes alone, in their order. Everything here is public.

    >>> public = Adjacency.from_edges([0], [2], num_nodes=4, directed=False)
    >>> domain = Domain.within(public, torch.tensor([True, False, True, True]))
    >>> domain.slots.total, domain.public.tolist(), domain.size
    (3, [0], 2)
    """

    slots: NodePairIndex
    nodes: Integers  # the listed ones, ascending
    rank: Integers  # of every node among them, -1 for the others
    public: Integers = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # pairs of public edges

    @classmethod
    def whole(cls, num_nodes: int, *, directed: bool) -> Domain:
        all_nodes = np.arange(num_nodes)
        return cls(NodePairIndex(num_nodes, directed), all_nodes, all_nodes)

    @classmethod
    def within(cls, public: Adjacency, listed: Tensor) -> Domain:
        """Return the pairs of listed nodes that are not public edges; the list is public."""
        nodes = np.flatnonzero(PublicPart(public, listed).private_nodes.numpy())
        rank = np.full(public.num_nodes, -1)
        rank[nodes] = np.arange(len(nodes))
        empty = cls(NodePairIndex(len(nodes), directed=False), nodes, rank)
        source, target = (part.numpy() for part in public.edge_index())
        return cls(empty.slots, nodes, rank, np.sort(empty.between(source, target)))

    @property
    def size(self) -> int:
        return self.slots.total - len(self.public)

    def between(self, source: Whole, target: Whole) -> Integers:
        """Return the numbers of stored edges between listed nodes; of an undirected edge, once."""
        if not self.slots.directed:  # ranks have the order of nodes, and half of what is stored is enough
            lower = source < target
            source, target = source[lower], target[lower]
        if len(self.nodes) == len(self.rank):
            return self.slots.number(source, target.astype(np.int64))
        tail, head = self.rank[source], self.rank[target]
        inside = (tail >= 0) & (head >= 0)
        return self.slots.number(tail[inside], head[inside])

    def pairs_in_block(self, edges: EdgeBlock) -> tuple[Integers, int, int]:
        """Return a block's protected edges as ascending pair numbers, and the range of its pairs."""
        rows = np.arange(edges.start, edges.stop, dtype=np.int32)
        target = np.repeat(rows, edges.degrees.numpy())
        own = self.between(edges.sources.numpy(), target)
        own = self.keep_protected(own)
        first, last = (int(np.searchsorted(self.nodes, row)) for row in (edges.start, edges.stop))
        return own, self.slots.start(first), self.slots.start(last)

    def count(self, edges: EdgeBlock) -> int:
        """Return the exact number of a block's protected edges."""
        if len(self.nodes) < len(self.rank) or len(self.public):
            return len(self.pairs_in_block(edges)[0])
        if self.slots.directed:
            return len(edges.sources)
        target = np.repeat(np.arange(edges.start, edges.stop, dtype=np.int32), edges.degrees.numpy())
        return int(np.count_nonzero(edges.sources.numpy() < target))

    def protects(self, slots: Integers) -> npt.NDArray[np.bool_]:
        if not len(self.public):
            return np.ones(len(slots), dtype=bool)
        place = np.minimum(np.searchsorted(self.public, slots), len(self.public) - 1)
        found: npt.NDArray[np.bool_] = self.public[place] != slots
        return found

    def keep_protected(self, slots: Integers) -> Integers:
        return slots[self.protects(slots)] if len(self.public) else slots

    def ends(self, slots: Integers) -> tuple[Integers, Integers]:
        source, target = self.slots.ends(slots)
        return self.nodes[source], self.nodes[target]

    def rows(self, slots: Integers) -> tuple[Integers, Ids32]:
        indptr, sources = self.slots.rows(slots)
        if len(self.nodes) == len(self.rank):
            return indptr, sources
        counts = np.zeros(len(self.rank) + 1, dtype=np.int64)
        counts[self.nodes + 1] = np.diff(indptr)
        return np.cumsum(counts), self.nodes[sources].astype(np.int32)

    @property
    def arrays(self) -> tuple[Tensor, ...]:
        """Digest that a query's key is bound to: everything that defines the pair numbers."""
        return torch.from_numpy(self.nodes), torch.from_numpy(self.public)

"""What is public of a graph some of whose edges are private: edges, and who may have private ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphveil.errors import GraphError
from graphveil.graph.adjacency import Adjacency


@dataclass(frozen=True, eq=False, repr=False)
class PublicPart:
    """Public edges, and the public list of nodes that may have private ones.

    The list is never found out from the edges: a graph with one private edge would then differ from one with
    none for certain.

    Args:
        edges: the public edges, undirected.
        private_nodes: which nodes may have private edges, bool (N).

    Raises:
        GraphError: the list does not fit, or the edges are directed.

    >>> path = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False)
    >>> PublicPart(path, torch.tensor([True, True, False]))
    PublicPart(edges=2, private_nodes=2)
    """

    edges: Adjacency
    private_nodes: Tensor

    def __post_init__(self) -> None:
        """Check that list and edges are about the same nodes."""
        listed = self.private_nodes
        if listed.dtype != torch.bool or listed.shape != (self.edges.num_nodes,):
            raise GraphError(
                f"private_nodes must be bool of shape ({self.edges.num_nodes},), one entry a node"
            )
        if self.edges.directed:
            raise GraphError("public and private edges of one graph are undirected here; use directed=False")

    def __repr__(self) -> str:
        """Show how many there are, which is public."""
        return f"PublicPart(edges={self.num_edges}, private_nodes={self.num_private_nodes})"

    @property
    def num_edges(self) -> int:
        """The number of public edges, each once."""
        return len(self.edges.indices) // 2

    @property
    def num_private_nodes(self) -> int:
        """How many nodes are on the list."""
        return int(self.private_nodes.sum())

    @property
    def arrays(self) -> tuple[Tensor, ...]:
        """Everything that it says, for digests."""
        return self.private_nodes, self.edges.indptr, self.edges.indices

    def subgraph(self, keep: Tensor) -> PublicPart:
        """Return what is public of the graph of the kept nodes, bool (N)."""
        return PublicPart(self.edges.subgraph(keep), self.private_nodes[keep])

    def without_crossing(self, side: Tensor) -> PublicPart:
        """Return what is public of the graph without edges between ``side`` and all others, bool (N)."""
        return PublicPart(self.edges.without_crossing(side), self.private_nodes)


def no_public_edges(num_nodes: int) -> Adjacency:
    """Return no edges between so many nodes.

    >>> no_public_edges(3).num_nodes
    3
    """
    none = np.empty(0, dtype=np.int64)
    return Adjacency.from_edges(none, none, num_nodes=num_nodes, directed=False)

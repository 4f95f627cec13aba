"""What is public of a graph some of whose edges are private: edges, and who may have private ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil.data.adjacency import Adjacency
from graphveil.errors import GraphError


@dataclass(frozen=True, eq=False, repr=False)
class PublicPart:
    """Public edges, and the public list of nodes that may have private ones.

    The list is never found out from the edges: a graph with one private edge would then differ from one with
    none for certain.

    Args:
        edges: the public edges, undirected.
        private_nodes: which nodes may have private edges, bool (N); or their numbers, each once. A tensor, an
            array or a sequence; it is kept as bool (N).

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
        if not isinstance(self.edges, Adjacency):
            raise GraphError(
                f"public edges must be an Adjacency, not a {type(self.edges).__name__}: "
                "Adjacency.from_edges(source, target, num_nodes=N, directed=False)"
            )
        object.__setattr__(self, "private_nodes", _listed(self.private_nodes, self.edges.num_nodes))
        if self.edges.directed:
            raise GraphError("public and private edges of one graph are undirected here; use directed=False")

    def check_nodes(self, num_nodes: int) -> None:
        """Refuse to be about another number of nodes than a graph has."""
        if len(self.private_nodes) != num_nodes:
            raise GraphError(
                f"the public edges are of {len(self.private_nodes)} nodes and the graph has {num_nodes}; "
                "number nodes alike in both"
            )

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


def _listed(given: Any, num_nodes: int) -> Tensor:
    """Return a list of nodes as bool (N)."""
    try:
        nodes = given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)
    except (TypeError, ValueError):  # lists of different lengths
        nodes = np.empty(())
    if nodes.shape == (num_nodes,) and nodes.dtype == np.bool_:
        return torch.from_numpy(nodes)
    if nodes.shape == (0,):
        nodes = nodes.astype(np.int64)
    if nodes.ndim != 1 or nodes.dtype.kind not in "iu" or not _each_once(nodes, num_nodes):
        raise GraphError(
            f"private_nodes must be bool of shape ({num_nodes},), one entry a node, or numbers of nodes from "
            f"0 to {num_nodes - 1}, each once"
        )
    listed = torch.zeros(num_nodes, dtype=torch.bool)
    listed[torch.from_numpy(nodes.astype(np.int64))] = True
    return listed


def _each_once(nodes: npt.NDArray[np.integer], num_nodes: int) -> bool:
    """Whether these are different nodes; what is counted is not told from a mask of 0 and 1 otherwise."""
    if not len(nodes):
        return True
    return 0 <= int(nodes.min()) <= int(nodes.max()) < num_nodes and len(np.unique(nodes)) == len(nodes)


def no_public_edges(num_nodes: int) -> Adjacency:
    """Return no edges between so many nodes.

    >>> no_public_edges(3).num_nodes
    3
    """
    none = np.empty(0, dtype=np.int64)
    return Adjacency.from_edges(none, none, num_nodes=num_nodes, directed=False)

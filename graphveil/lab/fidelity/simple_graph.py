"""A graph as structural queries read it: undirected, each pair of nodes joined once or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from graphveil.data import Adjacency

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class SimpleGraph:
    """Neighbors in compressed rows: those of v are ``indices[indptr[v]:indptr[v + 1]]``, ascending.

    Build one with :meth:`of`. What is computed from it is exact, so it is as private as the edges.

    Shapes: ``indptr`` (N + 1), ``indices`` (2 m) for m edges.
    """

    indptr: Integers
    indices: npt.NDArray[np.int32]

    @classmethod
    def from_adjacency(cls, adjacency: Adjacency) -> SimpleGraph:
        """Return the graph in which two nodes are joined if an edge of any direction or weight is there.

        >>> both = Adjacency.from_edges([0, 1, 1], [1, 0, 2], num_nodes=3, directed=True)
        >>> SimpleGraph.from_adjacency(both).edges
        2
        """
        if adjacency.directed:
            source, target = adjacency.edge_index()
            nodes = adjacency.num_nodes
            return cls.from_adjacency(Adjacency.from_edges(source, target, num_nodes=nodes, directed=False))
        return cls(adjacency.indptr.numpy(), adjacency.indices.numpy())

    @property
    def nodes(self) -> int:
        """The number of nodes N."""
        return len(self.indptr) - 1

    @property
    def edges(self) -> int:
        """The number of edges m, each counted once."""
        return len(self.indices) // 2

    @cached_property
    def degrees(self) -> Integers:
        """How many neighbors each node has, (N)."""
        return np.diff(self.indptr)

    @cached_property
    def rows(self) -> npt.NDArray[np.int32]:
        """The node whose row each entry of ``indices`` is in, (2 m)."""
        return np.repeat(np.arange(self.nodes, dtype=np.int32), self.degrees)

    def matrix(self) -> Any:
        """Return the symmetric matrix of zeros and ones as a float64 ``csr_array`` (N, N)."""
        ones = np.ones(len(self.indices))
        return sparse.csr_array((ones, self.indices, self.indptr), shape=(self.nodes, self.nodes))

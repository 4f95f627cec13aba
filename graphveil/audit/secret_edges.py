"""The true edges of a graph, which audits and attacks compare with. Internal."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.core.edges.adjacency import Adjacency

Integers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@checked
@dataclass(frozen=True, eq=False, repr=False)
class SecretEdges:
    """True edges of a graph, in any direction.

    Args:
        matrix: Symmetric boolean ``csr_array`` (N, N).

    Privacy:
        Contains the exact edges. Internal.

    >>> path = SecretEdges.from_adjacency(Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False))
    >>> path.joined(np.array([0, 0]), np.array([1, 2])), path.degrees
    (array([ True, False]), array([1, 2, 1]))
    """

    matrix: Any

    @classmethod
    @checked
    def from_adjacency(cls, adjacency: Adjacency) -> "SecretEdges":
        """Read the edges of an adjacency.

        Args:
            adjacency: Adjacency of the graph.

        Privacy:
            Reads: the exact edges. Charges: nothing. The result is internal.
        """
        count = adjacency.num_nodes
        indices, indptr = adjacency.indices.numpy(), adjacency.indptr.numpy()
        parts: Any = (np.ones(len(indices), dtype=bool), indices, indptr)
        rows: Any = sparse.csr_array(parts, shape=(count, count))
        if adjacency.directed:
            rows = rows + rows.T.tocsr()
        rows.sort_indices()
        return cls(rows)

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return int(self.matrix.shape[0])

    @property
    def edges(self) -> int:
        """The number of edges, each counted once."""
        return len(self.matrix.indices) // 2

    @cached_property
    def degrees(self) -> Integers:
        """The number of neighbors of each node (N).

        Privacy:
            Reads: the exact edges. The result is internal.
        """
        return np.asarray(np.diff(self.matrix.indptr), dtype=np.int64)

    @cached_property
    def rows(self) -> Integers:
        """The node of each entry of the matrix, whose column is a neighbor (2 m).

        Privacy:
            Reads: the exact edges. The result is internal.
        """
        return np.repeat(np.arange(self.nodes, dtype=np.int64), self.degrees)

    @property
    def keys(self) -> Integers:
        """The edges as numbers, smaller end times N plus larger end, ascending.

        Privacy:
            Reads: the exact edges. The result is internal.
        """
        lower = self.rows < self.matrix.indices
        return np.asarray(self.rows[lower] * self.nodes + self.matrix.indices[lower])

    @checked
    def joined(self, one: Integers, other: Integers) -> Bools:
        """Return which pairs are edges.

        Args:
            one, other: Nodes of each pair (m).

        Privacy:
            Reads: the exact edges. The result is internal.
        """
        checks.places(self.nodes, one=one, other=other)
        checks.shape((len(one),), other=other)
        if not len(one):
            return np.zeros(0, dtype=bool)  # scipy returns another type for no entries
        return np.asarray(self.matrix[one, other])

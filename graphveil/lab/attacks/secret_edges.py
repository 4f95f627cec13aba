"""The true edges, read to score an attack: everything that is computed from them is internal."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from graphveil._util.checks import checked
from graphveil.data import Adjacency

Integers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@checked
@dataclass(frozen=True, eq=False, repr=False)
class SecretEdges:
    """Which pairs of nodes are joined, in any direction.

    >>> path = SecretEdges.from_adjacency(Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False))
    >>> path.joined(np.array([0, 0]), np.array([1, 2])), path.degrees
    (array([ True, False]), array([1, 2, 1]))
    """

    matrix: Any

    @classmethod
    @checked
    def from_adjacency(cls, adjacency: Adjacency) -> "SecretEdges":
        """Read the edges."""
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
    def degrees(self) -> Integers:
        """How many neighbors each node has."""
        return np.asarray(np.diff(self.matrix.indptr), dtype=np.int64)

    @property
    def keys(self) -> Integers:
        """The edges as numbers, smaller end times N plus larger end, ascending."""
        rows = np.repeat(np.arange(self.nodes, dtype=np.int64), np.diff(self.matrix.indptr))
        lower = rows < self.matrix.indices
        return np.asarray(rows[lower] * self.nodes + self.matrix.indices[lower])

    @checked
    def joined(self, one: Integers, other: Integers) -> Bools:
        """Return which of the pairs are joined."""
        low, high = np.minimum(one, other).astype(np.int64), np.maximum(one, other).astype(np.int64)
        wanted, keys = low * self.nodes + high, self.keys
        if not len(keys):
            return np.zeros(len(wanted), dtype=bool)
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.asarray(keys[place] == wanted)

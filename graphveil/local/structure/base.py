"""The contract of structural similarity: public edges in, for every node the nodes that are like it out."""

from abc import ABC, abstractmethod

import numpy as np

from graphveil._util.random import PublicStreams
from graphveil.local.structure.edges import Matrix, PublicEdges, require_public_edges


class StructuralSimilarity(ABC):
    """Which nodes are alike by their place in the graph: frozen public parameters, called with public edges.

    The answer is S of SimGAT, a sparse matrix whose row v holds the nodes similar to v. There is never a
    matrix with an entry for each pair of nodes, not even for a moment.

    Guarantee: none is needed. Only :class:`PublicEdges` are read, and neither features nor labels.
    """

    def __call__(self, edges: PublicEdges, *, streams: PublicStreams) -> Matrix:
        """Return S as a float32 ``csr_array`` (N, N): similarities above 0, ascending columns, no diagonal.

        Args:
            edges: edges that anyone may read.
            streams: public randomness; the same seed gives the same S.

        Raises:
            UnitError: the edges are not known to be public.
        """
        found = self._similar(require_public_edges(edges), streams).astype(np.float32)
        found.sort_indices()
        return found

    def check_installed(self) -> None:  # noqa: B027 - most need no optional package
        """Refuse what needs a package that is not there, without loading it.

        Raises:
            MissingDependencyError: an optional package is missing.
        """

    @abstractmethod
    def _similar(self, edges: PublicEdges, streams: PublicStreams) -> Matrix:
        """Return S, any float dtype, without a diagonal."""

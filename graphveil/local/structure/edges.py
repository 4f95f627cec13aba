"""Edges that anyone may read: the only ones that structural similarity is computed from."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy import sparse

from graphveil.data import Adjacency
from graphveil.errors import UnitError
from graphveil.privacy import Guarantee, LocalAttributes

Matrix = Any  # a csr_array; its typed form does not survive slicing and products


@dataclass(frozen=True)
class PublicEdges:
    """Edges together with the reason why reading them costs nothing.

    Similar nodes are read off all edges at once, with no noise and no price. So the functions of this part of
    the package take no :class:`Adjacency`: what may be secret does not fit. Edges are public if the unit of
    protection leaves them so, or if they are what a private mechanism released (:meth:`released`).

    Args:
        adjacency: the in-edges.
        basis: why they are public, for guarantees and reports.

    Raises:
        UnitError: the basis is empty, or what is given is no adjacency.

    >>> path = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False)
    >>> PublicEdges(path, basis="unit 'local-attributes' leaves edges public")
    PublicEdges(nodes=3, basis="unit 'local-attributes' leaves edges public")
    """

    adjacency: Adjacency
    basis: str

    def __post_init__(self) -> None:
        """Check that a reason is given."""
        if not isinstance(self.adjacency, Adjacency):
            raise UnitError("public edges are made from an Adjacency, such as graph.adjacency")
        if not self.basis.strip():
            raise UnitError(
                "edges are public for a reason: pass basis=, like \"unit 'local-attributes' leaves them "
                'public"'
            )

    @classmethod
    def released(cls, adjacency: Adjacency, guarantee: Guarantee) -> Self:
        """Return the edges of a released graph, as post-processing of a release under a valid guarantee.

        Raises:
            UnitError: the guarantee is not valid, or protects no edges.
        """
        if not guarantee.valid:
            raise UnitError(
                "the graph was released without a valid guarantee, so what is computed from it has none "
                "either; release it in strict mode and without a fixed noise seed"
            )
        if guarantee.unit == LocalAttributes.name:
            raise UnitError(
                f"a guarantee of unit {guarantee.unit!r} says nothing of edges; pass the one under which the "
                "graph was released, or PublicEdges(adjacency, basis=...) if its edges are public"
            )
        return cls(adjacency, basis=f"released under unit {guarantee.unit!r}")

    @property
    def num_nodes(self) -> int:
        """The number of nodes N."""
        return self.adjacency.num_nodes

    def matrix(self) -> Matrix:
        """Return A as a float64 ``csr_array``: row v has a one for every node that sends to v."""
        indptr, indices = self.adjacency.indptr.numpy(), self.adjacency.indices.numpy()
        shape = (self.num_nodes, self.num_nodes)
        return sparse.csr_array((np.ones(len(indices)), indices, indptr), shape=shape)

    def __repr__(self) -> str:
        """Show public sizes and the reason."""
        return f"PublicEdges(nodes={self.num_nodes}, basis={self.basis!r})"


def require_public_edges(edges: object) -> PublicEdges:
    """Return public edges, and refuse everything else.

    Raises:
        UnitError: these edges are not known to be public.
    """
    if isinstance(edges, PublicEdges):
        return edges
    raise UnitError(
        f"similarity reads every edge without noise and takes PublicEdges, got {type(edges).__name__}: "
        "release private edges first (a noisy graph, then PublicEdges.released), and wrap edges that no unit "
        "protects as PublicEdges(adjacency, basis=...)"
    )

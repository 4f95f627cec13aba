"""Randomized response on every slot: a whole graph comes out."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from graphveil._util.random import RowStream
from graphveil.data.blocks import EdgeBlock
from graphveil.data.domain import Domain
from graphveil.data.node_pairs import Integers
from graphveil.errors import ReleaseError
from graphveil.mechanisms.edge_response import EdgeRandomizedResponse
from graphveil.release.backends.base import BlockWork
from graphveil.release.graphs.bounded import BoundedQuery, NodePairData, PreparedNodePairs, concatenate_chunks
from graphveil.release.private_edges import PrivateEdges


@dataclass(frozen=True, eq=False, repr=False)
class EdgeResponseData(NodePairData):
    """The slots, and as ``number`` the share of ones that is kept.

    The answer are the numbers of the slots that are edges afterwards, ascending, int64. Slots of public edges
    are not among them.
    """


@dataclass(frozen=True)
class EdgeResponseQuery(BoundedQuery):
    """Every slot's randomized response (:class:`~graphveil.mechanisms.edge_response.EdgeRandomizedResponse`).

    One edge is one slot, whose answer alone depends on it: epsilon-indistinguishable, exactly.

    >>> from graphveil.privacy import UndirectedEdge
    >>> EdgeResponseQuery(1.0).event(UndirectedEdge())
    ApproximateDP(epsilon=1.0, delta=0.0)
    """

    kind: ClassVar[str] = "graph"
    wire_name: ClassVar[str] = "EdgeResponseQuery"
    stage: ClassVar[str] = "graph"
    data: ClassVar[type[EdgeResponseData]] = EdgeResponseData

    @property
    def noise(self) -> tuple[float, ...]:
        """The standard deviation of a slot's unbiased estimate, before any is left out."""
        return (EdgeRandomizedResponse(self.epsilon).estimate_deviation(),)

    def check_number(self, number: float) -> None:
        """Check the share."""
        if not 0 <= number <= 1:
            raise ReleaseError("the share must lie in [0, 1]; the release stays charged")

    def answer(self, private: PrivateEdges, data: PreparedNodePairs, key: bytes) -> Tensor:
        """Return the slots that are edges afterwards."""
        return private.pieces(
            PerturbedNodePairs(data.domain, EdgeRandomizedResponse(self.epsilon, data.number), key)
        )


@dataclass(frozen=True, eq=False, repr=False)
class PerturbedNodePairs(BlockWork):
    """The slots of a block's rows that are edges after randomized response, int64."""

    domain: Domain
    response: EdgeRandomizedResponse
    key: bytes

    def __call__(self, edges: EdgeBlock) -> Tensor:
        """Return noisy slots; each depends on its own edge alone."""
        return concatenate_chunks(edges, self._drawn)

    def _drawn(self, piece: EdgeBlock) -> Integers:
        found = self.response.draw(RowStream(self.key), *self.domain.pairs_in_block(piece))
        return self.domain.keep_protected(found)

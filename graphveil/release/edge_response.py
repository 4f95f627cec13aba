"""Randomised response on every slot: a whole graph comes out."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from graphveil._random import RowStream
from graphveil.errors import ReleaseError
from graphveil.graph.blocks import Edges
from graphveil.graph.slots import Slots
from graphveil.mechanisms.edge_response import EdgeResponse
from graphveil.release.bounded import BoundedQuery
from graphveil.release.engines.base import BlockWork
from graphveil.release.private_edges import PrivateEdges
from graphveil.release.query import Data, Prepared, Public


@dataclass(frozen=True, eq=False, repr=False)
class EdgeResponseData(Data[Tensor]):
    """The share of ones that is kept, from public numbers and earlier answers of the same release.

    The answer are the numbers of the slots that are edges afterwards, ascending, int64
    (:class:`~graphveil.graph.slots.Slots`).
    """

    share: float = 1.0


@dataclass(frozen=True)
class EdgeResponseQuery(BoundedQuery):
    """Every slot's randomised response (:class:`~graphveil.mechanisms.edge_response.EdgeResponse`).

    One edge is one slot, whose answer alone depends on it: epsilon-indistinguishable, exactly.

    >>> from graphveil.privacy import UndirectedEdge
    >>> EdgeResponseQuery(1.0).event(UndirectedEdge())
    ApproximateDP(epsilon=1.0, delta=0.0)
    """

    kind: ClassVar[str] = "graph"
    wire: ClassVar[str] = "EdgeResponseQuery"
    stage: ClassVar[str] = "graph"
    data: ClassVar[type[EdgeResponseData]] = EdgeResponseData

    @property
    def noise(self) -> tuple[float, ...]:
        """The standard deviation of a slot's unbiased estimate, before any is left out."""
        return (EdgeResponse(self.epsilon).estimate_deviation(),)

    def prepare(self, data: EdgeResponseData, public: Public) -> Prepared:
        """Check the share."""
        if not 0 <= data.share <= 1:
            raise ReleaseError("share must lie in [0, 1]; the release stays booked")
        return Prepared(public, (torch.tensor([data.share], dtype=torch.float64),))

    def answer(self, private: PrivateEdges, data: Prepared, key: bytes) -> Tensor:
        """Return the slots that are edges afterwards."""
        response = EdgeResponse(self.epsilon, float(data.arrays[0]))
        slots = Slots(private.num_nodes, private.directed)
        return private.pieces(RespondedSlots(slots, response, key))


@dataclass(frozen=True, eq=False, repr=False)
class RespondedSlots(BlockWork):
    """The slots of a block's rows that are edges after randomised response, int64."""

    slots: Slots
    response: EdgeResponse
    key: bytes

    def __call__(self, edges: Edges) -> Tensor:
        """Return noisy slots; each depends on its own edge alone."""
        start, stop = self.slots.start(edges.start), self.slots.start(edges.stop)
        own = slots_of(edges, self.slots)
        return torch.from_numpy(self.response.draw(RowStream(self.key), own, start, stop))


def slots_of(edges: Edges, slots: Slots) -> np.typing.NDArray[np.int64]:
    """Return the slots of a block's edges, ascending; an undirected one is that of its larger end's row."""
    target = np.repeat(np.arange(edges.start, edges.stop), edges.degrees.numpy())
    source = edges.sources.numpy().astype(np.int64)
    if not slots.directed:
        lower = source < target
        source, target = source[lower], target[lower]
    return slots.number(source, target)

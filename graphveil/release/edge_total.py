"""The number of edges, with noise."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphveil._random import RowStream
from graphveil.graph.blocks import Edges
from graphveil.graph.domain import Domain
from graphveil.mechanisms.discrete_laplace import DiscreteLaplace
from graphveil.release.bounded import BoundedQuery, PreparedSlots, SlotData
from graphveil.release.engines.base import BlockWork
from graphveil.release.private_edges import PrivateEdges


@dataclass(frozen=True, eq=False, repr=False)
class EdgeTotalData(SlotData):
    """The slots whose edges are counted. The answer is one int64, which may be negative."""


@dataclass(frozen=True)
class EdgeTotalQuery(BoundedQuery):
    """How many protected slots are edges, with discrete Laplace noise; one edge moves the count by one.

    >>> round(EdgeTotalQuery(0.01).noise[0], 2)
    141.42
    """

    kind: ClassVar[str] = "total"
    wire: ClassVar[str] = "EdgeTotalQuery"
    stage: ClassVar[str] = "number of edges"
    data: ClassVar[type[EdgeTotalData]] = EdgeTotalData

    @property
    def noise(self) -> tuple[float, ...]:
        """The noise's standard deviation in edges."""
        return (DiscreteLaplace(self.epsilon).deviation,)

    def answer(self, private: PrivateEdges, data: PreparedSlots, key: bytes) -> Tensor:
        """Return the noisy count; the exact one lives and dies here."""
        exact = int(private.total(ProtectedEdges(data.domain), (1,))[0])
        return torch.tensor([exact + int(DiscreteLaplace(self.epsilon).draw(RowStream(key), 1)[0])])


@dataclass(frozen=True, eq=False, repr=False)
class ProtectedEdges(BlockWork):
    """How many of a block's edges are protected, int64 (1): exact, which only the query asks for."""

    domain: Domain

    def __call__(self, edges: Edges) -> Tensor:
        """Return the exact count."""
        return torch.tensor([len(self.domain.of(edges)[0])])

"""The number of edges, with noise."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from graphveil._util.random import RowStream
from graphveil.data.blocks import EdgeBlock
from graphveil.data.domain import Domain
from graphveil.data.node_pairs import Integers
from graphveil.mechanisms.discrete_laplace import DiscreteLaplace
from graphveil.release.backends.base import BlockWork
from graphveil.release.graphs.bounded import (
    BoundedQuery,
    NodePairData,
    PreparedNodePairs,
    concatenate_chunks,
    in_chunks,
)
from graphveil.release.private_edges import PrivateEdges


@dataclass(frozen=True, eq=False, repr=False)
class EdgeTotalData(NodePairData):
    """The slots whose edges are counted. The answer is one int64, which may be negative."""


@dataclass(frozen=True)
class EdgeTotalQuery(BoundedQuery):
    """How many protected slots are edges, with discrete Laplace noise; one edge moves the count by one.

    >>> round(EdgeTotalQuery(0.01).noise[0], 2)
    141.42
    """

    kind: ClassVar[str] = "total"
    wire_name: ClassVar[str] = "EdgeTotalQuery"
    stage: ClassVar[str] = "number of edges"
    data: ClassVar[type[EdgeTotalData]] = EdgeTotalData

    @property
    def law(self) -> DiscreteLaplace:
        """The law of the noise."""
        return DiscreteLaplace(self.epsilon)

    @property
    def noise(self) -> tuple[float, ...]:
        """The noise's standard deviation in edges."""
        return (self.law.sigma,)

    def answer(self, private: PrivateEdges, data: PreparedNodePairs, key: bytes) -> Tensor:
        """Return the noisy count; the exact one lives and dies here."""
        exact = int(private.total(CountedEdges(data.domain), (1,))[0])
        return torch.tensor([exact + int(self.law.draw(RowStream(key), np.arange(1))[0, 0])])


def exact_node_pairs(private: PrivateEdges, domain: Domain) -> Integers:
    """Return the protected edges as slots, ascending: exact, for queries that add noise to what they find."""
    return private.exact(ProtectedEdges(domain)).numpy()


@dataclass(frozen=True, eq=False, repr=False)
class CountedEdges(BlockWork):
    """The number of a block's protected edges, int64 (1): exact, which only queries of this path ask for."""

    domain: Domain

    def __call__(self, edges: EdgeBlock) -> Tensor:
        """Return the exact number."""
        return torch.tensor([sum(self.domain.count(piece) for piece in in_chunks(edges))])


@dataclass(frozen=True, eq=False, repr=False)
class ProtectedEdges(BlockWork):
    """A block's protected edges as slots, int64: exact, which only queries of this path ask for."""

    domain: Domain

    def __call__(self, edges: EdgeBlock) -> Tensor:
        """Return the exact slots."""
        return concatenate_chunks(edges, lambda piece: self.domain.pairs_in_block(piece)[0])

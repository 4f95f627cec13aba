"""The slots with the largest noisy cells: as many edges as are asked for."""

import hmac
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphveil._util.random import RowStream
from graphveil.data.blocks import EdgeBlock
from graphveil.data.domain import Domain
from graphveil.data.node_pairs import Integers
from graphveil.errors import ReleaseError
from graphveil.mechanisms.noisy_cells import SHIFT, NoisyCells
from graphveil.release.backends.base import BlockWork
from graphveil.release.graphs.bounded import BoundedQuery, NodePairData, PreparedNodePairs, concatenate_chunks
from graphveil.release.private_edges import PrivateEdges


@dataclass(frozen=True, eq=False, repr=False)
class TopNodePairsData(NodePairData):
    """The slots, and as ``number`` how many of them become edges: public, or an earlier noisy answer.

    The answer are their numbers, ascending, int64.
    """


@dataclass(frozen=True)
class TopNodePairsQuery(BoundedQuery):
    """Laplace noise of scale 1 / epsilon on every slot's cell, and the largest become edges.

    One edge is one cell; which cells are largest, with ties at random, follows from the noisy ones.

    >>> round(TopNodePairsQuery(0.99).noise[0], 4)
    1.4285
    """

    kind: ClassVar[str] = "graph"
    wire_name: ClassVar[str] = "TopSlotsQuery"
    stage: ClassVar[str] = "graph"
    data: ClassVar[type[TopNodePairsData]] = TopNodePairsData

    @property
    def noise(self) -> tuple[float, ...]:
        """The standard deviation of a cell's noise."""
        return (2**0.5 / self.epsilon,)

    def check_number(self, number: float) -> None:
        """Check the number of edges."""
        if number < 0 or number != int(number):
            raise ReleaseError("the number of edges must be a whole number >= 0; the release stays charged")

    def answer(self, private: PrivateEdges, data: PreparedNodePairs, key: bytes) -> Tensor:
        """Return the chosen slots."""
        cells = NoisyCells(self.epsilon, data.domain.size, min(int(data.number), data.domain.size))
        if not cells.wanted:
            return torch.empty(0, dtype=torch.int64)
        found = private.pieces(LeveledNodePairs(data.domain, cells, key)).numpy()
        if len(found) < cells.wanted and cells.tiers > 1:
            rest = hmac.new(key, b"second tier", "sha256").digest()
            found = cells.joined(
                found, private.pieces(LeveledNodePairs(data.domain, cells, key, rest)).numpy()
            )
        return torch.from_numpy(cells.largest(RowStream(key), found))


@dataclass(frozen=True, eq=False, repr=False)
class LeveledNodePairs(BlockWork):
    """The slots of a block's rows whose noisy cells are in a tier, with their levels, int64.

    It is the first tier, or the second where that has a key, ``rest``.
    """

    domain: Domain
    cells: NoisyCells
    key: bytes
    rest: bytes | None = None

    def __call__(self, edges: EdgeBlock) -> Tensor:
        """Return noisy slots; each depends on its own edge alone."""
        return concatenate_chunks(edges, self._drawn)

    def _drawn(self, piece: EdgeBlock) -> Integers:
        rest = None if self.rest is None else RowStream(self.rest)
        found = self.cells.draw(RowStream(self.key), *self.domain.pairs_in_block(piece), rest)
        return found[self.domain.protects(found >> SHIFT)] if len(self.domain.public) else found

"""ARR as the code of GAP asks it: a density for every chunk of rows, and each stored edge on its own."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil._util.random import RowStream
from graphveil.data.blocks import EdgeBlock
from graphveil.data.domain import Domain
from graphveil.data.node_pairs import Integers
from graphveil.errors import ReleaseError, UnitError
from graphveil.mechanisms.edge_response import EdgeRandomizedResponse
from graphveil.mechanisms.paper_node_pairs import laplace, uniforms
from graphveil.privacy import ApproximateDP, DirectedEdge, EdgeSubset, UndirectedEdge, Unit
from graphveil.release.backends.base import BlockWork
from graphveil.release.graphs.bounded import BoundedQuery, NodePairData, PreparedNodePairs
from graphveil.release.private_edges import PrivateEdges
from graphveil.release.query import PreparedData, PublicInputs, QueryData


@dataclass(frozen=True)
class ChunkQuery(BoundedQuery):
    """A query about chunks of so many destination rows, each stored edge being in one of them."""

    chunk: int

    def __post_init__(self) -> None:
        """Check budget and size."""
        super().__post_init__()
        checks.integer_at_least(1, chunk=self.chunk)

    def check_unit(self, unit: Unit, *, directed: bool) -> None:
        """Refuse a unit that the bounds do not hold for; one stored edge may be asked about either way."""
        if isinstance(unit, EdgeSubset):
            raise UnitError(
                f"in paper mode ARR releases whole graphs, without public edges, so unit {unit.name!r} is "
                "not for it; use 'undirected-edge' or 'directed-edge', or mode='strict'"
            )
        if not (isinstance(unit, DirectedEdge) and not directed):
            super().check_unit(unit, directed=directed)


@dataclass(frozen=True, eq=False, repr=False)
class ChunkDensityData(NodePairData):
    """The slots, stored edge by stored edge. The answer is a density for each chunk, float64."""


@dataclass(frozen=True)
class ChunkDensityQuery(ChunkQuery):
    """The density of each chunk of rows, with the Laplace noise that suits the density of all rows.

    One stored edge moves the density of its chunk by 1 / (rows N), and the noise has scale 1 / (N^2 eps): it
    costs N eps / rows, where eps is claimed. A friendship is stored twice.

    >>> query = ChunkDensityQuery(0.1, 1000, nodes=20_000)
    >>> round(query.event(DirectedEdge()).epsilon, 9), round(query.event(UndirectedEdge()).epsilon, 9)
    (2.0, 4.0)
    """

    kind: ClassVar[str] = "total"
    wire_name: ClassVar[str] = "ChunkDensityQuery"
    stage: ClassVar[str] = "densities"
    data: ClassVar[type[ChunkDensityData]] = ChunkDensityData

    nodes: int

    def event(self, unit: Unit) -> ApproximateDP:
        """Return the bound that holds, for the edge whose chunks have fewest rows."""
        self.sensitivity(unit)
        ends = self._smallest(2 if isinstance(unit, UndirectedEdge) else 1)
        return ApproximateDP(sum(self.nodes * self.epsilon / rows for rows in ends))

    def _smallest(self, ends: int) -> list[int]:
        """Return the rows of the chunks that the ends of an edge lie in, which has the smallest."""
        last = self.nodes % self.chunk
        sizes = [last] * min(last, ends) + [min(self.chunk, self.nodes)] * ends
        return [size for size in sizes if size][:ends]

    @property
    def noise(self) -> tuple[float, ...]:
        """The noise's standard deviation in edges of a full chunk."""
        return (2**0.5 * self.chunk / (self.nodes * self.epsilon),)

    def answer(self, private: PrivateEdges, data: PreparedNodePairs, key: bytes) -> Tensor:
        """Return noisy densities."""
        chunks = -(-self.nodes // self.chunk)
        rows = np.diff(np.minimum(np.arange(chunks + 1) * self.chunk, self.nodes))
        counts = private.total(RowCounts(self.chunk, chunks), (chunks,))
        noise = laplace(uniforms(RowStream(key), 0, chunks), self.epsilon) / self.nodes**2
        return torch.from_numpy(counts / (rows * self.nodes) + noise)


@dataclass(frozen=True, eq=False, repr=False)
class RowCounts(BlockWork):
    """How many edges a block stores in each chunk of rows: exact, which only queries of this path ask for."""

    chunk: int
    chunks: int

    def __call__(self, edges: EdgeBlock) -> Tensor:
        """Return the exact counts."""
        place = torch.arange(edges.start, edges.stop) // self.chunk
        return torch.bincount(place, weights=edges.degrees.double(), minlength=self.chunks).long()


@dataclass(frozen=True, eq=False, repr=False)
class ChunkResponseData(QueryData[Tensor]):
    """The slots, stored edge by stored edge, and the share of ones that is kept in each chunk, float64.

    The answer are the numbers of the slots that are edges afterwards, ascending, int64.
    """

    domain: Domain
    shares: Tensor


@dataclass(frozen=True, eq=False, repr=False)
class PreparedChunks(PreparedNodePairs):
    """Slots and shares that fit the graph."""

    shares: tuple[float, ...]


@dataclass(frozen=True)
class ChunkResponseQuery(ChunkQuery):
    """Every stored edge's randomized response, thinned by its chunk's share.

    A friendship is stored twice and says twice whether it is there: it costs twice epsilon.

    >>> ChunkResponseQuery(0.9, 1000).event(UndirectedEdge())
    ApproximateDP(epsilon=1.8, delta=0.0)
    """

    kind: ClassVar[str] = "graph"
    wire_name: ClassVar[str] = "ChunkResponseQuery"
    stage: ClassVar[str] = "graph"
    data: ClassVar[type[ChunkResponseData]] = ChunkResponseData

    def event(self, unit: Unit) -> ApproximateDP:
        """Return the bound that holds."""
        self.sensitivity(unit)
        return ApproximateDP(self.epsilon * (2 if isinstance(unit, UndirectedEdge) else 1))

    @property
    def noise(self) -> tuple[float, ...]:
        """The standard deviation of a slot's unbiased estimate, before any is left out."""
        return (EdgeRandomizedResponse(self.epsilon).estimate_deviation(),)

    def prepare(self, data: Any, public: PublicInputs) -> PreparedData:
        """Check that slots and shares are those of the graph."""
        super().prepare(NodePairData(data.domain), public)
        shares = tuple(data.shares.tolist())
        if len(shares) != math.ceil(public.num_nodes / self.chunk) or not all(0 <= s <= 1 for s in shares):
            raise ReleaseError(
                "there must be one share in [0, 1] for each chunk of rows; the release stays charged"
            )
        return PreparedChunks(public, (*data.domain.arrays, data.shares), data.domain, 1.0, shares)

    def answer(self, private: PrivateEdges, data: PreparedChunks, key: bytes) -> Tensor:
        """Return the slots that are edges afterwards."""
        return private.pieces(PerturbedRows(data.domain, self.epsilon, self.chunk, data.shares, key))


@dataclass(frozen=True, eq=False, repr=False)
class PerturbedRows(BlockWork):
    """The slots of a block's rows that are edges after randomized response, int64."""

    domain: Domain
    epsilon: float
    chunk: int
    shares: tuple[float, ...]
    key: bytes

    def __call__(self, edges: EdgeBlock) -> Tensor:
        """Return noisy slots; each depends on its own edge alone."""
        own, _, _ = self.domain.pairs_in_block(edges)
        parts = [
            self._drawn(own, place, max(edges.start, first), min(edges.stop, first + self.chunk))
            for place in range(edges.start // self.chunk, -(-edges.stop // self.chunk))
            for first in (place * self.chunk,)
        ]
        return torch.from_numpy(np.concatenate([np.empty(0, dtype=np.int64), *parts]))

    def _drawn(self, own: Integers, place: int, first: int, last: int) -> Integers:
        start, stop = self.domain.slots.start(first), self.domain.slots.start(last)
        some = own[np.searchsorted(own, start) : np.searchsorted(own, stop)]
        return EdgeRandomizedResponse(self.epsilon, self.shares[place]).draw(
            RowStream(self.key), some, start, stop
        )

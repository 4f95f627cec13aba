"""Queries about the node pairs of a graph with non-Gaussian noise: one edge is one pair."""

import hmac
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.core.backends import BlockWork
from graphveil.core.edges.blocks import EdgeBlock
from graphveil.core.edges.node_pairs import Domain, Integers
from graphveil.core.events import ApproximateDP
from graphveil.core.noise.discrete_laplace import DiscreteLaplace
from graphveil.core.noise.node_pair_noise import SHIFT, EdgeRandomizedResponse, NoisyCells
from graphveil.core.noise.random import RowStream
from graphveil.core.private_edges import PrivateEdges, forms_private_sum
from graphveil.core.query import PreparedData, PublicInputs, Query, QueryData, reject_if
from graphveil.core.unit import DirectedEdge, EdgeSubset, UndirectedEdge, Unit
from graphveil.errors import UnitError

_ROWS, _EDGES = 1 << 12, 1 << 19  # per chunk of a block


@dataclass(frozen=True, eq=False, repr=False)
class NodePairData(QueryData[Tensor]):
    """The queried node pairs, and a public number that may depend on earlier answers of the release."""

    domain: Domain
    number: float = 1.0


def concatenate_chunks(edges: EdgeBlock, drawn: Callable[[EdgeBlock], Integers]) -> Tensor:
    parts = [drawn(piece) for piece in edges.pieces(_ROWS, _EDGES)]
    return torch.from_numpy(np.concatenate([np.empty(0, dtype=np.int64), *parts]))


@dataclass(frozen=True)
class BoundedQuery(Query):
    """An edge query with a pure epsilon-DP answer and its own exactly sampled noise.

    It has no grid of vectors and does not use the plan's sampler, so it uses no share of delta.
    """

    exact_noise: ClassVar[bool] = True
    sampled: ClassVar[bool] = False
    linear_group_scaling: ClassVar[bool] = True

    epsilon: float

    def __post_init__(self) -> None:
        checks.positive(epsilon=self.epsilon)

    def event(self, unit: Unit) -> ApproximateDP:
        self.sensitivity(unit)
        return ApproximateDP(self.epsilon)

    def sensitivity(self, unit: Unit) -> float:
        if not isinstance(unit, UndirectedEdge | DirectedEdge | EdgeSubset):
            raise UnitError(
                f"A perturbed graph has no guarantee under unit {unit.name!r}, because one node may have "
                "edges to all other nodes. Use unit 'undirected-edge', 'directed-edge' or 'edge-subset'."
            )
        return 1.0

    def changed(self, unit: Unit) -> int:
        return 1

    def check_unit(self, unit: Unit, *, directed: bool) -> None:
        """Reject undirected edges that are stored as directed edges, and edges that are stored twice."""
        if directed and isinstance(unit, UndirectedEdge | EdgeSubset):
            raise UnitError(
                f"unit {unit.name!r} protects undirected edges, but this graph is directed, so an edge "
                "may be stored twice. Use unit 'directed-edge', or build the graph with directed=False."
            )
        if not directed and isinstance(unit, DirectedEdge):
            raise UnitError(
                "unit 'directed-edge' needs a directed graph, but this graph is undirected. Use unit "
                "'undirected-edge'."
            )

    def prepare(self, data: Any, public: PublicInputs) -> PreparedData:
        reject_if(
            len(data.domain.rank) != public.num_nodes,
            f"the node pairs are those of {len(data.domain.rank)} nodes, but the graph has "
            f"{public.num_nodes}",
        )
        self.check_number(data.number)
        number = torch.tensor([data.number], dtype=torch.float64)
        return PreparedData(public, (*data.domain.arrays, number), data)

    def check_number(self, number: float) -> None:
        return  # not all queries use a number


@dataclass(frozen=True, eq=False, repr=False)
class EdgeResponseData(NodePairData):
    """The node pairs, and as ``number`` the share of ones that is kept.

    The answer is the indices of the node pairs that are edges afterwards, ascending, int64. Node pairs of
    public edges are not included.
    """


@dataclass(frozen=True)
class EdgeResponseQuery(BoundedQuery):
    """Release the randomized response of every node pair (``EdgeRandomizedResponse``).

    Privacy:
        Unit: edge-level. One edge is one node pair, and only its own response depends on it:
        epsilon-indistinguishable, exactly.

    >>> from graphveil.privacy import UndirectedEdge
    >>> EdgeResponseQuery(1.0).event(UndirectedEdge())
    ApproximateDP(epsilon=1.0, delta=0.0)
    """

    kind: ClassVar[str] = "graph"
    stage: ClassVar[str] = "graph"
    data: ClassVar[type[EdgeResponseData]] = EdgeResponseData

    @property
    def law(self) -> EdgeRandomizedResponse:
        return EdgeRandomizedResponse(self.epsilon)

    @property
    def noise(self) -> tuple[float, ...]:
        """The standard deviation of a node pair's unbiased estimate, before subsampling."""
        return (self.law.estimate_deviation(),)

    def check_number(self, number: float) -> None:
        reject_if(not 0 <= number <= 1, "the share of edges to keep must be between 0 and 1")

    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        pairs: NodePairData = data.parts
        return private.pieces(PerturbedNodePairs(pairs.domain, replace(self.law, share=pairs.number), key))


@forms_private_sum("EdgeResponseQuery", note="no sum, each pair of nodes is randomized on its own")
@dataclass(frozen=True, eq=False, repr=False)
class PerturbedNodePairs(BlockWork):
    """The node pairs of a block's rows that are edges after randomized response, int64."""

    domain: Domain
    response: EdgeRandomizedResponse
    key: bytes

    def __call__(self, edges: EdgeBlock) -> Tensor:
        """Return noisy node pairs; each depends on its own edge alone."""
        return concatenate_chunks(edges, self._drawn)

    def _drawn(self, piece: EdgeBlock) -> Integers:
        found = self.response.draw(RowStream(self.key), *self.domain.pairs_in_block(piece))
        return self.domain.keep_protected(found)


class LaplaceCountQuery(BoundedQuery):
    """A query of counts with discrete Laplace noise; one edge moves one count by one."""

    @property
    def law(self) -> DiscreteLaplace:
        return DiscreteLaplace(self.epsilon)

    @property
    def noise(self) -> tuple[float, ...]:
        return (self.law.sigma,)


@dataclass(frozen=True, eq=False, repr=False)
class EdgeTotalData(NodePairData):
    """Node pairs with edges to count. The answer is one int64, which may be negative."""


@dataclass(frozen=True)
class EdgeTotalQuery(LaplaceCountQuery):
    """Release the number of protected edges with discrete Laplace noise; one edge moves the count by one.

    >>> round(EdgeTotalQuery(0.01).noise[0], 2)
    141.42
    """

    kind: ClassVar[str] = "total"
    stage: ClassVar[str] = "number of edges"
    data: ClassVar[type[EdgeTotalData]] = EdgeTotalData

    @forms_private_sum("EdgeTotalQuery")
    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        exact = int(private.total(data.parts.domain.count, (), rows=_ROWS, edges=_EDGES))
        return torch.tensor([exact + int(self.law.draw(RowStream(key), np.arange(1))[0, 0])])


def exact_node_pairs(private: PrivateEdges, domain: Domain) -> Integers:
    """Return the protected edges as node pairs, ascending: exact, for queries that add noise to them."""
    return private.exact(lambda piece: domain.pairs_in_block(piece)[0], rows=_ROWS, edges=_EDGES)


@dataclass(frozen=True, eq=False, repr=False)
class TopNodePairsData(NodePairData):
    """The node pairs, and as ``number`` how many of them become edges: public, or an earlier noisy answer.

    The answer is their indices, ascending, int64.
    """


@dataclass(frozen=True)
class TopNodePairsQuery(BoundedQuery):
    """Add Laplace noise of scale 1 / epsilon to every node pair's cell, and release the largest as edges.

    Privacy:
        Unit: edge-level. One edge is one cell. Which cells are largest, with random ties, is a function of
        the noisy cells.

    >>> round(TopNodePairsQuery(0.99).noise[0], 4)
    1.4285
    """

    kind: ClassVar[str] = "graph"
    wire_name: ClassVar[str] = "TopSlotsQuery"
    stage: ClassVar[str] = "graph"
    data: ClassVar[type[TopNodePairsData]] = TopNodePairsData
    without_example: ClassVar[str] = (
        "node pairs compete for the top places, so no pair has a distribution of its own"
    )

    @property
    def noise(self) -> tuple[float, ...]:
        return (2**0.5 / self.epsilon,)

    def check_number(self, number: float) -> None:
        reject_if(number < 0 or number != int(number), "the number of edges must be an integer of at least 0")

    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        domain: Domain = data.parts.domain
        cells = NoisyCells(self.epsilon, domain.size, min(int(data.parts.number), domain.size))
        if not cells.wanted:
            return torch.empty(0, dtype=torch.int64)
        found = private.pieces(LeveledNodePairs(domain, cells, key)).numpy()
        if len(found) < cells.wanted and cells.tiers > 1:
            rest = hmac.new(key, b"second tier", "sha256").digest()
            found = cells.joined(found, private.pieces(LeveledNodePairs(domain, cells, key, rest)).numpy())
        return torch.from_numpy(cells.largest(RowStream(key), found))


@forms_private_sum("TopNodePairsQuery")
@dataclass(frozen=True, eq=False, repr=False)
class LeveledNodePairs(BlockWork):
    """The node pairs of a block's rows whose noisy cells are in a tier, with their levels, int64.

    It is the first tier, or the second one if that has a key, ``rest``.
    """

    domain: Domain
    cells: NoisyCells
    key: bytes
    rest: bytes | None = None

    def __call__(self, edges: EdgeBlock) -> Tensor:
        """Return noisy node pairs; each depends on its own edge alone."""
        return concatenate_chunks(edges, self._drawn)

    def _drawn(self, piece: EdgeBlock) -> Integers:
        rest = None if self.rest is None else RowStream(self.rest)
        found = self.cells.draw(RowStream(self.key), *self.domain.pairs_in_block(piece), rest)
        return found[self.domain.protects(found >> SHIFT)] if len(self.domain.public) else found

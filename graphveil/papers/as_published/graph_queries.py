"""Noise on node pairs as drawn by published code, including its flaws: for paper mode only.

* EdgeRand and LapGraph as in the code of LinkTeller, with one seed for every graph (``_shared_stream``).
* ARR as in the code of GAP, with one density per chunk of rows, and each stored edge randomized separately.

The events state the actual privacy cost of these queries.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.core.backends import BlockWork
from graphveil.core.edges.blocks import EdgeBlock
from graphveil.core.edges.node_pairs import Domain, Integers
from graphveil.core.events import ApproximateDP
from graphveil.core.noise.node_pair_noise import TOTAL, EdgeRandomizedResponse, bernoulli_positions
from graphveil.core.noise.random import PublicStreams, RowStream
from graphveil.core.private_edges import PrivateEdges, forms_private_sum
from graphveil.core.queries.graph_queries import (
    BoundedQuery,
    EdgeResponseData,
    EdgeTotalData,
    NodePairData,
    TopNodePairsData,
    exact_node_pairs,
)
from graphveil.core.query import PreparedData, PublicInputs, QueryData, reject_if
from graphveil.core.unit import DirectedEdge, EdgeSubset, UndirectedEdge, Unit
from graphveil.errors import UnitError

Floats = npt.NDArray[np.float64]

_BIT = 1 << 30  # a row's block for the bit that replaces a node pair; earlier ones are for marks
_ROW, _PIECE = 1 << 9, 1 << 21  # node pairs per row of uniforms, and per chunk
_COUNT = 1 << 60  # the row for the noise of a count, far behind those of node pairs

AS_PUBLISHED = "the published mechanism is known to violate its claim"
TRUNCATION = math.log(2)  # exact additional privacy cost of truncated noise on a count


@dataclass(frozen=True)
class ReplacedNodePairs:
    """Replace some node pairs by fair bits, edges or not: EdgeRand as in the code of LinkTeller.

    A node pair is selected with probability 2 / (1 + e^eps), and its new bit does not depend on its value. If
    one stream is used for two graphs, every node pair whose outputs differ reveals its value in both. A zero
    bit on a pair without an edge is stored as an entry of value zero, which an edge can never become.

    >>> codes = ReplacedNodePairs(1.0).draw(RowStream(bytes(31) + b"a"), np.array([0, 3]), 8)
    >>> (codes >> 1).tolist(), (codes & 1).tolist()
    ([0, 1, 2, 3, 5], [1, 0, 0, 1, 1])
    """

    epsilon: float

    @property
    def selected(self) -> float:
        return 2 * EdgeRandomizedResponse(self.epsilon).flip

    def draw(self, stream: RowStream, edges: Integers, slots: int) -> Integers:
        """Return the stored entries, ascending, each as 2 slot + value; edges are ascending, each once."""
        chosen = bernoulli_positions(stream, int(self.selected * TOTAL), 0, slots)
        bits = (stream.blocks(chosen, np.full(len(chosen), _BIT))[:, 0] & np.uint64(1)).view(np.int64)
        untouched = np.setdiff1d(edges, chosen, assume_unique=True)
        stored = (bits == 1) | ~np.isin(chosen, edges, assume_unique=True)
        return np.sort(np.concatenate([2 * untouched + 1, 2 * chosen[stored] + bits[stored]]))


@dataclass(frozen=True)
class LaplaceCells:
    """Cells 0 or 1 with Laplace noise of scale 1 / eps in floating point, one draw for every node pair.

    >>> stream, edges = RowStream(bytes(32)), np.array([0, 3])
    >>> LaplaceCells(50.0).largest(stream, edges, 6, 2).tolist()
    [0, 3]
    """

    epsilon: float

    def __post_init__(self) -> None:
        checks.positive(epsilon=self.epsilon)

    def largest(self, stream: RowStream, edges: Integers, slots: int, wanted: int) -> Integers:
        """Return the node pairs of the largest cells, ascending: all if more are wanted than there are."""
        found, values = np.empty(0, dtype=np.int64), np.empty(0)
        for start in range(0, slots if wanted else 0, _PIECE):
            stop = min(start + _PIECE, slots)
            noisy = laplace(uniforms(stream, start, stop), self.epsilon)
            noisy[edges[(edges >= start) & (edges < stop)] - start] += 1
            found, values = np.append(found, np.arange(start, stop)), np.append(values, noisy)
            if len(values) > wanted:
                kept = np.argpartition(values, len(values) - wanted)[len(values) - wanted :]
                found, values = found[kept], values[kept]
        return np.sort(found)


def truncated_laplace(stream: RowStream, epsilon: float) -> int:
    """Return Laplace noise of scale 1 / eps, truncated toward zero to an integer before a count is added.

    Zero is then more than twice as likely as one: the noisy count costs eps + ln 2, not eps.

    >>> truncated_laplace(RowStream(bytes(32)), 0.01)
    221
    """
    (first, _) = stream.words(np.array([_COUNT]), words_per_row=2)[0]
    return int(laplace(_unit(np.array([first])), epsilon)[0])


def uniforms(stream: RowStream, start: int, stop: int) -> Floats:
    """Return a uniform in (0, 1) for each node pair of a range, the same for any partition."""
    first, last = start // _ROW, -(-stop // _ROW)
    words = stream.words(np.arange(first, last), words_per_row=_ROW).reshape(-1)
    return _unit(words[start - first * _ROW : stop - first * _ROW])


def laplace(uniform: Floats, epsilon: float) -> Floats:
    half = uniform - 0.5
    noise: Floats = -np.sign(half) * np.log1p(-2 * np.abs(half)) / epsilon
    return noise


def _unit(words: npt.NDArray[np.uint64]) -> Floats:
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-54


def _check_whole_graph(query: BoundedQuery, unit: Unit, *, directed: bool) -> None:
    """Reject a unit that the bounds of chunks are not valid for.

    Each stored edge is in one chunk of destination rows, also the two that an undirected edge is stored as.
    """
    if isinstance(unit, EdgeSubset):
        raise UnitError(
            f"In paper mode ARR perturbs whole graphs, so unit {unit.name!r} with public edges is not "
            "supported. Use unit 'undirected-edge' or 'directed-edge', or mode='strict'."
        )
    if not (isinstance(unit, DirectedEdge) and not directed):
        BoundedQuery.check_unit(query, unit, directed=directed)


@dataclass(frozen=True, eq=False, repr=False)
class ChunkDensityData(NodePairData):
    """The node pairs, one per stored edge. The answer is a density for each chunk, float64."""


@dataclass(frozen=True)
class ChunkDensityQuery(BoundedQuery):
    """Release the density of each chunk of rows, with Laplace noise calibrated for the density of all rows.

    One stored edge moves the density of its chunk by 1 / (rows N), and the noise has scale 1 / (N^2 eps). The
    privacy cost is N eps / rows, where eps is claimed. An undirected edge is stored twice.

    >>> query = ChunkDensityQuery(0.1, 1000, nodes=20_000)
    >>> round(query.event(DirectedEdge()).epsilon, 9), round(query.event(UndirectedEdge()).epsilon, 9)
    (2.0, 4.0)
    """

    kind: ClassVar[str] = "total"
    wire_name: ClassVar[str] = "ChunkDensityQuery"
    stage: ClassVar[str] = "densities"
    data: ClassVar[type[ChunkDensityData]] = ChunkDensityData
    without_example: ClassVar[str] = AS_PUBLISHED
    check_unit = _check_whole_graph

    chunk: int
    nodes: int

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.integer_at_least(1, chunk=self.chunk)

    def event(self, unit: Unit) -> ApproximateDP:
        """Return the valid privacy bound, which is that of the chunk with the fewest rows."""
        self.sensitivity(unit)
        count, last = 2 if isinstance(unit, UndirectedEdge) else 1, self.nodes % self.chunk
        sizes = [last] * min(last, count) + [min(self.chunk, self.nodes)] * count
        ends = [size for size in sizes if size][:count]  # the smallest chunks that an edge's ends may lie in
        return ApproximateDP(sum(self.nodes * self.epsilon / rows for rows in ends))

    @property
    def noise(self) -> tuple[float, ...]:
        """Standard deviation of the noise in edges of a full chunk."""
        return (2**0.5 * self.chunk / (self.nodes * self.epsilon),)

    @forms_private_sum("ChunkDensityQuery")
    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        chunks = -(-self.nodes // self.chunk)
        rows = np.diff(np.minimum(np.arange(chunks + 1) * self.chunk, self.nodes))

        def edges_of_chunks(edges: EdgeBlock) -> npt.NDArray[np.int64]:
            place = np.arange(edges.start, edges.stop) // self.chunk
            return np.bincount(place, edges.degrees.numpy(), chunks).astype(np.int64)

        counts = private.total(edges_of_chunks, (chunks,))
        noise = laplace(uniforms(RowStream(key), 0, chunks), self.epsilon) / self.nodes**2
        return torch.from_numpy(counts / (rows * self.nodes) + noise)


@dataclass(frozen=True, eq=False, repr=False)
class ChunkResponseData(QueryData[Tensor]):
    """The node pairs, one per stored edge, and the share of ones that is kept in each chunk, float64.

    The answer is the indices of the node pairs that are edges afterwards, ascending, int64.
    """

    domain: Domain
    shares: Tensor


@dataclass(frozen=True)
class ChunkResponseQuery(BoundedQuery):
    """Release the randomized response of every stored edge, subsampled by the share of its chunk.

    An undirected edge is stored twice and randomized twice: its privacy cost is twice epsilon.

    >>> ChunkResponseQuery(0.9, 1000).event(UndirectedEdge())
    ApproximateDP(epsilon=1.8, delta=0.0)
    """

    kind: ClassVar[str] = "graph"
    wire_name: ClassVar[str] = "ChunkResponseQuery"
    stage: ClassVar[str] = "graph"
    data: ClassVar[type[ChunkResponseData]] = ChunkResponseData
    without_example: ClassVar[str] = AS_PUBLISHED
    check_unit = _check_whole_graph

    chunk: int

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.integer_at_least(1, chunk=self.chunk)

    def event(self, unit: Unit) -> ApproximateDP:
        self.sensitivity(unit)
        return ApproximateDP(self.epsilon * (2 if isinstance(unit, UndirectedEdge) else 1))

    @property
    def noise(self) -> tuple[float, ...]:
        """The standard deviation of a node pair's unbiased estimate, before subsampling."""
        return (EdgeRandomizedResponse(self.epsilon).estimate_deviation(),)

    def prepare(self, data: Any, public: PublicInputs) -> PreparedData:
        super().prepare(NodePairData(data.domain), public)
        shares = tuple(data.shares.tolist())
        reject_if(
            len(shares) != math.ceil(public.num_nodes / self.chunk) or not all(0 <= s <= 1 for s in shares),
            "the query needs one share in [0, 1] per chunk of rows",
        )
        return PreparedData(public, (*data.domain.arrays, data.shares), (data.domain, shares))

    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        domain, shares = data.parts
        return private.pieces(PerturbedRows(domain, self.epsilon, self.chunk, shares, key))


@forms_private_sum("ChunkResponseQuery", note="no sum, each pair of nodes is randomized on its own")
@dataclass(frozen=True, eq=False, repr=False)
class PerturbedRows(BlockWork):
    """The node pairs of a block's rows that are edges after randomized response, int64."""

    domain: Domain
    epsilon: float
    chunk: int
    shares: tuple[float, ...]
    key: bytes

    def __call__(self, edges: EdgeBlock) -> Tensor:
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


def _shared_stream(seed: int, name: str) -> RowStream:
    """Return the noise stream that all graphs share: from one seed, not from the release's key.

    A bound is valid for one graph with a secret seed. Two graphs have the same noise on the same node pair.
    """
    return RowStream(PublicStreams(seed).derive(name).to_bytes(32, "big"))


def _check_undirected_graph(query: BoundedQuery, unit: Unit, *, directed: bool) -> None:
    """Reject every unit except undirected edges of a whole graph, the setting of the source."""
    BoundedQuery.check_unit(query, unit, directed=directed)
    if not isinstance(unit, UndirectedEdge):
        raise UnitError(
            f"In paper mode this mechanism perturbs whole undirected graphs, so unit {unit.name!r} is "
            "not supported. Use unit 'undirected-edge', or mode='strict'."
        )


@dataclass(frozen=True)
class SeededResponseQuery(BoundedQuery):
    """Replace node pairs by fair bits (``graphveil.papers.as_published.graph_queries.ReplacedNodePairs``).

    The answer is the stored entries, including zeros, each as 2 slot + value, ascending, int64. Which node
    pairs hold ones is epsilon-indistinguishable; where zeros are stored has no bound.
    """

    kind: ClassVar[str] = "graph"
    wire_name: ClassVar[str] = "SeededResponseQuery"
    stage: ClassVar[str] = "graph"
    data: ClassVar[type[EdgeResponseData]] = EdgeResponseData
    without_example: ClassVar[str] = AS_PUBLISHED
    check_unit = _check_undirected_graph

    seed: int

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.integer_at_least(0, seed=self.seed)

    @property
    def noise(self) -> tuple[float, ...]:
        return (EdgeRandomizedResponse(self.epsilon).estimate_deviation(),)

    @forms_private_sum("SeededResponseQuery", note="no valid guarantee")
    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        edges = exact_node_pairs(private, data.parts.domain)
        return torch.from_numpy(
            ReplacedNodePairs(self.epsilon).draw(
                _shared_stream(self.seed, self.wire_name), edges, data.parts.domain.slots.total
            )
        )


@dataclass(frozen=True)
class SeededTotalQuery(BoundedQuery):
    """Release the number of edges with Laplace noise that is truncated to an integer before it is added.

    An exact count is then 2 e^epsilon times as likely as a count that is off by one.

    >>> round(SeededTotalQuery(0.01, seed=42).event(UndirectedEdge()).epsilon, 4)
    0.7031
    """

    kind: ClassVar[str] = "total"
    wire_name: ClassVar[str] = "SeededTotalQuery"
    stage: ClassVar[str] = "number of edges"
    data: ClassVar[type[EdgeTotalData]] = EdgeTotalData
    without_example: ClassVar[str] = AS_PUBLISHED
    check_unit = _check_undirected_graph

    seed: int

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.integer_at_least(0, seed=self.seed)

    def event(self, unit: Unit) -> ApproximateDP:
        self.sensitivity(unit)
        return ApproximateDP(self.epsilon + TRUNCATION)

    @property
    def noise(self) -> tuple[float, ...]:
        """Standard deviation of the noise in edges, before truncation."""
        return (2**0.5 / self.epsilon,)

    @forms_private_sum("SeededTotalQuery", note="no valid guarantee")
    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        exact = len(exact_node_pairs(private, data.parts.domain))
        return torch.tensor(
            [exact + truncated_laplace(_shared_stream(self.seed, self.wire_name), self.epsilon)]
        )


@dataclass(frozen=True)
class SeededCellsQuery(BoundedQuery):
    """Add Laplace noise to every cell, and release the largest as node pairs; takes time linear in all pairs.

    The number may be negative, as in a slice: it then selects all but that many.
    """

    kind: ClassVar[str] = "graph"
    wire_name: ClassVar[str] = "SeededCellsQuery"
    stage: ClassVar[str] = "graph"
    data: ClassVar[type[TopNodePairsData]] = TopNodePairsData
    without_example: ClassVar[str] = AS_PUBLISHED
    check_unit = _check_undirected_graph

    seed: int
    most: int

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.integer_at_least(0, seed=self.seed)

    @property
    def noise(self) -> tuple[float, ...]:
        return (2**0.5 / self.epsilon,)

    @forms_private_sum("SeededCellsQuery", note="no valid guarantee")
    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        slots, number = data.parts.domain.slots.total, int(data.parts.number)
        wanted = min(number if number > 0 else max(0, slots + number), self.most)
        edges = exact_node_pairs(private, data.parts.domain)
        found = LaplaceCells(self.epsilon).largest(
            _shared_stream(self.seed, self.wire_name), edges, slots, wanted
        )
        return torch.from_numpy(found)

"""EdgeRand and LapGraph as the code of LinkTeller asks them, under one seed for every graph: paper mode."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphveil._util import checks
from graphveil._util.random import PublicStreams, RowStream
from graphveil.errors import UnitError
from graphveil.mechanisms.edge_response import EdgeRandomizedResponse
from graphveil.mechanisms.paper_node_pairs import (
    TRUNCATION,
    LaplaceCells,
    ReplacedNodePairs,
    truncated_laplace,
)
from graphveil.privacy import ApproximateDP, UndirectedEdge, Unit
from graphveil.release.graphs.bounded import BoundedQuery, PreparedNodePairs
from graphveil.release.graphs.edge_response import EdgeResponseData
from graphveil.release.graphs.edge_total import EdgeTotalData, exact_node_pairs
from graphveil.release.graphs.top_node_pairs import TopNodePairsData
from graphveil.release.private_edges import PrivateEdges


@dataclass(frozen=True)
class SeededQuery(BoundedQuery):
    """A query whose noise follows from a seed that all graphs share, and not from the release's key.

    Its bound holds for one graph whose seed nobody knows. Two graphs have the same noise on the same slot.
    """

    seed: int

    def __post_init__(self) -> None:
        """Check budget and seed."""
        super().__post_init__()
        checks.integer_at_least(0, seed=self.seed)

    @property
    def stream(self) -> RowStream:
        """The stream that every graph has its noise from."""
        return RowStream(PublicStreams(self.seed).derive(self.wire_name).to_bytes(32, "big"))

    def check_unit(self, unit: Unit, *, directed: bool) -> None:
        """Refuse all but friendships of a whole graph, which is what the source is about."""
        super().check_unit(unit, directed=directed)
        if not isinstance(unit, UndirectedEdge):
            raise UnitError(
                f"in paper mode this mechanism releases whole undirected graphs, and unit {unit.name!r} is "
                "not about those; use 'undirected-edge', or mode='strict'"
            )


@dataclass(frozen=True)
class SeededResponseQuery(SeededQuery):
    """Slots replaced by fair bits (:class:`~graphveil.mechanisms.paper_node_pairs.ReplacedNodePairs`).

    The answer is what is stored, zeros included, each entry as 2 slot + value, ascending, int64. Which slots
    hold ones is epsilon-indistinguishable; where zeros are stored has no bound.
    """

    kind: ClassVar[str] = "graph"
    wire_name: ClassVar[str] = "SeededResponseQuery"
    stage: ClassVar[str] = "graph"
    data: ClassVar[type[EdgeResponseData]] = EdgeResponseData

    @property
    def noise(self) -> tuple[float, ...]:
        """The standard deviation of a slot's unbiased estimate."""
        return (EdgeRandomizedResponse(self.epsilon).estimate_deviation(),)

    def answer(self, private: PrivateEdges, data: PreparedNodePairs, key: bytes) -> Tensor:
        """Return what is stored."""
        edges = exact_node_pairs(private, data.domain)
        return torch.from_numpy(
            ReplacedNodePairs(self.epsilon).draw(self.stream, edges, data.domain.slots.total)
        )


@dataclass(frozen=True)
class SeededTotalQuery(SeededQuery):
    """The number of edges with Laplace noise that is cut to a whole number before it is added.

    A count that is off by nothing is then 2 e^epsilon times as likely as one that is off by one.

    >>> round(SeededTotalQuery(0.01, seed=42).event(UndirectedEdge()).epsilon, 4)
    0.7031
    """

    kind: ClassVar[str] = "total"
    wire_name: ClassVar[str] = "SeededTotalQuery"
    stage: ClassVar[str] = "number of edges"
    data: ClassVar[type[EdgeTotalData]] = EdgeTotalData

    def event(self, unit: Unit) -> ApproximateDP:
        """Return the bound that holds."""
        self.sensitivity(unit)
        return ApproximateDP(self.epsilon + TRUNCATION)

    @property
    def noise(self) -> tuple[float, ...]:
        """The noise's standard deviation in edges, before it is cut."""
        return (2**0.5 / self.epsilon,)

    def answer(self, private: PrivateEdges, data: PreparedNodePairs, key: bytes) -> Tensor:
        """Return the noisy count."""
        exact = len(exact_node_pairs(private, data.domain))
        return torch.tensor([exact + truncated_laplace(self.stream, self.epsilon)])


@dataclass(frozen=True)
class SeededCellsQuery(SeededQuery):
    """Laplace noise on every cell, and the slots of the largest, in time of the order of all slots.

    How many may be negative, as in a slice: all but so many then.
    """

    kind: ClassVar[str] = "graph"
    wire_name: ClassVar[str] = "SeededCellsQuery"
    stage: ClassVar[str] = "graph"
    data: ClassVar[type[TopNodePairsData]] = TopNodePairsData

    most: int

    @property
    def noise(self) -> tuple[float, ...]:
        """The standard deviation of a cell's noise."""
        return (2**0.5 / self.epsilon,)

    def answer(self, private: PrivateEdges, data: PreparedNodePairs, key: bytes) -> Tensor:
        """Return the chosen slots."""
        slots, number = data.domain.slots.total, int(data.number)
        wanted = min(number if number > 0 else max(0, slots + number), self.most)
        edges = exact_node_pairs(private, data.domain)
        found = LaplaceCells(self.epsilon).largest(self.stream, edges, slots, wanted)
        return torch.from_numpy(found)

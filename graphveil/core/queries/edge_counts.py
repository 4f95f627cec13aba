"""Noisy counts of edges by the classes of their ends: in total, and of each node's neighbors."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.core.backends import BlockWork
from graphveil.core.edges.blocks import EdgeBlock
from graphveil.core.events import Event, PairwiseGaussian, PureDP
from graphveil.core.noise.discrete_laplace import DiscreteLaplace
from graphveil.core.noise.random import RowStream
from graphveil.core.private_edges import PrivateEdges, forms_private_sum
from graphveil.core.queries.held_out import HeldOutPairs, counts_at_target, ends
from graphveil.core.query import (
    GRID_BITS,
    MAX_DIM,
    GaussianQuery,
    NoiseGrid,
    PreparedData,
    PublicInputs,
    Query,
    QueryData,
    QueryDescription,
    are_numbers,
    check_noise,
    check_size,
    of_groups,
    outside,
    reject_edges_stored_twice,
    reject_if,
    require_edge_unit,
)
from graphveil.core.unit import UndirectedEdge, Unit
from graphveil.errors import ConfigError

_ENTRIES, _EDGES = 1 << 22, 1 << 22  # counts and edges per chunk


@dataclass(frozen=True, eq=False, repr=False)
class EdgeCountData(QueryData[Tensor]):
    """The class of each node, shape (N); classes outside the labeled groups are not read.

    The answer is float64, shape (C, C), in the upper triangle. For a directed graph the row is the source's
    class, and every cell is filled.
    """

    labels: Tensor


@dataclass(frozen=True)
class EdgeCountQuery(GaussianQuery):
    """Release noisy counts of the edges inside the labeled groups, by the classes of their two ends.

    An undirected edge counts once, in one unordered cell. ``sigma`` holds one number, the standard deviation
    of the noise in edges.

    Privacy:
        Unit: edge-level. Reads: edges inside the labeled groups. A differing edge moves one cell by one.
    """

    kind: ClassVar[str] = "counts"
    wire_name: ClassVar[str] = "CellQuery"
    stage: ClassVar[str] = "edge counts"
    data: ClassVar[type[EdgeCountData]] = EdgeCountData
    linear_group_scaling: ClassVar[bool] = True  # all edges of one node may fall into one cell
    check_unit = reject_edges_stored_twice  # such an edge would move two cells

    partition: str
    labeled: tuple[bool, ...]
    classes: int
    sigma: tuple[float, ...]
    grid_bits: int = GRID_BITS

    def __post_init__(self) -> None:
        checks.integer_at_least(2, classes=self.classes)
        check_noise(self.sigma, 1, self.grid_bits)

    def event(self, unit: Unit) -> PairwiseGaussian:
        require_edge_unit(
            unit, "counts of edges have no bound for a record, which may have an edge to all nodes"
        )
        cost = self.sigma[0] ** -2
        return PairwiseGaussian(
            self.partition, tuple(tuple(cost * (g and h) for h in self.labeled) for g in self.labeled)
        )

    def sensitivity(self, unit: Unit) -> float:
        return 1.0

    def changed(self, unit: Unit) -> int:
        return 1

    def prepare(self, data: EdgeCountData, public: PublicInputs) -> PreparedData:
        inside = of_groups(self.labeled, public)
        reject_if(
            data.labels.shape != inside.shape or outside(data.labels[inside], self.classes),
            f"the query needs {len(inside)} labels, and those of labeled groups must be from 0 to "
            f"{self.classes - 1}",
        )
        return PreparedData(public, (data.labels,))

    @forms_private_sum("EdgeCountQuery")
    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        inside, classes = of_groups(self.labeled, data.public), self.classes
        # One more class, for nodes that do not count.
        codes = torch.where(inside, data.arrays[0], classes).numpy()
        width = classes + 1

        def cells_of(edges: EdgeBlock) -> npt.NDArray[np.int64]:
            sources, targets = ends(edges)
            return np.asarray(codes[sources] * width + codes[targets])

        counts = private.count(cells_of, width**2).reshape(width, width)[:classes, :classes]
        if not private.directed:  # each edge is stored in both directions
            counts = np.triu(counts + counts.T) // np.where(np.eye(classes, dtype=bool), 4, 2)
        cells = np.indices(counts.shape).reshape(2, -1) if private.directed else np.triu_indices(classes)
        noisy = torch.zeros(counts.shape, dtype=torch.float64)
        noisy[cells[0], cells[1]] = self.noisy_counts(counts[cells[0], cells[1]], data, key)
        return noisy

    @property
    def needs_groups(self) -> bool:
        """Return True: the label of a node outside every group must not be read."""
        return True

    @property
    def groups(self) -> int:
        return len(self.labeled)


NOT_COUNTED = -1  # the class of nodes that are not counted
MAX_EPSILON = 16.0  # here a count is wrong once in 4 million times; less noise has no benefit
MIN_EPSILON = 1e-3  # below, rows are only noise


class PureCountQuery(Query):
    """A query of counts with discrete Laplace noise of its own, at an epsilon for one edge in one count."""

    exact_noise: ClassVar[bool] = True
    linear_group_scaling: ClassVar[bool] = True  # all edges of one node may fall into one count

    epsilon: float

    def __post_init__(self) -> None:
        checks.within(MIN_EPSILON, MAX_EPSILON, epsilon=self.epsilon)

    @property
    def law(self) -> DiscreteLaplace:
        return DiscreteLaplace(self.epsilon)

    @property
    def noise(self) -> tuple[float, ...]:
        return (self.law.sigma,)

    @property
    def grid(self) -> NoiseGrid:
        """As many steps as any sampler needs: the plan's sampler draws none of this noise."""
        return NoiseGrid(2.0**GRID_BITS, 2.0**GRID_BITS, 0.0)


@dataclass(frozen=True, eq=False, repr=False)
class NeighborCountData(QueryData[Tensor]):
    """The class of each node, shape (N): public or released before, and -1 for nodes that are not counted.

    The answer is float32 noisy counts, shape (N, C).
    """

    classes: Tensor


@dataclass(frozen=True)
class NeighborCountQuery(PureCountQuery):
    """Release one noisy row of C integers per node: the number of its in-neighbors of each class.

    With ranks, one direction of an undirected edge counts: towards the end whose group has the higher rank.
    Between equal ranks a public hash of both node ids chooses the direction. The whole budget of an edge is
    then used at one end. Without ranks both directions count, at twice the privacy cost.

    Args:
        held_out: Public choice of node pairs whose edges are not counted; None if all are.

    Privacy:
        Unit: edge-level. Reads: the in-edges. Adding or removing an edge moves one integer in one row by one,
        and the noise there is discrete Laplace: the answer is epsilon-DP. Which integer it is follows from
        public ids, groups and classes. Without ranks an undirected edge moves one integer at each of its
        ends, and the answer is 2 epsilon-DP. Under ``directed-edge`` every stored edge counts at its target.

    >>> from graphveil.privacy import UndirectedEdge
    >>> NeighborCountQuery("train/val/target", (0, 1, 2), 0.5, 4).event(UndirectedEdge())
    PureDP(epsilon=0.5)
    >>> NeighborCountQuery("train/val/target", None, 0.5, 4).event(UndirectedEdge())
    PureDP(epsilon=1.0)
    """

    kind: ClassVar[str] = "neighbor_counts"
    stage: ClassVar[str] = "neighbor counts"
    data: ClassVar[type[NeighborCountData]] = NeighborCountData
    check_unit = reject_edges_stored_twice  # such an edge would move two counts

    partition: str
    ranks: tuple[int, ...] | None
    epsilon: float
    classes: int
    held_out: HeldOutPairs | None = None

    def __post_init__(self) -> None:
        check_size(1, MAX_DIM, classes=self.classes)
        if self.ranks == ():
            raise ConfigError("ranks must contain at least one group, otherwise no node has a row")
        super().__post_init__()

    def event(self, unit: Unit) -> Event:
        """Return the pure epsilon of one edge, which charges pairs that are not held out."""
        require_edge_unit(unit, "counts of neighbors have no bound for a record, which may be in all of them")
        event = PureDP(self.changed(unit) * self.epsilon)
        return event if self.held_out is None else self.held_out.charged(event)

    def sensitivity(self, unit: Unit) -> float:
        return math.sqrt(self.changed(unit))

    def changed(self, unit: Unit) -> int:
        return 2 if self.ranks is None and isinstance(unit, UndirectedEdge) else 1

    def describe(self) -> QueryDescription:
        stage = f"{self.stage} ({self.classes} per node)"  # a plan may have several of them
        return replace(super().describe(), stage=stage, values_per_node=self.classes)

    def _parameters(self) -> dict[str, object]:
        fields = super()._parameters()
        if self.held_out is None:  # the noise of stored releases is bound to the other fields
            del fields["held_out"]
        return fields

    def prepare(self, data: NeighborCountData, public: PublicInputs) -> PreparedData:
        classes = data.classes
        reject_if(
            not are_numbers(classes, public.num_nodes) or outside(classes - NOT_COUNTED, self.classes + 1),
            f"the query needs one class for each of {public.num_nodes} nodes: an integer from 0 to "
            f"{self.classes - 1}, or -1 for a node that is not counted",
        )
        return PreparedData(public, (classes,))

    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        counted_once = self.ranks is not None and not private.directed
        ranks = of_groups(self.ranks or (), data.public).numpy() if counted_once else None
        classes = data.arrays[0].numpy()
        return private.rows(NoisyCounts(classes, ranks, self.classes, self.held_out, self.law, key))

    @property
    def groups(self) -> int:
        return 1 if self.ranks is None else len(self.ranks)


@forms_private_sum("NeighborCountQuery")
@dataclass(frozen=True, eq=False, repr=False)
class NoisyCounts(BlockWork):
    """The counts of a block's rows with their noise, under the key of one query.

    ``ranks`` are those of all nodes, None if every stored direction counts at its target.
    """

    classes: npt.NDArray[np.int64]
    ranks: npt.NDArray[np.int64] | None
    count: int
    held_out: HeldOutPairs | None
    law: DiscreteLaplace
    key: bytes

    def __call__(self, edges: EdgeBlock) -> Tensor:
        """Return the noisy rows; the exact counts are discarded here."""
        stream, out = RowStream(self.key), torch.empty((len(edges), self.count), dtype=torch.float32)
        for piece in edges.pieces(max(1, _ENTRIES // self.count), _EDGES):
            rows = np.arange(piece.start, piece.stop)
            noisy = self._counts(piece) + self.law.draw(stream, rows, self.count)
            out[piece.start - edges.start : piece.stop - edges.start] = torch.from_numpy(noisy)
        return out

    def _counts(self, edges: EdgeBlock) -> npt.NDArray[np.int64]:
        sources, targets = ends(edges)
        kept = self.classes[sources] != NOT_COUNTED
        if self.ranks is not None:
            kept &= counts_at_target(sources, targets, self.ranks)
        if self.held_out is not None:
            kept &= ~self.held_out.contains(sources, targets)
        cells = (targets[kept] - edges.start) * self.count + self.classes[sources[kept]]
        return np.bincount(cells, minlength=len(edges) * self.count).reshape(len(edges), self.count)

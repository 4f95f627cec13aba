"""Noisy counts of edges by the classes of their two ends."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.core.backends import BlockWork
from graphveil.core.edges.blocks import EdgeBlock
from graphveil.core.events import PairwiseGaussian
from graphveil.core.private_edges import PrivateEdges
from graphveil.core.query import (
    GRID_BITS,
    ExampleGraph,
    GaussianQuery,
    PreparedData,
    PublicInputs,
    QueryData,
    check_noise,
    outside,
    reject_edges_stored_twice,
    require_edge_unit,
)
from graphveil.core.sites import forms_private_sum
from graphveil.core.unit import Unit
from graphveil.errors import ReleaseError

_EDGES = 1 << 22  # edges per chunk


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

    partition: str
    labeled: tuple[bool, ...]
    classes: int
    sigma: tuple[float, ...]
    grid_bits: int = GRID_BITS

    def __post_init__(self) -> None:
        checks.integer_at_least(2, classes=self.classes)
        check_noise(self.sigma, 1, self.grid_bits)

    def event(self, unit: Unit) -> PairwiseGaussian:
        """Return the event of the counts for each pair of groups.

        Raises:
            UnitError: If the unit is node-level: one record may have edges in every cell.
        """
        require_edge_unit(
            unit, "counts of edges have no bound for a record, which may have an edge to all nodes"
        )
        cost = self.sigma[0] ** -2
        return PairwiseGaussian(
            self.partition, tuple(tuple(cost * (g and h) for h in self.labeled) for g in self.labeled)
        )

    def sensitivity(self, unit: Unit) -> float:
        """Return 1: one edge, one cell."""
        return 1.0

    def changed(self, unit: Unit) -> int:
        """Return 1: one edge, one cell."""
        return 1

    def check_unit(self, unit: Unit, *, directed: bool) -> None:
        """Reject undirected edges that are stored as directed edges: each would move two cells."""
        reject_edges_stored_twice(unit, directed=directed)

    def prepare(self, data: EdgeCountData, public: PublicInputs) -> PreparedData:
        """Check the labels of labeled groups."""
        inside = self._inside(public)
        if data.labels.shape != inside.shape or outside(data.labels[inside], self.classes):
            raise ReleaseError(
                f"the query needs {len(inside)} labels, and those of labeled groups must be from 0 to "
                f"{self.classes - 1}; the release stays charged"
            )
        return PreparedData(public, (data.labels,))

    def example_data(self, graph: ExampleGraph) -> EdgeCountData:
        """Return random classes."""
        drawn = graph.generator("classes").integers(self.classes, size=graph.nodes)
        return EdgeCountData(torch.from_numpy(drawn))

    @forms_private_sum("EdgeCountQuery")
    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        """Return the noisy counts; the exact ones are discarded here."""
        inside, classes = self._inside(data.public), self.classes
        # One more class, for nodes that do not count.
        codes = torch.where(inside, data.arrays[0], classes).numpy()
        shape = classes + 1, classes + 1
        counts = private.total(ClassPairs(codes, classes + 1), shape)[:classes, :classes]
        if not private.directed:  # each edge is stored in both directions
            counts = np.triu(counts + counts.T) // np.where(np.eye(classes, dtype=bool), 4, 2)
        cells = np.indices(counts.shape).reshape(2, -1) if private.directed else np.triu_indices(classes)
        noisy = torch.zeros(counts.shape, dtype=torch.float64)
        noisy[cells[0], cells[1]] = self.noisy_counts(counts[cells[0], cells[1]], data, key)
        return noisy

    def _inside(self, public: PublicInputs) -> Tensor:
        """Return which nodes are in labeled groups."""
        return torch.tensor(self.labeled)[public.groups]

    @property
    def needs_groups(self) -> bool:
        """Return True: the label of a node outside every group must not be read."""
        return True

    @property
    def groups(self) -> int:
        """The number of groups that the counts distinguish."""
        return len(self.labeled)


@dataclass(frozen=True, eq=False, repr=False)
class ClassPairs(BlockWork):
    """Number of a block's edges for each pair of classes, the source's first, int64 (classes, classes)."""

    codes: npt.NDArray[np.int64]  # by node
    classes: int

    def __call__(self, edges: EdgeBlock) -> Tensor:
        """Return exact counts, which only ``EdgeCountQuery`` reads."""
        counts = np.zeros(self.classes**2, dtype=np.int64)
        for piece in edges.pieces(len(edges), _EDGES):
            into = np.repeat(self.codes[piece.start : piece.stop], piece.degrees.numpy())
            pairs = self.codes[piece.sources.numpy()] * self.classes + into
            counts += np.bincount(pairs, minlength=counts.size)
        return torch.from_numpy(counts.reshape(self.classes, self.classes))

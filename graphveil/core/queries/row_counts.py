"""Noisy counts of the rows of several tables: every row counts in one cell of one answer."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil.core.edges.blocks import EdgeBlock
from graphveil.core.events import Event, PureDP
from graphveil.core.noise.random import RowStream
from graphveil.core.private_edges import PrivateEdges, forms_private_sum
from graphveil.core.queries.edge_counts import NOT_COUNTED, PureCountQuery
from graphveil.core.queries.held_out import counts_at_target, ends
from graphveil.core.query import (
    PreparedData,
    PublicInputs,
    QueryData,
    QueryDescription,
    are_numbers,
    by_group,
    check_pays,
    check_size,
    of_groups,
    outside,
    reject_if,
)
from graphveil.core.unit import DirectedEdge, Unit
from graphveil.errors import UnitError

MAX_CELLS = 1 << 30
_WIDTH, _ROWS = 1 << 10, 1 << 12  # noise per row of a stream, and rows

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class RowCountData(QueryData[Tensor]):
    """Where rows count: three integers for each node, shape (N), public or released before.

    A row is an edge from its owner to its far end. It counts at the end of higher rank; between equal ranks a
    public hash of both ids decides. Its cell is the start of that end plus the column of the other one. It is
    not counted if either of them is -1, or if there is no such cell.

    The answer is float32 noisy counts, shape (cells).
    """

    ranks: Tensor
    starts: Tensor
    columns: Tensor


@dataclass(frozen=True)
class RowCountQuery(PureCountQuery):
    """Release noisy counts of rows by cell, for the rows whose owners are in some public groups.

    Args:
        partition: Name of the partition of nodes into groups.
        pays: Whether rows of owners in each group are counted.
        epsilon: Epsilon of one row.
        cells: Number of counts.

    Privacy:
        Unit: ``row`` or ``directed-edge``. Reads: edges whose source is in a counted group. Adding or
        removing one moves one integer by one, and the noise there is discrete Laplace: the answer is
        epsilon-DP. Rows of other owners are not read and not charged. Which integer moves follows from public
        or released values, and the group of a row is that of its owner. Queries that count disjoint groups
        therefore cost no more together than one of them (``docs/privacy/proofs/tables.md``).

    >>> from graphveil.privacy import Row
    >>> RowCountQuery("owners", (True, False), 0.5, 4).event(Row())
    ByGroup(partition='owners', events=(PureDP(epsilon=0.5), Composed(events=())))
    """

    kind: ClassVar[str] = "row_counts"
    stage: ClassVar[str] = "row counts"
    data: ClassVar[type[RowCountData]] = RowCountData

    partition: str
    pays: tuple[bool, ...]
    epsilon: float
    cells: int

    def __post_init__(self) -> None:
        check_pays(self.pays)
        check_size(1, MAX_CELLS, cells=self.cells)
        super().__post_init__()

    def event(self, unit: Unit) -> Event:
        if not isinstance(unit, DirectedEdge):
            raise UnitError(
                f"unit {unit.name!r} does not protect single rows, which have one owner each. Use unit 'row' "
                "or 'directed-edge'."
            )
        return by_group(self.partition, self.pays, PureDP(self.epsilon))

    def sensitivity(self, unit: Unit) -> float:
        return 1.0

    def changed(self, unit: Unit) -> int:
        return 1

    def check_unit(self, unit: Unit, *, directed: bool) -> None:
        """Reject edges that are stored in both directions: each would move two counts."""
        if not directed:
            raise UnitError(
                f"unit {unit.name!r} needs rows that are stored once, but this graph is undirected. Load it "
                "with directed=True."
            )

    def describe(self) -> QueryDescription:
        size = f" ({self.cells:,} cells)" if self.cells > 1 else ""
        return replace(super().describe(), stage=f"{self.stage}{size}")

    def prepare(self, data: RowCountData, public: PublicInputs) -> PreparedData:
        arrays, nodes = (data.ranks, data.starts, data.columns), public.num_nodes
        reject_if(
            not all(are_numbers(array, nodes) for array in arrays) or outside(data.ranks.long(), nodes + 1),
            f"the query needs a rank from 0 on, a start and a column for each of {nodes} nodes, all integers",
        )
        ranks, *places = (array.long() for array in arrays)
        reject_if(
            any(outside(place - NOT_COUNTED, self.cells + 1) for place in places),
            f"starts and columns must be from -1 to {self.cells - 1}",
        )
        return PreparedData(public, (ranks, *places))

    @forms_private_sum("RowCountQuery")
    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        ranks, starts, columns = (array.numpy() for array in data.arrays)
        paying = of_groups(self.pays, data.public).numpy()

        def cells_of(edges: EdgeBlock) -> Ids:
            owners, far = ends(edges)
            at_far = counts_at_target(owners, far, ranks)
            start = starts[np.where(at_far, far, owners)]
            column = columns[np.where(at_far, owners, far)]
            kept = paying[owners] & (start != NOT_COUNTED) & (column != NOT_COUNTED)
            cells: Ids = (start + column)[kept]
            return cells[cells < self.cells]

        counts = private.count(cells_of, self.cells)
        noisy, stream = np.empty(self.cells, dtype=np.float32), RowStream(key)
        for first in range(0, self.cells, _ROWS * _WIDTH):
            some = counts[first : first + _ROWS * _WIDTH]
            rows = np.arange(-(-len(some) // _WIDTH)) + first // _WIDTH
            drawn = self.law.draw(stream, rows, _WIDTH).reshape(-1)[: len(some)]
            noisy[first : first + len(some)] = some + drawn
        return torch.from_numpy(noisy)

    @property
    def groups(self) -> int:
        return len(self.pays)

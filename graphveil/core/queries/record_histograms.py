"""Noisy histograms of records over public cells, under node-level units.

A confusion matrix is one: the cell of a test node is its class and its predicted class. With two classes the
cell may also be its class and the bin of its probability, from which rankings follow. Feature columns have
one histogram each, from which the range of a column follows.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.core.noise.random import RowStream
from graphveil.core.private_edges import PrivateEdges
from graphveil.core.queries.record_counts import RecordCountQuery
from graphveil.core.query import (
    MAX_DIM,
    ExampleGraph,
    PreparedData,
    PublicInputs,
    QueryData,
    require_record_unit,
)
from graphveil.core.sites import forms_private_sum
from graphveil.core.unit import Unit
from graphveil.errors import ReleaseError


@dataclass(frozen=True, eq=False, repr=False)
class RecordHistogramData(QueryData[Tensor]):
    """The cell of each counted record: int64 (M). Records without a label have -1, which is no cell.

    The answer is float64, shape (cells).
    """

    cells: Tensor


@dataclass(frozen=True, kw_only=True)
class RecordHistogramQuery(RecordCountQuery):
    """Release the noisy number of records in each of some public cells.

    Args:
        cells: Number of cells.
        sigma: Standard deviation of the noise, in records, of each count.
        partition: Name of the public groups of records.
        pays: By group, whether its records are counted.
        grid_bits: Binary logarithm of the grid steps in one record.

    Raises:
        ConfigError: If a field is outside its range.

    Privacy:
        Unit: node-level. A counted record (``pays``) is in one cell at most. If it is nulled, one count moves
        by one. If it is replaced, two counts move by one: mu = 1 / sigma, or sqrt(2) / sigma.

    >>> from graphveil.privacy import NodeRecord
    >>> RecordHistogramQuery(cells=9, sigma=10.0).event(NodeRecord())
    Gaussian(mu=0.1)
    >>> round(RecordHistogramQuery(cells=9, sigma=10.0).sensitivity(NodeRecord(replace_one=True)), 6)
    1.414214
    """

    kind: ClassVar[str] = "histogram"
    wire_name: ClassVar[str] = "RecordHistogramQuery"
    stage: ClassVar[str] = "histogram"
    data: ClassVar[type[RecordHistogramData]] = RecordHistogramData

    cells: int

    def __post_init__(self) -> None:
        checks.integer_at_least(2, cells=self.cells)
        checks.within(2, MAX_DIM, cells=self.cells)
        super().__post_init__()

    def sensitivity(self, unit: Unit) -> float:
        """Return 1 for a nulled record, and sqrt(2) for a replaced one, which may change cells."""
        return math.sqrt(require_record_unit(unit).change)

    def changed(self, unit: Unit) -> int:
        """Return the number of counts that one record may move."""
        return int(require_record_unit(unit).change)

    def prepare(self, data: RecordHistogramData, public: PublicInputs) -> PreparedData:
        """Check the kind of the cells. Values that are no cell raise no error, which would reveal them."""
        if data.cells.dtype != torch.int64 or data.cells.ndim != 1:
            raise ReleaseError(
                "the query needs one int64 column: the cell of each record, or -1 for a record in no "
                "cell; the release stays charged"
            )
        return PreparedData(public, (data.cells,))

    def example_data(self, graph: ExampleGraph) -> RecordHistogramData:
        """Return the cells of counted records; a null record is in none."""
        bits = max(1, math.ceil(math.log2(self.cells)))
        numbers = graph.outcomes(bits) @ (1 << np.arange(bits)) % self.cells
        cells = np.where(graph.there, numbers, -1)[self._counted(graph)]
        return RecordHistogramData(torch.from_numpy(cells.astype(np.int64)))

    @forms_private_sum("RecordHistogramQuery")
    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        """Return the noisy counts, float64; the exact ones are discarded here."""
        (cells,) = data.arrays
        inside = (cells >= 0) & (cells < self.cells)
        exact = torch.bincount(cells[inside], minlength=self.cells).numpy()
        return self.noisy_counts(exact, data, key)


@dataclass(frozen=True, eq=False, repr=False)
class FeatureHistogramData(QueryData[Tensor]):
    """The cell of each counted record in the histogram of each column: int16 (M, columns), -1 for no cell.

    The answer is float64, shape (columns, cells).
    """

    cells: Tensor


@dataclass(frozen=True, kw_only=True)
class FeatureHistogramQuery(RecordCountQuery):
    """Release one noisy histogram of records for each of some feature columns.

    Args:
        columns: Number of columns.
        cells: Number of cells of each histogram.
        sigma: Standard deviation of the noise, in records, of each count.
        partition: Name of the public groups of records.
        pays: By group, whether its records are counted.
        grid_bits: Binary logarithm of the grid steps in one record.

    Raises:
        ConfigError: If a field is outside its range.

    Privacy:
        Unit: node-level. A counted record (``pays``) is in one cell of each column at most. If it is nulled,
        one count of each column moves by one, so all counts move by at most sqrt(columns). If it is replaced,
        they move by at most sqrt(2 columns): mu = sqrt(columns) / sigma, or sqrt(2 columns) / sigma.

    >>> from graphveil.privacy import NodeRecord
    >>> FeatureHistogramQuery(columns=4, cells=9, sigma=10.0).event(NodeRecord())
    Gaussian(mu=0.2)
    """

    kind: ClassVar[str] = "ranges"
    wire_name: ClassVar[str] = "FeatureHistogramQuery"
    stage: ClassVar[str] = "ranges"
    data: ClassVar[type[FeatureHistogramData]] = FeatureHistogramData

    columns: int
    cells: int

    def __post_init__(self) -> None:
        checks.integer_at_least(1, columns=self.columns)
        checks.within(2, torch.iinfo(torch.int16).max, cells=self.cells)
        super().__post_init__()

    def sensitivity(self, unit: Unit) -> float:
        """Return sqrt(columns) for a nulled record, and sqrt(2 columns) for a replaced one."""
        return math.sqrt(self.columns * require_record_unit(unit).change)

    def changed(self, unit: Unit) -> int:
        """Return the number of counts that one record may move."""
        return self.columns * int(require_record_unit(unit).change)

    def prepare(self, data: FeatureHistogramData, public: PublicInputs) -> PreparedData:
        """Check the kind of the cells. Values that are no cell raise no error, which would reveal them."""
        cells = data.cells
        if cells.dtype != torch.int16 or cells.ndim != 2 or cells.shape[1] != self.columns:
            raise ReleaseError(
                f"the plan's histograms take a table of int16 with {self.columns} columns, the cell of each "
                "record in each, and -1 for none; the release stays charged"
            )
        return PreparedData(public, (cells,))

    def example_data(self, graph: ExampleGraph) -> FeatureHistogramData:
        """Return the cells of counted records; a null record is in none."""
        bits = max(1, math.ceil(math.log2(self.cells)))
        drawn = graph.outcomes(bits * self.columns).reshape(-1, self.columns, bits)
        cells = np.where(graph.there[:, None], drawn @ (1 << np.arange(bits)) % self.cells, -1)
        return FeatureHistogramData(torch.from_numpy(cells[self._counted(graph)].astype(np.int16)))

    @forms_private_sum("FeatureHistogramQuery")
    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        """Return the noisy counts, float64; the exact ones are discarded here."""
        (cells,) = data.arrays
        noise = data.public.sampler(self.sigma * self.unit_steps)
        drawn = noise.draw(RowStream(key), np.arange(self.columns), self.cells)
        for own, column in zip(drawn, cells.T, strict=True):
            inside = column[(column >= 0) & (column < self.cells)].to(torch.int64)
            own += torch.bincount(inside, minlength=self.cells).numpy() * int(self.unit_steps)
        return torch.from_numpy(drawn / self.unit_steps)

"""Noisy counts and histograms of records under node-level units.

A confusion matrix is a ``RecordHistogramQuery``: the cell of a test node is its class and its predicted
class. With two classes the cell may also be its class and the bin of its probability, for rankings.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.core.events import Event
from graphveil.core.private_edges import PrivateEdges, forms_private_sum
from graphveil.core.query import (
    GRID_BITS,
    MAX_DIM,
    GaussianQuery,
    PreparedData,
    PublicInputs,
    QueryData,
    by_group,
    check_noise,
    check_pays,
    check_size,
    reject_if,
    require_record_unit,
)
from graphveil.core.unit import Unit


@dataclass(frozen=True, kw_only=True)
class RecordCountQuery(GaussianQuery):
    """Release a few noisy counts of records under node-level units."""

    reads_edges: ClassVar[bool] = False

    sigma: float
    partition: str = "records"
    pays: tuple[bool, ...] = (True,)
    grid_bits: int = GRID_BITS

    def __post_init__(self) -> None:
        check_noise((self.sigma,), 1, self.grid_bits)
        check_pays(self.pays)

    def event(self, unit: Unit) -> Event:
        return by_group(self.partition, self.pays, super().event(unit))

    @property
    def groups(self) -> int:
        return len(self.pays)


@dataclass(frozen=True, eq=False, repr=False)
class AccuracyCountData(QueryData[Tensor]):
    """Whether each candidate classifies each counted record correctly: bool (M, candidates).

    The answer is float64, shape (candidates).
    """

    correct: Tensor


@dataclass(frozen=True, kw_only=True)
class AccuracyCountQuery(RecordCountQuery):
    """Release noisy counts of the records that each candidate classifies correctly, to choose or publish one.

    Privacy:
        Unit: node-level. A counted record (``pays``) changes each count by at most one, whether it is
        nulled or replaced, so the counts move by at most sqrt(candidates): mu = sqrt(candidates) / sigma.

    >>> from graphveil.privacy import NodeRecord
    >>> AccuracyCountQuery(candidates=4, sigma=10.0).event(NodeRecord())
    Gaussian(mu=0.2)
    """

    kind: ClassVar[str] = "tally"
    wire_name: ClassVar[str] = "TallyQuery"
    stage: ClassVar[str] = "tally"
    data: ClassVar[type[AccuracyCountData]] = AccuracyCountData

    candidates: int

    def __post_init__(self) -> None:
        check_size(1, MAX_DIM, candidates=self.candidates)
        super().__post_init__()

    def sensitivity(self, unit: Unit) -> float:
        require_record_unit(unit)
        return math.sqrt(self.candidates)

    def changed(self, unit: Unit) -> int:
        return self.candidates

    def prepare(self, data: AccuracyCountData, public: PublicInputs) -> PreparedData:
        correct = data.correct
        reject_if(
            correct.dtype != torch.bool or correct.ndim != 2 or correct.shape[1] != self.candidates,
            f"the query needs a bool table with {self.candidates} columns, one per candidate",
        )
        return PreparedData(public, (correct,))

    @forms_private_sum("AccuracyCountQuery")
    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        (correct,) = data.arrays
        return self.noisy_counts(correct.sum(dim=0).numpy(), data, key)


_COUNTS = 2  # correct and wrong records


@dataclass(frozen=True, eq=False, repr=False)
class OutcomeCountData(QueryData[Tensor]):
    """Which counted records are predicted correctly, and which are predicted wrongly: bool (M), each.

    A record without a label is neither. The answer is float64, shape (2).
    """

    correct: Tensor
    wrong: Tensor


@dataclass(frozen=True, kw_only=True)
class OutcomeCountQuery(RecordCountQuery):
    """Release noisy counts of the records that are classified correctly and of those classified wrongly.

    An accuracy has a numerator and a denominator. Under a node-level unit both are secret, because the
    existence of a label is part of a record. Correct and wrong records form one histogram. This costs less
    than counting the correct among the labeled records: a record is in at most one of its two bins.

    Privacy:
        Unit: node-level. A counted record (``pays``) moves one count by one if it is nulled, and both if it
        is replaced: mu = 1 / sigma, or sqrt(2) / sigma. A record that is in both bins of the data counts in
        neither.

    >>> from graphveil.privacy import NodeRecord
    >>> OutcomeCountQuery(sigma=10.0).event(NodeRecord())
    Gaussian(mu=0.1)
    >>> round(OutcomeCountQuery(sigma=10.0).sensitivity(NodeRecord(replace_one=True)), 6)
    1.414214
    """

    kind: ClassVar[str] = "outcomes"
    stage: ClassVar[str] = "outcomes"
    data: ClassVar[type[OutcomeCountData]] = OutcomeCountData

    def sensitivity(self, unit: Unit) -> float:
        return math.sqrt(require_record_unit(unit).change)

    def changed(self, unit: Unit) -> int:
        return _COUNTS

    def prepare(self, data: OutcomeCountData, public: PublicInputs) -> PreparedData:
        tables = (data.correct, data.wrong)
        known = data.correct.shape == data.wrong.shape
        reject_if(
            not known or any(table.dtype != torch.bool or table.ndim != 1 for table in tables),
            "the query needs two bool columns of equal length: which records are classified "
            "correctly, and which wrongly",
        )
        return PreparedData(public, tables)

    @forms_private_sum("OutcomeCountQuery")
    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        correct, wrong = data.arrays
        exact = np.array([int((correct & ~wrong).sum()), int((wrong & ~correct).sum())])
        return self.noisy_counts(exact, data, key)


@dataclass(frozen=True, eq=False, repr=False)
class RecordHistogramData(QueryData[Tensor]):
    """The cell of each counted record: int64 (M). Records without a label have -1, which is no cell.

    The answer is float64, shape (cells).
    """

    cells: Tensor


@dataclass(frozen=True, kw_only=True)
class RecordHistogramQuery(RecordCountQuery):
    """Release the noisy number of records in each of some public cells.

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
    stage: ClassVar[str] = "histogram"
    data: ClassVar[type[RecordHistogramData]] = RecordHistogramData

    cells: int

    def __post_init__(self) -> None:
        check_size(2, MAX_DIM, cells=self.cells)
        super().__post_init__()

    def sensitivity(self, unit: Unit) -> float:
        return math.sqrt(require_record_unit(unit).change)

    def changed(self, unit: Unit) -> int:
        return int(require_record_unit(unit).change)

    def prepare(self, data: RecordHistogramData, public: PublicInputs) -> PreparedData:
        """Check the kind of the cells. Values that are no cell raise no error, which would reveal them."""
        reject_if(
            data.cells.dtype != torch.int64 or data.cells.ndim != 1,
            "the query needs one int64 column: the cell of each record, or -1 for a record in no cell",
        )
        return PreparedData(public, (data.cells,))

    @forms_private_sum("RecordHistogramQuery")
    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
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

    Privacy:
        Unit: node-level. A counted record (``pays``) is in one cell of each column at most. If it is nulled,
        one count of each column moves by one, so all counts move by at most sqrt(columns). If it is replaced,
        they move by at most sqrt(2 columns): mu = sqrt(columns) / sigma, or sqrt(2 columns) / sigma.

    >>> from graphveil.privacy import NodeRecord
    >>> FeatureHistogramQuery(columns=4, cells=9, sigma=10.0).event(NodeRecord())
    Gaussian(mu=0.2)
    """

    kind: ClassVar[str] = "ranges"
    stage: ClassVar[str] = "ranges"
    data: ClassVar[type[FeatureHistogramData]] = FeatureHistogramData

    columns: int
    cells: int

    def __post_init__(self) -> None:
        checks.integer_at_least(1, columns=self.columns)
        checks.within(2, torch.iinfo(torch.int16).max, cells=self.cells)
        super().__post_init__()

    def sensitivity(self, unit: Unit) -> float:
        return math.sqrt(self.columns * require_record_unit(unit).change)

    def changed(self, unit: Unit) -> int:
        return self.columns * int(require_record_unit(unit).change)

    def prepare(self, data: FeatureHistogramData, public: PublicInputs) -> PreparedData:
        """Check the kind of the cells. Values that are no cell raise no error, which would reveal them."""
        cells = data.cells
        reject_if(
            cells.dtype != torch.int16 or cells.ndim != 2 or cells.shape[1] != self.columns,
            f"the plan's histograms take a table of int16 with {self.columns} columns, the cell of each "
            "record in each, and -1 for none",
        )
        return PreparedData(public, (cells,))

    @forms_private_sum("FeatureHistogramQuery")
    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        (cells,) = data.arrays
        counts = np.empty((self.columns, self.cells), dtype=np.int64)
        for own, column in zip(counts, cells.T, strict=True):
            inside = column[(column >= 0) & (column < self.cells)].to(torch.int64)
            own[:] = torch.bincount(inside, minlength=self.cells).numpy()
        return self.noisy_table(counts * int(self.unit_steps), data, key)

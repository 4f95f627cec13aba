"""Records as batches of float64 rows: dense, sparse, or separate blocks of columns.

A batch is *feature-major*, (width, B): products with the few columns of a narrow layer are twice as fast
that way, and sums over a record's features run along contiguous rows.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphveil.core.features import Features
from graphveil.errors import ConfigError, GraphError

Inputs = Features | Sequence[Tensor]
_SPLIT = 4096  # rows per chunk if all records are read once
_STORED = 64  # assumed stored values per sparse record, because the actual number is private


class RecordRows(ABC):
    """The rows h_i of some records, as inputs of an affine map."""

    @abstractmethod
    def affine(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Return W h_i + b, shape (outputs, B)."""

    @abstractmethod
    def square_norms(self) -> Tensor:
        """Return |h_i|^2, shape (B,)."""

    @abstractmethod
    def add_outer(self, delta: Tensor, out: Tensor) -> None:
        """Add the sum of delta_i outer h_i to ``out`` (outputs, width)."""

    @abstractmethod
    def drop(self, bad: Tensor) -> None:
        """Set the rows of a mask (B,) to zero."""


@dataclass
class DenseRecordRows(RecordRows):
    """Dense rows, (width, B), with their squared norms if those are known."""

    values: Tensor
    squares: Tensor | None = None

    def affine(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Return W h_i + b."""
        return torch.addmm(bias[:, None], weight, self.values)

    def square_norms(self) -> Tensor:
        """Return |h_i|^2."""
        return self.values.square().sum(dim=0) if self.squares is None else self.squares

    def add_outer(self, delta: Tensor, out: Tensor) -> None:
        """Add delta h^T."""
        out.addmm_(delta, self.values.t())

    def drop(self, bad: Tensor) -> None:
        """Replace the rows by zeros in a copy, because they may be the records themselves."""
        self.values = self.values.masked_fill(bad, 0)


@dataclass
class SparseRecordRows(RecordRows):
    """Sparse rows, a SciPy matrix (B, width) of float64, with their squared norms."""

    values: Any
    squares: Tensor

    def affine(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Return W h_i + b."""
        rows = torch.from_numpy(self.values @ weight.t().contiguous().numpy())
        return rows.add_(bias).t().contiguous()

    def square_norms(self) -> Tensor:
        """Return |h_i|^2."""
        return self.squares

    def add_outer(self, delta: Tensor, out: Tensor) -> None:
        """Add delta h^T, one stored value at a time."""
        out.add_(torch.from_numpy(self.values.T @ delta.t().contiguous().numpy()).t())

    def drop(self, bad: Tensor) -> None:
        """Overwrite the stored values of the rows."""
        self.values.data[bad.numpy().repeat(np.diff(self.values.indptr))] = 0


def _start_of_range(index: Tensor) -> int | None:
    """Return the start of an ascending index without gaps, as in a step on all records, or None."""
    ends = (int(index[0]), int(index[-1])) if len(index) else (0, 0)
    return ends[0] if ends[1] - ends[0] + 1 == len(index) else None


class TrainingRecords(ABC):
    """All records of a training, from which steps sample batches."""

    def __init__(self, count: int, width: int) -> None:
        """Store the number of records, and the numbers per record in a batch, by public sizes."""
        self.count, self.width = count, width

    @abstractmethod
    def take(self, index: Tensor) -> "Batch":
        """Return the rows of these records; the next call may overwrite them."""


Batch = Tensor | RecordRows | tuple["Batch", ...]


class _DenseRecords(TrainingRecords):
    """Rows of a dense matrix (N, width)."""

    def __init__(self, values: Tensor) -> None:
        super().__init__(*values.shape)
        self._values = values
        parts = (part.to(torch.float64).square().sum(dim=1) for part in torch.split(values, _SPLIT))
        self._squares = torch.cat(list(parts)) if len(values) else values.new_empty(0, dtype=torch.float64)
        self._picked, self._wide = values.new_empty(0), values.new_empty(0, dtype=torch.float64)

    def take(self, index: Tensor) -> DenseRecordRows:
        count = len(index)
        if self._values.dtype == torch.float64:
            first = _start_of_range(index)
            if first is not None:  # nothing needs to be copied
                part = slice(first, first + count)
                return DenseRecordRows(self._values[part].t(), self._squares[part])
        if count > len(self._wide):  # reused between steps: allocating new memory takes longer than the copy
            self._picked = self._values.new_empty((count, self.width))
            self._wide = torch.empty((count, self.width), dtype=torch.float64)
        picked = torch.index_select(self._values, 0, index, out=self._picked[:count])
        wide, squares = self._wide[:count].copy_(picked), self._squares.index_select(0, index)
        return DenseRecordRows(wide.t(), squares)


class _SparseRecords(TrainingRecords):
    """Rows of a sparse matrix (N, width)."""

    def __init__(self, values: Any) -> None:
        super().__init__(values.shape[0], min(values.shape[1], _STORED))
        self._values = values.tocsr().astype(np.float64)  # a copy
        self._values.sum_duplicates()  # a duplicate entry would make the norms too small
        squares = self._values.multiply(self._values).sum(axis=1)
        self._squares = torch.from_numpy(np.asarray(squares).reshape(-1))

    def take(self, index: Tensor) -> RecordRows:
        first = _start_of_range(index)
        rows = index.numpy() if first is None else slice(first, first + len(index))
        return SparseRecordRows(self._values[rows], self._squares.index_select(0, index))


class _BlockRecords(TrainingRecords):
    """Records whose columns are blocks, one for each branch of the network."""

    def __init__(self, blocks: Sequence[TrainingRecords]) -> None:
        super().__init__(blocks[0].count, sum(block.width for block in blocks))
        self._blocks = tuple(blocks)

    def take(self, index: Tensor) -> tuple[Batch, ...]:
        return tuple(block.take(index) for block in self._blocks)


def tensors_of(inputs: Inputs) -> list[Tensor]:
    """Return all tensors that contain the records."""
    if isinstance(inputs, Tensor):
        return [inputs]
    if isinstance(inputs, Sequence):
        return list(inputs)
    return [torch.from_numpy(part) for part in (inputs.data, inputs.indices, inputs.indptr)]


def records_of(inputs: Inputs) -> TrainingRecords:
    """Return the records of a dense tensor (N, d), a sparse matrix, or a sequence of dense tensors.

    Raises:
        ConfigError: If the sequence is empty.
        GraphError: If a tensor is not a matrix of floats, or blocks have different lengths.
    """
    if isinstance(inputs, Tensor):
        if inputs.ndim != 2 or inputs.dtype not in (torch.float32, torch.float64):
            raise GraphError(
                f"records must be a floating-point matrix, got shape {tuple(inputs.shape)} of {inputs.dtype}"
            )
        return _DenseRecords(inputs.detach())
    if not isinstance(inputs, Sequence):
        return _SparseRecords(inputs)
    blocks = [records_of(block) for block in inputs]
    if not blocks:
        raise ConfigError("the records have no columns")
    if len({block.count for block in blocks}) > 1:
        raise GraphError(
            f"the blocks of columns have different numbers of rows: {sorted({b.count for b in blocks})}"
        )
    return _BlockRecords(blocks)

"""Networks with closed-form per-sample gradient norms and a manual backward pass.

In an affine map z_i = W h_i + b record i's gradient is delta_i outer (h_i, 1), delta_i = dL_i / dz_i, so its
squared norm is (|h_i|^2 + 1) |delta_i|^2. Per-sample gradients are never formed ("ghost" clipping;
Goodfellow: Efficient per-example gradient computations, 2015). One forward and one backward pass compute all
norms, and the clipped sum is one more product.

Parts are independent of losses, clipping and noise. A model describes itself as a tree of them::

    GhostSequential(Affine(w1, b1), Activation("selu"), UnitRows(), Affine(w2, b2))
    GhostSequential(GhostBranches(branch_0, ..., branch_K), head)

All rows are feature-major float64, (width, B), and no part mixes rows.

The first affine map of a network takes records: dense, sparse, or separate blocks of columns. Feature-major
products with the few columns of a narrow layer are twice as fast, and sums over a record's features run along
contiguous rows.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.core.features import Features
from graphveil.errors import ConfigError, GraphError

Inputs = Features | Sequence[Tensor]
_SPLIT = 4096  # rows per chunk if all records are read once
_STORED = 64  # assumed stored values per sparse record, because the actual number is private


@dataclass
class DenseRecordRows:
    """Dense rows h_i of some records, (width, B), with their squared norms if those are known."""

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
class SparseRecordRows:
    """Sparse rows of some records, a SciPy matrix (B, width) of float64, with their squared norms."""

    values: Any
    squares: Tensor

    def affine(self, weight: Tensor, bias: Tensor) -> Tensor:
        rows = torch.from_numpy(self.values @ weight.t().contiguous().numpy())
        return rows.add_(bias).t().contiguous()

    def square_norms(self) -> Tensor:
        return self.squares

    def add_outer(self, delta: Tensor, out: Tensor) -> None:
        """Add delta h^T, one stored value at a time."""
        out.add_(torch.from_numpy(self.values.T @ delta.t().contiguous().numpy()).t())

    def drop(self, bad: Tensor) -> None:
        """Overwrite the stored values of the rows."""
        self.values.data[bad.numpy().repeat(np.diff(self.values.indptr))] = 0


RecordRows = DenseRecordRows | SparseRecordRows  # as inputs of an affine map


def _start_of_range(index: Tensor) -> int | None:
    """Return the start of an ascending index without gaps, as in a step on all records, or None."""
    ends = (int(index[0]), int(index[-1])) if len(index) else (0, 0)
    return ends[0] if ends[1] - ends[0] + 1 == len(index) else None


class TrainingRecords(ABC):
    """All records of a training, from which steps sample batches."""

    def __init__(self, count: int, width: int) -> None:
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
    if isinstance(inputs, Tensor):
        return [inputs]
    if isinstance(inputs, Sequence):
        return list(inputs)
    return [torch.from_numpy(part) for part in (inputs.data, inputs.indices, inputs.indptr)]


def records_of(inputs: Inputs) -> TrainingRecords:
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


_TINY = 1e-12  # minimum norm that a row is divided by
_SELU_SCALE, _SELU_ALPHA = 1.0507009873554805, 1.6732632423543772


@dataclass
class GradientFactors:
    """The term of one affine map in each record's gradient: delta_i outer (h_i, 1)."""

    affine: "Affine"
    rows: RecordRows  # h
    delta: Tensor  # (outputs, B)

    def square_norms(self) -> Tensor:
        """Return (|h_i|^2 + 1) |delta_i|^2, shape (B,)."""
        squares = self.delta.square().sum(dim=0)
        return torch.addcmul(squares, squares, self.rows.square_norms())

    def drop(self, bad: Tensor) -> None:
        """Set the contributions of the records of a mask (B,) to zero."""
        self.rows.drop(bad)
        self.delta[:, bad] = 0

    def add(self, factors: Tensor) -> None:
        """Add the sum of the records' gradients times their factors (B,) to the map's sums."""
        self.affine.bias_sum.addmv_(self.delta, factors)
        self.rows.add_outer(self.delta.mul_(factors), self.affine.weight_sum)


class GhostModule(ABC):
    """A part of a network: a row-wise map with a manual backward pass.

    ``forward`` returns the output (width, B) and the state that ``backward`` needs. ``backward`` takes this
    state and the gradient with respect to the output, and adds one ``GradientFactors`` per affine map to
    ``gradient_factors``. If requested, it returns the gradient with respect to the input. It may overwrite
    its arguments.
    """

    def __init__(self, *parts: "GhostModule") -> None:
        self._parts = parts

    @abstractmethod
    def forward(self, x: Batch) -> tuple[Tensor, Any]:
        """Return the output, and the state for the backward pass."""

    @abstractmethod
    def backward(
        self, saved: Any, delta: Tensor, gradient_factors: list[GradientFactors], *, inputs: bool
    ) -> Tensor | None:
        """Collect the pairs; return the gradient with respect to the input if requested, else None."""

    def affines(self) -> "Iterator[Affine]":
        for part in self._parts:
            yield from part.affines()


class Affine(GhostModule):
    """z_i = W h_i + b, for a weight (inputs, outputs) and a bias (outputs) of the model.

    In training, the map works on float64 copies set by ``bind``.

    Shapes: rows (inputs, B) to (outputs, B); the first map of a network takes records, dense or sparse.

    >>> layer = torch.nn.Linear(3, 2)
    >>> [tuple(source.shape) for source in Affine(layer.weight.t(), layer.bias).sources]
    [(2, 3), (2,)]
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.sources = (weight.detach().t(), bias.detach())

    def bind(self, weight: Tensor, bias: Tensor, weight_sum: Tensor, bias_sum: Tensor) -> None:
        """Compute with these copies, and add gradients to these sums; weights are (outputs, inputs)."""
        self.weight, self.bias, self.weight_sum, self.bias_sum = weight, bias, weight_sum, bias_sum

    def forward(self, x: Batch) -> tuple[Tensor, RecordRows]:
        rows = DenseRecordRows(x) if isinstance(x, Tensor) else cast(RecordRows, x)
        return rows.affine(self.weight, self.bias), rows

    def backward(
        self, saved: RecordRows, delta: Tensor, gradient_factors: list[GradientFactors], *, inputs: bool
    ) -> Tensor | None:
        """Collect (h, delta); the gradient with respect to h is W^T delta."""
        gradient_factors.append(GradientFactors(self, saved, delta))
        return self.weight.t() @ delta if inputs else None

    def affines(self) -> "Iterator[Affine]":
        yield self


class Activation(GhostModule):
    """``"selu"``, ``"relu"`` or ``"tanh"``; the slope is a function of the output.

    >>> Activation("relu").forward(torch.tensor([[-1.0, 2.0]]))[0]
    tensor([[0., 2.]])
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        checks.one_of(_ACTIVATIONS, activation=name)
        self._function, self._times_slope = _ACTIVATIONS[name]

    def forward(self, x: Batch) -> tuple[Tensor, Tensor]:
        out = self._function(cast(Tensor, x))
        return out, out

    def backward(
        self, saved: Tensor, delta: Tensor, gradient_factors: list[GradientFactors], *, inputs: bool
    ) -> Tensor:
        return self._times_slope(delta, saved)


# Each function with the product of a gradient and its slope, given its output y. The products are
# autograd's own kernels: one pass each, where arithmetic on tensors takes four.
_ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    "selu": (
        torch.selu,
        lambda delta, y: torch.ops.aten.elu_backward(delta, _SELU_ALPHA, _SELU_SCALE, 1, True, y),
    ),
    "relu": (torch.relu, lambda delta, y: torch.ops.aten.threshold_backward(delta, y, 0)),
    "tanh": (torch.tanh, lambda delta, y: torch.ops.aten.tanh_backward(delta, y)),
}


class UnitRows(GhostModule):
    """u_i = x_i / |x_i|; the gradient is (g_i - u_i <u_i, g_i>) / |x_i|.

    >>> UnitRows().forward(torch.tensor([[3.0], [4.0]]))[0]
    tensor([[0.6000],
            [0.8000]])
    """

    def forward(self, x: Batch) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        rows = cast(Tensor, x)
        norm = rows.square().sum(dim=0).sqrt_().clamp_min_(_TINY)
        unit = rows / norm
        return unit, (unit, norm)

    def backward(
        self,
        saved: tuple[Tensor, Tensor],
        delta: Tensor,
        gradient_factors: list[GradientFactors],
        *,
        inputs: bool,
    ) -> Tensor:
        unit, norm = saved
        return delta.addcmul_(unit, (unit * delta).sum(dim=0), value=-1).div_(norm)


class GhostSequential(GhostModule):
    """A sequence of parts.

    >>> w, b = torch.ones(3, 2), torch.zeros(2)
    >>> len(list(GhostSequential(Affine(w, b), Activation("tanh"), Affine(w[:2], b)).affines()))
    2
    """

    def __init__(self, *parts: GhostModule) -> None:
        super().__init__(*parts)
        trained = [any(True for _ in part.affines()) for part in parts]
        self._before = [any(trained[:i]) for i in range(len(parts))]  # whether an earlier part has parameters

    def forward(self, x: Batch) -> tuple[Tensor, list[Any]]:
        kept = []
        for part in self._parts:
            x, saved = part.forward(x)
            kept.append(saved)
        return cast(Tensor, x), kept

    def backward(
        self, saved: list[Any], delta: Tensor, gradient_factors: list[GradientFactors], *, inputs: bool
    ) -> Tensor | None:
        gradient: Tensor | None = delta
        for part, kept, before in zip(self._parts[::-1], saved[::-1], self._before[::-1], strict=True):
            if gradient is None:
                break
            gradient = part.backward(kept, gradient, gradient_factors, inputs=inputs or before)
        return gradient


class GhostBranches(GhostModule):
    """Parallel parts: block k of the columns goes through branch k, and the outputs are concatenated.

    It is the first part of a network: its input is records in blocks, which receive no gradient.

    Shapes: blocks (width_k, B) to (sum of the branches' outputs, B).

    >>> GhostBranches(UnitRows(), UnitRows()).forward((torch.ones(1, 2), torch.ones(4, 2)))[0][:2]
    tensor([[1.0000, 1.0000],
            [0.5000, 0.5000]])
    """

    def forward(self, x: Batch) -> tuple[Tensor, tuple[list[Any], list[int]]]:
        blocks = zip(self._parts, cast(tuple[Batch, ...], x), strict=True)
        outputs, saved = zip(*(part.forward(block) for part, block in blocks), strict=True)
        return torch.cat(outputs), (list(saved), [len(out) for out in outputs])

    def backward(
        self,
        saved: tuple[list[Any], list[int]],
        delta: Tensor,
        gradient_factors: list[GradientFactors],
        *,
        inputs: bool,
    ) -> None:
        for part, kept, gradient in zip(self._parts, saved[0], torch.split(delta, saved[1]), strict=True):
            part.backward(kept, gradient, gradient_factors, inputs=False)

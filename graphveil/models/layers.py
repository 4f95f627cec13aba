"""Network parts with explicit randomness: each takes the generator that it draws from."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from scipy import sparse
from torch import Tensor, nn
from torch.nn import functional as F

from graphveil.graph import Features, rows

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "selu": F.selu, "tanh": torch.tanh}


@dataclass(frozen=True)
class SparseRows:
    """A batch of sparse rows: column indices and values, row r owning offsets[r] to offsets[r + 1]."""

    columns: Tensor
    values: Tensor
    offsets: Tensor

    @classmethod
    def of(cls, matrix: "sparse.csr_array") -> "SparseRows":
        """Share the arrays of a SciPy matrix."""
        return cls(
            torch.from_numpy(matrix.indices.astype("int64", copy=False)),
            torch.from_numpy(matrix.data.astype("float32", copy=False)),
            torch.from_numpy(matrix.indptr.astype("int64", copy=False)),
        )

    def to(self, device: torch.device | str) -> "SparseRows":
        """Return the rows on a device."""
        return SparseRows(self.columns.to(device), self.values.to(device), self.offsets.to(device))


Batch = Tensor | SparseRows


def batch_of(x: Features, index: Tensor | None = None, device: torch.device | str = "cpu") -> Batch:
    """Return some rows of the features as a network's input (all of them without an index)."""
    picked = x if index is None else rows(x, index)
    return (picked if isinstance(picked, Tensor) else SparseRows.of(picked)).to(device)


class Linear(nn.Module):
    """Affine map of dense or sparse rows; weights uniform in +-1/sqrt(inputs).

    Shapes: (B, inputs) -> (B, outputs).
    """

    def __init__(self, inputs: int, outputs: int, *, generator: torch.Generator) -> None:
        super().__init__()
        bound = 1 / math.sqrt(max(1, inputs))
        # Stored as (inputs, outputs): a sparse row is then a bag of rows of the weight.
        self.weight = nn.Parameter(torch.empty(inputs, outputs).uniform_(-bound, bound, generator=generator))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound, generator=generator))

    def forward(self, x: Batch) -> Tensor:
        """Return x W + b."""
        if isinstance(x, Tensor):
            return torch.addmm(self.bias, x, self.weight)
        bag = F.embedding_bag(
            x.columns,
            self.weight,
            x.offsets,
            mode="sum",
            per_sample_weights=x.values,
            include_last_offset=True,
        )
        return bag + self.bias


class Dropout(nn.Module):
    """Zeroes entries with probability p while training, from its own generator; stored entries if sparse."""

    def __init__(self, p: float, *, generator: torch.Generator) -> None:
        super().__init__()
        self.p, self._generator = p, generator

    def forward(self, x: Batch) -> Batch:
        """Return x with entries dropped and the rest scaled up."""
        if not self.training or self.p == 0:
            return x
        if isinstance(x, SparseRows):
            return SparseRows(x.columns, self._drop(x.values), x.offsets)
        return self._drop(x)

    def _drop(self, x: Tensor) -> Tensor:
        keep = torch.empty(x.shape).bernoulli_(1 - self.p, generator=self._generator).div_(1 - self.p)
        return x * keep.to(x.device)


class FeedForward(nn.Module):
    """Layers of Linear, batch norm, activation, dropout; the last one plain unless told otherwise.

    Shapes: (B, widths[0]) -> (B, widths[-1]).
    """

    def __init__(
        self,
        widths: Sequence[int],
        *,
        generator: torch.Generator,
        activation: str = "relu",
        batch_norm: bool = False,
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        plain_last: bool = True,
    ) -> None:
        super().__init__()
        self._activation = ACTIVATIONS[activation]
        self._input_dropout = Dropout(input_dropout, generator=generator)
        self._layers = nn.ModuleList(
            Linear(i, o, generator=generator) for i, o in zip(widths, widths[1:], strict=False)
        )
        hidden = widths[1:-1] if plain_last else widths[1:]
        self._norms = nn.ModuleList(nn.BatchNorm1d(w) if batch_norm else nn.Identity() for w in hidden)
        self._dropout = Dropout(dropout, generator=generator)

    def forward(self, x: Batch) -> Tensor:
        """Return the last layer's output."""
        h: Batch = self._input_dropout(x)
        for depth, layer in enumerate(self._layers):
            h = layer(h)
            if depth < len(self._norms):
                h = self._dropout(self._activation(self._norms[depth](h)))
        return cast(Tensor, h)

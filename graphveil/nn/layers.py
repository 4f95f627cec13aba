"""Layers with explicit randomness: each takes the generator that it draws from."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Protocol, cast

import torch
from scipy import sparse
from torch import Tensor, nn
from torch.nn import functional

from graphveil.core.clipping.ghost_modules import Activation, Affine, GhostModule, GhostSequential
from graphveil.core.features import Features, rows

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {  # each overwrites its argument
    "relu": torch.relu_,
    "selu": torch.selu_,
    "tanh": torch.tanh_,
}
_TINY = 1e-12  # lower bound of the norm in divisions
_NARROW = 12  # outputs below which a product is computed transposed


@dataclass(frozen=True, eq=False)
class SparseRows:
    """A batch of sparse rows: column indices and values; row r has the entries offsets[r] to offsets[r + 1].

    Shapes: ``columns`` and ``values`` one entry per stored value, ``offsets`` (B + 1); the batch is (B,
    width).
    """

    columns: Tensor
    values: Tensor
    offsets: Tensor
    width: int

    @classmethod
    def from_scipy(cls, matrix: "sparse.csr_array") -> "SparseRows":
        kind = "int32" if matrix.nnz < 2**31 else "int64"  # 32-bit offsets halve the traffic
        return cls(
            torch.from_numpy(matrix.indices.astype(kind, copy=False)),
            torch.from_numpy(matrix.data.astype("float32", copy=False)),
            torch.from_numpy(matrix.indptr.astype(kind, copy=False)),
            int(matrix.shape[1]),
        )

    def with_values(self, values: Tensor) -> "SparseRows":
        changed = replace(self, values=values)
        changed.__dict__["_by_column"] = self._by_column  # the positions are the same, and so is their order
        return changed

    def apply(self, matrix: Tensor) -> Tensor:
        """Return the product with a dense matrix (width, m): (B, m)."""
        return _bag(self.columns, self.values, self.offsets, matrix)

    def transposed(self, matrix: Tensor) -> Tensor:
        """Return the transpose's product with a dense matrix (B, m): (width, m)."""
        _, owner, offsets = self._by_column
        return _bag(owner, self._values_by_column, offsets, matrix)

    @cached_property
    def _values_by_column(self) -> Tensor:
        return self.values[self._by_column[0]]

    @cached_property
    def _by_column(self) -> tuple[Tensor, Tensor, Tensor]:
        order = self.columns.argsort(stable=True)
        rows = torch.arange(len(self.offsets) - 1, dtype=self.offsets.dtype)
        owner = rows.repeat_interleave(self.offsets.diff())[order]
        counts = torch.bincount(self.columns, minlength=self.width)
        offsets = functional.pad(counts.cumsum(0), (1, 0)).to(self.offsets.dtype)
        return order, owner, offsets


def _bag(columns: Tensor, values: Tensor, offsets: Tensor, matrix: Tensor) -> Tensor:
    return functional.embedding_bag(
        columns, matrix.contiguous(), offsets, mode="sum", per_sample_weights=values, include_last_offset=True
    )


class LinearMap(Protocol):
    """A linear map X -> M X, and its transpose, through which gradients flow back."""

    def apply(self, matrix: Tensor, /) -> Tensor:
        """Return M X."""

    def transposed(self, matrix: Tensor, /) -> Tensor:
        """Return M^T X. Sparse rows are read by column for it, which is much faster than a scatter."""


class _Mapped(torch.autograd.Function):
    """Forward M X, backward M^T G."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, linear: LinearMap) -> Tensor:
        ctx.linear = linear
        return linear.apply(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        linear: LinearMap = ctx.linear
        return linear.transposed(grads[0].contiguous()), None


def multiply(linear: LinearMap, x: Tensor) -> Tensor:
    """Return M X, with gradients in X.

    >>> rows = SparseRows.from_scipy(sparse.csr_array([[0.0, 2.0], [0.0, 0.0]]))
    >>> multiply(rows, torch.tensor([[1.0], [3.0]])).flatten().tolist()
    [6.0, 0.0]
    """
    product: Tensor = _Mapped.apply(x, linear)  # type: ignore[no-untyped-call]  # torch's own
    return product


Batch = Tensor | SparseRows | tuple[Tensor, ...]  # a tuple holds blocks of columns


def map_values(x: Batch, change: Callable[[Tensor], Tensor]) -> Batch:
    if isinstance(x, SparseRows):
        return x.with_values(change(x.values))
    return change(x) if isinstance(x, Tensor) else tuple(map(change, x))


def batch_of(x: Features, index: Tensor | None = None) -> Batch:
    picked = x if index is None else rows(x, index)
    return picked if isinstance(picked, Tensor) else SparseRows.from_scipy(picked)


def batches_of(x: Features) -> Callable[[Tensor], Batch]:
    """Return ``batch_of`` as a function of the index that caches its last two results.

    Full-batch training uses the same two index tensors, training and validation, in every epoch.
    """
    return lru_cache(maxsize=2)(lambda index: batch_of(x, index))


class Linear(nn.Module):
    """Affine map of dense or sparse inputs, or of blocks of columns; initial values in +-1/sqrt(inputs)."""

    def __init__(self, inputs: int, outputs: int, *, generator: torch.Generator) -> None:
        super().__init__()
        bound = 1 / math.sqrt(max(1, inputs))
        # Stored as (inputs, outputs): a sparse row is then a bag of rows of the weight.
        self.weight = nn.Parameter(torch.empty(inputs, outputs).uniform_(-bound, bound, generator=generator))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound, generator=generator))

    def ghost(self) -> Affine:
        return Affine(self.weight, self.bias)

    def forward(self, x: Batch) -> Tensor:
        if not isinstance(x, SparseRows):
            return self._dense((x,) if isinstance(x, Tensor) else x)
        return multiply(x, self.weight) + self.bias

    def _dense(self, blocks: Sequence[Tensor]) -> Tensor:
        weights = torch.split(self.weight, [block.shape[1] for block in blocks])
        out: Tensor = self.bias
        if len(out) >= _NARROW:
            for block, weight in zip(blocks, weights, strict=True):
                out = torch.addmm(out, block, weight)
            return out
        # A product with few columns is several times faster, forward and backward, computed as its transpose.
        out = out[:, None]
        for block, weight in zip(blocks, weights, strict=True):
            out = torch.addmm(out, weight.t().contiguous(), block.t())
        return out.t()


def unit_rows(x: Tensor) -> Tensor:
    """Return the rows L2-normalized, with a gradient that takes a third of the time of ``normalize``'s.

    >>> unit_rows(torch.tensor([[3.0, 4.0]]))
    tensor([[0.6000, 0.8000]])
    """
    rows: Tensor = _UnitRows.apply(x)  # type: ignore[no-untyped-call]  # torch's own
    return rows


class _UnitRows(torch.autograd.Function):
    """u = x / |x|; the gradient is the part of g orthogonal to u, divided by |x|."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        norm = x.square().sum(dim=1, keepdim=True).sqrt_().clamp_min_(_TINY)
        unit = x / norm
        ctx.save_for_backward(unit, norm)
        return unit

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        unit, norm = ctx.saved_tensors
        along = (unit * grads[0]).sum(dim=1, keepdim=True)
        across: Tensor = torch.addcmul(grads[0], unit, along, value=-1).div_(norm)
        return across


class Dropout(nn.Module):
    """Set entries to zero with probability p in training, from its own generator.

    For sparse rows only stored entries are dropped.
    """

    def __init__(self, p: float, *, generator: torch.Generator) -> None:
        super().__init__()
        self.p, self._generator = p, generator

    def forward(self, x: Batch) -> Batch:
        if not self.training or self.p == 0:
            return x
        return map_values(x, self._drop)

    def _drop(self, x: Tensor) -> Tensor:
        keep = torch.empty(x.shape).bernoulli_(1 - self.p, generator=self._generator).div_(1 - self.p)
        return x * keep


class Hidden(nn.Module):
    """Batch norm, activation and dropout after an affine map. It may overwrite its input."""

    def __init__(
        self, width: int, *, generator: torch.Generator, activation: str, batch_norm: bool, dropout: float
    ) -> None:
        super().__init__()
        self.activation = activation
        self._norm = nn.BatchNorm1d(width) if batch_norm else nn.Identity()
        self._activation = ACTIVATIONS[activation]
        self._dropout = Dropout(dropout, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self._dropout(self._activation(self._norm(x))))


class FeedForward(nn.Module):
    """Affine maps, each followed by ``Hidden``; by default the last one is not."""

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
        self._input_dropout = Dropout(input_dropout, generator=generator)
        self._layers = nn.ModuleList(Linear(i, o, generator=generator) for i, o in pairwise(widths))
        self._hidden = nn.ModuleList(
            Hidden(w, generator=generator, activation=activation, batch_norm=batch_norm, dropout=dropout)
            for w in (widths[1:-1] if plain_last else widths[1:])
        )

    def affines(self) -> list[Linear]:
        return [cast(Linear, layer) for layer in self._layers]

    def ghost(self) -> GhostModule:
        """Return the layers for private training, which supports neither batch norm nor dropout."""
        parts: list[GhostModule] = []
        for depth, layer in enumerate(self.affines()):
            parts.append(layer.ghost())
            if depth < len(self._hidden):
                parts.append(Activation(cast(Hidden, self._hidden[depth]).activation))
        return GhostSequential(*parts)

    def forward(self, x: Batch) -> Tensor:
        h: Batch = self._input_dropout(x)
        for depth, layer in enumerate(self._layers):
            h = layer(h)
            if depth < len(self._hidden):
                h = self._hidden[depth](h)
        return cast(Tensor, h)


# -- several networks at once --------------------------------------------------------------------------------

_DROPOUT_LEVELS = 1 << 16  # of a draw that decides on one entry


class BatchedFeedForward(nn.Module):
    """K networks of the same ``FeedForward`` architecture with batch norm and ReLU, trained together.

    A training step of a small network is mostly overhead. Networks that read the same batches can share it:
    one matrix product for all first layers, and one draw for dropout. The networks stay independent: their
    losses are summed, and the gradient of the sum is that of each loss.

    Dropout of inputs is shared by all of them. Dropout of units is shared unless ``separate_dropout`` is set.

    Shapes: (B, widths[0]) -> (K, B, widths[-1]).

    >>> both = BatchedFeedForward([3, 4, 2], 2, generator=torch.Generator().manual_seed(0)).eval()
    >>> x = torch.ones(5, 3)
    >>> [bool(one(x).allclose(scores)) for one, scores in zip(both.networks(), both(x))]
    [True, True]
    """

    def __init__(
        self,
        widths: Sequence[int],
        count: int,
        *,
        generator: torch.Generator,
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        separate_dropout: bool = False,
    ) -> None:
        """Initialize all layers in order; ``separate_dropout`` draws units independently per network."""
        super().__init__()
        self._masks = count if separate_dropout else 1
        self._widths, self._count, self._generator = tuple(widths), count, generator
        self._dropout, self._input_dropout = dropout, input_dropout
        self._first = Linear(widths[0], count * widths[1], generator=generator)
        self._norms = nn.ModuleList(nn.BatchNorm1d(count * width) for width in widths[1:-1])
        bounds = [(i, o, 1 / math.sqrt(i)) for i, o in pairwise(widths[1:])]
        self._weights = nn.ParameterList(
            torch.empty(count, i, o).uniform_(-b, b, generator=generator) for i, o, b in bounds
        )
        self._biases = nn.ParameterList(
            torch.empty(count, 1, o).uniform_(-b, b, generator=generator) for _, o, b in bounds
        )

    def forward(self, x: Batch) -> Tensor:
        if self.training and self._input_dropout:
            x = map_values(x, lambda values: self._drop(values, values.shape, self._input_dropout))
        h = self._first(x)
        for norm, weight, bias in zip(self._norms, self._weights, self._biases, strict=True):
            h = torch.relu_(norm(h)).view(len(h), self._count, -1)
            if self.training and self._dropout:
                h = self._drop(h, (len(h), self._masks, h.shape[2]), self._dropout)
            out = torch.baddbmm(bias, h.transpose(0, 1), weight)
            h = out.transpose(0, 1).flatten(1)
        return out

    def _drop(self, x: Tensor, shape: Sequence[int], p: float) -> Tensor:
        return x * dropout_factors(shape, p, self._generator)

    def networks(self) -> tuple[FeedForward, ...]:
        networks = list[FeedForward]()
        for k in range(self._count):
            network = FeedForward(
                self._widths,
                generator=torch.Generator(),
                batch_norm=True,
                dropout=self._dropout,
                input_dropout=self._input_dropout,
            )
            state = {
                "_layers.0.weight": self._first.weight.view(self._widths[0], self._count, -1)[:, k],
                "_layers.0.bias": self._first.bias.view(self._count, -1)[k],
            }
            for depth, (weight, bias) in enumerate(zip(self._weights, self._biases, strict=True), start=1):
                state |= {f"_layers.{depth}.weight": weight[k], f"_layers.{depth}.bias": bias[k, 0]}
            for depth, norm in enumerate(self._norms):
                for name, value in norm.state_dict().items():
                    own = value if value.ndim == 0 else value.view(self._count, -1)[k]
                    state[f"_hidden.{depth}._norm.{name}"] = own
            network.load_state_dict(state)
            networks.append(network.eval())
        return tuple(networks)


def dropout_factors(shape: Sequence[int], p: float, generator: torch.Generator) -> Tensor:
    """Return dropout factors: zero with probability p to the next 2^-16, otherwise 1/(1 - p).

    Four of them share one draw of 64 bits, which takes a tenth of the time of four draws.

    >>> dropout_factors((2, 3), 0.5, torch.Generator().manual_seed(0)).unique().tolist()
    [0.0, 2.0]
    """
    count = math.prod(shape)
    draws = torch.empty(-(-count // 4), dtype=torch.int64)
    levels = draws.random_(torch.iinfo(torch.int64).min, None, generator=generator).view(torch.int16)
    kept = levels[:count] >= round(p * _DROPOUT_LEVELS) - _DROPOUT_LEVELS // 2
    return kept.view(tuple(shape)).to(torch.float32).div_(1 - p)

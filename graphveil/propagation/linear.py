"""Public linear maps of rows, one row per node, with gradients: what a server does to reports it may read.

Under unit ``local-attributes`` edges are public and records arrive randomized, so these maps cost nothing.
They are not for protected edges: nothing here adds noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Protocol, Self

import torch
from scipy import sparse
from torch import Tensor
from torch.nn.functional import embedding_bag

from graphveil.errors import GraphError


class Propagation(Protocol):
    """A public linear map H -> P H of rows, one row per node.

    Whatever has these four can stand in for :class:`~graphveil.propagation.KProp`: more hops, other weights,
    rows of similar nodes.
    """

    @property
    def num_nodes(self) -> int:
        """N: P is an N x N matrix."""

    @property
    def work(self) -> int:
        """How many products one column takes: orders of computation are compared by it."""

    def apply(self, rows: Tensor) -> Tensor:
        """Return P H for float32 rows (N, d)."""

    def transposed(self, rows: Tensor) -> Tensor:
        """Return P^T H, through which gradients flow back."""


def propagate(propagation: Propagation, rows: Tensor) -> Tensor:
    """Return P H, with the gradient P^T G.

    >>> swap = SparseMap.from_scipy(sparse.csr_array([[0.0, 1.0], [2.0, 0.0]]))
    >>> rows = torch.tensor([[1.0], [3.0]], requires_grad=True)
    >>> out = propagate(swap, rows)
    >>> out.sum().backward()
    >>> out.flatten().tolist(), rows.grad.flatten().tolist()
    ([3.0, 2.0], [2.0, 1.0])
    """
    out: Tensor = _Propagated.apply(rows, propagation)  # type: ignore[no-untyped-call]  # torch's own
    return out


class _Propagated(torch.autograd.Function):
    """Forward P H, backward P^T G."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, propagation: Propagation) -> Tensor:
        ctx.propagation = propagation
        return propagation.apply(rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        propagation: Propagation = ctx.propagation
        return propagation.transposed(grads[0].contiguous()), None


@dataclass(frozen=True, eq=False)
class SparseMap:
    """A sparse square matrix as a :class:`Propagation`: row v's entries lie at offsets[v] to offsets[v + 1].

    Shapes: ``columns`` int32 and ``values`` float32, one a stored entry; ``offsets`` int32 or int64 (N + 1).

    >>> half = SparseMap.from_scipy(sparse.csr_array([[0.0, 0.5], [1.0, 0.0]]))
    >>> half.apply(torch.eye(2)), half.transposed(torch.tensor([[1.0], [2.0]])).flatten()
    (tensor([[0.0000, 0.5000],
            [1.0000, 0.0000]]), tensor([2.0000, 0.5000]))
    """

    offsets: Tensor
    columns: Tensor
    values: Tensor

    @classmethod
    def from_scipy(cls, matrix: "sparse.csr_array[Any]") -> Self:
        """Take a square SciPy matrix."""
        if matrix.shape[0] != matrix.shape[1]:
            raise GraphError(f"a map of nodes onto nodes is a square matrix, not {matrix.shape}")
        small = matrix.nnz < 2**31  # 32-bit offsets halve the traffic
        return cls(
            torch.from_numpy(matrix.indptr.astype("int32" if small else "int64")),
            torch.from_numpy(matrix.indices.astype("int32" if small else "int64")),
            torch.from_numpy(matrix.data.astype("float32")),
        )

    @property
    def num_nodes(self) -> int:
        """N."""
        return len(self.offsets) - 1

    @property
    def work(self) -> int:
        """The number of stored entries."""
        return len(self.columns)

    def apply(self, rows: Tensor) -> Tensor:
        """Return the product with rows (N, d)."""
        if rows.shape[0] != self.num_nodes:
            raise GraphError(f"{rows.shape[0]} rows for {self.num_nodes} nodes; give one row per node")
        return embedding_bag(
            self.columns,
            rows.contiguous(),
            self.offsets,
            mode="sum",
            per_sample_weights=self.values,
            include_last_offset=True,
        )

    def transposed(self, rows: Tensor) -> Tensor:
        """Return the transpose's product with rows (N, d)."""
        return self.transpose.apply(rows)

    def matrix(self) -> "sparse.csr_array[Any]":
        """Return the matrix for SciPy, sharing memory."""
        parts: Any = (self.values.numpy(), self.columns.numpy(), self.offsets.numpy())
        return sparse.csr_array(parts, shape=(self.num_nodes, self.num_nodes))

    @cached_property
    def transpose(self) -> "SparseMap":
        """The transposed matrix, built when it is first needed."""
        return SparseMap.from_scipy(sparse.csr_array(self.matrix().T))


@dataclass(frozen=True, eq=False)
class ComposedPropagation:
    """Several maps in a row, the first one applied first.

    >>> swap = SparseMap.from_scipy(sparse.csr_array([[0.0, 1.0], [2.0, 0.0]]))
    >>> ComposedPropagation((swap, swap)).apply(torch.tensor([[1.0], [3.0]])).flatten().tolist()
    [2.0, 6.0]
    """

    parts: Sequence[Propagation]

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.parts[0].num_nodes

    @property
    def work(self) -> int:
        """The sum of the parts'."""
        return sum(part.work for part in self.parts)

    def apply(self, rows: Tensor) -> Tensor:
        """Return P_k ... P_1 H."""
        return reduce(lambda h, part: part.apply(h), self.parts, rows)

    def transposed(self, rows: Tensor) -> Tensor:
        """Return P_1^T ... P_k^T H."""
        return reduce(lambda h, part: part.transposed(h), reversed(self.parts), rows)

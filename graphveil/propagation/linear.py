"""Public linear maps of node features, with gradients, which a server applies to LDP reports.

Under unit ``local-attributes`` edges are public and records are randomized, so these maps do not spend
privacy budget (post-processing). Do not use them on protected edges: nothing here adds noise. ``KProp``
averages the noise of randomized records over neighbors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Literal, Protocol, Self

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn.functional import embedding_bag

from graphveil._util import checks
from graphveil.core.edges.adjacency import Adjacency
from graphveil.errors import GraphError


class Propagation(Protocol):
    """A public linear map H -> P H, where H has one row per node.

    Any class with these four members can replace ``KProp``, such as maps with more hops, edge weights, or
    similar nodes.
    """

    @property
    def num_nodes(self) -> int:
        """N: P is an N x N matrix."""

    @property
    def work(self) -> int:
        """Number of multiplications per column, to compare orders of computation."""

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
    """A sparse square matrix as a ``Propagation``: the entries of row v are at offsets[v] to offsets[v + 1].

    Shapes: ``columns`` int32 and ``values`` float32, one per entry; ``offsets`` int32 or int64 (N + 1).

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
        """Convert a square SciPy matrix.

        Raises:
            GraphError: The matrix is not square.
        """
        if matrix.shape[0] != matrix.shape[1]:
            raise GraphError(f"a linear map between nodes must be a square matrix, not {matrix.shape}")
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
            raise GraphError(
                f"There are {rows.shape[0]} rows for {self.num_nodes} nodes. Pass one row per node."
            )
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
    """Composition of several maps; the first one is applied first.

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
        """The sum over the parts."""
        return sum(part.work for part in self.parts)

    def apply(self, rows: Tensor) -> Tensor:
        """Return P_k ... P_1 H."""
        return reduce(lambda h, part: part.apply(h), self.parts, rows)

    def transposed(self, rows: Tensor) -> Tensor:
        """Return P_1^T ... P_k^T H."""
        return reduce(lambda h, part: part.transposed(h), reversed(self.parts), rows)


Aggregator = Literal["gcn", "mean"]
Isolated = Literal["zero", "keep"]
AGGREGATORS: tuple[Aggregator, ...] = ("gcn", "mean")
ISOLATED: tuple[Isolated, ...] = ("zero", "keep")


@dataclass(frozen=True, eq=False, kw_only=True)
class KProp:
    """Apply H <- A^ H, K times, without parameters (Sajadmanesh, Gatica-Perez: LPGNN, CCS 2021).

        gcn:   A^_vu = 1 / sqrt(d_v d_u)        mean:  A^_vu = 1 / d_v        for an edge u -> v,

    d is the in-degree. By default there are no self-loops, because a node's own noisy row would dominate the
    sum. With ``self_loops`` they are added before A^ is normalized, and count in d. Independent unbiased
    noise of variance s_u^2 becomes noise of variance sum_u W_vu^2 s_u^2, W = A^^K.

    Shapes: (N, d) -> (N, d).

    Args:
        adjacency: Public edges; edge weights are not read.
        steps: K; 0 leaves the rows unchanged.
        aggregator: ``"gcn"`` or ``"mean"``.
        self_loops: Whether to add a self-loop to every node.
        isolated: A node without in-edges gets 0 (``"zero"``), or keeps its row (``"keep"``).

    Raises:
        ConfigError: A parameter is outside its range.

    Privacy:
        Reads: randomized rows and public edges. Charges: nothing (post-processing).

    >>> import torch
    >>> path = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False)
    >>> KProp(adjacency=path, steps=2, aggregator="mean").apply(torch.tensor([[1.0], [0.0], [3.0]])).flatten()
    tensor([2., 0., 2.])
    """

    adjacency: Adjacency
    steps: int
    aggregator: Aggregator = "gcn"
    self_loops: bool = False
    isolated: Isolated = "zero"

    def __post_init__(self) -> None:
        """Check every field."""
        checks.integer_at_least(0, steps=self.steps)
        checks.one_of(AGGREGATORS, aggregator=self.aggregator)
        checks.one_of(ISOLATED, isolated=self.isolated)

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.adjacency.num_nodes

    @property
    def work(self) -> int:
        """K times the stored entries of A^."""
        return self._chain.work if self.steps else 0

    def apply(self, rows: Tensor) -> Tensor:
        """Return A^^K H."""
        return self._chain.apply(self._checked(rows))

    def transposed(self, rows: Tensor) -> Tensor:
        """Return (A^^K)^T H."""
        return self._chain.transposed(self._checked(rows))

    @cached_property
    def hop(self) -> SparseMap:
        """A^ alone."""
        count, edges = self.num_nodes, self.adjacency
        ones = np.ones(len(edges.indices), dtype=np.float64)
        parts: Any = (ones, edges.indices.numpy(), edges.indptr.numpy())
        matrix = sparse.csr_array(parts, shape=(count, count))
        if self.self_loops:
            matrix = sparse.csr_array(matrix + sparse.eye_array(count))
        degree = np.diff(matrix.indptr)
        scale = np.zeros(len(degree))
        np.power(degree, -0.5 if self.aggregator == "gcn" else -1.0, out=scale, where=degree > 0)
        matrix.data = np.repeat(scale, degree)
        if self.aggregator == "gcn":
            matrix.data *= scale[matrix.indices]
        if self.isolated == "keep":
            matrix = sparse.csr_array(matrix + sparse.diags_array((degree == 0).astype(np.float64)))
            matrix.eliminate_zeros()
        return SparseMap.from_scipy(matrix)

    @cached_property
    def _chain(self) -> ComposedPropagation:
        return ComposedPropagation((self.hop,) * self.steps)

    def _checked(self, rows: Tensor) -> Tensor:
        if rows.shape[0] != self.num_nodes:
            raise GraphError(
                f"There are {rows.shape[0]} rows for {self.num_nodes} nodes. Pass one row per node."
            )
        return rows

"""KProp: K linear aggregations of neighbors' rows, which average out the noise of randomized records."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from scipy import sparse
from torch import Tensor

from graphveil._util import checks
from graphveil.data import Adjacency
from graphveil.errors import GraphError
from graphveil.propagation.linear import ComposedPropagation, SparseMap

Aggregator = Literal["gcn", "mean"]
Isolated = Literal["zero", "keep"]
AGGREGATORS: tuple[Aggregator, ...] = ("gcn", "mean")
ISOLATED: tuple[Isolated, ...] = ("zero", "keep")


@dataclass(frozen=True, eq=False, kw_only=True)
class KProp:
    """H <- A^ H, K times, without weights (Sajadmanesh, Gatica-Perez: LPGNN, CCS 2021).

        gcn:   A^_vu = 1 / sqrt(d_v d_u)        mean:  A^_vu = 1 / d_v        for an edge u -> v,

    d the in-degree. A node's own noisy row would dominate the sum, so there are no self-loops unless they are
    asked for; they are then inserted before A^ is normalized, and count in d. Rows of independent unbiased
    noise of variance s_u^2 become rows of variance sum_u W_vu^2 s_u^2, W = A^^K.

    Guarantee: none needed. What goes in is randomized already, and the edges are public.

    Shapes: (N, d) -> (N, d).

    Args:
        adjacency: the public edges; their weights, if they have any, are not read.
        steps: K; 0 leaves the rows as they are.
        aggregator: ``"gcn"`` or ``"mean"``.
        self_loops: whether every node counts among its neighbors.
        isolated: a node that nobody sends to gets 0 (``"zero"``), or keeps its row (``"keep"``).

    Raises:
        ConfigError: a parameter is outside its range.

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
        return SparseMap.from_scipy(self._normalized(matrix))

    @cached_property
    def _chain(self) -> ComposedPropagation:
        return ComposedPropagation((self.hop,) * self.steps)

    def _normalized(self, matrix: "sparse.csr_array[Any]") -> "sparse.csr_array[Any]":
        """Return A^ from a matrix of ones."""
        degree = np.diff(matrix.indptr)
        power = -0.5 if self.aggregator == "gcn" else -1.0
        scale = np.zeros(len(degree))
        np.power(degree, power, out=scale, where=degree > 0)
        matrix.data = np.repeat(scale, degree)
        if self.aggregator == "gcn":
            matrix.data *= scale[matrix.indices]
        if self.isolated == "keep":
            matrix = sparse.csr_array(matrix + sparse.diags_array((degree == 0).astype(np.float64)))
            matrix.eliminate_zeros()
        return matrix

    def _checked(self, rows: Tensor) -> Tensor:
        if rows.shape[0] != self.num_nodes:
            raise GraphError(f"{rows.shape[0]} rows for {self.num_nodes} nodes; give one row per node")
        return rows

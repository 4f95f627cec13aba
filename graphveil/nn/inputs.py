"""Inputs of a first layer: propagated estimates P X', propagated before or after the linear map."""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from graphveil.core.features import Features, to_dense
from graphveil.nn.layers import SparseRows, sparse_product
from graphveil.propagation import Propagation, propagate

_PROPAGATION_COST_RATIO = 3  # a product along an edge costs as much as this many in a dense matrix product


@dataclass(frozen=True, eq=False)
class FeatureEstimates:
    """The estimated features of all nodes, X' = S + 1 c^T.

    If the mechanism samples features, all features that a node did not report are at the middle c of their
    public range. So S is sparse.

    Shapes: ``deviations`` S (N, d), ``middle`` c (d), None for zero.

    >>> FeatureEstimates(torch.tensor([[1.0, 0.0]]), torch.tensor([0.5, 0.5])).dense()
    tensor([[1.5000, 0.5000]])
    """

    deviations: Features
    middle: Tensor | None = None

    @property
    def stored(self) -> int:
        """Number of stored entries of S."""
        return self.deviations.numel() if isinstance(self.deviations, Tensor) else len(self.deviations.data)

    @property
    def size(self) -> int:
        """Number of entries of X'."""
        return int(np.prod(self.deviations.shape))

    def dense(self) -> Tensor:
        """Return X'."""
        x = to_dense(self.deviations)
        return x if self.middle is None else x + self.middle


class PropagatedInputs(Protocol):
    """The matrix H = P X', multiplied on demand."""

    def times(self, weight: Tensor) -> Tensor:
        """Return H W (N, m) for a weight matrix (d, m), with gradients in W."""


@dataclass(frozen=True, eq=False)
class DenseInputs:
    """H computed once, as a dense matrix."""

    rows: Tensor

    def times(self, weight: Tensor) -> Tensor:
        """Return H W."""
        return self.rows @ weight


@dataclass(frozen=True, eq=False)
class LazyInputs:
    """H W = P (S W) + (P 1)(c^T W): the few columns of S W are propagated, and H is not materialized.

    For m columns it takes m (|S| + work of P) products in place of m N d, and no dense N x d matrix.
    """

    rows: SparseRows
    middle: Tensor | None
    propagation: Propagation

    def times(self, weight: Tensor) -> Tensor:
        """Return H W."""
        out = propagate(self.propagation, sparse_product(self.rows, weight))
        return out if self.middle is None else torch.addcmul(out, self._weights, self.middle @ weight)

    @cached_property
    def _weights(self) -> Tensor:
        """P 1, (N, 1): the sum of each node's aggregation weights."""
        return self.propagation.apply(torch.ones(self.propagation.num_nodes, 1))


def propagated(estimates: FeatureEstimates, propagation: Propagation) -> PropagatedInputs:
    """Return P X', in the cheaper order; both give the same result up to rounding.

    The choice depends on the sizes of the graph and of the LDP reports, which are public.
    """
    late = _PROPAGATION_COST_RATIO * (estimates.stored + propagation.work) < estimates.size
    return propagate_lazily(estimates, propagation) if late else propagate_dense(estimates, propagation)


def propagate_dense(estimates: FeatureEstimates, propagation: Propagation) -> DenseInputs:
    """Return P X' as a matrix."""
    return DenseInputs(propagation.apply(estimates.dense()))


def propagate_lazily(estimates: FeatureEstimates, propagation: Propagation) -> PropagatedInputs:
    """Return P X' as a lazy product; a dense S is propagated directly."""
    if isinstance(estimates.deviations, Tensor):
        return propagate_dense(estimates, propagation)
    return LazyInputs(SparseRows.from_scipy(estimates.deviations), estimates.middle, propagation)

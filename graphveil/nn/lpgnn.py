"""The networks of LPGNN, and their inputs: propagated estimates P X'.

The inputs are propagated before or after the linear map. A network has two message-passing layers over public
edges, or is a two-layer MLP. It has two steps, ``Backbone.first`` up to the hidden layer and
``Backbone.rest`` after it. Evaluating an epoch and starting the next one share the first step.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Self, cast

import torch
from torch import Tensor, nn

from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.features import Features, to_dense
from graphveil.nn.layers import ACTIVATIONS, Dropout, Linear, SparseRows, multiply
from graphveil.nn.message_passing import HEADS, GraphAttention, InEdgeIndex, Propagation, k_prop

_COST_RATIO = 3  # a product along an edge costs as much as this many in a dense matrix product


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
        return self.deviations.numel() if isinstance(self.deviations, Tensor) else len(self.deviations.data)

    def dense(self) -> Tensor:
        x = to_dense(self.deviations)
        return x if self.middle is None else x + self.middle


@dataclass(frozen=True, eq=False)
class LazyInputs:
    """H W = P (S W) + (P 1)(c^T W): the few columns of S W are propagated, and H is not materialized.

    For m columns it takes m (|S| + work of P) products in place of m N d, and no dense N x d matrix.
    """

    rows: SparseRows
    middle: Tensor | None
    propagation: Propagation

    def __matmul__(self, weight: Tensor) -> Tensor:
        """Return H W (N, m) for a weight matrix (d, m), with gradients in W."""
        out = multiply(self.propagation, multiply(self.rows, weight))
        return out if self.middle is None else torch.addcmul(out, self._weights, self.middle @ weight)

    @cached_property
    def _weights(self) -> Tensor:
        """P 1, (N, 1): the sum of each node's aggregation weights."""
        return self.propagation.apply(torch.ones(self.propagation.num_nodes, 1))


PropagatedInputs = Tensor | LazyInputs  # the matrix H = P X'


def propagated(estimates: FeatureEstimates, propagation: Propagation) -> PropagatedInputs:
    """Return P X', in the cheaper order; both give the same result up to rounding.

    The choice depends on the sizes of the graph and of the LDP reports, which are public.
    """
    x = estimates.deviations
    if isinstance(x, Tensor) or _COST_RATIO * (estimates.stored + propagation.work) >= math.prod(x.shape):
        return propagation.apply(estimates.dense())
    return LazyInputs(SparseRows.from_scipy(x), estimates.middle, propagation)


Widths = tuple[int, int, int]  # features, hidden, classes


class Backbone(nn.Module):
    """Two layers with an activation and dropout between them."""

    def __init__(self, activation: str, dropout: float, generator: torch.Generator) -> None:
        super().__init__()
        self._activation, self._dropout = ACTIVATIONS[activation], Dropout(dropout, generator=generator)

    @abstractmethod
    def on(self, adjacency: Adjacency) -> Self:
        """Store the public edges for message passing; return itself."""

    @abstractmethod
    def _round(self, depth: int, inputs: PropagatedInputs) -> Tensor:
        """Return the output of the first (0) or the second (1) layer."""

    def first(self, inputs: PropagatedInputs) -> Tensor:
        """Return the hidden layer before its activation, (N, width)."""
        return self._round(0, inputs)

    def rest(self, hidden: Tensor) -> Tensor:
        """Return logits (N, C) from the hidden layer, which may be overwritten."""
        return self._round(1, cast(Tensor, self._dropout(self._activation(hidden))))

    def forward(self, inputs: PropagatedInputs) -> Tensor:
        return self.rest(self.first(inputs))


class SageBackbone(Backbone):
    """GraphSAGE with means: h_v <- W_self h_v + W_in mean_{u -> v} h_u + b."""

    _mean: Propagation

    def __init__(self, widths: Widths, activation: str, dropout: float, generator: torch.Generator) -> None:
        super().__init__(activation, dropout, generator)
        self._incoming = nn.ModuleList(Linear(i, o, generator=generator) for i, o in pairwise(widths))
        self._own = nn.ParameterList(Linear(i, o, generator=generator).weight for i, o in pairwise(widths))

    def on(self, adjacency: Adjacency) -> Self:
        self._mean = k_prop(adjacency, 1, aggregator="mean")
        return self

    def _round(self, depth: int, inputs: PropagatedInputs) -> Tensor:
        incoming, own = cast(Linear, self._incoming[depth]), self._own[depth]
        width = own.shape[1]
        both = inputs @ torch.cat([incoming.weight, own], dim=1)
        return multiply(self._mean, both[:, :width]) + both[:, width:] + incoming.bias


class AffineBackbone(Backbone):
    """An affine map per layer: H <- P H W + b.

    A GCN has P = D^-1/2 (A + I) D^-1/2 with D = 1 + in-degree. An MLP has no P, and reads no edge.
    """

    _hop: Propagation | None = None

    def __init__(
        self,
        widths: Widths,
        activation: str,
        dropout: float,
        generator: torch.Generator,
        *,
        convolves: bool,
    ) -> None:
        super().__init__(activation, dropout, generator)
        self._convolves = convolves
        self._maps = nn.ModuleList(Linear(i, o, generator=generator) for i, o in pairwise(widths))

    def on(self, adjacency: Adjacency) -> Self:
        if self._convolves:
            self._hop = k_prop(adjacency, 1, self_loops=True)
        return self

    def _round(self, depth: int, inputs: PropagatedInputs) -> Tensor:
        affine = cast(Linear, self._maps[depth])
        mapped = inputs @ affine.weight
        return (mapped if self._hop is None else multiply(self._hop, mapped)) + affine.bias


class GatBackbone(Backbone):
    """GAT: attention over a node's neighbors and itself, softmax_u leaky_relu(a_src h_u + a_dst h_v).

    The hidden layer has four concatenated heads, each of the full width; the last layer has one.
    """

    _edges: InEdgeIndex

    def __init__(self, widths: Widths, activation: str, dropout: float, generator: torch.Generator) -> None:
        super().__init__(activation, dropout, generator)
        features, hidden, classes = widths
        first = GraphAttention(features, hidden, HEADS, generator)
        last = GraphAttention(HEADS * hidden, classes, 1, generator)
        self._rounds = nn.ModuleList([first, last])

    def on(self, adjacency: Adjacency) -> Self:
        self._edges = InEdgeIndex.from_adjacency(adjacency)
        return self

    def _round(self, depth: int, inputs: PropagatedInputs) -> Tensor:
        attending = cast(GraphAttention, self._rounds[depth])
        rows = inputs @ attending.weight
        return cast(Tensor, attending(rows, self._edges))


BACKBONES: dict[str, Callable[[Widths, str, float, torch.Generator], Backbone]] = {
    "sage": SageBackbone,
    "gcn": partial(AffineBackbone, convolves=True),
    "gat": GatBackbone,
    "mlp": partial(AffineBackbone, convolves=False),
}

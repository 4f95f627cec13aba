"""The networks of LPGNN: two message-passing layers over public edges, or a two-layer MLP.

The inputs are propagated features. Each network has two steps, ``Backbone.first`` up to the hidden layer and
``Backbone.rest`` after it. Evaluating an epoch and starting the next one share the first step.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Self, cast

import torch
from torch import Tensor, nn

from graphveil.core.edges.adjacency import Adjacency
from graphveil.errors import ConfigError
from graphveil.nn.gat import HEADS, GraphAttention, InEdgeIndex
from graphveil.nn.inputs import DenseInputs, PropagatedInputs
from graphveil.nn.layers import ACTIVATIONS, Dropout, Linear
from graphveil.propagation import KProp, Propagation, propagate


@dataclass(frozen=True, kw_only=True)
class LayerSizes:
    """The widths of a network: features, hidden, classes."""

    features: int
    hidden: int
    classes: int

    @property
    def layers(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The inputs and outputs of both layers."""
        return (self.features, self.hidden), (self.hidden, self.classes)


class Backbone(nn.Module):
    """Two layers with an activation and dropout between them."""

    def __init__(self, activation: str, dropout: float, generator: torch.Generator) -> None:
        """Store activation and dropout."""
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
        return self._round(1, DenseInputs(cast(Tensor, self._dropout(self._activation(hidden)))))

    def forward(self, inputs: PropagatedInputs) -> Tensor:
        """Return logits (N, C)."""
        return self.rest(self.first(inputs))


class SageBackbone(Backbone):
    """GraphSAGE with means: h_v <- W_self h_v + W_in mean_{u -> v} h_u + b."""

    _mean: Propagation

    def __init__(
        self, widths: LayerSizes, activation: str, dropout: float, generator: torch.Generator
    ) -> None:
        """Initialize the parameters."""
        super().__init__(activation, dropout, generator)
        self._incoming = nn.ModuleList(Linear(i, o, generator=generator) for i, o in widths.layers)
        self._own = nn.ParameterList(Linear(i, o, generator=generator).weight for i, o in widths.layers)

    def on(self, adjacency: Adjacency) -> Self:
        """Store the public edges."""
        self._mean = KProp(adjacency=adjacency, steps=1, aggregator="mean")
        return self

    def _round(self, depth: int, inputs: PropagatedInputs) -> Tensor:
        incoming, own = cast(Linear, self._incoming[depth]), self._own[depth]
        width = own.shape[1]
        both = inputs.times(torch.cat([incoming.weight, own], dim=1))
        return propagate(self._mean, both[:, :width]) + both[:, width:] + incoming.bias


class AffineBackbone(Backbone):
    """An affine map per layer: H <- P H W + b.

    A GCN has P = D^-1/2 (A + I) D^-1/2 with D = 1 + in-degree. An MLP has no P, and reads no edge.
    """

    _hop: Propagation | None = None

    def __init__(
        self,
        widths: LayerSizes,
        activation: str,
        dropout: float,
        generator: torch.Generator,
        *,
        convolves: bool,
    ) -> None:
        """Initialize the parameters."""
        super().__init__(activation, dropout, generator)
        self._convolves = convolves
        self._maps = nn.ModuleList(Linear(i, o, generator=generator) for i, o in widths.layers)

    def on(self, adjacency: Adjacency) -> Self:
        """Store the public edges of a GCN; an MLP ignores them."""
        if self._convolves:
            self._hop = KProp(adjacency=adjacency, steps=1, self_loops=True)
        return self

    def _round(self, depth: int, inputs: PropagatedInputs) -> Tensor:
        affine = cast(Linear, self._maps[depth])
        mapped = inputs.times(affine.weight)
        return (mapped if self._hop is None else propagate(self._hop, mapped)) + affine.bias


class GatBackbone(Backbone):
    """GAT: attention over a node's neighbors and itself, softmax_u leaky_relu(a_src h_u + a_dst h_v).

    The hidden layer has four concatenated heads, each of the full width; the last layer has one.
    """

    _edges: InEdgeIndex

    def __init__(
        self, widths: LayerSizes, activation: str, dropout: float, generator: torch.Generator
    ) -> None:
        """Initialize the parameters."""
        super().__init__(activation, dropout, generator)
        first = GraphAttention(widths.features, widths.hidden, HEADS, generator)
        last = GraphAttention(HEADS * widths.hidden, widths.classes, 1, generator)
        self._rounds = nn.ModuleList([first, last])

    def on(self, adjacency: Adjacency) -> Self:
        """Store the public edges."""
        self._edges = InEdgeIndex.from_adjacency(adjacency)
        return self

    def _round(self, depth: int, inputs: PropagatedInputs) -> Tensor:
        attending = cast(GraphAttention, self._rounds[depth])
        rows = inputs.times(attending.weight)
        return cast(Tensor, attending(rows, self._edges))


BACKBONES: dict[str, Callable[[LayerSizes, str, float, torch.Generator], Backbone]] = {
    "sage": SageBackbone,
    "gcn": partial(AffineBackbone, convolves=True),
    "gat": GatBackbone,
    "mlp": partial(AffineBackbone, convolves=False),
}


def backbone(
    name: str, widths: LayerSizes, *, activation: str, dropout: float, generator: torch.Generator
) -> Backbone:
    """Return an untrained network of this name."""
    if name not in BACKBONES:
        raise ConfigError(f"backbone={name!r} is not one of {', '.join(BACKBONES)}")
    return BACKBONES[name](widths, activation, dropout, generator)

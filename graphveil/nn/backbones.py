"""The networks of LPGNN: two message-passing layers over public edges, or a two-layer MLP.

The inputs are propagated features. Each network has two steps, ``Backbone.first`` up to the hidden layer and
``Backbone.rest`` after it. Evaluating an epoch and starting the next one share the first step.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Self, TypeAlias, cast

import torch
from torch import Tensor, nn

from graphveil.data import Adjacency
from graphveil.errors import ConfigError
from graphveil.nn.attention import HEADS, GraphAttention, InEdgeIndex
from graphveil.nn.inputs import DenseInputs, PropagatedInputs
from graphveil.nn.layers import ACTIVATIONS, Dropout, Linear
from graphveil.propagation import KProp, Propagation, propagate


@dataclass(frozen=True, kw_only=True)
class LayerSizes:
    """The widths of a network: features, hidden, classes."""

    features: int
    hidden: int
    classes: int


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
        sizes = [(widths.features, widths.hidden), (widths.hidden, widths.classes)]
        self._incoming = nn.ModuleList(Linear(i, o, generator=generator) for i, o in sizes)
        self._own = nn.ParameterList(Linear(i, o, generator=generator).weight for i, o in sizes)

    def on(self, adjacency: Adjacency) -> Self:
        """Store the public edges."""
        self._mean = KProp(adjacency=adjacency, steps=1, aggregator="mean")
        return self

    def _round(self, depth: int, inputs: PropagatedInputs) -> Tensor:
        incoming, own = cast(Linear, self._incoming[depth]), self._own[depth]
        width = own.shape[1]
        both = inputs.times(torch.cat([incoming.weight, own], dim=1))
        return propagate(self._mean, both[:, :width]) + both[:, width:] + incoming.bias


class GcnBackbone(Backbone):
    """GCN: H <- D^-1/2 (A + I) D^-1/2 H W + b, D = 1 + in-degree."""

    _hop: Propagation

    def __init__(
        self, widths: LayerSizes, activation: str, dropout: float, generator: torch.Generator
    ) -> None:
        """Initialize the parameters."""
        super().__init__(activation, dropout, generator)
        sizes = [(widths.features, widths.hidden), (widths.hidden, widths.classes)]
        self._maps = nn.ModuleList(Linear(i, o, generator=generator) for i, o in sizes)

    def on(self, adjacency: Adjacency) -> Self:
        """Store the public edges."""
        self._hop = KProp(adjacency=adjacency, steps=1, self_loops=True)
        return self

    def _round(self, depth: int, inputs: PropagatedInputs) -> Tensor:
        affine = cast(Linear, self._maps[depth])
        return propagate(self._hop, inputs.times(affine.weight)) + affine.bias


class GatBackbone(Backbone):
    """GAT: attention over a node's neighbors and itself, softmax_u leaky_relu(a_src h_u + a_dst h_v).

    The hidden layer has four concatenated heads, each of the full width; the last layer has one.
    """

    def __init__(
        self, widths: LayerSizes, activation: str, dropout: float, generator: torch.Generator
    ) -> None:
        """Initialize the parameters."""
        super().__init__(activation, dropout, generator)
        hidden = HEADS * widths.hidden
        self._rounds = nn.ModuleList(
            [
                GraphAttention(widths.features, widths.hidden, HEADS, generator),
                GraphAttention(hidden, widths.classes, 1, generator),
            ]
        )

    def on(self, adjacency: Adjacency) -> Self:
        """Store the public edges."""
        self._edges = InEdgeIndex.from_adjacency(adjacency)
        return self

    def _round(self, depth: int, inputs: PropagatedInputs) -> Tensor:
        attending = cast(GraphAttention, self._rounds[depth])
        rows = inputs.times(attending.weight)
        return cast(Tensor, attending(rows, self._edges))


class MlpBackbone(Backbone):
    """An MLP: h_v <- W h_v + b, without message passing. Without propagation, no edge is read."""

    def __init__(
        self, widths: LayerSizes, activation: str, dropout: float, generator: torch.Generator
    ) -> None:
        """Initialize the parameters."""
        super().__init__(activation, dropout, generator)
        sizes = [(widths.features, widths.hidden), (widths.hidden, widths.classes)]
        self._maps = nn.ModuleList(Linear(i, o, generator=generator) for i, o in sizes)

    def on(self, adjacency: Adjacency) -> Self:
        """Ignore the edges."""
        return self

    def _round(self, depth: int, inputs: PropagatedInputs) -> Tensor:
        affine = cast(Linear, self._maps[depth])
        return inputs.times(affine.weight) + affine.bias


Kind: TypeAlias = type[SageBackbone] | type[GcnBackbone] | type[GatBackbone] | type[MlpBackbone]
BACKBONES: dict[str, Kind] = {
    "sage": SageBackbone,
    "gcn": GcnBackbone,
    "gat": GatBackbone,
    "mlp": MlpBackbone,
}


def backbone(
    name: str, widths: LayerSizes, *, activation: str, dropout: float, generator: torch.Generator
) -> Backbone:
    """Return an untrained network of this name."""
    if name not in BACKBONES:
        raise ConfigError(f"backbone={name!r} is not one of {', '.join(BACKBONES)}")
    return BACKBONES[name](widths, activation, dropout, generator)

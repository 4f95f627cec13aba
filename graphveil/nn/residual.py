"""Message-passing layers with residual connections and layer norm, for deep networks."""

from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from graphveil.core.edges.adjacency import Adjacency
from graphveil.nn.gat import GatLayer
from graphveil.nn.gcn import GcnLayer
from graphveil.nn.layers import Batch, FeedForward, Hidden, Linear
from graphveil.nn.sage import SageLayer

LayerKind = Literal["gcn", "sage", "gat"]


@dataclass(frozen=True, kw_only=True)
class ResidualArchitecture:
    """The architecture of a ``ResidualNetwork``.

    Args:
        layer: Kind of the message-passing layers.
        hidden: Width of the vectors between layers.
        depth: Number of message-passing layers.
        style: Keywords of hidden layers: activation, dropout.
        heads: Heads of attention layers, each of width ``hidden``.
    """

    layer: LayerKind
    hidden: int
    depth: int
    style: dict[str, Any]
    heads: int = 1

    def build(self, features: int, classes: int, *, generator: torch.Generator) -> "ResidualNetwork":
        """Return an untrained network for these numbers of features and classes."""
        before = FeedForward([features, self.hidden], plain_last=False, generator=generator, **self.style)
        layers = [
            ResidualLayer(self.hidden, self._messages(generator), self.heads, generator=generator)
            for _ in range(self.depth)
        ]
        return ResidualNetwork(before, layers, Linear(self.hidden, classes, generator=generator))

    def _messages(self, generator: torch.Generator) -> nn.Module:
        hidden = Hidden(self.hidden * self.heads, generator=generator, batch_norm=False, **self.style)
        if self.layer == "gat":
            return GatLayer(self.hidden, self.heads, hidden, generator=generator)
        kind = GcnLayer if self.layer == "gcn" else SageLayer
        return kind(self.hidden, hidden, generator=generator)


class ResidualLayer(nn.Module):
    """A message-passing layer that adds to its input: h + W messages(norm(h)) + b.

    Shapes: (N, width) -> (N, width).
    """

    def __init__(self, width: int, messages: nn.Module, heads: int, *, generator: torch.Generator) -> None:
        """Initialize the parameters."""
        super().__init__()
        self._norm, self._messages = nn.LayerNorm(width), messages
        self._map = Linear(width * heads, width, generator=generator)

    def forward(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        """Return the sum of the input and the messages."""
        return h + cast(Tensor, self._map(self._messages(self._norm(h), adjacency)))


class ResidualNetwork(nn.Module):
    """A dense layer, residual layers, layer norm, and an affine output.

    Shapes: (N, d) -> (N, C).
    """

    def __init__(self, before: FeedForward, layers: list[ResidualLayer], output: Linear) -> None:
        """Store the layers."""
        super().__init__()
        self._before, self._layers, self._output = before, nn.ModuleList(layers), output
        self._norm = nn.LayerNorm(output.weight.shape[0])

    def forward(self, x: Batch, adjacency: Adjacency) -> Tensor:
        """Return logits."""
        h = cast(Tensor, self._before(x))
        for layer in self._layers:
            h = layer(h, adjacency)
        return cast(Tensor, self._output(self._norm(h)))

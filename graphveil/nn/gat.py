"""GAT: attention over the exact edges, with several concatenated heads."""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from graphveil.data import Adjacency
from graphveil.nn.attention import GraphAttention, InEdgeIndex
from graphveil.nn.layers import Batch, Hidden, SparseRows, sparse_product


@dataclass(frozen=True, kw_only=True)
class GatArchitecture:
    """The architecture of a ``GatNetwork``.

    Args:
        hidden: Width of each head of the hidden layers.
        heads: Heads of the hidden layers; the last layer has one.
        depth: Number of attention layers.
        style: Keywords of hidden layers: activation, batch norm, dropout.
    """

    hidden: int
    heads: int
    depth: int
    style: dict[str, Any]

    def build(self, features: int, classes: int, *, generator: torch.Generator) -> "GatNetwork":
        """Return an untrained network for these numbers of features and classes."""
        wide = self.heads * self.hidden
        inputs = [features, *[wide] * (self.depth - 1)]
        rounds = [GraphAttention(i, self.hidden, self.heads, generator) for i in inputs[:-1]]
        rounds.append(GraphAttention(inputs[-1], classes, 1, generator))
        hidden = [Hidden(wide, generator=generator, **self.style) for _ in inputs[:-1]]
        return GatNetwork(rounds, hidden)


class GatNetwork(nn.Module):
    """Attention layers, each but the last followed by its ``Hidden``.

    Shapes: (N, d) -> (N, C).
    """

    def __init__(self, rounds: list[GraphAttention], hidden: list[Hidden]) -> None:
        """Store the layers."""
        super().__init__()
        self._rounds, self._hidden = nn.ModuleList(rounds), nn.ModuleList(hidden)

    def forward(self, x: Batch, adjacency: Adjacency) -> Tensor:
        """Return logits."""
        edges = InEdgeIndex.from_adjacency(adjacency)
        h: Batch = x
        for depth, attending in enumerate(cast("list[GraphAttention]", self._rounds)):
            h = attending(_times(h, attending.weight), edges)
            if depth < len(self._hidden):
                h = self._hidden[depth](h)
        return cast(Tensor, h)


def _times(x: Batch, weight: Tensor) -> Tensor:
    if isinstance(x, SparseRows):
        return sparse_product(x, weight)
    return cast(Tensor, x) @ weight

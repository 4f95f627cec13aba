"""GCN: graph convolutions with symmetric normalization, over the exact edges."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn

from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.exact_sums import neighbor_sums
from graphveil.nn.layers import Batch, Hidden, Linear


@dataclass(frozen=True, kw_only=True)
class GcnArchitecture:
    """The architecture of a ``GcnNetwork``.

    Args:
        hidden: Width of the hidden layers.
        depth: Number of convolutions.
        style: Keywords of hidden layers: activation, batch norm, dropout.
    """

    hidden: int
    depth: int
    style: dict[str, Any]

    def build(self, features: int, classes: int, *, generator: torch.Generator) -> "GcnNetwork":
        """Return an untrained network for these numbers of features and classes."""
        widths = [features, *[self.hidden] * (self.depth - 1), classes]
        maps = [Linear(i, o, generator=generator) for i, o in pairwise(widths)]
        hidden = [Hidden(width, generator=generator, **self.style) for width in widths[1:-1]]
        return GcnNetwork(maps, hidden)


class GcnLayer(nn.Module):
    """One convolution, followed by its ``Hidden``.

    Shapes: (N, width) -> (N, width).
    """

    def __init__(self, width: int, hidden: Hidden, *, generator: torch.Generator) -> None:
        """Initialize the parameters."""
        super().__init__()
        self._map, self._hidden = Linear(width, width, generator=generator), hidden

    def forward(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        """Return act(D^-1/2 (A + I)^T D^-1/2 (X W + b))."""
        return cast(Tensor, self._hidden(convolve(adjacency, self._map(x))))


class GcnNetwork(nn.Module):
    """Convolutions, each but the last followed by its ``Hidden``.

    Shapes: (N, d) -> (N, C).
    """

    def __init__(self, maps: list[Linear], hidden: list[Hidden]) -> None:
        """Store the layers."""
        super().__init__()
        self._maps, self._hidden = nn.ModuleList(maps), nn.ModuleList(hidden)

    def forward(self, x: Batch, adjacency: Adjacency) -> Tensor:
        """Return logits."""
        h: Batch = x
        for depth, affine in enumerate(self._maps):
            h = convolve(adjacency, affine(h))
            if depth < len(self._hidden):
                h = self._hidden[depth](h)
        return cast(Tensor, h)


def convolve(adjacency: Adjacency, x: Tensor) -> Tensor:
    """Return D^-1/2 (A + I)^T D^-1/2 X with D = 1 + in-degree. Not private.

    >>> pair = Adjacency.from_edges([0], [1], num_nodes=2, directed=False)
    >>> convolve(pair, torch.tensor([[1.0], [3.0]])).flatten()
    tensor([2.0000, 2.0000])
    """
    scale = (1 + adjacency.indptr.diff()).to(x.dtype).rsqrt()[:, None]
    scaled = (scale * x).contiguous()
    return scale * (neighbor_sums(adjacency, scaled) + scaled)

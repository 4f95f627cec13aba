"""SAGE: dense layers, message-passing layers with sums over the exact edges, dense layers."""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.exact_sums import neighbor_sums
from graphveil.nn.layers import Batch, FeedForward, Hidden, Linear, unit_rows


@dataclass(frozen=True, kw_only=True)
class SageArchitecture:
    """The architecture of a ``SageNetwork``.

    Args:
        hidden: Width of the hidden layers.
        depth: Number of message-passing layers.
        style: Keywords of hidden layers: activation, batch norm, dropout.
        pre_layers: Dense layers before message passing.
        post_layers: Dense layers after it, including the output layer.
        unit: Whether vectors are L2-normalized before and after message passing.
        unit_rounds: Whether they are L2-normalized after each message-passing layer.
    """

    hidden: int
    depth: int
    style: dict[str, Any]
    pre_layers: int
    post_layers: int
    unit: bool = False
    unit_rounds: bool = False

    def build(self, features: int, classes: int, *, generator: torch.Generator) -> "SageNetwork":
        """Return an untrained network for these numbers of features and classes."""
        style = {"generator": generator, **self.style}
        first, last = self.widths(features, classes)
        before = FeedForward(first, plain_last=False, **style)
        unit = self.unit or self.unit_rounds
        rounds = [
            SageLayer(self.hidden, Hidden(self.hidden, **style), generator=generator, unit=unit)
            for _ in range(self.depth)
        ]
        return SageNetwork(before, rounds, FeedForward(last, **style), unit=self.unit)

    def widths(self, features: int, classes: int) -> tuple[list[int], list[int]]:
        """Return the widths of the dense layers before and after message passing."""
        width = self.hidden
        return [features, *[width] * self.pre_layers], [*[width] * self.post_layers, classes]


@dataclass(frozen=True)
class AffineMaps:
    """The affine maps of a network with one message-passing layer: before it, own, of the sum, after it."""

    before: list[Linear]
    own: Linear
    incoming: Linear
    after: list[Linear]


class SageLayer(nn.Module):
    """One message-passing layer; ``unit`` L2-normalizes before the activation.

    Shapes: (N, width) -> (N, width).
    """

    def __init__(self, width: int, hidden: Hidden, *, generator: torch.Generator, unit: bool = False) -> None:
        """Initialize the parameters."""
        super().__init__()
        self._own = Linear(width, width, generator=generator)
        self._incoming = Linear(width, width, generator=generator)
        self._hidden = hidden
        self._unit = unit

    def forward(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        """Return act(norm(W_self x + W_in A^T x + b))."""
        return self.read(x, neighbor_sums(adjacency, x))

    def read(self, x: Tensor, sums: Tensor) -> Tensor:
        """Return the same from sums that are already computed."""
        mixed = self._own(x) + self._incoming(sums)
        if self._unit:
            mixed = unit_rows(mixed).clone()  # the activation overwrites its input
        return cast(Tensor, self._hidden(mixed))


class SageNetwork(nn.Module):
    """Dense layers, message-passing layers, dense layers; ``unit`` L2-normalizes before message passing.

    Shapes: (N, d) -> (N, C).
    """

    def __init__(
        self, before: FeedForward, rounds: list[SageLayer], after: FeedForward, *, unit: bool = False
    ) -> None:
        """Store the layers."""
        super().__init__()
        self._before, self._rounds, self._after = before, nn.ModuleList(rounds), after
        self._unit = unit

    def rows(self, x: Batch) -> Tensor:
        """Return the vectors that nodes send in the first layer."""
        return unit_rows(self._before(x)) if self._unit else cast(Tensor, self._before(x))

    def read(self, rows: Tensor, sums: Tensor) -> Tensor:
        """Return logits from the vectors and their sums, in a network of one message-passing layer."""
        return cast(Tensor, self._after(cast(SageLayer, self._rounds[0]).read(rows, sums)))

    def forward(self, x: Batch, adjacency: Adjacency) -> Tensor:
        """Return logits."""
        h = self.rows(x)
        for layer in self._rounds:
            h = layer(h, adjacency)
        return cast(Tensor, self._after(h))

    def maps(self) -> AffineMaps:
        """Return the affine maps of a network of one message-passing layer."""
        layer = cast(SageLayer, self._rounds[0])
        return AffineMaps(self._before.affines(), layer._own, layer._incoming, self._after.affines())

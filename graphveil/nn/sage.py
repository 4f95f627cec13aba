"""SAGE: dense layers, rounds of messages that are summed over the exact edges, dense layers."""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from graphveil.data import Adjacency
from graphveil.nn.layers import Batch, FeedForward, Hidden, Linear, unit_rows
from graphveil.release import sum_in_neighbors


@dataclass(frozen=True, kw_only=True)
class SageArchitecture:
    """The shape of a :class:`SageNetwork`.

    Args:
        hidden: width of the hidden layers.
        depth: rounds of messages.
        style: keywords of hidden layers: activation, batch norm, dropout.
        pre_layers: dense layers before the messages.
        post_layers: dense layers after them, the output layer included.
        unit: whether rows have norm one before and after the messages.
        unit_rounds: whether they have after each round, whatever they have before.
    """

    hidden: int
    depth: int
    style: dict[str, Any]
    pre_layers: int
    post_layers: int
    unit: bool = False
    unit_rounds: bool = False

    def build(self, features: int, classes: int, *, generator: torch.Generator) -> "SageNetwork":
        """Return an untrained network from so many features to logits of so many classes."""
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
        """Return the widths of the dense layers before the messages, and of those after them."""
        width = self.hidden
        return [features, *[width] * self.pre_layers], [*[width] * self.post_layers, classes]


@dataclass(frozen=True)
class AffineMaps:
    """The affine maps of one round of messages: before it, of the own row, of the sum, and after it."""

    before: list[Linear]
    own: Linear
    incoming: Linear
    after: list[Linear]


class SageLayer(nn.Module):
    """One round of messages, with ``unit`` to rows of norm one before the activation.

    Shapes: (N, width) -> (N, width).
    """

    def __init__(self, width: int, hidden: Hidden, *, generator: torch.Generator, unit: bool = False) -> None:
        """Draw the weights."""
        super().__init__()
        self._own = Linear(width, width, generator=generator)
        self._incoming = Linear(width, width, generator=generator)
        self._hidden = hidden
        self._unit = unit

    def forward(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        """Return act(norm(W_self x + W_in A^T x + b))."""
        return self.read(x, sum_in_neighbors(adjacency, x))

    def read(self, x: Tensor, sums: Tensor) -> Tensor:
        """Return the same for sums that are known already."""
        mixed = self._own(x) + self._incoming(sums)
        if self._unit:
            mixed = unit_rows(mixed).clone()  # the activation overwrites its input
        return cast(Tensor, self._hidden(mixed))


class SageNetwork(nn.Module):
    """Dense layers, rounds of messages, dense layers; with ``unit`` rows of norm one before the messages.

    Shapes: (N, d) -> (N, C).
    """

    def __init__(
        self, before: FeedForward, rounds: list[SageLayer], after: FeedForward, *, unit: bool = False
    ) -> None:
        """Put the parts together."""
        super().__init__()
        self._before, self._rounds, self._after = before, nn.ModuleList(rounds), after
        self._unit = unit

    def rows(self, x: Batch) -> Tensor:
        """Return what nodes send in the first round."""
        return unit_rows(self._before(x)) if self._unit else cast(Tensor, self._before(x))

    def read(self, rows: Tensor, sums: Tensor) -> Tensor:
        """Return logits from the rows and what was summed of them, in a network of one round."""
        return cast(Tensor, self._after(cast(SageLayer, self._rounds[0]).read(rows, sums)))

    def forward(self, x: Batch, adjacency: Adjacency) -> Tensor:
        """Return logits."""
        h = self.rows(x)
        for layer in self._rounds:
            h = layer(h, adjacency)
        return cast(Tensor, self._after(h))

    def maps(self) -> AffineMaps:
        """Return the affine maps of a network of one round."""
        layer = cast(SageLayer, self._rounds[0])
        return AffineMaps(self._before.affines(), layer._own, layer._incoming, self._after.affines())

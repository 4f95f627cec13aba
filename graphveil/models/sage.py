"""SAGE: message passing with sums, the non-private reference of the GAP and ProGAP papers."""

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from graphveil import _check
from graphveil.aggregate import sum_in_neighbors
from graphveil.graph import Adjacency
from graphveil.models.full_graph import FullGraphEstimator
from graphveil.models.layers import Batch, FeedForward, Hidden, Linear


@dataclass(kw_only=True, eq=False)
class SAGE(FullGraphEstimator):
    """GraphSAGE with sums (Hamilton, Ying, Leskovec: Inductive representation learning, 2017).

    Dense layers, then ``layers`` rounds of messages, then dense layers:

        h <- act(norm(W_self h_v + W_in sum_{u -> v} h_u + b)).

    Guarantee: none. It is the reference that private methods are measured against; a private unit is refused.

    Shapes: features (N, d) to probabilities (N, C).

    Args:
        pre_layers: dense layers before the messages.
        post_layers: dense layers after them, the output layer included.

    Raises:
        NotYetError: the unit is not ``"none"``.

    >>> from graphveil.graph.recipes import RECIPES
    >>> from graphveil.graph.synthetic import synthetic
    >>> graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    >>> SAGE(unit="none", seed=0, epochs=5).fit(graph).predict_proba().shape[0] == graph.num_nodes
    True
    """

    method: ClassVar[str] = "sage"

    pre_layers: int = 2
    post_layers: int = 1

    def _check_config(self) -> None:
        super()._check_config()
        _check.integer_at_least(1, pre_layers=self.pre_layers, post_layers=self.post_layers)

    def _build(self, generator: torch.Generator) -> nn.Module:
        width, style = self.hidden, {"generator": generator, **self._layers()}
        before = FeedForward([self._shape["features"], *[width] * self.pre_layers], plain_last=False, **style)
        rounds = [SageLayer(width, Hidden(width, **style), generator=generator) for _ in range(self.layers)]
        after = FeedForward([*[width] * self.post_layers, self._shape["classes"]], **style)
        return SageNetwork(before, rounds, after)


class SageLayer(nn.Module):
    """One round of messages.

    Shapes: (N, width) -> (N, width).
    """

    def __init__(self, width: int, hidden: Hidden, *, generator: torch.Generator) -> None:
        """Draw the weights."""
        super().__init__()
        self._own = Linear(width, width, generator=generator)
        self._incoming = Linear(width, width, generator=generator)
        self._hidden = hidden

    def forward(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        """Return act(norm(W_self x + W_in A^T x + b))."""
        return cast(Tensor, self._hidden(self._own(x) + self._incoming(sum_in_neighbors(adjacency, x))))


class SageNetwork(nn.Module):
    """Dense layers, rounds of messages, dense layers.

    Shapes: (N, d) -> (N, C).
    """

    def __init__(self, before: FeedForward, rounds: list[SageLayer], after: FeedForward) -> None:
        """Put the parts together."""
        super().__init__()
        self._before, self._rounds, self._after = before, nn.ModuleList(rounds), after

    def forward(self, x: Batch, adjacency: Adjacency) -> Tensor:
        """Return logits."""
        h = self._before(x)
        for layer in self._rounds:
            h = layer(h, adjacency)
        return cast(Tensor, self._after(h))

"""GAT: attention over in-edges, as in graph attention networks, with several concatenated heads."""

from dataclasses import dataclass
from typing import Any, Self, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag, leaky_relu

from graphveil.core.edges.adjacency import Adjacency
from graphveil.nn.layers import Batch, Hidden, SparseRows, sparse_product

HEADS = 4  # concatenated in a hidden layer
_SLOPE = 0.2  # of the leaky relu, as in the paper


@dataclass(frozen=True, eq=False)
class InEdgeIndex:
    """Edges sorted by target: target v has the edges from ``offsets[v]`` to ``offsets[v + 1]``.

    Shapes: ``sources`` and ``targets`` int64 (E), ``offsets`` int64 (N + 1).
    """

    sources: Tensor
    targets: Tensor
    offsets: Tensor

    @classmethod
    def from_adjacency(cls, adjacency: Adjacency) -> Self:
        """Return the edges of an adjacency."""
        sources, targets = adjacency.edge_index()
        return cls(sources, targets, adjacency.indptr)


class GraphAttention(nn.Module):
    """One attention layer, after the linear map with ``weight``:

        h'_v = b + sum_u a_uv h_u,   a_uv = softmax over u of leaky_relu(s . h_u + g . h_v),

    where u runs over the in-neighbors of v and v itself, independently for each head. Not private.

    Shapes: (N, heads width) -> (N, heads width).
    """

    def __init__(self, inputs: int, width: int, heads: int, generator: torch.Generator) -> None:
        """Initialize the parameters, as Glorot and Bengio do."""
        super().__init__()
        self._heads, self._width = heads, width
        bound = (6 / (inputs + heads * width)) ** 0.5
        self.weight = nn.Parameter(_uniform((inputs, heads * width), bound, generator))
        bound = (6 / (heads + width)) ** 0.5
        self._sends = nn.Parameter(_uniform((heads, width), bound, generator))
        self._gets = nn.Parameter(_uniform((heads, width), bound, generator))
        self._bias = nn.Parameter(torch.zeros(heads * width))

    def forward(self, rows: Tensor, edges: InEdgeIndex) -> Tensor:
        """Return the weighted sums."""
        h = rows.view(-1, self._heads, self._width)
        source_logits, target_logits = (h * self._sends).sum(dim=2), (h * self._gets).sum(dim=2)
        weights, own = _softmax_terms(source_logits, target_logits, edges)
        total = own.index_add(0, edges.targets, weights)
        sums = own[:, :, None] * h + _weighted_sums(weights, h, edges)
        return (sums / total[:, :, None]).flatten(1) + self._bias


def _softmax_terms(source_logits: Tensor, target_logits: Tensor, edges: InEdgeIndex) -> tuple[Tensor, Tensor]:
    """Return the terms of the softmax, (E, heads) of edges and (N, heads) of nodes themselves."""
    # Not sends[sources]: its gradient is added in the order of threads, which is not deterministic.
    by_source = source_logits.index_select(0, edges.sources)
    by_target = target_logits.index_select(0, edges.targets)
    scores = leaky_relu(by_source + by_target, _SLOPE)
    own = leaky_relu(source_logits + target_logits, _SLOPE)
    with torch.no_grad():  # the subtracted maximum cancels
        most = own.clone()
        most.scatter_reduce_(0, edges.targets[:, None].expand_as(scores), scores, "amax")
        lowered = most.index_select(0, edges.targets)
    return (scores - lowered).exp(), (own - most).exp()


def _weighted_sums(weights: Tensor, h: Tensor, edges: InEdgeIndex) -> Tensor:
    """Return the sums over in-edges (N, heads, width).

    Computed per head by ``embedding_bag``, so that no vector is copied to an edge. Memory is proportional to
    E heads, not to E heads width.
    """
    sums = [
        embedding_bag(
            edges.sources,
            h[:, head].contiguous(),
            edges.offsets,
            mode="sum",
            per_sample_weights=weights[:, head].contiguous(),
            include_last_offset=True,
        )
        for head in range(h.shape[1])
    ]
    return torch.stack(sums, dim=1)


def _uniform(shape: tuple[int, int], bound: float, generator: torch.Generator) -> Tensor:
    return torch.empty(shape).uniform_(-bound, bound, generator=generator)


class GatLayer(nn.Module):
    """One attention layer, followed by its ``Hidden`` of all heads.

    Shapes: (N, width) -> (N, heads width).
    """

    def __init__(self, width: int, heads: int, hidden: Hidden, *, generator: torch.Generator) -> None:
        """Initialize the parameters."""
        super().__init__()
        self._attention, self._hidden = GraphAttention(width, width, heads, generator), hidden

    def forward(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        """Return act(attention(X W))."""
        rows = x @ self._attention.weight
        return cast(Tensor, self._hidden(self._attention(rows, InEdgeIndex.from_adjacency(adjacency))))


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
            weight = attending.weight
            rows = sparse_product(h, weight) if isinstance(h, SparseRows) else cast(Tensor, h) @ weight
            h = attending(rows, edges)
            if depth < len(self._hidden):
                h = self._hidden[depth](h)
        return cast(Tensor, h)

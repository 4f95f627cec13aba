"""Sums over in-neighbors without noise, with gradients: for models without privacy (unit ``none``)."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.blocks import blocks
from graphveil.core.queries.weights import FULL, Similarity

_ROWS, _EDGES = 1 << 17, 1 << 18  # rows and edges per chunk, with a weight for each edge


def neighbor_sums(adjacency: Adjacency, x: Tensor) -> Tensor:
    """Return A^T X: row v is the sum of x over the in-neighbors of v.

    Privacy:
        No guarantee: the sums are exact. Use it under unit ``none`` only.

    >>> import torch
    >>> path = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False)
    >>> neighbor_sums(path, torch.tensor([[1.0], [2.0], [4.0]])).flatten().tolist()
    [2.0, 5.0, 2.0]
    """
    total: Tensor = _NeighborSum.apply(x, adjacency)  # type: ignore[no-untyped-call]  # torch's own
    return total


def weighted_neighbor_sums(adjacency: Adjacency, x: Tensor, similarity: Similarity, keys: Any) -> Tensor:
    """Return the sum over in-neighbors of w(z_u, z_v) x_u, in float32 and without gradients.

    Args:
        keys: Inputs of the similarity for each node; None for x.

    Privacy:
        No guarantee: the sums are exact. Use it under unit ``none`` only.

    >>> import torch
    >>> from graphveil.papers.weights import ReluCos
    >>> path = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False)
    >>> x = torch.tensor([[1.0], [2.0], [-4.0]])
    >>> weighted_neighbor_sums(path, x, ReluCos(), None).flatten().tolist()
    [2.0, 1.0, 0.0]
    """
    pairs = similarity.prepare(x if keys is None else keys)
    total = torch.empty_like(x)
    for block in blocks(adjacency, _ROWS):
        for piece in block.pieces(_ROWS, _EDGES):
            total[piece.start : piece.stop] = embedding_bag(
                piece.sources,
                x,
                piece.offsets,
                mode="sum",
                per_sample_weights=pairs.of(piece),
                include_last_offset=True,
            )
    return total.mul_(similarity.bound / FULL)


class _NeighborSum(torch.autograd.Function):
    """Forward A^T X; backward A G, which for an undirected graph is the same sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, adjacency: Adjacency) -> Tensor:
        ctx.adjacency = adjacency
        return _bag(adjacency, x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        adjacency: Adjacency = ctx.adjacency
        if adjacency.directed:
            source, target = adjacency.edge_index()
            adjacency = Adjacency.from_edges(
                target, source, num_nodes=adjacency.num_nodes, directed=True, edge_set=adjacency.edge_set
            )
        return _bag(adjacency, grads[0].contiguous()), None


def _bag(adjacency: Adjacency, x: Tensor) -> Tensor:
    small = len(adjacency.indices) < 2**31  # 32-bit offsets halve the traffic
    offsets = adjacency.indptr.to(torch.int32 if small else torch.int64)
    return embedding_bag(
        adjacency.indices.to(offsets.dtype), x, offsets, mode="sum", include_last_offset=True
    )

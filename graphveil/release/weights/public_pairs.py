"""Weights of pairs that no edge chose: public, like the rows that they follow from."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from graphveil.data.blocks import EdgeBlock
from graphveil.release.weights.base import Similarity
from graphveil.release.weights.tables import FULL, PairWeights

_PAIRS = 1 << 20  # at a time


def weights_from(similarity: Similarity, keys: Any, sources: Tensor) -> Iterator[Tensor]:
    """Yield w(z_u, z_v) for some sources u and all nodes v, in blocks of shape (rows, sources), float32.

    They are the very numbers that a hop multiplies with, of pairs that are chosen without looking at an edge:
    a function of the keys alone.

    Args:
        similarity: w.
        keys: what it reads of each node.
        sources: nodes, in ascending order, shape (S).

    >>> from graphveil.release.weights import HalfCos
    >>> rows = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    >>> torch.cat(list(weights_from(HalfCos(), rows, torch.tensor([0, 2])))).tolist()
    [[1.0, 0.5], [0.0, 0.5], [0.5, 1.0]]
    """
    pairs = similarity.prepare(keys)
    at_once = max(1, _PAIRS // len(sources))
    for first in range(0, pairs.num_nodes, at_once):
        last = min(pairs.num_nodes, first + at_once)
        yield all_pairs(pairs, sources, first, last) * (similarity.bound / FULL)


def all_pairs(pairs: PairWeights, sources: Tensor, start: int, stop: int) -> Tensor:
    """Return the weights of all pairs of a source and a target from ``start`` on, by the target first."""
    count, rows = len(sources), stop - start
    offsets = torch.arange(0, rows * count + 1, count, dtype=torch.int32)
    edges = EdgeBlock(start, stop, offsets, sources.to(torch.int32).repeat(rows))
    return pairs.of(edges).reshape(rows, count)

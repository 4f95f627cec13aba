"""What a module reads on bounded trees: the exact features of every node in them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphveil.graph import Features, rows, to_dense
from graphveil.models.training.private import tensors_of
from graphveil.release.bounded_lists import NOBODY
from graphveil.release.bounded_trees import BoundedTrees


@dataclass(frozen=True, eq=False, repr=False)
class TreeInputs:
    """The trees of those who teach, made when they are needed.

    Shapes: a tree has its places, and one node more for the edges that nobody is at the end of: W rows of d
    numbers, and W - 2 edges from a place to the one above it.

    Args:
        x: features (N, d).
        nodes: who teaches.
        trees: everybody's.
    """

    x: Features
    nodes: Tensor
    trees: BoundedTrees

    @property
    def width(self) -> int:
        """W, the public number of nodes of a tree."""
        return self.trees.places + 1

    @property
    def tensors(self) -> list[Tensor]:
        """All that the trees are made of."""
        return [*tensors_of(self.x), *self.trees.tensors]

    def of(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return some teachers' trees: rows (B, W, d), float32 as features are, and edges (B, 2, W - 2)."""
        nodes = self.trees.of_roots(self.nodes[index])
        there = nodes != NOBODY
        found = to_dense(rows(self.x, nodes.clamp_min(0).flatten()))
        x = found.new_zeros(len(nodes), self.width, found.shape[1])
        x[:, :-1] = found.view(*nodes.shape, -1)
        x[:, :-1].masked_fill_(~there[:, :, None], 0)
        nowhere, below = self.width - 1, there[:, 1:]
        source = torch.where(below, torch.arange(1, nowhere), nowhere)
        return x, torch.stack([source, torch.where(below, self.trees.parents, nowhere)], dim=1)

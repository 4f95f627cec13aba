"""Inputs of a module on bounded trees: the exact features of every node in them."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from graphveil.data import Features
from graphveil.release.steps.bounded_lists import NO_NODE, BoundedTrees
from graphveil.training.records import tensors_of


@dataclass(frozen=True, eq=False, repr=False)
class MultiHopInputs:
    """The trees of training nodes, computed on demand.

    Shapes: a tree has its positions, and one more node as the end of unused edges: W inputs of width d, and
    W - 2 edges from a position to its parent.

    Args:
        x: Features (N, d).
        nodes: Training nodes.
        trees: Trees of all nodes.
        steps_per_pass: Number of steps after which all trees are sampled again.
    """

    x: Features
    nodes: Tensor
    trees: BoundedTrees
    steps_per_pass: int
    _kept: list[Tensor] = field(default_factory=list, init=False)

    @property
    def width(self) -> int:
        """W, the public number of nodes of a tree."""
        return self.trees.places + 1

    @property
    def arrays(self) -> list[Tensor]:
        """All arrays that define the trees."""
        return [*tensors_of(self.x), *self.trees.tensors, self.nodes]

    @property
    def parents(self) -> Tensor:
        """The parent of each position except the root."""
        return self.trees.parents

    def begin(self, step: int) -> None:
        """Sample all trees for the pass of a step."""
        self.trees.draw(step // self.steps_per_pass)

    def take(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return the trees of some training nodes: inputs (B, W, d), float32, and edges (B, 2, W - 2).

        The next call overwrites the inputs.
        """
        nodes = self.trees.of_roots(self.nodes[index])
        there = nodes != NO_NODE
        places = nn.functional.pad(
            nodes, (0, 1), value=NO_NODE
        ).flatten()  # the last position is always empty
        x = self._picked(places.clamp_min(0))
        x.index_fill_(0, (places == NO_NODE).nonzero()[:, 0], 0)
        x = x.view(len(nodes), self.width, -1)
        nowhere, below = self.width - 1, there[:, 1:]
        source = torch.where(below, torch.arange(1, nowhere), nowhere)
        return x, torch.stack([source, torch.where(below, self.trees.parents, nowhere)], dim=1)

    @property
    def _dtype(self) -> torch.dtype:
        return self.x.dtype if isinstance(self.x, Tensor) else torch.float32

    def _picked(self, nodes: Tensor) -> Tensor:
        """Return the features of some nodes, in a reused buffer, which is faster than new memory."""
        shape = (len(nodes), self.x.shape[1])
        if not self._kept or len(self._kept[0]) < shape[0]:
            self._kept[:] = [torch.empty(shape, dtype=self._dtype)]
        out = self._kept[0][: shape[0]]
        if isinstance(self.x, Tensor):
            return torch.index_select(self.x, 0, nodes, out=out)
        self.x[nodes.numpy()].toarray(out=out.numpy())
        return out

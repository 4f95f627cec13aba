"""A push without noise, in plain loops: the specification's formula, for tests."""

import torch
from torch import Tensor

from graphveil.estimators.classcode.node_plan import LEVELS


class ExactPush:
    """Answers pushes along given lists, and keeps what was asked and each source's contribution norm."""

    def __init__(
        self, lists: dict[int, list[int]], num_nodes: int, noise: float = 0.0, seed: int = 0
    ) -> None:
        self.lists, self.num_nodes, self.noise = lists, num_nodes, noise
        self.generator = torch.Generator().manual_seed(seed)
        self.asked: list[tuple[Tensor, Tensor]] = []

    def __call__(self, vectors: Tensor, levels: Tensor) -> Tensor:
        self.asked.append((vectors.clone(), levels.clone()))
        rows = self.mean(vectors, levels)
        rows += self.noise * torch.randn(rows.shape, generator=self.generator).double()
        return torch.where(levels[:, None] > 0, rows, 0.0).float()

    def mean(self, vectors: Tensor, levels: Tensor) -> Tensor:
        """Return the sums that noise is added to."""
        squared = torch.tensor(LEVELS).double()[levels] / 16
        rows = torch.zeros(self.num_nodes, vectors.shape[1]).double()
        for u, own in self.lists.items():
            total = max(1.0, float(squared[own].sum()))
            for v in own:
                rows[v] += (squared[v] / total).sqrt() * vectors[u]
        return rows

"""An out-edge aggregation without noise, in plain loops: the formula of the proof, for tests."""

import torch
from torch import Tensor

from graphveil.estimators.classcode.node import LEVELS


class ExactAggregation:
    """Aggregates along given out-edges, and stores the vectors and levels of each call."""

    def __init__(
        self, out_neighbors: dict[int, list[int]], num_nodes: int, noise: float = 0.0, seed: int = 0
    ) -> None:
        self.out_neighbors, self.num_nodes, self.noise = out_neighbors, num_nodes, noise
        self.generator = torch.Generator().manual_seed(seed)
        self.calls: list[tuple[Tensor, Tensor]] = []

    def __call__(self, vectors: Tensor, levels: Tensor) -> Tensor:
        self.calls.append((vectors.clone(), levels.clone()))
        rows = self.mean(vectors, levels)
        rows += self.noise * torch.randn(rows.shape, generator=self.generator).double()
        return torch.where(levels[:, None] > 0, rows, 0.0).float()

    def mean(self, vectors: Tensor, levels: Tensor) -> Tensor:
        """Return the sums that noise is added to."""
        squared = torch.tensor(LEVELS).double()[levels] / 16
        rows = torch.zeros(self.num_nodes, vectors.shape[1]).double()
        for source, targets in self.out_neighbors.items():
            total = max(1.0, float(squared[targets].sum()))
            for target in targets:
                rows[target] += (squared[target] / total).sqrt() * vectors[source]
        return rows

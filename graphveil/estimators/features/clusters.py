"""Clusters of public features, for graphs whose features do not predict the class of their own node."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from graphveil.data import Features
from graphveil.data.features import rows, to_dense
from graphveil.errors import ArtifactError
from graphveil.estimators.method import State

_SAMPLE = 1 << 13  # rows that the centers are fitted on
_CHUNK = 1 << 14
_ITERATIONS = 20


@dataclass(frozen=True)
class FeatureClusters:
    """The nearest of K centers in standardized features, as a linear classifier.

    A row x belongs to the center c that maximizes <x, w_c> - b_c, where w_c = c / s^2, b_c = |c / s|^2 / 2,
    and s are the standard deviations of the columns.

    Args:
        weights: w, shape (K, d).
        offsets: b, shape (K).

    >>> import torch
    >>> x = torch.tensor([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    >>> FeatureClusters.fit(x, 8, torch.Generator()).assign(x).tolist()
    [0, 0, 1]
    """

    weights: Tensor
    offsets: Tensor

    @classmethod
    def fit(cls, x: Features, clusters: int, generator: torch.Generator) -> "FeatureClusters":
        """Fit at most this many centers by k-means on a sample of the rows, the first centers far apart."""
        sample = torch.randperm(x.shape[0], generator=generator)[:_SAMPLE].sort().values
        points = to_dense(rows(x, sample)).to(torch.float64)
        spread = points.std(dim=0, correction=0)
        scale = torch.where(spread > 0, spread, math.inf)  # a constant column says nothing
        points = points / scale
        centers = points[:1]
        while len(centers) < clusters:
            distance = torch.cdist(points, centers).min(dim=1).values
            if float(distance.max()) == 0.0:
                break  # every row is one of the centers
            centers = torch.cat([centers, points[distance.argmax()][None]])
        for _ in range(_ITERATIONS):
            nearest = torch.cdist(points, centers).argmin(dim=1)
            sizes = torch.bincount(nearest, minlength=len(centers))
            sums = torch.zeros_like(centers).index_add_(0, nearest, points)
            centers = torch.where(sizes[:, None] > 0, sums / sizes.clamp_min(1)[:, None], centers)
        return cls((centers / scale).float(), (centers.square().sum(dim=1) / 2).float())

    def assign(self, x: Features) -> Tensor:
        """Return the cluster of each row, (N)."""
        parts = torch.split(torch.arange(x.shape[0]), _CHUNK)
        scores = [to_dense(rows(x, part)).float() @ self.weights.T - self.offsets for part in parts]
        return torch.cat(scores).argmax(dim=1)

    def state(self) -> State:
        """Return the parameters as tensors by name."""
        return {"clusters/weights": self.weights, "clusters/offsets": self.offsets}

    @classmethod
    def restore(cls, state: State, width: int) -> "FeatureClusters":
        """Return the clusters from the result of ``state``.

        Raises:
            ArtifactError: If they are not those of this number of features.
        """
        weights, offsets = state["clusters/weights"], state["clusters/offsets"]
        if weights.shape != (len(offsets), width):
            raise ArtifactError(
                f"the model's clusters are not those of {width} features; take them from the original run"
            )
        return cls(weights, offsets)

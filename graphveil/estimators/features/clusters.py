"""Clusters of public features, for graphs where features alone do not predict the class."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphveil._util.kmeans import k_means
from graphveil.core.features import Features, rows, to_dense
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
        points = to_dense(rows(x, sample)).numpy().astype(np.float64)
        spread = points.std(axis=0)
        scale = np.where(spread > 0, spread, np.inf)  # a constant column says nothing
        points /= scale
        first, distance = [0], np.square(points - points[0]).sum(axis=1)
        while len(first) < clusters and distance.max() > 0.0:
            first.append(int(distance.argmax()))
            distance = np.minimum(distance, np.square(points - points[first[-1]]).sum(axis=1))
        centers = k_means(points, points[first], _ITERATIONS)
        weights, offsets = centers / scale, np.square(centers).sum(axis=1) / 2
        return cls(torch.from_numpy(weights).float(), torch.from_numpy(offsets).float())

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
                f"The model's clusters do not fit {width} features. Copy the model folder from the "
                "original run again."
            )
        return cls(weights, offsets)

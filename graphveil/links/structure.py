"""Positions of nodes from noisy counts of their neighbors by cluster; all of it is post-processing."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil._util.clustering import k_means, nearest_center

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

_SAMPLE, _ROUNDS = 20_000, 10  # nodes and rounds of k-means
_ROWS = 1 << 16  # per chunk
_TAILS = 4.0  # positions have longer tails than a normal prior, which would shrink large ones too much
_RIDGE = 1e-3


def clusters(points: Tensor, count: int, rng: np.random.Generator) -> Ids:
    """Return the cluster of each node by k-means, whose centers are fitted to a random sample.

    >>> points = torch.tensor([[0.0], [0.1], [5.0], [5.1]])
    >>> found = clusters(points, 2, np.random.default_rng(0))
    >>> bool(found[0] == found[1] != found[2] == found[3])
    True
    """
    values = points.numpy()
    sample = values[rng.permutation(len(values))[:_SAMPLE]].astype(np.float64)
    centers = k_means(sample, sample[:count], _ROUNDS)
    parts = (values[first : first + _ROWS] for first in range(0, len(values), _ROWS))
    return np.concatenate([nearest_center(part.astype(np.float64), centers) for part in parts])


@dataclass(frozen=True, eq=False)
class Positions:
    """Posterior means of the nodes' latent positions, float32 (N, r), and the sum of their variances (N)."""

    mean: Tensor
    variance: Tensor

    @property
    def directions(self) -> Tensor:
        """Positions over their expected length: shorter than one, and close to zero if little is known."""
        length = (self.mean.square().sum(dim=1) + self.variance).sqrt().clamp_min(1e-6)
        return self.mean / length[:, None]


def positions(counts: Floats, degrees: Floats, noise: float, known: tuple[Tensor, ...]) -> Positions:
    """Return the positions of nodes given noisy counts of their neighbors by cluster.

    A count is expected to be the product of the node's degree and the cluster's share of all ends. The
    differences, divided by the standard deviation of a Poisson count and its noise, have unit variance in
    each direction that shows no structure. Directions with more variance are kept, and at least one. In
    these the rows are noisy observations of positions. Their prior mean is a linear function of ``known``,
    fitted by least squares, and the variance around it is estimated by moments.

    Args:
        counts: Noisy counts, shape (N, C).
        degrees: Expected number of counted ends of each node, shape (N).
        noise: Standard deviation of the noise of a count.
        known: Public or released tables (N, d) that predict positions.
    """
    nodes, columns = counts.shape
    shares = np.maximum(counts.sum(axis=0), 1.0) / degrees.sum()
    rows = np.empty((nodes, columns), dtype=np.float32)
    for first in range(0, nodes, _ROWS):
        some = slice(first, first + _ROWS)
        expected = degrees[some, None] * shares
        rows[some] = (counts[some] - expected) / np.sqrt(expected + noise**2)
    values, basis = np.linalg.eigh((rows.T @ rows).astype(np.float64) / nodes)
    kept = max(1, int((values > (1 + math.sqrt(columns / nodes)) ** 2).sum()))
    basis = basis[:, ::-1][:, :kept]
    seen = (rows @ basis.astype(np.float32)).astype(np.float64)
    # An observation is gain * position + unit noise; the gain grows with the number of counted ends.
    gain = degrees / np.sqrt(degrees + columns * noise**2)
    gain /= math.sqrt(np.square(gain).mean())
    predicted = _predicted(seen, gain, known)
    precision = np.square(gain)[:, None]
    excess = (np.square(seen - gain[:, None] * predicted) - 1) * precision
    variance = _TAILS * np.maximum(excess.sum(axis=0) / np.square(precision).sum(), 1e-4)
    certainty = precision + 1 / variance
    mean = (gain[:, None] * seen + predicted / variance) / certainty
    return Positions(
        torch.from_numpy(mean.astype(np.float32)),
        torch.from_numpy((1 / certainty).sum(axis=1).astype(np.float32)),
    )


def _predicted(seen: Floats, gain: Floats, known: tuple[Tensor, ...]) -> Floats:
    """Return the positions that ``known`` predicts, by ridge regression of ``seen`` over ``gain``."""

    def regressors(some: slice) -> Floats:
        given = [table[some].numpy().astype(np.float64) for table in known]
        return np.concatenate([*given, np.ones((len(given[0]), 1))], axis=1)

    width = sum(table.shape[1] for table in known) + 1
    moments, products = np.eye(width), np.zeros((width, seen.shape[1]))
    chunks = [slice(first, first + _ROWS) for first in range(0, len(seen), _ROWS)]
    for some in chunks:
        weighted = regressors(some) * gain[some, None]
        moments += weighted.T @ weighted
        products += weighted.T @ seen[some]
    moments += np.eye(width) * (_RIDGE * np.trace(moments) / width)
    weights = np.linalg.solve(moments, products)
    return np.concatenate([regressors(some) @ weights for some in chunks])

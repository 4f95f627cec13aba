"""Scores of node pairs from released sums, all of it post-processing.

Degrees, interactions, clusters and positions of nodes, a discriminant of pairs, and noisy metrics.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil._util.clustering import k_means, nearest_center
from graphveil.core.queries.pair_sums import TABLE_BITS, PairTerms
from graphveil.training.metrics import Interval

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]
Metric = Callable[[Floats, Floats, float], Floats]

CLIP = 5.0  # standard deviations at which features of a pair are clipped in sums over edges
VECTOR_STEPS = 1 << TABLE_BITS - 1  # in one: a multiple of the grid of products, which follow from the table
TERMS = 3  # cosine of features, interaction, and degrees; counts by cluster add one each
_LEAST_RATE = 0.1  # of the mean degree, for nodes whose noisy count is lower
_ROUNDS = 20  # of the moment estimate
_RIDGE, _LEAST_SPREAD = 1e-3, 0.02  # of the mean variance of a feature
_DRAWS, _TAIL = 2000, 0.025  # of the noise, on each side
# Shares of random pairs below the bounds of cells: most edges have high scores.
_LOW, _HIGH = (0.25, 0.5, 0.7, 0.8, 0.86, 0.9, 0.93, 0.95), (0.965, 0.975, 0.983, 0.989, 0.993, 0.996, 0.998)
QUANTILES = np.array([*_LOW, *_HIGH, 0.999])
_CENTER_SAMPLE, _K_MEANS_ROUNDS = 20_000, 10  # nodes and rounds of k-means
_ROWS = 1 << 16  # per chunk
_TAILS = 4.0  # positions have longer tails than a normal prior, which would shrink large ones too much
_POSITION_RIDGE = 1e-3


def expected_degrees(counts: Floats, noise_variance: float) -> Floats:
    """Return the expected degree of each node given noisy counts, which are shrunk toward their mean.

    A count with Poisson variance and noise is shrunk by the share of the variance that is of degrees.

    >>> expected_degrees(np.array([0.0, 10.0, 2.0]), 0.0).round(1).tolist()
    [0.9, 8.7, 2.4]
    """
    mean = max(float(counts.mean()), 0.05)
    own = max(float(counts.var()) - noise_variance - mean, 0.05 * mean**2)
    rates: Floats = np.maximum(
        mean + (counts - mean) * own / (own + noise_variance + mean), _LEAST_RATE * mean
    )
    return rates


def interaction(
    products: Floats, vectors: Tensor, sources: Floats, targets: Floats, edges: float, sigma: float
) -> Floats:
    """Return M of the model: the rate of an edge is proportional to s_u t_v (1 + x_u^T M x_v).

    Under the model the sum W of products has mean m (a b^T + A M B): a and A are the mean and the second
    moment of x weighted by s, b and B those weighted by t. M is the posterior mean for independent normal
    entries, whose variance is estimated from W by moments. In the eigenvectors of A and B an entry of W has
    noise and sampling error.

    Args:
        sources, targets: Rates s and t of nodes, shape (N).
        edges: Noisy number m of edges.
        sigma: Standard deviation of the noise of W.
    """
    mean_s, values_s, basis_s = _moments(vectors, sources)
    mean_t, values_t, basis_t = _moments(vectors, targets)
    found = basis_s.T @ (products - edges * np.outer(mean_s, mean_t)) @ basis_t
    gain = edges * np.outer(values_s, values_t)
    error = gain + sigma**2
    if sources is targets:  # symmetric: entries off the diagonal have half of the variance
        error = error * np.where(np.eye(len(error), dtype=bool), 1.0, 0.5)
    variance = max(_moment_ratio(found, gain, error, gain**2 / error**2), 1e-12)
    for _ in range(_ROUNDS):
        weight = gain**2 / (error + variance * gain**2) ** 2
        variance = max(_moment_ratio(found, gain, error, weight), 1e-9)
    posterior: Floats = basis_s @ (gain * found / (gain**2 + error / variance)) @ basis_t.T
    return posterior


def _moments(vectors: Tensor, rates: Floats) -> tuple[Floats, Floats, Floats]:
    width, total = vectors.shape[1], rates.sum()
    mean, second = np.zeros(width), np.zeros((width, width))
    for first in range(0, len(vectors), 1 << 16):
        some = vectors[first : first + (1 << 16)].numpy().astype(np.float64)
        scaled = some * (rates[first : first + len(some)] / total)[:, None]
        mean += scaled.sum(axis=0)
        second += scaled.T @ some
    values, basis = np.linalg.eigh((second + second.T) / 2)
    return mean, np.maximum(values, 1e-9), basis


def _moment_ratio(found: Floats, gain: Floats, error: Floats, weight: Floats) -> float:
    return float((weight * (found**2 - error)).sum() / (weight * gain**2).sum())


def clusters(points: Tensor, count: int, rng: np.random.Generator) -> Ids:
    """Return the cluster of each node by k-means, whose centers are fitted to a random sample.

    >>> points = torch.tensor([[0.0], [0.1], [5.0], [5.1]])
    >>> found = clusters(points, 2, np.random.default_rng(0))
    >>> bool(found[0] == found[1] != found[2] == found[3])
    True
    """
    values = points.numpy()
    sample = values[rng.permutation(len(values))[:_CENTER_SAMPLE]].astype(np.float64)
    centers = k_means(sample, sample[:count], _K_MEANS_ROUNDS)
    parts = (values[first : first + _ROWS] for first in range(0, len(values), _ROWS))
    return np.concatenate([nearest_center(part.astype(np.float64), centers) for part in parts])


def positions(
    counts: Floats, degrees: Floats, noise: float, known: tuple[Tensor, ...]
) -> tuple[Tensor, Tensor]:
    """Return latent positions of nodes and their directions, given noisy counts of neighbors by cluster.

    A count is expected to be the product of the node's degree and the cluster's share of all ends. The
    differences, divided by the standard deviation of a Poisson count and its noise, have unit variance in
    each direction that shows no structure. Directions with more variance are kept, and at least one. In
    these the rows are noisy observations of positions. Their prior mean is a linear function of ``known``,
    fitted by least squares, and the variance around it is estimated by moments.

    Both results are float32 (N, r). A direction is the posterior mean over its expected length: it is shorter
    than one, and close to zero if little is known.

    Args:
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
    found = torch.from_numpy(mean.astype(np.float32))
    spread = torch.from_numpy((1 / certainty).sum(axis=1).astype(np.float32))
    length = (found.square().sum(dim=1) + spread).sqrt().clamp_min(1e-6)
    return found, found / length[:, None]


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
    moments += np.eye(width) * (_POSITION_RIDGE * np.trace(moments) / width)
    weights = np.linalg.solve(moments, products)
    return np.concatenate([regressors(some) @ weights for some in chunks])


def pair_terms(
    vectors: Tensor,
    matrix: Floats,
    sources: Floats,
    targets: Floats,
    directions: list[Tensor],
    *,
    symmetric: bool,
) -> PairTerms:
    """Return the features of a pair without scaling.

    They are the cosine, the interaction, the sum of log degrees, and the cosines of released positions.
    """
    given = (vectors * VECTOR_STEPS).trunc()
    if symmetric:  # both ends use one table, so that a pair has one score in both directions
        values, basis = np.linalg.eigh((matrix + matrix.T) / 2)
        root = torch.from_numpy((basis * np.sqrt(np.abs(values))).astype(np.float32))
        left = whole_table(vectors @ root)
        right = left * torch.from_numpy(np.sign(values).astype(np.float32))
    else:
        left, right = whole_table(vectors @ torch.from_numpy(matrix.astype(np.float32))), given
    logs = np.stack([np.log(sources) - np.log(sources.mean()), np.log(targets) - np.log(targets.mean())])
    steps = ((1 << TABLE_BITS - 1) / max(float(np.abs(logs).max()), 1.0)) * logs
    ours, theirs = (torch.from_numpy(np.trunc(row)).to(torch.float32) for row in steps)
    ones = torch.ones_like(ours)
    both, count = tuple(map(whole_table, directions)), TERMS + len(directions)
    return PairTerms(
        (given, left, torch.stack([ours, ones], dim=1), *both),
        (given, right, torch.stack([ones, theirs], dim=1), *both),
        torch.zeros(count, dtype=torch.float64),
        torch.ones(count, dtype=torch.float64),
    )


def whole_table(table: Tensor) -> Tensor:
    largest = max(float(table.abs().max()), 1e-12)
    return (table * ((1 << TABLE_BITS - 1) / largest)).trunc_()


def discriminant(sums: Floats, sample: Floats, noise: float) -> tuple[Floats, float]:
    """Return the weights and the offset of a linear discriminant between edges and all pairs.

    The weights are w = S^-1 (mean of edges - mean of all pairs), from noisy sums of features over edges.

    S is the mean of the covariances of edges and of all pairs. A difference of means is shrunk by the share
    of its square that the noise explains, and the covariance of edges toward that of all pairs.

    Args:
        sums: Noisy sums over edges: of K clipped features, of their products, and the number of edges.
        sample: Clipped features of public random pairs, shape (P, K).
    """
    count = sample.shape[1]
    edges = max(float(sums[-1]), noise, 1.0)
    center, mean = sample.mean(axis=0), np.clip(sums[:count] / edges, -1.0, 1.0)
    difference = mean - center
    difference *= np.maximum(0.0, 1 - (noise / edges) ** 2 / np.maximum(difference**2, 1e-12))
    spread = np.atleast_2d(np.cov(sample.T))
    size = np.trace(spread) / count + 1e-12
    products = np.zeros((count, count))
    products[np.triu_indices(count)] = sums[count:-1] / edges
    of_edges = products + np.triu(products, 1).T - np.outer(mean, mean)
    known = 1 / (1 + (noise / edges / size) ** 2)
    values, basis = np.linalg.eigh(known * of_edges + (1 - known) * spread)
    of_edges = (basis * np.maximum(values, _LEAST_SPREAD * size)) @ basis.T
    pooled = (spread + of_edges) / 2 + _RIDGE * size * np.eye(count)
    weights = np.linalg.solve(pooled, difference)
    return weights, -float(weights @ (center + difference / 2))


def noisy_metrics(
    histogram: Floats, shares: Floats, sigma: float, rng: np.random.Generator
) -> dict[str, Interval]:
    """Return ROC-AUC and average precision of held-out edges against random pairs, with intervals.

    Average precision is for as many random pairs as edges. The interval contains the exact value of these
    held-out edges with at least 95 % confidence: it covers the noise, and every order within a cell.

    Args:
        histogram: Noisy numbers of edges by cell of the score, ascending.
    """
    possible = histogram - sigma * rng.standard_normal((_DRAWS, len(histogram)))

    def interval(metric: Metric) -> Interval:
        value = float(metric(histogram[None], shares, 0.5)[0])
        low = min(value, float(np.quantile(metric(possible, shares, 0.0), _TAIL)))
        high = max(value, float(np.quantile(metric(possible, shares, 1.0), 1 - _TAIL)))
        return Interval(*(float(np.clip(bound, 0.0, 1.0)) for bound in (value, low, high)))

    return {"roc_auc": interval(_roc_auc), "average_precision": interval(_average_precision)}


class ScoreCurves(NamedTuple):
    """Points of curves over all thresholds, as lists of [x, y]: noisy and public.

    Attributes:
        precision_recall: Recall and precision, ascending, for as many random pairs as edges.
    """

    roc: list[list[float]]
    precision_recall: list[list[float]]


def score_curves(histogram: Floats, shares: Floats) -> ScoreCurves:
    """Return the curves of a noisy histogram of held-out edges, made monotone, against random pairs.

    >>> score_curves(np.array([0.0, 4.0]), np.array([1.0, 0.0])).roc
    [[0.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    """
    above = np.cumsum(histogram[::-1])
    found = np.clip(np.maximum.accumulate(above) / max(above.max(), 1.0), 0.0, 1.0)
    wrong = np.minimum(np.cumsum(shares[::-1]), 1.0)
    points = np.round(np.column_stack([np.r_[0.0, wrong], np.r_[0.0, found]]), 6)
    precision = found / np.maximum(found + wrong, 1e-12)
    places = np.round(np.column_stack([found, precision]), 6)
    return ScoreCurves(points.tolist(), places.tolist())


def _roc_auc(counts: Floats, shares: Floats, place: float) -> Floats:
    """Return the share of random pairs below an edge; ``place`` is that of its own cell below it."""
    below = np.cumsum(shares) - shares + place * shares
    ordered: Floats = counts @ below / np.maximum(counts.sum(axis=1), 1.0)
    return ordered


def _average_precision(counts: Floats, shares: Floats, place: float) -> Floats:
    """Return the precision at each edge, averaged; ``place`` is the share of its own cell below it."""
    gain = counts / np.maximum(counts.sum(axis=1), 1.0)[:, None]
    above = 1 - np.cumsum(shares) + (1 - place) * shares
    hits = np.clip(np.cumsum(gain[:, ::-1], axis=1)[:, ::-1] - gain * (1 - place), 0.0, 1.0)
    total: Floats = (gain * hits / np.maximum(hits + above, 1e-12)).sum(axis=1)
    return total

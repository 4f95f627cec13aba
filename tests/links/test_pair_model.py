"""The model of pairs against its own assumptions: the interaction, the discriminant, and their offsets."""

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from graphveil.links.pair_model import (
    discriminant,
    expected_degrees,
    interaction,
    noisy_metrics,
    score_curves,
)


def drawn_features(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features of edges and of all pairs: means and covariances without any symmetry."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(count, count)) * 0.04 + 0.15 * np.eye(count)
    edges, pairs = (rng.normal(size=(200_000, count)) @ root.T for _ in range(2))
    return edges + rng.uniform(0.1, 0.3, count), pairs - rng.uniform(0.0, 0.3, count)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_discriminant_is_the_log_odds_of_normal_features(count: int, seed: int) -> None:
    edges, pairs = drawn_features(count, seed)
    products = (edges.T @ edges)[np.triu_indices(count)]
    weights, offset = discriminant(np.r_[edges.sum(axis=0), products, len(edges)], pairs, 1e-9)
    laws = [multivariate_normal(part.mean(axis=0), np.atleast_2d(np.cov(pairs.T))) for part in (edges, pairs)]
    points = np.concatenate([edges[:200], pairs[:200]])
    odds = laws[0].logpdf(points) - laws[1].logpdf(points)
    scores = points @ weights + offset
    error = np.abs(scores - odds) / (1 + np.abs(odds))
    assert error.max() < 0.05  # values, and not only their order


@pytest.mark.parametrize("symmetric", [True, False])
def test_the_interaction_of_exact_sums_is_that_of_the_model(symmetric: bool) -> None:
    rng, nodes, width = np.random.default_rng(3), 400, 3
    vectors = torch.from_numpy(rng.normal(size=(nodes, width)) / 3)
    x = vectors.numpy()
    matrix = rng.normal(size=(width, width)) * 0.2
    sources = rng.uniform(0.5, 3, nodes)
    targets = sources if symmetric else rng.uniform(0.5, 3, nodes)
    if symmetric:
        matrix = (matrix + matrix.T) / 2
    edges, (s, t) = 1e9, (one / one.sum() for one in (sources, targets))
    rates = np.outer(s, t) * (1 + x @ matrix @ x.T)
    found = interaction(edges * x.T @ rates @ x, vectors, sources, targets, edges, 1.0)
    np.testing.assert_allclose(found, matrix, atol=1e-3)


def test_degrees_are_shrunk_by_the_noise_of_their_counts() -> None:
    rng = np.random.default_rng(0)
    rates = rng.gamma(2.0, 3.0, size=200_000)
    for std in (0.0, 1.0, 5.0):
        counts = rng.poisson(rates) + std * rng.normal(size=len(rates))
        found = expected_degrees(counts, std**2)
        assert found.mean() == pytest.approx(6.0, rel=0.05)
        slope = np.polyfit(found, rates, 1)[0]  # of an expectation given the counts
        assert slope == pytest.approx(1.0, abs=0.05), std


def test_curves_of_exact_counts_have_the_area_of_the_metrics() -> None:
    rng = np.random.default_rng(1)
    histogram, shares = rng.uniform(0, 90, 16), rng.dirichlet(np.ones(16))
    curves, found = score_curves(histogram, shares), noisy_metrics(histogram, shares, 1e-9, rng)
    x, y = np.array(curves.roc).T
    assert np.trapezoid(y, x) == pytest.approx(found["roc_auc"].value, abs=1e-5)
    recall, precision = np.array(curves.precision_recall).T
    of_interval = found["average_precision"]
    area = np.diff(recall) @ precision[1:]
    assert of_interval.low - 1e-4 <= area <= of_interval.high + 1e-4

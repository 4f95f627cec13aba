"""The posterior of a label given reported labels of neighbors: exact cases, and a gain over a report."""

import math

import numpy as np
import pytest
import torch

from graphveil.core.edges.adjacency import Adjacency
from graphveil.local.posterior_mixture import (
    EdgeContext,
    EpochScore,
    NoisyLabels,
    PosteriorContext,
    class_shares,
    product_posterior,
)
from graphveil.mechanisms import LabelRR, LocalNoise

GROUPS, SIZE = 3, 30


def noisy_labels(labels: torch.Tensor, law: LabelRR) -> NoisyLabels:
    known = (labels >= 0).nonzero()[:, 0]
    return NoisyLabels(labels=labels, law=law, train=known, val=known[:0])


def log_posterior(labels: torch.Tensor, law: LabelRR, adjacency: Adjacency, steps: int) -> torch.Tensor:
    return PosteriorContext(noisy_labels(labels, law), EdgeContext(adjacency, steps)).log_posterior


def channel(law: LabelRR) -> torch.Tensor:
    return torch.from_numpy(law.transition).float()


def groups() -> tuple[Adjacency, torch.Tensor]:
    """Return three groups of thirty, ten neighbors each, nine tenths of them in the same group."""
    rng = np.random.default_rng(0)
    truth = np.arange(GROUPS * SIZE) % GROUPS
    source = np.repeat(np.arange(len(truth)), 5)
    inside = rng.random(len(source)) < 0.9
    other = np.where(inside, truth[source], rng.integers(GROUPS, size=len(source)))
    target = rng.integers(SIZE, size=len(source)) * GROUPS + other
    return Adjacency.from_edges(source, target, num_nodes=len(truth), directed=False), torch.from_numpy(truth)


def test_an_isolated_node_has_the_posterior_of_its_label() -> None:
    law = LabelRR(epsilon=1.0, classes=2)
    no_edges = Adjacency.from_edges([], [], num_nodes=4, directed=False)
    labels = torch.tensor([0, 0, 1, -1])
    found = log_posterior(labels, law, no_edges, 4).exp()
    shares = class_shares(torch.tensor([2 / 3, 1 / 3]), channel(law))
    expected = shares * torch.tensor([law.keep, law.change])
    assert torch.allclose(found[0], expected / expected.sum())
    assert torch.allclose(found[3], shares)


def test_labels_that_were_not_randomized_are_certain() -> None:
    law = LabelRR(epsilon=math.inf, classes=GROUPS)
    adjacency, truth = groups()
    labels = truth.clone()
    labels[::4] = -1
    found = log_posterior(labels, law, adjacency, 2)
    assert torch.isfinite(found[::4]).all()
    assert torch.equal(found.argmax(dim=1), truth)
    proba = product_posterior(torch.full((len(truth), GROUPS), 1 / GROUPS), found)
    assert torch.allclose(proba.sum(dim=1), torch.ones(len(truth)))


def test_the_posterior_is_more_accurate_than_the_reports() -> None:
    law = LabelRR(epsilon=1.0, classes=GROUPS)
    adjacency, truth = groups()
    right = []
    for seed in range(5):
        noise = LocalNoise(unsafe_noise_seed=seed).stream("labels")
        labels = torch.from_numpy(law.perturb(truth.numpy(), stream=noise))
        labels[::4] = -1
        found = log_posterior(labels, law, adjacency, 4)
        right.append(float((found.argmax(dim=1) == truth).float().mean()))
    assert np.mean(right) > law.keep + 0.25


def test_shares_are_unbiased_and_above_zero() -> None:
    law = LabelRR(epsilon=1.0, classes=3)
    exact = torch.tensor([0.5, 0.3, 0.2])
    assert torch.allclose(class_shares(exact @ channel(law), channel(law)), exact, atol=1e-6)
    assert (class_shares(torch.tensor([1.0, 0.0, 0.0]), channel(law)) > 0).all()


@pytest.mark.parametrize(("loss", "kept"), [(1.1, True), (1.3, False)])
def test_selection_by_likelihood_compares_the_loss(loss, kept) -> None:
    assert (
        EpochScore(loss, 0.0, 0.0).improves_on(EpochScore(1.2, 0.9, 0.9), keep=0.5, select="likelihood")
        is kept
    )

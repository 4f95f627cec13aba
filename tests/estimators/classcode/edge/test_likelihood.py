"""Affinities and the mixture likelihood recover what a planted graph hides."""

import torch

from graphveil.estimators.classcode.codes import simplex_codes
from graphveil.estimators.classcode.edge_rows import (
    Signal,
    affinity_from_counts,
    fit_shape,
    row_log_likelihood,
)


def test_noiseless_counts_give_the_exact_affinities() -> None:
    cells = torch.tensor([[1000.0, 200.0], [0.0, 3000.0]])  # edges within class 0, across, within class 1
    labels = torch.tensor([0] * 100 + [1] * 100)
    affinity = affinity_from_counts(cells, 1e-6, labels, num_nodes=200)
    expected = torch.tensor([[2000 / 2200, 200 / 2200], [200 / 6200, 6000 / 6200]], dtype=torch.float64)
    torch.testing.assert_close(affinity.neighbors, expected, rtol=1e-6, atol=1e-6)
    assert abs(affinity.mean_degree - 8400 / 200) < 1e-6


def test_directed_counts_are_read_from_the_receiving_side() -> None:
    cells = torch.tensor([[10.0, 90.0], [0.0, 100.0]]) * 100  # rows: source class; columns: target class
    affinity = affinity_from_counts(cells, 1e-6, torch.tensor([0, 1] * 50), num_nodes=100, directed=True)
    assert float(affinity.neighbors[0, 0]) > 0.99
    assert abs(float(affinity.neighbors[1, 0]) - 90 / 190) < 0.01


def test_counts_drowned_in_noise_fall_back_to_the_class_shares() -> None:
    cells = torch.tensor([[100.0, -300.0, 80.0], [0.0, 40.0, 120.0], [0.0, 0.0, 500.0]])
    affinity = affinity_from_counts(cells, 1e6, torch.tensor([0, 1, 2] * 30), num_nodes=90)
    assert bool((affinity.neighbors > 0).all())
    torch.testing.assert_close(affinity.neighbors.sum(dim=1), torch.ones(3, dtype=torch.float64))
    across = affinity.neighbors[~torch.eye(3, dtype=torch.bool)]
    assert float(across.max() - across.min()) < 1e-3


def test_the_likelihood_points_rows_to_the_class_that_sent_them() -> None:
    generator = torch.Generator().manual_seed(0)
    codes = simplex_codes(3)
    labels = torch.randint(3, (600,), generator=generator)
    means = 0.7 * codes
    rows = 5 * means[labels] + torch.randn(600, 2, generator=generator, dtype=torch.float64)
    length = torch.full((600,), 5.0, dtype=torch.float64)
    likelihood = row_log_likelihood(rows, Signal(length, means, torch.ones(())), 0.6, 0.0)
    assert float((likelihood.argmax(dim=1) == labels).float().mean()) > 0.95


def test_rows_without_signal_leave_the_prior_nearly_alone() -> None:
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(3, (900,), generator=generator)
    prior = torch.nn.functional.one_hot(labels, 3).double().mul(2).log_softmax(dim=1)
    rows = torch.randn(900, 2, generator=generator, dtype=torch.float64)
    length = torch.full((900,), 1e-3, dtype=torch.float64)
    signal = Signal(length, 0.5 * simplex_codes(3), torch.ones(()))
    _, updated = fit_shape(rows, signal, prior, labels, torch.arange(900))
    torch.testing.assert_close(updated.exp(), prior.exp(), atol=0.01, rtol=0)

"""Softmax regression on records: step size, scaling of rows, and logits shrunk by the noise."""

import math

import numpy as np
import pytest
import torch
from contracts.steps import SilentRelease
from scipy import sparse

from graphveil.core.features import rows, to_dense
from graphveil.core.queries.training_steps import DPSGDQuery
from graphveil.estimators.classcode.node import encoder_schedule
from graphveil.estimators.private_training import NoisySoftmax, fit_softmax, scaled_rows


def fit(x, y: torch.Tensor, labeled: torch.Tensor, noise_multiplier: float = 1.0) -> NoisySoftmax:
    query = DPSGDQuery(parameters=(x.shape[1] + 1) * 2, steps=60, noise_multiplier=noise_multiplier)
    descent, nodes = encoder_schedule(60, noise_multiplier, int(labeled.sum())), labeled.nonzero()[:, 0]
    return fit_softmax(SilentRelease(), query, rows(x, nodes), y[nodes], 2, descent)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("records", "noise_multiplier", "rate", "weight_noise"),
    [
        (11925, 91.3814, 5.814784, 0.242554),
        (11925, 14.7025, 60, 0.402681),
        (14235, 91.3814, 7.319853, 0.255787),
    ],
)
def test_golden_step_size(records: int, noise_multiplier: float, rate: float, weight_noise: float) -> None:
    descent = encoder_schedule(60, noise_multiplier, records)
    assert descent.learning_rate == pytest.approx(rate, rel=2e-6)
    assert noise_multiplier / records * descent.averaged_noise == pytest.approx(weight_noise, rel=5e-6)


def test_the_step_size_stays_in_its_range() -> None:
    assert encoder_schedule(60, 1e6, 100).learning_rate == 2
    assert encoder_schedule(60, 0.1, 10**6).learning_rate == 60


def test_every_row_is_scaled_independently() -> None:
    x = torch.tensor([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0], [1e-30, 0.0, 0.0], [1e30, 1e30, 0.0]])
    dense = scaled_rows(x)
    assert dense.dtype == np.float64
    np.testing.assert_allclose(np.linalg.norm(dense, axis=1), [5, 0, 5, 5])
    csr = scaled_rows(sparse.csr_array(x.numpy()))
    np.testing.assert_allclose(csr.toarray(), dense)


def test_logits_are_shrunk_by_their_noise() -> None:
    x, weights = torch.tensor([[3.0, 4.0], [0.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.5, 0.0]])
    log = NoisySoftmax(weights.double(), 0.3).log_posteriors(x)
    long = math.sqrt(1 + math.pi / 8 * (25 + 1) * 0.09)
    short = math.sqrt(1 + math.pi / 8 * 0.09)
    expected = torch.tensor([[3.5 / long, 8 / long], [0.5 / short, 0.0]]).double().log_softmax(dim=1)
    torch.testing.assert_close(log, expected, rtol=1e-6, atol=1e-6)


def test_learns_from_dense_and_sparse_features() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(200) % 2
    x = torch.randn(200, 6, generator=generator) + 1.5 * y[:, None]
    labeled = torch.arange(200) < 150
    encoder = fit(x, y, labeled)
    assert (encoder.log_posteriors(x).argmax(dim=1) == y)[~labeled].float().mean() > 0.9
    assert encoder.weight_noise == pytest.approx(encoder_schedule(60, 1.0, 150).averaged_noise / 150)
    again = fit(sparse.csr_array(x.numpy()), y, labeled)
    torch.testing.assert_close(again.weights, encoder.weights)


def test_null_records_contribute_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(40, 3, generator=generator), torch.arange(40) % 2
    labeled = torch.arange(40) < 30
    encoder = fit(x, y, labeled)
    torch.testing.assert_close(fit(x, torch.where(labeled, y, -1), labeled).weights, encoder.weights)
    null, other = y.clone(), to_dense(x).clone()
    null[3], other[3] = -1, 99.0
    torch.testing.assert_close(fit(x, null, labeled).weights, fit(other, null, labeled).weights)
    assert fit(x, null, labeled).weight_noise == encoder.weight_noise  # n is public, null records count

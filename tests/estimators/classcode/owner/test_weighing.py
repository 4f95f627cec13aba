"""Weighing features and rows: useless rows fade, and little data moves little."""

import numpy as np
import pytest
import torch
from contracts.steps import KEY, SilentRelease

from graphveil.audit.zero_noise import ZeroNoiseSteps
from graphveil.estimators.classcode.node_method import (
    EvidenceWeights,
    evidence_weights_schedule,
    fit_evidence_weights,
)
from graphveil.estimators.classcode.node_plan import WEIGHTS_CLIP
from graphveil.mechanisms import StepNoise
from graphveil.release import DPSGDQuery


class NormalNoise(ZeroNoiseSteps):
    """Noise of a standard deviation that the query need not have."""

    def noise(self, step: int) -> np.ndarray:
        drawn = np.random.default_rng(step).normal(size=self.parameters)
        return np.rint(drawn * self.given_sigma * self.steps).astype(np.int64)  # type: ignore[attr-defined]


class NoisyRelease(SilentRelease):
    def __init__(self, sigma: float) -> None:
        self._sigma = sigma

    def noise(self, parameters: int) -> StepNoise:
        noise = NormalNoise(KEY, parameters=parameters, noise_multiplier=1.0)
        noise.given_sigma = self._sigma  # type: ignore[attr-defined]
        return noise


def evidence(count: int, strength: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return calibrated log-posteriors, rows that claim twice what they know (or lie), and labels."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(4, (count,), generator=generator)
    right = torch.nn.functional.one_hot(y, 4).double()
    features = 1.0 * right + torch.randn(count, 4, generator=generator).double()
    rows = 2 * (strength * right + torch.randn(count, 4, generator=generator).double())
    return features.log_softmax(dim=1), rows, y


def fit(count: int, strength: float, z: float = 1.0, noise: float = 0.0) -> list[float]:
    features, rows, y = evidence(count, strength)
    labeled = torch.arange(count) < count // 2
    query = DPSGDQuery(parameters=2, steps=20, noise_multiplier=z, clip=WEIGHTS_CLIP)
    chosen = features[labeled], rows[labeled], y[labeled]
    evidence_weights = fit_evidence_weights(*chosen, query, NoisyRelease(noise))  # type: ignore[arg-type]
    return evidence_weights.weights.tolist()


def test_rows_that_claim_too_much_are_believed_less_and_useless_ones_hardly() -> None:
    assert fit(4000, 1.0) == pytest.approx([1.0, 0.5], abs=0.12)
    assert fit(4000, 0.0)[1] < 0.1


def test_rows_never_count_against_what_they_say() -> None:
    assert fit(4000, -1.0)[1] == 0.0


def test_few_records_move_the_weights_by_a_quarter_at_most() -> None:
    moved = [fit(60, 1.0, z=118.0, noise=118.0)]
    assert np.abs(np.array(moved) - 1).max() < 0.9
    descent = evidence_weights_schedule(20, 118.0, 30)
    assert WEIGHTS_CLIP * descent.averaged_noise * 118.0 / 30 == pytest.approx(0.25)
    assert WEIGHTS_CLIP * evidence_weights_schedule(20, 118.0, 14000).learning_rate == 1.0


def test_even_weights_add_both() -> None:
    features, rows, _ = evidence(5, 1.0)
    expected = (features + rows).log_softmax(dim=1)
    torch.testing.assert_close(EvidenceWeights.even().log_posteriors(features, rows), expected)

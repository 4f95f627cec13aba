"""Linear models on all records at once: their clipped sums, null records, and the path of the noise."""

from typing import Any

import numpy as np
import pytest
import torch
from contracts.steps import KEY, SilentRelease, take_steps
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.special import softmax
from torch import Tensor

from graphveil.audit.query_neighbor_tests import ZeroNoiseSteps
from graphveil.core.clipping.clipped_sums import LogitWeightsClippedSum
from graphveil.core.clipping.dpsgd import PrivateSchedule, clipped_sum
from graphveil.core.clipping.ghost_modules import Affine
from graphveil.core.queries.training_steps import DPSGDData
from graphveil.estimators.classcode.node import WEIGHTS_CLIP as CLIP


def records(count: int = 30, width: int = 4, classes: int = 3, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, width)) * rng.exponential(2, size=(count, 1))
    return x, rng.integers(classes, size=count)


def softmax_sum(x: Any, y: Any, start: Any) -> Any:
    """Return the sum of clipped gradients, (f + 1, C)."""
    inputs = torch.from_numpy(x) if isinstance(x, np.ndarray) else x
    map_ = Affine(torch.from_numpy(start[:-1]), torch.from_numpy(start[-1]))
    gradients = clipped_sum(map_, inputs, torch.from_numpy(y))
    gradients.add(torch.arange(len(y)), 1.0)
    weight, bias = gradients._views(gradients.sums)
    return np.vstack([weight.t().numpy(), bias.numpy()])


def naive_sum(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Form and clip each record's gradient on its own."""
    total = np.zeros_like(weights)
    for row, label in zip(x, y, strict=True):
        long = np.append(row, 1.0)
        gradient = np.outer(long, softmax(long @ weights) - np.eye(weights.shape[1])[label])
        total += gradient * min(1, 1 / ((1 + 1e-6) * np.linalg.norm(gradient)))
    return total


@pytest.mark.parametrize("seed", range(5))
def test_sum_is_that_of_gradients_clipped_one_by_one(seed: int) -> None:
    x, y = records(seed=seed)
    start = np.random.default_rng(seed).normal(size=(5, 3))
    expected = naive_sum(x, y, start)
    np.testing.assert_allclose(softmax_sum(x, y, start), expected, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(softmax_sum(sparse.csr_array(x), y, start), expected, rtol=1e-11, atol=1e-12)


@given(st.integers(0, 10_000), st.floats(0.01, 100))
def test_nulling_a_record_moves_the_sum_by_at_most_one(seed: int, scale: float) -> None:
    x, y = records(12, seed=seed)
    start = scale * np.random.default_rng(seed).normal(size=(5, 3))
    without = y.copy()
    without[3] = -1
    moved = softmax_sum(scale * x, y, start) - softmax_sum(scale * x, without, start)
    assert np.linalg.norm(moved) <= 1 + 1e-9


def test_the_bound_is_reached() -> None:
    x, y = np.array([[100.0, 0.0]]), np.array([0])
    assert 1 - 1e-4 < np.linalg.norm(softmax_sum(x, y, np.zeros((3, 3)))) <= 1


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
def test_a_record_that_is_not_finite_counts_as_null(value: float) -> None:
    x, y = records()
    x[7, 2] = value
    null = y.copy()
    null[7] = -1
    start = np.ones((5, 3)) * np.arange(3)
    for inputs in (x, sparse.csr_array(x)):
        assert np.isfinite(softmax_sum(inputs, y, start)).all()
        np.testing.assert_array_equal(softmax_sum(inputs, y, start), softmax_sum(inputs, null, start))
    assert x[7, 2] == value or np.isnan(value)  # records are not written into


def test_noise_reaches_the_weights_at_the_stated_scale() -> None:
    schedule = PrivateSchedule.full_batch(steps=60, learning_rate=1.7)

    class Normal(ZeroNoiseSteps):
        def noise(self, step: int) -> np.ndarray:
            drawn = np.random.default_rng(step).normal(size=self.parameters)
            return np.rint(drawn * 4.0 * self.steps).astype(np.int64)

    untrained = Affine(torch.zeros(799, 50), torch.zeros(50))
    gradients = clipped_sum(untrained, torch.zeros(10, 799), torch.full((10,), -1))
    noise = Normal(KEY, parameters=40_000, noise_multiplier=1.0)
    weights = take_steps(DPSGDData(gradients=gradients, schedule=schedule), noise)
    expected = 4.0 / 10 * schedule.averaged_noise
    assert abs(float(weights.std()) / expected - 1) < 0.02


def test_golden_averaged_noise() -> None:
    def noise(**fields: float) -> float:
        return PrivateSchedule.full_batch(**fields).averaged_noise  # type: ignore[arg-type]

    assert round(noise(steps=60, learning_rate=1.0), 5) == 5.44347
    assert noise(steps=60, learning_rate=3.0) == pytest.approx(3 * 5.44347, rel=1e-5)
    assert noise(steps=1, learning_rate=1.0) == pytest.approx(0.1)


def test_weights_follow_momentum_and_the_mean_of_the_last_half() -> None:
    x, y = records()
    map_ = Affine(torch.zeros(4, 3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64))
    gradients = clipped_sum(map_, torch.from_numpy(x), torch.from_numpy(y))
    schedule = PrivateSchedule.full_batch(steps=7, learning_rate=2.0)
    gradients.store(SilentRelease().answer(DPSGDData(gradients=gradients, schedule=schedule)))
    weights, velocity, kept = np.zeros((5, 3)), np.zeros((5, 3)), []
    for _ in range(7):
        velocity = 0.9 * velocity + 0.1 * naive_sum(x, y, weights) / 30
        weights = weights - 2.0 * velocity
        kept.append(weights)
    found = np.vstack([map_.sources[0].t().numpy(), map_.sources[1].numpy()])
    np.testing.assert_allclose(found, np.mean(kept[-3:], axis=0), atol=1e-5)


# -- weights of experts ------------------------------------------------------------------------------------


def experts(count: int = 40, classes: int = 4, seed: int = 0) -> tuple[list[Any], Any]:
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=count)
    good = 2.0 * np.eye(classes)[y] + rng.normal(size=(count, classes))
    return [good, 3 * rng.normal(size=(count, classes))], y


def weights_sum(logits: list[Any], y: Any, clip: float = CLIP) -> Tensor:
    gradients = LogitWeightsClippedSum([torch.from_numpy(one) for one in logits], torch.from_numpy(y))
    gradients.add(torch.arange(len(y)), clip)
    return gradients.sums


@pytest.mark.parametrize("clip", [0.5, 2.0])
def test_weights_follow_gradients_clipped_one_by_one(clip: float) -> None:
    logits, y = experts()
    total = np.zeros(2)
    for row in range(len(y)):
        both = np.stack([one[row] for one in logits])  # (K, C)
        gradient = both @ (softmax(np.ones(2) @ both) - np.eye(4)[y[row]])
        total += gradient * min(1, clip / ((1 + 1e-6) * np.linalg.norm(gradient)))
    np.testing.assert_allclose(weights_sum(logits, y, clip), total, rtol=1e-11)


@given(st.integers(0, 10_000), st.floats(0.01, 100))
def test_nulling_a_record_moves_the_weights_sum_by_at_most_the_clip(seed: int, scale: float) -> None:
    logits, y = experts(12, seed=seed)
    logits = [scale * one for one in logits]
    without = y.copy()
    without[5] = -1
    assert float((weights_sum(logits, y) - weights_sum(logits, without)).norm()) <= CLIP + 1e-9


def test_experts_that_are_not_finite_are_null_records() -> None:
    logits, y = experts()
    logits[1][3, 2] = np.inf
    null = y.copy()
    null[3] = -1
    assert torch.equal(weights_sum(logits, y), weights_sum(experts()[0], null))

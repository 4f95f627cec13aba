"""Full-batch noisy descent: the clipped sums, their bound, the noise's path, and null records."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.special import softmax

from graphveil.errors import ConfigError
from graphveil.training.descent import DescentSchedule, descend, descend_weights


class Recorded:
    """Given noise, and what it was added to: the truncated sums, recovered from the weights of one step."""

    def __init__(self, parameters: int, sigma: float = 0.0, seed: int = 0, steps: float = 2.0**20) -> None:
        self.steps, self._sigma, self._parameters = steps, sigma, parameters
        self._rng = np.random.default_rng(seed)

    def noise(self, step: int) -> np.ndarray:
        return np.rint(self._rng.normal(size=self._parameters) * self._sigma * self.steps).astype(np.int64)


def records(count: int = 30, width: int = 4, classes: int = 3, seed: int = 0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, width)) * rng.exponential(2, size=(count, 1)), rng.integers(
        classes, size=count
    )


def naive_sum(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Form and clip each record's gradient on its own."""
    total = np.zeros_like(weights)
    for row, label in zip(x, y, strict=True):
        long = np.append(row, 1.0)
        gradient = np.outer(long, softmax(long @ weights) - np.eye(weights.shape[1])[label])
        total += gradient * min(1, 1 / ((1 + 1e-6) * np.linalg.norm(gradient)))
    return total


def one_step_sum(x, y, start: np.ndarray, **given) -> np.ndarray:
    """Return the truncated sum of clipped gradients: without rate and momentum, one step shows it."""
    descent = DescentSchedule(steps=1, rate=1.0, records=1, momentum=0.0)
    return start - descend(x, y, start, descent, Recorded(start.size, **given))


@pytest.mark.parametrize("seed", range(5))
def test_sum_is_that_of_gradients_clipped_one_by_one(seed: int) -> None:
    x, y = records(seed=seed)
    start = np.random.default_rng(seed).normal(size=(5, 3))
    expected = naive_sum(x, y, start)
    np.testing.assert_allclose(one_step_sum(x, y, start), expected, atol=2**-19)
    np.testing.assert_allclose(one_step_sum(sparse.csr_array(x), y, start), expected, atol=2**-19)


def test_sum_is_cut_towards_zero_to_the_grid() -> None:
    x, y = records()
    start = np.zeros((5, 3))
    coarse = one_step_sum(x, y, start, steps=8.0)
    np.testing.assert_allclose(coarse, np.trunc(naive_sum(x, y, start) * 8) / 8, atol=1e-12)


@given(st.integers(0, 10_000), st.floats(0.01, 100))
def test_nulling_a_record_moves_the_sum_by_at_most_one(seed: int, scale: float) -> None:
    x, y = records(12, seed=seed)
    start = scale * np.random.default_rng(seed).normal(size=(5, 3))
    without = y.copy()
    without[3] = -1
    record_affine_calls = one_step_sum(scale * x, y, start) - one_step_sum(scale * x, without, start)
    assert np.linalg.norm(record_affine_calls) <= 1 + 15 * 2**-20


def test_the_bound_is_reached() -> None:
    x, y = np.array([[100.0, 0.0]]), np.array([0])
    record_affine_calls = one_step_sum(x, y, np.zeros((3, 3))) - one_step_sum(
        x, np.array([-1]), np.zeros((3, 3))
    )
    assert 1 - 1e-4 < np.linalg.norm(record_affine_calls) <= 1


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
def test_a_record_that_is_not_finite_counts_as_null(value: float) -> None:
    x, y = records()
    x[7, 2] = value
    null = y.copy()
    null[7] = -1
    start = np.ones((5, 3)) * np.arange(3)
    for inputs in (x, sparse.csr_array(x)):
        assert np.isfinite(one_step_sum(inputs, y, start)).all()
        np.testing.assert_array_equal(one_step_sum(inputs, y, start), one_step_sum(inputs, null, start))


def test_weights_follow_momentum_and_the_mean_of_the_last_half() -> None:
    x, y = records()
    noise = Recorded(15, sigma=3.0, seed=5)
    found = descend(x, y, np.zeros((5, 3)), DescentSchedule(steps=7, rate=2.0, records=40), noise)
    again, weights, velocity, kept = Recorded(15, sigma=3.0, seed=5), np.zeros((5, 3)), 0.0, []
    for step in range(7):
        total = np.trunc(naive_sum(x, y, weights) * again.steps) + again.noise(step).reshape(5, 3)
        velocity = 0.9 * velocity + 0.1 * total / (again.steps * 40)
        weights = weights - 2.0 * velocity
        kept.append(weights)
    np.testing.assert_allclose(found, np.mean(kept[-3:], axis=0), atol=1e-5)


def test_noise_reaches_the_weights_at_the_stated_scale() -> None:
    descent = DescentSchedule(steps=60, rate=1.7, records=10)
    null = np.array([-1])
    weights = descend(
        np.zeros((1, 799)), null, np.zeros((800, 50)), descent, Recorded(40_000, sigma=4.0, seed=1)
    )
    expected = 4.0 / 10 * descent.averaged_noise
    assert abs(weights.std() / expected - 1) < 0.02
    assert abs(weights.std() / (1.1 * expected) - 1) > 0.05  # the check would notice a wrong scale


def test_golden_averaged_noise() -> None:
    assert round(DescentSchedule(steps=60, rate=1.0, records=1).averaged_noise, 5) == 5.44347
    assert DescentSchedule(steps=60, rate=3.0, records=9).averaged_noise == pytest.approx(
        3 * 5.44347, rel=1e-5
    )
    assert DescentSchedule(steps=1, rate=1.0, records=1).averaged_noise == pytest.approx(0.1)


def test_the_start_is_where_it_begins() -> None:
    start = np.arange(15.0).reshape(5, 3)
    null = np.array([-1, -1])
    found = descend(np.ones((2, 4)), null, start, DescentSchedule(steps=4, rate=9.0, records=2), Recorded(15))
    np.testing.assert_array_equal(found, start)


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"rate": 0.0}, {"records": 0}, {"momentum": 1.0}])
def test_wrong_schedules_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        DescentSchedule(**{"steps": 5, "rate": 1.0, "records": 3, **wrong})


def test_shapes_must_fit() -> None:
    x, y = records()
    with pytest.raises(ConfigError, match="one row more"):
        descend(x, y, np.zeros((4, 3)), DescentSchedule(steps=1, rate=1.0, records=3), Recorded(12))
    with pytest.raises(ConfigError, match="one entry per row"):
        descend(x, y[1:], np.zeros((5, 3)), DescentSchedule(steps=1, rate=1.0, records=3), Recorded(15))


# -- weights of experts ------------------------------------------------------------------------------------


def experts(count: int = 40, classes: int = 4, seed: int = 0):
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=count)
    good = 2.0 * np.eye(classes)[y] + rng.normal(size=(count, classes))
    return [good, 3 * rng.normal(size=(count, classes))], y


def weights_sum(logits, y, start: np.ndarray, **fields: float) -> np.ndarray:
    descent = DescentSchedule(steps=1, rate=1.0, records=1, momentum=0.0)
    return start - descend_weights(logits, y, start, descent, Recorded(start.size), **fields)


@pytest.mark.parametrize("clip", [0.5, 2.0])
def test_weights_follow_gradients_clipped_one_by_one(clip: float) -> None:
    logits, y = experts()
    start = np.array([0.7, 1.3])
    total = np.zeros(2)
    for row in range(len(y)):
        both = np.stack([one[row] for one in logits])  # (K, C)
        gradient = both @ (softmax(start @ both) - np.eye(4)[y[row]]) / clip
        total += gradient * min(1, 1 / ((1 + 1e-6) * np.linalg.norm(gradient)))
    np.testing.assert_allclose(weights_sum(logits, y, start, clip=clip), total, atol=2**-19)


@given(st.integers(0, 10_000), st.floats(0.01, 100))
def test_nulling_a_record_moves_the_weights_sum_by_at_most_one(seed: int, scale: float) -> None:
    logits, y = experts(12, seed=seed)
    logits = [scale * one for one in logits]
    without = y.copy()
    without[5] = -1
    record_affine_calls = weights_sum(logits, y, np.ones(2)) - weights_sum(logits, without, np.ones(2))
    assert np.linalg.norm(record_affine_calls) <= 1 + 2 * 2**-20


def test_an_expert_that_knows_gains_weight_and_one_that_guesses_loses_it() -> None:
    logits, y = experts(400)
    good, guess = descend_weights(
        logits, y, np.ones(2), DescentSchedule(steps=40, rate=1.0, records=400), Recorded(2)
    )
    assert good > 1.5 and guess < 0.3


def test_experts_that_are_not_finite_are_null_records() -> None:
    logits, y = experts()
    logits[1][3, 2] = np.inf
    null = y.copy()
    null[3] = -1
    np.testing.assert_array_equal(
        weights_sum(logits, y, np.ones(2)), weights_sum(experts()[0], null, np.ones(2))
    )


def test_shapes_of_experts_must_fit() -> None:
    logits, y = experts()
    with pytest.raises(ConfigError, match="2 experts"):
        descend_weights(logits, y, np.ones(3), DescentSchedule(steps=1, rate=1.0, records=3), Recorded(3))

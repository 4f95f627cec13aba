"""Bounds against another implementation, against optimization, and on mechanisms whose epsilon is known."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import ndtr, ndtri
from scipy.stats import binom, chi2, norm
from scipy.stats.contingency import odds_ratio

from graphveil.audit import (
    LowerBound,
    clopper_pearson_lower,
    clopper_pearson_upper,
    odds_of_runs,
    one_run,
    one_run_gaussian,
    repeated_runs,
    sampled_training,
    summed_gaussian,
)
from graphveil.audit.bounds import gaussian_claim_fails, largest_multiplier, log_ratio, p_value
from graphveil.core.accounting.accountant import privacy_curve
from graphveil.core.accounting.gaussian import epsilon_of, mu_of
from graphveil.core.events import PoissonGaussian
from graphveil.errors import ConfigError

JAX_PRIVACY = [  # of the auditing module of jax-privacy 2.0.0: function, arguments, delta, value, tolerance
    (clopper_pearson_upper, (0, 100, 0.05), None, 0.029513049607039925, 1e-9),
    (clopper_pearson_upper, (7, 50, 0.005), None, 0.30910696596481874, 1e-9),
    (clopper_pearson_upper, (120, 1000, 0.01), None, 0.14592937569699516, 1e-9),
    (clopper_pearson_upper, (49, 50, 0.005), None, 0.9998997541884763, 1e-9),
    (repeated_runs, (90, 100, 10, 100), 0.0, 1.3741292646051675, 1e-9),
    (repeated_runs, (900, 1000, 100, 1000), 1e-5, 1.9288210213889885, 1e-9),
    (repeated_runs, (999, 1000, 700, 1000), 1e-5, 3.570569746534044, 1e-9),
    (repeated_runs, (30, 1000, 2, 1000), 1e-6, 0.6594101318465091, 1e-9),
    (p_value, (1000, 100, 90, 1.0, 0.0), None, 2.7358128007661584e-05, 1e-9),
    (p_value, (1000, 100, 90, 1.0, 1e-5), None, 0.0008412885614385309, 1e-9),
    (p_value, (5000, 500, 320, 0.2, 1e-4), None, 0.015320312698803228, 1e-9),
    (p_value, (200, 200, 150, 0.5, 1e-3), None, 0.010729701961876234, 1e-9),
    (one_run, (1000, 100, 100), 1e-5, 2.9891929096038554, 1e-5),
    (one_run, (1000, 100, 90), 0.0, 1.441389385561513, 1e-5),
    (one_run, (1000, 100, 90), 1e-5, 1.4273118526978308, 1e-5),
    (one_run, (10000, 1000, 800), 1e-6, 1.201025253275963, 1e-5),
    (one_run, (500, 500, 300), 1e-4, 0.18188641936243397, 1e-5),
    # Theirs converts noise to (epsilon, delta) with an error of about 1e-5.
    (one_run_gaussian, (1000, 100, 100), 1e-5, 4.46393991595043, 1e-4),
    (one_run_gaussian, (1000, 100, 90), 1e-5, 1.9820861531788676, 1e-4),
    (one_run_gaussian, (1000, 1000, 700), 1e-5, 1.0759450286935808, 1e-4),
    (one_run_gaussian, (10000, 1000, 800), 1e-6, 1.6691252160478476, 1e-4),
    (one_run_gaussian, (500, 500, 300), 1e-4, 0.27183166789521096, 1e-4),
    (one_run_gaussian, (10000, 2000, 1300), 1e-5, 0.6418794020142046, 1e-4),
]


@pytest.mark.parametrize(("function", "arguments", "delta", "expected", "tolerance"), JAX_PRIVACY)
def test_values_are_those_of_jax_privacy(
    function: Any, arguments: tuple[Any, ...], delta: float | None, expected: float, tolerance: float
) -> None:
    found = function(*arguments) if delta is None else function(*arguments, delta=delta).epsilon
    assert found == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize(("m", "r", "v", "mu"), [(8, 8, 7, 0.5), (12, 8, 8, 1.0), (20, 10, 8, 0.2)])
def test_rejected_mu_is_that_of_a_linear_program(m: int, r: int, v: int, mu: float) -> None:
    # Maximize P[V >= v] over all laws of V with sum_{k > j} k p_k / m <= 1 - f(sum_{k >= j} (r - k) p_k / m);
    # 1 - f is concave, so it lies below its tangents: a linear programme from above, tight for many.
    k, tangents = np.arange(r + 1), ndtri(np.geomspace(1e-9, 1 - 1e-9, 500))
    rows, limits = [], []
    for j in range(r):
        x, slope = ndtr(tangents), np.exp(norm.logpdf(tangents + mu) - norm.logpdf(tangents))
        left = np.where(k > j, k, 0) / m
        right = np.where(k >= j, r - k, 0) / m
        rows += list(left[None] - slope[:, None] * right[None])
        limits += list(ndtr(tangents + mu) - slope * x)
    found = linprog(-(k >= v).astype(float), rows, limits, np.ones((1, r + 1)), [1.0], bounds=(0, 1))
    largest = -found.fun
    assert gaussian_claim_fails(m, r, v, mu, largest * 1.002)
    assert not gaussian_claim_fails(m, r, v, mu, largest * 0.99)


def test_max_certifiable_is_the_bound_of_all_right_guesses() -> None:
    # e^eps / (1 + e^eps) = 0.01^(1 / n)
    q = 0.01 ** (1 / 50)
    found = one_run(400, 50, 50)
    assert found.epsilon == found.max_certifiable == pytest.approx(math.log(q / (1 - q)), abs=1e-7)
    assert one_run(400, 50, 40).max_certifiable == found.max_certifiable > one_run(400, 50, 40).epsilon
    runs = repeated_runs(5, 20, 1, 20)
    assert runs.max_certifiable == pytest.approx(math.log(0.005 ** (1 / 20) / (1 - 0.005 ** (1 / 20))))


def test_chance_certifies_zero() -> None:
    assert repeated_runs(50, 100, 50, 100).epsilon == 0
    assert one_run(100, 100, 50).epsilon == 0
    assert one_run_gaussian(100, 100, 50, delta=1e-5).epsilon == 0
    assert clopper_pearson_lower(0, 10, 0.01) == 0
    assert clopper_pearson_upper(10, 10, 0.01) == 1
    assert odds_of_runs(0, 10, 3, 10).epsilon == odds_of_runs(10, 10, 10, 10).epsilon == 0
    zeros = np.zeros(10)
    assert summed_gaussian(zeros, zeros, delta=1e-5).epsilon == 0
    none = sampled_training(zeros, zeros, noise_multiplier=1, sampling_rate=0.5, steps=5, delta=1e-5)
    assert none.epsilon == 0


def test_summed_gaussian_is_the_formula() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(0.8, 1, 400), rng.normal(0, 1, 900)
    found = summed_gaussian(x, y, delta=1e-5, confidence=0.95)
    squares = 399 * x.var(ddof=1) + 899 * y.var(ddof=1)
    widest = math.sqrt(squares / chi2.ppf(0.025, 1298))
    expected = (x.mean() - y.mean()) / widest - norm.ppf(0.975) * math.sqrt(1 / 400 + 1 / 900)
    assert found.mu == pytest.approx(expected)
    assert found.epsilon == pytest.approx(epsilon_of(expected, 1e-5))
    louder = summed_gaussian(3 * x, 3 * y, delta=1e-5, confidence=0.95)
    assert louder.mu == pytest.approx(found.mu)  # only shift over noise counts


def test_log_ratio_is_that_of_the_dominating_pair() -> None:
    y = np.linspace(-4, 6, 41)
    without_canary, moved = norm.pdf(y), norm.pdf(y, 1 / 1.7)
    assert log_ratio(y, 1.7, 0.3) == pytest.approx(
        np.log((0.7 * without_canary + 0.3 * moved) / without_canary)
    )
    assert log_ratio(y, 1.7, 1.0) == pytest.approx(y / 1.7 - 0.5 / 1.7**2)


def test_largest_multiplier_of_unsampled_steps_is_the_closed_form() -> None:
    # q = 1: the sum is normal, and its tail bound exp(-excess^2 / 2): rejected at excess sqrt(2 ln 100).
    n, z = 10_000, 2.0
    quiet = np.resize([1.0, -1.0], n)
    y = 0.3 + quiet
    mean = 0.3 / math.sqrt(n / chi2.ppf(0.005, n - 1))
    shift = mean - math.sqrt(2 * math.log(200) / n)
    assert 1 / largest_multiplier(y, quiet, z, 1.0, 0.01) == pytest.approx(shift, rel=1e-4)


# -- validity of the bounds without another implementation: one trial in a hundred exceeds the truth --------


def most_exceptions(trials: int) -> int:
    """Return the number of exceptions in so many trials that chance does not exceed."""
    return int(binom.isf(1e-6, trials, 0.01))


def test_summed_gaussian_is_valid_and_above_four_fifths() -> None:
    rng, delta = np.random.default_rng(6), 1e-5
    for epsilon, count in ((1.0, 20_000), (8.0, 2_000)):
        mu = mu_of(epsilon, delta)
        found = [
            summed_gaussian(rng.normal(mu, 1, count), rng.normal(0, 1, count), delta=delta).epsilon
            for _ in range(400)
        ]
        assert sum(bound > epsilon for bound in found) <= most_exceptions(400)
        assert np.mean(found) > 0.8 * epsilon


def test_sampled_training_is_valid_and_above_four_fifths() -> None:
    rng, z, q, steps, delta = np.random.default_rng(7), 2.0, 0.1, 200, 1e-5
    truth = privacy_curve(PoissonGaussian(z, q, steps)).epsilon(delta)

    def seen(count: int) -> np.ndarray:
        return rng.normal((rng.random(count) < q) / z, 1)

    def quiet(count: int) -> np.ndarray:
        return rng.normal(0, 1, count)

    most = [largest_multiplier(seen(4000), quiet(4000), z, q, 0.01) for _ in range(30)]
    assert sum(multiplier < z for multiplier in most) <= most_exceptions(30)
    found = sampled_training(
        seen(400_000), quiet(400_000), noise_multiplier=z, sampling_rate=q, steps=steps, delta=delta
    )
    assert 0.8 * truth < found.epsilon <= truth


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: repeated_runs(11, 10, 0, 10),
        lambda: repeated_runs(1, 10, 0, 10, confidence=1.0),
        lambda: repeated_runs(1, 10, 0, 10, delta=2.0),
        lambda: odds_of_runs(11, 10, 0, 10),
        lambda: one_run(10, 11, 5),
        lambda: one_run(10, 5, 6),
        lambda: one_run_gaussian(10, 5, 5, delta=0.0),
        lambda: summed_gaussian(np.zeros(0), np.zeros(3), delta=1e-5),
        lambda: summed_gaussian(np.full(2, np.nan), np.zeros(3), delta=1e-5),
    ],
)
def test_rejects_impossible_counts_and_missing_scores(wrong: object) -> None:
    with pytest.raises(ConfigError):
        wrong()  # type: ignore[operator]


def test_bound_as_text_has_mu_and_no_maximum() -> None:
    bound = LowerBound(
        epsilon=1.0, delta=1e-5, confidence=0.99, max_certifiable=math.inf, method="a sum", mu=0.25
    )
    assert str(bound) == (
        "epsilon >= 1.000 at delta = 1e-05, mu >= 0.2500 with confidence 99 % (a sum; no maximum)"
    )


COUNTS = [  # hits, with, alarms, without
    (900, 1000, 100, 1000),
    (5, 10, 2, 10),
    (10, 10, 3, 10),
    (300, 500, 10, 1000),
    (999, 1000, 700, 1000),
    (10, 10, 0, 10),
]


@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize("confidence", [0.9, 0.99, 0.99999])
def test_odds_are_those_of_fishers_exact_interval(
    counts: tuple[int, int, int, int], confidence: float
) -> None:
    tp, with_canary, fp, without_canary = counts
    table = odds_ratio([[tp, with_canary - tp], [fp, without_canary - fp]])
    low = table.confidence_interval(confidence, alternative="greater").low
    bound = odds_of_runs(*counts, confidence=confidence)
    assert bound.epsilon == pytest.approx(max(0.0, math.log(low) / 2), abs=1e-9)


def test_odds_of_a_billion_runs_are_accurate() -> None:
    runs, epsilon = 1 << 30, 0.001
    keep = 1 / (1 + math.exp(-epsilon))
    bound = odds_of_runs(round(runs * keep), runs, round(runs * (1 - keep)), runs)
    assert bound.epsilon == pytest.approx(epsilon - norm.isf(0.01) * math.sqrt(2 / runs), rel=1e-4)
    assert odds_of_runs(round(runs * (1 - keep)), runs, round(runs * keep), runs).epsilon == 0

"""Gaussian differential privacy in closed form, calibration, and the choice of delta."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from graphveil.core.accounting import gaussian
from graphveil.core.accounting.gaussian import auto_delta, calibrate_mu, check_delta
from graphveil.core.unit import DirectedEdge, NoUnit, UndirectedEdge
from graphveil.errors import CalibrationError, ConfigError
from privacy.golden import CALIBRATION, DELTA_OF_EPSILON_AND_MU, EPSILON_OF_MU_AND_DELTA, HOPS

# -- closed form -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mu", "epsilon", "delta"), DELTA_OF_EPSILON_AND_MU)
def test_delta_of_epsilon_is_golden(mu: float, epsilon: float, delta: float) -> None:
    assert gaussian.delta_of(epsilon, mu) == pytest.approx(delta, rel=1e-9)


@pytest.mark.parametrize(("mu", "delta", "epsilon"), EPSILON_OF_MU_AND_DELTA)
def test_epsilon_of_delta_is_golden(mu: float, delta: float, epsilon: float) -> None:
    assert gaussian.epsilon_of(mu, delta) == pytest.approx(epsilon, abs=1e-6)


def test_delta_is_the_hockey_stick_divergence_of_two_normals() -> None:
    # Of N(mu, 1) and N(0, 1): delta(epsilon) = P(x > t) - e^epsilon Q(x > t), t where the ratio is e^epsilon.
    mu, epsilon = 0.7, 0.9
    threshold = epsilon / mu + mu / 2
    expected = norm.sf(threshold - mu) - math.exp(epsilon) * norm.sf(threshold)
    assert gaussian.delta_of(epsilon, mu) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("epsilon", [1e50, 1e160, 1e308, 1.7976931348623157e308])
def test_a_huge_epsilon_has_delta_0_and_no_calibration(epsilon: float) -> None:
    assert [gaussian.delta_of(epsilon, mu) for mu in (1e-100, 1e-6, 60.0, 1e6)] == [0.0] * 4
    with pytest.raises(CalibrationError, match="choose a smaller epsilon"):
        gaussian.mu_of(epsilon, 1e-5)


@pytest.mark.parametrize(
    ("mu", "delta", "epsilon"),
    [
        (0.0, 1e-9, 0.0),
        (1.0, 0.4, 0.0),
        (math.inf, 1e-5, math.inf),
        (1.0, 0.0, math.inf),
        (1.0, -1e-9, math.inf),
    ],
)
def test_epsilon_at_the_limits_of_mu_and_delta(mu: float, delta: float, epsilon: float) -> None:
    assert gaussian.epsilon_of(mu, delta) == epsilon


@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.2, 5.0, 60.0, 1e4])
@pytest.mark.parametrize("delta", [1e-12, 1e-7, 1e-3])
def test_epsilon_is_an_upper_bound_of_its_root(mu: float, delta: float) -> None:
    epsilon = gaussian.epsilon_of(mu, delta)
    assert gaussian.delta_of(epsilon, mu) <= delta * (1 + 1e-12)


def test_tiny_deltas_keep_their_digits() -> None:
    assert 0 < gaussian.delta_of(30.0, 1.0) < 1e-180
    assert gaussian.delta_of(0.0, 0.0) == 0.0


def test_the_attack_bound_increases_with_mu_from_the_false_positive_rate() -> None:
    rates = [gaussian.tpr(0.01, mu) for mu in (0.0, 0.21373627, 1.0, 5.0)]
    assert rates[0] == pytest.approx(0.01)
    assert rates[1] == pytest.approx(0.0173, abs=5e-5)
    assert rates == sorted(rates)


@pytest.mark.parametrize("steps", [128, 1000])
@pytest.mark.parametrize("delta", [1e-12, 1e-7, 1e-4])
def test_a_thousandth_of_delta_covers_the_exact_sampler(steps: int, delta: float) -> None:
    # docs/privacy/proofs/noise.md, Proposition 9, for noise of so many grid steps and any number of rows.
    for mu in (0.01, 0.1, 1.0, 4.0):
        epsilon = gaussian.epsilon_of(mu, delta)
        rounded = mu / math.sqrt(1 - 1 / (12 * steps**2))
        found = gaussian.delta_of(epsilon - 3.01 * mu**2 / steps**3, rounded) ** (1 - 1e-5)
        assert found <= delta * (1 + 5.3e-4)


# -- calibration -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("delta", "epsilon", "mu", "sigmas"), [row[:4] for row in CALIBRATION])
def test_calibrated_noise_is_golden(
    delta: float, epsilon: float, mu: float, sigmas: tuple[float, ...]
) -> None:
    found = calibrate_mu(epsilon, delta)
    assert found == pytest.approx(mu, rel=1e-6)
    assert [math.sqrt(k) / found for k in HOPS] == pytest.approx(list(sigmas), abs=6e-5)


def test_the_certified_epsilon_is_at_most_its_target_and_at_least_99_percent_of_it() -> None:
    for epsilon in np.geomspace(0.01, 50, 50):
        for delta in np.geomspace(1e-12, 1e-3, 40):
            mu = calibrate_mu(epsilon, delta)
            assert epsilon * 0.99 <= gaussian.epsilon_of(mu, delta) <= epsilon, (epsilon, delta)
            assert gaussian.delta_of(epsilon, mu) <= delta


def test_slack_is_set_aside_from_delta() -> None:
    mu = calibrate_mu(1.0, 1e-7, slack=1e-8)
    assert mu < calibrate_mu(1.0, 1e-7)
    assert gaussian.delta_of(1.0, mu) <= 0.9e-7
    for slack in (1e-7, 1.0):
        with pytest.raises(CalibrationError, match="finite resolution"):
            calibrate_mu(1.0, 1e-7, slack=slack)


@pytest.mark.parametrize(
    ("epsilon", "delta", "way"), [(1e-9, 1e-12, "larger"), (5000.0, 1e-5, "smaller"), (1e5, 1e-5, "smaller")]
)
def test_rejects_budgets_without_gaussian_noise(epsilon: float, delta: float, way: str) -> None:
    with pytest.raises(CalibrationError, match=f"no Gaussian noise.*choose a {way} epsilon"):
        gaussian.mu_of(epsilon, delta)


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 1e-5), (-1, 1e-5), (1, 0), (float("nan"), 1e-5)])
def test_rejects_empty_budgets(epsilon: float, delta: float) -> None:
    with pytest.raises(ConfigError, match="must be a finite number above 0"):
        calibrate_mu(epsilon, delta)


# -- delta -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bound", "delta"),
    [(1, 1e-7), (10**5, 1e-7), (10**6, 1e-7), (10**6 + 1, 1e-8), (10**9, 1e-10), (10**15 + 1, 1e-17)],
)
def test_auto_delta_is_the_cap_or_a_power_of_ten_below_a_tenth_of_one_unit(bound: int, delta: float) -> None:
    assert auto_delta(UndirectedEdge(), bound) == auto_delta(DirectedEdge(), bound) == delta


def test_explicit_deltas_must_be_below_one_unit() -> None:
    assert check_delta(UndirectedEdge(), 9e-4, 1000) == 9e-4
    assert check_delta(UndirectedEdge(), 0, 1000) == 0.0  # the plan rejects it if its noise needs a delta
    assert check_delta(NoUnit(), "auto", 10) == 0.0
    with pytest.raises(ConfigError, match="must be below 1/B"):
        check_delta(UndirectedEdge(), 1e-3, 1000)


@pytest.mark.parametrize("delta", ["automatic", None, True, -1e-5, float("nan")])
def test_rejects_deltas_that_are_not_numbers_of_at_least_0(delta: object) -> None:
    with pytest.raises(ConfigError, match="delta="):
        check_delta(UndirectedEdge(), delta, 1000)  # type: ignore[arg-type]

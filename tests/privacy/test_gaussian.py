import math

import pytest
from scipy.stats import norm

from graphveil.errors import CalibrationError
from graphveil.privacy import gaussian
from privacy.golden import CALIBRATION, DELTA_OF_EPSILON_AND_MU, EPSILON_OF_MU_AND_DELTA


@pytest.mark.parametrize(("mu", "epsilon", "delta"), DELTA_OF_EPSILON_AND_MU)
def test_delta_of_epsilon_is_golden(mu: float, epsilon: float, delta: float) -> None:
    assert gaussian.delta_of(epsilon, mu) == pytest.approx(delta, rel=1e-9)


@pytest.mark.parametrize(("mu", "delta", "epsilon"), EPSILON_OF_MU_AND_DELTA)
def test_epsilon_of_delta_is_golden(mu: float, delta: float, epsilon: float) -> None:
    assert gaussian.epsilon_of(mu, delta) == pytest.approx(epsilon, abs=1e-6)


@pytest.mark.parametrize(("delta", "epsilon", "mu"), [row[:3] for row in CALIBRATION])
def test_calibrated_mu_is_golden(delta: float, epsilon: float, mu: float) -> None:
    assert gaussian.mu_of(epsilon, delta) == pytest.approx(mu, rel=1e-6)


def test_the_curve_is_the_tradeoff_of_two_normals() -> None:
    # Of N(0, 1) and N(mu, 1): delta(epsilon) = P(x > t) - e^epsilon Q(x > t), t where the ratio is e^epsilon.
    mu, epsilon = 0.7, 0.9
    threshold = epsilon / mu + mu / 2
    expected = norm.sf(threshold - mu) - math.exp(epsilon) * norm.sf(threshold)
    assert gaussian.delta_of(epsilon, mu) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("epsilon", [1e50, 1e160, 1e308, 1.7976931348623157e308])
def test_an_epsilon_beyond_all_has_no_delta_and_no_noise(epsilon: float) -> None:
    assert [gaussian.delta_of(epsilon, mu) for mu in (1e-100, 1e-6, 60.0, 1e6)] == [0.0] * 4
    with pytest.raises(CalibrationError, match="choose a smaller epsilon"):
        gaussian.mu_of(epsilon, 1e-5)


def test_without_a_difference_nothing_leaks() -> None:
    assert gaussian.delta_of(0.0, 0.0) == 0.0
    assert gaussian.epsilon_of(0.0, 1e-9) == 0.0


def test_a_large_delta_needs_no_epsilon() -> None:
    assert gaussian.epsilon_of(1.0, 0.4) == 0.0


@pytest.mark.parametrize(("mu", "delta"), [(math.inf, 1e-5), (1.0, 0.0), (1.0, -1e-9)])
def test_what_nothing_bounds_has_infinite_epsilon(mu: float, delta: float) -> None:
    assert gaussian.epsilon_of(mu, delta) == math.inf


@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.2, 5.0, 60.0, 1e4])
@pytest.mark.parametrize("delta", [1e-12, 1e-7, 1e-3])
def test_epsilon_is_on_the_safe_side_of_its_root(mu: float, delta: float) -> None:
    epsilon = gaussian.epsilon_of(mu, delta)
    assert gaussian.delta_of(epsilon, mu) <= delta * (1 + 1e-12)


def test_tiny_deltas_keep_their_digits() -> None:
    assert 0 < gaussian.delta_of(30.0, 1.0) < 1e-180


@pytest.mark.parametrize(
    ("epsilon", "delta", "way"), [(1e-9, 1e-12, "larger"), (5000.0, 1e-5, "smaller"), (1e5, 1e-5, "smaller")]
)
def test_a_budget_out_of_reach_is_a_typed_error(epsilon: float, delta: float, way: str) -> None:
    with pytest.raises(CalibrationError, match=f"no Gaussian noise.*choose a {way} epsilon"):
        gaussian.mu_of(epsilon, delta)


def test_the_attackers_rate_rises_with_mu_from_blind_guessing() -> None:
    rates = [gaussian.tpr(0.01, mu) for mu in (0.0, 0.21373627, 1.0, 5.0)]
    assert rates[0] == pytest.approx(0.01)
    assert rates[1] == pytest.approx(0.0173, abs=5e-5)
    assert rates == sorted(rates)


@pytest.mark.parametrize("steps", [128, 1000])
@pytest.mark.parametrize("delta", [1e-12, 1e-7, 1e-4])
def test_a_thousandth_of_delta_covers_the_exact_sampler_for_any_number_of_rows(
    steps: int, delta: float
) -> None:
    # docs/privacy/proofs/noise.md, Proposition 9, for noise of so many grid steps.
    for mu in (0.01, 0.1, 1.0, 4.0):
        epsilon = gaussian.epsilon_of(mu, delta)
        rounded = mu / math.sqrt(1 - 1 / (12 * steps**2))
        found = gaussian.delta_of(epsilon - 3.01 * mu**2 / steps**3, rounded) ** (1 - 1e-5)
        assert found <= delta * (1 + 5.3e-4)

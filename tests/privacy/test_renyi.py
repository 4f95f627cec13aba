import pytest

from graphveil.privacy import gaussian, renyi
from privacy.golden import CALIBRATION


@pytest.mark.parametrize(("delta", "epsilon", "bracket"), [(d, e, r) for d, e, _, _, r in CALIBRATION])
def test_the_papers_noise_is_golden(delta: float, epsilon: float, bracket: tuple[float, float]) -> None:
    plain, improved = bracket
    assert 1 / renyi.mu_of(epsilon, delta, "plain") == pytest.approx(plain, abs=6e-5)
    assert 1 / renyi.mu_of(epsilon, delta, "improved") == pytest.approx(improved, abs=6e-5)


@pytest.mark.parametrize(("delta", "epsilon"), [row[:2] for row in CALIBRATION])
def test_exact_noise_beats_the_papers(delta: float, epsilon: float) -> None:
    exact = 1 / gaussian.mu_of(epsilon, delta)
    assert exact < 1 / renyi.mu_of(epsilon, delta, "improved") < 1 / renyi.mu_of(epsilon, delta, "plain")


def test_a_renyi_bound_is_never_below_the_exact_epsilon() -> None:
    for mu in (0.01, 0.1, 1.0, 4.0):
        for delta in (1e-9, 1e-5, 1e-3):
            assert renyi.epsilon_of(mu, delta) >= gaussian.epsilon_of(mu, delta)

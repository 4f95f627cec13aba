import numpy as np
import pytest

from graphveil.errors import CalibrationError, ConfigError
from graphveil.privacy import DirectedEdge, NoUnit, UndirectedEdge, auto_delta, calibrate_mu, check_delta
from graphveil.privacy.gaussian import delta_of, epsilon_of
from privacy.golden import CALIBRATION, HOPS

# Release gate 4: 2,000 points over the whole range that anybody would ask for.
EPSILONS = np.geomspace(0.01, 50, 50)
DELTAS = np.geomspace(1e-12, 1e-3, 40)


@pytest.mark.parametrize(("delta", "epsilon", "sigmas"), [(d, e, s) for d, e, _, s, _ in CALIBRATION])
def test_noise_for_k_equal_hops_is_golden(delta: float, epsilon: float, sigmas: tuple[float, ...]) -> None:
    mu = calibrate_mu(epsilon, delta)
    assert [np.sqrt(k) / mu for k in HOPS] == pytest.approx(list(sigmas), abs=6e-5)


def test_the_certified_epsilon_is_never_above_its_target_and_at_most_one_percent_below() -> None:
    for epsilon in EPSILONS:
        for delta in DELTAS:
            certified = epsilon_of(calibrate_mu(epsilon, delta), delta)
            assert epsilon * 0.99 <= certified <= epsilon, (epsilon, delta)


def test_calibration_rounds_towards_more_noise() -> None:
    for epsilon in EPSILONS[::7]:
        for delta in DELTAS[::7]:
            assert delta_of(epsilon, calibrate_mu(epsilon, delta)) <= delta


def test_slack_is_paid_for_by_more_noise() -> None:
    assert calibrate_mu(1.0, 1e-7, slack=1e-8) < calibrate_mu(1.0, 1e-7)
    assert delta_of(1.0, calibrate_mu(1.0, 1e-7, slack=1e-8)) <= 0.9e-7


@pytest.mark.parametrize("slack", [1e-7, 1.0])
def test_slack_that_takes_all_of_delta_is_refused(slack: float) -> None:
    with pytest.raises(CalibrationError, match="finite resolution"):
        calibrate_mu(1.0, 1e-7, slack=slack)


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 1e-5), (-1, 1e-5), (1, 0), (float("nan"), 1e-5)])
def test_a_budget_of_nothing_is_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(ConfigError, match="must be a finite number above 0"):
        calibrate_mu(epsilon, delta)


@pytest.mark.parametrize(
    ("bound", "delta"),
    [(1, 1e-7), (10**5, 1e-7), (10**6, 1e-7), (10**6 + 1, 1e-8), (10**9, 1e-10), (10**15 + 1, 1e-17)],
)
def test_auto_delta_is_the_cap_or_a_power_of_ten_below_a_tenth_of_one_unit(bound: int, delta: float) -> None:
    assert auto_delta(UndirectedEdge(), bound) == delta
    assert auto_delta(DirectedEdge(), bound) == delta


def test_an_explicit_delta_is_refused_only_where_it_could_publish_somebody() -> None:
    assert check_delta(UndirectedEdge(), 9e-4, 1000) == 9e-4
    with pytest.raises(ConfigError, match="must be below 1/B"):
        check_delta(UndirectedEdge(), 1e-3, 1000)


def test_a_delta_of_0_is_left_to_the_plan_which_knows_its_noise() -> None:
    assert check_delta(UndirectedEdge(), 0, 1000) == 0.0


@pytest.mark.parametrize("delta", ["automatic", None, True, -1e-5, float("nan")])
def test_a_delta_that_is_no_number_from_0_is_refused(delta: object) -> None:
    with pytest.raises(ConfigError, match="delta="):
        check_delta(UndirectedEdge(), delta, 1000)  # type: ignore[arg-type]


def test_without_a_unit_there_is_no_delta() -> None:
    assert check_delta(NoUnit(), "auto", 10) == 0.0

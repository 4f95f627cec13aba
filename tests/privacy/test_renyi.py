import math

import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from scipy.integrate import quad
from scipy.stats import norm

from graphveil.core.accounting import gaussian
from graphveil.core.accounting.accountant import privacy_curve
from graphveil.core.events import (
    ByGroup,
    Composed,
    Event,
    Gaussian,
    NonPrivate,
    PairwiseGaussian,
    PoissonGaussian,
    Relation,
    compose,
)
from graphveil.errors import CalibrationError, PrivacyError
from graphveil.papers.as_published import renyi
from privacy.golden import CALIBRATION, DP_SGD, JOINT_PIPELINE

ORDERS = range(2, 300)


@pytest.mark.parametrize(("delta", "epsilon", "bracket"), [(d, e, r) for d, e, _, _, r in CALIBRATION])
def test_the_noise_of_the_papers_is_golden(
    delta: float, epsilon: float, bracket: tuple[float, float]
) -> None:
    plain, improved = bracket
    assert 1 / renyi.mu_of(epsilon, delta, "plain") == pytest.approx(plain, abs=6e-5)
    assert 1 / renyi.mu_of(epsilon, delta, "improved") == pytest.approx(improved, abs=6e-5)


@pytest.mark.parametrize(("delta", "epsilon"), [row[:2] for row in CALIBRATION])
def test_exact_accounting_needs_less_noise_than_the_papers(delta: float, epsilon: float) -> None:
    exact = 1 / gaussian.mu_of(epsilon, delta)
    assert exact < 1 / renyi.mu_of(epsilon, delta, "improved") < 1 / renyi.mu_of(epsilon, delta, "plain")


def test_a_renyi_bound_is_an_upper_bound_of_the_exact_epsilon() -> None:
    for mu in (0.01, 0.1, 1.0, 4.0):
        for delta in (1e-9, 1e-5, 1e-3):
            assert renyi.epsilon_of(mu, delta) >= gaussian.epsilon_of(mu, delta)


STEPS = [(0.6, 0.0128), (1.0, 0.01), (3.0, 0.3)]  # noise and rate


@pytest.mark.parametrize("alpha", [2, 3, 7, 40])
@pytest.mark.parametrize(("noise", "rate"), STEPS)
def test_integer_orders_agree_with_dp_accounting(noise: float, rate: float, alpha: int) -> None:
    oracle = RdpAccountant([alpha])  # whose series for orders in between do not always converge
    oracle.compose(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise)))
    ours = renyi._sampled(PoissonGaussian(noise, rate, 1), alpha)
    assert ours == pytest.approx(oracle._rdp[0], rel=1e-9, abs=1e-14)


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
@pytest.mark.parametrize("alpha", [1.05, 1.5, 7.3])
@pytest.mark.parametrize(("noise", "rate"), STEPS)
def test_other_orders_agree_with_quadrature(
    noise: float, rate: float, alpha: float, relation: Relation
) -> None:
    mu, other = 1 / noise, -1.0 if relation == "replace" else 0.0

    def log_density(x: float, shift: float) -> float:
        logs = math.log1p(-rate) + norm.logpdf(x), math.log(rate) + norm.logpdf(x, shift)
        return max(logs) + math.log1p(math.exp(min(logs) - max(logs)))

    def integrand(x: float) -> float:
        return math.exp(alpha * log_density(x, mu) + (1 - alpha) * log_density(x, other * mu))

    found = quad(integrand, -12, alpha * mu + 12, limit=200, epsabs=0, epsrel=1e-11)[0]
    ours = renyi._sampled(PoissonGaussian(noise, rate, 1, relation), alpha)
    assert ours == pytest.approx(math.log(found) / (alpha - 1), rel=1e-6)


@pytest.mark.parametrize(
    ("noise", "rate", "steps"), [row[:3] for row in DP_SGD if row[3] == "add_remove"] + [(2.0, 0.0128, 1562)]
)
def test_the_bound_on_training_is_at_most_that_of_a_list_of_orders(
    noise: float, rate: float, steps: int
) -> None:
    oracle = RdpAccountant(ORDERS)
    oracle.compose(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise)), steps)
    listed = oracle.get_epsilon(1e-5)
    assert (
        listed * 0.97
        <= renyi.epsilon_of_event(PoissonGaussian(noise, rate, steps), 1e-5)
        <= listed * (1 + 1e-9)
    )


@pytest.mark.parametrize(("noise", "rate", "steps", "relation"), [row[:4] for row in DP_SGD])
def test_the_bound_on_training_is_close_to_the_certified_epsilon(
    noise: float, rate: float, steps: int, relation: str
) -> None:
    event = PoissonGaussian(noise, rate, steps, relation)  # type: ignore[arg-type]
    certified = privacy_curve(event, interval=1e-3).epsilon(1e-5)
    assert certified * 0.998 < renyi.epsilon_of_event(event, 1e-5) < certified * 1.3


def test_gaussian_events_have_the_closed_form() -> None:
    event = compose(Gaussian(0.3), PairwiseGaussian("labels", ((0.16, 0.0), (0.0, 0.1))))
    assert renyi.epsilon_of_event(event, 1e-5) == pytest.approx(renyi.epsilon_of(0.5, 1e-5), rel=1e-9)
    assert renyi.epsilon_of_event(event, 1e-5, "plain") == pytest.approx(
        renyi.epsilon_of(0.5, 1e-5, "plain"), rel=1e-9
    )


def test_the_worst_group_counts() -> None:
    parts: tuple[Event, ...] = (PoissonGaussian(1.0, 0.0128, 500), Gaussian(0.3), Composed(()))
    alone = [renyi.epsilon_of_event(part, 1e-5) for part in parts]
    assert renyi.epsilon_of_event(ByGroup("split", parts), 1e-5) == max(alone)


@pytest.mark.parametrize("epsilon", [row[0] for row in JOINT_PIPELINE])
def test_one_multiplier_of_steps_and_hops_has_the_epsilon_of_the_papers(epsilon: float) -> None:
    def pipeline(noise: float) -> Event:
        training = PoissonGaussian(noise, 256 / 20000, 781)
        return compose(training, Gaussian(1 / noise), Gaussian(1 / noise), training)

    noise = renyi.multiplier_of(epsilon, 1e-5, pipeline)
    assert renyi.epsilon_of_event(pipeline(noise), 1e-5) == pytest.approx(epsilon, rel=1e-6)
    exact = dict(JOINT_PIPELINE)[epsilon]
    assert exact < noise < 1.2 * exact  # what the papers' accounting costs in noise


def test_rejects_an_epsilon_that_no_noise_attains() -> None:
    with pytest.raises(CalibrationError, match="No noise multiplier from"):
        renyi.multiplier_of(1.0, 1e-5, lambda noise: compose(Gaussian(1.0), Gaussian(1 / noise)))
    with pytest.raises(CalibrationError, match="No noise multiplier from"):
        renyi.multiplier_of(1e5, 1e-5, lambda noise: Gaussian(1 / noise))


def test_a_release_without_noise_has_no_bound() -> None:
    assert renyi.epsilon_of_event(compose(Gaussian(0.1), NonPrivate()), 1e-5) == math.inf


def test_rejects_unknown_events_by_name() -> None:
    class Laplace:
        pass

    with pytest.raises(PrivacyError, match="Laplace"):
        renyi.epsilon_of_event(compose(Laplace()), 1e-5)  # type: ignore[arg-type]

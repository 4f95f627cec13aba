"""Pure releases: their exact curve, alone, repeated and next to Gaussians; and several edges together."""

import math
from functools import reduce
from itertools import product

import numpy as np
import pytest

from graphveil.core.accounting.accountant import PldCurve, PureCurve, PureGaussianCurve, privacy_curve
from graphveil.core.accounting.gaussian import delta_of
from graphveil.core.accounting.loss import gaussian_loss, pure_loss
from graphveil.core.events import Gaussian, PureDP, compose
from graphveil.core.unit import UndirectedEdge
from graphveil.privacy import Guarantee


def by_outcomes(epsilons: list[float], x: float) -> float:
    """Delta at x, over all outcomes of randomized responses."""
    total = 0.0
    for truths in product((True, False), repeat=len(epsilons)):
        p = q = 1.0
        for truth, epsilon in zip(truths, epsilons, strict=True):
            kept = 1 / (1 + math.exp(-epsilon))
            p, q = p * (kept if truth else 1 - kept), q * (1 - kept if truth else kept)
        total += max(0.0, p - math.exp(x) * q)
    return total


def by_values(epsilon: float, x: float) -> float:
    """Delta at x of discrete Laplace noise on a number that moves by one, over all values."""
    z = np.arange(-400, 400)
    p = math.tanh(epsilon / 2) * np.exp(-epsilon * np.abs(z))
    return float(np.maximum(p[1:] - math.exp(x) * p[:-1], 0).sum())


@pytest.mark.parametrize("x", [0.0, 0.3, 0.99])
def test_discrete_laplace_noise_attains_the_curve(x: float) -> None:
    assert privacy_curve(PureDP(1.0)).delta(x) == pytest.approx(by_values(1.0, x), rel=1e-9)


@pytest.mark.parametrize("epsilons", [[1.0], [0.5, 0.5, 0.5], [0.2, 0.7, 0.7, 1.1]])
def test_compositions_are_exact(epsilons: list[float]) -> None:
    curve = privacy_curve(compose(*map(PureDP, epsilons)))
    for x in (0.0, 0.4, 0.9, 1.4):
        assert curve.delta(x) == pytest.approx(by_outcomes(epsilons, x), abs=1e-12)
    assert curve.delta(sum(epsilons)) == 0
    assert curve.epsilon(0.0) == pytest.approx(sum(epsilons), rel=1e-15)
    for delta in (1e-9, 1e-3, 0.05):
        assert curve.delta(curve.epsilon(delta)) == pytest.approx(delta, rel=1e-6, abs=1e-12)
    assert curve.epsilon(-1e-9) == math.inf


def test_a_hundred_small_releases_cost_less_than_their_sum_at_a_delta() -> None:
    curve = privacy_curve(compose(*[PureDP(0.1)] * 100))
    assert curve.epsilon(0.0) == 10.0
    assert curve.epsilon(1e-7) == pytest.approx(5.19216, abs=1e-4)


def test_the_attack_bound_is_that_of_randomized_response() -> None:
    curve = privacy_curve(PureDP(1.0))
    assert curve.tpr(0.01) == pytest.approx(0.01 * math.e, rel=1e-12)
    assert curve.tpr(0.5) == pytest.approx(1 - 0.5 / math.e, rel=1e-12)


def test_losses_add_up_with_those_of_a_gaussian() -> None:
    mixed = privacy_curve(compose(PureDP(1.0), Gaussian(0.2)))
    assert isinstance(mixed, PureGaussianCurve)
    # E over the pure loss l of the Gaussian's delta at x - l.
    kept = 1 / (1 + math.exp(-1.0))
    for x in (0.5, 1.0, 1.7):
        exact = kept * delta_of(x - 1, 0.2) + (1 - kept) * delta_of(x + 1, 0.2)
        assert mixed.delta(x) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("delta", [1e-12, 1e-7, 1e-3])
@pytest.mark.parametrize(
    "events",
    [
        (PureDP(0.8), PureDP(0.2), Gaussian(0.23)),
        (PureDP(8.0), Gaussian(2.3)),
        (PureDP(1e-3), Gaussian(3.0)),
        (*[PureDP(0.1)] * 40, Gaussian(0.5)),
    ],
)
def test_the_mixed_curve_is_just_below_a_pessimistic_distribution(
    events: tuple[PureDP | Gaussian, ...], delta: float
) -> None:
    exact = privacy_curve(compose(*events))
    pure = [event.epsilon for event in events if isinstance(event, PureDP)]
    (mu,) = (event.mu for event in events if isinstance(event, Gaussian))
    composed = reduce(lambda one, other: one.compose(other), (pure_loss(each, 1e-4) for each in pure))
    grid = PldCurve(composed.compose(gaussian_loss(mu, 1e-4)))
    epsilon = exact.epsilon(delta)
    assert grid.epsilon(delta) * (1 - 1e-4) - 1e-4 <= epsilon <= grid.epsilon(delta)
    assert delta * (1 - 1e-6) <= exact.delta(epsilon) <= delta
    assert grid.tpr(0.01) * (1 - 1e-3) <= exact.tpr(0.01) <= grid.tpr(0.01)
    assert exact.epsilon(0.0) == math.inf


def test_many_epsilons_are_put_on_a_grid() -> None:
    many = compose(*(PureDP(0.01 * k) for k in range(1, 15)))
    assert isinstance(privacy_curve(many), PldCurve)
    few = compose(*(PureDP(0.01 * k) for k in range(1, 12)))
    exact = privacy_curve(few)
    assert isinstance(exact, PureCurve)
    assert privacy_curve(many).epsilon(1e-7) <= 1.05 + 1e-3


def test_several_edges_cost_their_sum_and_the_statement_contains_it() -> None:
    one = Guarantee.from_event(UndirectedEdge(), PureDP(0.5), delta=1e-7, releases=1)
    assert one.group_epsilon(10) == pytest.approx(5.0, abs=1e-6)
    assert "at delta 0 it is 0.5, and k edges of one person together cost k times" in one.formal_statement()
    assert "at most r times the epsilon" in one.formal_statement()
    assert "sqrt" not in one.formal_statement()
    assert one.repeated(3).epsilon == pytest.approx(1.5, abs=1e-5)
    both = Guarantee.compose(
        [one, Guarantee.from_event(UndirectedEdge(), Gaussian(0.1), delta=1e-7, releases=1)]
    )
    assert both.epsilon > 0.5
    assert "at delta 0" not in both.formal_statement()

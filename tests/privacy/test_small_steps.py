"""Steps with much noise: their divergences as differences that do not cancel, against 60 digits."""

from collections.abc import Callable
from functools import partial
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting.pld.pld_pmf import DensePLDPmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

from graphveil.core.accounting.accountant import PldCurve, privacy_curve
from graphveil.core.accounting.loss import SMALL, RootPair, added, removed, replaced
from graphveil.core.events import Event, Gaussian, PoissonGaussian, PoissonRoots, PureDP, Relation, compose

Weights = list[Any]
SHARES = (-6.0, -1.0, -0.1, 0.0, 0.01, 1.0, 6.0)  # of the largest slope of the loss: in units of x
DIGITS = 60


def binomial(count: int, rate: float) -> Weights:
    exact = mpmath.mpf(rate)
    return [mpmath.binomial(count, k) * exact**k * (1 - exact) ** (count - k) for k in range(count + 1)]


def divergence(above: Weights, below: Weights, unit: float, epsilon: float, sign: int) -> Any:
    """Return the hockey-stick divergence of the sum of w_k N(k unit, 1) and of v_j N(-j unit, 1).

    The log ratio of the two grows with x. With sign 1 this is that of the first against the second, with -1
    that of the second against the first. The crossing is found by bisection, not by a closed form.
    """
    unit, epsilon = mpmath.mpf(unit), mpmath.mpf(epsilon)

    def density(weights: Weights, x: Any, shift: Any) -> Any:
        return mpmath.fsum(w * mpmath.exp(k * shift * (x - k * shift / 2)) for k, w in enumerate(weights))

    def excess(x: Any) -> Any:
        ratio = mpmath.log(density(above, x, unit) / density(below, x, -unit))
        return ratio - sign * epsilon

    low, high = mpmath.mpf(-40), mpmath.mpf(40)
    for _ in range(2 * DIGITS):  # to 36 digits of x, so 70 of the divergence, which is flat there
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) < 0 else (low, middle)

    def tail(weights: Weights, shift: Any) -> Any:
        """Return the mass beyond the crossing, on the side where the divergence is collected."""
        return mpmath.fsum(w * mpmath.ncdf(sign * (k * shift - low)) for k, w in enumerate(weights))

    first, second = tail(above, unit), tail(below, -unit)
    return first - mpmath.exp(epsilon) * second if sign > 0 else second - mpmath.exp(epsilon) * first


def compared(found: Callable[[Any], Any], exact: Callable[[float], Any], slope: float) -> None:
    epsilons = np.array(SHARES) * slope
    with mpmath.workdps(DIGITS):
        known = [float(exact(float(epsilon))) for epsilon in epsilons]
    assert min(known) > 0
    assert found(epsilons) == pytest.approx(np.array(known), rel=1e-9)


@pytest.mark.parametrize("mu", [1e-7, 1e-3, 0.99 * SMALL, 1.01 * SMALL])
@pytest.mark.parametrize("rate", [0.0016, 0.3, 0.99])
@pytest.mark.parametrize("form", ["removed", "added", "replaced"])
def test_one_sampled_step_agrees_with_60_digits(mu: float, rate: float, form: str) -> None:
    one = {"removed": removed, "added": added, "replaced": replaced}[form]
    with mpmath.workdps(DIGITS):
        above = binomial(1, rate)
        below = above if form == "replaced" else [mpmath.mpf(1)]
    sign = -1 if form == "added" else 1
    slope = 2 * rate * mu if form == "replaced" else rate * mu
    compared(
        partial(lambda epsilons: one(epsilons, rate, mu)),
        lambda epsilon: divergence(above, below, mu, epsilon, sign),
        slope,
    )


@pytest.mark.parametrize("roots", [2, 5])
@pytest.mark.parametrize("unit", [1e-7, 1e-4, 3e-3])
@pytest.mark.parametrize("rate", [0.0016, 0.3])
@pytest.mark.parametrize("relation", ["add_remove", "replace"])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_step_with_several_roots_agrees_with_60_digits(
    roots: int, unit: float, rate: float, relation: Relation, sign: int
) -> None:
    pair = RootPair.from_event(PoissonRoots(1 / unit, rate, 1, roots, relation))
    assert pair._is_small
    others = roots if relation == "replace" else roots - 1
    with mpmath.workdps(DIGITS):
        above, below = binomial(roots, rate), binomial(others, rate)
    compared(
        pair.removed if sign > 0 else pair.added,
        lambda epsilon: divergence(above, below, pair.unit, epsilon, sign),
        (roots + others) * rate * unit,
    )


@pytest.mark.parametrize(
    "event",
    [
        PoissonGaussian(1.0, 0.01, 1000),
        PoissonGaussian(0.15, 0.0016, 10),
        PoissonGaussian(0.06, 0.5, 1),
        PoissonGaussian(0.35353603920224563, 0.0128, 1000),  # losses of up to 3,000: e^-loss underflows
        PoissonGaussian(0.5, 0.2, 3, "replace"),
        PoissonGaussian(200.0, 0.0016, 100),
        PoissonRoots(40.0, 0.1, 30, 3),
        compose(PoissonGaussian(1.0, 0.01, 100), Gaussian(0.4)),
        compose(PoissonGaussian(1.0, 0.01, 100), PureDP(0.3)),
        compose(PoissonGaussian(1.0, 0.01, 10), Gaussian(15.0)),
    ],
    ids=str,
)
@pytest.mark.parametrize("interval", [1e-3, 5e-2])
def test_epsilon_is_bit_identical_to_dp_accounting(event: Event, interval: float) -> None:
    curve = privacy_curve(event, interval=interval)
    assert isinstance(curve, PldCurve)
    for delta in (1e-13, 1e-9, 1e-5, 1e-3, 0.5):
        left = delta - curve.delta_error
        assert left <= 0 or curve.epsilon(delta) == curve.pld.get_epsilon_for_delta(left)


def test_losses_with_almost_no_weight_are_summed_without_a_warning() -> None:
    masses = np.array([0.5, *[0.0] * 60, 0.5 - 1e-5, *[0.0] * 12, 1e-5])
    pld = PrivacyLossDistribution(DensePLDPmf(10.0, -1, masses, 0.0, True))  # losses of -10, 600 and 730
    assert PldCurve(pld).epsilon(0.1) == pld.get_epsilon_for_delta(0.1) == pytest.approx(600, abs=1)

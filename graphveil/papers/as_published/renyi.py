"""The papers' own accounting, in Renyi divergences.

A Gaussian release with mu has Renyi divergence alpha mu^2 / 2 at every order alpha > 1, and so has each step
on the full dataset. A step on a Poisson sample has, between the densities P and Q of
``docs/privacy/proofs/index.md``,

    D(alpha) = 1 / (alpha - 1) log E_Q (P / Q)^alpha.
"""

import math
from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq, minimize_scalar
from scipy.special import logsumexp

from graphveil.core.accounting.accountant import CanonicalComposition, worst_case_compositions
from graphveil.core.events import Event, NonPrivate, PoissonGaussian
from graphveil.errors import CalibrationError, PrivacyError

Conversion = Literal["plain", "improved"]
Floats: TypeAlias = npt.NDArray[np.float64]

EXCESS = (-12.0, 16.0)  # logarithms of alpha - 1 to search in
SAMPLED_EXCESS = (-4.0, 7.0)  # and those where a sampled step is integrated
_STEP, _REACH = 0.1, 14.0  # of the integral's grid, in standard deviations of the noise
_LOG_WEIGHT = math.log(_STEP / math.sqrt(2 * math.pi))
_MULTIPLIERS = (1 / 32, 2.0**20)  # noise multipliers to search in


def epsilon_of_event(event: Event, delta: float, conversion: Conversion = "improved") -> float:
    """Return the Renyi bound on epsilon of an event: of the worst group of records, if it has groups.

    The order is optimized over all real numbers, so nothing is lost to a coarse list of orders.

    >>> 1.0 < epsilon_of_event(PoissonGaussian(2.0, 0.0128, 1562), 1e-5) < 1.2
    True
    """
    return max(_of_total(total, delta, conversion) for total in worst_case_compositions(event))


def _of_total(total: CanonicalComposition, delta: float, conversion: Conversion) -> float:
    training = {part: count for part, count in total.rest.items() if isinstance(part, PoissonGaussian)}
    for part in total.rest:
        if isinstance(part, NonPrivate):
            return math.inf
        if part not in training:
            raise PrivacyError(f"the Renyi accountant does not support the event {type(part).__name__}")

    def divergence(alpha: float) -> float:
        steps = sum(count * _sampled(part, alpha) for part, count in training.items())
        return alpha * total.mu_squared / 2 + steps

    # Integrals of sampled steps overflow at orders that closed forms still reach.
    if not training:
        return minimum_over_orders(divergence, delta, conversion, EXCESS, 1e-10)
    return minimum_over_orders(divergence, delta, conversion, SAMPLED_EXCESS, 1e-5)


def minimum_over_orders(
    divergence: Callable[[float], float],
    delta: float,
    conversion: Conversion,
    bounds: tuple[float, float],
    tolerance: float,
) -> float:
    def bound(log_excess: float) -> float:
        excess = math.exp(log_excess)  # alpha - 1
        alpha = 1 + excess
        base = divergence(alpha) - math.log(delta) / excess
        if conversion == "plain":
            return base
        return base + math.log(excess / alpha) - math.log(alpha) / excess

    found = minimize_scalar(bound, bounds=bounds, method="bounded", options={"xatol": tolerance})
    return max(0.0, float(found.fun))


def _sampled(part: PoissonGaussian, alpha: float) -> float:
    """Return the divergence of one sampled step, in the larger one of its two directions."""
    mu = 1 / part.noise_multiplier
    x = np.arange(-_REACH, alpha * mu + _REACH, _STEP)  # the integrand peaks below alpha mu
    one, other = _log_density(part, x), np.zeros_like(x)
    if part.relation == "replace":
        other = _log_density(part, -x)
    whole = logsumexp(alpha * one + (1 - alpha) * other - x**2 / 2) + _LOG_WEIGHT
    return max(0.0, float(whole)) / (alpha - 1)


def _log_density(part: PoissonGaussian, x: Floats) -> Floats:
    """Return log of (1 - q) N(0, 1) + q N(mu, 1) over N(0, 1)."""
    mu, rate = 1 / part.noise_multiplier, part.sampling_rate
    return np.logaddexp(math.log1p(-rate), math.log(rate) + mu * (x - mu / 2))


def epsilon_of(mu: float, delta: float, conversion: Conversion = "improved") -> float:
    """Return the Renyi bound on epsilon; ``plain`` is Mironov's, ``improved`` that of Canonne et al.

    >>> epsilon_of(1 / 4.0451, 1e-5) <= 1.0001
    True
    """
    return minimum_over_orders(lambda alpha: alpha * mu**2 / 2, delta, conversion, EXCESS, 1e-10)


def mu_of(epsilon: float, delta: float, conversion: Conversion = "improved") -> float:
    """Return the mu at which the Renyi bound equals epsilon.

    >>> round(1 / mu_of(1.0, 1e-5), 4), round(1 / mu_of(1.0, 1e-5, "plain"), 4)
    (4.0451, 4.9006)
    """

    def excess(log_mu: float) -> float:
        return epsilon_of(math.exp(log_mu), delta, conversion) - epsilon

    return math.exp(brentq(excess, -14, 4, xtol=1e-12))


def multiplier_of(
    epsilon: float, delta: float, event: Callable[[float], Event], conversion: Conversion = "improved"
) -> float:
    """Return the noise multiplier at which the Renyi bound of ``event(multiplier)`` equals epsilon.

    One multiplier serves all parts, as in the papers: gradient steps and aggregations alike.

    >>> z = multiplier_of(8.0, 1e-5, lambda z: PoissonGaussian(z, 0.0128, 781))
    >>> 0.5 < z < 0.7
    True
    """

    return _multiplier_for_epsilon(epsilon, delta, lambda z: epsilon_of_event(event(z), delta, conversion))


def _multiplier_for_epsilon(epsilon: float, delta: float, bound: Callable[[float], float]) -> float:
    def excess(multiplier: float) -> float:
        return bound(multiplier) - epsilon

    low = high = 1.0
    while excess(high) > 0 and high <= _MULTIPLIERS[1]:
        low, high = high, 2 * high
    while excess(low) < 0 and low >= _MULTIPLIERS[0]:
        low, high = low / 2, low
    if excess(low) < 0 or excess(high) > 0:
        raise CalibrationError(
            f"No noise multiplier from {_MULTIPLIERS[0]:.2g} to {_MULTIPLIERS[1]:.2g} reaches the "
            f"Renyi bound epsilon={epsilon:g} at delta {delta:g}. Use another epsilon."
        )
    return float(brentq(excess, low, high, xtol=1e-9))


def subgraph_multiplier_of(
    epsilon: float, delta: float, *, records: int, batch: int, reach: int, steps: int
) -> float:
    """Return the multiplier z of SAGE-NDP: steps over sampled subgraphs, then one aggregation.

    A record is in the subgraphs of up to R = ``reach`` + 1 roots. With batches of m out of N roots and noise
    2 z R C on sums of gradients of norm C (Daigavane et al.: Node-level differentially private graph neural
    networks, 2021), a step has

        D(alpha) = 1 / (alpha - 1) log E exp(alpha (alpha - 1) rho^2 / (2 z^2 R^2)),

    rho hypergeometric: how many of R marked roots are among m of N. The aggregation adds alpha / (2 z^2). The
    batches that are run are Poisson samples, which this does not account for.

    >>> z = subgraph_multiplier_of(8.0, 1e-5, records=14_204, batch=256, reach=100, steps=554)
    >>> 0.7 < z < 0.75
    True
    """
    from scipy.stats import hypergeom  # slow to import

    roots = reach + 1
    rho = np.arange(min(roots, batch) + 1)
    chances = hypergeom.logpmf(rho, records, roots, batch)

    def bound(multiplier: float) -> float:
        def divergence(alpha: float) -> float:
            growth = alpha * (alpha - 1) * (rho / (multiplier * roots)) ** 2 / 2
            step = float(logsumexp(chances + growth)) / (alpha - 1)
            return steps * step + alpha / (2 * multiplier**2)

        return minimum_over_orders(divergence, delta, "improved", SAMPLED_EXCESS, 1e-6)

    return _multiplier_for_epsilon(epsilon, delta, bound)

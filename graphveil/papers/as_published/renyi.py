"""The papers' own accounting, in Renyi divergences."""

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp

from graphveil.core.events import Event
from graphveil.errors import CalibrationError
from graphveil.privacy.renyi import (
    EXCESS,
    SAMPLED_EXCESS,
    Conversion,
    epsilon_of_event,
    minimum_over_orders,
)

_MULTIPLIERS = (1 / 32, 2.0**20)  # noise multipliers to search in


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

    >>> from graphveil.core.events import PoissonGaussian
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

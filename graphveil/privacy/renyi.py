"""The papers' own accounting, in Renyi divergences: for paper mode and as a cross-check, never for a claim.

A Gaussian release with mu has Renyi divergence alpha mu^2 / 2 at every order alpha > 1.
"""

import math
from typing import Literal

from scipy.optimize import brentq, minimize_scalar

Conversion = Literal["plain", "improved"]


def epsilon_of(mu: float, delta: float, conversion: Conversion = "improved") -> float:
    """Return the Renyi bound on epsilon; ``plain`` is Mironov's, ``improved`` that of Canonne et al.

    >>> epsilon_of(1 / 4.0451, 1e-5) <= 1.0001
    True
    """

    def bound(log_excess: float) -> float:
        excess = math.exp(log_excess)  # alpha - 1
        alpha = 1 + excess
        base = alpha * mu**2 / 2 - math.log(delta) / excess
        if conversion == "plain":
            return base
        return base + math.log(excess / alpha) - math.log(alpha) / excess

    return float(minimize_scalar(bound, bounds=(-12, 16), method="bounded", options={"xatol": 1e-10}).fun)


def mu_of(epsilon: float, delta: float, conversion: Conversion = "improved") -> float:
    """Return the mu at which the Renyi bound equals epsilon.

    >>> round(1 / mu_of(1.0, 1e-5), 4), round(1 / mu_of(1.0, 1e-5, "plain"), 4)
    (4.0451, 4.9006)
    """

    def excess(log_mu: float) -> float:
        return epsilon_of(math.exp(log_mu), delta, conversion) - epsilon

    return math.exp(brentq(excess, -14, 4, xtol=1e-12))

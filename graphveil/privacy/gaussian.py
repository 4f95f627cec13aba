"""Gaussian differential privacy in closed form: every figure a function of one number, mu.

A release whose L2 sensitivity is D and whose noise has standard deviation s is mu-GDP with mu = D / s, and
adaptive releases compose by mu^2 = mu_1^2 + mu_2^2 + ... (Dong, Roth, Su: Gaussian differential privacy).
The tight trade between the two errors of any test is that of N(0, 1) against N(mu, 1):

    delta(epsilon; mu) = Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu).
"""

import math

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri

from graphveil.errors import CalibrationError

MU_RANGE = (1e-6, 60.0)
_MOST = 1e6  # a larger mu has an epsilon of over 10^11, in which float64 loses its way: none is told
_LEAST = 1e-100  # and a smaller one costs as much as this, whose squares float64 still holds
# An epsilon at which every delta is 0 for a mu that is told; float64 has no squares of larger ones.
_FAR = 1e50
_ROUND_DOWN = 1e-9  # relative; calibration errs towards more noise


def delta_of(epsilon: float, mu: float) -> float:
    """Return delta(epsilon; mu), evaluated in logarithms so that tiny values keep their digits.

    >>> round(delta_of(1.0, 1.0), 9)
    0.126936738
    """
    return 0.0 if mu <= 0 else float(deltas_of(np.asarray(epsilon, dtype=np.float64), mu))


def deltas_of(epsilons: npt.NDArray[np.float64], mu: float) -> npt.NDArray[np.float64]:
    """Return delta(epsilon; mu) at many epsilons, of which any may be negative; mu is above zero.

    >>> deltas_of(np.array([-1.0, 1.0]), 1.0).round(9).tolist()
    [0.678817975, 0.126936738]
    """
    mu, epsilons = max(mu, _LEAST), np.minimum(epsilons, _FAR)
    a = log_ndtr(mu / 2 - epsilons / mu)
    b = epsilons + log_ndtr(-mu / 2 - epsilons / mu)
    return np.exp(a) * -np.expm1(np.minimum(0.0, b - a))


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)


def normal_interval_probability(
    low: npt.NDArray[np.float64], high: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return Phi(high) - Phi(low) by quadrature, to machine precision if the two are at most 1 apart.

    >>> round(float(normal_interval_probability(np.array([0.0]), np.array([1e-9]))[0] * 1e9), 9)
    0.39894228
    """
    middle, half = (low + high) / 2, (high - low) / 2
    found = np.zeros_like(middle)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        found += weight * np.exp(-0.5 * np.square(middle + node * half))
    return found * half / math.sqrt(2 * math.pi)


def epsilon_of(mu: float, delta: float) -> float:
    """Return the smallest epsilon >= 0 with delta(epsilon; mu) <= delta; infinity for a mu over 10^6.

    >>> round(epsilon_of(1.0, 1e-5), 6)
    4.377178
    """
    if mu <= _MOST and delta_of(0.0, mu) <= delta:
        return 0.0
    if delta <= 0 or mu > _MOST:
        return math.inf
    upper = 1.0
    while delta_of(upper, mu) > delta:
        upper *= 2
    # brentq may stop just short of the root; adding its tolerance keeps the answer on the safe side.
    root = float(brentq(lambda e: delta_of(e, mu) - delta, 0.0, upper, xtol=1e-12, rtol=1e-14))
    return root + 1e-12 + 1e-14 * root


def mu_of(epsilon: float, delta: float) -> float:
    """Return the largest mu whose delta(epsilon; mu) is at most delta, rounded down by 1e-9.

    >>> round(mu_of(1.0, 1e-7), 8)
    0.21373627
    """

    def excess(log_mu: float) -> float:
        return delta_of(epsilon, math.exp(log_mu)) - delta

    low, high = (math.log(edge) for edge in MU_RANGE)
    if excess(low) > 0 or excess(high) < 0:
        raise CalibrationError(
            f"no Gaussian noise gives epsilon={epsilon:g} at delta={delta:g}: mu would fall outside "
            f"[{MU_RANGE[0]:g}, {MU_RANGE[1]:g}]; "
            + (
                "choose a smaller epsilon or delta"
                if excess(high) < 0
                else "choose a larger epsilon or delta"
            )
        )
    root = brentq(excess, low, high, xtol=1e-13, rtol=1e-14)
    return math.exp(root) * (1 - _ROUND_DOWN)


def tpr(fpr: float, mu: float) -> float:
    """Return the best true-positive rate of any test at this false-positive rate: Phi(Phi^-1(FPR) + mu).

    >>> round(tpr(0.01, 0.21373627), 4)
    0.0173
    """
    return float(ndtr(ndtri(fpr) + mu))

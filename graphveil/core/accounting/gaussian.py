"""Gaussian differential privacy in closed form, and calibration: every figure is a function of one number,
mu.

A release whose L2 sensitivity is D and whose noise has standard deviation s is mu-GDP with mu = D / s, and
adaptive releases compose by mu^2 = mu_1^2 + mu_2^2 + ... (Dong, Roth, Su: Gaussian differential privacy).
The tight trade between the two errors of any test is that of N(0, 1) against N(mu, 1):

    delta(epsilon; mu) = Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu).

Calibration from a budget to the noise is one-sided, so that the certified epsilon is never above the target.
"""

import math

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.core.unit import NoUnit, Unit
from graphveil.errors import CalibrationError, ConfigError

MU_RANGE = (1e-6, 60.0)
DELTA_RANGE = (1e-15, 1e-3)  # for which the noise samplers have a proof (docs/privacy/proofs/noise.md)
_MOST = 1e6  # a larger mu has an epsilon of over 10^11, beyond the precision of float64: none is returned
_LEAST = 1e-100  # a smaller one costs as much as this, whose square float64 can still represent
# An epsilon at which every delta is 0 for all accepted mu; float64 cannot represent larger squares.
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
    if delta <= 0 or mu > _MOST:  # no Gaussian has an epsilon at delta 0, also if its delta underflows
        return 0.0 if not mu and delta == 0 else math.inf
    if delta_of(0.0, mu) <= delta:
        return 0.0
    upper = 1.0
    while delta_of(upper, mu) > delta:
        upper *= 2
    # brentq may stop just short of the root; adding its tolerance keeps the answer on the safe side.
    root = float(brentq(lambda e: delta_of(e, mu) - delta, 0.0, upper, xtol=1e-12, rtol=1e-14))
    return root + 1e-12 + 1e-14 * root


def mu_of(epsilon: float, delta: float) -> float:
    """Return the largest mu with delta(epsilon; mu) at most delta, rounded down by 1e-9.

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


def check_proved_delta(delta: float) -> None:
    """Require a delta for which the guarantee is proved.

    >>> check_proved_delta(1e-300)
    Traceback (most recent call last):
    graphveil.errors.ConfigError: delta=1e-300 is outside the range of the proofs, 1e-15 to 1e-3. Choose a \
delta in this range.
    """
    if not DELTA_RANGE[0] <= delta <= DELTA_RANGE[1]:
        raise ConfigError(
            f"delta={delta:g} is outside the range of the proofs, 1e-15 to 1e-3. Choose a delta in this "
            "range."
        )


def require_delta(delta: float, what: str) -> None:
    """Require a delta above 0 for noise that is not pure epsilon-DP.

    >>> require_delta(0.0, "NeighborSumQuery")
    Traceback (most recent call last):
    graphveil.errors.ConfigError: delta=0 requires pure epsilon-DP noise, and NeighborSumQuery adds noise \
that needs delta > 0. Use delta='auto', or a delta from 1e-15 to 1e-3.
    """
    if delta == 0:
        raise ConfigError(
            f"delta=0 requires pure epsilon-DP noise, and {what} adds noise that needs delta > 0. Use "
            "delta='auto', or a delta from 1e-15 to 1e-3."
        )


@checked
def calibrate_mu(epsilon: float, delta: float, *, slack: float = 0.0) -> float:
    """Return the total mu of a budget, after ``slack`` of delta is set aside.

    The slack covers the finite resolution of a sampler (``docs/privacy/proofs/noise.md``).

    Args:
        epsilon: Target epsilon.
        delta: Target delta.
        slack: Part of delta that covers the finite resolution of the noise.

    Returns:
        The largest mu whose epsilon is at most the target.

    Raises:
        CalibrationError: If no Gaussian noise has this guarantee, or the slack is all of delta.
        ConfigError: If an argument is out of range.

    Privacy:
        Reads: no protected data. Charges: nothing.

    >>> round(calibrate_mu(4.0, 1e-5), 8)
    0.9249309
    """
    checks.positive(epsilon=epsilon, delta=delta)
    checks.non_negative(slack=slack)
    if slack >= delta:
        raise CalibrationError(
            f"The finite resolution of the noise would use {slack:.2g}, which is all of "
            f"delta={delta:g}. Use a larger delta."
        )
    return mu_of(epsilon, delta - slack)


@checked
def auto_delta(unit: Unit, bound: int) -> float:
    """Return delta ``auto``: the cap of the unit, or the largest power of ten <= 1/(10 B).

    The smaller of the two is used.

    Args:
        unit: Privacy unit.
        bound: Public bound B on the number of protected units, or the number of nodes; never a private count.

    Returns:
        The delta.

    Raises:
        ConfigError: If ``bound`` is below 1.

    >>> from graphveil.core.unit import UndirectedEdge
    >>> auto_delta(UndirectedEdge(), 20_000), auto_delta(UndirectedEdge(), 10**9)
    (1e-07, 1e-10)
    """
    checks.integer_at_least(1, bound=bound)
    exponent = len(str(10 * bound - 1))  # the smallest with 10^exponent >= 10 B, in whole numbers
    return min(unit.delta_cap, float(f"1e-{exponent}"))


@checked
def check_delta(unit: Unit, delta: float | str, bound: int) -> float:
    """Return the delta to use; raise an error if an explicit one is not below 1/B.

    >>> from graphveil.core.unit import UndirectedEdge
    >>> check_delta(UndirectedEdge(), 0.01, 1000)
    Traceback (most recent call last):
    graphveil.errors.ConfigError: delta=0.01 must be below 1/B = 0.001 (B = 1000 privacy units), otherwise \
a mechanism could publish a record outright. Use a smaller delta, or delta='auto'.
    """
    checks.integer_at_least(1, bound=bound)
    if isinstance(unit, NoUnit):
        return 0.0
    if delta == "auto":
        found = auto_delta(unit, bound)
        check_proved_delta(found)
        return found
    if not isinstance(delta, int | float) or isinstance(delta, bool):
        raise ConfigError(f"delta={delta!r} must be a number or 'auto'")
    checks.non_negative(delta=delta)
    if delta == 0:  # pure epsilon-DP: a plan whose noise needs a delta rejects it, see ReleasePlan
        return 0.0
    if delta >= 1:
        raise ConfigError(
            f"delta={delta:g} is too large. It must be far below 1/B for B protected units, otherwise "
            "a mechanism could publish a record outright. Use a smaller delta, or delta='auto'."
        )
    if delta < 1 / bound:
        check_proved_delta(delta)
    else:
        raise ConfigError(
            f"delta={delta:g} must be below 1/B = {1 / bound:.3g} (B = {bound} privacy units), "
            "otherwise a mechanism could publish a record outright. Use a smaller delta, or "
            "delta='auto'."
        )
    return float(delta)

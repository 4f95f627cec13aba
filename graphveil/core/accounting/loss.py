"""The privacy loss of one noisy training step on a Poisson sample, as a pessimistic distribution on a grid.

With P and Q the outputs of a step on neighboring data, everything about it follows from its hockey-stick
divergence delta(epsilon) = sup over sets S of P(S) - e^epsilon Q(S), which is known in closed form here. The
distribution through its values on a grid ("connect the dots", Doroshenko et al., 2022) has a larger delta
everywhere else, also after composition.
"""

import math
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from graphveil.core.accounting.gaussian import deltas_of, normal_interval_probability
from graphveil.core.events import PoissonGaussian

Floats: TypeAlias = npt.NDArray[np.float64]

TAIL = -float(ndtri(0.5 * math.exp(-50)))  # in standard deviations; the tail beyond it counts as revealed
MIN_RATE = 1e-12  # a smaller rate costs as much as this
SMALL = 0.05  # a shift of less is computed in differences, which do not cancel
_TINY = 1e-300
_BLOCK = 1 << 12  # points of a distribution that are summed at once
_MOST_EXPONENT = 700.0  # e^x is finite up to here; the sum ends at losses far above -700
_SPARSE = 1000  # points up to which dp-accounting keeps a distribution sparse


def removed(epsilons: Floats, rate: float, mu: float) -> Floats:
    """Return delta(epsilon) of P = (1 - q) N(0, 1) + q N(mu, 1) against Q = N(0, 1): the record is in P.

    Guarantee: P - e^epsilon Q = q (N(mu, 1) - e^a N(0, 1)) with e^a = (e^epsilon - 1 + q) / q, so that the
    divergence is q times a Gaussian's at a; where e^epsilon < 1 - q the difference is positive everywhere.

    >>> removed(np.array([0.0, 0.1]), 0.01, 1.0).round(6).tolist()
    [0.003829, 7.3e-05]
    """
    found = -np.expm1(epsilons)
    inside = epsilons > math.log1p(-rate)
    if mu < SMALL:
        found[inside] = rate * _small(np.log1p(np.expm1(epsilons[inside]) / rate), mu)
        return found
    shifted = np.log(np.maximum(np.expm1(epsilons[inside]) + rate, _TINY) / rate)
    found[inside] = rate * deltas_of(shifted, mu)
    return found


def added(epsilons: Floats, rate: float, mu: float) -> Floats:
    """Return delta(epsilon) of N(0, 1) against (1 - q) N(0, 1) + q N(mu, 1): the record is in Q.

    Guarantee: P - e^epsilon Q = b (N(0, 1) - e^a N(mu, 1)) with b = 1 - (1 - q) e^epsilon and e^a = q
    e^epsilon / b; where b < 0 there is no difference above zero.

    >>> added(np.array([0.0, 0.1]), 0.01, 1.0).round(6).tolist()
    [0.003829, 0.0]
    """
    found = np.zeros_like(epsilons)
    inside = epsilons < -math.log1p(-rate)
    if mu < SMALL:
        share = np.log1p(np.expm1(epsilons[inside]) * (1 - 1 / rate))
        found[inside] = rate * np.exp(share) * _small(epsilons[inside] - share, mu)
        return found
    weight = np.maximum(rate * np.exp(epsilons[inside]) - np.expm1(epsilons[inside]), _TINY)
    found[inside] = weight * deltas_of(epsilons[inside] + np.log(rate / weight), mu)
    return found


def replaced(epsilons: Floats, rate: float, mu: float) -> Floats:
    """Return delta(epsilon) of (1 - q) N(0, 1) + q N(mu, 1) against (1 - q) N(0, 1) + q N(-mu, 1).

    The ratio of the densities grows with x and is e^epsilon where e^(mu x) = e^(epsilon/2 + arsinh s), with
    s = sinh(epsilon/2) e^(mu^2/2) (1 - q) / q. Two records whose gradients point in opposite directions are
    the worst pair for every epsilon (``docs/privacy/proofs/accounting.md``).

    >>> replaced(np.array([0.0, 0.1]), 0.01, 1.0).round(6).tolist()
    [0.006827, 9.3e-05]
    """
    spread = np.sinh(epsilons / 2) * math.exp(mu**2 / 2) * (1 - rate) / rate
    x = (epsilons / 2 + np.arcsinh(spread)) / mu
    if mu < SMALL:
        below = (1 - rate) * ndtr(-x) + rate * ndtr(-mu - x)
        return np.clip(
            rate * normal_interval_probability(-mu - x, mu - x) - np.expm1(epsilons) * below, 0.0, 1.0
        )
    common = (1 - rate) * ndtr(-x)
    larger, smaller = common + rate * ndtr(mu - x), common + rate * ndtr(-mu - x)
    return np.clip(larger - np.exp(epsilons) * smaller, 0.0, 1.0)


def _small(epsilons: Floats, mu: float) -> Floats:
    """Return a Gaussian's delta(epsilon; mu) for a small mu, relative to which it is exact."""
    middle = -epsilons / mu
    found = normal_interval_probability(middle - mu / 2, middle + mu / 2) - np.expm1(epsilons) * ndtr(
        middle - mu / 2
    )
    return np.clip(found, 0.0, 1.0)


def unsampled_loss(event: PoissonGaussian) -> float:
    """Return the loss that one step of a sampled record passes in the far tail only."""
    mu = 1 / event.noise_multiplier
    return mu * (TAIL + mu / 2)


def expected_loss(event: PoissonGaussian) -> float:
    """Return a bound on the expected loss of one step: its divergence, by convexity or by chi-squared.

    >>> expected_loss(PoissonGaussian(1.0, 0.01, 1)) < expected_loss(PoissonGaussian(1.0, 0.01, 1, "replace"))
    True
    """
    rate, squared = event.sampling_rate, event.noise_multiplier**-2
    apart = 4 * math.sinh(squared) if event.relation == "replace" else math.expm1(squared)
    return min(rate * event.change**2 * squared / 2, rate**2 * apart / (1 - rate))


def _ends(event: PoissonGaussian) -> tuple[float, float]:
    """Return the smallest and the largest loss of a step in which the record is in P."""
    rate = max(event.sampling_rate, MIN_RATE)
    never = math.log1p(-rate)  # the logarithm of the probability that the record is not sampled
    top = float(np.logaddexp(never, math.log(rate) + unsampled_loss(event)))
    if 1 / event.noise_multiplier < SMALL:  # nothing that matters is further down
        never = float(np.logaddexp(never, math.log(rate) - unsampled_loss(event)))
    return never, top


def width(event: PoissonGaussian) -> float:
    """Return the length of the range of one step's loss."""
    low, high = _ends(event)
    return (high - low) * event.change


@lru_cache(maxsize=64)
def step_loss(event: PoissonGaussian, interval: float) -> Any:
    """Return the loss distribution of one step, ignoring ``event.steps``, on multiples of ``interval``.

    Both directions of the relation are kept separate. The real one of the two neighbors is the same in all
    steps, so each direction composes by itself, and the worse one counts.
    """
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    rate, mu = max(event.sampling_rate, MIN_RATE), 1 / event.noise_multiplier
    never, top = _ends(event)
    if event.relation == "replace":
        grid = LossGrid(never - top, top - never, interval)
        return PrivacyLossDistribution(grid.through(replaced(grid.points, rate, mu)))
    grid, back = LossGrid(never, top, interval), LossGrid(-top, -never, interval)
    return PrivacyLossDistribution(
        grid.through(removed(grid.points, rate, mu)), back.through(added(back.points, rate, mu))
    )


@lru_cache(maxsize=64)
def gaussian_loss(mu: float, interval: float) -> Any:
    """Return the loss distribution of one Gaussian release, charged by its mu under any relation."""
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    grid = LossGrid(mu * (mu / 2 - TAIL), mu * (mu / 2 + TAIL), interval)
    return PrivacyLossDistribution(grid.through(deltas_of(grid.points, mu)))


@lru_cache(maxsize=64)
def pure_loss(epsilon: float, interval: float) -> Any:
    """Return the loss distribution of a pure release: that of randomized response, the worst one.

    Its divergence at x is (e^epsilon - e^x) / (1 + e^epsilon) from -epsilon to epsilon.
    """
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    grid = LossGrid(-epsilon - interval, epsilon + interval, interval)
    inside = (math.exp(epsilon) - np.exp(grid.points)) / (1 + math.exp(epsilon))
    divergence = np.where(grid.points < -epsilon, -np.expm1(grid.points), np.maximum(inside, 0.0))
    return PrivacyLossDistribution(grid.through(divergence))


class LossGrid:
    """Multiples of an interval that cover a range."""

    def __init__(self, low: float, high: float, interval: float) -> None:
        """Round the ends outwards."""
        self._first, self._last = math.floor(low / interval), math.ceil(high / interval)
        self._interval = interval
        self.points: Floats = np.arange(self._first, self._last + 1, dtype=np.float64) * interval

    def through(self, deltas: Floats) -> Any:
        """Return the distribution on the grid whose divergence has these values there."""
        from dp_accounting.pld import pld_pmf

        falling = np.maximum.accumulate(deltas[::-1])[::-1]  # compensates rounding
        if len(falling) <= _SPARSE:
            return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
                self._interval, self._first, self._last, falling
            )
        # The same in arrays: dp-accounting first puts each point into a dictionary, which takes long.
        step, steps = math.expm1(self._interval), np.diff(falling)
        masses = np.empty_like(falling)
        masses[0] = 1 - falling[0] + steps[0] / step
        masses[1:-1] = (steps[1:] - steps[:-1] * math.exp(self._interval)) / step
        masses[-1] = steps[-1] / math.expm1(-self._interval)
        return pld_pmf.DensePLDPmf(self._interval, self._first, np.maximum(0.0, masses), falling[-1], True)


def smallest_epsilon(masses: Any, delta: float) -> float:
    """Return the smallest epsilon of one direction of a privacy-loss distribution, at a delta above 0.

    These are the sums of dp-accounting, in its order and with its rounding, but over arrays: its loop took
    nearly all the time of a calibration at a large epsilon. Masses are added from the largest loss down,
    until the epsilon that they give is at least the next loss.
    """
    from dp_accounting.pld.pld_pmf import DensePLDPmf

    if not isinstance(masses, DensePLDPmf):  # a few points
        return float(masses.get_epsilon_for_delta(delta))
    if masses._infinity_mass > delta:
        return math.inf
    down, step = masses._probs[::-1], masses._discretization
    above, weighed = masses._infinity_mass, 0.0
    loss_next = (masses._lower_loss + len(down) - 1) * step
    for start in range(0, len(down), _BLOCK):
        block = down[start : start + _BLOCK]
        losses = np.add.accumulate(np.concatenate(([loss_next], np.full(len(block), -step))))
        loss_next, losses = losses[-1], losses[:-1]
        # math.exp: NumPy's depends on the processor in the last bit.
        shares = np.array(list(map(math.exp, np.minimum(-losses, _MOST_EXPONENT).tolist())))
        upper = np.add.accumulate(np.concatenate(([above], block)))
        lower = np.add.accumulate(np.concatenate(([weighed], shares * block)))
        # So large a loss that e^-loss is 0.
        revealed = np.flatnonzero((upper[1:] >= delta) & (lower[1:] == 0))
        if len(revealed):
            return max(0.0, float(losses[revealed[0]]))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            reached = np.log((upper[:-1] - delta) / lower[:-1]) >= losses - 1e-9
        for i in np.flatnonzero(reached & (lower[:-1] > 0)).tolist():
            above, weighed = float(upper[i]), float(lower[i])
            if math.log((above - delta) / weighed) >= losses[i]:
                return 0.0 if above <= weighed + delta else math.log((above - delta) / weighed)
        above, weighed = float(upper[-1]), float(lower[-1])
    return 0.0 if above <= weighed + delta else math.log((above - delta) / weighed)

"""The privacy loss of one noisy training step on a Poisson sample, as a pessimistic distribution on a grid.

With P and Q the outputs of a step on neighboring data, everything about it follows from its hockey-stick
divergence delta(epsilon) = sup over sets S of P(S) - e^epsilon Q(S), which is known in closed form here. The
distribution through its values on a grid ("connect the dots", Doroshenko et al., 2022) has a larger delta
everywhere else, also after composition.

If a record reaches several roots of a sample, the worst case is one-dimensional by Theorem A
(``docs/privacy/proofs/accounting.md``): all gradients that the record changes lie on one line, in opposite
directions in the two worlds. In noise units, with N roots,

    P = sum over k of p_k N(k / z, 1),    Q = sum over j of r_j N(-j / z, 1),

where p is binomial with N and q, and r with N - 1 (one of the roots is the record's own, which is null in Q)
or, if the record is replaced, with N. The ratio P/Q grows with x, so every divergence is a difference of two
tails at one point (``RootPair``).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, ndtr, ndtri

from graphveil.core.accounting.gaussian import deltas_of, normal_interval_probability
from graphveil.core.events import PoissonGaussian, PoissonRoots

Floats: TypeAlias = npt.NDArray[np.float64]
Steps: TypeAlias = PoissonGaussian | PoissonRoots

TAIL = -float(ndtri(0.5 * math.exp(-50)))  # in standard deviations; the tail beyond it counts as revealed
MIN_RATE = 1e-12  # a smaller rate costs as much as this
SMALL = 0.05  # a shift of less is computed in differences, which do not cancel
_TINY = 1e-300
_BLOCK = 1 << 12  # points of a distribution that are summed at once
_MOST_EXPONENT = 700.0  # e^x is finite up to here; the sum ends at losses far above -700
_KNOTS = 1 << 13  # where the log ratio is inverted before Newton's steps
_NEWTON = 40
_QUADRATURE = 4001
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


@dataclass(frozen=True, eq=False)
class RootPair:
    """The dominating pair P, Q of one step.

    Args:
        above: log p_k, for k = 0 .. N.
        unit: 1 / z.
    """

    above: Floats
    below: Floats
    unit: float

    @classmethod
    def from_event(cls, event: PoissonRoots) -> "RootPair":
        from scipy.stats import binom  # slow to import

        rate, most = max(event.sampling_rate, MIN_RATE), event.roots
        others = most if event.relation == "replace" else most - 1
        above, below = (binom.logpmf(np.arange(count + 1), count, rate) for count in (most, others))
        return cls(above, below, 1 / event.noise_multiplier)

    @property
    def reach(self) -> tuple[float, float]:
        """The range of x outside of which neither P nor Q has more than what counts as revealed."""
        return -(len(self.below) - 1) * self.unit - TAIL, (len(self.above) - 1) * self.unit + TAIL

    def log_ratio(self, x: Floats) -> tuple[Floats, Floats]:
        """Return log P/Q at x, and its slope, which is never negative."""
        above, up = _log_mixture(self.above, x, self.unit)
        below, down = _log_mixture(self.below, x, -self.unit)
        return above - below, up - down

    def log_densities(self, x: Floats) -> tuple[Floats, Floats]:
        """Return log P/N(0, 1) and log Q/N(0, 1) at x."""
        return _log_mixture(self.above, x, self.unit)[0], _log_mixture(self.below, x, -self.unit)[0]

    def removed(self, epsilons: Floats) -> Floats:
        """Return the divergence of P against Q: P(x > t) - e^epsilon Q(x > t), log P/Q = epsilon at t."""
        at = self._where(epsilons)
        if self._is_small:
            return self._difference(-at, epsilons, self.below, -self.unit)
        return self._clipped(_tail(self.above, at, self.unit), epsilons, _tail(self.below, at, -self.unit))

    def added(self, epsilons: Floats) -> Floats:
        """Return the divergence of Q against P, of the tails below log P/Q = -epsilon."""
        at = -self._where(-epsilons)
        if self._is_small:
            return self._difference(-at, epsilons, self.above, -self.unit)
        return self._clipped(_tail(self.below, at, self.unit), epsilons, _tail(self.above, at, -self.unit))

    @property
    def _is_small(self) -> bool:
        return (len(self.above) + len(self.below)) * self.unit < SMALL

    def _difference(self, at: Floats, epsilons: Floats, weights: Floats, unit: float) -> Floats:
        """Return the divergence of small shifts as a difference of tails, which does not cancel.

        Both tails are compared with that of N(0, 1) at the same point.
        """
        other, back = (self.above, -unit) if weights is self.below else (self.below, -unit)
        gained, lost, left = np.zeros_like(at), np.zeros_like(at), np.zeros_like(at)
        for k in range(1, len(other)):
            gained += math.exp(other[k]) * normal_interval_probability(at, at + k * back)
        for k in range(len(weights)):
            share = math.exp(weights[k])
            lost += share * normal_interval_probability(at + k * unit, at)
            left += share * ndtr(at + k * unit)
        found: Floats = np.clip(gained + lost - np.expm1(epsilons) * left, 0.0, 1.0)
        return found

    @staticmethod
    def _clipped(larger: Floats, epsilons: Floats, log_smaller: Floats) -> Floats:
        found: Floats = np.clip(np.exp(larger) - np.exp(epsilons + log_smaller), 0.0, 1.0)
        return found

    def _where(self, epsilons: Floats) -> Floats:
        """Return the points where log P/Q has these values, to machine precision: an inexact one errs
        downwards.

        Values that are not reached within ``reach`` are taken at its ends.
        """
        low, high = self.reach
        knots = np.linspace(low, high, _KNOTS)
        found: Floats = np.interp(epsilons, self.log_ratio(knots)[0], knots)
        for _ in range(_NEWTON):
            ratio, slope = self.log_ratio(found)
            step = np.divide(epsilons - ratio, slope, out=np.zeros_like(found), where=slope > 0)
            moved: Floats = np.clip(found + np.clip(step, -1.0, 1.0), low, high)
            if float(np.abs(moved - found).max(initial=0.0)) < 1e-13 * (high - low):
                return moved
            found = moved
        return found


def _log_mixture(weights: Floats, x: Floats, unit: float) -> tuple[Floats, Floats]:
    """Return log of sum_k w_k N(k unit, 1) over N(0, 1) at x, and its slope."""

    def exponent(k: int) -> Floats:
        at: Floats = weights[k] + k * unit * (x - k * unit / 2)
        return at

    largest, total, moment = _largest(exponent, weights), np.zeros_like(x), np.zeros_like(x)
    for k in range(len(weights)):
        part = np.exp(exponent(k) - largest)
        total += part
        moment += k * unit * part
    return largest + np.log(total), moment / total


def _tail(weights: Floats, x: Floats, unit: float) -> Floats:
    """Return log of sum_k w_k P(N(k unit, 1) > x)."""

    def tail(k: int) -> Floats:
        beyond: Floats = weights[k] + log_ndtr(k * unit - x)
        return beyond

    largest, total = _largest(tail, weights), np.zeros_like(x)
    for k in range(len(weights)):
        total += np.exp(tail(k) - largest)
    found: Floats = largest + np.log(total)
    return found


def _largest(term: Callable[[int], Floats], weights: Floats) -> Floats:
    """Return the pointwise maximum of the terms, which are made one at a time: grids are long."""
    found = term(0)
    for k in range(1, len(weights)):
        np.maximum(found, term(k), out=found)
    return found


def unsampled_loss(event: Steps) -> float:
    """Return the loss that one step passes in the far tail only, with every root in the batch."""
    mu = (event.change if isinstance(event, PoissonRoots) else 1) / event.noise_multiplier
    return mu * (TAIL + mu / 2)


def expected_loss(event: Steps) -> float:
    """Return a bound on the expected loss of one step: its divergence, by convexity or by chi-squared.

    For several roots it is the larger one of the two directions, by quadrature.

    >>> expected_loss(PoissonGaussian(1.0, 0.01, 1)) < expected_loss(PoissonGaussian(1.0, 0.01, 1, "replace"))
    True
    >>> 0 < expected_loss(PoissonRoots(2.0, 0.1, 1, 1)) <= expected_loss(PoissonGaussian(2.0, 0.1, 1))
    True
    """
    if isinstance(event, PoissonRoots):
        pair = RootPair.from_event(event)
        x = np.linspace(*pair.reach, _QUADRATURE)
        ratio = pair.log_ratio(x)[0]
        width, normal = x[1] - x[0], -(x**2) / 2 - math.log(2 * math.pi) / 2
        p, q = (np.exp(normal + density) for density in pair.log_densities(x))
        return float(max((p * ratio).sum(), -(q * ratio).sum())) * float(width)
    rate, squared = event.sampling_rate, event.noise_multiplier**-2
    apart = 4 * math.sinh(squared) if event.relation == "replace" else math.expm1(squared)
    return min(rate * event.change**2 * squared / 2, rate**2 * apart / (1 - rate))


def _ends(event: Steps) -> tuple[float, float]:
    """Return the smallest and the largest loss of a step in which the record is in P."""
    if isinstance(event, PoissonRoots):
        pair = RootPair.from_event(event)
        low, high = pair.log_ratio(np.array(pair.reach))[0]
        return float(low), float(high)
    rate = max(event.sampling_rate, MIN_RATE)
    never = math.log1p(-rate)  # the logarithm of the probability that the record is not sampled
    top = float(np.logaddexp(never, math.log(rate) + unsampled_loss(event)))
    if 1 / event.noise_multiplier < SMALL:  # nothing that matters is further down
        never = float(np.logaddexp(never, math.log(rate) - unsampled_loss(event)))
    return never, top


def width(event: Steps) -> float:
    low, high = _ends(event)
    return (high - low) * (event.change if isinstance(event, PoissonGaussian) else 1)


@lru_cache(maxsize=64)
def step_loss(event: Steps, interval: float) -> Any:
    """Return the loss distribution of one step, ignoring ``event.steps``, on multiples of ``interval``.

    Both directions of the relation are kept separate. The real one of the two neighbors is the same in all
    steps, so each direction composes by itself, and the worse one counts. From one direction alone
    dp-accounting would assume that the other is equal, as it is if a record is replaced.
    """
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    low, high = _ends(event)
    back = LossGrid(-high, -low, interval)
    if isinstance(event, PoissonRoots):
        pair, grid = RootPair.from_event(event), LossGrid(low, high, interval)
        forth = grid.through(pair.removed(grid.points))
        if event.relation == "replace":
            return PrivacyLossDistribution(forth)
        return PrivacyLossDistribution(forth, back.through(pair.added(back.points)))
    rate, mu = max(event.sampling_rate, MIN_RATE), 1 / event.noise_multiplier
    if event.relation == "replace":
        grid = LossGrid(low - high, high - low, interval)
        return PrivacyLossDistribution(grid.through(replaced(grid.points, rate, mu)))
    grid = LossGrid(low, high, interval)
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

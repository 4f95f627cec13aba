"""The privacy loss of one noisy step in which a record reaches several roots of a Poisson sample.

By Theorem A (``docs/privacy/proofs/accounting.md``) the worst case is one-dimensional: all gradients that the
record changes lie on one line, in opposite directions in the two worlds. In noise units, with N roots,

    P = sum over k of p_k N(k / z, 1),    Q = sum over j of r_j N(-j / z, 1),

where p is binomial with N and q, and r with N - 1 (one of the roots is the record's own, which is null in Q)
or, if the record is replaced, with N. The ratio P/Q grows with x, so every divergence is a difference of two
tails at one point.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import log_ndtr, ndtr

from graphveil.core.accounting.gaussian import normal_interval_probability
from graphveil.core.accounting.loss import MIN_RATE, SMALL, TAIL, Floats, LossGrid
from graphveil.core.events import PoissonRoots

_KNOTS = 1 << 13  # where the log ratio is inverted before Newton's steps
_NEWTON = 40
_QUADRATURE = 4001


@dataclass(frozen=True, eq=False)
class RootPair:
    """The dominating pair P, Q of one step.

    Args:
        above: log p_k, for k = 0 .. N.
        below: log r_j.
        unit: 1 / z.
    """

    above: Floats
    below: Floats
    unit: float

    @classmethod
    def from_event(cls, event: PoissonRoots) -> "RootPair":
        """Return the pair of an event, for any number of steps."""
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


def unsampled_loss(event: PoissonRoots) -> float:
    """Return the loss that one step passes in the far tail only, with every root in the batch."""
    shift = event.change / event.noise_multiplier
    return shift * (TAIL + shift / 2)


def expected_loss(event: PoissonRoots) -> float:
    """Return the expected loss of one step, the larger one of its two directions, by quadrature.

    >>> from graphveil.core.events import PoissonGaussian
    >>> from graphveil.core.accounting.loss import expected_loss as of_one
    >>> one = expected_loss(PoissonRoots(2.0, 0.1, 1, 1))
    >>> 0 < one <= of_one(PoissonGaussian(2.0, 0.1, 1))
    True
    """
    pair = RootPair.from_event(event)
    x = np.linspace(*pair.reach, _QUADRATURE)
    ratio = pair.log_ratio(x)[0]
    width, normal = x[1] - x[0], -(x**2) / 2 - math.log(2 * math.pi) / 2
    p, q = (np.exp(normal + density) for density in pair.log_densities(x))
    return float(max((p * ratio).sum(), -(q * ratio).sum())) * float(width)


def width(event: PoissonRoots) -> float:
    """Return the length of the range of one step's loss."""
    pair = RootPair.from_event(event)
    low, high = pair.log_ratio(np.array(pair.reach))[0]
    return float(high - low)


@lru_cache(maxsize=64)
def step_loss(event: PoissonRoots, interval: float) -> Any:
    """Return the loss distribution of one step, ignoring ``event.steps``, on multiples of ``interval``.

    As in ``graphveil.core.accounting.loss.step_loss``. For two or more roots it is unbounded at both ends.
    Both directions are passed on; from one alone dp-accounting would assume that the other is equal.
    """
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    pair = RootPair.from_event(event)
    low, high = (float(end) for end in pair.log_ratio(np.array(pair.reach))[0])
    grid = LossGrid(low, high, interval)
    forth = grid.through(pair.removed(grid.points))
    if event.relation == "replace":  # the same in both directions
        return PrivacyLossDistribution(forth)
    back = LossGrid(-high, -low, interval)
    return PrivacyLossDistribution(forth, back.through(pair.added(back.points)))

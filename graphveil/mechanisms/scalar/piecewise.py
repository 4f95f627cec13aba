"""A window of high density around the number: the piecewise family, on a grid of 2^31 cells.

For x in [-1, 1] and a parameter t > 1, with e = e^epsilon, s = (e + t)/(t (e - 1)) and A = s (t + 1):

    y uniform on [s (x t - 1), s (x t + 1)] with probability e/(e + t), else on the rest of [-A, A].

The densities are e t (e - 1)/(2 (e + t)^2) and that over e, so the ratio is e for every x, and E[y] = x.

*The grid.* [-A, A] is cut into n = 2^31 cells, of which w = round(n/(t + 1)) are the window; x is rounded to
one of the n - w + 1 places of the window, with x as expectation. The window is chosen with a probability of
whole 2^-64, rounded down so that the most likely cell inside is at most e times the least likely one outside,
the 64-bit words behind each cell included. A is 1/(Pr[window] - w/n), for which E[y] = x after that rounding.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from graphveil.mechanisms._draws import (
    ExtraWords,
    Floats,
    Integers,
    Words,
    halves,
    round_up_or_down,
    uniform_below,
)
from graphveil.mechanisms.distributions import StepDistribution
from graphveil.mechanisms.scalar.base import ScalarMechanism

CELLS = 1 << 31
_TOTAL = 1 << 64
_LARGE = 60.0  # no probability of 64 bits tells e^60 from more
_UNDERSTATED = Fraction(1) - Fraction(1, 1 << 48)  # covers float64's error in e^60


@dataclass(frozen=True)
class WindowGrid:
    """A window of ``window`` of the 2^31 cells, chosen with probability ``inside`` / 2^64."""

    window: int
    inside: int

    @classmethod
    def from_epsilon(cls, epsilon: float, t: float) -> "WindowGrid":
        """Return the widest choice of the window that keeps the ratio at e^epsilon."""
        window = min(CELLS - 1, max(1, round(CELLS / (t + 1))))
        most_inside = -(-_TOTAL // window)
        least_outside = _TOTAL // (CELLS - window)
        e = Fraction(math.exp(min(epsilon, _LARGE))) * _UNDERSTATED
        inside = math.floor(_TOTAL * e * least_outside / (most_inside + e * least_outside))
        return cls(window, inside)

    @property
    def bound(self) -> float:
        """A, the end of the outputs."""
        return float(1 / (Fraction(self.inside, _TOTAL) - Fraction(self.window, CELLS)))

    def draw(self, x: Floats, words: Words) -> Floats:
        """Return y for each x, from three words each."""
        outside = CELLS - self.window
        start = round_up_or_down((x + 1) * (outside / 2), halves(words[..., 0])[0])
        np.minimum(start, outside, out=start)
        chosen = words[..., 1] < np.uint64(self.inside)
        cell: Integers = uniform_below(words[..., 2], np.where(chosen, self.window, outside))
        cell += np.where(chosen, start, np.where(cell < start, 0, self.window))
        return (cell.astype(np.float64) + 0.5) * (2 * self.bound / CELLS) - self.bound


class PiecewiseFamily(ScalarMechanism):
    """The family's law and variance; a member chooses t = e^(epsilon / root)."""

    root: ClassVar[float]

    @property
    def words(self) -> int:
        """Three: the place of the window, whether the output lies in it, and where."""
        return 3

    @property
    @abstractmethod
    def bound(self) -> float:
        """A, the end of the outputs."""

    @property
    def grid(self) -> WindowGrid:
        """The cells that samples are drawn from."""
        return WindowGrid.from_epsilon(self.epsilon, self._t)

    @property
    def _t(self) -> float:
        return math.exp(self.epsilon / self.root)

    @property
    def _scale(self) -> float:
        """s t, which stays near one for a large epsilon."""
        return (1 + math.exp(self.epsilon / self.root - self.epsilon)) / -math.expm1(-self.epsilon)

    @property
    def _bound(self) -> float:
        return self._scale * (1 + 1 / self._t)

    @property
    def _worst(self) -> float:
        return 1.0

    def _distribution(self, x: float) -> StepDistribution:
        ratio, inverse = math.exp(self.epsilon / self.root - self.epsilon), math.exp(-self.epsilon)
        inside = self._t * -math.expm1(-self.epsilon) / (2 * (1 + ratio) ** 2)
        left, right = self._scale * (x - 1 / self._t), self._scale * (x + 1 / self._t)
        edges = np.array([-self._bound, left, right, self._bound])
        none = np.empty(0)
        return StepDistribution(none, none, edges, inside * np.array([inverse, 1.0, inverse]))

    def _variance(self, x: Floats) -> Floats:
        inverse, ratio = math.exp(-self.epsilon), math.exp(self.epsilon / self.root - self.epsilon)
        rest = -math.expm1(-self.epsilon)
        u = 1 / self._t
        constant = (1 + ratio) * ((1 + u) ** 3 * ratio + rest * u**2) / (3 * rest**2)
        return (ratio + inverse) / rest * x**2 + constant

    def _draw(self, x: Floats, words: Words, place: ExtraWords) -> Floats:
        return self.grid.draw(x, words)


class Piecewise(PiecewiseFamily):
    """PM: t = e^(epsilon/2) (Wang et al., "Collecting and analyzing multidimensional data...", ICDE 2019).

        A = (t + 1)/(t - 1),   Var(y|x) = x^2/(t - 1) + (t + 3)/(3 (t - 1)^2), largest at |x| = 1.

    Guarantee: epsilon-LDP, exactly, on the grid. Raises ConfigError unless epsilon > 0.

    >>> pm = Piecewise(1.0)
    >>> round(pm.bound, 8), round(pm.worst_variance, 8)
    (4.08298817, 5.22359745)
    >>> round(pm.distribution(1.0).log_ratio(pm.distribution(-1.0)), 9)
    1.0
    """

    name: ClassVar[str] = "piecewise"
    root: ClassVar[float] = 2.0

    @property
    def bound(self) -> float:
        """(t + 1)/(t - 1)."""
        return self._bound


class PMSub(PiecewiseFamily):
    """PM-SUB: t = e^(epsilon/3), simpler than the best t and near it (Zhao et al. 2020).

    A = s (t + 1), and the variance is that of the family, largest at |x| = 1.

    Guarantee: epsilon-LDP, exactly, on the grid. Raises ConfigError unless epsilon > 0.

    >>> sub = PMSub(1.0)
    >>> round(sub.bound, 8), round(sub.worst_variance, 8)
    (4.10970318, 5.0823388)
    """

    name: ClassVar[str] = "pm-sub"
    root: ClassVar[float] = 3.0

    @property
    def bound(self) -> float:
        """s (t + 1)."""
        return self._bound

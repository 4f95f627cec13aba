"""Mechanisms for one number in [-1, 1]: a law, its variance, and exact draws from it.

``ScalarMechanism`` is their interface, and ``scalar`` finds one by its name. Laws are objects that
can be integrated and compared exactly (``Distribution``).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np

from graphveil._util import checks
from graphveil.core.noise.sampling import (
    Channel,
    ExtraWords,
    Floats,
    Integers,
    Sampler,
    Words,
    halves,
    round_up_or_down,
    uniform_below,
)
from graphveil.errors import ConfigError
from graphveil.mechanisms.features import LocalDPClaim, check_budget, coth


class Distribution(ABC):
    """The distribution of an output, given one input."""

    @property
    @abstractmethod
    def mean(self) -> float:
        """The expectation."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """The variance."""

    @abstractmethod
    def log_ratio(self, other: "Distribution") -> float:
        """Return the largest log ratio of this probability (or density) and the other's, over all outputs."""


@dataclass(frozen=True, eq=False)
class StepDistribution(Distribution):
    """Probabilities of single values, and a density that is constant between edges.

    >>> step = StepDistribution(np.array([1.0]), np.array([0.5]), np.array([0.0, 2.0]), np.array([0.25]))
    >>> step.mean, round(step.variance, 6)
    (1.0, 0.166667)
    """

    atoms: Floats
    masses: Floats
    edges: Floats
    densities: Floats

    @classmethod
    def discrete(cls, atoms: Floats, masses: Floats) -> "StepDistribution":
        return cls(np.asarray(atoms, dtype=np.float64), np.asarray(masses), np.empty(0), np.empty(0))

    @property
    def total(self) -> float:
        return float(self.masses.sum() + (self.densities * np.diff(self.edges)).sum())

    @property
    def mean(self) -> float:
        return self._moment(1)

    @property
    def variance(self) -> float:
        return self._moment(2) - self.mean**2

    def _moment(self, power: int) -> float:
        steps = self.densities * np.diff(self.edges ** (power + 1)) / (power + 1)
        return float((self.masses * self.atoms**power).sum() + steps.sum())

    def mixed(self, other: "StepDistribution", share: float) -> "StepDistribution":
        """Return the mixture of this distribution, with the given probability, and one of single values."""
        if other.edges.size:
            raise ConfigError("only a distribution of single values can be part of a mixture")
        atoms = np.concatenate([self.atoms, other.atoms])
        masses = np.concatenate([share * self.masses, (1 - share) * other.masses])
        return StepDistribution(atoms, masses, self.edges, share * self.densities)

    def log_ratio(self, other: Distribution) -> float:
        """Return the largest log ratio, inf if an output is possible under this one only."""
        if not isinstance(other, StepDistribution) or not np.array_equal(self.atoms, other.atoms):
            return math.inf
        middle = np.concatenate([self.edges, other.edges])
        middle = np.sort(middle)
        middle = (middle[1:] + middle[:-1]) / 2
        return max(
            _largest(self.masses, other.masses), _largest(self._density(middle), other._density(middle))
        )

    def _density(self, y: Floats) -> Floats:
        if not self.edges.size:
            return np.empty(0)
        step = np.searchsorted(self.edges, y, side="right")
        return np.concatenate([[0.0], self.densities, [0.0]])[step]


@dataclass(frozen=True)
class LaplaceDistribution(Distribution):
    """A density exp(-|y - center| / scale) / (2 scale)."""

    center: float
    scale: float

    @property
    def mean(self) -> float:
        return self.center

    @property
    def variance(self) -> float:
        return 2 * self.scale**2

    def log_ratio(self, other: Distribution) -> float:
        """Return the distance of the centers in scales, which equal scales attain beyond either center."""
        if not isinstance(other, LaplaceDistribution) or self.scale != other.scale:
            return math.inf
        return abs(self.center - other.center) / self.scale


def _largest(p: Floats, q: Floats) -> float:
    possible = p > 0
    if not possible.any():
        return -math.inf
    with np.errstate(divide="ignore"):
        return float((np.log(p[possible]) - np.log(q[possible])).max())


@dataclass(frozen=True)
class ScalarMechanism(ABC):
    """A randomizer of x in [-1, 1] with output y, E[y] = x, that is epsilon-LDP: p(y|x) <= e^epsilon p(y|x').

    With ``epsilon`` inf the output is x itself.
    """

    name: ClassVar[str]

    epsilon: float

    def __post_init__(self) -> None:
        check_budget(epsilon=self.epsilon)

    @property
    def claim(self) -> LocalDPClaim:
        """The guarantee of the output for one number."""
        return LocalDPClaim(self.epsilon)

    @property
    @abstractmethod
    def words(self) -> int:
        """The number of 64-bit words per value."""

    def distribution(self, x: float) -> Distribution:
        """Return the law of y for an x in [-1, 1]."""
        return (
            StepDistribution.discrete(np.array([x]), np.ones(1))
            if math.isinf(self.epsilon)
            else self._distribution(x)
        )

    def variance(self, x: Floats) -> Floats:
        """Return Var(y|x), in closed form."""
        return np.zeros_like(x) if math.isinf(self.epsilon) else self._variance(x)

    @property
    def worst_variance(self) -> float:
        """The largest variance of any x."""
        return float(self.variance(np.array([self._worst])).max())

    def draw(self, x: Floats, words: Words, place: ExtraWords) -> Floats:
        """Return one y for each x.

        Args:
            x: Values in [-1, 1], shape (rows, width).
            words: Random words of the values, shape (rows, width, self.words).
            place: Location of further words, for the few values that need more.
        """
        return x if math.isinf(self.epsilon) else self._draw(x, words, place)

    @property
    def _worst(self) -> float:
        """An x of the largest variance."""
        return 0.0

    @abstractmethod
    def _distribution(self, x: float) -> Distribution: ...

    @abstractmethod
    def _variance(self, x: Floats) -> Floats: ...

    @abstractmethod
    def _draw(self, x: Floats, words: Words, place: ExtraWords) -> Floats: ...


class KnotMechanism(ScalarMechanism):
    """A mechanism with few outputs and probabilities that are piecewise linear in x.

    It has two steps: round x to one of the two knots around it, with x as expectation, then send the knot
    through a channel. Only the channel has to be private, and it is a table of integers.
    """

    @property
    def words(self) -> int:
        """One: its low half is for rounding, its high half for the channel."""
        return 1

    @property
    @abstractmethod
    def outputs(self) -> Floats:
        """The values of the outputs, ascending."""

    @property
    @abstractmethod
    def table(self) -> Floats:
        """Probabilities of the outputs at each knot, (knots, outputs); knots are evenly spaced in [-1, 1]."""

    @cached_property
    def channel(self) -> Channel:
        return Channel.from_probabilities(self.table, self.epsilon)

    @cached_property
    def sampler(self) -> Sampler:
        return Sampler((self.channel,))

    def _distribution(self, x: float) -> StepDistribution:
        position = (x + 1) / 2 * (len(self.table) - 1)
        below = min(int(position), len(self.table) - 2)
        share = position - below
        return StepDistribution.discrete(
            self.outputs, (1 - share) * self.table[below] + share * self.table[below + 1]
        )

    def _draw(self, x: Floats, words: Words, place: ExtraWords) -> Floats:
        low, high = halves(words[..., 0])
        knots = round_up_or_down((x + 1) * ((len(self.table) - 1) / 2), low)
        return self.outputs[self.sampler.sample_outputs(knots, high, place)]


class Duchi(KnotMechanism):
    """y = C with probability 1/2 + x/(2C), else -C (Duchi, Jordan, Wainwright, FOCS 2013).

        C = (e^epsilon + 1) / (e^epsilon - 1),   Var(y|x) = C^2 - x^2, at most C^2 (x = 0).

    Privacy:
        epsilon-LDP, exactly (x = -1 against x = 1). Raises ConfigError unless epsilon > 0.

    >>> one = Duchi(1.0)
    >>> round(one.bound, 8), round(float(one.variance(np.array([0.5]))[0]), 8)
    (2.16395341, 4.43269438)
    >>> round(one.distribution(1.0).log_ratio(one.distribution(-1.0)), 9)
    1.0
    """

    name: ClassVar[str] = "duchi"

    @property
    def bound(self) -> float:
        """C, the size of every output."""
        return coth(self.epsilon / 2)

    @property
    def outputs(self) -> Floats:
        """-C and C."""
        return np.array([-self.bound, self.bound])

    @property
    def table(self) -> Floats:
        """Keep the sign with probability e^epsilon / (e^epsilon + 1)."""
        change = np.exp(-self.epsilon) / (1 + np.exp(-self.epsilon))
        return np.array([[1 - change, change], [change, 1 - change]])

    def _variance(self, x: Floats) -> Floats:
        return self.bound**2 - x**2


CELLS = 1 << 31
_TOTAL = 1 << 64
_LARGE = 60.0  # 64-bit probabilities cannot represent ratios above e^60
_UNDERSTATED = Fraction(1) - Fraction(1, 1 << 48)  # covers float64's error in e^60


@dataclass(frozen=True)
class WindowGrid:
    """A window of ``window`` of the 2^31 cells, chosen with probability ``inside`` / 2^64."""

    window: int
    inside: int

    @classmethod
    def from_epsilon(cls, epsilon: float, t: float) -> "WindowGrid":
        """Return the largest window probability that keeps the ratio at e^epsilon."""
        window = min(CELLS - 1, max(1, round(CELLS / (t + 1))))
        most_inside = -(-_TOTAL // window)
        least_outside = _TOTAL // (CELLS - window)
        e = Fraction(math.exp(min(epsilon, _LARGE))) * _UNDERSTATED
        inside = math.floor(_TOTAL * e * least_outside / (most_inside + e * least_outside))
        return cls(window, inside)

    @property
    def bound(self) -> float:
        return float(1 / (Fraction(self.inside, _TOTAL) - Fraction(self.window, CELLS)))

    def draw(self, x: Floats, words: Words) -> Floats:
        outside = CELLS - self.window
        start = round_up_or_down((x + 1) * (outside / 2), halves(words[..., 0])[0])
        np.minimum(start, outside, out=start)
        chosen = words[..., 1] < np.uint64(self.inside)
        cell: Integers = uniform_below(words[..., 2], np.where(chosen, self.window, outside))
        cell += np.where(chosen, start, np.where(cell < start, 0, self.window))
        return (cell.astype(np.float64) + 0.5) * (2 * self.bound / CELLS) - self.bound


class PiecewiseFamily(ScalarMechanism):
    """A window of high density around the number; subclasses choose t = e^(epsilon / root).

    For x in [-1, 1] and a parameter t > 1, with e = e^epsilon, s = (e + t)/(t (e - 1)) and A = s (t + 1):

        y uniform on [s (x t - 1), s (x t + 1)] with probability e/(e + t), else on the rest of [-A, A].

    The densities are e t (e - 1)/(2 (e + t)^2) and that over e, so the ratio is e for every x, and E[y] = x.

    *The grid.* [-A, A] is divided into n = 2^31 cells, of which w = round(n/(t + 1)) are the window. x is
    rounded to one of the n - w + 1 places of the window, with x as expectation. The window is chosen with a
    probability that is a multiple of 2^-64. It is rounded down: with the 64-bit words behind each cell, the
    most likely cell inside is at most e times the least likely one outside. A is 1/(Pr[window] - w/n), for
    which E[y] = x after that rounding.
    """

    root: ClassVar[float]

    @property
    def words(self) -> int:
        """Three: the place of the window, whether the output lies in it, and the place of the output."""
        return 3

    @property
    def bound(self) -> float:
        return self._scale * (1 + 1 / self._t)

    @property
    def grid(self) -> WindowGrid:
        return WindowGrid.from_epsilon(self.epsilon, self._t)

    @property
    def _t(self) -> float:
        return math.exp(self.epsilon / self.root)

    @property
    def _scale(self) -> float:
        """s t, which stays near one for a large epsilon."""
        return (1 + math.exp(self.epsilon / self.root - self.epsilon)) / -math.expm1(-self.epsilon)

    @property
    def _worst(self) -> float:
        return 1.0

    def _distribution(self, x: float) -> StepDistribution:
        ratio, inverse = math.exp(self.epsilon / self.root - self.epsilon), math.exp(-self.epsilon)
        inside = self._t * -math.expm1(-self.epsilon) / (2 * (1 + ratio) ** 2)
        left, right = self._scale * (x - 1 / self._t), self._scale * (x + 1 / self._t)
        edges = np.array([-self.bound, left, right, self.bound])
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

    Privacy:
        epsilon-LDP, exactly, on the grid. Raises ConfigError unless epsilon > 0.

    >>> pm = Piecewise(1.0)
    >>> round(pm.bound, 8), round(pm.worst_variance, 8)
    (4.08298817, 5.22359745)
    >>> round(pm.distribution(1.0).log_ratio(pm.distribution(-1.0)), 9)
    1.0
    """

    name: ClassVar[str] = "piecewise"
    root: ClassVar[float] = 2.0


class PMSub(PiecewiseFamily):
    """PM-SUB: t = e^(epsilon/3), simpler than the optimal t and close to it (Zhao et al. 2020).

    A = s (t + 1), and the variance is that of the family, largest at |x| = 1.

    Privacy:
        epsilon-LDP, exactly, on the grid. Raises ConfigError unless epsilon > 0.

    >>> sub = PMSub(1.0)
    >>> round(sub.bound, 8), round(sub.worst_variance, 8)
    (4.10970318, 5.0823388)
    """

    name: ClassVar[str] = "pm-sub"
    root: ClassVar[float] = 3.0


_ROOTS = [(6353 + sign * 405 * math.sqrt(241)) ** (1 / 3) for sign in (-1, 1)]
SWITCH = math.log((-5 + 2 * sum(_ROOTS)) / 27)  # below, the piecewise part only adds variance


@dataclass(frozen=True)
class Hybrid(ScalarMechanism):
    """HM: PM with probability 1 - e^(-epsilon/2), else Duchi, both at the full epsilon (Wang et al. 2019).

    Below epsilon* = 0.6093524930 it is Duchi alone; above, the variance is the same for every x:

        Var = (1 - e^(-epsilon/2)) Var_PM(x) + e^(-epsilon/2) Var_Duchi(x).

    Privacy:
        epsilon-LDP, because the coin does not depend on x. Raises ConfigError unless epsilon > 0.

    >>> round(SWITCH, 10), round(Hybrid(1.0).worst_variance, 8)
    (0.609352493, 4.28899249)
    """

    name: ClassVar[str] = "hybrid"

    @property
    def words(self) -> int:
        """Four: the coin, and three for PM, of which Duchi uses the first."""
        return 1 + Piecewise(self.epsilon).words

    @property
    def share(self) -> float:
        """The probability that PM is chosen."""
        return -math.expm1(-self.epsilon / 2) if self.epsilon > SWITCH else 0.0

    def _distribution(self, x: float) -> StepDistribution:
        one, piecewise = Duchi(self.epsilon)._distribution(x), Piecewise(self.epsilon)._distribution(x)
        return piecewise.mixed(one, self.share) if self.share else one

    def _variance(self, x: Floats) -> Floats:
        one, piecewise = Duchi(self.epsilon)._variance(x), Piecewise(self.epsilon)._variance(x)
        return self.share * piecewise + (1 - self.share) * one

    def _draw(self, x: Floats, words: Words, place: ExtraWords) -> Floats:
        one = Duchi(self.epsilon)._draw(x, words[..., 1:2], place)
        if not self.share:
            return one
        chosen = words[..., 0] * 2.0**-64 < self.share
        piecewise = Piecewise(self.epsilon)._draw(x, words[..., 1:], place)
        return np.where(chosen, piecewise, one)


_LOW, _HIGH = math.log(2), math.log(5.53)


class ThreeOutputs(KnotMechanism):
    """y in {-C, 0, C}, with Pr[0|x=0] = a (Zhao et al., IEEE Internet of Things Journal, 2020).

        b = a (e - 1)/e,  d = (a + 1)(e - 1)/(2 (e + 1)),  C = e (e + 1)/((e - 1)(e - a)),  e = e^epsilon;
        Pr[C] = (1-a)/2 + d x,  Pr[0] = a - b x,  Pr[-C] = (1-a)/2 - (d-b) x  for x >= 0, mirrored below.
        Var(y|x) = C^2 (1 - a + b|x|) - x^2, largest at |x| = min(1, C^2 b/2).

    ``a`` minimizes that: 0 below epsilon = ln 2, e/(e + 2) above ln 5.53, a root of a cubic between.

    Privacy:
        epsilon-LDP, exactly, for every a in [0, e/(e + 2)]. Raises ConfigError unless epsilon > 0.

    >>> three = ThreeOutputs(1.0)
    >>> round(three.zero, 8), round(three.bound, 8), round(three.worst_variance, 8)
    (0.2860769, 2.41847846, 4.45545172)
    """

    name: ClassVar[str] = "three-outputs"

    @property
    def zero(self) -> float:
        """a, the probability of 0 at x = 0."""
        if self.epsilon < _LOW:
            return 0.0
        if self.epsilon > _HIGH:
            return 1 / (1 + 2 * math.exp(-self.epsilon))
        e = math.exp(self.epsilon)
        d0 = e**4 + 14 * e**3 + 50 * e**2 - 2 * e + 25
        d1 = -2 * e**6 - 42 * e**5 - 270 * e**4 - 404 * e**3 - 918 * e**2 + 30 * e - 250
        angle = math.pi / 3 + math.acos(-d1 / (2 * d0**1.5)) / 3
        return -(-(e**2) - 4 * e - 5 + 2 * math.sqrt(d0) * math.cos(angle)) / 6

    @property
    def bound(self) -> float:
        """C, the absolute value of the nonzero outputs."""
        inverse = math.exp(-self.epsilon)
        return (1 + inverse) / (-math.expm1(-self.epsilon) * (1 - self.zero * inverse))

    @property
    def outputs(self) -> Floats:
        """-C, 0 and C."""
        return np.array([-self.bound, 0.0, self.bound])

    @property
    def table(self) -> Floats:
        """The probabilities at x = -1, 0 and 1."""
        # At x = 1 these are (1-a)/2 + d, a - b and (1-a)/2 - (d-b), in a form that keeps small ones exact.
        a, inverse = self.zero, math.exp(-self.epsilon)
        far = (1 - a * inverse) / (1 + inverse)
        end = [far * inverse, a * inverse, far]
        side = inverse / (1 + 2 * inverse) if self.epsilon > _HIGH else (1 - a) / 2
        return np.array([end[::-1], [side, a, side], end])

    @property
    def _slope(self) -> float:
        """b, the slope at which the probability of 0 falls with |x|."""
        return self.zero * -math.expm1(-self.epsilon)

    @property
    def _worst(self) -> float:
        return min(1.0, self.bound**2 * self._slope / 2)

    def _variance(self, x: Floats) -> Floats:
        return self.bound**2 * (1 - self.zero + self._slope * np.abs(x)) - x**2


_FINE = 10  # the noise has at least 2^10 grid steps, and so has the range of x
_TOP = 8.0  # 2^K steps are between 8 and 16 scales
_FLOAT = 2.0**-46  # far above the relative error of e^-z for z up to 16


class Laplace(ScalarMechanism):
    """y = x + Laplace(2/epsilon) (Dwork et al., TCC 2006); Var(y|x) = 8/epsilon^2 on [-1, 1].

    *The grid.* x is rounded to a grid of R steps over [-1, 1], with x as expectation. The noise is
    +-(G + 1/2) steps with a fair sign and P(G = g) proportional to e^(-lambda g), lambda = epsilon/R: its log
    probability falls by lambda per step and is flat across zero. The binary digits of such a G are
    independent bits. Those below 2^K are drawn from words of 64 bits, and the multiple of 2^K by repeated
    trials. Rounded to words, the log odds of bit k differ from lambda 2^k by a known amount. lambda is
    reduced by the total of these errors for two inputs, so the bound is exactly epsilon.

    Privacy:
        epsilon-LDP, exactly, on the grid. Raises ConfigError unless epsilon > 0.

    >>> Laplace(0.5).worst_variance
    32.0
    >>> Laplace(0.5).distribution(1.0).log_ratio(Laplace(0.5).distribution(-1.0))
    0.5
    """

    name: ClassVar[str] = "laplace"

    @property
    def words(self) -> int:
        """One for the sign and the rounding, one per digit, and one for the first multiple of 2^K."""
        return 0 if math.isinf(self.epsilon) else len(self.digits.ones) + 2

    @property
    def digits(self) -> "Digits":
        """The thresholds for drawing the noise."""
        return _digits(self.epsilon)

    def _distribution(self, x: float) -> LaplaceDistribution:
        return LaplaceDistribution(x, 2 / self.epsilon)

    def _variance(self, x: Floats) -> Floats:
        return np.full_like(x, 8 / self.epsilon**2)

    def _draw(self, x: Floats, words: Words, place: ExtraWords) -> Floats:
        low, high = halves(words[..., 0])
        position = round_up_or_down((x + 1) * (self.digits.steps / 2), low)
        y = self.digits.draw(words[..., 1:], place).astype(np.float64) + 0.5
        y *= np.where(high >> np.uint32(31), -1.0, 1.0)
        y += position
        return y * (2 / self.digits.steps) - 1


@dataclass(frozen=True)
class Digits:
    """Geometric variable: digit k is one for ``ones[k]`` of 2^64 words; 2^K is added for ``top`` of them."""

    steps: int  # R
    ones: tuple[int, ...]
    top: int

    def draw(self, words: Words, place: ExtraWords) -> Integers:
        """Return one sample per value, from K + 1 words each and, rarely, more."""
        drawn = np.zeros(words.shape[:-1], dtype=np.int64)
        for k, count in enumerate(self.ones):
            drawn |= (words[..., k] < np.uint64(count)).astype(np.int64) << k
        flat = drawn.reshape(-1)
        going = np.flatnonzero(words[..., -1] < np.uint64(self.top))
        attempt = 0
        while going.size:
            flat[going] += 1 << len(self.ones)
            going = going[place.more(going, attempt) < np.uint64(self.top)]
            attempt += 1
        return drawn

    @property
    def excess(self) -> float:
        """Return a bound on the deviation of the log probabilities of R steps from lambda R.

        Rounding a count moves the log odds by less than its inverse, float64 by less than the second term.
        """
        bits = sum(1 / count + _FLOAT for count in self.ones)
        wholes = math.ceil(self.steps / 2.0 ** len(self.ones)) + 1
        return bits + wholes * (1 / self.top + _FLOAT)


@lru_cache(maxsize=64)
def _digits(epsilon: float) -> Digits:
    """Return the thresholds for a budget, with a lambda that covers their rounding."""
    steps = 1 << (_FINE + max(0, math.ceil(math.log2(epsilon))))
    # Twice, since the bound is for a slightly larger lambda.
    return _rounded(steps, (epsilon - 2 * _rounded(steps, epsilon / steps).excess) / steps)


def _rounded(steps: int, rate: float) -> Digits:
    digits = max(0, math.ceil(math.log2(_TOP / rate)))
    odds = [math.exp(-rate * 2.0**k) for k in range(digits)]
    ones = tuple(round(_TOTAL * odd / (1 + odd)) for odd in odds)
    return Digits(steps, ones, round(_TOTAL * math.exp(-rate * 2.0**digits)))


SCALARS: dict[str, type[ScalarMechanism]] = {
    scalar.name: scalar for scalar in (Duchi, Piecewise, PMSub, Hybrid, ThreeOutputs, Laplace)
}


def scalar(name: str, epsilon: float) -> ScalarMechanism:
    """Return the scalar mechanism with this name for a budget.

    >>> scalar("pm-sub", 1.0)
    PMSub(epsilon=1.0)
    """
    checks.one_of(SCALARS, scalar=name)
    return SCALARS[name](epsilon)

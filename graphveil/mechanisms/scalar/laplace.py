"""Laplace noise on a number, drawn exactly on a grid."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from graphveil.mechanisms._draws import ExtraWords, Floats, Integers, Words, halves, round_up_or_down
from graphveil.mechanisms.distributions import LaplaceDistribution
from graphveil.mechanisms.scalar.base import ScalarMechanism

_TOTAL = 1 << 64
_FINE = 10  # the noise has at least 2^10 grid steps, and so has the range of x
_TOP = 8.0  # 2^K steps are between so many scales and twice as many
_FLOAT = 2.0**-46  # the relative error of e^-z for z up to 16, many times over


class Laplace(ScalarMechanism):
    """y = x + Laplace(2/epsilon) (Dwork et al., TCC 2006); Var(y|x) = 8/epsilon^2 on [-1, 1].

    *The grid.* x is rounded to a grid of R steps over [-1, 1], with x as expectation. The noise is
    +-(G + 1/2) steps with a fair sign and P(G = g) proportional to e^(-lambda g), lambda = epsilon/R: its log
    probability falls by lambda a step and is flat across zero. The binary digits of such a G are independent
    bits; those below 2^K are drawn from words of 64 bits, and the number of whole 2^K by trying. Rounded to
    words, the log odds of bit k are off lambda 2^k by a known amount. lambda is made smaller by all that two
    inputs can collect of it, so the bound is epsilon, not epsilon and a little.

    Guarantee: epsilon-LDP, exactly, on the grid. Raises ConfigError unless epsilon > 0.

    >>> Laplace(0.5).worst_variance
    32.0
    >>> Laplace(0.5).distribution(1.0).log_ratio(Laplace(0.5).distribution(-1.0))
    0.5
    """

    name: ClassVar[str] = "laplace"

    @property
    def words(self) -> int:
        """One for the sign and the rounding, one a digit, one for the first whole 2^K."""
        return 0 if math.isinf(self.epsilon) else len(self.digits.ones) + 2

    @property
    def digits(self) -> "Digits":
        """The thresholds that the noise is drawn with."""
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
    """A geometric variable: digit k is one for ``ones[k]`` of 2^64 words, 2^K come with ``top`` of them."""

    steps: int  # R
    ones: tuple[int, ...]
    top: int

    def draw(self, words: Words, place: ExtraWords) -> Integers:
        """Return one sample a value, from K + 1 words each and, rarely, more."""
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
        """Return a bound on how far the log probabilities of R steps can be off lambda R.

        Rounding a count moves the log odds by less than its inverse, float64 by less than the second term.
        """
        bits = sum(1 / count + _FLOAT for count in self.ones)
        wholes = math.ceil(self.steps / 2.0 ** len(self.ones)) + 1
        return bits + wholes * (1 / self.top + _FLOAT)


@lru_cache(maxsize=64)
def _digits(epsilon: float) -> Digits:
    """Return the thresholds for a budget, with a lambda that pays for their rounding."""
    steps = 1 << (_FINE + max(0, math.ceil(math.log2(epsilon))))
    # Twice, since the bound is for a lambda that is a little larger.
    return _rounded(steps, (epsilon - 2 * _rounded(steps, epsilon / steps).excess) / steps)


def _rounded(steps: int, rate: float) -> Digits:
    digits = max(0, math.ceil(math.log2(_TOP / rate)))
    odds = [math.exp(-rate * 2.0**k) for k in range(digits)]
    ones = tuple(round(_TOTAL * odd / (1 + odd)) for odd in odds)
    return Digits(steps, ones, round(_TOTAL * math.exp(-rate * 2.0**digits)))

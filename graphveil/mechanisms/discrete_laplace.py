"""Laplace noise on whole numbers, drawn exactly from random bits (Canonne, Kamath, Steinke 2020)."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from graphveil import _check
from graphveil._random import RowStream

_WORDS = 64  # of a row's at a time


@dataclass(frozen=True)
class DiscreteLaplace:
    """Add z with P(z) proportional to e^(-eps |z|) to a count that one edge changes by at most one.

    Guarantee: eps-indistinguishable, with delta 0: the ratio of P(z) and P(z + 1) is e^eps or its inverse.
    Nothing is rounded: the sampler compares whole numbers only.

    >>> noise = DiscreteLaplace(0.5)
    >>> round(noise.deviation, 4), len(noise.draw(RowStream(bytes(32)), 3))
    (2.7992, 3)
    """

    epsilon: float

    def __post_init__(self) -> None:
        """Check the budget."""
        _check.positive(epsilon=self.epsilon)

    @property
    def deviation(self) -> float:
        """The standard deviation sqrt(2 e^-eps) / (1 - e^-eps)."""
        return math.sqrt(2 * math.exp(-self.epsilon)) / -math.expm1(-self.epsilon)

    def draw(self, stream: RowStream, count: int, first: int = 0) -> npt.NDArray[np.int64]:
        """Return noise for the rows ``first`` .. ``first`` + count - 1 of a keyed stream, int64."""
        exact = Fraction(self.epsilon)
        rows = range(first, first + count)
        return np.array([_laplace(exact, _Bits(stream, row)) for row in rows], dtype=np.int64)


class _Bits:
    """Random words of one row, as whole numbers of any size."""

    def __init__(self, stream: RowStream, row: int) -> None:
        self._words = self._more(stream, row)

    @staticmethod
    def _more(stream: RowStream, row: int) -> Iterator[int]:
        rows, start = np.full(_WORDS // 2, row), 0
        while True:
            yield from stream.blocks(rows, np.arange(start, start + _WORDS // 2)).reshape(-1).tolist()
            start += _WORDS // 2

    def below(self, bound: int) -> int:
        """Return a uniform whole number below a bound: words are drawn until one is."""
        bits = bound.bit_length()
        while True:
            drawn = 0
            for _ in range(-(-bits // 64)):
                drawn = drawn << 64 | next(self._words)
            drawn &= (1 << bits) - 1
            if drawn < bound:
                return drawn


def _laplace(epsilon: Fraction, bits: _Bits) -> int:
    """Return one draw: a geometric number of size t/s for epsilon = s/t, and a sign; zero counts once."""
    s, t = epsilon.numerator, epsilon.denominator
    while True:
        rest = bits.below(t)
        if not _falls(rest, t, bits):
            continue
        whole = 0
        while _falls(1, 1, bits):
            whole += 1
        size = (rest + t * whole) // s
        negative = bits.below(2) == 1
        if not (negative and size == 0):
            return -size if negative else size


def _falls(numerator: int, denominator: int, bits: _Bits) -> bool:
    """Return True with probability exp(-numerator / denominator), for a quotient of at most one.

    Of coins with probabilities x, x / 2, x / 3, ... the first that fails has an odd place with exp(-x).
    """
    place = 1
    while bits.below(denominator * place) < numerator:
        place += 1
    return place % 2 == 1

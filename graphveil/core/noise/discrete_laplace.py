"""Discrete Laplace noise: pure epsilon-DP for a number that changes by one.

Its probabilities are those of the difference of two geometric variables, tanh(epsilon / 2) e^(-epsilon |z|).
A number is drawn by inversion of a uniform U in [0, 1), of which 64 bits are drawn at first. They decide all
but a few cases in 2^64. In these cases, further bits are drawn until both ends of the remaining interval have
the same inverse, computed to the same precision. The law is therefore exact: nothing is rounded, and no delta
is used.

To draw many numbers, a table holds the first 64 bits of the boundaries between values. Cases that these bits
do not decide are computed as above, so the table does not affect results.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from graphveil._util import checks
from graphveil.core.noise.random import Integers, RowStream, Words
from graphveil.errors import ConfigError

_WORD = 1 << 64
_REACH = 43  # e^-43 > 2^-63: the rarest value in the table still has words
_LEAST = 1e-16  # minimum epsilon: two words decide values up to 89 / epsilon
_DIGITS = 20  # decimal digits in a word


@dataclass(frozen=True)
class DiscreteLaplace:
    """Integer noise z with probability tanh(epsilon / 2) e^(-epsilon |z|), drawn exactly.

    Privacy:
        An integer with this noise is (epsilon, 0)-DP if it changes by one: the ratio of the probabilities of
        any outcome is e^epsilon or e^-epsilon (Ghosh, Roughgarden, Sundararajan: Universally
        utility-maximizing privacy mechanisms, 2009).

    >>> noise = DiscreteLaplace(1.0)
    >>> round(noise.sigma, 4)
    1.357
    >>> drawn = noise.draw(RowStream(bytes(32)), np.arange(1000), 3)
    >>> drawn.shape, bool(1.2 < drawn.std() < 1.5)
    ((1000, 3), True)
    """

    epsilon: float

    def __post_init__(self) -> None:
        checks.positive(epsilon=self.epsilon)
        if self.epsilon < _LEAST:
            raise ConfigError(
                f"epsilon={self.epsilon:g} is below {_LEAST:g}, so the noise would not fit into 64-bit "
                "integers. Use a larger epsilon."
            )

    @property
    def sigma(self) -> float:
        """The standard deviation, 1 / (sqrt 2 sinh(epsilon / 2))."""
        return sigma_of(self.epsilon)

    def draw(self, stream: RowStream, rows: Integers, dim: int = 1) -> npt.NDArray[np.int64]:
        """Return the noise of these rows, shape (rows, dim): almost always one word per number."""
        words = stream.words(rows, words_per_row=dim)
        drawn, undecided = np.zeros(words.shape, dtype=np.int64), np.ones(words.shape, dtype=bool)
        if 1 <= _REACH / self.epsilon <= words.size:
            table = _boundaries(self.epsilon)
            place = np.searchsorted(table, words, side="right")
            drawn = (place - len(table) // 2).astype(np.int64)
            undecided = (place == 0) | (place == len(table)) | (table[place - 1] == words)
        for row, column in np.argwhere(undecided):
            more = _further(stream, int(rows[row]), dim, int(column))
            drawn[row, column] = self.value_of(int(words[row, column]), more)
        return drawn

    def value_of(self, word: int, more: Iterator[int]) -> int:
        """Return the value for U, given its first 64 bits and an infinite iterator of further words.

        >>> DiscreteLaplace(1.0).value_of(2**63, iter([]))
        0
        """
        bits, drawn = word, 1
        while True:
            low, high = (self._inverse(bits + end, drawn) for end in (0, 1))
            if low is not None and low == high:
                return low
            bits, drawn = bits * _WORD + next(more), drawn + 1

    def _inverse(self, numerator: int, words: int) -> int | None:
        """Return the value at U = numerator / 2^(64 words), None at either end, where it does not exist.

        For U below the middle, Z <= -m where U < a^m / (1 + a), a = e^-epsilon; above, the mirror image.
        """
        whole = _WORD**words
        if numerator in (0, whole):
            return None
        if 2 * numerator > whole:
            mirrored = self._inverse(whole - numerator, words)
            return None if mirrored is None else -mirrored
        with localcontext() as context:
            context.prec = _DIGITS * (words + 2)
            epsilon = Decimal(self.epsilon)
            u = Decimal(numerator) / Decimal(whole)
            return -int(-(u * (1 + (-epsilon).exp())).ln() / epsilon)


def sigma_of(epsilon: float) -> float:
    """Return the standard deviation of the law for an epsilon.

    >>> round(sigma_of(0.5), 4)
    2.7992
    """
    return math.sqrt(2 * math.exp(-epsilon)) / -math.expm1(-epsilon)  # no overflow for large epsilon


def _further(stream: RowStream, row: int, dim: int, column: int) -> Iterator[int]:
    """Yield further words for one number, from blocks of its row that no other number reads."""
    offset = -(-dim // 2) + column
    while True:
        yield from map(int, stream.blocks(np.array([row]), np.array([offset]))[0])
        offset += dim


@lru_cache(maxsize=8)
def _boundaries(epsilon: float) -> Words:
    """Return the first 64 bits of P(Z < z) for z = 1 - r to r.

    P(Z < z) = a^(1 - z) / (1 + a) up to z = 0, and 1 - P(Z < 1 - z) after it.
    """
    reach = math.floor(_REACH / epsilon)
    with localcontext() as context:
        context.prec = 3 * _DIGITS
        a = (-Decimal(epsilon)).exp()
        below = [_WORD * a**k / (1 + a) for k in range(reach, 0, -1)]
        after = [_WORD - boundary for boundary in reversed(below)]
        return np.array([int(boundary) for boundary in below + after], dtype=np.uint64)

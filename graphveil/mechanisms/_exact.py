"""Exact discrete Gaussian sampling, vectorised: every accept decision equals that of infinite precision.

Karney's algorithm for P(n) ~ exp(-n^2 / 2 s^2), s = p / q:

1. draw k >= 0 with P(k) ~ exp(-k^2 / 2), and a fair sign;
2. draw j uniform on 0 .. ceil(s) - 1; let i = ceil(k s) + j and x = i / s - k; reject unless x < 1;
3. reject i = 0 with a negative sign, so that zero is not counted twice;
4. accept with probability exp(-x (2k + x) / 2); the sample is then sign times i.

Steps 1 and 4 compare a 64-bit uniform with a real number. A float64 comparison decides unless the two lie
within ``AMBIGUOUS`` of each other; then (about once in 2^40 draws) the comparison is repeated in arbitrary
precision with further random bits. So floating point decides nothing that it could get wrong.
"""

from fractions import Fraction

import mpmath
import numpy as np
import numpy.typing as npt

from graphveil._random import RowStream

DENOMINATOR = 1 << 10  # q: sigma is a multiple of 2^-10 grid steps
AMBIGUOUS = 2.0**-40  # far above the float64 error of any comparison here
_LEVELS = 14  # exp(-14^2/2) is about 2^-141: no float64 table entry lies beyond it
_WORDS = 4  # one attempt: level, position and sign, acceptance, spare
_SPAN = 1 << 20  # counter blocks owned by one coordinate of a row
_REFINE = 1 << 19  # offset, inside that span, of the bits that ambiguous comparisons use

Words = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def discrete_gaussian(stream: RowStream, rows: Integers, dim: int, numerator: int) -> Integers:
    """Return samples for the rows, shape (rows, dim); sigma = numerator / DENOMINATOR."""
    out = np.zeros(len(rows) * dim, dtype=np.int64)
    pending = np.arange(out.size)
    attempt = 0
    while pending.size:
        owner = rows[pending // dim].astype(np.uint64)
        base = (pending % dim).astype(np.uint64) * np.uint64(_SPAN) + np.uint64(attempt * (_WORDS // 2))
        words = _attempt_words(stream, owner, base)
        accepted, value = _attempt(stream, owner, base, words, numerator)
        out[pending[accepted]] = value[accepted]
        pending = pending[~accepted]
        attempt += 1
    return out.reshape(len(rows), dim)


def _attempt_words(stream: RowStream, rows: Words, base: Words) -> Words:
    """Return the words of one attempt, shape (samples, _WORDS)."""
    offsets = base[:, None] + np.arange(_WORDS // 2, dtype=np.uint64)
    return stream.blocks(rows[:, None], offsets).reshape(rows.size, _WORDS)


def _attempt(
    stream: RowStream, rows: Words, base: Words, words: Words, numerator: int
) -> tuple[npt.NDArray[np.bool_], Integers]:
    level = _levels(stream, rows, base, words[:, 0])
    low = -(-level * numerator // DENOMINATOR)  # ceil(k s)
    width = -(-numerator // DENOMINATOR)  # ceil(s)
    negative = (words[:, 1] & np.uint64(1)).astype(bool)
    position, fair = _uniform_below(words[:, 1] >> np.uint64(1), width, 63)
    magnitude = low + position
    excess = magnitude * DENOMINATOR - level * numerator  # x = excess / numerator, an exact integer
    inside = fair & (excess < numerator) & ~((magnitude == 0) & negative)
    x = excess / numerator
    accept = _below_exp(stream, rows, base, words[:, 2], x * (2 * level + x) / 2, level, excess, numerator)
    return inside & accept, np.where(negative, -magnitude, magnitude)


def _uniform_below(words: Words, bound: int, bits: int) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Return words mod bound, and which words are free of the modulo's bias."""
    limit = (1 << bits) // bound * bound
    return (words % np.uint64(bound)).astype(np.int64), words < np.uint64(limit)


def _level_table() -> tuple[Fraction, ...]:
    """Return P(level <= k) for k < _LEVELS to 200 bits."""
    with mpmath.workprec(280):
        terms = [mpmath.exp(-mpmath.mpf(k * k) / 2) for k in range(4 * _LEVELS)]
        total = mpmath.fsum(terms)
        return tuple(
            Fraction(int(mpmath.floor(mpmath.fsum(terms[: k + 1]) / total * 2**200)), 2**200)
            for k in range(_LEVELS)
        )


_LEVEL_TABLE = _level_table()
_EDGES = np.array([-1.0, *map(float, _LEVEL_TABLE), 2.0])  # sentinels: no uniform comes near them


def _levels(stream: RowStream, rows: Words, base: Words, words: Words) -> Integers:
    """Invert the distribution of step 1 at each uniform."""
    u = words.astype(np.float64) * 2.0**-64
    level = np.searchsorted(_EDGES, u, side="right") - 1
    nearest = np.minimum(u - _EDGES[level], _EDGES[level + 1] - u)
    for i in np.flatnonzero(nearest < AMBIGUOUS):
        exact = _refined(stream, rows[i], base[i], words[i], extra=0)
        level[i] = sum(exact >= p for p in _LEVEL_TABLE)
    return level


def _below_exp(
    stream: RowStream,
    rows: Words,
    base: Words,
    words: Words,
    exponent: Floats,
    level: Integers,
    excess: Integers,
    numerator: int,
) -> npt.NDArray[np.bool_]:
    """Decide uniform < exp(-x (2k + x) / 2) exactly; ``exponent`` is its float64 value."""
    u, p = words.astype(np.float64) * 2.0**-64, np.exp(-exponent)
    below = u < p
    for i in np.flatnonzero(np.abs(u - p) < AMBIGUOUS):
        exact = _refined(stream, rows[i], base[i], words[i], extra=2)
        with mpmath.workprec(240):
            x = mpmath.mpf(int(excess[i])) / numerator
            bound = mpmath.exp(-x * (2 * int(level[i]) + x) / 2)
            below[i] = mpmath.mpf(exact.numerator) / exact.denominator < bound
    return below


def _refined(stream: RowStream, row: np.uint64, base: np.uint64, word: np.uint64, *, extra: int) -> Fraction:
    """Return the uniform that starts with ``word`` to 192 bits, the rest from its own refinement blocks."""
    offset = base + np.uint64(_REFINE + extra // 2)
    more = stream.blocks(np.array([row]), np.array([offset]))[0]
    return Fraction((int(word) << 128) | (int(more[0]) << 64) | int(more[1]), 1 << 192)

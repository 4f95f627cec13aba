"""Integer Gaussian noise from a keyed row stream: the exact discrete Gaussian, and a rounded one.

Both samplers return integers, in units of the release's grid step, and state the part of delta that their
resolution uses. Row i's noise depends on the key and i alone, so it is the same for any partition of the
rows.

*Exact sampling.* Every accept decision equals that of infinite precision.
P(n) ~ rho(n) = exp(-n^2 / 2 s^2), s = numerator / DENOMINATOR. The integers are divided into strips, narrow
near zero and wide in the tail, whose widths are powers of two. An attempt to draw n is a word of 32 bits:

1. its lowest bits are a place in a narrow strip, and the next 15 a slot: strip b owns ``count[b]`` of them;
2. strip and place are the candidate n (the place in a wide strip uses a few more bits). A strip ``ratio``
   times as wide as a narrow one proposes each of its integers with chance count[b] / ratio;
3. the highest bits begin a uniform u; accept n if u < scale ratio rho(n) / count[b]. The counts are rounded
   up, so this never exceeds one, and an accepted n has a probability proportional to rho(n).

Most words lie below a threshold of their slot: n is accepted for every place and every continuation of u.
The others draw further bits. Then a float64 comparison decides, unless the two sides are within
``AMBIGUOUS`` of each other. In this case it is repeated in arbitrary precision with 128 more bits of u.
Floating-point errors therefore affect no decision. The strips end at 14 s; beyond lies a mass below 2^-140.
"""

import decimal
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.core.noise import _kernels
from graphveil.core.noise.random import Integers, RowStream, Words
from graphveil.errors import CalibrationError, ConfigError

DENOMINATOR = 1 << 10  # sigma is a multiple of 2^-10 grid steps
MAX_SIGMA = 1 << 26  # above, the strips get too few slots
MAX_DIM = 1 << 20  # above, a row has too few blocks
AMBIGUOUS = 2.0**-40  # far above the float64 error of any comparison here

_WORD = 32
_SLOT_BITS = 15
_NARROW, _WIDE = 32, 2  # strips are at most s / 32 wide near zero, s / 2 in the tail
_BODY, _TAIL = 4, 14  # the wide strips begin at 4 s and end at 14 s
_WIDE_BITS = 12  # further bits for the place in a wide strip; the other 52 continue u
_CHUNK = 1 << 16  # words or samples per chunk: they and the tables fit into the cache
_OWN = 1 << 31  # a row's blocks from here on belong to single coordinates,
_SPAN = 1 << 11  # this many to each,
_REFINE = 1 << 10  # the second half for the further bits of u. Attempts fail with probability 0.03.

Halves = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


def exact_samples(
    stream: RowStream, rows: Integers, dim: int, numerator: int, ambiguous: float = AMBIGUOUS
) -> npt.NDArray[np.int32]:
    """Return samples for the rows, shape (rows, dim); s = numerator / DENOMINATOR.

    The first attempts of a row are the halves of its first words. Coordinate c owns the blocks from
    _OWN + c _SPAN on: block a is attempt a and its further bits (attempt 0 only reads the latter).

    Comparisons within ``ambiguous`` of a tie use arbitrary precision, which does not affect results.
    """
    strips = _strips(numerator, ambiguous)
    out = np.empty((len(rows), dim), dtype=np.int32)
    flat = out.reshape(-1)
    pending, words = _first_attempts(strips, stream, rows, out)
    attempt = 0
    while pending.size:
        owner, coordinate = np.divmod(pending, dim)
        source = _Source(stream, rows[owner], coordinate, attempt)
        drawn = source.blocks()
        if attempt:
            words = drawn[:, 0].astype(np.uint32)
        value, accepted = strips.decide(words, drawn[:, 1], source)
        flat[pending] = value
        pending, attempt = pending[~accepted], attempt + 1
    return out


def _first_attempts(
    strips: "_Strips", stream: RowStream, rows: Integers, out: npt.NDArray[np.int32]
) -> tuple[Integers, Halves]:
    """Fill ``out`` from each row's first words; return where no threshold decides, with the words there."""
    dim = out.shape[1]
    count = 1 << max(0, (_CHUNK // dim).bit_length() - 1)  # a power of two, for which counters are cheap
    where, which = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.uint32)]
    for first in range(0, len(rows), count):
        drawn = stream.words(rows[first : first + count], words_per_row=-(-dim // 2))
        words = drawn.view("<u4")[:, :dim].reshape(-1)
        undecided = strips.fill(words, out[first : first + count].reshape(-1))
        where.append(undecided + first * dim)
        which.append(words[undecided])
    return np.concatenate(where), np.concatenate(which)


@dataclass(frozen=True)
class _Source:
    """The source of further words for undecided samples: row, coordinate and attempt."""

    stream: RowStream
    rows: Integers
    coordinates: Integers
    attempt: int

    def blocks(self) -> Words:
        """Return the attempt and its further bits for each sample, shape (samples, 2)."""
        return self._blocks(self.attempt, slice(None))

    def refine(self, i: int, high: int, bits: int) -> decimal.Decimal:
        """Return the uniform of sample i to 128 more bits; it starts with the ``bits`` bits of ``high``."""
        first, second = (int(word) for word in self._blocks(_REFINE + self.attempt, slice(i, i + 1))[0])
        with decimal.localcontext(prec=80):  # the default 28 digits would drop most of the further bits
            return decimal.Decimal((high << 128) | (first << 64) | second) / (1 << (128 + bits))

    def _blocks(self, place: int, part: slice) -> Words:
        return self.stream.blocks(self.rows[part], _OWN + self.coordinates[part] * _SPAN + place)


@dataclass(frozen=True)
class _Strips:
    """The tables for one s, indexed by slot, and the two ways to decide about a word."""

    numerator: int
    ambiguous: float
    scale: int
    place_bits: int  # log2 of the width of a narrow strip
    offset: npt.NDArray[np.int32]  # the strip's first integer less slot << place_bits, modulo 2^32
    start: Integers  # the strip's first integer
    sure: Halves  # words below it are accepted; none in a wide strip
    more: Words  # mask of the further bits for the place in a wide strip
    count: Integers  # the slots that the strip owns
    share: Floats  # scale ratio / count

    @cached_property
    def _in_c(self) -> _kernels.Strips:
        _, first, strip = np.unique(self.start, return_index=True, return_inverse=True)
        return _kernels.Strips(
            strip.astype(np.uint16),
            self.start[first].astype(np.int32),
            self.sure[first],
            self.share[first],
            self.more[first].astype(np.uint32),
            self.place_bits,
            _SLOT_BITS,
            DENOMINATOR / self.numerator,
        )

    @property
    def bits(self) -> int:
        """The number of a word's bits that begin u."""
        return _WORD - _SLOT_BITS - self.place_bits

    def fill(self, words: Halves, out: npt.NDArray[np.int32]) -> Integers:
        """Write the candidates of narrow strips; return the indices of the undecided words."""
        if _kernels.available():
            return self._in_c.look_up(words, out)
        low = words & np.uint32((1 << (_SLOT_BITS + self.place_bits)) - 1)
        slot = (low >> np.uint32(self.place_bits)).astype(np.int64)
        np.take(self.offset, slot, out=out, mode="wrap")  # in range; mode "raise" would buffer the output
        out += low.view(np.int32)
        return np.flatnonzero(words >= np.take(self.sure, slot, out=low, mode="wrap"))

    def decide(self, words: Halves, more: Words, source: _Source) -> tuple[Integers, Flags]:
        """Return the candidates, and which of them are accepted with ``more`` bits of u."""
        if _kernels.available():
            values, accepted, near = self._in_c.decide(words, more, self.ambiguous)
            n = values.astype(np.int64)
        else:
            n, accepted, near = self._compared(words, more)
        for i in near.tolist():
            first, rest = int(words[i]) >> (_WORD - self.bits), int(more[i]) >> _WIDE_BITS
            high = (first << (64 - _WIDE_BITS)) | rest
            exact = source.refine(i, high, self.bits + 64 - _WIDE_BITS)
            slot = (int(words[i]) >> self.place_bits) & ((1 << _SLOT_BITS) - 1)
            accepted[i] = exact < self.acceptance(int(n[i]), slot)
        return n, accepted

    def acceptance(self, n: int, slot: int) -> decimal.Decimal:
        """Return the probability that the candidate n of a slot is accepted, to 80 digits."""
        ratio, count = 1 + int(self.more[slot]), int(self.count[slot])
        with decimal.localcontext(prec=80):
            exponent = decimal.Decimal(n * n * DENOMINATOR**2) / (2 * self.numerator**2)
            return self.scale * ratio * (-exponent).exp() / count

    def _compared(self, words: Halves, more: Words) -> tuple[Integers, Flags, Integers]:
        """Return the candidates, which of them are accepted, and which are too close to a tie to decide."""
        low = (words & np.uint32((1 << (_SLOT_BITS + self.place_bits)) - 1)).astype(np.int64)
        slot = low >> self.place_bits
        place = (low & ((1 << self.place_bits) - 1)) | (
            (more & self.more[slot]).view(np.int64) << self.place_bits
        )
        n = self.start[slot] + place
        first, rest = words >> np.uint32(_WORD - self.bits), more >> np.uint64(_WIDE_BITS)
        u = (first + rest * 2.0 ** (_WIDE_BITS - 64)) * 2.0**-self.bits
        p = self.share[slot] * np.exp(_exponent(n, self.numerator))
        return n, u < p, np.flatnonzero(np.abs(u - p) < self.ambiguous)


@lru_cache(maxsize=16)
def _strips(numerator: int, ambiguous: float) -> _Strips:
    near, width = _cuts(numerator / DENOMINATOR)
    start = np.concatenate([near, -near - width])  # the mirror of [a, a + w) is [-a - w, -a)
    width = np.concatenate([width, width])
    closest = np.concatenate([near, near + 1])  # the smallest |n| of a strip
    ratio = width // width[0]
    rho = ratio * np.exp(_exponent(closest, numerator))
    scale = _largest_scale(rho, closest)
    count = _counts(scale, rho, closest)
    count[-1] += (1 << _SLOT_BITS) - count.sum()  # spare slots: far tail, almost always rejected
    least = scale / count * np.exp(_exponent(closest + width - 1, numerator))
    place_bits = int(width[0]).bit_length() - 1
    bits = _WORD - _SLOT_BITS - place_bits
    sure = np.where(width == width[0], np.floor((least - ambiguous) * 2.0**bits), 0).clip(0, 2.0**bits - 1)
    strip = np.repeat(np.arange(len(count)), count)
    return _Strips(
        numerator,
        ambiguous,
        scale,
        place_bits,
        (start[strip] - (np.arange(len(strip)) << place_bits)).astype(np.int32),
        start[strip],
        sure[strip].astype(np.uint32) << np.uint32(_WORD - bits),
        (width // width[0] - 1)[strip].astype(np.uint64),
        count[strip],
        (scale * ratio / count)[strip],
    )


def _cuts(sigma: float) -> tuple[Integers, Integers]:
    """Return the strips on the non-negative side: their first integers and their widths."""
    narrow = min(_power_below(sigma / _NARROW), 1 << (_WORD - _SLOT_BITS - 1))
    wide = max(narrow, _power_below(sigma / _WIDE))
    body = math.ceil(_BODY * sigma / wide) * wide
    end = body + math.ceil((_TAIL - _BODY) * sigma / wide) * wide
    inner, outer = np.arange(0, body, narrow), np.arange(body, end, wide)
    return np.concatenate([inner, outer]), np.repeat([narrow, wide], [len(inner), len(outer)])


def _power_below(x: float) -> int:
    return 1 << max(0, math.floor(math.log2(x)))


def _counts(scale: int, rho: Floats, closest: Integers) -> Integers:
    """Return integers of at least scale * rho, for any rounding of rho."""
    return np.where(closest == 0, scale, np.floor(scale * rho * (1 + 1e-12)).astype(np.int64) + 1)


def _largest_scale(rho: Floats, closest: Integers) -> int:
    low, high = 1, 1 << _SLOT_BITS
    while high - low > 1:
        middle = (low + high) // 2
        fits = _counts(middle, rho, closest).sum() <= 1 << _SLOT_BITS
        low, high = (middle, high) if fits else (low, middle)
    return low


def _exponent(n: Integers, numerator: int) -> Floats:
    exponent: Floats = -0.5 * np.square(n * (DENOMINATOR / numerator))
    return exponent


Noise = npt.NDArray[np.signedinteger[Any]]
_RESOLUTION = 12 * 2.0**-53


@dataclass(frozen=True)
class IntegerNoise(ABC):
    """Integer noise of standard deviation ``sigma`` grid steps.

    The slack is proved if the largest contribution has at least ``min_steps`` grid steps, and the standard
    deviation at least ``min_sigma``.
    """

    min_steps: ClassVar[int] = 1
    min_sigma: ClassVar[float] = 0.0

    sigma: float

    def __post_init__(self) -> None:
        checks.positive(sigma=self.sigma)

    @abstractmethod
    def slack(self, *, epsilon: float, delta: float, changed: int) -> float:
        """Return the part of delta to reserve if ``changed`` coordinates may differ."""

    @abstractmethod
    def draw(self, stream: RowStream, rows: Integers, dim: int) -> Noise:
        """Return the noise of these rows, shape (rows, dim)."""


@dataclass(frozen=True)
class RoundedGaussian(IntegerNoise):
    """round(sigma g), g standard normal by Box-Muller from 53-bit uniforms.

    Slack: changed (1 + e^epsilon) 12 2^-53 sigma, a bound on the effect of the finite uniforms.

    >>> noise = RoundedGaussian(100.0).draw(RowStream(bytes(32)), np.arange(1000), 3)
    >>> bool(95 < noise.std() < 105)
    True
    """

    def slack(self, *, epsilon: float, delta: float, changed: int) -> float:
        """Return changed (1 + e^epsilon) 12 2^-53 sigma."""
        return changed * (1 + math.exp(epsilon)) * _RESOLUTION * self.sigma

    def draw(self, stream: RowStream, rows: Integers, dim: int) -> Noise:
        """Return the rounded normals; for rows of odd length the last one is dropped."""
        out = np.empty((len(rows), dim), dtype=np.int64)
        count = max(1, _CHUNK // dim)
        for first in range(0, len(rows), count):
            part = slice(first, first + count)
            normals = _box_muller(stream.words(rows[part], words_per_row=dim + dim % 2), self.sigma)
            out[part] = np.rint(normals, out=normals)[:, :dim]
        return out


@dataclass(frozen=True)
class DiscreteGaussian(IntegerNoise):
    """The discrete Gaussian on the integers, sampled exactly by rejection (Canonne, Kamath, Steinke 2020).

    ``sigma`` is a multiple of 2^-10, rounded up. Slack: delta is inflated by a factor of

        1 + max(1e-3, z (z + sqrt(2 epsilon)) / (8 sigma^2)),   z^2 = 2 log(1 / delta),

    which covers the difference from the continuous curve if the largest contribution and sigma have at
    least 64 steps (``docs/privacy/proofs/noise.md``, Proposition 9).

    >>> noise = DiscreteGaussian(100.0).draw(RowStream(bytes(32)), np.arange(1000), 3)
    >>> bool(95 < noise.std() < 105)
    True
    """

    min_steps: ClassVar[int] = 64
    min_sigma: ClassVar[float] = 64.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sigma > MAX_SIGMA:
            raise ConfigError(
                f"sigma={self.sigma:g} grid steps is above {MAX_SIGMA}, the largest supported noise. Use "
                "a larger epsilon or delta (--epsilon, --delta), or smaller grid_bits."
            )
        object.__setattr__(self, "sigma", self._numerator / DENOMINATOR)

    def slack(self, *, epsilon: float, delta: float, changed: int) -> float:
        """Return 1e-3 of delta, and more if sigma is few steps."""
        z = math.sqrt(2 * math.log(1 / delta))
        finite = z * (z + math.sqrt(2 * epsilon)) / (8 * self.sigma**2)
        return delta * (1 - 1 / max(1.001, 1 + finite))

    def draw(self, stream: RowStream, rows: Integers, dim: int) -> Noise:
        """Return exact samples."""
        return exact_samples(stream, rows, dim, self._numerator)

    @property
    def _numerator(self) -> int:
        return math.ceil(self.sigma * DENOMINATOR)


_TOLERABLE = 0.1  # slack of the rounded sampler, as a share of delta


@checked
def choose_sampler(sigma: float, *, epsilon: float, delta: float, changed: int, steps: int) -> IntegerNoise:
    """Return the sampler for a release: the exact one, unless the grid is too coarse for its slack.

    All inputs are public: sigma follows from the budget, ``changed`` from the unit, and ``steps`` (those
    in the largest contribution) from the grid.
    """
    if steps >= DiscreteGaussian.min_steps:
        return DiscreteGaussian(sigma)
    rounded = RoundedGaussian(sigma)
    if rounded.slack(epsilon=epsilon, delta=delta, changed=changed) <= _TOLERABLE * delta:
        return rounded
    raise CalibrationError(
        f"the largest contribution has {steps} grid steps, but exact noise needs "
        f"{DiscreteGaussian.min_steps}. Use larger grid_bits in the queries."
    )


def _box_muller(words: Words, sigma: float) -> npt.NDArray[np.float64]:
    """Turn words (rows, 2m) into normals of the same shape: words 2j and 2j + 1 into coordinates j, m + j."""
    rows, half = words.shape[0], words.shape[1] // 2
    bits = (words >> np.uint64(11)).view(np.int64).reshape(-1, 2)
    first, second = (torch.from_numpy(np.ascontiguousarray(bits[:, k])).to(torch.float64) for k in (0, 1))
    radius = first.add_(1).mul_(2.0**-53).log_().mul_(-2 * sigma**2).sqrt_().view(rows, half)
    angle = second.mul_(2 * math.pi * 2.0**-53).view(rows, half)
    out = torch.empty((rows, 2, half), dtype=torch.float64)
    torch.mul(radius, angle.cos(), out=out[:, 0])
    torch.mul(radius, angle.sin_(), out=out[:, 1])
    normals: npt.NDArray[np.float64] = out.view(rows, 2 * half).numpy()
    return normals

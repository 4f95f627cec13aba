"""Noise on the slots of a graph as published code draws it, flaws included: for paper mode alone."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graphveil._util import checks
from graphveil._util.random import Integers, RowStream
from graphveil.mechanisms._bernoulli import TOTAL, bernoulli_positions
from graphveil.mechanisms.edge_response import EdgeRandomizedResponse

Floats = npt.NDArray[np.float64]

_BIT = 1 << 30  # a row's block for the bit that replaces a slot; those before are for marks
_ROW, _PIECE = 1 << 9, 1 << 21  # slots of a row of uniforms, and slots at a time
_COUNT = 1 << 60  # the row that the noise of a number is drawn from, far behind those of slots

TRUNCATION = math.log(2)  # what truncated noise costs a count on top of its epsilon, exactly


@dataclass(frozen=True)
class ReplacedNodePairs:
    """EdgeRand as the code of LinkTeller draws it: some slots are replaced by fair bits, edges or not.

    A slot is selected with probability 2 / (1 + e^eps), whatever it holds, and its bit is the same whatever
    it held. One stream for two graphs thus shows both truths of a slot wherever the outputs differ. A bit of
    zero on a slot without an edge is stored as an entry of value zero, which no edge can become.

    >>> codes = ReplacedNodePairs(1.0).draw(RowStream(bytes(31) + b"a"), np.array([0, 3]), 8)
    >>> (codes >> 1).tolist(), (codes & 1).tolist()
    ([0, 1, 2, 3, 5], [1, 0, 0, 1, 1])
    """

    epsilon: float

    @property
    def selected(self) -> float:
        """The probability that a slot is replaced."""
        return 2 * EdgeRandomizedResponse(self.epsilon).flip

    def draw(self, stream: RowStream, edges: Integers, slots: int) -> Integers:
        """Return what is stored, ascending, each entry as 2 slot + value; edges are ascending, each once."""
        chosen = bernoulli_positions(stream, int(self.selected * TOTAL), 0, slots)
        bits = (stream.blocks(chosen, np.full(len(chosen), _BIT))[:, 0] & np.uint64(1)).view(np.int64)
        untouched = np.setdiff1d(edges, chosen, assume_unique=True)
        stored = (bits == 1) | ~np.isin(chosen, edges, assume_unique=True)
        return np.sort(np.concatenate([2 * untouched + 1, 2 * chosen[stored] + bits[stored]]))


@dataclass(frozen=True)
class LaplaceCells:
    """Cells 0 or 1 with Laplace noise of scale 1 / eps in floating point, one draw for every slot.

    >>> stream, edges = RowStream(bytes(32)), np.array([0, 3])
    >>> LaplaceCells(50.0).largest(stream, edges, 6, 2).tolist()
    [0, 3]
    """

    epsilon: float

    def __post_init__(self) -> None:
        """Check the budget."""
        checks.positive(epsilon=self.epsilon)

    def largest(self, stream: RowStream, edges: Integers, slots: int, wanted: int) -> Integers:
        """Return the slots of the largest cells, ascending: all if more are wanted than there are."""
        found, values = np.empty(0, dtype=np.int64), np.empty(0)
        for start in range(0, slots if wanted else 0, _PIECE):
            stop = min(start + _PIECE, slots)
            noisy = laplace(uniforms(stream, start, stop), self.epsilon)
            noisy[edges[(edges >= start) & (edges < stop)] - start] += 1
            found, values = np.append(found, np.arange(start, stop)), np.append(values, noisy)
            if len(values) > wanted:
                kept = np.argpartition(values, len(values) - wanted)[len(values) - wanted :]
                found, values = found[kept], values[kept]
        return np.sort(found)


def truncated_laplace(stream: RowStream, epsilon: float) -> int:
    """Return Laplace noise of scale 1 / eps, cut to a whole number toward zero before a count is added.

    Zero is then more than twice as likely as one: the noisy count costs eps + ln 2, and not eps.

    >>> truncated_laplace(RowStream(bytes(32)), 0.01)
    221
    """
    (first, _) = stream.words(np.array([_COUNT]), words_per_row=2)[0]
    return int(laplace(_unit(np.array([first])), epsilon)[0])


def uniforms(stream: RowStream, start: int, stop: int) -> Floats:
    """Return a uniform in (0, 1) for each slot of a range, the same for any partition."""
    first, last = start // _ROW, -(-stop // _ROW)
    words = stream.words(np.arange(first, last), words_per_row=_ROW).reshape(-1)
    return _unit(words[start - first * _ROW : stop - first * _ROW])


def laplace(uniform: Floats, epsilon: float) -> Floats:
    """Return the quantiles of Laplace noise of scale 1 / eps."""
    half = uniform - 0.5
    noise: Floats = -np.sign(half) * np.log1p(-2 * np.abs(half)) / epsilon
    return noise


def _unit(words: npt.NDArray[np.uint64]) -> Floats:
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-54

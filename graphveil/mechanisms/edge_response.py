"""Randomized response on the slots of a graph, with or without a coin that thins what it says is an edge."""

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from functools import cached_property

import numpy as np

from graphveil._util import checks
from graphveil._util.random import Integers, RowStream
from graphveil.errors import ConfigError
from graphveil.mechanisms._bernoulli import TOTAL, bernoulli_positions

_DIGITS = 60
_DOUBT = Decimal(10) ** -30  # far above the error of so many digits, far below one word in 2^64
_KEEP = 1 << 30  # a row's block for the edge of that slot; the blocks before are for marks


@dataclass(frozen=True)
class EdgeRandomizedResponse:
    """Each slot of a graph says on its own whether it is an edge, and is believed only in part.

    With p = e^eps / (1 + e^eps) an edge stays an edge with probability p s, and what is none becomes one with
    probability (1 - p) s: randomized response (EdgeRand, s = 1), followed by a coin that keeps a share s of
    the ones (ARR). s may depend on public numbers and earlier noisy answers only.

    Guarantee: eps-indistinguishability for one slot, whatever s. Both probabilities are whole numbers of
    2^-64, the larger one rounded down and the smaller one up, so that no ratio exceeds e^eps, and the sampler
    meets them exactly.

    Args:
        epsilon: of one slot.
        share: s, in [0, 1].

    Raises:
        ConfigError: a number that is out of range.

    >>> response = EdgeRandomizedResponse(1.0)
    >>> round(response.flip, 10)
    0.2689414214
    >>> arr = EdgeRandomizedResponse(0.9, share=0.0049696569)
    >>> f"{arr.keep / TOTAL:.7f} {arr.add / TOTAL:.7f}"
    '0.0035332 0.0014365'
    """

    epsilon: float
    share: float = 1.0

    def __post_init__(self) -> None:
        """Check both numbers."""
        checks.positive(epsilon=self.epsilon)
        checks.within(0, 1, share=self.share)

    @property
    def flip(self) -> float:
        """The probability 1 / (1 + e^eps) that a slot says the opposite."""
        return float(1 - self._truth)

    @property
    def _truth(self) -> Decimal:
        with localcontext(prec=_DIGITS):
            return 1 / (1 + (-Decimal(self.epsilon)).exp())

    @cached_property
    def keep(self) -> int:
        """Words of 2^64 with which an edge stays one."""
        with localcontext(prec=_DIGITS):
            exact = self._truth * Decimal(self.share) * TOTAL - _DOUBT
            return max(0, int(exact.to_integral_value(ROUND_FLOOR)))

    @cached_property
    def add(self) -> int:
        """Words of 2^64 with which what is no edge becomes one."""
        with localcontext(prec=_DIGITS):
            exact = (1 - self._truth) * Decimal(self.share) * TOTAL + _DOUBT
            # A share of less than 2^-64 leaves no word for an edge, and then none for the others.
            return min(self.keep, int(exact.to_integral_value(ROUND_CEILING)))

    def estimate_deviation(self) -> float:
        """Return the standard deviation of a slot's unbiased estimate (y - q) / (1 - 2 q), without a coin.

        >>> round(EdgeRandomizedResponse(1.0).estimate_deviation(), 6)
        0.959517
        """
        q = self.flip
        slope = (
            1 - 2 * q
        )  # below epsilon 1e-16 it has no digits left, and the limit of the formula is 1 / epsilon
        return float((q * (1 - q)) ** 0.5 / slope) if slope else 1 / self.epsilon

    def draw(self, stream: RowStream, edges: Integers, start: int, stop: int) -> Integers:
        """Return the slots of start .. stop - 1 that are edges afterwards, ascending.

        It costs least where a range's edges and what is added fit into the cache.

        Args:
            stream: keyed, addressed by slot: any partition of the slots draws the same.
            edges: the slots among them that are edges, ascending, each once.
            start, stop: the range.
        """
        if len(edges) and not start <= edges[0] <= edges[-1] < stop:
            raise ConfigError("edges must lie in the range of slots that is drawn")
        added = bernoulli_positions(stream, self.add, start, stop)
        if not len(edges):
            return added
        kept = edges[stream.blocks(edges, np.array(_KEEP))[:, 0] < np.uint64(self.keep)]
        place = np.minimum(np.searchsorted(edges, added), len(edges) - 1)
        added = added[edges[place] != added]
        return np.sort(np.concatenate([kept, added]), kind="stable")  # two runs, which are merged

"""Piecewise or one bit, by a coin: the hybrid mechanism."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graphveil.mechanisms._draws import ExtraWords, Floats, Words
from graphveil.mechanisms.distributions import StepDistribution
from graphveil.mechanisms.scalar.base import ScalarMechanism
from graphveil.mechanisms.scalar.duchi import Duchi
from graphveil.mechanisms.scalar.piecewise import Piecewise

_ROOTS = [(6353 + sign * 405 * math.sqrt(241)) ** (1 / 3) for sign in (-1, 1)]
SWITCH = math.log((-5 + 2 * sum(_ROOTS)) / 27)  # below, the piecewise part only adds variance


@dataclass(frozen=True)
class Hybrid(ScalarMechanism):
    """HM: PM with probability 1 - e^(-epsilon/2), else Duchi, both at the full epsilon (Wang et al. 2019).

    Below epsilon* = 0.6093524930 it is Duchi alone; above, the variance is the same for every x:

        Var = (1 - e^(-epsilon/2)) Var_PM(x) + e^(-epsilon/2) Var_Duchi(x).

    Guarantee: epsilon-LDP, because the coin does not depend on x. Raises ConfigError unless epsilon > 0.

    >>> round(SWITCH, 10), round(Hybrid(1.0).worst_variance, 8)
    (0.609352493, 4.28899249)
    """

    name: ClassVar[str] = "hybrid"

    @property
    def words(self) -> int:
        """Four: the coin, and three for PM, of which Duchi takes the first."""
        return 1 + Piecewise(self.epsilon).words

    @property
    def share(self) -> float:
        """How often PM is chosen."""
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

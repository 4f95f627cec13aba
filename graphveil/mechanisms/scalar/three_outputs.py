"""Three values a number: Zhao et al. 2020."""

import math
from typing import ClassVar

import numpy as np

from graphveil.mechanisms._draws import Floats
from graphveil.mechanisms.scalar.base import KnotMechanism

_LOW, _HIGH = math.log(2), math.log(5.53)


class ThreeOutputs(KnotMechanism):
    """y in {-C, 0, C}, with Pr[0|x=0] = a (Zhao et al., IEEE Internet of Things Journal, 2020).

        b = a (e - 1)/e,  d = (a + 1)(e - 1)/(2 (e + 1)),  C = e (e + 1)/((e - 1)(e - a)),  e = e^epsilon;
        Pr[C] = (1-a)/2 + d x,  Pr[0] = a - b x,  Pr[-C] = (1-a)/2 - (d-b) x  for x >= 0, mirrored below.
        Var(y|x) = C^2 (1 - a + b|x|) - x^2, largest at |x| = min(1, C^2 b/2).

    ``a`` minimizes that: 0 below epsilon = ln 2, e/(e + 2) above ln 5.53, a root of a cubic between.

    Guarantee: epsilon-LDP, exactly; it holds for every a in [0, e/(e + 2)]. Raises ConfigError unless
    epsilon > 0.

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
        return _root(math.exp(self.epsilon))

    @property
    def bound(self) -> float:
        """C, the size of the outputs that are not 0."""
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
        """b, how fast the probability of 0 falls with |x|."""
        return self.zero * -math.expm1(-self.epsilon)

    @property
    def _worst(self) -> float:
        return min(1.0, self.bound**2 * self._slope / 2)

    def _variance(self, x: Floats) -> Floats:
        return self.bound**2 * (1 - self.zero + self._slope * np.abs(x)) - x**2


def _root(e: float) -> float:
    """Return the a between the two simple cases."""
    d0 = e**4 + 14 * e**3 + 50 * e**2 - 2 * e + 25
    d1 = -2 * e**6 - 42 * e**5 - 270 * e**4 - 404 * e**3 - 918 * e**2 + 30 * e - 250
    angle = math.pi / 3 + math.acos(-d1 / (2 * d0**1.5)) / 3
    return -(-(e**2) - 4 * e - 5 + 2 * math.sqrt(d0) * math.cos(angle)) / 6

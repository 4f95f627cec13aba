"""One bit a number: the mechanism of Duchi, Jordan and Wainwright."""

from typing import ClassVar

import numpy as np

from graphveil.mechanisms._draws import Floats
from graphveil.mechanisms.claim import coth
from graphveil.mechanisms.scalar.base import KnotMechanism


class Duchi(KnotMechanism):
    """y = C with probability 1/2 + x/(2C), else -C (Duchi, Jordan, Wainwright, FOCS 2013).

        C = (e^epsilon + 1) / (e^epsilon - 1),   Var(y|x) = C^2 - x^2, at most C^2 (x = 0).

    Guarantee: epsilon-LDP, exactly (x = -1 against x = 1). Raises ConfigError unless epsilon > 0.

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

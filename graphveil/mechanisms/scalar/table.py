"""The closed table of scalar mechanisms, by name."""

from graphveil._util import checks
from graphveil.mechanisms.scalar.base import ScalarMechanism
from graphveil.mechanisms.scalar.duchi import Duchi
from graphveil.mechanisms.scalar.hybrid import Hybrid
from graphveil.mechanisms.scalar.laplace import Laplace
from graphveil.mechanisms.scalar.piecewise import Piecewise, PMSub
from graphveil.mechanisms.scalar.three_outputs import ThreeOutputs

SCALARS: dict[str, type[ScalarMechanism]] = {
    scalar.name: scalar for scalar in (Duchi, Piecewise, PMSub, Hybrid, ThreeOutputs, Laplace)
}


def scalar(name: str, epsilon: float) -> ScalarMechanism:
    """Return the scalar mechanism of this name at a budget.

    >>> scalar("pm-sub", 1.0)
    PMSub(epsilon=1.0)
    """
    checks.one_of(SCALARS, scalar=name)
    return SCALARS[name](epsilon)

"""What private steps cost: the sensitivity of the likelihood, and how many steps one edge meets."""

import math

from scipy.stats import binom

from graphveil._util import checks
from graphveil.release.dendrogram.moves import step_bound

_TINY = 1e-6  # of a sensitivity of zero, where there is nothing to choose
_ROUNDING = 1e-6  # relative, far above what floats and coins of 53 bits add to a step's loss


def sensitivity(leaves: int) -> float:
    """Return how far one private edge moves the log-likelihood of any dendrogram.

    Delta(n) = ln N + (N - 1) ln(1 + 1 / (N - 1)), N = floor(n / 2) ceil(n / 2): l(N, e) is convex in e, so
    the first edge of the largest block moves it most. It holds where the number of slots of a block does not
    depend on the edges.

    >>> [round(sensitivity(leaves), 8) for leaves in (3, 4, 8, 2708)]
    [1.38629436, 2.24934058, 3.74066654, 15.42163663]
    """
    return max(_TINY, step_bound((leaves // 2) * ((leaves + 1) // 2)))


def touched_steps(steps: int, leaves: int, failure: float) -> int:
    """Return a number of private steps that one edge meets more often with probability ``failure`` at most.

    A step is about the two nodes at which three subtrees meet; an edge belongs to one node, and at most 3 of
    the n - 2 steps there are touch a node. Which one is taken depends on no edge, so the number of steps that
    an edge meets is at most binomial.

    >>> touched_steps(5000, 1000, 1e-7), touched_steps(50_000, 1000, 1e-7), touched_steps(54_160, 2708, 1e-7)
    (39, 218, 104)
    """
    return int(binom.isf(failure, steps, min(1.0, 3 / max(1, leaves - 2))))


def step_loss(epsilon: float, delta: float, steps: int, leaves: int) -> float:
    """Return kappa: the loss that each lazy private step may have for (epsilon, delta) over all of them.

    With K = :func:`touched_steps` the trajectory is (K kappa, delta)-indistinguishable; or, with delta in two
    halves, rho = K kappa^2 / 2 gives epsilon = rho + 2 sqrt(rho ln(2 / delta)). The larger kappa counts.

    >>> round(step_loss(1.0, 1e-7, 54_160, 2708), 4)
    0.0165
    """
    checks.positive(epsilon=epsilon, delta=delta)
    pure = epsilon / max(1, touched_steps(steps, leaves, delta))
    log = math.log(2 / delta)
    rho = (math.sqrt(log + epsilon) - math.sqrt(log)) ** 2
    spread = math.sqrt(2 * rho / max(1, touched_steps(steps, leaves, delta / 2)))
    return max(pure, spread) * (1 - _ROUNDING)

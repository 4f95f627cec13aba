"""What a guarantee implies for any attacker on one protected thing, everything else known."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.privacy import Guarantee, LocalAttributes, NodeBoundedDegree, NodeRecord

_POINTS = 400

AttackedObject = Literal["edge", "record"]
_TRIVIAL_BOUND = {
    "auc": 1.0,
    "advantage": 1.0,
    "tpr_at_01pct_fpr": 1.0,
    "max_tpr_at_1pct_fpr": 1.0,
    "valid": False,
}


@checked
def pure_advantage(epsilon: float) -> float:
    """Return tanh(epsilon / 2): under pure epsilon nobody's TPR - FPR on one slot is larger.

    >>> round(pure_advantage(1.0), 4)
    0.4621
    """
    checks.non_negative(epsilon=epsilon)
    return math.tanh(epsilon / 2)


@checked
def pure_auc(epsilon: float) -> float:
    """Return e^epsilon / (1 + e^epsilon): under pure epsilon no attack on one slot has a larger AUC.

    The curve is at most min(e^eps FPR, 1 - e^-eps (1 - FPR)), and this is the area under it. Randomized
    response on one bit reaches it.

    >>> round(pure_auc(1.0), 4), pure_auc(0.0)
    (0.7311, 0.5)
    """
    checks.non_negative(epsilon=epsilon)
    return 1 / (1 + math.exp(-epsilon))


@checked
def theoretical_bound_of(
    guarantee: Guarantee, attacked_object: AttackedObject | None = None
) -> dict[str, Any]:
    """Return what nobody can pass on one thing: AUC, TPR - FPR, TPR at two rates of FPR.

    It bounds what the release tells about one edge (or record) to someone who knows everything else. It does
    not bound what public features and labels tell about edges in general: an attack over many pairs may have
    a larger AUC without reading any release, which is why the feature-only attacker stands beside it.

    Args:
        guarantee: the guarantee.
        attacked_object: what the attacker is after. Where the unit does not protect it, nothing is excluded:
            edges are public where nodes randomize their features, and so are records where edges are
            protected. By default it is what the unit protects.
    """
    if (
        not guarantee.valid
        or not math.isfinite(guarantee.epsilon)
        or not _protects(guarantee, attacked_object)
    ):
        return dict(_TRIVIAL_BOUND)

    def most(rate: float) -> float:
        return min(1.0, guarantee.curve.tpr(rate) + guarantee.slack)

    return {
        "auc": _area(most),
        "advantage": min(guarantee.curve.delta(0.0) + guarantee.slack, _advantage(most)),
        "tpr_at_01pct_fpr": most(0.001),
        "max_tpr_at_1pct_fpr": most(0.01),
        "valid": True,
    }


def _protects(guarantee: Guarantee, attacked_object: AttackedObject | None) -> bool:
    """Return whether a guarantee says anything about one thing of this kind."""
    if attacked_object == "edge":  # a node's record holds its edges
        return guarantee.unit != LocalAttributes.name
    if attacked_object == "record":  # nodes that randomize their features still show that they took part
        return guarantee.unit in (NodeRecord.name, NodeBoundedDegree.name)
    return True


def _advantage(most: Callable[[float], float]) -> float:
    """Return the largest TPR - FPR, from above: each rate at its own end of a step."""
    grid = np.linspace(0.0, 1.0, _POINTS + 1)
    return max(most(float(right)) - float(left) for left, right in pairwise(grid))


def _area(most: Callable[[float], float]) -> float:
    """Return the area under a trade-off curve, from above: between two points it is at most the right one."""
    grid = np.linspace(0.0, 1.0, _POINTS + 1)[1:]
    return min(1.0, float(np.mean([most(float(rate)) for rate in grid])))

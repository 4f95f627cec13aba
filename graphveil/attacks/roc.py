"""ROC curves of attackers, and the bounds that a guarantee implies.

An attack on one protected edge or record cannot exceed the bounds, even if the attacker knows the rest.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.core.unit import LocalAttributes
from graphveil.errors import ConfigError
from graphveil.privacy import Guarantee

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
_POINTS = 400
AttackedObject = Literal["edge", "record"]
_BOUNDS = ("auc", "advantage", "tpr_at_01pct_fpr", "max_tpr_at_1pct_fpr")


@checked
@dataclass(frozen=True, eq=False, repr=False)
class RocCurve:
    """ROC curve of an attacker's scores, with ties counted together.

    An attacker cannot distinguish ties, so between two thresholds the curve is straight: a coin decides.

    Args:
        tp: Number of positives with a score of at least each threshold, ascending to all of them.
        fp: Number of negatives with a score of at least each threshold.

    Privacy:
        Computed from the true kind of each candidate, without a guarantee. Internal.

    >>> ranking = RocCurve.from_scores([0.9, 0.8, 0.8, 0.1], [True, True, False, False])
    >>> ranking.auc, round(ranking.average_precision, 4), ranking.tpr(0.5)
    (0.875, 0.8333, 1.0)
    """

    tp: Floats
    fp: Floats

    @classmethod
    @checked
    def from_scores(cls, scores: npt.ArrayLike, labels: npt.ArrayLike) -> "RocCurve":
        """Compute the curve of some scores.

        Args:
            scores: Scores, higher for likely positives (n).
            labels: Whether each is a positive (n).

        Returns:
            The curve.

        Raises:
            ConfigError: If positives or negatives are missing, or the shapes differ.

        Privacy:
            Reads: the true kind of each candidate. Charges: nothing. The result is internal.
        """
        values, truth = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=bool)
        checks.shape((-1,), scores=values)
        checks.shape(values.shape, labels=truth)
        order = np.argsort(-values, kind="stable")
        values, truth = values[order], truth[order]
        last = np.append(np.flatnonzero(np.diff(values)), len(values) - 1)  # of each group of ties
        tp, fp = (np.cumsum(kind, dtype=np.float64)[last] for kind in (truth, ~truth))
        if not len(tp) or tp[-1] <= 0 or fp[-1] <= 0:
            raise ConfigError(
                "The attack needs scores of both members and nonmembers, but one of the two is missing "
                "in the sample. Use a larger sample."
            )
        return cls(np.append(0.0, tp), np.append(0.0, fp))

    @cached_property
    def rates(self) -> tuple[Floats, Floats]:
        """False-positive and true-positive rates, from (0, 0) to (1, 1)."""
        return self.fp / self.fp[-1], self.tp / self.tp[-1]

    @cached_property
    def auc(self) -> float:
        """The area under the ROC curve: how often a positive has the higher score; ties count half."""
        return float(np.trapezoid(self.rates[1], self.rates[0]))

    @cached_property
    def average_precision(self) -> float:
        """The mean precision at each positive; of tied scores, at the last one."""
        gained = np.diff(self.tp)
        precision = self.tp[1:] / (self.tp + self.fp)[1:]
        return float((gained * precision).sum() / self.tp[-1])

    @checked
    def tpr(self, fpr: float) -> float:
        """Return the true-positive rate at a false-positive rate.

        Args:
            fpr: False-positive rate, from 0 to 1.

        Raises:
            ConfigError: If the rate is out of range.
        """
        checks.within(0, 1, fpr=fpr)
        fpr_steps, tpr_steps = self.rates
        reached = np.flatnonzero(fpr_steps <= fpr)[-1]  # the best of several at one rate
        if reached == len(fpr_steps) - 1:
            return 1.0
        part = (fpr - fpr_steps[reached]) / (fpr_steps[reached + 1] - fpr_steps[reached])
        return float(tpr_steps[reached] + part * (tpr_steps[reached + 1] - tpr_steps[reached]))

    @checked
    def at_top(self, most: float) -> tuple[float, float, float]:
        """Return precision, recall and F1 of the top candidates, with ties broken at random.

        Args:
            most: Number of candidates, not necessarily whole.

        Raises:
            ConfigError: If the number is negative.
        """
        checks.non_negative(most=most)
        taken = self.tp + self.fp
        tp_steps = float(np.interp(min(most, taken[-1]), taken, self.tp))
        precision, recall = tp_steps / max(most, 1e-300), tp_steps / self.tp[-1]
        both = precision + recall
        return precision, float(recall), float(2 * precision * recall / both) if both else 0.0

    @checked
    def curve(self) -> list[tuple[float, float]]:
        """Return 200 pairs of false- and true-positive rates, evenly spaced on a logarithmic axis."""
        least = 1 / self.fp[-1]
        grid = np.unique(np.append(np.geomspace(least, 1.0, 200), 1.0))
        return [(float(rate), self.tpr(float(rate))) for rate in grid]

    def figures(self) -> dict[str, Any]:
        """Return the results that every attack prints."""
        return {
            "auc": self.auc,
            "average_precision": self.average_precision,
            "tpr_at_01pct_fpr": self.tpr(0.001),
            "max_tpr_at_1pct_fpr": self.tpr(0.01),
        }


def attack_as_dict(
    attack: str,
    curves: Mapping[str, RocCurve],
    attackers: tuple[str, str],
    bound: Mapping[str, Any],
    settings: object,
    **facts: Any,
) -> dict[str, Any]:
    main, baseline = attackers
    return {
        "internal": True,
        "attack": attack,
        "auc": curves[main].auc,
        "max_tpr_at_1pct_fpr": curves[main].tpr(0.01),
        "baseline": {"attacker": baseline, **curves[baseline].figures()},
        "theoretical_bound": dict(bound),
        **facts,
        "settings": dict(vars(settings)),
    }


@checked
def roc_auc(scores: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Compute the area under the ROC curve.

    Args:
        scores: Scores, higher for likely positives (n).
        labels: Whether each is a positive (n).

    Returns:
        The area; 0.5 is chance.

    Raises:
        ConfigError: If positives or negatives are missing, or the shapes differ.

    Privacy:
        Reads: the true kind of each candidate. Charges: nothing. The result is internal.

    >>> roc_auc([3.0, 1.0, 2.0], [True, False, False])
    1.0
    """
    return RocCurve.from_scores(scores, labels).auc


# -- bounds that a guarantee implies -----------------------------------------------------------------------


@checked
def pure_advantage(epsilon: float) -> float:
    """Return tanh(epsilon / 2), the largest TPR - FPR of an attack on one node pair under pure epsilon-DP.

    Args:
        epsilon: Epsilon of the guarantee.

    Raises:
        ConfigError: If epsilon is negative.

    >>> round(pure_advantage(1.0), 4)
    0.4621
    """
    checks.non_negative(epsilon=epsilon)
    return math.tanh(epsilon / 2)


@checked
def pure_auc(epsilon: float) -> float:
    """Return e^epsilon / (1 + e^epsilon), the largest AUC of an attack on one node pair under pure DP.

    The curve is at most min(e^eps FPR, 1 - e^-eps (1 - FPR)), and this is the area under it. Randomized
    response on one bit reaches it.

    Args:
        epsilon: Epsilon of the guarantee.

    Raises:
        ConfigError: If epsilon is negative.

    >>> round(pure_auc(1.0), 4), pure_auc(0.0)
    (0.7311, 0.5)
    """
    checks.non_negative(epsilon=epsilon)
    return 1 / (1 + math.exp(-epsilon))


@checked
def theoretical_bound_of(
    guarantee: Guarantee, attacked_object: AttackedObject | None = None
) -> dict[str, Any]:
    """Compute upper bounds for attacks on one edge or record: AUC, TPR - FPR, and TPR at two FPRs.

    The bounds are for an attacker who knows everything but one edge or record, and observes the release. They
    do not cover what public features and labels reveal about edges: an attack over many pairs may have a
    larger AUC without reading any release. Attack reports therefore include a feature-only attacker.

    Args:
        guarantee: Guarantee of the release.
        attacked_object: Target of the attacker, ``"edge"`` or ``"record"``; by default what the unit
            protects.

    Returns:
        The bounds by name, and whether they are valid. If the guarantee is not valid, or its unit does not
        protect the target, all bounds are 1.

    Privacy:
        Reads: the guarantee only. The result is public.
    """
    protects = True
    if attacked_object == "edge":  # a node's record contains its edges
        protects = guarantee.unit != LocalAttributes.name
    elif attacked_object == "record":  # nodes that randomize their features still show that they took part
        protects = guarantee.protected.level == "node"
    if not (protects and guarantee.valid and math.isfinite(guarantee.epsilon)):
        return {**dict.fromkeys(_BOUNDS, 1.0), "valid": False}

    def most(rate: float) -> float:
        return min(1.0, guarantee.curve.tpr(rate) + guarantee.slack)

    # Both from above: between two points the trade-off curve is at most its value at the right one.
    grid = np.linspace(0.0, 1.0, _POINTS + 1)
    rates = np.array([most(float(rate)) for rate in grid[1:]])
    area = min(1.0, float(rates.mean()))
    advantage = min(guarantee.curve.delta(0.0) + guarantee.slack, float((rates - grid[:-1]).max()))
    return {**dict(zip(_BOUNDS, (area, advantage, most(0.001), most(0.01)), strict=True)), "valid": True}

"""How well scores put what is there above what is not: ROC, average precision, and decisions at a budget."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from graphveil import _check
from graphveil._typed import checked
from graphveil.errors import ConfigError

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@checked
@dataclass(frozen=True, eq=False, repr=False)
class Ranking:
    """Scores of things that are there or not, best first, with ties counted together.

    An attacker cannot tell ties apart, so between two thresholds the curve is straight: a coin decides.

    Args:
        found: how many that are there have a score of at least each threshold, ascending to all of them.
        alarms: how many that are not there.

    >>> ranking = Ranking.of([0.9, 0.8, 0.8, 0.1], [True, True, False, False])
    >>> ranking.auc, round(ranking.average_precision, 4), ranking.true_positive_rate(0.5)
    (0.875, 0.8333, 1.0)
    """

    found: Floats
    alarms: Floats

    @classmethod
    @checked
    def of(
        cls, scores: npt.ArrayLike, there: npt.ArrayLike, weights: npt.ArrayLike | None = None
    ) -> "Ranking":
        """Rank scores; ``weights`` count each of them more than once, or not at all.

        Raises:
            ConfigError: all of it is there, or none of it, so that no order can be wrong.
        """
        values, truth = np.asarray(scores, dtype=np.float64), np.asarray(there, dtype=bool)
        _check.shape((-1,), scores=values)
        _check.shape(values.shape, there=truth, **({} if weights is None else {"weights": weights}))
        counted = np.ones(len(values)) if weights is None else np.asarray(weights, dtype=np.float64)
        order = np.argsort(-values, kind="stable")
        values, hits, misses = values[order], (truth * counted)[order], (~truth * counted)[order]
        last = np.append(np.flatnonzero(np.diff(values)), len(values) - 1)  # of each group of ties
        found, alarms = np.cumsum(hits)[last], np.cumsum(misses)[last]
        if not len(found) or found[-1] <= 0 or alarms[-1] <= 0:
            raise ConfigError(
                "an attack is measured on both kinds, and one is missing among what was drawn; draw more"
            )
        return cls(np.append(0.0, found), np.append(0.0, alarms))

    @cached_property
    def rates(self) -> tuple[Floats, Floats]:
        """False-positive and true-positive rates, from (0, 0) to (1, 1)."""
        return self.alarms / self.alarms[-1], self.found / self.found[-1]

    @cached_property
    def auc(self) -> float:
        """The area under the ROC curve: how often one that is there beats one that is not; ties are half."""
        return float(np.trapezoid(self.rates[1], self.rates[0]))

    @cached_property
    def average_precision(self) -> float:
        """The mean precision at each that is found, of groups of ties at their end."""
        gained = np.diff(self.found)
        precision = self.found[1:] / (self.found + self.alarms)[1:]
        return float((gained * precision).sum() / self.found[-1])

    @checked
    def true_positive_rate(self, false_positive_rate: float) -> float:
        """Return the share found at a rate of false positives."""
        _check.within(0, 1, false_positive_rate=false_positive_rate)
        false, true = self.rates
        reached = np.flatnonzero(false <= false_positive_rate)[-1]  # the best of several at one rate
        if reached == len(false) - 1:
            return 1.0
        part = (false_positive_rate - false[reached]) / (false[reached + 1] - false[reached])
        return float(true[reached] + part * (true[reached + 1] - true[reached]))

    @checked
    def taking(self, most: float) -> tuple[float, float, float]:
        """Return precision, recall and F1 of taking so many of the best, ties by chance."""
        _check.non_negative(most=most)
        taken = self.found + self.alarms
        hits = float(np.interp(min(most, taken[-1]), taken, self.found))
        precision, recall = hits / max(most, 1e-300), hits / self.found[-1]
        both = precision + recall
        return precision, float(recall), float(2 * precision * recall / both) if both else 0.0

    @checked
    def curve(self, points: int = 200) -> list[tuple[float, float]]:
        """Return rates to draw, at false-positive rates that are even on a logarithmic axis."""
        _check.integer_at_least(1, points=points)
        least = 1 / self.alarms[-1]
        grid = np.unique(np.append(np.geomspace(least, 1.0, points), 1.0))
        return [(float(rate), self.true_positive_rate(float(rate))) for rate in grid]

    def figures(self) -> dict[str, Any]:
        """Return the figures that every attack prints."""
        return {
            "auc": self.auc,
            "average_precision": self.average_precision,
            "tpr_at_01pct_fpr": self.true_positive_rate(0.001),
            "tpr_at_1pct_fpr": self.true_positive_rate(0.01),
        }


@checked
def auc_of(scores: npt.ArrayLike, there: npt.ArrayLike) -> float:
    """Return the area under the ROC curve.

    >>> auc_of([3.0, 1.0, 2.0], [True, False, False])
    1.0
    """
    return Ranking.of(scores, there).auc


@checked
@dataclass(frozen=True)
class Spread:
    """A mean over runs, its standard error and its 99 % interval by Student's t.

    >>> Spread.of([1.0, 2.0, 3.0]).mean
    2.0
    """

    mean: float
    error: float
    low: float
    high: float
    runs: int

    @classmethod
    @checked
    def of(cls, values: Sequence[float]) -> "Spread":
        """Take one value a run; the interval of a single run is everything."""
        from scipy.stats import t

        runs = len(values)
        mean = float(np.mean(values))
        if runs < 2:
            return cls(mean, float("inf"), -float("inf"), float("inf"), runs)
        error = float(np.std(values, ddof=1) / np.sqrt(runs))
        reach = float(t.ppf(0.995, runs - 1)) * error
        return cls(mean, error, mean - reach, mean + reach, runs)

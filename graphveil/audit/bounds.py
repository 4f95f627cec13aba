"""Lower bounds on epsilon from counts of repeated runs, at a confidence that is exact for every sample size.

A run with a canary and a run without it are told apart by a test that was fixed before the runs. Under
(epsilon, delta)-indistinguishability

    TPR <= e^epsilon FPR + delta    and    1 - FPR <= e^epsilon (1 - TPR) + delta,

so a lower bound on one rate and an upper bound on the other bound epsilon from below. Rates are bounded by
Clopper and Pearson (1934), each at half of the significance: one event carries both inequalities. At
delta = 0 both together bound the odds ratio TPR (1 - FPR) / (FPR (1 - TPR)) by e^(2 epsilon), and an odds
ratio has an exact bound of its own (Fisher 1935).
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import betaincinv

from graphveil._util import checks
from graphveil._util.checks import checked

CONFIDENCE = 0.99
_REACH = 60.0  # standard deviations of counts, beyond which nothing is left of their law


@checked
@dataclass(frozen=True, kw_only=True)
class LowerBound:
    """What an audit certifies, and the most that it could have certified.

    Args:
        epsilon: a lower bound on epsilon at ``delta``, with probability ``confidence`` over the runs.
        delta: at which delta.
        confidence: how often such a bound is right, at least.
        max_certifiable: the maximum certifiable epsilon, had every guess been right: no result of this size
            certifies more. Infinite where the statistic has no largest value.
        method: which bound, in words.
        mu: the lower bound on mu that epsilon follows from, or None.

    >>> print(repeated_runs(90, 100, 10, 100))
    epsilon >= 1.374 at delta = 0 with confidence 99 % (repeated runs; maximum certifiable 2.911)
    """

    epsilon: float
    delta: float
    confidence: float
    max_certifiable: float
    method: str
    mu: float | None = None

    def __str__(self) -> str:
        """Say it in one line."""
        mu = "" if self.mu is None else f", mu >= {self.mu:.4f}"
        most = (
            "no maximum"
            if math.isinf(self.max_certifiable)
            else f"maximum certifiable {self.max_certifiable:.3f}"
        )
        return (
            f"epsilon >= {self.epsilon:.3f} at delta = {self.delta:g}{mu} with confidence "
            f"{100 * self.confidence:g} % ({self.method}; {most})"
        )


@checked
def clopper_pearson_lower(successes: int, trials: int, significance: float) -> float:
    """Return the Clopper-Pearson lower bound on a probability: one-sided, at this significance.

    >>> round(clopper_pearson_lower(5, 10, 0.05), 6)
    0.222441
    """
    _check_counts(successes, trials)
    if not successes:
        return 0.0
    return float(betaincinv(successes, trials - successes + 1, significance))


@checked
def clopper_pearson_upper(successes: int, trials: int, significance: float) -> float:
    """Return the Clopper-Pearson upper bound on a probability: one-sided, at this significance.

    >>> round(clopper_pearson_upper(0, 100, 0.05), 6)  # the rule of three
    0.029513
    """
    return 1.0 - clopper_pearson_lower(trials - successes, trials, significance)


@checked
def repeated_runs(
    tp: int,
    with_canary: int,
    fp: int,
    without_canary: int,
    *,
    delta: float = 0.0,
    confidence: float = CONFIDENCE,
) -> LowerBound:
    """Return the lower bound on epsilon from independent runs with a canary and without it.

    Args:
        tp: runs with the canary in which the test said "with".
        with_canary: all runs with it.
        fp: runs without it in which the test said "with".
        without_canary: all runs without it.
        delta: at which delta.
        confidence: of the bound; the test must not have been chosen by these runs.

    Raises:
        ConfigError: counts that cannot be.

    >>> round(repeated_runs(900, 1000, 100, 1000, delta=1e-5).epsilon, 4)
    1.9288
    """
    checks.within(0, 1, delta=delta)
    _check_confidence(confidence)
    epsilon = _from_counts(tp, with_canary, fp, without_canary, delta, 1 - confidence)
    max_certifiable = _from_counts(with_canary, with_canary, 0, without_canary, delta, 1 - confidence)
    return LowerBound(
        epsilon=epsilon,
        delta=delta,
        confidence=confidence,
        max_certifiable=max_certifiable,
        method="repeated runs",
    )


@checked
def odds_of_runs(
    tp: int, with_canary: int, fp: int, without_canary: int, *, confidence: float = CONFIDENCE
) -> LowerBound:
    """Return the lower bound on epsilon at delta = 0 that the odds ratio of independent runs gives.

    Given how often the test said "with" in all, ``tp`` has Fisher's noncentral hypergeometric law, whose
    upper tail grows with the odds ratio. The least ratio under which so many hits are as likely as the
    significance is its bound, and half of its logarithm is one on epsilon. For randomized bits, whose odds
    ratio is e^(2 epsilon), it costs 3.3 / sqrt(n) of epsilon where :func:`repeated_runs` costs 5.2 / sqrt(n).

    Raises:
        ConfigError: counts that cannot be.

    >>> round(odds_of_runs(900, 1000, 100, 1000).epsilon, 4)  # repeated_runs: 1.9289
    2.02
    """
    _check_confidence(confidence)
    _check_counts(tp, with_canary)
    _check_counts(fp, without_canary)
    log_odds_bound = _log_odds(tp, with_canary, fp, without_canary, 1 - confidence)
    most = _log_odds(with_canary, with_canary, 0, without_canary, 1 - confidence)
    return LowerBound(
        epsilon=max(0.0, log_odds_bound / 2),
        delta=0.0,
        confidence=confidence,
        max_certifiable=max(0.0, most / 2),
        method="odds of repeated runs",
    )


def _log_odds(tp: int, with_canary: int, fp: int, without_canary: int, significance: float) -> float:
    """Return the lower bound on the logarithm of the odds ratio."""
    positives = tp + fp
    least, most = max(0, positives - without_canary), min(with_canary, positives)
    if tp == least:
        return -math.inf  # no count is smaller
    cells = 1 + np.array([tp, with_canary - tp, fp, without_canary - fp], dtype=np.float64)
    spread = 1 / math.sqrt(float((1 / cells).sum()))  # of hits, about; of the log odds it is the inverse
    reach = math.ceil(_REACH * (1 + spread))
    counts = np.arange(max(least, tp - reach), min(most, tp + reach) + 1, dtype=np.float64)
    below = counts[:-1]
    ratios = np.log((with_canary - below) * (positives - below)) - np.log(
        (below + 1) * (without_canary - positives + below + 1)
    )
    weights = np.append(0.0, np.cumsum(ratios))
    middle = -float(ratios[min(max(tp - int(counts[0]), 1), len(ratios)) - 1])  # where hits are likeliest

    def excess(log_odds: float) -> float:
        return _log_tail(weights + log_odds * counts, counts >= tp) - math.log(significance)

    low = high = middle
    while excess(low) > 0:
        low -= 5 / spread
    while excess(high) < 0:
        high += 1.0
    return float(brentq(excess, low, high, xtol=1e-12))


def _log_tail(weights: npt.NDArray[np.float64], tail: npt.NDArray[np.bool_]) -> float:
    """Return the logarithm of the share of exp(weights) in a tail."""
    shares = np.exp(weights - weights.max())
    return math.log(max(float(shares[tail].sum()), 1e-300)) - math.log(float(shares.sum()))


def _from_counts(
    tp: int, with_canary: int, fp: int, without_canary: int, delta: float, significance: float
) -> float:
    caught = clopper_pearson_lower(tp, with_canary, significance / 2)
    alarmed = clopper_pearson_upper(fp, without_canary, significance / 2)
    return max(0.0, _log_ratio(caught, alarmed, delta), _log_ratio(1 - alarmed, 1 - caught, delta))


def _log_ratio(likely: float, unlikely: float, delta: float) -> float:
    """Return ln((likely - delta) / unlikely); nothing follows where delta covers it."""
    if likely <= delta:
        return 0.0
    return math.inf if unlikely <= 0 else math.log((likely - delta) / unlikely)


def _check_counts(successes: int, trials: int) -> None:
    checks.integer_at_least(1, trials=trials)
    checks.integer_at_least(0, successes=successes)
    checks.within(0, trials, successes=successes)


def _check_confidence(confidence: float) -> None:
    checks.positive(confidence=confidence, significance=1 - confidence)

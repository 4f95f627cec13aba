"""Lower bounds on epsilon, each with an exact confidence for every sample size.

Three kinds of evidence, strongest assumptions last; ``docs/privacy/proofs/audit.md`` has the proofs.

*Repeated runs.* A test that was fixed beforehand decides whether a run had a canary. Under
(epsilon, delta)-indistinguishability

    TPR <= e^epsilon FPR + delta    and    1 - FPR <= e^epsilon (1 - TPR) + delta,

so a lower bound on one rate and an upper bound on the other bound epsilon from below. Rates are bounded by
Clopper and Pearson (1934), each at half of the significance: one event carries both inequalities. At
delta = 0 both together bound the odds ratio TPR (1 - FPR) / (FPR (1 - TPR)) by e^(2 epsilon), and an odds
ratio has an exact bound of its own (Fisher 1935).

*One run.* Many canaries are each in or out by a fair coin. Guesses are made from the output alone, and their
number is fixed beforehand; the canaries with the least extreme scores are not guessed.

*Sums over canaries*, where the law of the noise is known: Gaussian, or Gaussian with sampled batches. Scores
are in units of the noise's standard deviation. A canary's score is the release along the direction in which
the canary would move it, minus the release without the canary.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq, minimize_scalar
from scipy.special import betaincinv, chdtri, expit, logsumexp, ndtr, ndtri
from scipy.stats import binom

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.core.accounting.accountant import privacy_curve
from graphveil.core.accounting.gaussian import epsilon_of
from graphveil.core.events import PoissonGaussian
from graphveil.errors import ConfigError

CONFIDENCE = 0.99
_REACH = 60.0  # standard deviations of counts, beyond which their probability is below rounding
_MAX_PARAMETER, _BISECTIONS = 60.0, 60  # the largest epsilon or mu that one run may certify
_GRID_REACH = 12.0  # standard deviations on either side; the tail beyond is below 1e-32
_GRID_POINTS = 1201
_MULTIPLIER_BISECTIONS = 24  # of a range of 10^4: the multiplier to a millionth
_LOG_TILTS = (-12.0, 4.0)  # between which the best exponent of Chernoff's bound is searched
Scores = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@checked
@dataclass(frozen=True, kw_only=True)
class LowerBound:
    """A lower bound on epsilon from an audit, with the largest bound that its sample size allows.

    Args:
        epsilon: Lower bound on epsilon at ``delta``.
        delta: Delta of the audited claim.
        confidence: Probability, over the runs, with which the bound is valid.
        max_certifiable: Maximum certifiable epsilon: the bound if every guess were right. Infinite if the
            statistic has no largest value.
        method: Name of the bound.
        mu: Lower bound on mu from which ``epsilon`` follows; None if the bound is not Gaussian.

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
        mu = "" if self.mu is None else f", mu >= {self.mu:.4f}"
        certifiable = self.max_certifiable
        most = "no maximum" if math.isinf(certifiable) else f"maximum certifiable {certifiable:.3f}"
        return (
            f"epsilon >= {self.epsilon:.3f} at delta = {self.delta:g}{mu} with confidence "
            f"{100 * self.confidence:g} % ({self.method}; {most})"
        )


def _bound(
    method: str, epsilon: float, most: float, delta: float, confidence: float, mu: float | None = None
) -> LowerBound:
    return LowerBound(
        epsilon=epsilon, delta=delta, confidence=confidence, max_certifiable=most, method=method, mu=mu
    )


# -- repeated runs -----------------------------------------------------------------------------------------


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
    """Compute the lower bound on epsilon from independent runs with a canary and without it.

    The test that decides whether a run had the canary must not be chosen by these runs.

    Args:
        tp: Number of runs with the canary that the test reports as such.
        with_canary: Number of runs with the canary.
        fp: Number of runs without the canary that the test reports as runs with it.
        without_canary: Number of runs without the canary.
        delta: Delta of the claim.
        confidence: Confidence of the bound.

    Returns:
        The bound on epsilon at ``delta``.

    Raises:
        ConfigError: If a count exceeds its total, or another argument is out of range.

    >>> round(repeated_runs(900, 1000, 100, 1000, delta=1e-5).epsilon, 4)
    1.9288
    """
    checks.within(0, 1, delta=delta)
    _check_confidence(confidence)
    epsilon = _from_counts(tp, with_canary, fp, without_canary, delta, 1 - confidence)
    most = _from_counts(with_canary, with_canary, 0, without_canary, delta, 1 - confidence)
    return _bound("repeated runs", epsilon, most, delta, confidence)


def counted_runs(detected: Bools, present: Bools, confidence: float) -> LowerBound:
    """Return the bound at delta = 0 from canaries: which were detected, and which were present."""
    tp, fp = int(detected[present].sum()), int(detected[~present].sum())
    return repeated_runs(tp, int(present.sum()), fp, int((~present).sum()), confidence=confidence)


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


@checked
def clopper_pearson_lower(successes: int, trials: int, significance: float) -> float:
    """Compute the one-sided Clopper-Pearson lower bound on a probability.

    Args:
        successes: Number of successes.
        trials: Number of trials.
        significance: Probability with which the bound may exceed the truth.

    Returns:
        The bound; 0 without successes.

    Raises:
        ConfigError: If the counts are impossible.

    >>> round(clopper_pearson_lower(5, 10, 0.05), 6)
    0.222441
    """
    _check_counts(successes, trials)
    if not successes:
        return 0.0
    return float(betaincinv(successes, trials - successes + 1, significance))


@checked
def clopper_pearson_upper(successes: int, trials: int, significance: float) -> float:
    """Compute the one-sided Clopper-Pearson upper bound on a probability.

    Args:
        successes: Number of successes.
        trials: Number of trials.
        significance: Probability with which the truth may exceed the bound.

    Returns:
        The bound; 1 if every trial succeeded.

    Raises:
        ConfigError: If the counts are impossible.

    >>> round(clopper_pearson_upper(0, 100, 0.05), 6)  # the rule of three
    0.029513
    """
    return 1.0 - clopper_pearson_lower(trials - successes, trials, significance)


@checked
def odds_of_runs(
    tp: int, with_canary: int, fp: int, without_canary: int, *, confidence: float = CONFIDENCE
) -> LowerBound:
    """Compute the lower bound on epsilon at delta = 0 from the odds ratio of independent runs.

    Given the number of positives, ``tp`` follows Fisher's noncentral hypergeometric distribution, whose
    upper tail grows with the odds ratio. The bound on the ratio is the least one under which ``tp`` or more
    hits are as likely as the significance. Half of its logarithm bounds epsilon. For n randomized bits, whose
    odds ratio is e^(2 epsilon), the bound is 3.3 / sqrt(n) below epsilon; that of ``repeated_runs`` is
    5.2 / sqrt(n) below.

    Args:
        tp: Number of runs with the canary that the test reports as such.
        with_canary: Number of runs with the canary.
        fp: Number of runs without the canary that the test reports as runs with it.
        without_canary: Number of runs without the canary.
        confidence: Confidence of the bound.

    Returns:
        The bound on epsilon at delta = 0.

    Raises:
        ConfigError: If a count exceeds its total.

    >>> round(odds_of_runs(900, 1000, 100, 1000).epsilon, 4)  # repeated_runs: 1.9289
    2.02
    """
    _check_confidence(confidence)
    _check_counts(tp, with_canary)
    _check_counts(fp, without_canary)
    log_odds_bound = _log_odds(tp, with_canary, fp, without_canary, 1 - confidence)
    most = _log_odds(with_canary, with_canary, 0, without_canary, 1 - confidence)
    epsilons = max(0.0, log_odds_bound / 2), max(0.0, most / 2)
    return _bound("odds of repeated runs", *epsilons, 0.0, confidence)


def _log_odds(tp: int, with_canary: int, fp: int, without_canary: int, significance: float) -> float:
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
        tilted = weights + log_odds * counts
        shares = np.exp(tilted - tilted.max())
        tail = float(shares[counts >= tp].sum())
        return math.log(max(tail, 1e-300)) - math.log(float(shares.sum())) - math.log(significance)

    low = high = middle
    while excess(low) > 0:
        low -= 5 / spread
    while excess(high) < 0:
        high += 1.0
    return float(brentq(excess, low, high, xtol=1e-12))


# -- one run -----------------------------------------------------------------------------------------------


@checked
def one_run(
    canaries: int, guesses: int, correct: int, *, delta: float = 0.0, confidence: float = CONFIDENCE
) -> LowerBound:
    """Compute the one-run lower bound on epsilon of Steinke, Nasr and Jagielski (2023, arXiv 2305.08846).

    Args:
        canaries: Number m of canaries, each included by an independent fair coin.
        guesses: Number r of guesses, in or out; fixed before the run.
        correct: Number v of right guesses.
        delta: Delta of the claim.
        confidence: Confidence of the bound.

    Returns:
        The bound on epsilon at ``delta``.

    Raises:
        ConfigError: If there are more guesses than canaries, or more right guesses than guesses.

    >>> print(one_run(1000, 100, 100))
    epsilon >= 3.055 at delta = 0 with confidence 99 % (one run; maximum certifiable 3.055)
    """
    _check_guesses(canaries, guesses, correct)
    checks.within(0, 1, delta=delta)
    _check_confidence(confidence)

    def certified(right: int) -> float:
        return _largest_rejected(lambda e: p_value(canaries, guesses, right, e, delta) <= 1 - confidence)

    return _bound("one run", certified(correct), certified(guesses), delta, confidence)


def p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Bound the probability of this many right guesses under (epsilon, delta)-indistinguishability.

    With B ~ Binomial(r, 1 / (1 + e^-epsilon)):

        P[V >= v] <= P[B >= v] + 2 m delta max_{1 <= i <= v} P[v - i <= B < v] / i.

    >>> round(p_value(100, 20, 15, 0.0, 0.0), 6)  # fair coins
    0.020695
    """
    q = float(expit(epsilon))
    tail = float(binom.sf(correct - 1, guesses, q))
    if not delta or not correct:
        return tail
    i = np.arange(1, correct + 1)
    near = binom.sf(correct - i - 1, guesses, q) - tail
    return float(min(1.0, tail + 2 * canaries * delta * (near / i).max()))


@checked
def one_run_gaussian(
    canaries: int, guesses: int, correct: int, *, delta: float, confidence: float = CONFIDENCE
) -> LowerBound:
    """Compute the one-run lower bound on mu, and on epsilon at delta, for Gaussian claims.

    The f-DP bound of Mahloujifar, Melis and Chaudhuri (2024, arXiv 2410.22235), with f that of mu. It rejects
    that every canary is mu-indistinguishable given all others. Proof: ``docs/privacy/proofs/audit.md``.

    Args:
        canaries: Number of canaries, each included by an independent fair coin.
        guesses: Number of guesses, in or out; fixed before the run.
        correct: Number of right guesses.
        delta: Delta of the claim.
        confidence: Confidence of the bound.

    Returns:
        The bound on mu, and the epsilon at ``delta`` that follows from it.

    Raises:
        ConfigError: If there are more guesses than canaries, or more right guesses than guesses.

    >>> found = one_run_gaussian(1000, 1000, 700, delta=1e-5)
    >>> found.mu < 2 * float(ndtri(0.7))  # mu of guesses that are right so often
    True
    """
    _check_guesses(canaries, guesses, correct)
    checks.positive(delta=delta)
    _check_confidence(confidence)

    def certified(right: int) -> float:
        return _largest_rejected(lambda m: gaussian_claim_fails(canaries, guesses, right, m, 1 - confidence))

    mu, most = certified(correct), epsilon_of(certified(guesses), delta)
    return _bound("one run, Gaussian", epsilon_of(mu, delta), most, delta, confidence, mu)


def gaussian_claim_fails(canaries: int, guesses: int, correct: int, mu: float, significance: float) -> bool:
    """Whether this many right guesses have a probability below the significance under the claim mu.

    Were P[V >= v] = tau, the tails P[V >= j] would have to grow downwards from j = v by the recursion,
    and reach more than one.
    """
    right = significance * correct / canaries  # sum over k >= j of k P[V = k], over m
    wrong = significance * (guesses - correct) / canaries  # the same of r - k
    for j in range(correct - 1, -1, -1):
        needed = float(ndtr(ndtri(right) - mu)) if right < 1 else 1.0
        if needed <= wrong:
            break  # nothing changes any more
        right += j / (guesses - j) * (needed - wrong)
        wrong = needed
        if (right + wrong) * canaries > guesses:
            return True
    return (right + wrong) * canaries > guesses


def _largest_rejected(rejects: Callable[[float], bool]) -> float:
    """Return the largest claim that is rejected, by bisection; every smaller claim is rejected, too."""
    if not rejects(0.0):
        return 0.0
    low, high = 0.0, _MAX_PARAMETER
    if rejects(high):
        return high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if rejects(middle) else (low, middle)
        if math.isclose(low, high, rel_tol=1e-9):
            break
    return low


# -- sums over canaries ------------------------------------------------------------------------------------


@checked
def summed_gaussian(
    with_canary: Scores, without_canary: Scores, *, delta: float, confidence: float = CONFIDENCE
) -> LowerBound:
    """Compute the lower bound on mu, and on epsilon at delta, from scores of canaries in Gaussian releases.

    Scores are independent normals of one standard deviation s, and a canary moves its score by at most mu s.
    With S^2 their sum of squares around the two means, and c the quantile of chi-square with n - 2 degrees,

        mu >= (mean(with) - mean(without)) sqrt(c) / S - z sqrt(1 / n_1 + 1 / n_0),

    each part at half of the significance. The bound therefore also detects noise that is too small.

    Args:
        with_canary: Scores of canaries that are in the release (n_1).
        without_canary: Scores of canaries that are not in it (n_0).
        delta: Delta of the claim.
        confidence: Confidence of the bound.

    Returns:
        The bound on mu, and the epsilon at ``delta`` that follows from it.

    Raises:
        ConfigError: If scores are missing or not finite.

    >>> rng = np.random.default_rng(0)
    >>> found = summed_gaussian(rng.normal(0.5, 1, 9000), rng.normal(0, 1, 9000), delta=1e-5)
    >>> 0.4 < found.mu < 0.5
    True
    """
    checks.positive(delta=delta)
    _check_confidence(confidence)
    difference = _mean(with_canary) - _mean(without_canary)
    half = (1 - confidence) / 2
    widest = largest_deviation([with_canary, without_canary], half)
    error = math.sqrt(1 / len(with_canary) + 1 / len(without_canary))
    mu = max(0.0, difference / widest + float(ndtri(half)) * error)
    return _bound("sum over canaries", epsilon_of(mu, delta), math.inf, delta, confidence, mu)


def largest_deviation(groups: list[Scores], significance: float) -> float:
    """Bound the noise's standard deviation from above, by scores around the means of their groups.

    Canaries that move by different amounts spread their group: the bound grows, and remains valid.
    """
    squares = sum(float(np.square(group - group.mean()).sum()) for group in groups)
    degrees = sum(map(len, groups)) - len(groups)
    if degrees < 1 or not squares:
        return math.inf
    return math.sqrt(squares / float(chdtri(degrees, 1 - significance)))


@checked
def sampled_training(
    scores: Scores,
    without_canary: Scores,
    *,
    noise_multiplier: float,
    sampling_rate: float,
    steps: int,
    delta: float,
    confidence: float = CONFIDENCE,
) -> LowerBound:
    """Compute the lower bound on epsilon of sampled training, by the likelihood ratio of its dominating pair.

    Scores are those of single steps for a record with a constant clipped gradient, over the noise's standard
    deviation: N(b / z, 1), where b is one with probability q. The statistic is the sum of

        l(y) = ln(1 - q + q exp(y / z - 1 / (2 z^2)))

    over all scores. For a noise multiplier z' its tail is below e^(-t s) E[e^(t l)]^n for every t > 0
    (Chernoff), and grows as z' falls. The largest z' that the scores do not reject gives epsilon for
    ``steps`` steps. Scores are first divided by an upper bound on the noise's standard deviation, with half
    of the significance. The bound therefore also detects noise that is too small.

    Args:
        scores: One score for each observed step, of any number of runs.
        without_canary: Scores of records that are in no batch: noise alone.
        noise_multiplier: Claimed noise multiplier z. It shapes the statistic; the bound is valid for every z.
        sampling_rate: Sampling rate q, which is public and not tested.
        steps: Number of steps of the claimed training.
        delta: Delta of the claim.
        confidence: Confidence of the bound.

    Returns:
        The bound on epsilon of all steps at ``delta``.

    Raises:
        ConfigError: If scores are missing or not finite, or a parameter is out of range.
    """
    checks.positive(noise_multiplier=noise_multiplier, delta=delta, sampling_rate=sampling_rate)
    checks.within(0, 1, sampling_rate=sampling_rate, delta=delta)
    checks.integer_at_least(1, steps=steps)
    _check_confidence(confidence)
    for part in (scores, without_canary):
        _mean(part)
    largest = largest_multiplier(scores, without_canary, noise_multiplier, sampling_rate, 1 - confidence)
    epsilon = 0.0
    if math.isfinite(largest):
        epsilon = privacy_curve(PoissonGaussian(largest, sampling_rate, steps)).epsilon(delta)
    return steps_bound(epsilon, delta, confidence)


def steps_bound(epsilon: float, delta: float, confidence: float) -> LowerBound:
    return _bound("likelihood ratio of steps", epsilon, math.inf, delta, confidence)


def largest_multiplier(
    scores: Scores, without_canary: Scores, z: float, q: float, significance: float
) -> float:
    """Return the largest noise multiplier that the scores do not reject; infinity if they reject none."""
    significance /= 2
    widest = largest_deviation([without_canary], significance)
    observed = float(log_ratio(np.asarray(scores, dtype=np.float64) / widest, z, q).sum())
    low, high = 1e-3 / z, 20.0 / z  # of 1 / z'
    if _chernoff_log_tail(observed, len(scores), low, z, q) > math.log(significance):
        return math.inf
    for _ in range(_MULTIPLIER_BISECTIONS):
        middle = math.sqrt(low * high)
        rejected = _chernoff_log_tail(observed, len(scores), middle, z, q) <= math.log(significance)
        low, high = (middle, high) if rejected else (low, middle)
    return 1 / low


def log_ratio(y: Scores, z: float, q: float) -> Scores:
    """Return ln(1 - q + q exp(y / z - 1 / (2 z^2))), in logarithms.

    >>> log_ratio(np.array([2.0]), 1.0, 0.25).round(6).tolist()
    [0.626164]
    """
    inside = y / z - 0.5 / z**2
    if q == 1:
        return np.asarray(inside)
    return np.logaddexp(math.log1p(-q), math.log(q) + inside)


def _chernoff_log_tail(observed: float, count: int, shift: float, z: float, q: float) -> float:
    """Return the Chernoff bound on ln P[sum of l >= observed], for steps that a canary moves by ``shift``."""
    y = np.linspace(-_GRID_REACH, shift + _GRID_REACH, _GRID_POINTS)
    width = math.log(y[1] - y[0])
    law = -0.5 * y**2 - 0.5 * math.log(2 * math.pi)
    law = np.logaddexp(
        law + (math.log1p(-q) if q < 1 else -math.inf), math.log(q) + law + shift * y - 0.5 * shift**2
    )
    ratio = log_ratio(y, z, q)

    def exponent(log_t: float) -> float:  # every t gives a bound; the search is for a good one
        t = math.exp(log_t)
        return count * float(logsumexp(law + t * ratio) + width) - t * observed

    return float(minimize_scalar(exponent, bounds=_LOG_TILTS, method="bounded", options={"xatol": 0.01}).fun)


# -- checks ------------------------------------------------------------------------------------------------


def _check_counts(successes: int, trials: int) -> None:
    checks.integer_at_least(1, trials=trials)
    checks.integer_at_least(0, successes=successes)
    checks.within(0, trials, successes=successes)


def _check_guesses(canaries: int, guesses: int, correct: int) -> None:
    checks.integer_at_least(1, canaries=canaries, guesses=guesses)
    checks.integer_at_least(0, correct=correct)
    checks.within(1, canaries, guesses=guesses)
    checks.within(0, guesses, correct=correct)


def _check_confidence(confidence: float) -> None:
    checks.positive(confidence=confidence, significance=1 - confidence)


def _mean(scores: Scores) -> float:
    if len(scores) < 1 or not np.isfinite(scores).all():
        raise ConfigError("scores must be finite, with at least one score of members and one of nonmembers")
    return float(np.mean(scores))

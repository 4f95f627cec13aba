"""Lower bounds from sums over many canaries, where the law of the noise is known: Gaussian, or sampled.

``docs/audit.md`` has the proofs. Scores are in units of the noise's standard deviation: a canary's score is
the release along the direction in which it would move the release, minus what is there without it.
"""

import math

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from scipy.special import chdtri, logsumexp, ndtri

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.audit.bounds import CONFIDENCE, LowerBound, _check_confidence
from graphveil.errors import ConfigError
from graphveil.privacy import PoissonGaussian, privacy_curve
from graphveil.privacy.gaussian import epsilon_of

Scores = npt.NDArray[np.float64]

_REACH = 12.0  # standard deviations on either side; what lies beyond is below 1e-32
_NODES = 1201
_BISECTIONS = 24  # of a range of 10^4: the multiplier to a millionth


@checked
def summed_gaussian(
    with_canary: Scores, without_canary: Scores, *, delta: float, confidence: float = CONFIDENCE
) -> LowerBound:
    """Return the lower bound on mu of Gaussian releases, and epsilon at delta, from scores of many canaries.

    Scores are independent normals of one standard deviation s, and a canary moves its own by at most mu s.
    With S^2 their sum of squares around the two means, and c the quantile of chi-square with n - 2 degrees,

        mu >= (mean(with) - mean(without)) sqrt(c) / S - z sqrt(1 / n_1 + 1 / n_0),

    each part at half of the significance. So noise that is too small shows as well as a shift that is too
    large.

    Raises:
        ConfigError: no scores, or scores that are no numbers.

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
    return LowerBound(
        epsilon=epsilon_of(mu, delta),
        delta=delta,
        confidence=confidence,
        max_certifiable=math.inf,
        method="sum over canaries",
        mu=mu,
    )


def largest_deviation(groups: list[Scores], significance: float) -> float:
    """Return an upper bound on the noise's standard deviation, from scores around the means of their groups.

    Canaries that move by different amounts spread their group: the bound grows, and stays true.
    """
    squares = sum(float(np.square(group - group.mean()).sum()) for group in groups)
    degrees = sum(map(len, groups)) - len(groups)
    if degrees < 1 or not squares:
        return math.inf
    return math.sqrt(squares / float(chdtri(degrees, 1 - significance)))


def blur(count: int, confidence: float = CONFIDENCE) -> float:
    """Return how far below the truth the bound on mu lies on average, with so many canaries in and out each.

    >>> round(blur(10_000), 4)
    0.0364
    """
    checks.integer_at_least(1, count=count)
    return -float(ndtri((1 - confidence) / 2)) * math.sqrt(2 / count)


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
    """Return the lower bound on epsilon of sampled training, by the likelihood ratio of its dominating pair.

    Scores are what single steps say of a record whose clipped gradient is constant, over the noise's standard
    deviation: N(b / z, 1), where b is one with probability q. The statistic is the sum of

        l(y) = ln(1 - q + q exp(y / z - 1 / (2 z^2)))

    over all scores. For a noise multiplier z' its tail is below e^(-t s) E[e^(t l)]^n for every t > 0
    (Chernoff), and grows as z' falls. The largest z' that is not rejected so is turned into epsilon for
    ``steps`` steps. Scores are divided by a bound on the noise's standard deviation first, so noise that is
    too small shows; half of the significance is for that.

    Args:
        scores: one for each step that was seen, of any number of runs.
        without_canary: the same of records that are in no batch: noise alone.
        noise_multiplier: z, as claimed; it shapes the statistic, and the bound holds whatever it is.
        sampling_rate: q, which is public and taken as given.
        steps: T, of the training that is claimed.
        delta, confidence: of the bound.

    Raises:
        ConfigError: no scores, or parameters out of range.
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
    return LowerBound(
        epsilon=epsilon,
        delta=delta,
        confidence=confidence,
        max_certifiable=math.inf,
        method="likelihood ratio of steps",
    )


def largest_multiplier(
    scores: Scores, without_canary: Scores, z: float, q: float, significance: float
) -> float:
    """Return the largest noise multiplier that the scores do not reject; infinity if they reject none."""
    significance /= 2
    widest = largest_deviation([without_canary], significance)
    observed = float(log_ratio(np.asarray(scores, dtype=np.float64) / widest, z, q).sum())
    low, high = 1e-3 / z, 20.0 / z  # of 1 / z'
    if _log_tail(observed, len(scores), low, z, q) > math.log(significance):
        return math.inf
    for _ in range(_BISECTIONS):
        middle = math.sqrt(low * high)
        rejected = _log_tail(observed, len(scores), middle, z, q) <= math.log(significance)
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


def _log_tail(observed: float, count: int, shift: float, z: float, q: float) -> float:
    """Return the Chernoff bound on ln P[sum of l >= observed], for steps that a canary moves by ``shift``."""
    y = np.linspace(-_REACH, shift + _REACH, _NODES)
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


_LOG_TILTS = (-12.0, 4.0)


def _mean(scores: Scores) -> float:
    if len(scores) < 1 or not np.isfinite(scores).all():
        raise ConfigError("scores must be finite numbers, at least one on each side")
    return float(np.mean(scores))

"""Lower bounds from one run: many canaries, each in or out by a fair coin, and how many are guessed right.

``docs/audit.md`` has both theorems. The guesses are made from the output alone, and their number is fixed
beforehand; the canaries left out are those about which the output says least.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy.special import expit, ndtr, ndtri
from scipy.stats import binom

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.audit.bounds import CONFIDENCE, LowerBound, _check_confidence
from graphveil.privacy.gaussian import epsilon_of

_MAX_EPSILON, _MAX_MU = 60.0, 60.0
_BISECTIONS = 60


@checked
def one_run(
    canaries: int, guesses: int, correct: int, *, delta: float = 0.0, confidence: float = CONFIDENCE
) -> LowerBound:
    """Return the lower bound on epsilon of Steinke, Nasr and Jagielski (2023, arXiv 2305.08846).

    Args:
        canaries: m, each included by a fair coin of its own.
        guesses: r of them were guessed, in or out.
        correct: v guesses were right.
        delta: at which delta.
        confidence: of the bound.

    Raises:
        ConfigError: counts that cannot be.

    >>> print(one_run(1000, 100, 100))
    epsilon >= 3.055 at delta = 0 with confidence 99 % (one run; maximum certifiable 3.055)
    """
    _check_guesses(canaries, guesses, correct)
    checks.within(0, 1, delta=delta)
    _check_confidence(confidence)

    def certified(right: int) -> float:
        return _largest_rejected(
            lambda epsilon: p_value(canaries, guesses, right, epsilon, delta), 1 - confidence, _MAX_EPSILON
        )

    return LowerBound(
        epsilon=certified(correct),
        delta=delta,
        confidence=confidence,
        max_certifiable=certified(guesses),
        method="one run",
    )


def p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Return the largest probability of so many right guesses under (epsilon, delta)-indistinguishability.

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
    """Return the lower bound on mu, and epsilon at delta, of the f-DP one-run bound for Gaussian claims.

    The bound of Mahloujifar, Melis and Chaudhuri (2024, arXiv 2410.22235), with f that of mu: it rejects that
    every canary is mu-indistinguishable given all others. The proof in ``docs/audit.md`` is ours.

    Raises:
        ConfigError: counts that cannot be.

    >>> found = one_run_gaussian(1000, 1000, 700, delta=1e-5)
    >>> found.mu < 2 * float(ndtri(0.7))  # mu of guesses that are right so often
    True
    """
    _check_guesses(canaries, guesses, correct)
    checks.positive(delta=delta)
    _check_confidence(confidence)

    def certified(right: int) -> float:
        return _largest_rejected(
            lambda mu: 0.0 if gaussian_claim_fails(canaries, guesses, right, mu, 1 - confidence) else 1.0,
            1 - confidence,
            _MAX_MU,
        )

    mu = certified(correct)
    return LowerBound(
        epsilon=epsilon_of(mu, delta),
        delta=delta,
        confidence=confidence,
        max_certifiable=epsilon_of(certified(guesses), delta),
        method="one run, Gaussian",
        mu=mu,
    )


def gaussian_claim_fails(canaries: int, guesses: int, correct: int, mu: float, significance: float) -> bool:
    """Whether so many right guesses have a probability below the significance under the claim mu.

    Were P[V >= v] = tau, the tails P[V >= j] would have to grow downwards from j = v as the recursion says,
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


def _largest_rejected(p_of: Callable[[float], float], significance: float, most: float) -> float:
    """Return the largest parameter whose p-value, which grows with it, is at most the significance."""
    if p_of(0.0) > significance:
        return 0.0
    low, high = 0.0, most
    if p_of(high) <= significance:
        return high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if p_of(middle) <= significance else (low, middle)
        if math.isclose(low, high, rel_tol=1e-9):
            break
    return low


def _check_guesses(canaries: int, guesses: int, correct: int) -> None:
    checks.integer_at_least(1, canaries=canaries, guesses=guesses)
    checks.integer_at_least(0, correct=correct)
    checks.within(1, canaries, guesses=guesses)
    checks.within(0, guesses, correct=correct)

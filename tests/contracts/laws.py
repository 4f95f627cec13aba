"""What noise must look like, as checks that take samples: the shipped noise passes, a wrong one does not.

Each check raises an AssertionError with probability below ``FALSE_ALARM`` on noise of the right law, over
the randomness of the key; the keys of the tests are fixed, so they pass always or never.
"""

import math

import numpy as np
import numpy.typing as npt
from scipy import stats
from scipy.special import ndtr

FALSE_ALARM = 1e-6

Samples = npt.NDArray[np.floating] | npt.NDArray[np.signedinteger]


def has_the_law(samples: Samples, sigma: float) -> None:
    """Integer samples of N(0, sigma^2), sigma at least 20: distribution function, variance and tails."""
    flat = np.asarray(samples, dtype=np.float64).reshape(-1)
    spread = flat + np.random.default_rng(0).random(flat.size) - 0.5  # a uniform in each integer's cell
    p = _kolmogorov_smirnov(spread / math.hypot(sigma, math.sqrt(1 / 12)))
    assert p > FALSE_ALARM / 4, f"distribution is not N(0, {sigma}^2): p = {p:.2g}"
    has_the_variance(flat, sigma)
    has_the_tails(flat, sigma)


def has_the_variance(samples: Samples, sigma: float) -> None:
    """The sum of squares over sigma^2 is chi-square."""
    p = _two_sided(np.square(samples / sigma).sum(), samples.size)
    assert p > FALSE_ALARM / 2, f"variance is off {sigma}^2: p = {p:.2g}"


def has_the_tails(samples: Samples, sigma: float) -> None:
    """As many samples as there should be lie beyond 3 sigma, and beyond so much that 60 are expected."""
    far = min(4.0, float(stats.norm.isf(30 / samples.size)))
    for reach in (3.0, far):
        expected = 2 * stats.norm.sf(reach) * samples.size
        beyond = int((np.abs(samples) > reach * sigma).sum())
        p = 2 * min(stats.poisson.cdf(beyond, expected), stats.poisson.sf(beyond - 1, expected))
        assert p > FALSE_ALARM / 8, f"{beyond} samples beyond {reach:.2g} sigma, not {expected:.0f}"


def covers_everything(samples: Samples, sigma: float) -> None:
    """No row and no column goes without noise, or with less: each has the variance on its own."""
    for axis in (0, 1):
        squares = np.square(samples / sigma).sum(axis=axis)
        level = FALSE_ALARM / (2 * squares.size)
        p = _two_sided(squares, samples.shape[axis])
        assert p.min() > level, f"the variance along axis {axis} is off in {int((p <= level).sum())} places"


def are_unrelated(first: Samples, second: Samples) -> None:
    """Two sets of independent noise: their correlation is that of chance."""
    x, y = (np.asarray(part, dtype=np.float64).reshape(-1) for part in (first, second))
    r = float(x @ y / math.sqrt((x @ x) * (y @ y)))
    bound = stats.norm.isf(FALSE_ALARM / 2) / math.sqrt(x.size)
    assert abs(r) < bound, f"correlation {r:.4f} exceeds {bound:.4f}"


def rows_are_unrelated(samples: Samples) -> None:
    """Neighboring rows, columns and rows half a matrix apart share nothing."""
    half = len(samples) // 2
    for first, second in (
        (samples[:-1], samples[1:]),
        (samples[:half], samples[half : 2 * half]),
        (samples[:, :-1], samples[:, 1:]),
    ):
        are_unrelated(first, second)


def _kolmogorov_smirnov(samples: npt.NDArray[np.float64]) -> float:
    """Return the p-value of the largest distance from the normal distribution function (n is large)."""
    expected, n = ndtr(np.sort(samples)), samples.size
    above, below = np.arange(1, n + 1) / n - expected, expected - np.arange(n) / n
    return float(stats.kstwobign.sf(math.sqrt(n) * max(above.max(), below.max())))


def _two_sided(squares: npt.NDArray[np.floating], degrees: int) -> npt.NDArray[np.floating]:
    return 2 * np.minimum(stats.chi2.sf(squares, degrees), stats.chi2.cdf(squares, degrees))

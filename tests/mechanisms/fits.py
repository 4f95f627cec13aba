"""Do samples follow a law? Chi-square, with seeds fixed by the caller, and strong enough to see 3 percent."""

import numpy as np
from scipy import stats

from graphveil.mechanisms import LocalNoise

FALSE_ALARM = 1e-4
WRONG = 1.03


def stream(seed: int = 1):
    return LocalNoise(unsafe_noise_seed=seed).stream("test")


def p_value(counts: np.ndarray, probabilities: np.ndarray) -> float:
    """The chi-square test; what has probability zero must not occur."""
    possible = probabilities > 0
    if counts[~possible].any():
        return 0.0
    expected = probabilities[possible] / probabilities[possible].sum() * counts.sum()
    return float(stats.chisquare(counts[possible], expected).pvalue)


def fits(counts: np.ndarray, probabilities: np.ndarray, seen: float = 0.15) -> None:
    """The counts follow the probabilities, and not if one of at least ``seen`` were 3 percent larger."""
    p = p_value(counts, probabilities)
    assert p > FALSE_ALARM, f"the samples do not follow the law: p = {p:.2g}"
    for cell in np.flatnonzero(probabilities >= seen):
        wrong = probabilities.copy()
        wrong[cell] *= WRONG
        assert p_value(counts, wrong) < FALSE_ALARM, f"{counts.sum()} samples are too few to see cell {cell}"

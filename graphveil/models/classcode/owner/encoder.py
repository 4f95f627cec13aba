"""How far the encoder of recipes S and R descends."""

import math

from graphveil.train.descent import Descent

_RATE, _RATE_RANGE, _USUAL, _POWER = 5.0, (2.0, 60.0), 900.0, 1.3


def encoder_descent(steps: int, noise_multiplier: float, records: int) -> Descent:
    """Return the encoder's schedule: the step size follows from how loud the noise is, a public figure.

    rate = clip(5 (m / 900)^1.3, 2, 60) with m = n sqrt(T) / z, the descent's mu times the records.

    >>> round(encoder_descent(60, 91.3814, 11925).rate, 4)
    5.8148
    """
    loudness = records * math.sqrt(steps) / noise_multiplier
    rate = _RATE * (loudness / _USUAL) ** _POWER
    low, high = _RATE_RANGE
    return Descent(steps=steps, rate=min(max(rate, low), high), records=records)

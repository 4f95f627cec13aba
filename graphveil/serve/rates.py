"""How often a key may ask."""

import time

from graphveil.serve.shared import Shared


class Rates:
    """A bound on questions per second and key, which all workers keep together.

    The generic cell rate algorithm: one instant per key, the time at which its next question would be due if
    they came evenly. A question moves it on by 1 / rate, and is refused while it lies further ahead than a
    burst of questions does. No history is kept.

    Args:
        per_second: questions, in the long run.
        burst: how many may come at once.
        shared: the instants; place 0 is for everybody where there are no keys.

    >>> rates = Rates(2.0, 2, Shared.alone(0, 1))
    >>> [rates.wait(0, now=now) for now in (10.0, 10.0, 10.0, 10.5)]
    [0.0, 0.0, 0.5, 0.0]
    """

    def __init__(self, per_second: float, burst: int, shared: Shared) -> None:
        """Begin with what the instants say."""
        self._step, self._ahead, self._shared = 1 / per_second, (burst - 1) / per_second, shared

    def wait(self, place: int, now: float | None = None) -> float:
        """Return 0 and count a question, or the seconds until one may be asked."""
        now = time.monotonic() if now is None else now  # one clock for all processes of a machine
        with self._shared.locked():
            due = max(now, float(self._shared.instants[place]))
            early = due - now - self._ahead
            if early <= 1e-9:
                self._shared.instants[place] = due + self._step
        return max(0.0, early) if early > 1e-9 else 0.0

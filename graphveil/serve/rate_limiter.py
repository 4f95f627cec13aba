"""Rate limits of keys."""

import time

from graphveil.serve.shared_counters import SharedCounters


class RateLimiter:
    """A limit of requests per second and key, shared by all workers.

    The generic cell rate algorithm: one instant per key, the time at which its next request would be due if
    they arrived evenly. A request moves it by 1 / rate, and is rejected while it is further ahead than a
    burst of requests. No history is stored.

    Args:
        per_second: requests per second, on average.
        burst: how many may arrive at once.
        shared: the instants; a server without keys uses place 0.

    >>> rates = RateLimiter(2.0, 2, SharedCounters.in_memory(0, 1))
    >>> [rates.wait(0, now=now) for now in (10.0, 10.0, 10.0, 10.5)]
    [0.0, 0.0, 0.5, 0.0]
    """

    def __init__(self, per_second: float, burst: int, shared: SharedCounters) -> None:
        """Begin with the shared instants."""
        self._step, self._ahead, self._shared = 1 / per_second, (burst - 1) / per_second, shared

    def wait(self, place: int, now: float | None = None) -> float:
        """Return 0 and count a request, or the seconds until the next one is allowed."""
        now = time.monotonic() if now is None else now  # one clock for all processes of a machine
        with self._shared.locked():
            due = max(now, float(self._shared.instants[place]))
            early = due - now - self._ahead
            if early <= 1e-9:
                self._shared.instants[place] = due + self._step
        return max(0.0, early) if early > 1e-9 else 0.0

"""Rate limits of keys, shared by all workers."""

import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
from filelock import FileLock

_POLL_SECONDS = 0.001  # the lock is held for microseconds


class RateLimiter:
    """A limit of requests per second and key.

    The generic cell rate algorithm: one instant per key, the time at which its next request would be due if
    they arrived evenly. A request moves it by 1 / rate, and is rejected while it is further ahead than a
    burst of requests. No history is stored.

    Args:
        per_second: requests per second, on average.
        burst: how many may arrive at once.
        keys: number of keys; a server without keys uses place 0.
        file: where several workers share the instants; None in one process.

    >>> rates = RateLimiter(2.0, 2, keys=1)
    >>> [rates.wait(0, now=now) for now in (10.0, 10.0, 10.0, 10.5)]
    [0.0, 0.0, 0.5, 0.0]
    """

    def __init__(self, per_second: float, burst: int, *, keys: int, file: Path | None = None) -> None:
        """Start with the shared instants; a new file is filled with zeros."""
        self._step, self._ahead = 1 / per_second, (burst - 1) / per_second
        self._lock = None if file is None else FileLock(file.with_suffix(".lock"), mode=0o600)
        if file is None:
            self._due = np.zeros(keys)
        else:
            with file.open("ab") as opened:
                opened.truncate(8 * keys)
            self._due = np.memmap(file, dtype=np.float64, mode="r+", shape=(keys,)).view(np.ndarray)

    def wait(self, place: int, now: float | None = None) -> float:
        """Return 0 and count a request, or the seconds until the next one is allowed."""
        now = time.monotonic() if now is None else now  # one clock for all processes of a machine
        with nullcontext() if self._lock is None else self._lock.acquire(poll_interval=_POLL_SECONDS):
            due = max(now, float(self._due[place]))
            early = due - now - self._ahead
            if early <= 1e-9:
                self._due[place] = due + self._step
                return 0.0
        return early

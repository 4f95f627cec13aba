"""Shared memory of workers: counters, and when each key may send its next request."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Cells = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SharedCounters:
    """Numbers of all workers of a server, in the memory of one process or in a file that they all map.

    A row of counts has one writer, so it needs no lock; the replacement of a killed worker continues its row.
    Instants have many writers.

    Args:
        counts: (workers, cells).
        instants: (keys), on the clock of the machine.
        handle: the open file, for its lock; None in one process.
    """

    counts: Cells
    instants: Cells
    handle: int | None = None

    @classmethod
    def in_memory(cls, cells: int, keys: int) -> "SharedCounters":
        """Return what one process needs.

        >>> SharedCounters.in_memory(3, 2).counts.shape
        (1, 3)
        """
        return cls(np.zeros((1, cells)), np.zeros(keys))

    @classmethod
    def in_file(cls, path: Path, workers: int, cells: int, keys: int) -> "SharedCounters":
        """Map a file, which is filled with zeros where it is new."""
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        size = workers * cells + keys
        os.ftruncate(handle, size * 8)
        whole = np.memmap(path, dtype=np.float64, mode="r+", shape=(size,)).view(np.ndarray)
        return cls(whole[: workers * cells].reshape(workers, cells), whole[workers * cells :], handle)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other workers from the instants."""
        if self.handle is None:
            yield
            return
        fcntl.flock(self.handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self.handle, fcntl.LOCK_UN)

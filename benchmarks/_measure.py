"""Measuring on a machine that is never quiet: processor time, in turns, the fastest of a few rounds."""

import resource
import statistics
import time
from collections.abc import Callable, Mapping

import numpy as np


def fastest(runs: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return each run's least processor seconds over some rounds.

    The runs take turns, so that what disturbs one disturbs all; processor time leaves out the wait for a
    core, and the least of several rounds most of what other processes did to the caches.
    """
    return {name: min(seconds) for name, seconds in in_turns(runs, rounds).items()}


def medians(
    runs: Mapping[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.process_time
) -> dict[str, float]:
    """Return the median of each run's seconds by a clock, the runs taking turns."""
    return {name: statistics.median(seconds) for name, seconds in in_turns(runs, rounds, clock).items()}


def in_turns(
    runs: Mapping[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.process_time
) -> dict[str, list[float]]:
    """Return each run's seconds in each round."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = clock()
            run()
            taken[name].append(clock() - start)
    return taken


def memcpy(megabytes: int = 128) -> tuple[Callable[[], object], int]:
    """Return a copy in memory to run, and the bytes it reads and writes."""
    source = np.ones(megabytes << 20, dtype=np.uint8)
    target = np.zeros_like(source)
    return lambda: np.copyto(target, source), 2 * source.nbytes


def peak_rss_mb() -> float:
    """Return the most memory this process has held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3

"""Clocks and memory counters for machines that other processes use: CPU time, alternating, several rounds."""

import resource
import statistics
import time
from collections.abc import Callable, Mapping

import numpy as np


def fastest(runs: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the minimum CPU seconds of each run over some rounds.

    The runs alternate, so that other load affects all of them. CPU time excludes the wait for a core, and the
    minimum of several rounds excludes most of the effect of other processes on the caches.
    """
    return {name: min(seconds) for name, seconds in alternate(runs, rounds).items()}


def medians(
    runs: Mapping[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.process_time
) -> dict[str, float]:
    """Return the median seconds of each run by a clock. The runs alternate."""
    return {name: statistics.median(seconds) for name, seconds in alternate(runs, rounds, clock).items()}


def alternate(
    runs: Mapping[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.process_time
) -> dict[str, list[float]]:
    """Return the seconds of each run in each round."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = clock()
            run()
            taken[name].append(clock() - start)
    return taken


def memcpy(megabytes: int = 128) -> tuple[Callable[[], object], int]:
    """Return a function that copies memory, and the bytes that it reads and writes."""
    source = np.ones(megabytes << 20, dtype=np.uint8)
    target = np.zeros_like(source)
    return lambda: np.copyto(target, source), 2 * source.nbytes


def peak_rss_mb() -> float:
    """Return the peak resident memory of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3

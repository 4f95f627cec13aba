"""Measure the time and the memory to build in-edges from a list of edges.

    python benchmarks/build.py

Each row is measured in a separate process. ``x memcpy`` is the ratio to the time of one copy of the input in
the same process.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

SIZES = {"facebook": (26_406, 1_058_962), "reddit": (116_713, 23_116_690)}  # nodes, undirected edges
REPEATS = 5


def best_time(action: Callable[[], object]) -> float:
    """Return the minimum seconds of several runs."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def peak_mb() -> float:
    """Return the peak resident memory of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(size: str, directed: bool) -> str:
    """Return one row of the table, for random ids, which have the least locality."""
    from graphveil.core.edges.adjacency import Adjacency

    nodes, edges = SIZES[size]
    listed = 2 * edges if directed else edges  # the same number of stored edges either way
    rng = np.random.default_rng(0)
    source, target = (rng.integers(nodes, size=listed, dtype=np.int32) for _ in range(2))
    copy = np.empty((2, listed), dtype=np.int32)
    memcpy = best_time(lambda: (np.copyto(copy[0], source), np.copyto(copy[1], target)))
    before = peak_mb()
    seconds = best_time(lambda: Adjacency.from_edges(source, target, num_nodes=nodes, directed=directed))
    kind = "directed" if directed else "undirected"
    per_edge = 1e9 * seconds / (2 * edges)
    return (
        f"{size:10s} {kind:11s} {2 * edges:12,d} {seconds:8.3f} {per_edge:9.1f} "
        f"{seconds / memcpy:9.0f} {peak_mb() - before:10.0f} {peak_mb():9.0f}"
    )


def main() -> None:
    """Print the table, or one row of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--row", nargs=2, metavar=("SIZE", "KIND"), help="measure one row in this process")
    row = parser.parse_args().row
    if row:
        print(measure(row[0], directed=row[1] == "directed"))
        return
    print(f"{'size':10s} {'kind':11s} {'stored':>12s} {'seconds':>8s} {'ns/edge':>9s} "
          f"{'x memcpy':>9s} {'added MB':>10s} {'peak MB':>9s}", flush=True)  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    for size in SIZES:
        for kind in ("directed", "undirected"):
            subprocess.run([sys.executable, __file__, "--row", size, kind], check=True, env=environment)


if __name__ == "__main__":
    main()

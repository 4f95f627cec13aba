"""Measure the parallel efficiency of a private hop on Ray (extra ``ray``).

    python benchmarks/ray_hop.py [--size 117k] [--dataset synthetic/reddit] [--rounds 40] [--turns 1]
                                 [--threads N]

The wall time of a private hop with 16 columns and exact noise: in this process with one and two threads, and
on a local cluster with one and two workers of one thread each. ``--threads`` is the number of threads of this
process while it prepares work for the workers. The configurations alternate; the minimum and the median are
printed. The first hop of a worker, which receives or reads the edges, is printed separately. Other processes
affect the wall time. Therefore the CPU time of this process and of the busier worker is printed too: a lower
bound on the wall time of an idle machine. Efficiency is the speedup of two workers over one, divided by two.
"""

import argparse
import os
import statistics
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import torch
from hop import DIM, SIZES, random_graph

from graphveil.cluster.backend import RayBackend
from graphveil.core.backends import AggregationBackend, InMemoryBackend
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.features import safe_unit, shrink_unit
from graphveil.core.ledger import MemoryLedger
from graphveil.core.noise.discrete_gaussian import DiscreteGaussian
from graphveil.core.plan import ReleasePlan, hops
from graphveil.core.queries.neighbor_sums import NeighborSumData
from graphveil.core.release import Release
from graphveil.core.unit import UndirectedEdge
from graphveil.data import load_dataset, open_graph

_TICK = os.sysconf("SC_CLK_TCK")
IN_PROCESS = {"1 thread": 1, "2 threads": 2}
WORKERS = {"1 worker": 1, "2 workers": 2}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="117k", help="size of the random graph")
    parser.add_argument("--dataset", help="named dataset instead of a random graph")
    parser.add_argument("--graph", type=Path, help="folder of `graphveil prepare` instead")
    parser.add_argument("--rounds", type=int, default=40, help="consecutive hops")
    parser.add_argument("--turns", type=int, default=1, help="repetitions of all configurations")
    parser.add_argument(
        "--threads", type=int, default=torch.get_num_threads(), help="threads of this process"
    )
    options = parser.parse_args()
    configurations: dict[str, tuple[int, AggregationBackend]] = {
        **{name: (threads, InMemoryBackend()) for name, threads in IN_PROCESS.items()},
        **{name: (options.threads, RayBackend(workers=count)) for name, count in WORKERS.items()},
    }
    if options.graph is not None:
        graph = open_graph(options.graph).adjacency
    else:
        name = options.dataset
        graph = random_graph(*SIZES[options.size]) if name is None else load_dataset(name).adjacency
    edges = len(graph.indices)
    print(
        f"{graph.num_nodes} nodes, {edges} stored edges, d = {DIM}, {options.threads} threads here, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    first: dict[str, list[float]] = {name: [] for name in configurations}
    clock: dict[str, list[float]] = {name: [] for name in configurations}
    busy: dict[str, list[tuple[float, float]]] = {name: [] for name in configurations}
    for _ in range(options.turns):
        for name, (threads, backend) in configurations.items():
            torch.set_num_threads(threads)
            backend.check(graph)
            seconds, spent = measured(graph, backend, options.rounds + 1)
            first[name].append(seconds[0])
            clock[name] += seconds[1:]
            busy[name].append(spent)
    print(f"{'':>15} {'first':>8} {'minimum':>8} {'median':>8} {'ns/edge':>8} {'CPU main':>9} {'worker':>10}")
    for name, seconds in clock.items():
        here, worker = (min(part) for part in zip(*busy[name], strict=True))
        print(
            f"{name:>15} {min(first[name]):8.3f} {min(seconds):8.4f} {statistics.median(seconds):8.4f} "
            f"{min(seconds) / edges * 1e9:8.2f} {here:9.4f} {worker:10.4f}"
        )
    for other in ("1 worker", "2 threads"):
        fastest, typical = (
            kind(clock[other]) / kind(clock["2 workers"]) for kind in (min, statistics.median)
        )
        share = 2 if other == "1 worker" else 1
        print(
            f"2 workers are {fastest:.2f} times as fast as {other} (median {typical:.2f}): "
            f"efficiency {fastest / share:.0%} ({typical / share:.0%})"
        )
    one, two = (min(map(sum, busy[name])) for name in ("1 worker", "2 workers"))
    print(f"by CPU time of the longest path: {one / two / 2:.0%}; load {os.getloadavg()[0]:.1f}")


def measured(
    graph: Adjacency, backend: AggregationBackend, rounds: int
) -> tuple[list[float], tuple[float, float]]:
    """Return the seconds of hops, and the CPU time per hop of this process and of the busiest worker."""
    seconds, after = [], (0.0, {0: 0.0})
    for place, _ in enumerate(chain(graph, backend, rounds)):
        seconds.append(time.perf_counter())
        if place == 1:
            after = time.process_time(), workers()
    here, there = time.process_time() - after[0], workers()
    most = max((there[pid] - after[1].get(pid, 0.0) for pid in there), default=0.0)
    taken = [late - early for early, late in pairwise(seconds)]
    return taken, (here / (rounds - 1), most / (rounds - 1))


def chain(graph: Adjacency, backend: AggregationBackend, rounds: int) -> Iterator[None]:
    """Open a release, then run hops, each from the rows of the previous one."""
    query = hops(1.0, 1, DIM)[0]
    plan = ReleasePlan(UndirectedEdge(), (query,) * rounds, delta=1e-3, sampler=DiscreteGaussian)
    release = Release.open(plan, graph, budget=MemoryLedger(), backend=backend)
    rows = safe_unit(torch.rand(graph.num_nodes, DIM))
    yield
    for _ in range(rounds):
        rows = shrink_unit(release.answer(NeighborSumData(rows)), query.sigma[0])
        yield


def workers() -> dict[int, float]:
    """Return the CPU seconds of each worker on this machine."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"ray::" in (folder / "cmdline").read_bytes():
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                found[int(folder.name)] = (int(fields[11]) + int(fields[12])) / _TICK
        except OSError:
            continue  # the process ended
    return found


if __name__ == "__main__":
    main()

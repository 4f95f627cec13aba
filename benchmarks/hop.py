"""Measure the time of one hop in memory, exact and private, in torch and in C.

    python benchmarks/hop.py [--large] [--rounds 7] [--sizes 26k 117k] [--out-edges]

A hop is one aggregation step. It has 16 columns, and ids are random, which gives the least locality. A hop
reads and writes E (4 + 4 d) + 4 N d bytes; its speed is printed as a multiple of the speed of a memory copy
in the same process. A private hop truncates rows, sums them, adds noise, and normalizes for the next hop. An
out-edge aggregation also applies a budget per source. All runs alternate; a number is the median CPU time of
its rounds on one thread. The last lines compare ratios with their goals, and the speedup of a second thread
in wall time with that of two independent sums, because other processes may use the second core.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import torch
from _measure import medians, memcpy, peak_rss_mb

from graphveil.core.accounting.gaussian import calibrate_mu
from graphveil.core.edges.adjacency import Adjacency, EdgeSet
from graphveil.core.edges.blocks import blocks
from graphveil.core.exact_sums import neighbor_sums
from graphveil.core.features import safe_unit, shrink_unit
from graphveil.core.ledger import MemoryLedger
from graphveil.core.noise import _kernels
from graphveil.core.noise.discrete_gaussian import DiscreteGaussian, IntegerNoise, RoundedGaussian
from graphveil.core.noise.random import RowStream
from graphveil.core.plan import ReleasePlan, hops
from graphveil.core.private_edges import CompactRows
from graphveil.core.queries.neighbor_sums import NeighborSumData
from graphveil.core.queries.out_edge_sums import LEVEL, OutEdgeSumData, OutEdgeSumQuery
from graphveil.core.release import Release
from graphveil.core.unit import NodeRecord, UndirectedEdge

DIM = 16
SIZES = {"26k": (26_000, 2_100_000), "117k": (117_000, 46_000_000), "1.8M": (1_800_000, 81_000_000)}
MU = calibrate_mu(1.0, 1e-7)
GOALS = {  # speed of the sum in C / memcpy (at least), private hop / sum in C (at most)
    "26k": (2.5, 2.1),
    "117k": (1.7, 1.3),
    "1.8M": (0.45, 1.4),
}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true", help="include 1.8M nodes and 81M edges (2 GB)")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=None, help="graph sizes to measure")
    parser.add_argument("--rounds", type=int, default=7, help="number of rounds")
    parser.add_argument("--out-edges", action="store_true", help="include out-edge aggregation")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"d = {DIM}, one thread, CPU time, medians of {options.rounds} alternating rounds")
    noise(options.rounds)
    print(
        f"{'size':>5} {'hop':>26} {'seconds':>8} {'ns/edge':>8} {'x memcpy':>9} {'x torch sum':>12} "
        f"{'RSS MB':>7}"
    )
    for name in options.sizes or list(SIZES)[: 3 if options.large else 2]:
        hop(name, random_graph(*SIZES[name]), options.rounds, options.out_edges)


@contextmanager
def without_kernels() -> Iterator[None]:
    """Run as if the C extension had not been built."""
    native, _kernels._native = _kernels._native, None
    try:
        yield
    finally:
        _kernels._native = native


def disable_kernels(run: Callable[[], object]) -> Callable[[], object]:
    """Return a run that does not use the C extension."""

    def run_without_kernels() -> object:
        with without_kernels():
            return run()

    return run_without_kernels


def noise(rounds: int) -> None:
    """Print the nanoseconds per noise sample."""
    rows, stream = np.arange(1 << 16), RowStream(bytes(32))
    exact, rounded = (sampler(6776.3) for sampler in (DiscreteGaussian, RoundedGaussian))
    runs: dict[str, Callable[[], object]] = {
        "exact, C": lambda: exact.draw(stream, rows, DIM),
        "exact, NumPy": disable_kernels(lambda: exact.draw(stream, rows, DIM)),
        "rounded": lambda: rounded.draw(stream, rows, DIM),
    }
    if not _kernels.available():
        del runs["exact, C"]
    taken = medians(runs, 3 * rounds)
    for name, seconds in taken.items():
        print(
            f"noise {name:>16}: {seconds / (len(rows) * DIM) * 1e9:.2f} ns per sample, "
            f"{seconds / taken['exact, NumPy']:.2f} x NumPy"
        )


def hop(name: str, graph: Adjacency, rounds: int, with_out_edges: bool) -> None:
    """Print the rows of one graph size."""
    edges, x = len(graph.indices), torch.rand(graph.num_nodes, DIM)
    copy, copied = memcpy()
    runs: dict[str, Callable[[], object]] = {"memcpy": copy, "torch sum": lambda: neighbor_sums(graph, x)}
    runs["private, torch"] = disable_kernels(private(graph, DiscreteGaussian, rounds + 1).__next__)
    if _kernels.available():
        runs["sum in C"] = sum_in_c(graph, x)
        runs["private, C"] = private(graph, DiscreteGaussian, rounds + 1).__next__
    if with_out_edges:
        runs["out-edges"] = sum_out_edges(graph, (LEVEL,), rounds + 1).__next__
        runs["out-edges, four levels"] = sum_out_edges(graph, (4, 8, LEVEL, 32), rounds + 1).__next__
    for run in runs.values():
        run()  # warm-up: allocates memory
    taken = medians(runs, rounds)
    rate = copied / taken.pop("memcpy")
    moved = edges * (4 + 4 * DIM) + 4 * graph.num_nodes * DIM
    for line, seconds in taken.items():
        print(
            f"{name:>5} {line:>26} {seconds:8.4f} {seconds / edges * 1e9:8.2f} {moved / seconds / rate:9.2f} "
            f"{seconds / taken['torch sum']:12.2f} {peak_rss_mb():7.0f}"
        )
    if _kernels.available():
        ratios(name, graph, taken, moved / rate)


def ratios(name: str, graph: Adjacency, taken: dict[str, float], copy: float) -> None:
    """Print the ratios and their goals."""
    summed, whole, (at_least, at_most) = taken["sum in C"], taken["private, C"], GOALS[name]
    threads, two_cores = two_threads(graph), capacity(graph)
    print(f"{name:>5} speed of the sum in C {copy / summed:.2f} x memcpy (at least {at_least})")
    print(f"{name:>5} private hop {whole / summed:.2f} x sum in C (at most {at_most})")
    print(f"{name:>5} private hop {whole / taken['torch sum']:.2f} x torch sum (at most 1.0)")
    print(f"{name:>5} private hop, two threads {threads:.2f} x as fast as one, wall time (at least 1.8)")
    print(f"{name:>5} two independent sums {two_cores:.2f} x as fast in parallel: the limit of this machine")


def sum_in_c(graph: Adjacency, x: torch.Tensor) -> Callable[[], object]:
    """Return a function that computes the sum in C over existing rows of 16-bit integers."""
    rows = CompactRows.empty(graph.num_nodes, DIM, 10)
    bounds = torch.tensor([[1024.0]], dtype=torch.float64)
    _kernels.truncate_rows(x / x.norm(dim=1, keepdim=True), bounds, None, rows.rows[:-1])
    (block,), out = blocks(graph, graph.num_nodes), torch.zeros(graph.num_nodes, DIM)
    noise = torch.zeros(graph.num_nodes, DIM, dtype=torch.int32)
    return lambda: _kernels.add_noisy_sums(
        block.offsets, block.sources, None, rows.rows, rows.bits, noise, out, 2.0**-10
    )


def capacity(graph: Adjacency, turns: int = 3) -> float:
    """Return the speedup in wall time of two sums in C in parallel over two in sequence."""
    sums = [sum_in_c(graph, torch.rand(graph.num_nodes, DIM)) for _ in range(2)]
    repeats = max(1, 20_000_000 // len(graph.indices))

    def many(run: Callable[[], object]) -> None:
        for _ in range(repeats):
            run()

    runs = {
        "in sequence": lambda: [many(each) for each in sums],
        "in parallel": lambda: list(pool.map(many, sums)),
    }
    with ThreadPoolExecutor(2) as pool:
        taken = medians(runs, turns + 1, time.perf_counter)
    return taken["in sequence"] / taken["in parallel"]


def two_threads(graph: Adjacency, turns: int = 3, rounds: int = 6) -> float:
    """Return the speedup in wall time of a private hop with two threads over one.

    Each number of threads runs several consecutive hops, as a fit does; the first one is not counted.
    """
    taken: dict[int, list[float]] = {1: [], 2: []}
    hops_to_run = private(graph, DiscreteGaussian, 2 * turns * rounds)
    for _ in range(turns):
        for threads, seconds in taken.items():
            torch.set_num_threads(threads)
            for number in range(rounds):
                start = time.perf_counter()
                next(hops_to_run)
                seconds += [time.perf_counter() - start] if number else []
    torch.set_num_threads(1)
    return statistics.median(taken[1]) / statistics.median(taken[2])


def private(graph: Adjacency, sampler: type[IntegerNoise], rounds: int) -> Iterator[torch.Tensor]:
    """Yield consecutive private hops, each from rows of norm at most one to the rows of the next hop."""
    queries = hops(MU, 1, DIM) * rounds  # their total privacy cost does not matter here
    release = Release.open(
        ReleasePlan(UndirectedEdge(), queries, delta=1e-3, sampler=sampler), graph, budget=MemoryLedger()
    )
    rows = safe_unit(torch.rand(graph.num_nodes, DIM))
    for query in queries:
        rows = shrink_unit(release.answer(NeighborSumData(rows)), query.sigma[0])
        yield rows


def sum_out_edges(graph: Adjacency, levels: tuple[int, ...], rounds: int) -> Iterator[torch.Tensor]:
    """Yield consecutive out-edge aggregations with one budget per source; rows have random levels."""
    queries = (OutEdgeSumQuery(dim=DIM, sigma=1 / MU, levels=levels),) * rounds
    release = Release.open(ReleasePlan(NodeRecord(), queries, delta=1e-3), graph, budget=MemoryLedger())
    rows, chosen = safe_unit(torch.rand(graph.num_nodes, DIM)), torch.randint(len(levels), (graph.num_nodes,))
    for query in queries:
        rows = shrink_unit(release.answer(OutEdgeSumData(rows, chosen)), query.sigma)
        yield rows


def random_graph(nodes: int, edges: int) -> Adjacency:
    """Return a graph whose edges have random endpoints."""
    rng = np.random.default_rng(0)
    indptr = np.zeros(nodes + 1, dtype=np.int64)
    np.cumsum(rng.poisson(edges / nodes, nodes), out=indptr[1:])
    indices = rng.integers(nodes, size=indptr[-1], dtype=np.int32)
    # Not sorted: sorting in a constructor takes longer than the hops that are measured.
    return Adjacency._in_order(torch.from_numpy(indptr), torch.from_numpy(indices), True, EdgeSet())


if __name__ == "__main__":
    main()

"""How fast is one hop in memory, un-noised and private?

    python benchmarks/hop.py [--large] [--rounds 7]

One thread, 16 columns, random ids (the worst case for locality). A hop moves E (4 + 4 d) + 4 N d bytes; its
speed is given as a multiple of a copy of memory in the same process. A private hop truncates, sums, adds
noise and normalises for the next hop; a push also reads every source's own list. The last columns set each
against the plain sum of the same round.
"""

import argparse
from collections.abc import Callable, Iterator

import numpy as np
import torch
from _measure import fastest, memcpy, peak_rss_mb

from graphveil._random import RowStream
from graphveil.graph import Adjacency, EdgeSet
from graphveil.mechanisms import DiscreteGaussian, IntegerNoise, RoundedGaussian
from graphveil.privacy import MemoryLedger, NodeOwner, UndirectedEdge, calibrate_mu
from graphveil.propagation import safe_unit, shrink_unit
from graphveil.release import NeighborSumData, PushData, PushQuery, Release, ReleasePlan, sum_in_neighbors
from graphveil.release.plan import hops
from graphveil.release.pushes import LEVEL

DIM = 16
SIZES = {"26k": (26_000, 2_100_000), "117k": (117_000, 46_000_000), "1.8M": (1_800_000, 81_000_000)}
SAMPLERS: tuple[type[IntegerNoise], ...] = (DiscreteGaussian, RoundedGaussian)
MU = calibrate_mu(1.0, 1e-7)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true", help="also 1.8M nodes and 81M edges (2 GB)")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"d = {DIM}, one thread, processor time, best of {options.rounds} rounds")
    noise(options.rounds)
    print(
        f"{'size':>5} {'hop':>26} {'seconds':>8} {'ns/edge':>8} {'x memcpy':>9} {'x plain':>8} {'RSS MB':>7}"
    )
    for name, (nodes, edges) in SIZES.items():
        if name != "1.8M" or options.large:
            hop(name, random_graph(nodes, edges), options.rounds)


def noise(rounds: int) -> None:
    """Print the nanoseconds of one noise sample."""
    rows, stream = np.arange(1 << 16), RowStream(bytes(32))
    laws = {sampler.__name__: sampler(6776.3) for sampler in SAMPLERS}
    runs = {name: lambda law=law: law.draw(stream, rows, DIM) for name, law in laws.items()}
    for name, seconds in fastest(runs, 2 * rounds).items():
        print(f"noise {name}: {seconds / (len(rows) * DIM) * 1e9:.1f} ns a sample")


def hop(name: str, graph: Adjacency, rounds: int) -> None:
    """Print the lines of one size."""
    edges, x = len(graph.indices), torch.rand(graph.num_nodes, DIM)
    copy, copied = memcpy()
    runs: dict[str, Callable[[], object]] = {"memcpy": copy, "plain sum": lambda: sum_in_neighbors(graph, x)}
    for sampler in SAMPLERS:
        runs[f"private, {sampler.__name__}"] = private(graph, sampler, rounds).__next__
    runs["push"] = pushes(graph, (LEVEL,), rounds).__next__
    runs["push, four levels"] = pushes(graph, (4, 8, LEVEL, 32), rounds).__next__
    least = fastest(runs, rounds)
    rate = copied / least.pop("memcpy")
    moved = edges * (4 + 4 * DIM) + 4 * graph.num_nodes * DIM
    for line, seconds in least.items():
        print(
            f"{name:>5} {line:>26} {seconds:8.4f} {seconds / edges * 1e9:8.2f} {moved / seconds / rate:9.2f} "
            f"{seconds / least['plain sum']:8.2f} {peak_rss_mb():7.0f}"
        )


def private(graph: Adjacency, sampler: type[IntegerNoise], rounds: int) -> Iterator[torch.Tensor]:
    """Yield private hops in a row, each from rows of norm at most one to the next hop's rows."""
    queries = hops(MU, 1, DIM) * rounds  # what they cost together is not the question here
    release = Release(
        ReleasePlan(UndirectedEdge(), queries, delta=1e-3, sampler=sampler), graph, budget=MemoryLedger()
    )
    rows = safe_unit(torch.rand(graph.num_nodes, DIM))
    for query in queries:
        rows = shrink_unit(release.ask(NeighborSumData(rows)), query.sigma[0])
        yield rows


def pushes(graph: Adjacency, levels: tuple[int, ...], rounds: int) -> Iterator[torch.Tensor]:
    """Yield pushes in a row, whose weights share one budget a source; rows have levels at random."""
    queries = (PushQuery(dim=DIM, sigma=1 / MU, levels=levels),) * rounds
    release = Release(ReleasePlan(NodeOwner(), queries, delta=1e-3), graph, budget=MemoryLedger())
    rows, chosen = safe_unit(torch.rand(graph.num_nodes, DIM)), torch.randint(len(levels), (graph.num_nodes,))
    for query in queries:
        rows = shrink_unit(release.ask(PushData(rows, chosen)), query.sigma)
        yield rows


def random_graph(nodes: int, edges: int) -> Adjacency:
    """Draw every edge's two ends at random."""
    rng = np.random.default_rng(0)
    indptr = np.zeros(nodes + 1, dtype=np.int64)
    np.cumsum(rng.poisson(edges / nodes, nodes), out=indptr[1:])
    indices = rng.integers(nodes, size=indptr[-1], dtype=np.int32)
    # Left as drawn: a constructor would sort, which takes longer than what is measured here.
    return Adjacency._in_order(torch.from_numpy(indptr), torch.from_numpy(indices), True, EdgeSet())


if __name__ == "__main__":
    main()

"""Measure the time of a private hop with aggregation weights, in multiples of a hop without weights.

    python benchmarks/weighted_hop.py [--large] [--rounds 7] [--sizes 26k] [--without-kernels]

One thread, 16 columns, keys of 16 columns, random ids, minimum CPU time of the rounds. A hop prepares the
tables of its weights, truncates rows, sums them exactly, adds noise and normalizes. It alternates with the
same hop without weights. Attention has 16 hidden units. The number after ``jaccard`` is the number of
features: of 767 each node has a third, as in amazon/computers, and of 4,714 up to 31, as in facebook_pages.
These two are measured on the smallest graph only.
"""

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from _measure import fastest
from hop import DIM, SIZES, random_graph
from scipy import sparse

from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.features import Features, safe_unit, shrink_unit
from graphveil.core.ledger import MemoryLedger
from graphveil.core.noise import _kernels
from graphveil.core.plan import ReleasePlan, hops
from graphveil.core.queries.neighbor_sums import NeighborSumData
from graphveil.core.release import Release
from graphveil.core.unit import UndirectedEdge
from graphveil.release.weights import parse_weight

FAST = (
    "one",
    "class_agree(0.2)",
    "sigmoid_cos@16",
    "sigmoid_cos@32",
    "sigmoid_cos",
    "posterior_dot",
    "attention",
    "jaccard 16",
)
SLOW = ("jaccard 767", "jaccard 4714")
CLASSES, DENSE = 8, 1000


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true", help="include 1.8M nodes and 81M edges (2 GB)")
    parser.add_argument("--rounds", type=int, default=7, help="number of rounds")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=None, help="graph sizes to measure")
    parser.add_argument("--without-kernels", action="store_true", help="do not use the C extension")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.without_kernels:
        _kernels._native = None
    print(f"d = {DIM}, one thread, CPU time, minimum of {options.rounds} rounds")
    print(f"{'size':>5} {'weights':>18} {'ns/edge':>8} {'x plain':>8}")
    for name in options.sizes or list(SIZES)[: 3 if options.large else 2]:
        weights = FAST + SLOW if name == "26k" else FAST
        measure(name, random_graph(*SIZES[name]), weights, options.rounds)


def measure(size: str, graph: Adjacency, weights: tuple[str, ...], rounds: int) -> None:
    """Print the rows of one graph size."""
    torch.manual_seed(0)
    rows = safe_unit(torch.randn(graph.num_nodes, DIM))
    runs: dict[str, Callable[[], object]] = {
        name: private(graph, name, rows, rounds).__next__ for name in weights
    }
    least = fastest(runs, rounds)
    for name in weights:
        hop = least[name]
        print(
            f"{size:>5} {name:>18} {hop / len(graph.indices) * 1e9:8.2f} {hop / least['one']:8.2f}",
            flush=True,
        )


def private(graph: Adjacency, name: str, rows: torch.Tensor, rounds: int) -> Iterator[torch.Tensor]:
    """Yield consecutive private hops, each from rows of norm at most one to the rows of the next hop."""
    keys, similarity = keys_for(name, rows), parse_weight(name.split()[0])
    queries = hops(1.0, 1, DIM, UndirectedEdge(), similarity) * rounds
    release = Release.open(ReleasePlan(UndirectedEdge(), queries, delta=1e-3), graph, budget=MemoryLedger())
    for query in queries:
        answer = (
            release.answer(NeighborSumData(rows))
            if similarity is None
            else release.answer(NeighborSumData(rows, keys))
        )
        rows = shrink_unit(answer, query.sigma[0])
        yield rows


def keys_for(name: str, rows: torch.Tensor) -> Any:
    """Return keys of the type that a weight reads."""
    if name == "attention":
        hidden = 4 * rows  # one hidden unit per column
        return hidden, hidden.roll(1, 1), torch.ones(DIM) / 4, torch.tensor(3.0)
    if name.startswith("jaccard"):
        return sets(len(rows), int(name.split()[1]))
    return rows[:, :CLASSES].softmax(dim=1) if name.startswith(("class", "posterior")) else rows


def sets(nodes: int, features: int) -> Features:
    """Return random feature sets: a third of all features if dense, else up to 31 features."""
    rng = np.random.default_rng(0)
    if features < DENSE:
        return torch.from_numpy((rng.random((nodes, features), dtype=np.float32) < 1 / 3).astype(np.float32))
    sizes = rng.integers(0, 32, nodes)
    node = np.repeat(np.arange(nodes), sizes)
    ones, members = np.ones(len(node), dtype=np.float32), rng.integers(0, features, len(node))
    return sparse.csr_array((ones, (node, members)), shape=(nodes, features))


if __name__ == "__main__":
    main()

"""Measure released graphs: accuracy of networks on them, their structure, and the time of a release.

    python benchmarks/topology.py accuracy --out runs.jsonl [--datasets facebook_pages,twitch/DE] [--runs 3]
        [--epsilons 0.1,0.5,1,2,4,8] [--fractions 0.05,0.1,0.2,1] [--mechanisms edge-rand,arr,gap]
        [--cache folder]
    python benchmarks/topology.py queries --out queries.jsonl [--datasets facebook_pages,lastfm_asia]
    python benchmarks/topology.py structure --out ppi.jsonl
    python benchmarks/topology.py heterorr --out grid.jsonl [--datasets twitch/DE] [--mechanisms multi-bit]
    python benchmarks/topology.py all --out folder [--runs 3]
    python benchmarks/topology.py speed [--large]

The output file has one JSON line per cell and run. Existing cells are not repeated, so an interrupted command
resumes. Each command prints its tables from the file; ``--table`` prints only. ``all`` runs everything, with
one file per command in a folder, in about three hours of one core.

All nodes may have private edges. Each edge is private with the probability ``fraction``. Every mechanism
protects the same node pairs and keeps public edges. A cell with an expected size above 20 million edges is
rejected, and the table shows the size.

Accuracies are on test nodes of recipe gap. The same network is trained on every released graph of a dataset
and on the exact one: two layers, 32 hidden units, ReLU, batch norm, Adam at 0.01, at most 100 epochs, the
epoch with the best validation accuracy. GCN stops after 20 epochs without improvement. SAGE, on Berkeley13,
does not, because its sums improve irregularly. The baseline, GAP and ClassCode protect all edges at the same
epsilon and delta 1e-7, and do not depend on the fraction. ``public`` omits private edges. The cache folder
stores what does not depend on epsilon: public posteriors of ClassCode, public trees of EdgeRR.
"""

import argparse
import hashlib
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import _heterorr
import numpy as np
import torch
from _measure import peak_rss_mb
from _topology_tables import Record, tables

from graphveil import METHODS, perturb
from graphveil.audit.fidelity import compare, kl_divergence
from graphveil.audit.secret_edges import SecretEdges
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.node_pairs import Domain
from graphveil.core.noise.random import RowStream
from graphveil.core.queries.dendrogram import ChainSchedule, Dendrogram, DendrogramChain
from graphveil.data import RECIPES, Graph, load_dataset
from graphveil.data.tables import write
from graphveil.errors import ConfigError
from graphveil.perturb import MECHANISMS, release_graph
from graphveil.perturb.edge_rr import EdgeRR
from graphveil.perturb.perturbed_graph import edge_table

COMMANDS = ("accuracy", "queries", "structure", "heterorr")
BERKELEY, DEEP = "facebook100/Berkeley13", ("priv-hrg", "edge-rr")
FRACTIONS = {"facebook_pages": (0.05, 0.1, 0.2, 1.0), "twitch/DE": (0.05, 0.1, 0.2, 1.0), BERKELEY: (1.0,)}
EPSILONS, QUERY_EPSILONS, DEEP_EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0), (0.1, 1.0, 10.0), (1.0, 8.0)
DELTA = 1e-7
ALL_EDGES = ("exact", "mlp", "gap", "classcode")  # do not depend on the fraction
EPSILON_FREE = ("exact", "mlp", "public")  # do not depend on epsilon
PATIENCE = {"gcn": 20, "sage": None}
REPEATS = 3  # of each time, for the median
PPI, DEFAULT_ROOT = "ppi_edges", Path(__file__).parents[2] / "shared" / "data"
HOPS, WALKS = 4, 500  # of random-walk distances, and the number of sampled rows


def main() -> None:
    """Run the missing cells, and print the tables."""
    options = _options()
    torch.set_num_threads(1)
    if options.command == "speed":
        print("\n".join(speed(large=options.large)))
        return
    if options.command == "all":
        options.out.mkdir(parents=True, exist_ok=True)
    for command in COMMANDS if options.command == "all" else (options.command,):
        own = options.out / f"{command}.jsonl" if options.command == "all" else options.out
        print(
            "\n".join(
                run_and_tabulate(argparse.Namespace(**{**vars(options), "command": command, "out": own}))
            )
        )


def run_and_tabulate(options: argparse.Namespace) -> Iterator[str]:
    """Run the missing cells of a command, and yield its tables."""
    if not options.table:
        run_missing(options)
    show = _heterorr.table if options.command == "heterorr" else partial(tables, command=options.command)
    yield from show(read(options.out).values())


def run_missing(options: argparse.Namespace) -> None:
    """Run the cells that are not in the file."""
    cells, run = {
        "accuracy": (accuracy_cells, accuracy),
        "queries": (query_cells, queries),
        "structure": (structure_cells, structure),
        "heterorr": (_heterorr.cells, _heterorr.run),
    }[options.command]
    known = read(options.out)
    with tempfile.TemporaryDirectory() as folder:
        for cell in cells(options):
            if key(cell) not in known:
                started = time.process_time()
                found = cell | run(cell, options.cache or Path(folder))
                found["seconds"] = round(time.process_time() - started, 2)
                with options.out.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps(found) + "\n")


# -- accuracy ----------------------------------------------------------------------------------------------


def accuracy_cells(options: argparse.Namespace) -> Iterator[Record]:
    """Yield the cells of the tables of accuracies."""
    for seed in range(options.runs):
        for data in options.datasets or FRACTIONS:
            for mechanism in options.mechanisms or (*ALL_EDGES, "public", *MECHANISMS):
                for epsilon in (0.0,) if mechanism in EPSILON_FREE else options.epsilons or EPSILONS:
                    every = options.fractions or FRACTIONS.get(data, (1.0,))
                    for fraction in (1.0,) if mechanism in ALL_EDGES else every:
                        if wanted(data, fraction, mechanism, epsilon):
                            yield cell_of(data, fraction, mechanism, epsilon, seed)


def wanted(data: str, fraction: float, mechanism: str, epsilon: float) -> bool:
    """Return whether a cell is run: without public edges, dendrograms only on Berkeley13, at 1 and 8."""
    if mechanism == "public":
        return fraction < 1
    return mechanism not in DEEP or fraction < 1 or (data == BERKELEY and epsilon in DEEP_EPSILONS)


def accuracy(cell: Record, cache: Path) -> Record:
    """Return the test accuracy of a cell, or the error of a rejected release."""
    graph = split(cell["data"], cell["seed"])
    method, seed = cell["mechanism"], cell["seed"]
    if method == "exact":
        return {"accuracy": trained(graph, cell)}
    if method in ALL_EDGES:
        budget = {} if method in EPSILON_FREE else {"epsilon": cell["epsilon"], "delta": DELTA}
        model = METHODS[method](unit="undirected-edge", seed=seed, **budget)
        return {"accuracy": model.fit(graph, cache=cache).score(graph)}
    if method == "public":
        public = perturb.sample_public_edges(graph, cell["fraction"], seed=seed)
        return {"accuracy": trained(graph.replace(adjacency=public), cell)}
    try:
        released = released_graph(graph, cell, cache)
    except ConfigError as error:
        return {"rejected": str(error)}
    return {"accuracy": trained(released.graph, cell), "edges": released.num_edges}


def trained(graph: Graph, cell: Record) -> float:
    """Return the test accuracy of the network of a cell's dataset, trained on a graph."""
    method = "sage" if cell["data"] == BERKELEY else "gcn"
    model = METHODS[method](
        unit="none",
        seed=cell["seed"],
        hidden=32,
        activation="relu",
        epochs=100,
        learning_rate=0.01,
        patience=PATIENCE[method],
    )
    return float(model.fit(graph).score(graph))


def released_graph(graph: Graph, cell: Record, cache: Path) -> perturb.PerturbedGraph:
    """Return a release of a graph with the settings of a cell; at fraction 1 no edge is public."""
    mechanism = mechanism_of(cell, cache)
    public = perturb.sample_public_edges(graph, cell["fraction"], seed=cell["seed"])
    all_nodes = torch.ones(graph.num_nodes, dtype=torch.bool)
    return release_graph(graph, mechanism, unit="edge-subset", public_edges=public, private_nodes=all_nodes)


def mechanism_of(cell: Record, cache: Path) -> perturb.GraphMechanism:
    """Return the mechanism of a cell, with the public randomness of its run."""
    if cell["mechanism"] == "edge-rr":
        return CachedTreeEdgeRR(epsilon=cell["epsilon"], seed=cell["seed"], cache=cache)
    seed = {"seed": cell["seed"]} if cell["mechanism"] in DEEP else {}
    return MECHANISMS[cell["mechanism"]](epsilon=cell["epsilon"], **seed)


@dataclass(frozen=True, kw_only=True)
class CachedTreeEdgeRR(EdgeRR):
    """EdgeRR with a cached public tree, which depends on public edges only."""

    cache: Path

    def public_tree(self, domain: Domain) -> Dendrogram:
        """Return the tree of the public edges, from the cache if it was stored."""
        digest = hashlib.sha256(domain.public.tobytes()).hexdigest()[:16]
        file = self.cache / f"tree-{domain.slots.nodes}-{digest}-{self.steps_a_node}-{self.seed}.npy"
        if not file.exists():
            np.save(file, super().public_tree(domain).parents)
        return Dendrogram.from_parents(np.load(file))


# -- structure ---------------------------------------------------------------------------------------------


def query_cells(options: argparse.Namespace) -> Iterator[Record]:
    """Yield the cells of the fifteen queries."""
    for seed in range(options.runs):
        for data in options.datasets or ("facebook_pages", "lastfm_asia"):
            for epsilon in options.epsilons or QUERY_EPSILONS:
                for mechanism in options.mechanisms or MECHANISMS:
                    yield cell_of(data, 1.0, mechanism, epsilon, seed)


def queries(cell: Record, cache: Path) -> Record:
    """Return the errors of the fifteen queries."""
    graph = topology(cell["data"])
    try:
        released = released_graph(graph, cell, cache)
    except ConfigError as error:
        return {"rejected": str(error)}
    found = compare(graph, released)
    return {"errors": {one.name: one.error for one in found.queries}, "notes": list(found.notes)}


def structure_cells(options: argparse.Namespace) -> Iterator[Record]:
    """Yield the cells of PPI, of which only edges are available."""
    for seed in range(options.runs):
        for fraction in options.fractions or (0.05, 0.1, 0.2):
            for mechanism in options.mechanisms or ("public", *MECHANISMS):
                for epsilon in (0.0,) if mechanism == "public" else (0.1, 0.5, 1.0, 2.0):
                    yield cell_of("ppi", fraction, mechanism, epsilon, seed)


def structure(cell: Record, cache: Path) -> Record:
    """Return overlap of edges, divergence of degrees, and distance of random walks."""
    graph = ppi_graph()
    if cell["mechanism"] == "public":
        released = perturb.sample_public_edges(graph, cell["fraction"], seed=cell["seed"])
    else:
        released = released_graph(graph, cell, cache).graph.adjacency
    both = graph.adjacency, released
    one, other = map(pairs, both)
    shared = len(np.intersect1d(one, other, assume_unique=True))
    degrees = [each.indptr.diff().numpy() for each in both]
    counted = [np.bincount(each, minlength=1 + max(map(max, degrees))) for each in degrees]
    return {
        "overlap": shared / max(1, len(one) + len(other) - shared),
        "degrees": kl_divergence(*counted),
        "walk": walk_distance(*both),
    }


def walk_distance(one: Adjacency, other: Adjacency) -> float:
    """Return the root mean square of (D^-1 A)^h - (D~^-1 A~)^h over h = 1 .. 4 and some rows."""
    matrices = [SecretEdges.from_adjacency(adjacency).matrix.toarray() for adjacency in (one, other)]
    steps = [each / np.maximum(each.sum(axis=1, keepdims=True), 1) for each in matrices]
    rows = np.sort(np.random.default_rng(0).choice(one.num_nodes, min(WALKS, one.num_nodes), replace=False))
    here, total = [np.eye(one.num_nodes)[rows] for _ in steps], 0.0
    for _ in range(HOPS):
        here = [now @ step for now, step in zip(here, steps, strict=True)]
        total += float(np.square(here[0] - here[1]).mean())
    return math.sqrt(total / HOPS)


def pairs(adjacency: Adjacency) -> np.ndarray:
    """Return each undirected edge once, as a number."""
    source, target = adjacency.edge_index().numpy()
    return (source * adjacency.num_nodes + target)[source < target]


# -- speed -------------------------------------------------------------------------------------------------


def speed(*, large: bool) -> Iterator[str]:
    """Yield the table of times, also as multiples of the time to write the edges once."""
    yield "| release | seconds (CPU) | edges | x writing (CPU) | peak memory |\n|---|---|---|---|---|"
    cora = topology("cora")
    for name, epsilon in (("edge-rand", 1.0), ("lap-graph", 1.0), ("arr", 1.0)):
        yield timed(f"{name} on Cora, epsilon {epsilon:g}", cora, name, epsilon)
    if large:
        graph = random_graph(117_000, 23_000_000)
        for name, epsilon in (("edge-rand", 8.0), ("lap-graph", 8.0)):
            yield timed(
                f"{name} on 117k nodes and 46M stored edges, epsilon {epsilon:g}", graph, name, epsilon
            )
    for count in (1000, 2708, 10_000, 30_000):
        found = statistics.median(moves_per_second(count) for _ in range(REPEATS))
        yield f"| moves per second, {count:,} leaves, after a million moves | {found:,.0f} | | | |"


def timed(name_of_row: str, graph: Graph, name: str, epsilon: float) -> str:
    """Return a row: the time of a release, and its ratio to writing the edges; CPU time in brackets."""
    mechanism = MECHANISMS[name](epsilon=epsilon, max_edges=100_000_000)
    release_graph(graph, mechanism, unit="undirected-edge")  # warm-up
    drawing, writing, edges = [], [], 0
    for _ in range(REPEATS):
        started = clocks()
        released = release_graph(graph, mechanism, unit="undirected-edge")
        drawing.append(clocks() - started)
        edges, table_of_edges = released.num_edges, edge_table(released.graph, "source", "target")
        with tempfile.TemporaryDirectory() as folder:
            started = clocks()
            write(Path(folder) / "edges.parquet", table_of_edges)
            writing.append(clocks() - started)
    seconds, ratios = (np.median(part, axis=0) for part in (drawing, np.divide(drawing, writing)))
    times, memory = f"{ratios[0]:.1f} ({ratios[1]:.1f})", f"{peak_rss_mb():,.0f} MB"
    return f"| {name_of_row} | {seconds[0]:.3g} ({seconds[1]:.3g}) | {edges:,} | {times} | {memory} |"


def clocks() -> np.ndarray:
    """Return wall time and CPU time."""
    return np.array([time.perf_counter(), time.process_time()])


def moves_per_second(leaves: int) -> float:
    """Return the moves per CPU second of a chain after a million moves, with public and private edges."""
    rng = np.random.default_rng(0)
    ends = rng.integers(leaves, size=(2, 2 * leaves))
    ends = ends[:, ends[0] != ends[1]]
    private = rng.random(ends.shape[1]) < 0.2
    kinds = [(ends[0][part], ends[1][part]) for part in (~private, private)]
    chain = DendrogramChain(Dendrogram.balanced(leaves, rng), *kinds)
    schedule, stream = ChainSchedule(every=1, private=0.1, joint=True), RowStream(bytes(32))
    chain.run(1_000_000, schedule, stream)
    started = time.process_time()
    chain.run(300_000, schedule, stream)
    return 300_000 / (time.process_time() - started)


# -- data and tables ---------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def split(data: str, seed: int) -> Graph:
    """Return a dataset as recipe gap prepares and splits it."""
    return RECIPES["gap"].split(load_dataset(data), seed)


@lru_cache(maxsize=1)
def topology(data: str) -> Graph:
    """Return a dataset with all its nodes."""
    return load_dataset(data, recipe=None)


@lru_cache(maxsize=1)
def ppi_graph() -> Graph:
    """Return the first PPI graph, without self-loops."""
    root = Path(os.environ.get("GRAPHVEIL_DATA", DEFAULT_ROOT))
    ends = np.loadtxt(root / PPI / "ppi_0.pairs", dtype=np.int64)
    count = int(ends.max()) + 1
    return Graph.from_edges(
        torch.ones(count, 1), [0, 1] + [-1] * (count - 2), ends[:, 0], ends[:, 1], directed=False
    )


def random_graph(nodes: int, edges: int) -> Graph:
    """Return a random graph of about the given number of edges."""
    ends = np.random.default_rng(0).integers(nodes, size=(2, edges), dtype=np.int32)
    return Graph.from_edges(torch.ones(nodes, 1), [0, 1] + [-1] * (nodes - 2), *ends, directed=False)


def cell_of(data: str, fraction: float, mechanism: str, epsilon: float, seed: int) -> Record:
    """Return a cell."""
    return {"data": data, "fraction": fraction, "mechanism": mechanism, "epsilon": epsilon, "seed": seed}


def key(record: Record) -> tuple[Any, ...]:
    """Return the key of a cell."""
    names = ("data", "fraction", "mechanism", "eps_x", "epsilon", "seed")
    return tuple(record.get(name) for name in names)


def read(path: Path) -> dict[tuple[Any, ...], Record]:
    """Return the cells in a file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {key(record): record for record in map(json.loads, lines)}


def _options() -> argparse.Namespace:
    def names(text: str) -> list[str]:
        return text.split(",")

    def numbers(text: str) -> list[float]:
        return [float(part) for part in names(text)]

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=[*COMMANDS, "all", "speed"])
    parser.add_argument(
        "--out", type=Path, default=Path("topology.jsonl"), help="JSON lines file; is continued"
    )
    parser.add_argument("--datasets", type=names, help="names of datasets")
    parser.add_argument("--mechanisms", type=names, help="names of mechanisms or methods")
    parser.add_argument("--epsilons", type=numbers, help="values of epsilon")
    parser.add_argument("--fractions", type=numbers, help="shares of private edges")
    parser.add_argument("--runs", type=int, default=3, help="number of seeds")
    parser.add_argument("--cache", type=Path, help="folder of cached public computations")
    parser.add_argument("--table", action="store_true", help="print the tables of the file only")
    parser.add_argument("--large", action="store_true", help="include a graph of 46 million stored edges")
    options = parser.parse_args()
    if options.command == "all" and (options.datasets or options.mechanisms):
        parser.error("all runs every table; use a single command to choose datasets or mechanisms")
    return options


if __name__ == "__main__":
    main()

"""What are released graphs good for? Accuracy on them, their structure, and how long they take.

    python benchmarks/topology.py accuracy --out runs.jsonl [--datasets facebook_pages,twitch/DE] [--runs 3]
        [--epsilons 0.1,0.5,1,2,4,8] [--fractions 0.05,0.1,0.2,1] [--mechanisms edge-rand,arr]
    python benchmarks/topology.py queries --out queries.jsonl [--datasets facebook_pages,lastfm_asia]
    python benchmarks/topology.py structure --out ppi.jsonl
    python benchmarks/topology.py speed [--large]

One line of the file a cell and run; what is there is not made again, so a command resumes after a kill, and
each prints its table from the file. All nodes may have private edges, each edge is private with the
fraction's probability, and every mechanism protects the same slots and keeps public edges. A cell whose
expected size passes 20 million edges says so in its place. Accuracies are on test nodes of recipe gap, epochs
are chosen on validation nodes; GCN, or SAGE on Berkeley13. The floor, GAP and ClassCode protect every edge at
the same epsilon.
"""

import argparse
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphveil import METHODS, perturb
from graphveil._random import RowStream
from graphveil.dendrogram.chain import Chain, Schedule
from graphveil.dendrogram.tree import Dendrogram
from graphveil.errors import ConfigError
from graphveil.fidelity import SimpleGraph, compare
from graphveil.graph import RECIPES, Adjacency, Graph, load_dataset, tables
from graphveil.perturb import MECHANISMS, release_graph
from graphveil.perturb.folder import edge_table

BERKELEY, DEEP = "facebook100/Berkeley13", ("priv-hrg", "edge-rr")
FRACTIONS = {"facebook_pages": (0.05, 0.1, 0.2, 1.0), "twitch/DE": (0.05, 0.1, 0.2, 1.0), BERKELEY: (1.0,)}
EPSILONS, QUERY_EPSILONS, DEEP_EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0), (0.1, 1.0, 10.0), (1.0, 8.0)
BESIDE = ("mlp", "gap", "classcode")
EPOCHS, HIDDEN = 200, 64
PPI = "ppi_edges"
HOPS, WALKS = 4, 2000  # of random-walk distances, and the rows that they are taken of

Record = dict[str, Any]


def main() -> None:
    """Make what is missing, and print the table."""
    options = _options()
    torch.set_num_threads(1)
    if options.command == "speed":
        print("\n".join(speed(large=options.large)))
        return
    cells = {"accuracy": accuracy_cells, "queries": query_cells, "structure": structure_cells}[
        options.command
    ]
    run = {"accuracy": accuracy, "queries": queries, "structure": structure}[options.command]
    made = read(options.out)
    for cell in cells(options):
        if key(cell) not in made:
            found = cell | run(cell)
            with options.out.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(found) + "\n")
    print("\n".join(table(read(options.out).values(), options.command)))


# -- accuracy ----------------------------------------------------------------------------------------------


def accuracy_cells(options: argparse.Namespace) -> Iterator[Record]:
    """Yield the cells of the first table."""
    for data in options.datasets or FRACTIONS:
        for seed in range(options.runs):
            yield {"data": data, "fraction": 1.0, "mechanism": "mlp", "epsilon": 0.0, "seed": seed}
            for epsilon in options.epsilons:
                for method in BESIDE[1:]:
                    yield cell_of(data, 1.0, method, epsilon, seed)
                for fraction in options.fractions or FRACTIONS.get(data, (1.0,)):
                    for mechanism in options.mechanisms:
                        if (
                            mechanism not in DEEP
                            or fraction < 1
                            or (data == BERKELEY and epsilon in DEEP_EPSILONS)
                        ):
                            yield cell_of(data, fraction, mechanism, epsilon, seed)


def accuracy(cell: Record) -> Record:
    """Return the test accuracy of a cell, or why there is none."""
    graph = RECIPES["gap"].split(prepared(cell["data"]), cell["seed"])
    started = time.process_time()
    if cell["mechanism"] in BESIDE:
        budget = {"epsilon": cell["epsilon"]} if cell["epsilon"] else {}
        model = METHODS[cell["mechanism"]](unit="undirected-edge", seed=cell["seed"], **budget)
        found = model.fit(graph).score(graph)
        return {"accuracy": found, "seconds": time.process_time() - started}
    try:
        released = drawn(graph, cell)
    except ConfigError as refused:
        return {"refused": str(refused)}
    method = "sage" if cell["data"] == BERKELEY else "gcn"
    model = METHODS[method](unit="none", seed=cell["seed"], hidden=HIDDEN, epochs=EPOCHS)
    found = model.fit(released.graph).score(released.graph)
    return {"accuracy": found, "edges": released.num_edges, "seconds": time.process_time() - started}


def drawn(graph: Graph, cell: Record) -> perturb.Perturbed:
    """Release a graph as a cell says; at fraction 1 no edge is public."""
    mechanism = MECHANISMS[cell["mechanism"]](epsilon=cell["epsilon"])
    public = perturb.public_share(graph.adjacency, cell["fraction"], seed=cell["seed"])
    everybody = torch.ones(graph.num_nodes, dtype=torch.bool)
    return release_graph(
        graph, mechanism, unit="private-slot-edge", public_edges=public, private_nodes=everybody
    )


# -- structure ---------------------------------------------------------------------------------------------


def query_cells(options: argparse.Namespace) -> Iterator[Record]:
    """Yield the cells of the fifteen queries."""
    for data in options.datasets or ("facebook_pages", "lastfm_asia"):
        for seed in range(options.runs):
            for epsilon in QUERY_EPSILONS:
                for mechanism in options.mechanisms:
                    yield cell_of(data, 1.0, mechanism, epsilon, seed)


def queries(cell: Record) -> Record:
    """Return the errors of the fifteen queries."""
    graph = topology(cell["data"])
    try:
        released = drawn(graph, cell)
    except ConfigError as refused:
        return {"refused": str(refused)}
    found = compare(graph, released)
    return {"errors": {one.name: one.error for one in found.queries}, "notes": list(found.notes)}


def structure_cells(options: argparse.Namespace) -> Iterator[Record]:
    """Yield the cells of PPI, whose features are not here."""
    for seed in range(options.runs):
        for fraction in (0.05, 0.1, 0.2):
            for epsilon in (0.1, 0.5, 1.0, 2.0):
                for mechanism in options.mechanisms:
                    yield cell_of("ppi", fraction, mechanism, epsilon, seed)


def structure(cell: Record) -> Record:
    """Return overlap of edges, divergence of degrees, and distance of random walks, as in the source."""
    graph = ppi_graph()
    try:
        drawn_graph = drawn(graph, cell)
    except ConfigError as refused:
        return {"refused": str(refused)}
    released = drawn_graph.graph.adjacency
    one, other = pairs(graph.adjacency), pairs(released)
    shared = len(np.intersect1d(one, other))
    degrees = compare(graph, drawn_graph)["degree distribution"].error
    walk = walk_distance(graph.adjacency, released)
    return {"overlap": shared / max(1, len(np.union1d(one, other))), "degrees": degrees, "walk": walk}


def walk_distance(one: Adjacency, other: Adjacency) -> float:
    """Return the root mean square of (D^-1 A)^h - (D~^-1 A~)^h over h = 1 .. 4 and some rows."""
    matrices = [SimpleGraph.of(adjacency).matrix() for adjacency in (one, other)]
    steps = [each.multiply(1 / np.maximum(each.sum(axis=1), 1)[:, None]).tocsr() for each in matrices]
    rows = np.sort(np.random.default_rng(0).choice(one.num_nodes, min(WALKS, one.num_nodes), replace=False))
    here, total = [np.eye(one.num_nodes)[rows] for _ in steps], 0.0
    for _ in range(HOPS):
        here = [now @ step for now, step in zip(here, steps, strict=True)]
        total += float(np.square(here[0] - here[1]).mean())
    return math.sqrt(total / HOPS)


def pairs(adjacency: Adjacency) -> np.ndarray:
    """Return edges as numbers, once each."""
    source, target = adjacency.edge_index().numpy()
    return (source * adjacency.num_nodes + target)[source < target]


# -- speed -------------------------------------------------------------------------------------------------


def speed(*, large: bool) -> Iterator[str]:
    """Yield the lines of the table of times: each as a multiple of writing the edges once."""
    yield "| what | seconds | edges out | times writing them |\n|---|---|---|---|"
    cora = topology("cora")
    for name, epsilon in (("edge-rand", 1.0), ("lap-graph", 1.0), ("arr", 1.0)):
        yield timed(f"{name} on Cora, epsilon {epsilon:g}", cora, name, epsilon)
    if large:
        graph = random_graph(117_000, 23_000_000)
        for name, epsilon in (("edge-rand", 8.0), ("lap-graph", 8.0)):
            yield timed(
                f"{name} on 117k nodes and 46M stored edges, epsilon {epsilon:g}", graph, name, epsilon
            )
    for count in (700, 2708, 9000):
        yield f"| moves a second over {count:,} leaves after a million | {moves_a_second(count):,.0f} | | |"


def timed(what: str, graph: Graph, name: str, epsilon: float) -> str:
    """Return a line: a release, and how long its edges take to be written."""
    mechanism = MECHANISMS[name](epsilon=epsilon, max_edges=100_000_000)
    release_graph(graph, mechanism, unit="undirected-edge")  # tables and caches are warm from here on
    started = time.perf_counter()
    released = release_graph(graph, mechanism, unit="undirected-edge")
    seconds = time.perf_counter() - started
    table_of_edges = edge_table(released.graph, "source", "target")
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        tables.write(Path(folder) / "edges.parquet", table_of_edges)
        writing = time.perf_counter() - started
    return f"| {what} | {seconds:.2f} | {released.num_edges:,} | {seconds / writing:.1f} |"


def moves_a_second(leaves: int) -> float:
    """Return how many moves a chain makes after a million, public and private edges both scored."""
    rng = np.random.default_rng(0)
    ends = rng.integers(leaves, size=(2, 2 * leaves))
    ends = ends[:, ends[0] != ends[1]]
    private = rng.random(ends.shape[1]) < 0.2
    kinds = [(ends[0][part], ends[1][part]) for part in (~private, private)]
    chain = Chain(Dendrogram.balanced(leaves, rng), *kinds)
    schedule, stream = Schedule(every=1, private=0.1, joint=True), RowStream(bytes(32))
    chain.run(1_000_000, schedule, stream)
    started = time.perf_counter()
    chain.run(300_000, schedule, stream)
    return 300_000 / (time.perf_counter() - started)


# -- data and tables ---------------------------------------------------------------------------------------


def prepared(data: str) -> Graph:
    """Return a data set as recipe gap prepares it."""
    return load_dataset(data)


def topology(data: str) -> Graph:
    """Return a data set with all its nodes."""
    return load_dataset(data, recipe=None)


def ppi_graph() -> Graph:
    """Return the first PPI graph; its loops are no edges."""
    root = Path(os.environ.get("GRAPHVEIL_DATA", "../shared/data"))
    ends = np.loadtxt(root / PPI / "ppi_0.pairs", dtype=np.int64)
    count = int(ends.max()) + 1
    return Graph.from_edges(
        torch.ones(count, 1), [0, 1] + [-1] * (count - 2), ends[:, 0], ends[:, 1], directed=False
    )


def random_graph(nodes: int, edges: int) -> Graph:
    """Return a random graph of about so many edges."""
    ends = np.random.default_rng(0).integers(nodes, size=(2, edges), dtype=np.int32)
    return Graph.from_edges(torch.ones(nodes, 1), [0, 1] + [-1] * (nodes - 2), *ends, directed=False)


def cell_of(data: str, fraction: float, mechanism: str, epsilon: float, seed: int) -> Record:
    """Return a cell."""
    return {"data": data, "fraction": fraction, "mechanism": mechanism, "epsilon": epsilon, "seed": seed}


def key(record: Record) -> tuple[Any, ...]:
    """Return what tells cells apart."""
    return tuple(record[name] for name in ("data", "fraction", "mechanism", "epsilon", "seed"))


def read(path: Path) -> dict[tuple[Any, ...], Record]:
    """Return what a file holds."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {key(record): record for record in map(json.loads, lines)}


def table(records: Any, command: str) -> Iterator[str]:
    """Yield a line for each data set, fraction and mechanism, with a column for each epsilon."""
    found: dict[tuple[Any, ...], dict[float, list[Record]]] = {}
    for record in records:
        row = record["data"], record["fraction"], record["mechanism"]
        found.setdefault(row, {}).setdefault(record["epsilon"], []).append(record)
    levels = sorted({epsilon for row in found.values() for epsilon in row})
    yield f"| data | private | mechanism | {' | '.join(f'{epsilon:g}' for epsilon in levels)} |"
    yield f"|{'---|' * (3 + len(levels))}"
    for (data, fraction, mechanism), row in sorted(found.items()):
        cells = [figures(row.get(epsilon, []), command) for epsilon in levels]
        yield f"| {data} | {fraction:g} | {mechanism} | {' | '.join(cells)} |"


def figures(records: list[Record], command: str) -> str:
    """Return a cell's means over the runs, with standard errors, or what refused it."""
    refused = [record["refused"] for record in records if "refused" in record]
    if refused or not records:
        return refused[0].split(" is expected to add ")[-1].split(" edges")[0] + " edges" if refused else ""
    if command == "accuracy":
        return mean([100 * record["accuracy"] for record in records], ".1f")
    if command == "structure":
        return ", ".join(mean([r[name] for r in records], ".3g") for name in ("overlap", "degrees", "walk"))
    names = records[0]["errors"]
    return ", ".join(f"{name} {mean([r['errors'][name] for r in records], '.2g')}" for name in names)


def mean(values: list[float], form: str) -> str:
    """Return a mean with its standard error."""
    if len(values) < 2:
        return f"{values[0]:{form}}"
    return f"{statistics.fmean(values):{form}} ± {statistics.stdev(values) / math.sqrt(len(values)):{form}}"


def _options() -> argparse.Namespace:
    def names(text: str) -> list[str]:
        return text.split(",")

    def numbers(text: str) -> list[float]:
        return [float(part) for part in names(text)]

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["accuracy", "queries", "structure", "speed"])
    parser.add_argument("--out", type=Path, default=Path("topology.jsonl"))
    parser.add_argument("--datasets", type=names)
    parser.add_argument("--mechanisms", type=names, default=list(MECHANISMS))
    parser.add_argument("--epsilons", type=numbers, default=list(EPSILONS))
    parser.add_argument("--fractions", type=numbers)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--large", action="store_true", help="also time a graph of 46 million stored edges")
    return parser.parse_args()


if __name__ == "__main__":
    main()

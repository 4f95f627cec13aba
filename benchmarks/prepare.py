"""What does it cost to bring a graph to disk, and to hop over it there?

    python benchmarks/prepare.py [--sizes 1e6 1e7] [--memory 1GB] [--nodes-share 0.05] [--folder DIR]

Directed edges with power-law targets and random sources, from parquet. A size is measured in a process of
its own: processor nanoseconds an edge of ``prepare``, the most anonymous memory it held (``RssAnon``, sampled
every 20 ms), and a private hop of 16 columns with either engine, in turns, with the file in the page cache.
The exponent is the slope of log CPU on log edges over all sizes.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch
from _measure import medians

from graphveil.graph import Adjacency, open_graph, prepare
from graphveil.privacy import DirectedEdge, MemoryLedger
from graphveil.propagation import safe_unit
from graphveil.release import DiskEngine, Engine, InMemoryEngine, NeighborSumData, Release, ReleasePlan
from graphveil.release.plan import hops

DIM, ROUNDS, ROWS = 16, 5, 1 << 22


def main() -> None:
    """Print a line a size, and the exponent."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", type=float, default=[1e6, 1e7])
    parser.add_argument("--memory", default="1GB")
    parser.add_argument("--nodes-share", type=float, default=0.05, help="nodes an edge")
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--one", action="store_true", help="one size in this process, as JSON")
    options = parser.parse_args()
    if options.one:
        edges = int(options.sizes[0])
        print(json.dumps(measured(edges, int(edges * options.nodes_share), options.memory, options.folder)))
        return
    heads = "prepare ns/edge", "RssAnon MB", "disk MB", "open ns/edge", "memory ns/edge", "disk ns/edge"
    print(f"{'edges':>12} " + " ".join(f"{head:>15}" for head in heads))
    found = []
    for size in options.sizes:
        call = [sys.executable, __file__, "--one", "--sizes", str(size), "--memory", options.memory]
        call += ["--nodes-share", str(options.nodes_share)]
        call += [] if options.folder is None else ["--folder", str(options.folder)]
        line = json.loads(subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True).stdout)
        found.append((size, line["prepare ns/edge"] * size))
        print(f"{size:12.0f} " + " ".join(f"{line[head]:15.1f}" for head in heads), flush=True)
    if len(found) > 1:
        slope = np.polyfit(*np.log(np.array(found)).T, 1)[0]
        print(f"CPU of prepare grows with edges to the power of {slope:.2f}")


def measured(edges: int, nodes: int, memory: str, folder: Path | None) -> dict[str, float]:
    """Return the figures of one size."""
    work = Path(tempfile.mkdtemp(dir=folder))
    try:
        made = power_law(work, nodes, edges)
        with_peak = Peak()
        columns = {"id": "id", "label": "label", "source": "source", "target": "target"}
        start = time.process_time()
        prepare(work / "nodes.parquet", made, work / "graph", directed=True, memory=memory, **columns)
        spent, anonymous = time.process_time() - start, with_peak.stop()
        start = time.process_time()
        graph = open_graph(work / "graph").adjacency
        opened = time.process_time() - start
        disk = sum(path.stat().st_size for path in (work / "graph").iterdir())
        hop = medians({name: hopping(graph, engine) for name, engine in ENGINES.items()}, ROUNDS)
    finally:
        shutil.rmtree(work)
    return {
        "prepare ns/edge": spent / edges * 1e9,
        "RssAnon MB": anonymous,
        "disk MB": disk / 1e6,
        "open ns/edge": opened / edges * 1e9,
        **{f"{name} ns/edge": seconds / edges * 1e9 for name, seconds in hop.items()},
    }


ENGINES: dict[str, Engine] = {"memory": InMemoryEngine(), "disk": DiskEngine()}


def power_law(work: Path, nodes: int, edges: int) -> list[Path]:
    """Write a table of nodes and tables of edges; a target's chance falls with the root of its number."""
    rng = np.random.default_rng(0)
    ids = np.arange(nodes)
    table = {"id": ids, "label": (ids % 3).astype(str), "x": rng.random(nodes, dtype=np.float32)}
    pyarrow.parquet.write_table(pa.table(table), work / "nodes.parquet")
    places = rng.permutation(nodes)
    files = []
    for first in range(0, edges, ROWS):
        count = min(ROWS, edges - first)
        target = places[(nodes * rng.random(count) ** 2).astype(np.int64)]
        part = {"source": rng.integers(nodes, size=count), "target": target}
        files.append(work / f"edges-{len(files):05}.parquet")
        pyarrow.parquet.write_table(pa.table(part), files[-1])
    return files


def hopping(graph: Adjacency, engine: Engine) -> Callable[[], object]:
    """Return private hops by an engine over a graph that is on disk; with ``memory`` it is copied first."""
    if isinstance(engine, InMemoryEngine):
        copies = graph.indptr.clone(), graph.indices.clone()
        graph = Adjacency._in_order(*copies, graph.directed, graph.edge_set)
    rows = safe_unit(torch.rand(graph.num_nodes, DIM))
    queries = hops(1.0, 1, DIM, DirectedEdge()) * (ROUNDS + 1)
    plan = ReleasePlan(DirectedEdge(), queries, delta=1e-3)
    release = Release(plan, graph, budget=MemoryLedger(), engine=engine)
    release.ask(NeighborSumData(rows))
    return lambda: release.ask(NeighborSumData(rows))


class Peak:
    """The most anonymous memory that this process holds, in MB, sampled by a thread."""

    def __init__(self) -> None:
        """Begin."""
        self._most, self._over = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> float:
        """Return the most."""
        self._over.set()
        self._thread.join()
        return self._most

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            status = Path("/proc/self/status").read_text()
            line = next(line for line in status.splitlines() if line.startswith("RssAnon"))
            self._most = max(self._most, int(line.split()[1]) / 1e3)


if __name__ == "__main__":
    main()

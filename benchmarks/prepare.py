"""What does it cost to bring a graph to disk, and to hop over it there?

    python benchmarks/prepare.py [--sizes 1e6 1e7] [--memory 1GB] [--nodes-share 0.05] [--folder DIR]
        [--rounds 5] [--csv FILE]
    python benchmarks/prepare.py --kills 30 --sizes 2e7 [--folder DIR]

Directed edges with power-law targets and random sources, from parquet. A size is measured in a process of
its own: processor nanoseconds an edge of ``prepare``, the most anonymous memory it held (``RssAnon``) and the
most that its folder held on the disk, both sampled, and a private hop of 16 columns with either backend, in
turns, with the file in the page cache; its rows are mapped from a file, as node arrays may be. Then a hop
from the disk: before it the system is asked to let go of the file (``posix_fadvise``, ``DONTNEED``), and what
is left in the page cache is counted (``fincore``). The exponent is the slope of log CPU on log edges over all
sizes. ``--csv`` adds a line a size to a file.

``--kills N`` kills ``prepare`` with SIGKILL at N random moments of its course and starts it anew after each,
until it ends; then it compares the bytes of all files with those of a call that was left alone. Every other
moment is when a random number of further blocks is on the disk, which is a short part of the course. A
measured size says the seconds of its ``prepare`` and the digest of its files; ``--whole`` takes them for the
call that was left alone, which then is not made again.
"""

import argparse
import csv
import ctypes
import hashlib
import json
import os
import shutil
import signal
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

from graphveil.data import Adjacency, open_graph, prepare
from graphveil.data.stored_graph import MANIFEST, SOURCES
from graphveil.ledger import MemoryLedger
from graphveil.privacy import DirectedEdge
from graphveil.propagation import safe_unit
from graphveil.release import (
    AggregationBackend,
    DiskBackend,
    InMemoryBackend,
    NeighborSumData,
    Release,
    ReleasePlan,
)
from graphveil.release.plan import hops

DIM, ROWS = 16, 1 << 22
COLUMNS = {"id": "id", "label": "label", "source": "source", "target": "target"}
HEADS = (
    "prepare ns/edge",
    "RssAnon MB",
    "disk at most MB",
    "folder MB",
    "open ns/edge",
    "memory ns/edge",
    "disk ns/edge",
    "hop RssAnon MB",
    "cold ns/edge",
    "cold wall ns/edge",
    "cached MB",
)
_MADV_DONTNEED = 4  # of mmap


def main() -> None:
    """Print a line a size, and the exponent; or kill."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", type=float, default=[1e6, 1e7])
    parser.add_argument("--memory", default="1GB")
    parser.add_argument("--nodes-share", type=float, default=0.05, help="nodes an edge")
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--rounds", type=int, default=5, help="of the hops")
    parser.add_argument("--csv", type=Path, default=None, help="a file that lines are added to")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--whole", nargs=2, metavar=("SECONDS", "DIGEST"), help="of a call left alone")
    parser.add_argument("--one", action="store_true", help="one size in this process, as JSON")
    options = parser.parse_args()
    edges = int(options.sizes[0])
    nodes = int(edges * options.nodes_share)
    if options.kills:
        killed(edges, nodes, options.memory, options.folder, options.kills, options.whole)
    elif options.one:
        print(json.dumps(measured(edges, nodes, options.memory, options.folder, options.rounds)))
    else:
        print(f"{'edges':>12} " + " ".join(f"{head:>17}" for head in HEADS))
        grown([(size, in_a_process(size, options)) for size in options.sizes])


def in_a_process(size: float, options: argparse.Namespace) -> dict[str, float]:
    """Measure one size in a process of its own, print its line and add it to a file."""
    call = [sys.executable, __file__, "--one", "--sizes", str(size), "--memory", options.memory]
    call += ["--nodes-share", str(options.nodes_share), "--rounds", str(options.rounds)]
    call += [] if options.folder is None else ["--folder", str(options.folder)]
    line = json.loads(subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True).stdout)
    print(f"{size:12.0f} " + " ".join(f"{line[head]:17.1f}" for head in HEADS), flush=True)
    if options.csv is not None:
        new = not options.csv.exists()
        with options.csv.open("a", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows([("edges", *HEADS)] if new else [])
            writer.writerow((f"{size:.0f}", *(f"{line[head]:.1f}" for head in HEADS)))
    return dict(line)


def grown(lines: list[tuple[float, dict[str, float]]]) -> None:
    """Print how processor time grows."""
    if len(lines) > 1:
        found = np.log([(size, line["prepare ns/edge"] * size) for size, line in lines])
        print(f"CPU of prepare grows with edges to the power of {np.polyfit(*found.T, 1)[0]:.2f}")


def measured(edges: int, nodes: int, memory: str, folder: Path | None, rounds: int) -> dict[str, float]:
    """Return the figures of one size."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=folder))
    try:
        made = power_law(work, nodes, edges)
        with Peak(work / "graph") as peak:
            start, wall = time.process_time(), time.perf_counter()
            prepare(work / "nodes.parquet", made, work / "graph", directed=True, memory=memory, **COLUMNS)
            spent, course = time.process_time() - start, time.perf_counter() - wall
        print(f"--whole {course:.0f} {digest_of(work / 'graph')}", file=sys.stderr)
        for path in made:
            path.unlink()
        start = time.process_time()
        graph = open_graph(work / "graph").adjacency
        opened = time.process_time() - start
        rows = unit_rows(work / "rows.npy", nodes)
        with Peak() as beside:
            hop = medians({"disk": hopping(graph, DiskBackend(), rows, rounds)}, rounds)
        cold, wall, cached = from_the_disk(graph, rows)
        memory_hop = hopping(copied(graph), InMemoryBackend(), rows, rounds)
        hop |= medians({"memory": memory_hop, "again": hopping(graph, DiskBackend(), rows, rounds)}, rounds)
        hop["disk"] = hop.pop("again")  # in turns with the hop in memory
        folder_bytes = size_of(work / "graph")
    finally:
        shutil.rmtree(work)
    return {
        "prepare ns/edge": spent / edges * 1e9,
        "RssAnon MB": peak.anonymous,
        "disk at most MB": peak.disk,
        "folder MB": folder_bytes / 1e6,
        "open ns/edge": opened / edges * 1e9,
        **{f"{name} ns/edge": seconds / edges * 1e9 for name, seconds in hop.items()},
        "hop RssAnon MB": beside.anonymous,
        "cold ns/edge": cold / edges * 1e9,
        "cold wall ns/edge": wall / edges * 1e9,
        "cached MB": cached,
    }


def power_law(work: Path, nodes: int, edges: int) -> list[Path]:
    """Write a table of nodes and tables of edges; a target's chance falls with the root of its number."""
    rng = np.random.default_rng(0)
    ids = np.arange(nodes)
    table = {"id": ids, "label": ids % 3, "x": rng.random(nodes, dtype=np.float32)}
    pyarrow.parquet.write_table(pa.table(table), work / "nodes.parquet")
    places = rng.permutation(nodes).astype(np.int32)
    files = []
    for first in range(0, edges, ROWS):
        count = min(ROWS, edges - first)
        target = places[(nodes * rng.random(count) ** 2).astype(np.int64)]
        part = {"source": rng.integers(nodes, size=count, dtype=np.int32), "target": target}
        files.append(work / f"edges-{len(files):05}.parquet")
        pyarrow.parquet.write_table(pa.table(part), files[-1], use_dictionary=False)
    return files


def unit_rows(path: Path, nodes: int) -> torch.Tensor:
    """Return random rows of norm one, mapped from a file."""
    rows = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(nodes, DIM))
    generator = torch.Generator().manual_seed(0)
    for first in range(0, nodes, 1 << 20):
        part = rows[first : first + (1 << 20)]
        part[:] = safe_unit(torch.rand(len(part), DIM, generator=generator)).numpy()
    rows.flush()
    return torch.from_numpy(np.load(path, mmap_mode="c"))


def copied(graph: Adjacency) -> Adjacency:
    """Return a graph that is on disk as one in memory."""
    copies = graph.indptr.clone(), graph.indices.clone()
    return Adjacency._in_order(*copies, graph.directed, graph.edge_set)


def hopping(
    graph: Adjacency, backend: AggregationBackend, rows: torch.Tensor, rounds: int
) -> Callable[[], object]:
    """Return private hops by a backend, of which one was made."""
    queries = hops(1.0, 1, DIM, DirectedEdge()) * (rounds + 2)
    plan = ReleasePlan(DirectedEdge(), queries, delta=1e-3)
    release = Release.open(plan, graph, budget=MemoryLedger(), backend=backend)
    if graph.num_nodes < 10_000_000:  # a large one is long enough without
        release.answer(NeighborSumData(rows))
    return lambda: release.answer(NeighborSumData(rows)) is None


def from_the_disk(graph: Adjacency, rows: torch.Tensor) -> tuple[float, float, float]:
    """Return processor and wall seconds of a hop whose edges are not cached, and the MB of them that are."""
    assert graph.folder is not None
    path = graph.folder / SOURCES
    hop = hopping(graph, DiskBackend(), rows, 1)
    libc = ctypes.CDLL(None, use_errno=True)
    address, size = ctypes.c_void_p(graph.indices.data_ptr()), ctypes.c_size_t(4 * len(graph.indices))
    libc.madvise(address, size, _MADV_DONTNEED)  # what is mapped is not let go of
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    call = ["fincore", "--bytes", "--noheadings", "--output", "RES", str(path)]
    cached = float(subprocess.run(call, check=True, capture_output=True, text=True).stdout) / 1e6
    start, wall = time.process_time(), time.perf_counter()
    hop()
    return time.process_time() - start, time.perf_counter() - wall, cached


class Peak:
    """The most anonymous memory of this process and bytes of a folder, in MB, sampled by a thread."""

    def __init__(self, folder: Path | None = None) -> None:
        """Watch from ``with`` on."""
        self.anonymous = self.disk = 0.0
        self._folder, self._over = folder, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "Peak":
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            status = Path("/proc/self/status").read_text()
            line = next(line for line in status.splitlines() if line.startswith("RssAnon"))
            self.anonymous = max(self.anonymous, int(line.split()[1]) / 1e3)
            if self._folder is not None:
                self.disk = max(self.disk, size_of(self._folder) / 1e6)


def size_of(folder: Path) -> int:
    """Return the bytes that a folder's files take on the disk; files may go while they are counted."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.lstat().st_blocks * 512
        except OSError:
            continue
    return total


def killed(
    edges: int, nodes: int, memory: str, folder: Path | None, kills: int, known: tuple[str, str] | None
) -> None:
    """Kill and start anew; print what came of it."""
    work = Path(tempfile.mkdtemp(dir=folder))
    rng = np.random.default_rng()
    try:
        power_law(work, nodes, edges)
        whole, digest = left_alone(work, memory) if known is None else (float(known[0]), known[1])
        finished, done = 0, []
        for number in range(kills):
            child = started(work, "graph", memory)
            if number % 2:
                moment_of_blocks(child, work / "graph", int(rng.integers(1, 4)))
            else:
                moment_of_time(child, float(rng.uniform(0, whole)))
            if child.poll() is None:
                child.send_signal(signal.SIGKILL)
                child.wait()
            done.append(rows_done(work / "graph"))
            if child.returncode == 0:  # begin anew, so that each moment may be hit
                finished += 1
                assert digest_of(work / "graph") == digest
                shutil.rmtree(work / "graph")
        assert started(work, "graph", memory).wait() == 0
        assert digest_of(work / "graph") == digest
        open_graph(work / "graph")
    finally:
        shutil.rmtree(work)
    begun = sum(rows > 0 for rows in done)
    print(
        f"{kills} moments in a course of {whole:.0f} s: {kills - finished} kills, {begun} with blocks on the "
        f"disk; {finished + 1} calls ended, with the bytes of the one that was left alone"
    )


def left_alone(work: Path, memory: str) -> tuple[float, str]:
    """Return the seconds that a call takes which is not killed, and the digest of its files."""
    start = time.perf_counter()
    started(work, "whole", memory).wait()
    seconds, digest = time.perf_counter() - start, digest_of(work / "whole")
    shutil.rmtree(work / "whole")
    return seconds, digest


def moment_of_time(child: "subprocess.Popen[bytes]", seconds: float) -> None:
    """Wait some seconds, or until the process has ended."""
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        return


def moment_of_blocks(child: "subprocess.Popen[bytes]", folder: Path, more: int) -> None:
    """Wait until so many further blocks are on the disk, or until the process has ended."""
    last, left = rows_done(folder), more
    while child.poll() is None and left:
        time.sleep(0.002)
        if (rows := rows_done(folder)) > last:
            last, left = rows, left - 1


def started(work: Path, name: str, memory: str) -> "subprocess.Popen[bytes]":
    """Start the command."""
    call = [sys.executable, "-m", "graphveil", "prepare", "--nodes", str(work / "nodes.parquet")]
    call += ["--edges", str(work / "edges-*.parquet"), "--out", str(work / name), "--directed"]
    call += [part for column, value in COLUMNS.items() for part in (f"--{column}", value)]
    return subprocess.Popen([*call, "--memory", memory], stdout=subprocess.DEVNULL)


def rows_done(folder: Path) -> int:
    """Return how many rows a folder's manifest names."""
    path = folder / MANIFEST
    blocks = json.loads(path.read_text())["blocks"] if path.exists() else []
    return int(blocks[-1]["stop"]) if blocks else 0


def digest_of(folder: Path) -> str:
    """Return a digest of all files but the manifest, whose key is the folder's own."""
    hashed = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.name != MANIFEST:
            hashed.update(path.name.encode())
            with path.open("rb") as file:
                while part := file.read(1 << 24):
                    hashed.update(part)
    return hashed.hexdigest()


if __name__ == "__main__":
    main()

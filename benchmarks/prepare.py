"""Measure the time and the memory to store a graph on disk, and the time of a hop over it.

    python benchmarks/prepare.py [--sizes 1e6 1e7] [--memory 1GB] [--nodes-share 0.05] [--folder DIR]
        [--rounds 5] [--csv FILE]
    python benchmarks/prepare.py --kills 30 --sizes 2e7 [--folder DIR]

Directed edges with power-law targets and random sources, read from parquet. Each size is measured in a
separate process: CPU nanoseconds per edge of ``prepare``, its peak anonymous memory (``RssAnon``), and the
peak size of its folder, both sampled. Private hops of 16 columns alternate between the in-memory and the disk
backend, with the file in the page cache; their rows are mapped from a file. A cold hop follows: the pages are
dropped with ``posix_fadvise`` (``DONTNEED``), and ``fincore`` counts the bytes that remain in the page cache.
The exponent is the slope of log CPU time over log edges for all sizes. ``--csv`` appends one row per size.

``--kills N`` sends SIGKILL to ``prepare`` at N random moments, restarts it after each, and lets it finish. It
then compares the bytes of all files with those of an uninterrupted call. Every second moment is chosen by the
number of blocks on disk, because blocks are written in a short part of the call. A measured size prints the
seconds of its ``prepare`` and the digest of its files. ``--whole`` takes these values and skips the
uninterrupted call.
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

from graphveil.core.backends import AggregationBackend, DiskBackend, InMemoryBackend
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.blocks import SOURCES
from graphveil.core.features import safe_unit
from graphveil.core.ledger import MemoryLedger
from graphveil.core.plan import ReleasePlan, hops
from graphveil.core.queries.neighbor_sums import NeighborSumData
from graphveil.core.release import Release
from graphveil.core.unit import DirectedEdge
from graphveil.data import open_graph, prepare
from graphveil.data.graph_files import MANIFEST

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
    """Print one row per size and the exponent, or run the test with SIGKILL."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", type=float, default=[1e6, 1e7], help="numbers of edges")
    parser.add_argument("--memory", default="1GB", help="memory limit of `prepare`")
    parser.add_argument("--nodes-share", type=float, default=0.05, help="nodes per edge")
    parser.add_argument("--folder", type=Path, default=None, help="folder of temporary files")
    parser.add_argument("--rounds", type=int, default=5, help="number of hops of each backend")
    parser.add_argument("--csv", type=Path, default=None, help="CSV file to append rows to")
    parser.add_argument("--kills", type=int, default=0, help="number of SIGKILLs; measures no times")
    parser.add_argument(
        "--whole", nargs=2, metavar=("SECONDS", "DIGEST"), help="values of an uninterrupted call"
    )
    parser.add_argument("--one", action="store_true", help="measure one size in this process, and print JSON")
    options = parser.parse_args()
    edges = int(options.sizes[0])
    nodes = int(edges * options.nodes_share)
    if options.kills:
        interrupt(edges, nodes, options.memory, options.folder, options.kills, options.whole)
    elif options.one:
        print(json.dumps(measured(edges, nodes, options.memory, options.folder, options.rounds)))
    else:
        print(f"{'edges':>12} " + " ".join(f"{head:>17}" for head in HEADS))
        print_exponent([(size, measure_in_subprocess(size, options)) for size in options.sizes])


def measure_in_subprocess(size: float, options: argparse.Namespace) -> dict[str, float]:
    """Measure one size in a separate process, print its row, and append it to the CSV file."""
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


def print_exponent(lines: list[tuple[float, dict[str, float]]]) -> None:
    """Print the exponent of the growth of CPU time."""
    if len(lines) > 1:
        logs = np.log([(size, line["prepare ns/edge"] * size) for size, line in lines])
        print(f"CPU time of prepare grows with edges to the power of {np.polyfit(*logs.T, 1)[0]:.2f}")


def measured(edges: int, nodes: int, memory: str, folder: Path | None, rounds: int) -> dict[str, float]:
    """Return the measurements of one size."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=folder))
    try:
        tables = power_law(work, nodes, edges)
        with Peak(work / "graph") as peak:
            start, wall = time.process_time(), time.perf_counter()
            prepare(work / "nodes.parquet", tables, work / "graph", directed=True, memory=memory, **COLUMNS)
            cpu, seconds = time.process_time() - start, time.perf_counter() - wall
        print(f"--whole {seconds:.0f} {digest_of(work / 'graph')}", file=sys.stderr)
        for path in tables:
            path.unlink()
        start = time.process_time()
        graph = open_graph(work / "graph").adjacency
        opened = time.process_time() - start
        rows = unit_rows(work / "rows.npy", nodes)
        with Peak() as hop_peak:
            hop = medians({"disk": hopping(graph, DiskBackend(), rows, rounds)}, rounds)
        cold, wall, cached = from_the_disk(graph, rows)
        memory_hop = hopping(copied(graph), InMemoryBackend(), rows, rounds)
        hop |= medians({"memory": memory_hop, "again": hopping(graph, DiskBackend(), rows, rounds)}, rounds)
        hop["disk"] = hop.pop("again")  # alternating with the hop in memory
        folder_bytes = size_of(work / "graph")
    finally:
        shutil.rmtree(work)
    return {
        "prepare ns/edge": cpu / edges * 1e9,
        "RssAnon MB": peak.anonymous,
        "disk at most MB": peak.disk,
        "folder MB": folder_bytes / 1e6,
        "open ns/edge": opened / edges * 1e9,
        **{f"{name} ns/edge": seconds / edges * 1e9 for name, seconds in hop.items()},
        "hop RssAnon MB": hop_peak.anonymous,
        "cold ns/edge": cold / edges * 1e9,
        "cold wall ns/edge": wall / edges * 1e9,
        "cached MB": cached,
    }


def power_law(work: Path, nodes: int, edges: int) -> list[Path]:
    """Write a table of nodes and tables of edges; targets follow a power law."""
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
    """Return an in-memory copy of a graph on disk."""
    copies = graph.indptr.clone(), graph.indices.clone()
    return Adjacency._in_order(*copies, graph.directed, graph.edge_set)


def hopping(
    graph: Adjacency, backend: AggregationBackend, rows: torch.Tensor, rounds: int
) -> Callable[[], object]:
    """Return a function that runs a private hop by a backend; small graphs run one hop as warm-up."""
    queries = hops(1.0, 1, DIM, DirectedEdge()) * (rounds + 2)
    plan = ReleasePlan(DirectedEdge(), queries, delta=1e-3)
    release = Release.open(plan, graph, budget=MemoryLedger(), backend=backend)
    if graph.num_nodes < 10_000_000:  # hops of larger graphs do not need a warm-up
        release.answer(NeighborSumData(rows))
    return lambda: release.answer(NeighborSumData(rows)) is None


def from_the_disk(graph: Adjacency, rows: torch.Tensor) -> tuple[float, float, float]:
    """Return CPU and wall seconds of a hop whose edges are not in the page cache, and the cached MB."""
    assert graph.folder is not None
    path = graph.folder / SOURCES
    hop = hopping(graph, DiskBackend(), rows, 1)
    libc = ctypes.CDLL(None, use_errno=True)
    address, size = ctypes.c_void_p(graph.indices.data_ptr()), ctypes.c_size_t(4 * len(graph.indices))
    libc.madvise(address, size, _MADV_DONTNEED)  # mapped pages are not dropped otherwise
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    call = ["fincore", "--bytes", "--noheadings", "--output", "RES", str(path)]
    cached = float(subprocess.run(call, check=True, capture_output=True, text=True).stdout) / 1e6
    start, wall = time.process_time(), time.perf_counter()
    hop()
    return time.process_time() - start, time.perf_counter() - wall, cached


class Peak:
    """Peak anonymous memory of this process and peak size of a folder, in MB, sampled by a thread."""

    def __init__(self, folder: Path | None = None) -> None:
        """Set the folder."""
        self.anonymous = self.disk = 0.0
        self._folder, self._stopped = folder, threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> "Peak":
        """Start sampling."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop sampling."""
        self._stopped.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stopped.wait(0.1):
            status = Path("/proc/self/status").read_text()
            line = next(line for line in status.splitlines() if line.startswith("RssAnon"))
            self.anonymous = max(self.anonymous, int(line.split()[1]) / 1e3)
            if self._folder is not None:
                self.disk = max(self.disk, size_of(self._folder) / 1e6)


def size_of(folder: Path) -> int:
    """Return the bytes on disk of a folder's files; files may be deleted while they are counted."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.lstat().st_blocks * 512
        except OSError:
            continue
    return total


def interrupt(
    edges: int, nodes: int, memory: str, folder: Path | None, kills: int, known: tuple[str, str] | None
) -> None:
    """Send SIGKILL at random moments, restart, and print the counts."""
    work = Path(tempfile.mkdtemp(dir=folder))
    rng = np.random.default_rng()
    try:
        power_law(work, nodes, edges)
        whole, digest = run_uninterrupted(work, memory) if known is None else (float(known[0]), known[1])
        finished, rows_written = 0, []
        for number in range(kills):
            child = start_prepare(work, "graph", memory)
            if number % 2:
                wait_for_blocks(child, work / "graph", int(rng.integers(1, 4)))
            else:
                wait_seconds(child, float(rng.uniform(0, whole)))
            if child.poll() is None:
                child.send_signal(signal.SIGKILL)
                child.wait()
            rows_written.append(rows_done(work / "graph"))
            if child.returncode == 0:  # start from the beginning, so that every moment can be hit
                finished += 1
                assert digest_of(work / "graph") == digest
                shutil.rmtree(work / "graph")
        assert start_prepare(work, "graph", memory).wait() == 0
        assert digest_of(work / "graph") == digest
        open_graph(work / "graph")
    finally:
        shutil.rmtree(work)
    with_blocks = sum(rows > 0 for rows in rows_written)
    print(
        f"{kills} moments in a call of {whole:.0f} s: {kills - finished} kills, {with_blocks} with blocks "
        f"on disk; {finished + 1} calls finished, bit-identical to the uninterrupted call"
    )


def run_uninterrupted(work: Path, memory: str) -> tuple[float, str]:
    """Return the seconds of an uninterrupted call, and the digest of its files."""
    start = time.perf_counter()
    start_prepare(work, "whole", memory).wait()
    seconds, digest = time.perf_counter() - start, digest_of(work / "whole")
    shutil.rmtree(work / "whole")
    return seconds, digest


def wait_seconds(child: "subprocess.Popen[bytes]", seconds: float) -> None:
    """Wait a number of seconds, or until the process exits."""
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        return


def wait_for_blocks(child: "subprocess.Popen[bytes]", folder: Path, more: int) -> None:
    """Wait until a number of further blocks is on disk, or until the process exits."""
    last, left = rows_done(folder), more
    while child.poll() is None and left:
        time.sleep(0.002)
        if (rows := rows_done(folder)) > last:
            last, left = rows, left - 1


def start_prepare(work: Path, name: str, memory: str) -> "subprocess.Popen[bytes]":
    """Start `graphveil prepare`."""
    call = [sys.executable, "-m", "graphveil", "prepare", "--nodes", str(work / "nodes.parquet")]
    call += ["--edges", str(work / "edges-*.parquet"), "--out", str(work / name), "--directed"]
    call += [part for column, value in COLUMNS.items() for part in (f"--{column}", value)]
    return subprocess.Popen([*call, "--memory", memory], stdout=subprocess.DEVNULL)


def rows_done(folder: Path) -> int:
    """Return the number of rows in a folder's manifest."""
    path = folder / MANIFEST
    blocks = json.loads(path.read_text())["blocks"] if path.exists() else []
    return int(blocks[-1]["stop"]) if blocks else 0


def digest_of(folder: Path) -> str:
    """Return a digest of all files except the manifest, which contains a random key."""
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

"""Two nodes of Ray, whose processes are killed: bit-identical results or an error, and no secret on a disk.

Two node processes on one machine stand for two machines. Slow: each killed node is started again.
"""

import logging
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cluster.on_ray import MOMENTS, DeadlyRay, Kill, by_value, found
from graphveil.cluster.backend import import_ray
from graphveil.core.backends import AggregationBackend, InMemoryBackend
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.keys import ReleaseKey
from graphveil.core.ledger import MemoryLedger
from graphveil.core.plan import ReleasePlan, hops
from graphveil.core.queries.neighbor_sums import NeighborSumData
from graphveil.core.release import Release
from graphveil.core.unit import UndirectedEdge
from graphveil.errors import ReleaseError

pytest.importorskip("ray", reason="Ray is not installed (extra 'ray')")
pytestmark = pytest.mark.slow

NODES, DIM, BLOCK = 4000, 8, 250
FAST = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 4,
}
SPILL = {"object_spilling_threshold": 0.5, "min_spilling_size": 1}
STORE = 80 << 20


class Machines:
    """A head without workers, and nodes that have room for one each."""

    def __init__(self, count: int) -> None:
        from ray.cluster_utils import Cluster

        self.folder = Path(tempfile.mkdtemp(prefix="gv"))
        self._cluster = Cluster()
        self._add(
            num_cpus=0, _system_config={**FAST, **SPILL}, temp_dir=str(self.folder), include_dashboard=False
        )
        self._nodes = [self._add(num_cpus=1) for _ in range(count)]
        self._cluster.wait_for_nodes()
        import_ray().init(address=self._cluster.address, log_to_driver=False, logging_level="ERROR")

    def _add(self, **given: Any) -> Any:
        return self._cluster.add_node(object_store_memory=STORE, **given)

    def kill(self, number: int) -> None:
        """Kill a node's process, and with it what runs there, without a word."""
        for process in self._nodes[number].all_processes["raylet"]:
            os.kill(process.process.pid, signal.SIGKILL)

    def replace(self, number: int) -> None:
        """Put another node in a dead one's place."""
        node, self._nodes[number] = self._nodes[number], self._add(num_cpus=1)
        self._cluster.remove_node(node, allow_graceful=False)

    def end(self) -> None:
        import_ray().shutdown()
        self._cluster.shutdown()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture
def machines() -> Iterator[Machines]:
    ray = import_ray()
    ray.shutdown()
    by_value()
    logging.getLogger("ray").setLevel(logging.ERROR)
    made = Machines(2)
    yield made
    made.end()


def graph(edges: int = 60_000, nodes: int = NODES) -> Adjacency:
    ends = np.random.default_rng(0).integers(nodes, size=(2, edges))
    return Adjacency.from_edges(*ends, num_nodes=nodes, directed=False)


def released(backend: AggregationBackend, edges: Adjacency, dim: int = DIM) -> torch.Tensor:
    rows = torch.from_numpy(np.random.default_rng(1).normal(size=(edges.num_nodes, dim)))
    vectors = rows / rows.norm(dim=1, keepdim=True).clamp(min=1) * 0.999
    plan = ReleasePlan(UndirectedEdge(), hops(1.0, 1, dim), delta=1e-5)
    key = ReleaseKey.from_seed(5, "nodes")
    release = Release.open(plan, edges, budget=MemoryLedger(), key=key, backend=backend)
    return release.answer(NeighborSumData(vectors))


def test_twenty_kills_of_workers_and_of_nodes(machines: Machines, tmp_path: Path) -> None:
    edges, rng = graph(), np.random.default_rng(7)
    here = released(InMemoryBackend(), edges)
    keys, same, rejected = set[bytes](), 0, 0
    for kill in range(20):
        node = kill % 5 == 4
        row = int(rng.integers(NODES))
        files = Kill.prepare(tmp_path / "kill", MOMENTS[kill % 3], row, 0 if node else 1)
        backend = DeadlyRay(workers=2, block_rows=BLOCK, kill=files)
        number = int(rng.integers(2))
        timer = threading.Timer(float(rng.uniform(0, 0.2)), machines.kill, [number])
        if node:
            timer.start()
        try:
            assert torch.equal(released(backend, edges), here), f"kill {kill}: other noise was drawn"
            same += 1
        except ReleaseError:
            rejected += 1
        if node:
            timer.join()
            machines.replace(number)
        assert not list((tmp_path / "kill").iterdir())
        keys |= backend.sent_keys()
    assert same + rejected == 20 and same >= 15, f"{same} identical results, {rejected} errors"
    for key in keys:
        assert not found(key, machines.folder)


def test_spilled_values_reveal_nothing(machines: Machines) -> None:
    ray, edges = import_ray(), graph(3_000_000, 50_000)
    backend = DeadlyRay(workers=2)
    here = released(InMemoryBackend(), edges)
    assert torch.equal(released(backend, edges), here)
    canary = np.random.default_rng(2).bytes(32)
    plain = ray.put(np.frombuffer(canary * (1 << 15), np.uint8))  # a megabyte of it, as it is
    ballast = [ray.put(np.full(12 << 20, number, np.uint8)) for number in range(6)]
    assert torch.equal(released(backend, edges), here)  # of blocks that come back from the disk, or were kept
    assert found(canary, machines.folder), "the search finds nothing, or nothing was spilled"
    spilled = [file for file in machines.folder.rglob("*") if "spill" in str(file.parent) and file.is_file()]
    assert sum(file.stat().st_size for file in spilled) > 20 << 20
    table = backend.seen[0].sums.rows
    rows = getattr(table, "rows", table).numpy().tobytes()[:64]
    sources = edges.indices.numpy().tobytes()[:64]
    for secret in (*backend.sent_keys(), rows, sources):
        assert not found(secret, machines.folder)
    del plain, ballast

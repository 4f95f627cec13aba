"""The Ray backend: bit-identical results, also when workers are killed, and no key in any file."""

import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest
import torch
from release.test_disk_backend import drawn, stored
from release.test_memory_backend import QUERIES, THREE, answer_of, star, works

import graphveil as gv
from cluster.on_ray import DeadlyRay, Kill, by_value, found
from graphveil.cluster import backend as ray_backend
from graphveil.cluster.backend import RayBackend
from graphveil.core.backends import BlockWork, InMemoryBackend
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.blocks import EdgeBlock
from graphveil.core.keys import ReleaseKey
from graphveil.core.ledger import MemoryLedger, ledger_of
from graphveil.core.plan import ReleasePlan
from graphveil.core.release import Release
from graphveil.errors import ConfigError, ReleaseError

pytest.importorskip("ray", reason="Ray is not installed (extra 'ray')")

TWO = {"workers": 2}


def test_results_of_every_query_and_work_are_bit_identical(ray_here: Path, tmp_path: Path) -> None:
    many, few = RayBackend(**TWO, block_rows=7), RayBackend(**TWO)
    for name in QUERIES:
        here = answer_of(name, InMemoryBackend())
        assert torch.equal(answer_of(name, many), here), name
    assert torch.equal(
        answer_of("target_weighted", many, first_row=9), answer_of("target_weighted", InMemoryBackend())[9:]
    )
    graph = star(5)
    for work in works():
        one, other = (
            torch.cat([part.flatten() for part in backend.run(work, graph)])
            for backend in (InMemoryBackend(3), RayBackend(**TWO, block_rows=3))
        )
        assert torch.equal(one, other), type(work)
    on_disk = stored(tmp_path, drawn()).adjacency
    for name in ("target_weighted", "out_edges", "SigmoidCos", "counted"):
        here = _pending(name, drawn().adjacency, InMemoryBackend())
        assert torch.equal(_pending(name, on_disk, many), here), name
        assert torch.equal(_pending(name, on_disk, few, 9), here[9:]), name
    nothing = Adjacency.from_edges([], [], num_nodes=0, directed=False)
    assert not list(many.run(works()[4], nothing))


def _pending(name: str, graph: Adjacency, backend: object, first_row: int = 0) -> torch.Tensor:
    unit, query, data = QUERIES[name]
    plan, groups = ReleasePlan(unit, (query,), delta=1e-3), THREE if query.needs_groups else None
    key = ReleaseKey.from_seed(5, "backends")
    release = Release.open(
        plan,
        graph,
        groups,
        budget=MemoryLedger(),
        key=key,
        backend=backend,  # type: ignore[arg-type]
        first_row=first_row,
    )
    return release.answer(data)


def test_killed_workers_do_not_affect_results_and_no_key_is_in_a_file(ray_here: Path, tmp_path: Path) -> None:
    by_value()
    backend = DeadlyRay(**TWO, block_rows=5, kill=Kill.prepare(tmp_path / "kill", "end", 7))
    assert torch.equal(answer_of("target_weighted", backend), answer_of("target_weighted", InMemoryBackend()))
    assert not list((tmp_path / "kill").iterdir()), "no worker was killed"
    assert len(backend.sent_keys()) == 2
    assert not [file for key in backend.sent_keys() for file in found(key, ray_here)]


def test_a_block_that_kills_every_worker_fails_and_stays_charged(
    ray_here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_value()
    monkeypatch.setattr(ray_backend, "_REPEATS", 0)
    unit, query, data = QUERIES["target_weighted"]
    plan, ledger = ReleasePlan(unit, (query,), delta=1e-3), MemoryLedger()
    kill = Kill.prepare(tmp_path / "kill", "start", 7)
    backend = DeadlyRay(**TWO, block_rows=5, kill=kill)
    release = Release.open(plan, drawn().adjacency, THREE, budget=ledger, backend=backend)
    with pytest.raises(ReleaseError, match="stays charged"):
        release.answer(data)
    assert len(ledger.entries) == 1
    remaining = RayBackend(**TWO, block_rows=5)
    assert torch.equal(
        answer_of("target_weighted", remaining), answer_of("target_weighted", InMemoryBackend())
    )


class FailingWork(BlockWork):
    """Runs out of memory."""

    def __call__(self, edges: EdgeBlock) -> torch.Tensor:
        raise MemoryError


def test_the_error_of_a_worker_ends_the_query(ray_here: Path) -> None:
    pytest.importorskip("ray.cloudpickle").register_pickle_by_value(sys.modules[__name__])
    with pytest.raises(ReleaseError, match=r"a worker failed with MemoryError\. It stays charged"):
        list(RayBackend(**TWO).run(FailingWork(), star(5)))


@dataclass(frozen=True, eq=False, repr=False)
class Held(BlockWork):
    """Work whose blocks, but for the first, wait for a file."""

    inner: BlockWork
    file: str

    def __call__(self, edges: EdgeBlock) -> torch.Tensor:
        while edges.start and not Path(self.file).exists():
            time.sleep(0.01)
        return self.inner(edges)


@contextmanager
def interrupts() -> Iterator[None]:
    """Interrupt the main thread until it leaves the block: a callback may swallow one interrupt."""
    left, before = Event(), signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background process ignores it

    def send() -> None:
        while not left.wait(0.5):
            os.kill(os.getpid(), signal.SIGINT)

    thread = Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        left.set()
        thread.join()
        signal.signal(signal.SIGINT, before)


@dataclass(frozen=True)
class OutDegrees(BlockWork):
    """The number of a block's edges that each node sends."""

    num_nodes: int

    def __call__(self, edges: EdgeBlock) -> torch.Tensor:
        return torch.bincount(edges.sources, minlength=self.num_nodes)


def test_an_unfinished_query_does_not_affect_the_next_one(ray_here: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray.cloudpickle").register_pickle_by_value(sys.modules[__name__])
    backend, graph, work = RayBackend(**TWO, block_rows=1), star(15), OutDegrees(16)
    here = torch.cat(list(InMemoryBackend(1).run(work, graph)))
    file = tmp_path / "go"
    left = backend.run(Held(work, str(file)), graph)
    assert torch.equal(next(left), here[:16])
    file.touch()
    later = backend.run(work, graph)
    first = next(later)
    left.close()  # the end of what was left comes in the middle of the next one
    assert torch.equal(torch.cat([first, *later]), here)
    file.unlink()
    interrupted = backend.run(Held(work, str(file)), graph)
    assert torch.equal(next(interrupted), here[:16])  # others are under way, and wait
    with pytest.raises(KeyboardInterrupt) as kept, interrupts():
        list(interrupted)
    file.touch()
    assert torch.equal(torch.cat(list(backend.run(work, graph))), here)
    del kept


def test_queries_of_two_graphs_can_be_read_in_turn(ray_here: Path) -> None:
    pytest.importorskip("ray.cloudpickle").register_pickle_by_value(sys.modules[__name__])
    backend, graphs = RayBackend(**TWO, block_rows=1), (star(15), drawn().adjacency)
    works = [OutDegrees(graph.num_nodes) for graph in graphs]
    here = [list(InMemoryBackend(1).run(work, graph)) for work, graph in zip(works, graphs, strict=True)]
    left, right = (backend.run(work, graph) for work, graph in zip(works, graphs, strict=True))
    first, second = next(left), next(right)
    backend.check(graphs[1])
    assert torch.equal(torch.cat([first, *left]), torch.cat(here[0]))
    assert torch.equal(torch.cat([second, *right]), torch.cat(here[1]))


def test_rejects_another_cluster_and_more_threads_than_a_machine_has(ray_here: Path) -> None:
    pytest.importorskip("ray.cloudpickle").register_pickle_by_value(sys.modules[__name__])
    graph = star(5)
    RayBackend(**TWO).check(graph)
    with pytest.raises(ConfigError, match=r"connected to the Ray cluster.*ray\.shutdown"):
        RayBackend(address="192.0.2.77:1").check(graph)
    assert len(list(RayBackend(workers=1, threads=2).run(OutDegrees(6), graph))) == 1
    with pytest.raises(ConfigError, match="Request fewer threads"):
        RayBackend(threads=3).check(graph)


def test_a_fit_is_bit_identical(ray_here: Path) -> None:
    graph = gv.load_dataset("synthetic/tiny")
    settings = {"unit": "undirected-edge", "epsilon": 2.0, "delta": 1e-5, "seed": 3, "unsafe_noise_seed": 4}
    here, there = (
        gv.GAP(**settings).fit(graph, backend=backend)
        for backend in ("memory", RayBackend(**TWO, block_rows=40))
    )
    assert np.array_equal(np.asarray(here.predict_proba(None)), np.asarray(there.predict_proba(None)))


def test_rejects_a_folder_that_workers_cannot_read_before_budget_is_spent(
    ray_here: Path, tmp_path: Path
) -> None:
    graph = stored(tmp_path / "here", drawn())
    vars(graph.adjacency).update(folder=tmp_path / "there")  # as on a machine without the folder
    with pytest.raises(ConfigError, match="same path"):
        gv.GAP(unit="undirected-edge", epsilon=1.0).fit(graph, backend=RayBackend(**TWO))
    assert not ledger_of(graph.edge_set).entries


def test_rejects_workers_of_another_version(ray_here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_backend, "__version__", "9.9")
    with pytest.raises(ConfigError, match=r"this process has 9\.9"):
        RayBackend(**TWO).check(star(3))


def test_workers_with_other_code_are_not_treated_as_lost(
    ray_here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other_installation(*given: object) -> None:
        raise AttributeError("Block")

    monkeypatch.setattr(ray_backend, "compute_block", other_installation)
    with pytest.raises(ConfigError, match="nstall the same"):
        RayBackend(**TWO).check(star(3))


def test_code_of_the_documentation_runs(ray_here: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "scale-up.md"
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, page.name, "exec"), {"__name__": "__page__"})

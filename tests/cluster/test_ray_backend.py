"""The backend on Ray: every query answers with the same bytes, whoever dies, and no key is left anywhere."""

import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.cluster import worker_pool
from graphveil.cluster.backend import RayBackend
from graphveil.data import Adjacency
from graphveil.data.blocks import EdgeBlock
from graphveil.errors import ConfigError, ReleaseError
from graphveil.ledger import MemoryLedger, ledger_of
from graphveil.release import InMemoryBackend, Release, ReleaseKey, ReleasePlan
from graphveil.release.backends import BlockWork, RowRange
from graphveil.release.out_edge_sums import OutDegrees
from release import on_ray
from release.test_disk_engine import drawn, stored
from release.test_engines import ASKED, NODES, THREE, asked, star, works

pytest.importorskip("ray", reason="Ray is not installed (extra 'ray')")

TWO = {"workers": 2, "wait": 300.0}


def test_every_kind_of_query_and_of_work_has_the_same_bytes(ray_here: Path, tmp_path: Path) -> None:
    many, few = RayBackend(**TWO, block_rows=7), RayBackend(**TWO)
    for name in ASKED:
        here = asked(name, InMemoryBackend())
        assert torch.equal(asked(name, many), here), name
    assert torch.equal(
        asked("target_weighted", RowRange(9, many)), asked("target_weighted", InMemoryBackend())[9:]
    )
    graph = star(5)
    for work in works():
        one, other = (
            torch.cat([part.flatten() for part in backend.run(work, graph)])
            for backend in (InMemoryBackend(3), RayBackend(**TWO, block_rows=3))
        )
        assert torch.equal(one, other), type(work)
    found = stored(tmp_path, drawn()).adjacency
    for name in ("target_weighted", "push", "SigmoidCos", "counted"):
        here = _pending(name, drawn().adjacency, InMemoryBackend())
        assert torch.equal(_pending(name, found, many), here), name
        assert torch.equal(_pending(name, found, RowRange(9, few)), here[9:]), name
    nothing = Adjacency.from_edges([], [], num_nodes=0, directed=False)
    assert not list(many.run(works()[4], nothing))


def _pending(name: str, graph: Adjacency, backend: object) -> torch.Tensor:
    unit, query, data = ASKED[name]
    plan, groups = ReleasePlan(unit, (query,), delta=1e-3), THREE if query.needs_groups else None
    key = ReleaseKey.from_seed(5, "backends")
    release = Release.open(plan, graph, groups, budget=MemoryLedger(), key=key, backend=backend)  # type: ignore[arg-type]
    return release.answer(data)


def test_a_worker_that_dies_changes_nothing_and_no_secret_is_left(
    ray_here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_ray.by_value()
    monkeypatch.setattr(on_ray, "seen", [])
    backend, kill = on_ray.DeadlyRay(**TWO, block_rows=5), tmp_path / "kill"
    here = asked("target_weighted", InMemoryBackend())
    on_ray.kills(kill, 1)
    monkeypatch.setattr(on_ray, "plan", (str(kill), "end", 7))
    assert torch.equal(asked("target_weighted", backend), here)
    assert not list(kill.iterdir()), "nobody was killed"
    keys = {work.key for work in on_ray.seen} | {backend._worker_pool()._box.key}
    assert len(keys) == 2
    for key in keys:
        assert not on_ray.found(key, ray_here)


def test_a_block_that_nobody_survives_is_refused_and_stays_booked(
    ray_here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_ray.by_value()
    on_ray.kills(tmp_path / "kill", 1)
    monkeypatch.setattr(on_ray, "plan", (str(tmp_path / "kill"), "start", 7))
    unit, query, data = ASKED["target_weighted"]
    ledger = MemoryLedger()
    backend = on_ray.DeadlyRay(**TWO, block_rows=5, losses=0)
    plan = ReleasePlan(unit, (query,), delta=1e-3)
    release = Release.open(plan, drawn().adjacency, THREE, budget=ledger, backend=backend)
    with pytest.raises(ReleaseError, match="stays charged"):
        release.answer(data)
    assert len(ledger.entries) == 1
    monkeypatch.setattr(on_ray, "plan", None)
    assert torch.equal(
        asked("target_weighted", backend), asked("target_weighted", InMemoryBackend())
    )  # who is left goes on


@dataclass(frozen=True, eq=False, repr=False)
class Held(BlockWork):
    """Work whose blocks, but for the first, wait for a file."""

    inner: BlockWork
    file: str

    def __call__(self, edges: EdgeBlock) -> torch.Tensor:
        while edges.start and not Path(self.file).exists():
            time.sleep(0.01)
        return self.inner(edges)


def test_a_query_that_is_left_changes_nothing_of_the_next_one(
    ray_here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt) as kept:
        patch.setattr(worker_pool.RayWorkerPool, "wait_for_any", interrupt)
        list(interrupted)
    file.touch()
    assert torch.equal(torch.cat(list(backend.run(work, graph))), here)
    del kept


def interrupt(*given: object) -> None:
    """Interrupt a query where it waits for its workers."""
    raise KeyboardInterrupt


def test_a_query_does_not_go_on_behind_another_one(ray_here: Path) -> None:
    backend, graph = RayBackend(**TWO, block_rows=1), star(15)
    other = drawn().adjacency
    for begun in (lambda: list(backend.run(OutDegrees(NODES), other)), lambda: backend.check(other)):
        left = backend.run(OutDegrees(16), graph)
        next(left)
        begun()
        with pytest.raises(ReleaseError, match="another query was begun"):
            list(left)


def test_engines_share_workers_or_release_them_and_another_cluster_is_refused(ray_here: Path) -> None:
    first, graph = RayBackend(**TWO), star(5)
    first.check(graph)
    crew_there = first._worker_pool()
    for other in (RayBackend(workers=1), RayBackend(workers=2, wait=90.0, block_rows=2), RayBackend()):
        assert other._worker_pool() is crew_there and len(other._worker_pool().members(other.workers)) <= 2
    begun = time.monotonic()
    more = RayBackend(workers=3, wait=300.0)  # there is room for two, and the third may come
    assert more._worker_pool() is crew_there and len(list(more.run(OutDegrees(6), graph))) == 1
    with pytest.raises(ConfigError, match=r"joined to the cluster.*ray\.shutdown"):
        RayBackend(address="192.0.2.77:1").check(graph)
    assert time.monotonic() - begun < 60
    thick = RayBackend(workers=1, threads=2, wait=300.0)
    assert len(list(thick.run(OutDegrees(6), graph))) == 1
    assert thick._worker_pool() is not crew_there
    thick.stop()


def test_a_fit_has_the_same_bytes(ray_here: Path) -> None:
    graph = gv.load_dataset("synthetic/tiny")
    settings = {"unit": "undirected-edge", "epsilon": 2.0, "delta": 1e-5, "seed": 3, "unsafe_noise_seed": 4}
    here, there = (
        gv.GAP(**settings).fit(graph, backend=backend)
        for backend in ("memory", RayBackend(**TWO, block_rows=40))
    )
    assert np.array_equal(np.asarray(here.predict_proba(None)), np.asarray(there.predict_proba(None)))


def test_a_folder_that_workers_do_not_see_is_refused_before_anything_is_spent(
    ray_here: Path, tmp_path: Path
) -> None:
    found = stored(tmp_path / "here", drawn())
    vars(found.adjacency).update(folder=tmp_path / "there")  # what another machine has not
    with pytest.raises(ConfigError, match="same path"):
        gv.GAP(unit="undirected-edge", epsilon=1.0).fit(found, backend=RayBackend(**TWO))
    assert not ledger_of(found.edge_set).entries


def test_another_version_on_the_cluster_is_refused(ray_here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "__version__", "9.9")
    RayBackend().stop()
    with pytest.raises(ConfigError, match=r"and this is 9\.9") as kept:
        RayBackend(workers=1, wait=300.0).check(star(3))
    monkeypatch.undo()  # whoever was refused is let go, though the error that is kept knows the crew
    RayBackend(**TWO).check(star(3))
    assert kept and len(RayBackend(**TWO)._worker_pool().members()) == 2


def test_workers_that_do_not_know_a_call_are_not_taken_for_lost(ray_here: Path) -> None:
    backend = RayBackend(**TWO)
    backend.check(star(3))
    there = backend._worker_pool()
    with pytest.raises(ConfigError, match="install the same one"):
        there.fetch(there.members()[0].handle.take_key.remote(None))


def test_the_page_about_clusters_runs(ray_here: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "scale-up.md"
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, page.name, "exec"), {"__name__": "__page__"})  # our own page

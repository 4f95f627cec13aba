"""The disk backend answers every query as the memory backend does, and rejects files that change."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.core.backends import (
    BACKENDS,
    AggregationBackend,
    DiskBackend,
    InMemoryBackend,
    backend_for,
)
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.blocks import SOURCES
from graphveil.core.keys import ReleaseKey
from graphveil.core.ledger import MemoryLedger, ledger_of
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.row_counts import RowCountData, RowCountQuery
from graphveil.core.release import Release
from graphveil.core.unit import Row
from graphveil.data import Graph, open_graph
from graphveil.data.graph_files import OFFSETS
from graphveil.data.preparation import create_manifest, lock_folder, write_blocks
from graphveil.errors import ConfigError, GraphError
from release.test_memory_backend import NODES, QUERIES, THREE, answer_of

pytestmark = pytest.mark.usefixtures("quick_classcode")


def stored(folder: Path, graph: Graph, block_rows: int = 7) -> Graph:
    source, target = graph.adjacency.edge_index().numpy()
    keys = np.sort((target << 32) | source)
    with lock_folder(folder):
        manifest = create_manifest(folder, graph, "these", block_rows, "")
    write_blocks(folder, manifest, lambda row: iter([keys])).completed(folder)
    return open_graph(folder)


def drawn(edges: int = 60, nodes: int = NODES) -> Graph:
    rng = np.random.default_rng(1)
    ends, x = rng.integers(nodes, size=(2, edges)), torch.from_numpy(rng.normal(size=(nodes, 4)))
    return Graph.from_edges(x, np.arange(nodes) % 3, *ends, directed=False)


@pytest.mark.parametrize("name", [name for name in QUERIES if name != "GivenWeight"])
def test_every_query_answers_with_the_same_bytes(tmp_path: Path, name: str) -> None:
    graph = drawn()
    here = answer_of(name, InMemoryBackend(), graph.adjacency)
    found = stored(tmp_path, graph).adjacency
    for backend in (None, InMemoryBackend(), DiskBackend(), DiskBackend(5), DiskBackend(1)):
        assert torch.equal(answer_of(name, backend, found), here)
    assert torch.equal(answer_of(name, DiskBackend(4), found, first_row=9), here[9:])


@pytest.mark.parametrize("unit", ["undirected-edge", "node"])
@pytest.mark.parametrize("method", ["gap", "classcode"])
def test_a_fit_is_bit_identical_on_either_backend(tmp_path: Path, method: str, unit: str) -> None:
    graph = gv.load_dataset("synthetic/tiny")
    found = stored(tmp_path, graph, 20)
    settings = {"unit": unit, "epsilon": 2.0, "delta": 1e-5, "seed": 3, "unsafe_noise_seed": 4}
    models = {
        backend: gv.METHODS[method](**settings).fit(which, backend=backend)
        for backend, which in (("memory", graph), ("disk", found), (None, found))
    }
    here = models["memory"]
    for model in models.values():
        assert torch.equal(
            torch.as_tensor(model.predict_proba(None)), torch.as_tensor(here.predict_proba(None))
        )


def test_edges_in_memory_are_rejected_by_the_disk_backend_uncharged() -> None:
    graph = gv.load_dataset("synthetic/tiny")
    with pytest.raises(ConfigError, match="graphveil prepare"):
        gv.GAP(unit="undirected-edge", epsilon=1.0).fit(graph, backend="disk")
    assert not ledger_of(graph.edge_set).entries
    with pytest.raises(ConfigError, match="graphveil prepare"):
        backend_for(DiskBackend(), graph.adjacency)


def changed(path: Path, how: str) -> None:
    content = path.read_bytes()
    path.chmod(0o600)
    if how == "cut":
        os.truncate(path, 8)
    elif how == "written":  # as many bytes, in place
        with path.open("r+b") as file:
            file.write(content[:-1] + b"\x7f")
    elif how == "replaced":
        (path.parent / "other").write_bytes(content)
        (path.parent / "other").replace(path)
    else:
        path.unlink()


@pytest.mark.parametrize("name", [SOURCES, OFFSETS, "x.npy"])
@pytest.mark.parametrize("how", ["cut", "written", "replaced", "removed"])
def test_files_that_change_after_opening_are_rejected(tmp_path: Path, name: str, how: str) -> None:
    found = stored(tmp_path, drawn())
    edges = found.adjacency
    list(DiskBackend().blocks(edges))  # a graph that is one block is kept, and must not be believed either
    list(InMemoryBackend().blocks(edges))
    unit, query, data = QUERIES["out_edges"]
    plan, ledgers = ReleasePlan(unit, (query, query), delta=1e-3), (MemoryLedger(), MemoryLedger())
    release = Release.open(plan, edges, THREE, budget=ledgers[0])
    release.answer(data)
    changed(tmp_path / name, how)
    reads: list[Callable[[], object]] = [
        lambda: release.answer(data),
        lambda: Release.open(plan, edges, THREE, budget=ledgers[1]),
        lambda: list(DiskBackend().blocks(edges)),
        lambda: list(InMemoryBackend().blocks(edges)),
        lambda: InMemoryBackend().in_edges(edges, np.array([1, 2])),
        lambda: gv.GAP(unit="none", epochs=1).fit(gv.split(found)),
    ]
    for read in reads:
        with pytest.raises(GraphError, match=f"{name} was changed, replaced or removed"):
            read()
    assert not ledgers[1].entries


def test_a_folder_may_be_opened_by_a_relative_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(tmp_path / "graph", drawn())
    monkeypatch.chdir(tmp_path)
    found = open_graph("graph").adjacency
    monkeypatch.chdir("/")
    assert sum(map(len, DiskBackend(5).blocks(found))) == NODES


def test_names_are_of_a_closed_table(tmp_path: Path) -> None:
    found = stored(tmp_path, drawn()).adjacency
    with pytest.raises(ConfigError, match=rf"backend='dask' is not one of {', '.join(BACKENDS)}"):
        backend_for("dask", found)
    assert set(BACKENDS) == {"memory", "disk", "ray"}, (
        "a new backend in graphveil/core/backends.py needs a test like those of "
        "tests/release/test_disk_backend.py, and its name here"
    )
    assert {name: type(backend_for(name, found)) for name in ("memory", "disk")} == {
        "memory": InMemoryBackend,
        "disk": DiskBackend,
    }
    assert isinstance(backend_for(None, found), DiskBackend)
    assert type(backend_for(None, drawn().adjacency)) is InMemoryBackend
    kept = DiskBackend(3)
    assert backend_for(kept, found) is kept


def test_a_derived_graph_is_in_memory(tmp_path: Path) -> None:
    found = stored(tmp_path, drawn())
    keep = torch.arange(NODES) % 2 == 0
    part = found.subgraph(keep).adjacency
    assert part.folder is None and type(backend_for(None, part)) is InMemoryBackend
    assert torch.equal(part.indices, drawn().subgraph(keep).adjacency.indices)


def test_counts_of_rows_answer_with_the_same_bytes(tmp_path: Path) -> None:
    ends, groups = np.random.default_rng(1).integers(NODES, size=(2, 90)), torch.arange(NODES) % 2
    graph = Graph.from_edges(np.eye(NODES), np.arange(NODES) % 3, *ends, directed=True)
    found, key = stored(tmp_path, graph).adjacency, ReleaseKey.from_seed(5, "backends")
    plan = ReleasePlan(Row(), (RowCountQuery("owners", (True, False), 1.0, 9),), delta=1e-3)
    data = RowCountData(*(torch.arange(NODES) % 4 for _ in range(3)))

    def answer(edges: Adjacency, backend: AggregationBackend | None) -> torch.Tensor:
        return Release.open(plan, edges, groups, budget=MemoryLedger(), key=key, backend=backend).answer(data)

    here = answer(graph.adjacency, None)
    for backend in (None, InMemoryBackend(), DiskBackend(), DiskBackend(5), DiskBackend(1)):
        assert torch.equal(answer(found, backend), here)

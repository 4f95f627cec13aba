"""The task of a worker: what it opens, and its error texts; parameters of the backend, and its scheduling."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from release.test_disk_backend import drawn, stored
from release.test_memory_backend import SourceIds, star, works

from graphveil import __version__
from graphveil.cluster import backend
from graphveil.cluster.backend import (
    Block,
    RayBackend,
    SealedValue,
    SentGraph,
    UnansweredError,
    compute_block,
    recipient_key,
)
from graphveil.cluster.sealing import SecretBox, seal_to, seal_value
from graphveil.core.backends import BlockWork
from graphveil.core.edges.blocks import SOURCES, EdgeBlock, block_of
from graphveil.data.graph_files import StoredEdges, read_manifest
from graphveil.errors import ConfigError

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed (extra 'ray')")


@pytest.fixture
def box() -> SecretBox:
    return SecretBox()


def sealed(value: object, box: SecretBox) -> SealedValue:
    return "name", tuple(seal_value("name", value, box))


def computed(
    box: SecretBox, monkeypatch: pytest.MonkeyPatch, rows: tuple[int, int], edges: object, work: object
) -> Any:
    """Return the result of a task in this process, with parts that are no references."""
    monkeypatch.setattr("ray.get", lambda part: part)
    both = (None if one is None else sealed(one, box) for one in (edges, work))
    block: Block = (rows, *both)  # type: ignore[assignment]
    public = recipient_key().public
    assert compute_block(__version__, {}, block, torch.get_num_threads()) == public
    keys = {public: seal_to(public, box.key)}
    return compute_block(__version__, keys, block, torch.get_num_threads())


# -- workers -----------------------------------------------------------------------------------------------


@needs_ray
def test_a_worker_does_every_kind_of_work(box: SecretBox, monkeypatch: pytest.MonkeyPatch) -> None:
    edges = block_of(star(5), 0, 6)
    for work in works():
        result = computed(box, monkeypatch, (0, 6), edges, work)
        assert torch.equal(torch.from_numpy(result), work(edges)), type(work)


class FailingWork(BlockWork):
    """Fails with a value of the data in its message."""

    def __call__(self, edges: EdgeBlock) -> Any:
        raise ValueError(f"node {int(edges.sources[0])} is not there")


@needs_ray
def test_error_texts_contain_no_value(box: SecretBox, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray.cloudpickle").register_pickle_by_value(sys.modules[__name__])
    edges = block_of(star(5), 0, 2)
    words = computed(box, monkeypatch, (0, 2), edges, FailingWork())
    assert words == "a worker failed with ValueError"
    public, block = recipient_key().public, ((0, 2), sealed(edges, SecretBox()), None)
    assert "damaged" in str(compute_block(__version__, {public: seal_to(public, box.key)}, block, 1))
    assert "this process has 9.9" in str(compute_block("9.9", {}, block, 1))


@needs_ray
def test_a_worker_checks_the_files_of_a_stored_graph(
    box: SecretBox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, manifest = stored(tmp_path, drawn()).adjacency, read_manifest(tmp_path)
    assert manifest is not None and len(manifest.blocks) > 2
    edges = StoredEdges(tmp_path, manifest)
    for rows in ((0, 5), (5, 16), (16, graph.num_nodes)):
        result = computed(box, monkeypatch, rows, edges, SourceIds())
        assert torch.equal(torch.from_numpy(result), SourceIds()(block_of(graph, *rows)))
    assert not len(computed(box, monkeypatch, (0, 0), edges, None))  # the graph can be opened
    missing = StoredEdges(tmp_path / "none", manifest)
    assert "missing" in computed(box, monkeypatch, (0, 0), missing, None)
    content = bytearray((tmp_path / SOURCES).read_bytes())
    content[-4] ^= 1
    (tmp_path / SOURCES).write_bytes(content)
    assert not isinstance(computed(box, monkeypatch, (0, 5), edges, SourceIds()), str)  # without a change
    words = computed(box, monkeypatch, (16, graph.num_nodes), edges, SourceIds())
    assert f"block {len(manifest.blocks) - 1}" in words


# -- the backend -------------------------------------------------------------------------------------------


def test_without_ray_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['ray'] = None\n"
        "from graphveil.data import Adjacency\n"
        "from graphveil.errors import MissingDependencyError\n"
        "from graphveil.core.backends import backend_for\n"
        "edges = Adjacency.from_edges([0], [1], num_nodes=3, directed=False)\n"
        "try: backend_for('ray', edges)\n"
        "except MissingDependencyError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'graphveil[ray]'" in done.stdout


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"workers": 0}, "workers=0"),
        ({"threads": 0}, "threads=0"),
        ({"block_rows": 0}, "block_rows=0"),
        ({"address": "ray://head:10001"}, "proxy"),
    ],
)
def test_parameters_are_checked_before_anything_starts(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        RayBackend(**wrong)


@pytest.mark.parametrize(
    ("count", "workers", "number"),
    [(100, 4, 1), (117_000, 2, 2), (5_000_000, 2, 2), (10_000_000, 2, 4), (50_000_000, 4, 12)],
)
def test_each_worker_gets_equally_many_blocks(count: int, workers: int, number: int) -> None:
    step = RayBackend()._step(count, workers)
    assert -(-count // step) == number
    assert 1 << 10 <= step <= 1 << 22


@needs_ray
def test_usage_reports_of_ray_are_disabled() -> None:
    backend.import_ray()
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


# -- scheduling --------------------------------------------------------------------------------------------


class FakeRay:
    """Ray with processes that need a key, are lost, or are slow; tasks return the number of their block."""

    def __init__(self, processes: int, is_lost: Callable[[int], bool] = lambda block: False) -> None:
        self.is_lost, self.rng = is_lost, np.random.default_rng(processes)
        self.publics = [seal_public() for _ in range(processes)]
        self.requested: list[int] = []
        self.cancelled: list[object] = []
        self.tasks: list[tuple[dict[bytes, bytes], int]] = []

    exceptions = SimpleNamespace(RayError=OSError)

    def is_initialized(self) -> bool:
        return True

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": "here", "Alive": True, "Resources": {"CPU": float(len(self.publics))}}]

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": float(len(self.publics))}

    def remote(self, **given: Any) -> Any:
        self.given = given
        return lambda function: self

    def options(self, scheduling_strategy: str) -> Any:
        return SimpleNamespace(remote=self.submit)

    def submit(self, version: str, keys: dict[bytes, bytes], block: Block, threads: int) -> Any:
        self.tasks.append((keys, block[0][0]))
        return len(self.tasks) - 1

    def wait(self, tickets: list[Any], **given: Any) -> tuple[list[Any], list[Any]]:
        assert tickets, "a block is no longer requested"
        return [tickets[int(self.rng.integers(len(tickets)))]], []

    def get(self, ticket: Any) -> Any:
        keys, block = self.tasks[ticket]
        public = self.publics[int(self.rng.integers(len(self.publics)))]
        if public not in keys:
            return public
        self.requested.append(block)
        if self.is_lost(block):
            raise OSError
        return np.array([block])

    def cancel(self, ticket: object) -> None:
        self.cancelled.append(ticket)


def seal_public() -> bytes:
    from graphveil.cluster.sealing import RecipientKey

    return RecipientKey().public


def answers(ray: FakeRay, count: int, **given: Any) -> list[int]:
    tasks: list[tuple[Block, str]] = [
        (((number, number + 1), None, None), "SPREAD") for number in range(count)
    ]
    return [int(one[0]) for one in RayBackend(**given)._answers(ray, SentGraph(("01", "here")), tasks)]


@pytest.mark.parametrize("processes", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 7, 40])
def test_every_block_is_returned_once_and_in_order(processes: int, count: int) -> None:
    ray = FakeRay(processes)
    assert answers(ray, count) == list(range(count))
    assert Counter(ray.requested) == Counter(range(count)) and not ray.cancelled


def test_ray_repeats_a_block_and_the_query_fails_if_all_repetitions_are_lost() -> None:
    ray = FakeRay(2, lambda block: block == 4)
    with pytest.raises(UnansweredError, match="too many workers were lost"):
        answers(ray, 9)
    assert ray.given["max_retries"] == 3 and ray.cancelled


def test_too_many_new_processes_are_lost_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "_LOSSES", 5)
    ray, new = FakeRay(3), []
    get = ray.get

    def restarted(ticket: Any) -> Any:
        ray.publics = [seal_public() for _ in ray.publics]
        new.append(ray.publics)
        return get(ticket)

    ray.get = restarted  # type: ignore[method-assign]
    with pytest.raises(UnansweredError, match="too many workers were lost"):
        answers(ray, 9)
    assert len(new) == 3 + 5 + 1


def test_a_graph_is_sent_to_each_cluster_under_its_own_key() -> None:
    graphs, keys = (star(3), star(3)), set()
    # Joined twice, and the first process of another cluster, which has the same number.
    for worker, node in (("01", "a"), ("02", "a"), ("01", "b")):
        context = SimpleNamespace(get_worker_id=partial(str, worker), get_node_id=partial(str, node))
        ray = SimpleNamespace(get_runtime_context=lambda context=context: context)
        for graph in graphs:
            sent = backend._sent_graph(ray, graph)
            assert backend._sent_graph(ray, graph) is sent
            keys.add(sent.box.key)
    assert len(keys) == 6


def test_as_many_blocks_are_computed_at_a_time_as_there_are_workers() -> None:
    ray, most = FakeRay(8), []
    wait = ray.wait

    def watched(tickets: list[Any], **given: Any) -> tuple[list[Any], list[Any]]:
        most.append(len(tickets))
        return wait(tickets, **given)

    ray.wait = watched  # type: ignore[method-assign]
    answers(ray, 30, workers=3)
    assert max(most) == 3
    answers(ray, 30)
    assert max(most) == 16

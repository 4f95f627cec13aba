"""A worker's process: what it opens, what it remembers, and what it says when something is wrong."""

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from graphveil._util.sealed import SecretBox, seal_to
from graphveil.cluster import worker as ray_worker
from graphveil.cluster import worker_pool
from graphveil.cluster.backend import RayBackend
from graphveil.cluster.worker import _NO_WORK as NO_WORK
from graphveil.cluster.worker import SealedBlob, Worker, open_value, seal_value
from graphveil.data import Adjacency
from graphveil.data.blocks import EdgeBlock, block_of
from graphveil.data.stored_graph import SOURCES, StoredEdges, read_manifest
from graphveil.errors import ConfigError, MissingDependencyError, ReleaseError
from graphveil.release.backends import BlockWork, backend_for
from release.test_disk_engine import drawn, stored
from release.test_engines import SourceIds, star, works


def sent(name: str, value: object, box: SecretBox) -> SealedBlob:
    sizes, parts = seal_value(name, value, box)
    return SealedBlob(name, sizes, tuple(part.copy() for part in parts))


def worker(box: SecretBox) -> Worker:
    made = Worker(torch.get_num_threads(), lambda part: part)
    made.take_key(seal_to(made.handshake()[1], box.key))
    return made


needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed (extra 'ray')")


# -- parcels -----------------------------------------------------------------------------------------------


@needs_ray
@pytest.mark.parametrize("part", [64, 128, 1 << 20])
def test_values_arrive_as_they_were_and_parts_tell_nothing(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_worker, "PART", part)
    secret = b"the key of the noise, 32 bytes.."
    value = {"key": secret, "rows": torch.arange(100.0).reshape(25, 4), "codes": np.arange(3), "none": None}
    box = SecretBox()
    sealed_blob = sent("work", value, box)
    assert all(secret not in one.tobytes() for one in sealed_blob.parts)
    assert len(sealed_blob.parts) == -(-sealed_blob.size // part)
    back = open_value(sealed_blob, box, sealed_blob.parts)
    assert back["key"] == secret and torch.equal(back["rows"], value["rows"])  # type: ignore[arg-type]
    assert back["codes"].tolist() == [0, 1, 2] and back["none"] is None
    assert back["rows"].data_ptr() % 64 == 0
    back["rows"][0] = 1.0  # memory of its own


@needs_ray
def test_the_size_of_a_block_tells_no_degree() -> None:
    box, sizes = SecretBox(), set()
    for edges in (0, 1, 9, 500, 15_000):  # of one row, in a block of its own
        block = EdgeBlock(
            0, 1, torch.tensor([0, edges], dtype=torch.int32), torch.zeros(edges, dtype=torch.int32)
        )
        sealed_blob = sent("edges", block, box)
        sizes.add((sealed_blob.size, *map(len, sealed_blob.parts)))
        assert len(open_value(sealed_blob, box, sealed_blob.parts).sources) == edges
    assert len(sizes) == 1
    large = {ray_worker._coarse(size) for size in range(1 << 20, 1 << 21)}
    assert large == {1 << 20, 5 << 18, 6 << 18, 7 << 18, 1 << 21}  # to the next quarter step


@needs_ray
def test_parts_that_change_places_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_worker, "PART", 64)
    box = SecretBox()
    sealed_blob = sent("work", torch.arange(100.0), box)
    for wrong in (sealed_blob.parts[::-1], (sealed_blob.parts[0],) * len(sealed_blob.parts)):
        with pytest.raises(ReleaseError, match="damaged"):
            open_value(sealed_blob, box, wrong)
    for other in (sealed_blob._replace(name="other"), sealed_blob._replace(size=sealed_blob.size + 64)):
        with pytest.raises(ReleaseError, match="damaged"):
            open_value(other, box, sealed_blob.parts)
    with pytest.raises(ReleaseError, match="damaged"):
        open_value(sealed_blob, box, sealed_blob.parts[:-1])


# -- workers -----------------------------------------------------------------------------------------------


@needs_ray
def test_a_worker_does_every_kind_of_work_on_blocks_that_are_sent() -> None:
    box, graph = SecretBox(), star(5)
    one = worker(box)
    assert one.set_graph("star", None) == ""
    for work in works():
        one.begin("star", sent("query", work, box))
        edges = block_of(graph, 0, 6)
        got = one.block("query", (0, 6), sent("edges", edges, box))
        assert not isinstance(got, str) and torch.equal(torch.from_numpy(got), work(edges)), type(work)


@needs_ray
def test_blocks_are_remembered_for_one_graph() -> None:
    box, graph = SecretBox(), star(5)
    one = worker(box)
    one.set_graph("star", None)
    one.begin("star", sent("query", SourceIds(), box))
    first = one.block("query", (0, 2), sent("edges", block_of(graph, 0, 2), box))
    again = one.block("query", (0, 2), None)
    assert not isinstance(first, str) and not isinstance(again, str) and (first == again).all()
    one.set_graph("another", None)
    one.begin("another", sent("query", SourceIds(), box))
    assert str(one.block("query", (0, 2), None)) == "it failed with AssertionError"
    one.begin("star", sent("query", SourceIds(), box))
    assert str(one.block("query", (0, 2), None)) == "it cannot read the graph"


@needs_ray
def test_a_query_that_was_left_ends_nothing_of_the_next_one_and_gets_nothing_of_it() -> None:
    box, graph = SecretBox(), star(5)
    one, block = worker(box), sent("edges", block_of(graph, 0, 6), box)
    one.set_graph("star", None)
    one.begin("star", sent("left", works()[0], box))
    one.begin("star", sent("query", SourceIds(), box))
    assert str(one.block("left", (0, 6), block)) == NO_WORK
    one.end("left")  # late, as from an error's frame that somebody kept
    got = one.block("query", (0, 6), block)
    assert not isinstance(got, str)
    assert torch.equal(torch.from_numpy(got), SourceIds()(block_of(graph, 0, 6)))
    one.set_graph("another", None)  # and no work is done on a graph that it was not asked about
    assert str(one.block("query", (0, 6), block)) == NO_WORK


class Spoken(BlockWork):
    """Fails with a value of the data in its words."""

    def __call__(self, edges: EdgeBlock) -> Any:
        raise ValueError(f"node {int(edges.sources[0])} is not there")


@needs_ray
def test_what_goes_wrong_is_said_without_a_value() -> None:
    box, graph = SecretBox(), star(5)
    one = worker(box)
    one.set_graph("star", None)
    assert one.block("query", (0, 2), None) == NO_WORK
    one.begin("star", sent("query", Spoken(), box))
    assert (
        one.block("query", (0, 2), sent("edges", block_of(graph, 0, 2), box)) == "it failed with ValueError"
    )
    one.begin("star", sent("query", SourceIds(), SecretBox()))
    assert "damaged" in str(one.block("query", (0, 2), None))
    one.begin("star", sent("query", SourceIds(), box))
    one.end("query")
    assert isinstance(one.block("query", (0, 2), None), str)


# -- edges on shared storage -------------------------------------------------------------------------------


@needs_ray
def test_a_worker_reads_a_folder_and_refuses_what_is_not_what_was_opened(tmp_path: Path) -> None:
    graph = stored(tmp_path, drawn()).adjacency
    manifest = read_manifest(tmp_path)
    assert manifest is not None and len(manifest.blocks) > 2
    box = SecretBox()
    one = worker(box)
    assert one.set_graph("folder", sent("folder", StoredEdges(tmp_path, manifest), box)) == ""
    one.begin("folder", sent("query", SourceIds(), box))
    for rows in ((0, 5), (5, 16), (16, graph.num_nodes)):
        got = one.block("query", rows, None)
        want = SourceIds()(block_of(graph, *rows))
        assert not isinstance(got, str) and torch.equal(torch.from_numpy(got), want)
    stat = (tmp_path / SOURCES).stat()
    os.utime(tmp_path / SOURCES, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))  # of a file that was checked
    assert "was changed" in str(one.block("query", (0, 5), None))
    assert "missing" in one.set_graph("none", sent("f", StoredEdges(tmp_path / "none", manifest), box))
    bytes_there = bytearray((tmp_path / SOURCES).read_bytes())
    bytes_there[-4] ^= 1
    (tmp_path / SOURCES).write_bytes(bytes_there)
    assert one.set_graph("changed", sent("folder", StoredEdges(tmp_path, manifest), box)) == ""
    one.begin("changed", sent("query", SourceIds(), box))
    assert not isinstance(one.block("query", (0, 5), None), str)  # of a block that is as it was
    assert f"block {len(manifest.blocks) - 1}" in str(one.block("query", (16, graph.num_nodes), None))


# -- refusals ----------------------------------------------------------------------------------------------


def test_without_ray_the_engine_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependencyError, match=r"graphveil\[ray\]"):
        backend_for("ray", star(3))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"workers": 0}, "workers=0"),
        ({"threads": 0}, "threads=0"),
        ({"block_rows": 0}, "block_rows=0"),
        ({"losses": -1}, "losses=-1"),
        ({"wait": 0.0}, "wait=0.0"),
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
def test_each_worker_gets_as_many_blocks_neither_tiny_nor_huge(count: int, workers: int, number: int) -> None:
    step = RayBackend()._step(count, workers)
    assert -(-count // step) == number
    assert 1 << 10 <= step <= 1 << 22


def test_words_of_a_worker_are_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    class WorkerPool:
        def members(self, workers: int | None) -> list[None]:
            return [None]

        def run(self, *asked: object) -> Iterator[str]:
            yield "it failed with MemoryError"

    monkeypatch.setattr(RayBackend, "_worker_pool", lambda self: WorkerPool())
    adjacency = Adjacency.from_edges([0], [1], num_nodes=3, directed=False)
    with pytest.raises(ReleaseError, match="it failed with MemoryError; the release stays charged"):
        list(RayBackend().run(lambda edges: torch.zeros(0), adjacency))


def test_the_first_process_of_another_cluster_is_not_taken_for_the_same() -> None:
    def ray(worker: str, node: str) -> Any:
        context = SimpleNamespace(get_worker_id=lambda: worker, get_node_id=lambda: node)
        return SimpleNamespace(get_runtime_context=lambda: context)

    places = [("01", "a"), ("02", "a"), ("01", "b")]  # joined twice, and another cluster's first
    assert len({worker_pool.process_identity(ray(*place)) for place in places}) == 3


def test_ray_is_told_to_report_to_nobody() -> None:
    assert worker_pool._QUIET["RAY_USAGE_STATS_ENABLED"] == "0"

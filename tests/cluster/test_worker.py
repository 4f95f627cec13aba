"""The process of a worker: what it opens and keeps, and its error texts; parameters of the backend."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from release.test_disk_backend import drawn, stored
from release.test_memory_backend import SourceIds, star, works

from graphveil._util.sealed import SecretBox, seal_to
from graphveil.cluster import worker_pool
from graphveil.cluster.backend import RayBackend
from graphveil.cluster.worker import PART, SealedBlob, Worker, open_value, seal_value
from graphveil.core.backends import BlockWork
from graphveil.core.edges.blocks import SOURCES, EdgeBlock, block_of
from graphveil.data.stored_graph import StoredEdges, read_manifest
from graphveil.errors import ConfigError, ReleaseError

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed (extra 'ray')")
NO_WORK = "it was given no work for this query"


def sealed(name: str, value: object, box: SecretBox) -> SealedBlob:
    size, parts = seal_value(name, value, box)
    return SealedBlob(name, size, tuple(part.copy() for part in parts))


@pytest.fixture
def box() -> SecretBox:
    return SecretBox()


@pytest.fixture
def worker(box: SecretBox) -> Worker:
    """A worker with the key, and with a graph whose blocks are sent."""
    made = Worker(torch.get_num_threads(), lambda part: part)
    made.take_key(seal_to(made.handshake()[1], box.key))
    assert made.set_graph("star", None) == ""
    return made


# -- sealed values -----------------------------------------------------------------------------------------


@needs_ray
@pytest.mark.parametrize("rows", [25, PART // 32 + 25])  # of 32 bytes: one part, and two
def test_values_arrive_unchanged_and_parts_reveal_nothing(box: SecretBox, rows: int) -> None:
    secret = b"the key of the noise, 32 bytes.."
    table = torch.arange(4.0 * rows, dtype=torch.float64).reshape(rows, 4)
    value = {"key": secret, "rows": table, "codes": np.arange(3), "none": None}
    blob = sealed("work", value, box)
    assert all(secret not in one.tobytes() for one in blob.parts)
    assert len(blob.parts) == -(-blob.size // PART) == 1 + (rows > 25)
    back = open_value(blob, box, blob.parts)
    assert back["key"] == secret and torch.equal(back["rows"], table)
    assert back["codes"].tolist() == [0, 1, 2] and back["none"] is None
    assert back["rows"].data_ptr() % 64 == 0
    back["rows"][0] = 1.0  # memory of its own


@needs_ray
def test_the_size_of_a_block_does_not_depend_on_its_degrees(box: SecretBox) -> None:
    sizes = set()
    for edges in (0, 1, 9, 500, 15_000):  # of one row, in a block of its own
        ends = torch.tensor([0, edges], dtype=torch.int32), torch.zeros(edges, dtype=torch.int32)
        blob = sealed("edges", EdgeBlock(0, 1, *ends), box)
        sizes.add((blob.size, *map(len, blob.parts)))
        assert len(open_value(blob, box, blob.parts).sources) == edges
    assert len(sizes) == 1
    larger = {seal_value("rows", np.zeros(1 << 20 | count << 16, np.uint8), box)[0] for count in range(1, 16)}
    assert larger == {5 << 18, 6 << 18, 7 << 18, 1 << 21}  # to the next quarter step


@needs_ray
def test_rejects_parts_that_are_exchanged_or_missing(box: SecretBox) -> None:
    blob = sealed("work", torch.zeros(PART // 8 + 25, dtype=torch.float64), box)
    first, second = blob.parts
    for parts in ((second, first), (first, first), (first,)):
        with pytest.raises(ReleaseError, match="damaged"):
            open_value(blob, box, parts)
    for other in (blob._replace(name="other"), blob._replace(size=blob.size + 64)):
        with pytest.raises(ReleaseError, match="damaged"):
            open_value(other, box, blob.parts)


# -- workers -----------------------------------------------------------------------------------------------


@needs_ray
def test_a_worker_does_every_kind_of_work(worker: Worker, box: SecretBox) -> None:
    edges = block_of(star(5), 0, 6)
    for work in works():
        worker.begin("star", sealed("query", work, box))
        result = worker.block("query", (0, 6), sealed("edges", edges, box))
        assert not isinstance(result, str) and torch.equal(torch.from_numpy(result), work(edges)), type(work)


@needs_ray
def test_a_worker_keeps_the_blocks_of_one_graph(worker: Worker, box: SecretBox) -> None:
    worker.begin("star", sealed("query", SourceIds(), box))
    first = worker.block("query", (0, 2), sealed("edges", block_of(star(5), 0, 2), box))
    again = worker.block("query", (0, 2), None)
    assert not isinstance(first, str) and not isinstance(again, str) and (first == again).all()
    worker.set_graph("another", None)
    worker.begin("another", sealed("query", SourceIds(), box))
    assert str(worker.block("query", (0, 2), None)) == "a worker failed with AssertionError"
    worker.begin("star", sealed("query", SourceIds(), box))
    assert str(worker.block("query", (0, 2), None)) == "it cannot read the graph"


@needs_ray
def test_an_unfinished_query_does_not_affect_the_next_one(worker: Worker, box: SecretBox) -> None:
    edges = block_of(star(5), 0, 6)
    block = sealed("edges", edges, box)
    worker.begin("star", sealed("left", works()[0], box))
    worker.begin("star", sealed("query", SourceIds(), box))
    assert str(worker.block("left", (0, 6), block)) == NO_WORK
    worker.end("left")  # late, as from the frame of an error that was kept
    result = worker.block("query", (0, 6), block)
    assert not isinstance(result, str) and torch.equal(torch.from_numpy(result), SourceIds()(edges))
    worker.set_graph("another", None)  # no work is done on a graph that it was not requested for
    assert str(worker.block("query", (0, 6), block)) == NO_WORK


class FailingWork(BlockWork):
    """Fails with a value of the data in its message."""

    def __call__(self, edges: EdgeBlock) -> Any:
        raise ValueError(f"node {int(edges.sources[0])} is not there")


@needs_ray
def test_error_texts_contain_no_value(worker: Worker, box: SecretBox) -> None:
    block = sealed("edges", block_of(star(5), 0, 2), box)
    assert worker.block("query", (0, 2), None) == NO_WORK
    worker.begin("star", sealed("query", FailingWork(), box))
    assert worker.block("query", (0, 2), block) == "a worker failed with ValueError"
    worker.begin("star", sealed("query", SourceIds(), SecretBox()))
    assert "damaged" in str(worker.block("query", (0, 2), None))
    worker.begin("star", sealed("query", SourceIds(), box))
    worker.end("query")
    assert isinstance(worker.block("query", (0, 2), None), str)


@needs_ray
def test_a_worker_checks_the_files_of_a_stored_graph(worker: Worker, box: SecretBox, tmp_path: Path) -> None:
    graph, manifest = stored(tmp_path, drawn()).adjacency, read_manifest(tmp_path)
    assert manifest is not None and len(manifest.blocks) > 2
    edges = sealed("folder", StoredEdges(tmp_path, manifest), box)
    assert worker.set_graph("folder", edges) == ""
    worker.begin("folder", sealed("query", SourceIds(), box))
    for rows in ((0, 5), (5, 16), (16, graph.num_nodes)):
        result = worker.block("query", rows, None)
        expected = SourceIds()(block_of(graph, *rows))
        assert not isinstance(result, str) and torch.equal(torch.from_numpy(result), expected)
    stat = (tmp_path / SOURCES).stat()
    os.utime(tmp_path / SOURCES, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))  # after it was checked
    assert "was changed" in str(worker.block("query", (0, 5), None))
    missing = sealed("f", StoredEdges(tmp_path / "none", manifest), box)
    assert "missing" in worker.set_graph("none", missing)
    content = bytearray((tmp_path / SOURCES).read_bytes())
    content[-4] ^= 1
    (tmp_path / SOURCES).write_bytes(content)
    assert worker.set_graph("changed", edges._replace(name="folder")) == ""
    worker.begin("changed", sealed("query", SourceIds(), box))
    assert not isinstance(worker.block("query", (0, 5), None), str)  # a block without a change
    assert f"block {len(manifest.blocks) - 1}" in str(worker.block("query", (16, graph.num_nodes), None))


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
def test_each_worker_gets_equally_many_blocks(count: int, workers: int, number: int) -> None:
    step = RayBackend()._step(count, workers)
    assert -(-count // step) == number
    assert 1 << 10 <= step <= 1 << 22


def test_each_process_of_each_cluster_has_its_own_identity() -> None:
    def ray(worker: str, node: str) -> Any:
        context = SimpleNamespace(get_worker_id=lambda: worker, get_node_id=lambda: node)
        return SimpleNamespace(get_runtime_context=lambda: context)

    places = [("01", "a"), ("02", "a"), ("01", "b")]  # joined twice, and the first of another cluster
    assert len({worker_pool.process_identity(ray(*place)) for place in places}) == 3


@needs_ray
def test_usage_reports_of_ray_are_disabled() -> None:
    worker_pool.import_ray()
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"

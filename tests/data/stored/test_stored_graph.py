"""Graphs on disk: blocks of sorted edges, resumed writes, and errors that name damaged files."""

import json
import resource
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse

from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.blocks import SOURCES
from graphveil.data import Graph, open_graph
from graphveil.data.graph_files import MANIFEST, OFFSETS, Manifest, ManifestBlock, keyed_sum, read_manifest
from graphveil.data.preparation import Keys, Sorted, create_manifest, lock_folder, write_blocks
from graphveil.errors import GraphError

NODES, BATCH = 50, 17


def drawn(directed: bool = False, edges: int = 300) -> Graph:
    rng = np.random.default_rng(edges)
    ends = rng.integers(NODES - 9, size=(2, edges))  # the last nodes have no edges
    x = rng.normal(size=(NODES, 3)).astype(np.float32)
    ids = np.array([f"n{place}" for place in range(NODES)])
    return Graph.from_edges(
        x,
        np.arange(NODES) % 3,
        *ends,
        directed=directed,
        ids=ids,
        class_names=("a", "b", "c"),
        notes=("a note",),
    ).with_split(*(torch.arange(NODES) % 4 == part for part in range(3)))


def edges_of(graph: Graph) -> Sorted:
    """Yield a graph's edges in batches, each edge twice."""
    source, target = graph.adjacency.edge_index().numpy()
    keys = np.sort(np.repeat((target << 32) | source, 2))

    def sorted_from(row: int) -> Iterator[Keys]:
        own = keys[keys >> 32 >= row]
        yield from (own[first : first + BATCH] for first in range(0, len(own), BATCH))

    return sorted_from


def started(folder: Path, graph: Graph, block_rows: int = 8) -> Manifest:
    with lock_folder(folder):
        return create_manifest(folder, graph, "these", block_rows, "")


def written(folder: Path, graph: Graph, block_rows: int = 8) -> Graph:
    write_blocks(folder, started(folder, graph, block_rows), edges_of(graph)).completed(folder)
    return open_graph(folder)


def same(one: Adjacency, other: Adjacency) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.arrays, other.arrays, strict=True))


@pytest.mark.parametrize("block_rows", [1, 7, 8, 50, 1000])
@pytest.mark.parametrize("directed", [True, False])
def test_opened_graph_is_the_written_graph(tmp_path: Path, directed: bool, block_rows: int) -> None:
    graph = drawn(directed)
    found = written(tmp_path, graph, block_rows)
    assert same(found.adjacency, graph.adjacency)
    assert found.adjacency.folder == tmp_path and found.directed == directed
    assert torch.equal(torch.as_tensor(found.x), torch.as_tensor(graph.x)) and torch.equal(found.y, graph.y)
    assert found.ids is not None and graph.ids is not None and found.ids.tolist() == graph.ids.tolist()
    assert (found.class_names, found.notes, found.name) == (graph.class_names, graph.notes, graph.name)
    assert all(torch.equal(found.masks[name], mask) for name, mask in graph.masks.items())


def test_sparse_features_and_graphs_without_ids_or_edges_are_kept(tmp_path: Path) -> None:
    graph = drawn().replace(x=sparse.csr_array(np.eye(NODES, 9, dtype=np.float32)), ids=None)
    found = written(tmp_path / "sparse", graph)
    assert isinstance(found.x, sparse.csr_array) and (found.x != graph.x).nnz == 0 and found.ids is None
    empty = drawn(edges=0)
    assert same(written(tmp_path / "empty", empty).adjacency, empty.adjacency)


def test_edges_and_features_are_mapped_and_not_loaded(tmp_path: Path) -> None:
    found = written(tmp_path, drawn())
    arrays = *found.adjacency.arrays, torch.as_tensor(found.x)
    mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if str(tmp_path) in line]
    places = [tuple(int(end, 16) for end in line.split()[0].split("-")) for line in mapped]
    for array in arrays:
        assert any(first <= array.data_ptr() < last for first, last in places)


def test_equal_graphs_in_two_folders_have_different_edge_sets_and_checksums(tmp_path: Path) -> None:
    first, second = written(tmp_path / "a", drawn()), written(tmp_path / "b", drawn())
    assert open_graph(tmp_path / "a").edge_set is first.edge_set
    assert second.edge_set is not first.edge_set
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    one, other = (read_manifest(tmp_path / name) for name in "ab")
    assert one is not None and other is not None
    assert not {block.sources for block in one.blocks} & {block.sources for block in other.blocks}
    assert not set(one.arrays.values()) & set(other.arrays.values())


# -- interrupted writes ----


class Killed(BaseException):
    pass


@pytest.mark.parametrize("more", [b"", b"half a block"])
@pytest.mark.parametrize("after", range(0, 66, 11))
def test_an_interrupted_write_resumes_after_its_last_block(tmp_path: Path, after: int, more: bytes) -> None:
    graph = drawn()
    written(tmp_path / "whole", graph)
    folder = tmp_path / "killed"
    manifest = started(folder, graph)

    def killed(row: int) -> Iterator[Keys]:
        yield from islice(edges_of(graph)(row), after)
        raise Killed

    with pytest.raises(Killed):
        write_blocks(folder, manifest, killed).completed(folder)
    for name in (SOURCES, OFFSETS):  # bytes of a block that the manifest does not name
        with (folder / name).open("ab") as file:
            file.write(more)
    left = read_manifest(folder)
    assert left is not None and not left.complete
    with pytest.raises(GraphError, match="was interrupted"):
        open_graph(folder)
    first: list[int] = []
    resumed = edges_of(graph)
    write_blocks(folder, left, lambda row: first.append(row) or resumed(row)).completed(folder)
    assert first == [left.rows]
    for name in (SOURCES, OFFSETS):
        assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert same(open_graph(folder).adjacency, graph.adjacency)


def test_a_full_disk_is_reported_with_the_folder(tmp_path: Path) -> None:
    manifest, limits = started(tmp_path, drawn()), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))
    try:
        with pytest.raises(
            GraphError, match=f"{tmp_path} has too little free disk space.*same command again"
        ):
            write_blocks(tmp_path, manifest, edges_of(drawn()))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    write_blocks(tmp_path, manifest, edges_of(drawn())).completed(tmp_path)
    assert same(open_graph(tmp_path).adjacency, drawn().adjacency)


# -- damage ----

FILES = (SOURCES, OFFSETS, "x.npy", "y.npy", "train_mask.npy", "ids.parquet")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stored") / "good"
    written(folder, drawn())
    return folder


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", ["missing", "cut", "longer", "flipped", "empty"])
def test_damaged_files_are_named(good: Path, tmp_path: Path, name: str, how: str) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(good, folder)
    content = bytearray((folder / name).read_bytes())
    if how == "missing":
        (folder / name).unlink()
    else:
        content[len(content) // 2] ^= 4
        shorter = {"cut": content[:-4], "longer": content + b"1234", "flipped": content, "empty": b""}
        (folder / name).write_bytes(shorter[how])
    with pytest.raises(GraphError, match=f"{name} is damaged, incomplete or missing"):
        open_graph(folder)


def test_a_damaged_block_is_named_by_its_number(good: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(good, folder)
    manifest = read_manifest(folder)
    assert manifest is not None
    content = bytearray((folder / SOURCES).read_bytes())
    content[4 * manifest.blocks[2].edges] ^= 1
    (folder / SOURCES).write_bytes(content)
    with pytest.raises(GraphError, match=f"block 3 of .*{SOURCES}"):
        open_graph(folder)


@pytest.mark.parametrize("edges", [[1, 1, 4], [4, 1, 2], [0, 1, 2], [1, 2, NODES], [-1, 1, 2]])
def test_rejects_rows_of_no_graph_even_with_matching_checksums(tmp_path: Path, edges: list[int]) -> None:
    manifest = started(tmp_path, drawn(True, edges=0), block_rows=NODES)
    sources = np.array(edges, dtype="<i4")  # of node 0
    ends = np.full(NODES, len(edges), dtype="<i8")
    (tmp_path / SOURCES).write_bytes(sources.tobytes())
    (tmp_path / OFFSETS).write_bytes(bytes(8) + ends.tobytes())
    sums = {"sources": keyed_sum(manifest.key, sources), "offsets": keyed_sum(manifest.key, ends)}
    block = ManifestBlock(stop=NODES, edges=len(edges), **sums)
    manifest.model_copy(update={"blocks": [block]}).completed(tmp_path)
    with pytest.raises(GraphError, match="block 0"):
        open_graph(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"nodes": -1},
        {"blocks": [{}]},
        {"key": "no key"},
        {"more": 1},
        {"nodes": "50"},
        {"format": "other"},
        {"directed": True},
        {"released": "abc"},
        {"facts": {}},
        {"seal": ""},
    ],
)
def test_rejects_a_damaged_manifest_without_quoting_it(
    good: Path, tmp_path: Path, change: dict[str, object]
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(good, folder)
    plain = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(plain | change))
    with pytest.raises(GraphError, match=r"manifest.json (is damaged|does not have the format)") as error:
        open_graph(folder)
    assert plain["key"] not in str(error.value)


def test_rejects_a_truncated_manifest(good: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(good, folder)
    for content in ("[" * 100_000, "[]", "", (folder / MANIFEST).read_text()[:-9]):
        (folder / MANIFEST).write_text(content)
        with pytest.raises(GraphError, match=r"manifest.json is damaged"):
            open_graph(folder)


@pytest.mark.parametrize("name", [SOURCES, OFFSETS])
def test_a_write_does_not_resume_after_a_block_was_truncated(tmp_path: Path, name: str) -> None:
    manifest = write_blocks(tmp_path, started(tmp_path, drawn()), edges_of(drawn()))
    left = manifest.model_copy(update={"blocks": manifest.blocks[:3]})
    with (tmp_path / name).open("ab") as file:
        file.truncate(20)
    with pytest.raises(GraphError, match=f"{name} is damaged, incomplete or missing"):
        write_blocks(tmp_path, left, edges_of(drawn()))


def test_rejects_a_folder_without_a_manifest(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="does not contain a prepared graph"):
        open_graph(tmp_path)

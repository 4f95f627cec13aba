"""A prepared folder becomes a graph whose edges and features are mapped into memory, not loaded."""

from __future__ import annotations

import os
from os import PathLike
from pathlib import Path
from typing import BinaryIO
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
import numpy.typing as npt
import torch

from graphveil._util.files import as_path
from graphveil.data.adjacency import Adjacency
from graphveil.data.graph import Graph
from graphveil.data.identity import EdgeSet
from graphveil.data.stored.arrays import mapped_files, read_arrays
from graphveil.data.stored.file_stamps import Stamp, remember_stamps
from graphveil.data.stored.manifest import (
    OFFSETS,
    SOURCES,
    Manifest,
    damaged_file_error,
    keyed_sum,
    read_manifest,
)
from graphveil.errors import GraphError

_edge_sets: WeakValueDictionary[str, EdgeSet] = WeakValueDictionary()  # by the folder's own key
_manifests: WeakKeyDictionary[Adjacency, Manifest] = WeakKeyDictionary()


def open_graph(folder: str | PathLike[str]) -> Graph:
    """Open a graph that ``graphveil prepare`` wrote; its edges stay on the disk.

    Every file is read once, and refused if it is not as it was written. Afterwards the operating system keeps
    in memory what there is room for: what a fit reads of edges are pages of files, block by block. Opened
    twice in one process, the graph has one edge set, and so one budget.

    Files that are changed, replaced or removed while the graph is open are refused, by name, before the next
    pass over its edges; a change within a pass may end the process.

    Raises:
        GraphError: there is no prepared graph, it is not finished, or a file of it is damaged, cut short or
            missing, which is named.
    """
    path = as_path(folder, "folder")
    manifest = read_manifest(path)
    if manifest is None:
        raise GraphError(f"{path} holds no prepared graph; make one with graphveil prepare --out {path}")
    if not manifest.complete:
        raise GraphError(f"{path} is not finished; give the same graphveil prepare again, which goes on")
    absolute = path.absolute()  # wherever the process goes
    stamps = [Stamp.from_file(absolute / name) for name in (OFFSETS, SOURCES, *mapped_files(manifest.arrays))]
    fields = read_arrays(path, manifest.arrays, manifest.facts, manifest.key)
    indptr = mapped(path / OFFSETS, "<i8", manifest.nodes + 1)
    indices = mapped(path / SOURCES, "<i4", manifest.edges)
    _check_blocks(path, manifest, indptr, indices)
    edge_set = _edge_sets.get(manifest.key)
    if edge_set is None:
        edge_set = _edge_sets[manifest.key] = EdgeSet(released=manifest.released)
    adjacency = Adjacency._in_order(
        torch.from_numpy(indptr), torch.from_numpy(indices), manifest.directed, edge_set, folder=absolute
    )
    remember_stamps(adjacency, stamps)
    _manifests[adjacency] = manifest
    return Graph(adjacency=adjacency, **fields)


def manifest_of(adjacency: Adjacency) -> Manifest:
    """Return what an opened graph's folder said when it was opened, whatever lies there by now."""
    return _manifests[adjacency]


def has_split(folder: Path) -> bool:
    """Whether a prepared graph, finished or not, has a split of its own."""
    manifest = read_manifest(folder)
    return manifest is not None and "train_mask.npy" in manifest.arrays


def sources_of(adjacency: Adjacency) -> BinaryIO:
    """Open the file that an opened graph's edges are mapped from."""
    assert adjacency.folder is not None
    return (adjacency.folder / SOURCES).open("rb")


def read_ahead(file: BinaryIO, adjacency: Adjacency, row: int, rows: int) -> None:
    """Ask the system to read the edges into some rows from its disk, where it can be asked."""
    if hasattr(os, "posix_fadvise"):
        start, stop = (int(adjacency.indptr[min(end, adjacency.num_nodes)]) for end in (row, row + rows))
        os.posix_fadvise(file.fileno(), 4 * start, 4 * (stop - start), os.POSIX_FADV_WILLNEED)


def mapped(path: Path, dtype: str, count: int) -> npt.NDArray[np.integer]:
    """Return a file's numbers, mapped; refuse a file of another length.

    Raises:
        GraphError: the file is missing, or longer or shorter than its manifest says.
    """
    size = np.dtype(dtype).itemsize * count
    if not path.is_file() or path.stat().st_size != size:
        raise damaged_file_error(path)
    return np.asarray(np.memmap(path, dtype=dtype, mode="c")) if count else np.empty(0, dtype=dtype)


def _check_blocks(
    folder: Path, manifest: Manifest, indptr: npt.NDArray[np.integer], indices: npt.NDArray[np.integer]
) -> None:
    """Refuse blocks that are not as they were written, or that no graph has."""
    if indptr[0] != 0 or manifest.rows != manifest.nodes:
        raise damaged_file_error(folder / OFFSETS, "the start")
    for number in range(len(manifest.blocks)):
        check_block(folder, manifest, number, indptr, indices)


def check_block(
    folder: Path,
    manifest: Manifest,
    number: int,
    indptr: npt.NDArray[np.integer],
    indices: npt.NDArray[np.integer],
) -> None:
    """Refuse a block that is not as it was written, or that no graph has.

    Raises:
        GraphError: it is damaged; the message names it.
    """
    block, before = manifest.blocks[number], manifest.blocks[number - 1] if number else None
    row, edge = (0, 0) if before is None else (before.stop, before.edges)
    ends, sources = indptr[row + 1 : block.stop + 1], indices[edge : block.edges]
    if keyed_sum(manifest.key, ends) != block.offsets or indptr[row] != edge:
        raise damaged_file_error(folder / OFFSETS, f"block {number}")
    same = keyed_sum(manifest.key, sources) == block.sources
    if not same or not _in_order(indptr[row : block.stop + 1], sources, row, manifest.nodes):
        raise damaged_file_error(folder / SOURCES, f"block {number}")


def _in_order(
    bounds: npt.NDArray[np.integer], sources: npt.NDArray[np.integer], row: int, nodes: int
) -> bool:
    """Whether a block's rows list nodes in ascending order, once each and never the row itself."""
    counts = np.diff(bounds)
    if (counts < 0).any() or bounds[-1] - bounds[0] != len(sources):
        return False
    targets = np.repeat(np.arange(row, row + len(counts)), counts)
    ascends = (np.diff(sources) > 0) | (np.diff(targets) > 0)
    inside = not len(sources) or (sources.min() >= 0 and sources.max() < nodes)
    return bool(inside and ascends.all() and (targets != sources).all())

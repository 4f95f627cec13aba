"""Sorted edges become destination blocks on disk; a killed process goes on behind the last one.

Blocks are appended to two files: the sources of all edges by target, 32 bits each, and where each row ends. A
block counts once the manifest names it, which happens after its bytes are on the disk.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from graphveil.data.stored.manifest import (
    OFFSETS,
    SOURCES,
    Manifest,
    ManifestBlock,
    damaged_file_error,
    keyed_sum,
)
from graphveil.errors import GraphError

Keys = npt.NDArray[np.int64]  # target * 2^32 + source
Sorted = Callable[[int], Iterator[Keys]]  # the edges into rows from one on, ascending, with any repeats

SHIFT = 32


def write_blocks(folder: Path, manifest: Manifest, edges: Sorted) -> Manifest:
    """Append the blocks that a manifest lacks, and return it with all of them.

    Args:
        folder: where to.
        manifest: what is done.
        edges: yields sorted batches of edges into rows from one on.

    Raises:
        GraphError: the disk is full; what is done stays, and the same call goes on behind it. Or what was
            done is not there.
    """
    with (
        full_disk_named(folder),
        (folder / SOURCES).open("ab") as sources,
        (folder / OFFSETS).open("ab") as ends,
    ):
        _cut(sources, folder / SOURCES, 4 * manifest.edges)
        _cut(ends, folder / OFFSETS, 8 * (manifest.rows + 1) if manifest.blocks else 0)
        if not manifest.blocks:
            ends.write(np.zeros(1, dtype="<i8").tobytes())  # where the first row begins
        for keys in _by_block(edges(manifest.rows), manifest):
            manifest = _appended(manifest, keys, sources, ends)
            manifest.write(folder)
    return manifest


def _cut(file: BinaryIO, path: Path, size: int) -> None:
    """Cut off what no manifest names.

    Raises:
        GraphError: the file is shorter: bytes that were there have gone.
    """
    if path.stat().st_size < size:
        raise damaged_file_error(path)
    file.truncate(size)


def _appended(manifest: Manifest, keys: Keys, sources: BinaryIO, ends: BinaryIO) -> Manifest:
    """Write one block to the disk, and return the manifest that names it."""
    start, stop = manifest.rows, min(manifest.nodes, manifest.rows + manifest.block_rows)
    counts = np.bincount((keys >> SHIFT) - start, minlength=stop - start)
    parts = (keys & ((1 << SHIFT) - 1)).astype("<i4"), (manifest.edges + np.cumsum(counts)).astype("<i8")
    for file, part in zip((sources, ends), parts, strict=True):
        file.write(part.tobytes())
        file.flush()
        os.fsync(file.fileno())
    sums = (keyed_sum(manifest.key, part) for part in parts)
    block = ManifestBlock(stop=stop, edges=manifest.edges + len(keys), sources=next(sums), offsets=next(sums))
    return manifest.model_copy(update={"blocks": [*manifest.blocks, block]})


def _by_block(batches: Iterator[Keys], manifest: Manifest) -> Iterator[Keys]:
    """Yield the edges of each block that is to come, none twice."""
    waiting: list[Keys] = []
    last = np.int64(-1)
    stops = range(
        manifest.rows + manifest.block_rows, manifest.nodes + manifest.block_rows, manifest.block_rows
    )
    ends = iter(stops)
    end = next(ends, None)
    for batch in batches:
        keys = batch[np.diff(batch, prepend=last) != 0]
        last = batch[-1] if len(batch) else last
        while end is not None and len(keys) and keys[-1] >> SHIFT >= end:
            cut = int(np.searchsorted(keys, np.int64(end) << SHIFT))
            yield np.concatenate([*waiting, keys[:cut]])
            waiting, keys = [], keys[cut:]
            end = next(ends, None)
        waiting.append(keys)
    while end is not None:
        yield np.concatenate([*waiting, np.empty(0, dtype=np.int64)])
        waiting, end = [], next(ends, None)


@contextmanager
def full_disk_named(folder: Path) -> Iterator[None]:
    """Say which disk is full, and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise full_disk(folder) from None


def full_disk(folder: Path) -> GraphError:
    """Return the refusal where there is no room left."""
    return GraphError(
        f"there is no room left for {folder}; free some (a prepared graph takes 4 bytes a stored edge, and "
        "sorting some 30 more while it lasts) and give the same command again, which goes on where it stopped"
    )

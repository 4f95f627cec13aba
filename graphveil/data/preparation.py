"""Prepare two tables of any size as a folder for ``open_graph``.

The table of nodes is read into memory. The edges are not: they are sorted on disk and appended, block by
block, to two files, the sources of all edges by target (int32) and the end of each row (int64). The manifest
names a block after its bytes are on the disk. An interrupted call therefore resumes after the last block.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from filelock import FileLock, Timeout

from graphveil._util import checks
from graphveil.core.edges.blocks import SOURCES
from graphveil.data import tables
from graphveil.data.conversion import fields_from_tables, reject_unlabeled
from graphveil.data.edge_sorting import SHIFT, EdgeTables, Keys, found_files, full_disk
from graphveil.data.graph import Graph
from graphveil.data.stored_graph import (
    IDS,
    MANIFEST,
    OFFSETS,
    Manifest,
    ManifestBlock,
    damaged_file_error,
    keyed_sum,
    read_manifest,
    write_arrays,
)
from graphveil.data.tables.encoding import DROP, ERROR, Categories, Named
from graphveil.data.tables.files import FileSource, FrameSource
from graphveil.data.tables.inspect_tables import TableOptions, inspect_tables
from graphveil.errors import ConfigError, GraphError

BLOCK_ROWS = 1 << 17
MEMORY = "1GB"
SCRATCH, LOCK = "sorting", "lock"
Sorted = Callable[[int], Iterator[Keys]]  # the edges into rows from one on, ascending, with any repeats


@dataclass(frozen=True)
class PreparedGraph:
    """A finished folder; ``edges`` counts each edge once and is as private as the tables."""

    path: Path
    nodes: int
    edges: int


def prepare(
    nodes: str | PathLike[str],
    edges: Sequence[str | PathLike[str]],
    out: str | PathLike[str],
    *,
    id: str,
    source: str,
    target: str,
    directed: bool = False,
    label: str | None = None,
    split: str | None = None,
    features: Named | None = None,
    drop: Named = (),
    categories: Categories = (),
    missing: str = ERROR,
    unknown_ids: str = ERROR,
    null_values: Named | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    classes: Sequence[str] | None = None,
    memory: str = MEMORY,
    block_rows: int = BLOCK_ROWS,
) -> PreparedGraph:
    """Write a graph from tables of any size to a folder, for ``open_graph``.

    The table of nodes is read into memory, as by ``read_graph``. The tables of edges are sorted by DuckDB
    (extra ``disk``) and may be larger than memory. Repeat an interrupted call to resume after its last
    block; a finished folder is left unchanged. The stored edges depend on the tables alone, not on memory,
    threads or interruptions.

    Args:
        nodes: Parquet or CSV file.
        edges: Files, or patterns such as ``"part-*.parquet"``, all parquet or all CSV.
        out: Output folder, readable by its owner only.
        id, source, target, directed, label, split, classes: As for ``read_graph``.
        features, drop, categories, missing, null_values, delimiter, decimal: As for ``read_graph``.
        unknown_ids: Treatment of edges to ids that no node has: ``"error"`` or ``"drop"``.
        memory: Memory limit of the sort, such as ``"1GB"``; the rest is temporarily stored in the folder.
        block_rows: Number of rows per block; does not affect results.

    Returns:
        The folder and its sizes. The number of edges is private.

    Raises:
        ConfigError: DuckDB that is not installed, or an argument out of range.
        GraphError: File or column that is missing or unusable, edge to an unknown id, full disk, folder
            with another graph or in use, or table that changed meanwhile.

    Privacy:
        Reads: the edges and records, exactly. Charges: nothing. The folder is as private as the tables.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "nodes.csv").write_text("user,age,team\\n7,31,red\\n8,45,blue\\n9,28,\\n")
    >>> _ = (folder / "edges.csv").write_text("a,b\\n7,8\\n9,8\\n8,7\\n")
    >>> prepare(folder / "nodes.csv", [folder / "edges.csv"], folder / "graph", id="user", label="team",
    ...         source="a", target="b").edges  # doctest: +SKIP
    2
    """
    checks.integer_at_least(1, block_rows=block_rows)
    checks.one_of((ERROR, DROP), unknown_ids=unknown_ids)
    if not re.fullmatch(r"0*[1-9][0-9]*(\.[0-9]+)? *[KMGT]i?B", memory, re.IGNORECASE):
        raise ConfigError(f"memory={memory!r} (--memory) must be a size such as '500MB' or '4GB'")
    if not os.fspath(out):  # a path would take it for the folder where the process is
        raise ConfigError(
            "out='' (--out) does not name a folder. Name a new folder, for example --out prepared."
        )
    if label is None and classes is None:
        reject_unlabeled()
    files, folder = found_files(edges), Path(out)
    options = replace(TableOptions.from_keywords(locals()), unknown_ids=ERROR)
    roles, choices = options.roles, options.choices
    for given in (Path(nodes), *files):
        if folder.resolve() in given.resolve().parents:
            raise GraphError(
                f"{given} lies in the output folder {folder}, which is overwritten. Choose another output "
                "folder."
            )
    described_by = (Path(nodes), *files), (roles, choices, directed, unknown_ids, classes)
    inputs = describe_inputs(*described_by)  # before a table is read
    # The table of nodes is validated as by ``read_graph``, next to an empty table of edges.
    no_edges = FrameSource.from_frame({source: np.empty(0, np.int64), target: np.empty(0, np.int64)}, "edges")
    node_table = FileSource(Path(nodes), choices.csv_format)
    found = inspect_tables(node_table, no_edges, options)
    found.raise_problems()
    assert found.ids is not None
    manifest = read_unfinished_manifest(folder, inputs)
    if manifest is None or not manifest.complete:
        known = EdgeTables(
            files=files,
            source=source,
            target=target,
            ids=found.ids,
            directed=directed,
            drop_unknown=unknown_ids == DROP,
            memory=memory,
            threads=torch.get_num_threads(),
            scratch=folder / SCRATCH,
            csv_format=choices.csv_format,
        )
        with lock_folder(folder):
            manifest = read_unfinished_manifest(folder, inputs)  # another process may have written one
            if manifest is None:
                fields = fields_from_tables(found, classes_given=classes is not None)  # without edges
                graph = Graph.from_edges(directed=directed, name=Path(nodes).name.partition(".")[0], **fields)
                released = {tables.released(path) for path in files}
                if len(released) > 1:
                    raise GraphError(
                        "The tables of edges belong to different released graphs. Prepare each graph "
                        "separately."
                    )
                manifest = create_manifest(folder, graph, inputs, block_rows, released.pop())
            shutil.rmtree(known.scratch, ignore_errors=True)  # of a call that was killed
            manifest = write_blocks(folder, manifest, known.sorted_from)
            shutil.rmtree(known.scratch, ignore_errors=True)
            if (
                not manifest.edges
                and known.drop_unknown
                and any(tables.has_rows(file, choices.csv_format) for file in files)
            ):
                shutil.rmtree(folder, ignore_errors=True)
                raise GraphError(
                    "No edge has both ends in the table of nodes, so the graph would have no edges. Write "
                    "ids in the same way in both tables, and check --id, --source and --target."
                )
            manifest = complete_manifest(folder, manifest, describe_inputs(*described_by))
    return PreparedGraph(folder, manifest.nodes, manifest.edges // (1 if directed else 2))


# -- the folder ----


def describe_inputs(files: Sequence[Path], options: Sequence[object]) -> str:
    """Return the current identity of the tables of a graph, by name, size and times, and the options.

    The time of the last change of a file cannot be set back, unlike the time of its last modification.

    Raises:
        GraphError: File that cannot be read.
    """
    try:
        stats = [(path, path.stat()) for path in files]
    except OSError as error:
        raise GraphError(
            f"Cannot read {error.filename} ({error.strerror}). Check the path and its permissions."
        ) from None
    facts = [(str(path.resolve()), of.st_size, of.st_mtime_ns, of.st_ctime_ns) for path, of in stats]
    return json.dumps([facts, [repr(option) for option in options]])


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Create a private folder and lock it until the process ends.

    After an error a new folder without a finished block is removed.

    Raises:
        GraphError: Folder that cannot be created, or that another process is writing.
    """
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK, timeout=0, mode=0o600).acquire()
    except Timeout:
        raise GraphError(
            f"Another process uses {folder}. Wait until it has ended, or choose another folder."
        ) from None
    except OSError as error:
        raise GraphError(f"Cannot write to {folder} ({error.strerror}). Choose another folder.") from None
    with lock:
        try:
            folder.chmod(0o700)
            yield
        except Exception:
            manifest = read_manifest(folder) if new else None
            if new and (manifest is None or not manifest.blocks):  # else another call resumes after them
                shutil.rmtree(folder, ignore_errors=True)
            raise


def read_unfinished_manifest(folder: Path, inputs: str) -> Manifest | None:
    """Return the manifest of an unfinished folder, None for a new one.

    Raises:
        GraphError: Folder with another graph, or with other files.
    """
    manifest = read_manifest(folder)
    if manifest is not None:
        if manifest.inputs != inputs and not manifest.blocks:
            return None  # a call that was killed left it
        if manifest.inputs != inputs:
            raise GraphError(
                f"{folder} contains a graph of other tables, of older versions of these tables or with "
                "other options. Choose a new folder, or remove this one."
            )
        return manifest
    names = {part.name for part in folder.iterdir()} if folder.is_dir() else set[str]()
    # What a call may have left that was killed before it wrote a manifest.
    known = {SOURCES, OFFSETS, SCRATCH, LOCK}
    known |= {name for name in names if name.endswith(".npy") or IDS in name or MANIFEST in name}
    if names and (LOCK not in names or not names <= known):
        raise GraphError(f"{folder} exists and contains other files. Choose a new folder for the graph.")
    return None


def create_manifest(folder: Path, graph: Graph, inputs: str, block_rows: int, released: str) -> Manifest:
    """Write the node arrays, and the manifest of a graph without blocks."""
    key = secrets.token_hex(32)
    with full_disk_named(folder):
        sums, facts = write_arrays(folder, graph, key)
        manifest = Manifest(
            key=key,
            inputs=inputs,
            nodes=graph.num_nodes,
            directed=graph.directed,
            block_rows=block_rows,
            released=released,
            arrays=sums,
            facts=facts,
        )
        manifest.write(folder)
        os.sync()
    return manifest


def complete_manifest(folder: Path, manifest: Manifest, inputs: str) -> Manifest:
    """Mark the graph as complete if the tables did not change during preparation.

    Raises:
        GraphError: Table that has changed since.
    """
    if inputs != manifest.inputs:
        raise GraphError(
            f"A table changed while {folder} was prepared, so the folder cannot be used. Remove the "
            "folder, and prepare the graph again."
        )
    whole = manifest.completed(folder)
    for path in (folder / name for name in (SOURCES, OFFSETS, *manifest.arrays)):
        with suppress(OSError):  # where the file system has no such modes
            path.chmod(0o400)  # open graphs are mapped from them, so they must not be changed by accident
    return whole


# -- blocks ----


def write_blocks(folder: Path, manifest: Manifest, edges: Sorted) -> Manifest:
    """Append the blocks that a manifest lacks, and return it with all of them.

    Args:
        folder: Output folder.
        manifest: Finished blocks.
        edges: Function that yields sorted batches of edges from a row on.

    Raises:
        GraphError: The disk is full, or a finished block is missing. After a full disk, repeat the same call
            to resume after the last finished block.
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
            start, stop = manifest.rows, min(manifest.nodes, manifest.rows + manifest.block_rows)
            counts = np.bincount((keys >> SHIFT) - start, minlength=stop - start)
            parts = (
                (keys & ((1 << SHIFT) - 1)).astype("<i4"),
                (manifest.edges + np.cumsum(counts)).astype("<i8"),
            )
            for file, part in zip((sources, ends), parts, strict=True):
                file.write(part.tobytes())
                file.flush()
                os.fsync(file.fileno())
            sums = [keyed_sum(manifest.key, part) for part in parts]
            block = ManifestBlock(
                stop=stop, edges=manifest.edges + len(keys), sources=sums[0], offsets=sums[1]
            )
            # Written after the bytes of the block are on the disk: a block that it names is complete.
            manifest = manifest.model_copy(update={"blocks": [*manifest.blocks, block]})
            manifest.write(folder)
    return manifest


def _cut(file: BinaryIO, path: Path, size: int) -> None:
    """Cut off bytes of an unfinished block.

    Raises:
        GraphError: File that is shorter than its finished blocks.
    """
    if path.stat().st_size < size:
        raise damaged_file_error(path)
    file.truncate(size)


def _by_block(batches: Iterator[Keys], manifest: Manifest) -> Iterator[Keys]:
    """Yield the edges of each missing block, without repeats."""
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
    """Convert errors of a full disk into a ``GraphError`` that names the folder and a fix."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise full_disk(folder) from None

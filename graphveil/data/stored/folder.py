"""The folder of a graph that is being prepared: whose it is, what it is made of, and how far it got."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from graphveil.data.graph import Graph
from graphveil.data.stored.arrays import write_arrays
from graphveil.data.stored.manifest import MANIFEST, OFFSETS, SOURCES, Manifest, new_key, read_manifest
from graphveil.data.stored.writing import full_disk_named
from graphveil.errors import GraphError

SCRATCH, LOCK = "sorting", "lock"


@dataclass(frozen=True)
class SourceTables:
    """The tables that a graph is made of, and what was chosen."""

    files: tuple[Path, ...]
    choices: tuple[Any, ...]

    def text(self) -> str:
        """Return which files these are by now, by name, size and times, and what was chosen.

        The time of the last change cannot be set back, as that of the last writing can.

        Raises:
            GraphError: one is not there.
        """
        try:
            stats = [(path, path.stat()) for path in self.files]
        except OSError as error:
            raise GraphError(f"{error.filename} cannot be read ({error.strerror})") from None
        facts = [(str(path.resolve()), of.st_size, of.st_mtime_ns, of.st_ctime_ns) for path, of in stats]
        return json.dumps([facts, [repr(choice) for choice in self.choices]])


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Make a folder that its owner alone may read, and hold the system's lock on it.

    The lock ends with the process. A folder that is new, and to which nothing worth keeping was written,
    goes again with an error.

    Raises:
        GraphError: it cannot be made, or another process is at work in it.
    """
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK, timeout=0, mode=0o600).acquire()
    except Timeout:
        raise GraphError(
            f"{folder} cannot be had (another process is at work in it); wait, or name another folder"
        ) from None
    except OSError as error:
        raise GraphError(f"cannot write to {folder} ({error.strerror}); name another folder") from None
    with lock:
        try:
            folder.chmod(0o700)
            yield
        except Exception:
            if new and not _worth_keeping(folder):
                shutil.rmtree(folder, ignore_errors=True)
            raise


def _worth_keeping(folder: Path) -> bool:
    """Whether there are blocks behind which another call goes on."""
    manifest = read_manifest(folder)
    return manifest is not None and bool(manifest.blocks)


def read_unfinished_manifest(folder: Path, inputs: str) -> Manifest | None:
    """Return the manifest of a folder that is to be finished, None for a new one.

    Raises:
        GraphError: the folder holds something else.
    """
    manifest = read_manifest(folder)
    if manifest is not None:
        if manifest.inputs != inputs and not manifest.blocks:
            return None  # a call that was killed left it
        if manifest.inputs != inputs:
            raise GraphError(
                f"{folder} holds a graph of other tables, of older versions of them or of other choices; "
                "name a new folder, or remove this one"
            )
        return manifest
    names = {part.name for part in folder.iterdir()} if folder.is_dir() else set[str]()
    if names and (LOCK not in names or not all(map(_is_scratch_file, names))):
        raise GraphError(f"{folder} is there and holds other files; name a new folder for the graph")
    return None


def _is_scratch_file(name: str) -> bool:
    """Whether a call that was killed before it wrote a manifest may have left a file of this name."""
    known = (SOURCES, OFFSETS, SCRATCH, LOCK)
    return name in known or name.endswith((".npy", ".parquet")) or MANIFEST in name


def create_manifest(folder: Path, graph: Graph, inputs: str, block_rows: int, released: str) -> Manifest:
    """Write the node arrays, and the manifest of a graph whose blocks are to come."""
    key = new_key()
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


def complete_manifest(folder: Path, manifest: Manifest, inputs: SourceTables) -> Manifest:
    """Say that all blocks are there, if they are of the tables that the first of them is of.

    Raises:
        GraphError: a table has changed since.
    """
    if inputs.text() != manifest.inputs:
        raise GraphError(
            f"a table has changed while {folder} was made of it, which is of no use now; remove the folder, "
            "and prepare the graph again when the tables are whole"
        )
    whole = manifest.completed(folder)
    for path in (folder / name for name in (SOURCES, OFFSETS, *manifest.arrays)):
        with suppress(OSError):  # where the file system has no such modes
            path.chmod(0o400)  # open graphs are mapped from them: nobody changes them in passing
    return whole

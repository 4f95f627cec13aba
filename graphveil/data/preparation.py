"""Prepare two tables of any size as a folder for ``open_graph``.

The table of nodes is read into memory. The edges are not: DuckDB sorts them by target and spills to disk,
and they are appended, block by block, to two files, the sources of all edges by target (int32) and the end
of each row (int64). The manifest names a block after its bytes are on the disk. An interrupted call
therefore resumes after the last block.
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
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt
import torch
from filelock import FileLock, Timeout

from graphveil._util import checks
from graphveil._util.files import name_in_utf8
from graphveil.core.edges.blocks import SOURCES
from graphveil.data import tables
from graphveil.data.conversion import fields_from_tables
from graphveil.data.graph import Graph
from graphveil.data.graph_files import (
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
from graphveil.data.tables.files import (
    CSV,
    PARQUET,
    CsvFormat,
    FileSource,
    column_names,
    format_of,
)
from graphveil.data.tables.ids import GRAPH_ADVICE, KnownIds, References, reject_unlike
from graphveil.data.tables.inspect_tables import inspect_tables
from graphveil.data.tables.options import DROP, ERROR, NOT_OF_PREPARE, TableOptions
from graphveil.errors import ConfigError, GraphError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

BLOCK_ROWS = 1 << 17
MEMORY = "1GB"
SCRATCH, LOCK = "sorting", "lock"
SHIFT = 32
_BATCH = 1 << 20  # edges that are handed over at a time
_ENDS = "source_id", "target_id"
Keys = npt.NDArray[np.int64]  # target * 2^32 + source
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
    unknown_ids: str = ERROR,
    memory: str = MEMORY,
    block_rows: int = BLOCK_ROWS,
    **options: Any,
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
        id, source, target: As for ``read_graph``.
        unknown_ids: Treatment of edges to ids that no node has: ``"error"`` or ``"drop"``.
        memory: Memory limit of the sort, such as ``"1GB"``; the rest is temporarily stored in the folder.
        block_rows: Number of rows per block; does not affect results.
        options: Further options of ``read_graph``, without those of weights: ``directed``, ``label``,
            ``split``, ``classes``, ``features``, ``drop``, ``categories``, ``missing``, ``null_values``,
            ``delimiter`` and ``decimal``.

    Returns:
        The folder and its sizes. The number of edges is private.

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
    ends = {"id": id, "source": source, "target": target}
    read = TableOptions.from_keywords("prepare", ends | options, NOT_OF_PREPARE)
    read.require_labels()
    read.check_roles()
    files, folder, csv_format = found_files(edges), Path(out), read.csv_format
    for given in (Path(nodes), *files):
        if folder.resolve() in given.resolve().parents:
            raise GraphError(
                f"{given} lies in the output folder {folder}, which is overwritten. Choose another output "
                "folder."
            )
    described_by = (Path(nodes), *files), (read, unknown_ids)
    inputs = describe_inputs(*described_by)  # before a table is read
    found = inspect_tables(FileSource(Path(nodes), csv_format), None, read)
    found.raise_problems()
    ids = found.known_ids(id, "nodes", GRAPH_ADVICE)
    manifest = read_unfinished_manifest(folder, inputs)
    if manifest is None or not manifest.complete:
        unread, scratch = unknown_ids == DROP, folder / SCRATCH
        known = EdgeTables(files, (source, target), ids, read.directed, unread, memory, scratch, csv_format)
        with lock_folder(folder):
            manifest = read_unfinished_manifest(folder, inputs)  # another process may have written one
            if manifest is None:
                fields = fields_from_tables(found, classes_given=read.classes is not None)
                edges_to_come: dict[str, Any] = {"source": [], "target": [], "directed": read.directed}
                graph = Graph.from_edges(name=Path(nodes).name.partition(".")[0], **edges_to_come, **fields)
                released = {tables.released(path) for path in files}
                if len(released) > 1:
                    raise GraphError(
                        "The tables of edges belong to different released graphs. Prepare each graph "
                        "separately."
                    )
                manifest = create_manifest(folder, graph, inputs, block_rows, released.pop())
            shutil.rmtree(scratch, ignore_errors=True)  # of a call that was killed
            manifest = write_blocks(folder, manifest, known.sorted_from)
            shutil.rmtree(scratch, ignore_errors=True)
            sources = [FileSource(file, csv_format) for file in files]
            parts = (part for one in sources for part in one.batches([source]))
            if not manifest.edges and unread and any(part.num_rows for part in parts):
                shutil.rmtree(folder, ignore_errors=True)
                raise GraphError(
                    "No edge has both ends in the table of nodes, so the graph would have no edges. Write "
                    "ids in the same way in both tables, and check --id, --source and --target."
                )
            manifest = complete_manifest(folder, manifest, describe_inputs(*described_by))
    return PreparedGraph(folder, manifest.nodes, manifest.edges // (1 if read.directed else 2))


# -- the folder ----


def describe_inputs(files: Sequence[Path], options: Sequence[object]) -> str:
    """Return the current identity of the tables of a graph, by name, size and times, and the options.

    The time of the last change of a file cannot be set back, unlike the time of its last modification.
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
    """Mark the graph as complete if the tables did not change during preparation."""
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
    """Append the blocks that a manifest lacks, and return it with all of them."""
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
            tail = (keys & ((1 << SHIFT) - 1)).astype("<i4")
            rows = (manifest.edges + np.cumsum(counts)).astype("<i8")
            for file, part in ((sources, tail), (ends, rows)):
                file.write(part.tobytes())
                file.flush()
                os.fsync(file.fileno())
            sums = {"sources": keyed_sum(manifest.key, tail), "offsets": keyed_sum(manifest.key, rows)}
            block = ManifestBlock(stop=stop, edges=manifest.edges + len(keys), **sums)
            # Written after the bytes of the block are on the disk: a block that it names is complete.
            manifest = manifest.model_copy(update={"blocks": [*manifest.blocks, block]})
            manifest.write(folder)
    return manifest


def _cut(file: BinaryIO, path: Path, size: int) -> None:
    if path.stat().st_size < size:
        raise damaged_file_error(path)
    file.truncate(size)


def _by_block(batches: Iterator[Keys], manifest: Manifest) -> Iterator[Keys]:
    """Yield the edges of each missing block, without repeats."""
    waiting: list[Keys] = []
    last, end = np.int64(-1), manifest.rows + manifest.block_rows
    for batch in batches:
        keys = batch[np.diff(batch, prepend=last) != 0]
        last = batch[-1] if len(batch) else last
        while len(keys) and keys[-1] >> SHIFT >= end:
            cut = int(np.searchsorted(keys, np.int64(end) << SHIFT))
            yield np.concatenate([*waiting, keys[:cut]])
            waiting, keys, end = [], keys[cut:], end + manifest.block_rows
        waiting.append(keys)
    while end < manifest.nodes + manifest.block_rows:
        yield np.concatenate([*waiting, np.empty(0, dtype=np.int64)])
        waiting, end = [], end + manifest.block_rows


@contextmanager
def full_disk_named(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise GraphError(
            f"{folder} has too little free disk space. A prepared graph needs 4 bytes per stored "
            "edge, and sorting temporarily needs about 30 more. Free some space, and run the same "
            "command again to continue."
        ) from None


# -- sorted edges ----
# An edge becomes one integer, so one column is sorted. Each end is converted as by `read_graph`.


@dataclass(frozen=True, eq=False)
class EdgeTables:
    """Files of one kind, with the columns that hold the two ends, and the nodes' ids in node order."""

    files: tuple[Path, ...]
    columns: tuple[str, str]
    nodes: KnownIds
    directed: bool
    drop_unknown: bool
    memory: str
    scratch: Path
    csv_format: CsvFormat

    def sorted_from(self, row: int) -> Iterator[Keys]:
        """Yield the edges into rows from ``row`` on, ascending, with repeats and without self-loops."""
        try:
            import duckdb
        except ImportError:
            raise ConfigError(
                "Sorting edges needs DuckDB, which is not installed. Install it: pip install "
                "'graphveil[disk]'"
            ) from None
        import pyarrow as pa

        settings: dict[str, Any] = {
            "threads": torch.get_num_threads(),
            "memory_limit": self.memory,
            "temp_directory": name_in_utf8(self.scratch),
            "preserve_insertion_order": False,
        }
        problems = list[GraphError]()
        kind = pa.schema([(end, self.nodes.ids.type) for end in _ENDS])
        ends = pa.RecordBatchReader.from_batches(kind, self._ends(problems))
        try:
            with duckdb.connect(":memory:", config=settings) as session:
                # The size of a stream is unknown, and the hash tables must be those of the nodes.
                session.execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")
                session.register("ends", ends)
                reader = session.sql(self._query(session, row)).to_arrow_reader(_BATCH)
                for batch in reader:
                    if problems:
                        raise problems[0]
                    keys = batch.column(0)
                    if keys.null_count:
                        source, target = self.columns
                        raise GraphError(
                            f"Columns {source!r} and {target!r} of the edges have ids that are missing from "
                            "the table of nodes, or empty ids. Add these nodes, or drop such edges with "
                            "unknown_ids='drop' (--unknown-ids drop)."
                        )
                    yield np.asarray(keys.to_numpy(zero_copy_only=False), dtype=np.int64)
                if problems:
                    raise problems[0]
        except duckdb.Error as error:  # whose messages may quote a row
            words = str(error).lower()
            full = "no space left", "file too large"  # the system's words for a disk, and for a limit
            if any(one in words for one in full) or ("disk" in words and "full" in words):
                raise OSError(errno.ENOSPC, "no space to sort") from None  # which `write_blocks` reports
            raise GraphError(
                f"The tables of edges cannot be read or sorted ({type(error).__name__}). Check the files "
                "and their columns, or allow more memory, for example --memory 8GB."
            ) from None

    def _query(self, session: duckdb.DuckDBPyConnection, row: int) -> str:
        import pyarrow as pa

        known = self.nodes.ids
        ids = known.to_numpy() if pa.types.is_int64(known.type) else np.empty(0, np.int64)
        # Consecutive integers need no join. The check of both ends is needed, too: differences of 64 bits
        # wrap around.
        if len(ids) and int(ids[-1]) - int(ids[0]) == len(ids) - 1 and bool((np.diff(ids) == 1).all()):
            first, last, join = int(ids[0]), int(ids[-1]), ""
            places = [f"CASE WHEN {end} BETWEEN {first} AND {last} THEN {end} - {first} END" for end in _ENDS]
        else:
            place = pa.array(np.arange(len(known), dtype=np.int64))
            session.register("nodes", pa.table({"id": known, "place": place}))
            join = f" LEFT JOIN nodes a ON a.id = {_ENDS[0]} LEFT JOIN nodes b ON b.id = {_ENDS[1]}"
            places = ["a.place", "b.place"]
        pairs = f"SELECT {places[0]} AS s, {places[1]} AS t FROM ends{join}"
        if not self.directed:
            pairs = (
                "SELECT CASE WHEN back THEN t ELSE s END AS s, CASE WHEN back THEN s ELSE t END AS t "
                f"FROM ({pairs}), (VALUES (false), (true)) directions(back)"
            )
        unknown = "false" if self.drop_unknown else "s IS NULL OR t IS NULL"
        return (
            f"SELECT (t << {SHIFT}) | s AS key FROM ({pairs}) WHERE ({unknown}) OR (s <> t AND t >= {row}) "
            "ORDER BY key NULLS FIRST"
        )

    def _ends(self, problems: list[GraphError]) -> Iterator[pa.RecordBatch]:
        """Yield both ends of all edges as ids, null where impossible; DuckDB would hide an error."""
        import pyarrow as pa

        try:
            for file in self.files:
                source = FileSource(file, self.csv_format)
                column_names(source, self.columns)
                for part in source.batches(self.columns):
                    ends = [
                        References.in_edges(part, name, self.nodes, written=source.written)
                        for name in self.columns
                    ]
                    reject_unlike(ends)
                    yield pa.record_batch([end.ids() for end in ends], list(_ENDS))
        except GraphError as error:
            problems.append(error)


def found_files(patterns: Sequence[str | PathLike[str]]) -> tuple[Path, ...]:
    """Return the files that paths and patterns name, sorted, all of one kind."""
    found: set[Path] = set()
    for given in patterns:
        path, here = Path(given), list[Path]()
        if os.fspath(given) and path.is_dir():
            raise GraphError(
                f"{path} is a folder. Name the tables in it, or a pattern such as 'edges/*.parquet'."
            )
        if os.fspath(given) and path.is_file():
            here = [path]
        elif os.fspath(given):
            with suppress(IndexError, ValueError):  # patterns that Python rejects match nothing
                here = list(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
        if not here:
            raise GraphError(
                f"No file matches {os.fspath(given)!r}. Name the tables of edges, or a pattern such as "
                "'edges/*.parquet'."
            )
        found.update(here)
    kinds = set(map(format_of, found))
    if len(kinds) != 1 or None in kinds:
        raise GraphError(
            f"All edge tables must have the same format: Parquet ({', '.join(PARQUET)}) or CSV "
            f"({', '.join(CSV)}). "
            "The format is determined by the suffix."
        )
    return tuple(sorted(found))

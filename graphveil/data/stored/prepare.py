"""Two tables of any size become a folder that :func:`~graphveil.data.stored.reading.open_graph` opens.

Node arrays go through memory, edges do not: they are sorted outside of it, and written block by block.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np
import torch

from graphveil._util import checks
from graphveil.data import tables
from graphveil.data._tables import fields_of, refuse_unlabeled
from graphveil.data.graph import Graph
from graphveil.data.stored.folder import (
    SCRATCH,
    SourceTables,
    complete_manifest,
    create_manifest,
    lock_folder,
    read_unfinished_manifest,
)
from graphveil.data.stored.manifest import Manifest
from graphveil.data.stored.sorting import EdgeTables, found_files
from graphveil.data.stored.writing import write_blocks
from graphveil.data.tables.choices import DROP, REFUSE, Categories, EncodingOptions, Named
from graphveil.data.tables.inspect_tables import Roles, TableInspection, inspect_tables
from graphveil.data.tables.table_source import FileSource, FrameSource
from graphveil.errors import ConfigError, GraphError

BLOCK_ROWS = 1 << 17
MEMORY = "1GB"


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
    missing: str = REFUSE,
    unknown_ids: str = REFUSE,
    null_values: Named | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    classes: Sequence[str] | None = None,
    memory: str = MEMORY,
    block_rows: int = BLOCK_ROWS,
) -> PreparedGraph:
    """Write a graph's edges to disk in destination blocks, sorted, each once, and its node arrays beside.

    The table of nodes is read as :func:`~graphveil.data.files.read_graph` reads it, into memory; the tables
    of edges are sorted by DuckDB (extra ``disk``) and may be larger than memory. A call that was killed goes
    on behind its last block when it is given again; a finished folder is left as it is. The bytes of the
    edges depend on the tables alone, not on memory, threads or interruptions.

    Args:
        nodes: a parquet or CSV file.
        edges: files, or patterns such as ``"part-*.parquet"``, all parquet or all CSV.
        out: the folder, which nobody but its owner may read: it is as private as the tables.
        id, source, target, directed, label, split, features, drop, categories, missing, null_values,
            delimiter, decimal, classes: as for
            :func:`~graphveil.data.files.read_graph`.
        unknown_ids: ``"refuse"`` edges to ids that no node has, or ``"drop"`` them.
        memory: what sorting may take, as ``"1GB"``; it spills the rest into the folder while it lasts.
        block_rows: rows a block; it changes no result.

    Raises:
        ConfigError: DuckDB is not installed, or an argument is out of range.
        GraphError: a file or column is missing or unusable, an edge names an unknown id, the disk is full,
            the folder holds another graph, another process is at work in it, or a table changed meanwhile.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "nodes.csv").write_text("user,age,team\\n7,31,red\\n8,45,blue\\n9,28,\\n")
    >>> _ = (folder / "edges.csv").write_text("a,b\\n7,8\\n9,8\\n8,7\\n")
    >>> prepare(folder / "nodes.csv", [folder / "edges.csv"], folder / "graph", id="user", label="team",
    ...         source="a", target="b").edges  # doctest: +SKIP
    2
    """
    checks.integer_at_least(1, block_rows=block_rows)
    checks.one_of((REFUSE, DROP), unknown_ids=unknown_ids)
    if not re.fullmatch(r"0*[1-9][0-9]*(\.[0-9]+)? *[KMGT]i?B", memory, re.IGNORECASE):
        raise ConfigError(f"memory={memory!r} (--memory) must be a size such as '500MB' or '4GB'")
    if not os.fspath(out):  # a path would take it for the folder where the process is
        raise ConfigError("out='' (--out) names no folder; name one that is new")
    if label is None and classes is None:
        refuse_unlabeled()
    files, folder = found_files(edges), Path(out)
    roles = Roles(id=id, source=source, target=target, label=label, split=split)
    choices = EncodingOptions.from_arguments(
        features, drop, categories, missing, REFUSE, null_values, delimiter, decimal
    )
    for given in (Path(nodes), *files):
        if folder.resolve() in given.resolve().parents:
            raise GraphError(f"{given} lies in {folder}, whose files are written again; name another folder")
    inputs = SourceTables((Path(nodes), *files), (roles, choices, directed, unknown_ids, classes))
    described = inputs.text()  # before a table is read
    found = _nodes(Path(nodes), roles, choices, classes)
    assert found.ids is not None
    manifest = read_unfinished_manifest(folder, described)
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
        name = Path(nodes).name.partition(".")[0]
        with lock_folder(folder):
            manifest = read_unfinished_manifest(folder, described)  # by now
            if manifest is None:
                graph = _without_edges(found, directed, classes is not None, name)
                manifest = create_manifest(folder, graph, described, block_rows, _released(files))
            manifest = _with_edges(folder, manifest, known)
            if (
                not manifest.edges
                and known.drop_unknown
                and any(tables.has_rows(file, choices.csv_format) for file in files)
            ):
                shutil.rmtree(folder, ignore_errors=True)
                raise GraphError(
                    "no edge has both ends among the nodes, so nothing is left once such edges are dropped; "
                    "write the ids of both tables alike, and check --id, --source and --target"
                )
            manifest = complete_manifest(folder, manifest, inputs)
    return PreparedGraph(folder, manifest.nodes, manifest.edges // (1 if directed else 2))


def _nodes(
    path: Path, roles: Roles, choices: EncodingOptions, classes: Sequence[str] | None
) -> TableInspection:
    """Look at the table of nodes beside a table of no edges, and refuse all that is wrong with it."""
    nothing = FrameSource.from_frame(
        {roles.source: np.empty(0, np.int64), roles.target: np.empty(0, np.int64)}, "edges"
    )
    found = inspect_tables(FileSource(path, choices.csv_format), nothing, roles, choices, classes=classes)
    found.raise_problems()
    return found


def _without_edges(found: TableInspection, directed: bool, classes_given: bool, name: str) -> Graph:
    return Graph.from_edges(directed=directed, name=name, **fields_of(found, classes_given=classes_given))


def _with_edges(folder: Path, manifest: Manifest, edges: EdgeTables) -> Manifest:
    """Write the blocks that are to come, and return the manifest that names all."""
    shutil.rmtree(edges.scratch, ignore_errors=True)  # of a call that was killed
    manifest = write_blocks(folder, manifest, edges.sorted_from)
    shutil.rmtree(edges.scratch, ignore_errors=True)
    return manifest


def _released(files: Sequence[Path]) -> str:
    """Return what the tables say of themselves, which must be the same in all."""
    described = {tables.released(path) for path in files}
    if len(described) > 1:
        raise GraphError("the tables of edges are not of one released graph; prepare each graph by itself")
    return described.pop()

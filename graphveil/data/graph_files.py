"""Graphs from files: tables that are read into memory, and prepared folders that are mapped.

A folder is as private as the tables that it was made of. Its checksums use a secret key stored in the
folder, so no digest of private data is meaningful elsewhere. A process that did not open the folder receives
the manifest from the one that did, and verifies each block when it reads it.

An edge set cannot be pickled, because its budget would not be copied with it. The caller that sends a graph
to another process is responsible for the budget: the ledger of each edge set stays in its process, and the
other process queries it there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel, ConfigDict, Field
from scipy import sparse
from torch import Tensor

from graphveil._util.files import as_path, write_atomic
from graphveil.core.edges.adjacency import Adjacency, EdgeSet
from graphveil.core.edges.blocks import SOURCES, EdgeBlock, Stamp, remember_stamps
from graphveil.core.edges.node_pairs import PublicPart
from graphveil.data import tables
from graphveil.data.conversion import fields_from_tables
from graphveil.data.graph import Graph
from graphveil.data.tables.encoding import CONSTANT_FEATURE, Encoding, Task
from graphveil.data.tables.files import COMMAS, CsvFormat, FileSource
from graphveil.data.tables.ids import (
    KnownIds,
    References,
    id_column,
    match_ids,
)
from graphveil.data.tables.inspect_tables import TableFiles, TableInspection, edges_file
from graphveil.data.tables.options import ERROR, Categories, Named
from graphveil.errors import GraphError


def read_graph(
    nodes: str | PathLike[str],
    edges: str | PathLike[str],
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
    node_ids: str | PathLike[str] | None = None,
    encoding: Encoding | None = None,
    aside: Sequence[str] = (),
    classes: Sequence[str] | None = None,
    task: Task | None = None,
    weight: str | None = None,
    max_weight: float | None = None,
) -> Graph:
    """Read a graph from a node table and an edge table, each a Parquet or CSV file.

    Every column of ``nodes`` without another role is a feature: a number is unchanged, a bool becomes 0 or 1,
    a date becomes years since 2000-01-01 (UTC), a list of k numbers becomes k features. A node without a
    label is unlabeled. Nodes keep the order of the file. The defaults are those of the command. All
    validation errors of the two tables are reported in one error, with the keywords that would pass.

    Args:
        nodes, edges: Paths that end in ``.parquet``, ``.pq``, ``.csv`` or ``.csv.gz``. The edges may also be
            the folder of a released graph; the edge set then includes its guarantee.
        id: Column of ``nodes`` with integers or text. Ids of a CSV are text and keep their
            spelling. Dates, decimals, UUIDs and bools of a parquet file become text.
        source, target: Columns of ``edges`` with ids.
        directed: Whether ``source -> target`` does not imply the opposite direction.
        label: Column of ``nodes`` with labels: text, numbers, bools or dates. Labels of a CSV are used
            as written, except that integers lose a trailing ``.0``. May be omitted for prediction only, if
            ``classes`` is given.
        split: Column of ``nodes`` with train, val (valid, validation), test or nothing.
        features: Feature columns; by default all columns without another role.
        drop: Columns of ``nodes`` that are not features.
        categories: Columns that become one 0/1 column per value: ``"plan=free|pro"`` with a public list,
            ``"country=hash:32"`` hashed into so many buckets, or ``"plan"`` with the values that occur, which
            units that protect node records reject. Also a mapping of names to lists, numbers or None.
        missing: ``"error"``; ``"indicator"``, 0 and an additional 0/1 column for each such column;
            ``"constant=V"``; or ``"median"`` of the table, which units that protect node records reject.
        unknown_ids: Treatment of edges to ids that no node has: ``"error"`` or ``"drop"`` them, or ``"add"``
            the nodes that they name. The last is for unit ``none`` only: one secret edge would publish a
            node.
        null_values: Words for a missing label or feature, instead of ``tables.NULL_VALUES``: those of
            pandas, ``\\N``, ``?`` and ``-``. An empty field is always missing. They never apply to ids.
        delimiter, decimal: Column separator of CSV files (one character, or ``"tab"``), and decimal
            separator (``"."`` or ``","``), in both tables and ``node_ids``.
        node_ids: Table with the column ``id``, a public list of nodes; nodes without a row are included.
        encoding: Encoding of another graph (``graph.encoding``) to apply to the columns.
        aside: Columns of ``nodes`` to leave out of all other roles. They may be missing.
        classes: Labels in class order, if the classes are fixed in advance and not by this file. Any other
            label then counts as missing, because an error would reveal it. By default the labels that occur,
            sorted: a class then reveals that some node has its label, which the graph's notes state.
        task: ``"regression"`` reads the label column as numbers to predict (``Graph.targets``), and
            ``"classification"`` as classes. By default as classes, and a numeric column is rejected if it has
            more than 100 distinct values, or more than 20 that are not all whole.
        weight: Column of ``edges`` with weights of at least 0, if the edges are weighted.
        max_weight: Public bound to which larger weights are clipped.

    Returns:
        The graph, with a new edge set. Keep it: reading the tables again begins with an empty budget.

    Raises:
        ConfigError: Argument of another type or out of range.
        GraphError: File or column that is missing or unusable, ids that are repeated or unknown, features
            that are not finite numbers, no nodes, or only one class. ``errors.TableError`` lists all
            validation errors. Messages name columns, never values.

    Privacy:
        Reads: the edges and records, exactly. Charges: nothing. The result is private.

    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "nodes.csv").write_text("user,age,team\\n7,31,red\\n8,45,blue\\n9,28,\\n")
    >>> _ = (folder / "edges.csv").write_text("a,b\\n7,8\\n9,8\\n")
    >>> graph = read_graph(folder / "nodes.csv", folder / "edges.csv", id="user", label="team",
    ...                    source="a", target="b")
    >>> graph.class_names, graph.y
    (('blue', 'red'), tensor([ 1,  0, -1]))
    """
    nodes, edges = as_path(nodes, "nodes"), as_path(edges, "edges")
    node_ids = None if node_ids is None else as_path(node_ids, "node_ids")
    options = TableFiles.from_keywords("read_graph", locals())
    options.require_labels()
    found = options.inspect()
    found.raise_problems()
    return graph_of(found, options, name=nodes.name.partition(".")[0])


def graph_of(found: TableInspection, files: TableFiles, *, name: str) -> Graph:
    assert files.edges is not None
    return Graph.from_edges(
        directed=files.directed,
        max_weight=files.max_weight,
        edge_set=EdgeSet(released=tables.released(edges_file(files.edges))),
        name=name,
        **fields_from_tables(found, classes_given=files.classes is not None),
    )


def read_topology(files: TableFiles) -> Graph:
    """Read an unlabeled graph from edges and node ids alone.

    Every node has the one feature 1 and no label. Errors as for ``read_graph``.
    """
    constant = Encoding(rules=(CONSTANT_FEATURE,))
    alone = replace(files, label=None, split=None, classes=("0", "1"), encoding=constant)
    found = alone.inspect()
    found.raise_problems()
    assert files.nodes is not None
    return graph_of(found, alone, name=files.nodes.name.partition(".")[0]).replace(encoding=None)


def read_edges(
    edges: Path,
    ids: npt.NDArray[Any],
    *,
    source: str,
    target: str,
    directed: bool,
    csv_format: CsvFormat = COMMAS,
) -> Adjacency:
    path = edges_file(edges)
    tail, head = _positions(FileSource(path, csv_format), (source, target), ids)
    origin = EdgeSet(released=tables.released(path))
    return Adjacency.from_edges(tail, head, num_nodes=len(ids), directed=directed, edge_set=origin)


def read_ids(source: FileSource, ids: npt.NDArray[Any], *, column: str) -> npt.NDArray[np.integer]:
    return _positions(source, (column,), ids)[0]


def _positions(
    source: FileSource, names: Sequence[str], ids: npt.NDArray[Any]
) -> list[npt.NDArray[np.int64]]:
    known, advice = tables.keys(id_column(ids), "ids"), ("add those nodes, or drop those rows",) * 2
    nodes = KnownIds(known, "the ids of nodes", "ids", known.type, source.written, *advice)
    table = tables.read_ids(source, names)
    found = []
    for name in names:
        values = tables.column(table, name)
        end = References(values, f"column {name!r}", f"table[{name!r}]", nodes, source.written)
        found += match_ids([end], ERROR)[0]
    return found


# -- prepared folders ----
MANIFEST = "manifest.json"
OFFSETS = "offsets.bin"
FORMAT = "graphveil prepared graph, version 2"
IDS = "ids.parquet"
_SPARSE = ("indptr", "indices", "data")
_FACTS = ("name", "num_classes", "class_names", "notes", "deviations")
_edge_sets: WeakValueDictionary[str, EdgeSet] = WeakValueDictionary()  # by the folder's own key
_manifests: WeakKeyDictionary[Adjacency, Manifest] = WeakKeyDictionary()


def open_graph(folder: str | PathLike[str]) -> Graph:
    """Open a graph that ``graphveil prepare`` wrote, without loading its edges into memory.

    Every file is read once, and an error is raised if its checksum differs. Afterwards the operating system
    caches as much as fits in memory: a fit reads edges as pages of files, block by block. Opened twice in one
    process, the graph has one edge set, and therefore one budget.

    If a file is changed, replaced or removed while the graph is open, the next pass over its edges raises an
    error that names it. A change during a pass may kill the process.

    Args:
        folder: Output folder of ``graphveil prepare``.

    Returns:
        The graph, whose edges and features are memory-mapped.

    Raises:
        ConfigError: Folder that is not a path.
        GraphError: Folder without a finished graph, or a file that is damaged, truncated or missing.

    Privacy:
        Reads: the edges and records, exactly. Charges: nothing. The result is private.
    """
    path = as_path(folder, "folder")
    manifest = read_manifest(path)
    if manifest is None:
        raise GraphError(
            f"{path} does not contain a prepared graph. Create one with graphveil prepare --out {path}"
        )
    if not manifest.complete:
        raise GraphError(
            f"Preparing {path} was interrupted. Run the same `graphveil prepare` command again to finish it."
        )
    absolute = path.absolute()  # still valid after a change of the working directory
    # Features are mapped like edges; the other arrays are loaded.
    mapped_arrays = [name for name in manifest.arrays if name.removesuffix(".npy") in ("x", *_SPARSE)]
    stamps = [Stamp.from_file(absolute / name) for name in (OFFSETS, SOURCES, *mapped_arrays)]
    held = read_arrays(path, manifest.arrays, manifest.facts, manifest.key)
    indptr = mapped(path / OFFSETS, "<i8", manifest.nodes + 1)
    indices = mapped(path / SOURCES, "<i4", manifest.edges)
    if indptr[0] != 0 or manifest.rows != manifest.nodes:
        raise damaged_file_error(path / OFFSETS, "the start")
    for number in range(len(manifest.blocks)):
        check_block(path, manifest, number, indptr, indices)
    edge_set = _edge_sets.get(manifest.key)
    if edge_set is None:
        edge_set = _edge_sets[manifest.key] = EdgeSet(released=manifest.released)
    adjacency = Adjacency._in_order(
        torch.from_numpy(indptr), torch.from_numpy(indices), manifest.directed, edge_set, folder=absolute
    )
    remember_stamps(adjacency, stamps)
    _manifests[adjacency] = manifest
    return Graph(adjacency=adjacency, **held)


def has_split(folder: Path) -> bool:
    manifest = read_manifest(folder)
    return manifest is not None and "train_mask.npy" in manifest.arrays


def manifest_of(adjacency: Adjacency) -> Manifest:
    """Return the manifest of an opened graph's folder as it was when the graph was opened."""
    return _manifests[adjacency]


def mapped(path: Path, dtype: str, count: int) -> npt.NDArray[np.integer]:
    size = np.dtype(dtype).itemsize * count
    if not path.is_file() or path.stat().st_size != size:
        raise damaged_file_error(path)
    return np.asarray(np.memmap(path, dtype=dtype, mode="c")) if count else np.empty(0, dtype=dtype)


def check_block(
    folder: Path,
    manifest: Manifest,
    number: int,
    indptr: npt.NDArray[np.integer],
    indices: npt.NDArray[np.integer],
) -> None:
    """Raise an error if a block differs from what was written, or cannot belong to a graph."""
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


@dataclass(frozen=True, eq=False, repr=False)
class StoredEdges:
    """A prepared folder as another process reads it, which verifies the blocks of the rows."""

    folder: Path
    manifest: Manifest

    def rows(self, start: int, stop: int) -> EdgeBlock:
        indptr: npt.NDArray[np.integer] = mapped(self.folder / OFFSETS, "<i8", self.manifest.nodes + 1)
        sources: npt.NDArray[np.integer] = mapped(self.folder / SOURCES, "<i4", self.manifest.edges)
        for number, block in enumerate(self.manifest.blocks):
            first = self.manifest.blocks[number - 1].stop if number else 0
            if first < stop and start < block.stop:
                check_block(self.folder, self.manifest, number, indptr, sources)
        bounds = torch.from_numpy(indptr[start : stop + 1])
        some = slice(int(bounds[0]), int(bounds[-1]))
        return EdgeBlock(start, stop, (bounds - bounds[0]).to(torch.int32), torch.from_numpy(sources[some]))


# -- the manifest ----


class ManifestBlock(BaseModel):
    """Some rows: they end before ``stop``, and the edges of all blocks up to here number ``edges``."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    stop: int = Field(ge=0)
    edges: int = Field(ge=0)
    sources: str  # the sum of its part of each file
    offsets: str


class Manifest(BaseModel):
    """A prepared graph, complete or in progress.

    ``inputs`` lists the tables and options that it is made of, so that no others can replace them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: str = FORMAT
    key: str
    inputs: str
    nodes: int = Field(ge=1)
    directed: bool
    block_rows: int = Field(ge=1)
    released: str = ""
    arrays: dict[str, str]  # files of node arrays and their sums
    facts: dict[str, Any]  # what else a graph has: names of classes, notes, the encoding
    blocks: list[ManifestBlock] = []
    complete: bool = False
    seal: str = ""  # the sum of all else

    @property
    def rows(self) -> int:
        return self.blocks[-1].stop if self.blocks else 0

    @property
    def edges(self) -> int:
        return self.blocks[-1].edges if self.blocks else 0

    def write(self, folder: Path) -> None:
        plain = self.model_dump(mode="json")
        write_atomic(folder / MANIFEST, json.dumps(plain | {"seal": _seal(plain)}, indent=1).encode())

    def completed(self, folder: Path) -> Manifest:
        whole = self.model_copy(update={"complete": True})
        whole.write(folder)
        return whole


def keyed_sum(key: str, part: Any) -> str:
    return hashlib.blake2b(part, key=bytes.fromhex(key), digest_size=16).hexdigest()


def _seal(plain: dict[str, Any]) -> str:
    """Return the keyed checksum of a manifest's contents, independent of the layout of its file."""
    content = {name: value for name, value in plain.items() if name != "seal"}
    return keyed_sum(plain["key"], json.dumps(content, sort_keys=True).encode())


def read_manifest(folder: Path) -> Manifest | None:
    path = folder / MANIFEST
    if not path.is_file():
        return None
    try:
        plain = json.loads(path.read_bytes())
        manifest = Manifest.model_validate(plain)
        sealed = manifest.seal == _seal(plain)
    except (ValueError, RecursionError, OSError):  # a validation error quotes what it found
        raise damaged_file_error(path) from None
    if manifest.format != FORMAT:
        raise GraphError(
            f"{path} does not have the format of this version ({FORMAT!r}). Prepare the graph again "
            "with `graphveil prepare`."
        )
    if not sealed:
        raise damaged_file_error(path)
    return manifest


def damaged_file_error(path: Path, part: str = "") -> GraphError:
    return GraphError(
        f"{part + ' of ' if part else ''}{path} is damaged, incomplete or missing. Prepare the "
        "graph again into a new folder (graphveil prepare), or restore the file from a backup."
    )


# -- node arrays ----


def write_arrays(folder: Path, graph: Graph, key: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Write a graph's node arrays; return the checksum of each file, and the metadata as plain JSON."""
    import pyarrow as pa

    if graph.targets is not None:
        raise GraphError(
            "A prepared graph cannot have numeric targets. Train on the tables instead, with --task "
            "regression."
        )
    x = graph.x
    parts = {"x": x.numpy()} if isinstance(x, Tensor) else {name: getattr(x, name) for name in _SPARSE}
    parts |= {"y": graph.y.numpy()} | {name: mask.numpy() for name, mask in graph.masks.items()}
    for name, part in parts.items():
        # As `np.save` does, which may not notice that a disk is full for the last few bytes.
        rows = np.ascontiguousarray(part)
        with (folder / f"{name}.npy").open("wb") as file:
            np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(rows))
            file.write(rows.reshape(-1).view(np.uint8).data)
    names = [f"{name}.npy" for name in parts]
    if graph.ids is not None:  # as a table: NumPy has no file for text of any length
        tables.write(folder / IDS, pa.table({"id": id_column(graph.ids)}))
        names.append(IDS)
    facts: dict[str, Any] = {name: getattr(graph, name) for name in _FACTS}
    facts["columns"] = graph.num_features
    facts["encoding"] = None if graph.encoding is None else graph.encoding.as_plain()
    return {name: _sum(folder / name, key) for name in names}, facts


def read_arrays(folder: Path, sums: dict[str, str], facts: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the fields of a graph, features mapped into memory; every file's sum is checked."""
    for name, expected in sums.items():
        if not (folder / name).is_file() or _sum(folder / name, key) != expected:
            raise damaged_file_error(folder / name)
    parts: dict[str, npt.NDArray[Any]] = {}
    for name in sums:
        if name.endswith(".npy"):
            try:  # mapped into memory; writes are copied and stay within the process
                parts[name.removesuffix(".npy")] = np.asarray(
                    np.load(folder / name, mmap_mode="c", allow_pickle=False)
                )
            except ValueError:
                raise damaged_file_error(folder / name) from None
    fields: dict[str, Any] = {name: facts[name] for name in _FACTS}
    fields["encoding"] = None if facts["encoding"] is None else Encoding.from_plain(facts["encoding"])
    if IDS in sums:
        stored = tables.column(FileSource(folder / IDS).read(["id"]), "id")
        fields["ids"] = tables.id_array(tables.keys(stored, "id"))
    if "x" in parts:
        fields["x"] = torch.from_numpy(parts.pop("x"))
    else:
        indptr, indices, data = (parts.pop(name) for name in _SPARSE)
        shape = len(indptr) - 1, int(facts["columns"])
        fields["x"] = sparse.csr_array((data, indices, indptr), shape=shape)
    return fields | {name: torch.from_numpy(np.array(part)) for name, part in parts.items()}


def _sum(path: Path, key: str) -> str:
    if not path.stat().st_size:
        raise damaged_file_error(path)
    return keyed_sum(key, np.memmap(path, dtype=np.uint8, mode="r"))


# -- graphs sent to other processes ----
_APART = ("adjacency", "public")  # the fields of a graph that hold edges


@dataclass(frozen=True, repr=False)
class SerializedGraph:
    """The fields of a graph with tensors as arrays, and edge sets by name: a copy has no budget.

    >>> from graphveil.data import synthetic
    >>> graph = synthetic("tiny")
    >>> again = SerializedGraph.from_graph(graph).restored()
    >>> again.edge_set.id == graph.edge_set.id, again.edge_set is graph.edge_set
    (True, False)
    """

    fields: dict[str, Any]
    edges: tuple[Any, ...]
    public: tuple[tuple[Any, ...], npt.NDArray[np.bool_]] | None
    kind: type[Graph] = Graph

    @classmethod
    def from_graph(cls, graph: Graph) -> SerializedGraph:
        held = {part.name: getattr(graph, part.name) for part in fields(graph) if part.name not in _APART}
        arrays = {name: one.numpy() if isinstance(one, Tensor) else one for name, one in held.items()}
        public = None
        if graph.public is not None:
            public = _as_arrays(graph.public.edges), graph.public.private_nodes.numpy()
        return cls(arrays, _as_arrays(graph.adjacency), public, type(graph))

    def restored(self) -> Graph:
        public = None
        if self.public is not None:
            public = PublicPart(_from_arrays(*self.public[0]), torch.from_numpy(self.public[1]))
        return self.kind(**self.fields, adjacency=_from_arrays(*self.edges), public=public)


def _as_arrays(edges: Adjacency) -> tuple[Any, ...]:
    if edges.history or len(edges.edge_set.parts) > 1:
        raise GraphError(
            "A graph that has grown has a separate budget for each of its parts, so it cannot be "
            "sent to other processes. Use one job, or build a new graph with all its edges."
        )
    weights = None if edges.weights is None else edges.weights.numpy()
    rows = edges.indptr.numpy(), edges.indices.numpy(), weights, edges.max_weight
    return *rows, edges.directed, edges.edge_set.id, edges.edge_set.released


def _from_arrays(
    indptr: Any, indices: Any, weights: Any, max_weight: float | None, directed: bool, id: str, released: str
) -> Adjacency:
    edge_set = EdgeSet(id, released=released)
    rows = torch.from_numpy(indptr), torch.from_numpy(indices)
    shares = None if weights is None else torch.from_numpy(weights)
    return Adjacency(*rows, directed, edge_set, weights=shares, max_weight=max_weight)

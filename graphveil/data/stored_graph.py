"""Prepared graphs as memory-mapped folders, and graphs that are sent to other processes.

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
from dataclasses import dataclass, field, fields
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
from graphveil.core.edges.blocks import SOURCES, EdgeBlock, Stamp, check_stamps, remember_stamps
from graphveil.core.edges.node_pairs import PublicPart
from graphveil.data import tables
from graphveil.data.graph import Graph
from graphveil.data.tables.encoding import Encoding
from graphveil.errors import GraphError

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
    fields = read_arrays(path, manifest.arrays, manifest.facts, manifest.key)
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
    return Graph(adjacency=adjacency, **fields)


def has_split(folder: Path) -> bool:
    """Whether a prepared graph, finished or not, includes a split."""
    manifest = read_manifest(folder)
    return manifest is not None and "train_mask.npy" in manifest.arrays


def manifest_of(adjacency: Adjacency) -> Manifest:
    """Return the manifest of an opened graph's folder as it was when the graph was opened."""
    return _manifests[adjacency]


def mapped(path: Path, dtype: str, count: int) -> npt.NDArray[np.integer]:
    """Return the memory-mapped numbers of a file, after checking its length.

    Raises:
        GraphError: File that is missing, or of another length than in its manifest.
    """
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
    """Raise an error if a block differs from what was written, or cannot belong to a graph.

    Raises:
        GraphError: Damaged block. The message names it.
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


@dataclass(eq=False, repr=False)
class StoredEdges:
    """Mapped edges, and the set of their blocks that are verified."""

    folder: Path
    manifest: Manifest
    _checked: set[int] = field(default_factory=set)

    def __getstate__(self) -> dict[str, object]:
        """Return the pickled state, in which no block is marked as verified."""
        return {"folder": self.folder, "manifest": self.manifest, "_checked": set()}

    def map_files(self) -> None:
        """Map the files.

        Raises:
            GraphError: File that is missing, or of another length.
        """
        self._stamps = [Stamp.from_file(self.folder / name) for name in (OFFSETS, SOURCES)]
        self._indptr: npt.NDArray[np.integer] = mapped(self.folder / OFFSETS, "<i8", self.manifest.nodes + 1)
        self._sources: npt.NDArray[np.integer] = mapped(self.folder / SOURCES, "<i4", self.manifest.edges)

    def rows(self, start: int, stop: int) -> EdgeBlock:
        """Return the edges into some rows.

        Raises:
            GraphError: Block that differs from what was written, or file that has changed since.
        """
        check_stamps(self._stamps)
        for number, block in enumerate(self.manifest.blocks):
            first = self.manifest.blocks[number - 1].stop if number else 0
            if first < stop and start < block.stop and number not in self._checked:
                check_block(self.folder, self.manifest, number, self._indptr, self._sources)
                self._checked.add(number)
        bounds = torch.from_numpy(self._indptr[start : stop + 1])
        some = slice(int(bounds[0]), int(bounds[-1]))
        return EdgeBlock(
            start, stop, (bounds - bounds[0]).to(torch.int32), torch.from_numpy(self._sources[some])
        )


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
        """The rows that are done."""
        return self.blocks[-1].stop if self.blocks else 0

    @property
    def edges(self) -> int:
        """The stored edges of the rows that are done."""
        return self.blocks[-1].edges if self.blocks else 0

    def write(self, folder: Path) -> None:
        """Write the manifest, whole or not at all."""
        plain = self.model_dump(mode="json")
        write_atomic(folder / MANIFEST, json.dumps(plain | {"seal": _seal(plain)}, indent=1).encode())

    def completed(self, folder: Path) -> Manifest:
        """Write and return the manifest of a graph whose blocks are all there."""
        whole = self.model_copy(update={"complete": True})
        whole.write(folder)
        return whole


def keyed_sum(key: str, part: Any) -> str:
    """Return the keyed sum of an array's bytes."""
    return hashlib.blake2b(part, key=bytes.fromhex(key), digest_size=16).hexdigest()


def _seal(plain: dict[str, Any]) -> str:
    """Return the keyed checksum of a manifest's contents, independent of the layout of its file."""
    content = {name: value for name, value in plain.items() if name != "seal"}
    return keyed_sum(plain["key"], json.dumps(content, sort_keys=True).encode())


def read_manifest(folder: Path) -> Manifest | None:
    """Return a folder's manifest, None if it has none.

    Raises:
        GraphError: Manifest that is damaged, or of another version.
    """
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
    """Return the error for a file that differs from what was written."""
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
        texts = graph.ids.dtype == object or graph.ids.dtype.kind == "U"
        ids = pa.array(graph.ids.tolist(), pa.large_string()) if texts else pa.array(graph.ids)
        tables.write(folder / IDS, pa.table({"id": ids}))
        names.append(IDS)
    facts: dict[str, Any] = {name: getattr(graph, name) for name in _FACTS}
    facts["columns"] = graph.num_features
    facts["encoding"] = None if graph.encoding is None else graph.encoding.as_plain()
    return {name: _sum(folder / name, key) for name in names}, facts


def read_arrays(folder: Path, sums: dict[str, str], facts: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the fields of a graph, features mapped into memory; every file's sum is checked.

    Raises:
        GraphError: File that is damaged, incomplete or missing. The message names it.
    """
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
        fields["ids"] = tables.id_array(
            tables.keys(tables.column(tables.read(folder / IDS, ["id"]), "id"), "id")
        )
    if "x" in parts:
        fields["x"] = torch.from_numpy(parts.pop("x"))
    else:
        indptr, indices, data = (parts.pop(name) for name in _SPARSE)
        shape = len(indptr) - 1, int(facts["columns"])
        fields["x"] = sparse.csr_array((data, indices, indptr), shape=shape)
    return fields | {name: torch.from_numpy(np.array(part)) for name, part in parts.items()}


def _sum(path: Path, key: str) -> str:
    """Return the keyed sum of a file's bytes, which are mapped and not loaded."""
    if not path.stat().st_size:
        raise damaged_file_error(path)
    return keyed_sum(key, np.memmap(path, dtype=np.uint8, mode="r"))


# -- graphs sent to other processes ----
_APART = ("adjacency", "public")  # the fields of a graph that hold edges


@dataclass(frozen=True, repr=False)
class SerializedGraph:
    """The fields of a graph, tensors as arrays.

    >>> from graphveil.data import synthetic
    >>> graph = synthetic("tiny")
    >>> again = SerializedGraph.from_graph(graph).restored()
    >>> again.edge_set.id == graph.edge_set.id, again.edge_set is graph.edge_set
    (True, False)
    """

    plain: dict[str, Any]
    tensors: dict[str, npt.NDArray[Any]]
    edges: SerializedEdges
    public: tuple[SerializedEdges, npt.NDArray[np.bool_]] | None

    @classmethod
    def from_graph(cls, graph: Graph) -> SerializedGraph:
        """Split a graph into parts that can be pickled.

        Raises:
            GraphError: Graph that has grown.
        """
        held = {one.name: getattr(graph, one.name) for one in fields(graph) if one.name not in _APART}
        return cls(
            {name: value for name, value in held.items() if not isinstance(value, Tensor)},
            {name: value.numpy() for name, value in held.items() if isinstance(value, Tensor)},
            SerializedEdges.from_adjacency(graph.adjacency),
            None
            if graph.public is None
            else (SerializedEdges.from_adjacency(graph.public.edges), graph.public.private_nodes.numpy()),
        )

    def restored(self) -> Graph:
        """Return the graph."""
        tensors: dict[str, Any] = {name: torch.from_numpy(value) for name, value in self.tensors.items()}
        public = None
        if self.public is not None:
            public = PublicPart(self.public[0].restored(), torch.from_numpy(self.public[1]))
        return Graph(**self.plain, **tensors, adjacency=self.edges.restored(), public=public)


@dataclass(frozen=True, repr=False)
class SerializedEdges:
    """In-edges as arrays. The adjacency made of them has a new edge set with the same name."""

    arrays: tuple[npt.NDArray[Any], ...]
    directed: bool
    max_weight: float | None
    name: str
    released: str

    @classmethod
    def from_adjacency(cls, edges: Adjacency) -> SerializedEdges:
        """Return the arrays of an adjacency.

        Raises:
            GraphError: Graph that has grown, and that therefore has several budgets.
        """
        if edges.history or len(edges.edge_set.parts) > 1:
            raise GraphError(
                "A graph that has grown has a separate budget for each of its parts, so it cannot be "
                "sent to other processes. Use one job, or build a new graph with all its edges."
            )
        arrays = tuple(part.numpy() for part in edges.arrays)
        return cls(arrays, edges.directed, edges.max_weight, edges.edge_set.id, edges.edge_set.released)

    def restored(self) -> Adjacency:
        """Return the edges."""
        rows = map(torch.from_numpy, self.arrays)
        return Adjacency(
            next(rows),
            next(rows),
            self.directed,
            EdgeSet(self.name, released=self.released),
            weights=next(rows, None),
            max_weight=self.max_weight,
        )

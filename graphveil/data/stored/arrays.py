"""The node arrays of a prepared graph: files that are mapped into memory, and what is said beside them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from graphveil.data import tables
from graphveil.data.features import Features
from graphveil.data.graph import Graph
from graphveil.data.stored.manifest import damaged_file_error, keyed_sum
from graphveil.data.tables.encoding import Encoding

IDS = "ids.parquet"
_SPARSE = ("indptr", "indices", "data")
_FACTS = ("name", "num_classes", "class_names", "notes", "deviations")


def write_arrays(folder: Path, graph: Graph, key: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Write a graph's node arrays; return the sum of each file, and the facts beside them as plain JSON."""
    parts = _features(graph.x) | {"y": graph.y.numpy()}
    parts |= {name: mask.numpy() for name, mask in graph.masks.items()}
    for name, part in parts.items():
        _save(folder / f"{name}.npy", part)
    names = [f"{name}.npy" for name in parts]
    if graph.ids is not None:
        _write_ids(folder / IDS, graph.ids)
        names.append(IDS)
    facts: dict[str, Any] = {name: getattr(graph, name) for name in _FACTS}
    facts["columns"] = graph.num_features
    facts["encoding"] = None if graph.encoding is None else graph.encoding.as_plain()
    return {name: _sum(folder / name, key) for name in names}, facts


def read_arrays(folder: Path, sums: dict[str, str], facts: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the fields of a graph, features mapped into memory; every file's sum is checked.

    Raises:
        GraphError: a file is damaged, cut short or missing, which is named.
    """
    for name, expected in sums.items():
        if not (folder / name).is_file() or _sum(folder / name, key) != expected:
            raise damaged_file_error(folder / name)
    parts = {name.removesuffix(".npy"): _mapped(folder / name) for name in sums if name.endswith(".npy")}
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
    return fields | {name: _own(part) for name, part in parts.items()}


def mapped_files(names: Iterable[str]) -> list[str]:
    """Return which of these files are mapped, not loaded: those of features."""
    mapped = {f"{part}.npy" for part in ("x", *_SPARSE)}
    return [name for name in names if name in mapped]


def _write_ids(path: Path, ids: npt.NDArray[Any]) -> None:
    """Write ids, whole numbers or text, as a table: NumPy has no file for text of any length."""
    import pyarrow as pa

    texts = ids.dtype == object or ids.dtype.kind == "U"
    tables.write(
        path, pa.table({"id": pa.array(ids.tolist(), pa.large_string()) if texts else pa.array(ids)})
    )


def _save(path: Path, part: npt.NDArray[Any]) -> None:
    """Write an array as ``np.save`` does, which may not notice that a disk is full for the last few bytes."""
    rows = np.ascontiguousarray(part)
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(rows))
        file.write(rows.reshape(-1).view(np.uint8).data)


def _features(x: Features) -> dict[str, npt.NDArray[Any]]:
    return {"x": x.numpy()} if isinstance(x, Tensor) else {name: getattr(x, name) for name in _SPARSE}


def _mapped(path: Path) -> npt.NDArray[Any]:
    """Return an array that is mapped and not loaded; what is written to is the process's own."""
    try:
        return np.asarray(np.load(path, mmap_mode="c", allow_pickle=False))
    except ValueError:
        raise damaged_file_error(path) from None


def _own(array: npt.NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.array(array))


def _sum(path: Path, key: str) -> str:
    """Return the sum of a file's bytes, which are mapped and not loaded."""
    if not path.stat().st_size:
        raise damaged_file_error(path)
    return keyed_sum(key, np.memmap(path, dtype=np.uint8, mode="r"))

"""The ends of edges as places of nodes: each edge is read by itself, so that none decides about another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from graphveil.errors import GraphError
from graphveil.tables import files
from graphveil.tables.choices import ADD, REFUSE
from graphveil.tables.files import Column, Table
from graphveil.tables.given import Given

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Ends:
    """Each edge's two nodes by their places, its weight if it has one, and the ids of nodes to add."""

    tail: Places
    head: Places
    weight: npt.NDArray[np.float32] | None = None
    added: Column | None = None


def read_ends(given: Given, columns: list[str], ids: Column, id: str, unknown: str) -> tuple[Ends, list[str]]:
    """Read a table of edges, and say what is wrong with ids in it that edges may be dropped for.

    With ``unknown="drop"`` an edge goes if one of its ends is no node: that follows from the edge and from
    the list of nodes alone. How many go is never said.

    Args:
        given: the table.
        columns: those of the two ends, and of the weight if there is one.
        ids: the nodes' ids.
        id: what the nodes' column is called.
        unknown: ``"refuse"``, ``"drop"`` or ``"add"``.

    Raises:
        GraphError: the table cannot be read, or ids of its type can be no node's.
    """
    import pyarrow as pa

    table = given.read(columns, dict(zip(columns, (ids.type, ids.type, pa.float64()), strict=False)))
    ends = [files.column(table, name) for name in columns[:2]]
    problems = [
        words
        for name, end in zip(columns, ends, strict=False)
        if (words := _problem(end, name, ids, id, unknown))
    ]
    if problems and unknown != REFUSE:
        raise GraphError(problems[0])
    if problems and not all(_comparable(end.type, ids.type) for end in ends):
        raise GraphError("; ".join(problems))
    added = _added(ends, columns, ids) if unknown == ADD and not problems else None
    known = ids if added is None else pa.concat_arrays([ids, added])
    places = [
        _places(files.keys_like(end, name, known, each=True), known)
        for name, end in zip(columns, ends, strict=False)
    ]
    kept = (places[0] >= 0) & (places[1] >= 0)
    weight = files.vector(_rows(table, kept), columns[2]) if len(columns) > 2 else None
    return Ends(places[0][kept], places[1][kept], weight, added), problems


def parts(names: list[str], columns: list[str]) -> list[tuple[str, str]]:
    """Return each column of the table with the part that it plays."""
    part = dict(zip(columns, ("source", "target", "weight"), strict=False))
    return [(name, part.get(name, "ignored")) for name in names]


def _problem(end: Column, name: str, ids: Column, id: str, unknown: str) -> str:
    """Return what is wrong with a column of ends, if something is."""
    import pyarrow as pa

    kind = "whole numbers" if pa.types.is_int64(ids.type) else "text"
    if unknown != REFUSE:
        if _comparable(end.type, ids.type) or not len(end):
            return ""
        return (
            f"column {name!r} of the edges is of type {end.type} and column {id!r} of the nodes is {kind}, "
            "so no edge has an end among the nodes; write both ids alike"
        )
    if end.null_count:
        return f"column {name!r} has missing values; drop the rows that lack one (--unknown-ids drop)"
    if (_places(files.keys_like(end, name, ids), ids) < 0).any():
        return (
            f"column {name!r} of the edges holds ids that column {id!r} of the nodes ({kind}) lacks; add "
            "those nodes or drop those edges (--unknown-ids drop)"
        )
    return ""


def _comparable(kind: Any, ids: Any) -> bool:
    """Whether a column of this type can hold ids of that one."""
    import pyarrow as pa

    if pa.types.is_null(kind) or pa.types.is_large_string(kind):
        return True
    return bool(pa.types.is_int64(ids) and pa.types.is_integer(kind))


def _added(ends: list[Column], columns: list[str], ids: Column) -> Column:
    """Return the ids at ends that no node has yet, in their order, each once."""
    import pyarrow as pa
    import pyarrow.compute as pc

    read = [files.keys_like(end, name, ids, each=True) for name, end in zip(columns, ends, strict=False)]
    every = pc.unique(pa.concat_arrays(read)).drop_null()
    new = every.filter(pc.invert(pc.is_in(every, value_set=ids)))
    return new.take(pc.array_sort_indices(new))


def _places(ends: Column, ids: Column) -> Places:
    import pyarrow.compute as pc

    found = pc.fill_null(pc.index_in(ends, value_set=ids), -1)
    return np.asarray(found.to_numpy(zero_copy_only=False)).astype(np.int64)


def _rows(table: Table, kept: npt.NDArray[np.bool_]) -> Table:
    import pyarrow as pa

    return table if kept.all() else table.filter(pa.array(kept))

"""Rows that people own, as numbers: of the owner, of the far end, and of the value."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch

from graphveil._util import checks
from graphveil.core.edges.adjacency import MAX_NODES
from graphveil.data.conversion import as_edge_index
from graphveil.data.tables.files import (
    AS_WRITTEN,
    COMMAS,
    NULL_VALUES,
    Column,
    CsvFormat,
    as_source,
    column,
    column_names,
    without_words,
)
from graphveil.data.tables.ids import KnownIds, NodePositions, References, match_ids
from graphveil.errors import ConfigError, GraphError

FarPersons = Literal["one-sided", "mutual"]
UNKNOWN_IDS = ("error", "drop")  # of rows
_PYG_VALUES = ("value", "rating", "edge_label", "edge_attr", "edge_weight")


@dataclass(frozen=True, eq=False, repr=False)
class Rows:
    """One table of what people did: who owns a row, its far end, and its value.

    Args:
        table: Frame, mapping of columns, or path of a Parquet or CSV file, or ``URL#TABLE`` of a database.
        owner: Column with the id of the person who owns the row.
        far: Column with the id of the other end, such as a movie. None for rows without one.
        catalog: Name of the public list of far ends; by default that of the column ``far``.
        value: Column with a value, which becomes one of a public finite set.
        bins: For numeric values: increasing public bounds. A value counts in the last bin whose lower bound
            it reaches.
        values: For text: the public list of values. Rows with others are dropped.
        time: Column with the time of a row, for ``before``.
        persons: For far ends that are persons themselves. ``"one-sided"`` asserts that only the owner can
            enter or remove a row. ``"mutual"`` is for rows that both persons have, such as friendships.

    Privacy:
        Under unit ``person`` a row is part of the record of its owner. Mutual tables are rejected, because
        such a row also stands in the record of the other person.

    >>> seen = {"user": ["ann"], "movie": [7], "stars": [5]}
    >>> Rows(seen, owner="user", far="movie", value="stars", bins=[4])
    Rows(owner='user', far='movie', value='stars')
    """

    table: Any
    owner: str
    far: str | None = None
    catalog: str | None = None
    value: str | None = None
    bins: Sequence[float] | None = None
    values: Sequence[str] | None = None
    time: str | None = None
    persons: FarPersons | None = None

    def __post_init__(self) -> None:
        for name in ("owner", "far", "catalog", "value", "time"):
            checks.fitting(name, getattr(self, name), str if name == "owner" else str | None)
        used = [name for name in (self.owner, self.far, self.value, self.time) if name is not None]
        if len(set(used)) < len(used):
            raise ConfigError(f"The columns {', '.join(map(repr, used))} must all be different.")
        if self.value is not None and (self.bins is None) == (self.values is None):
            raise ConfigError(
                f"Which values of {self.value!r} occur is protected, so their set must be public. Pass "
                "bins=[3, 4] for numbers, or values=['view', 'buy'] for text."
            )
        if self.value is None and not (self.bins is None and self.values is None):
            raise ConfigError("bins= and values= need value=, the column that they are for.")
        bins = () if self.bins is None else tuple(self.bins)
        if any(not b > a for a, b in pairwise(bins)) or not np.isfinite(bins).all():
            raise ConfigError("bins= must be finite numbers in increasing order, such as bins=[3, 4].")
        if self.values is not None and (
            isinstance(self.values, str) or len(set(self.values)) < len(self.values)
        ):
            raise ConfigError("values= must be a list of different texts, such as values=['view', 'buy'].")
        if self.persons is not None:
            checks.one_of(get_args(FarPersons), persons=self.persons)
            if self.far is None:
                raise ConfigError("persons= is about far ends. Name their column with far=.")

    def __repr__(self) -> str:
        """Show the names of columns only."""
        parts = {"owner": self.owner, "far": self.far, "value": self.value, "persons": self.persons}
        return f"Rows({', '.join(f'{name}={part!r}' for name, part in parts.items() if part is not None)})"

    @property
    def num_values(self) -> int:
        """The number of different values of a row, which is public."""
        return len(self.bins) + 1 if self.bins is not None else len(self.values) if self.values else 1


def check_sizes(count: int) -> None:
    """Raise an error if a graph cannot have so many owners and far ends."""
    if count > MAX_NODES:
        raise GraphError(
            f"Owners and far ends together must be at most {MAX_NODES:,}, counted for each value. Split the "
            "table, or use fewer bins."
        )


def read_rows(
    rows: Rows,
    title: str,
    known: Sequence[KnownIds],
    *,
    unknown_ids: str,
    before: object = None,
    least: int = 0,
    csv_format: CsvFormat = COMMAS,
) -> tuple[NodePositions, NodePositions, NodePositions]:
    """Return the owner, the far end and the value of each row as numbers; each row is read by itself.

    Args:
        known: Public ids of the owners, and of the far ends unless there are none.
        before: Only rows with an earlier time are used.
        least: Rows with a lower value, or without any, are dropped before their ids are matched.
    """
    import pyarrow as pa

    checks.one_of(UNKNOWN_IDS, unknown_ids=unknown_ids)
    source = as_source(rows.table, title, csv_format)
    types = _types(rows, before)
    column_names(source, [*types])
    table = source.read([*types], types)
    kept, values = np.ones(table.num_rows, dtype=bool), np.zeros(table.num_rows, dtype=np.int64)
    if rows.value is not None:
        values = _values_of(rows, column(table, rows.value))
        kept = values >= least
    if before is not None and rows.time is not None:
        kept &= _earlier(column(table, rows.time), before, rows.time)
    table, values = table.filter(pa.array(kept)), values[kept]
    ends = [
        References(
            column(table, name), f"column {name!r} of {source.title}", f"table[{name!r}]", ids, source.written
        )
        for name, ids in zip((rows.owner, rows.far), known, strict=False)
        if name is not None
    ]
    places, _ = match_ids(ends, unknown_ids)
    kept = np.logical_and.reduce([place >= 0 for place in places])
    return places[0][kept], (places[1] if rows.far is not None else 0 * places[0])[kept], values[kept]


def _types(rows: Rows, before: object) -> dict[str, Any]:
    """Return the columns to read with their types in a CSV: one row could change a type that is inferred."""
    import pyarrow as pa

    types: dict[str, Any] = {rows.owner: AS_WRITTEN}
    if rows.far is not None:
        types[rows.far] = AS_WRITTEN
    if rows.value is not None:
        types[rows.value] = AS_WRITTEN if rows.bins is None else pa.float64()
    if rows.time is not None and before is not None:
        types[rows.time] = pa.float64() if isinstance(before, int | float) else AS_WRITTEN
    return types


def _values_of(rows: Rows, given: Column) -> NodePositions:
    """Return the number of each row's value, or -1 for a value that is missing or not listed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if rows.bins is not None:
        try:
            numbers = pc.fill_null(without_words(given, NULL_VALUES).cast(pa.float64()), np.nan)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise GraphError(
                f"Column {rows.value!r} is not numeric. Convert it with pandas.to_numeric, or pass values= "
                "with its public list."
            ) from None
        return binned(numbers.to_numpy(zero_copy_only=False), rows.bins)
    listed = pa.array([str(each) for each in rows.values or ()], pa.large_string())
    found = pc.fill_null(pc.index_in(given.cast(pa.large_string()), value_set=listed), -1)
    return np.asarray(found.to_numpy(zero_copy_only=False)).astype(np.int64)


def binned(numbers: npt.NDArray[Any], bins: Sequence[float]) -> NodePositions:
    """Return the bin of each number, -1 for NaN.

    >>> binned(np.array([2.0, 3.0, 9.0, np.nan]), (3, 4)).tolist()
    [0, 1, 2, -1]
    """
    return np.where(np.isnan(numbers), -1, np.searchsorted(np.array(bins, float), numbers, side="right"))


def _earlier(times: Column, before: object, name: str) -> npt.NDArray[np.bool_]:
    """Return which times are before a date or a number; the dates of a text all have an offset, or none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    numeric = pa.types.is_integer(times.type) or pa.types.is_floating(times.type)
    times, is_text = without_words(times, NULL_VALUES), pa.types.is_large_string(times.type)
    try:
        bound = pa.scalar(before)
        if isinstance(before, int | float):
            times = times.cast(pa.float64()) if is_text else times
        elif not numeric:
            if is_text:
                with suppress(pa.ArrowInvalid):
                    times = times.cast(pa.timestamp("us"))
            if pa.types.is_large_string(times.type):
                times = times.cast(pa.timestamp("us", "UTC"))
            bound = _bound_of(bound, times.type)
        found = pc.fill_null(pc.less(times, bound), False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, TypeError):
        raise ConfigError(
            f"before={before!r} cannot be compared with column {name!r} of type {times.type}. Pass a date "
            "such as '2024-06-01' for dates, or a number for numbers."
        ) from None
    return np.asarray(found.to_numpy(zero_copy_only=False)).astype(bool)


def _bound_of(bound: Any, kind: Any) -> Any:
    """Return a scalar as a moment of a type; without an offset it is in UTC."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_timestamp(kind) and kind.tz is not None:
        with suppress(pa.ArrowInvalid):
            return pc.assume_timezone(bound.cast(pa.timestamp(kind.unit)), "UTC").cast(kind)
    return bound.cast(kind)


# -- torch_geometric --------------------------------------------------------------------------------------


def pyg_rows(
    data: Any, kind: tuple[str, str, str], bins: Sequence[float] | None, owners: int | None = None
) -> tuple[NodePositions, NodePositions, NodePositions, list[int]]:
    """Return owners, far ends and values of the rows of an edge type, and the sizes of its node types."""
    sizes = [data[kind[0]].num_nodes if owners is None else owners, data[kind[2]].num_nodes]
    given = getattr(data[kind], "edge_index", None)
    if given is None or None in sizes:
        raise GraphError(
            "The HeteroData has no edge_index or no num_nodes. Set edge_index, and data[type].num_nodes for "
            "both node types."
        )
    if any(isinstance(size, bool) or not isinstance(size, int) or size < 0 for size in sizes):
        raise GraphError("num_nodes must be an integer for both node types.")
    check_sizes(sum(sizes))
    own, far = as_edge_index(given, str(kind)).numpy()
    for index, size in ((own, sizes[0]), (far, sizes[1])):
        if len(index) and not 0 <= index.min() <= index.max() < size:
            raise GraphError(
                f"The edge_index of {kind} contains an index that is negative or too large for num_nodes. "
                "Correct edge_index or num_nodes."
            )
    values = np.zeros(len(own), dtype=np.int64)
    if bins is not None:
        _, numbers = pyg_values(data[kind])
        if len(numbers) != len(own):
            raise GraphError(
                f"{kind} needs one number for each edge, in one of {', '.join(_PYG_VALUES)}, to compare it "
                "with min_rating= or bins=."
            )
        values = binned(numbers, bins)
    kept = values >= 0
    return own[kept], far[kept], values[kept], sizes


def pyg_values(relation: Any) -> tuple[str, npt.NDArray[np.float64]]:
    """Return the name and the numbers of the attribute of an edge type with a value for each row, if any."""
    name = next((one for one in _PYG_VALUES if getattr(relation, one, None) is not None), "")
    values = torch.as_tensor(relation[name] if name else ()).detach().cpu()
    return name, (values[:, 0] if values.ndim > 1 else values).double().numpy()

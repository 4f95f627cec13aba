"""A table as somebody gave it: a file, or a frame in memory that speaks Arrow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from graphveil.data.tables import files
from graphveil.data.tables.files import Table
from graphveil.errors import GraphError


class TableSource(Protocol):
    """What is looked at: the names of columns first, then some of them."""

    @property
    def title(self) -> str:
        """What messages call the table."""

    def names(self) -> list[str]:
        """Return all column names."""

    @property
    def written(self) -> bool:
        """Whether values are text without types, as in a CSV."""

    def read(
        self,
        columns: Sequence[str],
        types: Mapping[str, Any],
        null_values: Sequence[str] = files.NULL_VALUES,
    ) -> Table:
        """Return some columns; arguments as for :func:`files.read`."""

    def released(self) -> str:
        """Return what a table of released edges says of itself."""


@dataclass(frozen=True)
class FileSource:
    """A parquet or CSV file."""

    path: Path
    csv_format: files.CsvFormat = files.COMMAS

    @property
    def title(self) -> str:
        """The file's name."""
        return self.path.name

    def names(self) -> list[str]:
        """Return all column names."""
        names = files.all_names(self.path, self.csv_format)
        if self.written and len(names) == 1 and any(mark in names[0] for mark in files.DELIMITERS):
            raise GraphError(f"{self.title} has one column; {files.commas(self.title, names)}")
        return names

    @property
    def written(self) -> bool:
        """Whether the file is a CSV."""
        return files.is_csv(self.path)

    def read(
        self,
        columns: Sequence[str],
        types: Mapping[str, Any],
        null_values: Sequence[str] = files.NULL_VALUES,
    ) -> Table:
        """Return some columns of the file."""
        return files.read(self.path, columns, types, null_values, self.csv_format)

    def released(self) -> str:
        """Return what the file says of itself."""
        return files.released(self.path)


@dataclass(frozen=True, eq=False)
class FrameSource:
    """A table in memory."""

    table: Table
    title: str

    @classmethod
    def from_frame(cls, frame: Any, title: str) -> FrameSource:
        """Take a frame of pandas, polars, Arrow or whatever has ``__arrow_c_stream__``, or plain columns.

        Raises:
            GraphError: it is no frame, or Arrow has no type for a column of it.
        """
        import pyarrow as pa

        if hasattr(frame, "collect_schema") and hasattr(frame, "collect"):  # a lazy frame of polars
            frame = frame.collect()
        supports_arrow = any(hasattr(frame, name) for name in ("__arrow_c_stream__", "__arrow_c_array__"))
        pandas = type(frame).__name__ == "DataFrame" and hasattr(frame, "columns")
        if not (supports_arrow or isinstance(frame, Mapping | pa.Table) or pandas):
            raise GraphError(
                f"{title} is a {type(frame).__name__}; give a frame of pandas, polars or Arrow, or a mapping "
                "of columns"
            )
        named = [str(name) for name in getattr(frame, "columns", ())] if pandas else []
        if (twice := first_duplicate(named)) is not None:
            raise GraphError(f"{title} has more than one column {twice!r}; rename or drop all but one")
        try:
            table = pa.table(dict(frame)) if isinstance(frame, Mapping) else pa.table(frame)
        except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError):  # quotes values
            raise _no_table(frame, title) from None
        return cls(_without_index(table), title)

    def names(self) -> list[str]:
        """Return all column names."""
        return list(self.table.column_names)

    @property
    def written(self) -> bool:
        """Whether values have no types: those of a frame have."""
        return False

    def read(
        self,
        columns: Sequence[str],
        types: Mapping[str, Any],
        null_values: Sequence[str] = files.NULL_VALUES,
    ) -> Table:
        """Return some columns."""
        return self.table.select(list(columns))

    def released(self) -> str:
        """Return nothing: a frame is never known to be released."""
        return ""


def _no_table(frame: Any, title: str) -> GraphError:
    """Return which column of a frame Arrow cannot hold, and why."""
    import pyarrow as pa

    names = list(frame.keys()) if hasattr(frame, "keys") else []
    for name in names:
        try:
            values = frame[name]
            pa.table({str(name): values}) if isinstance(frame, Mapping) else pa.table(frame[[name]])
        except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError, KeyError):
            return GraphError(f"column {name!r} of {title} {reason(frame[name])}")
    lengths = {len(frame[name]) for name in names if hasattr(frame[name], "__len__")}
    if len(lengths) > 1:
        return GraphError(f"the columns of {title} are of different lengths; give each one value per row")
    return GraphError(f"{title} cannot be converted to an Arrow table; give it as one (pyarrow.Table)")


def reason(values: Any) -> str:
    """Return why Arrow cannot hold a column, and how it can."""
    kind = str(getattr(values, "dtype", ""))
    if kind.startswith("Sparse"):
        return "is sparse; make it dense first: column.sparse.to_dense()"
    if "complex" in kind:
        return "holds complex numbers; give their real and imaginary parts as two columns"
    if not hasattr(values, "__len__") or isinstance(values, str):
        return f"is a {type(values).__name__}; give a list or an array with one value per row"
    if getattr(values, "ndim", 1) != 1:
        return "has more than one dimension; give one value, or one list, per row"
    try:
        kinds = sorted({type(one).__name__ for one in values if one is not None})
    except TypeError:
        kinds = []
    if kinds == ["complex"]:
        return "holds complex numbers; give their real and imaginary parts as two columns"
    if kinds == ["int"]:
        return "holds integers beyond 64 bits; write them as text: column.astype(str)"
    if len(kinds) > 1:
        return f"has values of mixed types ({', '.join(kinds[:4])}); give it one type: column.astype(str)"
    return f"holds values ({', '.join(kinds) or kind}) that are no numbers, text or dates; convert or drop it"


def first_duplicate(names: Sequence[str]) -> str | None:
    """Return a name that stands there twice."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _without_index(table: Table) -> Table:
    """Return a table without the index of a pandas frame that nobody named."""
    unnamed = [name for name in table.column_names if name.startswith("__index_level_")]
    return table.drop_columns(unnamed) if unnamed else table

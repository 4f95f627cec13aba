"""A table as somebody gave it: a file, or a frame in memory that speaks Arrow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from graphveil.errors import GraphError
from graphveil.tables import files
from graphveil.tables.files import Table


class Given(Protocol):
    """What is looked at: the names of columns first, then some of them."""

    @property
    def title(self) -> str:
        """What messages call the table."""

    def names(self) -> list[str]:
        """Return all column names."""

    def read(self, columns: Sequence[str], types: Mapping[str, Any]) -> Table:
        """Return some columns; ``types`` as for :func:`files.read`."""

    def released(self) -> str:
        """Return what a table of released edges says of itself."""


@dataclass(frozen=True)
class GivenFile:
    """A parquet or CSV file."""

    path: Path

    @property
    def title(self) -> str:
        """The file's name."""
        return self.path.name

    def names(self) -> list[str]:
        """Return all column names."""
        return files.all_names(self.path)

    def read(self, columns: Sequence[str], types: Mapping[str, Any]) -> Table:
        """Return some columns of the file."""
        return files.read(self.path, columns, types)

    def released(self) -> str:
        """Return what the file says of itself."""
        return files.released(self.path)


@dataclass(frozen=True, eq=False)
class GivenTable:
    """A table in memory."""

    table: Table
    title: str

    @classmethod
    def of(cls, frame: Any, title: str) -> GivenTable:
        """Take a frame of pandas, polars, Arrow or whatever has ``__arrow_c_stream__``, or plain columns.

        Raises:
            GraphError: it is no frame, or Arrow has no type for a column of it.
        """
        import pyarrow as pa

        if hasattr(frame, "collect_schema") and hasattr(frame, "collect"):  # a lazy frame of polars
            frame = frame.collect()
        speaks = any(hasattr(frame, name) for name in ("__arrow_c_stream__", "__arrow_c_array__"))
        if not (speaks or isinstance(frame, Mapping | pa.Table) or type(frame).__name__ == "DataFrame"):
            raise GraphError(
                f"{title} is a {type(frame).__name__}; give a frame of pandas, polars or Arrow, or a mapping "
                "of columns"
            )
        try:
            table = pa.table(dict(frame)) if isinstance(frame, Mapping) else pa.table(frame)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):  # its message quotes values
            raise GraphError(
                f"{title} has a column that Arrow cannot hold, such as one of mixed types; give each column "
                "one type"
            ) from None
        return cls(_without_index(table), title)

    def names(self) -> list[str]:
        """Return all column names."""
        return list(self.table.column_names)

    def read(self, columns: Sequence[str], types: Mapping[str, Any]) -> Table:
        """Return some columns."""
        return self.table.select(list(columns))

    def released(self) -> str:
        """Return nothing: a frame is never known to be released."""
        return ""


def repeated(names: Sequence[str]) -> str | None:
    """Return a name that stands there twice."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _without_index(table: Table) -> Table:
    """Return a table without the index of a pandas frame that nobody named."""
    unnamed = [name for name in table.column_names if name.startswith("__index_level_")]
    return table.drop_columns(unnamed) if unnamed else table

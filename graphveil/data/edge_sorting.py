"""Sort edge tables larger than memory by target: DuckDB sorts them and spills to disk.

An edge becomes one integer, target * 2^32 + source as node indices, so one column is sorted. Each end is
converted separately, as in ``graphveil.data.tables``: no edge affects how another is read.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from graphveil._util.files import name_in_utf8
from graphveil.data.tables.files import COMMAS, CSV, PARQUET, Column, CsvFormat, column_names
from graphveil.data.tables.ids import has_blanks
from graphveil.errors import ConfigError, GraphError

if TYPE_CHECKING:
    import duckdb

SHIFT = 32
_BATCH = 1 << 20  # edges that are handed over at a time
_ENDS = "source_id", "target_id"
_SPACES = "' ' || " + " || ".join(f"chr({code})" for code in range(9, 14))  # which pyarrow trims, too
_WHOLE = (
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
    "UBIGINT",
    "HUGEINT",
)
Keys = npt.NDArray[np.int64]  # target * 2^32 + source


@dataclass(frozen=True, eq=False)
class EdgeTables:
    """Files of one kind, with the columns that hold the two ends, and the nodes' ids in node order."""

    files: tuple[Path, ...]
    source: str
    target: str
    ids: Column
    directed: bool
    drop_unknown: bool
    memory: str
    threads: int
    scratch: Path
    csv_format: CsvFormat = COMMAS

    def sorted_from(self, row: int) -> Iterator[Keys]:
        """Yield the edges into rows from ``row`` on, ascending, with repeats and without self-loops.

        Raises:
            ConfigError: DuckDB that is not installed.
            GraphError: File or column that cannot be used, unknown id, or full disk.
        """
        try:
            import duckdb
        except ImportError:
            raise ConfigError(
                "Sorting edges needs DuckDB, which is not installed. Install it: pip install "
                "'graphveil[disk]'"
            ) from None
        settings: dict[str, Any] = {
            "threads": self.threads,
            "memory_limit": self.memory,
            "temp_directory": name_in_utf8(self.scratch),
            "preserve_insertion_order": False,
        }
        try:
            with duckdb.connect(":memory:", config=settings) as session:
                reader = session.sql(self._query(session, row)).to_arrow_reader(_BATCH)
                for batch in reader:
                    keys = batch.column(0)
                    if keys.null_count:
                        raise GraphError(
                            f"Columns {self.source!r} and {self.target!r} of the edges have ids that are "
                            "missing from "
                            "the table of nodes, or empty ids. Add these nodes, or drop such edges with "
                            "unknown_ids='drop' (--unknown-ids drop)."
                        )
                    yield np.asarray(keys.to_numpy(zero_copy_only=False), dtype=np.int64)
        except duckdb.Error as error:  # whose messages may quote a row
            words = str(error).lower()
            full = "no space left", "file too large"  # the system's words for a disk, and for a limit
            if any(one in words for one in full) or ("disk" in words and "full" in words):
                raise full_disk(self.scratch.parent) from None
            raise GraphError(
                f"The tables of edges cannot be read or sorted ({type(error).__name__}). Check the files "
                "and their columns, or allow more memory, for example --memory 8GB."
            ) from None

    def _query(self, session: duckdb.DuckDBPyConnection, row: int) -> str:
        """Return the query; additional inputs besides the files are registered in the session."""
        import pyarrow as pa

        ends = " UNION ALL ".join(self._ends(session, file) for file in self.files)
        ids = self.ids.to_numpy() if pa.types.is_int64(self.ids.type) else np.empty(0, np.int64)
        # Consecutive integers need no join. The check of both ends is needed, too: differences of 64 bits
        # wrap around.
        if len(ids) and int(ids[-1]) - int(ids[0]) == len(ids) - 1 and bool((np.diff(ids) == 1).all()):
            first, last = int(ids[0]), int(ids[-1])
            places = [f"CASE WHEN {end} BETWEEN {first} AND {last} THEN {end} - {first} END" for end in _ENDS]
            pairs = f"SELECT {places[0]} AS s, {places[1]} AS t FROM ({ends})"
        else:
            place = pa.array(np.arange(len(self.ids), dtype=np.int64))
            session.register("nodes", pa.table({"id": self.ids, "place": place}))
            pairs = (
                f"SELECT a.place AS s, b.place AS t FROM ({ends}) LEFT JOIN nodes a ON a.id = {_ENDS[0]} "
                f"LEFT JOIN nodes b ON b.id = {_ENDS[1]}"
            )
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

    def _ends(self, session: duckdb.DuckDBPyConnection, file: Path) -> str:
        """Return the query of the two ends in one file, by its own columns and their types."""
        names, ends = (
            column_names(file, [self.source, self.target], self.csv_format),
            [self.source, self.target],
        )
        path, written = _quoted(glob.escape(name_in_utf8(file)), "'"), _kind(file) == "csv"
        table = f"read_parquet({path}, hive_partitioning = false)"
        if written:  # nothing is inferred from rows, and columns go by number: DuckDB rejects some names
            kinds, ends = (
                ", ".join(f"'c{number}': 'VARCHAR'" for number in range(len(names))),
                [f"c{names.index(end)}" for end in ends],
            )
            delimiter = _quoted(self.csv_format.delimiter, "'")
            table = (
                f"read_csv({path}, hive_partitioning = false, auto_detect = false, header = true, skip = 0, "
                f"delim = {delimiter}, quote = '\"', escape = '\"', "
                f"nullstr = '', columns = {{{kinds}}})"
            )
        else:
            for end in ends:  # DuckDB does not distinguish names that differ in case alone
                if sum(name.lower() == end.lower() for name in names) > 1:
                    raise GraphError(
                        f"{file.name} has columns that differ from {end!r} only in upper and lower case. "
                        "Rename them."
                    )
        types = {name: kind for name, kind, *_ in session.sql(f"DESCRIBE SELECT * FROM {table}").fetchall()}
        named = ", ".join(
            f"{self._id(name, column, types[column], written=written)} AS {end}"
            for name, column, end in zip((self.source, self.target), ends, _ENDS, strict=True)
        )
        return f"SELECT {named} FROM {table}"

    def _id(self, name: str, column: str, found: str, *, written: bool) -> str:
        """Return the expression of an end as an id of the nodes' type, NULL for an invalid value."""
        import pyarrow as pa

        column, whole = _quoted(column, '"'), pa.types.is_int64(self.ids.type)
        if found == '"NULL"':  # a column without any value
            return f"CAST(NULL AS {'BIGINT' if whole else 'VARCHAR'})"
        if whole and found in _WHOLE:
            return f"TRY_CAST({column} AS BIGINT)"
        if not whole and (
            found in (*_WHOLE, "BOOLEAN", "DATE", "TIME", "UUID") or found.startswith("DECIMAL")
        ):
            return f"CAST({column} AS VARCHAR)"
        if found == "BLOB":  # UTF-8 as older writers store it
            column = f"decode({column})"
        elif found != "VARCHAR":
            kind = "whole numbers" if whole else "text"
            raise GraphError(
                f"Column {name!r} of the edges is {found}, but the node ids are {kind}. Convert one of "
                "the two columns."
            )
        if not whole:
            return f"trim({column}, {_SPACES})" if written and not has_blanks(self.ids) else column
        number = f"trim({column}, {_SPACES})"
        return f"CASE WHEN regexp_full_match({number}, '-?[0-9]+') THEN TRY_CAST({number} AS BIGINT) END"


def found_files(patterns: Sequence[str | PathLike[str]]) -> tuple[Path, ...]:
    """Return the files that paths and patterns name, sorted, all of one kind.

    Raises:
        GraphError: Pattern without a match, or files of different or unsupported kinds.
    """
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
    kinds = {_kind(path) for path in found}
    if len(kinds) != 1 or None in kinds:
        raise GraphError(
            f"All edge tables must have the same format: Parquet ({', '.join(PARQUET)}) or CSV "
            f"({', '.join(CSV)}). "
            "The format is determined by the suffix."
        )
    return tuple(sorted(found))


def _kind(path: Path) -> str | None:
    if path.name.endswith(PARQUET):
        return "parquet"
    return "csv" if path.name.endswith(CSV) else None


def _quoted(text: str, mark: str) -> str:
    return mark + text.replace(mark, 2 * mark) + mark


def full_disk(folder: Path) -> GraphError:
    """Return the error for a full disk."""
    return GraphError(
        f"{folder} has too little free disk space. A prepared graph needs 4 bytes per stored "
        "edge, and sorting temporarily needs about 30 more. Free some space, and run the same "
        "command again to continue."
    )

"""Tables of edges, larger than memory, in the order of their targets: DuckDB sorts them and spills by itself.

An edge becomes one whole number, target * 2^32 + source in places of nodes, so one column is sorted. Each end
is read by itself, as :mod:`graphveil.tables` does: no edge decides what becomes of another.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphveil.errors import ConfigError, GraphError
from graphveil.graph.stored.writing import SHIFT, Keys, full_disk
from graphveil.tables.files import CSV, PARQUET, Column

if TYPE_CHECKING:
    import duckdb

_BATCH = 1 << 20  # edges that are handed over at a time


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

    def sorted_from(self, row: int) -> Iterator[Keys]:
        """Yield the edges into rows from one on, ascending, repeats among them, loops not.

        Raises:
            ConfigError: DuckDB is not installed.
            GraphError: a file or column cannot be used, an id is unknown, or the disk is full.
        """
        duckdb = _duckdb()
        try:
            with duckdb.connect(":memory:", config=self._settings()) as session:
                reader = session.sql(self._query(session, row)).to_arrow_reader(_BATCH)
                for batch in reader:
                    keys = batch.column(0)
                    if keys.null_count:
                        raise GraphError(
                            f"columns {self.source!r} and {self.target!r} of the edges hold ids that no node "
                            "has, or none; add those nodes, or leave such edges out with "
                            "unknown_ids='drop' (--unknown-ids drop)"
                        )
                    yield np.asarray(keys.to_numpy(zero_copy_only=False), dtype=np.int64)
        except duckdb.Error as error:  # whose messages may quote a row
            words = str(error).lower()
            full = "no space left", "file too large"  # the system's words for a disk, and for a limit
            if any(one in words for one in full) or ("disk" in words and "full" in words):
                raise full_disk(self.scratch.parent) from None
            raise GraphError(
                f"the tables of edges cannot be read or sorted ({type(error).__name__}); check the files and "
                "their columns, or give more memory (--memory)"
            ) from None

    def _settings(self) -> dict[str, Any]:
        return {
            "threads": self.threads,
            "memory_limit": self.memory,
            "temp_directory": str(self.scratch),
            "preserve_insertion_order": False,
        }

    def _query(self, session: duckdb.DuckDBPyConnection, row: int) -> str:
        """Return the query; what it reads beside the files is registered in the session."""
        table = _table_of(self.files)
        found = session.sql(f"DESCRIBE SELECT * FROM {table}").fetchall()
        kinds = {name: kind for name, kind, *_ in found}
        ends = [self._id(name, kinds) for name in (self.source, self.target)]
        first = self._first_of_a_run()
        if first is not None:
            last = first + len(self.ids) - 1
            places = [f"CASE WHEN {end} BETWEEN {first} AND {last} THEN {end} - {first} END" for end in ends]
            pairs = f"SELECT {places[0]} AS s, {places[1]} AS t FROM {table}"
        else:
            import pyarrow as pa

            place = pa.array(np.arange(len(self.ids), dtype=np.int64))
            session.register("nodes", pa.table({"id": self.ids, "place": place}))
            pairs = (
                f"SELECT a.place AS s, b.place AS t FROM {table} LEFT JOIN nodes a ON a.id = {ends[0]} "
                f"LEFT JOIN nodes b ON b.id = {ends[1]}"
            )
        if not self.directed:
            pairs = (
                "SELECT CASE WHEN back THEN t ELSE s END AS s, CASE WHEN back THEN s ELSE t END AS t "
                f"FROM ({pairs}), (VALUES (false), (true)) directions(back)"
            )
        unknown = "false" if self.drop_unknown else "s IS NULL OR t IS NULL"
        return (
            f"SELECT (t << {SHIFT}) | s AS key FROM ({pairs}) "
            f"WHERE ({unknown}) OR (s <> t AND t >= {row}) ORDER BY key NULLS FIRST"
        )

    def _first_of_a_run(self) -> int | None:
        """Return the first id if ids are consecutive whole numbers, which needs no join."""
        import pyarrow as pa

        if not pa.types.is_int64(self.ids.type):
            return None
        ids = self.ids.to_numpy()
        return int(ids[0]) if bool((np.diff(ids) == 1).all()) else None

    def _id(self, name: str, kinds: dict[str, str]) -> str:
        """Return the expression of an end as an id of the nodes' kind, NULL where a value is none."""
        import pyarrow as pa

        if name not in kinds:
            raise GraphError(f"the tables of edges have no column {name!r}; name one of theirs, spelt alike")
        column, whole = _quoted(name, '"'), pa.types.is_int64(self.ids.type)
        if whole and kinds[name] in _WHOLE:
            return f"TRY_CAST({column} AS BIGINT)"
        if kinds[name] != "VARCHAR":
            kind = "whole numbers" if whole else "text"
            raise GraphError(f"column {name!r} of the edges is {kinds[name]}, and the nodes' ids are {kind}")
        if not whole:
            return column
        number = f"trim({column})"
        return f"CASE WHEN regexp_full_match({number}, '-?[0-9]+') THEN TRY_CAST({number} AS BIGINT) END"


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


def found_files(patterns: Sequence[str | PathLike[str]]) -> tuple[Path, ...]:
    """Return the files that paths and patterns name, sorted, all of one kind.

    Raises:
        GraphError: a pattern finds none, or they are of different kinds or of one that is not read.
    """
    found: set[Path] = set()
    for given in patterns:
        pattern, path = os.fspath(given), Path(given)
        here = [path] if path.is_file() else list(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
        if not here:
            raise GraphError(f"no file is called {pattern!r}; name tables of edges, or a pattern of theirs")
        found.update(here)
    kinds = {_kind(path) for path in found}
    if len(kinds) != 1 or None in kinds:
        raise GraphError(
            f"tables of edges must all be parquet ({', '.join(PARQUET)}) or all CSV ({', '.join(CSV)}), by "
            "suffix"
        )
    return tuple(sorted(found))


def _kind(path: Path) -> str | None:
    if path.name.endswith(PARQUET):
        return "parquet"
    return "csv" if path.name.endswith(CSV) else None


def _table_of(files: Sequence[Path]) -> str:
    listed = ", ".join(_quoted(str(path), "'") for path in files)
    if _kind(files[0]) == "parquet":
        return f"read_parquet([{listed}])"
    return f"read_csv([{listed}], header = true, all_varchar = true)"


def _quoted(text: str, mark: str) -> str:
    return mark + text.replace(mark, 2 * mark) + mark


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError:
        raise ConfigError(
            "edges are sorted by DuckDB, which is not installed here: pip install 'graphveil[disk]'"
        ) from None
    return duckdb

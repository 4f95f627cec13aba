"""Which column of a file plays which part: names alone are looked at, and ids for being distinct."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from graphveil.data.tables import files
from graphveil.data.tables.files import Column, Table
from graphveil.errors import GraphError


def check_columns(path: Path, chosen: list[str], csv_format: files.CsvFormat = files.COMMAS) -> list[str]:
    """Return all columns of a file, among which the chosen ones are distinct."""
    check_distinct(chosen)
    return files.column_names(path, chosen, csv_format)


def check_distinct(chosen: Sequence[str]) -> None:
    """Refuse a column that is named for two roles."""
    for name in chosen:
        if chosen.count(name) > 1:
            raise GraphError(f"column {name!r} is named for two roles; name one column for each")


def feature_columns(
    path: Path, roles: list[str], features: Sequence[str] | None, aside: Sequence[str], *, needs: str
) -> list[str]:
    """Return the columns of a file that hold features: the chosen ones, or all without another role.

    Args:
        needs: why there must be one, for the refusal.
    """
    chosen = [] if features is None else list(features)
    names = check_columns(path, [*roles, *chosen])
    if features is None:
        chosen = [name for name in names if name not in {*roles, *aside}]
    if not chosen:
        how = files.commas(path.name, names) or "add at least one column of numbers"
        raise GraphError(f"{path.name} has no feature column, and {needs}; {how}")
    return chosen


def distinct_ids(table: Table, name: str) -> Column:
    """Return a column of ids, none of which may occur twice."""
    import pyarrow.compute as pc

    ids = files.keys(files.column(table, name), name)
    if len(pc.unique(ids)) < len(ids):
        raise GraphError(f"column {name!r} repeats ids; give one row per node")
    return ids

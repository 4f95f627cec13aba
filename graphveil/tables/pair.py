"""Two files, looked at together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from graphveil.tables import files
from graphveil.tables.choices import Choices
from graphveil.tables.encoding import Encoding
from graphveil.tables.files import Column, CsvFormat
from graphveil.tables.given import GivenFile
from graphveil.tables.look import Look, Roles, look
from graphveil.tables.roles import check_columns

EDGES_FILE = "edges.parquet"  # of a folder that holds a released graph


def edges_file(path: Path) -> Path:
    """Return the table of edges: the path, or what a folder of a released graph holds."""
    return path / EDGES_FILE if path.is_dir() else path


def given_files(nodes: Path, edges: Path, csv_format: CsvFormat) -> tuple[GivenFile, GivenFile]:
    """Return both files as they are looked at."""
    return GivenFile(nodes, csv_format), GivenFile(edges, csv_format)


def read_as(choices: Choices, encoding: Encoding | None) -> Choices:
    """Return choices in which what nobody chose about reading files is as it was for another graph."""
    if encoding is None:
        return choices
    return replace(
        choices,
        null_values=encoding.null_values if choices.null_values is None else choices.null_values,
        delimiter=encoding.delimiter if choices.delimiter is None else choices.delimiter,
        decimal=encoding.decimal if choices.decimal is None else choices.decimal,
    )


def listed_ids(path: Path | None, id: str, csv_format: CsvFormat) -> Column | None:
    """Return the ids of a public list of nodes, a table with the nodes' column of ids."""
    if path is None:
        return None
    check_columns(path, [id], csv_format)
    return files.column(files.read(path, [id], files.id_types(path, [id]), csv_format=csv_format), id)


def look_at_files(
    nodes: Path,
    edges: Path,
    roles: Roles,
    choices: Choices,
    *,
    classes: Sequence[str] | None = None,
    encoding: Encoding | None = None,
    node_ids: Path | None = None,
    private_records: bool = False,
    private_edges: bool = False,
) -> Look:
    """Look at two files; ``node_ids`` is a table that lists nodes in a column called as that of the nodes.

    The other arguments are those of :func:`~graphveil.tables.look.look`.
    """
    choices = read_as(choices, encoding)
    return look(
        *given_files(nodes, edges, choices.csv_format),
        roles,
        choices,
        classes=classes,
        rules=None if encoding is None else encoding.rules,
        listed=listed_ids(node_ids, roles.id, choices.csv_format),
        private_records=private_records,
        private_edges=private_edges,
    )

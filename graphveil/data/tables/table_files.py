"""Two files, looked at together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from graphveil.data.tables import files
from graphveil.data.tables.choices import EncodingOptions
from graphveil.data.tables.encoding import Encoding
from graphveil.data.tables.files import Column, CsvFormat
from graphveil.data.tables.inspect_tables import Roles, TableInspection, inspect_tables
from graphveil.data.tables.roles import check_columns
from graphveil.data.tables.table_source import FileSource

EDGES_FILE = "edges.parquet"  # of a folder that holds a released graph


def edges_file(path: Path) -> Path:
    """Return the table of edges: the path, or what a folder of a released graph holds."""
    return path / EDGES_FILE if path.is_dir() else path


def file_sources(nodes: Path, edges: Path, csv_format: CsvFormat) -> tuple[FileSource, FileSource]:
    """Return both files as they are looked at."""
    return FileSource(nodes, csv_format), FileSource(edges, csv_format)


def read_as(choices: EncodingOptions, encoding: Encoding | None) -> EncodingOptions:
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


def inspect_table_files(
    nodes: Path,
    edges: Path,
    roles: Roles,
    choices: EncodingOptions,
    *,
    classes: Sequence[str] | None = None,
    encoding: Encoding | None = None,
    node_ids: Path | None = None,
    private_records: bool = False,
    private_edges: bool = False,
) -> TableInspection:
    """Look at two files; ``node_ids`` is a table that lists nodes in a column called as that of the nodes.

    The other arguments are those of :func:`~graphveil.data.tables.inspect_tables.inspect_tables`.
    """
    choices = read_as(choices, encoding)
    return inspect_tables(
        *file_sources(nodes, edges, choices.csv_format),
        roles,
        choices,
        classes=classes,
        rules=None if encoding is None else encoding.rules,
        listed=listed_ids(node_ids, roles.id, choices.csv_format),
        private_records=private_records,
        private_edges=private_edges,
    )

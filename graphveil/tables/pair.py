"""Two files, looked at together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from graphveil.tables import files
from graphveil.tables.choices import Choices
from graphveil.tables.encoding import Encoding
from graphveil.tables.files import Column
from graphveil.tables.given import GivenFile
from graphveil.tables.look import Look, Roles, look
from graphveil.tables.roles import check_columns

EDGES_FILE = "edges.parquet"  # of a folder that holds a released graph


def edges_file(path: Path) -> Path:
    """Return the table of edges: the path, or what a folder of a released graph holds."""
    return path / EDGES_FILE if path.is_dir() else path


def given_files(nodes: Path, edges: Path) -> tuple[GivenFile, GivenFile]:
    """Return both files as they are looked at."""
    return GivenFile(nodes), GivenFile(edges)


def listed_ids(path: Path | None, id: str) -> Column | None:
    """Return the ids of a public list of nodes, a table with the nodes' column of ids."""
    if path is None:
        return None
    check_columns(path, [id])
    return files.column(files.read(path, [id], files.id_types(path, [id])), id)


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
    if encoding is not None and choices.null_values is None:
        choices = replace(choices, null_values=encoding.null_values)
    return look(
        *given_files(nodes, edges),
        roles,
        choices,
        classes=classes,
        rules=None if encoding is None else encoding.rules,
        listed=listed_ids(node_ids, roles.id),
        private_records=private_records,
        private_edges=private_edges,
    )

"""Read a graph from a table of nodes and a table of edges: one row per node, one row per edge."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from graphveil._util import checks
from graphveil._util.files import as_path
from graphveil.core.edges.adjacency import Adjacency, EdgeSet
from graphveil.data import tables
from graphveil.data.conversion import fields_from_tables, reject_unlabeled
from graphveil.data.graph import Graph
from graphveil.data.tables import Column, Table
from graphveil.data.tables.edges import KnownIds, References, match_ids, reject_two_kinds
from graphveil.data.tables.encoding import ERROR, Categories, Encoding, Named
from graphveil.data.tables.files import COMMAS, CsvFormat, check_columns
from graphveil.data.tables.ids import distinct_ids
from graphveil.data.tables.inspect_tables import (
    EDGES_FILE,
    TableFiles,
    TableInspection,
    edges_file,
)
from graphveil.data.tables.labels import Task
from graphveil.errors import ConfigError, GraphError

__all__ = ["EDGES_FILE", "edges_file", "read_edges", "read_graph", "read_ids", "read_topology"]


def read_graph(
    nodes: str | PathLike[str],
    edges: str | PathLike[str],
    *,
    id: str,
    source: str,
    target: str,
    directed: bool = False,
    label: str | None = None,
    split: str | None = None,
    features: Named | None = None,
    drop: Named = (),
    categories: Categories = (),
    missing: str = ERROR,
    unknown_ids: str = ERROR,
    null_values: Named | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    node_ids: str | PathLike[str] | None = None,
    encoding: Encoding | None = None,
    aside: Sequence[str] = (),
    classes: Sequence[str] | None = None,
    task: Task | None = None,
    weight: str | None = None,
    max_weight: float | None = None,
) -> Graph:
    """Read a graph from a node table and an edge table, each a Parquet or CSV file.

    Every column of ``nodes`` without another role is a feature: a number is unchanged, a bool becomes 0 or 1,
    a date becomes years since 2000-01-01 (UTC), a list of k numbers becomes k features. A node without a
    label is unlabeled. Nodes keep the order of the file. The defaults are those of the command. All
    validation errors of the two tables are reported in one error, with the keywords that would pass.

    Args:
        nodes, edges: Paths that end in ``.parquet``, ``.pq``, ``.csv`` or ``.csv.gz``. The edges may also be
            the folder of a released graph; the edge set then includes its guarantee.
        id: Column of ``nodes`` with integers or text. Ids of a CSV are text and keep their
            spelling. Dates, decimals, UUIDs and bools of a parquet file become text.
        source, target: Columns of ``edges`` with ids.
        directed: Whether ``source -> target`` does not imply the opposite direction.
        label: Column of ``nodes`` with labels: text, numbers, bools or dates. Labels of a CSV are used
            as written, except that integers lose a trailing ``.0``. May be omitted for prediction only, if
            ``classes`` is given.
        split: Column of ``nodes`` with train, val (valid, validation), test or nothing.
        features: Feature columns; by default all columns without another role.
        drop: Columns of ``nodes`` that are not features.
        categories: Columns that become one 0/1 column per value: ``"plan=free|pro"`` with a public list,
            ``"country=hash:32"`` hashed into so many buckets, or ``"plan"`` with the values that occur, which
            units that protect node records reject. Also a mapping of names to lists, numbers or None.
        missing: ``"error"``; ``"indicator"``, 0 and an additional 0/1 column for each such column;
            ``"constant=V"``; or ``"median"`` of the table, which units that protect node records reject.
        unknown_ids: Treatment of edges to ids that no node has: ``"error"`` or ``"drop"`` them, or ``"add"``
            the nodes that they name. The last is for unit ``none`` only: one secret edge would publish a
            node.
        null_values: Words for a missing label or feature, instead of ``tables.NULL_VALUES``: those of
            pandas, ``\\N``, ``?`` and ``-``. An empty field is always missing. They never apply to ids.
        delimiter, decimal: Column separator of CSV files (one character, or ``"tab"``), and decimal
            separator (``"."`` or ``","``), in both tables and ``node_ids``.
        node_ids: Table with the column ``id``, a public list of nodes; nodes without a row are included.
        encoding: Encoding of another graph (``graph.encoding``) to apply to the columns.
        aside: Columns of ``nodes`` to leave out of all other roles. They may be missing.
        classes: Labels in class order, if the classes are fixed in advance and not by this file. Any other
            label then counts as missing, because an error would reveal it. By default the labels that occur,
            sorted: a class then reveals that some node has its label, which the graph's notes state.
        task: ``"regression"`` reads the label column as numbers to predict (``Graph.targets``), and
            ``"classification"`` as classes. By default as classes, and a numeric column is rejected if it has
            more than 100 distinct values, or more than 20 that are not all whole.
        weight: Column of ``edges`` with weights of at least 0, if the edges are weighted.
        max_weight: Public bound to which larger weights are clipped.

    Returns:
        The graph, with a new edge set. Keep it: reading the tables again begins with an empty budget.

    Raises:
        ConfigError: Argument of another type or out of range.
        GraphError: File or column that is missing or unusable, ids that are repeated or unknown, features
            that are not finite numbers, no nodes, or only one class. ``errors.TableError`` lists all
            validation errors. Messages name columns, never values.

    Privacy:
        Reads: the edges and records, exactly. Charges: nothing. The result is private.

    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "nodes.csv").write_text("user,age,team\\n7,31,red\\n8,45,blue\\n9,28,\\n")
    >>> _ = (folder / "edges.csv").write_text("a,b\\n7,8\\n9,8\\n")
    >>> graph = read_graph(folder / "nodes.csv", folder / "edges.csv", id="user", label="team",
    ...                    source="a", target="b")
    >>> graph.class_names, graph.y
    (('blue', 'red'), tensor([ 1,  0, -1]))
    """
    if label is None and classes is None:
        reject_unlabeled()
    nodes, edges = as_path(nodes, "nodes"), as_path(edges, "edges")
    node_ids = None if node_ids is None else as_path(node_ids, "node_ids")
    options = TableFiles.from_keywords(locals())
    _ = options.roles  # checks them
    checks.switch(directed=directed)
    if encoding is not None and not isinstance(encoding, Encoding):
        raise ConfigError(
            "encoding must be the encoding of another graph (graph.encoding). CSV files are read as UTF-8.",
            parameters=("encoding",),
        )
    found = options.inspect()
    found.raise_problems()
    return graph_of(found, options, name=nodes.name.partition(".")[0])


def graph_of(found: TableInspection, files: TableFiles, *, name: str) -> Graph:
    """Return the graph of two inspected files without errors."""
    assert files.edges is not None
    return Graph.from_edges(
        directed=files.directed,
        max_weight=files.max_weight,
        edge_set=EdgeSet(released=tables.released(edges_file(files.edges))),
        name=name,
        **fields_from_tables(found, classes_given=files.classes is not None),
    )


def read_topology(files: TableFiles) -> Graph:
    """Read an unlabeled graph from edges and node ids alone.

    Every node has the one feature 1 and no label. Errors as for ``read_graph``.
    """
    roles, csv_format, nodes, edges = files.roles, files.csv_format, files.nodes, files.edges
    assert nodes is not None and edges is not None
    reject_two_kinds(roles.id, nodes.name, roles.source, roles.target)
    check_columns(nodes, [roles.id], csv_format)
    table = tables.read(nodes, [roles.id], tables.id_types(nodes, [roles.id]), csv_format=csv_format)
    ids = distinct_ids(table, roles.id)
    if not len(ids):
        raise GraphError(f"{nodes.name} has no rows, so the graph has no nodes. Give at least one row.")
    ends = roles.source, roles.target
    return Graph(
        x=torch.ones(len(ids), 1),
        y=torch.full((len(ids),), -1),
        adjacency=_edges(edges, ids, roles.id, ends, directed=files.directed, csv_format=csv_format),
        num_classes=2,
        name=nodes.name.partition(".")[0],
        ids=tables.id_array(ids),
    )


def read_edges(
    edges: Path,
    ids: npt.NDArray[Any],
    *,
    source: str,
    target: str,
    directed: bool,
    csv_format: CsvFormat = COMMAS,
) -> Adjacency:
    """Return a table of edges between known nodes, or the folder of a released graph.

    Args:
        edges: Table or folder.
        ids: Node ids in node order, integers or text.
        source, target: Columns that hold ids.
        directed: Whether an edge does not imply its opposite.
        csv_format: CSV options.

    Raises:
        GraphError: File or column that is missing or unusable, or an id of no node.
    """
    ends = source, target
    return _edges(edges, _as_column(ids), None, ends, directed=directed, csv_format=csv_format)


def read_ids(
    path: Path, ids: npt.NDArray[Any], *, column: str, csv_format: CsvFormat = COMMAS
) -> npt.NDArray[np.integer]:
    """Return the indices of the nodes that a table lists by their ids.

    Raises:
        GraphError: File or column that is missing or unusable, or an id of no node.
    """
    node_ids = _as_column(ids)
    check_columns(path, [column], csv_format)
    table = tables.read(path, [column], tables.id_types(path, [column]), csv_format=csv_format)
    return _positions(table, column, node_ids, None, written=tables.is_csv(path))


def _as_column(ids: npt.NDArray[Any]) -> Column:
    """Return known ids as a column, integers or text."""
    import pyarrow as pa

    texts = ids.dtype == object or ids.dtype.kind == "U"
    return tables.keys(pa.array(ids.tolist(), pa.large_string()) if texts else pa.array(ids), "ids")


def _edges(
    edges: Path,
    ids: Column,
    id: str | None,
    ends: tuple[str, str],
    *,
    directed: bool,
    csv_format: CsvFormat,
) -> Adjacency:
    """Return a table's edges between nodes of these ids."""
    path = edges_file(edges)
    check_columns(path, [*ends], csv_format)
    table = tables.read(path, ends, tables.id_types(path, ends), csv_format=csv_format)
    written = tables.is_csv(path)
    tail, head = (_positions(table, end, ids, id, written=written) for end in ends)
    origin = EdgeSet(released=tables.released(path))
    return Adjacency.from_edges(tail, head, num_nodes=len(ids), directed=directed, edge_set=origin)


def _positions(
    table: Table, name: str, node_ids: Column, id: str | None, *, written: bool
) -> npt.NDArray[np.integer]:
    """Return the row of every id in the node table, whose id column is ``id`` if it has one."""
    title, code = (f"column {id!r} of the nodes", f"nodes[{id!r}]") if id else ("the ids of nodes", "ids")
    advice = ("add those nodes, or drop those rows",) * 2
    known = KnownIds(node_ids, title, code, node_ids.type, written, *advice)
    column = tables.column(table, name)
    ends = References(column, f"column {name!r}", f"table[{name!r}]", known, written)
    return match_ids([ends], ERROR)[0][0]

"""A graph from two tables that the caller has: one row per node, one row per edge."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from graphveil.errors import GraphError
from graphveil.graph import labels, tables
from graphveil.graph.adjacency import Adjacency
from graphveil.graph.graph import CLASSES_FROM_LABELS, SPLITS, Graph
from graphveil.graph.identity import EdgeSet
from graphveil.graph.tables import Column, Table

EDGES_FILE = "edges.parquet"  # of a folder that holds a released graph
_SPLIT_WORDS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


def read_graph(
    nodes: str | PathLike[str],
    edges: str | PathLike[str],
    *,
    id: str,
    source: str,
    target: str,
    directed: bool,
    label: str | None = None,
    split: str | None = None,
    features: Sequence[str] | None = None,
    aside: Sequence[str] = (),
    classes: Sequence[str] | None = None,
    weight: str | None = None,
    max_weight: float | None = None,
) -> Graph:
    """Read a graph from a table of nodes and a table of edges, each parquet or CSV by its suffix.

    Every number or bool column of ``nodes`` that has no other role is a feature; a list of numbers in each
    row gives as many. A node without a label is unlabelled. Nodes keep the order of the file.

    Args:
        nodes, edges: paths that end in ``.parquet``, ``.pq``, ``.csv`` or ``.csv.gz``. The edges may also be
            the folder of a released graph, which is then known to be one: its edge set says what it promises.
        id: column of ``nodes`` that holds whole numbers or text.
        source, target: columns of ``edges`` that hold ids.
        directed: whether ``source -> target`` says nothing about the opposite direction.
        label: column of ``nodes`` that holds labels: text, numbers, bools or dates. A CSV's are taken as they
            are written, but for a whole number's point with zeros. A graph to predict only needs none, if
            the classes are given.
        split: column of ``nodes`` with train, val (valid, validation), test or nothing.
        features: the feature columns, if not all the others.
        aside: columns of ``nodes`` that are not among the others. They need not be there.
        classes: the labels in class order, if the classes are to be fixed beforehand and not by this file.
            Any other label then counts as missing: a refusal would tell about it. By default the labels that
            occur, sorted, so that a class may show that somebody has its label; the graph's notes say so.
        weight: column of ``edges`` that holds weights of at least 0, if they have any.
        max_weight: the public bound that larger weights are cut to.

    Raises:
        GraphError: a file or column is missing or unusable, ids are repeated or unknown, features are not
            finite numbers, there is no node or only one class. Messages name columns, never values.

    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "nodes.csv").write_text("user,age,team\\n7,31,red\\n8,45,blue\\n9,28,\\n")
    >>> _ = (folder / "edges.csv").write_text("a,b\\n7,8\\n9,8\\n")
    >>> graph = read_graph(folder / "nodes.csv", folder / "edges.csv", id="user", label="team",
    ...                    source="a", target="b", directed=False)
    >>> graph.class_names, graph.y
    (('blue', 'red'), tensor([ 1,  0, -1]))
    """
    if label is None and classes is None:
        raise GraphError(
            "name the label column with label= (--label); a graph to predict only needs classes= instead"
        )
    node_path, edge_path = Path(nodes), edges_file(Path(edges))
    roles = {"id": id, "label": label, "split": split}
    named = {role: column for role, column in roles.items() if column is not None}
    feature_names = feature_columns(node_path, list(named.values()), features, aside)
    ends = [source, target] if weight is None else [source, target, weight]
    check_columns(edge_path, ends)
    # Nodes first: their ids say what the columns of edges are, and edges must not.
    fields, node_ids = _read_nodes(node_path, named, feature_names, classes)
    table = tables.read(edge_path, ends, _edge_types(ends, node_ids))
    tail, head = (_positions(table, end, node_ids, id) for end in (source, target))
    weights = None if weight is None else tables.vector(table, weight)
    return Graph.from_edges(
        source=tail,
        target=head,
        directed=directed,
        edge_set=EdgeSet(released=tables.released(edge_path)),
        weight=weights,
        max_weight=max_weight,
        **fields,
    )


def read_topology(
    nodes: str | PathLike[str],
    edges: str | PathLike[str],
    *,
    id: str,
    source: str,
    target: str,
    directed: bool,
) -> Graph:
    """Read who is connected with whom, and nothing else of the nodes than their ids.

    Every node has the one feature 1 and no label. Arguments and errors as for :func:`read_graph`.
    """
    node_path = Path(nodes)
    check_columns(node_path, [id])
    ids = distinct_ids(tables.read(node_path, [id]), id)
    if not len(ids):
        raise GraphError(f"{node_path.name} has no rows, so the graph has no nodes; give at least one")
    known = tables.id_array(ids)
    return Graph(
        x=torch.ones(len(ids), 1),
        y=torch.full((len(ids),), -1),
        adjacency=_edges(Path(edges), ids, id, source=source, target=target, directed=directed),
        num_classes=2,
        name=node_path.name.partition(".")[0],
        ids=known,
    )


def edges_file(path: Path) -> Path:
    """Return the table of edges: the path, or what a folder of a released graph holds."""
    return path / EDGES_FILE if path.is_dir() else path


def read_edges(edges: Path, ids: npt.NDArray[Any], *, source: str, target: str, directed: bool) -> Adjacency:
    """Return a table of edges between nodes that are known, or the folder of a released graph.

    Args:
        edges: the table or the folder.
        ids: the nodes' ids in node order, whole numbers or text.
        source, target: columns that hold ids.
        directed: whether an edge says nothing about its opposite.

    Raises:
        GraphError: the file or a column is missing or unusable, or names unknown nodes.
    """
    return _edges(edges, _as_column(ids), "ids", source=source, target=target, directed=directed)


def read_ids(path: Path, ids: npt.NDArray[Any], *, column: str) -> npt.NDArray[np.integer]:
    """Return the places of the nodes that a table lists by their ids.

    Raises:
        GraphError: the file or the column is missing or unusable, or names unknown nodes.
    """
    node_ids = _as_column(ids)
    check_columns(path, [column])
    return _positions(tables.read(path, [column], {column: node_ids.type}), column, node_ids, "ids")


def _as_column(ids: npt.NDArray[Any]) -> Column:
    """Return known ids as a column, whole numbers or text."""
    import pyarrow as pa

    texts = ids.dtype == object or ids.dtype.kind == "U"
    return tables.keys(pa.array(ids.tolist(), pa.large_string()) if texts else pa.array(ids), "ids")


def _edges(edges: Path, ids: Column, id: str, *, source: str, target: str, directed: bool) -> Adjacency:
    """Return a table's edges between nodes of these ids."""
    path = edges_file(edges)
    check_columns(path, [source, target])
    table = tables.read(path, [source, target], _edge_types([source, target], ids))
    tail, head = (_positions(table, end, ids, id) for end in (source, target))
    origin = EdgeSet(released=tables.released(path))
    return Adjacency.from_edges(tail, head, num_nodes=len(ids), directed=directed, edge_set=origin)


def check_columns(path: Path, chosen: list[str]) -> list[str]:
    """Return all columns of a file, among which the chosen ones are distinct."""
    for name in chosen:
        if chosen.count(name) > 1:
            raise GraphError(f"column {name!r} is named for two roles; name one column for each")
    return tables.column_names(path, chosen)


def feature_columns(
    path: Path, roles: list[str], features: Sequence[str] | None, aside: Sequence[str]
) -> list[str]:
    """Return the columns of a file that hold features: the chosen ones, or all without another role."""
    chosen = [] if features is None else list(features)
    names = check_columns(path, [*roles, *chosen])
    if features is None:
        chosen = [name for name in names if name not in {*roles, *aside}]
    if not chosen:
        raise GraphError(f"{path.name} has no feature column; add at least one column of numbers")
    return chosen


def _read_nodes(
    path: Path, roles: dict[str, str], features: list[str], classes: Sequence[str] | None
) -> tuple[dict[str, Any], Column]:
    """Return the fields of a graph that the nodes decide, and the ids as a column."""
    types = {roles["label"]: labels.AS_WRITTEN} if "label" in roles else {}
    table = tables.read(path, [*roles.values(), *features], types)
    if table.num_rows == 0:
        raise GraphError(f"{path.name} has no rows, so the graph has no nodes; give at least one")
    node_ids = distinct_ids(table, roles["id"])
    y, class_names = labels.class_codes(table, roles.get("label"), classes)
    fields = {
        "x": torch.from_numpy(tables.matrix(table, features)),
        "y": y,
        "num_classes": len(class_names),
        "class_names": class_names,
        "name": path.name.partition(".")[0],
        "ids": tables.id_array(node_ids),
        "notes": (CLASSES_FROM_LABELS,) if classes is None else (),
    }
    if "split" in roles:
        fields |= _masks(tables.column(table, roles["split"]), roles["split"])
    return fields, node_ids


def distinct_ids(table: Table, name: str) -> Column:
    """Return a column of ids, none of which may occur twice."""
    import pyarrow.compute as pc

    ids = tables.keys(tables.column(table, name), name)
    if len(pc.unique(ids)) < len(ids):
        raise GraphError(f"column {name!r} repeats ids; give one row per node")
    return ids


def _edge_types(ends: list[str], node_ids: Column) -> dict[str, Any]:
    """Return what the columns of a table of edges are, whatever edges there are: ids, ids, weights."""
    import pyarrow as pa

    return dict(zip(ends, (node_ids.type, node_ids.type, pa.float64()), strict=False))


def _positions(table: Table, name: str, node_ids: Column, id: str) -> npt.NDArray[np.integer]:
    """Return the row of every id in the table of nodes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ids = tables.keys_like(tables.column(table, name), name, node_ids)
    positions = pc.index_in(ids, value_set=node_ids)
    if positions.null_count:
        kind = "whole numbers" if pa.types.is_int64(node_ids.type) else "text"
        raise GraphError(
            f"column {name!r} of the edges holds ids that column {id!r} of the nodes ({kind}) lacks; "
            "add those nodes or drop those edges"
        )
    return np.asarray(positions.to_numpy(zero_copy_only=False))


def _masks(column: Column, name: str) -> dict[str, Any]:
    """Return the masks of a split column."""
    import pyarrow as pa

    try:
        words = column.cast(pa.large_string()).to_pylist()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        words = [""]
    parts = [None if word is None else _SPLIT_WORDS.get(word.strip().lower(), "") for word in words]
    if "" in parts:
        raise GraphError(f"column {name!r} may hold train, val (valid, validation), test or nothing only")
    if "train" not in parts:
        raise GraphError(f"column {name!r} puts no node into train; mark the nodes to learn from")
    # A member without a label is no error: under a unit of records that is what a null record looks like.
    return {f"{part}_mask": torch.tensor([entry == part for entry in parts]) for part in SPLITS}

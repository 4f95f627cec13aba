"""LDP reports and public edges from two tables, under one numbering of nodes."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from graphveil.errors import ConfigError, GraphError

if TYPE_CHECKING:
    from graphveil.data import Adjacency
    from graphveil.data.tables import Column
    from graphveil.local.collect import CollectionProtocol
    from graphveil.local.collect.report_tables import ReceivedReports


def receive_on_edges(
    protocol: "CollectionProtocol",
    encoded_reports: Path,
    edges: Path,
    *,
    id: str,
    source: str,
    target: str,
    directed: bool,
    nodes: Path | None = None,
    features: bool = True,
) -> tuple["ReceivedReports", "Adjacency", "npt.NDArray[np.float32] | None"]:
    """Check LDP reports, and return them with the public edges between their nodes, and public features.

    Nodes are numbered as their ids occur: in the LDP reports first, then in the edges, then in the table of
    public features. One that has no LDP report is a node that has not answered.

    Raises:
        ConfigError: a survey that asks for no features comes without public ones, or one that does with.
        GraphError: a file or column is missing or unusable, there are no rows, ids are of different types or
            repeated, or a node has no public features.
    """
    import pyarrow as pa

    from graphveil.data import Adjacency
    from graphveil.local.collect.report_tables import read_reports, receive_reports

    if features:
        _check_features(protocol, nodes)
    elif nodes is not None:
        raise ConfigError("the method reads no features; drop --nodes")
    ids, texts = read_reports(encoded_reports, id=id)
    ends, public = _ends(edges, source, target), None if nodes is None else _public(nodes, id)
    others = {f"{name!r} of the edges": end for name, end in ends.items()}
    others |= {} if public is None else {f"{id!r} of the nodes": public[0]}
    if any(other.type != ids.type for other in others.values()):
        # A CSV has text alone. A report is bound to the text of its id, so whole numbers match as text, too.
        ids, others = _text(ids), {name: _text(other) for name, other in others.items()}
        ends = {name: _text(end) for name, end in ends.items()}
        public = None if public is None else (_text(public[0]), public[1])
    received = receive_reports(protocol, ids, texts, others=pa.concat_arrays(list(others.values())))
    tail, head = (_positions(end, received.ids) for end in ends.values())
    count = received.collector.nodes
    adjacency = Adjacency.from_edges(tail, head, num_nodes=count, directed=directed)
    return received, adjacency, None if public is None else _in_order(public, received.ids)


def _text(ids: "Column") -> "Column":
    """Return ids as text."""
    from graphveil.data.tables.ids import as_text

    text = as_text(ids)
    assert text is not None  # ids are whole numbers or text
    return text


def _check_features(protocol: "CollectionProtocol", nodes: Path | None) -> None:
    if protocol.features is None and protocol.label is not None and nodes is None:
        raise ConfigError(
            "the survey asks for labels alone, and there is nothing to learn them from: name a table of all "
            "nodes' public features (--nodes), or ask for features, too"
        )
    if protocol.features is not None and nodes is not None:
        raise ConfigError("the survey asks for features, and what was said is learned from; drop --nodes")


def _public(path: Path, id: str) -> tuple["Column", npt.NDArray[np.float32]]:
    """Return ids and features of a table of nodes."""
    from graphveil.data import tables
    from graphveil.data.tables.files import check_columns, feature_columns
    from graphveil.data.tables.ids import distinct_ids

    needs = "public features are what labels are learned from"
    columns = feature_columns(path, [id], None, (), needs=needs)
    check_columns(path, [id, *columns])
    table = tables.read(path, [id, *columns], tables.id_types(path, [id]))
    return distinct_ids(table, id), tables.matrix(table, columns).astype(np.float32)


def _in_order(public: tuple["Column", npt.NDArray[np.float32]], ids: "Column") -> npt.NDArray[np.float32]:
    """Return the features in the order of ids, of which every one must have some."""
    own, features = public
    if len(own) < len(ids):
        raise GraphError(
            f"{len(ids) - len(own)} nodes of the LDP reports and edges have no row in the table of public "
            "features; give every node one"
        )
    rows = np.empty_like(features)
    rows[_positions(own, ids)] = features
    return rows


def _ends(path: Path, source: str, target: str) -> dict[str, "Column"]:
    """Return the ids at both ends of each edge, by column."""
    from graphveil.data import tables
    from graphveil.data.tables.files import check_columns

    check_columns(path, [source, target])
    table = tables.read(path, [source, target], tables.id_types(path, [source, target]))
    if table.num_rows == 0:
        raise GraphError(f"{path.name} has no rows, so there are no edges to learn from; give at least one")
    return {name: tables.keys(tables.column(table, name), name) for name in (source, target)}


def _positions(ids: "Column", nodes: "Column") -> npt.NDArray[np.integer]:
    import pyarrow.compute as pc

    return np.asarray(pc.index_in(ids, value_set=nodes).to_numpy(zero_copy_only=False))

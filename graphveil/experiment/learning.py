"""Messages and public edges from two tables, under one numbering of nodes."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from graphveil.errors import GraphError

if TYPE_CHECKING:
    from graphveil.collect import Survey
    from graphveil.collect.files import Received
    from graphveil.graph import Adjacency
    from graphveil.graph.tables import Column


def receive_on_edges(
    survey: "Survey",
    messages: Path,
    edges: Path,
    *,
    id: str,
    source: str,
    target: str,
    directed: bool,
) -> tuple["Received", "Adjacency"]:
    """Check messages, and return them with the public edges between their nodes.

    Nodes are numbered as their ids occur: in the messages first, then in the edges. One that only edges name
    is a node that has not answered.

    Raises:
        GraphError: a file or column is missing or unusable, there are no rows, or ids are of different types.
    """
    import pyarrow as pa

    from graphveil.collect.files import read_messages, receive
    from graphveil.graph import Adjacency

    ids, texts = read_messages(messages, id=id)
    ends = _ends(edges, source, target)
    for name, end in ends.items():
        if end.type != ids.type:
            raise GraphError(
                f"column {name!r} of the edges and column {id!r} of the messages are of different types "
                f"({end.type} and {ids.type}); write both as text or both as whole numbers"
            )
    received = receive(survey, ids, texts, others=pa.concat_arrays(list(ends.values())))
    tail, head = (_positions(end, received.ids) for end in ends.values())
    nodes = received.collector.nodes
    return received, Adjacency.from_edges(tail, head, num_nodes=nodes, directed=directed)


def _ends(path: Path, source: str, target: str) -> dict[str, "Column"]:
    """Return the ids at both ends of each edge, by column."""
    from graphveil.graph import tables
    from graphveil.graph.files import check_columns

    check_columns(path, [source, target])
    table = tables.read(path, [source, target])
    if table.num_rows == 0:
        raise GraphError(f"{path.name} has no rows, so there are no edges to learn from; give at least one")
    return {name: tables.keys(tables.column(table, name), name) for name in (source, target)}


def _positions(ids: "Column", nodes: "Column") -> npt.NDArray[np.integer]:
    import pyarrow.compute as pc

    return np.asarray(pc.index_in(ids, value_set=nodes).to_numpy(zero_copy_only=False))

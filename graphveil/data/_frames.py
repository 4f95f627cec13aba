"""Frames, and graphs of networkx, as the fields of a graph: through the same look that files get."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from graphveil.data._tables import fields_of
from graphveil.data.tables.choices import EncodingOptions
from graphveil.data.tables.encoding import Encoding
from graphveil.data.tables.inspect_tables import Roles, inspect_tables
from graphveil.data.tables.labels import class_codes
from graphveil.data.tables.table_source import FrameSource, reason
from graphveil.errors import GraphError

NODE, SOURCE, TARGET, WEIGHT = "node", "source", "target", "weight"  # of tables made here


def fields_of_frames(
    nodes: Any,
    edges: Any,
    roles: Roles,
    choices: EncodingOptions,
    *,
    classes: Sequence[str] | None,
    encoding: Encoding | None,
) -> dict[str, Any]:
    """Return what ``Graph.from_edges`` needs from two frames."""
    found = inspect_tables(
        FrameSource.from_frame(nodes, "nodes"),
        FrameSource.from_frame(edges, "edges"),
        roles,
        choices,
        classes=classes,
        rules=None if encoding is None else encoding.rules,
    )
    found.raise_problems()
    return fields_of(found, classes_given=classes is not None)


def tables_of_networkx(graph: Any, weight: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a graph of networkx as a table of nodes, where an attribute may be missing, and one of edges.

    Raises:
        GraphError: it is none, nodes are neither all whole numbers nor all text, or an attribute has no type.
    """
    if not all(hasattr(graph, name) for name in ("nodes", "edges", "is_directed")):
        raise GraphError(f"from_networkx takes a graph of networkx, not a {type(graph).__name__}")
    ids, attributes = [], dict[str, dict[int, Any]]()
    for place, (node, own) in enumerate(graph.nodes(data=True)):
        ids.append(node)
        for name, value in own.items():
            attributes.setdefault(str(name), {})[place] = value
    if not ids:
        raise GraphError("the networkx graph has no nodes; give at least one")
    if NODE in attributes:
        raise GraphError(f"a node attribute is called {NODE!r}, as the column of ids is here; rename it")
    columns = {name: _column(values, len(ids), name) for name, values in attributes.items()}
    pairs = list(graph.edges(data=True))
    ends: dict[str, Any] = {SOURCE: _ids([edge[0] for edge in pairs]), TARGET: _ids([e[1] for e in pairs])}
    if weight is not None:
        ends[WEIGHT] = [own.get(weight, 1.0) for *_, own in pairs]
    return {NODE: _ids(ids), **columns}, ends


def _ids(ids: list[Any]) -> Any:
    import pyarrow as pa

    kinds = {type(one) for one in ids}
    if all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
        return pa.array([int(one) for one in ids], pa.int64())
    if all(issubclass(kind, str) for kind in kinds):
        return pa.array(ids, pa.large_string())
    raise GraphError(
        "nodes of the networkx graph are neither all whole numbers nor all text; relabel them "
        "(networkx.convert_node_labels_to_integers)"
    )


def _column(values: dict[int, Any], rows: int, name: str) -> Any:
    import pyarrow as pa

    listed = [values.get(row) for row in range(rows)]
    listed = [one.tolist() if isinstance(one, Tensor | np.ndarray | np.generic) else one for one in listed]
    try:
        return pa.array(listed, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):  # its message quotes values
        raise GraphError(f"attribute {name!r} {reason(listed)}") from None


def named_labels(y: Any) -> tuple[npt.NDArray[np.int64], tuple[str, ...]] | None:
    """Return class numbers and names of labels that are text, None in the place of a missing one."""
    import pyarrow as pa

    typed = getattr(y, "dtype", None)
    if not isinstance(y, Iterable) or (typed is not None and getattr(typed, "kind", "t") not in "OUT"):
        return None
    values = list(np.asarray(y, dtype=object).ravel()) if not isinstance(y, str) else [y]
    if not any(isinstance(value, str) for value in values):
        return None
    if not all(value is None or isinstance(value, str) for value in values):
        raise GraphError("labels must be text, or None where there is none, or a class number per node")
    return class_codes(pa.table({"y": pa.array(values, pa.large_string())}), "y", None)

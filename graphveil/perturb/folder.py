"""The folder of a released graph, which may be published: edges, guarantee, and a page in words."""

import json
from pathlib import Path

from graphveil._util.files import atomic_folder
from graphveil.data import Graph, tables
from graphveil.data.graph_files import EDGES_FILE
from graphveil.errors import ConfigError
from graphveil.perturb.provenance import mechanism_of
from graphveil.privacy import Guarantee
from graphveil.privacy.statements import counted

REVEALS_WARNING = (
    "at this budget the released graph reveals almost every true edge: it is not protected in practice"
)
_ALMOST_CERTAIN = 0.99995  # true-positive rate at 1 % false positives, which is printed as 100.00 %
GUARANTEE_FILE, PAGE_FILE = "guarantee.json", "RELEASED.md"


def write_folder(graph: Graph, guarantee: Guarantee, folder: Path, *, source: str, target: str) -> None:
    """Write ``edges.parquet``, ``guarantee.json`` and ``RELEASED.md`` to a new folder, whole or not at all.

    The edges hold the nodes' own ids, or their numbers where they have none; an undirected edge stands there
    once. The file knows that it is a released graph: ``read_graph`` reads it as one.

    Raises:
        ConfigError: the folder exists, or the graph was not released.
    """
    if not graph.edge_set.released:
        raise ConfigError("these edges were not released by a mechanism, so they must not be published")
    if folder.exists():
        raise ConfigError(f"{folder} exists, and a released graph goes to a new folder; choose another")
    table = edge_table(graph, source, target)
    with atomic_folder(folder) as work:
        (work / EDGES_FILE).write_bytes(tables.encode(table, ".parquet"))
        record = {"mechanism": mechanism_of(graph), "edges": table.num_rows, **guarantee.as_dict()}
        (work / GUARANTEE_FILE).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        words = page(graph, guarantee, table.num_rows, source, target)
        (work / PAGE_FILE).write_text(words, encoding="utf-8")


def edge_table(graph: Graph, source: str, target: str) -> tables.Table:
    """Return the edges as a table with the record of their release in its metadata, bound to these rows."""
    import pyarrow as pa

    if source == target:
        raise ConfigError(f"source and target are both called {source!r}; name two columns")
    tail, head = (part.numpy() for part in graph.adjacency.edge_index())
    once = slice(None) if graph.directed else tail < head
    ends = [part if graph.ids is None else graph.ids[part] for part in (tail[once], head[once])]
    columns = {source: pa.array(ends[0]), target: pa.array(ends[1])}
    if graph.adjacency.weights is not None:  # of paper mode, where zeros are stored
        columns["weight"] = pa.array(graph.adjacency.weights.numpy()[once])
    return tables.with_record(pa.table(columns), graph.edge_set.released)


def reveals_edges(guarantee: Guarantee) -> bool:
    """Return whether an attacker may find practically all edges under a guarantee."""
    return guarantee.max_tpr() >= _ALMOST_CERTAIN


def _difference(guarantee: Guarantee) -> str:
    if reveals_edges(guarantee):
        return f"Warning: {REVEALS_WARNING}."
    return "True edges may be missing from it, and edges in it may not be true."


def page(graph: Graph, guarantee: Guarantee, edges: int, source: str, target: str) -> str:
    """Return what somebody has to know who is handed the folder."""
    found = f"{100 * guarantee.max_tpr():.2f}"
    kind = "directed" if graph.directed else "undirected"
    return f"""# A released graph

`edges.parquet` holds {counted(edges, f"{kind} edge")} between {counted(graph.num_nodes, "node")}, drawn by
the mechanism `{mechanism_of(graph)}`. {_difference(guarantee)}
Nothing else in this folder depends on the true edges.

## The guarantee

{guarantee.formal_statement()}

An attacker who knows everything but one edge, and accepts a false alarm for 1 in 100 of the edges that do not
exist, finds at most {found} in 100 of those that do, by any test; guessing blindly finds 1.

## How to use it

Reading, copying and training on it costs nothing more, as often as you like. In Python, with your own table
of nodes:

    columns = dict(source={source!r}, target={target!r}, directed={graph.directed})
    graph = graphveil.read_graph("nodes.parquet", "edges.parquet", id=..., label=..., **columns)
    graph.to_pyg()      # for any model of torch_geometric

A model that is trained on it must also see this graph, and not the true one, where it predicts: a prediction
that reads true edges is not covered.
"""

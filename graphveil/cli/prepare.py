"""``prepare``: write edges of any number to blocks on disk."""

import resource
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from graphveil.cli import options
from graphveil.cli.console import Screen
from graphveil.cli.options import ColumnOptions, grouped
from graphveil.data.tables.labels import REGRESSION
from graphveil.errors import ConfigError

_INTERNAL = "Internal: the folder and these numbers are as private as the tables."
Edges = Annotated[
    list[str] | None,
    typer.Option(
        "--edges",
        help="Edge table, or a quoted pattern such as 'part-*.parquet'. Repeatable.",
        metavar="FILE",
    ),
]
Memory = Annotated[
    str,
    typer.Option("--memory", help="Maximum memory for sorting, for example 4GB.", metavar="SIZE"),
]
Out = Annotated[Path | None, typer.Option("--out", help="Folder for the prepared graph.", metavar="FOLDER")]


@grouped
def prepare(
    columns: ColumnOptions,
    nodes: options.Nodes = None,
    edges: Edges = None,
    out: Out = None,
    memory: Memory = "1GB",
    json: options.Json = False,
) -> None:
    """Write a graph's sorted edges to disk, for graphs larger than memory."""
    from graphveil._util.figures import counted
    from graphveil.data import prepare as prepared
    from graphveil.data.tables.encoding import ERROR

    id, source, target = columns.id, columns.source, columns.target
    if nodes is None or not edges or id is None or source is None or target is None or out is None:
        raise ConfigError(
            "prepare needs --nodes, --edges, --id, --source, --target and --out, and --label or --classes. "
            "See `graphveil prepare --help`."
        )
    if columns.task == REGRESSION:
        raise ConfigError(
            "prepare writes graphs with classes. Train with --task regression on the tables themselves."
        )
    screen, start = Screen(as_json=json), time.perf_counter()
    made = prepared(
        nodes,
        edges,
        out,
        id=id,
        source=source,
        target=target,
        directed=columns.directed,
        label=columns.label,
        split=columns.split,
        classes=columns.class_names,
        features=columns.features,
        drop=columns.drop or (),
        categories=columns.categories or (),
        missing=columns.missing or ERROR,
        unknown_ids=columns.unknown_ids or ERROR,
        null_values=columns.null_values,
        delimiter=columns.delimiter,
        decimal=columns.decimal,
        memory=memory,
    )
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    size = f"{counted(made.nodes, 'node')}, {counted(made.edges, 'edge')}"
    screen.print_line(_INTERNAL, style="bold")
    screen.print_line(f"{made.path}: {size}, {seconds:.1f} s")
    screen.emit_json(
        {
            "internal": True,
            "nodes": made.nodes,
            "edges": made.edges,
            "path": str(made.path),
            "seconds": round(seconds, 3),
            "peak_rss_mb": round(peak, 1),
        }
    )

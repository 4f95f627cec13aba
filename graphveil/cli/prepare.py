"""``prepare``: write edges of any number to blocks on disk."""

import resource
import sys
import time
from pathlib import Path

from graphveil.cli.console import Screen
from graphveil.cli.options import PREPARED, TablesToPrepare
from graphveil.data.tables.encoding import REGRESSION
from graphveil.errors import ConfigError

_INTERNAL = "Internal: the folder and these numbers are as private as the tables."


def prepare(
    *,
    data: TablesToPrepare,
    edges: list[str] | None = None,
    out: Path | None = None,
    memory: str = "1GB",
    json: bool = False,
) -> None:
    """Write a graph's sorted edges to disk, for graphs larger than memory.

    Args:
        edges (FILE): Edge table, or a quoted pattern such as 'part-*.parquet'. Repeatable.
        out (FOLDER): Folder for the prepared graph.
        memory (SIZE): Maximum memory for sorting, for example 4GB.

    Examples:
        graphveil prepare --nodes nodes.csv --edges edges.csv --id user --label plan --source a
            --target b --out graph
        graphveil prepare --nodes nodes.parquet --edges 'part-*.parquet' --id user --label plan
            --source a --target b --memory 4GB --out graph
    """
    from graphveil._util.figures import counted
    from graphveil.data import prepare as prepared

    if not edges or out is None or None in (data.nodes, data.id, data.source, data.target):
        raise ConfigError(
            "prepare needs --nodes, --edges, --id, --source, --target and --out, and --label or --classes. "
            "See `graphveil prepare --help`."
        )
    if data.task == REGRESSION:
        raise ConfigError(
            "prepare writes graphs with classes. Train with --task regression on the tables themselves."
        )
    screen, start = Screen(as_json=json), time.perf_counter()
    columns = {name: getattr(data, name) for name in PREPARED - {"task"}} | {"classes": data.class_names}
    columns = {name: value for name, value in columns.items() if value is not None}
    made = prepared(edges=edges, out=out, memory=memory, **columns)
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

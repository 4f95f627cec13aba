"""``prepare``: edges of any size to blocks on disk."""

import resource
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from graphveil.cli import options
from graphveil.cli.console import Screen
from graphveil.errors import ConfigError

_INTERNAL = "Internal: the folder and these figures are as private as the tables."
Edges = Annotated[
    list[str] | None,
    typer.Option(
        "--edges",
        help="Tables of edges: a file or a quoted pattern such as 'part-*.parquet'; may be repeated.",
    ),
]
Memory = Annotated[
    str, typer.Option("--memory", help="What sorting may take; it spills the rest into --out.")
]


def prepare(
    nodes: options.Nodes = None,
    edges: Edges = None,
    id: options.Id = None,
    label: options.Label = None,
    source: options.SourceColumn = None,
    target: options.TargetColumn = None,
    directed: options.Directed = False,
    split: options.Split = None,
    classes: options.Classes = None,
    features: options.Features = None,
    drop: options.Drop = None,
    categories: options.CategoryColumns = None,
    missing: options.Missing = None,
    unknown_ids: options.UnknownIds = None,
    out: options.Out = None,
    memory: Memory = "1GB",
    json: options.Json = False,
) -> None:
    """Sort a graph's edges, however many, into blocks on disk; the folder is as private as the tables."""
    from graphveil.experiment.parameters import parse_classes
    from graphveil.graph import prepare as prepared
    from graphveil.tables.choices import REFUSE

    if nodes is None or not edges or id is None or source is None or target is None or out is None:
        raise ConfigError(
            "prepare needs --nodes FILE --edges FILE --id COL --source COL --target COL --out DIR, and "
            "--label COL or --classes a,b"
        )
    screen, start = Screen(as_json=json), time.perf_counter()
    made = prepared(
        nodes,
        edges,
        out,
        id=id,
        source=source,
        target=target,
        directed=directed,
        label=label,
        split=split,
        classes=None if classes is None else parse_classes(classes),
        features=features,
        drop=drop or (),
        categories=categories or (),
        missing=missing or REFUSE,
        unknown_ids=unknown_ids or REFUSE,
        memory=memory,
    )
    show(screen, made.path, made.nodes, made.edges, time.perf_counter() - start)


def show(screen: Screen, path: Path, nodes: int, edges: int, seconds: float) -> None:
    """Say what was written."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    facts = {
        "internal": True,
        "nodes": nodes,
        "edges": edges,
        "path": str(path),
        "seconds": round(seconds, 3),
        "peak_rss_mb": round(peak, 1),
    }
    screen.say(_INTERNAL, style="bold")
    screen.say(f"{path}: {nodes:,} nodes, {edges:,} edges, {seconds:.1f} s")
    screen.emit(facts)

"""``compare``: compare a released graph with the true graph. The result is internal."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphveil.cli import options
from graphveil.cli.console import Screen
from graphveil.cli.options import EdgeListOptions, flag, grouped
from graphveil.errors import ConfigError

if TYPE_CHECKING:
    from graphveil.data import Graph

_INTERNAL = "Internal: exact values of the true graph, without a privacy guarantee. Do not publish them."


@grouped
def compare(
    graphs: Annotated[
        list[str],
        typer.Argument(
            metavar="GRAPH",
            help="True graph (a dataset name, or an edge table if --nodes is set), then the released graph "
            "(a folder written by `graphveil perturb`, or an edge table). Only the released graph if "
            "--dataset or --edges names the true graph.",
            show_default=False,
        ),
    ],
    *,
    dataset: options.Dataset = None,
    root: options.Root = None,
    columns: EdgeListOptions,
    sources: Annotated[
        int | None,
        flag(
            "Run",
            "--sources",
            "Number of source nodes of shortest paths. Default: all for up to 4,096 nodes, else 512.",
            min=1,
        ),
    ] = None,
    seed: Annotated[int, flag("Run", "--seed", "Random seed of all sampling.")] = 0,
    json: options.Json = False,
) -> None:
    """Compare the structure of a released graph with the true graph."""
    from graphveil.audit.fidelity import HEAD
    from graphveil.audit.fidelity import compare as compare_graphs
    from graphveil.data.graph_files import read_edges
    from graphveil.runs.source import ids_of

    screen = Screen(as_json=json)
    named = dataset is not None or columns.edges is not None
    if len(graphs) != (1 if named else 2):
        raise ConfigError(
            "compare needs a true and a released graph, or only the released graph if --dataset or "
            f"--edges names the true graph. Got {len(graphs)} "
            f"graph(s){' in addition to it' if named else ''}."
        )
    other = Path(graphs[-1])
    if not named and columns.nodes is not None:
        columns = replace(columns, edges=Path(graphs[0]))
    elif not named and Path(graphs[0]).is_file():
        raise ConfigError(f"{graphs[0]} is an edge table. Add --nodes, --id, --source and --target.")
    elif not named:
        dataset = graphs[0]
    graph = columns.load(dataset, root)
    edges = read_edges(
        other,
        ids_of(graph),
        source=columns.source or "source",
        target=columns.target or "target",
        directed=graph.directed,
    )
    released = graph.replace(adjacency=edges)
    screen.note(f"released graph: {_release_origin(released)}")
    with screen.spinner("comparing"):
        found = compare_graphs(graph, released, seed=seed, sources=sources)
    screen.print_line(_INTERNAL, style="bold")
    screen.table(HEAD, found.rows(), right=(1, 2, 3))
    for note in found.notes:
        screen.print_line(note)
    screen.emit_json(found.as_dict())


def _release_origin(graph: "Graph") -> str:
    """Return the mechanism that released the edges, and its guarantee."""
    from graphveil._util.figures import format_epsilon_delta
    from graphveil.perturb import guarantee_of
    from graphveil.perturb.perturbed_graph import mechanism_of

    guarantee = guarantee_of(graph)
    if guarantee is None:
        return "not released by a mechanism"
    budget = format_epsilon_delta(guarantee.epsilon, guarantee.delta)
    invalid = "" if guarantee.valid else "; the guarantee is not valid"
    return f"{mechanism_of(graph)}, unit {guarantee.unit}, {budget}{invalid}"

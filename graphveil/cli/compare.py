"""``compare``: compare a released graph with the true one, which is read exactly; internal."""

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

_INTERNAL = "Internal: exact answers about the true graph, which no guarantee covers. Do not publish them."


@grouped
def compare(
    graphs: Annotated[
        list[str],
        typer.Argument(
            metavar="GRAPH RELEASED",
            help="The true graph, a name from `graphveil datasets` or, with --nodes, a table of edges; then "
            "a folder that `graphveil perturb` wrote, or a table of edges between the same nodes. GRAPH "
            "may also be named by --dataset or --edges.",
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
            "Number of source nodes of shortest paths. Default: all up to 4,096 nodes, else 512.",
            min=1,
        ),
    ] = None,
    seed: Annotated[int, flag("Run", "--seed", "Random seed of all sampling.")] = 0,
    json: options.Json = False,
) -> None:
    """Compare the structure of a released graph with the true graph."""
    from graphveil.data.graph_files import read_edges
    from graphveil.lab.fidelity import HEAD
    from graphveil.lab.fidelity import compare as compare_graphs
    from graphveil.runs.source import ids_of

    screen = Screen(as_json=json)
    name, columns, other = _select_graphs(graphs, dataset, columns)
    graph = columns.load(name, root)
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


def _select_graphs(
    graphs: list[str], dataset: str | None, columns: EdgeListOptions
) -> tuple[str | None, EdgeListOptions, Path]:
    """Return the source of the true graph, and the path of the released one."""
    named = dataset is not None or columns.edges is not None
    if len(graphs) != (1 if named else 2):
        raise ConfigError(
            "compare takes two graphs: GRAPH RELEASED, or RELEASED alone where --dataset or --edges names "
            f"the true graph; got {len(graphs)}{' beside it' if named else ''}"
        )
    released = Path(graphs[-1])
    if named:
        return dataset, columns, released
    if columns.nodes is not None:
        return None, replace(columns, edges=Path(graphs[0])), released
    if Path(graphs[0]).is_file():
        raise ConfigError(
            f"{graphs[0]} is a file, which needs its nodes: add --nodes, --id, --source and --target"
        )
    return graphs[0], columns, released


def _release_origin(graph: "Graph") -> str:
    """Return the mechanism that released the edges, and its guarantee."""
    from graphveil.perturb import guarantee_of
    from graphveil.perturb.perturbed_graph import mechanism_of
    from graphveil.privacy.statements import format_epsilon_delta

    guarantee = guarantee_of(graph)
    if guarantee is None:
        return "no mechanism released these edges"
    budget = format_epsilon_delta(guarantee.epsilon, guarantee.delta)
    void = "" if guarantee.valid else "; the guarantee is void"
    return f"{mechanism_of(graph)}, unit {guarantee.unit}, {budget}{void}"

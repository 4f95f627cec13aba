"""``compare``: compare a released graph with the true graph. The result is internal."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from graphveil.cli import options
from graphveil.cli.console import Screen
from graphveil.cli.options import EdgeList
from graphveil.errors import ConfigError

if TYPE_CHECKING:
    from graphveil.data import Graph

_INTERNAL = "Internal: exact values of the true graph, without a privacy guarantee. Do not publish them."


def compare(
    graphs: list[str],
    *,
    data: EdgeList,
    sources: options.OneOrMore | None = None,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Compare the structure of a released graph with the true graph.

    Args:
        graphs (GRAPH): True graph (a dataset name, or an edge table if --nodes is set), then the released
            graph (a folder written by `graphveil perturb`, or an edge table). Only the released graph if
            --dataset or --edges names the true graph.

    Run:
        sources: Number of source nodes of shortest paths. Default: all for up to 4,096 nodes, else 512.
        seed: Random seed of all sampling.

    Examples:
        graphveil compare synthetic/demo noisy
        graphveil compare synthetic/demo noisy --sources 256
    """
    from graphveil.audit.fidelity import HEAD
    from graphveil.audit.fidelity import compare as compare_graphs
    from graphveil.data.graph_files import read_edges
    from graphveil.runs.source import ids_of

    screen = Screen(as_json=json)
    named = data.dataset is not None or data.edges is not None
    if len(graphs) != (1 if named else 2):
        raise ConfigError(
            "compare needs a true and a released graph, or only the released graph if --dataset or "
            f"--edges names the true graph. Got {len(graphs)} "
            f"graph(s){' in addition to it' if named else ''}."
        )
    other = Path(graphs[-1])
    if not named and data.nodes is not None:
        data = replace(data, edges=Path(graphs[0]))
    elif not named and Path(graphs[0]).is_file():
        raise ConfigError(f"{graphs[0]} is an edge table. Add --nodes, --id, --source and --target.")
    elif not named:
        data = replace(data, dataset=graphs[0])
    graph = data.topology()
    edges = read_edges(
        other,
        ids_of(graph),
        source=data.source or "source",
        target=data.target or "target",
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

"""``perturb``: a private graph in, a noisy one out that may be published."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphveil.cli import options
from graphveil.cli.collect import check_new
from graphveil.cli.console import Screen
from graphveil.cli.failures import spending
from graphveil.errors import ConfigError

if TYPE_CHECKING:
    from graphveil.graph import Graph
    from graphveil.perturb import GraphMechanism
    from graphveil.privacy import Guarantee


def perturb(
    mechanism: options.Mechanism,
    out: options.GraphOut,
    dataset: options.Dataset = None,
    root: options.Root = None,
    nodes: options.Nodes = None,
    edges: options.Edges = None,
    id: options.Id = None,
    source: options.SourceColumn = None,
    target: options.TargetColumn = None,
    directed: options.Directed = False,
    unit: options.Unit = None,
    epsilon: options.Epsilon = None,
    max_edges: options.MaxEdges = None,
    unsafe_noise_seed: options.UnsafeNoiseSeed = None,
    json: options.Json = False,
) -> None:
    """Release a noisy graph instead of a model: edges, guarantee and a page, which may be published."""
    from graphveil.perturb import release_graph
    from graphveil.privacy import ledger_of

    screen = Screen(as_json=json)
    chosen = _mechanism(mechanism, epsilon, {"max_edges": max_edges})
    check_new(out, "a released graph may have cost a budget; choose another --out")
    columns = {"nodes": nodes, "edges": edges, "id": id, "source": source, "target": target}
    graph = _graph(dataset, root, columns, directed)
    guarantee = _preview(chosen, graph, unit, seeded=unsafe_noise_seed is not None)
    screen.facts("Plan, before anything is spent", _facts(chosen, graph, guarantee, out))
    with spending(ledger_of(graph.edge_set)):
        perturbed = release_graph(graph, chosen, unit, unsafe_noise_seed=unsafe_noise_seed)
        perturbed.save(out, source=source or "source", target=target or "target")
        count = perturbed.num_edges
        screen.say(f"{count:,} edges, their guarantee and a page in words are in {out}")
        screen.say("")
        screen.prose(perturbed.guarantee.statement())
        about = {"mechanism": chosen.name, "edges": count, "path": str(out)}
        screen.emit(about | {"guarantee": perturbed.guarantee.as_dict()})


def _mechanism(name: str, epsilon: float | None, given: dict[str, Any]) -> "GraphMechanism":
    """Return the mechanism that the flags describe."""
    from graphveil import _check
    from graphveil.perturb import MECHANISMS

    _check.one_of(tuple(MECHANISMS), mechanism=name)
    if epsilon is None:
        raise ConfigError(f"{name} needs a budget: pass --epsilon")
    return MECHANISMS[name](
        epsilon=epsilon, **{key: value for key, value in given.items() if value is not None}
    )


def _graph(dataset: str | None, root: Path | None, columns: dict[str, Any], directed: bool) -> "Graph":
    """Read who is connected with whom; of a table of nodes, their ids alone."""
    from graphveil.graph import load_dataset
    from graphveil.graph.files import read_topology

    given = [f"--{name}" for name, value in columns.items() if value is not None]
    if dataset is not None:
        if given or directed:
            raise ConfigError(
                f"--dataset and {', '.join([*given, *['--directed'] * directed])} exclude each other: a "
                "named data set knows its own columns; drop the one or the other"
            )
        return load_dataset(dataset, root=root, recipe=None)
    missing = [f"--{name}" for name, value in columns.items() if value is None]
    if missing:
        raise ConfigError(
            "a graph is a data set by name (--dataset NAME), or two files and the names of their columns: "
            f"add {', '.join(missing)}"
        )
    return read_topology(**columns, directed=directed)


def _preview(mechanism: "GraphMechanism", graph: "Graph", unit: str | None, *, seeded: bool) -> "Guarantee":
    """Return what will be promised; whatever can be refused is refused here."""
    from graphveil.privacy import parse_unit

    protected = parse_unit(unit)
    mechanism.check(graph, protected)
    return mechanism.guarantee(graph, protected, seeded=seeded)


def _facts(
    mechanism: "GraphMechanism", graph: "Graph", guarantee: "Guarantee", out: Path
) -> list[tuple[str, str]]:
    """Return names and values of the plan, from public numbers alone."""
    from graphveil.artifacts.cards import attackers_rate
    from graphveil.graph.slots import Slots
    from graphveil.privacy.figures import at_delta

    return [
        ("data", f"{graph.name}: {graph.num_nodes:,} nodes"),
        ("mechanism", f"{mechanism.name}, {guarantee.mode} mode"),
        ("unit", f"{guarantee.unit}: protects {guarantee.covers}"),
        ("budget", at_delta(guarantee.epsilon, guarantee.delta)),
        *mechanism.facts(Slots(graph.num_nodes, graph.directed)),
        ("attacker", attackers_rate(guarantee)),
        *(("deviation", deviation) for deviation in guarantee.deviations),
        ("folder", str(out)),
    ]

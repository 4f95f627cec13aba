"""``perturb``: release a noisy version of a private graph."""

from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from graphveil.cli import options
from graphveil.cli.console import Screen
from graphveil.cli.failures import report_charge_on_failure, report_output_failure
from graphveil.cli.options import EdgeList, check_not_existing
from graphveil.errors import ConfigError
from graphveil.runs.source import PublicFlags

if TYPE_CHECKING:
    from graphveil.core.edges.node_pairs import Domain
    from graphveil.data import Graph
    from graphveil.perturb import GraphMechanism
    from graphveil.perturb.mechanism import ReleaseOptions
    from graphveil.privacy import Guarantee


_FLAGS = ("epsilon", "max_edges")  # fields of mechanisms that have a flag of their own
_PLAN = "Plan (no privacy budget has been spent)"
_ALL_DELTA = (
    "this release uses all of its delta; set --set delta=D to a smaller value to leave some of an "
    "account's delta for other releases"
)


def perturb(
    mechanism: str,
    *,
    out: Path,
    data: EdgeList,
    public: PublicFlags,
    unit: str | None = None,
    epsilon: float | None = None,
    max_edges: options.OneOrMore | None = None,
    unsafe_noise_seed: int | None = None,
    ledger: str | None = None,
    backend: str | None = None,
    address: str | None = None,
    set: list[str] | None = None,
    seed: int = 0,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Release a noisy version of a private graph.

    Args:
        mechanism (MECHANISM): Graph mechanism: edge-rand, lap-graph, arr, priv-hrg, edge-rr.

    Run:
        out (FOLDER): New folder for the released graph and its guarantee.
        seed: Random seed of --private-fraction, never of the noise.

    Examples:
        graphveil perturb edge-rand --dataset synthetic/demo --unit undirected-edge --epsilon 4
            --out noisy
        graphveil perturb lap-graph --dataset synthetic/demo --unit undirected-edge --epsilon 4
            --out noisy
    """
    from graphveil._util.figures import counted
    from graphveil.core.backends import backend_by_name, using
    from graphveil.core.ledger import ledger_of
    from graphveil.core.unit import parse_unit
    from graphveil.perturb import mechanism_class, release_graph
    from graphveil.perturb.mechanism import domain_of
    from graphveil.runs.charges import RunAccount
    from graphveil.runs.parameters import read_settings

    backend_chosen = backend_by_name(backend, address)
    screen = Screen(as_json=json)
    kind = mechanism_class(mechanism)
    if epsilon is None:
        raise ConfigError("Missing privacy budget. Set --epsilon, for example --epsilon 4.")
    given: dict[str, Any] = {"epsilon": epsilon, **({} if max_edges is None else {"max_edges": max_edges})}
    types = get_type_hints(kind)
    own = {part.name: types[part.name] for part in fields(kind) if part.init and part.name not in _FLAGS}
    chosen = kind(**given, **read_settings(set or [], own, mechanism))
    check_not_existing(out, "Choose another --out.")  # before a budget is spent on it
    graph = data.topology()
    graph.check_backend(backend_chosen)  # which may raise an error, before anything is spent
    release_options: ReleaseOptions = {"unit": unit, "unsafe_noise_seed": unsafe_noise_seed}
    public.check(unit)
    part = public.part(graph, data, seed=seed)
    if part is not None:
        release_options |= {"public_edges": part.edges, "private_nodes": part.private_nodes}
    parsed_unit = parse_unit(unit, max_degree=1)
    domain = domain_of(
        graph, parsed_unit, release_options.get("public_edges"), release_options.get("private_nodes")
    )
    chosen.check(graph, parsed_unit, domain)
    guarantee = chosen.guarantee(graph, parsed_unit, domain, seeded=unsafe_noise_seed is not None)
    facts = _facts(chosen, graph, domain, guarantee)
    if dry_run:
        screen.print_facts(_PLAN, facts)
        screen.dry_run(guarantee)
        return
    account = RunAccount.from_graph(graph, guarantee, ledger)
    account.check_room(guarantee)
    screen.print_facts(_PLAN, [*facts, ("ledger", account.before()), ("folder", str(out))])
    with report_charge_on_failure(ledger_of(graph.edge_set)):
        with using(backend_chosen):
            perturbed = release_graph(graph, chosen, **release_options)
        perturbed.save(out, source=data.source or "source", target=data.target or "target")
        with report_output_failure(out):
            count = perturbed.num_edges
            screen.print_line(f"Released graph with {counted(count, 'edge')}, and its guarantee: {out}")
            screen.print_line("")
            screen.print_paragraph(perturbed.guarantee.formal_statement())
            screen.print_paragraph(f"Ledger: {account.after()}.")
            about = {"mechanism": chosen.name, "edges": count, "path": str(out)}
            screen.emit_json(
                about | {"guarantee": perturbed.guarantee.as_dict(), "ledger": account.as_plain()}
            )


def _facts(
    mechanism: "GraphMechanism", graph: "Graph", domain: "Domain", guarantee: "Guarantee"
) -> list[tuple[str, str]]:
    """Return names and values of the plan, from public numbers alone."""
    from graphveil._util.figures import counted, format_epsilon_delta
    from graphveil.perturb.perturbed_graph import REVEALS_WARNING, reveals_edges
    from graphveil.publish.cards import attack_bound_text

    return [
        ("data", f"{graph.name}: {counted(graph.num_nodes, 'node')}"),
        ("mechanism", mechanism.name),
        ("unit", f"{guarantee.unit}: protects {guarantee.covers}"),
        ("budget", format_epsilon_delta(guarantee.epsilon, guarantee.delta)),
        *([("", _ALL_DELTA)] if guarantee.additive_delta > guarantee.delta / 2 else []),
        *mechanism.facts(domain),
        ("attack bound", attack_bound_text(guarantee)),
        *([("warning", REVEALS_WARNING)] if reveals_edges(guarantee) else []),
        *(("deviation", deviation) for deviation in guarantee.deviations),
    ]


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
    from graphveil._util.figures import format_epsilon_delta
    from graphveil.perturb import guarantee_of
    from graphveil.perturb.perturbed_graph import mechanism_of

    guarantee = guarantee_of(graph)
    if guarantee is None:
        return "not released by a mechanism"
    budget = format_epsilon_delta(guarantee.epsilon, guarantee.delta)
    invalid = "" if guarantee.valid else "; the guarantee is not valid"
    return f"{mechanism_of(graph)}, unit {guarantee.unit}, {budget}{invalid}"

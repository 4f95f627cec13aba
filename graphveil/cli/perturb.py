"""``perturb``: release a noisy version of a private graph."""

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from graphveil.cli import options
from graphveil.cli.console import Screen
from graphveil.cli.failures import report_charge_on_failure, report_output_failure
from graphveil.cli.options import (
    GRAPH_MECHANISMS,
    EdgeListOptions,
    PublicEdgeOptions,
    check_not_existing,
    flag,
    grouped,
)
from graphveil.errors import ConfigError

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

Mechanism = Annotated[
    str,
    typer.Argument(
        metavar="MECHANISM", help=f"Graph mechanism: {', '.join(GRAPH_MECHANISMS)}.", show_default=False
    ),
]


@grouped
def perturb(
    mechanism: Mechanism,
    out: Annotated[
        Path, flag("Run", "--out", "New folder for the released graph and its guarantee.", metavar="FOLDER")
    ],
    *,
    dataset: options.Dataset = None,
    root: options.Root = None,
    columns: EdgeListOptions,
    public: PublicEdgeOptions,
    unit: options.Unit = None,
    epsilon: options.Epsilon = None,
    max_edges: options.MaxEdges = None,
    mode: options.Mode = None,
    unsafe_noise_seed: options.UnsafeNoiseSeed = None,
    ledger: options.Ledger = None,
    backend: options.AggregationBackend = None,
    address: options.Address = None,
    set: options.Set = None,
    seed: Annotated[int, flag("Run", "--seed", "Random seed of --private-fraction, never of the noise.")] = 0,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Release a noisy version of a private graph."""
    from graphveil._util import checks
    from graphveil._util.figures import counted
    from graphveil.core.backends import backend_by_name, backend_for, using
    from graphveil.core.ledger import ledger_of
    from graphveil.core.unit import parse_unit
    from graphveil.ledger.accounts import RunAccount
    from graphveil.perturb import MECHANISMS, mechanism_for_mode, release_graph
    from graphveil.perturb.mechanism import domain_of
    from graphveil.runs.parameters import read_settings
    from graphveil.runs.source import GraphTableColumns

    backend_chosen = backend_by_name(backend, address)
    screen = Screen(as_json=json)
    checks.one_of(tuple(MECHANISMS), mechanism=mechanism)
    kind = mechanism_for_mode(MECHANISMS[mechanism], mode or "strict")
    if epsilon is None:
        raise ConfigError("Missing privacy budget. Set --epsilon, for example --epsilon 4.")
    given: dict[str, Any] = {"epsilon": epsilon, **({} if max_edges is None else {"max_edges": max_edges})}
    types = get_type_hints(kind)
    own = {part.name: types[part.name] for part in fields(kind) if part.init and part.name not in _FLAGS}
    chosen = kind(**given, **read_settings(set or [], own, mechanism))
    check_not_existing(out, "Choose another --out.")  # before a budget is spent on it
    graph = columns.load(dataset, root)
    backend_for(backend_chosen, graph.adjacency)  # which may raise an error, before anything is spent
    release_options: ReleaseOptions = {"unit": unit, "unsafe_noise_seed": unsafe_noise_seed}
    flags = public.flags()
    flags.check(unit)
    tables = GraphTableColumns(
        nodes=columns.nodes, id=columns.id, source=columns.source, target=columns.target
    )
    part = flags.part(graph, tables, seed=seed)
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
        perturbed.save(out, source=columns.source or "source", target=columns.target or "target")
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
        ("mechanism", f"{mechanism.name}, {guarantee.mode} mode"),
        ("unit", f"{guarantee.unit}: protects {guarantee.covers}"),
        ("budget", format_epsilon_delta(guarantee.epsilon, guarantee.delta)),
        *([("", _ALL_DELTA)] if guarantee.additive_delta > guarantee.delta / 2 else []),
        *mechanism.facts(domain),
        ("attack bound", attack_bound_text(guarantee)),
        *([("warning", REVEALS_WARNING)] if reveals_edges(guarantee) else []),
        *(("deviation", deviation) for deviation in guarantee.deviations),
    ]

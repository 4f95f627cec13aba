"""``perturb``: a private graph in, a noisy one out that may be published."""

from dataclasses import fields
from typing import TYPE_CHECKING, Any, get_type_hints

from graphveil.cli import options
from graphveil.cli.collect import check_new
from graphveil.cli.connections import Columns, read_connections
from graphveil.cli.console import Screen
from graphveil.cli.failures import done_anyway, spending
from graphveil.errors import ConfigError

if TYPE_CHECKING:
    from graphveil.experiment.accounts.ledger_account import RunAccount
    from graphveil.graph import Graph
    from graphveil.graph.domain import Domain
    from graphveil.perturb import GraphMechanism
    from graphveil.perturb.mechanism import Asked
    from graphveil.privacy import Guarantee, Unit
    from graphveil.privacy.guarantee import Mode

_FLAGS = ("epsilon", "max_edges")  # fields of mechanisms that have a flag of their own


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
    public_edges: options.PublicEdges = None,
    private_nodes: options.PrivateNodes = None,
    private_fraction: options.PrivateFraction = None,
    private_where: options.PrivateWhere = None,
    unit: options.Unit = None,
    epsilon: options.Epsilon = None,
    max_edges: options.MaxEdges = None,
    mode: options.Mode = None,
    unsafe_noise_seed: options.UnsafeNoiseSeed = None,
    ledger: options.Ledger = None,
    engine: options.Engine = None,
    address: options.Address = None,
    set: options.Set = None,
    seed: options.FractionSeed = 0,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Release a noisy graph instead of a model: edges, guarantee and a page, which may be published."""
    from graphveil.experiment.inputs.public_flags import Columns as PublicColumns
    from graphveil.experiment.inputs.public_flags import PublicFlags
    from graphveil.perturb import release_graph
    from graphveil.privacy import ledger_of
    from graphveil.privacy.figures import counted
    from graphveil.release.engines.named import engine_for, named, using

    engine_chosen = named(engine, address)
    screen = Screen(as_json=json)
    chosen = _mechanism(mechanism, mode or "strict", epsilon, max_edges, set or [])
    check_new(out, "a released graph may have cost a budget; choose another --out")
    columns = Columns(nodes=nodes, edges=edges, id=id, source=source, target=target, directed=directed)
    graph = read_connections(dataset, root, columns)
    engine_for(engine_chosen, graph.adjacency)  # which may refuse it, before anything is spent
    asked: Asked = {"unit": unit, "unsafe_noise_seed": unsafe_noise_seed}
    flags = PublicFlags(
        public_edges=public_edges,
        private_nodes=private_nodes,
        private_fraction=private_fraction,
        private_where=private_where,
    )
    flags.check(unit)
    part = flags.part(graph, PublicColumns(nodes=nodes, id=id, source=source, target=target), seed=seed)
    if part is not None:
        asked |= {"public_edges": part.edges, "private_nodes": part.private_nodes}
    promised = _promised(chosen, graph, asked)
    if dry_run:
        screen.facts("Plan, before anything is spent", _facts(chosen, graph, asked, promised))
        screen.dry_run(promised)
        return
    account = _account(graph, promised, ledger)
    facts = [*_facts(chosen, graph, asked, promised), ("ledger", account.before()), ("folder", str(out))]
    screen.facts("Plan, before anything is spent", facts)
    with spending(ledger_of(graph.edge_set)):
        with using(engine_chosen):
            perturbed = release_graph(graph, chosen, **asked)
        perturbed.save(out, source=source or "source", target=target or "target")
        with done_anyway(out):
            count = perturbed.num_edges
            screen.say(f"{counted(count, 'edge')}, their guarantee and a page in words are in {out}")
            screen.say("")
            screen.prose(perturbed.guarantee.statement())
            screen.prose(f"In the ledger: {account.after()}.")
            about = {"mechanism": chosen.name, "edges": count, "path": str(out)}
            screen.emit(about | {"guarantee": perturbed.guarantee.as_dict(), "ledger": account.as_plain()})


def _account(graph: "Graph", promised: "Guarantee", ledger: str | None) -> "RunAccount":
    """Return the account of the graph's edges, which has room for the release."""
    from graphveil.experiment.accounts.ledger_account import RunAccount

    account = RunAccount.of(graph, promised, ledger)
    account.check_room(promised)
    return account


def _mechanism(
    name: str, mode: "Mode", epsilon: float | None, max_edges: int | None, settings: list[str]
) -> "GraphMechanism":
    """Return the mechanism that the flags describe."""
    from graphveil import _check
    from graphveil.experiment.inputs.parameters import read_settings
    from graphveil.perturb import MECHANISMS, of_mode

    _check.one_of(tuple(MECHANISMS), mechanism=name)
    kind = of_mode(MECHANISMS[name], mode)
    if epsilon is None:
        raise ConfigError(f"{name} needs a budget: pass --epsilon")
    given: dict[str, Any] = {"epsilon": epsilon, **({} if max_edges is None else {"max_edges": max_edges})}
    types = get_type_hints(kind)
    own = {part.name: types[part.name] for part in fields(kind) if part.init and part.name not in _FLAGS}
    return kind(**given, **read_settings(settings, own, name))


def _promised(mechanism: "GraphMechanism", graph: "Graph", asked: "Asked") -> "Guarantee":
    """Refuse what can be refused; return the release's guarantee, from public numbers alone."""
    unit, domain = _domain(graph, asked)
    mechanism.check(graph, unit, domain)
    return mechanism.guarantee(graph, unit, domain, seeded=asked.get("unsafe_noise_seed") is not None)


def _domain(graph: "Graph", asked: "Asked") -> "tuple[Unit, Domain]":
    from graphveil.perturb.mechanism import domain_of
    from graphveil.privacy import parse_unit

    unit = parse_unit(asked.get("unit"))
    return unit, domain_of(graph, unit, asked.get("public_edges"), asked.get("private_nodes"))


_ALL_DELTA = (
    "its delta is all of this release's: an account at the same delta has none left for another; "
    "--set delta=D takes less"
)


def _facts(
    mechanism: "GraphMechanism", graph: "Graph", asked: "Asked", guarantee: "Guarantee"
) -> list[tuple[str, str]]:
    """Return names and values of the plan, from public numbers alone."""
    from graphveil.artifacts.cards import attackers_rate
    from graphveil.perturb.folder import REVEALS, reveals_edges
    from graphveil.privacy.figures import at_delta, counted

    return [
        ("data", f"{graph.name}: {counted(graph.num_nodes, 'node')}"),
        ("mechanism", f"{mechanism.name}, {guarantee.mode} mode"),
        ("unit", f"{guarantee.unit}: protects {guarantee.covers}"),
        ("budget", at_delta(guarantee.epsilon, guarantee.delta)),
        *([("", _ALL_DELTA)] if guarantee.delta_booked > guarantee.delta / 2 else []),
        *mechanism.facts(_domain(graph, asked)[1]),
        ("attacker", attackers_rate(guarantee)),
        *([("warning", REVEALS)] if reveals_edges(guarantee) else []),
        *(("deviation", deviation) for deviation in guarantee.deviations),
    ]

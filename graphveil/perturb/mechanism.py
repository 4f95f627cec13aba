"""Common parts of graph-to-graph mechanisms: the plan, and the node pairs of the released graph."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypedDict

import numpy as np
import numpy.typing as npt
from torch import Tensor

from graphveil._util import checks
from graphveil._util.checks import parse_arguments, parse_name, suggestion
from graphveil._util.threads import one_thread
from graphveil.core.edges.adjacency import Adjacency, EdgeSet
from graphveil.core.edges.node_pairs import Domain, PublicPart, no_public_edges
from graphveil.core.keys import ReleaseKey
from graphveil.core.ledger import ledger_of
from graphveil.core.plan import ReleasePlan
from graphveil.core.query import Query
from graphveil.core.release import Release
from graphveil.core.unit import EdgeSubset, Unit, parse_unit
from graphveil.core.view import protected_view
from graphveil.data import Graph
from graphveil.data.graph import check_kind
from graphveil.data.recipes import about_edges
from graphveil.errors import ConfigError, UnitError
from graphveil.perturb.perturbed_graph import PerturbedGraph, provenance_of
from graphveil.privacy import Guarantee

MAX_EDGES = 20_000_000
MAX_EPSILON = 36.0  # a larger budget changes a pair with a probability below 2^-51
SEEDED = "the noise is reproducible from a seed"


class ReleaseOptions(TypedDict, total=False):
    """Options of a graph release other than its mechanism.

    Keys:
        unit: ``"undirected-edge"``, for a directed graph ``"directed-edge"``, or ``"edge-subset"``.
        public_edges: Under ``"edge-subset"``: edges that are public, and are kept.
        private_nodes: Under ``"edge-subset"``: the nodes that may have private edges, bool (N) or their
            numbers, in a tensor, an array or a sequence. The list is public, and never derived from the
            edges, because having a private edge is protected.
        unsafe_noise_seed: Makes the noise reproducible, so the guarantee is not valid.
    """

    unit: str | None
    public_edges: Adjacency | None
    private_nodes: Tensor | npt.ArrayLike | None
    unsafe_noise_seed: int | None


@dataclass(frozen=True, kw_only=True)
class GraphMechanism(ABC):
    """A mechanism that reads the edges once and releases a perturbed graph. Its fields are public.

    Args:
        epsilon: Budget of one edge, for all queries together.
        max_edges: Largest expected number of released edges; a larger one raises an error in advance.
    """

    name: ClassVar[str]

    epsilon: float
    max_edges: int = MAX_EDGES

    def __post_init__(self) -> None:
        """Validate the fields."""
        checks.plain_fields(self)
        checks.positive(epsilon=self.epsilon)
        if self.epsilon > MAX_EPSILON:
            raise ConfigError(
                f"epsilon={self.epsilon:g} gives no protection: above {MAX_EPSILON:g} a node pair changes "
                "with probability below 2^-51. Use a smaller epsilon. No privacy budget was spent."
            )
        checks.integer_at_least(1, max_edges=self.max_edges)
        self.check_fields()

    def check_fields(self) -> None:  # noqa: B027  # some mechanisms have no further fields
        """Validate the fields of the mechanism, after those of every mechanism."""

    def check_domain(self, domain: Domain) -> None:  # noqa: B027  # most mechanisms take any
        """Reject node pairs that the mechanism cannot release."""

    @abstractmethod
    def queries(self, domain: Domain) -> tuple[Query, ...]:
        """Return the queries in order."""

    @abstractmethod
    def expected_edges(self, domain: Domain) -> float:
        """Return the expected number of edges that noise alone adds, which is public."""

    @abstractmethod
    def facts(self, domain: Domain) -> list[tuple[str, str]]:
        """Return the lines of the plan: names and values, from public sizes alone."""

    @abstractmethod
    def sample_edges(self, release: Release, domain: Domain) -> Tensor:
        """Answer all queries, and return the node pairs of the released edges, int64, ascending.

        Privacy:
            Reads: private edges through the queries of ``release``, which was charged when it was opened. The
            result is noisy, and public as far as the guarantee is valid.
        """

    def adjacency(self, found: Tensor, domain: Domain, public: Adjacency | None, origin: str) -> Adjacency:
        """Return the released node pairs as a graph with the public edges; see ``adjacency_of``."""
        return adjacency_of(found, domain, public, origin)

    def plan(self, unit: Unit, domain: Domain) -> ReleasePlan:
        """Return the release, which needs no delta."""
        return ReleasePlan(unit, self.queries(domain), delta=0.0)

    def deviations(self, domain: Domain) -> tuple[str, ...]:
        """Return why the release has no valid guarantee, if it has none."""
        return ()

    def check(self, graph: Graph, unit: Unit, domain: Domain) -> None:
        """Validate the release against public facts alone, before anything is spent.

        Raises:
            ConfigError: Noise alone is expected to add more edges than ``max_edges``.
            UnitError: The unit does not fit the graph's edges.

        Privacy:
            Reads: public sizes only. Charges: nothing.
        """
        self.check_domain(domain)
        for query in self.queries(domain):
            query.event(unit)
            query.check_unit(unit, directed=graph.directed)
        expected = self.expected_edges(domain)
        if expected > self.max_edges:
            raise ConfigError(
                f"{self.name} at epsilon {self.epsilon:g} would add about {expected:,.0f} edges to a "
                f"graph of {graph.num_nodes:,} nodes, which is above max_edges={self.max_edges:,}. Use a "
                "larger epsilon, or raise max_edges (--max-edges) if memory allows."
            )

    def guarantee(self, graph: Graph, unit: Unit, domain: Domain, *, seeded: bool = False) -> Guarantee:
        """Return the guarantee of the released graph, from public facts alone.

        Privacy:
            Reads: public sizes only. Charges: nothing.
        """
        plan = self.plan(unit, domain)
        return Guarantee.from_event(
            unit,
            plan.event,
            delta=plan.delta,
            releases=1,
            deviations=(*self.deviations(domain), *graph.deviations, *((SEEDED,) if seeded else ())),
            notes=tuple(note for note in graph.notes if about_edges(note)),
            graph=True,
        )


@one_thread()
def release_graph(
    graph: Graph,
    mechanism: GraphMechanism,
    *,
    unit: str | None = None,
    public_edges: Adjacency | None = None,
    private_nodes: Tensor | npt.ArrayLike | None = None,
    unsafe_noise_seed: int | None = None,
) -> PerturbedGraph:
    """Charge a mechanism's release, run it, and return the noisy graph with its guarantee.

    Features, labels and the split are unchanged: they are public under edge-level privacy units. Edges that
    are neither public nor between listed nodes are left out. The public edges are an argument, or set by
    ``Graph.with_public``.

    Privacy:
        Unit: ``unit``. Reads: the private edges. Charges: the mechanism's guarantee to the ledger of the
        graph's edge set, before the edges are read. Public: the released edges and their guarantee. Features
        and labels are unchanged, and not covered.
    """
    check_kind(graph)
    protected = parse_unit(unit, max_degree=1)
    domain = domain_of(graph, protected, public_edges, private_nodes)
    known = public_edges_of(graph, protected) if private_nodes is None else public_edges
    view = protected_view(graph, protected)
    mechanism.check(view, protected, domain)
    guarantee = mechanism.guarantee(view, protected, domain, seeded=unsafe_noise_seed is not None)
    key = None if unsafe_noise_seed is None else ReleaseKey.from_seed(unsafe_noise_seed, mechanism.name)
    release = Release.open(
        mechanism.plan(protected, domain),
        view.adjacency,
        budget=ledger_of(graph.edge_set),
        key=key,
        label=mechanism.name,
    )
    found = mechanism.sample_edges(release, domain)
    release.close()
    origin = provenance_of(guarantee, mechanism.name, release.release_id)
    adjacency = mechanism.adjacency(found, domain, known, origin)
    return PerturbedGraph(graph.replace(adjacency=adjacency, public=None), guarantee)


def public_edges_of(graph: Graph, unit: Unit) -> Adjacency | None:
    """Return the public edges of a graph, if the unit leaves any public."""
    return graph.public.edges if isinstance(unit, EdgeSubset) and graph.public is not None else None


def domain_of(
    graph: Graph,
    unit: Unit,
    public_edges: Adjacency | None = None,
    private_nodes: Tensor | npt.ArrayLike | None = None,
) -> Domain:
    """Return the node pairs that a unit protects, from the arguments or from the graph's public part.

    Raises:
        UnitError: The list of private nodes is missing, or public edges are given to a unit without any.
    """
    if not isinstance(unit, EdgeSubset):
        if public_edges is not None or private_nodes is not None:
            raise UnitError(
                f"public edges and private nodes apply to unit 'edge-subset' only, but unit {unit.name!r} "
                "protects every edge. Omit them, or use unit 'edge-subset'."
            )
        return Domain.whole(graph.num_nodes, directed=graph.directed)
    if public_edges is None and private_nodes is None and graph.public is not None:
        return Domain.within(graph.public.edges, graph.public.private_nodes)
    if private_nodes is None:
        raise UnitError(
            "private_nodes is missing: unit 'edge-subset' needs the public list of nodes that may "
            "have private edges (private_nodes=, graph.with_public, --private-nodes). It cannot be "
            "read from the edges, which would reveal them. If in doubt, list all nodes."
        )
    public = no_public_edges(graph.num_nodes) if public_edges is None else public_edges
    listed: Any = private_nodes  # which the part makes a mask
    part = PublicPart(public, listed)
    part.check_nodes(graph.num_nodes)
    return Domain.within(public, part.private_nodes)


def adjacency_of(found: Tensor, domain: Domain, public: Adjacency | None, origin: str) -> Adjacency:
    """Return node pairs as in-edges, with the public edges, in an edge set that records their origin.

    >>> import torch
    >>> edges = adjacency_of(torch.tensor([0, 4]), Domain.whole(4, directed=False), None, "")
    >>> edges.edge_index()
    tensor([[1, 0, 3, 1],
            [0, 1, 1, 3]])
    """
    released, directed = EdgeSet(released=origin), domain.slots.directed
    if public is None:
        return Adjacency.from_rows(*domain.rows(found.numpy()), directed=directed, edge_set=released)
    ends = zip(domain.ends(found.numpy()), public.edge_index().numpy(), strict=True)
    source, target = (np.concatenate(both) for both in ends)
    return Adjacency.from_edges(
        source, target, num_nodes=len(domain.rank), directed=directed, edge_set=released
    )


def parse_mechanism(text: str, known: Mapping[str, type[GraphMechanism]], **common: Any) -> GraphMechanism:
    """Parse a mechanism from its name, with its settings in brackets.

    Args:
        text: A name, or a name with settings.
        known: Available mechanisms, by name.
        common: Further fields; those that the mechanism lacks are ignored, and those in brackets win.

    Raises:
        ConfigError: No mechanism has this name, or it does not have these settings.

    >>> from graphveil.perturb import MECHANISMS
    >>> parse_mechanism("arr(density_fraction=0.2)", MECHANISMS, epsilon=1.0, seed=3)
    ARR(epsilon=1.0, max_edges=20000000, density_fraction=0.2)
    """
    name = parse_name(text)
    if name not in known:
        raise ConfigError(
            f"perturb={text!r} is not a mechanism{suggestion(name, known)}. Use one of {', '.join(known)}, "
            "optionally with settings: edge-rr(structure=public, rounds=200)."
        )
    try:
        given = parse_arguments(text)
    except (TypeError, ValueError, SyntaxError):
        raise ConfigError(
            f"The settings in perturb={text!r} must be name=value pairs, as in "
            "edge-rr(structure=public, rounds=200)"
        ) from None
    kind = known[name]
    has = [part.name for part in fields(kind) if part.init]
    own = [setting for setting in has if setting not in ("epsilon", "max_edges")]  # these are keywords
    unknown = [setting for setting in given if setting not in own]
    if unknown:
        raise ConfigError(
            f"perturb={text!r}: {name} has no setting {unknown[0]!r}{suggestion(unknown[0], own)}; it has "
            f"{', '.join(own) or 'none'}"
        )
    return kind(**({part: value for part, value in common.items() if part in has} | given))


def check_share(**named: float) -> None:
    """Require shares of a budget strictly between 0 and 1."""
    checks.within(0, 1, **named)
    for name, part in named.items():
        if part in (0, 1):
            raise ConfigError(f"{name}={part!r} must lie between 0 and 1")

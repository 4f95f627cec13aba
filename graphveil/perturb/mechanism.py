"""Graph-to-graph mechanisms: what they share, and those that add noise to every node pair."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypedDict, Unpack

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
from graphveil.core.noise.node_pair_noise import MAX_CELLS, EdgeRandomizedResponse
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.graph_queries import (
    EdgeResponseData,
    EdgeResponseQuery,
    EdgeTotalData,
    EdgeTotalQuery,
    TopNodePairsData,
    TopNodePairsQuery,
)
from graphveil.core.query import Query
from graphveil.core.release import Release
from graphveil.core.unit import EdgeSubset, Unit, parse_unit
from graphveil.core.view import protected_view
from graphveil.data import Graph
from graphveil.data.graph import check_kind
from graphveil.data.recipes import about_edges
from graphveil.data.relational import reject_tables
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
    reject_tables(graph)
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
    return graph.public.edges if isinstance(unit, EdgeSubset) and graph.public is not None else None


def domain_of(
    graph: Graph,
    unit: Unit,
    public_edges: Adjacency | None = None,
    private_nodes: Tensor | npt.ArrayLike | None = None,
) -> Domain:
    """Return the node pairs that a unit protects, from the arguments or from the graph's public part."""
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
    checks.within(0, 1, **named)
    for name, part in named.items():
        if part in (0, 1):
            raise ConfigError(f"{name}={part!r} must lie between 0 and 1")


# -- randomized response on every node pair ----


@dataclass(frozen=True, kw_only=True)
class EdgeRand(GraphMechanism):
    """Flip every node pair independently with q = 1 / (1 + e^eps) (Wu et al.: LinkTeller, 2022).

    Noise adds about q N (N - 1) / 2 edges, far more than a sparse graph has, except at a large epsilon. On
    Cora at epsilon 1 it adds 988,000 edges to 5,278.

    Guarantee: eps-indistinguishable for one edge, exactly and tightly, with delta 0.

    >>> EdgeRand(epsilon=8.0).expected_edges(Domain.whole(2708, directed=False)) < 1300
    True
    """

    name: ClassVar[str] = "edge-rand"

    def queries(self, domain: Domain) -> tuple[Query, ...]:
        """Return the one response."""
        return (EdgeResponseQuery(self.epsilon),)

    def expected_edges(self, domain: Domain) -> float:
        """Return q times the number of node pairs: exact without edges, off by less than one per edge."""
        return EdgeRandomizedResponse(self.epsilon).flip * domain.size

    def facts(self, domain: Domain) -> list[tuple[str, str]]:
        """Return the flip probability, and the expected number of edges that it adds."""
        flip = EdgeRandomizedResponse(self.epsilon).flip
        return response_facts(flip, self.expected_edges(domain), domain)

    def sample_edges(self, release: Release, domain: Domain) -> Tensor:
        """Return the node pairs that are edges in the released graph."""
        return release.answer(EdgeResponseData(domain))


def response_facts(flip: float, expected: float, domain: Domain) -> list[tuple[str, str]]:
    return [
        ("graph", f"each of {domain.size:,} slots is flipped with probability {flip:.6g}"),
        ("expected", f"{expected:,.0f} edges from noise alone, for any graph"),
    ]


def edge_rand(
    graph: Graph, *, epsilon: float, max_edges: int = MAX_EDGES, **options: Unpack[ReleaseOptions]
) -> PerturbedGraph:
    """Release a graph by ``EdgeRand``: recorded in the ledger of its edges before they are read.

    Args:
        graph: The private graph.
        epsilon: The budget.
        max_edges: Largest expected number of released edges.
        options: ``unit`` and related options, see ``ReleaseOptions``.

    Raises:
        ConfigError: Noise alone would add more than ``max_edges`` edges; nothing was spent.
        UnitError: The unit is missing, or does not fit the graph's edges.

    Privacy:
        Unit: ``unit``. Reads: the private edges. Charges: ``epsilon`` to the ledger of the graph's edge set,
        before the edges are read. Public: the released graph and its guarantee.

    >>> import torch
    >>> path = Graph.from_edges(torch.eye(4), [0, 1, 1, 0], [0, 1, 2], [1, 2, 3], directed=False)
    >>> released, guarantee = edge_rand(path, unit="undirected-edge", epsilon=2.0)
    >>> released.num_nodes, guarantee.epsilon, guarantee.delta
    (4, 2.0, 0.0)
    """
    return release_graph(graph, EdgeRand(epsilon=epsilon, max_edges=max_edges), **options)


# -- a noisy number T of edges, and the T largest noisy cells ----


@dataclass(frozen=True, kw_only=True)
class LapGraph(GraphMechanism):
    """The T largest cells of an adjacency with Laplace noise become edges (Wu et al.: LinkTeller, 2022).

    T is the number of edges with Laplace noise of scale 1 / eps_1, eps_1 = count_fraction eps, clipped to
    the possible range. Cells have noise of scale 1 / eps_2, eps_2 = eps - eps_1. The graph is about as large
    as the true one, and at small epsilon most of its edges are noise.

    Guarantee: eps-indistinguishable for one edge, delta 0: one edge changes the number and one cell by one.

    Args:
        count_fraction: Share of epsilon for the number of edges.

    >>> [round(query.epsilon, 4) for query in LapGraph(epsilon=4.0).queries(Domain.whole(9, directed=False))]
    [0.04, 3.96]
    """

    name: ClassVar[str] = "lap-graph"

    count_fraction: float = 0.01

    def check_fields(self) -> None:
        """Require a share of the budget between 0 and 1."""
        check_share(count_fraction=self.count_fraction)

    def queries(self, domain: Domain) -> tuple[Query, ...]:
        """Return the query of the number of edges, then that of the cells."""
        checks.within(0, MAX_CELLS, cells=domain.size)
        first = self.count_fraction * self.epsilon
        return EdgeTotalQuery(first), TopNodePairsQuery(self.epsilon - first)

    def expected_edges(self, domain: Domain) -> float:
        """Return the expected number of edges that noise adds to an empty graph: half of its scale."""
        return min(domain.size, 0.5 / (self.count_fraction * self.epsilon))

    def facts(self, domain: Domain) -> list[tuple[str, str]]:
        """Return the noise of both queries, and the maximum number of released edges."""
        return count_facts(self.queries(domain), domain, self.max_edges)

    def sample_edges(self, release: Release, domain: Domain) -> Tensor:
        """Return the node pairs that are edges in the released graph."""
        total = int(release.answer(EdgeTotalData(domain)))
        wanted = max(0, min(total, domain.size, self.max_edges))
        return release.answer(TopNodePairsData(domain, wanted))


def count_facts(queries: tuple[Query, ...], domain: Domain, max_edges: int) -> list[tuple[str, str]]:
    total, cells = queries
    most = min(domain.size, max_edges)
    return [
        ("edge count", f"noise standard deviation {total.noise[0]:,.4g}"),
        (
            "node pairs",
            f"{domain.size:,}, noise standard deviation {cells.noise[0]:.4g}; the largest are kept",
        ),
        ("expected", f"as many edges as the noisy count, at most {most:,}"),
    ]


def lap_graph(
    graph: Graph,
    *,
    epsilon: float,
    count_fraction: float = 0.01,
    max_edges: int = MAX_EDGES,
    **options: Unpack[ReleaseOptions],
) -> PerturbedGraph:
    """Release a graph by ``LapGraph``; arguments and errors as for ``edge_rand``.

    Privacy:
        Unit: ``unit``. Reads: the private edges. Charges: ``epsilon`` to the ledger of the graph's edge set,
        before the edges are read. Public: the released edges and their guarantee. Features and labels are
        unchanged, and not covered.

    >>> import torch
    >>> path = Graph.from_edges(torch.eye(4), [0, 1, 1, 0], [0, 1, 2], [1, 2, 3], directed=False)
    >>> lap_graph(path, unit="undirected-edge", epsilon=2.0).guarantee.releases
    1
    """
    mechanism = LapGraph(epsilon=epsilon, count_fraction=count_fraction, max_edges=max_edges)
    return release_graph(graph, mechanism, **options)


# -- randomized response thinned to the density of the graph ----


@dataclass(frozen=True, kw_only=True)
class ARR(GraphMechanism):
    """Asymmetric randomized response: the expected number of edges is that of the graph (Imola et al., 2022).

    The density d, with noise for eps_d = density_fraction eps, gives the share s of ones that are kept after
    randomized response with eps_l = eps - eps_d and p = e^eps_l / (1 + e^eps_l):

        s = min(1, d / (2 p d - p - d + 1)),

    so that the expected density is d. As the edge perturbation of SAGE-EDP it is Sajadmanesh et al. (GAP,
    2023), with one query of the density, and each undirected edge randomized once.

    Guarantee: eps-indistinguishable for one edge, with delta 0; s follows from the noisy density alone.

    Args:
        density_fraction: Share of epsilon for the density.

    >>> mechanism = ARR(epsilon=1.0)
    >>> round(mechanism.share(0.0014395), 10)
    0.0049696569
    """

    name: ClassVar[str] = "arr"

    density_fraction: float = 0.1

    def check_fields(self) -> None:
        """Require a share of the budget between 0 and 1."""
        check_share(density_fraction=self.density_fraction)

    def queries(self, domain: Domain) -> tuple[Query, ...]:
        """Return the query of the number of edges, then the response."""
        first = self.density_fraction * self.epsilon
        return EdgeTotalQuery(first), EdgeResponseQuery(self.epsilon - first)

    @property
    def keep_probability(self) -> float:
        """The probability p that a node pair is reported truthfully."""
        return 1 - EdgeRandomizedResponse((1 - self.density_fraction) * self.epsilon).flip

    def share(self, density: float, most: float = 1.0) -> float:
        """Return the share of ones to keep, so that the density is kept, or lowered to at most a bound."""
        reported = self.keep_probability * density + (1 - self.keep_probability) * (1 - density)
        return min(1.0, min(density, most) / reported)

    def expected_edges(self, domain: Domain) -> float:
        """Return the expected number of edges that noise adds to an empty graph: half of its scale."""
        return min(domain.size, 1 + 0.5 / (self.density_fraction * self.epsilon))

    def facts(self, domain: Domain) -> list[tuple[str, str]]:
        """Return the noise of the density, and the response."""
        total = self.queries(domain)[0]
        return [
            ("density", f"the number of edges, with noise of standard deviation {total.noise[0]:,.4g}"),
            (
                "graph",
                f"each of {domain.size:,} slots reports the truth with probability "
                f"{self.keep_probability:.6g}, and then as large a share of the edges is kept as leaves the "
                "noisy density",
            ),
            (
                "expected",
                f"as many edges as the noisy count, and at most {min(domain.size, self.max_edges):,}",
            ),
        ]

    def sample_edges(self, release: Release, domain: Domain) -> Tensor:
        """Return the node pairs that are edges in the released graph."""
        total = int(release.answer(EdgeTotalData(domain)))
        slots = max(1, domain.size)
        density = max(1, min(total, domain.size)) / slots
        return release.answer(
            EdgeResponseData(domain, self.share(density, min(self.max_edges, slots) / slots))
        )


def arr(
    graph: Graph,
    *,
    epsilon: float,
    density_fraction: float = 0.1,
    max_edges: int = MAX_EDGES,
    **options: Unpack[ReleaseOptions],
) -> PerturbedGraph:
    """Release a graph by ``ARR``; arguments and errors as for ``edge_rand``.

    Privacy:
        Unit: ``unit``. Reads: the private edges. Charges: ``epsilon`` to the ledger of the graph's edge set,
        before the edges are read. Public: the released edges and their guarantee. Features and labels are
        unchanged, and not covered.

    >>> import torch
    >>> path = Graph.from_edges(torch.eye(4), [0, 1, 1, 0], [0, 1, 2], [1, 2, 3], directed=False)
    >>> arr(path, unit="undirected-edge", epsilon=2.0).guarantee.epsilon
    2.0
    """
    mechanism = ARR(epsilon=epsilon, density_fraction=density_fraction, max_edges=max_edges)
    return release_graph(graph, mechanism, **options)

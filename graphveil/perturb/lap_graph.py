"""LapGraph: a noisy number T of edges, and the T largest noisy cells."""

from dataclasses import dataclass
from typing import ClassVar, Unpack

from torch import Tensor

from graphveil._util import checks
from graphveil.core.edges.node_pairs import Domain
from graphveil.core.noise.node_pair_noise import MAX_CELLS
from graphveil.core.queries.graph_queries import (
    EdgeTotalData,
    EdgeTotalQuery,
    TopNodePairsData,
    TopNodePairsQuery,
)
from graphveil.core.query import Query
from graphveil.core.release import Release
from graphveil.data import Graph
from graphveil.perturb.mechanism import MAX_EDGES, GraphMechanism, ReleaseOptions, check_share, release_graph
from graphveil.perturb.perturbed_graph import PerturbedGraph


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
    """Return the lines of the plan for both queries, here and in published code."""
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

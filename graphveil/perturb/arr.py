"""ARR: randomized response thinned to the density of the graph."""

from dataclasses import dataclass
from typing import ClassVar, Unpack

from torch import Tensor

from graphveil.core.edges.node_pairs import Domain
from graphveil.core.noise.node_pair_noise import EdgeRandomizedResponse
from graphveil.core.queries.graph_queries import (
    EdgeResponseData,
    EdgeResponseQuery,
    EdgeTotalData,
    EdgeTotalQuery,
)
from graphveil.core.query import Query
from graphveil.core.release import Release
from graphveil.data import Graph
from graphveil.perturb.mechanism import MAX_EDGES, GraphMechanism, ReleaseOptions, check_share, release_graph
from graphveil.perturb.perturbed_graph import PerturbedGraph


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

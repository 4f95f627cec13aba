"""EdgeRand: randomized response on every slot."""

from dataclasses import dataclass
from typing import ClassVar, Unpack

from torch import Tensor

from graphveil.data import Graph
from graphveil.data.node_pairs import Domain
from graphveil.mechanisms.node_pair_noise import EdgeRandomizedResponse
from graphveil.perturb.mechanism import MAX_EDGES, GraphMechanism, ReleaseOptions, release_graph
from graphveil.perturb.perturbed_graph import PerturbedGraph
from graphveil.release import EdgeResponseData, EdgeResponseQuery, Query, Release


@dataclass(frozen=True, kw_only=True)
class EdgeRand(GraphMechanism):
    """Every slot is flipped on its own with q = 1 / (1 + e^eps) (Wu et al.: LinkTeller, 2022).

    The number of edges that noise adds is about q N (N - 1) / 2, far more than a sparse graph has unless
    epsilon is large: at epsilon 1 on Cora, 988,000 for 5,278.

    Guarantee: eps-indistinguishable for one edge, exactly and tightly, with delta 0.

    >>> EdgeRand(epsilon=8.0).expected_edges(Domain.whole(2708, directed=False)) < 1300
    True
    """

    name: ClassVar[str] = "edge-rand"

    def queries(self, domain: Domain) -> tuple[Query, ...]:
        """Return the one response."""
        return (EdgeResponseQuery(self.epsilon),)

    def expected_edges(self, domain: Domain) -> float:
        """Return q times the number of slots: exact for no edge, and off by less than one for each edge."""
        return EdgeRandomizedResponse(self.epsilon).flip * domain.size

    def facts(self, domain: Domain) -> list[tuple[str, str]]:
        """Return how often a slot is flipped, and how many edges that alone makes."""
        flip = EdgeRandomizedResponse(self.epsilon).flip
        return [
            ("graph", f"each of {domain.size:,} slots is flipped with probability {flip:.6g}"),
            (
                "expected",
                f"{self.expected_edges(domain):,.0f} edges from noise alone, whatever the graph has",
            ),
        ]

    def sample_edges(self, release: Release, domain: Domain) -> Tensor:
        """Return the slots that are edges afterwards."""
        return release.answer(EdgeResponseData(domain))


def edge_rand(
    graph: Graph, *, epsilon: float, max_edges: int = MAX_EDGES, **options: Unpack[ReleaseOptions]
) -> PerturbedGraph:
    """Release a graph by :class:`EdgeRand`: recorded in the ledger of its edges before they are read.

    Args:
        graph: the private graph.
        epsilon: the budget.
        max_edges: the most edges that may be expected to come out.
        options: ``unit`` and what goes with it: :class:`~graphveil.perturb.mechanism.ReleaseOptions`.

    Raises:
        ConfigError: noise alone would add more than ``max_edges`` edges; nothing was spent.
        UnitError: the unit is missing, or not that of the graph's edges.

    >>> import torch
    >>> path = Graph.from_edges(torch.eye(4), [0, 1, 1, 0], [0, 1, 2], [1, 2, 3], directed=False)
    >>> released, guarantee = edge_rand(path, unit="undirected-edge", epsilon=2.0)
    >>> released.num_nodes, guarantee.epsilon, guarantee.delta
    (4, 2.0, 0.0)
    """
    return release_graph(graph, EdgeRand(epsilon=epsilon, max_edges=max_edges), **options)

"""Releases of graphs whose noisy number of edges is chosen by the test."""

from typing import Any

import torch
from torch import Tensor

from graphveil.core.edges.node_pairs import Domain
from graphveil.core.keys import ReleaseKey
from graphveil.core.ledger import MemoryLedger
from graphveil.core.queries.graph_queries import EdgeTotalData
from graphveil.core.release import Release
from graphveil.core.unit import UndirectedEdge
from graphveil.data import Graph
from graphveil.perturb import GraphMechanism


class ChosenTotal:
    """A release that answers as it is, but for the number of edges."""

    def __init__(self, release: Release, total: int) -> None:
        self._release, self._total = release, total

    def answer(self, data: Any) -> Tensor:
        answer = self._release.answer(data)
        return torch.tensor([self._total]) if isinstance(data, EdgeTotalData) else answer


def edges_given_total(
    mechanism: GraphMechanism, graph: Graph, total: int, *, seed: int | None = None
) -> Tensor:
    """Return the numbers of the node pairs that are edges afterwards, given the noisy number of edges."""
    domain = Domain.whole(graph.num_nodes, directed=graph.directed)
    release = Release.open(
        mechanism.plan(UndirectedEdge(), domain),
        graph.adjacency,
        budget=MemoryLedger(),
        key=None if seed is None else ReleaseKey.from_seed(seed, mechanism.name),
    )
    return mechanism.sample_edges(ChosenTotal(release, total), domain)  # type: ignore[arg-type]

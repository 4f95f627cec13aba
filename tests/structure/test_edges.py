"""Similarity takes edges that are public, and nothing else."""

import pytest
import torch

from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.noise.random import PublicStreams
from graphveil.data import Graph
from graphveil.errors import UnitError
from graphveil.estimators.gap import GAP
from graphveil.local.lpgnn import LPGNN
from graphveil.papers.similarity import SIMILARITIES, PublicEdges
from tests.structure.conftest import BASIS

PATH = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False)
GRAPH = Graph(x=torch.eye(3), y=torch.tensor([0, 1, 1]), adjacency=PATH, num_classes=2)


@pytest.mark.parametrize("name", SIMILARITIES)
@pytest.mark.parametrize("edges", [PATH, GRAPH, PATH.edge_index()], ids=["adjacency", "graph", "edge_index"])
def test_rejects_edges_that_may_be_private(name: str, edges: object) -> None:
    with pytest.raises(UnitError, match=r"Release private edges first .* PublicEdges"):
        SIMILARITIES[name]()(edges, streams=PublicStreams(0))  # type: ignore[arg-type]  # that is the point


def test_a_reason_is_required() -> None:
    with pytest.raises(UnitError, match="basis= is missing"):
        PublicEdges(PATH, basis=" ")
    with pytest.raises(UnitError, match="an Adjacency"):
        PublicEdges(GRAPH, basis=BASIS)  # type: ignore[arg-type]


def test_a_released_graph_needs_a_valid_guarantee() -> None:
    guarantee = GAP(unit="undirected-edge", epsilon=1.0, delta=1e-7).preview(_split(GRAPH)).guarantee
    assert guarantee.valid
    assert "undirected-edge" in PublicEdges.released(PATH, guarantee).basis
    with pytest.raises(UnitError, match="without a valid guarantee"):
        PublicEdges.released(PATH, guarantee.with_deviations("a flaw"))
    records = LPGNN(unit="local-attributes", eps_x=1.0, eps_y=1.0).config.guarantee_for(2, 2)
    with pytest.raises(UnitError, match="does not cover edges"):
        PublicEdges.released(PATH, records)


def test_printing_shows_no_edge() -> None:
    assert repr(PublicEdges(PATH, basis=BASIS)) == f"PublicEdges(nodes=3, basis={BASIS!r})"


def _split(graph: Graph) -> Graph:
    parts = {f"{part}_mask": torch.tensor([0, 0, 1]) == k for k, part in enumerate(("train", "val", "test"))}
    return graph.replace(**parts)

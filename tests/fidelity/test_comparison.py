"""Two graphs compared: names, measures, what is sampled and what is refused."""

import json

import networkx as nx
import pytest
import torch

import graphveil as gv
from fidelity.drawn import adjacency
from graphveil.errors import ConfigError, GraphError

NAMES = [
    "nodes",
    "edges",
    "triangles",
    "average degree",
    "degree variance",
    "degree distribution",
    "diameter",
    "average shortest path",
    "path-length distribution",
    "global clustering",
    "average clustering",
    "modularity",
    "assortativity",
    "communities",
    "eigenvector centrality",
]


def graph(drawn: nx.Graph) -> gv.Graph:
    nodes = drawn.number_of_nodes()
    y = torch.arange(nodes) % 2
    return gv.Graph(x=torch.ones(nodes, 1), y=y, adjacency=adjacency(drawn), num_classes=2)


@pytest.fixture(scope="module")
def karate() -> gv.Graph:
    return graph(nx.karate_club_graph())


def test_a_graph_is_like_itself(karate: gv.Graph) -> None:
    found = gv.compare(karate, karate)
    assert [query.name for query in found.queries] == NAMES
    errors = {query.name: query.error for query in found.queries}
    assert errors.pop("communities") == pytest.approx(1)
    assert set(errors.values()) == {0.0}


def test_a_ring_and_a_path_differ_as_they_do() -> None:
    found = gv.compare(graph(nx.cycle_graph(9)), graph(nx.path_graph(9)))
    assert (found["edges"].true, found["edges"].released) == (9, 8)
    assert found["edges"].error == pytest.approx(1 / 9)
    assert (found["diameter"].true, found["diameter"].released) == (4, 8)
    assert found["degree distribution"].true == [0.0, 0.0, 1.0]
    assert found["degree distribution"].released == pytest.approx([0, 2 / 9, 7 / 9])
    assert found["path-length distribution"].true == pytest.approx([0.25] * 4 + [0] * 5)
    assert found["triangles"].error == 0
    assert found["assortativity"].true is None and found["assortativity"].error is None


def test_a_graph_without_edges_is_compared(karate: gv.Graph) -> None:
    found = gv.compare(karate, graph(nx.empty_graph(34)))
    assert found["path-length distribution"].released == [0.0] * 5 + [1.0]
    assert [found[name].released for name in ("average shortest path", "modularity")] == [None, None]
    assert found["diameter"].error == found["triangles"].error == 1
    json.dumps(found.as_dict(), allow_nan=False)


def test_what_a_mechanism_returns_is_compared(karate: gv.Graph) -> None:
    perturbed = gv.perturb.edge_rand(karate, unit="undirected-edge", epsilon=2.0, unsafe_noise_seed=1)
    before = len(gv.ledger_of(karate.edge_set).entries)
    found = gv.compare(karate, perturbed)
    assert found["edges"].released == perturbed.num_edges
    assert found == gv.compare(karate, perturbed.graph)
    assert len(gv.ledger_of(karate.edge_set).entries) == before


def test_what_is_sampled_is_said_and_drawn_again_by_the_same_seed(karate: gv.Graph) -> None:
    ring = graph(nx.cycle_graph(34))
    found = gv.compare(karate, ring, sources=5, seed=3)
    assert "paths are those from 5 of 34 nodes" in str(found)
    assert found == gv.compare(karate, ring, sources=5, seed=3)
    assert found != gv.compare(karate, ring, sources=5, seed=4)
    assert "paths are" not in str(gv.compare(karate, ring))


def test_estimated_triangles_are_said(karate: gv.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphveil.lab.fidelity.structure.EXACT_PRODUCTS", 0)
    found = gv.compare(karate, karate)
    assert sum("estimates from a million wedges" in note for note in found.notes) == 2


def test_a_table_has_a_line_for_each_query(karate: gv.Graph) -> None:
    lines = str(gv.compare(karate, graph(nx.empty_graph(34)))).splitlines()
    assert lines[0].split() == ["query", "true", "released", "error", "measure"]
    assert lines[2].split()[:4] == ["edges", "78", "0", "1"]
    assert "undefined" in lines[1 + NAMES.index("modularity")]


def test_plain_data_say_that_they_are_internal(karate: gv.Graph) -> None:
    record = gv.compare(karate, karate).as_dict()
    assert record["internal"] is True
    assert set(record["queries"][0]) == {"name", "true", "released", "error", "measure"}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (graph(nx.path_graph(33)), "have different nodes"),
        (graph(nx.path_graph(34)).replace(ids=torch.arange(34).numpy() + 1), "not in one order"),
        ("edges.csv", "takes two graphs, got str"),
    ],
)
def test_what_cannot_be_compared_is_refused(karate: gv.Graph, other: object, message: str) -> None:
    named = karate.replace(ids=torch.arange(34).numpy())
    with pytest.raises(GraphError, match=message):
        gv.compare(named, other)  # type: ignore[arg-type]


@pytest.mark.parametrize("sources", [0, -1, 2.5])
def test_sources_are_a_number_of_nodes(karate: gv.Graph, sources: int) -> None:
    with pytest.raises(ConfigError, match=f"sources={sources} must be a whole number"):
        gv.compare(karate, karate, sources=sources)

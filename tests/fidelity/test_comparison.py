"""Two graphs compared: the queries, their measures, sampling, and rejected inputs."""

import json
import math

import networkx as nx
import numpy as np
import pytest
import torch

import graphveil as gv
from fidelity.graphs import adjacency
from graphveil.audit.fidelity import kl_divergence, normalized_mutual_information, relative_error
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


def test_equal_graphs_have_no_error(karate: gv.Graph) -> None:
    found = gv.compare(karate, karate)
    assert [query.name for query in found.queries] == NAMES
    errors = {query.name: query.error for query in found.queries}
    assert errors.pop("communities") == pytest.approx(1)
    assert set(errors.values()) == {0.0}


def test_ring_and_path_by_hand() -> None:
    found = gv.compare(graph(nx.cycle_graph(9)), graph(nx.path_graph(9)))
    assert (found["edges"].true, found["edges"].released) == (9, 8)
    assert found["edges"].error == pytest.approx(1 / 9)
    assert (found["diameter"].true, found["diameter"].released) == (4, 8)
    assert found["degree distribution"].true == [0.0, 0.0, 1.0]
    assert found["degree distribution"].released == pytest.approx([0, 2 / 9, 7 / 9])
    assert found["path-length distribution"].true == pytest.approx([0.25] * 4 + [0] * 5)
    assert found["triangles"].error == 0
    assert found["assortativity"].true is None and found["assortativity"].error is None


def test_graph_without_edges_is_compared_and_printed(karate: gv.Graph) -> None:
    found = gv.compare(karate, graph(nx.empty_graph(34)))
    assert found["path-length distribution"].released == [0.0] * 5 + [1.0]
    assert [found[name].released for name in ("average shortest path", "modularity")] == [None, None]
    assert found["diameter"].error == found["triangles"].error == 1
    plain = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert plain["internal"] is True
    assert set(plain["queries"][0]) == {"name", "true", "released", "error", "measure"}
    lines = str(found).splitlines()
    assert lines[0].split() == ["query", "true", "released", "error", "measure"]
    assert lines[2].split()[:4] == ["edges", "78", "0", "1"]
    assert "undefined" in lines[1 + NAMES.index("modularity")]


def test_perturbed_graph_is_compared_without_a_charge(karate: gv.Graph) -> None:
    perturbed = gv.perturb.edge_rand(karate, unit="undirected-edge", epsilon=2.0, unsafe_noise_seed=1)
    before = len(gv.ledger_of(karate.edge_set).entries)
    found = gv.compare(karate, perturbed)
    assert found["edges"].released == perturbed.num_edges
    assert found == gv.compare(karate, perturbed.graph)
    assert len(gv.ledger_of(karate.edge_set).entries) == before


def test_sampled_paths_are_noted_and_reproducible(karate: gv.Graph) -> None:
    ring = graph(nx.cycle_graph(34))
    found = gv.compare(karate, ring, sources=5, seed=3)
    assert "paths are those from 5 of 34 nodes" in str(found)
    assert found == gv.compare(karate, ring, sources=5, seed=3)
    assert found != gv.compare(karate, ring, sources=5, seed=4)
    assert "paths are" not in str(gv.compare(karate, ring))


def test_estimated_triangles_are_noted(karate: gv.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphveil.audit.fidelity.EXACT_PRODUCTS", 0)
    found = gv.compare(karate, karate)
    assert sum("estimates from a million wedges" in note for note in found.notes) == 2


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (graph(nx.path_graph(33)), "have different nodes"),
        (graph(nx.path_graph(34)).replace(ids=torch.arange(34).numpy() + 1), "in another order"),
        ("edges.csv", "needs two graphs, got str"),
    ],
)
def test_rejects_graphs_with_other_nodes(karate: gv.Graph, other: object, message: str) -> None:
    named = karate.replace(ids=torch.arange(34).numpy())
    with pytest.raises(GraphError, match=message):
        gv.compare(named, other)  # type: ignore[arg-type]


@pytest.mark.parametrize("sources", [0, -1, 2.5])
def test_rejects_impossible_numbers_of_sources(karate: gv.Graph, sources: int) -> None:
    with pytest.raises(ConfigError, match=f"sources={sources} must be a whole number"):
        gv.compare(karate, karate, sources=sources)


def test_relative_error_is_undefined_without_an_answer() -> None:
    assert relative_error(-0.5, 0.5) == 2.0
    assert relative_error(None, 1) is relative_error(1, None) is relative_error(0, 1) is None


def test_divergence_adds_one_observation() -> None:
    p, q = ((6 + 0.5) / 9, (2 + 0.5) / 9), ((1 + 0.5) / 5, (3 + 0.5) / 5)
    expected = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    assert kl_divergence([6, 2], [1, 3]) == pytest.approx(expected)
    assert kl_divergence([0], [0]) == kl_divergence([5, 0, 1], [5, 0, 1]) == 0


def test_mutual_information_of_two_partitions() -> None:
    first, second = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 1, 1])
    joint = np.zeros((3, 2))
    np.add.at(joint, (first, second), 1 / 6)
    p, q = joint.sum(axis=1), joint.sum(axis=0)
    mutual = sum(
        joint[i, j] * math.log(joint[i, j] / (p[i] * q[j])) for i in range(3) for j in range(2) if joint[i, j]
    )
    expected = 2 * mutual / (-(p * np.log(p)).sum() - (q * np.log(q)).sum())
    assert normalized_mutual_information(first, second) == pytest.approx(expected)
    assert normalized_mutual_information(second, first) == pytest.approx(expected)
    whole = np.zeros(4, dtype=np.int64)  # one community is equal to itself, and independent of others
    assert normalized_mutual_information(whole, whole) == 1
    assert normalized_mutual_information(whole, np.arange(4)) == 0

"""EdgeRand end to end: released, stored, read back, trained on, and never charged twice."""

import json
from pathlib import Path

import pytest
import torch

from graphveil import GCN, perturb
from graphveil.core.edges.adjacency import EdgeSet
from graphveil.core.ledger import MemoryLedger, attach_ledger, ledger_of
from graphveil.data import Graph, read_graph, synthetic
from graphveil.data.recipes import RECIPES
from graphveil.errors import ArtifactError, BudgetError, ConfigError, GraphError, UnitError

EDGES = {"unit": "undirected-edge", "epsilon": 3.0}


def small(**changes: object) -> Graph:
    fields = {
        "x": torch.eye(12),
        "y": [0, 1] * 6,
        "source": range(11),
        "target": range(1, 12),
        "directed": False,
    }
    return Graph.from_edges(**(fields | changes))  # type: ignore[arg-type]


def test_returns_a_graph_and_its_guarantee() -> None:
    graph = small()
    released, guarantee = perturb.edge_rand(graph, **EDGES)
    assert released.num_nodes == 12 and torch.equal(torch.as_tensor(released.x), torch.as_tensor(graph.x))
    assert released.edge_set is not graph.edge_set
    assert (guarantee.epsilon, guarantee.delta, guarantee.releases, guarantee.valid) == (3.0, 0.0, 1, True)
    assert "the released graph and everything computed from it" in guarantee.formal_statement()
    assert "mu" not in guarantee.formal_statement().split()
    assert guarantee.group_epsilon(10) == pytest.approx(30)


def test_charges_the_ledger_before_edges_are_read() -> None:
    graph = small()
    attach_ledger(graph.edge_set, MemoryLedger(epsilon=5.0, delta=1e-7))
    perturb.edge_rand(graph, **EDGES)
    with pytest.raises(BudgetError, match="spent so far: 3"):
        perturb.edge_rand(graph, **EDGES)
    assert [entry.label for entry in ledger_of(graph.edge_set).entries] == ["edge-rand"]


def test_two_releases_have_different_noise() -> None:
    first, second = (perturb.edge_rand(small(), **EDGES | {"epsilon": 0.1}).graph for _ in range(2))
    assert first.adjacency.edge_index().tolist() != second.adjacency.edge_index().tolist()


def test_a_seed_reproduces_the_graph_and_invalidates_the_guarantee() -> None:
    graph = small()
    first, second = (perturb.edge_rand(graph, **EDGES, unsafe_noise_seed=4) for _ in range(2))
    assert first.graph.adjacency.edge_index().tolist() == second.graph.adjacency.edge_index().tolist()
    assert not first.guarantee.valid and "reproducible" in first.guarantee.deviations[0]


def test_rejects_too_many_edges_by_public_sizes() -> None:
    for edges in (range(0), range(11)):  # whatever the graph has, the words are the same
        graph = small(source=edges, target=[edge + 1 for edge in edges])
        with pytest.raises(ConfigError, match=r"would add about 3 edges to a graph of 12 nodes"):
            perturb.edge_rand(graph, **EDGES, max_edges=2)
        assert not ledger_of(graph.edge_set).entries


def test_each_direction_of_a_directed_graph_is_a_node_pair() -> None:
    graph = small(directed=True)
    released, guarantee = perturb.edge_rand(graph, unit="directed-edge", epsilon=20.0)
    assert released.directed
    assert released.adjacency.edge_index().tolist() == graph.adjacency.edge_index().tolist()
    assert guarantee.mutual_epsilon == pytest.approx(40)


def test_requires_a_unit() -> None:
    with pytest.raises(UnitError, match="no default privacy unit"):
        perturb.edge_rand(small(), epsilon=1.0)
    with pytest.raises(UnitError, match="directed=False"):
        perturb.edge_rand(small(directed=True), **EDGES)


def tables(folder: Path) -> tuple[Path, dict[str, object]]:
    nodes = folder / "nodes.csv"
    rows = "".join(f"p{node},{node},{'ab'[node % 2]}\n" for node in range(12))
    nodes.write_text(f"person,age,team\n{rows}", encoding="utf-8")
    (folder / "edges.csv").write_text("a,b\n" + "".join(f"p{v},p{v + 1}\n" for v in range(11)), "utf-8")
    return nodes, {"id": "person", "label": "team", "source": "a", "target": "b", "directed": False}


def test_reads_a_stored_graph_as_released(tmp_path: Path) -> None:
    nodes, columns = tables(tmp_path)
    graph = read_graph(nodes, tmp_path / "edges.csv", **columns)  # type: ignore[arg-type]
    perturbed = perturb.edge_rand(graph, **EDGES)
    folder = perturbed.save(tmp_path / "out", source="a", target="b")
    assert sorted(file.name for file in folder.iterdir()) == [
        "RELEASED.md",
        "edges.parquet",
        "guarantee.json",
    ]
    for edges in (folder, folder / "edges.parquet"):
        back = read_graph(nodes, edges, **columns)  # type: ignore[arg-type]
        assert perturb.guarantee_of(back) == perturbed.guarantee
        assert back.adjacency.edge_index().tolist() == perturbed.graph.adjacency.edge_index().tolist()
        assert not ledger_of(back.edge_set).entries
    loaded = perturb.load(folder, graph, source="a", target="b")
    assert loaded.guarantee == perturbed.guarantee
    assert loaded.graph.adjacency.edge_index().tolist() == perturbed.graph.adjacency.edge_index().tolist()
    record = json.loads((folder / "guarantee.json").read_text())
    assert record["epsilon"] == 3.0 and record["edges"] == perturbed.num_edges
    assert perturbed.guarantee.formal_statement() in (folder / "RELEASED.md").read_text()


def test_rejects_saving_private_edges(tmp_path: Path) -> None:
    nodes, columns = tables(tmp_path)
    graph = read_graph(nodes, tmp_path / "edges.csv", **columns)  # type: ignore[arg-type]
    guarantee = perturb.edge_rand(graph, **EDGES).guarantee
    with pytest.raises(ConfigError, match="These edges were not"):
        perturb.PerturbedGraph(graph, guarantee).save(tmp_path / "out")
    with pytest.raises(GraphError, match="released by a perturbation mechanism"):
        perturb.load(tmp_path / "edges.csv", graph, source="a", target="b")
    assert perturb.guarantee_of(graph) is None


def test_rejects_existing_folders(tmp_path: Path) -> None:
    perturbed = perturb.edge_rand(small(), **EDGES)
    perturbed.save(tmp_path / "out")
    with pytest.raises(ConfigError, match="exists"):
        perturbed.save(tmp_path / "out")


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"format": "x"}', '{"format": "graphveil-graph", "guarantee": 1}']
)
def test_rejects_damaged_metadata(text: str) -> None:
    graph = small(edge_set=EdgeSet(released=text))
    with pytest.raises(ArtifactError):
        perturb.guarantee_of(graph)


def test_training_on_a_released_graph_charges_nothing() -> None:
    graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    released, guarantee = perturb.edge_rand(graph, unit="undirected-edge", epsilon=4.0)
    model = GCN(unit="none", seed=0, epochs=3).fit(released)
    assert model.guarantee.formal_statement() == guarantee.formal_statement()
    assert len(ledger_of(graph.edge_set).entries) == 1
    assert not ledger_of(released.edge_set).entries


def test_converts_to_torch_geometric() -> None:
    data = perturb.edge_rand(small(), **EDGES).to_pyg()
    assert data.num_nodes == 12 and data.is_undirected()

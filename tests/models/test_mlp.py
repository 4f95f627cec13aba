"""MLP: the baseline that no edge can change."""

import pytest
import torch

from graphveil.graph import load_dataset
from graphveil.models.mlp import MLP
from graphveil.privacy import ledger_of


def test_no_edge_changes_a_bit(graph):
    """Remove every edge of a third of the nodes: the model and its predictions stay as they are."""
    side = torch.arange(graph.num_nodes) % 3 == 0
    fewer = graph.replace(adjacency=graph.adjacency.without_crossing(side))
    assert len(fewer.adjacency.indices) < len(graph.adjacency.indices)
    with_edges, without = (MLP(unit="undirected-edge", seed=0, epochs=5).fit(g) for g in (graph, fewer))
    assert torch.equal(with_edges.predict_proba(), without.predict_proba())


def test_learns_from_features(graph):
    model = MLP(unit="undirected-edge", seed=0).fit(graph)
    train = graph.mask("train")
    assert float((model.predict() == graph.y)[train].float().mean()) > 0.7
    assert model.score(graph) > 0.5  # 1/3 is chance


@pytest.mark.parametrize("unit", ["undirected-edge", "directed-edge", "none"])
def test_any_edge_unit_costs_nothing(graph, unit):
    model = MLP(unit=unit, seed=0, epochs=2).fit(graph)
    assert model.guarantee.releases == 0
    assert model.guarantee.epsilon == (0.0 if unit != "none" else float("inf"))
    assert ledger_of(graph.edge_set).entries == ()
    if unit != "none":
        assert model.guarantee.statement().startswith("The edges were never read")


def test_another_graph_costs_nothing(graph, make_graph):
    other = make_graph(seed=1)
    MLP(unit="undirected-edge", seed=0, epochs=2).fit(graph).predict(other)
    assert ledger_of(other.edge_set).entries == ()


@pytest.mark.parametrize("options", [{"layers": 1}, {"layers": 4, "batch_norm": False}, {"batch_size": 16}])
def test_options_train(graph, options):
    model = MLP(unit="none", seed=0, epochs=30, **options).fit(graph)
    assert model.score(graph, split="train") > 0.5


def test_a_resumed_fit_changes_no_bit(graph, tmp_path):
    class StopError(Exception):
        pass

    def stop(stage: str, done: int, total: int) -> None:
        if done == 25:
            raise StopError

    options = {"unit": "none", "seed": 0, "epochs": 40, "dropout": 0.2}
    whole = MLP(**options).fit(graph).predict_proba()
    with pytest.raises(StopError):
        MLP(**options).fit(graph, on_progress=stop, workspace=tmp_path)
    assert torch.equal(MLP(**options).fit(graph, workspace=tmp_path).predict_proba(), whole)


@pytest.mark.slow
def test_reference_accuracy(data_root):
    """The reference code reaches 49.8 on Berkeley13."""
    scores = []
    for seed in range(3):
        graph = load_dataset("facebook100/Berkeley13", data_root, seed=seed)
        scores.append(MLP(unit="undirected-edge", seed=seed).fit(graph).score(graph))
    assert 100 * sum(scores) / 3 == pytest.approx(49.8, abs=1.5)

"""MLP, the no-graph baseline."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from graphveil import load_model
from graphveil.core.ledger import ledger_of
from graphveil.data import load_dataset
from graphveil.errors import ArtifactError, ConfigError
from graphveil.estimators.classcode import ClassCode
from graphveil.estimators.mlp import MLP, NonPrivateMLP
from graphveil.papers import as_published
from tests.estimators.interrupted import InterruptedFit, interrupted_at


def test_edges_do_not_affect_results(graph):
    """Remove every edge of a third of the nodes: the model and its predictions stay as they are."""
    side = torch.arange(graph.num_nodes) % 3 == 0
    fewer = graph.replace(adjacency=graph.adjacency.without_crossing(side))
    assert len(fewer.adjacency.indices) < len(graph.adjacency.indices)
    with_edges, without = (MLP(unit="undirected-edge", seed=0, epochs=5).fit(g) for g in (graph, fewer))
    assert torch.equal(with_edges.predict_proba(), without.predict_proba())


@pytest.mark.parametrize(("tuned", "in_sample"), [(True, 0.5), (False, 0.7)])
def test_learns_from_features(graph, tuned, in_sample):
    model = MLP(unit="undirected-edge", seed=0, tuned=tuned).fit(graph)
    train = graph.labeled_in("train")
    assert float((model.predict() == graph.y)[train].float().mean()) > in_sample
    assert model.score(graph) > 0.5  # 1/3 is chance


def small(**keywords):
    return isinstance(MLP(**{"unit": "undirected-edge", **keywords}).config, NonPrivateMLP)


def test_network_keywords_select_the_small_mlp():
    assert not small()
    assert not small(seed=3)
    assert not small(unit="none")
    assert small(hidden=32)
    assert small(epochs=5)
    assert small(tuned=False)
    assert isinstance(as_published.MLP(unit="undirected-edge", epsilon=1.0).config, NonPrivateMLP)
    with pytest.raises(ConfigError, match="tuned=True chooses hidden, layers itself"):
        MLP(unit="none", tuned=True, hidden=32, layers=2)
    with pytest.raises(ConfigError, match="tuned='yes'"):
        MLP(unit="none", tuned="yes")


def test_predictions_are_the_public_posteriors_of_classcode(graph, tmp_path):
    ClassCode(unit="undirected-edge", epsilon=1.0, delta=1e-5, seed=4).fit(graph, cache=tmp_path)
    (cached,) = tmp_path.glob("posteriors-*")
    baseline = MLP(unit="undirected-edge", seed=4).fit(graph).predict_proba()
    assert torch.equal(baseline, load_file(cached)["log"].exp().float())


def test_a_saved_model_predicts_other_graphs(graph, make_graph, tmp_path):
    model = MLP(unit="undirected-edge", seed=0).fit(graph)
    other = make_graph(seed=1)
    model.save(tmp_path / "saved")
    loaded = load_model(tmp_path / "saved")
    assert torch.equal(loaded.predict_proba(other), model.predict_proba(other))
    fitted = model.fitted
    with pytest.raises(ArtifactError, match="do not fit 5 features"):
        fitted.method.restore(fitted.trained.state(), replace(fitted.sizes, features=5), {})


@pytest.mark.parametrize("unit", ["undirected-edge", "directed-edge", "none"])
def test_edge_units_charge_nothing(graph, unit):
    model = MLP(unit=unit, seed=0, epochs=2).fit(graph)
    assert model.guarantee.releases == 0
    assert model.guarantee.epsilon == (0.0 if unit != "none" else float("inf"))
    assert ledger_of(graph.edge_set).entries == ()
    if unit != "none":
        assert model.guarantee.formal_statement().startswith("The edges were never read")


def test_other_graphs_charge_nothing(graph, make_graph):
    other = make_graph(seed=1)
    model = MLP(unit="undirected-edge", seed=0, epochs=2).fit(graph)
    model.predict(other)
    assert model.privacy_cost(other) is None
    assert ledger_of(other.edge_set).entries == ()


@pytest.mark.parametrize("options", [{"layers": 1}, {"layers": 4, "batch_norm": False}, {"batch_size": 16}])
def test_options_train(graph, options):
    model = MLP(unit="none", seed=0, epochs=30, **options).fit(graph)
    assert model.score(graph, split="train") > 0.5


def test_a_resumed_fit_is_bit_identical(graph, tmp_path):
    options = {"unit": "none", "seed": 0, "epochs": 40, "dropout": 0.2}
    whole = MLP(**options).fit(graph).predict_proba()
    with pytest.raises(InterruptedFit):
        MLP(**options).fit(graph, on_progress=interrupted_at("classifier", 25), workspace=tmp_path)
    assert torch.equal(MLP(**options).fit(graph, workspace=tmp_path).predict_proba(), whole)


def accuracy(name, data_root, **keywords):
    """Return the mean test accuracy of three splits, in percent."""
    scores = []
    for seed in range(3):
        graph = load_dataset(name, data_root, recipe="gap", seed=seed)
        scores.append(MLP(unit="undirected-edge", seed=seed, **keywords).fit(graph).score(graph))
    return 100 * sum(scores) / len(scores)


@pytest.mark.slow
def test_the_small_mlp_is_as_accurate_as_the_reference(data_root):
    """The reference code reaches 49.8 on Berkeley13."""
    assert accuracy("facebook100/Berkeley13", data_root, tuned=False) == pytest.approx(49.8, abs=1.5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "published"),
    [("cora", 76.5), ("pubmed", 87.3), ("amazon/computers", 85.3), ("amazon/photo", 91.4)],
)
def test_the_tuned_mlp_is_as_accurate_as_published_baselines(data_root, name, published):
    assert accuracy(name, data_root) > published - 1

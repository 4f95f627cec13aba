"""MLP: the baseline that no edge can change."""

from dataclasses import replace

import pytest
import torch

from graphveil import load_model
from graphveil.data import load_dataset
from graphveil.errors import ArtifactError, ConfigError
from graphveil.estimators.classcode import ClassCode, edge_method
from graphveil.estimators.features import crossfit
from graphveil.estimators.mlp import MLP, NonPrivateMLP
from graphveil.ledger import ledger_of


def test_no_edge_changes_a_bit(graph):
    """Remove every edge of a third of the nodes: the model and its predictions stay as they are."""
    side = torch.arange(graph.num_nodes) % 3 == 0
    fewer = graph.replace(adjacency=graph.adjacency.without_crossing(side))
    assert len(fewer.adjacency.indices) < len(graph.adjacency.indices)
    with_edges, without = (MLP(unit="undirected-edge", seed=0, epochs=5).fit(g) for g in (graph, fewer))
    assert torch.equal(with_edges.predict_proba(), without.predict_proba())


@pytest.mark.parametrize(("tuned", "in_sample"), [(True, 0.5), (False, 0.7)])
def test_learns_from_features(graph, tuned, in_sample):
    model = MLP(unit="undirected-edge", seed=0, tuned=tuned).fit(graph)
    train = graph.mask("train")
    assert float((model.predict() == graph.y)[train].float().mean()) > in_sample
    assert model.score(graph) > 0.5  # 1/3 is chance


def small(**keywords):
    return isinstance(MLP(**{"unit": "undirected-edge", **keywords}).config, NonPrivateMLP)


def test_a_keyword_of_the_network_or_paper_mode_asks_for_the_papers_mlp():
    assert not small()
    assert not small(seed=3)
    assert not small(unit="none")
    assert small(hidden=32)
    assert small(epochs=5)
    assert small(tuned=False)
    assert small(mode="paper", epsilon=1.0)
    with pytest.raises(ConfigError, match="tuned=True chooses hidden, layers itself"):
        MLP(unit="none", tuned=True, hidden=32, layers=2)
    with pytest.raises(ConfigError, match="tuned='yes'"):
        MLP(unit="none", tuned="yes")


def test_the_floor_is_where_classcode_begins(graph, monkeypatch):
    """At the same seed the floor's predictions are ClassCode's public posteriors, bit for bit."""
    begun = []
    noted = edge_method.public_posteriors

    def noting(*arguments):
        begun.append(noted(*arguments))
        return begun[-1]

    monkeypatch.setattr(edge_method, "public_posteriors", noting)
    ClassCode(unit="undirected-edge", epsilon=1.0, delta=1e-5, seed=4).fit(graph)
    floor = MLP(unit="undirected-edge", seed=4).fit(graph).predict_proba()
    assert torch.equal(floor, begun[0].log.exp().float())


def test_no_label_informs_the_floor_of_its_own_node(graph, monkeypatch):
    monkeypatch.setattr(crossfit, "CANDIDATES", crossfit.CANDIDATES[:1])  # the choice may see all labels
    node = int(torch.nonzero(graph.mask("val"))[0])
    changed = graph.y.clone()
    changed[node] = (changed[node] + 1) % graph.num_classes
    before, after = (
        MLP(unit="none", seed=0).fit(g).predict_proba() for g in (graph, graph.replace(y=changed))
    )
    assert torch.equal(before[node], after[node])
    assert not torch.equal(before, after)


def test_a_saved_floor_knows_other_graphs_and_refuses_other_weights(graph, make_graph, tmp_path):
    model = MLP(unit="undirected-edge", seed=0).fit(graph)
    other = make_graph(seed=1)
    model.save(tmp_path / "saved")
    loaded = load_model(tmp_path / "saved")
    assert torch.equal(loaded.predict_proba(other), model.predict_proba(other))
    fitted = model.fitted
    with pytest.raises(ArtifactError, match="not those of 5 features"):
        fitted.method.restore(fitted.trained.state(), replace(fitted.sizes, features=5), {})


@pytest.mark.parametrize("unit", ["undirected-edge", "directed-edge", "none"])
def test_any_edge_unit_costs_nothing(graph, unit):
    model = MLP(unit=unit, seed=0, epochs=2).fit(graph)
    assert model.guarantee.releases == 0
    assert model.guarantee.epsilon == (0.0 if unit != "none" else float("inf"))
    assert ledger_of(graph.edge_set).entries == ()
    if unit != "none":
        assert model.guarantee.formal_statement().startswith("The edges were never read")


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


def accuracy(name, data_root, **keywords):
    """Return the mean test accuracy of three splits, in percent."""
    scores = []
    for seed in range(3):
        graph = load_dataset(name, data_root, recipe="gap", seed=seed)
        scores.append(MLP(unit="undirected-edge", seed=seed, **keywords).fit(graph).score(graph))
    return 100 * sum(scores) / len(scores)


@pytest.mark.slow
def test_the_papers_mlp_is_as_accurate_as_the_reference(data_root):
    """The reference code reaches 49.8 on Berkeley13."""
    assert accuracy("facebook100/Berkeley13", data_root, tuned=False) == pytest.approx(49.8, abs=1.5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "published"),
    [("cora", 76.5), ("pubmed", 87.3), ("amazon/computers", 85.3), ("amazon/photo", 91.4)],
)
def test_the_floor_is_no_lower_than_the_best_published_one(data_root, name, published):
    assert accuracy(name, data_root) > published - 1

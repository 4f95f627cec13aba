"""The sample of very many training nodes, which depends on node ids only."""

import numpy as np
import pytest
import torch

from graphveil import GAP, MLP, ClassCode
from graphveil.data import Graph, split
from graphveil.estimators import objective
from graphveil.estimators.base import Estimator
from graphveil.estimators.objective import sample_training_nodes, training_sample_description
from graphveil.papers import as_published

NODES = 400


def graph_of(ids: np.ndarray, order: np.ndarray | None = None) -> Graph:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(NODES, 4)).astype(np.float32), rng.integers(2, size=NODES)
    x[:, 0] += 3 * y
    ends = rng.integers(NODES, size=(2, 900))
    place = np.arange(NODES) if order is None else order
    back = np.argsort(place)
    return Graph.from_edges(x[place], y[place], *back[ends], directed=False, ids=ids[place])


NUMBERS, TEXTS = np.arange(NODES) * 7 - 900, np.array([f"n{place}" for place in range(NODES)])


def test_few_nodes_are_all_used() -> None:
    nodes = torch.arange(NODES)
    assert sample_training_nodes(graph_of(NUMBERS), nodes) is nodes
    assert training_sample_description(split(graph_of(NUMBERS))) == ""


@pytest.mark.parametrize("ids", [NUMBERS, TEXTS])
def test_the_sample_depends_on_neither_order_nor_other_nodes(ids: np.ndarray) -> None:
    order = np.random.default_rng(1).permutation(NODES)
    plain, mixed = graph_of(ids), graph_of(ids, order)
    chosen = sample_training_nodes(plain, torch.arange(NODES), max_nodes=50)
    assert len(chosen) == 50 and bool((chosen.diff() > 0).all())
    again = sample_training_nodes(mixed, torch.arange(NODES), max_nodes=50)
    assert set(ids[chosen.numpy()]) == set(ids[order][again.numpy()])
    more = sample_training_nodes(plain, torch.arange(NODES), max_nodes=NODES // 4).tolist()
    assert set(chosen.tolist()) < set(more)
    even = [node for node in more if node % 2 == 0]  # without the other nodes, the same of them
    assert sample_training_nodes(plain, torch.arange(0, NODES, 2), max_nodes=len(even)).tolist() == even


@pytest.mark.parametrize("ids", [NUMBERS, TEXTS])
def test_the_sample_is_spread_over_all_nodes(ids: np.ndarray) -> None:
    chosen = sample_training_nodes(graph_of(ids), torch.arange(NODES), max_nodes=NODES // 2)
    assert 70 <= int((chosen < NODES // 2).sum()) <= 130  # five standard deviations around 100


@pytest.mark.parametrize("model", [GAP, ClassCode, MLP])
def test_features_outside_of_the_sample_are_not_read(
    model: type[Estimator], monkeypatch: pytest.MonkeyPatch
) -> None:
    def weights(changed: bool) -> dict[str, torch.Tensor]:
        graph = split(graph_of(NUMBERS), unit="undirected-edge")
        labeled = torch.cat([graph.labeled_in(part).nonzero()[:, 0] for part in ("train", "val")])
        named = {
            part: sample_training_nodes(graph, graph.labeled_in(part).nonzero()[:, 0], 20)
            for part in ("train", "val")
        }
        among = sample_training_nodes(graph, labeled.sort().values, 20)
        outside = torch.ones(NODES, dtype=torch.bool)
        outside[torch.cat([*named.values(), among])] = False
        assert int(outside.sum()) > 300
        x = torch.as_tensor(graph.x).clone()
        x[outside] += 100.0 * changed
        unit = "none" if model is MLP else "undirected-edge"
        fitted = model(unit=unit, epsilon=1.0, seed=0, feature_scaling="none")  # scaling reads all columns
        trained = fitted.fit(graph.replace(x=x)).fitted.trained.state()
        return {name: part for name, part in trained.items() if name.startswith(("encoder", "features", "_"))}

    monkeypatch.setattr(objective.sample_training_nodes, "__defaults__", (20,))
    one, other = weights(False), weights(True)
    assert one and all(torch.equal(one[name], other[name]) for name in one)


def test_gap_as_published_trains_on_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = split(graph_of(NUMBERS), unit="undirected-edge")
    options = {"unit": "undirected-edge", "epsilon": 1.0, "seed": 0, "epochs": 2, "unsafe_noise_seed": 0}

    def predictions(model: type[GAP]) -> torch.Tensor:
        return model(**options).fit(graph).predict_proba()  # type: ignore[arg-type]

    before = {model: predictions(model) for model in (as_published.GAP, GAP)}
    monkeypatch.setattr(objective.sample_training_nodes, "__defaults__", (20,))
    assert torch.equal(before[as_published.GAP], predictions(as_published.GAP))
    assert not torch.equal(before[GAP], predictions(GAP))


def test_a_plan_describes_the_sample() -> None:
    count = objective.MAX_TRAINING_NODES * 2
    features, labels = np.ones((count, 1), dtype=np.float32), np.arange(count) % 2
    graph = split(Graph.from_edges(features, labels, [0], [1], directed=False), unit="undirected-edge")
    training = int(graph.labeled_in("train").sum())
    words = f"networks learn from 131,072 of the {training:,} labeled training nodes, chosen by their ids"
    edges = {"unit": "undirected-edge", "epsilon": 1.0}
    for model in (GAP(**edges), ClassCode(**edges)):
        assert model.training_sample_note(graph) == words
    for model in (as_published.GAP(**edges), GAP(unit="node-record", out_degree_bound=2, epsilon=1.0)):
        assert model.training_sample_note(graph) == ""

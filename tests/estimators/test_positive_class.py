"""The positive class of two: the rarer one, or the one that is named, whatever the order of names."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.metrics as sk
import torch
from torch import Tensor

import graphveil as gv
from graphveil.core.ledger import ledger_of
from graphveil.data import Graph
from graphveil.data.recipes import split
from graphveil.errors import ConfigError, GraphError
from graphveil.training.metrics import cells_of, histogram_cells, metric_value, private_metrics


def graph_of(names: tuple[str, str], rare: int, nodes: int = 400) -> Graph:
    """Return a graph in which one of two classes is rare and visible in the features."""
    rng = np.random.default_rng(0)
    seldom = rng.random(nodes) < 0.15
    x = rng.normal(size=(nodes, 6)).astype(np.float32)
    x[:, 0] += 1.5 * seldom
    y = torch.from_numpy(np.where(seldom, rare, 1 - rare))
    source, target = rng.integers(nodes, size=(2, 3 * nodes))
    graph = Graph.from_edges(torch.from_numpy(x), y, source, target, directed=False, class_names=names)
    return split(graph, 0.5, 0.25, unit="none", seed=0)


def expected(graph: Graph, model: Any, place: int) -> float:
    tested = graph.labeled_in("test")
    return float(sk.average_precision_score(graph.y[tested] == place, model.predict_proba()[tested, place]))


@pytest.mark.parametrize(("names", "rare"), [(("fraud", "ok"), 0), (("good", "bad"), 1), (("1", "2"), 0)])
def test_the_rarer_class_is_positive_by_default_and_named(names: tuple[str, str], rare: int) -> None:
    graph = graph_of(names, rare)
    model = gv.MLP(unit="undirected-edge", seed=0).fit(graph)
    found = model.evaluate(graph, threshold=0.3)
    assert found.positive == names[rare] and f"positive class: {names[rare]}" in str(found)
    assert found["average_precision"] == pytest.approx(expected(graph, model, rare))
    assert found.as_dict()["positive"] == names[rare]
    assert model.score(graph, metric="average_precision") == found["average_precision"]
    rates = model.predict_proba()[graph.labeled_in("test"), rare]
    assert found.confusion_matrix[:, rare].sum() == int((rates >= 0.3).sum())
    assert found["roc_auc"] == model.evaluate(graph, positive=names[1 - rare])["roc_auc"]


def test_a_named_class_is_positive_everywhere_and_is_saved(tmp_path: Path) -> None:
    graph = graph_of(("fraud", "ok"), 0)
    model = gv.MLP(unit="undirected-edge", seed=0, positive="ok").fit(graph)
    assert model.evaluate(graph)["average_precision"] == pytest.approx(expected(graph, model, 1))
    other = model.evaluate(graph, positive="fraud")
    assert other.positive == "fraud"
    assert other["average_precision"] == pytest.approx(expected(graph, model, 0))
    model.save(tmp_path / "model")
    loaded = gv.load_model(tmp_path / "model")
    assert isinstance(loaded, gv.MLP) and loaded.evaluate(graph).positive == "ok"


@pytest.mark.usefixtures("quick_classcode")
@pytest.mark.parametrize(("positive", "place"), [(None, 0), ("fraud", 0), ("ok", 1)])
@pytest.mark.parametrize("method", [gv.MLP, gv.AutoClassifier])
def test_models_are_selected_by_the_positive_class(
    method: Any, positive: str | None, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, values = graph_of(("fraud", "ok"), 0, nodes=120), list[tuple[float, float]]()

    def recorded(metric: str, labels: Tensor, proba: Tensor, positive: int | None) -> float:
        truth, scores = (labels == place).numpy(), proba[:, place].detach().double().numpy()
        values.append(
            (metric_value(metric, labels, proba, positive), sk.average_precision_score(truth, scores))
        )
        return values[-1][0]

    for module in ("graphveil.training", "graphveil.estimators.objective"):
        monkeypatch.setattr(f"{module}.metric_value", recorded)
    keywords: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5} if method is gv.AutoClassifier else {}
    method(unit="undirected-edge", seed=0, metric="average_precision", positive=positive, **keywords).fit(
        graph
    )
    chosen, right = np.array(values).T
    np.testing.assert_allclose(chosen, right)


def test_protected_labels_do_not_choose_the_positive_class() -> None:
    graph = graph_of(("fraud", "ok"), 0)
    model = gv.MLP(unit="node-record", epsilon=4.0, seed=0).fit(graph)
    found = model.evaluate(graph)
    assert found.positive is None and np.isnan(found["average_precision"])
    assert not np.isnan(found["roc_auc"]) and "pass positive=" in str(found)
    with pytest.raises(ConfigError, match="Pass positive="):
        model.evaluate(graph, threshold=0.3)
    named = model.evaluate(graph, threshold=0.3, positive="fraud")
    assert named["average_precision"] == pytest.approx(expected(graph, model, 0))


@pytest.mark.parametrize("place", [0, 1])
def test_released_average_precision_is_of_the_named_class(place: int) -> None:
    rng = np.random.default_rng(1)
    labels = torch.from_numpy((rng.random(2000) < 0.3).astype(np.int64))
    scores = torch.from_numpy(np.clip(0.3 * labels.numpy() + rng.random(2000) * 0.7, 0.01, 0.99))
    proba = torch.stack([1 - scores, scores], dim=1)
    cells = cells_of(labels, proba)
    histogram = torch.bincount(cells, minlength=histogram_cells(2)).double().reshape(2, -1)
    found = private_metrics(histogram, 1e-9, (0.5, 1e-9), 2000, ("a", "b"), rng, place)
    column = (cells - labels * (histogram_cells(2) // 2)).numpy()
    middle = column if place else -column
    wanted = sk.average_precision_score(labels.numpy() == place, middle)
    assert found["average_precision"].value == pytest.approx(wanted)
    assert found.positive == ("a", "b")[place] and found.as_dict()["positive"] == found.positive


def test_released_metrics_name_the_positive_class_of_the_model() -> None:
    graph = graph_of(("fraud", "ok"), 0)
    keywords: dict[str, Any] = {"unit": "node-record", "epsilon": 4.0, "seed": 0, "private_metrics": True}
    found = gv.MLP(**keywords, positive="fraud").fit(graph).private_metrics_
    assert found is not None and found.positive == "fraud" and "average_precision" in found.metrics
    found = gv.AutoClassifier(**keywords, positive="ok").fit(graph).private_metrics_
    assert found is not None and found.positive == "ok"


def test_wrong_positive_classes_are_rejected_before_a_charge() -> None:
    graph = graph_of(("fraud", "ok"), 0)
    with pytest.raises(GraphError, match=r"positive='fruad' is not a class.*did you mean 'fraud'"):
        gv.ClassCode(unit="undirected-edge", epsilon=1.0, seed=0, positive="fruad").fit(graph)
    assert not ledger_of(graph.edge_set).entries
    three = gv.load_dataset("synthetic/tiny")
    with pytest.raises(GraphError, match="two classes"):
        gv.ClassCode(unit="undirected-edge", epsilon=1.0, seed=0, positive="0").fit(three)
    model = gv.MLP(unit="undirected-edge", seed=0).fit(graph)
    with pytest.raises(GraphError, match="is not a class"):
        model.evaluate(graph, positive="nosuch")
    with pytest.raises(ConfigError, match="positive"):
        gv.MLP(unit="undirected-edge", task="regression", positive="ok")

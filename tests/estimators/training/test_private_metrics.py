"""Metrics from noisy histograms: exact without noise, and covered intervals at 2,000 test nodes."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics as sk
from torch import Tensor

import graphveil as gv
from graphveil.data import Graph
from graphveil.data.recipes import split
from graphveil.estimators.privacy_config import SEEDED
from graphveil.training.metrics import (
    BINS,
    PrivateMetrics,
    cells_of,
    histogram_cells,
    private_metrics,
)

NODES, STD = 2000, 6.0
RELEASED: dict[str, Any] = {
    **{"unit": "node-record", "epsilon": 2.0, "seed": 0, "unsafe_noise_seed": 1},
    "private_metrics": True,
}


def predicted(classes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return labels and probabilities of which the second class is rare if there are two."""
    rng = np.random.default_rng(seed)
    shares = np.array([0.8, 0.2]) if classes == 2 else np.full(classes, 1 / classes)
    y = rng.choice(classes, NODES, p=shares)
    logits = rng.normal(size=(NODES, classes)) + 1.5 * np.eye(classes)[y] + np.log(shares)
    return torch.tensor(y), torch.tensor(logits).softmax(dim=1)


def exact(labels: Tensor, proba: Tensor) -> dict[str, float]:
    """Return scikit-learn's values, of probabilities at the middle of their bin if there are two classes."""
    y, classes = labels.numpy(), proba.shape[1]
    wanted: dict[str, float] = {}
    guess = proba.argmax(dim=1).numpy()
    if classes == 2:
        middle = (cells_of(torch.zeros_like(labels), proba).numpy() + 0.5) / BINS
        confidence = np.maximum(middle, 1 - middle)
        bins = np.minimum(((confidence - 0.5) * BINS).astype(int), BINS // 2 - 1)
        gaps = np.bincount(bins, (guess == y) - confidence)
        wanted = {
            "roc_auc": sk.roc_auc_score(y, middle),
            "average_precision": sk.average_precision_score(y, middle),
            "calibration_error": np.abs(gaps).sum() / len(y),
        }
    for k in range(classes):
        wanted[f"precision {k}"] = sk.precision_score(y == k, guess == k, zero_division=0.0)
        wanted[f"recall {k}"] = sk.recall_score(y == k, guess == k)
    return wanted | {
        "accuracy": sk.accuracy_score(y, guess),
        "balanced_accuracy": sk.balanced_accuracy_score(y, guess),
        "macro_f1": sk.f1_score(y, guess, average="macro"),
    }


def noisy(labels: Tensor, proba: Tensor, std: float, seed: int) -> PrivateMetrics:
    """Return the metrics of one release with Gaussian noise of this standard deviation."""
    classes, rng = proba.shape[1], np.random.default_rng(seed)
    counts = torch.bincount(cells_of(labels, proba), minlength=histogram_cells(classes)).double()
    histogram = (counts + std * torch.from_numpy(rng.normal(size=len(counts)))).reshape(classes, -1)
    right = int((proba.argmax(dim=1) == labels).sum())
    correct, wrong = right + std * rng.normal(), len(labels) - right + std * rng.normal()
    accuracy = correct / (correct + wrong), std
    positive = 1 if classes == 2 else None
    return private_metrics(histogram, std, accuracy, len(labels), (), np.random.default_rng(0), positive)


def intervals(found: PrivateMetrics) -> dict[str, Any]:
    of_classes = {f"precision {one.name}": one.precision for one in found.classes}
    of_classes |= {f"recall {one.name}": one.recall for one in found.classes}
    return {**found.metrics, **of_classes}


@pytest.mark.parametrize("classes", [2, 5])
def test_without_noise_the_values_are_those_of_scikit_learn(classes: int) -> None:
    labels, proba = predicted(classes)
    found, wanted = noisy(labels, proba, 1e-9, 0), exact(labels, proba)
    assert {name: one.value for name, one in intervals(found).items()} == pytest.approx(wanted, abs=1e-6)
    matrix = sk.confusion_matrix(labels.numpy(), proba.argmax(dim=1).numpy())
    np.testing.assert_allclose(found.confusion_matrix, matrix, atol=1e-6)
    assert [one.support.value for one in found.classes] == pytest.approx(np.bincount(labels.numpy()))


@pytest.mark.parametrize("classes", [2, 5])
def test_no_interval_is_trivial(classes: int) -> None:
    """``tests/contracts/test_intervals.py`` has the coverage."""
    found = noisy(*predicted(classes), STD, 0)
    widths = {name: one.high - one.low for name, one in intervals(found).items()}
    assert max(widths.values()) < 0.35, widths


def test_rounding_to_bins_hardly_changes_rankings() -> None:
    labels, proba = predicted(2)
    found, scores = exact(labels, proba), proba[:, 1].numpy()
    assert found["roc_auc"] == pytest.approx(sk.roc_auc_score(labels.numpy(), scores), abs=0.005)
    precision = sk.average_precision_score(labels.numpy(), scores)
    assert found["average_precision"] == pytest.approx(precision, abs=0.02)


def test_nodes_without_a_label_are_in_no_cell() -> None:
    labels, proba = torch.tensor([-1, 1, 0]), torch.tensor([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]])
    assert cells_of(labels, proba).tolist() == [-1, BINS + BINS // 2 - 1, 0]
    assert cells_of(labels, torch.eye(3)).tolist() == [-1, 4, 2]
    assert (histogram_cells(3), histogram_cells(65)) == (9, 0)


# -- released by methods -----------------------------------------------------------------------------------


def imbalanced(nodes: int = 3000) -> Graph:
    rng = np.random.default_rng(0)
    y = (rng.random(nodes) < 0.25).astype(np.int64)
    x = rng.normal(size=(nodes, 5)).astype(np.float32)
    x[:, 0] += 2 * y
    source, target = rng.integers(nodes, size=(2, nodes))
    graph = Graph.from_edges(torch.from_numpy(x), torch.from_numpy(y), source, target, directed=True)
    return split(graph, 0.4, 0.1, unit="none", seed=0)


@pytest.mark.parametrize(
    "model",
    [
        gv.MLP(**RELEASED),
        gv.MLP(**RELEASED, epochs=5),
        gv.ClassCode(**RELEASED, replace_one=True),
        gv.GAP(**RELEASED, out_degree_bound=2, epochs=5),
    ],
)
def test_methods_release_metrics_within_their_budget(model: Any) -> None:
    graph = imbalanced()
    model.fit(graph)
    assert model.guarantee.epsilon <= 2.0 and model.guarantee.deviations == (SEEDED,)
    assert [query.kind for query in model.plan_.queries][-3:] == ["outcomes", "outcomes", "histogram"]
    found, evaluated = model.private_metrics_, model.evaluate(graph)
    tested = graph.labeled_in("test")
    wanted = exact(graph.y[tested], model.predict_proba()[tested])
    assert found is not None and set(found.metrics) >= {"roc_auc", "macro_f1"}
    assert "average_precision" not in found.metrics  # labels do not tell which class is rarer
    for name in ("accuracy", "balanced_accuracy", "roc_auc"):
        assert found[name].low - 0.01 <= wanted[name] <= found[name].high + 0.01
    assert found["accuracy"].value == model.private_accuracy_["test"]
    assert abs(found.confusion_matrix - evaluated.confusion_matrix).max() < 20 * found.noise_std
    assert (found.confusion_matrix != evaluated.confusion_matrix).all()  # nothing exact is released
    other = model.prepare(graph).plan
    assert other == model.plan_


def test_a_histogram_of_noise_alone_has_values_in_their_range() -> None:
    noise = torch.from_numpy(np.random.default_rng(5).normal(0, STD, size=(2, BINS)))
    found, again = (private_metrics(noise, STD, (0.5, STD), 100, (), np.random.default_rng(0)) for _ in "ab")
    assert found.as_dict() == again.as_dict()
    assert all(0 <= one.low <= one.high <= 1 and 0 <= one.value <= 1 for one in found.metrics.values())

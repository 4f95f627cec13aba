"""Metrics of predictions: the values are those of scikit-learn and of their definitions."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn import metrics as sk

import graphveil as gv
from graphveil.errors import ConfigError, GraphError
from graphveil.training.metrics import METRICS, calibration_error, evaluate, metric_value


def drawn(classes: int, nodes: int = 300, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    truth = rng.choice(classes, nodes, p=np.arange(1, classes + 1) / sum(range(1, classes + 1)))
    logits = rng.normal(size=(nodes, classes)) + 1.5 * np.eye(classes)[truth]
    return torch.tensor(truth), torch.tensor(logits).softmax(dim=1)


def test_two_classes_have_the_values_of_scikit_learn() -> None:
    truth, proba = drawn(2)
    found, p = evaluate(truth, proba, positive=1), proba[:, 1].numpy()
    predicted = (p > 0.5).astype(int)
    expected = {
        "accuracy": sk.accuracy_score(truth, predicted),
        "balanced_accuracy": sk.balanced_accuracy_score(truth, predicted),
        "macro_f1": sk.f1_score(truth, predicted, average="macro"),
        "roc_auc": sk.roc_auc_score(truth, p),
        "average_precision": sk.average_precision_score(truth, p),
        "log_loss": sk.log_loss(truth, p),
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert found.confusion_matrix.tolist() == sk.confusion_matrix(truth, predicted).tolist()
    assert found.classes[1].precision == pytest.approx(sk.precision_score(truth, predicted))
    assert found.classes[1].recall == pytest.approx(sk.recall_score(truth, predicted))
    assert [one.support for one in found.classes] == np.bincount(truth).tolist()


def test_more_classes_are_compared_one_with_the_others() -> None:
    truth, proba = drawn(4)
    found = evaluate(truth, proba, names=("a", "b", "c", "d"))
    one_hot = torch.nn.functional.one_hot(truth, 4)
    assert found["average_precision"] == pytest.approx(sk.average_precision_score(one_hot, proba))
    assert found["roc_auc"] == pytest.approx(sk.roc_auc_score(truth, proba, multi_class="ovr"))
    assert [one.name for one in found.classes] == ["a", "b", "c", "d"]
    positive = 1 if proba.shape[1] == 2 else None
    assert all(metric_value(metric, truth, proba, positive) == found[metric] for metric in METRICS)


def test_a_threshold_moves_predictions_and_no_ranking() -> None:
    truth, proba = drawn(2)
    usual = evaluate(truth, proba, positive=1)
    low = evaluate(truth, proba, threshold=0.2, positive=1)
    assert low.classes[1].recall > usual.classes[1].recall
    assert low["roc_auc"] == usual["roc_auc"] and low["average_precision"] == usual["average_precision"]
    assert low.confusion_matrix[:, 1].sum() == int((proba[:, 1] >= 0.2).sum())
    with pytest.raises(ConfigError, match="two classes"):
        evaluate(*drawn(3), threshold=0.2)
    with pytest.raises(ConfigError, match="threshold"):
        evaluate(truth, proba, threshold=1.5)


def test_undefined_values_are_nan_and_none_in_json() -> None:
    found = evaluate(torch.zeros(5, dtype=torch.int64), torch.tensor([[0.9, 0.1]] * 5))
    assert np.isnan(found["roc_auc"]) and np.isnan(found.classes[1].recall)
    plain = found.as_dict()
    assert plain["metrics"]["roc_auc"] is None and plain["classes"][1]["recall"] is None
    assert plain["metrics"]["accuracy"] == 1.0
    with pytest.raises(ConfigError, match="No node to evaluate"):
        evaluate(torch.empty(0, dtype=torch.int64), torch.empty(0, 2))


def test_the_calibration_error_is_zero_for_true_probabilities() -> None:
    rng = np.random.default_rng(0)
    p = rng.uniform(0, 1, 200_000)
    truth, scores = (rng.random(len(p)) < p).astype(int), np.stack([1 - p, p], axis=1)
    assert calibration_error(truth, scores) < 0.01
    overconfident = np.where(scores > 0.5, 0.99, 0.01)
    assert calibration_error(truth, overconfident) > 0.15


def test_models_evaluate_the_labeled_nodes_of_a_part() -> None:
    graph = gv.load_dataset("synthetic/tiny")
    model = gv.MLP(unit="none", seed=0, tuned=False, epochs=20).fit(graph)
    found = model.evaluate(graph)
    assert found["accuracy"] == pytest.approx(model.score(graph))
    assert found["macro_f1"] == model.score(graph, metric="macro_f1")
    assert found.confusion_matrix.sum() == int(graph.labeled_in("test").sum())
    assert "macro_f1" in str(found) and "support" in str(found)
    with pytest.raises(ConfigError, match=r"did you mean|must be one of"):
        model.score(graph, metric="roc_au")


def test_wrong_arguments_are_rejected_before_a_charge() -> None:
    graph, other = (gv.load_dataset("synthetic/tiny", seed=seed) for seed in (0, 1))
    other = other.subgraph(torch.arange(other.num_nodes) > 3)
    model = gv.GAP(unit="undirected-edge", epsilon=1.0, seed=0, epochs=2).fit(graph)
    unlabeled = replace(other, y=torch.full_like(other.y, -1))
    for call in (
        lambda: model.score(other, metric="roc_au"),
        lambda: model.evaluate(other, threshold=0.5),
        lambda: model.evaluate(other, split="tests"),
        lambda: model.evaluate(unlabeled),
    ):
        with pytest.raises((ConfigError, GraphError)):
            call()
        assert not gv.ledger_of(other.edge_set).entries
    model.evaluate(other)
    assert len(gv.ledger_of(other.edge_set).entries) == 1


def test_label_sets_have_no_evaluation() -> None:
    graph = gv.load_dataset("synthetic/tiny")
    many = replace(graph, label_sets=torch.nn.functional.one_hot(graph.y, 3).bool())
    model = gv.GCN(unit="none", multi_label=True, seed=0, epochs=2).fit(many)
    with pytest.raises(ConfigError, match="micro F1"):
        model.evaluate(many)


def test_exact_labels_of_randomized_records_are_not_read() -> None:
    graph = gv.load_dataset("synthetic/tiny")
    model = gv.LabelPosterior(unit="local-attributes", seed=0, eps_x=0.0, eps_y=4.0).fit(graph)
    assert model.evaluate(graph)["accuracy"] == pytest.approx(model.score(graph))
    for split in ("train", "val"):
        with pytest.raises(ConfigError, match="protects"):
            model.evaluate(graph, split)
        with pytest.raises(ConfigError, match="protects"):
            model.score(graph, split, metric="roc_auc")


@pytest.mark.parametrize("seed", range(4))
def test_the_calibration_error_is_the_mean_gap_of_bins_also_of_both_signs(seed: int) -> None:
    truth, proba = drawn(3, seed=seed)
    scores = proba.double().numpy()
    scores = np.where(np.arange(len(scores))[:, None] % 2 == 0, scores**3, scores**0.5)  # over- and under-
    scores /= scores.sum(axis=1, keepdims=True)
    confidence, correct = scores.max(axis=1), scores.argmax(axis=1) == truth.numpy()
    gaps = []
    for low in range(15):
        own = (confidence * 15 >= low) & (confidence * 15 < low + 1)
        gaps.append(own.mean() * (correct[own].mean() - confidence[own].mean()) if own.any() else 0.0)
    assert min(gaps) < 0 < max(gaps)
    assert calibration_error(truth.numpy(), scores) == pytest.approx(np.abs(gaps).sum())

"""Accuracy (of label sets micro F1), macro F1 and ROC-AUC of a fitted model on its test nodes."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from graphveil.data import Graph
from graphveil.estimators.base import Estimator
from graphveil.lab.attacks import RocCurve
from graphveil.lab.papers.cells import Work
from graphveil.lab.papers.measures.fit import fitted
from graphveil.lab.papers.measures.measurement import Measurement, MeasurementPaths
from graphveil.lab.papers.target import TEST, VAL


def measure(work: Work, paths: MeasurementPaths) -> Measurement:
    """Return all three, and validation accuracy."""
    graph, model = fitted(work, paths)
    return Measurement.from_guarantee(scores_of(model, graph), model.guarantee)


def scores_of(model: Estimator, graph: Graph) -> dict[str, float]:
    """Return the scores of a model's test nodes."""
    test, head = graph.mask("test"), model.fitted.method.head
    truth, proba = head.labels(graph)[test].numpy(), model.predict_proba()[test]
    return {
        TEST: model.score(graph),
        "macro_f1": macro_f1(truth, head.predicted(proba).numpy()),
        "roc_auc": mean_auc(truth, proba.double().numpy()),
        VAL: model.score(graph, VAL),
    }


Labels = npt.NDArray[np.int64 | np.bool_]  # class numbers (N) or label sets (N, L)


def macro_f1(truth: Labels, predicted: Labels) -> float:
    """Return the mean over the labels that occur of 2 TP / (2 TP + FP + FN).

    >>> macro_f1(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]))
    0.7333333333333334
    """
    found = []
    for number, is_so in _present(truth):
        right, wrong = np.sum(is_so & _of(predicted, number)), np.sum(is_so != _of(predicted, number))
        found.append(2 * right / (2 * right + wrong))
    return float(np.mean(found))


def mean_auc(truth: Labels, proba: npt.NDArray[np.float64]) -> float:
    """Return the mean over the labels that occur, and not alone, of the area under each one's ROC curve.

    >>> mean_auc(np.array([0, 0, 1]), np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7]]))
    1.0
    """
    several = [(number, is_so) for number, is_so in _present(truth) if not np.all(is_so)]
    return float(np.mean([RocCurve.from_scores(proba[:, number], is_so).auc for number, is_so in several]))


def _present(truth: Labels) -> Iterator[tuple[int, npt.NDArray[np.bool_]]]:
    """Yield the labels that occur, each with the nodes that have it."""
    numbers = np.unique(truth) if truth.ndim == 1 else np.flatnonzero(truth.any(axis=0))
    return ((int(number), _of(truth, number)) for number in numbers)


def _of(labels: Labels, number: int) -> npt.NDArray[np.bool_]:
    """Return which nodes have a label."""
    return np.asarray(labels == number if labels.ndim == 1 else labels[:, number])

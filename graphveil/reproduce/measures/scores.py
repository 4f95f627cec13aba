"""Accuracy, macro F1 and ROC-AUC of a fitted model on its test nodes."""

import numpy as np
import numpy.typing as npt

from graphveil.attacks import Ranking
from graphveil.graph import Graph
from graphveil.models.base import Estimator
from graphveil.reproduce.cells import Work
from graphveil.reproduce.measures.fit import fitted
from graphveil.reproduce.measures.found import Found, Places
from graphveil.reproduce.target import TEST, VAL


def measure(work: Work, places: Places) -> Found:
    """Return all three, and validation accuracy."""
    graph, model = fitted(work, places)
    return Found.of(scores_of(model, graph), model.guarantee)


def scores_of(model: Estimator, graph: Graph) -> dict[str, float]:
    """Return the scores of a model's test nodes."""
    test = graph.mask("test")
    truth, proba = graph.y[test].numpy(), model.predict_proba()[test].double().numpy()
    return {
        TEST: model.score(graph),
        "macro_f1": macro_f1(truth, proba.argmax(axis=1)),
        "roc_auc": mean_auc(truth, proba),
        VAL: model.score(graph, VAL),
    }


def macro_f1(truth: npt.NDArray[np.int64], said: npt.NDArray[np.int64]) -> float:
    """Return the mean over the classes that occur of 2 TP / (2 TP + FP + FN).

    >>> macro_f1(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]))
    0.7333333333333334
    """
    found = []
    for number in np.unique(truth):
        right = np.sum((truth == number) & (said == number))
        wrong = np.sum((truth == number) != (said == number))
        found.append(2 * right / (2 * right + wrong))
    return float(np.mean(found))


def mean_auc(truth: npt.NDArray[np.int64], proba: npt.NDArray[np.float64]) -> float:
    """Return the mean over the classes that occur, and not alone, of the area under each one's ROC curve.

    >>> mean_auc(np.array([0, 0, 1]), np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7]]))
    1.0
    """
    present = [number for number in np.unique(truth) if not np.all(truth == number)]
    return float(np.mean([Ranking.of(proba[:, number], truth == number).auc for number in present]))

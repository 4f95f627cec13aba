"""Metrics of predictions: of classes, of their ranking and probabilities; and of numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from torch import Tensor

from graphveil._util import checks
from graphveil._util.display import html_table
from graphveil.errors import ConfigError

RANKING_METRICS = ("roc_auc", "average_precision")  # not defined for one class
Metric = Literal["accuracy", "balanced_accuracy", "macro_f1", "roc_auc", "average_precision"]
METRICS: tuple[str, ...] = get_args(Metric)
NUMBER_METRICS = ("r2", "mae", "rmse")  # of task="regression"
_BINS = 15  # of equal width, for the calibration error

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ClassMetrics:
    """Metrics of one class against all others.

    Args:
        name: Name of the class, or its number.
        support: Number of evaluated nodes of the class.
        precision: Share of correct ones among the nodes predicted as the class; NaN without any.
        recall: Share of correct ones among the nodes of the class; NaN without any.
        f1: Harmonic mean of both.
    """

    name: str
    support: int
    precision: float
    recall: float
    f1: float


_ONE_CLASS = "n/a (the evaluated nodes have labels of one class only)"
_NOT_DEFINED = {
    "roc_auc": _ONE_CLASS,
    "average_precision": _ONE_CLASS,
    "r2": "n/a (the evaluated nodes all have the same number)",
}


@dataclass(frozen=True)
class Evaluation:
    """Metrics of predictions on labeled nodes, by scikit-learn's definitions.

    Args:
        metrics: Values by name: ``accuracy``, ``balanced_accuracy`` (mean recall of the classes),
            ``macro_f1``, ``roc_auc``, ``average_precision``, ``log_loss`` and ``calibration_error`` (expected
            calibration error over 15 bins of equal width). Of more than two classes, ``roc_auc`` and
            ``average_precision`` are means of one class against the others. NaN if a value is not defined,
            such as ``roc_auc`` without a node of each class. Of predicted numbers: ``r2``, ``mae`` and
            ``rmse`` (coefficient of determination, mean absolute and root mean squared error).
        classes: Metrics of each class; none for numbers.
        confusion_matrix: Counts of nodes by true class (rows) and predicted class (columns), int64 (C, C).
        threshold: Probability from which a node is predicted as positive; None if the most probable class is
            predicted.
        positive: Of two classes, the name of the positive one, of which ``average_precision`` is; None if it
            is not known (``average_precision`` is then NaN).

    Privacy:
        Exact functions of the labels. Under units that protect labels they are private: do not publish.
    """

    metrics: Mapping[str, float]
    classes: tuple[ClassMetrics, ...]
    confusion_matrix: Integers
    threshold: float | None = None
    positive: str | None = None

    def __getitem__(self, metric: str) -> float:
        """Return the value of a metric by its name."""
        checks.one_of(tuple(self.metrics), metric=metric)
        return self.metrics[metric]

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values; None for NaN."""
        return {
            "metrics": {name: _plain(value) for name, value in self.metrics.items()},
            "classes": [
                {
                    "class": one.name,
                    "support": one.support,
                    "precision": _plain(one.precision),
                    "recall": _plain(one.recall),
                    "f1": _plain(one.f1),
                }
                for one in self.classes
            ],
            "confusion_matrix": self.confusion_matrix.tolist(),
            "threshold": self.threshold,
            "positive": self.positive,
        }

    def _repr_html_(self) -> str:
        """Return the tables that a notebook shows."""
        rows = [(name, f"{value:.3f}") for name, value in self.metrics.items()]
        rows += [] if self.positive is None else [("positive class", self.positive)]
        if not self.classes:
            return html_table((), rows)
        classes = [
            (one.name, f"{one.support:,}", *(f"{share:.3f}" for share in (one.precision, one.recall, one.f1)))
            for one in self.classes
        ]
        return html_table((), rows) + html_table(("class", "support", "precision", "recall", "f1"), classes)

    def __str__(self) -> str:
        """Return two tables: the metrics, and the classes, if there are any."""
        width = max(len(name) for name in [*self.metrics, *(one.name for one in self.classes)])
        undefined = dict(_NOT_DEFINED)
        if self.positive is None and len(self.classes) == 2:
            undefined["average_precision"] = "n/a"
        lines = [
            f"{name:<{width}}  {f'{value:.3f}' if value == value else undefined.get(name, 'n/a')}"
            for name, value in self.metrics.items()
        ]
        if self.positive is not None:
            lines.append(f"positive class: {self.positive}")
        elif len(self.classes) == 2:
            lines.append("average_precision needs the positive class: pass positive= to evaluate.")
        lines += [] if not self.classes else ["", f"{'class':<{width}}  support  precision  recall     f1"]
        for one in self.classes:
            shares = "  ".join(
                f"{f'{value:.3f}' if value == value else 'n/a':>{size}}"
                for value, size in ((one.precision, 9), (one.recall, 6), (one.f1, 5))
            )
            lines.append(f"{one.name:<{width}}  {one.support:>7,}  {shares}")
        if any(value != value for one in self.classes for value in (one.precision, one.recall, one.f1)):
            lines.append("n/a: no node has the class (recall), or none is predicted as it (precision)")
        return "\n".join(lines)


def evaluate(
    labels: Tensor,
    proba: Tensor,
    *,
    names: Sequence[str] = (),
    threshold: float | None = None,
    positive: int | None = None,
) -> Evaluation:
    """Return all metrics of predicted probabilities.

    Args:
        labels: Class of each node, int64 (M).
        proba: Class probabilities, (M, C).
        names: Names of the classes.
        threshold: For two classes: probability from which a node is predicted as the positive class.
        positive: For two classes: number of the positive one.

    Raises:
        ConfigError: If there is no node, or a threshold without a positive class.

    >>> import torch
    >>> proba = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3], [0.2, 0.8]])
    >>> found = evaluate(torch.tensor([0, 0, 1, 1]), proba)
    >>> found["accuracy"], found["roc_auc"], found.confusion_matrix.tolist()
    (0.75, 0.75, [[2, 0], [1, 1]])
    >>> found = evaluate(torch.tensor([0, 0, 1, 1]), proba, threshold=0.3, positive=1)
    >>> found.confusion_matrix.tolist(), found.positive
    ([[1, 1], [0, 2]], '1')
    """
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    truth, scores = labels.numpy(), proba.to("cpu").double().numpy()
    classes = scores.shape[1]
    check_evaluation(len(truth), classes, threshold)
    names = tuple(map(str, names or range(classes)))
    predicted = _predicted(scores, threshold, positive)
    every = np.arange(classes)
    precision, recall, f1, support = precision_recall_fscore_support(
        truth, predicted, labels=every, zero_division=np.nan
    )
    metrics = {metric: _value(metric, truth, scores, predicted, positive) for metric in METRICS}
    chosen = np.clip(scores[np.arange(len(truth)), truth], 1e-15, 1.0)
    metrics["log_loss"] = float(-np.log(chosen).mean())
    metrics["calibration_error"] = calibration_error(truth, scores)
    return Evaluation(
        metrics=metrics,
        classes=tuple(
            ClassMetrics(names[k], int(support[k]), *(float(one[k]) for one in (precision, recall, f1)))
            for k in every
        ),
        confusion_matrix=confusion_matrix(truth, predicted, labels=every).astype(np.int64),
        threshold=threshold,
        positive=None if positive is None else names[positive],
    )


def evaluate_numbers(targets: Tensor, predicted: Tensor) -> Evaluation:
    """Return R², mean absolute error and root mean squared error of predicted numbers.

    Args:
        targets: Number of each node, (M).
        predicted: Predicted numbers, (M).

    Raises:
        ConfigError: If there is no node.

    >>> import torch
    >>> found = evaluate_numbers(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.0, 4.0]))
    >>> round(found["r2"], 3), round(found["mae"], 3), round(found["rmse"], 3)
    (0.5, 0.333, 0.577)
    """
    from sklearn import metrics as of

    check_evaluation(len(targets), 1, None)
    truth, given = (part.detach().cpu().double().numpy() for part in (targets, predicted))
    defined = len(truth) > 1 and bool((truth != truth[0]).any())
    values = {
        "r2": float(of.r2_score(truth, given)) if defined else float("nan"),
        "mae": float(of.mean_absolute_error(truth, given)),
        "rmse": float(of.root_mean_squared_error(truth, given)),
    }
    return Evaluation(metrics=values, classes=(), confusion_matrix=np.zeros((0, 0), dtype=np.int64))


def check_evaluation(nodes: int, classes: int, threshold: float | None) -> None:
    """Reject an evaluation without nodes, and a threshold that does not fit.

    Raises:
        ConfigError: If there is no node, or the threshold is no probability or for more than two classes.
    """
    if not nodes:
        raise ConfigError("No node to evaluate has a label. Evaluate another part of the split.")
    if threshold is None:
        return
    if classes == 1:
        raise ConfigError("threshold= applies to two classes, but the model predicts a number. Omit it.")
    checks.within(0, 1, threshold=threshold)
    if classes != 2:
        raise ConfigError(f"threshold= applies to two classes, but the model has {classes}. Omit it.")


def metric_value(metric: str, labels: Tensor, proba: Tensor, positive: int | None = None) -> float:
    """Return one metric of ``METRICS``; NaN if it is not defined for these labels.

    Of two classes the positive one is by default the rarer of these labels.
    """
    checks.one_of(METRICS, metric=metric)
    scores = proba.to("cpu").double().numpy()
    if positive is None and scores.shape[1] == 2:
        positive = rarer_class(labels)
    return _value(metric, labels.numpy(), scores, scores.argmax(axis=1), positive)


def rarer_class(labels: Tensor) -> int:
    """Return the class of two that fewer labels name; the second one if both are as frequent.

    >>> import torch
    >>> rarer_class(torch.tensor([0, 1, 1])), rarer_class(torch.tensor([0, 1]))
    (0, 1)
    """
    return int((labels == 1).sum() <= (labels == 0).sum())


def class_places(names: Sequence[object], classes: int) -> dict[str, int]:
    """Return the number of each class by its number as text, and by its name, which takes precedence."""
    numbers = {str(number): number for number in range(classes)}
    return numbers | {str(name): number for number, name in enumerate(names)}


def calibration_error(truth: Integers, scores: Floats) -> float:
    """Return the expected calibration error of the most probable class.

        ECE = sum over bins of (share of nodes) |mean accuracy - mean probability|

    Guo, Pleiss, Sun, Weinberger: On calibration of modern neural networks, ICML 2017.

    >>> calibration_error(np.array([0, 0, 1, 1]), np.array([[0.75, 0.25]] * 4))
    0.25
    """
    confidence, correct = scores.max(axis=1), scores.argmax(axis=1) == truth
    bins = np.minimum((confidence * _BINS).astype(np.int64), _BINS - 1)
    gaps = np.bincount(bins, correct - confidence, _BINS)
    return float(np.abs(gaps).sum() / len(truth))


def _predicted(scores: Floats, threshold: float | None, positive: int | None) -> Integers:
    if threshold is None or positive is None:
        most_likely: Integers = scores.argmax(axis=1)
        return most_likely
    return np.where(scores[:, positive] >= threshold, positive, 1 - positive)


def _value(metric: str, truth: Integers, scores: Floats, predicted: Integers, positive: int | None) -> float:
    from sklearn import metrics as of

    if metric == "accuracy":
        return float((predicted == truth).mean())
    if metric == "balanced_accuracy":
        present = np.unique(truth)
        return float(np.mean([(predicted[truth == k] == k).mean() for k in present]))
    if metric == "macro_f1":
        return float(of.f1_score(truth, predicted, average="macro", zero_division=0.0))
    score = of.roc_auc_score if metric == "roc_auc" else of.average_precision_score
    classes: Sequence[int] = range(scores.shape[1])
    if len(classes) == 2:  # the area under the ROC curve is the same for both classes
        classes = [1] if metric == "roc_auc" else [] if positive is None else [positive]
    values = [
        score(truth == k, scores[:, k]) for k in classes if 0 < np.count_nonzero(truth == k) < len(truth)
    ]
    return float(np.mean(values)) if values else float("nan")


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else round(value, 6)

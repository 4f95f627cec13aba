"""Metrics of predictions: exact ones of classes and of numbers, and noisy ones.

Noisy metrics follow from a noisy histogram of test nodes, with intervals. A test node is in one cell: its
class and its predicted class or, with two classes, its class and the bin of its probability. The law of the
noise is public, so the interval of a metric follows from its values on the histogram minus independent draws
of the noise. All of it is post-processing. ``docs/decisions/`` has the choice of the cells and the intervals.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil._util.display import html_table
from graphveil.data.tables.encoding import UNLABELED
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
        checks.one_of(tuple(self.metrics), metric=metric)
        return self.metrics[metric]

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values; None for NaN."""
        return {
            "metrics": _plain(self.metrics),
            "classes": [_plain({"class": one.name, **_without_name(one)}) for one in self.classes],
            "confusion_matrix": self.confusion_matrix.tolist(),
            "threshold": self.threshold,
            "positive": self.positive,
        }

    def _repr_html_(self) -> str:
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

        threshold: For two classes: probability from which a node is predicted as the positive class.
        positive: For two classes: number of the positive one.

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


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: rounded numbers, None for NaN, and mappings of them."""
    if isinstance(value, Interval):
        value = vars(value)
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, float):
        return None if np.isnan(value) else round(value, 6)
    return value


def _without_name(one: "ClassMetrics | PrivateClassMetrics") -> dict[str, Any]:
    return {name: part for name, part in vars(one).items() if name != "name"}


# -- from noisy counts ---------------------------------------------------------------------------------------

BINS = 20  # of the probability of the second class, equal widths; a multiple of 2, so that 0.5 is an edge
MAX_CLASSES = 64  # of a confusion matrix: more cells hold noise only
CONFIDENCE = 0.95
_TAIL = 0.02  # on each side: below 0.025, since ratios of noisy counts are not exactly normal
_NORMAL = 1.96  # standard deviations that a normal variable is within with this probability
_DRAWS = 4000


@dataclass(frozen=True)
class Interval:
    """A value with its interval of 95 % confidence for the exact metric of the same test nodes."""

    value: float
    low: float
    high: float

    def as_dict(self) -> dict[str, float]:
        plain: dict[str, float] = _plain(self)
        return plain


@dataclass(frozen=True)
class PrivateClassMetrics:
    """Metrics of one class against all others, from noisy counts."""

    name: str
    support: Interval
    precision: Interval
    recall: Interval


@dataclass(frozen=True)
class PrivateMetrics:
    """Metrics of test nodes from noisy counts that were charged. They are public.

    Args:
        metrics: Values by name: ``accuracy``, ``balanced_accuracy`` and ``macro_f1``. With two classes also
            ``roc_auc`` and ``calibration_error`` of probabilities that are rounded to the middle of 20 bins,
            and ``average_precision`` if the positive class is given.
        confusion_matrix: Noisy numbers of nodes by true class (rows) and predicted class (columns), (C, C).
            They may be negative.
        positive: Name of the positive class, of which ``average_precision`` is; None if it was not given.
    """

    metrics: Mapping[str, Interval]
    classes: tuple[PrivateClassMetrics, ...]
    confusion_matrix: Floats
    noise_std: float
    positive: str | None = None

    def __getitem__(self, metric: str) -> Interval:
        return self.metrics[metric]

    def as_dict(self) -> dict[str, Any]:
        return {
            "metrics": _plain(self.metrics),
            "classes": [_plain({"class": one.name, **_without_name(one)}) for one in self.classes],
            "confusion_matrix": np.round(self.confusion_matrix, 2).tolist(),
            "noise_std": round(self.noise_std, 6),
            "confidence": CONFIDENCE,
            "positive": self.positive,
        }


def histogram_cells(classes: int) -> int:
    """Return the number of cells for C classes; 0 if there are too many classes.

    >>> histogram_cells(2), histogram_cells(7), histogram_cells(500)
    (40, 49, 0)
    """
    return 0 if classes > MAX_CLASSES else 2 * BINS if classes == 2 else classes**2


def cells_of(labels: Tensor, proba: Tensor) -> Tensor:
    """Return the cell of each node, int64 (M); -1 without a label.

    Bin b of a probability is (b / 20, (b + 1) / 20], so one half is predicted as the first class.

    >>> cells_of(torch.tensor([0, 1, -1]), torch.tensor([[0.5, 0.5], [0.01, 0.99], [1.0, 0.0]])).tolist()
    [9, 39, -1]
    """
    classes = proba.shape[1]
    if classes == 2:
        column = ((proba[:, 1].to(torch.float64) * BINS).ceil().long() - 1).clamp(0, BINS - 1)
        cells = labels * BINS + column
    else:
        cells = labels * classes + proba.argmax(dim=1)
    return torch.where(labels == UNLABELED, -1, cells)


def private_metrics(
    histogram: Tensor,
    noise_std: float,
    accuracy: tuple[float, float],
    most: int,
    names: tuple[str, ...],
    rng: np.random.Generator,
    positive: int | None = None,
) -> PrivateMetrics:
    """Return metrics and their intervals. It reads no protected data.

    most: Public number of test nodes, with or without a label.
    """
    observed = histogram.numpy().astype(np.float64)
    classes, columns = observed.shape
    possible = observed - noise_std * rng.standard_normal((_DRAWS, classes, columns))

    def interval(of: Callable[[Floats], Floats], top: float = 1.0) -> Interval:
        low, high = np.quantile(of(possible), (_TAIL, 1 - _TAIL))
        value = float(of(observed[None])[0])
        return Interval(
            float(np.clip(value, 0.0, top)), float(np.clip(low, 0.0, top)), float(np.clip(high, 0.0, top))
        )

    of_classes = tuple(
        PrivateClassMetrics(
            name=names[k] if names else str(k),
            support=interval(lambda counts, k=k: counts[:, k].sum(axis=1), float(most)),  # type: ignore[misc]
            precision=interval(lambda counts, k=k: _shares(counts)[0][:, k]),  # type: ignore[misc]
            recall=interval(lambda counts, k=k: _shares(counts)[1][:, k]),  # type: ignore[misc]
        )
        for k in range(classes)
    )
    labeled = min(max(1.0, float(observed.sum())), float(max(1, most)))
    metrics = {
        "accuracy": _accuracy(*accuracy, labeled),
        "balanced_accuracy": interval(lambda counts: _shares(counts)[1].mean(axis=1)),
        "macro_f1": interval(lambda counts: _shares(counts)[2].mean(axis=1)),
    }
    if classes == 2:
        metrics["roc_auc"] = interval(_roc_auc)
        if positive is not None:
            metrics["average_precision"] = interval(lambda counts: _average_precision(counts, positive))
        metrics["calibration_error"] = _calibration_error(observed, noise_std, labeled, rng)
    positive_name = None if positive is None else str(names[positive] if names else positive)
    return PrivateMetrics(metrics, of_classes, _confusion(observed[None])[0], noise_std, positive_name)


def _confusion(counts: Floats) -> Floats:
    """Return confusion matrices (R, C, C) of histograms (R, C, columns)."""
    if counts.shape[1] == counts.shape[2]:
        return counts
    half = counts.shape[2] // 2
    return np.stack([counts[:, :, :half].sum(axis=2), counts[:, :, half:].sum(axis=2)], axis=2)


def _shares(counts: Floats) -> tuple[Floats, Floats, Floats]:
    """Return precision, recall and F1 of each class, (R, C) each."""
    matrix = _confusion(counts)
    right = np.einsum("rkk->rk", matrix)
    true, predicted = matrix.sum(axis=2), matrix.sum(axis=1)
    return _ratio(right, predicted), _ratio(right, true), _ratio(2 * right, true + predicted)


def _ratio(part: Floats, whole: Floats) -> Floats:
    found: Floats = np.clip(part / np.maximum(whole, 1.0), 0.0, 1.0)
    return found


def _roc_auc(counts: Floats) -> Floats:
    """Return the share of pairs of both classes in the right order; a pair in one bin counts one half."""
    negative, positive = counts[:, 0], counts[:, 1]
    below = np.cumsum(negative, axis=1) - negative / 2
    pairs = np.maximum(positive.sum(axis=1), 1.0) * np.maximum(negative.sum(axis=1), 1.0)
    ordered: Floats = (positive * below).sum(axis=1) / pairs
    return ordered


def _average_precision(counts: Floats, place: int) -> Floats:
    """Return the sum over bins, from the most probable one, of the gain in recall times the precision."""
    ordered = counts[:, :, ::-1] if place == 1 else counts  # bins are of the second class's probability
    negative, positive = ordered[:, 1 - place], ordered[:, place]
    hits, named = np.cumsum(positive, axis=1), np.cumsum(positive + negative, axis=1)
    gain = positive / np.maximum(positive.sum(axis=1), 1.0)[:, None]
    total: Floats = (gain * _ratio(hits, named)).sum(axis=1)
    return total


def _accuracy(value: float, noise_std: float, labeled: float) -> Interval:
    """Return the accuracy c / (c + w) with an interval; its error is ((1 - a) Z_c - a Z_w) / (c + w)."""
    half = _NORMAL * noise_std * float(np.hypot(value, 1 - value)) / labeled
    return Interval(value, max(0.0, value - half), min(1.0, value + half))


def _calibration_error(
    observed: Floats, noise_std: float, labeled: float, rng: np.random.Generator
) -> Interval:
    """Return the expected calibration error over ten bins of confidence, each at its middle.

    The gap of a bin, correct nodes minus nodes times confidence, is linear in the counts. The sum of the
    absolute values of noisy gaps exceeds the exact one by at least a normal variable with the variance of
    all gaps, and by at most the sum of the absolute values of their noise.
    """
    half = observed.shape[1] // 2
    middle = (np.arange(half) + 0.5) / (2 * half) + 0.5  # confidence of the bins above one half
    right = observed[1, half:] + observed[0, :half][::-1]
    wrong = observed[0, half:] + observed[1, :half][::-1]
    gaps = right * (1 - middle) - wrong * middle
    spread = noise_std * np.sqrt(2 * ((1 - middle) ** 2 + middle**2))
    noise = np.abs(rng.standard_normal((_DRAWS, half)) * spread).sum(axis=1)
    total, wide = float(np.abs(gaps).sum()), _NORMAL * float(np.sqrt((spread**2).sum()))
    low, high = total - float(np.quantile(noise, 1 - _TAIL)), total + wide
    return Interval(
        *(float(np.clip(part / labeled, 0.0, 1.0)) for part in (max(0.0, total - noise.mean()), low, high))
    )

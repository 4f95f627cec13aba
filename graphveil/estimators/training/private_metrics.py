"""Metrics from a noisy histogram of test nodes, with intervals. All of it is post-processing.

A test node is in one cell: its class and its predicted class or, with two classes, its class and the bin of
its probability. The law of the noise is public, so the interval of a metric follows from its values on the
histogram minus independent draws of the noise. ``docs/decisions/`` has the choice of the cells and
the intervals.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil.core.features import rows
from graphveil.core.queries.record_counts import RecordHistogramData, RecordHistogramQuery
from graphveil.core.release import Release
from graphveil.core.view import map_records
from graphveil.data import Graph
from graphveil.data.tables.labels import UNLABELED
from graphveil.estimators.public_sizes import members

Floats = npt.NDArray[np.float64]

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
        """Return plain JSON values."""
        return {"value": round(self.value, 6), "low": round(self.low, 6), "high": round(self.high, 6)}


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
        classes: Metrics of each class.
        confusion_matrix: Noisy numbers of nodes by true class (rows) and predicted class (columns), (C, C).
            They may be negative.
        noise_std: Standard deviation of the noise in a cell of the histogram.
        positive: Name of the positive class, of which ``average_precision`` is; None if it was not given.
    """

    metrics: Mapping[str, Interval]
    classes: tuple[PrivateClassMetrics, ...]
    confusion_matrix: Floats
    noise_std: float
    positive: str | None = None

    def __getitem__(self, metric: str) -> Interval:
        """Return a metric by its name."""
        return self.metrics[metric]

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "metrics": {name: found.as_dict() for name, found in self.metrics.items()},
            "classes": [
                {
                    "class": one.name,
                    "support": one.support.as_dict(),
                    "precision": one.precision.as_dict(),
                    "recall": one.recall.as_dict(),
                }
                for one in self.classes
            ],
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


def release_histogram(release: Release, query: RecordHistogramQuery, proba: Any, view: Graph) -> Tensor:
    """Return the noisy histogram of test nodes, (C, columns), the next answer of the release."""
    nodes, classes = members(view, "test"), proba.shape[1]
    cells = map_records(cells_of, rows(view.y, nodes), rows(proba, nodes))
    return release.answer(RecordHistogramData(cells)).reshape(classes, query.cells // classes)


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

    Args:
        histogram: Noisy counts by class and column, (C, columns).
        noise_std: Standard deviation of their noise.
        accuracy: Accuracy from its own noisy counts, and the standard deviation of their noise.
        most: Public number of test nodes, with or without a label.
        names: Names of the classes.
        rng: Draws the noise again, for the intervals.
        positive: Number of the positive class of two; None if it is not known.
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
    """Return shares of noisy counts, between 0 and 1."""
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

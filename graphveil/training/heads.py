"""Task heads: the meaning of a network's outputs: one class per node, a set of labels, or one number."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from graphveil.core.view import map_records
from graphveil.data import Graph
from graphveil.errors import GraphError
from graphveil.training.metrics import evaluate_numbers


@dataclass(frozen=True)
class TaskHead(ABC):
    """The loss, predictions and score for logits, without trainable parameters."""

    @abstractmethod
    def labels(self, view: Graph) -> Any:
        """Return the training labels of a graph, one row per node, or their handle."""

    def fitted(self, view: Graph) -> Self:
        """Return the head for a graph, including constants from public training labels."""
        return self

    def state(self) -> dict[str, Tensor]:
        """Return the constants that the head computed from public labels, as tensors by name."""
        return {}

    def restored(self, state: dict[str, Tensor]) -> Self:
        """Return the head of a model file from the result of ``state``."""
        return self

    @abstractmethod
    def width(self, view: Graph) -> int:
        """Return the number of logits per node."""

    @abstractmethod
    def names(self, view: Graph) -> tuple[str, ...]:
        """Return the names of the logits; empty if there are none."""

    @abstractmethod
    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of a training step."""

    @abstractmethod
    def accuracy(self, logits: Tensor, labels: Tensor) -> float:
        """Return the score of the logits' predictions, which selects the epoch."""

    @abstractmethod
    def proba(self, logits: Tensor) -> Tensor:
        """Return probabilities of the shape of the logits."""

    @abstractmethod
    def predicted(self, proba: Tensor) -> Tensor:
        """Return the labels predicted from probabilities."""

    @abstractmethod
    def score(self, predicted: Tensor, labels: Tensor) -> float:
        """Return the score of predicted labels, from 0 to 1."""


class MulticlassHead(TaskHead):
    """One class per node: softmax, mean cross entropy, accuracy.

    >>> import torch
    >>> logits = torch.tensor([[0.0, 2.0], [1.0, -1.0]])
    >>> MULTICLASS.predicted(MULTICLASS.proba(logits)).tolist()
    [1, 0]
    """

    def labels(self, view: Graph) -> Tensor:
        return view.y

    def width(self, view: Graph) -> int:
        return view.num_classes

    def names(self, view: Graph) -> tuple[str, ...]:
        return view.class_names

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross entropy, for classes (B) or class probabilities (B, C).

        With the classes in the first dimension it takes a quarter of the time on a CPU.
        """
        target = labels if labels.ndim == 1 else labels.t()
        return cross_entropy(logits.t().unsqueeze(0), target.unsqueeze(0))

    def accuracy(self, logits: Tensor, labels: Tensor) -> float:
        return self.score(logits.argmax(dim=1), labels)

    def proba(self, logits: Tensor) -> Tensor:
        return logits.softmax(dim=1)

    def predicted(self, proba: Tensor) -> Tensor:
        return proba.argmax(dim=1)

    def score(self, predicted: Tensor, labels: Tensor) -> float:
        """Return the accuracy; for labels that are probabilities, the mode counts.

        Class weights (``Objective.targets``) weigh the nodes: rows that sum to one have equal weight.

        >>> import torch
        >>> MULTICLASS.score(torch.tensor([0, 0]), torch.tensor([[1.0, 0.0], [0.0, 3.0]]))
        0.25
        """
        if labels.ndim == 1:
            return float((predicted == labels).float().mean())
        right, weights = (predicted == labels.argmax(1)).float(), labels.sum(dim=1)
        if bool(((weights - 1).abs() < 1e-3).all()):
            return float(right.mean())
        return float((right * weights).sum() / weights.sum())


class MultilabelHead(TaskHead):
    """Any number of labels per node: sigmoid, mean binary cross entropy, micro F1.

        loss = -mean over nodes and labels of y log s(z) + (1 - y) log(1 - s(z)),  s(z) = 1 / (1 + e^-z)
        micro F1 = 2 TP / (2 TP + FP + FN), counted over all nodes and labels; 0 if nothing is counted.

    >>> import torch
    >>> logits = torch.tensor([[3.0, -3.0, 3.0], [-3.0, -3.0, 3.0]])
    >>> predicted = MULTILABEL.predicted(MULTILABEL.proba(logits))
    >>> predicted.tolist()
    [[True, False, True], [False, False, True]]
    >>> MULTILABEL.score(predicted, torch.tensor([[True, True, True], [False, False, True]]))
    0.8571428571428571
    """

    def labels(self, view: Graph) -> Tensor:
        if view.label_sets is None:
            raise GraphError(
                f"graph {view.name!r} has one class per node and no label sets. Pass label_sets=, a bool "
                "array of shape (N, L), or omit multi_label."
            )
        return view.label_sets

    def width(self, view: Graph) -> int:
        return self.labels(view).shape[1]

    def names(self, view: Graph) -> tuple[str, ...]:
        return ()

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))

    def accuracy(self, logits: Tensor, labels: Tensor) -> float:
        return self.score(logits > 0, labels)

    def proba(self, logits: Tensor) -> Tensor:
        return logits.sigmoid()

    def predicted(self, proba: Tensor) -> Tensor:
        return proba > 0.5

    def score(self, predicted: Tensor, labels: Tensor) -> float:
        wrong = int((predicted != labels).sum())
        right = 2 * int((predicted & labels).sum())
        return right / (right + wrong) if right else 0.0


_SCALE = "target_scale"
_NORMAL_IQR = 1.349  # interquartile range of a normal distribution, in standard deviations
_OUTLIER = 10.0  # distance of outliers from the median, in robust standard deviations


@dataclass(frozen=True)
class RegressionHead(TaskHead):
    """One number per node: the output z predicts center + half z, by half the mean squared error of z.

    With a public range [low, high], targets are clipped to it, center is its middle and half is half of its
    width. Network targets are then in [-1, 1], and predictions are clipped to the range. Without one, center
    and half are mean and standard deviation of public training targets. If some of them are outliers, more
    than ten robust standard deviations from the median, center and half are the median and that deviation,
    and network targets are clipped to [-10, 10]. Predictions are not clipped.

    Args:
        target_range: Public range of targets; None if they are public.
        center, half: The scale; None before ``fitted``.
        limit: Bound of network targets if there are outliers in training; None if there are not.

    >>> import torch
    >>> head = RegressionHead((0.0, 10.0))
    >>> head.proba(torch.tensor([[0.5], [3.0]])).tolist()
    [[7.5], [10.0]]
    """

    target_range: tuple[float, float] | None = None
    center: float | None = None
    half: float | None = None
    limit: float | None = None

    def fitted(self, view: Graph) -> Self:
        if self.target_range is not None:
            return self
        targets = self.targets(view)[view.labeled_in("train")]
        std = float(targets.std(correction=0)) if len(targets) else 0.0
        if std:
            lower, median, upper = targets.quantile(targets.new_tensor([0.25, 0.5, 0.75])).tolist()
            robust = (upper - lower) / _NORMAL_IQR
            if robust and float((targets - median).abs().max()) > _OUTLIER * robust:
                return replace(self, center=median, half=robust, limit=_OUTLIER)
        return replace(self, center=float(targets.mean()), half=std or 1.0)

    @property
    def scale(self) -> tuple[float, float]:
        if self.target_range is not None:
            low, high = self.target_range
            return low / 2 + high / 2, high / 2 - low / 2
        assert self.center is not None and self.half is not None
        return self.center, self.half

    def state(self) -> dict[str, Tensor]:
        return {_SCALE: torch.tensor(self.scale, dtype=torch.float64)}

    def restored(self, state: dict[str, Tensor]) -> Self:
        if self.target_range is not None:
            return self
        center, half = state[_SCALE].tolist()
        return replace(self, center=center, half=half)

    def labels(self, view: Graph) -> Any:
        """Return scaled targets, float32 (N), NaN for missing; clipped to the range if there is one."""
        center, half = self.scale

        def of(targets: Tensor) -> Tensor:
            if self.target_range is not None:
                targets = targets.clamp(*self.target_range)
            scaled = (targets - center) / half
            return (scaled if self.limit is None else scaled.clamp(-self.limit, self.limit)).float()

        return map_records(of, self.targets(view))

    def targets(self, view: Graph) -> Tensor:
        """Return the numbers in their own unit, float64 (N), NaN for missing."""
        self.check(view)
        assert view.targets is not None
        return view.targets

    def check(self, view: Graph) -> None:
        if view.targets is None:
            raise GraphError(
                f"graph {view.name!r} has classes and no numeric targets, which task='regression' needs. "
                "Pass targets=, or read the files with task='regression' (--task regression). For "
                "classification, omit task."
            )

    def width(self, view: Graph) -> int:
        return 1

    def names(self, view: Graph) -> tuple[str, ...]:
        return ()

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return (logits[:, 0] - labels).square().mean() / 2

    def accuracy(self, logits: Tensor, labels: Tensor) -> float:
        """Return minus the mean squared error, so that larger is better."""
        return -float((logits[:, 0] - labels).square().mean())

    def proba(self, logits: Tensor) -> Tensor:
        """Return predictions in the unit of the target, float32 (N, 1), clipped to a public range."""
        center, half = self.scale
        found = center + half * logits.to(torch.float64)
        return (found if self.target_range is None else found.clamp(*self.target_range)).float()

    def predicted(self, proba: Tensor) -> Tensor:
        return proba[:, 0]

    def score(self, predicted: Tensor, labels: Tensor) -> float:
        return evaluate_numbers(labels, predicted)["r2"]


MULTICLASS, MULTILABEL = MulticlassHead(), MultilabelHead()

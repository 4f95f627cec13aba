"""Task heads: the meaning of a network's logits, either one class per node or a set of labels."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from graphveil.data import Graph
from graphveil.errors import GraphError


@dataclass(frozen=True)
class TaskHead(ABC):
    """The loss, predictions and score for logits; it has no parameters of its own."""

    @abstractmethod
    def labels(self, graph: Graph) -> Tensor:
        """Return the training labels of a graph, one row per node.

        Raises:
            GraphError: If the graph has no such labels.
        """

    @abstractmethod
    def width(self, graph: Graph) -> int:
        """Return the number of logits per node."""

    @abstractmethod
    def names(self, graph: Graph) -> tuple[str, ...]:
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

    def labels(self, graph: Graph) -> Tensor:
        """Return class indices, int64 (N)."""
        return graph.y

    def width(self, graph: Graph) -> int:
        """Return the number of classes."""
        return graph.num_classes

    def names(self, graph: Graph) -> tuple[str, ...]:
        """Return the names of the classes."""
        return graph.class_names

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross entropy, for classes (B) or class probabilities (B, C).

        With the classes in the first dimension it takes a quarter of the time on a CPU.
        """
        target = labels if labels.ndim == 1 else labels.t()
        return cross_entropy(logits.t().unsqueeze(0), target.unsqueeze(0))

    def accuracy(self, logits: Tensor, labels: Tensor) -> float:
        """Return the accuracy; the most probable class has the largest logit."""
        return self.score(logits.argmax(dim=1), labels)

    def proba(self, logits: Tensor) -> Tensor:
        """Return probabilities that sum to one."""
        return logits.softmax(dim=1)

    def predicted(self, proba: Tensor) -> Tensor:
        """Return the most probable class, int64 (N)."""
        return proba.argmax(dim=1)

    def score(self, predicted: Tensor, labels: Tensor) -> float:
        """Return the accuracy; for labels that are probabilities, the mode counts."""
        target = labels if labels.ndim == 1 else labels.argmax(1)
        return float((predicted == target).float().mean())


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

    def labels(self, graph: Graph) -> Tensor:
        """Return the label sets, bool (N, L)."""
        if graph.label_sets is None:
            raise GraphError(
                f"graph {graph.name!r} has one class per node and no label sets; give label_sets=, bool "
                "(N, L), or leave multi_label out"
            )
        return graph.label_sets

    def width(self, graph: Graph) -> int:
        """Return the number of labels."""
        return self.labels(graph).shape[1]

    def names(self, graph: Graph) -> tuple[str, ...]:
        """Return no names: labels in sets have indices."""
        return ()

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean binary cross entropy over nodes and labels."""
        return binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))

    def accuracy(self, logits: Tensor, labels: Tensor) -> float:
        """Return the micro F1; a label is predicted if its logit is positive."""
        return self.score(logits > 0, labels)

    def proba(self, logits: Tensor) -> Tensor:
        """Return the probability of each label."""
        return logits.sigmoid()

    def predicted(self, proba: Tensor) -> Tensor:
        """Return the labels with a probability above 1/2, bool (N, L)."""
        return proba > 0.5

    def score(self, predicted: Tensor, labels: Tensor) -> float:
        """Return the micro F1."""
        wrong = int((predicted != labels).sum())
        right = 2 * int((predicted & labels).sum())
        return right / (right + wrong) if right else 0.0


MULTICLASS, MULTILABEL = MulticlassHead(), MultilabelHead()

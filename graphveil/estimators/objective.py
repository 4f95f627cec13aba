"""Training on public data: class weights of the loss, the metric that selects, and the nodes to train on.

Networks are trained on all nodes, or on a hash-based sample by node id. A network of some ten thousand
parameters gains nothing from more than about a hundred thousand nodes, but every epoch takes longer. The rule
is public, applies to every training of a fit, and reads node ids only. Neither the order of a table nor the
other nodes affect the hash of a node. It is for public nodes only; noisy steps on protected records do their
own sampling.
"""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import nll_loss, one_hot

from graphveil._util import checks
from graphveil.core.view import map_records
from graphveil.data import Graph
from graphveil.data.fingerprint import splitmix64
from graphveil.errors import ConfigError, GraphError
from graphveil.estimators.public_sizes import nodes_of
from graphveil.estimators.session import Session
from graphveil.training import TrainingSchedule, train
from graphveil.training.heads import MULTICLASS, TaskHead
from graphveil.training.metrics import RANKING_METRICS, class_places, metric_value

BALANCED = "balanced"
ClassWeight = Literal["balanced"] | Mapping[str, float] | Mapping[int, float]
Score = tuple[float, float]  # higher is better: the metric, then the likelihood
WORST: Score = (-math.inf, -math.inf)


@dataclass(frozen=True, kw_only=True)
class Objective:
    """The training loss, and the metric for selection and evaluation.

    Args:
        metric: A name of ``METRICS``; None for each method's own rule.
        class_weight: ``"balanced"``, or pairs of a class and its weight. None for weights of one.
        positive: Of two classes the positive one: its name, or its number (``for_graph``). None for the rarer
            one.

    >>> log = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3]]).log()
    >>> labels = torch.tensor([0, 0, 1])
    >>> Objective(metric="roc_auc").score(log, labels), Objective().score(log, labels)
    ((0.5, -0.606...), (0.0, -0.606...))
    """

    metric: str | None = None
    class_weight: Literal["balanced"] | tuple[tuple[str, float], ...] | None = None
    positive: str | int | None = None

    @classmethod
    def from_keywords(
        cls, metric: str | None, class_weight: ClassWeight | None, positive: str | None = None
    ) -> "Objective":
        if class_weight is None or class_weight == BALANCED:
            weights: Literal["balanced"] | None = None if class_weight is None else "balanced"
            return cls(metric=metric, class_weight=weights, positive=positive)
        assert isinstance(class_weight, Mapping)  # other text is rejected by the annotation
        if not class_weight:
            raise ConfigError("class_weight={} has no weight. Use a mapping such as {'fraud': 5}, or None.")
        for name, weight in class_weight.items():
            checks.positive(**{f"class_weight[{name!r}]": weight})
        pairs = tuple((str(name), float(weight)) for name, weight in class_weight.items())
        return cls(metric=metric, class_weight=pairs, positive=positive)

    @property
    def positive_number(self) -> int | None:
        return self.positive if isinstance(self.positive, int) else None

    def for_graph(self, view: Graph) -> "Objective":
        if self.positive is None or isinstance(self.positive, int):
            return self
        return replace(self, positive=class_places(view.class_names, view.num_classes)[self.positive])

    def score(self, log_posteriors: Tensor, labels: Tensor) -> Score:
        """Return the score of log-posteriors (M, C). The likelihood decides between ties.

        Without a metric the likelihood alone decides.
        """
        found, loss = 0.0, weighted_loss(log_posteriors, labels)
        if self.metric is not None:
            classes = labels if labels.ndim == 1 else labels.argmax(dim=1)
            found = metric_value(self.metric, classes, log_posteriors.exp(), self.positive_number)
        return found, -loss

    def weights(self, view: Graph) -> Tensor | None:
        """Return the weight of each class, float32 (C); None for weights of one.

        ``"balanced"`` weights are n / (C n_k) for n_k of n training nodes in class k, as in scikit-learn. A
        class that a mapping does not name has weight one.
        """
        if self.class_weight is None:
            return None
        weights = torch.ones(view.num_classes)
        if not isinstance(self.class_weight, tuple):
            counts = torch.bincount(view.y[view.labeled_in("train")], minlength=view.num_classes)
            there = counts > 0
            weights[there] = float(counts.sum()) / (int(there.sum()) * counts[there])
            return weights
        places = class_places(view.class_names, view.num_classes)
        for name, weight in self.class_weight:
            weights[places[name]] = weight
        return weights

    def targets(self, view: Graph) -> Any:
        """Return the targets of the cross entropy: class numbers, or one-hot rows scaled by class weights.

        The cross entropy of targets t and probabilities p is the sum over the classes of -t log p. A node
        without a label has only zeros, so it contributes nothing.
        """
        weights = self.weights(view)
        if weights is None:
            return view.y

        def of(y: Tensor) -> Tensor:
            return torch.where((y >= 0)[:, None], one_hot(y.clamp_min(0), view.num_classes) * weights, 0.0)

        return map_records(of, view.y)

    def clipped_targets(self, view: Graph, head: TaskHead = MULTICLASS) -> Any:
        """Return ``targets`` with weights divided by the largest, for gradients that are clipped.

        Without class weights they are the labels of the head, such as numbers.

        A weight multiplies a record's gradient before it is clipped, so the clipping norm bounds it whatever
        the weight. A weight above one would therefore have no effect on a gradient of the clipping norm.
        """
        weights = self.weights(view)
        if weights is None:
            return head.labels(view)
        return map_records(lambda targets: targets / weights.max(), self.targets(view))

    def check_graph(self, view: Graph) -> None:
        """Reject unknown classes, and validation labels for which the metric is not defined.

        This is checked before anything is charged. Under units that protect labels it reads none.
        """
        places = class_places(view.class_names, view.num_classes)
        if self.positive is not None:
            check_positive(str(self.positive), places, view.num_classes, " No privacy budget was spent.")
        if isinstance(self.class_weight, tuple):
            unknown = [name for name, _ in self.class_weight if name not in places]
            if unknown:
                raise GraphError(
                    f"class_weight (--class-weight) names the class {unknown[0]!r}, which is not in the "
                    f"graph{checks.suggestion(unknown[0], places)}. No privacy budget was spent."
                )
        if self.metric in RANKING_METRICS and torch.unique(view.y[view.labeled_in("val")]).numel() < 2:
            raise GraphError(
                f"The validation nodes have only one class, so metric={self.metric!r} is undefined. Use "
                "another split, or metric='accuracy'. No privacy budget was spent."
            )


DEFAULT_OBJECTIVE = Objective()


def weighted_loss(log_posteriors: Tensor, labels: Tensor) -> float:
    """Return the mean cross entropy of log-posteriors (M, C), for classes (M) or targets (M, C).

    >>> log = torch.tensor([[0.5, 0.5], [0.25, 0.75]]).log()
    >>> round(weighted_loss(log, torch.tensor([0, 1])), 4)
    0.4904
    >>> round(weighted_loss(log, torch.tensor([[2.0, 0.0], [0.0, 1.0]])), 4)
    0.837
    """
    if labels.ndim == 1:
        return float(nll_loss(log_posteriors, labels))
    return float(-(labels * log_posteriors).sum(dim=1).mean())


def check_positive(name: str, places: Mapping[str, int], classes: int, more: str = "") -> None:
    if classes != 2:
        raise GraphError(
            f"positive={name!r} needs a graph with two classes, but the graph has {classes}. Omit it.{more}"
        )
    if name not in places:
        raise GraphError(
            f"positive={name!r} is not a class of the graph{checks.suggestion(name, places)}. Use one of "
            f"{', '.join(map(repr, list(places)[-2:]))}.{more}"
        )


def check_objective(
    objective: Objective, method: str, unit: str, *, on_records: bool, selects: bool, weighs: bool
) -> None:
    metric, weight = objective.metric, objective.class_weight
    if on_records:
        _reject_label_statistics(objective, unit)
    if metric is not None and not selects:
        raise ConfigError(
            f"metric={metric!r} (--metric) has no effect on {method}, which does not select epochs or "
            "models by validation labels. Omit it."
        )
    if weight is not None and not weighs:
        raise ConfigError(
            f"class_weight (--class-weight) has no effect on {method}, which has no class weights in "
            "its loss. Omit it."
        )


def _reject_label_statistics(objective: Objective, unit: str) -> None:
    if objective.metric is not None:
        raise ConfigError(
            f"metric={objective.metric!r} (--metric) would select models by validation labels, which unit "
            f"{unit!r} protects. Omit it. private_metrics=True (--private-metrics) releases noisy "
            "metrics."
        )
    if objective.class_weight == BALANCED:
        raise ConfigError(
            f"class_weight='balanced' counts labels, which unit {unit!r} protects. Use public weights, such "
            "as class_weight={'fraud': 5} (--class-weight fraud=5)."
        )


MAX_TRAINING_NODES = 1 << 17

_UInt64Array = npt.NDArray[np.uint64]


def sample_training_nodes(view: Graph, nodes: Tensor, max_nodes: int = MAX_TRAINING_NODES) -> Tensor:
    """Return the nodes, or if there are more than the maximum, those whose ids have the smallest hashes.

    >>> graph = Graph.from_edges(torch.eye(9), [0, 1, 2] * 3, [0], [1], directed=False)
    >>> sample_training_nodes(graph, torch.arange(9), max_nodes=4).tolist()
    [3, 4, 5, 7]
    """
    if len(nodes) <= max_nodes:
        return nodes
    hashes = _hashes(nodes.numpy() if view.ids is None else view.ids[nodes.numpy()])
    chosen = np.argsort(hashes, kind="stable")[:max_nodes]
    return nodes[torch.from_numpy(np.sort(chosen))]


def training_sample_description(view: Graph) -> str:
    training = int(view.labeled_in("train").sum())
    if training <= MAX_TRAINING_NODES:
        return ""
    return (
        f"networks learn from {MAX_TRAINING_NODES:,} of the {training:,} labeled training nodes, "
        "chosen by their ids"
    )


def _hashes(ids: npt.NDArray[np.generic]) -> _UInt64Array:
    if ids.dtype.kind in "iu":
        return splitmix64(ids.astype(np.int64).view(np.uint64))
    digests = (hashlib.blake2b(str(one).encode(), digest_size=8).digest() for one in ids.tolist())
    return np.frombuffer(b"".join(digests), dtype="<u8")


def fit_nonprivate(
    network: nn.Module,
    logits: Callable[[Tensor], Tensor],
    view: Graph,
    schedule: TrainingSchedule,
    session: Session,
    *,
    stage: str,
    generator: torch.Generator,
    checkpoint: str | None = None,
    objective: Objective,
    head: TaskHead = MULTICLASS,
    every: bool = False,
) -> None:
    """Train a network on the training nodes, and load the parameters of its best epoch.

    checkpoint: Name in the workspace; by default the stage.
    objective: Class weights, and the metric that selects the epoch; by default that of the schedule.
    every: Train on every node, for networks that compute all of them anyway.
    """
    train_nodes, val_nodes = (
        nodes_of(view.labeled_in(part))
        if every
        else sample_training_nodes(view, nodes_of(view.labeled_in(part)))
        for part in ("train", "val")
    )
    if objective.metric is not None:
        schedule = replace(schedule, select=objective.metric, positive=objective.positive_number)
    history = train(
        network,
        lambda index: logits(index).cpu(),
        head.labels(view) if objective.class_weight is None else objective.targets(view),
        train_nodes,
        val_nodes,
        schedule,
        generator=generator,
        on_epoch=session.epochs(stage, schedule.epochs),
        checkpoint=session.checkpoint(checkpoint or stage),
        head=head,
    )
    session.record(stage, history)

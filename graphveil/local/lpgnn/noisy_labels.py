"""Learning from randomized labels: the loss of LPGNN (Drop), the training loop, and which epoch is kept."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from graphveil.local.lpgnn.randomized_records import known
from graphveil.nn.backbones import Backbone
from graphveil.nn.inputs import PropagatedInputs
from graphveil.propagation import Propagation, propagate
from graphveil.training import EpochRecord, TrainingSchedule
from graphveil.training.adam import Adam

Select = Literal["paper", "likelihood"]
SELECT: tuple[Select, ...] = ("paper", "likelihood")
_TINY = 1e-20
_TRAIN_EXCESS = 1.05  # how far the accuracy on noisy training labels may pass the best possible one


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisyLabels:
    """What is known about labels, and how it came about.

    Args:
        labels: randomized classes, int64 (N), or (N, k) of up to k that a node said, with -1 after them; -1
            where none was told.
        classes: C.
        train, val: the nodes to fit and to select on, int64.
        keep: p, the probability that the label is among what was said: the most that agrees without
            learning the noise.
        blind: how often what is said blindly holds a given class; k/C if None.
        transition: T (C, C), row y the probabilities that each class is said for y; None to learn noisy
            labels as they are.
        smoothing: what labels are propagated by; None for none.
    """

    labels: Tensor
    classes: int
    train: Tensor
    val: Tensor
    keep: float = 1.0
    blind: float | None = None
    transition: Tensor | None = None
    smoothing: Propagation | None = None

    @cached_property
    def reported(self) -> Tensor:
        """Y', float32 (N, C): one for each class that a node said, zero rows where no label was told."""
        several = self.labels.reshape(len(self.labels), -1)
        rows = functional.one_hot(several + 1, self.classes + 1).sum(dim=1)  # the first column counts the -1
        return rows[:, 1:].float()

    @cached_property
    def likelihood(self) -> Tensor:
        """How likely what a node said is for each class, float32 (N, C), relative to saying any set alike."""
        size = self.labels.reshape(len(self.labels), -1).shape[1]
        blind = size / self.classes if self.blind is None else self.blind
        inside, outside = self.keep / blind, (1 - self.keep) / (1 - blind)
        relative_likelihood = self.reported * (inside - outside) + outside
        return torch.where(known(self.labels)[:, None], relative_likelihood, 1.0)

    def targets(self) -> Tensor:
        """Return the classes to learn at the training nodes: the largest of softmax(KProp(Y')).

        A node that no label reaches keeps what it said itself (of several classes, the first).
        """
        own = self.labels.reshape(len(self.labels), -1)[self.train, 0]
        if self.smoothing is None:
            return own
        smooth = self.smoothing.apply(self.reported)[self.train]
        return torch.where(smooth.abs().sum(dim=1) > 0, smooth.argmax(dim=1), own)

    def report_proba(self, proba: Tensor) -> Tensor:
        """Return P(y'|x) = P(y|x) T, the probability that each class is said."""
        return proba if self.transition is None else proba @ self.transition

    def negative_log_likelihood(self, proba: Tensor, nodes: Tensor) -> Tensor:
        """Return the mean of -log of the probability of what nodes said, from a row each of P(y|x).

        Of several classes it is that of the whole set, up to a constant; without T, that one of them is
        right.
        """
        if self.labels.ndim == 1:
            return negative_log(self.report_proba(proba), self.labels[nodes])
        weights = self.reported if self.transition is None else self.likelihood
        return -((proba * weights[nodes]).sum(dim=1) + _TINY).log().mean()

    def agreement(self, scores: Tensor, nodes: Tensor) -> float:
        """Return how often the class of the largest score is among what nodes said."""
        return float(self.reported[nodes, scores[nodes].argmax(dim=1)].mean())

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the cross entropy of P(y~|x) = softmax(KProp(P(y'|x))) at the training nodes.

        Without smoothing it is that of P(y'|x) itself: the softmax belongs to the propagation.
        """
        if self.smoothing is None:
            return self.negative_log_likelihood(logits[self.train].softmax(dim=1), self.train)
        smooth = propagate(self.smoothing, self.report_proba(logits.softmax(dim=1)))
        return functional.cross_entropy(smooth[self.train], targets)


@dataclass(frozen=True)
class EpochScore:
    """An epoch by noisy labels alone: validation loss, and the shares that predictions agree with."""

    val_loss: float
    val_accuracy: float
    train_accuracy: float

    def improves_on(self, kept: "EpochScore | None", keep: float, select: Select = "paper") -> bool:
        """Whether this epoch is better than the one that is kept.

        For ``"likelihood"`` the loss alone counts. For ``"paper"`` all three have to improve, and no accuracy
        may pass what is possible without learning the noise: p, the probability that a label was kept.

        >>> first, later = EpochScore(1.2, 0.3, 0.3), EpochScore(1.1, 0.5, 0.4)
        >>> later.improves_on(first, keep=0.6), later.improves_on(first, keep=0.45)
        (True, False)
        """
        if kept is None:
            return True
        if select == "likelihood":
            return self.val_loss < kept.val_loss
        return (
            self.val_loss < kept.val_loss
            and kept.val_accuracy < self.val_accuracy <= keep
            and kept.train_accuracy < self.train_accuracy <= _TRAIN_EXCESS * keep
        )


def fit_noisy_labels(
    network: Backbone,
    inputs: PropagatedInputs,
    noisy: NoisyLabels,
    schedule: TrainingSchedule,
    *,
    select: Select = "paper",
    on_epoch: Callable[[int], None] = lambda epoch: None,
) -> list[EpochRecord]:
    """Train on all nodes at once and leave the network with the kept epoch's weights, in evaluation mode.

    Args:
        network: on its edges already.
        inputs: what it reads.
        noisy: labels, and what is known about their noise.
        schedule: epochs, learning rate, weight decay.
        select: how :class:`EpochScore` chooses the epoch that is kept.
        on_epoch: called after each epoch.

    Returns:
        One record an epoch; accuracies are on randomized labels.
    """
    optimizer = Adam(network.parameters(), weight_decay=schedule.weight_decay)
    targets, history = noisy.targets(), list[EpochRecord]()
    kept: EpochScore | None = None
    best: dict[str, Tensor] = {}
    hidden = network.first(inputs)
    for epoch in range(schedule.epochs):
        network.train()
        optimizer.zero_grad()
        logits = network.rest(hidden)
        loss = noisy.loss(logits, targets)
        loss.backward()  # type: ignore[no-untyped-call]  # torch ships no annotation for it
        optimizer.step(rate=schedule.learning_rate)
        hidden = network.first(inputs)  # of the new weights: judged now, and learned from next
        train_accuracy = noisy.agreement(logits.detach(), noisy.train)
        judged = _score_epoch(network, hidden, noisy, train_accuracy)
        history.append(EpochRecord(epoch, float(loss.detach()), judged.val_loss, judged.val_accuracy))
        if judged.improves_on(kept, noisy.keep, select):
            kept, best = judged, {k: v.detach().clone() for k, v in network.state_dict().items()}
        on_epoch(epoch + 1)
    network.load_state_dict(best)
    network.eval()
    return history


@torch.no_grad()
def _score_epoch(network: Backbone, hidden: Tensor, noisy: NoisyLabels, train_accuracy: float) -> EpochScore:
    network.eval()
    logits = network.rest(hidden.detach().clone())
    if len(noisy.val) == 0:
        return EpochScore(math.nan, 0.0, train_accuracy)
    loss = noisy.negative_log_likelihood(logits[noisy.val].softmax(dim=1), noisy.val)
    return EpochScore(float(loss), noisy.agreement(logits, noisy.val), train_accuracy)


def negative_log(proba: Tensor, labels: Tensor) -> Tensor:
    """Return the mean of -log of the probability of each row's label."""
    return -(proba.gather(1, labels[:, None]) + _TINY).log().mean()

"""Randomized labels: the loss of LPGNN (Drop), the training loop, the posterior, and false claims."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from graphveil.data import Adjacency
from graphveil.local.randomized_records import known
from graphveil.nn.backbones import Backbone
from graphveil.nn.inputs import PropagatedInputs
from graphveil.propagation import KProp, Propagation, SparseMap, propagate
from graphveil.training import EpochRecord, TrainingSchedule
from graphveil.training.adam import Adam

Select = Literal["paper", "likelihood"]
SELECT: tuple[Select, ...] = ("paper", "likelihood")
_SMALLEST_PROBABILITY = 1e-20
_TRAIN_EXCESS = 1.05  # how far the accuracy on noisy training labels may pass the best possible one
_MIN_CLASS_SHARE = 0.01  # no class is taken to be rarer: the estimate of its share is noisy
_LEAST_ALIKE, _MOST_ALIKE = 0.05, 0.97  # of neighbors, above what chance gives
_TINY = 1e-9
_IMPOSSIBLE = 1e-30  # a likelihood: so that a certain label is certain, and no number infinite
_MIN_Z_SCORE = 1.5  # standard errors; a claim that is taken for a false one costs nothing that was measured
_ROUNDS = 150
_INITIAL_SHARE = 0.1  # of all LDP reports, where expectation maximization begins
_MAX_POISONED_SHARE = 0.5  # of LDP reports are false: beyond, nothing is known of the others


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
        return -((proba * weights[nodes]).sum(dim=1) + _SMALLEST_PROBABILITY).log().mean()

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


# -- training ----


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
    return -(proba.gather(1, labels[:, None]) + _SMALLEST_PROBABILITY).log().mean()


# -- the posterior of a node's class ----


def log_posterior(
    noisy: NoisyLabels, transition: Tensor, adjacency: Adjacency, steps: int, shares: Tensor | None = None
) -> Tensor:
    """Return log P(y_v | randomized labels) of every node, float32 (N, C), in two steps.

    A guess from afar: told labels less their mean, propagated over K lazy hops,

        H = L^K (Y' - m),   L = D^-1/2 (A + I) D^-1/2,   g_v = softmax(H_v / sd(H_v)).

    Without the mean, H does not drift to the largest class as K grows; lazy hops drop what alternates along
    edges, which is noise. Then Bayes' rule at close quarters, with the channel T and shares f of the classes:

        log P(y_v = c) = log f_c + log T[c, y'_v] + theta sum_{u -> v} g_u(c) + const.

    theta = log(h (C - 1) / (1 - h)) is the weight of a neighbor that is alike with probability h. What is
    guessed agrees with what neighbors told with probability q + (p - q) h, which gives h; f is T^-1 times
    the shares of told labels. All of it is computed from what left the randomizer and from public edges.

    Args:
        noisy: the told labels.
        transition: T (C, C).
        adjacency: the public edges.
        steps: K.
        shares: f; by the told labels if None.
    """
    guess = diffusion_prior(noisy, adjacency, steps)
    if shares is None:
        shares = class_shares(noisy.reported[known(noisy.labels)].mean(dim=0), transition)
    ones = torch.ones(len(adjacency.indices), dtype=torch.float32)
    neighbors = SparseMap(adjacency.indptr, adjacency.indices.long(), ones).apply(guess)
    theta = _neighbor_weight(guess.argmax(dim=1), noisy, transition, adjacency)
    return (shares.log() + log_likelihood(noisy) + theta * neighbors).log_softmax(dim=1)


def diffusion_prior(noisy: NoisyLabels, adjacency: Adjacency, steps: int) -> Tensor:
    """Return g, float32 (N, C)."""
    has_label = known(noisy.labels)
    mean = noisy.reported[has_label].mean(dim=0)
    lazy = KProp(adjacency=adjacency, steps=steps, self_loops=True)
    diffused = lazy.apply((noisy.reported - mean) * has_label[:, None])
    return (diffused / diffused.std(dim=1, keepdim=True).clamp(min=_TINY)).softmax(dim=1)


def log_likelihood(noisy: NoisyLabels) -> Tensor:
    """Return the log of :attr:`NoisyLabels.likelihood`, finite, float32 (N, C)."""
    return noisy.likelihood.clamp(min=_IMPOSSIBLE).log()


def class_shares(reported: Tensor, transition: Tensor) -> Tensor:
    """Return the shares of the classes from those of told labels: unbiased, then kept above zero.

    >>> class_shares(torch.tensor([0.7, 0.3]), torch.tensor([[0.8, 0.2], [0.2, 0.8]]))
    tensor([0.8333, 0.1667])
    """
    shares = torch.linalg.solve(transition.t(), reported).clamp(min=_MIN_CLASS_SHARE)
    return torch.div(shares, shares.sum())


def _neighbor_weight(guess: Tensor, noisy: NoisyLabels, transition: Tensor, adjacency: Adjacency) -> float:
    """Return theta."""
    classes = noisy.classes
    source, target = adjacency.edge_index()
    keep, change = float(transition[0, 0]), float(transition[0, 1])
    agrees = noisy.reported[target, guess[source]][known(noisy.labels)[target]]
    chance = 1 / classes
    alike = (float(agrees.mean()) - change) / (keep - change) if len(agrees) else chance
    alike = min(max(alike, chance + _LEAST_ALIKE), _MOST_ALIKE)
    return math.log(alike * (classes - 1) / (1 - alike))


def product_posterior(proba: Tensor, posterior: Tensor) -> Tensor:
    """Return the product of a network's probabilities and a log posterior, normalized.

    >>> product_posterior(torch.tensor([[0.5, 0.5]]), torch.tensor([[0.9, 0.1]]).log())
    tensor([[0.9000, 0.1000]])
    """
    return (functional.threshold(proba, _TINY, _TINY).log() + posterior).softmax(dim=1)


# -- classes that more clients claim than neighbors confirm ----


class PoisoningEstimate(NamedTuple):
    """The share of LDP reports that claim each class whatever their sender's is, (C), and standard errors."""

    shares: Tensor
    errors: Tensor

    @property
    def excess(self) -> Tensor:
        """The shares beyond their median, where that is more than chance would make, (C).

        What a guess is too sure of looks like claims of all classes alike, and the median takes that away.
        """
        beyond = self.shares - self.shares.median()
        kept: Tensor = torch.where(beyond > _MIN_Z_SCORE * self.errors, beyond, 0.0)
        return kept * min(1.0, _MAX_POISONED_SHARE / max(float(kept.sum()), _TINY))


def poisoning_estimate(noisy: NoisyLabels, predicted: Tensor) -> PoisoningEstimate:
    """Return how many LDP reports claim each class, whatever the class of their sender is.

    A share a_z of LDP reports says z, and the rest obeys the exact channel:

        P(said_v) = (1 - sum_z a_z) sum_c b_v(c) P(said_v | c) + sum_z a_z P(said_v | z is claimed),

    b_v(c) ~ g_c P_v(c), where P_v is what others' labels and public edges foretell of v. The weights g_c
    leave open how common a class is, so that counts alone show no claim: what shows it is that a class is
    said as often where neighbors are surely of another one. g and a are the likeliest ones (expectation
    maximization, iterative scaling). Errors are those of the observed information.

    Args:
        noisy: the told labels.
        predicted: P (N, C), of nodes that told a label by labels of others.
    """
    has_label = known(noisy.labels)
    likely, before = noisy.likelihood[has_label].double(), predicted[has_label].double().clamp(min=_TINY)
    report_ratio = noisy.reported[has_label].double() / _base_rate(noisy)
    scale = torch.ones(noisy.classes, dtype=torch.float64)
    shares = torch.full_like(scale, _INITIAL_SHARE / noisy.classes)
    for _ in range(_ROUNDS):
        guess = before * scale
        guess = guess / guess.sum(dim=1, keepdim=True)
        each = (1 - shares.sum()) * guess * likely
        genuine = each.sum(dim=1)
        total = genuine + report_ratio @ shares
        responsibilities = each / total[:, None]
        scale = scale * (responsibilities.sum(dim=0) + _TINY) / ((genuine / total) @ guess + _TINY)
        shares = shares * (report_ratio / total[:, None]).mean(dim=0)
    slope = (report_ratio - (guess * likely).sum(dim=1, keepdim=True)) / total[:, None]
    information = slope.t() @ slope + _TINY * torch.eye(noisy.classes, dtype=torch.float64)
    return PoisoningEstimate(shares.float(), torch.linalg.inv(information).diagonal().sqrt().float())


def shares_without_poisoning(poisoned_shares: Tensor, noisy: NoisyLabels, transition: Tensor) -> Tensor:
    """Return the shares of the classes among those who claim nothing.

    Said are f T by them and a A by the others, A[z, c] the chance that c is said along with a claim of z.
    """
    has_label = known(noisy.labels)
    blind = _base_rate(noisy)
    inside, outside = noisy.keep / blind, (1 - noisy.keep) / (1 - blind)
    along = (transition / blind - outside) / (inside - outside)
    reported = noisy.reported[has_label].mean(dim=0) - poisoned_shares @ along
    return class_shares(reported / (1 - poisoned_shares.sum()), transition)


def _base_rate(noisy: NoisyLabels) -> float:
    """Return how often what is said blindly holds a given class."""
    size = noisy.labels.reshape(len(noisy.labels), -1).shape[1]
    return size / noisy.classes if noisy.blind is None else noisy.blind

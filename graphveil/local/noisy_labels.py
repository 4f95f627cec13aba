"""Learning from randomized labels: the loss of LPGNN (Drop), training, the posterior, and poisoning."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from graphveil.core.clipping.dpsgd import Adam
from graphveil.core.edges.adjacency import Adjacency
from graphveil.local.reports import known
from graphveil.nn.layers import multiply
from graphveil.nn.lpgnn import Backbone, PropagatedInputs
from graphveil.nn.message_passing import KProp, Propagation, SparseMap
from graphveil.training import EpochRecord, TrainingSchedule

Select = Literal["paper", "likelihood", "calibrated"]
SELECT: tuple[Select, ...] = ("paper", "likelihood", "calibrated")
_SHARES = 20  # number of shares that are tried for calibration
_SMALLEST_PROBABILITY = 1e-20
_TRAIN_EXCESS = 1.05  # tolerance of the bound on the accuracy on noisy training labels
_MIN_CLASS_SHARE = 0.01  # minimum class share, because the estimate is noisy
_MIN_ABOVE_CHANCE, _MAX_HOMOPHILY = 0.05, 0.97  # range of estimated homophily
_TINY = 1e-9
_IMPOSSIBLE = 1e-30  # minimum likelihood: keeps logarithms finite
_MIN_Z_SCORE = 1.5  # in standard errors; false positives had no measurable cost
_ROUNDS = 150
_INITIAL_SHARE = 0.1  # initial poisoned share in expectation maximization
_MAX_POISONED_SHARE = 0.5  # of LDP reports; above, genuine reports cannot be identified


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisyLabels:
    """Randomized labels, and the parameters of their noise.

    Args:
        labels: Randomized classes, int64 (N), or (N, k) if nodes report up to k classes, padded with -1.
            Nodes without a reported label have -1.
        keep: p, the probability that the report contains the label: the largest agreement without overfitting
            the noise.
        blind: Probability that a report independent of the label contains a given class; k/C if None.
        transition: T (C, C): row y holds the probabilities that each class is reported for y. None to learn
            noisy labels without correction.
        holds_out: Whether targets ignore the reports of ``val``, so that ``val`` can compare configurations.
    """

    labels: Tensor
    classes: int
    train: Tensor
    val: Tensor
    keep: float = 1.0
    blind: float | None = None
    transition: Tensor | None = None
    smoothing: Propagation | None = None
    holds_out: bool = False

    @cached_property
    def reported(self) -> Tensor:
        """Y', float32 (N, C): one for each reported class, zero rows for nodes without a report."""
        several = self.labels.reshape(len(self.labels), -1)
        rows = functional.one_hot(several + 1, self.classes + 1).sum(dim=1)  # the first column counts the -1
        return rows[:, 1:].float()

    @cached_property
    def likelihood(self) -> Tensor:
        """Likelihood of each node's report for each class, float32 (N, C), relative to a uniform report."""
        inside, outside = self.ratios
        relative_likelihood = self.reported * (inside - outside) + outside
        return torch.where(known(self.labels)[:, None], relative_likelihood, 1.0)

    @property
    def base_rate(self) -> float:
        size = self.labels.reshape(len(self.labels), -1).shape[1]
        return size / self.classes if self.blind is None else self.blind

    @property
    def ratios(self) -> tuple[float, float]:
        """Likelihood ratios of a class in the report and of another one, to an independent report."""
        return self.keep / self.base_rate, (1 - self.keep) / (1 - self.base_rate)

    def targets(self) -> Tensor:
        """Return the target classes of the training nodes: the largest of softmax(KProp(Y')).

        A node that no propagated label reaches keeps its own reported label (the first of several classes).
        """
        own = self.labels.reshape(len(self.labels), -1)[self.train, 0]
        if self.smoothing is None:
            return own
        reported = self.reported.index_fill(0, self.val, 0.0) if self.holds_out else self.reported
        smooth = self.smoothing.apply(reported)[self.train]
        return torch.where(smooth.abs().sum(dim=1) > 0, smooth.argmax(dim=1), own)

    def report_proba(self, proba: Tensor) -> Tensor:
        """Return P(y'|x) = P(y|x) T, the probability that each class is reported."""
        return proba if self.transition is None else proba @ self.transition

    def negative_log_likelihood(self, proba: Tensor, nodes: Tensor) -> Tensor:
        """Return the mean negative log-likelihood of the reports of nodes, from one row of P(y|x) each.

        If nodes report several classes, it is that of the whole set, up to a constant. Without T, it is that
        of one reported class being correct.
        """
        if self.labels.ndim == 1:
            reported = self.report_proba(proba).gather(1, self.labels[nodes, None])
            return -(reported + _SMALLEST_PROBABILITY).log().mean()
        weights = self.reported if self.transition is None else self.likelihood
        return -((proba * weights[nodes]).sum(dim=1) + _SMALLEST_PROBABILITY).log().mean()

    def likelihood_ratio(self, proba: Tensor, nodes: Tensor) -> Tensor:
        """Return the likelihood of the reports of nodes, relative to uniform reports, float32 (nodes).

        ``proba`` has one row of P(y|x) per node, or of P(y'|x) without T.
        """
        weights = self.reported / self.base_rate if self.transition is None else self.likelihood
        return (proba * weights[nodes]).sum(dim=1)

    def agreement(self, scores: Tensor, nodes: Tensor) -> float:
        return float(self.reported[nodes, scores[nodes].argmax(dim=1)].mean())

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the cross entropy of P(y~|x) = softmax(KProp(P(y'|x))) at the training nodes.

        Without smoothing it is that of P(y'|x): the softmax belongs to the propagation.
        """
        if self.smoothing is None:
            return self.negative_log_likelihood(logits[self.train].softmax(dim=1), self.train)
        smooth = multiply(self.smoothing, self.report_proba(logits.softmax(dim=1)))
        return functional.cross_entropy(smooth[self.train], targets)


# -- training ----


@dataclass(frozen=True)
class EpochScore:
    """Scores of an epoch on noisy labels: validation loss, and agreement with reported labels."""

    val_loss: float
    val_accuracy: float
    train_accuracy: float

    def improves_on(self, kept: "EpochScore | None", keep: float, select: Select = "paper") -> bool:
        """Return whether this epoch is better than the best epoch so far.

        ``"likelihood"`` and ``"calibrated"`` compare only the loss. ``"paper"`` requires all three scores to
        improve, and no accuracy above the bound without overfitting the noise: p, the probability that a
        label is kept.

        >>> first, later = EpochScore(1.2, 0.3, 0.3), EpochScore(1.1, 0.5, 0.4)
        >>> later.improves_on(first, keep=0.6), later.improves_on(first, keep=0.45)
        (True, False)
        """
        if kept is None:
            return True
        if select != "paper":
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
    """Train full-batch; leave the network in evaluation mode with the parameters of the best epoch."""
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
        hidden = network.first(inputs)  # with the new parameters: scored now, and used by the next step
        train_accuracy = noisy.agreement(logits.detach(), noisy.train)
        judged = _score_epoch(network, hidden, noisy, train_accuracy, calibrated=select == "calibrated")
        history.append(EpochRecord(epoch, float(loss.detach()), judged.val_loss, judged.val_accuracy))
        if judged.improves_on(kept, noisy.keep, select):
            kept, best = judged, {k: v.detach().clone() for k, v in network.state_dict().items()}
        on_epoch(epoch + 1)
    network.load_state_dict(best)
    network.eval()
    return history


@torch.no_grad()
def _score_epoch(
    network: Backbone, hidden: Tensor, noisy: NoisyLabels, train_accuracy: float, *, calibrated: bool
) -> EpochScore:
    network.eval()
    logits = network.rest(hidden.detach().clone())
    if len(noisy.val) == 0:
        return EpochScore(math.nan, 0.0, train_accuracy)
    proba = logits[noisy.val].softmax(dim=1)
    loss = noisy.negative_log_likelihood(proba, noisy.val)
    if calibrated:
        loss = -calibrated_log_likelihood(noisy.likelihood_ratio(proba, noisy.val)).mean()
    return EpochScore(float(loss), noisy.agreement(logits, noisy.val), train_accuracy)


def calibrated_log_likelihood(ratios: Tensor, baseline: Tensor | float = 1.0) -> Tensor:
    """Return the log-likelihood of reports after calibration of the predictions, float32 (nodes).

    Predictions are mixed with a baseline. The share of the mixture maximizes the likelihood, so that an
    overconfident prediction is not worse than the baseline.

    >>> calibrated_log_likelihood(torch.tensor([2.0, 2.0, 0.0])).sum() > 0
    tensor(True)
    """
    shares = torch.linspace(1 / _SHARES, 1, _SHARES)[:, None]
    mixed = (shares * ratios + (1 - shares) * baseline).clamp(min=_TINY).log()
    best: Tensor = mixed[mixed.sum(dim=1).argmax()]
    return best


# -- the posterior of a node's class ----


def log_posterior(
    noisy: NoisyLabels, transition: Tensor, adjacency: Adjacency, steps: int, shares: Tensor | None = None
) -> Tensor:
    """Return log P(y_v | randomized labels) of every node, float32 (N, C), in two steps.

    First, a diffusion prior: reported labels minus their mean, propagated over K lazy hops,

        H = L^K (Y' - m),   L = D^-1/2 (A + I) D^-1/2,   g_v = softmax(H_v / sd(H_v)).

    Without the mean, H does not drift to the largest class as K grows. Lazy hops suppress components that
    alternate along edges, which are noise. Second, Bayes' rule with direct neighbors, the channel T and class
    shares f:

        log P(y_v = c) = log f_c + log T[c, y'_v] + theta sum_{u -> v} g_u(c) + const.

    theta = log(h (C - 1) / (1 - h)) is the weight of a neighbor that has the same class with probability h.
    The prior agrees with the reports of neighbors with probability q + (p - q) h, which gives h. f is T^-1
    times the shares of reported labels.

    Privacy:
        Reads: LDP reports and public edges. Charges: nothing (post-processing).
    """
    guess = diffusion_prior(noisy, adjacency, steps)
    if shares is None:
        shares = reported_shares(noisy, transition)
    ones = torch.ones(len(adjacency.indices), dtype=torch.float32)
    neighbors = SparseMap(adjacency.indptr, adjacency.indices.long(), ones).apply(guess)
    source, target = adjacency.edge_index()
    keep, change, chance = float(transition[0, 0]), float(transition[0, 1]), 1 / noisy.classes
    agrees = noisy.reported[target, guess.argmax(dim=1)[source]][known(noisy.labels)[target]]
    alike = (float(agrees.mean()) - change) / (keep - change) if len(agrees) else chance
    alike = min(max(alike, chance + _MIN_ABOVE_CHANCE), _MAX_HOMOPHILY)
    theta = math.log(alike * (noisy.classes - 1) / (1 - alike))
    return (shares.log() + log_likelihood(noisy) + theta * neighbors).log_softmax(dim=1)


def diffusion_prior(noisy: NoisyLabels, adjacency: Adjacency, steps: int) -> Tensor:
    has_label = known(noisy.labels)
    mean = noisy.reported[has_label].mean(dim=0)
    lazy = KProp(adjacency=adjacency, steps=steps, self_loops=True)
    diffused = lazy.apply((noisy.reported - mean) * has_label[:, None])
    return (diffused / diffused.std(dim=1, keepdim=True).clamp(min=_TINY)).softmax(dim=1)


def log_likelihood(noisy: NoisyLabels) -> Tensor:
    return noisy.likelihood.clamp(min=_IMPOSSIBLE).log()


def class_shares(reported: Tensor, transition: Tensor) -> Tensor:
    """Return unbiased class shares from the shares of reported labels, clamped above zero.

    >>> class_shares(torch.tensor([0.7, 0.3]), torch.tensor([[0.8, 0.2], [0.2, 0.8]]))
    tensor([0.8333, 0.1667])
    """
    shares = torch.linalg.solve(transition.t(), reported).clamp(min=_MIN_CLASS_SHARE)
    return torch.div(shares, shares.sum())


def reported_shares(noisy: NoisyLabels, transition: Tensor) -> Tensor:
    return class_shares(noisy.reported[known(noisy.labels)].mean(dim=0), transition)


def product_posterior(proba: Tensor, posterior: Tensor) -> Tensor:
    """Return the product of a network's probabilities and a log posterior, normalized.

    >>> product_posterior(torch.tensor([[0.5, 0.5]]), torch.tensor([[0.9, 0.1]]).log())
    tensor([[0.9000, 0.1000]])
    """
    return (functional.threshold(proba, _TINY, _TINY).log() + posterior).softmax(dim=1)


# -- poisoning: classes with more reports than neighbors support ----


class PoisoningEstimate(NamedTuple):
    """Shares of LDP reports that claim a class independently of the sender's class, and standard errors."""

    shares: Tensor
    errors: Tensor

    @property
    def excess(self) -> Tensor:
        """Shares above their median if statistically significant, else 0, (C).

        An overconfident prediction looks like claims of all classes equally; subtracting the median corrects
        this.
        """
        beyond = self.shares - self.shares.median()
        kept: Tensor = torch.where(beyond > _MIN_Z_SCORE * self.errors, beyond, 0.0)
        return kept * min(1.0, _MAX_POISONED_SHARE / max(float(kept.sum()), _TINY))


def poisoning_estimate(noisy: NoisyLabels, predicted: Tensor) -> PoisoningEstimate:
    """Estimate how many LDP reports claim each class independently of the true class of their sender.

    A share a_z of LDP reports claims class z, and the others follow the exact channel:

        P(report_v) = (1 - sum_z a_z) sum_c b_v(c) P(report_v | c) + sum_z a_z P(report_v | z is claimed),

    where b_v(c) ~ g_c P_v(c), and P_v is the prediction for v from other nodes' labels and public edges. The
    weights g_c leave class frequencies free, so that counts alone are no evidence of poisoning. The evidence
    is that a class is reported equally often where the neighbors clearly have another class. g and a are
    maximum likelihood estimates (expectation maximization, iterative scaling). Errors are from the observed
    information.
    """
    has_label = known(noisy.labels)
    likely, before = noisy.likelihood[has_label].double(), predicted[has_label].double().clamp(min=_TINY)
    report_ratio = noisy.reported[has_label].double() / noisy.base_rate
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
    """Return the class shares among the clients that are not malicious.

    Their reports have the shares f T, and those of malicious clients a A. A[z, c] is the probability that a
    report that claims z contains c.
    """
    has_label = known(noisy.labels)
    inside, outside = noisy.ratios
    claimed = (transition / noisy.base_rate - outside) / (inside - outside)
    reported = noisy.reported[has_label].mean(dim=0) - poisoned_shares @ claimed
    return class_shares(reported / (1 - poisoned_shares.sum()), transition)

"""Learning from randomized labels: the loss of LPGNN (Drop), training, poisoning, and posteriors of classes.

Several posteriors of a node's class are mixed, weighted by their likelihood on held-out labels.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal, NamedTuple, Self
from weakref import WeakKeyDictionary

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn import functional

from graphveil._util import checks
from graphveil._util.clustering import Integers, Matrix, louvain
from graphveil.core.clipping.dpsgd import Adam
from graphveil.core.edges.adjacency import Adjacency, AdjacencyVersion
from graphveil.errors import ConfigError
from graphveil.local.reports import UNKNOWN, known
from graphveil.mechanisms import LabelMechanism
from graphveil.nn.layers import SparseRows, multiply
from graphveil.nn.lpgnn import Backbone, PropagatedInputs
from graphveil.nn.message_passing import Propagation, k_prop
from graphveil.training import EpochRecord, TrainingSchedule, copied_state

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
_POISONING_ROUNDS = 150
_INITIAL_SHARE = 0.1  # initial poisoned share in expectation maximization
_MAX_POISONED_SHARE = 0.5  # of LDP reports; above, genuine reports cannot be identified


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisyLabels:
    """Randomized labels, and the parameters of their noise.

    Args:
        labels: Randomized classes, int64 (N), or (N, k) if nodes report up to k classes, padded with -1.
            Nodes without a reported label have -1.
        law: Mechanism of the reports.
        missing: Share of reporting nodes without a label.
        corrected: Whether the loss includes the label noise (forward correction).
        holds_out: Whether targets ignore the reports of ``val``, so that ``val`` can compare configurations.
    """

    labels: Tensor
    law: LabelMechanism
    train: Tensor
    val: Tensor
    missing: float = 0.0
    corrected: bool = True
    smoothing: Propagation | None = None
    holds_out: bool = False

    @property
    def classes(self) -> int:
        return self.law.classes

    @cached_property
    def keep(self) -> float:
        """p, the probability that the report contains the label: the most that a fit should agree."""
        return self.law.keep_with(self.missing)

    @cached_property
    def transition(self) -> Tensor:
        """T (C, C): row y holds the probabilities that each class is reported for y."""
        return torch.from_numpy(self.law.transition_with(self.missing)).float()

    @cached_property
    def reported(self) -> Tensor:
        """Y', float32 (N, C): one for each reported class, zero rows for nodes without a report."""
        return torch.from_numpy(self.law.members(self.labels.numpy())).float()

    @cached_property
    def likelihood(self) -> Tensor:
        """Likelihood of each node's report for each class, float32 (N, C), relative to a uniform report."""
        inside, outside = self.law.ratios(self.missing)
        relative_likelihood = self.reported * (inside - outside) + outside
        return torch.where(known(self.labels)[:, None], relative_likelihood, 1.0)

    @property
    def shares(self) -> Tensor:
        """Unbiased class shares of the reporting nodes, clamped above zero, (C)."""
        return class_shares(self.reported[known(self.labels)].mean(dim=0), self.transition)

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
        return proba @ self.transition if self.corrected else proba

    def negative_log_likelihood(self, proba: Tensor, nodes: Tensor) -> Tensor:
        """Return the mean negative log-likelihood of the reports of nodes, from one row of P(y|x) each.

        If nodes report several classes, it is that of the whole set, up to a constant. Without T, it is that
        of one reported class being correct.
        """
        if self.labels.ndim == 1:
            reported = self.report_proba(proba).gather(1, self.labels[nodes, None])
            return -(reported + _SMALLEST_PROBABILITY).log().mean()
        weights = self.likelihood if self.corrected else self.reported
        return -((proba * weights[nodes]).sum(dim=1) + _SMALLEST_PROBABILITY).log().mean()

    def likelihood_ratio(self, proba: Tensor, nodes: Tensor) -> Tensor:
        """Return the likelihood of the reports of nodes, relative to uniform reports, float32 (nodes).

        ``proba`` has one row of P(y|x) per node, or of P(y'|x) without T.
        """
        weights = self.likelihood if self.corrected else self.reported / self.law.blind
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
            kept, best = judged, copied_state(network)
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


def log_likelihood(noisy: NoisyLabels) -> Tensor:
    return noisy.likelihood.clamp(min=_IMPOSSIBLE).log()


def class_shares(reported: Tensor, transition: Tensor) -> Tensor:
    """Return unbiased class shares from the shares of reported labels, clamped above zero.

    >>> class_shares(torch.tensor([0.7, 0.3]), torch.tensor([[0.8, 0.2], [0.2, 0.8]]))
    tensor([0.8333, 0.1667])
    """
    shares = torch.linalg.solve(transition.t(), reported).clamp(min=_MIN_CLASS_SHARE)
    return torch.div(shares, shares.sum())


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
    report_ratio = noisy.reported[has_label].double() / noisy.law.blind
    scale = torch.ones(noisy.classes, dtype=torch.float64)
    shares = torch.full_like(scale, _INITIAL_SHARE / noisy.classes)
    for _ in range(_POISONING_ROUNDS):
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


def shares_without_poisoning(poisoned_shares: Tensor, noisy: NoisyLabels) -> Tensor:
    """Return the class shares among the clients that are not malicious.

    Their reports have the shares f T, and those of malicious clients a A. A[z, c] is the probability that a
    report that claims z contains c.
    """
    has_label = known(noisy.labels)
    inside, outside = noisy.law.ratios(noisy.missing)
    claimed = (noisy.transition / noisy.law.blind - outside) / (inside - outside)
    reported = noisy.reported[has_label].mean(dim=0) - poisoned_shares @ claimed
    return class_shares(reported / (1 - poisoned_shares.sum()), noisy.transition)


Prior = Literal["mixture", "robust", "diffusion", "nothing"]
PredictionRule = Literal["network", "posterior", "product", "shares"]
PREDICTION_RULES: tuple[PredictionRule, ...] = ("network", "posterior", "product")
HOMOPHILY_LEVELS = (0.45, 0.65)  # two candidate levels; mixture weights select between them
RESOLUTIONS = (1.0, 2.0, 4.0, 8.0, 16.0)
FOLDS = 3
Steps = int | Literal["auto"]  # number of hops
AUTO: Literal["auto"] = "auto"
_REACH, _HOPS_RANGE = 64.0, (2, 16)  # of automatic hops
_PRIOR_NODES = 5.0  # prior strength of the overall class shares, in nodes
_TRUST = 0.5  # weight of community evidence, which partly repeats that of edges
_ROUNDS = 15
_DAMPING = 0.5  # share of the old message in each new one; without it, messages oscillate
# Cached partitions of edges, which are public. Splits and further fits of one graph reuse them.
_CACHE: WeakKeyDictionary[AdjacencyVersion, dict[float, Integers]] = WeakKeyDictionary()


# -- belief propagation ----


@dataclass(frozen=True, eq=False)
class DirectedPairs:
    """Each public edge in both directions, ordered by target.

    Args:
        reverse: Index of each pair's opposite direction, int64.

    >>> from graphveil.data import Adjacency
    >>> path = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False)
    >>> pairs = DirectedPairs.from_edges(path)
    >>> pairs.source.tolist(), pairs.target.tolist(), pairs.reverse.tolist()
    ([1, 0, 2, 1], [0, 1, 1, 2], [1, 0, 3, 2])
    """

    source: Tensor
    target: Tensor
    reverse: Tensor
    degrees: Tensor

    @classmethod
    def from_edges(cls, adjacency: Adjacency) -> Self:
        """Return the pairs of public edges, whose directions are ignored."""
        both = undirected(adjacency)
        degrees = np.diff(both.indptr)
        target = np.repeat(np.arange(adjacency.num_nodes), degrees)
        source = both.indices.astype(np.int64)
        reverse = np.lexsort((target, source))
        return cls(
            source=torch.from_numpy(source),
            target=torch.from_numpy(target),
            reverse=torch.from_numpy(reverse),
            degrees=torch.from_numpy(degrees).float(),
        )


def belief_propagation(
    evidence: Tensor, pairs: DirectedPairs, *, homophily: float, start: Tensor, rounds: int = 25
) -> Tensor:
    """Return log marginals of the classes, float32 (N, C), by belief propagation (Decelle et al. 2011).

    The model is the degree-corrected stochastic block model with one block per class. With homophily h,
    w_in = h C and w_out = (1 - h) C/(C - 1) are the edge rates within and between classes, relative to the
    configuration model. Messages along edges and a field for pairs without an edge are:

        m_{u->v}(c) = log(1 + (w_in/w_out - 1) b_{u\\v}(c)),
        b_v(c) ~ exp(evidence_v(c) + sum_u m_{u->v}(c) - (w_in - w_out) d_v D_c),   D_c = sum_u d_u b_u(c)/2m.

    b_{u\\v} excludes the message from v. The field accounts for classes with more edges, where an edge is
    weaker evidence. Without it, all nodes converge to the largest class, because at small budgets the
    messages of neighbors outweigh a node's own label.
    """
    classes = evidence.shape[1]
    inside, outside = homophily * classes, (1 - homophily) * classes / (classes - 1)
    stress, field = inside / outside - 1, (inside - outside) / pairs.degrees.sum().clamp(min=1)
    messages = _centered(torch.log1p(stress * start[pairs.source]))
    found = evidence.softmax(dim=1)
    for _ in range(rounds):
        logits = _node_logits(evidence, found, messages, pairs, field)
        found = logits.softmax(dim=1)
        without = (logits[pairs.source] - messages[pairs.reverse]).softmax(dim=1)
        messages.mul_(_DAMPING).add_(_centered(torch.log1p(stress * without)), alpha=1 - _DAMPING)
    return _node_logits(evidence, found, messages, pairs, field).log_softmax(dim=1)


def _node_logits(
    evidence: Tensor, found: Tensor, messages: Tensor, pairs: DirectedPairs, field: Tensor
) -> Tensor:
    incoming = torch.zeros_like(evidence).index_add_(0, pairs.target, messages)
    field_term = field * (pairs.degrees @ found)
    return evidence + incoming - pairs.degrees[:, None] * field_term


def _centered(messages: Tensor) -> Tensor:
    """Return messages minus their mean over classes, which does not affect the marginals."""
    return messages - messages.mean(dim=1, keepdim=True)


# -- communities ----


def communities(adjacency: Adjacency, *, resolution: float = 1.0) -> Integers:
    """Return the community of each node, by Louvain's method (Blondel et al. 2008), int64 (N,).

    It maximizes modularity at resolution g (Reichardt, Bornholdt 2006), greedily:

        sum_{u, v in one community} (A_uv - g d_u d_v / 2m).

    In the order of their numbers, nodes move to the neighboring community with the largest gain, until few
    nodes move. Then communities become nodes, and this repeats until nothing moves. Larger g gives smaller
    communities. Edge directions are ignored. The result depends only on the edges and the order of nodes.

    Privacy:
        Reads: public edges, and neither features nor labels. Charges: nothing.

    >>> from graphveil.data import Adjacency
    >>> ends = [0, 1, 2, 3, 4, 5, 2], [1, 2, 0, 4, 5, 3, 3]  # two triangles and a bridge
    >>> pair = Adjacency.from_edges(*ends, num_nodes=6, directed=False)
    >>> communities(pair).tolist()
    [0, 0, 0, 1, 1, 1]
    """
    checks.positive(resolution=resolution)
    kept = _CACHE.setdefault(adjacency.version, {})
    if resolution not in kept:
        kept[resolution] = louvain(undirected(adjacency), resolution)
    return kept[resolution]


def undirected(adjacency: Adjacency) -> Matrix:
    """Return the undirected adjacency as a symmetric float64 ``csr_array`` without self-loops."""
    indptr, indices = adjacency.indptr.numpy(), adjacency.indices.numpy()
    shape = (adjacency.num_nodes, adjacency.num_nodes)
    one_way = sparse.csr_array((np.ones(len(indices)), indices, indptr), shape=shape)
    both = (one_way + one_way.T).tocsr()
    both.setdiag(0)
    both.eliminate_zeros()
    both.data[:] = 1.0
    both.sort_indices()
    return both


# -- the mixture ----


def check_steps(least: int, **named: Steps) -> None:
    for name, value in named.items():
        if isinstance(value, str) and value != AUTO:
            raise ConfigError(
                f"{name}={value!r} must be 'auto' or an integer of at least {least}, for example {name}=4."
            )
        if not isinstance(value, str):
            checks.integer_at_least(least, **{name: value})


def mean_degree(adjacency: Adjacency) -> float:
    return len(adjacency.indices) / max(1, adjacency.num_nodes)


def diffusion_hops(adjacency: Adjacency) -> int:
    """Return the number of hops of the diffusion: 64 / mean degree, at least 2 and at most 16.

    On a dense graph two hops reach many reports, and more hops average over nodes of other classes. The
    constants were fitted to eight public graphs. Edges and sizes are public.

    >>> path = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False)
    >>> diffusion_hops(path)
    16
    """
    fewest, most = _HOPS_RANGE
    return min(max(round(_REACH / max(mean_degree(adjacency), 1.0)), fewest), most)


@dataclass(frozen=True, eq=False)
class EdgeContext:
    """Public facts about the edges of a graph, computed once for all candidates."""

    adjacency: Adjacency
    steps: int

    @cached_property
    def pairs(self) -> DirectedPairs:
        return DirectedPairs.from_edges(self.adjacency)

    @cached_property
    def partitions(self) -> tuple[Tensor, ...]:
        return tuple(torch.from_numpy(communities(self.adjacency, resolution=each)) for each in RESOLUTIONS)


@dataclass(frozen=True, eq=False)
class PosteriorMixture:
    """A mixture of candidate posteriors.

    Args:
        log_proba: log P(y_v | all reported labels), float32 (N, C).
        held_out: The same for reporting nodes, without the reports of their own fold.
    """

    log_proba: Tensor
    held_out: Tensor
    weights: dict[str, float]
    parts: tuple[Tensor, ...] = ()


def mixed_posterior(
    noisy: NoisyLabels,
    edge_context: EdgeContext,
    generator: torch.Generator,
    names: Sequence[str],
    *,
    robust: bool = False,
) -> PosteriorMixture:
    """Return a mixture of candidate posteriors, weighted by the likelihood of held-out reported labels.

    The reporting nodes are split into three folds. Each fold is held out in turn. Candidate k predicts
    P_k(y_v) for its nodes from the other folds. By the exact channel, the report of v then has the likelihood

        e_kv = sum_c P_k(y_v = c) P(report_v | c).

    The weights maximize sum_v log sum_k w_k e_kv (with one node's worth of equal weights). They mix the
    candidates that are computed from all labels:

        P(y_v) = sum_k w_k P_k(y_v).

    A candidate that does not fit the graph gets a small weight. No test label is read.

    With ``robust``, held-out predictions are used to find classes with more reports than neighbors support
    (``poisoning_estimate``). If there are any, they are removed from the class shares, and the candidates are
    computed again.

    Privacy:
        Reads: LDP reports and public edges. Charges: nothing (post-processing).
    """
    labeled, parts = known(noisy.labels).nonzero()[:, 0], held_out_folds(noisy, generator)
    whole, without = _held_out_posteriors(noisy, edge_context, parts, names)
    if robust:
        poisoned = poisoning_estimate(noisy, without.exp().mean(dim=0)).excess
        if bool(poisoned.any()):
            whole, without = _held_out_posteriors(noisy, edge_context, parts, names, poisoned)
    likely = (without[:, labeled].exp() * noisy.likelihood[labeled]).sum(dim=2).t()
    weights = mixture_weights(likely)
    log_weights = weights.log()[:, None, None]
    return PosteriorMixture(
        log_proba=(whole + log_weights).logsumexp(dim=0),
        held_out=(without + log_weights).logsumexp(dim=0),
        weights=dict(zip(names, weights.tolist(), strict=True)),
        parts=parts,
    )


def held_out_folds(noisy: NoisyLabels, generator: torch.Generator) -> tuple[Tensor, ...]:
    labeled = known(noisy.labels).nonzero()[:, 0]
    fold_of = torch.randperm(len(labeled), generator=generator) % FOLDS
    return tuple(labeled[fold_of == fold] for fold in range(FOLDS))


def _held_out_posteriors(
    noisy: NoisyLabels,
    edge_context: EdgeContext,
    parts: tuple[Tensor, ...],
    names: Sequence[str],
    poisoned: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the candidates from all labels, and for each fold from the other folds, (K, N, C) each."""
    whole = PosteriorContext(noisy, edge_context, poisoned).candidates(names)
    without, count = torch.zeros_like(whole), sum(map(len, parts))
    for away in parts:
        if 0 < len(away) < count:
            left = without_labels(noisy, away)
            found = PosteriorContext(left, edge_context, poisoned).candidates(names)
            without[:, away] = found[:, away]
    return whole, without


def choose_prediction_rule(
    network: Tensor, found: PosteriorMixture, noisy: NoisyLabels, shares: Tensor | None = None
) -> PredictionRule:
    """Select the prediction rule: network, posterior, their product, or class shares.

    The criterion is the likelihood of held-out reports,

        sum_c P(y_v = c) P(report_v | c).

    Another rule than the posterior needs a gain of more than one standard error and more than one nat. One
    percentage point of accuracy is only a few nats, and the posterior has no network that noise can train
    badly. A product counts evidence twice that both use; held-out reports show this. A rule that gains at
    most two nats over class shares has found nothing in the graph, and class shares are the prediction.
    """
    labeled, log_evidence = known(noisy.labels), dict[PredictionRule, Tensor]()
    if not bool(labeled.any()):
        return "posterior"
    likelihood = noisy.likelihood[labeled]
    baseline = None if shares is None else likelihood @ shares
    for rule in PREDICTION_RULES:
        proba = combine_predictions(rule, network, found.held_out)[labeled]
        ratios = (proba * likelihood).sum(dim=1).clamp(min=_TINY)
        log_evidence[rule] = ratios.log() if baseline is None else calibrated_log_likelihood(ratios, baseline)
    best: PredictionRule = max(PREDICTION_RULES, key=lambda rule: float(log_evidence[rule].sum()))
    gain = log_evidence[best] - log_evidence["posterior"]
    error = float(gain.std()) * math.sqrt(len(gain)) if len(gain) > 1 else 0.0
    chosen: PredictionRule = best if float(gain.sum()) > max(error, 1.0) else "posterior"
    if baseline is None:
        return chosen
    above = {rule: float((log_evidence[rule] - baseline.log()).sum()) for rule in (chosen, best)}
    return next((rule for rule in above if above[rule] > 2.0), "shares")


def combine_predictions(rule: PredictionRule, network: Tensor, context: Tensor) -> Tensor:
    if rule == "network":
        return network
    return context.exp() if rule == "posterior" else product_posterior(network, context)


def mixture_weights(likely: Tensor, rounds: int = 200) -> Tensor:
    """Return the maximum likelihood weights (K) of a mixture, by expectation maximization.

    >>> mixture_weights(torch.tensor([[0.9, 0.1]] * 50)).round(decimals=2)
    tensor([0.9900, 0.0100])
    """
    count = likely.shape[1]
    weights = torch.full((count,), 1 / count)
    for _ in range(rounds):
        shares = likely * weights + _TINY
        responsibilities = (shares / shares.sum(dim=1, keepdim=True)).sum(dim=0) + 1 / count
        weights = responsibilities / responsibilities.sum()
    return weights


def without_labels(noisy: NoisyLabels, nodes: Tensor) -> NoisyLabels:
    """Return reported labels without those of some nodes, which are also removed from train and val."""
    labels = noisy.labels.clone()
    labels[nodes] = UNKNOWN
    left = known(labels)
    return replace(noisy, labels=labels, train=noisy.train[left[noisy.train]], val=noisy.val[left[noisy.val]])


# -- the candidates ----


@dataclass(frozen=True, eq=False)
class PosteriorContext:
    """Reported labels, public edges, and shared intermediate results of the candidates.

    Args:
        poisoned: Share of LDP reports that claim each class falsely, (C); None for none.
    """

    noisy: NoisyLabels
    edge_context: EdgeContext
    poisoned: Tensor | None = None

    def candidates(self, names: Sequence[str]) -> Tensor:
        """Return the named ``CANDIDATE_POSTERIORS`` as log probabilities, float32 (K, N, C)."""
        return torch.stack([CANDIDATE_POSTERIORS[name](self) for name in names])

    @cached_property
    def shares(self) -> Tensor:
        if not bool(known(self.noisy.labels).any()):
            return torch.full((self.noisy.classes,), 1 / self.noisy.classes)
        if self.poisoned is not None:
            return shares_without_poisoning(self.poisoned, self.noisy)
        return self.noisy.shares

    @cached_property
    def own(self) -> Tensor:
        return self.shares.log() + log_likelihood(self.noisy)

    @cached_property
    def diffusion(self) -> Tensor:
        noisy = self.noisy
        has_label = known(noisy.labels)
        mean = noisy.reported[has_label].mean(dim=0)
        lazy = k_prop(self.edge_context.adjacency, self.edge_context.steps, self_loops=True)
        diffused = lazy.apply((noisy.reported - mean) * has_label[:, None])
        return (diffused / diffused.std(dim=1, keepdim=True).clamp(min=_TINY)).softmax(dim=1)

    @cached_property
    def log_posterior(self) -> Tensor:
        """log P(y_v | randomized labels) of every node by diffusion, float32 (N, C), in two steps.

        First, a diffusion prior: reported labels minus their mean, propagated over K lazy hops,

            H = L^K (Y' - m),   L = D^-1/2 (A + I) D^-1/2,   g_v = softmax(H_v / sd(H_v)).

        Without the mean, H does not drift to the largest class as K grows. Lazy hops suppress components
        that alternate along edges, which are noise. Second, Bayes' rule with direct neighbors, the channel T
        and class shares f:

            log P(y_v = c) = log f_c + log T[c, y'_v] + theta sum_{u -> v} g_u(c) + const.

        theta = log(h (C - 1) / (1 - h)) is the weight of a neighbor that has the same class with probability
        h. The prior agrees with the reports of neighbors with probability q + (p - q) h, which gives h. f is
        T^-1 times the shares of reported labels.

        Privacy:
            Reads: LDP reports and public edges. Charges: nothing (post-processing).
        """
        noisy, adjacency, guess = self.noisy, self.edge_context.adjacency, self.diffusion
        ones = torch.ones(len(adjacency.indices), dtype=torch.float32)
        edges = SparseRows(adjacency.indices.long(), ones, adjacency.indptr, adjacency.num_nodes)
        neighbors = edges.apply(guess)
        source, target = adjacency.edge_index()
        keep, change = float(noisy.transition[0, 0]), float(noisy.transition[0, 1])
        chance = 1 / noisy.classes
        agrees = noisy.reported[target, guess.argmax(dim=1)[source]][known(noisy.labels)[target]]
        alike = (float(agrees.mean()) - change) / (keep - change) if len(agrees) else chance
        alike = min(max(alike, chance + _MIN_ABOVE_CHANCE), _MAX_HOMOPHILY)
        theta = math.log(alike * (noisy.classes - 1) / (1 - alike))
        return (self.own + theta * neighbors).log_softmax(dim=1)

    @cached_property
    def community_log_ratio(self) -> Tensor:
        """Log ratio of class shares in a node's communities to overall class shares, averaged.

        The shares of a community are found by expectation maximization. They are shrunk to the overall
        shares, so that a community with few reports adds little.
        """
        labeled = known(self.noisy.labels)
        likely = self.noisy.likelihood[labeled]
        found = []
        for partition in self.edge_context.partitions:
            place, count = partition[labeled], int(partition.max()) + 1
            shares = self.shares.expand(count, -1)
            for _ in range(_ROUNDS):
                responsibilities = shares[place] * likely
                sums = responsibilities.sum(dim=1, keepdim=True).clamp(min=_TINY)
                totals = torch.zeros(count, self.noisy.classes).index_add_(0, place, responsibilities / sums)
                totals += _PRIOR_NODES * self.shares
                shares = totals / totals.sum(dim=1, keepdim=True)
            found.append(shares[partition])
        return torch.stack(found).mean(dim=0).log() - self.shares.log()

    def beliefs(self, homophily: float, *, communities: bool) -> Tensor:
        evidence, start = self.own, self.diffusion
        if communities:
            start = (self.community_log_ratio + self.shares.log()).softmax(dim=1)
            evidence = evidence + _TRUST * self.community_log_ratio
        return belief_propagation(evidence, self.edge_context.pairs, homophily=homophily, start=start)


CANDIDATE_POSTERIORS: dict[str, Callable[[PosteriorContext], Tensor]] = {
    "nothing": lambda context: context.own.log_softmax(dim=1),
    "diffusion": lambda context: context.log_posterior,
    "diffusion, communities": lambda context: (
        context.log_posterior + _TRUST * context.community_log_ratio
    ).log_softmax(dim=1),
    **{
        f"beliefs, {'communities, ' if communities else ''}{level:g}": partial(
            PosteriorContext.beliefs, homophily=level, communities=communities
        )
        for communities in (False, True)
        for level in HOMOPHILY_LEVELS
    },
}
_MIXED = tuple(name for name in CANDIDATE_POSTERIORS if name != "nothing")
PRIORS: dict[Prior, tuple[str, ...]] = {  # candidates for each value of the keyword
    "mixture": _MIXED,
    "robust": _MIXED,
    "diffusion": ("diffusion",),
    "nothing": ("nothing",),
}

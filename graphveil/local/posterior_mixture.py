"""Several posteriors of a node's class, mixed by how well each predicts labels that it was not given."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from graphveil.data import Adjacency
from graphveil.local.noisy_labels import (
    NoisyLabels,
    class_shares,
    diffusion_prior,
    log_likelihood,
    log_posterior,
    poisoning_estimate,
    product_posterior,
    shares_without_poisoning,
)
from graphveil.local.randomized_records import UNKNOWN, known
from graphveil.local.structure import PublicEdges, communities
from graphveil.local.structure.public_edges import undirected

Prior = Literal["mixture", "robust", "diffusion", "nothing"]
PredictionRule = Literal["network", "posterior", "product"]
PREDICTION_RULES: tuple[PredictionRule, ...] = ("network", "posterior", "product")
HOMOPHILY_LEVELS = (0.45, 0.65)  # of neighbors: two guesses, of which evidence weighs the better one
RESOLUTIONS = (1.0, 2.0, 4.0, 8.0, 16.0)
FOLDS = 3
_PRIOR_NODES = 5.0  # a community's classes are those of everybody, as if so many more nodes had told
_TRUST = 0.5  # of what a community says: its nodes' edges say part of it again
_ROUNDS = 15
_BASIS = "unit 'local-attributes' leaves edges public"
_TINY = 1e-9
_DAMPING = 0.5  # of each new message, the share of the old one: undamped, they swing


# -- belief propagation ----


@dataclass(frozen=True, eq=False)
class DirectedPairs:
    """Each public edge in both directions, ordered by where it ends.

    >>> from graphveil.data import Adjacency
    >>> path = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False)
    >>> pairs = DirectedPairs(PublicEdges(path, basis="drawn here"))
    >>> pairs.source.tolist(), pairs.target.tolist(), pairs.reverse.tolist()
    ([1, 0, 2, 1], [0, 1, 1, 2], [1, 0, 3, 2])
    """

    edges: PublicEdges

    @cached_property
    def _ends(self) -> tuple[Tensor, Tensor, Tensor]:
        both = undirected(self.edges)
        target = np.repeat(np.arange(both.shape[0]), np.diff(both.indptr))
        source = both.indices.astype(np.int64)
        reverse = np.lexsort((target, source))
        return torch.from_numpy(source), torch.from_numpy(target), torch.from_numpy(reverse)

    @property
    def source(self) -> Tensor:
        """Where each begins, int64."""
        return self._ends[0]

    @property
    def target(self) -> Tensor:
        """Where each ends, int64."""
        return self._ends[1]

    @property
    def reverse(self) -> Tensor:
        """The place of each pair's other direction, int64."""
        return self._ends[2]

    @cached_property
    def degrees(self) -> Tensor:
        """How many neighbors each node has, float32 (N)."""
        return torch.bincount(self.target, minlength=self.edges.num_nodes).float()


def belief_propagation(
    evidence: Tensor, pairs: DirectedPairs, *, homophily: float, start: Tensor, rounds: int = 25
) -> Tensor:
    """Return log marginals of the classes, float32 (N, C), by belief propagation (Decelle et al. 2011).

    The model is the degree-corrected block model with one block a class. With h the probability that
    neighbors are alike, w_in = h C and w_out = (1 - h) C/(C - 1) are how much more often than by their
    degrees alike and other nodes have an edge. Messages along edges and a field for the pairs without one:

        m_{u->v}(c) = log(1 + (w_in/w_out - 1) b_{u\\v}(c)),
        b_v(c) ~ exp(evidence_v(c) + sum_u m_{u->v}(c) - (w_in - w_out) d_v D_c),   D_c = sum_u d_u b_u(c)/2m.

    b_{u\\v} leaves out what v said. Without the field, which says that classes of more edges explain an edge
    less, everybody ends in the largest class: neighbors outweigh a label that is told at small budgets.

    Args:
        evidence: log of prior times likelihood, float32 (N, C).
        pairs: the public edges.
        homophily: h, between 1/C and 1.
        start: probabilities (N, C) that the first messages are made from.
        rounds: how often messages are passed.
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
    """Return each node's logits from what it knows itself, what it hears, and the field."""
    incoming = torch.zeros_like(evidence).index_add_(0, pairs.target, messages)
    field_term = field * (pairs.degrees @ found)
    return evidence + incoming - pairs.degrees[:, None] * field_term


def _centered(messages: Tensor) -> Tensor:
    """Return messages less their mean over classes, which says nothing."""
    return messages - messages.mean(dim=1, keepdim=True)


# -- the mixture ----


@dataclass(frozen=True, eq=False)
class GraphContext:
    """What is public around each node, computed once for all guesses.

    Args:
        adjacency: the public edges.
        steps: how far the lazy hops of :func:`~graphveil.local.noisy_labels.log_posterior` go.
    """

    adjacency: Adjacency
    steps: int

    @cached_property
    def edges(self) -> PublicEdges:
        """The edges, with the reason why they may be read."""
        return PublicEdges(self.adjacency, basis=_BASIS)

    @cached_property
    def pairs(self) -> DirectedPairs:
        """Each edge in both directions."""
        return DirectedPairs(self.edges)

    @cached_property
    def partitions(self) -> tuple[Tensor, ...]:
        """Communities, from few large ones to many small ones."""
        return tuple(torch.from_numpy(communities(self.edges, resolution=each)) for each in RESOLUTIONS)


@dataclass(frozen=True, eq=False)
class PosteriorMixture:
    """A mixture of guesses.

    Args:
        log_proba: log P(y_v | what was told), float32 (N, C).
        held_out: the same for nodes that told a label, without what their own part told.
        weights: of the guesses, by name.
        parts: the nodes of each part.
    """

    log_proba: Tensor
    held_out: Tensor
    weights: dict[str, float]
    parts: tuple[Tensor, ...] = ()


def mixed_posterior(
    noisy: NoisyLabels,
    transition: Tensor,
    graph_context: GraphContext,
    generator: torch.Generator,
    names: Sequence[str],
    *,
    robust: bool = False,
) -> PosteriorMixture:
    """Return a mixture of guesses, weighed by the likelihood of told labels that each was not told.

    The nodes that told a label are dealt into three parts. Each part's labels are taken away in turn, and a
    guess k that hears the others gives P_k(y_v) for its nodes, so that what v said has the probability
    e_kv = sum_c P_k(y_v = c) P(said_v | c), by the exact channel. The weights maximize sum_v log sum_k w_k
    e_kv (with one node's worth of equal weights), and mix what the guesses say when they hear everything:

        P(y_v) = sum_k w_k P_k(y_v).

    A guess that the graph does not fit loses its weight. All of it is computed from what left the
    randomizers and from public edges, so it costs nothing; no test label is read.

    A robust one looks at what its guesses foretold for classes that more people claim than their neighbors
    bear out (:func:`~graphveil.local.noisy_labels.poisoning_estimate`). Where there are any, it
    takes them out of the shares of the classes and guesses again.

    Args:
        noisy: the told labels.
        transition: T (C, C).
        graph_context: the public edges.
        generator: deals the parts.
        names: which of :data:`CANDIDATE_POSTERIORS` are mixed.
        robust: whether false claims are looked for.
    """
    labeled = known(noisy.labels).nonzero()[:, 0]
    fold_of = torch.randperm(len(labeled), generator=generator) % FOLDS
    parts = tuple(labeled[fold_of == fold] for fold in range(FOLDS))
    whole, without = _held_out_posteriors(noisy, transition, graph_context, parts, names, None)
    if robust:
        poisoned_shares = poisoning_estimate(noisy, without.exp().mean(dim=0)).excess
        if bool(poisoned_shares.any()):
            whole, without = _held_out_posteriors(
                noisy, transition, graph_context, parts, names, poisoned_shares
            )
    likely = (without[:, labeled].exp() * noisy.likelihood[labeled]).sum(dim=2).t()
    weights = mixture_weights(likely)
    return PosteriorMixture(
        log_proba=_weighted_mixture(whole, weights),
        held_out=_weighted_mixture(without, weights),
        weights=dict(zip(names, weights.tolist(), strict=True)),
        parts=parts,
    )


def _held_out_posteriors(
    noisy: NoisyLabels,
    transition: Tensor,
    graph_context: GraphContext,
    parts: tuple[Tensor, ...],
    names: Sequence[str],
    poisoned_shares: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return what is guessed when everything is heard, and of each part without it, (K, N, C) each."""
    whole = candidate_posteriors(noisy, transition, graph_context, names, poisoned_shares)
    without, count = torch.zeros_like(whole), sum(map(len, parts))
    for away in parts:
        if 0 < len(away) < count:
            left = without_labels(noisy, away)
            without[:, away] = candidate_posteriors(left, transition, graph_context, names, poisoned_shares)[
                :, away
            ]
    return whole, without


def choose_prediction_rule(network: Tensor, found: PosteriorMixture, noisy: NoisyLabels) -> PredictionRule:
    """Return what to predict by: a network, the posterior, or their product.

    What counts is the probability of what nodes said, sum_c P(y_v = c) P(said_v | c), where neither network
    nor posterior heard it. The posterior is left only for what is better by more than one standard error of
    the difference, and by a nat: what labels say of a point of accuracy is a few nats, and the posterior has
    no network to be trained by the noise. A product counts what both heard twice, which shows there.

    Args:
        network: probabilities (N, C), those of each part by a network that did not hear it.
        found: the posterior.
        noisy: the told labels.
    """
    labeled = known(noisy.labels)
    evidence = {
        rule: (combine_predictions(rule, network, found.held_out) * noisy.likelihood)[labeled]
        .sum(dim=1)
        .clamp(min=_TINY)
        for rule in PREDICTION_RULES
    }
    best: PredictionRule = max(PREDICTION_RULES, key=lambda rule: float(evidence[rule].log().sum()))
    gain = evidence[best].log() - evidence["posterior"].log()
    error = float(gain.std()) * math.sqrt(len(gain))
    return best if float(gain.sum()) > max(error, 1.0) else "posterior"


def combine_predictions(rule: PredictionRule, network: Tensor, context: Tensor) -> Tensor:
    """Return probabilities from a network's and a log posterior, (N, C) each, in one of three ways."""
    if rule == "network":
        return network
    return context.exp() if rule == "posterior" else product_posterior(network, context)


def candidate_posteriors(
    noisy: NoisyLabels,
    transition: Tensor,
    graph_context: GraphContext,
    names: Sequence[str],
    poisoned_shares: Tensor | None = None,
) -> Tensor:
    """Return what some of :data:`CANDIDATE_POSTERIORS` say, log probabilities float32 (K, N, C).

    ``poisoned_shares`` is the share of LDP reports that claim each class falsely, (C); None for none.
    """
    context = _PosteriorContext(noisy, transition, graph_context, poisoned_shares)
    return torch.stack([CANDIDATE_POSTERIORS[name](context) for name in names])


def mixture_weights(likely: Tensor, rounds: int = 200) -> Tensor:
    """Return the weights (K) of a mixture that make what was said likeliest, by expectation maximization.

    Args:
        likely: the probability of what each node said by each guess, (nodes, K).
        rounds: of expectation maximization.

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


def _weighted_mixture(log_posteriors: Tensor, weights: Tensor) -> Tensor:
    return (log_posteriors + weights.log()[:, None, None]).logsumexp(dim=0)


def without_labels(noisy: NoisyLabels, nodes: Tensor) -> NoisyLabels:
    """Return told labels without those of some nodes, which neither train nor select then."""
    labels = noisy.labels.clone()
    labels[nodes] = UNKNOWN
    left = known(labels)
    return replace(noisy, labels=labels, train=noisy.train[left[noisy.train]], val=noisy.val[left[noisy.val]])


# -- the guesses ----


@dataclass(frozen=True, eq=False)
class _PosteriorContext:
    """What the guesses share: told labels, and what follows from them for all."""

    noisy: NoisyLabels
    transition: Tensor
    graph_context: GraphContext
    poisoned_shares: Tensor | None = None

    @cached_property
    def shares(self) -> Tensor:
        """f, the shares of the classes."""
        labeled = known(self.noisy.labels)
        if not bool(labeled.any()):
            return torch.full((self.noisy.classes,), 1 / self.noisy.classes)
        if self.poisoned_shares is not None:
            return shares_without_poisoning(self.poisoned_shares, self.noisy, self.transition)
        return class_shares(self.noisy.reported[labeled].mean(dim=0), self.transition)

    @cached_property
    def own(self) -> Tensor:
        """Log of f and of the likelihood of what a node said itself."""
        return self.shares.log() + log_likelihood(self.noisy)

    @cached_property
    def diffusion_log_posterior(self) -> Tensor:
        """What :func:`log_posterior` says."""
        given = None if self.poisoned_shares is None else self.shares
        return log_posterior(
            self.noisy, self.transition, self.graph_context.adjacency, self.graph_context.steps, given
        )

    @cached_property
    def candidate(self) -> Tensor:
        """The guess from afar."""
        return diffusion_prior(self.noisy, self.graph_context.adjacency, self.graph_context.steps)

    @cached_property
    def community_log_ratio(self) -> Tensor:
        """Log of how much more likely each class is in a node's communities than anywhere, on average."""
        likelihood = self.noisy.likelihood
        found = torch.stack([self._shares_in(one, likelihood) for one in self.graph_context.partitions])
        return found.mean(dim=0).log() - self.shares.log()

    def _shares_in(self, partition: Tensor, likelihood: Tensor) -> Tensor:
        """Return the shares of the classes in each node's community, by expectation maximization."""
        labeled = known(self.noisy.labels)
        place, likely = partition[labeled], likelihood[labeled]
        count = int(partition.max()) + 1
        shares = self.shares.expand(count, -1)
        for _ in range(_ROUNDS):
            responsibilities = shares[place] * likely
            responsibilities = responsibilities / responsibilities.sum(dim=1, keepdim=True).clamp(min=_TINY)
            sums = torch.zeros(count, self.noisy.classes).index_add_(0, place, responsibilities)
            sums += _PRIOR_NODES * self.shares
            shares = sums / sums.sum(dim=1, keepdim=True)
        return shares[partition]


def _propagated(context: _PosteriorContext, homophily: float) -> Tensor:
    """Return what belief propagation says, from the guess from afar."""
    pairs = context.graph_context.pairs
    return belief_propagation(context.own, pairs, homophily=homophily, start=context.candidate)


def _propagated_with_communities(context: _PosteriorContext, homophily: float) -> Tensor:
    """Return what belief propagation says, with the classes of a node's communities as a prior."""
    start = (context.community_log_ratio + context.shares.log()).softmax(dim=1)
    evidence = context.own + _TRUST * context.community_log_ratio
    return belief_propagation(evidence, context.graph_context.pairs, homophily=homophily, start=start)


CANDIDATE_POSTERIORS: dict[str, Callable[[_PosteriorContext], Tensor]] = {
    "nothing": lambda context: context.own.log_softmax(dim=1),
    "diffusion": lambda context: context.diffusion_log_posterior,
    "diffusion, communities": lambda context: (
        context.diffusion_log_posterior + _TRUST * context.community_log_ratio
    ).log_softmax(dim=1),
    **{f"beliefs, {level:g}": partial(_propagated, homophily=level) for level in HOMOPHILY_LEVELS},
    **{
        f"beliefs, communities, {level:g}": partial(_propagated_with_communities, homophily=level)
        for level in HOMOPHILY_LEVELS
    },
}
PRIORS: dict[Prior, tuple[str, ...]] = {  # which guesses are mixed, by the keyword
    "mixture": tuple(name for name in CANDIDATE_POSTERIORS if name != "nothing"),
    "robust": tuple(name for name in CANDIDATE_POSTERIORS if name != "nothing"),
    "diffusion": ("diffusion",),
    "nothing": ("nothing",),
}

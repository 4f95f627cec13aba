"""Several guesses of what is around a node, mixed by how well each foretells labels that it was not told."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from graphveil.graph import Adjacency
from graphveil.models.lpgnn.belief import PublicPairs, beliefs
from graphveil.models.lpgnn.claims import claims, shares_without
from graphveil.models.lpgnn.drop import NoisyLabels
from graphveil.models.lpgnn.posterior import (
    class_shares,
    combined,
    distant_guess,
    log_likelihood,
    log_posterior,
)
from graphveil.models.lpgnn.randomised import UNKNOWN, known
from graphveil.structure import PublicEdges, communities

Around = Literal["mixture", "robust", "diffusion", "nothing"]
Way = Literal["network", "posterior", "product"]
WAYS: tuple[Way, ...] = ("network", "posterior", "product")

ALIKE = (0.45, 0.65)  # neighbours of one class: two guesses, of which evidence weighs the better one
RESOLUTIONS = (1.0, 2.0, 4.0, 8.0, 16.0)
FOLDS = 3

_PRIOR_NODES = 5.0  # a community's classes are those of everybody, as if so many more nodes had told
_TRUST = 0.5  # of what a community says: its nodes' edges say part of it again
_ROUNDS = 15
_BASIS = "unit 'node-features' leaves edges public"
_TINY = 1e-9


@dataclass(frozen=True, eq=False)
class Surroundings:
    """What is public around each node, computed once for all guesses.

    Args:
        adjacency: the public edges.
        steps: how far the lazy hops of :func:`~graphveil.models.lpgnn.posterior.log_posterior` go.
    """

    adjacency: Adjacency
    steps: int

    @cached_property
    def edges(self) -> PublicEdges:
        """The edges, with the reason why they may be read."""
        return PublicEdges(self.adjacency, basis=_BASIS)

    @cached_property
    def pairs(self) -> PublicPairs:
        """Each edge in both directions."""
        return PublicPairs(self.edges)

    @cached_property
    def partitions(self) -> tuple[Tensor, ...]:
        """Communities, from few large ones to many small ones."""
        return tuple(torch.from_numpy(communities(self.edges, resolution=each)) for each in RESOLUTIONS)


@dataclass(frozen=True, eq=False)
class Mixed:
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
    around: Surroundings,
    generator: torch.Generator,
    names: Sequence[str],
    *,
    robust: bool = False,
) -> Mixed:
    """Return a mixture of guesses, weighed by the likelihood of told labels that each was not told.

    The nodes that told a label are dealt into three parts. Each part's labels are taken away in turn, and a
    guess k that hears the others gives P_k(y_v) for its nodes, so that what v said has the probability
    e_kv = sum_c P_k(y_v = c) P(said_v | c), by the exact channel. The weights maximise sum_v log sum_k w_k
    e_kv (with one node's worth of equal weights), and mix what the guesses say when they hear everything:

        P(y_v) = sum_k w_k P_k(y_v).

    A guess that the graph does not fit loses its weight. All of it is computed from what left the
    randomisers and from public edges, so it costs nothing; no test label is read.

    A robust one looks at what its guesses foretold for classes that more people claim than their neighbours
    bear out (:func:`~graphveil.models.lpgnn.claims.claims`). Where there are any, it takes them out of the
    shares of the classes and guesses again.

    Args:
        noisy: the told labels.
        transition: T (C, C).
        around: the public edges.
        generator: deals the parts.
        names: which of :data:`GUESSES` are mixed.
        robust: whether false claims are looked for.
    """
    told = known(noisy.labels).nonzero()[:, 0]
    dealt = torch.randperm(len(told), generator=generator) % FOLDS
    parts = tuple(told[dealt == fold] for fold in range(FOLDS))
    whole, without = _guessed(noisy, transition, around, parts, names, None)
    if robust:
        claimed = claims(noisy, without.exp().mean(dim=0)).false
        if bool(claimed.any()):
            whole, without = _guessed(noisy, transition, around, parts, names, claimed)
    likely = (without[:, told].exp() * noisy.likelihood[told]).sum(dim=2).t()
    weights = mixture_weights(likely)
    return Mixed(
        log_proba=_mixed(whole, weights),
        held_out=_mixed(without, weights),
        weights=dict(zip(names, weights.tolist(), strict=True)),
        parts=parts,
    )


def _guessed(
    noisy: NoisyLabels,
    transition: Tensor,
    around: Surroundings,
    parts: tuple[Tensor, ...],
    names: Sequence[str],
    claimed: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return what is guessed when everything is heard, and of each part without it, (K, N, C) each."""
    whole = guesses(noisy, transition, around, names, claimed)
    without, count = torch.zeros_like(whole), sum(map(len, parts))
    for away in parts:
        if 0 < len(away) < count:
            left = silenced(noisy, away)
            without[:, away] = guesses(left, transition, around, names, claimed)[:, away]
    return whole, without


def likeliest(network: Tensor, found: Mixed, noisy: NoisyLabels) -> Way:
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
    told = known(noisy.labels)
    evidence = {
        way: (predicted(way, network, found.held_out) * noisy.likelihood)[told].sum(dim=1).clamp(min=_TINY)
        for way in WAYS
    }
    best: Way = max(WAYS, key=lambda way: float(evidence[way].log().sum()))
    gain = evidence[best].log() - evidence["posterior"].log()
    error = float(gain.std()) * math.sqrt(len(gain))
    return best if float(gain.sum()) > max(error, 1.0) else "posterior"


def predicted(way: Way, network: Tensor, heard: Tensor) -> Tensor:
    """Return probabilities from a network's and a log posterior, (N, C) each, in one of three ways."""
    if way == "network":
        return network
    return heard.exp() if way == "posterior" else combined(network, heard)


def guesses(
    noisy: NoisyLabels,
    transition: Tensor,
    around: Surroundings,
    names: Sequence[str],
    claimed: Tensor | None = None,
) -> Tensor:
    """Return what some of :data:`GUESSES` say, log probabilities float32 (K, N, C).

    ``claimed`` is the share of LDP reports that claim each class falsely, (C); None for none.
    """
    heard = _Heard(noisy, transition, around, claimed)
    return torch.stack([GUESSES[name](heard) for name in names])


def mixture_weights(likely: Tensor, rounds: int = 200) -> Tensor:
    """Return the weights (K) of a mixture that make what was said likeliest, by expectation maximisation.

    Args:
        likely: the probability of what each node said by each guess, (nodes, K).
        rounds: of expectation maximisation.

    >>> mixture_weights(torch.tensor([[0.9, 0.1]] * 50)).round(decimals=2)
    tensor([0.9900, 0.0100])
    """
    count = likely.shape[1]
    weights = torch.full((count,), 1 / count)
    for _ in range(rounds):
        shares = likely * weights + _TINY
        owed = (shares / shares.sum(dim=1, keepdim=True)).sum(dim=0) + 1 / count
        weights = owed / owed.sum()
    return weights


def _mixed(guessed: Tensor, weights: Tensor) -> Tensor:
    return (guessed + weights.log()[:, None, None]).logsumexp(dim=0)


def silenced(noisy: NoisyLabels, nodes: Tensor) -> NoisyLabels:
    """Return told labels without those of some nodes, which neither train nor select then."""
    labels = noisy.labels.clone()
    labels[nodes] = UNKNOWN
    left = known(labels)
    return replace(noisy, labels=labels, train=noisy.train[left[noisy.train]], val=noisy.val[left[noisy.val]])


# -- the guesses -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Heard:
    """What the guesses share: told labels, and what follows from them for all."""

    noisy: NoisyLabels
    transition: Tensor
    around: Surroundings
    claimed: Tensor | None = None

    @cached_property
    def shares(self) -> Tensor:
        """f, the shares of the classes."""
        told = known(self.noisy.labels)
        if not bool(told.any()):
            return torch.full((self.noisy.classes,), 1 / self.noisy.classes)
        if self.claimed is not None:
            return shares_without(self.claimed, self.noisy, self.transition)
        return class_shares(self.noisy.said[told].mean(dim=0), self.transition)

    @cached_property
    def own(self) -> Tensor:
        """Log of f and of the likelihood of what a node said itself."""
        return self.shares.log() + log_likelihood(self.noisy)

    @cached_property
    def far(self) -> Tensor:
        """What :func:`log_posterior` says."""
        given = None if self.claimed is None else self.shares
        return log_posterior(self.noisy, self.transition, self.around.adjacency, self.around.steps, given)

    @cached_property
    def guess(self) -> Tensor:
        """The guess from afar."""
        return distant_guess(self.noisy, self.around.adjacency, self.around.steps)

    @cached_property
    def crowd(self) -> Tensor:
        """Log of how much more likely each class is in a node's communities than anywhere, on average."""
        likelihood = self.noisy.likelihood
        found = torch.stack([self._shares_in(one, likelihood) for one in self.around.partitions])
        return found.mean(dim=0).log() - self.shares.log()

    def _shares_in(self, partition: Tensor, likelihood: Tensor) -> Tensor:
        """Return the shares of the classes in each node's community, by expectation maximisation."""
        told = known(self.noisy.labels)
        place, likely = partition[told], likelihood[told]
        count = int(partition.max()) + 1
        shares = self.shares.expand(count, -1)
        for _ in range(_ROUNDS):
            owed = shares[place] * likely
            owed = owed / owed.sum(dim=1, keepdim=True).clamp(min=_TINY)
            sums = torch.zeros(count, self.noisy.classes).index_add_(0, place, owed)
            sums += _PRIOR_NODES * self.shares
            shares = sums / sums.sum(dim=1, keepdim=True)
        return shares[partition]


def _own_label_alone(heard: _Heard) -> Tensor:
    return heard.own.log_softmax(dim=1)


def _from_afar(heard: _Heard) -> Tensor:
    return heard.far


def _from_afar_and_communities(heard: _Heard) -> Tensor:
    return (heard.far + _TRUST * heard.crowd).log_softmax(dim=1)


def _beliefs(alike: float) -> Callable[[_Heard], Tensor]:
    return lambda heard: beliefs(heard.own, heard.around.pairs, alike=alike, start=heard.guess)


def _beliefs_and_communities(alike: float) -> Callable[[_Heard], Tensor]:
    def guess(heard: _Heard) -> Tensor:
        start = (heard.crowd + heard.shares.log()).softmax(dim=1)
        evidence = heard.own + _TRUST * heard.crowd
        return beliefs(evidence, heard.around.pairs, alike=alike, start=start)

    return guess


GUESSES: dict[str, Callable[[_Heard], Tensor]] = {
    "nothing": _own_label_alone,
    "diffusion": _from_afar,
    "diffusion, communities": _from_afar_and_communities,
    **{f"beliefs, {alike:g}": _beliefs(alike) for alike in ALIKE},
    **{f"beliefs, communities, {alike:g}": _beliefs_and_communities(alike) for alike in ALIKE},
}
AROUND: dict[Around, tuple[str, ...]] = {  # which guesses are mixed, by the keyword
    "mixture": tuple(name for name in GUESSES if name != "nothing"),
    "robust": tuple(name for name in GUESSES if name != "nothing"),
    "diffusion": ("diffusion",),
    "nothing": ("nothing",),
}

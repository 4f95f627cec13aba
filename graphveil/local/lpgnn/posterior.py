"""What randomized labels of the neighborhood say about a node's class, by the exact law of their noise."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from graphveil.data import Adjacency
from graphveil.local.lpgnn.noisy_labels import NoisyLabels
from graphveil.local.lpgnn.randomized_records import known
from graphveil.propagation import KProp, SparseMap

_MIN_CLASS_SHARE = 0.01  # no class is taken to be rarer: the estimate of its share is noisy
_LEAST_ALIKE, _MOST_ALIKE = 0.05, 0.97  # of neighbors, above what chance gives
_TINY = 1e-9
_IMPOSSIBLE = 1e-30  # a likelihood: so that a certain label is certain, and no number infinite


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
    neighbors = _neighbor_sum(adjacency).apply(guess)
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


def _neighbor_sum(adjacency: Adjacency) -> SparseMap:
    """Return A, without weights."""
    ones = torch.ones(len(adjacency.indices), dtype=torch.float32)
    return SparseMap(adjacency.indptr, adjacency.indices.long(), ones)


def product_posterior(proba: Tensor, posterior: Tensor) -> Tensor:
    """Return the product of a network's probabilities and a log posterior, normalized.

    >>> product_posterior(torch.tensor([[0.5, 0.5]]), torch.tensor([[0.9, 0.1]]).log())
    tensor([[0.9000, 0.1000]])
    """
    return (functional.threshold(proba, _TINY, _TINY).log() + posterior).softmax(dim=1)

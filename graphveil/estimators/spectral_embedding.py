"""Embeddings that nodes with similar neighbor lists share, and votes of labeled nodes with similar ones.

Embeddings are computed from the edges after randomized response.

If every node pair is flipped with probability q, then

    M = (A' - q (J - I)) / (1 - 2 q),   E[M] = A,   s = sqrt(q (1 - q)) / (1 - 2 q),

where s is the standard deviation of each entry. Such noise alone has eigenvalues up to 2 s sqrt(N). An
eigenvalue t of A above s sqrt(N) is observed at t + N s^2 / t. Its eigenvector has a squared cosine of
1 - N s^2 / t^2 to the true one (Benaych-Georges, Nadakuditi: The eigenvalues and eigenvectors of finite, low
rank perturbations of large random matrices, 2011). Eigenvectors beyond the edge of the noise are kept, each
scaled by that cosine. Scaling by eigenvalues instead would give all weight to the few directions of hubs.
Everything here is post-processing of a release.
"""

import itertools
import math
from dataclasses import dataclass

import torch
from scipy import sparse
from torch import Tensor
from torch.nn.functional import nll_loss, normalize, one_hot

from graphveil.data import Adjacency
from graphveil.propagation.linear import SparseMap

_ROUNDS = 8  # of orthogonal iteration: enough for eigenvalues beyond the noise
_MIN_EIGENVALUE = 1e-3  # of the largest eigenvalue: without noise, smaller ones are rounding errors


def spectral_rows(adjacency: Adjacency, flip: float, rank: int, generator: torch.Generator) -> Tensor:
    """Return one embedding per node, the leading direction first, float32, (N, r) with r at most ``rank``.

    Nodes with the same neighbor list have the same embedding, up to noise. Others are nearly orthogonal.

    Args:
        adjacency: Undirected edges after randomized response.
        flip: q, the probability that a pair is flipped; 0 for exact edges.
        rank: Maximum number of eigenvectors.
        generator: Draws the initial subspace.

    >>> star = Adjacency.from_edges([0, 0, 0], [1, 2, 3], num_nodes=4, directed=False)
    >>> rows = spectral_rows(star, 0.0, 4, torch.Generator().manual_seed(0))
    >>> bool(torch.allclose(rows[1:], rows[1].expand(3, -1), atol=1e-5))
    True
    """
    nodes = adjacency.num_nodes
    values, vectors = _leading(adjacency, flip, min(rank, nodes), generator)
    variance = nodes * flip * (1 - flip) / (1 - 2 * flip) ** 2  # N s^2
    largest = float(values.abs().max())
    kept = values.abs() > max(2 * math.sqrt(variance), _MIN_EIGENVALUE * largest, 1e-30)
    seen = values[kept].abs().to(torch.float64)
    true = (seen + (seen.square() - 4 * variance).clamp_min(0).sqrt()) / 2
    cosine = (1 - variance / true.square()).clamp_min(0).sqrt()
    return vectors[:, kept] * cosine.to(torch.float32)


def _leading(
    adjacency: Adjacency, flip: float, rank: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return the eigenvalues of M with the largest absolute value, (rank), and their vectors, (N, rank)."""
    indptr, sources = (part.numpy() for part in adjacency.arrays[:2])
    ones = torch.ones(len(sources)).numpy()
    size = (adjacency.num_nodes, adjacency.num_nodes)
    edges = SparseMap.from_scipy(sparse.csr_array((ones, sources, indptr), shape=size))

    def product(rows: Tensor) -> Tensor:
        expected = flip * (rows.sum(dim=0, keepdim=True) - rows)
        return (edges.apply(rows) - expected) / (1 - 2 * flip)

    basis = torch.randn(adjacency.num_nodes, rank, generator=generator)
    for _ in range(_ROUNDS):
        basis = product(torch.linalg.qr(basis).Q)
    basis = torch.linalg.qr(basis).Q
    small = basis.T @ product(basis)
    values, turned = torch.linalg.eigh((small + small.T) / 2)
    order = values.abs().argsort(descending=True)
    return values[order], basis @ turned[:, order]


HALVINGS = (0, 1, 2, 3)  # all directions, the leading half, quarter and eighth
DOUBLINGS = (1, 2, 3, 4, 5, 6)  # a voter counts by its cosine to the power 2, 4, ..., 64
_PRIORS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # number of votes that the features count as
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
_PAIRS = 1 << 24  # cosines held at once
_MIN_PROBABILITY = 1e-12  # lower bound of probabilities


@dataclass(frozen=True)
class VotingRule:
    """A rule that combines votes and features.

    Args:
        halvings: Number of times that the number of directions is halved. A few directions are enough if a
            graph has few kinds of neighbor lists.
        doublings: Number of times that a cosine is squared. Higher powers give more weight to near nodes.
        prior: Number of votes that the features count as.
        share: Weight of the votes against features alone; 0 uses features only.
    """

    halvings: int
    doublings: int
    prior: float
    share: float

    @property
    def known(self) -> bool:
        """Whether such votes are counted at all."""
        return self.halvings in HALVINGS and self.doublings in DOUBLINGS

    def votes(self, rows: Tensor, voters: Tensor, labels: Tensor, classes: int) -> Tensor:
        """Return the votes in the rule's directions, at its power, (N, C)."""
        levels = count_votes(leading(rows, self.halvings), voters, labels, classes)
        return levels[DOUBLINGS.index(self.doublings)]

    def decided(self, log_posteriors: Tensor, votes: Tensor) -> Tensor:
        """Return log-posteriors (N, C) from those of features and from votes.

        >>> features, votes = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.0, 9.0]])
        >>> VotingRule(0, 1, 1.0, 1.0).decided(features, votes).exp().round(decimals=4).tolist()
        [[0.05, 0.95]]
        """
        features = log_posteriors.to(torch.float64)
        mixed = self.prior * features.exp() + votes.to(torch.float64)
        mixed = (mixed / mixed.sum(dim=1, keepdim=True)).clamp_min(_MIN_PROBABILITY).log()
        return (self.share * mixed + (1 - self.share) * features).log_softmax(dim=1)


def leading(rows: Tensor, halvings: int) -> Tensor:
    """Return the leading directions of embeddings, L2-normalized; zero vectors stay zero."""
    return normalize(rows[:, : -(-rows.shape[1] // 2**halvings)], dim=1)


def count_votes(rows: Tensor, voters: Tensor, labels: Tensor, classes: int) -> list[Tensor]:
    """Return the votes for each class at each power, (N, C) each; no node votes on itself.

    Args:
        rows: L2-normalized or zero embeddings, (N, r).
        voters: Nodes with a public label, int64.
        labels: Their classes.
        classes: C.

    >>> rows = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.6, 0.8]])
    >>> count_votes(rows, torch.tensor([0, 1]), torch.tensor([0, 1]), 2)[0].round(decimals=2).tolist()
    [[0.0, 1.0], [1.0, 0.0], [0.36000001430511475, 0.36000001430511475]]
    """
    nodes, members = len(rows), one_hot(labels, classes).to(rows.dtype)
    votes = [rows.new_zeros(nodes, classes) for _ in DOUBLINGS]
    for some in torch.arange(nodes).tensor_split(-(-nodes * len(voters) // _PAIRS)):
        alike = (rows[some] @ rows[voters].T).clamp(0, 1)
        alike[some[:, None] == voters[None, :]] = 0.0
        for level in votes:
            alike = alike.square_()
            level[some] = alike @ members
    return votes


def best_rule(
    log_posteriors: Tensor, rows: Tensor, nodes: Tensor, labels: Tensor
) -> tuple[VotingRule, Tensor]:
    """Return the rule that maximizes the likelihood of public labels; no node votes on itself.

    Args:
        log_posteriors: Log-posteriors from features that do not depend on a node's own label, (N, C).
        rows: Embeddings, the leading direction first.
        nodes: Nodes with a public label.
        labels: Their classes.

    Returns:
        The rule, and the log-posteriors of all nodes under it.
    """
    best, least, decided = VotingRule(0, DOUBLINGS[0], 1.0, 0.0), math.inf, log_posteriors
    for halvings in HALVINGS:
        levels = count_votes(leading(rows, halvings), nodes, labels, log_posteriors.shape[1])
        for (doublings, votes), prior, share in itertools.product(
            zip(DOUBLINGS, levels, strict=True), _PRIORS, _SHARES
        ):
            rule = VotingRule(halvings, doublings, prior, share)
            loss = float(nll_loss(rule.decided(log_posteriors[nodes], votes[nodes]), labels))
            if loss < least:
                best, least, decided = rule, loss, rule.decided(log_posteriors, votes)
    return best, decided

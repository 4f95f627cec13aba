"""What labeled nodes with alike rows say about a node's class, beside what its features say."""

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import nll_loss, normalize, one_hot

HALVINGS = (0, 1, 2, 3)  # all directions of rows, the leading half, quarter and eighth
DOUBLINGS = (1, 2, 3, 4, 5, 6)  # a voter counts by its cosine to the power 2, 4, ..., 64
_PRIORS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # how many votes the features have
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
_PAIRS = 1 << 24  # cosines held at once
_MIN_VALUE = 1e-12  # of a probability


@dataclass(frozen=True)
class VotingRule:
    """How votes and features are put together.

    Args:
        halvings: how often the number of directions is halved: few are enough where a graph has few kinds of
            lists, and all directions of a space tell nothing apart.
        doublings: how often a cosine is squared: the more, the fewer and nearer nodes count.
        prior: how many votes the features have among the voters.
        share: the weight of what voters say, against features alone; 0 leaves the features as they are.
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
        """Return the votes in the rule's directions at its number of doublings, (N, C)."""
        levels = count_votes(leading(rows, self.halvings), voters, labels, classes)
        return levels[DOUBLINGS.index(self.doublings)]

    def decided(self, log_posteriors: Tensor, votes: Tensor) -> Tensor:
        """Return log-posteriors (N, C) from those of features and from votes at this number of doublings.

        >>> features, votes = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.0, 9.0]])
        >>> VotingRule(0, 1, 1.0, 1.0).decided(features, votes).exp().round(decimals=4).tolist()
        [[0.05, 0.95]]
        """
        features = log_posteriors.to(torch.float64)
        mixed = self.prior * features.exp() + votes.to(torch.float64)
        mixed = (mixed / mixed.sum(dim=1, keepdim=True)).clamp_min(_MIN_VALUE).log()
        return (self.share * mixed + (1 - self.share) * features).log_softmax(dim=1)


def leading(rows: Tensor, halvings: int) -> Tensor:
    """Return the leading directions of rows as rows of norm one, or zero."""
    return normalize(rows[:, : -(-rows.shape[1] // 2**halvings)], dim=1)


def count_votes(rows: Tensor, voters: Tensor, labels: Tensor, classes: int) -> list[Tensor]:
    """Return the votes for each class at each number of doublings, (N, C) each; nobody votes for itself.

    Args:
        rows: of norm one or zero, (N, r).
        voters: the nodes with a public label, int64.
        labels: their classes.
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
    """Return the rule under which public labels are likeliest, none of which votes on its own node.

    Args:
        log_posteriors: of features, in which no node's own label has a part, (N, C).
        rows: of nodes, the leading direction first.
        nodes: those whose label is public.
        labels: their classes.

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

"""Belief propagation: what all told labels say about each node, if neighbors are alike by chance."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from graphveil.local.structure import PublicEdges
from graphveil.local.structure.communities import undirected

_DAMPING = 0.5  # of each new message, the share of the old one: undamped, they swing


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

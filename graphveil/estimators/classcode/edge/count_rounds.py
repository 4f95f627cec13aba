"""Rows of whole numbers: how many neighbors of each class, under pure noise, instead of sums of codes.

Why so: with steered weights an edge reaches one row. If what it brings is one class, it moves one whole
number by one, and noise that suits a whole number, discrete Laplace at the full epsilon, has a third of the
deviation that a Gaussian has at delta 1e-7. Nothing else is asked: training rows themselves say how classes
are connected. Two classes, from epsilon 4: both ends count the edge, so training rows hear as much as those
of targets, which matters more there than noise. The proof is one line (``docs/guarantees.md``, section 9).
"""

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from graphveil.data import Graph
from graphveil.estimators.classcode.edge.groups import GROUPS, TRAIN
from graphveil.estimators.classcode.edge.head import head_inputs
from graphveil.estimators.classcode.edge.likelihood import Affinity, Signal, affinity_from_endpoint_counts
from graphveil.release import NeighborCountData, NeighborCountQuery, Release

_MIN_UNIT = 0.03  # in edges: heads learn badly from rows of hundreds of units


class CountRounds:
    """The noisy counts of one release, read as :class:`~.rounds.AggregationRounds` reads rows of codes.

    Args:
        graph: the graph that is asked.
        groups: the public group of each node.
        labels: each node's class, if it is public, and -1 elsewhere, (N).
        hops: the query, alone.
        release: where it is asked.
        first: the first node that has a row; those before it only speak.
    """

    def __init__(
        self,
        graph: Graph,
        groups: Tensor,
        labels: Tensor,
        hops: tuple[NeighborCountQuery],
        release: Release,
        first: int = 0,
    ) -> None:
        """Begin before the release."""
        self.hops = hops
        self.rows: list[Tensor] = []
        self._graph, self._groups, self._labels = graph, groups, labels
        self._release, self._receiving = release, slice(first, None)
        self._once = hops[0].ranks is not None and not graph.directed  # each edge counts at one of its ends
        self._counted_fractions = counted_edge_fractions(hops[0].ranks if self._once else None)
        self._shares = torch.bincount(groups, minlength=GROUPS).to(torch.float64) / len(groups)
        self._count_distribution = torch.empty(0)

    def aggregate(self, log_posteriors: Tensor, seen: Tensor, generator: torch.Generator) -> None:
        """Count every node as its label, or else as its likeliest class; ``seen`` and draws go unused."""
        labeled = self._labels >= 0
        classes = torch.where(labeled, self._labels, log_posteriors.argmax(dim=1))
        self.rows.append(self._release.answer(NeighborCountData(classes)))
        known = log_posteriors.exp().to(torch.float64)
        known[labeled] = one_hot(self._labels[labeled], known.shape[1]).to(torch.float64)
        self._count_distribution = self._count_distribution_by_group(known, classes)

    def affinity(self) -> Affinity:
        """Return what the training rows say about how classes are connected; labels are public.

        Where an edge counts at one end, rows of both ends together count it once.
        """
        training = self._groups == TRAIN
        labels, rows = self._graph.y[training], self.rows[0][training].to(torch.float64)
        classes = rows.shape[1]
        endpoint_counts = one_hot(labels, classes).to(torch.float64).T @ rows
        counted = torch.bincount(labels, minlength=classes).to(torch.float64)
        variance = counted[:, None].expand(-1, classes) * self.hops[0].law.sigma ** 2
        combined_aggregates = float(self._counted_fractions[:, TRAIN] @ self._shares)
        if self._once:
            endpoint_counts, variance, combined_aggregates = (
                endpoint_counts + endpoint_counts.T,
                variance + variance.T,
                2 * combined_aggregates,
            )
            variance = variance + torch.diag(variance.diagonal())  # twice one number: four times its variance
        return affinity_from_endpoint_counts(endpoint_counts, variance, labels, combined_aggregates)

    def combined_aggregates(self, affinity: Affinity, *, unlabeled: bool = False) -> tuple[Tensor, Signal]:
        """Return the counts in units of their noise, and what they are expected to be.

        Args:
            affinity: between classes, and the mean degree.
            unlabeled: whether most nodes are counted as a guess: then a class counts as its members are
                guessed, instead of as itself.
        """
        groups, unit = self._groups[self._receiving], max(self.hops[0].law.sigma, _MIN_UNIT)
        length = affinity.mean_degree * (self._shares @ self._counted_fractions) / unit
        if unlabeled:
            normalized_counts = (
                self._count_distribution
                / (self._shares @ self._counted_fractions).clamp_min(1e-9)[:, None, None]
            )
            means = torch.einsum("kj,njd->nkd", affinity.neighbors, normalized_counts[groups])
        else:
            means = affinity.neighbors
        counts = self.rows[0].to(torch.float64) / unit
        return counts, Signal(length[groups], means, torch.ones((), dtype=torch.float64))

    def inputs(self, start: Tensor, prior: Tensor, merged: Tensor, signal: Signal) -> Tensor:
        """Return the head's inputs: groups hear different shares, and one head serves them all."""
        level = (signal.length.mean() / signal.length.clamp_min(1e-9))[:, None]
        return head_inputs(start, prior, [merged * level])

    def _count_distribution_by_group(self, known: Tensor, classes: Tensor) -> Tensor:
        """Return how a neighbor of each class is counted in rows of each group, (groups, C, C).

        If posteriors are right on average, class j is counted as sum_u p_uj e_u / sum_u p_uj.
        """
        counted = one_hot(classes, known.shape[1]).to(torch.float64)
        reach = self._counted_fractions[self._groups]  # (N, into)
        total = known.sum(dim=0).clamp_min(1e-9)
        return torch.stack([(known * into[:, None]).T @ counted for into in reach.T]) / total[:, None]


def counted_edge_fractions(ranks: tuple[int, ...] | None) -> Tensor:
    """Return how many of the edges from one group count in rows of another, (from, into): all without ranks.

    >>> counted_edge_fractions((0, 1)).tolist()
    [[0.5, 1.0], [0.0, 0.5]]
    """
    if ranks is None:
        return torch.ones(GROUPS, GROUPS, dtype=torch.float64)
    rank = torch.tensor(ranks)
    ahead = (rank[None, :] - rank[:, None]).sign().to(torch.float64)
    return (ahead + 1) / 2

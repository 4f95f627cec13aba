"""The rounds of a ClassCode release: send codes, receive noisy rows, weigh up the evidence.

One round is the rule; the variant for few labels has two, and its second round sends better codes.
"""

import math
from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from graphveil.data import Graph
from graphveil.errors import ReleaseError
from graphveil.estimators.classcode.codes import simplex_codes, soft_codes
from graphveil.estimators.classcode.edge.count_rounds import CountRounds
from graphveil.estimators.classcode.edge.groups import TARGET
from graphveil.estimators.classcode.edge.head import head_inputs
from graphveil.estimators.classcode.edge.likelihood import Affinity, Signal, affinity_from_counts
from graphveil.estimators.classcode.edge.queries import expected_length, in_noise_units
from graphveil.estimators.classcode.edge.weights import EdgeWeightModel, WeightMoments, weighted
from graphveil.propagation import safe_unit
from graphveil.release import (
    EdgeCountData,
    EdgeCountQuery,
    NeighborCountQuery,
    NeighborSumData,
    NeighborSumQuery,
    Release,
)
from graphveil.release.plan import Query

_MIN_LEVEL = 0.1  # of the mean length: a head is shown no row that is noise alone at more than 10 times


def round_queries(queries: Sequence[Query]) -> list[NeighborSumQuery]:
    """Return the rounds of rows, which must be all that there is."""
    hops = [query for query in queries if isinstance(query, NeighborSumQuery)]
    if len(hops) != len(queries):
        raise ReleaseError("a ClassCode plan holds counts first, and hops after them")
    return hops


def query_class_counts(
    release: Release, query: EdgeCountQuery, graph: Graph, groups: Tensor
) -> tuple[Tensor, Affinity]:
    """Ask for the class-pair counts of labeled pairs; return them, and what they say."""
    labeled = groups != TARGET
    cells = release.answer(EdgeCountData(torch.where(labeled, graph.y, 0)))
    labels, nodes = graph.y[labeled], graph.num_nodes
    return cells, affinity_from_counts(cells, query.sigma[0], labels, nodes, directed=graph.directed)


class AggregationRounds:
    """What the rows of a release have told so far, in the order of its plan.

    Args:
        graph: the graph that is asked.
        groups: the public group of each node.
        labels: each node's class, if it is public, and -1 elsewhere, (N).
        hops: the rounds of rows.
        release: where they are asked.
        weight_model: what weighs messages, None for weights of one.
        first: the first node that has a row; those before it only speak.
    """

    def __init__(
        self,
        graph: Graph,
        groups: Tensor,
        labels: Tensor,
        hops: Sequence[NeighborSumQuery],
        release: Release,
        weight_model: EdgeWeightModel | None = None,
        first: int = 0,
    ) -> None:
        """Begin before the first round."""
        self.hops = hops
        self.rows: list[Tensor] = []  # one per round, as they were released
        self._graph, self._groups, self._labels = graph, groups, labels
        self._release, self._weight_model, self._receiving = release, weight_model, slice(first, None)
        self._codes = simplex_codes(hops[0].dim + 1)
        self._moments: list[WeightMoments] = []  # one per round, of its weights
        self._sent: list[Tensor] = []  # one per round: what a neighbor of each class sends to each group

    def aggregate(self, log_posteriors: Tensor, seen: Tensor, generator: torch.Generator) -> None:
        """Send labels and posteriors along the edges; keep the rows that come in.

        Args:
            log_posteriors: what nodes without a label send a code of.
            seen: what weights, if there are any, see of every node: posteriors without its own label.
            generator: draws the nodes from which the mean of the weights is estimated.
        """
        codes = soft_codes(log_posteriors, self._codes)
        if len(self.hops) > 1:
            codes = safe_unit(codes)  # with few labels an unsure code still speaks at full voice
        labeled = self._labels >= 0
        codes[labeled] = self._codes[self._labels[labeled]]
        keys = None if self._weight_model is None else self._weight_model.keys(self._graph.x, seen)
        self.rows.append(self._release.answer(NeighborSumData(codes, keys)))
        classes = self._classes(log_posteriors)
        self._sent.append(self._mean_codes(codes, classes, self.hops[len(self._sent)]))
        if self._weight_model is not None and keys is not None:
            self._moments.append(self._weight_model.moments(keys, classes, generator)[self._receiving])

    def combined_aggregates(self, affinity: Affinity, *, unlabeled: bool = False) -> tuple[Tensor, Signal]:
        """Return the rounds' rows as one, in noise units, and what they are expected to be.

        Equal rounds average: the sum of n rows over sqrt n has unit noise and sqrt n times the length.

        Args:
            affinity: between classes, and the mean degree.
            unlabeled: whether most messages are from nodes without a label: then a class sends what its
                members send by their own posteriors, instead of its code.
        """
        groups, count = self._groups[self._receiving], len(self.rows)
        each = [in_noise_units(rows, hop, groups) for rows, hop in zip(self.rows, self.hops, strict=False)]
        merged = torch.stack(each).sum(dim=0) / math.sqrt(count)
        if unlabeled:
            sent = torch.stack(self._sent).mean(dim=0)[groups]
            length = affinity.mean_degree / torch.tensor(self.hops[0].sigma, dtype=torch.float64)[groups]
            means = torch.einsum("kj,njd->nkd", affinity.neighbors, sent)
        else:
            sent, means = self._codes, affinity.neighbors @ self._codes
            length = expected_length(self.hops[0], self._groups, affinity.mean_degree)[self._receiving]
        plain = Signal(length * math.sqrt(count), means, torch.ones((), dtype=torch.float64))
        if self._weight_model is None:
            return merged, plain
        moments, bound = WeightMoments.averaged(self._moments), self._weight_model.similarity.bound
        return merged, weighted(plain, affinity.neighbors, sent, moments, bound)

    def inputs(self, start: Tensor, prior: Tensor, merged: Tensor, signal: Signal) -> Tensor:
        """Return the head's inputs: nodes receive at different weights, and one head serves them all."""
        mean = signal.length.mean()
        least = 1e-9 if self._weight_model is None else _MIN_LEVEL * float(mean)
        level = (mean / signal.length.clamp_min(least))[:, None]
        last = in_noise_units(self.rows[-1], self.hops[len(self.rows) - 1], self._groups[self._receiving])
        rows = [merged, last] if len(self.rows) > 1 else [merged]
        return head_inputs(start, prior, [row * level for row in rows])

    def _classes(self, log_posteriors: Tensor) -> Tensor:
        """Return what is publicly known of each node's class: its label, or its posterior, (N, C)."""
        classes = log_posteriors.exp().to(torch.float64)
        labeled = self._labels >= 0
        classes[labeled] = one_hot(self._labels[labeled], classes.shape[1]).to(torch.float64)
        return classes

    def _mean_codes(self, codes: Tensor, classes: Tensor, hop: NeighborSumQuery) -> Tensor:
        """Return what a node of each class sends to each group on average, (groups, C, C-1).

        If posteriors are right on average, sum_u p_uj c_u / sum_u p_uj is the mean code of class j.
        """
        weights = torch.tensor(hop.weights.table, dtype=torch.float64)[self._groups]  # (N, into)
        total = classes.sum(dim=0).clamp_min(1e-9)
        each = [(classes * into[:, None]).T @ codes.to(torch.float64) for into in weights.T]
        return torch.stack(each) / total[:, None]


AnyAggregationRounds: TypeAlias = AggregationRounds | CountRounds


def build_rounds(
    queries: Sequence[Query],
    graph: Graph,
    groups: Tensor,
    labels: Tensor,
    release: Release,
    weight_model: EdgeWeightModel | None = None,
    first: int = 0,
) -> AnyAggregationRounds:
    """Return the rounds of a plan's queries of rows, before the first; see :class:`AggregationRounds`."""
    if len(queries) == 1 and isinstance(queries[0], NeighborCountQuery):
        return CountRounds(graph, groups, labels, (queries[0],), release, first)
    return AggregationRounds(graph, groups, labels, round_queries(queries), release, weight_model, first)


def estimate_affinity(rounds: AnyAggregationRounds, known: Affinity | None) -> Affinity:
    """Return how classes are connected: as counts of edges said beforehand, or else as the rows say."""
    if isinstance(rounds, CountRounds):
        return rounds.affinity()
    if known is None:
        raise ReleaseError("a ClassCode plan holds counts first, and hops after them")
    return known

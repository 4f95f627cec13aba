"""Canaries in counts: each moves a count, a cell or a candidate of its own."""

import math
from dataclasses import replace

import numpy as np
import torch

from graphveil.audit.query_canaries.context import (
    CanaryContext,
    CanaryResult,
    Coins,
    Floats,
    insert_canaries,
    of_scores,
    planted,
)
from graphveil.audit.query_canaries.rows import canaries_per_release
from graphveil.data import Adjacency
from graphveil.privacy import DirectedEdge, PureDP
from graphveil.release import (
    AccuracyCountData,
    AccuracyCountQuery,
    EdgeCountData,
    EdgeCountQuery,
    NeighborCountData,
    NeighborCountQuery,
    OutcomeCountData,
    OutcomeCountQuery,
)

_CLASSES = 64  # of cells for canaries: the same law, with room
_CANDIDATES = 1 << 12
_RECORDS = 1 << 11  # releases of single records


@insert_canaries.register
def _of_neighbor_counts(query: NeighborCountQuery, context: CanaryContext) -> CanaryResult:
    """Friendships of disjoint pairs: the count that one moves is at least one, or not."""
    count = canaries_per_release(query.classes, 2)
    first, nodes, present = np.arange(count) * 2, 2 * count, context.coins(count)
    data = NeighborCountData(torch.zeros(nodes, dtype=torch.int64))
    groups = torch.zeros(nodes, dtype=torch.int64) if query.needs_groups else None
    directed = isinstance(context.unit, DirectedEdge)

    def edges(who: Coins) -> Adjacency:
        return Adjacency.from_edges(first[who], first[who] + 1, num_nodes=nodes, directed=directed)

    moved = context.exact(query, edges(np.ones(count, dtype=bool)), groups, data)
    seen = context.noisy(query, edges(present), groups, data)
    reached = (moved > 0.5).reshape(count, -1)
    detected = (seen > 0.5).reshape(count, -1) | ~reached
    bound = context.counted(np.all(detected, axis=1), present)  # in every count that it moves
    return planted(query, context, count, PureDP(bound.epsilon), bound)


@insert_canaries.register
def _of_edge_counts(query: EdgeCountQuery, context: CanaryContext) -> CanaryResult | str:
    """An edge for each cell, in a table of more classes."""
    pays = [group for group, counted in enumerate(query.labeled) if counted]
    here, there = context.pair
    if query.groups > 1 and not (query.labeled[here] and query.labeled[there]):
        return "the dearest pair of groups is not counted"
    directed = isinstance(context.unit, DirectedEdge)
    wide = replace(query, classes=_CLASSES)
    every = np.indices((_CLASSES, _CLASSES)).reshape(2, -1)
    cells = every if directed else every[:, every[0] <= every[1]]
    count = cells.shape[1]
    labels = torch.from_numpy(cells.T.ravel().copy())
    groups, first = torch.full((2 * count,), pays[0]), 2 * np.arange(count)
    scores, present = [], []
    for _ in range(context.rounds(count, 1 / query.sigma[0])):
        coins = context.coins(count)
        edges = Adjacency.from_edges(first[coins], first[coins] + 1, num_nodes=2 * count, directed=directed)
        seen = context.noisy(wide, edges, groups, EdgeCountData(labels))
        scores.append(seen[cells[0], cells[1]] / query.sigma[0])
        present.append(coins)
    return of_scores(query, context, scores, present)


@insert_canaries.register
def _of_tallies(query: AccuracyCountQuery, context: CanaryContext) -> CanaryResult | str:
    """A record for each run of candidates, right about all of them, in a tally of more candidates."""
    if query.groups > 1 and not query.pays[context.group]:
        return "records of this group are not counted"
    each = query.candidates
    count = max(1, _CANDIDATES // each)
    wide, groups = replace(query, candidates=count * each), _groups(context, query.groups)
    scores, present = [], []
    for _ in range(context.rounds(count, math.sqrt(each) / query.sigma)):
        coins = context.coins(count)
        correct = torch.from_numpy(np.kron(np.diag(coins), np.ones((1, each), dtype=bool)))
        seen = context.noisy(wide, _empty_graph(), groups, AccuracyCountData(correct))
        scores.append(seen.reshape(count, each).sum(axis=1) / (query.sigma * math.sqrt(each)))
        present.append(coins)
    return of_scores(query, context, scores, present)


@insert_canaries.register
def _of_outcomes(query: OutcomeCountQuery, context: CanaryContext) -> CanaryResult | str:
    """One record a release: counted or not; where it may be replaced, right or wrong."""
    if query.groups > 1 and not query.pays[context.group]:
        return "records of this group are not counted"
    replaced = getattr(context.unit, "replace_one", False)
    along = np.array([1.0, -1.0]) / math.sqrt(2) if replaced else np.array([1.0, 0.0])
    groups, present, scores = _groups(context, query.groups), context.coins(_RECORDS), np.empty(_RECORDS)
    for number, inside in enumerate(present):
        right = torch.tensor([bool(inside)])
        wrong = ~right if replaced else torch.zeros_like(right)
        seen: Floats = context.noisy(query, _empty_graph(), groups, OutcomeCountData(right, wrong))
        scores[number] = float(along @ seen) / query.sigma
    return of_scores(query, context, [scores], [present])


def _empty_graph() -> Adjacency:
    """Return a graph that is not read."""
    return Adjacency.from_edges([], [], num_nodes=2, directed=True)


def _groups(context: CanaryContext, groups: int) -> torch.Tensor | None:
    return torch.full((2,), context.group) if groups > 1 else None

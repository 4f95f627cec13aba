"""Canaries in counts: each moves a count, a cell or a candidate of its own."""

import math
from dataclasses import replace

import numpy as np
import torch

from graphveil.audit.planted.asking import Asking, Coins, Floats, Planted, of_scores, plant, planted
from graphveil.audit.planted.rows import room
from graphveil.graph import Adjacency
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


@plant.register
def _of_neighbor_counts(query: NeighborCountQuery, asking: Asking) -> Planted:
    """Friendships of disjoint pairs: the count that one moves is at least one, or not."""
    count = room(query.classes, 2)
    first, nodes, present = np.arange(count) * 2, 2 * count, asking.coins(count)
    data = NeighborCountData(torch.zeros(nodes, dtype=torch.int64))
    groups = torch.zeros(nodes, dtype=torch.int64) if query.needs_groups else None
    directed = isinstance(asking.unit, DirectedEdge)

    def edges(who: Coins) -> Adjacency:
        return Adjacency.from_edges(first[who], first[who] + 1, num_nodes=nodes, directed=directed)

    moved = asking.exact(query, edges(np.ones(count, dtype=bool)), groups, data)
    seen = asking.noisy(query, edges(present), groups, data)
    reached = (moved > 0.5).reshape(count, -1)
    heard = (seen > 0.5).reshape(count, -1) | ~reached
    bound = asking.counted(np.all(heard, axis=1), present)  # in every count that it moves
    return planted(query, asking, count, PureDP(bound.epsilon), bound)


@plant.register
def _of_edge_counts(query: EdgeCountQuery, asking: Asking) -> Planted | str:
    """An edge for each cell, in a table of more classes."""
    pays = [group for group, counted in enumerate(query.labelled) if counted]
    here, there = asking.pair
    if query.groups > 1 and not (query.labelled[here] and query.labelled[there]):
        return "the dearest pair of groups is not counted"
    directed = isinstance(asking.unit, DirectedEdge)
    wide = replace(query, classes=_CLASSES)
    every = np.indices((_CLASSES, _CLASSES)).reshape(2, -1)
    cells = every if directed else every[:, every[0] <= every[1]]
    count = cells.shape[1]
    labels = torch.from_numpy(cells.T.ravel().copy())
    groups, first = torch.full((2 * count,), pays[0]), 2 * np.arange(count)
    scores, present = [], []
    for _ in range(asking.rounds(count, 1 / query.sigma[0])):
        coins = asking.coins(count)
        edges = Adjacency.from_edges(first[coins], first[coins] + 1, num_nodes=2 * count, directed=directed)
        seen = asking.noisy(wide, edges, groups, EdgeCountData(labels))
        scores.append(seen[cells[0], cells[1]] / query.sigma[0])
        present.append(coins)
    return of_scores(query, asking, scores, present)


@plant.register
def _of_tallies(query: AccuracyCountQuery, asking: Asking) -> Planted | str:
    """A record for each run of candidates, right about all of them, in a tally of more candidates."""
    if query.groups > 1 and not query.pays[asking.group]:
        return "records of this group are not counted"
    each = query.candidates
    count = max(1, _CANDIDATES // each)
    wide, groups = replace(query, candidates=count * each), _groups(asking, query.groups)
    scores, present = [], []
    for _ in range(asking.rounds(count, math.sqrt(each) / query.sigma)):
        coins = asking.coins(count)
        correct = torch.from_numpy(np.kron(np.diag(coins), np.ones((1, each), dtype=bool)))
        seen = asking.noisy(wide, _nobody(), groups, AccuracyCountData(correct))
        scores.append(seen.reshape(count, each).sum(axis=1) / (query.sigma * math.sqrt(each)))
        present.append(coins)
    return of_scores(query, asking, scores, present)


@plant.register
def _of_outcomes(query: OutcomeCountQuery, asking: Asking) -> Planted | str:
    """One record a release: counted or not; where it may be replaced, right or wrong."""
    if query.groups > 1 and not query.pays[asking.group]:
        return "records of this group are not counted"
    replaced = getattr(asking.unit, "replace_one", False)
    along = np.array([1.0, -1.0]) / math.sqrt(2) if replaced else np.array([1.0, 0.0])
    groups, present, scores = _groups(asking, query.groups), asking.coins(_RECORDS), np.empty(_RECORDS)
    for number, inside in enumerate(present):
        right = torch.tensor([bool(inside)])
        wrong = ~right if replaced else torch.zeros_like(right)
        seen: Floats = asking.noisy(query, _nobody(), groups, OutcomeCountData(right, wrong))
        scores[number] = float(along @ seen) / query.sigma
    return of_scores(query, asking, [scores], [present])


def _nobody() -> Adjacency:
    """Return a graph that is not read."""
    return Adjacency.from_edges([], [], num_nodes=2, directed=True)


def _groups(asking: Asking, groups: int) -> torch.Tensor | None:
    return torch.full((2,), asking.group) if groups > 1 else None

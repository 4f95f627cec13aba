"""Canaries in rows: disjoint stars and sources, one release of thousands."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from graphveil.audit.query_canaries.context import (
    CanaryContext,
    CanaryResult,
    Coins,
    Floats,
    insert_canaries,
    of_scores,
)
from graphveil.data import Adjacency
from graphveil.privacy import DirectedEdge, NodeBoundedDegree
from graphveil.privacy.unit import NodeUnit
from graphveil.release import NeighborSumData, NeighborSumQuery, OutEdgeSumData, OutEdgeSumQuery
from graphveil.release.query import Query
from graphveil.release.weights import Similarity

NUMBERS = 1 << 21  # that a release of canaries may have: seconds
_NODES = 1 << 17  # and at most so many nodes
_LEAVES = 1 << 12  # of a star: a larger asserted degree is certified in part

RowQuery = Callable[[Any, Coins], Floats]


def canaries_per_release(dim: int, nodes_each: int) -> int:
    """Return how many canaries a release of a few million numbers holds."""
    return max(16, min(NUMBERS // dim, _NODES) // nodes_each)


@insert_canaries.register
def _of_hops(query: NeighborSumQuery, context: CanaryContext) -> CanaryResult:
    """Stars whose centers send a vector of norm one: a friendship, a stored edge, or all edges of a node."""
    unit = context.unit
    here, there = context.pair if query.groups > 1 else (0, 0)
    leaves = min(unit.max_degree, _LEAVES) if isinstance(unit, NodeBoundedDegree) else 1
    count = canaries_per_release(query.dim, 1 + leaves)
    nodes, center = count * (1 + leaves), np.arange(count) * (1 + leaves)
    groups = torch.full((nodes,), there)
    groups[torch.from_numpy(center)] = here
    vectors = torch.zeros(nodes, query.dim, dtype=torch.float64)
    vectors[:, 0] = 1.0
    data = NeighborSumData(vectors, None if query.similarity is None else _alike(query.similarity, nodes))
    weighted = query.reads_edge_weights

    def edges(who: Coins) -> Adjacency:
        sources = np.repeat(center[who], leaves)
        targets = (center[who][:, None] + 1 + np.arange(leaves)).ravel()
        return Adjacency.from_edges(
            sources,
            targets,
            num_nodes=nodes,
            directed=isinstance(unit, DirectedEdge),
            weight=np.ones(len(sources)) if weighted else None,
            max_weight=1.0 if weighted else None,
        )

    public = groups if query.needs_groups else None
    sigma = np.array(query.sigma)[groups.numpy() if len(query.sigma) > 1 else np.zeros(nodes, dtype=int)]

    def query_rows(run: Any, who: Coins) -> Floats:
        rows: Floats = run(query, edges(who), public, data) / sigma[:, None]
        if isinstance(unit, NodeUnit):
            rows[center] = 0.0  # a node's own row is for it alone
        return rows

    return _of_rows(query, context, query_rows, count, np.arange(nodes) // (1 + leaves))


def _alike(weight: Similarity, nodes: int) -> Any:
    """Return keys by which any two nodes are as alike as can be."""
    if weight.reads == "attention":
        maps = torch.full((nodes, 1), 4.0)
        return maps, maps, torch.tensor([9.0]), torch.tensor(0.0)
    return torch.eye(3, dtype=torch.float64)[:1].repeat(nodes, 1)


@insert_canaries.register
def _of_pushes(query: OutEdgeSumQuery, context: CanaryContext) -> CanaryResult | str:
    """Sources with a list of their own that takes the whole budget, and a vector at its bound."""
    level, group = int(np.argmax(query.levels)), context.group if query.groups > 1 else 0
    if not query.bounds[group]:
        return "records of this group send nothing"
    listed = max(1, math.ceil(16 * query.out_degree_bound / query.levels[level]))
    count = canaries_per_release(query.dim, 1 + listed)
    nodes, source = count * (1 + listed), np.arange(count) * (1 + listed)
    replaced = getattr(context.unit, "replace_one", False)
    groups = torch.full((nodes,), group) if query.needs_groups else None
    length, place = query.bounds[group] * (1 - 1e-9), torch.full((nodes,), level)

    def query_rows(run: Any, who: Coins) -> Floats:
        lists = np.ones(count, dtype=bool) if replaced else who
        targets = (source[lists][:, None] + 1 + np.arange(listed)).ravel()
        graph = Adjacency.from_edges(
            np.repeat(source[lists], listed), targets, num_nodes=nodes, directed=True
        )
        vectors = torch.zeros(nodes, query.dim, dtype=torch.float64)
        sent = np.where(who, length, -length if replaced else 0.0)
        vectors[torch.from_numpy(source), 0] = torch.from_numpy(sent)
        rows: Floats = run(query, graph, groups, OutEdgeSumData(vectors, place)) / query.sigma
        return rows

    return _of_rows(query, context, query_rows, count, np.arange(nodes) // (1 + listed))


def _of_rows(
    query: Query, context: CanaryContext, query_rows: RowQuery, count: int, owner: npt.NDArray[np.int64]
) -> CanaryResult:
    """Score each canary along what it moves, in noise units, and bound mu.

    ``query_rows`` returns rows in noise units for those canaries that are in; ``owner`` says whose row each
    is.
    """
    none = query_rows(context.exact, np.zeros(count, dtype=bool))
    moved = query_rows(context.exact, np.ones(count, dtype=bool)) - none
    squares = np.bincount(owner, (moved * moved).sum(axis=1))
    mu = float(np.sqrt(squares.mean()))
    scores, present = [], []
    for _ in range(context.rounds(count, mu)):
        coins = context.coins(count)
        seen = query_rows(context.noisy, coins) - none
        scores.append(np.bincount(owner, (moved * seen).sum(axis=1)) / np.sqrt(squares))
        present.append(coins)
    return of_scores(query, context, scores, present)

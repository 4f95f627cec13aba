"""Queries as mechanisms: what a plan asks, asked on small random graphs and replayed like anybody else's."""

from collections.abc import Callable
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphveil.audit.noise import Noise
from graphveil.audit.replays import replay
from graphveil.audit.report import Report
from graphveil.audit.silence import silent
from graphveil.audit.small_graphs import SmallGraph
from graphveil.graph import Adjacency
from graphveil.privacy import ByGroup, Gaussian, MemoryLedger, NodeOwner, Unit
from graphveil.release import (
    NeighborCountData,
    NeighborCountQuery,
    NeighborSumData,
    NeighborSumQuery,
    PushData,
    PushQuery,
    Release,
)
from graphveil.release.query import Query

GRID = 1e-6  # relative: answers are float32


def replay_query(query: Query, unit: Unit, *, pairs: int = 200, seed: int = 0) -> Report | None:
    """Replay one query of a plan on random neighbours; None where it cannot be asked about small graphs.

    The claim is the query's own event. Edges differ under units of edges, records under ``node-owner``.

    >>> from graphveil.privacy import UndirectedEdge
    >>> from graphveil.release.plan import hops
    >>> (query,) = hops(1.0, 1, 4)
    >>> replay_query(query, UndirectedEdge(), pairs=20).broken
    False
    """
    asked = mechanism_of(query, unit)
    if asked is None:
        return None
    mechanism, claim = asked
    return replay(mechanism, unit=unit.name, pairs=pairs, seed=seed, **claim)


Asked = tuple[Callable[[SmallGraph, Noise], None], dict[str, Any]]


@singledispatch
def mechanism_of(query: Query, unit: Unit) -> Asked | None:
    """Return a query as a mechanism on small graphs, and its claim; None where it has no neighbours there.

    A new kind of query registers here, and is replayed with every plan that asks it.
    """
    return None


def _is_edge(unit: Unit) -> bool:
    return unit.name in ("undirected-edge", "directed-edge")


@mechanism_of.register
def _of_hops(query: NeighborSumQuery, unit: Unit) -> Asked | None:
    if not _is_edge(unit) or query.similarity is not None:
        return None
    event = query.event(unit)
    return lambda graph, noise: _hop(query, unit, graph, noise), {"mu": event.worst**0.5 * (1 + GRID)}


@mechanism_of.register
def _of_counts(query: NeighborCountQuery, unit: Unit) -> Asked | None:
    if not _is_edge(unit):
        return None
    return lambda graph, noise: _counts(query, unit, graph, noise), {"epsilon": query.epsilon}


@mechanism_of.register
def _of_pushes(query: PushQuery, unit: Unit) -> Asked | None:
    if not isinstance(unit, NodeOwner) or unit.replace_one:
        return None
    cost = query.event(unit)
    cases = cost.events if isinstance(cost, ByGroup) else (cost,)
    mu = max(case.mu for case in cases if isinstance(case, Gaussian))
    return lambda graph, noise: _push(query, unit, graph, noise), {"mu": mu * (1 + GRID)}


def _hop(query: NeighborSumQuery, unit: Unit, graph: SmallGraph, noise: Noise) -> None:
    rows = torch.zeros(graph.nodes, query.dim, dtype=torch.float64)
    rows[torch.arange(graph.nodes), torch.from_numpy(graph.y) % query.dim] = 1.0
    groups = _groups(query, graph)
    answer = _asked(query, unit, graph, groups, NeighborSumData(rows))
    sigma = np.array(query.sigma)[
        groups.numpy() if len(query.sigma) > 1 else np.zeros(graph.nodes, dtype=int)
    ]
    noise.gaussian(answer, sigma[:, None])


def _counts(query: NeighborCountQuery, unit: Unit, graph: SmallGraph, noise: Noise) -> None:
    data = NeighborCountData(torch.from_numpy(graph.y) % query.classes)
    noise.laplace(_asked(query, unit, graph, _groups(query, graph), data), 1 / query.epsilon)


def _push(query: PushQuery, unit: Unit, graph: SmallGraph, noise: Noise) -> None:
    """A null record sends nothing; others a vector as long as their group may."""
    groups = _groups(query, graph)
    bound = torch.tensor(query.bounds, dtype=torch.float64)[groups if query.groups > 1 else groups * 0]
    vectors = torch.zeros(graph.nodes, query.dim, dtype=torch.float64)
    there = torch.from_numpy(graph.y >= 0)
    vectors[torch.arange(graph.nodes), torch.from_numpy(graph.y) % query.dim] = there * bound * (1 - 1e-9)
    levels = torch.arange(graph.nodes) % len(query.levels)
    noise.gaussian(_asked(query, unit, graph, groups, PushData(vectors, levels)), query.sigma)


def _groups(query: Query, graph: SmallGraph) -> Tensor:
    """Return public groups: they follow from a node's number."""
    return torch.arange(graph.nodes) % query.groups


def _asked(query: Query, unit: Unit, graph: SmallGraph, groups: Tensor, data: Any) -> Any:
    source, target = np.array(graph.edges, dtype=np.int64).reshape(-1, 2).T
    edges = Adjacency.from_edges(source, target, num_nodes=graph.nodes, directed=graph.directed)
    shown = groups if query.needs_groups else None
    release = Release(silent(unit, query), edges, shown, budget=MemoryLedger(), label="audit")
    return release.ask(data).double()

"""Small graphs with all that is public about them, and their neighbors under a unit of protection.

A new unit registers its neighbors here (:func:`family`), and every query that has a bound under it is
replayed on them.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, singledispatch
from itertools import combinations, permutations
from zlib import crc32

import numpy as np
import torch

from graphveil.audit.small_graphs import CLASSES, FEATURES, NO_LABEL, Pair, SmallGraph, draw_graph
from graphveil.data import Adjacency
from graphveil.data.node_pairs import Domain
from graphveil.privacy import DirectedEdge, EdgeSubset, NodeBoundedDegree, NodeRecord, UndirectedEdge, Unit

Rng = np.random.Generator

NODES = 9  # nodes
_NEIGHBORS = 12  # of one graph, at random
_MAX_WEIGHT = 2.0  # of an edge


@dataclass(frozen=True, eq=False)
class PublicGraphFacts:
    """What neighbors have in common beside the graph's size.

    Args:
        nodes: how many.
        seed: of everything public that is drawn.
        mutual: whether the graph is stored as an undirected one.
        listed: who may have private edges; everybody by default.
        known: public edges, each once.
    """

    nodes: int
    seed: tuple[int, ...]
    mutual: bool
    listed: tuple[bool, ...] = ()
    known: frozenset[Pair] = frozenset()

    def draw(self, name: str) -> Rng:
        """Return a generator of its own for each purpose, the same for all neighbors."""
        return np.random.default_rng([*self.seed, crc32(name.encode())])

    @cached_property
    def domain(self) -> Domain:
        """The slots that are protected."""
        if not self.listed:
            return Domain.whole(self.nodes, directed=not self.mutual)
        source, target = np.array(sorted(self.known), dtype=np.int64).reshape(-1, 2).T
        edges = Adjacency.from_edges(source, target, num_nodes=self.nodes, directed=False)
        return Domain.within(edges, torch.tensor(self.listed))


@dataclass(frozen=True, eq=False)
class Neighbor:
    """A neighboring graph, and where it differs: a pair's two ends, or one record's node."""

    graph: SmallGraph
    place: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Family:
    """A graph, some of its neighbors, and what is public of all."""

    graph: SmallGraph
    neighbors: tuple[Neighbor, ...]
    public: PublicGraphFacts


def adjacency(graph: SmallGraph, public: PublicGraphFacts, *, weighted: bool = False) -> Adjacency:
    """Store a small graph, its edges in some order and some of them repeatedly.

    An edge's weight is that of its pair, which is the same whether the edge is there or not.
    """
    halves = not graph.directed
    pairs = np.array([(u, v) for u, v in graph.edges if u < v or not halves], dtype=np.int64).reshape(-1, 2)
    rng = public.draw("order")
    pairs = rng.permutation(np.repeat(pairs, 1 if weighted else int(rng.integers(1, 4)), axis=0))
    source, target = pairs.T
    if weighted:
        table = public.draw("weights of pairs").random((public.nodes, public.nodes)) * _MAX_WEIGHT
        shares = np.maximum(table, table.T)[source, target]
        found = Adjacency.from_edges(
            source,
            target,
            num_nodes=public.nodes,
            directed=not halves,
            weight=shares,
            max_weight=_MAX_WEIGHT,
        )
    else:
        found = Adjacency.from_edges(source, target, num_nodes=public.nodes, directed=not halves)
    # Of an undirected graph, one end's list may miss an edge once a record is nulled.
    return replace(found, directed=False) if public.mutual and not halves else found


@singledispatch
def family(unit: Unit, rng: Rng, seed: tuple[int, ...]) -> Family | None:
    """Return a graph of any kind and neighbors of it; None for a unit that no small graph is about."""
    return None


@family.register(UndirectedEdge)
@family.register(DirectedEdge)
def _of_edges(unit: UndirectedEdge | DirectedEdge, rng: Rng, seed: tuple[int, ...]) -> Family:
    """Toggle pairs."""
    directed = isinstance(unit, DirectedEdge)
    graph = draw_graph(rng, directed=directed, most=NODES)
    pairs = (permutations if directed else combinations)(range(graph.nodes), 2)
    return _toggled(graph, pairs, rng, PublicGraphFacts(graph.nodes, seed, mutual=not directed))


@family.register
def _of_private_slots(unit: EdgeSubset, rng: Rng, seed: tuple[int, ...]) -> Family:
    """Toggle pairs of listed nodes that are no public edges."""
    graph = draw_graph(rng, directed=False, least=2, most=NODES)
    listed = rng.random(graph.nodes) < rng.choice([0.6, 1.0])
    listed[:2] = True
    known = {pair for pair in combinations(range(graph.nodes), 2) if rng.random() < 0.25}
    private = {(u, v) for u, v in graph.edges if u < v and listed[u] and listed[v]}
    both = {pair for u, v in known | private for pair in ((u, v), (v, u))}
    pairs = (p for p in combinations(np.flatnonzero(listed).tolist(), 2) if p not in known)
    public = PublicGraphFacts(graph.nodes, seed, True, tuple(listed.tolist()), frozenset(known))
    return _toggled(graph.with_edges(both), pairs, rng, public)


def _toggled(graph: SmallGraph, pairs: Iterable[Pair], rng: Rng, public: PublicGraphFacts) -> Family:
    chosen = _some(list(pairs), rng)
    return Family(graph, tuple(Neighbor(graph.toggle_edge(pair), pair) for pair in chosen), public)


def _some(every: list[Pair], rng: Rng) -> list[Pair]:
    return [every[k] for k in rng.permutation(len(every))[:_NEIGHBORS]]


@family.register
def _of_owners(unit: NodeRecord, rng: Rng, seed: tuple[int, ...]) -> Family:
    """Null or replace records with their own lists."""
    mutual = bool(rng.random() < 0.5)
    graph = replace(draw_graph(rng, directed=not mutual, most=NODES), directed=True)
    others = [other for q in range(graph.nodes) for other in _other_records(graph, q, unit, rng)]
    return Family(graph, tuple(others), PublicGraphFacts(graph.nodes, seed, mutual))


def _other_records(graph: SmallGraph, q: int, unit: NodeRecord, rng: Rng) -> Iterator[Neighbor]:
    """Yield neighbors that differ in q's record: nulled; opposite with the same list; and any other."""
    rest = {pair for pair in graph.edges if pair[0] != q}
    yield Neighbor(graph.with_edges(rest).with_record(q, 0.0, NO_LABEL), (q,))
    if unit.replace_one:
        yield Neighbor(graph.with_record(q, 1 - graph.x[q], int(graph.y[q])), (q,))
        own = {(q, v) for v in range(graph.nodes) if v != q and rng.random() < 0.5}
        other = graph.with_edges(rest | own)
        yield Neighbor(other.with_record(q, rng.random(FEATURES), int(rng.integers(CLASSES))), (q,))


@family.register
def _bounded_degree_family(unit: NodeBoundedDegree, rng: Rng, seed: tuple[int, ...]) -> Family:
    """Delete nodes with all their edges, of graphs for which the assumption about degrees is true."""
    mutual = bool(rng.random() < 0.5)
    drawn = draw_graph(rng, directed=not mutual, most=NODES)
    graph = replace(drawn.with_edges(_kept(drawn, unit.max_degree, rng)), directed=True)
    others = []
    for q in range(graph.nodes):
        rest = {pair for pair in graph.edges if q not in pair}
        others.append(Neighbor(graph.with_edges(rest).with_record(q, 0.0, NO_LABEL), (q,)))
        if unit.replace_one:
            others.append(Neighbor(graph.with_record(q, 1 - graph.x[q], int(graph.y[q])), (q,)))
    return Family(graph, tuple(others), PublicGraphFacts(graph.nodes, seed, mutual))


def _kept(graph: SmallGraph, most: int, rng: Rng) -> set[Pair]:
    """Return edges of which no node has more than so many in either direction."""
    kept: set[Pair] = set()
    out, into = np.zeros(graph.nodes, dtype=int), np.zeros(graph.nodes, dtype=int)
    pairs = [pair for pair in graph.edges if graph.directed or pair[0] < pair[1]]
    for k in rng.permutation(len(pairs)):
        u, v = pairs[k]
        stored = [(u, v)] if graph.directed else [(u, v), (v, u)]
        if all(out[a] < most and into[b] < most for a, b in stored):
            kept.update(stored)
            for a, b in stored:
                out[a] += 1
                into[b] += 1
    return kept


def mutual_edges(rng: Rng, seed: tuple[int, ...]) -> Family:
    """Return a graph of own lists and neighbors in which two nodes list each other, or neither does."""
    graph = draw_graph(rng, directed=True, most=NODES)
    agree = [(u, v) for u, v in combinations(range(graph.nodes), 2) if graph.a[u, v] == graph.a[v, u]]
    others = tuple(
        Neighbor(graph.with_edges(set(graph.edges) ^ {pair, pair[::-1]}), pair) for pair in _some(agree, rng)
    )
    return Family(graph, others, PublicGraphFacts(graph.nodes, seed, mutual=False))


Families = Callable[[Rng, tuple[int, ...]], Family | None]

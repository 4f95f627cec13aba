"""Small graphs of every kind, and their neighbors under a privacy unit.

Neighbor tests of functions draw single pairs (``neighbors_of``). Those of query plans draw a graph with
several neighbors and the public facts that they share (``family``); a new unit registers there.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial, singledispatch
from itertools import combinations, permutations
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import torch

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.node_pairs import Domain
from graphveil.core.queries.projected_sums import h_index
from graphveil.core.unit import (
    DirectedEdge,
    EdgeSubset,
    Node,
    NodeBoundedDegree,
    NodeRecord,
    UndirectedEdge,
    Unit,
)
from graphveil.errors import ConfigError

Rng = np.random.Generator
Pair = tuple[int, int]
Floats = npt.NDArray[np.float64]
Neighbors = tuple["SmallGraph", "SmallGraph"]
Drawing = Callable[[Rng], Neighbors]

SHAPES: dict[str, Callable[[int, list[Pair]], list[Pair]]] = {  # of n nodes, with some random pairs
    "random": lambda n, some: some,
    "star": lambda n, some: [(0, v) for v in range(1, n)],
    "clique": lambda n, some: list(permutations(range(n), 2)),
    "hubs": lambda n, some: [(u, v) for u in range(min(2, n)) for v in range(n)] + some[:n],
    "isolated": lambda n, some: [pair for pair in some if max(pair) < n // 2],
    "path": lambda n, some: [(v, v + 1) for v in range(n - 1)],
    "matching": lambda n, some: [(v, v + 1) for v in range(0, n - 1, 2)],
    "empty": lambda n, some: [],
}
CLASSES, FEATURES = 3, 3
NO_LABEL = -1  # the label of a null record
NODES, _FEW = 32, 9  # largest number of nodes, and that of most graphs: small pairs are easier to read
_SHOWN = 12  # edges that text lists
MAX_NODES = 4096  # because the adjacency is a full matrix


@checked
@dataclass(frozen=True, eq=False)
class SmallGraph:
    """A small graph. An undirected one stores both directions of every edge.

    Args:
        nodes: Number of nodes.
        edges: (source, target) pairs, ascending, each once, no loops.
        x: Features in [0, 1], shape (nodes, d).
        y: Labels, shape (nodes,).
        directed: Whether a pair may occur without its opposite.

    >>> SmallGraph.from_edges(3, [(0, 1)], directed=False).a.tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """

    nodes: int
    edges: tuple[Pair, ...]
    x: Floats
    y: npt.NDArray[np.int64]
    directed: bool = False

    @classmethod
    @checked
    def from_edges(
        cls, nodes: int, edges: list[Pair], *, directed: bool, rng: Rng | None = None
    ) -> "SmallGraph":
        """Build a graph from edges.

        Args:
            nodes: Number of nodes.
            edges: Pairs of nodes; an undirected edge is listed once.
            directed: Whether a pair may occur without its opposite.
            rng: Source of features and labels; zero by default.

        Returns:
            The graph, without loops and duplicates.

        Raises:
            ConfigError: If the number of nodes is out of range.
        """
        checks.within(1, MAX_NODES, nodes=nodes)
        both = {pair for u, v in edges for pair in ([(u, v)] if directed else [(u, v), (v, u)]) if u != v}
        x, y = np.zeros((nodes, FEATURES)), np.zeros(nodes, dtype=np.int64)
        if rng is not None:
            corners = rng.integers(2, size=x.shape)
            x = np.where(rng.random((nodes, 1)) < 0.5, corners, rng.random(x.shape))
            y = rng.integers(CLASSES, size=nodes)
        return cls(nodes, tuple(sorted(both)), x, y, directed)

    @cached_property
    def a(self) -> Floats:
        """The adjacency matrix (nodes, nodes): a[u, v] is 1 for an edge u -> v."""
        matrix = np.zeros((self.nodes, self.nodes))
        if self.edges:
            matrix[tuple(np.array(self.edges).T)] = 1.0
        return matrix

    @checked
    def with_edges(self, edges: set[Pair]) -> "SmallGraph":
        """Return the graph with other edges.

        Args:
            edges: All edges, both directions of an undirected one.
        """
        return replace(self, edges=tuple(sorted(edges)))

    @checked
    def toggle_edge(self, pair: Pair) -> "SmallGraph":
        """Remove an edge if the graph has it, and add it otherwise.

        Args:
            pair: Source and target; both directions are changed if the graph is undirected.

        Returns:
            The changed graph.
        """
        either = {pair} if self.directed else {pair, pair[::-1]}
        return self.with_edges(set(self.edges) ^ either)

    @checked
    def with_record(self, node: int, x: npt.ArrayLike, y: int) -> "SmallGraph":
        """Return the graph with another record of one node.

        Args:
            node: Node.
            x: New features, one value or one per feature.
            y: New label; -1 for a null record.

        Returns:
            The changed graph.

        Raises:
            ConfigError: If the node or the shape of the features does not fit the graph.
        """
        checks.within(0, self.nodes - 1, node=node)
        features, labels = self.x.copy(), self.y.copy()
        if np.ndim(x):
            checks.shape(features[node].shape, x=x)
        features[node], labels[node] = x, y
        return replace(self, x=features, y=labels)

    def __str__(self) -> str:
        shown = [
            f"{u}->{v}" if self.directed else f"{u}-{v}" for u, v in self.edges if self.directed or u < v
        ]
        listed = ", ".join(shown[:_SHOWN]) + (f", ... ({len(shown)} in all)" if len(shown) > _SHOWN else "")
        return f"{self.nodes} nodes, edges {listed or 'none'}"


def draw_graph(rng: Rng, *, directed: bool, least: int = 1, most: int = NODES) -> SmallGraph:
    """Draw a graph of any kind, its nodes in random order; three in four have up to nine."""
    n = max(least, int(rng.integers(1, (min(most, _FEW) if rng.random() < 0.75 else most) + 1)))
    shape, density = list(SHAPES.values())[rng.integers(len(SHAPES))], rng.random()
    rows, columns = np.nonzero(rng.random((n, n)) < density * min(1, 16 / n))
    some = [(u, v) for u, v in zip(rows.tolist(), columns.tolist(), strict=True) if u != v]
    order = rng.permutation(n).tolist()
    return SmallGraph.from_edges(
        n, [(order[u], order[v]) for u, v in shape(n, some)], directed=directed, rng=rng
    )


# -- single pairs, for functions ---------------------------------------------------------------------------


def neighbors_of(unit: str, nodes: int = NODES) -> Drawing:
    """Return a function that draws two neighbors under a unit.

    ``undirected-edge`` and ``directed-edge`` toggle one edge. ``node-record`` nulls one node's features,
    label and out-edges, and ``node`` its features, label and all its edges. ``local-attributes`` replaces
    one node's features and label.

    >>> first, second = neighbors_of("undirected-edge")(np.random.default_rng(0))
    >>> len(set(first.edges) ^ set(second.edges))
    2
    """
    if unit not in _DRAWINGS:
        raise ConfigError(
            f"unit={unit!r} is not supported by the neighbor test{checks.suggestion(unit, _DRAWINGS)}. "
            f"Use one of {', '.join(_DRAWINGS)}, or pass neighbors=."
        )
    checks.integer_at_least(2, nodes=nodes)
    return partial(_DRAWINGS[unit], most=nodes)


def _toggled(rng: Rng, *, directed: bool, most: int) -> Neighbors:
    graph = draw_graph(rng, directed=directed, least=2, most=most)
    u, v = rng.choice(graph.nodes, 2, replace=False).tolist()
    return graph, graph.toggle_edge((u, v))


def _nulled(rng: Rng, *, own: bool, most: int) -> Neighbors:
    """Draw a graph where a node has no, some or all possible edges, and the same without its record."""
    graph = draw_graph(rng, directed=own, most=most)
    q = int(rng.integers(graph.nodes))
    others = [v for v in range(graph.nodes) if v != q]
    share = rng.choice([0.0, 1.0, rng.random()])
    mine = [(q, v) for v in others if rng.random() < share]
    rest = {pair for pair in graph.edges if pair[0] != q and (own or pair[1] != q)}
    edges = rest | set(mine) | (set() if own else {(v, u) for u, v in mine})
    null = graph.with_edges(rest).with_record(q, 0.0, NO_LABEL)
    return graph.with_edges(edges), null


def _replaced(rng: Rng, *, most: int) -> Neighbors:
    graph = draw_graph(rng, directed=False, most=most)
    q = int(rng.integers(graph.nodes))
    other = rng.integers(2, size=FEATURES) if rng.random() < 0.7 else rng.random(FEATURES)
    first = graph.with_record(q, 1 - other if rng.random() < 0.5 else graph.x[q], int(graph.y[q]))
    return first, first.with_record(q, other, int(rng.integers(CLASSES)))


_DRAWINGS: dict[str, Callable[..., Neighbors]] = {
    "undirected-edge": partial(_toggled, directed=False),
    "directed-edge": partial(_toggled, directed=True),
    "node-record": partial(_nulled, own=True),
    "node": partial(_nulled, own=False),
    "local-attributes": _replaced,
}


def pairs_of(drawing: Drawing, seed: int) -> Iterator[Neighbors]:
    """Yield pairs of neighbors indefinitely, each from a separate generator and in random order."""
    for number in range(1 << 62):
        rng = np.random.default_rng([seed, number])
        first, second = drawing(rng)
        yield (second, first) if rng.random() < 0.5 else (first, second)


# -- graphs with several neighbors, for query plans --------------------------------------------------------

FAMILY_NODES, _NEIGHBORS = 9, 12  # largest numbers of nodes, and of neighbors of one graph
_MAX_WEIGHT = 2.0  # of an edge
_ABOVE = (0, 0, 0, 1, 5)  # how far a degree bound is above the largest h-index
_MAX_HUBS, _MAX_RECIPIENTS, _MAX_CHANGED = 6, 16, 3


@dataclass(frozen=True, eq=False)
class PublicGraphFacts:
    """The public facts that neighbors share.

    Args:
        listed: Which nodes may have private edges; all by default.
    """

    nodes: int
    seed: tuple[int, ...]
    mutual: bool
    listed: tuple[bool, ...] = ()
    known: frozenset[Pair] = frozenset()

    def draw(self, name: str) -> Rng:
        """Return a separate generator for each purpose, the same for all neighbors."""
        return np.random.default_rng([*self.seed, crc32(name.encode())])

    @cached_property
    def domain(self) -> Domain:
        if not self.listed:
            return Domain.whole(self.nodes, directed=not self.mutual)
        source, target = np.array(sorted(self.known), dtype=np.int64).reshape(-1, 2).T
        edges = Adjacency.from_edges(source, target, num_nodes=self.nodes, directed=False)
        return Domain.within(edges, torch.tensor(self.listed))


@dataclass(frozen=True, eq=False)
class Neighbor:
    """A neighboring graph, and the nodes where it differs: the ends of an edge, or the node of a record."""

    graph: SmallGraph
    place: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Family:
    """A graph, some of its neighbors, and the public facts of all of them."""

    graph: SmallGraph
    neighbors: tuple[Neighbor, ...]
    public: PublicGraphFacts

    def degree_bound(self) -> int:
        """Return a degree bound D of a release: the h-index of no graph of the family is larger."""
        graphs = self.graph, *(neighbor.graph for neighbor in self.neighbors)
        largest = max(h_index(graph.a.sum(axis=1).astype(np.int64)) for graph in graphs)
        return max(1, largest) + int(self.public.draw("degree bound").choice(_ABOVE))


Families = Callable[[Rng, tuple[int, ...]], Family | None]


def adjacency(graph: SmallGraph, public: PublicGraphFacts, *, weighted: bool = False) -> Adjacency:
    """Store a small graph, its edges in some order and some of them repeatedly.

    An edge's weight is that of its pair, which is the same whether the edge is there or not.
    """
    halves = not graph.directed
    pairs = np.array([(u, v) for u, v in graph.edges if u < v or not halves], dtype=np.int64).reshape(-1, 2)
    rng = public.draw("order")
    pairs = rng.permutation(np.repeat(pairs, 1 if weighted else int(rng.integers(1, 4)), axis=0))
    source, target = pairs.T
    weights: dict[str, Any] = {}
    if weighted:
        table = public.draw("weights of pairs").random((public.nodes, public.nodes)) * _MAX_WEIGHT
        weights = {"weight": np.maximum(table, table.T)[source, target], "max_weight": _MAX_WEIGHT}
    found = Adjacency.from_edges(source, target, num_nodes=public.nodes, directed=not halves, **weights)
    # Of an undirected graph, one end's list may miss an edge once a record is nulled.
    return replace(found, directed=False) if public.mutual and not halves else found


@singledispatch
def family(unit: Unit, rng: Rng, seed: tuple[int, ...]) -> Family | None:
    """Return a graph of any kind and neighbors of it; None for a unit without such neighbors."""
    return None


@family.register(UndirectedEdge)
@family.register(DirectedEdge)
def _edge_family(unit: UndirectedEdge | DirectedEdge, rng: Rng, seed: tuple[int, ...]) -> Family:
    directed = isinstance(unit, DirectedEdge)
    graph = draw_graph(rng, directed=directed, most=FAMILY_NODES)
    pairs = (permutations if directed else combinations)(range(graph.nodes), 2)
    return _toggled_family(graph, pairs, rng, PublicGraphFacts(graph.nodes, seed, mutual=not directed))


@family.register
def _edge_subset_family(unit: EdgeSubset, rng: Rng, seed: tuple[int, ...]) -> Family:
    """Toggle pairs of listed nodes that are not public edges."""
    graph = draw_graph(rng, directed=False, least=2, most=FAMILY_NODES)
    listed = rng.random(graph.nodes) < rng.choice([0.6, 1.0])
    listed[:2] = True
    known = {pair for pair in combinations(range(graph.nodes), 2) if rng.random() < 0.25}
    private = {(u, v) for u, v in graph.edges if u < v and listed[u] and listed[v]}
    both = {pair for u, v in known | private for pair in ((u, v), (v, u))}
    pairs = (p for p in combinations(np.flatnonzero(listed).tolist(), 2) if p not in known)
    public = PublicGraphFacts(graph.nodes, seed, True, tuple(listed.tolist()), frozenset(known))
    return _toggled_family(graph.with_edges(both), pairs, rng, public)


def _toggled_family(graph: SmallGraph, pairs: Iterable[Pair], rng: Rng, public: PublicGraphFacts) -> Family:
    chosen = _some(list(pairs), rng)
    return Family(graph, tuple(Neighbor(graph.toggle_edge(pair), pair) for pair in chosen), public)


@family.register
def _record_family(unit: NodeRecord, rng: Rng, seed: tuple[int, ...]) -> Family:
    mutual = bool(rng.random() < 0.5)
    graph = replace(draw_graph(rng, directed=not mutual, most=FAMILY_NODES), directed=True)
    others = []
    for q in range(graph.nodes):
        others += _changed_records(graph, q, unit.replace_one, rng, into=False)
    return Family(graph, tuple(others), PublicGraphFacts(graph.nodes, seed, mutual))


@family.register
def _bounded_degree_family(unit: NodeBoundedDegree, rng: Rng, seed: tuple[int, ...]) -> Family:
    """Delete nodes with all their edges, of graphs in which no node exceeds the maximum degree."""
    mutual = bool(rng.random() < 0.5)
    drawn = draw_graph(rng, directed=not mutual, most=FAMILY_NODES)
    kept: set[Pair] = set()
    out, into = np.zeros(drawn.nodes, dtype=int), np.zeros(drawn.nodes, dtype=int)
    pairs = [pair for pair in drawn.edges if drawn.directed or pair[0] < pair[1]]
    for k in rng.permutation(len(pairs)):
        u, v = pairs[k]
        stored = [(u, v)] if drawn.directed else [(u, v), (v, u)]
        if all(out[a] < unit.max_degree and into[b] < unit.max_degree for a, b in stored):
            kept.update(stored)
            for a, b in stored:
                out[a] += 1
                into[b] += 1
    graph, others = replace(drawn.with_edges(kept), directed=True), []
    for q in range(graph.nodes):
        others += _changed_records(graph, q, unit.replace_one)
    return Family(graph, tuple(others), PublicGraphFacts(graph.nodes, seed, mutual))


@family.register
def _node_family(unit: Node, rng: Rng, seed: tuple[int, ...]) -> Family:
    """Delete nodes with all their edges; in two of three graphs one of them is adjacent to hubs."""
    kind, others = rng.choice(["any", "hubs", "two kinds of hubs"]), []
    mutual = bool(kind != "two kinds of hubs" and rng.random() < 0.6)
    if kind == "any":
        graph = draw_graph(rng, directed=not mutual, most=FAMILY_NODES)
        changed = rng.permutation(graph.nodes)[:_MAX_CHANGED].tolist()
    elif kind == "hubs":
        graph = _hubs(rng, directed=not mutual)
        changed = [0, *rng.permutation(graph.nodes)[: _MAX_CHANGED - 1].tolist()]
    else:
        graph, other = _other_hubs(rng)
        changed = [0]
        others += [Neighbor(other, (0,))] if unit.replace_one else []
    for q in changed:
        others += _changed_records(graph, q, unit.replace_one, rng)
    return Family(graph, tuple(others), PublicGraphFacts(graph.nodes, seed, mutual))


def _hubs(rng: Rng, *, directed: bool) -> SmallGraph:
    """Return a graph in which node 0 is adjacent to hubs with equal records and the same neighbors.

    Its record is that of the hubs or the opposite one, and it is adjacent to some of their neighbors.
    """
    hubs = int(rng.integers(1, _MAX_HUBS + 1))
    recipients = int(rng.integers(hubs, _MAX_RECIPIENTS + 1))
    kept, listed = rng.choice([1.0, 1.0, 0.8]), rng.choice([0.0, 1.0, rng.random()])
    first = 1 + hubs
    edges = [(hub, 0) for hub in range(1, first)]
    edges += [
        (hub, v) for hub in range(1, first) for v in range(first, first + recipients) if rng.random() < kept
    ]
    edges += [(0, v) for v in range(first, first + recipients) if rng.random() < listed]
    graph = SmallGraph.from_edges(first + recipients, edges, directed=directed, rng=rng)
    x, y = graph.x.copy(), graph.y.copy()
    x[1:first], y[1:first] = x[1], y[1]
    x[0], y[0] = (1 - x[1] if rng.random() < 0.7 else x[1]), y[1]
    return replace(graph, x=x, y=y)


def _other_hubs(rng: Rng) -> Neighbors:
    """Return directed graphs in which some hubs list node 0, or others with the opposite record do."""
    hubs = int(rng.choice([1, 2, _MAX_HUBS - 1, _MAX_HUBS]))
    first, last = 1 + 2 * hubs, 1 + 3 * hubs
    edges = [(u, v) for u in range(first) for v in range(first, last)]
    graphs = []
    for own, sign in ((range(1, 1 + hubs), 0.0), (range(1 + hubs, first), 1.0)):
        graph = SmallGraph.from_edges(last, [*edges, *((hub, 0) for hub in own)], directed=True)
        x = np.full((last, FEATURES), 0.5)
        x[1 : 1 + hubs], x[1 + hubs : first], x[0] = 1.0, 0.0, sign
        graphs.append(replace(graph, x=x, y=np.zeros(last, dtype=np.int64)))
    return graphs[0], graphs[1]


def _changed_records(
    graph: SmallGraph, q: int, replaced: bool, rng: Rng | None = None, *, into: bool = True
) -> list[Neighbor]:
    """Return the graph with a null record, and also with the opposite one and another if it is replaced.

    Args:
        rng: Source of a record of any kind, with any edges; None to leave it out.
        into: Whether the edges that lead to the node are also part of its record.
    """
    rest = {(u, v) for u, v in graph.edges if q != u and not (into and q == v)}
    graphs = [graph.with_edges(rest).with_record(q, 0.0, NO_LABEL)]
    graphs += [graph.with_record(q, 1 - graph.x[q], int(graph.y[q]))] if replaced else []
    if replaced and rng is not None:
        own = {(q, v) for v in range(graph.nodes) if v != q and rng.random() < 0.5}
        own |= {(v, q) for _, v in own if into}
        any_record = rng.random(FEATURES), int(rng.integers(CLASSES))
        graphs.append(graph.with_edges(rest | own).with_record(q, *any_record))
    return [Neighbor(one, (q,)) for one in graphs]


def mutual_edges(rng: Rng, seed: tuple[int, ...]) -> Family:
    """Return a graph of out-edges, and neighbors in which two nodes list each other or neither does."""
    graph = draw_graph(rng, directed=True, most=FAMILY_NODES)
    agree = [(u, v) for u, v in combinations(range(graph.nodes), 2) if graph.a[u, v] == graph.a[v, u]]
    others = tuple(
        Neighbor(graph.with_edges(set(graph.edges) ^ {pair, pair[::-1]}), pair) for pair in _some(agree, rng)
    )
    return Family(graph, others, PublicGraphFacts(graph.nodes, seed, mutual=False))


def _some(every: list[Pair], rng: Rng) -> list[Pair]:
    return [every[k] for k in rng.permutation(len(every))[:_NEIGHBORS]]

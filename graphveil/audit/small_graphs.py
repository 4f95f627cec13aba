"""Small graphs of every kind, and their neighbors under a unit of protection."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import permutations

import numpy as np
import numpy.typing as npt

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.errors import ConfigError

Pair = tuple[int, int]
Floats = npt.NDArray[np.float64]
Neighbors = tuple["SmallGraph", "SmallGraph"]
Drawing = Callable[[np.random.Generator], Neighbors]

KINDS = ("random", "star", "clique", "hubs", "isolated", "path", "matching", "empty")
CLASSES, FEATURES = 3, 3
NO_LABEL = -1  # the label of a null record

NODES = 32  # at most
_FEW = 9  # nodes of most graphs


@checked
@dataclass(frozen=True, eq=False)
class SmallGraph:
    """A graph that fits on a page. An undirected one holds both directions of every edge.

    Args:
        nodes: how many.
        edges: (source, target) pairs, ascending, each once, no loops.
        x: features in [0, 1], shape (nodes, d).
        y: labels, shape (nodes,).
        directed: whether a pair may be there without its opposite.

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
        cls, nodes: int, edges: list[Pair], *, directed: bool, rng: np.random.Generator | None = None
    ) -> "SmallGraph":
        """Build one; features and labels are drawn, or zero."""
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
        """The adjacency matrix: a[u, v] is 1 for an edge u -> v."""
        matrix = np.zeros((self.nodes, self.nodes))
        if self.edges:
            matrix[tuple(np.array(self.edges).T)] = 1.0
        return matrix

    @checked
    def with_edges(self, edges: set[Pair]) -> "SmallGraph":
        """Return it with other edges."""
        return replace(self, edges=tuple(sorted(edges)))

    @checked
    def toggle_edge(self, pair: Pair) -> "SmallGraph":
        """Return it without the edge if it has it, with it otherwise; both directions if undirected."""
        either = {pair} if self.directed else {pair, pair[::-1]}
        return self.with_edges(set(self.edges) ^ either)

    @checked
    def with_record(self, node: int, x: npt.ArrayLike, y: int) -> "SmallGraph":
        """Return it with another record of a node."""
        checks.within(0, self.nodes - 1, node=node)
        features, labels = self.x.copy(), self.y.copy()
        if np.ndim(x):
            checks.shape(features[node].shape, x=x)
        features[node], labels[node] = x, y
        return replace(self, x=features, y=labels)

    def __str__(self) -> str:
        """Say nodes and edges, an undirected edge once."""
        shown = [
            f"{u}->{v}" if self.directed else f"{u}-{v}" for u, v in self.edges if self.directed or u < v
        ]
        listed = ", ".join(shown[:_SHOWN]) + (f", ... ({len(shown)} in all)" if len(shown) > _SHOWN else "")
        return f"{self.nodes} nodes, edges {listed or 'none'}"


_SHOWN = 12
MAX_NODES = 4096  # of a graph whose adjacency is a full matrix


def draw_graph(rng: np.random.Generator, *, directed: bool, least: int = 1, most: int = NODES) -> SmallGraph:
    """Draw a graph of any kind, its nodes in random order; three in four have up to nine."""
    n = max(least, int(rng.integers(1, (min(most, _FEW) if rng.random() < 0.75 else most) + 1)))
    kind, density = KINDS[rng.integers(len(KINDS))], rng.random()
    rows, columns = np.nonzero(rng.random((n, n)) < density * min(1, 16 / n))
    some = [(u, v) for u, v in zip(rows.tolist(), columns.tolist(), strict=True) if u != v]
    edges = _edges_of(kind, n, some)
    order = rng.permutation(n).tolist()
    return SmallGraph.from_edges(n, [(order[u], order[v]) for u, v in edges], directed=directed, rng=rng)


def _edges_of(kind: str, n: int, some: list[Pair]) -> list[Pair]:
    """Return the edges of a kind of graph; ``some`` are random pairs."""
    if kind in ("random", "isolated"):
        return some if kind == "random" else [pair for pair in some if max(pair) < n // 2]
    if kind == "clique":
        return list(permutations(range(n), 2))
    if kind == "hubs":
        return [(u, v) for u in range(min(2, n)) for v in range(n)] + some[:n]
    lines = {
        "star": [(0, v) for v in range(1, n)],
        "path": [(v, v + 1) for v in range(n - 1)],
        "matching": [(v, v + 1) for v in range(0, n - 1, 2)],
    }
    return lines.get(kind, [])


def neighbors_of(unit: str, nodes: int = NODES) -> Drawing:
    """Return what draws two neighbors under a unit.

    ``undirected-edge`` and ``directed-edge`` toggle one edge. ``node-record`` nulls one node's features,
    label and own list; ``node`` its record and all its edges, whoever declares them. ``local-attributes``
    puts another record in a node's place and leaves the edges.

    >>> first, second = neighbors_of("undirected-edge")(np.random.default_rng(0))
    >>> len(set(first.edges) ^ set(second.edges))
    2
    """
    if unit not in _DRAWINGS:
        raise ConfigError(
            f"unit={unit!r} has no neighbors to draw{checks.suggestion(unit, _DRAWINGS)}; take one of "
            f"{', '.join(_DRAWINGS)}, or pass neighbors="
        )
    checks.integer_at_least(2, nodes=nodes)
    return partial(_DRAWINGS[unit], most=nodes)


def _toggled(rng: np.random.Generator, *, directed: bool, most: int) -> Neighbors:
    graph = draw_graph(rng, directed=directed, least=2, most=most)
    u, v = rng.choice(graph.nodes, 2, replace=False).tolist()
    return graph, graph.toggle_edge((u, v))


def _nulled(rng: np.random.Generator, *, own: bool, most: int) -> Neighbors:
    """Draw a graph where a node knows nobody, some or everybody, and the same without its record."""
    graph = draw_graph(rng, directed=own, most=most)
    q = int(rng.integers(graph.nodes))
    others = [v for v in range(graph.nodes) if v != q]
    share = rng.choice([0.0, 1.0, rng.random()])
    mine = [(q, v) for v in others if rng.random() < share]
    rest = {pair for pair in graph.edges if pair[0] != q and (own or pair[1] != q)}
    edges = rest | set(mine) | (set() if own else {(v, u) for u, v in mine})
    null = graph.with_edges(rest).with_record(q, 0.0, NO_LABEL)
    return graph.with_edges(edges), null


def _replaced(rng: np.random.Generator, *, most: int) -> Neighbors:
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
    """Yield neighbors without end, each drawn from a generator of its own; the order within is random."""
    for number in range(1 << 62):
        rng = np.random.default_rng([seed, number])
        first, second = drawing(rng)
        yield (second, first) if rng.random() < 0.5 else (first, second)

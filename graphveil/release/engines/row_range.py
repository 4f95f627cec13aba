"""Rows from one on: what is new of a graph that has grown."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from torch import Tensor

from graphveil import _check
from graphveil.graph import Adjacency
from graphveil.graph.blocks import Edges
from graphveil.release.engines.base import Engine
from graphveil.release.engines.in_memory import InMemoryEngine


@dataclass(frozen=True)
class LastRows(Engine):
    """Answers the rows from ``first`` on, and computes no other.

    Rows keep their numbers, so each has the noise that it would have among all.
    """

    first: int
    inner: Engine = field(default_factory=InMemoryEngine)

    def __post_init__(self) -> None:
        """Check the number of the first row."""
        _check.integer_at_least(0, first=self.first)

    def map(self, adjacency: Adjacency, block: Callable[[Edges], Tensor]) -> Tensor:
        """Return the last rows, stacked in node order."""
        start = int(adjacency.indptr[self.first])
        rest = Adjacency(
            adjacency.indptr[self.first :] - start,
            adjacency.indices[start:],
            adjacency.directed,
            adjacency.edge_set,
            weights=None if adjacency.weights is None else adjacency.weights[start:],
            max_weight=adjacency.max_weight,
        )

        def renumbered(edges: Edges) -> Tensor:
            return block(replace(edges, start=edges.start + self.first, stop=edges.stop + self.first))

        return self.inner.map(rest, renumbered)

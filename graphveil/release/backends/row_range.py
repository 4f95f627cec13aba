"""Rows from one on: what is new of a graph that has grown."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from torch import Tensor

from graphveil._util import checks
from graphveil.data import Adjacency
from graphveil.data.blocks import EdgeBlock, Ids
from graphveil.release.backends.base import AggregationBackend, BlockWork
from graphveil.release.backends.in_memory import InMemoryBackend


@dataclass(frozen=True)
class RowRange(AggregationBackend):
    """Answers the rows from ``first_row`` on, and computes no other.

    Rows keep their numbers, so each has the noise that it would have among all.
    """

    first_row: int
    inner: AggregationBackend = field(default_factory=InMemoryBackend)

    def __post_init__(self) -> None:
        """Check the number of the first row."""
        checks.integer_at_least(0, first_row=self.first_row)

    @property
    def first(self) -> int:
        """The first row that is answered."""
        return self.first_row

    @property
    def yields_borrowed_memory(self) -> bool:
        """Whether the inner backend does."""
        return self.inner.yields_borrowed_memory

    def check(self, adjacency: Adjacency) -> None:
        """Leave it to the inner backend."""
        self.inner.check(adjacency)

    def blocks(self, adjacency: Adjacency, first: int = 0) -> Iterator[EdgeBlock]:
        """Yield the inner backend's blocks."""
        return self.inner.blocks(adjacency, first)

    def map(self, work: BlockWork, blocks: Iterable[EdgeBlock]) -> Iterator[Tensor]:
        """Leave the work to the inner backend."""
        return self.inner.map(work, blocks)

    def run(self, work: BlockWork, adjacency: Adjacency, first: int = 0) -> Iterator[Tensor]:
        """Leave the work to the inner backend."""
        return self.inner.run(work, adjacency, first)

    def in_edges(self, adjacency: Adjacency, nodes: Ids) -> tuple[Ids, Ids]:
        """Leave it to the inner backend."""
        return self.inner.in_edges(adjacency, nodes)

"""The in-memory backend: the plainest one, and the oracle for the others."""

from collections.abc import Iterator
from dataclasses import dataclass

from graphveil._util import checks
from graphveil.data import Adjacency
from graphveil.data.blocks import EdgeBlock, blocks
from graphveil.release.backends.base import AggregationBackend


@dataclass(frozen=True)
class InMemoryBackend(AggregationBackend):
    """Works on the blocks one after the other in this process.

    ``block_rows`` bounds the memory of a block; it is public and does not change the result.
    """

    block_rows: int = 1 << 21

    def __post_init__(self) -> None:
        """Check the size of a block."""
        checks.integer_at_least(1, block_rows=self.block_rows)

    def blocks(self, adjacency: Adjacency, first: int = 0) -> Iterator[EdgeBlock]:
        """Yield views of the edges in memory."""
        return blocks(adjacency, self.block_rows, first)

"""Out of core: blocks of a prepared graph, read from the disk as they come."""

from collections.abc import Iterator
from dataclasses import dataclass

from graphveil._util import checks
from graphveil.data import Adjacency
from graphveil.data.blocks import EdgeBlock, blocks
from graphveil.data.stored.file_stamps import check_unchanged
from graphveil.data.stored.reading import read_ahead, sources_of
from graphveil.errors import ConfigError
from graphveil.release.backends.base import AggregationBackend


@dataclass(frozen=True)
class DiskBackend(AggregationBackend):
    """Yields the blocks of a graph that :func:`~graphveil.data.stored.reading.open_graph` opened.

    While one block is worked on, the system is asked to read the next one. Of edges there are the pages of
    those two in memory, and whatever else there is room for; ``block_rows`` does not change the result.
    """

    block_rows: int = 1 << 19

    def __post_init__(self) -> None:
        """Check the size of a block."""
        checks.integer_at_least(1, block_rows=self.block_rows)

    def check(self, adjacency: Adjacency) -> None:
        """Refuse edges that are not on disk."""
        if adjacency.folder is None:
            raise ConfigError(
                "backend='disk' (--backend disk) reads a prepared graph, and this one is in memory: write it "
                "with graphveil prepare and open the folder (gv.open_graph), or use backend='memory'"
            )

    def blocks(self, adjacency: Adjacency, first: int = 0) -> Iterator[EdgeBlock]:
        """Yield views of the mapped edges."""
        self.check(adjacency)
        check_unchanged(adjacency)
        with sources_of(adjacency) as file:
            for block in blocks(adjacency, self.block_rows, first):
                read_ahead(file, adjacency, block.stop, self.block_rows)
                yield block

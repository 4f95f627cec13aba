"""The contract of an aggregation backend: it schedules destination blocks and sees no private sum.

A backend says where the edges lie and where work on them is done. The work is a frozen value, a pure function
of one block, that can be sent to another process; what comes back of a block of rows has its noise. In this
process, out of core and on a cluster it is the same work on the same blocks, so the bytes are the same.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

from torch import Tensor

from graphveil.data import Adjacency
from graphveil.data.blocks import EdgeBlock, Ids, in_edges


class BlockWork(ABC):
    """What is done with one block: frozen public parameters and keys of noise, and no edge but the block's.

    A subclass is a frozen dataclass of plain values and tensors, so that it can be sent to another process.
    """

    @abstractmethod
    def __call__(self, edges: EdgeBlock) -> Tensor:
        """Return what the work makes of a block, a function of the work and the block alone."""

    def on(self, device: str) -> "BlockWork":
        """Return the same work with its sums made on a device of torch's; by default all is done here."""
        return self


class AggregationBackend(ABC):
    """Yields destination blocks, and has work done on them."""

    @property
    def first(self) -> int:
        """The first row that is answered; rows keep their numbers, and with them their noise."""
        return 0

    @property
    def yields_borrowed_memory(self) -> bool:
        """Whether what :meth:`run` yields is somebody else's memory: read once, not written, not kept."""
        return False

    def check(self, adjacency: Adjacency) -> None:
        """Refuse edges that the backend cannot read, before anything is spent; by default it reads all."""
        return

    @abstractmethod
    def blocks(self, adjacency: Adjacency, first: int = 0) -> Iterator[EdgeBlock]:
        """Yield the destination blocks from row ``first`` on, in order, whatever their size."""

    def map(self, work: BlockWork, blocks: Iterable[EdgeBlock]) -> Iterator[Tensor]:
        """Yield what the work makes of each block, in the order of the blocks; here in this process."""
        return map(work, blocks)

    def run(self, work: BlockWork, adjacency: Adjacency, first: int = 0) -> Iterator[Tensor]:
        """Yield what the work makes of the blocks from row ``first`` on, in their order.

        What the work returns has its noise. A backend that reads edges elsewhere sends only the work there.
        """
        return self.map(work, self.blocks(adjacency, first))

    def in_edges(self, adjacency: Adjacency, nodes: Ids) -> tuple[Ids, Ids]:
        """Return the sources that send to some nodes, one node after the other, and how many each has."""
        return in_edges(adjacency, nodes)

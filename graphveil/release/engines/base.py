"""The contract of an aggregation engine: it schedules destination blocks and sees no private sum.

An engine hands each block of destination rows, with its edges, to a pure block function and stacks the
answers. In memory, out of core and on a cluster it is the same block function, so the bytes are the same.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

from torch import Tensor

from graphveil.graph import Adjacency
from graphveil.graph.blocks import Edges


class Engine(ABC):
    """Schedules destination blocks."""

    @abstractmethod
    def map(self, adjacency: Adjacency, block: Callable[[Edges], Tensor]) -> Tensor:
        """Return the blocks' rows, stacked in node order."""

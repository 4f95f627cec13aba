"""The in-memory engine: the plainest one, and the oracle for the others."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from graphveil import _check
from graphveil.aggregate.engine import Edges, Engine
from graphveil.graph import Adjacency


@dataclass(frozen=True)
class InMemoryEngine(Engine):
    """Runs the blocks one after the other in this process.

    ``block_rows`` bounds the memory of a block and keeps its edges below the 2^31 that 32-bit offsets
    can address; it is public and does not change the result.
    """

    block_rows: int = 1 << 16

    def __post_init__(self) -> None:
        _check.integer_at_least(1, block_rows=self.block_rows)

    def map(self, adjacency: Adjacency, block: Callable[[Edges], Tensor]) -> Tensor:
        """Return the blocks' rows, stacked in node order."""
        n = adjacency.num_nodes
        starts = range(0, n, self.block_rows)
        return torch.cat([block(_edges(adjacency, s, min(n, s + self.block_rows))) for s in starts])


def _edges(adjacency: Adjacency, start: int, stop: int) -> Edges:
    bounds = adjacency.indptr[start : stop + 1]
    sources = adjacency.indices[int(bounds[0]) : int(bounds[-1])]
    return Edges(start, stop, (bounds - bounds[0]).to(torch.int32), sources)

"""The in-memory engine: the plainest one, and the oracle for the others."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from graphveil import _check
from graphveil._threads import all_threads
from graphveil.graph import Adjacency
from graphveil.graph.blocks import Edges, blocks
from graphveil.release.engines.base import Engine


@dataclass(frozen=True)
class InMemoryEngine(Engine):
    """Runs the blocks one after the other in this process.

    ``block_rows`` bounds the memory of a block; it is public and does not change the result.
    """

    block_rows: int = 1 << 17

    def __post_init__(self) -> None:
        """Check the size of a block."""
        _check.integer_at_least(1, block_rows=self.block_rows)

    @all_threads()
    def map(self, adjacency: Adjacency, block: Callable[[Edges], Tensor]) -> Tensor:
        """Return the blocks' rows, stacked in node order."""
        out: Tensor | None = None
        for edges in blocks(adjacency, self.block_rows):
            rows = block(edges)
            if len(edges) == adjacency.num_nodes:
                return rows
            if out is None:
                out = torch.empty((adjacency.num_nodes, *rows.shape[1:]), dtype=rows.dtype)
            out[edges.start : edges.stop] = rows
        return torch.empty(0) if out is None else out

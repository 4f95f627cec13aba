"""On a GPU: blocks go there as they come, and noisy rows come back."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.data import Adjacency
from graphveil.data.blocks import EdgeBlock
from graphveil.errors import ConfigError
from graphveil.release.backends.base import AggregationBackend, BlockWork
from graphveil.release.backends.disk import DiskBackend
from graphveil.release.backends.in_memory import InMemoryBackend


@dataclass(frozen=True)
class CudaBackend(AggregationBackend):
    """Has sums over neighbors made on a GPU, and noise drawn in this process.

    Sums are of whole numbers that floats hold exactly, so no order of the GPU's additions shows, and noise is
    drawn here and sent there: rows have the same bytes as in memory. The table of contributions, N rows of
    d float32, lies on the GPU during a query, and one block of edges beside it. Queries of other kinds, and
    weights of pairs, are computed in this process.

    Args:
        device: ``"cuda"``, ``"cuda:1"``, ...; ``"cpu"`` takes the same way through torch without a GPU.
        block_rows: of a block; it does not change the result.
    """

    device: str = "cuda"
    block_rows: int = 1 << 17

    def __post_init__(self) -> None:
        """Check both parameters."""
        checks.integer_at_least(1, block_rows=self.block_rows)
        kind, _, number = self.device.partition(":")
        if kind not in ("cuda", "cpu") or (":" in self.device and not number.isdecimal()):
            raise ConfigError(f"device={self.device!r} is not 'cuda', 'cuda:' and a number, or 'cpu'")

    def check(self, adjacency: Adjacency) -> None:
        """Refuse a GPU that is not here, before anything is spent."""
        device = torch.device(self.device)
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            raise ConfigError(
                f"backend='cuda' (--backend cuda) sums on {self.device!r}, and torch finds "
                f"{torch.cuda.device_count()} such GPUs here; use backend='memory', which has the same bytes"
            )

    def blocks(self, adjacency: Adjacency, first: int = 0) -> Iterator[EdgeBlock]:
        """Yield the blocks from where the edges are: memory, or the disk."""
        where = InMemoryBackend if adjacency.folder is None else DiskBackend
        return where(self.block_rows).blocks(adjacency, first)

    def map(self, work: BlockWork, blocks: Iterable[EdgeBlock]) -> Iterator[Tensor]:
        """Have the work done with its sums on the device."""
        return map(work.on(self.device), blocks)

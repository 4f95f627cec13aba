"""Contributions in 16 bits and their sums in C: the integers of the plain way in half of its memory.

A sum over neighbors waits for memory. Contributions are whole numbers of at most 2^14, so a source's row in
16-bit integers is half as long as in float32: twice as many fit into the cache, and one line of it holds two
rows of sixteen columns.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphveil import _kernels
from graphveil.data.blocks import EdgeBlock

MAX_BITS = 14  # of the largest entry of a contribution: with its sign it fits in 16
_SUM_BITS = 30  # sums stay below, so that noise of 24 bits can be added in 32


@dataclass(frozen=True, eq=False, repr=False)
class CompactRows:
    """Contributions as whole numbers: int16 (count + 1, width), filled up with columns and a row of zeros."""

    rows: Tensor
    dim: int
    bits: int

    @classmethod
    def empty(cls, count: int, dim: int, bits: int) -> "CompactRows":
        """Return memory for so many rows."""
        rows = _kernels.empty_rows(count + 1, dim)
        rows[-1] = 0
        return cls(rows, dim, bits)

    def fits(self, count: int, dim: int, bits: int) -> bool:
        """Whether this is memory for such rows."""
        return (self.count, self.dim, self.bits) == (count, dim, bits)

    @property
    def count(self) -> int:
        """How many rows there are; after them comes the row of zeros."""
        return self.rows.shape[0] - 1

    @property
    def plain(self) -> Tensor:
        """The contributions in float32, (count, dim)."""
        return self.rows[:-1, : self.dim].to(torch.float32)

    def fill(self, vectors: Tensor, bounds: Tensor, kinds: Tensor | None) -> None:
        """Write truncated contributions: a copy of all for each column of the bounds.

        Row i of copy h is trunc(bounds[kind of i, h] vectors[i]); one that is longer than its bound, which
        only a vector longer than one or without a length is, counts for nothing.

        Args:
            vectors: floats, (N, dim).
            bounds: float64, (kinds, copies).
            kinds: the sources' kinds, int64 (N); None for 0.
        """
        _kernels.truncate_rows(vectors, bounds, kinds, self.rows[:-1])

    def add_sums(
        self, edges: EdgeBlock, shift: Tensor | None, noise: Tensor, scale: float, out: Tensor
    ) -> bool:
        """Write the sums over a block's edges with their noise; whether it did: not if a row is too long.

        Args:
            edges: the block.
            shift: what is added to the sources of each row's edges, int32 (rows); None for nothing.
            noise: whole numbers, int32 (rows, dim).
            scale: what they are multiplied by, a power of two.
            out: the noisy sums, float32 (rows, dim), each rounded once.
        """
        if edges.most << self.bits >= 1 << _SUM_BITS or not _kernels.available():
            return False
        _kernels.add_noisy_sums(edges.offsets, edges.sources, shift, self.rows, self.bits, noise, out, scale)
        return True


def can_compact(dim: int, bits: int) -> bool:
    """Whether sums of such rows are computed here."""
    return dim <= _kernels.MAX_DIM and bits <= MAX_BITS and _kernels.available()

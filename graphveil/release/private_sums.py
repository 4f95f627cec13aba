"""Where private row sums exist: they are formed for one block at a time, and leave it with their noise.

Contributions stand in a table of integers, one row a source. A block of rows is summed exactly, the integer
noise of each row is added, and only then is anything scaled or returned.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from graphveil._random import RowStream
from graphveil.graph.blocks import Edges
from graphveil.release.engines.base import BlockWork
from graphveil.release.query import FLOAT32_EXACT
from graphveil.release.row_noise import RowKinds, RowNoise, noise_rows
from graphveil.weights.compiled.fused_sum import FusedSum, fused_sum
from graphveil.weights.tables import PairWeights

_ENTRIES = 1 << 18  # of sums at a time: they stay in the cache,
_EDGES = 1 << 22
_WEIGHED_EDGES = 1 << 18  # with a weight for each
_INT32_EXACT = 1 << 31  # what fused sums stay below


@dataclass(frozen=True, eq=False, repr=False)
class Sums:
    """What is summed along the edges: a table of integers in float32, one row a source.

    ``longest`` is how many rows float32 adds exactly. With a ``stride`` the table has a copy for each kind of
    destination, and a source's row in the copy for kind k stands at source + k * stride. With ``pairs`` each
    row is multiplied by the whole number that belongs to its edge's two ends. Where ``short`` says that the
    table's entries fit 16 bits, a compiled pass may do both at once.
    """

    table: Tensor
    longest: int
    stride: int = 0
    pairs: PairWeights | None = None
    short: bool = False

    @cached_property
    def fused(self) -> FusedSum | None:
        """The compiled pass, made in the process that uses it."""
        return fused_sum(self.table, self.pairs) if self.short else None

    def __getstate__(self) -> dict[str, object]:
        """Return what is sent: a compiled pass is made anew elsewhere."""
        return {name: part for name, part in vars(self).items() if name != "fused"}


@dataclass(frozen=True, eq=False, repr=False)
class NoisyRows(BlockWork):
    """The sums of a block's rows with their noise, under the key of one query."""

    sums: Sums
    noise: RowNoise
    key: bytes

    def __call__(self, edges: Edges) -> Tensor:
        """Return the noisy rows; the exact sums live and die here.

        Noise and sums are integers in a float type that holds each exactly, so the one rounding of their
        addition sees the exact noisy sum only: it is post-processing.
        """
        sums, dim = self.sums, self.sums.table.shape[1]
        rows = noise_rows(edges, self.noise, RowStream(self.key), dim)
        at_once = _EDGES if sums.pairs is None or sums.fused is not None else _WEIGHED_EDGES
        for piece in edges.pieces(max(1, _ENTRIES // dim), at_once):
            part = rows[piece.start - edges.start : piece.stop - edges.start]
            kinds = self.noise.of(piece)
            part.add_(exact_sum(piece, sums, kinds))
            self.noise.scale(part, kinds)
        return rows.to(torch.float32)


def exact_sum(edges: Edges, sums: Sums, kinds: RowKinds | None) -> Tensor:
    """Sum table rows exactly: in float32 up to ``longest`` of them; longer rows in chunks, in int64."""
    degrees, sources, table, longest = edges.degrees, edges.sources, sums.table, sums.longest
    if kinds is not None and sums.stride:
        shift = (kinds * sums.stride).astype(np.int32)
        sources = sources + torch.from_numpy(np.repeat(shift, degrees.numpy()))
    most = int(degrees.max())
    if sums.fused is not None and most < longest * _INT32_EXACT // FLOAT32_EXACT:
        return sums.fused(edges, sources).to(torch.float32 if most <= longest else torch.float64)
    weight = None if sums.pairs is None else sums.pairs.of(edges)
    if most <= longest:
        return embedding_bag(
            sources, table, edges.offsets, mode="sum", per_sample_weights=weight, include_last_offset=True
        )
    cuts = degrees.div(longest, rounding_mode="floor") + 1  # chunks a row
    row = torch.arange(len(degrees)).repeat_interleave(cuts)
    within = torch.arange(len(row)) - (cuts.cumsum(0) - cuts).repeat_interleave(cuts)
    starts = edges.offsets[:-1].repeat_interleave(cuts) + (within * longest).to(torch.int32)
    parts = embedding_bag(sources, table, starts, mode="sum", per_sample_weights=weight).to(torch.int64)
    total = torch.zeros(len(degrees), table.shape[1], dtype=torch.int64).index_add_(0, row, parts)
    return total.to(torch.float64)

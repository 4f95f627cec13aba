"""Where private row sums exist: they are formed for one block at a time, and leave it with their noise.

Contributions stand in a table of integers, one row a source. The integer noise of some rows is drawn, their
exact sums are added to it, and only then is anything scaled or returned. In C sums are added in
registers, and are never written down without their noise.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from graphveil._util.random import RowStream
from graphveil._util.threads import parallel_for
from graphveil.data.blocks import MAX_EDGES, EdgeBlock
from graphveil.release.backends.base import BlockWork
from graphveil.release.rows.compact import CompactRows
from graphveil.release.rows.row_noise import RowKinds, RowNoise, noise_rows
from graphveil.release.weights.tables import PairWeights

_ENTRIES = 1 << 19  # of sums at a time: each further piece costs as much as thousands of rows
_COMPACT_ENTRIES = 1 << 21
_ROWS_A_THREAD = 1 << 10
_EDGES = 1 << 22
_WEIGHED_EDGES = 1 << 18  # with a weight for each


@dataclass(frozen=True, eq=False, repr=False)
class Sums:
    """What is summed along the edges: a table of integers in float32 or in 16 bits, one row a source.

    ``longest`` is how many rows float32 adds exactly. With a ``stride`` the table has a copy for each kind of
    destination, and a source's row in the copy for kind k stands at source + k * stride. With ``pairs`` each
    row is multiplied by the whole number that belongs to its edge's two ends.
    """

    rows: Tensor | CompactRows
    longest: int
    stride: int = 0
    pairs: PairWeights | None = None

    @cached_property
    def table(self) -> Tensor:
        """The table in float32."""
        return self.rows.plain if isinstance(self.rows, CompactRows) else self.rows

    @property
    def dim(self) -> int:
        """The number of columns."""
        return self.rows.dim if isinstance(self.rows, CompactRows) else self.rows.shape[1]

    def on(self, device: str) -> "Sums":
        """Return the same sums with their table on a device of torch's."""
        rows = self.rows
        if isinstance(rows, CompactRows):
            rows = replace(rows, rows=rows.rows.to(device)).plain  # two bytes an entry on the way
        return replace(self, rows=rows.to(device))

    def __getstate__(self) -> dict[str, object]:
        """Return what is sent: the table in float32 is made anew elsewhere."""
        return {name: part for name, part in vars(self).items() if name != "table"}


@dataclass(frozen=True, eq=False, repr=False)
class NoisyRows(BlockWork):
    """The sums of a block's rows with their noise, under the key of one query."""

    sums: Sums
    noise: RowNoise
    key: bytes

    def __call__(self, edges: EdgeBlock) -> Tensor:
        """Return the noisy rows; the exact sums live and die here.

        Noise and sums are integers in a float type that holds each exactly, so the one rounding of their
        addition sees the exact noisy sum only: it is post-processing.
        """
        out = torch.from_numpy(np.empty((len(edges), self.sums.dim), dtype=np.float32))  # on large pages
        rows, stream = self.sums.rows, RowStream(self.key)
        if isinstance(rows, CompactRows) or rows.device.type != "cpu":  # else torch's own sum is shared
            parallel_for(
                lambda first, last: self._fill(edges.rows(first, last), stream, out[first:last]),
                len(edges),
                _ROWS_A_THREAD,
            )
        else:
            self._fill(edges, stream, out)
        return out

    def on(self, device: str) -> "NoisyRows":
        """Return the same work with its sums on a device: only noisy rows come back from there.

        Pairs are weighed here.
        """
        return self if self.sums.pairs is not None else replace(self, sums=self.sums.on(device))

    def _fill(self, edges: EdgeBlock, stream: RowStream, out: Tensor) -> None:
        """Write the noisy rows of a block, some at a time."""
        sums = self.sums
        if isinstance(sums.rows, CompactRows):  # edges are read as they are, and nothing is made of each
            entries, at_once = _COMPACT_ENTRIES, MAX_EDGES
        else:
            entries, at_once = _ENTRIES, _EDGES if sums.pairs is None else _WEIGHED_EDGES
        for piece in edges.pieces(max(1, entries // sums.dim), at_once):
            drawn, kinds = noise_rows(piece, self.noise, stream, sums.dim), self.noise.of(piece)
            rows = out[piece.start - edges.start : piece.stop - edges.start]
            if _add_in_c(piece, sums, self.noise, drawn, rows):
                continue
            total = exact_sum(piece, sums, kinds)
            noisy = drawn.to(total.device, self.noise.real).add_(total).cpu()  # added where the sums are
            self.noise.scale(noisy, kinds)
            rows.copy_(noisy)


def _add_in_c(edges: EdgeBlock, sums: Sums, noise: RowNoise, drawn: Tensor, out: Tensor) -> bool:
    """Write answers by the loop in C, if it is there and holds them; whether it did."""
    if not isinstance(sums.rows, CompactRows) or noise.real != torch.float32 or noise.scaled is None:
        return False
    return sums.rows.add_sums(edges, _shift(edges, sums, noise), drawn, noise.scaled, out)


def _shift(edges: EdgeBlock, sums: Sums, noise: RowNoise) -> Tensor | None:
    """Return where the copy for each row's kind begins, int32 (rows); None if there is one."""
    kinds = noise.of(edges)
    return None if kinds is None else torch.from_numpy((kinds * sums.stride).astype(np.int32))


def exact_sum(edges: EdgeBlock, sums: Sums, kinds: RowKinds | None) -> Tensor:
    """Sum table rows exactly: in float32 up to ``longest`` of them; longer rows in chunks, in int64.

    The sums are made where the table is. Every partial one is a whole number that its type holds, so the
    order of additions on a GPU, atomic ones among them, cannot matter.
    """
    degrees, sources, table, longest = edges.degrees, edges.sources, sums.table, sums.longest
    device = table.device
    if kinds is not None and sums.stride:
        shift = (kinds * sums.stride).astype(np.int32)
        sources = sources + torch.from_numpy(np.repeat(shift, degrees.numpy()))
    most = int(degrees.max())
    weight = None if sums.pairs is None else sums.pairs.of(edges)
    sources, starts, whole = sources.to(device), edges.offsets, most <= longest
    if not whole:
        cuts = degrees.div(longest, rounding_mode="floor") + 1  # chunks a row
        row = torch.arange(len(degrees)).repeat_interleave(cuts)
        within = torch.arange(len(row)) - (cuts.cumsum(0) - cuts).repeat_interleave(cuts)
        starts = starts[:-1].repeat_interleave(cuts) + (within * longest).to(torch.int32)
    parts = embedding_bag(
        sources, table, starts.to(device), mode="sum", per_sample_weights=weight, include_last_offset=whole
    )
    if whole:
        return parts
    total = torch.zeros(len(degrees), table.shape[1], dtype=torch.int64, device=device)
    total.index_add_(0, row.to(device), parts.to(torch.int64))
    return total.to(torch.float64)

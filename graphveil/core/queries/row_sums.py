"""Private sums of rows: computed one block at a time, and returned only with their noise.

Contributions are stored in a table of integers, one row per source (``Sums``). The integer noise of some rows
is drawn (``RowNoise``), their exact sums are added to it, and only then is anything scaled or returned
(``NoisyRows``). In C, sums are added in registers, and are never stored without their noise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from graphveil._util.threads import parallel_for
from graphveil.core.backends import BlockWork
from graphveil.core.edges.blocks import MAX_EDGES, EdgeBlock
from graphveil.core.noise import _kernels
from graphveil.core.noise.discrete_gaussian import IntegerNoise
from graphveil.core.noise.random import RowStream
from graphveil.core.private_edges import CompactRows, forms_private_sum
from graphveil.core.queries.weights import PairWeights

FLOAT32_EXACT = 1 << 24  # float32 adds integers exactly up to here
MAX_BITS = 14  # bits of the largest contribution entry: with its sign it fits in 16
_SUM_BITS = 30  # sums stay below, so that 24-bit noise can be added in 32 bits


def can_compact(dim: int, bits: int) -> bool:
    return dim <= _kernels.MAX_DIM and bits <= MAX_BITS and _kernels.available()


SIGMAS = 15  # no sampler draws noise beyond this many standard deviations

RowKinds = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_ON_GRID = 1 << 17  # contribution entries truncated per chunk: they fit into the cache


def square_lengths(grid: Floats) -> Floats:
    return np.asarray(np.einsum("nd,nd->n", grid, grid))


def truncate_to_grid(
    vectors: Tensor,
    factors: Floats | float,
    caps: npt.NDArray[Any] | float,
    out: npt.NDArray[Any],
    squares: Callable[[Floats], Floats] = square_lengths,
) -> None:
    """Write the vectors times their factors as integers: what every private sum of rows adds up.

    Truncation toward zero never lengthens a row. A row whose square is still above its cap, or is not finite,
    contributes nothing. Squares and caps are integers below 2^53, where float64 is exact; a longer row also
    exceeds its cap in float64.

    Args:
        vectors: Contributions, (N, d).
        factors: Grid steps in a vector of norm one, for all rows or for each.
        caps: The largest square of a row, for all rows or for each.
        out: Table that is written, (N, d).
        squares: Squared size of each row on the grid, by default its squared length.
    """
    count, dim = vectors.shape
    factors, caps = np.broadcast_to(factors, count), np.broadcast_to(caps, count)
    at_once = max(1, _ON_GRID // dim)
    scratch = np.empty((min(count, at_once), dim))
    for first in range(0, count, at_once):
        some = slice(first, min(count, first + at_once))
        exact, grid = vectors[some].to(torch.float64).numpy(), scratch[: some.stop - first]
        with np.errstate(over="ignore", invalid="ignore"):  # such a row exceeds its bound and is dropped
            np.multiply(exact, factors[some, None], out=grid)
            np.trunc(grid, out=grid)
            fits = squares(grid) <= caps[some]
            np.copyto(out[some], grid, casting="unsafe")
        out[some][~fits] = 0


def grid_vectors(vectors: Tensor, grid_bits: int, kind: Any = np.float32) -> npt.NDArray[Any]:
    """Return vectors in steps of 2^-bits as integers, truncated toward zero; one beyond norm one is zero.

    >>> grid_vectors(torch.tensor([[1.0, 0.0], [0.8, 0.7], [-0.3, 0.3]]), 4).tolist()
    [[16.0, 0.0], [0.0, 0.0], [-4.0, 4.0]]
    """
    table = np.empty(vectors.shape, dtype=kind)
    truncate_to_grid(vectors, 2.0**grid_bits, 4.0**grid_bits, table)
    return table


@dataclass(frozen=True, eq=False, repr=False)
class RowNoise:
    """For each kind of row, the law of its noise (None: not released) and the value of its grid step.

    ``kinds`` are the rows' kinds, None if there is one.
    """

    kinds: Tensor | None
    noise: tuple[IntegerNoise | None, ...]
    scales: tuple[float, ...]

    @cached_property
    def laws(self) -> set[IntegerNoise]:
        return {law for law in self.noise if law is not None}

    @cached_property
    def most(self) -> float:
        return max(law.sigma for law in self.laws) * SIGMAS

    @cached_property
    def real(self) -> torch.dtype:
        return torch.float32 if self.most < FLOAT32_EXACT else torch.float64

    @cached_property
    def scaled(self) -> float | None:
        """The value of a grid step, if it is the same for all rows and each is released."""
        return self.scales[0] if len(set(self.scales)) == 1 and None not in self.noise else None

    def of(self, edges: EdgeBlock) -> RowKinds | None:
        return None if self.kinds is None else self.kinds[edges.start : edges.stop].numpy()

    def scale(self, rows: Tensor, kinds: RowKinds | None) -> None:
        """Scale noisy integers to answers, in place; rows that are not released are zeros without sign."""
        if kinds is None or len(set(self.scales)) == 1:
            rows.mul_(self.scales[0])
        else:
            rows.mul_(torch.tensor(self.scales, dtype=rows.dtype)[torch.from_numpy(kinds), None])
        if kinds is not None and None in self.noise:
            rows[torch.tensor([law is None for law in self.noise])[torch.from_numpy(kinds)]] = 0.0


def noise_rows(edges: EdgeBlock, noise: RowNoise, stream: RowStream, dim: int) -> Tensor:
    """Return the integer noise of a block's rows, each by the law of its kind: int32 if it fits."""
    rows, own = np.arange(edges.start, edges.stop), noise.of(edges)
    whole = np.int32 if noise.most < 1 << 31 else np.int64
    if own is None:
        (law,) = noise.laws
        return torch.from_numpy(law.draw(stream, rows, dim).astype(whole, copy=False))
    out = np.zeros((len(edges), dim), dtype=whole)
    for law in noise.laws:
        chosen = np.flatnonzero(np.array([kind == law for kind in noise.noise])[own])
        out[chosen] = law.draw(stream, rows[chosen], dim)
    return torch.from_numpy(out)


_ENTRIES = 1 << 19  # sum entries per chunk: the overhead of a chunk equals thousands of rows
_COMPACT_ENTRIES = 1 << 21
_ROWS_A_THREAD = 1 << 10
_EDGES = 1 << 22
_WEIGHED_EDGES = 1 << 18  # edges per chunk, with a weight for each


@dataclass(frozen=True, eq=False, repr=False)
class Sums:
    """The contributions summed along edges: a table of integers in float32 or in 16 bits, one row per source.

    ``longest`` is the number of rows that float32 adds exactly. With a ``stride`` the table has a copy for
    each kind of destination, and a source's row in the copy for kind k is at source + k * stride. With
    ``pairs`` each row is multiplied by the integer that belongs to its edge's two ends.
    """

    rows: Tensor | CompactRows
    longest: int
    stride: int = 0
    pairs: PairWeights | None = None

    @cached_property
    def table(self) -> Tensor:
        return self.rows.plain if isinstance(self.rows, CompactRows) else self.rows

    @property
    def dim(self) -> int:
        return self.rows.dim if isinstance(self.rows, CompactRows) else self.rows.shape[1]

    def __getstate__(self) -> dict[str, object]:
        return {name: part for name, part in vars(self).items() if name != "table"}


@forms_private_sum(
    "NeighborSumQuery", "OutEdgeSumQuery", "OutEdgeCodeSumQuery", note="in C `add_noisy_sums` in `_native.c`"
)
@dataclass(frozen=True, eq=False, repr=False)
class NoisyRows(BlockWork):
    """The sums of a block's rows with their noise, under the key of one query."""

    sums: Sums
    noise: RowNoise
    key: bytes

    def __call__(self, edges: EdgeBlock) -> Tensor:
        """Return the noisy rows; the exact sums are discarded here.

        Noise and sums are integers in a float type that represents each exactly. The one rounding of their
        addition therefore depends only on the exact noisy sum: it is post-processing.
        """
        out = torch.from_numpy(np.empty((len(edges), self.sums.dim), dtype=np.float32))  # uses large pages
        rows, stream = self.sums.rows, RowStream(self.key)
        if isinstance(rows, CompactRows):  # otherwise torch's sum uses threads
            parallel_for(
                lambda first, last: self._fill(edges.rows(first, last), stream, out[first:last]),
                len(edges),
                _ROWS_A_THREAD,
            )
        else:
            self._fill(edges, stream, out)
        return out

    def _fill(self, edges: EdgeBlock, stream: RowStream, out: Tensor) -> None:
        sums = self.sums
        if isinstance(sums.rows, CompactRows):  # edges are read in place, without temporary data per edge
            entries, at_once = _COMPACT_ENTRIES, MAX_EDGES
        else:
            entries, at_once = _ENTRIES, _EDGES if sums.pairs is None else _WEIGHED_EDGES
        for piece in edges.pieces(max(1, entries // sums.dim), at_once):
            drawn, kinds = noise_rows(piece, self.noise, stream, sums.dim), self.noise.of(piece)
            rows = out[piece.start - edges.start : piece.stop - edges.start]
            # In C, sums below 2^30 and noise of 24 bits are added in 32 bits, and every row has one scale.
            table, scale = sums.rows, self.noise.scaled
            if (
                isinstance(table, CompactRows)
                and scale is not None
                and self.noise.real == torch.float32
                and piece.most << table.bits < 1 << _SUM_BITS
                and _kernels.available()
            ):
                # Start of the copy for each row's kind; None if there is one copy.
                shift = None if kinds is None else torch.from_numpy((kinds * sums.stride).astype(np.int32))
                _kernels.add_noisy_sums(
                    piece.offsets, piece.sources, shift, table.rows, table.bits, drawn, rows, scale
                )
                continue
            total = exact_sum(piece, sums, kinds)
            noisy = drawn.to(self.noise.real).add_(total)
            self.noise.scale(noisy, kinds)
            rows.copy_(noisy)


def exact_sum(edges: EdgeBlock, sums: Sums, kinds: RowKinds | None) -> Tensor:
    """Sum table rows exactly: in float32 up to ``longest`` of them; longer rows in chunks, in int64.

    Every partial sum is an integer that its type represents exactly, so the order of additions does not
    matter.
    """
    degrees, sources, table, longest = edges.degrees, edges.sources, sums.table, sums.longest
    if kinds is not None and sums.stride:
        shift = (kinds * sums.stride).astype(np.int32)
        sources = sources + torch.from_numpy(np.repeat(shift, degrees.numpy()))
    most = int(degrees.max())
    weight = None if sums.pairs is None else sums.pairs.of(edges)
    starts, whole = edges.offsets, most <= longest
    if not whole:
        cuts = degrees.div(longest, rounding_mode="floor") + 1  # chunks per row
        row = torch.arange(len(degrees)).repeat_interleave(cuts)
        within = torch.arange(len(row)) - (cuts.cumsum(0) - cuts).repeat_interleave(cuts)
        starts = starts[:-1].repeat_interleave(cuts) + (within * longest).to(torch.int32)
    parts = embedding_bag(
        sources, table, starts, mode="sum", per_sample_weights=weight, include_last_offset=whole
    )
    if whole:
        return parts
    total = torch.zeros(len(degrees), table.shape[1], dtype=torch.int64)
    total.index_add_(0, row, parts.to(torch.int64))
    return total.to(torch.float64)

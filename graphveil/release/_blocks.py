"""Block functions: the places where a private sum exists, and it never leaves them.

Contributions stand in a table of integers, one row a source. A block of rows is summed exactly, the integer
noise of each row is added, and only then is anything scaled or returned.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from graphveil._random import RowStream
from graphveil.graph import Adjacency
from graphveil.graph.blocks import Edges, blocks
from graphveil.mechanisms import IntegerNoise
from graphveil.release.edge_counts import EdgeCountQuery
from graphveil.release.neighbor_sums import NeighborSumQuery
from graphveil.release.query import FLOAT32_EXACT
from graphveil.weights.compiled.fused_sum import FusedSum
from graphveil.weights.tables import PairWeights

SIGMAS = 15  # no sampler draws noise beyond this many standard deviations
NOISE_ENTRIES = 1 << 19  # of noise drawn at a time: it stays in the cache,
SUM_ENTRIES = 1 << 18  # and so do the sums
SUM_EDGES = 1 << 22
PAIR_EDGES = 1 << 18  # with a weight for each
GRID_ENTRIES = 1 << 17  # and the contributions that are truncated
INT32_EXACT = 1 << 31  # what fused sums stay below

RowKinds = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Sums:
    """What is summed along the edges: a table of integers in float32, one row a source.

    ``longest`` is how many rows float32 adds exactly. With a ``stride`` the table has a copy for each kind of
    destination, and a source's row in the copy for kind k stands at source + k * stride. With ``pairs`` each
    row is multiplied by the whole number that belongs to its edge's two ends; ``fused`` does both at once.
    """

    table: Tensor
    longest: int
    stride: int = 0
    pairs: PairWeights | None = None
    fused: FusedSum | None = None


@dataclass(frozen=True, eq=False, repr=False)
class RowNoise:
    """For each kind of row, the law of its noise (None: not released) and what its grid step is worth.

    ``kinds`` are the rows' kinds, None where there is one.
    """

    kinds: Tensor | None
    noise: tuple[IntegerNoise | None, ...]
    scales: tuple[float, ...]

    def of(self, edges: Edges) -> RowKinds | None:
        """Return the kinds of a block's rows."""
        return None if self.kinds is None else self.kinds[edges.start : edges.stop].numpy()

    def scale(self, rows: Tensor, kinds: RowKinds | None) -> None:
        """Turn noisy integers into answers, in place; rows that are not released are zeros, sign included."""
        if kinds is None or len(set(self.scales)) == 1:
            rows.mul_(self.scales[0])
        else:
            rows.mul_(torch.tensor(self.scales, dtype=rows.dtype)[torch.from_numpy(kinds), None])
        if kinds is not None and None in self.noise:
            rows[torch.tensor([law is None for law in self.noise])[torch.from_numpy(kinds)]] = 0.0


def noisy_rows(edges: Edges, *, sums: Sums, laws: RowNoise, stream: RowStream) -> Tensor:
    """Return the noisy sums of one block; the exact sums live and die here.

    Noise and sums are integers in a float type that holds each exactly, so the one rounding of their
    addition sees the exact noisy sum only: it is post-processing.
    """
    dim = sums.table.shape[1]
    rows = noise_rows(edges, laws, stream, dim)
    at_once = SUM_EDGES if sums.pairs is None or sums.fused is not None else PAIR_EDGES
    for piece in edges.pieces(max(1, SUM_ENTRIES // dim), at_once):
        part = rows[piece.start - edges.start : piece.stop - edges.start]
        kinds = laws.of(piece)
        part.add_(exact_sum(piece, sums, kinds))
        laws.scale(part, kinds)
    return rows.to(torch.float32)


def noise_rows(edges: Edges, laws: RowNoise, stream: RowStream, dim: int) -> Tensor:
    """Return the integer noise of a block's rows, each by the law of its kind, in a float type."""
    drawn = {law for law in laws.noise if law is not None}
    fits = max(law.sigma for law in drawn) * SIGMAS < FLOAT32_EXACT
    noisy = torch.empty((len(edges), dim), dtype=torch.float32 if fits else torch.float64)
    if None in laws.noise:
        noisy.zero_()
    out, own = noisy.numpy(), laws.of(edges)
    at_once = max(1, NOISE_ENTRIES // dim)
    for law in drawn:
        rows = np.arange(edges.start, edges.stop)
        chosen = None if own is None else np.flatnonzero(np.array([kind == law for kind in laws.noise])[own])
        for first in range(0, len(rows) if chosen is None else len(chosen), at_once):
            some = slice(first, first + at_once) if chosen is None else chosen[first : first + at_once]
            out[some] = law.draw(stream, rows[some], dim)
    return noisy


def exact_sum(edges: Edges, sums: Sums, kinds: RowKinds | None) -> Tensor:
    """Sum table rows exactly: in float32 up to ``longest`` of them; longer rows in chunks, in int64."""
    degrees, sources, table, longest = edges.degrees, edges.sources, sums.table, sums.longest
    if kinds is not None and sums.stride:
        shift = (kinds * sums.stride).astype(np.int32)
        sources = sources + torch.from_numpy(np.repeat(shift, degrees.numpy()))
    most = int(degrees.max())
    if sums.fused is not None and most < longest * INT32_EXACT // FLOAT32_EXACT:
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


def grid_table(
    vectors: Tensor, groups: Tensor | None, query: NeighborSumQuery, used: Tensor | None = None
) -> Tensor:
    """Return the weighted contributions as integers in float32, one copy a destination group.

    Truncation toward zero never lengthens a row; a row still over its bound contributes nothing. The table
    of an earlier hop, if it has the shape, is overwritten: fresh memory costs as much as the truncation.
    """
    count = len(vectors)
    table = reused(used, query.groups * count, query.dim)
    weights = np.array(query.weights.table) * query.vector_steps
    at_once = max(1, GRID_ENTRIES // query.dim)
    scratch = np.empty((min(count, at_once), query.dim))
    for first in range(0, count, at_once):
        some = slice(first, min(count, first + at_once))
        exact, grid = vectors[some].to(torch.float64).numpy(), scratch[: some.stop - first]
        from_group = weights if groups is None else weights[groups[some].numpy()]  # (1 or rows, into)
        for into in range(query.groups):
            bound = from_group[:, into, None]
            out = table[into * count + some.start : into * count + some.stop].numpy()
            with np.errstate(over="ignore", invalid="ignore"):  # such a row is over its bound, silently
                np.multiply(exact, bound, out=grid)
                np.trunc(grid, out=grid)
                fits = np.einsum("nd,nd->n", grid, grid) <= np.square(bound)[:, 0]
                np.copyto(out, grid, casting="unsafe")
            out[~fits] = 0.0
    return table


def reused(used: Tensor | None, rows: int, dim: int) -> Tensor:
    """Return the memory of an earlier table if it has the shape, and new memory otherwise."""
    return used if used is not None and used.shape == (rows, dim) else torch.empty((rows, dim))


def noisy_cells(
    adjacency: Adjacency,
    labels: Tensor,
    inside: Tensor,
    query: EdgeCountQuery,
    noise: IntegerNoise,
    stream: RowStream,
) -> Tensor:
    """Return the noisy counts; the exact ones live and die here."""
    classes = query.classes
    code = torch.where(inside, labels, classes).numpy()  # one class more, for nodes that do not count
    counts = np.zeros((classes + 1, classes + 1), dtype=np.int64)
    for block in blocks(adjacency, adjacency.num_nodes):
        for piece in block.pieces(len(block), SUM_EDGES):
            into = np.repeat(code[piece.start : piece.stop], piece.degrees.numpy())
            pairs = code[piece.sources.numpy()] * (classes + 1) + into
            counts += np.bincount(pairs, minlength=counts.size).reshape(counts.shape)
    counts = counts[:classes, :classes]
    if not adjacency.directed:  # each edge is stored in both directions
        counts = np.triu(counts + counts.T) // np.where(np.eye(classes, dtype=bool), 4, 2)
    cells = np.indices(counts.shape).reshape(2, -1) if adjacency.directed else np.triu_indices(classes)
    drawn = noise.draw(stream, np.arange(len(cells[0])), 1)[:, 0]
    noisy = np.zeros(counts.shape)
    noisy[cells[0], cells[1]] = (counts[cells[0], cells[1]] * int(query.steps) + drawn) / query.steps
    return torch.from_numpy(noisy)

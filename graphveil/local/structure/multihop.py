"""Nodes that many walks lead to are alike: multi-hop transitions, as in GraRep."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from graphveil._util import checks
from graphveil._util.random import PublicStreams
from graphveil.errors import ConfigError
from graphveil.local.structure.base import StructuralSimilarity
from graphveil.local.structure.edges import Matrix, PublicEdges

_ENTRIES = 1 << 21  # of a block of rows of T, at most, or one row


@dataclass(frozen=True, kw_only=True)
class MultiHop(StructuralSimilarity):
    """Share of short walks that end at a node (SimGAT's slides after Cao, Lu, Xu: GraRep, CIKM 2015).

        T = sum_{m=1..n} A^m,   P_ij = T_ij / sum_c T_ic,   S_ij = P_ij if P_ij > delta and i != j, else 0.

    With ``transition`` a step counts by its probability, T = sum_m (D^-1 A)^m, GraRep's own normalization:
    then neither hubs nor the highest power outweigh the rest. Walks run from a node to those it hears from.

    Guarantee: |S_v| < 1/delta for every node, since rows of P sum to one; that also bounds memory. S is not
    symmetric. Rows of T exist a block at a time, as sparse powers.

    Args:
        n: the most steps of a walk.
        delta: the share of walks above which an end is similar.
        transition: count walks by their probability.
        drop_self: leave out walks that return (T_ii) before rows are divided by their sums.

    Raises:
        ConfigError: a parameter is outside its range, or walks are too many to count.

    >>> from graphveil.data import Adjacency
    >>> path = Adjacency.from_edges([0, 1], [1, 2], num_nodes=3, directed=False)
    >>> third = np.float32(1 / 3)
    >>> similar = MultiHop(n=2, delta=0.3)(PublicEdges(path, basis="drawn here"), streams=PublicStreams(0))
    >>> similar.toarray().tolist() == [[0, third, third], [0, 0, 0], [third, third, 0]]
    True
    """

    n: int = 2
    delta: float = 0.02
    transition: bool = False
    drop_self: bool = False

    def __post_init__(self) -> None:
        """Check every field."""
        checks.integer_at_least(1, n=self.n)
        checks.positive(delta=self.delta)
        checks.within(0, 1, delta=self.delta)

    def _similar(self, edges: PublicEdges, streams: PublicStreams) -> Matrix:
        step = edges.matrix()
        if self.transition:
            step = _scaled(step)
        blocks = [self._above(self._walks(step, part), part) for part in _parts(edges.matrix(), self.n)]
        return sparse.vstack(blocks, format="csr") if blocks else step

    def _walks(self, step: Matrix, part: slice) -> Matrix:
        """Return some rows of T."""
        power = total = step[part]
        for _ in range(self.n - 1):
            power = power @ step
            total = total + power
        return total

    def _above(self, total: Matrix, part: slice) -> Matrix:
        """Return the same rows of S."""
        rows = np.repeat(np.arange(part.start, part.stop), np.diff(total.indptr))
        own = total.indices == rows
        if self.drop_self:
            total.data[own] = 0
        sums = np.asarray(total.sum(axis=1))
        if not np.isfinite(sums).all():
            raise ConfigError(f"n={self.n} steps make more walks than a number holds; pass transition=True")
        share = total.data / sums[rows - part.start]
        share[own | ~(share > self.delta)] = 0
        found = sparse.csr_array((share, total.indices, total.indptr), shape=total.shape)
        found.eliminate_zeros()
        return found


def _scaled(matrix: Matrix) -> Matrix:
    """Return D^-1 A, with empty rows where A has them."""
    degrees = np.diff(matrix.indptr)
    return sparse.csr_array(
        (matrix.data / np.repeat(degrees, degrees), matrix.indices, matrix.indptr), shape=matrix.shape
    )


def _parts(matrix: Matrix, hops: int) -> Iterator[slice]:
    """Yield runs of rows whose T has at most so many entries: a row has one for each walk, or each node."""
    walks = np.ones(matrix.shape[0])
    entries = np.zeros(matrix.shape[0])
    for _ in range(hops):
        walks = np.minimum(matrix @ walks, matrix.shape[0])
        entries += walks
    upto = np.cumsum(np.minimum(entries, matrix.shape[0]))
    start = 0
    while start < len(upto):
        before = upto[start - 1] if start else 0.0
        stop = max(start + 1, int(np.searchsorted(upto, before + _ENTRIES, side="right")))
        yield slice(start, stop)
        start = stop

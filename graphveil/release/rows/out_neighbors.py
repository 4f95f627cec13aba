"""Each node's own list (the stored edges that it sends): its length, sums over it, and exact reads along it.

Lengths and integer sums stay in the release path. :func:`read_out_neighbor_sums` is the one exact read beside
it, under unit ``node-record``: sums of published rows over each node's own list, without noise. The answer
for v is a function of published rows and of v's own list, so it tells nobody but v's own audience anything
about a list: a mechanism whose output for v is computed from the mechanism's public outputs and v's own
record gives every coalition without v the guarantee of the public outputs alone (the billboard argument).
It must therefore never enter anything that is published, unless through a mechanism that pays for v's record.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor
from torch.nn.functional import embedding_bag

from graphveil.data import Adjacency
from graphveil.data.blocks import EdgeBlock
from graphveil.errors import ConfigError
from graphveil.release.backends.base import BlockWork
from graphveil.release.private_edges import PrivateEdges

_EDGES = 1 << 18  # at a time: the ones that stand for them stay in the cache

Sizes = npt.NDArray[np.int64]


def read_out_neighbor_sums(adjacency: Adjacency, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum of rows over each node's own out-list, float64 (N, d), and the lists' lengths, (N).

    Guarantee: none of its own; entry v depends on ``rows`` and on v's own record only. Not private towards
    whoever sees entry v, and not to be asked under an edge unit.

    Args:
        adjacency: the in-edges; a stored edge belongs to its source.
        rows: published rows (N, d).

    Raises:
        ConfigError: not one row per node.

    >>> pair = Adjacency.from_edges([0, 0], [1, 2], num_nodes=3, directed=True)
    >>> sums, lengths = read_out_neighbor_sums(pair, torch.tensor([[1.0], [2.0], [4.0]]))
    >>> sums.flatten().tolist(), lengths.tolist()
    ([6.0, 0.0, 0.0], [2, 0, 0])
    """
    if len(rows) != adjacency.num_nodes:
        raise ConfigError(f"{len(rows)} rows do not fit {adjacency.num_nodes} nodes; give one row per node")
    listed, starts = PrivateEdges(adjacency).out_neighbors()
    sums = embedding_bag(listed, rows.to(torch.float64), starts, mode="sum", include_last_offset=True)
    return sums, starts.diff()


def out_neighbor_sums(private: PrivateEdges, weights: Sizes) -> Sizes:
    """Return, for each source, the sum of integer weights over its own list (the edges that it sends), exact.

    ``weights`` has an entry per node, or a single one for all.
    """
    if len(weights) == 1:
        return weights * out_degrees(private)
    return private.total(OutNeighborSums(weights), (private.num_nodes,))


def out_degrees(private: PrivateEdges) -> Sizes:
    """Return the number of stored edges that each node sends.

    It is counted for undirected graphs, too, where it is the in-degree: with one record nulled it is not.
    """
    return private.total(OutDegrees(private.num_nodes), (private.num_nodes,))


def exceeds_degree(private: PrivateEdges, most: int) -> bool:
    """Whether a node has more than so many stored edges, in either direction."""
    longer = private.total(RowsAboveDegree(most), ())
    return bool(longer > 0) or bool((out_degrees(private) > most).any())


@dataclass(frozen=True, eq=False, repr=False)
class OutNeighborSums(BlockWork):
    """What a block's edges add to each source's sum of weights, int64 (N)."""

    weights: Sizes  # by target

    def __call__(self, edges: EdgeBlock) -> Tensor:
        """Return exact sums."""
        sums, ones = np.zeros(len(self.weights), dtype=np.int64), np.ones(_EDGES, dtype=np.int64)
        for piece in edges.pieces(len(edges), _EDGES):
            count = len(piece.sources)  # above _EDGES in a row of that many
            each = ones[:count] if count <= len(ones) else np.ones(count, dtype=np.int64)
            listed = sparse.csr_array(
                (each, piece.sources.numpy(), piece.offsets.numpy()), shape=(len(piece), len(sums))
            )
            sums += self.weights[piece.start : piece.stop] @ listed
        return torch.from_numpy(sums)


@dataclass(frozen=True, eq=False, repr=False)
class OutDegrees(BlockWork):
    """How many of a block's edges each node sends, int64 (N)."""

    num_nodes: int

    def __call__(self, edges: EdgeBlock) -> Tensor:
        """Return exact counts."""
        return torch.bincount(edges.sources, minlength=self.num_nodes)


@dataclass(frozen=True, eq=False, repr=False)
class RowsAboveDegree(BlockWork):
    """How many of a block's rows have more than so many in-edges, int64 ()."""

    most: int

    def __call__(self, edges: EdgeBlock) -> Tensor:
        """Return an exact count."""
        return (edges.degrees > self.most).sum()

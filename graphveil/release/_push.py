"""What a push reads of the edges besides the sums: each source's own list. It stays in the release path."""

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from graphveil.graph import Adjacency
from graphveil.graph.blocks import blocks
from graphveil.release._blocks import GRID_ENTRIES, reused
from graphveil.release.pushes import LEVEL, PushQuery

_EDGES = 1 << 18  # at a time: the ones that stand for them stay in the cache

Sums = npt.NDArray[np.int64]


def own_sums(adjacency: Adjacency, weights: Sums) -> Sums:
    """Return, for each source, the sum of integer weights over its own list (the edges that it sends), exact.

    ``weights`` has an entry per node, or a single one for all.
    """
    count = adjacency.num_nodes
    if len(weights) == 1:
        return weights * out_degrees(adjacency)
    sums, ones = np.zeros(count, dtype=np.int64), np.ones(_EDGES, dtype=np.int64)
    for block in blocks(adjacency, count):
        for piece in block.pieces(len(block), _EDGES):
            edges = len(piece.sources)  # above _EDGES in a row of that many
            each = ones[:edges] if edges <= len(ones) else np.ones(edges, dtype=np.int64)
            listed = sparse.csr_array(
                (each, piece.sources.numpy(), piece.offsets.numpy()), shape=(len(piece), count)
            )
            sums += weights[piece.start : piece.stop] @ listed
    return sums


def out_degrees(adjacency: Adjacency) -> Sums:
    """Return the number of stored edges that each node sends.

    It is counted for undirected graphs, too, where it is the in-degree: with one record nulled it is not.
    """
    degrees = torch.zeros(adjacency.num_nodes, dtype=torch.int64)
    for block in blocks(adjacency, adjacency.num_nodes):
        degrees += torch.bincount(block.sources, minlength=adjacency.num_nodes)
    return degrees.numpy()


def passes(adjacency: Adjacency, most: int) -> bool:
    """Whether a node has more than so many stored edges, in either direction."""
    into = adjacency.indptr.diff().numpy()
    return bool((into > most).any() or (out_degrees(adjacency) > most).any())


def push_table(
    vectors: Tensor, groups: Tensor | None, listed: Sums, query: PushQuery, used: Tensor | None = None
) -> Tensor:
    """Return each source's contribution t_u = trunc(s_u c_u) on the grid, as integers in float32.

    ``listed`` are the squared weights q_u of the sources' own lists, in sixteenths. A row with |t_u|^2
    max(q_u, 16 D) above its cap contributes nothing. Both sides are whole numbers below 2^53, where float64
    is exact; a longer row is too long in float64, too.
    """
    total = np.maximum(listed, LEVEL * query.degree_budget)
    factor = query.steps / np.sqrt(total / LEVEL)
    cap = np.array(query.caps)[0 if groups is None else groups.numpy()] // total
    table = reused(used, len(vectors), query.dim)
    at_once = max(1, GRID_ENTRIES // query.dim)
    scratch = np.empty((min(len(vectors), at_once), query.dim))
    for first in range(0, len(vectors), at_once):
        some = slice(first, min(len(vectors), first + at_once))
        exact, grid = vectors[some].to(torch.float64).numpy(), scratch[: some.stop - first]
        with np.errstate(over="ignore", invalid="ignore"):  # such a row is over its bound, silently
            np.multiply(exact, factor[some, None], out=grid)
        np.trunc(grid, out=grid)
        fits = np.einsum("nd,nd->n", grid, grid) <= cap[some]
        out = table[some].numpy()
        with np.errstate(over="ignore", invalid="ignore"):
            np.copyto(out, grid, casting="unsafe")
        out[~fits] = 0.0
    return table

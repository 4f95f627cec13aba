"""What nodes read along their own edges: sums of published rows over each node's own list, without noise.

This is the one exact read beside the release path under unit ``node-owner``. The answer for v is a function
of published rows and of v's own list, so it tells nobody but v's own audience anything about a list: a
mechanism whose output for v is computed from the mechanism's public outputs and v's own record gives every
coalition without v the guarantee of the public outputs alone (the billboard argument). It must therefore
never enter anything that is published, unless through a mechanism that pays for v's record.
"""

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn.functional import embedding_bag

from graphveil.errors import ConfigError
from graphveil.graph import Adjacency


def read_own_lists(adjacency: Adjacency, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum of rows over each node's own out-list, float64 (N, d), and the lists' lengths, (N).

    Guarantee: none of its own; entry v depends on ``rows`` and on v's own record only. Not private towards
    whoever sees entry v, and not to be asked under an edge unit.

    Args:
        adjacency: the in-edges; a stored edge belongs to its source.
        rows: published rows (N, d).

    Raises:
        ConfigError: not one row per node.

    >>> pair = Adjacency.from_edges([0, 0], [1, 2], num_nodes=3, directed=True)
    >>> sums, lengths = read_own_lists(pair, torch.tensor([[1.0], [2.0], [4.0]]))
    >>> sums.flatten().tolist(), lengths.tolist()
    ([6.0, 0.0, 0.0], [2, 0, 0])
    """
    if len(rows) != adjacency.num_nodes:
        raise ConfigError(f"{len(rows)} rows do not fit {adjacency.num_nodes} nodes; give one row per node")
    indices, indptr = _out_lists(adjacency)
    sums = embedding_bag(indices, rows.to(torch.float64), indptr, mode="sum", include_last_offset=True)
    return sums, indptr.diff()


def _out_lists(adjacency: Adjacency) -> tuple[Tensor, Tensor]:
    """Return every node's own list, one after the other, and where each begins.

    Sources decide, for undirected graphs too: where a record is nulled the other ends' records still list it.
    """
    count = adjacency.num_nodes
    stored = np.ones(len(adjacency.indices), dtype=bool)
    into = sparse.csr_array(
        (stored, adjacency.indices.numpy(), adjacency.indptr.numpy()), shape=(count, count)
    )
    lists = into.tocsc()
    return torch.from_numpy(lists.indices.astype(np.int64)), torch.from_numpy(lists.indptr.astype(np.int64))

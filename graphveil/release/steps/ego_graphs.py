"""1-hop ego graphs: each node and a bounded number of its out-neighbors, chosen by hash values.

An exact read outside the noisy queries, like the sums of ``out_edge_sums.py``, and with the same rule: the
ego graph of v is a function of v's own record and of public hash values. Results computed from it and from
published values may be returned only to readers authorized to access v's record. To publish them, use a
mechanism that charges v's record.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.data import Adjacency
from graphveil.release.private_edges import PrivateEdges
from graphveil.release.steps.bounded_lists import NO_NODE as NO_NODE  # marks an empty leaf
from graphveil.release.steps.bounded_lists import cut_lists


@dataclass(frozen=True, eq=False, repr=False)
class EgoGraphs:
    """The leaves of every node's ego graph, by id, and the length of its list.

    Shapes: ``leaves`` (N, M) int32, padded with ``NO_NODE``; ``lengths`` (N) int64.
    """

    leaves: Tensor
    lengths: Tensor


def read_ego_graphs(adjacency: Adjacency, most: int, key: bytes) -> EgoGraphs:
    """Return every node's own list, truncated to ``most`` entries by one hash per ordered pair (v, u).

    The entries with the smallest hash values are kept (``graphveil.release.steps.bounded_lists.cut_lists``).

    Args:
        adjacency: The in-edges; a stored edge belongs to its source.
        most: M, the public number of leaves.
        key: 32 bytes, which fix the hash values.

    Privacy:
        No guarantee of its own. Row v depends only on v's own record (the stored edges that v sends).

    >>> pair = Adjacency.from_edges([0, 0], [1, 2], num_nodes=3, directed=True)
    >>> stars = read_ego_graphs(pair, 2, bytes(32))
    >>> stars.leaves.tolist(), stars.lengths.tolist()
    ([[1, 2], [-1, -1], [-1, -1]], [2, 0, 0])
    """
    checks.integer_at_least(1, leaves=most)
    listed, starts = (part.numpy() for part in PrivateEdges(adjacency).out_neighbors())
    lengths = np.diff(starts)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    return EgoGraphs(cut_lists(owner, listed, len(lengths), most, key), torch.from_numpy(lengths))

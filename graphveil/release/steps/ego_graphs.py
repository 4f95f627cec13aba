"""Each node's own star: itself, and at most so many nodes of its own list, chosen by its own coins.

An exact read beside the release path, like the sums of ``out_edge_sums.py``, and with the same rule: the star
of v is a function of v's own record and of public coins, so what is computed from it and from published
values concerns v's own audience, unless a mechanism that pays for v's record publishes it.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.data import Adjacency
from graphveil.release.private_edges import PrivateEdges
from graphveil.release.steps.bounded_lists import NO_NODE as NO_NODE  # in place of a leaf
from graphveil.release.steps.bounded_lists import cut_lists


@dataclass(frozen=True, eq=False, repr=False)
class EgoGraphs:
    """The leaves of every node's star, by number, and how long its list is.

    Shapes: ``leaves`` (N, M) int32, :data:`NO_NODE` from the last leaf on; ``lengths`` (N) int64.
    """

    leaves: Tensor
    lengths: Tensor


def read_ego_graphs(adjacency: Adjacency, most: int, key: bytes) -> EgoGraphs:
    """Return every node's own list, cut to ``most`` entries by one coin for each ordered pair (v, u).

    What is kept are the smallest ones (:func:`~graphveil.release.steps.bounded_lists.cut_lists`).

    Guarantee: none of its own; row v depends on v's own record alone (the stored edges that v sends).

    Args:
        adjacency: the in-edges; a stored edge belongs to its source.
        most: M, the public number of leaves.
        key: 32 bytes, which fix the coins.

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

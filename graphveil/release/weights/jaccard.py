"""Weights by what two nodes have in common."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import sparse
from torch import Tensor

from graphveil.data import Features
from graphveil.release.weights.base import Similarity
from graphveil.release.weights.set_overlap import ListSets, dense_sets, sparse_sets
from graphveil.release.weights.tables import PairWeights

_BITS_A_MEMBER = 64  # of a list: so many take as long to compare
_BITS = 1 << 10  # which take no time
_LONGER = 4  # times the mean that the longest list may count: bits have to fit in memory, too


@dataclass(frozen=True)
class Jaccard(Similarity):
    """w = |A_u & A_v| / |A_u | A_v| for the sets A of features that are not zero, in [0, 1].

    Two nodes without any feature have similarity 0. Features are public. A pair costs as much as there are
    features or, if these are sparse and many, as the longest set has members.

    >>> Jaccard().bound
    1.0
    """

    reads: ClassVar[str] = "features"

    @property
    def bound(self) -> float:
        """One: two nodes may have the same features."""
        return 1.0

    def prepare(self, keys: Features) -> PairWeights:
        """Return the sets."""
        if isinstance(keys, Tensor):
            return dense_sets(keys.numpy())
        sets = sparse.csr_array(keys, copy=True)
        sets.sum_duplicates()
        sets.eliminate_zeros()
        sizes = np.diff(sets.indptr)
        longest = min(sizes.max(initial=0), _LONGER * sizes.sum() / max(1, len(sizes)))
        if sets.shape[1] <= max(_BITS, _BITS_A_MEMBER * longest):
            return sparse_sets(sets)
        ones = np.ones(len(sets.indices), dtype=np.int32)
        return ListSets(sparse.csr_array((ones, sets.indices, sets.indptr), shape=sets.shape))

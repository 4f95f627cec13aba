"""Weights by what two nodes have in common."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import sparse

from graphveil.aggregate._pairs import Overlaps, PairWeights
from graphveil.aggregate.similarity import Similarity
from graphveil.graph import Features


@dataclass(frozen=True)
class Jaccard(Similarity):
    """w = |A_u & A_v| / |A_u | A_v| for the sets A of features that are not zero, in [0, 1].

    Two nodes without any feature have similarity 0. Features are public. A pair costs as much as its two
    sets have members: this is the slow one of the weights.

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
        sets = sparse.csr_array(keys if sparse.issparse(keys) else keys.numpy(), copy=True)
        sets.sum_duplicates()
        sets.eliminate_zeros()
        ones = np.ones(len(sets.indices), dtype=np.int32)
        return Overlaps(sparse.csr_array((ones, sets.indices, sets.indptr), shape=sets.shape))

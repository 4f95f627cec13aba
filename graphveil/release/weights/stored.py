"""The weights that a graph's own edges have."""

from dataclasses import dataclass
from typing import Any

from graphveil.release.weights.base import Similarity
from graphveil.release.weights.tables import StoredWeights


@dataclass(frozen=True)
class GivenWeight(Similarity):
    """w_uv / max_weight: each edge's own weight, as a share of the public bound that it is cut to.

    Guarantee (edge units): neighbors differ in the weight of one edge, by any change inside [0, max_weight];
    an absent edge has weight 0. The sum of w_uv c_u / max_weight, |c_u| <= 1, moves by at most 1 in one row
    for a directed edge, and in each of two rows for an undirected one, which has one weight: by max_weight,
    or sqrt 2 max_weight, in the weights' own scale.

    *Proof.* Cutting to [0, max_weight], and then down to multiples of 2^-5 of it, is a function of the one
    weight. So one whole number between 0 and 2^5 changes, and its edge's term with it, which moves by at most
    its full size; all other terms stay.

    The rows come in units of ``max_weight``.

    >>> GivenWeight().bound
    1.0
    """

    @property
    def bound(self) -> float:
        """One: weights are shares of their bound."""
        return 1.0

    def prepare(self, keys: Any) -> StoredWeights:
        """Return what reads the edges' own weights; of the keys their number alone."""
        return StoredWeights(len(keys))

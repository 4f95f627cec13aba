"""Weights by a small network that looks at both ends of a pair."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from graphveil.release.weights.base import Similarity, Values
from graphveil.release.weights.network import network
from graphveil.release.weights.tables import CELLS, PairWeights

_REACH = 8.0  # of logits; the table ends there


@dataclass(frozen=True)
class Attention(Similarity):
    """w = sigmoid(tanh(A z_u + B z_v + b) . w + c), a two-layer network on both rows, at most sigmoid(8).

    The network's own weights are public or were released. The keys are what belongs to one node or to none:
    (A z_u for all u, B z_v + b for all v, w, c), of shapes (N, h), (N, h), (h) and (). Logits are cut to
    [-8, 8], in steps of 2^-8, and halves of hidden units, too; the tangent is right to within 0.027, which
    moves a weight by at most 0.007 |w|_1. Weights are in steps of 2^-5.

    >>> round(Attention().bound, 6)
    0.999665
    """

    reads: ClassVar[str] = "attention"

    @property
    def bound(self) -> float:
        """The logistic function at the largest logit."""
        return float(_sigmoid(np.array(_REACH)))

    def prepare(self, keys: tuple[Tensor, Tensor, Tensor, Tensor]) -> PairWeights:
        """Return the network's parts on their grids."""
        return network(*keys, values=_sigmoid(np.linspace(-_REACH, _REACH, CELLS)), bound=self.bound)


def _sigmoid(x: Values) -> Values:
    return np.asarray(1 / (1 + np.exp(-x)))

"""Weights by a small network that looks at both ends of a pair."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from graphveil import _check
from graphveil.aggregate._pairs import Network, PairWeights, network
from graphveil.aggregate.similarity import Similarity, Values

_REACH = 8.0  # of hidden units and logits; the table ends there


@dataclass(frozen=True)
class Attention(Similarity):
    """w = sigmoid(act(A z_u + B z_v + b) . w + c), a two-layer network on both rows, at most sigmoid(8).

    The network's own weights are public or were released. The keys are what belongs to one node or to none:
    (A z_u for all u, B z_v + b for all v, w, c), of shapes (N, h), (N, h), (h) and (). Hidden units and the
    logit are cut to [-8, 8], in steps of 2^-8.

    >>> round(Attention().bound, 6)
    0.999665
    """

    reads: ClassVar[str] = "attention"

    activation: str = "selu"

    def __post_init__(self) -> None:
        """Check the activation."""
        _check.one_of(_ACTIVATIONS, activation=self.activation)

    @property
    def bound(self) -> float:
        """The logistic function at the largest logit."""
        return float(_sigmoid(np.array(_REACH)))

    def prepare(self, keys: tuple[Tensor, Tensor, Tensor, Tensor]) -> PairWeights:
        """Return the network's parts on their grids."""
        places = torch.linspace(-_REACH, _REACH, Network.CELLS, dtype=torch.float64)
        activation = _ACTIVATIONS[self.activation](places)
        return network(*keys, activation=activation, values=_sigmoid(places.numpy()), bound=self.bound)


def _sigmoid(x: Values) -> Values:
    return np.asarray(1 / (1 + np.exp(-x)))


_ACTIVATIONS = {"relu": torch.relu, "selu": torch.selu, "tanh": torch.tanh}

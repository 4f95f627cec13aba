"""Weights by what is publicly believed about two nodes' classes."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.errors import InputError
from graphveil.release.weights.base import DotWeight, Similarity, Values
from graphveil.release.weights.tables import CategoryWeights, PairWeights, quantize_weights

_MAX_CLASSES = 256


@dataclass(frozen=True)
class ClassAgree(Similarity):
    """w = 1 if both nodes' most probable classes agree, and ``otherwise`` if not.

    Probabilities are public or released, shape (N, C), so the two classes are, too.

    >>> ClassAgree(0.2).bound
    1.0
    """

    reads: ClassVar[str] = "posteriors"

    otherwise: float = 0.0

    def __post_init__(self) -> None:
        """Check the weight of a pair that disagrees."""
        checks.within(0, 1, otherwise=self.otherwise)

    @property
    def bound(self) -> float:
        """One: two nodes may always agree."""
        return 1.0

    def prepare(self, keys: Tensor) -> PairWeights:
        """Return each node's class and the table of weights."""
        classes = keys.shape[1]
        if not 1 <= classes <= _MAX_CLASSES or not bool(torch.isfinite(keys).all()):
            raise InputError(f"class_agree takes finite probabilities of 1 to {_MAX_CLASSES} classes")
        table = np.where(np.eye(classes, dtype=bool), 1.0, self.otherwise)
        return CategoryWeights(keys.argmax(dim=1).to(torch.uint8).numpy(), quantize_weights(table, 1.0))


@dataclass(frozen=True)
class PosteriorDot(DotWeight):
    """w = <p_u, p_v>, at most 1: the probability that draws from both nodes' posteriors agree.

    Probabilities are public or released, shape (N, C).

    >>> PosteriorDot().bound
    1.0
    """

    reads: ClassVar[str] = "posteriors"

    def phi(self, rows: Tensor) -> Tensor:
        """Return the probabilities as they are: their norm is at most one."""
        return rows

    def transform(self, dots: Values) -> Values:
        """Return the dot product."""
        return np.maximum(0.0, dots)

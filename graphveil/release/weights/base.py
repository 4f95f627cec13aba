"""Weights of pairs: how much u's message into v counts, by two rows that everybody may know.

The rows are public or were released earlier, so a weight belongs to a pair of nodes and not to an edge: one
that comes or goes takes its own contribution along and changes no other. Degrees, softmax over neighbors and
common neighbors are functions of the edges, and nothing here is ever given any.
"""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

from graphveil.errors import ConfigError, InputError
from graphveil.propagation.normalize import safe_unit
from graphveil.release.weights.tables import (
    CELLS,
    DotProductWeights,
    PairWeights,
    quantize_rows,
    quantize_weights,
)

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Similarity(ABC):
    """0 <= w(z_u, z_v) <= bound for every ordered pair of nodes, whether an edge joins them or not.

    Guarantee (edge units): the sum of w(z_u, z_v) c_u over in-neighbors, |c_u| <= 1, moves by at most
    ``bound`` in one row for a directed edge, and by at most ``bound`` in each of two rows, sqrt 2 * bound
    together, for an undirected one. Asymmetric weights need no more: max over pairs of
    sqrt(w_uv^2 + w_vu^2) <= sqrt 2 * bound.

    *Proof.* w is a function of rows that do not depend on the edges, so toggling u -> v adds or removes
    w(z_u, z_v) c_u in row v and leaves every other term as it was. Its norm is at most bound. An undirected
    edge is two such changes, in different rows.

    ``reads`` names the rows that a model should hand over.
    """

    reads: ClassVar[str] = "rows"

    @property
    @abstractmethod
    def bound(self) -> float:
        """The largest weight over all ordered pairs of rows that could ever come, from the formula alone."""

    @abstractmethod
    def prepare(self, keys: Any) -> PairWeights:
        """Return the weights' tables for these rows, before any edge is read."""

    def describe(self) -> dict[str, object]:
        """Return what fixes the weight, for a release's descriptor."""
        return {"weight": type(self).__name__, **asdict(self), "bound": self.bound.hex()}


@dataclass(frozen=True)
class DotWeight(Similarity):
    """A weight that is a function of one dot product: w(z_u, z_v) = transform(phi(z_u) . psi(z_v)).

    Derive your own from it in one file; only ``transform`` is needed. All three methods are called before the
    first edge is read: ``phi`` and ``psi`` once, with the rows of all nodes, and ``transform`` once, with a
    fixed grid over [-1, 1]. None of them has an argument that depends on an edge, and the library evaluates
    the weights from the tables that they return: the dot product of rows cut to 2^-11, then the value at the
    nearest of 4,097 places. Negative values count as 0. The bound is the largest value on the grid, and so
    cannot be misstated.

    >>> class Sharp(DotWeight):
    ...     def transform(self, dots):
    ...         return 1.2 * np.maximum(0, dots) ** 3
    >>> Sharp().bound
    1.2
    """

    @abstractmethod
    def transform(self, dots: Values) -> Values:
        """Return the weights of these dot products: finite numbers, the same shape."""

    def phi(self, rows: Tensor) -> Tensor:
        """Return what a source contributes, (N, k); rows longer than one are scaled to one."""
        return safe_unit(rows)

    def psi(self, rows: Tensor) -> Tensor:
        """Return what a target contributes, (N, k); rows longer than one are scaled to one."""
        return self.phi(rows)

    @cached_property
    def values(self) -> Values:
        """The weights on the grid."""
        values = np.asarray(self.transform(np.linspace(-1.0, 1.0, CELLS)), dtype=np.float64)
        if values.shape != (CELLS,) or not np.isfinite(values).all():
            raise ConfigError(
                f"transform of {type(self).__name__} must return a finite number for each dot product it gets"
            )
        if values.max() <= 0:
            raise ConfigError(f"every weight of {type(self).__name__} is zero: a hop would be noise alone")
        return np.maximum(values, 0.0)

    @property
    def bound(self) -> float:
        """The largest weight on the grid."""
        return float(self.values.max())

    @property
    def symmetric(self) -> bool:
        """Whether both ends of a pair are mapped alike."""
        return type(self).psi is DotWeight.psi

    def prepare(self, keys: Tensor) -> DotProductWeights:
        """Return both maps on their grids, and the table."""
        phi = quantize_rows(self.phi(keys))
        psi = phi if self.symmetric else quantize_rows(self.psi(keys))
        if phi.shape != psi.shape:
            raise InputError(
                f"phi and psi of {type(self).__name__} must return rows of one width, one row per node"
            )
        return DotProductWeights(phi, psi, quantize_weights(self.values, self.bound))

"""Edge weights of node pairs: the weight of u's message into v, from two public rows.

The rows are public or were released earlier. A weight therefore belongs to a pair of nodes, not to an edge:
adding or removing an edge changes its own contribution and no other. Degrees, softmax over neighbors and
common neighbors are functions of the edges, so no function here receives them.

A ``Similarity`` has a bound and prepares the tables of ``pair_weights.py``, which alone see edges. The
weights with a name are in ``graphveil.release.weights``.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil.core.edges.blocks import EdgeBlock
from graphveil.core.normalize import safe_unit
from graphveil.core.queries.pair_weights import (
    CELLS,
    FULL,
    BitSets,
    CategoryWeights,
    DotProductWeights,
    ListSets,
    NetworkWeights,
    PairWeights,
    StoredWeights,
    quantize_rows,
    quantize_weights,
)
from graphveil.errors import ConfigError, InputError, ReleaseError, UnsupportedGuaranteeError

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Similarity(ABC):
    """0 <= w(z_u, z_v) <= bound for every ordered pair of nodes, with or without an edge between them.

    ``reads`` names the rows that a model should pass.

    Privacy:
        Unit: edge-level. The sum of w(z_u, z_v) c_u over in-neighbors, |c_u| <= 1, moves by at most ``bound``
        in one row for a directed edge. For an undirected edge it moves by at most ``bound`` in each of two
        rows, sqrt 2 * bound in total. Asymmetric weights need no more: max over pairs of sqrt(w_uv^2 +
        w_vu^2) <= sqrt 2 * bound.

        *Proof.* w is a function of rows that do not depend on the edges, so toggling u -> v adds or removes
        w(z_u, z_v) c_u in row v and leaves every other term unchanged. Its norm is at most bound. An
        undirected edge is two such changes, in different rows.
    """

    reads: ClassVar[str] = "rows"

    @property
    @abstractmethod
    def bound(self) -> float:
        """The largest weight over all possible ordered pairs of rows, from the formula alone."""

    @abstractmethod
    def prepare(self, keys: Any) -> PairWeights:
        """Return the weights' tables for these rows, before any edge is read."""

    def describe(self) -> dict[str, object]:
        """Return the values that determine the weight, for a release's descriptor."""
        return {"weight": type(self).__name__, **asdict(self), "bound": self.bound.hex()}


@dataclass(frozen=True)
class DotWeight(Similarity):
    """A weight that is a function of one dot product: w(z_u, z_v) = transform(phi(z_u) . psi(z_v)).

    Derive custom weights from this class; only ``transform`` is required. All three methods are called before
    the first edge is read: ``phi`` and ``psi`` once, with the rows of all nodes, and ``transform`` once, with
    a fixed grid over [-1, 1]. None of them has an argument that depends on an edge. The library evaluates the
    weights from the tables that they return: the dot product of rows truncated to 2^-11, then the value at
    the nearest of 4,097 grid points. Negative values count as 0. The bound is the largest value on the grid,
    so it is always correct.

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
        """Return the vector of each source, (N, k); rows longer than one are scaled to one."""
        return safe_unit(rows)

    def psi(self, rows: Tensor) -> Tensor:
        """Return the vector of each target, (N, k); rows longer than one are scaled to one."""
        return self.phi(rows)

    @cached_property
    def values(self) -> Values:
        """The weights on the grid."""
        values = np.asarray(self.transform(np.linspace(-1.0, 1.0, CELLS)), dtype=np.float64)
        if values.shape != (CELLS,) or not np.isfinite(values).all():
            raise ConfigError(
                f"transform of {type(self).__name__} must return a finite number for each dot product"
            )
        if values.max() <= 0:
            raise ConfigError(
                f"All weights of {type(self).__name__} are zero, so the hop would release noise only. "
                "Return a positive weight for some dot products."
            )
        return np.maximum(values, 0.0)

    @property
    def bound(self) -> float:
        """The largest weight on the grid."""
        return float(self.values.max())

    @property
    def symmetric(self) -> bool:
        """Whether ``phi`` and ``psi`` are the same map."""
        return type(self).psi is DotWeight.psi

    def prepare(self, keys: Tensor) -> DotProductWeights:
        """Return both maps on their grids, and the table."""
        phi = quantize_rows(self.phi(keys))
        psi = phi if self.symmetric else quantize_rows(self.psi(keys))
        if phi.shape != psi.shape:
            raise InputError(
                f"phi and psi of {type(self).__name__} must return one row per node, both of the same width"
            )
        return DotProductWeights(phi, psi, quantize_weights(self.values, self.bound))


@dataclass(frozen=True)
class GivenWeight(Similarity):
    """w_uv / max_weight: each edge's own weight, as a share of the public bound that it is clipped to.

    The rows are in units of ``max_weight``.

    Privacy:
        Unit: edge-level. Neighboring datasets differ in the weight of one edge, by any change inside [0,
        max_weight]; an absent edge has weight 0. The sum of w_uv c_u / max_weight, |c_u| <= 1, moves by at
        most 1 in one row for a directed edge, and in each of two rows for an undirected one, which has one
        weight: by max_weight, or sqrt 2 max_weight, on the scale of the weights.

        *Proof.* Clipping to [0, max_weight], and then truncating to multiples of 2^-5 of it, is a function of
        the one weight. So one integer between 0 and 2^5 changes, and its edge's term with it, which moves by
        at most its full size; all other terms stay the same.

    >>> GivenWeight().bound
    1.0
    """

    @property
    def bound(self) -> float:
        """One: weights are shares of their bound."""
        return 1.0

    def prepare(self, keys: Any) -> StoredWeights:
        """Return a reader of the graph's edge weights; only the number of keys is used."""
        return StoredWeights(len(keys))


_PAIRS = 1 << 20  # pairs per chunk


def weights_from(similarity: Similarity, keys: Any, sources: Tensor) -> Iterator[Tensor]:
    """Yield w(z_u, z_v) for some sources u and all nodes v, in blocks of shape (rows, sources), float32.

    These are the weights that a hop uses, for pairs chosen without reading an edge: a function of the keys
    alone.

    Args:
        similarity: Weight w.
        keys: Inputs of the similarity for each node.
        sources: Nodes, in ascending order, shape (S).

    >>> from graphveil.release.weights import HalfCos
    >>> rows = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    >>> torch.cat(list(weights_from(HalfCos(), rows, torch.tensor([0, 2])))).tolist()
    [[1.0, 0.5], [0.0, 0.5], [0.5, 1.0]]
    """
    pairs = similarity.prepare(keys)
    at_once = max(1, _PAIRS // len(sources))
    for first in range(0, pairs.num_nodes, at_once):
        last = min(pairs.num_nodes, first + at_once)
        yield all_pairs(pairs, sources, first, last) * (similarity.bound / FULL)


def all_pairs(pairs: PairWeights, sources: Tensor, start: int, stop: int) -> Tensor:
    """Return the weights of all pairs of a source and a target from ``start`` on, by the target first."""
    count, rows = len(sources), stop - start
    offsets = torch.arange(0, rows * count + 1, count, dtype=torch.int32)
    edges = EdgeBlock(start, stop, offsets, sources.to(torch.int32).repeat(rows))
    return pairs.of(edges).reshape(rows, count)


# Classes in this set receive edges, so registering a name does not add to it.
_TRUSTED = (DotProductWeights, CategoryWeights, BitSets, ListSets, NetworkWeights, StoredWeights)


def check_trusted(pairs: PairWeights, num_nodes: int) -> None:
    """Reject untrusted weights, which could read the edges passed to them, and tables that do not fit.

    The check depends only on the tables, not on the edges.
    """
    if type(pairs) not in _TRUSTED:
        raise UnsupportedGuaranteeError(
            "Custom weights must be derived from DotWeight, whose tables are computed before an edge "
            "is read. Use class MyWeight(DotWeight)."
        )
    if not pairs.is_valid:
        raise UnsupportedGuaranteeError(
            "The weight tables do not bound the weight of every pair of nodes. Derive custom weights "
            "from DotWeight, which makes valid tables."
        )
    if pairs.num_nodes != num_nodes:
        raise ReleaseError(
            f"the weight keys have {pairs.num_nodes} rows, but the graph has {num_nodes} nodes; the "
            "release stays charged"
        )

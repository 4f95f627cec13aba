"""Weights of pairs, edge by edge: trusted code that runs beside the private sums and never leaves them.

A pair's weight is a whole number from 0 to 2^WEIGHT_BITS and a function of that pair alone, to the last bit:
all tables are made before an edge is read, and what is computed for an edge is exact integer arithmetic,
whatever kernel, block or thread computes it. If the weight of one pair moved because an edge of another came
or went, neighboring graphs would differ in more than the rows that are charged.
"""

import math
import threading
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil.data.blocks import EdgeBlock
from graphveil.errors import ConfigError, InputError, ReleaseError

WEIGHT_BITS = 5
FULL = 1 << WEIGHT_BITS  # the whole number that stands for a weight at its bound
HALF = 1 << 11
CELLS = 2 * HALF + 1  # of a table over [-1, 1]
_LANES = 16  # sampled products of rows of another width are several times slower
_ENTRIES = 1 << 17  # of rows that are worked on at a time: they stay in the cache
_ONE_AT_A_TIME = threading.Lock()

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class PairWeights(ABC):
    """What the weights of all pairs follow from. A release accepts our own classes and no others."""

    @property
    @abstractmethod
    def tables(self) -> tuple[Tensor, ...]:
        """Everything that a weight is computed from, for the release's digest."""

    @property
    @abstractmethod
    def num_nodes(self) -> int:
        """How many nodes have weights."""

    @property
    @abstractmethod
    def is_valid(self) -> bool:
        """Whether any two nodes find a weight in the tables, and none but whole numbers from 0 to FULL.

        Otherwise a pair could weigh more than is charged, or raise an error that tells of its edge.
        """

    @abstractmethod
    def of(self, edges: EdgeBlock) -> Tensor:
        """Return the weight of each edge as a whole number in float32, shape (E)."""


@dataclass(frozen=True, eq=False, repr=False)
class DotProductWeights(PairWeights):
    """levels[phi_u . psi_v]: a table over the dot product of two rows of whole numbers, int16.

    Their norms are at most 2^11. Products are formed of phi and psi / 2^11 in float32: every partial sum of a
    dot product is a multiple of 2^-11, of size at most 2^11, which float32 holds exactly, and the order of
    the additions, and with it the kernel, cannot matter.
    """

    phi: Tensor
    psi: Tensor
    levels: Tensor

    @property
    def tables(self) -> tuple[Tensor, ...]:
        """Return the rows and the table."""
        return self.phi, self.psi, self.levels

    @property
    def num_nodes(self) -> int:
        """How many nodes have weights."""
        return len(self.phi)

    @property
    def is_valid(self) -> bool:
        """Whether norms are at most 2^11, so that a dot product has its place in the table."""
        alike = self.phi.shape == self.psi.shape and self.phi.dtype == self.psi.dtype == torch.int16
        rows = (self.phi,) if self.psi is self.phi else (self.phi, self.psi)
        return alike and all(map(_is_short, rows)) and is_weight_table(self.levels, (CELLS,))

    def of(self, edges: EdgeBlock) -> Tensor:
        """Look each edge's dot product up."""
        if not len(edges.sources):
            return torch.empty(0)
        place = torch.full((len(edges.sources),), HALF + 0.5)
        pattern = _pattern(edges, place, len(self.phi))
        own = self.psi[edges.start : edges.stop].to(torch.float32) / HALF
        torch.sparse.sampled_addmm(pattern, own, self._phi.t(), out=pattern)
        return self.levels.index_select(0, place.to(torch.int32))

    @cached_property
    def _phi(self) -> Tensor:
        return self.phi.to(torch.float32)


@dataclass(frozen=True, eq=False, repr=False)
class CategoryWeights(PairWeights):
    """levels[k_v, k_u]: a table over pairs of kinds of nodes, the target's first."""

    codes: npt.NDArray[np.uint8]
    levels: Tensor  # (kinds, kinds)

    @property
    def tables(self) -> tuple[Tensor, ...]:
        """Return the kinds and the table."""
        return torch.from_numpy(self.codes), self.levels

    @property
    def num_nodes(self) -> int:
        """How many nodes have weights."""
        return len(self.codes)

    @property
    def is_valid(self) -> bool:
        """Whether every kind has its row and column in the table."""
        kinds = len(self.levels)
        return int(self.codes.max(initial=0)) < kinds and is_weight_table(self.levels, (kinds, kinds))

    def of(self, edges: EdgeBlock) -> Tensor:
        """Look each edge's two kinds up."""
        start = self.codes[edges.start : edges.stop].astype(np.int32) * len(self.levels)
        place = np.repeat(start, edges.degrees.numpy())
        codes = torch.from_numpy(self.codes).index_select(0, edges.sources)
        np.add(place, codes.numpy(), out=place)
        return self.levels.reshape(-1).index_select(0, torch.from_numpy(place))


@dataclass(frozen=True, eq=False, repr=False)
class StoredWeights(PairWeights):
    """The weight that the graph gives each edge, as a share of its public bound, cut to the grid.

    What one edge may change is its own weight, within the bound, and so its own whole number.
    """

    nodes: int

    @property
    def tables(self) -> tuple[Tensor, ...]:
        """Return nothing: the weights are part of the edges."""
        return ()

    @property
    def num_nodes(self) -> int:
        """How many nodes the edges join."""
        return self.nodes

    @property
    def is_valid(self) -> bool:
        """Return True: whatever the edges' weights are, they are cut."""
        return True

    def of(self, edges: EdgeBlock) -> Tensor:
        """Cut each edge's weight down to the grid."""
        if edges.weights is None:
            raise ReleaseError("the graph's edges have no weights; the release stays charged")
        return (edges.weights * FULL).trunc_().clamp_(0, FULL)


def _is_short(rows: Tensor) -> bool:
    """Whether no row is longer than 2^11."""
    parts = torch.split(rows, max(1, _ENTRIES // max(1, rows.shape[1])))
    return all(bool((part.to(torch.float32).square().sum(dim=1) <= HALF**2).all()) for part in parts)


def is_weight_table(levels: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether a table has this shape, and holds whole numbers from 0 to FULL."""
    whole = (levels == levels.round()) & (levels >= 0) & (levels <= FULL)
    return tuple(levels.shape) == shape and bool(whole.all())


def quantize_weights(values: Values, bound: float) -> Tensor:
    """Return weights as whole numbers: rounded to 2^-WEIGHT_BITS of their bound, which none may pass."""
    levels = np.rint(np.maximum(values, 0.0) / bound * FULL)
    if not (levels <= FULL).all():
        raise ConfigError(f"a weight passes its bound {bound:g}; the bound is the table's largest value")
    return torch.from_numpy(levels.astype(np.float32))


def quantize_rows(rows: Tensor) -> Tensor:
    """Return rows times 2^11 as whole numbers, int16, after scaling those longer than one down to one.

    Zero columns fill the width up to what vector instructions take.
    """
    if rows.ndim != 2 or not bool(torch.isfinite(rows.sum(dtype=torch.float64))):
        raise InputError("the maps of a weight must return finite numbers, one row per node")
    wide = np.zeros((len(rows), math.ceil(rows.shape[1] / _LANES) * _LANES), dtype=np.int16)
    at_once = max(1, _ENTRIES // max(1, rows.shape[1]))
    scratch = np.empty((min(len(rows), at_once), rows.shape[1]))
    for first in range(0, len(rows), at_once):
        exact = rows[first : first + at_once].detach().to(torch.float64).numpy()
        grid, out = scratch[: len(exact)], wide[first : first + at_once, : rows.shape[1]]
        norm = np.sqrt(np.einsum("nk,nk->n", exact, exact)) * (1 + 1e-6)
        np.multiply(exact, (HALF / np.maximum(1.0, norm))[:, None], out=grid)
        np.copyto(out, grid, casting="unsafe")  # toward zero
    return torch.from_numpy(wide)


def _pattern(edges: EdgeBlock, values: Tensor, num_nodes: int) -> Tensor:
    """Return a block's edges as a sparse matrix around ``values``, which it does not copy."""
    _first_csr()
    return torch.sparse_csr_tensor(
        edges.offsets, edges.sources, values, size=(len(edges), num_nodes), check_invariants=False
    )


@cache
def _first_csr() -> None:
    """Make a first sparse matrix: torch warns about that one, once a process, and nobody can do anything.

    Not around each block: filters of warnings belong to the whole process, and blocks may run in threads.
    """
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta", UserWarning)
        torch.sparse_csr_tensor([0, 0], [], [], size=(1, 1), check_invariants=False)

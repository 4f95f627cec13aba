"""Weights of pairs, edge by edge: trusted code that runs beside the private sums and never leaves them.

A pair's weight is a whole number from 0 to 2^WEIGHT_BITS and a function of that pair alone, to the last bit:
all tables are made before an edge is read, and what is computed for an edge is exact integer arithmetic,
whatever kernel, block or thread computes it. If the weight of one pair moved because an edge of another came
or went, neighbouring graphs would differ in more than the rows that are charged.
"""

import math
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from graphveil.aggregate.engine import Edges
from graphveil.errors import ConfigError, InputError, NeverError, ReleaseError

WEIGHT_BITS = 5
FULL = 1 << WEIGHT_BITS  # the whole number that stands for a weight at its bound
HALF = 1 << 11
CELLS = 2 * HALF + 1  # of a table over [-1, 1]
_LANES = 16  # sampled products of rows of another width are several times slower
_ENTRIES = 1 << 17  # of rows that are worked on at a time: they stay in the cache
_BITS_A_MEMBER = 64  # of a set: so many take as long to compare as a member
_MEMBERS = np.array([word.bit_count() for word in range(1 << 16)], dtype=np.uint8)

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class PairWeights(ABC):
    """What the weights of all pairs follow from. A release accepts this module's classes and no others."""

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
    def closed(self) -> bool:
        """Whether any two nodes find a weight in the tables, and none but whole numbers from 0 to FULL.

        Otherwise a pair could weigh more than is charged, or raise an error that tells of its edge.
        """

    @abstractmethod
    def of(self, edges: Edges) -> Tensor:
        """Return the weight of each edge as a whole number in float32, shape (E)."""


@dataclass(frozen=True, eq=False, repr=False)
class Dots(PairWeights):
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
    def closed(self) -> bool:
        """Whether norms are at most 2^11, so that a dot product has its place in the table."""
        alike = self.phi.shape == self.psi.shape and self.phi.dtype == self.psi.dtype == torch.int16
        return alike and _is_short(self.phi) and _is_short(self.psi) and _are_weights(self.levels, (CELLS,))

    def of(self, edges: Edges) -> Tensor:
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
class Kinds(PairWeights):
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
    def closed(self) -> bool:
        """Whether every kind has its row and column in the table."""
        kinds = len(self.levels)
        return int(self.codes.max(initial=0)) < kinds and _are_weights(self.levels, (kinds, kinds))

    def of(self, edges: Edges) -> Tensor:
        """Look each edge's two kinds up."""
        start = self.codes[edges.start : edges.stop].astype(np.int32) * len(self.levels)
        place = np.repeat(start, edges.degrees.numpy())
        codes = torch.from_numpy(self.codes).index_select(0, edges.sources)
        np.add(place, codes.numpy(), out=place)
        return self.levels.reshape(-1).index_select(0, torch.from_numpy(place))


@dataclass(frozen=True, eq=False, repr=False)
class Overlaps(PairWeights):
    """The Jaccard index of two sets, |A & B| / |A | B|, in whole numbers; 0 where both are empty."""

    sets: sparse.csr_array
    _at_once: ClassVar[int] = 1 << 14

    @property
    def tables(self) -> tuple[Tensor, ...]:
        """Return the sets."""
        return torch.from_numpy(self.sets.indptr), torch.from_numpy(self.sets.indices)

    @property
    def num_nodes(self) -> int:
        """How many nodes have weights."""
        return self.sets.shape[0]

    @property
    def closed(self) -> bool:
        """Whether each member is there once."""
        return bool((self.sets.data == 1).all()) and bool(self.sets.has_canonical_format)

    def of(self, edges: Edges) -> Tensor:
        """Count each edge's common members."""
        target = np.repeat(np.arange(edges.start, edges.stop), edges.degrees.numpy())
        source, size, bits = edges.sources.numpy(), np.diff(self.sets.indptr), self._bits
        at_once = self._at_once if bits is None else max(1, _ENTRIES // bits.shape[1])
        weight = np.empty(len(source), dtype=np.float32)
        for first in range(0, len(source), at_once):
            u, v = (ends[first : first + at_once] for ends in (source, target))
            if bits is None:
                common = self.sets[u].multiply(self.sets[v]).sum(axis=1)
            else:
                common = _MEMBERS[bits[u] & bits[v]].sum(axis=1, dtype=np.int32)
            union = np.maximum(1, size[u] + size[v] - common)
            weight[first : first + len(u)] = (2 * FULL * common + union) // (2 * union)
        return torch.from_numpy(weight)

    @cached_property
    def _bits(self) -> npt.NDArray[np.uint16] | None:
        """Return the sets as rows of bits, None where lists of members are shorter work."""
        count, width = self.sets.shape
        if width > _BITS_A_MEMBER * len(self.sets.indices) / max(1, count):
            return None
        words = np.zeros((count, 2 * math.ceil(width / 16)), dtype=np.uint8)
        at_once = max(1, 8 * _ENTRIES // max(1, width))
        for first in range(0, count, at_once):
            some = np.packbits(self.sets[first : first + at_once].toarray().astype(bool), axis=1)
            words[first : first + len(some), : some.shape[1]] = some
        return words.view(np.uint16)


@dataclass(frozen=True, eq=False, repr=False)
class Given(PairWeights):
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
    def closed(self) -> bool:
        """Return True: whatever the edges' weights are, they are cut."""
        return True

    def of(self, edges: Edges) -> Tensor:
        """Cut each edge's weight down to the grid."""
        if edges.weights is None:
            raise ReleaseError("the graph's edges have no weights; the release stays booked")
        return (edges.weights * FULL).trunc_().clamp_(0, FULL)


@dataclass(frozen=True, eq=False, repr=False)
class Network(PairWeights):
    """levels[act(a_u + b_v) . w + c] in whole numbers: hidden units in steps of 2^-8, the rest of 2^-12.

    Products and sums stay below 2^53, where float64 is exact in any order.
    """

    source: Tensor  # (N, h), int32
    target: Tensor
    activation: Tensor  # (CELLS), float64, whole
    readout: Tensor  # (h), float64, whole
    offset: float
    levels: Tensor
    CELLS: ClassVar[int] = CELLS
    _at_once: ClassVar[int] = 1 << 13

    @property
    def tables(self) -> tuple[Tensor, ...]:
        """Return the maps, the network's parts and the table."""
        offset = torch.tensor([self.offset], dtype=torch.float64)
        return self.source, self.target, self.activation, self.readout, offset, self.levels

    @property
    def num_nodes(self) -> int:
        """How many nodes have weights."""
        return len(self.source)

    @property
    def closed(self) -> bool:
        """Whether the maps fit each other and every logit is a number, which has its place in the table."""
        shapes = self.source.shape == self.target.shape == (self.num_nodes, len(self.readout))
        finite = all(bool(torch.isfinite(part).all()) for part in (self.activation, self.readout))
        sizes = shapes and len(self.activation) == CELLS and finite and math.isfinite(self.offset)
        return sizes and _are_weights(self.levels, (CELLS,))

    def of(self, edges: Edges) -> Tensor:
        """Evaluate the network for each edge."""
        target = torch.from_numpy(np.repeat(np.arange(edges.start, edges.stop), edges.degrees.numpy()))
        places = torch.empty(len(target), dtype=torch.int32)
        for first in range(0, len(target), self._at_once):
            some = slice(first, first + self._at_once)
            hidden = self.source.index_select(0, edges.sources[some])
            hidden += self.target.index_select(0, target[some])
            place = hidden.clamp_(-HALF, HALF).add_(HALF)
            units = self.activation.index_select(0, place.reshape(-1)).reshape(place.shape)
            logits = (units @ self.readout + self.offset) * (_UNIT / _FINE**2)
            places[some] = logits.add_(HALF + 0.5).clamp_(0, 2 * HALF).to(torch.int32)
        return self.levels.index_select(0, places)


_UNIT = 1 << 8  # steps in a hidden unit or logit of one: a table of CELLS reaches to 8
_FINE = 1 << 12  # steps in an activation or readout weight of one
_MOST = float(1 << 10)  # readout weights beyond are cut


def network(
    source: Tensor,
    target: Tensor,
    readout: Tensor,
    offset: Tensor,
    *,
    activation: Tensor,
    values: Values,
    bound: float,
) -> Network:
    """Return a two-layer network's parts in whole numbers."""

    def whole(x: Tensor, steps: int, most: float) -> Tensor:
        exact = x.detach().to(torch.float64)
        if not bool(torch.isfinite(exact).all()):
            raise InputError("the attention network has NaN or infinite entries")
        return (exact.clamp(-most, most) * steps).round()

    reach = 2.0 * HALF / _UNIT  # twice that of the table, so that two halves may cancel
    return Network(
        whole(source, _UNIT, reach).to(torch.int32),
        whole(target, _UNIT, reach).to(torch.int32),
        whole(activation, _FINE, reach),
        whole(readout, _FINE, _MOST),
        float(whole(offset, _FINE**2, _MOST)),
        levels_of(values, bound),
    )


def check_trusted(pairs: PairWeights, num_nodes: int) -> None:
    """Refuse weights from elsewhere, since what is given edges could read them, and tables that do not fit.

    All of it is decided by tables, whatever the edges are.
    """
    if type(pairs) not in _TRUSTED:
        raise NeverError(
            "a hop takes weights whose tables are made before an edge is read; derive your own from DotWeight"
        )
    if not pairs.closed:
        raise NeverError(
            "the tables of the hop's weights do not hold a weight within the bound for every pair of nodes; "
            "derive your own from DotWeight, which makes them"
        )
    if pairs.num_nodes != num_nodes:
        raise ReleaseError(
            f"the keys of the hop's weights have {pairs.num_nodes} rows and the graph has {num_nodes} nodes; "
            "the release stays booked"
        )


_TRUSTED = (Dots, Kinds, Overlaps, Network, Given)


def _is_short(rows: Tensor) -> bool:
    """Whether no row is longer than 2^11."""
    parts = torch.split(rows, max(1, _ENTRIES // max(1, rows.shape[1])))
    return all(bool((part.to(torch.float32).square().sum(dim=1) <= HALF**2).all()) for part in parts)


def _are_weights(levels: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether a table has this shape, and holds whole numbers from 0 to FULL."""
    whole = (levels == levels.round()) & (levels >= 0) & (levels <= FULL)
    return tuple(levels.shape) == shape and bool(whole.all())


def levels_of(values: Values, bound: float) -> Tensor:
    """Return weights as whole numbers: rounded to 2^-WEIGHT_BITS of their bound, which none may pass."""
    levels = np.rint(np.maximum(values, 0.0) / bound * FULL)
    if not (levels <= FULL).all():
        raise ConfigError(f"a weight passes its bound {bound:g}; the bound is the table's largest value")
    return torch.from_numpy(levels.astype(np.float32))


def on_grid(rows: Tensor) -> Tensor:
    """Return rows times 2^11 as whole numbers, int16, after scaling those longer than one down to one.

    Zero columns fill the width up to what vector instructions take.
    """
    if rows.ndim != 2 or not bool(torch.isfinite(rows.sum(dtype=torch.float64))):
        raise InputError("the maps of a weight must return finite numbers, one row a node")
    wide = np.zeros((len(rows), math.ceil(rows.shape[1] / _LANES) * _LANES), dtype=np.int16)
    at_once = max(1, _ENTRIES // max(1, rows.shape[1]))
    for first in range(0, len(rows), at_once):
        exact = rows[first : first + at_once].detach().numpy().astype(np.float64)
        norm = np.sqrt(np.einsum("nk,nk->n", exact, exact)) * (1 + 1e-6)
        exact *= (HALF / np.maximum(1.0, norm))[:, None]
        np.trunc(exact, out=exact)
        wide[first : first + at_once, : rows.shape[1]] = exact
    return torch.from_numpy(wide)


def _pattern(edges: Edges, values: Tensor, num_nodes: int) -> Tensor:
    """Return a block's edges as a sparse matrix around ``values``, which it does not copy."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "in beta state", once a process
        return torch.sparse_csr_tensor(
            edges.offsets, edges.sources, values, size=(len(edges), num_nodes), check_invariants=False
        )

"""Edge weights of node pairs: the weight of u's message into v, from two public rows.

The rows are public or were released earlier. A weight therefore belongs to a pair of nodes, not to an edge:
adding or removing an edge changes its own contribution and no other. Degrees, softmax over neighbors and
common neighbors are functions of the edges, so no function here receives them.

A ``Similarity`` has a bound and prepares tables (``PairWeights``), which alone see edges: trusted code that
runs inside the private sums and returns nothing else. Weights of users, and names, are in
``graphveil.release.weights``.

The weight of a pair is an integer from 0 to 2^WEIGHT_BITS and a function of that pair alone, to the last bit.
All tables are computed before an edge is read. The computation for an edge is exact integer arithmetic, and
does not depend on the kernel, block or thread. If the weight of one pair changed with the presence of another
edge, neighboring graphs would differ in more than the rows that are charged.
"""

import threading
import warnings
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from graphveil.core.edges.blocks import EdgeBlock
from graphveil.core.query import reject_if
from graphveil.errors import ReleaseError, UnsupportedGuaranteeError

WEIGHT_BITS = 5
FULL = 1 << WEIGHT_BITS  # the integer that represents a weight at its bound
HALF = 1 << 11
CELLS = 2 * HALF + 1  # cells of a table over [-1, 1]
_ENTRIES = 1 << 17  # row entries per chunk: they fit into the cache
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True, eq=False, repr=False)
class PairWeights(ABC):
    """The tables that determine the weights of all pairs. A release accepts only classes of this library."""

    @property
    @abstractmethod
    def tables(self) -> tuple[Tensor, ...]:
        """All inputs of the weights, for the release's digest."""

    @property
    def num_nodes(self) -> int:
        return len(self.tables[0])

    @property
    @abstractmethod
    def is_valid(self) -> bool:
        """Whether the tables give any two nodes a weight, and only integers from 0 to FULL.

        Otherwise a pair could weigh more than is charged, or raise an error that reveals its edge.
        """

    @abstractmethod
    def of(self, edges: EdgeBlock) -> Tensor:
        """Return the weight of each edge as an integer in float32, shape (E)."""


@dataclass(frozen=True, eq=False, repr=False)
class DotProductWeights(PairWeights):
    """levels[phi_u . psi_v]: a table over the dot product of two rows of integers, int16.

    Their norms are at most 2^11. Products of phi and psi / 2^11 are computed in float32. Every partial sum of
    a dot product is a multiple of 2^-11, of size at most 2^11, which float32 represents exactly. The order of
    the additions, and therefore the kernel, does not matter.
    """

    phi: Tensor
    psi: Tensor
    levels: Tensor

    @property
    def tables(self) -> tuple[Tensor, ...]:
        return self.phi, self.psi, self.levels

    @property
    def is_valid(self) -> bool:
        """Whether norms are at most 2^11, so that the table covers every dot product."""
        alike = self.phi.shape == self.psi.shape and self.phi.dtype == self.psi.dtype == torch.int16
        rows = (self.phi,) if self.psi is self.phi else (self.phi, self.psi)
        parts = [part for one in rows for part in torch.split(one, max(1, _ENTRIES // max(1, one.shape[1])))]
        short = all(bool((part.to(torch.float32).square().sum(dim=1) <= HALF**2).all()) for part in parts)
        return alike and short and is_weight_table(self.levels, (CELLS,))

    def of(self, edges: EdgeBlock) -> Tensor:
        if not len(edges.sources):
            return torch.empty(0)
        place = torch.full((len(edges.sources),), HALF + 0.5)
        _first_csr()
        size = (len(edges), len(self.phi))  # the edges as a sparse matrix around `place`, which is not copied
        pattern = torch.sparse_csr_tensor(
            edges.offsets, edges.sources, place, size=size, check_invariants=False
        )
        own = self.psi[edges.start : edges.stop].to(torch.float32) / HALF
        torch.sparse.sampled_addmm(pattern, own, self._phi.t(), out=pattern)
        return self.levels.index_select(0, place.to(torch.int32))

    @cached_property
    def _phi(self) -> Tensor:
        return self.phi.to(torch.float32)


@dataclass(frozen=True, eq=False, repr=False)
class CategoryWeights(PairWeights):
    """levels[k_v, k_u]: a table over pairs of node categories, the target's first."""

    codes: npt.NDArray[np.uint8]
    levels: Tensor  # (categories, categories)

    @property
    def tables(self) -> tuple[Tensor, ...]:
        return torch.from_numpy(self.codes), self.levels

    @property
    def is_valid(self) -> bool:
        kinds = len(self.levels)
        return int(self.codes.max(initial=0)) < kinds and is_weight_table(self.levels, (kinds, kinds))

    def of(self, edges: EdgeBlock) -> Tensor:
        start = self.codes[edges.start : edges.stop].astype(np.int32) * len(self.levels)
        place = np.repeat(start, edges.degrees.numpy())
        codes = torch.from_numpy(self.codes).index_select(0, edges.sources)
        np.add(place, codes.numpy(), out=place)
        return self.levels.reshape(-1).index_select(0, torch.from_numpy(place))


@dataclass(frozen=True, eq=False, repr=False)
class StoredWeights(PairWeights):
    """The graph's own edge weights, as shares of their public bound, truncated to the grid.

    One edge may change only its own weight, within the bound, and so only its own integer.
    """

    nodes: int

    @property
    def tables(self) -> tuple[Tensor, ...]:
        """Return nothing: the weights are part of the edges."""
        return ()

    @property
    def num_nodes(self) -> int:
        return self.nodes

    @property
    def is_valid(self) -> bool:
        """Return True: any edge weights are clipped to the bound."""
        return True

    def of(self, edges: EdgeBlock) -> Tensor:
        if edges.weights is None:
            raise ReleaseError("the graph has no edge weights; the release stays charged")
        return (edges.weights * FULL).trunc_().clamp_(0, FULL)


def is_weight_table(levels: Tensor, shape: tuple[int, ...]) -> bool:
    whole = (levels == levels.round()) & (levels >= 0) & (levels <= FULL)
    return tuple(levels.shape) == shape and bool(whole.all())


@cache
def _first_csr() -> None:
    """Create a first sparse matrix, to suppress the warning that torch emits for it once per process.

    This is not done around each block: warning filters are global to the process, and blocks may run in
    threads.
    """
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta", UserWarning)
        torch.sparse_csr_tensor([0, 0], [], [], size=(1, 1), check_invariants=False)


TANH_STEPS = 1 << 12  # steps in an argument of one: 16 bits cover arguments up to 8
TANH_ONE = 1 << 11  # steps in a value of one, the maximum
_SLOPE, _START = 8570, 8274  # 4 b and 2 a, in steps of a value


@dataclass(frozen=True, eq=False, repr=False)
class NetworkWeights(PairWeights):
    """levels[(tanh(a_u + b_v) . w + c) >> shift] in integers.

    Hidden units are rounded to 16 bits (``integer_tanh``) and table indices to the table's size; the
    logit before the shift stays below 2^31.
    """

    source: Tensor  # (N, h), int16
    target: Tensor
    readout: Tensor  # (h), int16
    offset: int
    shift: int
    levels: Tensor
    _at_once: ClassVar[int] = 1 << 13

    @property
    def tables(self) -> tuple[Tensor, ...]:
        return self.source, self.target, self.readout, torch.tensor([self.offset, self.shift]), self.levels

    @property
    def is_valid(self) -> bool:
        """Whether the maps fit each other and every logit fits 32 bits; table indices are clipped."""
        shapes = self.source.shape == self.target.shape == (self.num_nodes, len(self.readout))
        short = all(part.dtype == torch.int16 for part in (self.source, self.target, self.readout))
        most = int(self.readout.to(torch.int64).abs().sum()) * TANH_ONE + abs(self.offset)
        fits = most < 1 << 31 and 0 <= self.shift < 32
        return shapes and short and fits and is_weight_table(self.levels, (CELLS,))

    def of(self, edges: EdgeBlock) -> Tensor:
        target = torch.from_numpy(np.repeat(np.arange(edges.start, edges.stop), edges.degrees.numpy()))
        places = torch.empty(len(target), dtype=torch.int32)
        readout = self.readout.to(torch.float64)
        for first in range(0, len(target), self._at_once):
            some = slice(first, first + self._at_once)
            hidden = self.source.index_select(0, edges.sources[some]).to(torch.int32)
            hidden += self.target.index_select(0, target[some])
            x = hidden.clamp_(-1 << 15, (1 << 15) - 1).add_(1 << 15)
            units = self._tanh.index_select(0, x.reshape(-1)).reshape(x.shape)
            # Integers below 2^53: float64 adds them exactly, in any order.
            logits = (units @ readout).add_(self.offset).div_(1 << self.shift).floor_()
            places[some] = logits.clamp_(0, CELLS - 1).to(torch.int32)
        return self.levels.index_select(0, places)

    @cached_property
    def _tanh(self) -> Tensor:
        return torch.from_numpy(integer_tanh()).to(torch.float64)


@cache
def integer_tanh() -> npt.NDArray[np.int16]:
    """Return the hyperbolic tangent of every 16-bit argument, from -2^15 on: bit-identical on all platforms.

    tanh x = s (a - b |s|), s = max(-1, min(1, x / 2)): two parabolas, to within 0.027, in steps of 2^-11.
    """
    least, largest = -(1 << 15), (1 << 15) - 1
    s = np.clip(4 * np.arange(least, largest + 1), least, largest)
    u = np.minimum(s, np.minimum(-s, largest))
    slope = (_SLOPE * u >> 16) + _START
    return (slope * s >> 16).astype(np.int16)


WORD = 16  # bits per word
_MEMBERS = np.array([word.bit_count() for word in range(1 << WORD)], dtype=np.uint8)

Counts = npt.NDArray[np.int32]


class SetWeights(PairWeights):
    """The Jaccard index of two sets, |A & B| / |A | B|; 0 if both are empty."""

    @property
    def _at_once(self) -> int:
        return 1 << 14

    @abstractmethod
    def common(self, u: Counts, v: Counts) -> Counts:
        """Return the number of common members of each pair of sets."""

    @property
    @abstractmethod
    def sizes(self) -> Counts:
        """The number of members of each set."""

    def of(self, edges: EdgeBlock) -> Tensor:
        target = np.repeat(np.arange(edges.start, edges.stop, dtype=np.int32), edges.degrees.numpy())
        source = edges.sources.numpy()
        weight = np.empty(len(source), dtype=np.float32)
        for first in range(0, len(source), self._at_once):
            u, v = (ends[first : first + self._at_once] for ends in (source, target))
            common = self.common(u, v)
            union = np.maximum(1, self.sizes[u] + self.sizes[v] - common)
            weight[first : first + len(u)] = (2 * FULL * common + union) // (2 * union)
        return torch.from_numpy(weight)


@dataclass(frozen=True, eq=False, repr=False)
class BitSets(SetWeights):
    """Sets stored as rows of bits."""

    bits: Tensor  # int16, (N, words)

    @property
    def tables(self) -> tuple[Tensor, ...]:
        return (self.bits,)

    @property
    def is_valid(self) -> bool:
        return self.bits.ndim == 2 and self.bits.dtype == torch.int16

    def common(self, u: Counts, v: Counts) -> Counts:
        found: Counts = _MEMBERS[self._words[u] & self._words[v]].sum(axis=1, dtype=np.int32)
        return found

    @cached_property
    def sizes(self) -> Counts:
        sizes: Counts = _MEMBERS[self._words].sum(axis=1, dtype=np.int32)
        return sizes

    @property
    def _at_once(self) -> int:
        return max(1, _ENTRIES // max(1, self.bits.shape[1]))

    @property
    def _words(self) -> npt.NDArray[np.uint16]:
        return self.bits.numpy().view(np.uint16)


@dataclass(frozen=True, eq=False, repr=False)
class ListSets(SetWeights):
    """Sets stored as lists: for small sets with many possible members."""

    sets: sparse.csr_array

    @property
    def tables(self) -> tuple[Tensor, ...]:
        return torch.from_numpy(self.sets.indptr), torch.from_numpy(self.sets.indices)

    @property
    def num_nodes(self) -> int:
        return self.sets.shape[0]

    @property
    def is_valid(self) -> bool:
        return bool((self.sets.data == 1).all()) and bool(self.sets.has_canonical_format)

    def common(self, u: Counts, v: Counts) -> Counts:
        found: Counts = self.sets[u].multiply(self.sets[v]).sum(axis=1)
        return found

    @cached_property
    def sizes(self) -> Counts:
        return np.diff(self.sets.indptr)


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
        return 1.0

    def prepare(self, keys: Any) -> StoredWeights:
        """Return a reader of the graph's edge weights; only the number of keys is used."""
        return StoredWeights(len(keys))


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
    reject_if(
        pairs.num_nodes != num_nodes,
        f"the weight keys have {pairs.num_nodes} rows, but the graph has {num_nodes} nodes",
    )

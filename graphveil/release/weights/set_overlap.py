"""Weights by what two sets have in common, edge by edge, in whole numbers."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from graphveil.data.blocks import EdgeBlock
from graphveil.release.weights.tables import FULL, PairWeights

WORD = 16  # bits that stand together
_ENTRIES = 1 << 17  # of rows that are worked on at a time: they stay in the cache
_MEMBERS = np.array([word.bit_count() for word in range(1 << WORD)], dtype=np.uint8)

Counts = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False, repr=False)
class BitSets(PairWeights):
    """The Jaccard index of two sets, |A & B| / |A | B|, which are rows of bits; 0 where both are empty."""

    bits: Tensor  # int16, (N, words)

    @property
    def tables(self) -> tuple[Tensor, ...]:
        """Return the bits."""
        return (self.bits,)

    @property
    def num_nodes(self) -> int:
        """How many nodes have weights."""
        return len(self.bits)

    @property
    def is_valid(self) -> bool:
        """Return whether they are bits: whichever they are, they are sets."""
        return self.bits.ndim == 2 and self.bits.dtype == torch.int16

    def of(self, edges: EdgeBlock) -> Tensor:
        """Count each edge's common members."""
        words, (source, target) = self._words, _ends(edges)
        at_once = max(1, _ENTRIES // max(1, words.shape[1]))
        weight = np.empty(len(source), dtype=np.float32)
        for first in range(0, len(source), at_once):
            u, v = (ends[first : first + at_once] for ends in (source, target))
            common = _MEMBERS[words[u] & words[v]].sum(axis=1, dtype=np.int32)
            weight[first : first + len(u)] = _index(common, self.sizes[u] + self.sizes[v])
        return torch.from_numpy(weight)

    @cached_property
    def sizes(self) -> Counts:
        """How many members each set has."""
        sizes: Counts = _MEMBERS[self._words].sum(axis=1, dtype=np.int32)
        return sizes

    @property
    def _words(self) -> npt.NDArray[np.uint16]:
        return self.bits.numpy().view(np.uint16)


@dataclass(frozen=True, eq=False, repr=False)
class ListSets(PairWeights):
    """The Jaccard index of two sets, which are lists of members: for few members of many."""

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
    def is_valid(self) -> bool:
        """Whether each member is there once."""
        return bool((self.sets.data == 1).all()) and bool(self.sets.has_canonical_format)

    def of(self, edges: EdgeBlock) -> Tensor:
        """Count each edge's common members."""
        source, target = _ends(edges)
        weight = np.empty(len(source), dtype=np.float32)
        for first in range(0, len(source), self._at_once):
            u, v = (ends[first : first + self._at_once] for ends in (source, target))
            common = self.sets[u].multiply(self.sets[v]).sum(axis=1)
            weight[first : first + len(u)] = _index(common, self.sizes[u] + self.sizes[v])
        return torch.from_numpy(weight)

    @cached_property
    def sizes(self) -> Counts:
        """How many members each set has."""
        return np.diff(self.sets.indptr)


def dense_sets(features: npt.NDArray[np.float32]) -> BitSets:
    """Return the sets of the columns that are not zero in each row."""
    count, width = features.shape
    bits = np.zeros((count, 2 * _words(width)), dtype=np.uint8)
    at_once = max(1, _ENTRIES // max(1, width))
    scratch = np.empty((min(count, at_once), width), dtype=bool)
    for first in range(0, count, at_once):
        some = features[first : first + at_once]
        members = np.not_equal(some, 0, out=scratch[: len(some)])
        packed = np.packbits(members, axis=1, bitorder="little")
        bits[first : first + at_once, : packed.shape[1]] = packed
    return BitSets(torch.from_numpy(bits.view(np.int16)))


def sparse_sets(sets: sparse.csr_array) -> BitSets:
    """Return the sets of the columns that are stored in each row, each once."""
    count, width = sets.shape
    bits = np.zeros((count, _words(width)), dtype=np.uint16)
    row = np.repeat(np.arange(count), np.diff(sets.indptr))
    np.bitwise_or.at(
        bits, (row, sets.indices // WORD), np.left_shift(1, sets.indices % WORD).astype(np.uint16)
    )
    return BitSets(torch.from_numpy(bits.view(np.int16)))


def _words(width: int) -> int:
    return max(1, -(-width // WORD))


def _ends(edges: EdgeBlock) -> tuple[Counts, Counts]:
    """Return each edge's source and target."""
    target = np.repeat(np.arange(edges.start, edges.stop, dtype=np.int32), edges.degrees.numpy())
    return edges.sources.numpy(), target


def _index(common: Counts, together: Counts) -> Counts:
    """Return the indices in whole numbers: to the nearest, from the middle up."""
    union = np.maximum(1, together - common)
    index: Counts = (2 * FULL * common + union) // (2 * union)
    return index

"""What a compiled pass reads of weights: their keys in 16-bit integers, in the rows that a kernel takes."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from graphveil.release.weights.compiled import tanh as _tanh
from graphveil.release.weights.compiled.kernels import (
    BLOCK,
    MAX_WIDTH,
    NO_MEMBER,
    BitKernel,
    CategoryKernel,
    DotKernel,
    Kernel,
    ListKernel,
    NetworkKernel,
)
from graphveil.release.weights.network import NetworkWeights
from graphveil.release.weights.set_overlap import BitSets, ListSets
from graphveil.release.weights.tables import CategoryWeights, DotProductWeights, PairWeights

_MAX_BITS = 1 << 10  # 16-bit words of a set, with its size
_MAX_LIST = 1 << 7  # members of a set, and its size


@dataclass(frozen=True, eq=False, repr=False)
class KernelInputs:
    """What a kernel reads: keys of all sources and targets, the table of weights, and other numbers."""

    kernel: Kernel
    sources: Tensor  # int16, (N, at most key)
    targets: Tensor  # int16, (N, key)
    levels: Tensor  # int32, each weight in both halves
    given: Tensor  # int16


def kernel_inputs(pairs: PairWeights | None) -> KernelInputs | None:
    """Return what a kernel for these weights reads, None if there is none."""
    if isinstance(pairs, DotProductWeights):
        return _rows(DotKernel, pairs.phi, pairs.psi, pairs.levels, torch.empty(0))
    if isinstance(pairs, NetworkWeights):
        readout = _wide(pairs.readout[None], power_of_two(len(pairs.readout)))[0]
        numbers = torch.tensor([pairs.shift, *_tanh.COEFFICIENTS], dtype=torch.int16)
        given = torch.cat([_halves(pairs.offset), numbers, readout])
        return _rows(NetworkKernel, pairs.source, pairs.target, pairs.levels, given)
    if isinstance(pairs, CategoryWeights):
        codes = torch.from_numpy(pairs.codes).to(torch.int16)[:, None]
        return _of(CategoryKernel(1), codes, codes, pairs.levels, torch.tensor([len(pairs.levels)]))
    if isinstance(pairs, BitSets):
        return _sets(BitKernel, _bits(pairs))
    if isinstance(pairs, ListSets):
        return _sets(ListKernel, _lists(pairs))
    return None


def _bits(pairs: BitSets) -> Tensor | None:
    """Return rows of a set's size and its words, up to whole blocks; None if they are too wide."""
    count, words = pairs.bits.shape
    width = -(-(1 + words) // BLOCK) * BLOCK
    if width > _MAX_BITS:
        return None
    rows = torch.zeros((count, width), dtype=torch.int16)
    rows[:, 0] = torch.from_numpy(pairs.sizes.astype(np.int16))
    rows[:, 1 : 1 + words] = pairs.bits
    return rows


def _lists(pairs: ListSets) -> Tensor | None:
    """Return rows of a set's size and its members, filled up; None if there are too many."""
    width = -(-(1 + int(pairs.sizes.max(initial=0))) // 8) * 8
    if width > _MAX_LIST or pairs.sets.shape[1] > NO_MEMBER:
        return None
    rows = np.full((len(pairs.sizes), width), NO_MEMBER, dtype=np.uint16)
    rows[:, 0] = pairs.sizes
    rows[:, 1:][np.arange(width - 1) < pairs.sizes[:, None]] = pairs.sets.indices
    return torch.from_numpy(rows.view(np.int16))


def _rows(
    kind: type[Kernel], sources: Tensor, targets: Tensor, levels: Tensor, given: Tensor
) -> KernelInputs | None:
    """Return keys of one width, a power of two, unless they are too wide."""
    key = power_of_two(sources.shape[1])
    if key > MAX_WIDTH:
        return None
    return _of(kind(key), sources, _wide(targets, key), levels, given)


def _sets(kind: type[Kernel], sets: Tensor | None) -> KernelInputs | None:
    """Return sets, which are the sources' keys and the targets', unless they are too large."""
    nothing = torch.empty(0)
    return None if sets is None else _of(kind(sets.shape[1]), sets, sets, nothing, nothing)


def _of(kernel: Kernel, sources: Tensor, targets: Tensor, levels: Tensor, given: Tensor) -> KernelInputs:
    twice = levels.reshape(-1).to(torch.int32) * ((1 << 16) + 1)
    return KernelInputs(kernel, sources, targets, twice, given.to(torch.int16))


def _halves(number: int) -> Tensor:
    """Return a 32-bit number as two of 16."""
    return torch.tensor([number], dtype=torch.int32).view(torch.int16)


def _wide(rows: Tensor, width: int) -> Tensor:
    """Return whole numbers in 16 bits, with columns of zeros up to the width."""
    short = rows.to(torch.int16)
    return short.contiguous() if rows.shape[1] == width else pad(short, (0, width - rows.shape[1]))


def power_of_two(width: int) -> int:
    """Return the width that vectors of some width are filled up to."""
    return max(8, 1 << (width - 1).bit_length())

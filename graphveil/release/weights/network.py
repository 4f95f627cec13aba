"""Weights by a network of two layers, edge by edge, in whole numbers."""

import math
from dataclasses import dataclass
from functools import cache, cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil.data.blocks import EdgeBlock
from graphveil.errors import InputError
from graphveil.release.weights.tables import (
    CELLS,
    HALF,
    PairWeights,
    Values,
    is_weight_table,
    quantize_weights,
)

TANH_STEPS = 1 << 12  # in an argument of one: 16 bits go as far as 8
TANH_ONE = 1 << 11  # steps in a value of one, which none passes
_SLOPE, _START = 8570, 8274  # 4 b and 2 a, in steps of a value
_UNIT = 1 << 8  # places of the table in a logit of one: it reaches to 8
_MAX_READOUT_WEIGHT = float(1 << 10)  # readout weights beyond are cut
_READOUT = 1 << 16  # what absolute readout weights sum up to at most: logits stay below 2^31
_SHIFT = 17  # bits from a logit to its place, at most
_HALVES = (1 << 15) - 1  # the largest half of a hidden unit
_ENTRIES = 1 << 17  # of halves that are worked on at a time: they stay in the cache


@dataclass(frozen=True, eq=False, repr=False)
class NetworkWeights(PairWeights):
    """levels[(tanh(a_u + b_v) . w + c) >> shift] in whole numbers.

    Hidden units are cut to 16 bits (:func:`integer_tanh`) and places to the table; the
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
        """Return the maps, the network's parts and the table."""
        return self.source, self.target, self.readout, torch.tensor([self.offset, self.shift]), self.levels

    @property
    def num_nodes(self) -> int:
        """How many nodes have weights."""
        return len(self.source)

    @property
    def is_valid(self) -> bool:
        """Whether the maps fit each other and every logit fits 32 bits; places are cut to the table."""
        shapes = self.source.shape == self.target.shape == (self.num_nodes, len(self.readout))
        short = all(part.dtype == torch.int16 for part in (self.source, self.target, self.readout))
        most = int(self.readout.to(torch.int64).abs().sum()) * TANH_ONE + abs(self.offset)
        fits = most < 1 << 31 and 0 <= self.shift < 32
        return shapes and short and fits and is_weight_table(self.levels, (CELLS,))

    def of(self, edges: EdgeBlock) -> Tensor:
        """Evaluate the network for each edge."""
        target = torch.from_numpy(np.repeat(np.arange(edges.start, edges.stop), edges.degrees.numpy()))
        places = torch.empty(len(target), dtype=torch.int32)
        readout = self.readout.to(torch.float64)
        for first in range(0, len(target), self._at_once):
            some = slice(first, first + self._at_once)
            hidden = self.source.index_select(0, edges.sources[some]).to(torch.int32)
            hidden += self.target.index_select(0, target[some])
            x = hidden.clamp_(-1 << 15, (1 << 15) - 1).add_(1 << 15)
            units = self._tanh.index_select(0, x.reshape(-1)).reshape(x.shape)
            # Whole numbers below 2^53: float64 adds them exactly, in any order.
            logits = (units @ readout).add_(self.offset).div_(1 << self.shift).floor_()
            places[some] = logits.clamp_(0, CELLS - 1).to(torch.int32)
        return self.levels.index_select(0, places)

    @cached_property
    def _tanh(self) -> Tensor:
        return torch.from_numpy(integer_tanh()).to(torch.float64)


@cache
def integer_tanh() -> npt.NDArray[np.int16]:
    """Return the hyperbolic tangent of every 16-bit argument, from -2^15 on: the same bits everywhere.

    tanh x = s (a - b |s|), s = max(-1, min(1, x / 2)): two parabolas, to within 0.027, in steps of 2^-11.
    """
    least, largest = -(1 << 15), (1 << 15) - 1
    s = np.clip(4 * np.arange(least, largest + 1), least, largest)
    u = np.minimum(s, np.minimum(-s, largest))
    slope = (_SLOPE * u >> 16) + _START
    return (slope * s >> 16).astype(np.int16)


def network(
    source: Tensor, target: Tensor, readout: Tensor, offset: Tensor, *, values: Values, bound: float
) -> NetworkWeights:
    """Return a two-layer network's parts in whole numbers; ``values`` are weights by the logit's place."""
    weights, shift = _finite(readout).clamp(-_MAX_READOUT_WEIGHT, _MAX_READOUT_WEIGHT), _SHIFT
    while not _fits(whole := (weights * _per_weight(shift)).round()):
        shift -= 1
    if shift < 0:
        raise InputError(
            f"the attention network's {len(readout)} hidden units have readout weights that sum up to more "
            "than whole numbers hold; make it narrower"
        )
    reach = float(weights.abs().sum()) * 1.01 + 9.0  # beyond it no logit is in the table
    exact = min(max(float(_finite(offset)), -reach), reach) * _UNIT + HALF + 0.5
    return NetworkWeights(
        _halves(source),
        _halves(target),
        whole.to(torch.int16),
        math.floor(exact * (1 << shift)),
        shift,
        quantize_weights(values, bound),
    )


def _per_weight(shift: int) -> float:
    """Return the steps in a readout weight of one, where a logit is that many bits from its place."""
    return _UNIT * math.ldexp(1.0, shift) / TANH_ONE


def _fits(whole: Tensor) -> bool:
    sizes = whole.abs()
    return bool(sizes.sum() <= _READOUT) and bool((sizes < 1 << 15).all())


def _halves(rows: Tensor) -> Tensor:
    """Return halves of hidden units in steps of 16-bit arguments."""
    exact = _finite(rows).numpy()
    halves = np.empty(exact.shape, dtype=np.int16)
    at_once = max(1, _ENTRIES // max(1, exact.shape[1]))
    scratch = np.empty((min(len(exact), at_once), exact.shape[1]))
    for first in range(0, len(exact), at_once):
        some = exact[first : first + at_once]
        grid = np.multiply(some, TANH_STEPS, out=scratch[: len(some)])
        np.clip(np.rint(grid, out=grid), -_HALVES, _HALVES, out=grid)
        np.copyto(halves[first : first + at_once], grid, casting="unsafe")
    return torch.from_numpy(halves)


def _finite(part: Tensor) -> Tensor:
    """Return a part of the network in float64; refuse NaN and infinite entries."""
    exact = part.detach().to(torch.float64)
    if not bool(torch.isfinite(exact.sum())) and not bool(torch.isfinite(exact).all()):
        raise InputError("the attention network has NaN or infinite entries")
    return exact

"""The noise of a block's rows: integers, addressed by row, each from the law of its row's kind."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil._util.random import RowStream
from graphveil.data.blocks import EdgeBlock
from graphveil.mechanisms import IntegerNoise
from graphveil.release.query import FLOAT32_EXACT

SIGMAS = 15  # no sampler draws noise beyond this many standard deviations

RowKinds = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class RowNoise:
    """For each kind of row, the law of its noise (None: not released) and what its grid step is worth.

    ``kinds`` are the rows' kinds, None where there is one.
    """

    kinds: Tensor | None
    noise: tuple[IntegerNoise | None, ...]
    scales: tuple[float, ...]

    @cached_property
    def laws(self) -> set[IntegerNoise]:
        """The laws that differ."""
        return {law for law in self.noise if law is not None}

    @cached_property
    def most(self) -> float:
        """What no noise exceeds, in grid steps."""
        return max(law.sigma for law in self.laws) * SIGMAS

    @cached_property
    def real(self) -> torch.dtype:
        """A float type that holds the noise exactly."""
        return torch.float32 if self.most < FLOAT32_EXACT else torch.float64

    @cached_property
    def scaled(self) -> float | None:
        """What a grid step is worth, if it is the same for all rows and each is released."""
        return self.scales[0] if len(set(self.scales)) == 1 and None not in self.noise else None

    def of(self, edges: EdgeBlock) -> RowKinds | None:
        """Return the kinds of a block's rows."""
        return None if self.kinds is None else self.kinds[edges.start : edges.stop].numpy()

    def scale(self, rows: Tensor, kinds: RowKinds | None) -> None:
        """Turn noisy integers into answers, in place; rows that are not released are zeros, sign included."""
        if kinds is None or len(set(self.scales)) == 1:
            rows.mul_(self.scales[0])
        else:
            rows.mul_(torch.tensor(self.scales, dtype=rows.dtype)[torch.from_numpy(kinds), None])
        if kinds is not None and None in self.noise:
            rows[torch.tensor([law is None for law in self.noise])[torch.from_numpy(kinds)]] = 0.0


def noise_rows(edges: EdgeBlock, noise: RowNoise, stream: RowStream, dim: int) -> Tensor:
    """Return the integer noise of a block's rows, each by the law of its kind: int32 where it fits."""
    rows, own = np.arange(edges.start, edges.stop), noise.of(edges)
    whole = np.int32 if noise.most < 1 << 31 else np.int64
    if own is None:
        (law,) = noise.laws
        return torch.from_numpy(law.draw(stream, rows, dim).astype(whole, copy=False))
    out = np.zeros((len(edges), dim), dtype=whole)
    for law in noise.laws:
        chosen = np.flatnonzero(np.array([kind == law for kind in noise.noise])[own])
        out[chosen] = law.draw(stream, rows[chosen], dim)
    return torch.from_numpy(out)

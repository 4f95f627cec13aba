"""The noise of a block's rows: integers, addressed by row, each from the law of its row's kind."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil._random import RowStream
from graphveil.graph.blocks import Edges
from graphveil.mechanisms import IntegerNoise
from graphveil.release.query import FLOAT32_EXACT

SIGMAS = 15  # no sampler draws noise beyond this many standard deviations
_ENTRIES = 1 << 19  # drawn at a time: they stay in the cache

RowKinds = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class RowNoise:
    """For each kind of row, the law of its noise (None: not released) and what its grid step is worth.

    ``kinds`` are the rows' kinds, None where there is one.
    """

    kinds: Tensor | None
    noise: tuple[IntegerNoise | None, ...]
    scales: tuple[float, ...]

    def of(self, edges: Edges) -> RowKinds | None:
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


def noise_rows(edges: Edges, noise: RowNoise, stream: RowStream, dim: int) -> Tensor:
    """Return the integer noise of a block's rows, each by the law of its kind, in a float type."""
    drawn = {law for law in noise.noise if law is not None}
    fits = max(law.sigma for law in drawn) * SIGMAS < FLOAT32_EXACT
    noisy = torch.empty((len(edges), dim), dtype=torch.float32 if fits else torch.float64)
    if None in noise.noise:
        noisy.zero_()
    out, own = noisy.numpy(), noise.of(edges)
    at_once = max(1, _ENTRIES // dim)
    for law in drawn:
        rows = np.arange(edges.start, edges.stop)
        chosen = None if own is None else np.flatnonzero(np.array([kind == law for kind in noise.noise])[own])
        for first in range(0, len(rows) if chosen is None else len(chosen), at_once):
            some = slice(first, first + at_once) if chosen is None else chosen[first : first + at_once]
            out[some] = law.draw(stream, rows[some], dim)
    return noisy

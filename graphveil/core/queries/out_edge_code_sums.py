"""Sums of class codes along each source's own edges, with a smaller bound for replaced records."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil.core.queries.codes import simplex_codes
from graphveil.core.queries.out_edge_sums import OutEdgeSumData, OutEdgeSumQuery, Sizes
from graphveil.core.query import ExampleGraph, NoiseGrid
from graphveil.core.unit import NodeRecord, Unit
from graphveil.errors import ConfigError

_ROUNDING = 1 + 1e-9  # a computed gauge differs from the exact one by less, for up to a thousand classes


@dataclass(frozen=True, kw_only=True)
class OutEdgeCodeSumQuery(OutEdgeSumQuery):
    """Release out-edge sums of vectors in the convex hull of class codes.

    The codes m_k are the C = d + 1 vectors of ``simplex_codes``, with pairwise inner product -1/(C-1). The
    gauge of a vector c is (C-1) times the maximum of -<c, m_k>: the hull consists of all vectors of gauge at
    most one. A source of group h sends a vector of gauge at most bounds[h]. Its norm is then at most
    bounds[h] as well. The factor of a source is reduced by the steps that truncation may add to the gauge.

    Args:
        dim, sigma, out_degree_bound, levels, partition, bounds, grid_bits: As for ``OutEdgeSumQuery``, except
            that a bound limits the gauge.

    Raises:
        ConfigError: As for ``OutEdgeSumQuery``, or if the grid is too coarse for this number of classes.

    Privacy:
        Unit: node-level (``node-record``). Reads: out-edges and vectors. Two vectors of gauges a and b have
        an inner product of at least -a b / (C-1), and all weights are non-negative. So replacing a record of
        group h moves the rows by at most sqrt(2 C / (C-1)) bounds[h]. Nulling it moves them by bounds[h]. The
        gauge is checked on the truncated integers, and a vector beyond its bound counts as zero.

    >>> query = OutEdgeCodeSumQuery(dim=2, sigma=4.0)
    >>> [round(query.sensitivity(NodeRecord(replace_one=replaced)), 6) for replaced in (False, True)]
    [1.0, 1.732051]
    """

    wire_name: ClassVar[str] = "OutEdgeCodeSumQuery"

    def __post_init__(self) -> None:
        super().__post_init__()
        if max(self.bounds) * self.unit_steps <= 2 * self.truncation:
            raise ConfigError(
                f"grid_bits={self.grid_bits} is too small for codes of {self.dim + 1} classes. Use a "
                "larger value."
            )

    def change(self, unit: Unit) -> float:
        """Return sqrt(2 C / (C-1)) for replaced records, and 1 for nulled ones."""
        change = super().change(unit)
        return replaced_change(self.dim + 1) if unit == NodeRecord(replace_one=True) else change

    @property
    def truncation(self) -> float:
        """Grid steps that truncation adds to the gauge at most: (C-1) sqrt(C-1), and one for rounding."""
        return self.dim * math.sqrt(self.dim) + 1

    def factors(self, squared: Sizes, groups: npt.NDArray[np.int64] | int) -> npt.NDArray[np.float64]:
        """Return the factors of the sources, so that a vector at its bound is within it after truncation."""
        with np.errstate(divide="ignore"):
            margin = self.truncation / np.array(self.bounds)[groups]
        return np.maximum(super().factors(squared, groups) - margin, 0.0)

    def admits(self, grid: npt.NDArray[np.float64], cap: Sizes) -> npt.NDArray[np.bool_]:
        """Return which integer vectors have a squared gauge of at most ``cap``."""
        with np.errstate(over="ignore", invalid="ignore"):
            gauge = self.dim * -(grid @ simplex_codes(self.dim + 1).numpy().T).min(axis=1)
            fits: npt.NDArray[np.bool_] = (gauge * _ROUNDING) ** 2 <= cap
        return fits

    def opposite(self) -> Tensor:
        """Return two codes, shape (2, d)."""
        return simplex_codes(self.dim + 1)[:2]

    def example_data(self, graph: ExampleGraph) -> OutEdgeSumData:
        """Return codes of records scaled to norms below, at and above the bound, and some other vectors."""
        drawn = super().example_data(graph)
        nearest = (drawn.vectors.to(torch.float64) @ simplex_codes(self.dim + 1).T).argmax(dim=1)
        codes = simplex_codes(self.dim + 1)[nearest] * drawn.vectors.norm(dim=1, keepdim=True)
        outside = (nearest == 0)[:, None]  # these have the norm of a code, and most of them a larger gauge
        return OutEdgeSumData(torch.where(outside, drawn.vectors.to(torch.float64), codes), drawn.levels)

    @property
    def grid(self) -> NoiseGrid:
        """Sizes on the grid, with reduced factors."""
        plain = super().grid
        return plain._replace(contribution=plain.contribution - self.truncation / max(self.weights))


def replaced_change(classes: int) -> float:
    """Return the largest distance of two class codes: sqrt(2 C / (C-1)).

    >>> [round(replaced_change(classes), 4) for classes in (2, 6, 1000)]
    [2.0, 1.5492, 1.4149]
    """
    return math.sqrt(2 * classes / (classes - 1))

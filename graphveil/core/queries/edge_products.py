"""The noisy sum over edges of the outer product of two public vectors: a bilinear form of all pairs."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.core.backends import BlockWork
from graphveil.core.edges.blocks import EdgeBlock
from graphveil.core.events import Event, Gaussian
from graphveil.core.noise.discrete_gaussian import IntegerNoise
from graphveil.core.noise.random import RowStream
from graphveil.core.private_edges import PrivateEdges
from graphveil.core.queries.held_out import HeldOutPairs
from graphveil.core.queries.row_sums import FLOAT32_EXACT, Sums, exact_sum
from graphveil.core.query import (
    ExampleGraph,
    GaussianQuery,
    NoiseGrid,
    PreparedData,
    PublicInputs,
    QueryData,
    check_noise,
    check_rows,
    reject_edges_stored_twice,
    require_edge_unit,
)
from graphveil.core.sites import forms_private_sum
from graphveil.core.unit import DirectedEdge, Unit
from graphveil.errors import UnitError

MAX_PRODUCT_DIM = 1024
PRODUCT_GRID_BITS = 9

UNBOUNDED = "sums over edges have no bound for a record, which may have an edge to all nodes"
_EDGES, _ENTRIES = 1 << 20, 1 << 22  # edges, and entries of sums, per chunk


@dataclass(frozen=True, eq=False, repr=False)
class EdgeProductData(QueryData[Tensor]):
    """Public vectors x of norm at most one, shape (N, d); a longer one counts as zero.

    The answer is float64, shape (d, d): noisy, and symmetric for undirected edges.
    """

    vectors: Tensor


class EdgePairQuery(GaussianQuery):
    """What queries over features of edges share."""

    reads_held_out: ClassVar[bool] = False  # instead of all other pairs

    sigma: tuple[float, ...]
    symmetric: bool
    held_out: HeldOutPairs
    grid_bits: int

    def event(self, unit: Unit) -> Event:
        """Return the event of the answer: its part of the pairs is charged, and no other.

        Raises:
            UnitError: If the unit is node-level, or the edges are not stored as the query reads them.
        """
        return self.held_out.charged(
            Gaussian(self.sensitivity(unit) / self.sigma[0]), held=self.reads_held_out
        )

    def sensitivity(self, unit: Unit) -> float:
        """Return 1: an edge is read once."""
        require_edge_unit(unit, UNBOUNDED)
        check_symmetry(unit, symmetric=self.symmetric)
        return 1.0

    def check_unit(self, unit: Unit, *, directed: bool) -> None:
        """Reject edges that are stored otherwise than the query reads them."""
        reject_edges_stored_twice(unit, directed=directed)
        check_symmetry(unit, symmetric=not directed)


@dataclass(frozen=True)
class EdgeProductQuery(EdgePairQuery):
    """Release W, the noisy sum of x_u x_v^T over edges from u to v that are not held out.

    For undirected edges W = sum over {u, v} of (x_u x_v^T + x_v x_u^T) / 2, which is symmetric.

    Args:
        dim: Width d of the vectors.
        sigma: One standard deviation, that of the diagonal. Other entries have sigma for directed edges.
            For undirected edges they have sigma / sqrt(2) above the diagonal, and the same noise below it.
        symmetric: Whether edges are undirected.
        held_out: Public choice of node pairs whose edges are not summed.
        grid_bits: Binary logarithm of the grid steps in a vector of norm one.

    Raises:
        ConfigError: If a field is outside its range.

    Privacy:
        Unit: edge-level. Reads: the in-edges that are not held out. A differing edge moves W by a matrix of
        Frobenius norm at most |x_u| |x_v| <= 1. The distance of two symmetric matrices in units of this noise
        is their Frobenius distance over sigma, so mu = 1 / sigma (``docs/privacy/proofs/links.md``).

    >>> from graphveil.privacy import UndirectedEdge
    >>> EdgeProductQuery(4, (5.0,), True, HeldOutPairs(0.0, 0)).event(UndirectedEdge())
    Gaussian(mu=0.2)
    >>> EdgeProductQuery(4, (5.0,), True, HeldOutPairs(0.1, 0)).event(UndirectedEdge()).events
    (Gaussian(mu=0.2), Composed(events=()))
    """

    kind: ClassVar[str] = "edge_products"
    wire_name: ClassVar[str] = "EdgeProductQuery"
    stage: ClassVar[str] = "edge products"
    data: ClassVar[type[EdgeProductData]] = EdgeProductData
    linear_group_scaling: ClassVar[bool] = True  # all edges of one node may have the same product

    dim: int
    sigma: tuple[float, ...]
    symmetric: bool
    held_out: HeldOutPairs
    grid_bits: int = PRODUCT_GRID_BITS

    def __post_init__(self) -> None:
        checks.integer_at_least(1, dim=self.dim)
        checks.within(1, MAX_PRODUCT_DIM, dim=self.dim)
        check_noise(self.sigma, 1, self.grid_bits)

    def changed(self, unit: Unit) -> int:
        """Return the number of entries that one edge may move."""
        return self.dim**2

    def prepare(self, data: EdgeProductData, public: PublicInputs) -> PreparedData:
        """Check the vectors."""
        check_rows(data.vectors, public.num_nodes, self.dim)
        return PreparedData(public, (data.vectors,))

    def example_data(self, graph: ExampleGraph) -> EdgeProductData:
        """Return vectors below, at and above the bound."""
        return EdgeProductData(graph.vectors(self.dim))

    @forms_private_sum("EdgeProductQuery")
    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        """Return the noisy sum; the exact one is discarded here."""
        table, width = grid_vectors(data.arrays[0], self.grid_bits), self.dim
        exact = private.total(EdgeProducts(table, self.held_out, self.grid_bits), (width, width))
        noisy = exact + self._noise(data.public.sampler, RowStream(key))
        return torch.from_numpy(noisy / self.unit_steps)

    def _noise(self, sampler: type[IntegerNoise], stream: RowStream) -> npt.NDArray[np.int64]:
        """Return the noise of all entries, in grid steps; symmetric for undirected edges."""
        width, sigma = self.dim, self.sigma[0] * self.unit_steps
        if not self.symmetric:
            return sampler(sigma).draw(stream, np.arange(width), width).astype(np.int64)
        off_diagonal = sampler(sigma / math.sqrt(2)).draw(stream, np.arange(width), width).astype(np.int64)
        above = np.triu(off_diagonal, 1)
        diagonal = sampler(sigma).draw(stream, np.array([width]), width)[0].astype(np.int64)
        return above + above.T + np.diag(diagonal)

    @property
    def unit_steps(self) -> float:
        """Grid steps in a product of norm one; an undirected edge is summed as two halves."""
        return 2.0 ** (2 * self.grid_bits + self.symmetric)

    @property
    def grid(self) -> NoiseGrid:
        """Sizes on the grid; entries off the diagonal have less noise for undirected edges."""
        grid = super().grid
        return grid._replace(min_noise=grid.min_noise / math.sqrt(2)) if self.symmetric else grid


def check_symmetry(unit: Unit, *, symmetric: bool) -> None:
    """Reject directed edges for a sum that is symmetric, and the reverse.

    Raises:
        UnitError: If unit and sum do not fit.
    """
    if isinstance(unit, DirectedEdge) == symmetric:
        raise UnitError(
            f"unit {unit.name!r} does not match the graph, whose edges are {'un' * symmetric}directed "
            f"here. Use unit '{'un' * symmetric}directed-edge', or build the graph with "
            f"directed={symmetric}."
        )


def grid_vectors(vectors: Tensor, grid_bits: int) -> Tensor:
    """Return vectors as integers in float32, truncated toward zero; one beyond norm one is zero.

    >>> grid_vectors(torch.tensor([[1.0, 0.0], [0.8, 0.7], [-0.3, 0.3]]), 4).tolist()
    [[16.0, 0.0], [0.0, 0.0], [-4.0, 4.0]]
    """
    table = torch.empty(vectors.shape, dtype=torch.float32)
    at_once = max(1, _ENTRIES // vectors.shape[1])
    for first in range(0, len(vectors), at_once):
        grid = (vectors[first : first + at_once].to(torch.float64) * 2.0**grid_bits).trunc()
        fits = grid.square().sum(dim=1) <= 4.0**grid_bits  # false for numbers that are not finite
        table[first : first + at_once] = torch.where(fits[:, None], grid, 0.0).to(torch.float32)
    return table


@dataclass(frozen=True, eq=False, repr=False)
class EdgeProducts(BlockWork):
    """The sum of the products of a block's edges that are not held out, int64 (d, d)."""

    table: Tensor  # integers
    held_out: HeldOutPairs
    grid_bits: int

    def __call__(self, edges: EdgeBlock) -> Tensor:
        """Return exact sums, which only the query's answer reads.

        All numbers are integers below 2^53, so no order of additions affects the result.
        """
        width = self.table.shape[1]
        total = np.zeros((width, width), dtype=np.int64)
        sums = Sums(self.table, FLOAT32_EXACT >> self.grid_bits)
        for piece in edges.pieces(max(1, _ENTRIES // width), _EDGES):
            of_sources = exact_sum(self.held_out.without(piece), sums, None).to(torch.float64)
            targets = self.table[piece.start : piece.stop].to(torch.float64)
            total += (of_sources.T @ targets).numpy().astype(np.int64)
        return torch.from_numpy(total)

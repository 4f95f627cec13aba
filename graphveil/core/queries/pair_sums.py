"""Noisy sums over the node pairs that are edges: of outer products, of features, and of cells of a score.

The vectors and features of pairs are public or released before.
"""

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil.core.edges.blocks import EdgeBlock
from graphveil.core.events import Event
from graphveil.core.noise.discrete_gaussian import IntegerNoise
from graphveil.core.noise.random import RowStream
from graphveil.core.private_edges import PrivateEdges, forms_private_sum
from graphveil.core.queries.held_out import HeldOutPairs, Ids, ends
from graphveil.core.queries.row_sums import FLOAT32_EXACT, Floats, Sums, exact_sum, grid_vectors
from graphveil.core.query import (
    GRID_BITS,
    MAX_DIM,
    GaussianQuery,
    NoiseGrid,
    PreparedData,
    PublicInputs,
    QueryData,
    check_noise,
    check_rows,
    check_size,
    reject_edges_stored_twice,
    reject_if,
    require_edge_unit,
)
from graphveil.core.unit import DirectedEdge, Unit
from graphveil.errors import UnitError

MAX_PRODUCT_DIM = 1024
PRODUCT_GRID_BITS = 9

UNBOUNDED = "sums over edges have no bound for a record, which may have an edge to all nodes"
_EDGES, _ENTRIES = 1 << 20, 1 << 21  # edges, and entries of sums or tables, per chunk


@dataclass(frozen=True, eq=False, repr=False)
class EdgeProductData(QueryData[Tensor]):
    """Public vectors x of norm at most one, shape (N, d); a longer one counts as zero.

    The answer is float64, shape (d, d): noisy, and symmetric for undirected edges.
    """

    vectors: Tensor


@dataclass(frozen=True, kw_only=True)
class EdgePairQuery(GaussianQuery):
    """A query over features of edges, each of which is read once.

    Args:
        sigma: One standard deviation.
        symmetric: Whether edges are undirected.
        held_out: Public choice of node pairs.
    """

    linear_group_scaling: ClassVar[bool] = True  # all edges of one node may have the same features
    reads_held_out: ClassVar[bool] = False  # instead of all other pairs

    sigma: tuple[float, ...]
    symmetric: bool
    held_out: HeldOutPairs
    grid_bits: int = GRID_BITS

    def __post_init__(self) -> None:
        check_noise(self.sigma, 1, self.grid_bits)

    def event(self, unit: Unit) -> Event:
        """Return the event of the answer: its part of the pairs is charged, and no other."""
        return self.held_out.charged(super().event(unit), held=self.reads_held_out)

    def sensitivity(self, unit: Unit) -> float:
        """Return 1: an edge is read once."""
        require_edge_unit(unit, UNBOUNDED)
        check_symmetry(unit, symmetric=self.symmetric)
        return 1.0

    def check_unit(self, unit: Unit, *, directed: bool) -> None:
        reject_edges_stored_twice(self, unit, directed=directed)
        check_symmetry(unit, symmetric=not directed)


@dataclass(frozen=True)
class EdgeProductQuery(EdgePairQuery):
    """Release W, the noisy sum of x_u x_v^T over edges from u to v that are not held out.

    For undirected edges W = sum over {u, v} of (x_u x_v^T + x_v x_u^T) / 2, which is symmetric.

    Args:
        sigma: One standard deviation, that of the diagonal. Other entries have sigma for directed edges.
            For undirected edges they have sigma / sqrt(2) above the diagonal, and the same noise below it.

    Privacy:
        Unit: edge-level. Reads: the in-edges that are not held out. A differing edge moves W by a matrix of
        Frobenius norm at most |x_u| |x_v| <= 1. The distance of two symmetric matrices in units of this noise
        is their Frobenius distance over sigma, so mu = 1 / sigma (``docs/privacy/proofs/links.md``).

    >>> from graphveil.privacy import UndirectedEdge
    >>> query = EdgeProductQuery(4, sigma=(5.0,), symmetric=True, held_out=HeldOutPairs(0.1, 0))
    >>> query.event(UndirectedEdge()).events
    (Gaussian(mu=0.2), Composed(events=()))
    """

    kind: ClassVar[str] = "edge_products"
    stage: ClassVar[str] = "edge products"
    data: ClassVar[type[EdgeProductData]] = EdgeProductData

    dim: int
    grid_bits: int = field(default=PRODUCT_GRID_BITS, kw_only=True)

    def __post_init__(self) -> None:
        check_size(1, MAX_PRODUCT_DIM, dim=self.dim)
        super().__post_init__()

    def changed(self, unit: Unit) -> int:
        return self.dim**2

    def prepare(self, data: EdgeProductData, public: PublicInputs) -> PreparedData:
        check_rows(data.vectors, public.num_nodes, self.dim)
        return PreparedData(public, (data.vectors,))

    @forms_private_sum("EdgeProductQuery")
    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        table, width = torch.from_numpy(grid_vectors(data.arrays[0], self.grid_bits)), self.dim
        sums = Sums(table, FLOAT32_EXACT >> self.grid_bits)

        def products(edges: EdgeBlock) -> Ids:
            # All numbers are integers below 2^53, so no order of additions affects the result.
            of_sources = exact_sum(self.held_out.without(edges), sums, None).to(torch.float64)
            targets = table[edges.start : edges.stop].to(torch.float64)
            return (of_sources.T @ targets).numpy().astype(np.int64)

        rows = max(1, _ENTRIES // width)
        exact = private.total(products, (width, width), rows=rows, edges=_EDGES)
        noisy = exact + self._noise(data.public.sampler, RowStream(key))
        return torch.from_numpy(noisy / self.unit_steps)

    def _noise(self, sampler: type[IntegerNoise], stream: RowStream) -> npt.NDArray[np.int64]:
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
    if isinstance(unit, DirectedEdge) == symmetric:
        raise UnitError(
            f"unit {unit.name!r} does not match the graph, whose edges are {'un' * symmetric}directed "
            f"here. Use unit '{'un' * symmetric}directed-edge', or build the graph with "
            f"directed={symmetric}."
        )


SUM_GRID_BITS = 18  # products of small features need a finer grid than rows
TABLE_BITS = 14  # of an entry: a dot product of 2^20 columns is exact in float64
MAX_TERMS = 64

_ABOVE_ONE = 1 + 1e-12  # no rounding makes clipped features longer than one


@dataclass(frozen=True, eq=False, repr=False)
class PairTerms:
    """K features of a node pair (u, v), each a scaled dot product of public vectors of u and v.

        t_k(u, v) = scale_k (left_k[u] . right_k[v] - center_k)

    Args:
        left, right: A table for each feature, shape (N, d_k): whole numbers of at most 2^14 in float32. Their
            dot products are therefore exact, and a pair's features do not depend on other pairs.
        center, scale: float64, shape (K).

    Privacy:
        All numbers must be public or released before.

    >>> table = torch.tensor([[1.0, 2.0], [3.0, -1.0]])
    >>> terms = PairTerms((table,), (table,), torch.tensor([1.0]).double(), torch.tensor([0.5]).double())
    >>> terms(np.array([0]), np.array([1])).tolist()
    [[0.0]]
    """

    left: tuple[Tensor, ...]
    right: tuple[Tensor, ...]
    center: Tensor
    scale: Tensor

    @property
    def arrays(self) -> tuple[Tensor, ...]:
        return (*self.left, *self.right, self.center, self.scale)

    def __call__(self, sources: Ids, targets: Ids) -> Floats:
        out = np.empty((len(sources), len(self.left)))
        at_once = max(1, _ENTRIES // max(table.shape[1] for table in self.left))
        for first in range(0, len(sources), at_once):
            some = slice(first, first + at_once)
            for k, (left, right) in enumerate(zip(self.left, self.right, strict=True)):
                ours = left.numpy()[sources[some]].astype(np.float64)
                out[some, k] = np.einsum("pd,pd->p", ours, right.numpy()[targets[some]])
        with np.errstate(over="ignore"):  # a warning would be about the edges; see ``clipped``
            out -= self.center.numpy()
            out *= self.scale.numpy()
        return out

    def check(self, nodes: int, count: int) -> None:
        shapes = {(*table.shape[:1], table.dtype, table.ndim) for table in (*self.left, *self.right)}
        fits = (
            len(self.left) == len(self.right) == count
            and shapes == {(nodes, torch.float32, 2)}
            and all(a.shape == b.shape for a, b in zip(self.left, self.right, strict=True))
            and all(of.shape == (count,) and of.dtype == torch.float64 for of in (self.center, self.scale))
            and all(bool(of.isfinite().all()) for of in (self.center, self.scale))
            and all(map(_is_whole, dict.fromkeys((*self.left, *self.right))))
        )
        reject_if(
            not fits,
            f"the query needs {count} features of pairs of {nodes} nodes: two float32 tables of integers of "
            f"at most {1 << TABLE_BITS} each, and finite numbers",
        )


def _is_whole(table: Tensor) -> bool:
    if not 1 <= table.shape[1] <= MAX_DIM:
        return False
    at_once = max(1, _ENTRIES // table.shape[1])
    parts = (table[first : first + at_once] for first in range(0, len(table), at_once))
    return all(bool(((part == part.trunc()) & (part.abs() <= 1 << TABLE_BITS)).all()) for part in parts)


@dataclass(frozen=True, eq=False, repr=False)
class PairSumData(QueryData[Tensor]):
    """Features of node pairs, public or released before.

    The answer is float64, shape (``numbers_of(K)``): noisy sums of the features, clipped to norm one, of
    their products (the upper triangle, row by row), and the noisy number of edges. All are divided by
    sqrt(3), the sensitivity of the sums without this factor.
    """

    terms: PairTerms


def numbers_of(terms: int) -> int:
    """Return the length of an edge's contribution: features, products of two, and one.

    >>> numbers_of(2), contributions(np.array([[0.5, -0.5]])).tolist()
    (6, [[0.5, -0.5, 0.25, -0.25, 0.25, 1.0]])
    """
    return terms + terms * (terms + 1) // 2 + 1


def clipped(features: Floats) -> Floats:
    """Return each pair's features, scaled down to norm one if they are longer; zeros if they overflow.

    The result of a pair does not depend on other pairs: there is one addition for each feature.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.zeros(len(features))
        for column in features.T:
            squares += column * column
        shorter: Floats = features / (np.maximum(np.sqrt(squares), 1.0) * _ABOVE_ONE)[:, None]
    return np.where(np.isfinite(squares)[:, None], shorter, 0.0)


def contributions(features: Floats) -> Floats:
    """Return features of norm at most one, their products, and one: a vector of norm at most sqrt(3)."""
    first, second = np.triu_indices(features.shape[1])
    ones = np.ones((len(features), 1))
    return np.concatenate([features, features[:, first] * features[:, second], ones], axis=1)


@dataclass(frozen=True)
class PairSumQuery(EdgePairQuery):
    """Release noisy sums of K clipped features and their products over edges, and the number of edges.

    Let c be the features of an edge that is not held out, clipped to norm one. The edge contributes all c_k,
    all c_j c_k with j <= k, and 1, divided by sqrt(3). An undirected edge counts once, with its smaller node
    id first.

    Privacy:
        Unit: edge-level. Reads: the in-edges that are not held out. A differing edge moves the answer by its
        contribution, of norm at most one: features, products and the number 1 have norm at most one each
        before the division. So mu = 1 / sigma (``docs/privacy/proofs/links.md``).
    """

    kind: ClassVar[str] = "pair_sums"
    stage: ClassVar[str] = "pair features"
    data: ClassVar[type[PairSumData]] = PairSumData

    terms: int
    grid_bits: int = field(default=SUM_GRID_BITS, kw_only=True)

    def __post_init__(self) -> None:
        check_size(1, MAX_TERMS, terms=self.terms)
        super().__post_init__()

    def changed(self, unit: Unit) -> int:
        return numbers_of(self.terms)

    def prepare(self, data: PairSumData, public: PublicInputs) -> PreparedData:
        data.terms.check(public.num_nodes, self.terms)
        return PreparedData(public, data.terms.arrays, data.terms)

    @forms_private_sum("PairSumQuery")
    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        terms: PairTerms = data.parts
        width = numbers_of(self.terms)

        def sums(edges: EdgeBlock) -> Ids:
            sources, targets = edges_once(self.held_out.without(edges), symmetric=self.symmetric)
            features = clipped(terms(sources, targets))
            steps = (contributions(features) * self.each).astype(np.int64)  # truncated toward zero
            return np.asarray(steps.sum(axis=0))

        exact = private.total(sums, (width,), edges=max(1, _ENTRIES // width))
        return self.noisy_table(exact[None], data, key)[0]

    @property
    def each(self) -> int:
        """Grid steps in a number of size one: a vector of norm sqrt(3) has at most those of norm one."""
        return math.isqrt(int(self.unit_steps) ** 2 // 3)


@dataclass(frozen=True, eq=False, repr=False)
class PairHistogramData(QueryData[Tensor]):
    """Features of node pairs, the weight of each in the score, float64 (K), and ascending bounds of cells.

    The score of a pair is the weighted sum of its features, which are not clipped. Cell b holds scores from
    bound b - 1 up to bound b, float64 (cells - 1). The answer is float64, shape (cells): noisy numbers of
    held-out edges.
    """

    terms: PairTerms
    weights: Tensor
    bounds: Tensor


@dataclass(frozen=True)
class PairHistogramQuery(EdgePairQuery):
    """Release the noisy histogram of the scores of held-out edges. Each is in one cell.

    Privacy:
        Unit: edge-level. Reads: the held-out in-edges. A differing edge moves one number by one, so
        mu = 1 / sigma.
    """

    kind: ClassVar[str] = "pair_histogram"
    stage: ClassVar[str] = "held-out edges"
    reads_held_out: ClassVar[bool] = True
    data: ClassVar[type[PairHistogramData]] = PairHistogramData

    terms: int
    cells: int

    def __post_init__(self) -> None:
        check_size(1, MAX_TERMS, terms=self.terms)
        check_size(2, MAX_DIM, cells=self.cells)
        super().__post_init__()

    def changed(self, unit: Unit) -> int:
        return 1

    def prepare(self, data: PairHistogramData, public: PublicInputs) -> PreparedData:
        data.terms.check(public.num_nodes, self.terms)
        sizes = (data.weights, self.terms), (data.bounds, self.cells - 1)
        reject_if(
            any(of.dtype != torch.float64 or of.shape != (size,) for of, size in sizes)
            or not bool(data.weights.isfinite().all() & (data.bounds.diff() >= 0).all()),
            f"the query needs {self.terms} finite weights and {self.cells - 1} ascending bounds in float64",
        )
        return PreparedData(public, (*data.terms.arrays, data.weights, data.bounds), data.terms)

    @forms_private_sum("PairHistogramQuery")
    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        weights, bounds = (array.numpy() for array in data.arrays[-2:])
        terms: PairTerms = data.parts

        def cells_of(edges: EdgeBlock) -> Ids:
            sources, targets = edges_once(edges, symmetric=self.symmetric)
            held = self.held_out.contains(sources, targets)
            scores = weighted(terms(sources[held], targets[held]), weights)
            return np.searchsorted(bounds, scores, side="right")

        return self.noisy_counts(private.count(cells_of, self.cells), data, key)


def edges_once(edges: EdgeBlock, *, symmetric: bool) -> tuple[Ids, Ids]:
    """Return the ends of a block's edges: an undirected edge once, with its smaller node id first."""
    sources, targets = ends(edges)
    if not symmetric:
        return sources, targets
    first = sources < targets
    return sources[first], targets[first]


def weighted(features: Floats, weights: Floats) -> Floats:
    """Return the weighted sum of each pair's features, whose rounding does not depend on other pairs."""
    scores = np.zeros(len(features))
    with np.errstate(over="ignore", invalid="ignore"):
        for k, weight in enumerate(weights):
            scores += weight * features[:, k]
    return scores

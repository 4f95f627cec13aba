"""Sums along edges under unit ``node``, where one node may take part in any number of edges.

A release has three kinds of queries, in this order:

1. ``DegreeHIndexQuery``: the h-index H of the degrees, the largest k such that k nodes have a degree of at
   least k. It moves by at most one. A public bound D >= H follows, except with a probability that is part of
   delta. At most D nodes have a degree above D.
2. ``ProjectedSumQuery``: sums along edges with weights 1 / sqrt(max(degree, D)), projected onto a ball.
3. ``ClassMomentsQuery``: sums of released rows by the class of their node.

Proofs: ``docs/privacy/proofs/node.md``.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from scipy.stats import norm
from torch import Tensor
from torch.nn.functional import one_hot

from graphveil._util import checks
from graphveil.core.backends import BlockWork
from graphveil.core.edges.adjacency import MAX_NODES
from graphveil.core.edges.blocks import EdgeBlock
from graphveil.core.events import ApproximateDP, Event, compose
from graphveil.core.noise.random import RowStream
from graphveil.core.private_edges import PrivateEdges, forms_private_sum
from graphveil.core.queries.out_edge_sums import Sizes, out_degrees
from graphveil.core.queries.record_counts import RecordCountQuery
from graphveil.core.queries.row_sums import RowNoise, grid_vectors, noise_rows
from graphveil.core.query import (
    MAX_DIM,
    GaussianQuery,
    PreparedData,
    PublicInputs,
    QueryData,
    QueryDescription,
    are_numbers,
    check_noise,
    check_rows,
    check_size,
    reject_if,
    require_record_unit,
)
from graphveil.core.unit import Node, NodeUnit, Unit
from graphveil.errors import ConfigError, UnitError

_GRID_BITS = 6  # a degree is a whole number, so a coarse grid suffices
ROUNDING = 0.005  # what the grid may add to a norm; the weights may add as much
_MESSAGE_BITS = 14  # grid steps in a message of norm one, as a power of two
_SUM_BITS = 62  # sums are added in 64 bits
_ENTRIES = 1 << 19  # entries of sums that are computed together


def _node_unit(unit: Unit, query: str) -> NodeUnit:
    if not isinstance(unit, Node):
        raise UnitError(
            f"{query} has a bound under unit 'node' only, not under unit {unit.name!r}. Use unit 'node', or "
            "a NeighborSumQuery or OutEdgeSumQuery."
        )
    return unit


@dataclass(frozen=True, eq=False, repr=False)
class DegreeHIndexData(QueryData[Tensor]):
    """No input: the query reads the edges alone. The answer is float64, shape (1)."""


@dataclass(frozen=True, kw_only=True)
class DegreeHIndexQuery(GaussianQuery):
    """Release the noisy h-index of the degrees, from which the release derives its degree bound.

    The degree of a node is the number of nodes on its own list, so that of a directed graph is the
    out-degree. With z the quantile of ``failure``, the bound is

        D = ceil(H + N(0, sigma^2) + 1 + z sigma),      P(D < H) <= failure on this graph and its neighbors.

    Args:
        failure: Probability that D is too small.
        grid_bits: Binary logarithm of the grid steps in one.

    Privacy:
        Unit: ``node``. Reads: the degrees. Nulling a node removes it, and one from the degree of its
        neighbors: H falls by at most one and never rises. Two graphs that differ in one node have h-indices
        within one of that of the graph without it, so they differ by at most one as well. mu = 1 / sigma. If
        D is too small, later queries have no bound: ``failure`` is charged as a part of delta.

    >>> DegreeHIndexQuery(sigma=5.0, failure=1e-6).event(Node())
    Composed(events=(Gaussian(mu=0.2), ApproximateDP(epsilon=0.0, delta=1e-06)))
    """

    kind: ClassVar[str] = "h_index"
    stage: ClassVar[str] = "degrees"
    data: ClassVar[type[DegreeHIndexData]] = DegreeHIndexData

    sigma: float
    failure: float
    grid_bits: int = _GRID_BITS

    def __post_init__(self) -> None:
        checks.positive(failure=self.failure)
        checks.within(0, 0.5, failure=self.failure)
        check_noise((self.sigma,), 1, self.grid_bits)

    def event(self, unit: Unit) -> Event:
        return compose(super().event(unit), ApproximateDP(0.0, self.failure))

    def sensitivity(self, unit: Unit) -> float:
        _node_unit(unit, "The h-index of the degrees")
        return 1.0

    def changed(self, unit: Unit) -> int:
        return 1

    def bound(self, noisy: Tensor, num_nodes: int) -> int:
        """Return the degree bound D that follows from an answer.

        The noise is on a grid: its tail is that of the normal distribution one grid step before.
        """
        margin = 1 + float(norm.isf(self.failure)) * self.sigma + 1 / self.unit_steps
        return min(max(1, math.ceil(float(noisy[0]) + margin)), max(1, num_nodes))

    def released(self, answer: Any, public: PublicInputs) -> PublicInputs:
        return replace(public, degree_bound=self.bound(answer, public.num_nodes))

    def prepare(self, data: DegreeHIndexData, public: PublicInputs) -> PreparedData:
        return PreparedData(public, ())

    @forms_private_sum("DegreeHIndexQuery")
    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        return self.noisy_counts(np.array([h_index(out_degrees(private))]), data, key)


def h_index(degrees: Sizes) -> int:
    """Return the largest k such that at least k nodes have a degree of at least k.

    >>> h_index(np.array([3, 3, 2, 1])), h_index(np.zeros(2, dtype=np.int64))
    (2, 0)
    """
    falling = np.sort(degrees)[::-1]
    return int((falling >= np.arange(1, len(falling) + 1)).sum())


@dataclass(frozen=True, eq=False, repr=False)
class ProjectedSumData(QueryData[Tensor]):
    """The vectors that nodes send, of norm at most one, shape (N, d). A longer vector counts as zero.

    The vector of u is a function of u's features and label and of public values, never of u's list. The
    answer is float32 noisy aggregates, shape (N, d).
    """

    vectors: Tensor


@dataclass(frozen=True, kw_only=True)
class ProjectedSumQuery(GaussianQuery):
    """Release one noisy aggregate per node: the sum of its neighbors' vectors, of norm at most ``radius``.

    With c_u the vector of node u, d_u the length of its list, and D the degree bound of the release,

        s_u = 1 / sqrt(max(d_u, D)),      Z_v = P(sum of s_u c_u over the lists with v) + N(0, sigma^2 I),

    where P multiplies a sum by min(1, radius / norm). s_u is rounded down to a multiple of 2^-b, and c_u to a
    grid. Their integer products and the sums of these are exact, and each sum is truncated to the grid of the
    noise once, after the projection.

    Args:
        radius: Largest norm of an aggregate.
        grid_bits: Binary logarithm of the grid steps in one.

    Privacy:
        Unit: ``node``. Reads: edges and vectors. Requires D >= H, the h-index of the degrees. Nulling node v
        removes its own messages, of norm at most one together, and changes the weight of neighbors with a
        degree above D, of which there are at most D. Each of these changes its other messages by at most
        1 - sqrt(D / (D + 1)), so all of them by less than 1/2. P is 1-Lipschitz. The row of v moves by at
        most ``radius``. Hence for every D

            mu = change sqrt(1.51^2 + (radius + 0.005)^2) / sigma,

        where 0.01 is for rounding the weights and the grid. For a coalition of people who see their own
        predictions, edges between them and v stay. Then the row of v moves by at most 2 ``radius``, and a
        null record still sends messages along these edges, so the messages of v change by at most two.

    >>> round(ProjectedSumQuery(dim=5, sigma=5.0).sensitivity(Node()), 4)
    2.51
    """

    kind: ClassVar[str] = "rows"
    stage: ClassVar[str] = "aggregation"
    data: ClassVar[type[ProjectedSumData]] = ProjectedSumData
    needs_degree_bound: ClassVar[bool] = True

    dim: int
    sigma: float
    radius: float = 2.0
    grid_bits: int = 17

    def __post_init__(self) -> None:
        check_size(1, MAX_DIM, dim=self.dim)
        checks.positive(radius=self.radius)
        check_noise((self.sigma,), 1, self.grid_bits)

    @staticmethod
    def grid_for(nodes: int, dim: int) -> int:
        """Return the grid bits at which truncating all rows moves them by at most 0.005 together.

        >>> ProjectedSumQuery.grid_for(20_000, 5)
        16
        """
        return max(14, math.ceil(math.log2(math.sqrt(nodes * dim) / ROUNDING)))

    def sensitivity(self, unit: Unit) -> float:
        return self._moved(unit, 1, self.radius)

    def coalition_sensitivity(self, unit: Unit) -> float:
        """Return the sensitivity for people who know their own lists, whose edges with v are not removed."""
        return self._moved(unit, 2, 2 * self.radius)

    def _moved(self, unit: Unit, own_messages: float, own_row: float) -> float:
        change = _node_unit(unit, "A projected sum").change
        return change * math.hypot(own_messages + 0.5 + 2 * ROUNDING, own_row + ROUNDING)

    def changed(self, unit: Unit) -> int:
        """Return the number of coordinates of all possible rows: a node may be a neighbor of every other."""
        return MAX_NODES * self.dim

    def describe(self) -> QueryDescription:
        return replace(super().describe(), values_per_node=self.dim)

    def prepare(self, data: ProjectedSumData, public: PublicInputs) -> PreparedData:
        check_rows(data.vectors, public.num_nodes, self.dim)
        reject_if(
            public.degree_bound is None,
            "a projected sum needs the degree bound of a DegreeHIndexQuery that the same release answers "
            "first",
        )
        reject_if(
            self.grid_bits < self.grid_for(public.num_nodes, self.dim),
            f"grid_bits={self.grid_bits} is too small for {public.num_nodes} rows of {self.dim} numbers. "
            "Use ProjectedSumQuery.grid_for",
        )
        return PreparedData(public, (data.vectors,))

    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        (vectors,), public = data.arrays, data.public
        assert public.degree_bound is not None
        bound = public.degree_bound
        weight_bits, message_bits = fixed_point_bits(public.num_nodes, bound)
        messages = grid_vectors(vectors, message_bits, np.int64)
        weights = fixed_point_weights(np.maximum(out_degrees(private), bound), weight_bits)
        table = messages * weights[:, None]
        law = public.sampler(self.sigma * self.unit_steps)
        noise = RowNoise(None, (law,), (1 / self.unit_steps,))
        try:
            return private.rows(
                ProjectedRows(table, weight_bits + message_bits, self.radius, self.unit_steps, noise, key)
            )
        finally:
            table.fill(0)  # products reveal the length of their sources' lists


def fixed_point_bits(nodes: int, bound: int) -> tuple[int, int]:
    """Return the binary places of weights and of messages, for public sizes.

    Rounding the weights of D sources, of up to N entries each, moves sums by at most 0.005, and any sum of N
    products fits in 64 bits.

    >>> fixed_point_bits(20_000, 400), fixed_point_bits(1_000_000, 5_000)
    ((24, 14), (30, 14))
    """
    weight_bits = math.ceil(math.log2(bound * math.sqrt(nodes) / ROUNDING))
    room = _SUM_BITS - weight_bits - math.log2(nodes) + math.log2(bound) / 2
    return weight_bits, min(_MESSAGE_BITS, math.floor(room))


def fixed_point_weights(degrees: Sizes, bits: int) -> Sizes:
    """Return floor(2^bits / sqrt(m)) for each m, exactly.

    >>> fixed_point_weights(np.array([1, 4, 5]), 10).tolist()
    [1024, 512, 457]
    """
    found, place = np.unique(degrees, return_inverse=True)
    roots: Sizes = np.array([math.isqrt((1 << 2 * bits) // int(m)) for m in found], dtype=np.int64)
    return roots[place]


@forms_private_sum("ProjectedSumQuery")
@dataclass(frozen=True, eq=False, repr=False)
class ProjectedRows(BlockWork):
    """The projected sums of a block's rows with their noise, under the key of one query.

    ``table`` has the integers that each node sends, of value 2^-``bits``. ``steps`` are the noise's grid
    steps in one.
    """

    table: npt.NDArray[np.int64]
    bits: int
    radius: float
    steps: float
    noise: RowNoise
    key: bytes

    def __call__(self, edges: EdgeBlock) -> Tensor:
        """Return the noisy rows; the exact sums are discarded here."""
        dim, stream = self.table.shape[1], RowStream(self.key)
        out = torch.empty((len(edges), dim), dtype=torch.float32)
        for piece in edges.pieces(max(1, _ENTRIES // dim), _ENTRIES):
            drawn = noise_rows(piece, self.noise, stream, dim).to(torch.int64)
            ones = np.ones(len(piece.sources), dtype=np.int64)
            listed = sparse.csr_array(
                (ones, piece.sources.numpy(), piece.offsets.numpy()), shape=(len(piece), len(self.table))
            )
            drawn += torch.from_numpy(projected(listed @ self.table, self.bits, self.radius, self.steps))
            noisy = drawn.to(torch.float64)
            self.noise.scale(noisy, None)
            out[piece.start - edges.start : piece.stop - edges.start] = noisy.to(torch.float32)
        return out


def projected(sums: Sizes, bits: int, radius: float, steps: float) -> Sizes:
    """Return sums of value 2^-bits, of norm at most ``radius``, truncated to multiples of 1 / steps.

    >>> projected(np.array([[6, 8], [3, 0]]), 1, 2.5, 8.0).tolist()
    [[12, 16], [12, 0]]
    """
    rows = sums / 2.0**bits
    lengths = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    rows *= np.minimum(1.0, radius / np.maximum(lengths, radius)) * steps
    return np.trunc(rows).astype(np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class ClassMomentsData(QueryData[Tensor]):
    """Released rows of the counted records, (M, d), and their classes, int64 (M), -1 for none.

    The answer is float64, shape (classes, d + 1): sums of rows of norm at most ``radius``, and numbers of
    records, by class.
    """

    rows: Tensor
    classes: Tensor


@dataclass(frozen=True, kw_only=True)
class ClassMomentsQuery(RecordCountQuery):
    """Release the noisy sum of released rows, and the noisy number of records, for each class.

    Each record adds a vector of norm at most one to its class: its row, shortened to ``radius`` and
    multiplied by sqrt(1 - a^2) / radius, and a constant a. The answer is divided by these factors.

    Args:
        radius: Rows are shortened to this norm.
        count_share: a^2, what the count has of the squared norm.

    Privacy:
        Unit: node-level. Reads: labels, and rows that are public or depend on the own record only. A counted
        record (``pays``) moves the entries of its class by at most one in norm if it is nulled:
        mu = change / sigma.

    >>> ClassMomentsQuery(classes=3, dim=2, radius=4.0, sigma=10.0).event(Node())
    Gaussian(mu=0.1)
    """

    kind: ClassVar[str] = "moments"
    stage: ClassVar[str] = "moments"
    data: ClassVar[type[ClassMomentsData]] = ClassMomentsData

    classes: int
    dim: int
    radius: float
    count_share: float = 0.1
    grid_bits: int = 20

    def __post_init__(self) -> None:
        check_size(2, MAX_DIM, classes=self.classes)
        check_size(1, MAX_DIM, dim=self.dim)
        checks.positive(radius=self.radius)
        if not 0 < self.count_share < 1:
            raise ConfigError(f"count_share={self.count_share:g} must be between 0 and 1")
        super().__post_init__()

    def sensitivity(self, unit: Unit) -> float:
        return require_record_unit(unit).change

    def changed(self, unit: Unit) -> int:
        return int(require_record_unit(unit).change) * (self.dim + 1)

    def prepare(self, data: ClassMomentsData, public: PublicInputs) -> PreparedData:
        """Check the kinds of the arrays. Values that are no class raise no error, which would reveal them."""
        check_rows(data.rows, len(data.classes), self.dim)
        reject_if(
            not are_numbers(data.classes, len(data.rows)),
            "the query needs one int64 column: the class of each record, or -1 for none",
        )
        return PreparedData(public, (data.rows, data.classes))

    @forms_private_sum("ClassMomentsQuery")
    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        rows, classes = data.arrays
        steps, factors = self.unit_steps, self.factors()
        moments = torch.cat([rows.to(torch.float64), torch.ones(len(rows), 1)], dim=1)
        lengths = moments[:, :-1].norm(dim=1, keepdim=True)
        moments[:, :-1] *= self.radius / lengths.clamp_min(self.radius)
        moments = moments.nan_to_num(0.0)  # a row that is infinite or not a number counts as zero
        whole = (moments * factors * steps).trunc().to(torch.int64)
        whole[whole.square().sum(dim=1) > int(steps) ** 2] = 0
        inside = (classes >= 0) & (classes < self.classes)
        member = one_hot(classes[inside], self.classes)
        return self.noisy_table((member.T @ whole[inside]).numpy(), data, key) / factors

    def factors(self) -> Tensor:
        """Return what rows and the constant are multiplied by, just below the bound in spite of rounding."""
        of_rows = math.sqrt(1 - self.count_share) / self.radius
        factors = torch.full((self.dim + 1,), of_rows, dtype=torch.float64)
        factors[-1] = math.sqrt(self.count_share)
        return factors / (1 + 1e-9)

"""Sums along each source's own edges, and exact reads along each node's own list.

``OutEdgeSumQuery`` is an out-edge aggregation: every source contributes along its own out-edges, with weights
that share one budget per source. Lengths of lists and integer sums over them stay in the release path.

``own_list_sums`` is the one exact read, under the unit ``node-record``: sums of published rows over
each node's own list, without noise. The answer for v is a function of published rows and of v's own list. So
only readers authorized to access v's record learn about its list. A mechanism may compute the output for v
from its own public outputs and v's record. Every coalition without v then has the guarantee of the public
outputs alone (the billboard argument). Do not publish anything computed from this read, unless a mechanism
releases it that charges v's record.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor
from torch.nn.functional import embedding_bag

from graphveil._util import checks
from graphveil.core.edges.adjacency import MAX_NODES, Adjacency
from graphveil.core.edges.blocks import EdgeBlock
from graphveil.core.events import ByGroup, Event, Gaussian
from graphveil.core.private_edges import PrivateEdges, forms_private_sum
from graphveil.core.queries.row_sums import (
    FLOAT32_EXACT,
    Floats,
    NoisyRows,
    RowNoise,
    Sums,
    square_lengths,
    truncate_to_grid,
)
from graphveil.core.query import (
    MAX_DIM,
    GaussianQuery,
    NoiseGrid,
    PreparedData,
    PublicInputs,
    QueryData,
    QueryDescription,
    are_numbers,
    check_noise,
    check_rows,
    check_size,
    grid_steps,
    outside,
    reject_if,
)
from graphveil.core.unit import NodeRecord, Unit
from graphveil.core.view import own_rows
from graphveil.errors import ConfigError, UnitError


def simplex_codes(classes: int) -> Tensor:
    """Return C unit vectors in R^(C-1) with pairwise inner product -1/(C-1), float64, shape (C, C-1).

    Of all sets of C unit vectors these are the farthest apart. A convex combination has norm at most one,
    so soft labels need no normalization.

    >>> codes = simplex_codes(3)
    >>> torch.round(codes @ codes.T, decimals=6).tolist()
    [[1.0, -0.5, -0.5], [-0.5, 1.0, -0.5], [-0.5, -0.5, 1.0]]
    """
    # Row k of the Helmert basis is orthogonal to the ones vector; its columns, rescaled, are the codes.
    basis = torch.zeros(classes - 1, classes, dtype=torch.float64)
    for k in range(1, classes):
        basis[k - 1, :k] = 1.0
        basis[k - 1, k] = -float(k)
        basis[k - 1] /= (k * (k + 1)) ** 0.5
    codes = basis.T.contiguous()
    lengths: Tensor = codes.norm(dim=1, keepdim=True)
    return codes / lengths


def soft_codes(log_posteriors: Tensor, codes: Tensor) -> Tensor:
    """Return the mean code under each posterior: norm at most one, float64, shape (N, C-1)."""
    return log_posteriors.exp().to(torch.float64) @ codes


Sizes = npt.NDArray[np.int64]


def own_list_sums(adjacency: Adjacency, rows: Tensor) -> tuple[Any, ...]:
    """Return the sum of rows over each node's own out-list, float64 (N, d), and the lists' lengths, (N).

    Both are handles if the edges are protected.

    Args:
        rows: Published rows (N, d).

    Privacy:
        No guarantee of its own. Entry v depends only on ``rows`` and on v's own record, and is not private
        against a reader of entry v. Internal: do not publish. Do not use it under an edge-level unit.

    >>> pair = Adjacency.from_edges([0, 0], [1, 2], num_nodes=3, directed=True)
    >>> sums, lengths = own_list_sums(pair, torch.tensor([[1.0], [2.0], [4.0]]))
    >>> sums.flatten().tolist(), lengths.tolist()
    ([6.0, 0.0, 0.0], [2, 0, 0])
    """
    if len(rows) != adjacency.num_nodes:
        raise ConfigError(
            f"There are {len(rows)} rows for {adjacency.num_nodes} nodes. Pass one row per node."
        )
    listed, starts = PrivateEdges(adjacency).out_neighbors()
    sums = embedding_bag(listed, rows.to(torch.float64), starts, mode="sum", include_last_offset=True)
    return own_rows(adjacency, sums, starts.diff())


def own_lists(adjacency: Adjacency) -> Any:
    """Return each node's own out-list as a row of a sparse matrix, bool (N, N).

    It is a handle if the edges are protected.

    Privacy:
        No guarantee of its own. Row v depends on v's own record only.

    >>> pair = Adjacency.from_edges([0, 0], [1, 2], num_nodes=3, directed=True)
    >>> own_lists(pair).toarray().astype(int).tolist()
    [[0, 1, 1], [0, 0, 0], [0, 0, 0]]
    """
    listed, starts = (part.numpy() for part in PrivateEdges(adjacency).out_neighbors())
    ones, nodes = np.ones(len(listed), dtype=bool), adjacency.num_nodes
    return own_rows(adjacency, sparse.csr_array((ones, listed, starts), shape=(nodes, nodes)))[0]


def out_neighbor_sums(private: PrivateEdges, weights: Sizes) -> Sizes:
    """Return, for each source, the sum of integer weights over its own list (the edges that it sends), exact.

    ``weights`` has an entry per node, or a single one for all.
    """
    if len(weights) == 1:
        return weights * out_degrees(private)
    nodes = private.num_nodes

    def sums(edges: EdgeBlock) -> Sizes:
        each = np.repeat(weights[edges.start : edges.stop], edges.degrees.numpy())
        # Sums of integers in float64, which represents them exactly.
        return np.bincount(edges.sources.numpy(), each, nodes).astype(np.int64)

    return private.total(sums, (nodes,))


def out_degrees(private: PrivateEdges) -> Sizes:
    """Return the number of stored edges that each node sends.

    It is also counted for undirected graphs, where it differs from the in-degree if one record is nulled.
    """
    return private.count(lambda edges: edges.sources.numpy(), private.num_nodes)


def exceeds_degree(private: PrivateEdges, most: int, *, both_ends: bool = False) -> bool:
    """Return whether a node sends or receives more than ``most`` edges, or together with ``both_ends``."""
    sent, received = out_degrees(private), private.exact(lambda edges: edges.degrees.numpy())
    degrees = sent + received if both_ends else np.maximum(sent, received)
    return bool((degrees > most).any())


LEVEL = 16  # the squared weight of one
MAX_LEVEL = 1 << 16  # squared weights up to this value are added exactly
_MIN_NOISE = 128  # grid steps: minimum for which the sampler's share of delta covers a billion coordinates


@dataclass(frozen=True, eq=False, repr=False)
class OutEdgeSumData(QueryData[Tensor]):
    """The vectors that sources send: c_u, of norm at most the bound of u's group, shape (N, d).

    A longer vector counts as zero. ``levels`` are the index of each row in the query's ``levels``, integers
    of shape (N). They must be a public function of earlier answers, and are optional if there is one level.
    The answer is float32 noisy aggregates, shape (N, d).
    """

    vectors: Tensor
    levels: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class OutEdgeSumQuery(GaussianQuery):
    """Release one noisy aggregate per node: the sum of the contributions along its in-edges.

    Source u of group h holds a vector c_u of norm at most bounds[h]. It adds g_v s_u c_u to row v for
    each v on its own list L_u (the stored edges u -> v), with g_v^2 = levels[level of v] / 16 and

        s_u = 1 / sqrt(max(sum of g_v^2 over L_u, D)),      Z_v = g_v sum_u s_u c_u + N(0, sigma^2).

    Weights are exact. The budget of u is a sum of integers. The factor s_u is multiplied into the vector
    before truncation toward zero to the grid, and the integers are summed without weights. The noise of row v
    is sigma / g_v, and the noisy sum is multiplied by g_v afterwards.

    Args:
        out_degree_bound: Minimum length D of a list for its weights; shorter lists are not scaled up.
        levels: Squared weights in sixteenths, from 0 (not released) to 65536.
        bounds: Maximum norm of a vector, by group of its source; 0 for a group that sends nothing.
        grid_bits: The largest bound has between 2^(grid_bits - 1) and 2^grid_bits grid steps.

    Privacy:
        Unit: node-level (``node-record``). Reads: out-edges and vectors. The contributions of u have squared
        length s_u^2 |c_u|^2 sum of g_v^2 <= bounds[h]^2, and no other source's contributions depend on u's
        record. Nulling the record moves the rows by at most bounds[h], and replacing it by at most twice
        that: mu = change * bounds[h] / sigma for a record of group h. Rows of level weight 0 are zeros.

    >>> push = OutEdgeSumQuery(dim=5, sigma=4.0, bounds=(1.0, 1.25))
    >>> [event.mu for event in push.event(NodeRecord()).events]
    [0.25, 0.3125]
    """

    kind: ClassVar[str] = "rows"
    wire_name: ClassVar[str] = "PushQuery"
    stage: ClassVar[str] = "push"
    data: ClassVar[type[OutEdgeSumData]] = OutEdgeSumData

    dim: int
    sigma: float
    out_degree_bound: int = 1
    levels: tuple[int, ...] = (LEVEL,)
    partition: str = "records"
    bounds: tuple[float, ...] = (1.0,)
    grid_bits: int = 14

    def __post_init__(self) -> None:
        check_size(1, MAX_DIM, dim=self.dim)
        checks.integer_at_least(1, out_degree_bound=self.out_degree_bound)
        check_noise((self.sigma,), 1, self.grid_bits)
        for level in self.levels:
            check_size(0, MAX_LEVEL, levels=level)
        checks.non_negative(**{f"bounds[{group}]": bound for group, bound in enumerate(self.bounds)})
        if not any(self.levels) or not any(self.bounds):
            raise ConfigError(
                "all levels or bounds are 0, so the out-edge aggregation would release noise only; use a "
                "positive one"
            )
        if self.sigma * self.unit_steps / max(self.weights) < _MIN_NOISE:
            raise ConfigError(
                f"sigma={self.sigma:g} is less than {_MIN_NOISE} grid steps of noise for the largest "
                "level. Use larger grid_bits."
            )

    def event(self, unit: Unit) -> Event:
        change = self.change(unit)
        events = tuple(Gaussian(change * bound / self.sigma) for bound in self.bounds)
        return events[0] if len(events) == 1 else ByGroup(self.partition, events)

    def sensitivity(self, unit: Unit) -> float:
        return self.change(unit) * max(self.bounds)

    def change(self, unit: Unit) -> float:
        """Return by how many bounds a record may move the sums; reject all units but ``node-record``."""
        if not isinstance(unit, NodeRecord):
            raise UnitError(
                "An out-edge aggregation bounds the contribution of each source, which has no guarantee "
                f"under unit {unit.name!r}. Use unit 'node-record', or a NeighborSumQuery."
            )
        return unit.change

    def changed(self, unit: Unit) -> int:
        """Return the number of coordinates of all possible rows: a record may list every node."""
        return MAX_NODES * self.dim

    def factors(self, squared: Sizes, groups: npt.NDArray[np.int64] | int) -> Floats:
        """Return the grid steps of a vector of norm one in a contribution of each source: s_u in steps.

        Args:
            squared: Squared weights of the sources' lists in sixteenths, at least 16 D.
        """
        return np.asarray(self.unit_steps / np.sqrt(squared / LEVEL))

    def squares(self, grid: Floats) -> Floats:
        """Return the squares of integer vectors that are compared with their caps: of lengths here."""
        return square_lengths(grid)

    def edge_shift(self, num_nodes: int) -> float:
        """Return the sensitivity of the rows to one mutual edge, on both ends' lists or on neither.

        With h the largest squared weight, m = max(D, least squared weight) and r^2 = m / (m + h),

            shift^2 <= 2 F,   F = h / D if h <= D,   F = max(1, (1 - r)(3 - r)) otherwise,

        times the largest bound squared; equal weights 1 give sqrt(2 / D), attained by two lists that are
        shorter than D. ``num_nodes`` bounds what truncation to the grid may add. The bound is valid for
        vectors within their bounds; ``_end_shift`` has the proof.

        >>> round(OutEdgeSumQuery(dim=5, sigma=4.0, out_degree_bound=1).edge_shift(20_000), 6)
        1.414214
        """
        squared = [level / LEVEL for level in self.levels if level]
        step = math.sqrt(self.dim) / (self.unit_steps * max(self.bounds))
        shift = _end_shift(squared, float(self.out_degree_bound), num_nodes, step)
        return math.sqrt(2 * shift) * max(self.bounds)

    def describe(self) -> QueryDescription:
        return replace(super().describe(), values_per_node=self.dim)

    def prepare(self, data: OutEdgeSumData, public: PublicInputs) -> PreparedData:
        nodes, count = public.num_nodes, len(self.levels)
        check_rows(data.vectors, nodes, self.dim)
        one_level = data.levels is None and count == 1
        chosen: Any = torch.zeros(nodes, dtype=torch.int64) if one_level else data.levels
        reject_if(
            not are_numbers(chosen, nodes) or outside(chosen, count),
            f"the query needs one level for each of {nodes} rows: an integer from 0 to {count - 1}",
        )
        return PreparedData(public, (data.vectors, chosen.to(torch.int64)))

    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        (vectors, levels), public = data.arrays, data.public
        squared, target_weighted = np.array(self.levels, dtype=np.int64), len(self.levels) > 1
        listed = out_neighbor_sums(private, squared[levels.numpy()] if target_weighted else squared)
        groups = public.groups if self.groups > 1 else None
        table = out_edge_table(vectors, groups, listed, self, private.memory(len(vectors), self.dim))
        noise = RowNoise(
            levels if target_weighted else None,
            tuple(public.sampler(self.sigma * self.unit_steps / g) if g else None for g in self.weights),
            tuple(g / self.unit_steps for g in self.weights),
        )
        try:
            return private.rows(NoisyRows(Sums(table, self.longest), noise, key))
        finally:
            table.zero_()  # keeps only its memory: contributions reveal the length of their sources' lists

    @property
    def groups(self) -> int:
        return len(self.bounds)

    @property
    def weights(self) -> tuple[float, ...]:
        return tuple(math.sqrt(level / LEVEL) for level in self.levels)

    @property
    def unit_steps(self) -> float:
        """Grid steps in a vector of norm one: a power of two."""
        return grid_steps(max(self.bounds), self.grid_bits)

    @property
    def grid(self) -> NoiseGrid:
        """Sizes on the grid: rows of the largest level have the least noise, and set both lower bounds."""
        smallest, largest = min(weight for weight in self.weights if weight), max(self.weights)
        steps = self.unit_steps
        return NoiseGrid(
            max(self.bounds) * steps / largest, self.sigma * steps / largest, self.sigma * steps / smallest
        )

    @property
    def caps(self) -> list[int]:
        """By group: 16 (bound * steps)^2 rounded down, the maximum of |t_u|^2 max(q_u, 16 D).

        t_u are u's integers and q_u the squared weights of its list in sixteenths, so the comparison is
        exact.
        """
        return [
            math.floor(LEVEL * (Fraction(bound) * Fraction(self.unit_steps)) ** 2) for bound in self.bounds
        ]

    @property
    def longest(self) -> int:
        """Number of contributions that float32 adds exactly: each is at most bound * steps / sqrt(D)."""
        largest = math.isqrt(max(self.caps) // (LEVEL * self.out_degree_bound))
        return FLOAT32_EXACT // max(1, largest)


def _end_shift(squared: list[float], budget: float, num_nodes: int, step: float) -> float:
    """Return F: how far an edge moves the writes of one end, squared, for vectors of norm one.

    Proof. Let G be the sum of g^2 over u's other listed nodes, h that of v, a and b the factors s_u with and
    without v. The edge adds one row, n = h a^2 squared, and rescales the others, S^2 = G (b - a)^2. The row
    that is new for one end is not on the other's list, so only rescaled rows of the two ends can align, by
    2 S_u S_v <= S_u^2 + S_v^2. Hence shift^2 <= F_u + F_v with F = n + 2 S^2.

    1. G = 0 or G + h <= D: nothing is rescaled; F = min(1, h / D).
    2. G >= D: with y^2 = G / (G + h) it is F = 1 - y^2 + 2 (1 - y)^2 = (1 - y)(3 - y). It is convex and falls
       in G, and is at most h / G, since (3 - y) y^2 <= 1 + y.
    3. G < D < G + h: with x = G / D and r'^2 = D / (G + h), F = 1 + x (2 - 4 r' + r'^2). It is at most h / D,
       and at most 1 or case 2 at G = D, because r' >= r.

    On the grid the other rows' integers move by at most one step a coordinate more: S by sqrt(G) ``step``,
    which adds 4 sqrt(G) S step + 2 G step^2. There sqrt(G) S <= sqrt(G) (1 - y), which rises up to G = 0.6 h,
    where it is below 0.301 sqrt(h), and then falls. So in case 2 the whole is below a convex function of G,
    and that is largest at one end.
    """
    h, least = max(squared), max(budget, min(squared))

    def kept(others: float) -> float:
        return math.sqrt(others / (others + h))

    def rounding(first: float, others: float) -> float:
        steepest = math.sqrt(first) * (1 - kept(first)) if first >= 0.7 * h else 0.301 * math.sqrt(h)
        return 4 * steepest * step + 2 * others * step**2

    def rescaled(others: float) -> float:
        return (1 - kept(others)) * (3 - kept(others))

    ends = (least, max(least, num_nodes * h))
    found = [min(1.0, h / budget), *(rescaled(end) + rounding(least, end) for end in ends)]
    equal = len(set(squared)) == 1
    if min(squared) < budget and not (equal and (budget / h).is_integer()):  # else no list is in case 3
        crossing = min(h / budget, max(1.0, rescaled(budget)))
        found.append(crossing + rounding(max(0.0, budget - h), budget))
    return max(found)


def out_edge_table(
    vectors: Tensor, groups: Tensor | None, listed: Sizes, query: OutEdgeSumQuery, table: Tensor | None = None
) -> Tensor:
    """Return each source's contribution t_u = trunc(s_u c_u) on the grid, as integers in float32.

    ``listed`` are the squared weights q_u of the sources' own lists, in sixteenths. A row with |t_u|^2
    max(q_u, 16 D) above its cap contributes nothing (``truncate_to_grid``).
    """
    total = np.maximum(listed, LEVEL * query.out_degree_bound)
    group = 0 if groups is None else groups.numpy()
    factor, cap = query.factors(total, group), np.array(query.caps)[group] // total
    table = torch.empty((len(vectors), query.dim)) if table is None else table
    truncate_to_grid(vectors, factor, cap, table.numpy(), query.squares)
    return table


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
        change = super().change(unit)
        return replaced_change(self.dim + 1) if unit == NodeRecord(replace_one=True) else change

    @property
    def truncation(self) -> float:
        """Grid steps that truncation adds to the gauge at most: (C-1) sqrt(C-1), and one for rounding."""
        return self.dim * math.sqrt(self.dim) + 1

    def factors(self, squared: Sizes, groups: npt.NDArray[np.int64] | int) -> Floats:
        """Return the factors of the sources, so that a vector at its bound is within it after truncation."""
        with np.errstate(divide="ignore"):
            margin = self.truncation / np.array(self.bounds)[groups]
        return np.maximum(super().factors(squared, groups) - margin, 0.0)

    def squares(self, grid: Floats) -> Floats:
        """Return the squares of the gauges."""
        gauge = self.dim * -(grid @ simplex_codes(self.dim + 1).numpy().T).min(axis=1)
        return np.asarray((gauge * _ROUNDING) ** 2)

    @property
    def grid(self) -> NoiseGrid:
        plain = super().grid
        return plain._replace(contribution=plain.contribution - self.truncation / max(self.weights))


def replaced_change(classes: int) -> float:
    """Return the largest distance of two class codes: sqrt(2 C / (C-1)).

    >>> [round(replaced_change(classes), 4) for classes in (2, 6, 1000)]
    [2.0, 1.5492, 1.4149]
    """
    return math.sqrt(2 * classes / (classes - 1))


_GRID_BITS = 6  # an out-degree is a whole number, so a coarse grid suffices


@dataclass(frozen=True, eq=False, repr=False)
class OutDegreeSumData(QueryData[Tensor]):
    """No input: the query reads the edges alone. The answer is float64, shape (1)."""


@dataclass(frozen=True, kw_only=True)
class OutDegreeSumQuery(GaussianQuery):
    """Release the noisy sum of the out-degrees of all nodes, each clipped to a public bound.

    Divided by the number of nodes, it is an estimate of the mean length of a node's own list of edges.

    Privacy:
        Unit: ``node-record``. Reads: the length of each node's own list. Nulling or replacing a record
        changes one clipped out-degree, which is between 0 and ``bound``: mu = bound / sigma under both
        relations. A mutual edge changes two of them by one each.

    >>> OutDegreeSumQuery(bound=20, sigma=80.0).event(NodeRecord(replace_one=True))
    Gaussian(mu=0.25)
    """

    kind: ClassVar[str] = "out_degrees"
    stage: ClassVar[str] = "out-degrees"
    data: ClassVar[type[OutDegreeSumData]] = OutDegreeSumData

    bound: int
    sigma: float
    grid_bits: int = _GRID_BITS

    def __post_init__(self) -> None:
        checks.integer_at_least(1, bound=self.bound)
        check_noise((self.sigma,), 1, self.grid_bits)

    def sensitivity(self, unit: Unit) -> float:
        if not isinstance(unit, NodeRecord):
            raise UnitError(
                f"The sum of clipped out-degrees has no guarantee under unit {unit.name!r}. Use unit "
                "'node-record', which protects each node's own out-edges."
            )
        return float(self.bound)

    @property
    def edge_shift(self) -> float:
        """Sensitivity to one mutual edge, which is on both ends' lists or on neither."""
        return 2.0

    def changed(self, unit: Unit) -> int:
        return 1

    def prepare(self, data: OutDegreeSumData, public: PublicInputs) -> PreparedData:
        return PreparedData(public, ())

    @forms_private_sum("OutDegreeSumQuery")
    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        exact = np.minimum(out_degrees(private), self.bound).sum(keepdims=True)
        return self.noisy_counts(exact, data, key)

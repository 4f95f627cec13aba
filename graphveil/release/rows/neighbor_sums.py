"""Noisy sums of neighbors' vectors, each of norm at most one: a hop."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.data import Features
from graphveil.errors import ConfigError, NotImplementedGuaranteeError, ReleaseError
from graphveil.privacy import NodeUnit, PairwiseGaussian, Unit
from graphveil.privacy.unit import NodeBoundedDegree
from graphveil.release.private_edges import PrivateEdges
from graphveil.release.query import (
    FLOAT32_EXACT,
    GRID_BITS,
    MAX_DIM,
    PreparedData,
    PublicInputs,
    Query,
    QueryData,
    QueryDescription,
    check_noise,
    check_rows,
    grid_steps,
)
from graphveil.release.rows.compact import CompactRows, can_compact
from graphveil.release.rows.group_weights import GroupWeights
from graphveil.release.rows.private_sums import NoisyRows, Sums
from graphveil.release.rows.row_noise import RowNoise
from graphveil.release.weights import GivenWeight, Similarity
from graphveil.release.weights.registry import check_trusted
from graphveil.release.weights.tables import WEIGHT_BITS, PairWeights

SIMILARITY_GRID_BITS = 9  # of a vector; its weight has WEIGHT_BITS more, and 1,024 of them add up in float32
_ENTRIES = 1 << 17  # of contributions that are truncated at a time: they stay in the cache

Keys = Features | tuple[Tensor, ...]  # as the query's similarity says


@dataclass(frozen=True, eq=False, repr=False)
class NeighborSumData(QueryData[Tensor]):
    """What each node sends: vectors c_u of norm at most one, shape (N, d).

    ``keys`` are what the query's similarity reads of each node, public or released earlier; by default the
    vectors. The answer is float32 noisy rows, shape (N, d).
    """

    vectors: Tensor
    keys: Keys | None = None


@dataclass(frozen=True, eq=False, repr=False)
class _PreparedSums(PreparedData):
    """Vectors, and the tables of their weights, which are made before any edge is read."""

    pairs: PairWeights | None


@dataclass(frozen=True)
class NeighborSumQuery(Query):
    """One noisy row per node: the weighted sum of its in-neighbors' vectors, each of norm at most one.

    ``sigma[h]`` is the noise's standard deviation in rows of group h, in units of a vector of norm one. With
    a ``similarity`` each contribution is also multiplied by w(z_u, z_v), and its bound by w's largest value.
    """

    kind: ClassVar[str] = "rows"
    wire_name: ClassVar[str] = "HopQuery"
    stage: ClassVar[str] = "hop"
    data: ClassVar[type[NeighborSumData]] = NeighborSumData

    weights: GroupWeights
    sigma: tuple[float, ...]
    dim: int
    grid_bits: int = GRID_BITS
    similarity: Similarity | None = None

    def __post_init__(self) -> None:
        """Check every field."""
        checks.integer_at_least(1, dim=self.dim)
        checks.within(1, MAX_DIM, dim=self.dim)
        check_noise(self.sigma, self.weights.groups, self.contribution_bits)
        if self.weights.largest == 0:
            raise ConfigError(
                "every weight is zero: the hop would release noise alone; give some pair a weight"
            )

    def event(self, unit: Unit) -> PairwiseGaussian:
        """Return what the hop does to each pair of groups.

        Raises:
            NotImplementedGuaranteeError: a similarity under a unit of records, where the rows that it reads
                are not public.
        """
        shifts = self.weights.shifts(unit, tuple(self._largest_similarity(unit) / s for s in self.sigma))
        return PairwiseGaussian(self.weights.partition, tuple(tuple(x * x for x in row) for row in shifts))

    def sensitivity(self, unit: Unit) -> float:
        """Return the L2 sensitivity before noise."""
        return self._largest_similarity(unit) * self.weights.sensitivity(unit)

    def changed(self, unit: Unit) -> int:
        """Return how many coordinates one differing edge, or one node with all its edges, may change."""
        if isinstance(unit, NodeBoundedDegree):
            return int(unit.change) * unit.max_degree * self.dim
        return 2 * self.dim

    def describe(self) -> QueryDescription:
        """Return what is said of the query, its weights among it."""
        return replace(super().describe(), values_per_node=self.dim)

    def _parameters(self) -> dict[str, object]:
        fields = super()._parameters()
        del fields["similarity"]
        return fields if self.similarity is None else {**fields, "similarity": self.similarity.describe()}

    def prepare(self, data: NeighborSumData, public: PublicInputs) -> _PreparedSums:
        """Make the tables of the weights from their keys."""
        check_rows(data.vectors, public.num_nodes, self.dim)
        pairs = self._pairs(data, public.num_nodes)
        tables = () if pairs is None else pairs.tables
        return _PreparedSums(public, (data.vectors, *tables), pairs)

    def answer(self, private: PrivateEdges, data: _PreparedSums, key: bytes) -> Tensor:
        """Return noisy rows."""
        vectors, public = data.arrays[0], data.public
        groups = public.groups if self.groups > 1 else None
        rows = self.groups * len(vectors)  # a copy of all for each group of destinations
        compact = data.pairs is None and can_compact(self.dim, self.grid_bits)
        memory = (
            private.compact_memory(rows, self.dim, self.grid_bits)
            if compact
            else private.memory(rows, self.dim)
        )
        table = grid_table(vectors, groups, self, memory)
        noise = RowNoise(
            groups,
            tuple(public.sampler(sigma * self.steps) for sigma in self.sigma),
            (1 / self.steps,) * self.groups,
        )
        longest = FLOAT32_EXACT >> self.contribution_bits
        sums = Sums(table, longest, stride=len(vectors), pairs=data.pairs)
        return private.rows(NoisyRows(sums, noise, key))

    @property
    def reads_edge_weights(self) -> bool:
        """Whether the weights are the graph's own."""
        return isinstance(self.similarity, GivenWeight)

    @property
    def groups(self) -> int:
        """The number of groups that the weights tell apart."""
        return self.weights.groups

    @property
    def noise(self) -> tuple[float, ...]:
        """The noise's standard deviation by group of rows."""
        return self.sigma

    @property
    def vector_steps(self) -> float:
        """Grid steps in a vector of norm one, before it is multiplied by a similarity: a power of two.

        The largest vector, by its group's weight, has between 2^(grid_bits - 1) and 2^grid_bits of them.
        """
        return grid_steps(self.weights.largest, self.grid_bits)

    @property
    def contribution_bits(self) -> int:
        """Bits of the largest contribution: those of a vector and, with a similarity, those of its weight."""
        return self.grid_bits + (0 if self.similarity is None else WEIGHT_BITS)

    @property
    def steps(self) -> float:
        """Grid steps in a sum of norm one; without a similarity going back to vectors rounds nothing."""
        if self.similarity is None:
            return self.vector_steps
        return self.vector_steps * 2.0**WEIGHT_BITS / self.similarity.bound

    @property
    def contribution_steps(self) -> float:
        """Grid steps in the largest contribution, up to a factor of two."""
        return 2.0**self.contribution_bits

    @property
    def min_noise_steps(self) -> float:
        """Grid steps in the smallest standard deviation of the noise."""
        return min(self.sigma) * self.steps

    @property
    def max_noise_steps(self) -> float:
        """Grid steps in the largest standard deviation of the noise."""
        return max(self.sigma) * self.steps

    @property
    def linear_group_scaling(self) -> bool:
        """Whether a person's k edges may add up to k times one edge: anything but equal weights and noise."""
        return not self.weights.symmetric or len(set(self.sigma)) > 1

    def _pairs(self, data: NeighborSumData, num_nodes: int) -> PairWeights | None:
        """Return the tables of the query's similarity, made of its keys."""
        if self.similarity is None:
            if data.keys is not None:
                raise ReleaseError("the plan's hop has no similarity to read keys; the release stays charged")
            return None
        pairs = self.similarity.prepare(data.vectors if data.keys is None else data.keys)
        check_trusted(pairs, num_nodes)
        return pairs

    def _largest_similarity(self, unit: Unit) -> float:
        """Return the similarity's bound, over all ordered pairs."""
        if self.similarity is None:
            return 1.0
        if isinstance(unit, NodeUnit):
            raise NotImplementedGuaranteeError(
                f"weights by similarity read rows that unit {unit.name!r} protects; use weights='one', or "
                "protect edges"
            )
        return self.similarity.bound


def grid_table(
    vectors: Tensor,
    groups: Tensor | None,
    query: NeighborSumQuery,
    table: Tensor | CompactRows | None = None,
) -> Tensor | CompactRows:
    """Return the weighted contributions as integers, one copy a destination group.

    Truncation toward zero never lengthens a row; a row still over its bound contributes nothing. The memory
    of a ``table`` of the same shape is written over.
    """
    count = len(vectors)
    table = torch.empty((query.groups * count, query.dim)) if table is None else table
    weights = np.array(query.weights.table) * query.vector_steps
    if isinstance(table, CompactRows):
        table.fill(vectors, torch.from_numpy(weights), groups)
        return table
    at_once = max(1, _ENTRIES // query.dim)
    scratch = np.empty((min(count, at_once), query.dim))
    for first in range(0, count, at_once):
        some = slice(first, min(count, first + at_once))
        exact, grid = vectors[some].to(torch.float64).numpy(), scratch[: some.stop - first]
        from_group = weights if groups is None else weights[groups[some].numpy()]  # (1 or rows, into)
        for into in range(query.groups):
            bound = from_group[:, into, None]
            out = table[into * count + some.start : into * count + some.stop].numpy()
            with np.errstate(over="ignore", invalid="ignore"):  # such a row is over its bound, silently
                np.multiply(exact, bound, out=grid)
                np.trunc(grid, out=grid)
                fits = np.einsum("nd,nd->n", grid, grid) <= np.square(bound)[:, 0]
                np.copyto(out, grid, casting="unsafe")
            out[~fits] = 0.0
    return table

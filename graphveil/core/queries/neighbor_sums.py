"""Noisy sums of neighbors' vectors, each of norm at most one: one hop (aggregation step)."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from graphveil._util import checks
from graphveil.core.events import PairwiseGaussian
from graphveil.core.features import Features
from graphveil.core.noise import _kernels
from graphveil.core.private_edges import CompactRows, PrivateEdges
from graphveil.core.queries.row_sums import (
    FLOAT32_EXACT,
    NoisyRows,
    RowNoise,
    Sums,
    can_compact,
    truncate_to_grid,
)
from graphveil.core.queries.weights import WEIGHT_BITS, GivenWeight, PairWeights, Similarity, check_trusted
from graphveil.core.query import (
    GRID_BITS,
    MAX_DIM,
    GaussianQuery,
    NoiseGrid,
    PreparedData,
    PublicInputs,
    QueryData,
    QueryDescription,
    check_noise,
    check_rows,
    check_size,
    grid_steps,
    reject_if,
)
from graphveil.core.unit import NodeBoundedDegree, NodeUnit, Unit
from graphveil.errors import ConfigError, NotImplementedGuaranteeError


@dataclass(frozen=True)
class GroupWeights:
    """Aggregation weights: ``table[g][h]`` scales the message from a node of group g to one of group h.

    Groups are public and independent of the edges, so the table may be chosen freely. The squared shift of
    a differing pair combines both directions as the privacy unit defines
    (``docs/privacy/proofs/sensitivity.md``).

    >>> from graphveil.privacy import UndirectedEdge
    >>> round(GroupWeights.unit_weights().sensitivity(UndirectedEdge()), 6)
    1.414214
    >>> round(GroupWeights.target_weighted().sensitivity(UndirectedEdge()), 6)
    1.0
    """

    partition: str
    table: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        if not self.table:
            raise ConfigError("The weight table is empty. It needs at least one group.")
        for row in self.table:
            if len(row) != len(self.table):
                raise ConfigError("The weight table must be square, with one row and one column per group.")
            for weight in row:
                checks.within(0, 1, weight=weight)

    @classmethod
    def unit_weights(cls) -> "GroupWeights":
        return cls("all", ((1.0,),))

    @classmethod
    def target_weighted(cls) -> "GroupWeights":
        """Return the table that spends the budget of a pair on the end that needs it: train, val, target.

        A labeled node sends to a target at full weight and receives nothing back. Between equals each
        direction has weight 1/sqrt 2. The squared weights of every pair sum to at most one.
        """
        s = math.sqrt(0.5)
        return cls("train/val/target", ((s, 1.0, 1.0), (0.0, s, 1.0), (0.0, 0.0, s)))

    @classmethod
    def few_labels(cls, reverse_weight: float) -> "GroupWeights":
        """Return the table for few labels: targets also send to labeled nodes, with the reverse weight."""
        checks.within(0, 1, reverse_weight=reverse_weight)
        s, forward = math.sqrt(0.5), math.sqrt(1 - reverse_weight**2)
        return cls(
            "train/val/target", ((s, s, forward), (s, s, forward), (reverse_weight, reverse_weight, s))
        )

    @classmethod
    def equal(cls, partition: str, groups: int) -> "GroupWeights":
        return cls(partition, ((1.0,) * groups,) * groups)

    @property
    def groups(self) -> int:
        return len(self.table)

    @cached_property
    def largest(self) -> float:
        """The largest weight: the norm bound of one contribution."""
        return float(np.max(self.table))

    @property
    def symmetric(self) -> bool:
        return np.array_equal(self.table, np.transpose(self.table))

    def shifts(self, unit: Unit, scale: tuple[float, ...] | None = None) -> tuple[tuple[float, ...], ...]:
        """Return the shift of one differing edge by pair of groups; ``scale[h]`` multiplies rows of h."""
        by, groups = scale or (1.0,) * len(self.table), range(len(self.table))
        return tuple(
            tuple(unit.pair_sensitivity(self.table[g][h] * by[h], self.table[h][g] * by[g]) for h in groups)
            for g in groups
        )

    def sensitivity(self, unit: Unit) -> float:
        return float(np.max(self.shifts(unit)))


SIMILARITY_GRID_BITS = 9  # its weight has WEIGHT_BITS more; float32 adds 1,024 products exactly

Keys = Features | tuple[Tensor, ...]  # as defined by the query's similarity


@dataclass(frozen=True, eq=False, repr=False)
class NeighborSumData(QueryData[Tensor]):
    """The vectors that nodes send: c_u of norm at most one, shape (N, d).

    ``keys`` are the inputs of the query's similarity for each node, public or released earlier; by default
    the vectors. The answer is float32 noisy aggregates, shape (N, d).
    """

    vectors: Tensor
    keys: Keys | None = None


@dataclass(frozen=True)
class NeighborSumQuery(GaussianQuery):
    """Release one noisy aggregate per node: the weighted sum of its in-neighbors' bounded vectors.

    ``sigma[h]`` is the standard deviation of the noise in rows of group h, for vectors of norm one. With a
    ``similarity`` each contribution is also multiplied by w(z_u, z_v), and its bound by w's maximum.
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
        check_size(1, MAX_DIM, dim=self.dim)
        check_noise(self.sigma, self.weights.groups, self.contribution_bits)
        if self.weights.largest == 0:
            raise ConfigError(
                "All weights are zero, so the hop would release noise only. Use a positive weight for at "
                "least one pair."
            )

    def event(self, unit: Unit) -> PairwiseGaussian:
        shifts = self.weights.shifts(unit, tuple(self._largest_similarity(unit) / s for s in self.sigma))
        return PairwiseGaussian(self.weights.partition, tuple(map(tuple, np.square(shifts).tolist())))

    def sensitivity(self, unit: Unit) -> float:
        return self._largest_similarity(unit) * self.weights.sensitivity(unit)

    def changed(self, unit: Unit) -> int:
        if isinstance(unit, NodeBoundedDegree):
            return int(unit.change) * unit.max_degree * self.dim
        return 2 * self.dim

    def describe(self) -> QueryDescription:
        return replace(super().describe(), values_per_node=self.dim)

    def _parameters(self) -> dict[str, object]:
        fields = super()._parameters()
        del fields["similarity"]
        return fields if self.similarity is None else {**fields, "similarity": self.similarity.describe()}

    def prepare(self, data: NeighborSumData, public: PublicInputs) -> PreparedData:
        check_rows(data.vectors, public.num_nodes, self.dim)
        if self.similarity is None:
            reject_if(data.keys is not None, "the query has no similarity weights, so it takes no keys")
            return PreparedData(public, (data.vectors,))
        pairs = self.similarity.prepare(data.vectors if data.keys is None else data.keys)
        check_trusted(pairs, public.num_nodes)
        return PreparedData(public, (data.vectors, *pairs.tables), pairs)

    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        vectors, public = data.arrays[0], data.public
        pairs: PairWeights | None = data.parts
        groups = public.groups if self.groups > 1 else None
        size = self.groups * len(vectors), self.dim  # a copy of all for each group of destinations
        compact = pairs is None and can_compact(self.dim, self.grid_bits)
        memory = private.compact_memory(*size, self.grid_bits) if compact else private.memory(*size)
        table = grid_table(vectors, groups, self, memory)
        noise = RowNoise(
            groups,
            tuple(public.sampler(sigma * self.unit_steps) for sigma in self.sigma),
            (1 / self.unit_steps,) * self.groups,
        )
        longest = FLOAT32_EXACT >> self.contribution_bits
        sums = Sums(table, longest, stride=len(vectors), pairs=pairs)
        return private.rows(NoisyRows(sums, noise, key))

    @property
    def reads_edge_weights(self) -> bool:
        return isinstance(self.similarity, GivenWeight)

    @property
    def groups(self) -> int:
        return self.weights.groups

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
    def unit_steps(self) -> float:
        """Grid steps in a sum of norm one; without a similarity, converting back to vectors is exact."""
        if self.similarity is None:
            return self.vector_steps
        return self.vector_steps * 2.0**WEIGHT_BITS / self.similarity.bound

    @property
    def grid(self) -> NoiseGrid:
        """Sizes on the grid; the largest contribution is exact up to a factor of two."""
        return super().grid._replace(contribution=2.0**self.contribution_bits)

    @property
    def linear_group_scaling(self) -> bool:  # type: ignore[override]
        """Whether k edges of one node may cost k times one edge: False only for equal weights and noise."""
        return not self.weights.symmetric or len(set(self.sigma)) > 1

    def _largest_similarity(self, unit: Unit) -> float:
        if self.similarity is None:
            return 1.0
        if isinstance(unit, NodeUnit):
            raise NotImplementedGuaranteeError(
                f"Similarity weights depend on node features, which unit {unit.name!r} protects. Use "
                "weights='one', or an edge-level unit."
            )
        return self.similarity.bound


def grid_table(
    vectors: Tensor, groups: Tensor | None, query: NeighborSumQuery, table: Tensor | CompactRows | None = None
) -> Tensor | CompactRows:
    """Return the weighted contributions as integers (``truncate_to_grid``), one copy per destination group.

    The memory of a ``table`` of the same shape is reused.
    """
    count = len(vectors)
    table = torch.empty((query.groups * count, query.dim)) if table is None else table
    weights = np.array(query.weights.table) * query.vector_steps
    if isinstance(table, CompactRows):
        _kernels.truncate_rows(vectors, torch.from_numpy(weights), groups, table.rows[:-1])
        return table
    from_group = weights if groups is None else weights[groups.numpy()]  # (1 or rows, into)
    for into, bounds in enumerate(from_group.T):
        out = table[into * count : (into + 1) * count].numpy()
        truncate_to_grid(vectors, bounds, np.square(bounds), out)
    return table

"""Noisy sums of neighbours' vectors, each of norm at most one: a hop."""

from dataclasses import dataclass
from typing import ClassVar

from graphveil import _check
from graphveil.errors import ConfigError, NotYetError
from graphveil.privacy import NodeUnit, PairwiseGaussian, Unit
from graphveil.privacy.unit import NodePromise
from graphveil.release.group_weights import GroupWeights
from graphveil.release.query import GRID_BITS, MAX_DIM, Query, check_noise, grid_steps
from graphveil.weights import Similarity
from graphveil.weights.tables import WEIGHT_BITS

SIMILARITY_GRID_BITS = 9  # of a vector; its weight has WEIGHT_BITS more, and 1,024 of them add up in float32


@dataclass(frozen=True)
class NeighborSumQuery(Query):
    """One noisy row per node: the weighted sum of its in-neighbours' vectors, each of norm at most one.

    ``sigma[h]`` is the noise's standard deviation in rows of group h, in units of a vector of norm one. With
    a ``similarity`` each contribution is also multiplied by w(z_u, z_v), and its bound by w's largest value.
    """

    kind: ClassVar[str] = "rows"
    wire: ClassVar[str] = "HopQuery"

    weights: GroupWeights
    sigma: tuple[float, ...]
    dim: int
    grid_bits: int = GRID_BITS
    similarity: Similarity | None = None

    def __post_init__(self) -> None:
        """Check every field."""
        _check.integer_at_least(1, dim=self.dim)
        _check.within(1, MAX_DIM, dim=self.dim)
        check_noise(self.sigma, self.weights.groups, self.contribution_bits)
        if self.weights.largest == 0:
            raise ConfigError(
                "every weight is zero: the hop would release noise alone; give some pair a weight"
            )

    def event(self, unit: Unit) -> PairwiseGaussian:
        """Return what the hop does to each pair of groups.

        Raises:
            NotYetError: a similarity under a unit of records, where the rows that it reads are not public.
        """
        shifts = self.weights.shifts(unit, tuple(self._largest_similarity(unit) / s for s in self.sigma))
        return PairwiseGaussian(self.weights.partition, tuple(tuple(x * x for x in row) for row in shifts))

    def sensitivity(self, unit: Unit) -> float:
        """Return the L2 sensitivity before noise."""
        return self._largest_similarity(unit) * self.weights.sensitivity(unit)

    def changed(self, unit: Unit) -> int:
        """Return how many coordinates one differing edge, or one node with all its edges, may change."""
        if isinstance(unit, NodePromise):
            return int(unit.change) * unit.max_degree * self.dim
        return 2 * self.dim

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
    def finest(self) -> float:
        """Grid steps in the largest contribution, up to a factor of two."""
        return 2.0**self.contribution_bits

    @property
    def widest(self) -> float:
        """Grid steps in the largest standard deviation of the noise."""
        return max(self.sigma) * self.steps

    @property
    def one_way(self) -> bool:
        """Whether a person's k edges may add up to k times one edge: anything but equal weights and noise."""
        return not self.weights.symmetric or len(set(self.sigma)) > 1

    def _largest_similarity(self, unit: Unit) -> float:
        """Return the similarity's bound, over all ordered pairs."""
        if self.similarity is None:
            return 1.0
        if isinstance(unit, NodeUnit):
            raise NotYetError(
                f"weights by similarity read rows that unit {unit.name!r} protects; use weights='one', or "
                "protect edges"
            )
        return self.similarity.bound

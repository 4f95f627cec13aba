"""Questions about the edges, each with its price: frozen public parameters."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from graphveil import _check
from graphveil.errors import ConfigError, NotYetError, UnitError
from graphveil.privacy import Event, NodeUnit, PairwiseGaussian, Unit
from graphveil.privacy.unit import NodePromise
from graphveil.release.group_weights import GroupWeights
from graphveil.weights.base import Similarity
from graphveil.weights.tables import WEIGHT_BITS

GRID_BITS = 10
SIMILARITY_GRID_BITS = 9  # of a vector; its weight has WEIGHT_BITS more, and 1,024 of them add up in float32
MAX_GRID_BITS = 24  # float32 holds a contribution of one up to here
FLOAT32_EXACT = 1 << 24  # float32 adds integers exactly up to here
MAX_DIM = 1 << 20  # the exact sampler has blocks for so many coordinates of a row


@dataclass(frozen=True)
class Query(ABC):
    """One step of a release. Its fields are public; the data come when it is asked."""

    kind: ClassVar[str]  # of its answer

    @abstractmethod
    def event(self, unit: Unit) -> Event:
        """Return what the query does to what the unit protects; refuse a unit that it has no bound for."""

    @abstractmethod
    def sensitivity(self, unit: Unit) -> float:
        """Return the L2 sensitivity before noise."""

    @abstractmethod
    def changed(self, unit: Unit) -> int:
        """Return how many coordinates may change between neighbours."""

    @property
    @abstractmethod
    def groups(self) -> int:
        """The number of public groups of nodes that the query tells apart."""

    @property
    @abstractmethod
    def noise(self) -> tuple[float, ...]:
        """The noise's standard deviations, one for each kind of row that differs in it."""

    @property
    @abstractmethod
    def finest(self) -> float:
        """Grid steps in the largest contribution: at least so many, in any row."""

    @property
    @abstractmethod
    def widest(self) -> float:
        """Grid steps in the largest standard deviation of the noise that the plan's sampler draws."""

    @property
    def one_way(self) -> bool:
        """Whether a person's k edges may add up to k times one edge."""
        return False


@dataclass(frozen=True)
class HopQuery(Query):
    """One noisy row a node: the weighted sum of its in-neighbours' vectors, each of norm at most one.

    ``sigma[h]`` is the noise's standard deviation in rows of group h, in units of a vector of norm one. With
    a ``similarity`` each contribution is also multiplied by w(z_u, z_v), and its bound by w's largest value.
    """

    kind: ClassVar[str] = "rows"

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


@dataclass(frozen=True)
class CellQuery(Query):
    """Noisy counts of the edges inside the labelled groups, by the classes of their two ends.

    An undirected edge counts once, in one unordered cell; a differing edge moves one cell by one.
    ``sigma`` holds one number, the noise's standard deviation in edges.
    """

    kind: ClassVar[str] = "counts"

    partition: str
    labelled: tuple[bool, ...]
    classes: int
    sigma: tuple[float, ...]
    grid_bits: int = GRID_BITS

    def __post_init__(self) -> None:
        """Check every field."""
        _check.integer_at_least(2, classes=self.classes)
        check_noise(self.sigma, 1, self.grid_bits)

    def event(self, unit: Unit) -> PairwiseGaussian:
        """Return what the counts do to each pair of groups.

        Raises:
            UnitError: under a unit of records, where one record may have edges in every cell.
        """
        if isinstance(unit, NodeUnit):
            raise UnitError(
                f"counts of edges have no bound under unit {unit.name!r}: one record may have an edge to "
                "everybody; leave the counts out, or protect edges"
            )
        cost = self.sigma[0] ** -2
        return PairwiseGaussian(
            self.partition, tuple(tuple(cost * (g and h) for h in self.labelled) for g in self.labelled)
        )

    def sensitivity(self, unit: Unit) -> float:
        """Return 1: one edge, one cell."""
        return 1.0

    def changed(self, unit: Unit) -> int:
        """Return 1: one edge, one cell."""
        return 1

    @property
    def groups(self) -> int:
        """The number of groups that the counts tell apart."""
        return len(self.labelled)

    @property
    def noise(self) -> tuple[float, ...]:
        """The noise's standard deviation in edges."""
        return self.sigma

    @property
    def steps(self) -> float:
        """Grid steps in one edge."""
        return 2.0**self.grid_bits

    @property
    def finest(self) -> float:
        """Grid steps in one edge."""
        return self.steps

    @property
    def widest(self) -> float:
        """Grid steps in the standard deviation of the noise."""
        return self.sigma[0] * self.steps

    @property
    def one_way(self) -> bool:
        """Return True: all of a person's edges may fall into one cell."""
        return True


def grid_steps(largest: float, grid_bits: int) -> float:
    """Return the grid steps in a vector of norm one: a power of two, at most 2^grid_bits in the largest."""
    return 2.0 ** (grid_bits - math.ceil(math.log2(largest)))


def check_noise(sigma: tuple[float, ...], groups: int, grid_bits: int) -> None:
    """Require one positive standard deviation a group, and a grid that the exact sums can hold."""
    if len(sigma) != groups:
        raise ConfigError(f"sigma has {len(sigma)} entries and needs {groups}: one for each group of rows")
    for value in sigma:
        _check.positive(sigma=value)
    _check.integer_at_least(1, grid_bits=grid_bits)
    _check.within(1, MAX_GRID_BITS, grid_bits=grid_bits)

"""Weights by public group: which share of an edge's budget each of its two directions gets."""

import math
from dataclasses import dataclass
from functools import cached_property

from graphveil._util import checks
from graphveil.errors import ConfigError
from graphveil.privacy import Unit


@dataclass(frozen=True)
class GroupWeights:
    """``table[g][h]`` is the weight of a message from a node of group g into a node of group h.

    Groups are public and independent of the edges, so the table may be chosen freely. The squared shift of
    a differing pair combines both directions as its unit says (``docs/guarantees.md``, section 2).

    >>> from graphveil.privacy import UndirectedEdge
    >>> round(GroupWeights.unit_weights().sensitivity(UndirectedEdge()), 6)
    1.414214
    >>> round(GroupWeights.target_weighted().sensitivity(UndirectedEdge()), 6)
    1.0
    """

    partition: str
    table: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        """Check the table."""
        if not self.table:
            raise ConfigError("a weight table needs at least one group")
        for row in self.table:
            if len(row) != len(self.table):
                raise ConfigError("a weight table must be square: one row and one column a group")
            for weight in row:
                checks.within(0, 1, weight=weight)

    @classmethod
    def unit_weights(cls) -> "GroupWeights":
        """Return weight one for every edge, in both directions."""
        return cls("all", ((1.0,),))

    @classmethod
    def target_weighted(cls) -> "GroupWeights":
        """Return the table that spends a pair's budget on the end that needs it: train, val, target.

        A labeled node sends to a target at full weight and hears nothing back; between equals each
        direction gets 1/sqrt 2. Every pair's squared weights sum to at most one.
        """
        s = math.sqrt(0.5)
        return cls("train/val/target", ((s, 1.0, 1.0), (0.0, s, 1.0), (0.0, 0.0, s)))

    @classmethod
    def few_labels(cls, reverse_weight: float) -> "GroupWeights":
        """Return the table for few labels: targets also speak to labeled nodes, with the reverse weight."""
        checks.within(0, 1, reverse_weight=reverse_weight)
        s, forward = math.sqrt(0.5), math.sqrt(1 - reverse_weight**2)
        return cls(
            "train/val/target", ((s, s, forward), (s, s, forward), (reverse_weight, reverse_weight, s))
        )

    @classmethod
    def equal(cls, partition: str, groups: int) -> "GroupWeights":
        """Return weight one between all groups of a partition."""
        return cls(partition, ((1.0,) * groups,) * groups)

    @property
    def groups(self) -> int:
        """The number of groups."""
        return len(self.table)

    @cached_property
    def largest(self) -> float:
        """The largest weight: the norm bound of one contribution."""
        return max(max(row) for row in self.table)

    @property
    def symmetric(self) -> bool:
        """Whether both directions of every edge weigh the same."""
        return all(self.table[g][h] == self.table[h][g] for g in self._groups for h in self._groups)

    def shifts(self, unit: Unit, scale: tuple[float, ...] | None = None) -> tuple[tuple[float, ...], ...]:
        """Return the shift of one differing edge by pair of groups; ``scale[h]`` multiplies rows of h."""
        by = scale or (1.0,) * len(self.table)
        return tuple(
            tuple(
                unit.pair_sensitivity(self.table[g][h] * by[h], self.table[h][g] * by[g])
                for h in self._groups
            )
            for g in self._groups
        )

    def sensitivity(self, unit: Unit) -> float:
        """Return the L2 sensitivity of the weighted sum: the worst pair of groups."""
        return max(max(row) for row in self.shifts(unit))

    @property
    def _groups(self) -> range:
        return range(len(self.table))

"""Noisy counts of edges by the classes of their two ends."""

from dataclasses import dataclass
from typing import ClassVar

from graphveil import _check
from graphveil.errors import UnitError
from graphveil.privacy import NodeUnit, PairwiseGaussian, Unit
from graphveil.release.query import GRID_BITS, Query, check_noise


@dataclass(frozen=True)
class EdgeCountQuery(Query):
    """Noisy counts of the edges inside the labelled groups, by the classes of their two ends.

    An undirected edge counts once, in one unordered cell; a differing edge moves one cell by one.
    ``sigma`` holds one number, the noise's standard deviation in edges.
    """

    kind: ClassVar[str] = "counts"
    wire: ClassVar[str] = "CellQuery"

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

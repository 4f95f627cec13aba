"""The contract of a query: frozen public parameters, with what asking costs."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from graphveil import _check
from graphveil.errors import ConfigError, UnitError
from graphveil.privacy import ByGroup, Composed, Event, NodeUnit, Unit

GRID_BITS = 10
MAX_GRID_BITS = 24  # float32 holds a contribution of one up to here
FLOAT32_EXACT = 1 << 24  # float32 adds integers exactly up to here
MAX_DIM = 1 << 20  # the exact sampler has blocks for so many coordinates of a row


@dataclass(frozen=True)
class Query(ABC):
    """One step of a release. Its fields are public; the data come when it is asked."""

    kind: ClassVar[str]  # of its answer
    wire: ClassVar[str]  # its name in what keys are derived from: it stays, whatever the class is called

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


def of_records(unit: Unit) -> NodeUnit:
    """Return a unit of records; refuse others."""
    if not isinstance(unit, NodeUnit):
        raise UnitError(
            f"unit {unit.name!r} does not protect records: features and labels are public there and need no "
            "noise; use a unit of records, or none of this"
        )
    return unit


def by_group(partition: str, pays: tuple[bool, ...], event: Event) -> Event:
    """Return what a step costs each group; groups that do not pay are not touched."""
    if all(pays):
        return event
    return ByGroup(partition, tuple(event if one else Composed(()) for one in pays))


def check_pays(pays: tuple[bool, ...]) -> None:
    """Require a group whose records are read."""
    if not any(pays):
        raise ConfigError(f"pays={pays!r} must name a group whose records are read")

"""The unit of protection: what may differ between two neighbouring graphs, and how changes combine.

A unit is chosen once, by name, and everything that depends on it (sensitivity, wording, defaults) asks it.
Docs: ``docs/guarantees.md``, sections 1 and 2.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from graphveil._check import suggestion
from graphveil.errors import NotYetError, UnitError


@dataclass(frozen=True)
class Unit(ABC):
    """What may differ between two neighbouring graphs of the same shape (rows are never added or removed)."""

    name: ClassVar[str]
    delta_cap: ClassVar[float]
    covers: ClassVar[str]
    not_covered: ClassVar[str]

    @abstractmethod
    def pair_shift(self, forward: float, backward: float) -> float:
        """Combine the L2 changes of two rows, u's into v's and v's into u's, over the whole release."""


@dataclass(frozen=True)
class UndirectedEdge(Unit):
    """One friendship: both stored directions of one pair may be present or absent together.

    Both end rows change, so the two changes add in squares.

    >>> round(UndirectedEdge().pair_shift(1.0, 1.0), 6)
    1.414214
    """

    name: ClassVar[str] = "undirected-edge"
    delta_cap: ClassVar[float] = 1e-7
    covers: ClassVar[str] = "the presence of any one undirected edge"
    not_covered: ClassVar[str] = "who is in the data, features, labels, splits"

    def pair_shift(self, forward: float, backward: float) -> float:
        """Return sqrt(forward^2 + backward^2)."""
        return math.hypot(forward, backward)


@dataclass(frozen=True)
class DirectedEdge(Unit):
    """One stored edge u -> v: only v's row changes.

    >>> DirectedEdge().pair_shift(1.0, 0.5)
    1.0
    """

    name: ClassVar[str] = "directed-edge"
    delta_cap: ClassVar[float] = 1e-7
    covers: ClassVar[str] = "the presence of any one stored directed edge"
    not_covered: ClassVar[str] = "who is in the data, features, labels, splits; a mutual edge counts twice"

    def pair_shift(self, forward: float, backward: float) -> float:
        """Return the larger change: the two directions are two separate edges."""
        return max(forward, backward)


@dataclass(frozen=True)
class NoUnit(Unit):
    """No protection at all: the non-private reference."""

    name: ClassVar[str] = "none"
    delta_cap: ClassVar[float] = 1.0
    covers: ClassVar[str] = "nothing"
    not_covered: ClassVar[str] = "everything"

    def pair_shift(self, forward: float, backward: float) -> float:
        """Return infinity: nothing bounds an unprotected change."""
        return math.inf


UNITS: dict[str, type[Unit]] = {unit.name: unit for unit in (UndirectedEdge, DirectedEdge, NoUnit)}
LATER_UNITS = ("node-owner", "node-promise", "node-features", "private-slot-edge")


def parse_unit(name: str | None) -> Unit:
    """Return the unit of this name; a missing or unknown name is an error that lists the choices.

    >>> parse_unit("undirected-edge")
    UndirectedEdge()
    """
    if name is None:
        raise UnitError(
            "no unit of protection was given, and it is never guessed: pass unit= (or --unit) as one of "
            f"{', '.join(UNITS)}"
        )
    if name in LATER_UNITS:
        raise NotYetError(f"unit {name!r} is not available in this version; available are {', '.join(UNITS)}")
    if name not in UNITS:
        raise UnitError(
            f"unit {name!r} is not one of {', '.join((*UNITS, *LATER_UNITS))}{suggestion(name, UNITS)}"
        )
    return UNITS[name]()

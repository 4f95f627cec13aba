"""Test doubles: noise that is zero, so that the shipped path shows what it sums, and a book that forgets."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from graphveil._random import RowStream
from graphveil.mechanisms import IntegerNoise
from graphveil.mechanisms.discrete_laplace import DiscreteLaplace
from graphveil.privacy import Unit
from graphveil.release import NeighborCountQuery, ReleasePlan
from graphveil.release.plan import Query

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class NoNoise(IntegerNoise):
    """Draws zero, and notes what it was asked for."""

    asked: ClassVar[list[tuple[float, tuple[int, ...], int]]] = []

    def slack(self, *, epsilon: float, delta: float, changed: int) -> float:
        """Cost nothing: nothing of it is ever published."""
        return 0.0

    def draw(self, stream: RowStream, rows: Rows, dim: int) -> npt.NDArray[np.signedinteger[Any]]:
        """Return zeros."""
        self.asked.append((self.sigma, tuple(rows.tolist()), dim))
        return np.zeros((len(rows), dim), dtype=np.int64)


class SilentLaplace(DiscreteLaplace):
    """The law of a discrete Laplace that draws zero."""

    def draw(self, stream: RowStream, rows: Rows, dim: int = 1) -> npt.NDArray[np.int64]:
        """Return zeros."""
        return np.zeros((len(rows), dim), dtype=np.int64)


class SilentCounts(NeighborCountQuery):
    """Counts of neighbours as they are."""

    @property
    def law(self) -> SilentLaplace:
        """The law of the noise, which draws none."""
        return SilentLaplace(self.epsilon)


def unnoised(unit: Unit, queries: tuple[Query, ...]) -> ReleasePlan:
    """Return the plan whose answers are the sums themselves."""
    silent = tuple(
        SilentCounts(**vars(query)) if isinstance(query, NeighborCountQuery) else query for query in queries
    )
    return ReleasePlan(unit, silent, delta=1e-3, sampler=NoNoise)

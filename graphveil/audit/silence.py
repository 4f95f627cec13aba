"""Noise that is zero, so that the release path shows what it sums; nothing of it is ever published."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from graphveil._random import RowStream
from graphveil.mechanisms import IntegerNoise
from graphveil.mechanisms.discrete_laplace import DiscreteLaplace
from graphveil.privacy import Unit
from graphveil.release import NeighborCountQuery, ReleasePlan
from graphveil.release.query import Query


@dataclass(frozen=True)
class NoNoise(IntegerNoise):
    """Draws zero."""

    def slack(self, *, epsilon: float, delta: float, changed: int) -> float:
        """Cost nothing."""
        return 0.0

    def draw(
        self, stream: RowStream, rows: npt.NDArray[np.int64], dim: int
    ) -> npt.NDArray[np.signedinteger[Any]]:
        """Return zeros."""
        return np.zeros((len(rows), dim), dtype=np.int64)


class _SilentLaplace(DiscreteLaplace):
    """The law of a discrete Laplace that draws zero."""

    def draw(self, stream: RowStream, rows: npt.NDArray[np.int64], dim: int = 1) -> npt.NDArray[np.int64]:
        """Return zeros."""
        return np.zeros((len(rows), dim), dtype=np.int64)


class SilentCounts(NeighborCountQuery):
    """Counts of neighbours as they are."""

    @property
    def law(self) -> _SilentLaplace:
        """The law of the noise, which draws none."""
        return _SilentLaplace(self.epsilon)


def silent(unit: Unit, query: Query) -> ReleasePlan:
    """Return the plan that answers one query without noise."""
    if isinstance(query, NeighborCountQuery):
        query = SilentCounts(**vars(query))
    return ReleasePlan(unit, (query,), delta=1e-3, sampler=NoNoise)


def alone(plan: ReleasePlan, query: Query) -> ReleasePlan:
    """Return the plan that answers one query of a plan as that plan does."""
    return replace(plan, queries=(query,), slack=0.0)

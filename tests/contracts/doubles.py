"""Test doubles: noise that is zero, so that the shipped path shows what it sums, and notes what was asked."""

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from graphveil._random import RowStream
from graphveil.audit import silence
from graphveil.privacy import Unit
from graphveil.release import NeighborCountQuery, ReleasePlan
from graphveil.release.plan import Query

Rows = npt.NDArray[np.int64]


class NoNoise(silence.NoNoise):
    """Draws zero, and notes what it was asked for."""

    asked: ClassVar[list[tuple[float, tuple[int, ...], int]]] = []

    def draw(self, stream: RowStream, rows: Rows, dim: int) -> npt.NDArray[np.signedinteger[Any]]:
        """Return zeros."""
        self.asked.append((self.sigma, tuple(rows.tolist()), dim))
        return super().draw(stream, rows, dim)


def unnoised(unit: Unit, queries: tuple[Query, ...]) -> ReleasePlan:
    """Return the plan whose answers are the sums themselves."""
    silent = tuple(
        silence.SilentCounts(**vars(query)) if isinstance(query, NeighborCountQuery) else query
        for query in queries
    )
    return ReleasePlan(unit, silent, delta=1e-3, sampler=NoNoise)

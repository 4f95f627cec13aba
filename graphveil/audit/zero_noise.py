"""Noise that is zero, so that the release path shows what it sums; nothing of it is ever published."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil._util.random import RowStream
from graphveil.mechanisms import IntegerNoise, StepNoise
from graphveil.mechanisms.discrete_laplace import DiscreteLaplace
from graphveil.privacy import Unit
from graphveil.release import (
    BlockCountQuery,
    EdgeAttentionQuery,
    EdgeResponseQuery,
    EdgeTotalQuery,
    NeighborCountQuery,
    ReleasePlan,
)
from graphveil.release.query import Query

_CERTAIN = 40.0  # an epsilon at which a slot tells the truth but once in e^40

Draw = tuple[float, tuple[int, ...], int]  # of what standard deviation, for which rows, how many each


@dataclass(frozen=True)
class ZeroNoise(IntegerNoise):
    """Draws zero."""

    def slack(self, *, epsilon: float, delta: float, changed: int) -> float:
        """Cost nothing."""
        return 0.0

    def draw(
        self, stream: RowStream, rows: npt.NDArray[np.int64], dim: int
    ) -> npt.NDArray[np.signedinteger[Any]]:
        """Return zeros."""
        return np.zeros((len(rows), dim), dtype=np.int64)


class RecordingZeroNoise(ZeroNoise):
    """Draws zero, and notes what it was asked for: make a class of your own for each list of notes."""

    drawn: ClassVar[list[Draw]]

    @classmethod
    def with_new_list(cls) -> "type[RecordingZeroNoise]":
        """Return a sampler with an empty list.

        >>> sampler = RecordingZeroNoise.with_new_list()
        >>> sampler(2.0).draw(RowStream(bytes(32)), np.arange(2), 3).tolist(), sampler.drawn
        ([[0, 0, 0], [0, 0, 0]], [(2.0, (0, 1), 3)])
        """
        return type("RecordingZeroNoise", (cls,), {"drawn": []})

    def draw(
        self, stream: RowStream, rows: npt.NDArray[np.int64], dim: int
    ) -> npt.NDArray[np.signedinteger[Any]]:
        """Return zeros."""
        self.drawn.append((self.sigma, tuple(rows.tolist()), dim))
        return super().draw(stream, rows, dim)


class _ZeroLaplace(DiscreteLaplace):
    """The law of a discrete Laplace that draws zero."""

    def draw(self, stream: RowStream, rows: npt.NDArray[np.int64], dim: int = 1) -> npt.NDArray[np.int64]:
        """Return zeros."""
        return np.zeros((len(rows), dim), dtype=np.int64)


class _ZeroNoiseQuery:
    """A query whose discrete Laplace draws none."""

    epsilon: float

    @property
    def law(self) -> DiscreteLaplace:
        """The law of the noise, which draws none."""
        return _ZeroLaplace(self.epsilon)


class _ZeroNoiseCounts(_ZeroNoiseQuery, NeighborCountQuery):
    """Counts of neighbors as they are."""


class _ZeroNoiseTotal(_ZeroNoiseQuery, EdgeTotalQuery):
    """The number of edges as it is."""


class _ZeroNoiseBlocks(_ZeroNoiseQuery, BlockCountQuery):
    """Counts of blocks as they are."""


class _ZeroNoiseSteps(StepNoise):
    """Steps without noise, everything in every batch."""

    def batch(self, step: int, count: int) -> Tensor:
        """Return all of them."""
        return torch.arange(count)

    def noise(self, step: int) -> npt.NDArray[np.int64]:
        """Return zeros."""
        return np.zeros(self.parameters, dtype=np.int64)


class _ZeroNoiseAttention(EdgeAttentionQuery):
    """Steps on edges without noise."""

    def randomness(self, key: bytes) -> StepNoise:
        """Return noise that is none."""
        return _ZeroNoiseSteps(
            key,
            parameters=self.parameters,
            noise_multiplier=self.noise_multiplier,
            sampling_rate=self.sampling_rate,
        )


def _without_noise(query: Query) -> Query:
    """Return a query without the noise that it draws itself."""
    kinds: dict[type[Query], type[Query]] = {
        NeighborCountQuery: _ZeroNoiseCounts,
        EdgeTotalQuery: _ZeroNoiseTotal,
        BlockCountQuery: _ZeroNoiseBlocks,
        EdgeAttentionQuery: _ZeroNoiseAttention,
    }
    if isinstance(query, EdgeResponseQuery):
        return replace(query, epsilon=_CERTAIN)
    kind = kinds.get(type(query))
    return query if kind is None else kind(**vars(query))


def zero_noise_plan(
    unit: Unit, queries: tuple[Query, ...], sampler: type[IntegerNoise] = ZeroNoise, *, delta: float = 1e-3
) -> ReleasePlan:
    """Return the plan whose answers are the sums themselves, of every query whose noise is added to one."""
    return ReleasePlan(unit, tuple(map(_without_noise, queries)), delta=delta, sampler=sampler)


@lru_cache(maxsize=64)
def single_query_plan(plan: ReleasePlan, query: Query) -> ReleasePlan:
    """Return the plan that answers one query of a plan as that plan does."""
    return replace(plan, queries=(query,), slack=0.0)

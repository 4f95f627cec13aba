"""Noise that is zero, so that the release path returns its exact sums. Nothing of it is ever published."""

from dataclasses import dataclass, replace
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

_CERTAIN = 40.0  # an epsilon at which a node pair is reported wrongly with probability e^-40

Draw = tuple[float, tuple[int, ...], int]  # standard deviation, rows, and numbers in each row


@dataclass(frozen=True)
class ZeroNoise(IntegerNoise):
    """Draws zero."""

    def slack(self, *, epsilon: float, delta: float, changed: int) -> float:
        """Return zero."""
        return 0.0

    def draw(
        self, stream: RowStream, rows: npt.NDArray[np.int64], dim: int
    ) -> npt.NDArray[np.signedinteger[Any]]:
        """Return zeros."""
        return np.zeros((len(rows), dim), dtype=np.int64)


class RecordingZeroNoise(ZeroNoise):
    """Draws zero and records the requests, in a separate list for each class (``with_new_list``)."""

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
    """A query whose discrete Laplace noise is zero."""

    epsilon: float

    @property
    def law(self) -> DiscreteLaplace:
        """The law of the noise, which draws none."""
        return _ZeroLaplace(self.epsilon)


class _ZeroNoiseCounts(_ZeroNoiseQuery, NeighborCountQuery):
    """Counts of neighbors without noise."""


class _ZeroNoiseTotal(_ZeroNoiseQuery, EdgeTotalQuery):
    """The number of edges without noise."""


class _ZeroNoiseBlocks(_ZeroNoiseQuery, BlockCountQuery):
    """Counts of blocks without noise."""


class ZeroNoiseSteps(StepNoise):
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
        """Return zero noise."""
        return ZeroNoiseSteps(
            key,
            parameters=self.parameters,
            noise_multiplier=self.noise_multiplier,
            sampling_rate=self.sampling_rate,
        )


_OWN_NOISE: dict[type[Query], type[Query]] = {  # queries that draw their noise themselves, and without it
    NeighborCountQuery: _ZeroNoiseCounts,
    EdgeTotalQuery: _ZeroNoiseTotal,
    BlockCountQuery: _ZeroNoiseBlocks,
    EdgeAttentionQuery: _ZeroNoiseAttention,
}


def zero_noise_plan(
    unit: Unit, queries: tuple[Query, ...], sampler: type[IntegerNoise] = ZeroNoise, *, delta: float = 1e-3
) -> ReleasePlan:
    """Return the plan whose answers are the exact sums, for every query that adds noise to a sum."""
    exact: list[Query] = []
    for query in queries:
        if isinstance(query, EdgeResponseQuery):
            exact.append(replace(query, epsilon=_CERTAIN))
        elif kind := _OWN_NOISE.get(type(query)):
            exact.append(kind(**vars(query)))
        else:
            exact.append(query)
    return ReleasePlan(unit, tuple(exact), delta=delta, sampler=sampler)

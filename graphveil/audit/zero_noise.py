"""Zero noise: the release path returns its exact sums. Audits alone use it, and no result is published."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphveil.core.noise.discrete_gaussian import IntegerNoise
from graphveil.core.noise.discrete_laplace import DiscreteLaplace
from graphveil.core.noise.node_pair_noise import EdgeRandomizedResponse
from graphveil.core.noise.random import RowStream
from graphveil.core.noise.steps import StepNoise
from graphveil.core.plan import ReleasePlan
from graphveil.core.private_edges import PrivateEdges
from graphveil.core.query import Query
from graphveil.core.unit import Unit

_CERTAIN = 40.0  # an epsilon at which a node pair is reported wrongly with probability e^-40

Draw = tuple[float, tuple[int, ...], int]  # standard deviation, rows, and numbers in each row


@dataclass(frozen=True)
class ZeroNoise(IntegerNoise):
    """Sampler that draws zero."""

    def slack(self, *, epsilon: float, delta: float, changed: int) -> float:
        """Return zero."""
        return 0.0

    def draw(
        self, stream: RowStream, rows: npt.NDArray[np.int64], dim: int
    ) -> npt.NDArray[np.signedinteger[Any]]:
        """Return zeros."""
        return np.zeros((len(rows), dim), dtype=np.int64)


@dataclass(frozen=True)
class RecordingZeroNoise(IntegerNoise):
    """Sampler that draws zero and records each request, in one list per class (``with_new_list``)."""

    drawn: ClassVar[list[Draw]]

    @classmethod
    def with_new_list(cls) -> "type[RecordingZeroNoise]":
        """Return a sampler with an empty list.

        >>> sampler = RecordingZeroNoise.with_new_list()
        >>> sampler(2.0).draw(RowStream(bytes(32)), np.arange(2), 3).tolist(), sampler.drawn
        ([[0, 0, 0], [0, 0, 0]], [(2.0, (0, 1), 3)])
        """
        return type("RecordingZeroNoise", (cls,), {"drawn": []})

    def slack(self, *, epsilon: float, delta: float, changed: int) -> float:
        """Return zero."""
        return 0.0

    def draw(
        self, stream: RowStream, rows: npt.NDArray[np.int64], dim: int
    ) -> npt.NDArray[np.signedinteger[Any]]:
        """Record the request and return zeros."""
        self.drawn.append((self.sigma, tuple(rows.tolist()), dim))
        return np.zeros((len(rows), dim), dtype=np.int64)


class ZeroNoiseSteps(StepNoise):
    """Training steps without noise, with every record in every batch."""

    def batch(self, step: int, count: int) -> Tensor:
        """Return all indices."""
        return torch.arange(count)

    def noise(self, step: int) -> npt.NDArray[np.int64]:
        """Return zeros."""
        return np.zeros(self.parameters, dtype=np.int64)


class _ZeroLaplace(DiscreteLaplace):
    """Discrete Laplace law that draws zero."""

    def draw(self, stream: RowStream, rows: npt.NDArray[np.int64], dim: int = 1) -> npt.NDArray[np.int64]:
        return np.zeros((len(rows), dim), dtype=np.int64)


class _WithoutOwnNoise:
    """Proxy of a query that draws its noise itself, instead of using the plan's sampler.

    The query's own code computes the answer, with the proxy as ``self``. Only the two sources of noise
    differ: ``law``, and ``randomness`` for training steps.
    """

    def __init__(self, query: Any) -> None:
        self._query = query

    def __getattr__(self, name: str) -> Any:
        return getattr(self._query, name)

    @property
    def law(self) -> DiscreteLaplace | EdgeRandomizedResponse | None:
        """The law of the query's own noise, without noise."""
        match self._query.law:
            case DiscreteLaplace(epsilon=epsilon):
                return _ZeroLaplace(epsilon)
            case EdgeRandomizedResponse():
                return EdgeRandomizedResponse(_CERTAIN)
        return None

    def randomness(self, key: bytes) -> StepNoise:
        """Return the batches and the noise of training steps."""
        return ZeroNoiseSteps(
            key,
            parameters=self._query.parameters,
            noise_multiplier=self._query.noise_multiplier,
            sampling_rate=self._query.sampling_rate,
        )

    def answer(self, private: PrivateEdges, data: Any, key: bytes) -> Any:
        return type(self._query).answer(self, private, data, key)


def zero_noise_plan(
    unit: Unit, queries: tuple[Query, ...], sampler: type[IntegerNoise] = ZeroNoise
) -> ReleasePlan:
    """Return the plan whose answers are the exact sums, for every query that adds noise to a sum."""
    exact: list[Any] = [_WithoutOwnNoise(query) if query.exact_noise else query for query in queries]
    return ReleasePlan(unit, tuple(exact), delta=1e-3, sampler=sampler)

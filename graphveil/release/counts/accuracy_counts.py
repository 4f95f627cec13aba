"""Noisy counts of correctly classified records: to choose a candidate, or to publish."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from graphveil import _check
from graphveil._random import RowStream
from graphveil.errors import ReleaseError
from graphveil.mechanisms import IntegerNoise
from graphveil.privacy import Event, Gaussian, Unit
from graphveil.release.private_edges import PrivateEdges
from graphveil.release.query import (
    GRID_BITS,
    MAX_DIM,
    Data,
    Prepared,
    Public,
    Query,
    by_group,
    check_noise,
    check_pays,
    of_records,
)


@dataclass(frozen=True, eq=False, repr=False)
class AccuracyCountData(Data[Tensor]):
    """Whether each candidate classifies each record of a paying group correctly: bool (M, candidates).

    The answer is float64, shape (candidates).
    """

    correct: Tensor


@dataclass(frozen=True, kw_only=True)
class AccuracyCountQuery(Query):
    """How many of some records each candidate classifies correctly, noisy: to choose one, or to publish.

    Guarantee (units of records): a record that ``pays`` changes each count by at most one, whether it is
    nulled or replaced, so the counts move by at most sqrt(candidates): mu = sqrt(candidates) / sigma.

    Args:
        candidates: how many counts.
        sigma: the noise's standard deviation, in records.
        partition: the name of the public groups of records.
        pays: by group, whether its records are counted.
        grid_bits: one record is 2^grid_bits grid steps.

    Raises:
        ConfigError: a field is outside its range.

    >>> from graphveil.privacy import NodeOwner
    >>> AccuracyCountQuery(candidates=4, sigma=10.0).event(NodeOwner())
    Gaussian(mu=0.2)
    """

    kind: ClassVar[str] = "tally"
    wire: ClassVar[str] = "TallyQuery"
    stage: ClassVar[str] = "tally"
    data: ClassVar[type[AccuracyCountData]] = AccuracyCountData
    reads_edges: ClassVar[bool] = False

    candidates: int
    sigma: float
    partition: str = "records"
    pays: tuple[bool, ...] = (True,)
    grid_bits: int = GRID_BITS

    def __post_init__(self) -> None:
        """Check every field."""
        _check.integer_at_least(1, candidates=self.candidates)
        _check.within(1, MAX_DIM, candidates=self.candidates)
        check_noise((self.sigma,), 1, self.grid_bits)
        check_pays(self.pays)

    def event(self, unit: Unit) -> Event:
        """Return one Gaussian for every record that pays.

        Raises:
            UnitError: the unit is not about records.
        """
        return by_group(self.partition, self.pays, Gaussian(self.sensitivity(unit) / self.sigma))

    def sensitivity(self, unit: Unit) -> float:
        """Return sqrt(candidates), under either relation."""
        of_records(unit)
        return math.sqrt(self.candidates)

    def changed(self, unit: Unit) -> int:
        """Return the number of counts."""
        return self.candidates

    def prepare(self, data: AccuracyCountData, public: Public) -> Prepared:
        """Check the table."""
        correct = data.correct
        if correct.dtype != torch.bool or correct.ndim != 2 or correct.shape[1] != self.candidates:
            raise ReleaseError(
                f"the plan's tally takes a table of bool with {self.candidates} columns, one for each "
                "candidate; the release stays booked"
            )
        return Prepared(public, (correct,))

    def answer(self, private: PrivateEdges, data: Prepared, key: bytes) -> Tensor:
        """Return noisy counts."""
        return noisy_tally(data.arrays[0], self, data.public.sampler(self.widest), RowStream(key))

    @property
    def groups(self) -> int:
        """The number of groups of records."""
        return len(self.pays)

    @property
    def noise(self) -> tuple[float, ...]:
        """The noise's standard deviation."""
        return (self.sigma,)

    @property
    def steps(self) -> float:
        """Grid steps in one record."""
        return 2.0**self.grid_bits

    @property
    def finest(self) -> float:
        """Grid steps in one record."""
        return self.steps

    @property
    def narrowest(self) -> float:
        """Grid steps in the noise's standard deviation."""
        return self.sigma * self.steps

    @property
    def widest(self) -> float:
        """Grid steps in the noise's standard deviation."""
        return self.sigma * self.steps


def noisy_tally(correct: Tensor, query: AccuracyCountQuery, noise: IntegerNoise, stream: RowStream) -> Tensor:
    """Return the noisy counts, float64; the exact ones live and die here."""
    counts = correct.sum(dim=0).numpy()
    drawn = noise.draw(stream, np.arange(query.candidates), 1)[:, 0]
    return torch.from_numpy((counts * int(query.steps) + drawn) / query.steps)

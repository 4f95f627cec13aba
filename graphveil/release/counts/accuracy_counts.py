"""Noisy counts of correctly classified records: to choose a candidate, or to publish."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from graphveil._util import checks
from graphveil._util.random import RowStream
from graphveil.errors import ReleaseError
from graphveil.privacy import Unit
from graphveil.release.counts.record_counts import RecordCountQuery, noisy_counts
from graphveil.release.private_edges import PrivateEdges
from graphveil.release.query import MAX_DIM, PreparedData, PublicInputs, QueryData, require_record_unit


@dataclass(frozen=True, eq=False, repr=False)
class AccuracyCountData(QueryData[Tensor]):
    """Whether each candidate classifies each record of a paying group correctly: bool (M, candidates).

    The answer is float64, shape (candidates).
    """

    correct: Tensor


@dataclass(frozen=True, kw_only=True)
class AccuracyCountQuery(RecordCountQuery):
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

    >>> from graphveil.privacy import NodeRecord
    >>> AccuracyCountQuery(candidates=4, sigma=10.0).event(NodeRecord())
    Gaussian(mu=0.2)
    """

    kind: ClassVar[str] = "tally"
    wire_name: ClassVar[str] = "TallyQuery"
    stage: ClassVar[str] = "tally"
    data: ClassVar[type[AccuracyCountData]] = AccuracyCountData

    candidates: int

    def __post_init__(self) -> None:
        """Check every field."""
        checks.integer_at_least(1, candidates=self.candidates)
        checks.within(1, MAX_DIM, candidates=self.candidates)
        super().__post_init__()

    def sensitivity(self, unit: Unit) -> float:
        """Return sqrt(candidates), under either relation."""
        require_record_unit(unit)
        return math.sqrt(self.candidates)

    def changed(self, unit: Unit) -> int:
        """Return the number of counts."""
        return self.candidates

    def prepare(self, data: AccuracyCountData, public: PublicInputs) -> PreparedData:
        """Check the table."""
        correct = data.correct
        if correct.dtype != torch.bool or correct.ndim != 2 or correct.shape[1] != self.candidates:
            raise ReleaseError(
                f"the plan's tally takes a table of bool with {self.candidates} columns, one for each "
                "candidate; the release stays charged"
            )
        return PreparedData(public, (correct,))

    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        """Return the noisy counts, float64; the exact ones live and die here."""
        (correct,) = data.arrays
        noise = data.public.sampler(self.max_noise_steps)
        return noisy_counts(correct.sum(dim=0).numpy(), self.steps, noise, RowStream(key))

"""Noisy counts of records that are classified correctly and of those that are not: an accuracy to publish."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from graphveil._util.random import RowStream
from graphveil.errors import ReleaseError
from graphveil.privacy import Unit
from graphveil.release.counts.record_counts import RecordCountQuery, noisy_counts
from graphveil.release.private_edges import PrivateEdges
from graphveil.release.query import PreparedData, PublicInputs, QueryData, require_record_unit

_COUNTS = 2  # of correct ones, and of wrong ones


@dataclass(frozen=True, eq=False, repr=False)
class OutcomeCountData(QueryData[Tensor]):
    """Which records of a paying group have a label that is predicted, and which another one: bool (M), each.

    A record without a label is neither. The answer is float64, shape (2).
    """

    correct: Tensor
    wrong: Tensor


@dataclass(frozen=True, kw_only=True)
class OutcomeCountQuery(RecordCountQuery):
    """How many of some records are classified correctly and how many wrongly, noisy.

    An accuracy has a numerator and a denominator, and under a unit of records both are secret: who has a
    label is part of a record. Correct and wrong ones are one histogram, which is cheaper than to count the
    correct among the labeled: a record stands in one of its bars at most.

    Guarantee (units of records): a record that ``pays`` moves one count by one if it is nulled, and both if
    it is replaced: mu = 1 / sigma, or sqrt(2) / sigma. A record that the table has in both bars is in none.

    Args:
        sigma: the noise's standard deviation, in records, of each count.
        partition: the name of the public groups of records.
        pays: by group, whether its records are counted.
        grid_bits: one record is 2^grid_bits grid steps.

    Raises:
        ConfigError: a field is outside its range.

    >>> from graphveil.privacy import NodeRecord
    >>> OutcomeCountQuery(sigma=10.0).event(NodeRecord())
    Gaussian(mu=0.1)
    >>> round(OutcomeCountQuery(sigma=10.0).sensitivity(NodeRecord(replace_one=True)), 6)
    1.414214
    """

    kind: ClassVar[str] = "outcomes"
    wire_name: ClassVar[str] = "OutcomeCountQuery"
    stage: ClassVar[str] = "outcomes"
    data: ClassVar[type[OutcomeCountData]] = OutcomeCountData

    def sensitivity(self, unit: Unit) -> float:
        """Return 1 where a record is nulled, and sqrt(2) where it may go from one bar to the other."""
        return math.sqrt(require_record_unit(unit).change)

    def changed(self, unit: Unit) -> int:
        """Return the number of counts."""
        return _COUNTS

    def prepare(self, data: OutcomeCountData, public: PublicInputs) -> PreparedData:
        """Check the table."""
        tables = (data.correct, data.wrong)
        known = data.correct.shape == data.wrong.shape
        if not known or any(table.dtype != torch.bool or table.ndim != 1 for table in tables):
            raise ReleaseError(
                "the plan's counts take two columns of bool of one length, which records are classified "
                "correctly and which wrongly; the release stays charged"
            )
        return PreparedData(public, tables)

    def answer(self, private: PrivateEdges, data: PreparedData, key: bytes) -> Tensor:
        """Return the noisy counts, float64; the exact ones live and die here."""
        correct, wrong = data.arrays
        exact = np.array([int((correct & ~wrong).sum()), int((wrong & ~correct).sum())])
        noise = data.public.sampler(self.max_noise_steps)
        return noisy_counts(exact, self.steps, noise, RowStream(key))

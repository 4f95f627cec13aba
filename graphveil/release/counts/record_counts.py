"""What counts of records have in common: who pays for them, and their noise."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from graphveil._util.random import Integers, RowStream
from graphveil.mechanisms import IntegerNoise
from graphveil.privacy import Event, Gaussian, Unit
from graphveil.release.query import GRID_BITS, Query, by_group, check_noise, check_pays


@dataclass(frozen=True, kw_only=True)
class RecordCountQuery(Query):
    """A few numbers of records, noisy, under units of records.

    Args:
        sigma: the noise's standard deviation, in records, of each count.
        partition: the name of the public groups of records.
        pays: by group, whether its records are counted.
        grid_bits: one record is 2^grid_bits grid steps.
    """

    reads_edges: ClassVar[bool] = False

    sigma: float
    partition: str = "records"
    pays: tuple[bool, ...] = (True,)
    grid_bits: int = GRID_BITS

    def __post_init__(self) -> None:
        """Check every field."""
        check_noise((self.sigma,), 1, self.grid_bits)
        check_pays(self.pays)

    def event(self, unit: Unit) -> Event:
        """Return one Gaussian for every record that pays.

        Raises:
            UnitError: the unit is not about records.
        """
        return by_group(self.partition, self.pays, Gaussian(self.sensitivity(unit) / self.sigma))

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
    def contribution_steps(self) -> float:
        """Grid steps in one record."""
        return self.steps

    @property
    def min_noise_steps(self) -> float:
        """Grid steps in the noise's standard deviation."""
        return self.sigma * self.steps

    @property
    def max_noise_steps(self) -> float:
        """Grid steps in the noise's standard deviation."""
        return self.sigma * self.steps


def noisy_counts(exact: Integers, steps: float, noise: IntegerNoise, stream: RowStream) -> Tensor:
    """Return counts with their noise, float64; the exact ones die here."""
    drawn = noise.draw(stream, np.arange(len(exact)), 1)[:, 0]
    return torch.from_numpy((exact * int(steps) + drawn) / steps)

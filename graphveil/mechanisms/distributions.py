"""Distributions of one output number, as objects that can be integrated and compared exactly."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from graphveil.errors import ConfigError
from graphveil.mechanisms._draws import Floats


class Distribution(ABC):
    """The distribution of an output, given one input."""

    @property
    @abstractmethod
    def mean(self) -> float:
        """The expectation."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """The variance."""

    @abstractmethod
    def log_ratio(self, other: "Distribution") -> float:
        """Return the largest log of this one's probability (or density) over the other's, of any output."""


@dataclass(frozen=True, eq=False)
class StepDistribution(Distribution):
    """Probabilities of single values, and a density that is constant between edges.

    >>> step = StepDistribution(np.array([1.0]), np.array([0.5]), np.array([0.0, 2.0]), np.array([0.25]))
    >>> step.mean, round(step.variance, 6)
    (1.0, 0.166667)
    """

    atoms: Floats
    masses: Floats
    edges: Floats
    densities: Floats

    @classmethod
    def discrete(cls, atoms: Floats, masses: Floats) -> "StepDistribution":
        """Return a distribution of single values only."""
        return cls(np.asarray(atoms, dtype=np.float64), np.asarray(masses), np.empty(0), np.empty(0))

    @property
    def total(self) -> float:
        """The whole mass, which is one."""
        return float(self.masses.sum() + (self.densities * np.diff(self.edges)).sum())

    @property
    def mean(self) -> float:
        """The expectation, by summation."""
        return self._moment(1)

    @property
    def variance(self) -> float:
        """The variance, by summation."""
        return self._moment(2) - self.mean**2

    def _moment(self, power: int) -> float:
        steps = self.densities * np.diff(self.edges ** (power + 1)) / (power + 1)
        return float((self.masses * self.atoms**power).sum() + steps.sum())

    def mixed(self, other: "StepDistribution", share: float) -> "StepDistribution":
        """Return the mixture of this distribution, with the given probability, and one of single values."""
        if other.edges.size:
            raise ConfigError("only a distribution of single values can be mixed in")
        atoms = np.concatenate([self.atoms, other.atoms])
        masses = np.concatenate([share * self.masses, (1 - share) * other.masses])
        return StepDistribution(atoms, masses, self.edges, share * self.densities)

    def log_ratio(self, other: Distribution) -> float:
        """Return the largest log ratio, inf if an output is possible under this one only."""
        if not isinstance(other, StepDistribution) or not np.array_equal(self.atoms, other.atoms):
            return math.inf
        middle = np.concatenate([self.edges, other.edges])
        middle = np.sort(middle)
        middle = (middle[1:] + middle[:-1]) / 2
        return max(
            _largest(self.masses, other.masses), _largest(self._density(middle), other._density(middle))
        )

    def _density(self, y: Floats) -> Floats:
        if not self.edges.size:
            return np.empty(0)
        step = np.searchsorted(self.edges, y, side="right")
        return np.concatenate([[0.0], self.densities, [0.0]])[step]


@dataclass(frozen=True)
class LaplaceDistribution(Distribution):
    """A density exp(-|y - center| / scale) / (2 scale)."""

    center: float
    scale: float

    @property
    def mean(self) -> float:
        """The center."""
        return self.center

    @property
    def variance(self) -> float:
        """Twice the square of the scale."""
        return 2 * self.scale**2

    def log_ratio(self, other: Distribution) -> float:
        """Return the distance of the centers in scales, which equal scales attain beyond either center."""
        if not isinstance(other, LaplaceDistribution) or self.scale != other.scale:
            return math.inf
        return abs(self.center - other.center) / self.scale


def _largest(p: Floats, q: Floats) -> float:
    """Return the largest log p / q over places where p is above zero."""
    possible = p > 0
    if not possible.any():
        return -math.inf
    with np.errstate(divide="ignore"):
        return float((np.log(p[possible]) - np.log(q[possible])).max())

"""The contract of mechanisms for a vector of features: perturb records, estimate them, and the price."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from graphveil._util import checks
from graphveil._util.typed import fitting
from graphveil.errors import ConfigError, GraphError
from graphveil.mechanisms._draws import MAX_DIM, Draws, Floats, Integers, Real, row_blocks
from graphveil.mechanisms.claim import LocalDPClaim, check_budget
from graphveil.mechanisms.local.bounds import Bounds

Single = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class LDPReports:
    """What leaves the randomizer: one row per record, and which features a row is about.

    ``values`` is an array (records, k) whose meaning the mechanism knows. ``indices`` (records, k) names the
    features, ascending in each row; None means all of them, in order.
    """

    values: npt.NDArray[Any]
    indices: npt.NDArray[np.int32] | None = None

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.values)

    def part(self, part: slice) -> "LDPReports":
        """Return some records' reports, as views."""
        return LDPReports(self.values[part], None if self.indices is None else self.indices[part])


@dataclass(frozen=True, kw_only=True)
class FeatureMechanism(ABC):
    """A randomizer of a record's features x, shape (dim,), under one budget for the whole vector.

    Fields are public and the same for all records. ``perturb`` takes private rows and gives reports;
    ``estimate`` takes reports, as anybody can, and gives rows whose expectation is x where the mechanism says
    that it is unbiased. With ``epsilon`` inf both leave x as it is.

    Args:
        epsilon: the budget of the whole vector.
        dim: d, the number of features.
        bounds: their public range.
    """

    epsilon: float
    dim: int
    bounds: Bounds = field(default=Bounds())

    def __post_init__(self) -> None:
        """Check every field."""
        check_budget(epsilon=self.epsilon)
        checks.integer_at_least(1, dim=self.dim)
        checks.within(1, MAX_DIM, dim=self.dim)
        fitting("bounds", self.bounds, Bounds)
        self.bounds.check_dim(self.dim)
        self._check()

    @property
    def claim(self) -> LocalDPClaim:
        """The guarantee of a record's LDP report."""
        return LocalDPClaim(self.epsilon, deviations=self.bounds.deviations)

    def perturb(self, x: Real, *, stream: Draws, rows: Integers | None = None) -> LDPReports:
        """Return the randomized reports of records.

        A row's draws depend on the stream and its number alone, so any partition of the records gives the
        same reports. A stream serves each row once: equal draws on two records cancel.

        Args:
            x: float features (records, dim); values outside the bounds are clipped.
            stream: random words, from :class:`~graphveil.mechanisms.LocalNoise` or a device's own entropy.
            rows: the records' numbers, which must differ; 0, 1, 2, ... if None.

        Raises:
            GraphError: the shape is wrong, or a value is NaN or infinite.
            ConfigError: two records have one number.
            ReleaseError: the stream served a row before.
        """
        x = self.matrix(x)
        rows = distinct_rows(rows, len(x))
        if math.isinf(self.epsilon):
            return LDPReports(self.bounds.real(self.bounds.unit(x)).astype(x.dtype))
        stream.reserve_rows(rows)
        reports = self._empty(len(x))
        for part in row_blocks(len(x), self.dim):
            self._perturb(self.bounds.unit(x[part]), rows[part], stream, reports.part(part))
        return reports

    def estimate(self, reports: LDPReports) -> Single:
        """Return an estimate of each record's features, float32 (records, dim).

        Raises:
            GraphError: the reports have another shape than this mechanism's.
        """
        self._check_reports(reports)
        if math.isinf(self.epsilon):
            return reports.values.astype(np.float32)
        out = np.empty((len(reports), self.dim), dtype=np.float32)
        for part in row_blocks(len(reports), self.dim):
            self._estimate(reports.part(part), out[part])
            self.bounds.real(out[part])
        return out

    def _estimate(self, reports: LDPReports, out: Single) -> None:
        """Write the estimates on the unit scale."""
        if reports.indices is None:
            self._reported_values(reports, out)
            return
        reported_values = np.empty(reports.values.shape, dtype=np.float32)
        self._reported_values(reports, reported_values)
        out[:] = 0.5
        np.put_along_axis(out, reports.indices, reported_values, axis=1)

    def _real(self, reported_values: Single, indices: npt.NDArray[np.int32] | None) -> None:
        """Bring what was told about some features to their own scale, in place."""
        if indices is None or not isinstance(self.bounds.low, tuple):
            self.bounds.real(reported_values)
            return
        reported_values *= self.bounds.width.astype(np.float32)[indices]
        reported_values += np.asarray(self.bounds.low, dtype=np.float32)[indices]

    def reported_values(self, reports: LDPReports) -> Single:
        """Return the estimates of the features that reports are about, float32 (records, k).

        What :meth:`estimate` says about all others is the middle of their range, which is public; so this is
        all there is to know, in k numbers a record.

        >>> from graphveil.mechanisms import MultiBit
        >>> reports = LDPReports(np.array([[1]], dtype=np.uint8), np.array([[2]], dtype=np.int32))
        >>> law = MultiBit(epsilon=1.0, dim=4)
        >>> bool(law.reported_values(reports)[0, 0] == law.estimate(reports)[0, 2])
        True
        """
        self._check_reports(reports)
        if math.isinf(self.epsilon):
            return reports.values.astype(np.float32)
        out = np.empty(reports.values.shape, dtype=np.float32)
        for part in row_blocks(len(reports), reports.values.shape[1]):
            self._reported_values(reports.part(part), out[part])
            self._real(out[part], None if reports.indices is None else reports.indices[part])
        return out

    def variance(self, x: Real) -> Floats:
        """Return the variance of each coordinate's estimate, for features (records, dim)."""
        if math.isinf(self.epsilon):
            return np.zeros(x.shape)
        return self._variance(np.asarray(self.bounds.unit(x), dtype=np.float64)) * self.bounds.width**2

    @property
    def worst_variance(self) -> float:
        """The largest variance of any coordinate's estimate, over all features in the bounds.

        >>> from graphveil.mechanisms import PerFeature, EvenAllocation
        >>> law = PerFeature(epsilon=2.0, dim=2, scalar="three-outputs", allocation=EvenAllocation())
        >>> round(4 * law.worst_variance, 8)  # the scalar's at epsilon 1, on [-1, 1]
        4.45545172
        """
        return 0.0 if math.isinf(self.epsilon) else float(np.max(self._worst() * self.bounds.width**2))

    @abstractmethod
    def _check(self) -> None:
        """Check the fields of a subclass."""

    @abstractmethod
    def _empty(self, records: int) -> LDPReports:
        """Return reports to fill."""

    @abstractmethod
    def _perturb(self, z: Real, rows: Integers, stream: Draws, out: LDPReports) -> None:
        """Fill the reports of rows z in [0, 1]."""

    @abstractmethod
    def _reported_values(self, reports: LDPReports, out: Single) -> None:
        """Write, on the unit scale, the estimates of the features that reports are about (records, k)."""

    @abstractmethod
    def _variance(self, z: Floats) -> Floats:
        """Return the variances on the unit scale."""

    @abstractmethod
    def _worst(self) -> Floats:
        """Return the largest variance of each coordinate on the unit scale, (dim,) or one for all."""

    def _check_reports(self, reports: LDPReports) -> None:
        """Refuse reports of another shape."""
        like = LDPReports(np.empty((0, self.dim))) if math.isinf(self.epsilon) else self._empty(0)
        wanted = (len(reports), like.values.shape[1])
        shapes = [part.shape for part in (reports.values, reports.indices) if part is not None]
        if any(shape != wanted for shape in shapes) or (reports.indices is None) != (like.indices is None):
            raise GraphError(f"reports of shape {shapes} are not this mechanism's: {wanted} are needed")

    def matrix(self, x: Real) -> Real:
        """Return records as floats (records, dim).

        Raises:
            GraphError: the shape is wrong, or they are no numbers.
        """
        x = np.asarray(x)
        if x.ndim != 2 or x.shape[1] != self.dim or x.dtype.kind not in "fiub":
            raise GraphError(f"features of shape {x.shape} do not fit numbers of shape (records, {self.dim})")
        return x if x.dtype in (np.float32, np.float64) else x.astype(np.float64)


def distinct_rows(rows: Integers | None, count: int) -> Integers:
    """Return the numbers of so many records, refusing one that occurs twice."""
    if rows is None:
        return np.arange(count)
    if rows.shape != (count,) or len(np.unique(rows)) != count or (count and rows.min() < 0):
        raise ConfigError(f"rows must be {count} different numbers of at least 0, one per record")
    return rows.astype(np.int64)

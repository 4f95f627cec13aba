"""One randomized bit for each of a few features."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from graphveil._util import checks
from graphveil.core.noise.sampling import (
    Channel,
    Draws,
    ExtraWords,
    Floats,
    Integers,
    Real,
    Sampler,
    Words,
    halves,
    round_up_or_down,
    row_blocks,
    subsets,
)
from graphveil.errors import ConfigError
from graphveil.mechanisms.claim import check_budget, coth
from graphveil.mechanisms.features import FeatureMechanism, LDPReports, Single, distinct_rows

_PAPER = 2.18  # LPGNN's divisor
_BEST = 2.17731898  # the root of sinh y = 2 y, which minimizes y coth(y/2)^2
_CHOICES = ("best", "floor", "all")


@dataclass(frozen=True, kw_only=True)
class MultiBit(FeatureMechanism):
    """Report one randomized bit for each of m random features (Sajadmanesh, Gatica-Perez, CCS 2021).

        Pr[bit_i = 1] = 1/(e^(epsilon/m) + 1) + z_i (e^(epsilon/m) - 1)/(e^(epsilon/m) + 1),
        x'_i = (alpha + beta)/2 +- d (beta - alpha)/(2 m) coth(epsilon/(2m)), without +- for the others,
        Var(x'_i) = (d/m) coth(epsilon/(2m))^2 ((beta - alpha)/2)^2 - (x_i - (alpha + beta)/2)^2,

    where z_i is x_i on the scale [0, 1] of its range [alpha, beta]. The estimate is unbiased.

    Shapes: LDP reports have bits and indices (records, m).

    Args:
        epsilon, dim, bounds: Parameters of ``FeatureMechanism``.
        m: Number of sampled features, or a rule. ``"best"`` is the integer next to epsilon / 2.177 with the
            smallest variance. ``"floor"`` is max(1, min(d, floor(epsilon / 2.18))), as in the paper.
            ``"all"`` is 1BM, one bit for every feature.

    Raises:
        ConfigError: If a parameter is outside its range.

    Privacy:
        epsilon-LDP for the whole vector, exactly: given the subset, the likelihood ratio is a product
        of m factors between e^(-epsilon/m) and e^(epsilon/m).

    >>> MultiBit(epsilon=4.0, dim=100, m="floor").samples, MultiBit(epsilon=4.0, dim=100).samples
    (1, 2)
    >>> from graphveil.mechanisms import LocalNoise
    >>> law = MultiBit(epsilon=1.0, dim=500)
    >>> reports = law.perturb(np.ones((3, 500)), stream=LocalNoise(unsafe_noise_seed=1).stream("features"))
    >>> reports.values.shape, round(law.scale, 8)
    ((3, 1), 540.98835343)
    """

    m: int | Literal["best", "floor", "all"] = "best"

    @property
    def samples(self) -> int:
        """The number m of features that a record reports."""
        if isinstance(self.m, int):
            return self.m
        if self.m == "all" or math.isinf(self.epsilon):
            return self.dim
        if self.m == "floor":
            return self._clipped(math.floor(self.epsilon / _PAPER))
        around = self.epsilon / _BEST
        return min(
            self._clipped(math.floor(around)),
            self._clipped(math.ceil(around)),
            key=lambda m: coth(self.epsilon / (2 * m)) ** 2 / m,
        )

    @property
    def scale(self) -> float:
        """The distance of an estimate on [0, 1] from 1/2, for a reported feature."""
        return self.dim / (2 * self.samples) * self._bound

    @property
    def kept(self) -> Floats:
        """The probability that a reported bit of each feature is not flipped, (dim,)."""
        return np.full(self.dim, self._table[1, 1])

    @property
    def _bound(self) -> float:
        """coth(epsilon/(2m)): the size of an estimate on [-1, 1]."""
        return coth(self.epsilon / self.samples / 2)

    @cached_property
    def _table(self) -> Floats:
        """Probabilities of the bit (columns) for a value that is rounded to 0 or 1, at epsilon/m."""
        epsilon = self.epsilon / self.samples
        check_budget(epsilon=epsilon)
        change = np.exp(-epsilon) / (1 + np.exp(-epsilon))
        return np.array([[1 - change, change], [change, 1 - change]])

    @cached_property
    def _sampler(self) -> Sampler:
        return Sampler((Channel.from_probabilities(self._table, self.epsilon / self.samples),))

    def bit_probability(self, z: Floats) -> Floats:
        """Return Pr[bit = 1] of a sampled feature, from its value on [0, 1]."""
        low, high = self._table[:, 1]
        probability: Floats = low + z * (high - low)
        return probability

    def _check(self) -> None:
        if isinstance(self.m, str):
            checks.one_of(_CHOICES, m=self.m)
            return
        checks.integer_at_least(1, m=self.m)
        if self.m > self.dim:
            raise ConfigError(
                f"m={self.m} must be at most dim={self.dim}, the number of features. Use m='all'."
            )

    def _clipped(self, m: int) -> int:
        return max(1, min(self.dim, m))

    def _empty(self, records: int) -> LDPReports:
        shape = (records, self.samples)
        indices = None if self.samples == self.dim else np.empty(shape, dtype=np.int32)
        return LDPReports(np.empty(shape, dtype=np.uint8), indices)

    def perturb_features(
        self, x: Real, chosen: npt.NDArray[np.int32] | None, *, stream: Draws, rows: Integers | None = None
    ) -> LDPReports:
        """Return the LDP reports of records on features chosen by the caller.

        The guarantee is that of ``perturb``, which is valid for any reported features, if the choice does not
        depend on the records. Estimates are unbiased over the choice.

        Args:
            x: Float features (records, dim); values outside the bounds are clipped.
            chosen: Features of each record (records, m), ascending; None for all.
            stream: Random words.
            rows: Distinct numbers of the records; 0, 1, 2, ... if None.

        Raises:
            GraphError: If a shape is wrong, or a value is NaN or infinite.
            ConfigError: If two records have the same number, or a chosen feature does not exist.
            ReleaseError: If the stream was already used for a row.

        Privacy:
            Unit: one record. Reads: ``x``. The LDP reports may be public.
        """
        x = self.matrix(x)
        rows = distinct_rows(rows, len(x))
        if math.isinf(self.epsilon):
            return self.perturb(x, stream=stream, rows=rows)
        reports = LDPReports(self._empty(len(x)).values, chosen)
        self._check_reports(reports)
        if chosen is not None and chosen.size and not (chosen.min() >= 0 and chosen.max() < self.dim):
            raise ConfigError(
                f"a sampled feature must be an index of one of the {self.dim} features, counted from 0"
            )
        stream.reserve_rows(rows)
        for part in row_blocks(len(x), self.dim):
            z, own = self.bounds.unit(x[part]), reports.part(part)
            words = stream.words(rows[part], words_per_row=self.samples)
            self._bits(z, words, ExtraWords(stream, rows[part], self.samples), own)
        return reports

    def _perturb(self, z: Real, rows: Integers, stream: Draws, out: LDPReports) -> None:
        m = self.samples
        words = stream.words(rows, words_per_row=2 * m)
        if out.indices is not None:
            out.indices[:] = subsets(words[:, :m], self.dim)
        self._bits(z, words[:, m:], ExtraWords(stream, rows, m), out)

    def _bits(self, z: Real, words: Words, place: ExtraWords, out: LDPReports) -> None:
        """Fill the bits of the features that LDP reports cover."""
        if out.indices is not None:
            z = np.take_along_axis(z, out.indices, axis=1)
        low, high = halves(words)
        out.values[:] = self._sampler.sample_outputs(round_up_or_down(z, low), high, place)

    def _reported_values(self, reports: LDPReports, out: Single) -> None:
        out[:] = np.array([0.5 - self.scale, 0.5 + self.scale], dtype=np.float32)[reports.values]

    def _variance(self, z: Floats) -> Floats:
        return self.dim / self.samples * (self._bound / 2) ** 2 - (z - 0.5) ** 2

    def _worst(self) -> Floats:
        return self._variance(np.array([0.5]))

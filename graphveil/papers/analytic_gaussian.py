"""Gaussian noise on every feature: the analytic Gaussian mechanism, with an (epsilon, delta) guarantee."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from graphveil._util import checks
from graphveil._util.checks import checked
from graphveil.core.accounting.gaussian import check_proved_delta, mu_of, require_delta
from graphveil.core.noise.discrete_gaussian import MAX_SIGMA, DiscreteGaussian
from graphveil.core.noise.random import RowStream
from graphveil.core.noise.sampling import Draws, Floats, Integers, Real
from graphveil.errors import ConfigError
from graphveil.mechanisms.features import (
    REAL_VALUED,
    FeatureMechanism,
    LDPReports,
    LocalDPClaim,
    Single,
    check_budget,
)

_MAX_STEPS = 1 << 20
_PROVED_MU, _PROVED_DELTA, _PROVED_STEPS = 4.0, 1e-12, 128  # docs/privacy/proofs/noise.md: proposition 9


@checked
def analytic_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """Return the smallest standard deviation that is (epsilon, delta)-private (Balle, Wang, ICML 2018).

        Phi(D/2s - epsilon s/D) - e^epsilon Phi(-D/2s - epsilon s/D) = delta,   D the L2 sensitivity,

    rounded up, so that the delta of the result never exceeds the given one.

    Args:
        epsilon: Epsilon of the guarantee; inf needs no noise.
        delta: Delta of the guarantee, above 0.
        sensitivity: L2 sensitivity D.

    Returns:
        The standard deviation of the noise.

    Raises:
        ConfigError: If a parameter is outside its range.
        CalibrationError: If no noise meets the budget.

    >>> round(analytic_sigma(1.0, 1e-5, 1.0), 6)
    3.730632
    """
    check_budget(epsilon=epsilon)
    _check_delta(delta)
    return 0.0 if math.isinf(epsilon) else sensitivity / mu_of(epsilon, delta)


def _check_delta(delta: float) -> None:
    """Require a delta above 0 for which the guarantee is proved."""
    checks.non_negative(delta=delta)
    require_delta(delta, "the Gaussian mechanism")
    check_proved_delta(delta)


@dataclass(frozen=True, kw_only=True)
class AnalyticGaussian(FeatureMechanism):
    """Add N(0, sigma^2) to every feature (AGM), with L2 sensitivity (beta - alpha) sqrt(d).

    The features are rounded to a grid and the noise is the exact discrete Gaussian on it. A thousandth of
    delta covers the difference. Where the proof does not apply (mu above 4, delta below 1e-12, a very coarse
    grid), the claim has the deviation "real-valued sampler".

    Shapes: LDP reports have the noisy features, float64 (records, dim). The estimate is unbiased up to half a
    grid step, at most 2^-11 of a range.

    Args:
        epsilon, dim, bounds: Parameters of ``FeatureMechanism``.
        delta: Probability delta of the guarantee, above 0; LPGNN uses 1e-10.

    Raises:
        ConfigError: If a parameter is outside its range.
        CalibrationError: If no noise meets the budget.

    Privacy:
        **(epsilon, delta)**-LDP, a weaker guarantee than the epsilon-LDP of the other feature mechanisms.

    >>> law = AnalyticGaussian(epsilon=1.0, dim=500)
    >>> round(law.sigma / analytic_sigma(1.0, 1e-10, 500**0.5), 4), law.claim.delta
    (1.0, 1e-10)
    """

    delta: float = 1e-10

    @property
    def claim(self) -> LocalDPClaim:
        """The guarantee of a record's LDP report, including delta."""
        base = super().claim
        if math.isinf(self.epsilon):
            return base
        small = math.sqrt(self.dim) <= _PROVED_MU * self._target_sigma and self.delta >= _PROVED_DELTA
        proved = small and self._noise.sigma >= _PROVED_STEPS
        deviations = base.deviations if proved else (*base.deviations, REAL_VALUED)
        return LocalDPClaim(self.epsilon, self.delta, deviations)

    @property
    def sigma(self) -> float:
        """The standard deviation of the noise, in ranges of a feature."""
        return 0.0 if math.isinf(self.epsilon) else self._noise.sigma / self._steps

    @cached_property
    def _noise(self) -> DiscreteGaussian:
        return DiscreteGaussian(self._target_sigma * self._steps)

    @cached_property
    def _target_sigma(self) -> float:
        # Not analytic_sigma, which would reject the smallest delta after a thousandth is reserved.
        return (
            0.0 if math.isinf(self.epsilon) else math.sqrt(self.dim) / mu_of(self.epsilon, self.delta / 1.001)
        )

    @cached_property
    def _steps(self) -> int:
        """Grid steps in a feature's range: as many as the exact sampler's largest sigma allows."""
        room = MAX_SIGMA / self._target_sigma
        return min(_MAX_STEPS, 1 << max(0, math.floor(math.log2(room)))) if room > 1 else 1

    def _check(self) -> None:
        _check_delta(self.delta)
        if not math.isinf(self.epsilon) and self._target_sigma > MAX_SIGMA:
            raise ConfigError(
                f"epsilon={self.epsilon:g} for {self.dim} features needs more noise than the exact "
                "sampler supports. Use a larger epsilon or fewer features."
            )

    def _empty(self, records: int) -> LDPReports:
        return LDPReports(np.empty((records, self.dim)))

    def _perturb(self, z: Real, rows: Integers, stream: Draws, out: LDPReports) -> None:
        if not isinstance(stream, RowStream):
            raise ConfigError("Gaussian noise needs a LocalNoise. Pass noise=LocalNoise().")
        steps = np.rint(z * float(self._steps)) + self._noise.draw(stream, rows, self.dim)
        out.values[:] = steps / self._steps

    def _reported_values(self, reports: LDPReports, out: Single) -> None:
        out[:] = reports.values

    def _variance(self, z: Floats) -> Floats:
        return np.full_like(z, self.sigma**2)

    def _worst(self) -> Floats:
        return np.array([self.sigma**2])

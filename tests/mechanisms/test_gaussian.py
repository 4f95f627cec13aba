"""The analytic Gaussian mechanism: golden sigmas, a delta that is never exceeded, exact noise on a grid."""

import math

import numpy as np
import pytest
from contracts import laws

from graphveil.core.accounting.gaussian import delta_of
from graphveil.errors import ConfigError
from graphveil.mechanisms import AnalyticGaussian, LocalDPClaim, analytic_sigma

from .fits import stream


class Unkeyed:
    """A device's words, which have no key."""

    def reserve_rows(self, rows: np.ndarray) -> None:
        """Serve anything."""


# local_and_topology.md, 15.4: eps, delta, L2 sensitivity, sigma.
GOLDEN = [
    (1, 1e-5, 1, 3.73063163),
    (1, 1e-10, 1, 5.86777775),
    (0.1, 1e-10, 1, 54.20629584),
    (3, 1e-10, math.sqrt(1433), 78.06656617),
    (1, 1e-10, math.sqrt(500), 131.20749925),
]


@pytest.mark.parametrize(("epsilon", "delta", "sensitivity", "sigma"), GOLDEN)
def test_golden_values(epsilon: float, delta: float, sensitivity: float, sigma: float) -> None:
    found = analytic_sigma(epsilon, delta, sensitivity)
    assert found == pytest.approx(sigma, rel=1e-6)
    assert delta * (1 - 1e-5) < delta_of(epsilon, sensitivity / found) <= delta


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0])
def test_the_noise_is_enough_for_any_two_vectors(epsilon: float) -> None:
    law = AnalyticGaussian(epsilon=epsilon, dim=50, delta=1e-8)
    assert delta_of(epsilon, math.sqrt(50) / law.sigma) <= 1e-8 / 1.001
    assert law.claim == LocalDPClaim(epsilon, 1e-8)
    corners = law.perturb(np.array([[0.0] * 50, [1.0] * 50]), stream=stream()).values * law._steps
    assert (corners == np.rint(corners)).all(), "outputs lie on the grid"


def test_the_noise_has_the_law() -> None:
    law = AnalyticGaussian(epsilon=2.0, dim=8, delta=1e-6)
    x = np.full((60_000, 8), 0.25)
    noise = np.rint((law.perturb(x, stream=stream()).values - 0.25) * law._steps)
    laws.has_the_law(noise, law.sigma * law._steps)
    laws.rows_are_unrelated(noise)


@pytest.mark.parametrize(("epsilon", "delta"), [(1000.0, 1e-10), (1.0, 1e-13)])
def test_the_claim_has_a_deviation_outside_the_proof(epsilon: float, delta: float) -> None:
    claim = AnalyticGaussian(epsilon=epsilon, dim=5, delta=delta).claim
    assert claim.deviations == ("real-valued sampler",)


def test_large_noise_uses_a_coarser_grid_or_is_rejected() -> None:
    assert AnalyticGaussian(epsilon=0.01, dim=100_000)._steps < AnalyticGaussian(epsilon=1.0, dim=100)._steps
    with pytest.raises(ConfigError, match="more noise than the exact sampler"):
        AnalyticGaussian(epsilon=1e-5, dim=1 << 20, delta=1e-6)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan])
def test_rejects_an_invalid_delta(delta: float) -> None:
    with pytest.raises(ConfigError, match="delta="):
        AnalyticGaussian(epsilon=1.0, dim=5, delta=delta)


def test_gaussian_noise_needs_a_keyed_stream() -> None:
    with pytest.raises(ConfigError, match="needs a LocalNoise"):
        AnalyticGaussian(epsilon=1.0, dim=2).perturb(np.zeros((1, 2)), stream=Unkeyed())

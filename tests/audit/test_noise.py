"""What two laws tell apart: never more than is true, and exactly that where a closed form is known."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from graphveil.audit.noise import (
    ChoiceLaw,
    Exact,
    FlipLaw,
    GaussianLaw,
    LaplaceLaw,
    LossLowerBound,
    of_choices,
    same,
)
from graphveil.privacy.gaussian import delta_of, epsilon_of


def array(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def test_gaussian_laws_differ_by_mu() -> None:
    one, other = (GaussianLaw(array(*v), array(2.0)) for v in ((0, 0), (3, 4)))
    assert one.against(other, 1e-5).mu == 2.5
    assert one.against(other, 1e-5).epsilon(1e-5) == epsilon_of(2.5, 1e-5)
    assert one.against(other, 0.0).epsilon(0.0) == math.inf


def test_laplace_laws_differ_by_their_change_on_half_of_the_outcomes() -> None:
    one, other = (LaplaceLaw(array(v), array(2.0)) for v in (0, 3))
    loss = one.against(other, 0.0)
    assert loss.epsilon(0.0) == 1.5
    delta = 0.01  # exactly: delta(e) = 1/2 - e^((e - 1.5) / 2) / 2 at least from the half with the whole loss
    assert loss.epsilon(delta) == pytest.approx(1.5 + math.log1p(-2 * delta))


def test_flipped_bits_differ_by_their_log_odds() -> None:
    q = 1 / (1 + math.exp(1.3))
    one, other = (FlipLaw(np.array(bits), array(q)) for bits in ([True, False], [False, True]))
    assert one.against(other, 0.0).epsilon(0.0) == pytest.approx(2.6)
    assert one.against(one, 0.0).epsilon(0.0) == 0.0
    assert one.shared_mass() == pytest.approx(1 - 2 * q)


def test_choices_differ_by_their_most_telling_one() -> None:
    one, other = (ChoiceLaw(np.array([p])) for p in ([0.5, 0.25, 0.25], [0.25, 0.25, 0.5]))
    assert one.against(other, 0.0).epsilon(0.0) == pytest.approx(math.log(2))
    never = ChoiceLaw(np.array([[0.5, 0.5, 0.0]]))
    assert one.against(never, 0.2).epsilon(0.2) == math.inf  # a quarter of ours is never theirs
    assert of_choices(np.zeros((0, 3)), np.zeros((0, 3))) == LossLowerBound()


def test_a_loss_of_both_kinds_is_within_what_is_true() -> None:
    # A Gaussian and one bit: delta(e) = E over the bit's loss of delta_of(e - loss).
    mu, pure = 0.8, 0.7
    p = 1 / (1 + math.exp(-pure))
    loss = LossLowerBound(mu_squared=mu**2, pure=pure, mass=p)
    for delta in (1e-6, 1e-3, 0.1):
        epsilon = loss.epsilon(delta)
        true = p * delta_of(epsilon - pure, mu) + (1 - p) * delta_of(epsilon + pure, mu)
        assert true >= delta * (1 - 1e-9)


@pytest.mark.parametrize(("wide", "narrow", "size"), [(2.0, 1.0, 1), (1.5, 1.0, 6), (1.01, 1.0, 3)])
def test_noise_of_another_scale_tells_what_one_event_shows(wide: float, narrow: float, size: int) -> None:
    laws = [GaussianLaw(np.zeros(size), array(scale)) for scale in (wide, narrow)]
    delta = 1e-4
    found = laws[0].against(laws[1], delta).epsilon(delta)
    if size == 1:  # delta(e) of two centered normals is known: the wide one's excess beyond a radius
        t = np.linspace(0.1, 12, 2000)
        excess = 2 * norm.sf(t / wide) - math.exp(found) * 2 * norm.sf(t / narrow)
        assert excess.max() == pytest.approx(delta, rel=0.05)
    assert found >= 0
    assert laws[0].against(laws[1], 0.0).epsilon(0.0) == math.inf
    assert laws[0].scale_differs(laws[1])


def test_laplace_noise_of_another_scale_tells_by_its_tails() -> None:
    laws = [LaplaceLaw(array(0.0), array(scale)) for scale in (2.0, 1.0)]
    delta = 1e-3
    found = laws[0].against(laws[1], delta).epsilon(delta)
    t = -2.0 * math.log(4 * delta)
    assert found == pytest.approx(math.log(delta / (0.5 * math.exp(-t))))
    true = max(
        0.5 * math.exp(-s / 2) - math.exp(found) * 0.5 * math.exp(-s) for s in np.linspace(0, 40, 4000)
    )
    assert true >= delta * (1 - 1e-3)


def test_exact_values_tell_everything_if_they_differ() -> None:
    assert Exact(array(1, 2)).against(Exact(array(1, 2)), 0.0).epsilon(0.0) == 0.0
    assert Exact(array(1, 2)).against(Exact(array(1, 3)), 0.0).epsilon(0.5) == math.inf
    assert GaussianLaw(array(1), array(0.0)).against(GaussianLaw(array(2), array(0.0)), 0.0).certain == 1
    assert same(array(0.1 + 0.2), array(0.3))
    assert not same(array(1), array(1, 2))


def test_outcomes_follow_their_laws() -> None:
    rng, n = np.random.default_rng(0), 40_000
    assert GaussianLaw(np.full(n, 3.0), array(2.0)).draw(rng).std() == pytest.approx(2.0, rel=0.02)
    assert np.abs(LaplaceLaw(np.zeros(n), array(2.0)).draw(rng)).mean() == pytest.approx(2.0, rel=0.03)
    assert FlipLaw(np.ones(n, dtype=bool), array(0.2)).draw(rng).mean() == pytest.approx(0.8, abs=0.01)
    chosen = ChoiceLaw(np.tile([0.1, 0.6, 0.3], (n, 1))).draw(rng)
    assert np.bincount(chosen) / n == pytest.approx([0.1, 0.6, 0.3], abs=0.01)

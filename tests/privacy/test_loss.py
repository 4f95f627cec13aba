"""The privacy loss of sampled steps, against an independent implementation and the worst pair of records."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as plds
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss
from scipy.stats import norm

from graphveil.core.accounting.accountant import NoPrivacyCurve, privacy_curve
from graphveil.core.accounting.loss import (
    LossGrid,
    added,
    expected_loss,
    gaussian_loss,
    removed,
    replaced,
    step_loss,
)
from graphveil.core.events import Event, Gaussian, PoissonGaussian, Relation, compose

EPSILONS = np.linspace(-3, 6, 37)
FIXED_SIZE = (1.3, 256 / 17976, 1000, 9.2726)  # noise, batch over records, steps, epsilon at 1e-5


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(removed, AdjacencyType.REMOVE), (added, AdjacencyType.ADD), (replaced, AdjacencyType.REPLACE)],
)
@pytest.mark.parametrize("rate", [1e-4, 0.0128, 0.3])
@pytest.mark.parametrize("noise", [0.3, 1.0, 8.0])
def test_closed_forms_agree_with_dp_accounting(
    ours: Any, theirs: AdjacencyType, rate: float, noise: float
) -> None:
    oracle = GaussianPrivacyLoss(noise, sampling_prob=rate, adjacency_type=theirs)
    assert ours(EPSILONS, rate, 1 / noise) == pytest.approx(oracle.get_delta_for_epsilon(EPSILONS), abs=1e-13)


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
def test_composed_steps_agree_with_dp_accounting(relation: Relation) -> None:
    oracle = plds.from_gaussian_mechanism(
        1.3,
        value_discretization_interval=1e-3,
        sampling_prob=0.01424,
        neighboring_relation=NeighboringRelation[
            {"add_remove": "ADD_OR_REMOVE_ONE", "replace": "REPLACE_ONE"}[relation]
        ],
    ).self_compose(1000)
    curve = privacy_curve(PoissonGaussian(1.3, 0.01424, 1000, relation), interval=1e-3)
    for delta in (1e-9, 1e-5, 1e-2):
        known = oracle.get_epsilon_for_delta(delta - 1000 * 1e-15)  # less what Fourier transforms may round
        assert curve.epsilon(delta) == pytest.approx(known, rel=1e-5)


def test_a_null_record_has_the_larger_cost_of_adding_and_removing() -> None:
    # A null record contributes nothing when it is sampled: as if it were not there, in either direction.
    ours = privacy_curve(PoissonGaussian(1.0, 0.01, 300), interval=1e-3)
    oracle = {
        name: plds.from_gaussian_mechanism(
            1.0, value_discretization_interval=1e-3, sampling_prob=0.01, neighboring_relation=relation
        ).self_compose(300)
        for name, relation in NeighboringRelation.__members__.items()
        if relation in (NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_SPECIAL)
    }
    directions = [
        plds.PrivacyLossDistribution(pmf).get_epsilon_for_delta(1e-5)
        for pmf in (step_loss(PoissonGaussian(1.0, 0.01, 1), 1e-3).self_compose(300).__dict__.values())
        if hasattr(pmf, "size")
    ]
    assert len(directions) == 2
    assert max(directions) > 1.1 * min(directions)  # the two directions do differ
    for known in (max(directions), *(o.get_epsilon_for_delta(1e-5) for o in oracle.values())):
        assert ours.epsilon(1e-5) == pytest.approx(known, rel=1e-7)


def test_two_opposite_records_are_the_worst_pair() -> None:
    """Gradients x and x' of norm at most one, by quadrature in the plane that they span."""
    mu, rate = 0.9, 0.15
    axis = np.linspace(-9, 9, 241)
    plane = np.stack(np.meshgrid(axis, axis), axis=-1)
    weight = norm.pdf(plane).prod(-1) * (axis[1] - axis[0]) ** 2

    def density(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return 1 - rate + rate * np.exp(mu * plane @ x - mu**2 * (x @ x) / 2)

    def divergence(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64], epsilon: float) -> float:
        return float(
            weight.ravel() @ np.maximum(0, density(one) - math.exp(epsilon) * density(other)).ravel()
        )

    for epsilon in (-0.5, 0.0, 0.3, 0.8):
        worst = float(replaced(np.array([epsilon]), rate, mu)[0])
        opposite = divergence(np.array([1.0, 0.0]), np.array([-1.0, 0.0]), epsilon)
        assert opposite == pytest.approx(worst, rel=2e-3, abs=1e-5)
        for angle in (0.0, 0.8, 1.6, 2.4, math.pi):
            for one, other in ((1.0, 1.0), (0.5, 1.0), (1.0, 0.5), (0.0, 1.0), (1.0, 0.0)):
                x = np.array([one, 0.0])
                y = other * np.array([math.cos(angle), math.sin(angle)])
                assert divergence(x, y, epsilon) <= worst + 1e-5


@pytest.mark.parametrize("mu", [0.05, 0.3, 2.5])
@pytest.mark.parametrize("delta", [1e-9, 1e-5])
def test_a_gaussian_on_the_grid_is_a_close_upper_bound(mu: float, delta: float) -> None:
    exact = privacy_curve(Gaussian(mu)).epsilon(delta)
    assert exact <= gaussian_loss(mu, 1e-4).get_epsilon_for_delta(delta) <= exact * (1 + 1e-4)


@pytest.mark.parametrize(
    "event",
    [
        PoissonGaussian(2.0, 0.0128, 1562),
        PoissonGaussian(2.0, 256 / 17976, 300, "replace"),
        compose(PoissonGaussian(3.0, 0.0128, 1562), Gaussian(0.5)),
    ],
)
def test_a_certified_epsilon_is_close_to_that_of_a_finer_grid(event: Event) -> None:
    finer = privacy_curve(event, interval=1e-5).epsilon(1e-5)
    assert finer <= privacy_curve(event).epsilon(1e-5) <= finer * 1.001


def test_batches_of_fixed_size_cost_three_times_as_much() -> None:
    """Why there is no event for them: shuffled or fixed batches are not Poisson samples."""
    noise, rate, steps, epsilon = FIXED_SIZE
    # The record that leaves the batch makes room for another one: a shift of 2C, amplified as by Balle et al.
    grid = LossGrid(-12, 12, 1e-3)
    one_way = removed(np.abs(grid.points), rate, 2 / noise)
    both = np.where(grid.points >= 0, one_way, np.exp(grid.points) * one_way - np.expm1(grid.points))
    fixed = plds.PrivacyLossDistribution(grid.through(both)).self_compose(steps).get_epsilon_for_delta(1e-5)
    assert fixed == pytest.approx(epsilon, rel=5e-4)
    poisson = privacy_curve(PoissonGaussian(noise, rate, steps, "replace"), interval=1e-3)
    assert fixed > 3 * poisson.epsilon(1e-5)


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
@pytest.mark.parametrize("noise", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("rate", [1e-3, 0.1, 0.9])
def test_the_expected_loss_is_an_upper_bound(relation: Relation, noise: float, rate: float) -> None:
    x = np.linspace(-12 * noise, 3 + 12 * noise, 40001)

    def mixture(shift: float) -> npt.NDArray[np.float64]:
        return (1 - rate) * norm.pdf(x, 0, noise) + rate * norm.pdf(x, shift, noise)

    p, q = mixture(1.0), mixture(-1.0) if relation == "replace" else norm.pdf(x, 0, noise)
    for one, other in ((p, q), (q, p)):
        expected = float((one * np.log(one / other)).sum() * (x[1] - x[0]))
        assert expected <= expected_loss(PoissonGaussian(noise, rate, 1, relation)) * (1 + 1e-6)


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
@pytest.mark.parametrize(("noise", "rate", "steps"), [(1e-9, 0.5, 1), (0.01, 1e-9, 1), (1.0, 0.5, 10**9)])
def test_training_without_privacy_is_detected_without_composing_it(
    noise: float, rate: float, steps: int, relation: Relation
) -> None:
    curve = privacy_curve(PoissonGaussian(noise, rate, steps, relation))
    assert isinstance(curve, NoPrivacyCurve)
    assert curve.epsilon(1e-5) == math.inf


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
@pytest.mark.parametrize("rate", [1e-300, 2.0**-32, 1 - 2.0**-32, 1 - 2.0**-53])
@pytest.mark.parametrize("noise", [0.1, 1.0, 1e4])
def test_extreme_rates_are_accounted_without_a_warning(noise: float, rate: float, relation: Relation) -> None:
    epsilon = privacy_curve(PoissonGaussian(noise, rate, 2, relation), interval=1e-2).epsilon(1e-6)
    plain = privacy_curve(PoissonGaussian(noise, 1.0, 2, relation)).epsilon(1e-6)
    assert 0 <= epsilon <= plain * (1 + 1e-3) + 1e-2


def test_steps_on_all_records_are_gaussian_releases() -> None:
    assert privacy_curve(PoissonGaussian(4.0, 1.0, 9)) == privacy_curve(Gaussian(0.75))
    assert privacy_curve(PoissonGaussian(4.0, 1.0, 9, "replace")) == privacy_curve(Gaussian(1.5))


def test_a_long_grid_has_the_masses_of_dp_accounting() -> None:
    from dp_accounting.pld import pld_pmf

    grid = LossGrid(-1.0, 2.0, 1e-3)
    deltas = removed(grid.points, 0.1, 1.0)
    ours = grid.through(deltas).to_dense_pmf()
    theirs = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(1e-3, -1000, 2000, deltas).to_dense_pmf()
    assert (ours._lower_loss, ours._infinity_mass) == (theirs._lower_loss, theirs._infinity_mass)
    assert (ours._probs == theirs._probs).all()

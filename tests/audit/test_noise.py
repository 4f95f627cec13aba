"""Privacy losses of single steps: equal to the closed form, and never above the true loss."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from graphveil.audit import NeighborTestResult, NoiseRecorder, SmallGraph, neighbor_test
from graphveil.core.accounting.gaussian import delta_of, epsilon_of

Step = Callable[[int, NoiseRecorder], Any]  # a function of the number of edges, which is 0 or 1
WITHOUT, WITH = (SmallGraph.from_edges(2, edges, directed=False) for edges in ([], [(0, 1)]))


def result(step: Step, **claim: float) -> NeighborTestResult:
    """Test a step on one pair of graphs."""

    def mechanism(graph: SmallGraph, noise: NoiseRecorder) -> None:
        step(len(graph.edges) // 2, noise)

    return neighbor_test(mechanism, unit="one pair", **claim, neighbors=lambda rng: (WITHOUT, WITH), pairs=1)


def of_choices(*tables: list[list[float]]) -> Step:
    return lambda e, noise: noise.choose(tables[e])


LOSSES: dict[str, tuple[Step, float, float]] = {  # step, delta, epsilon
    "Gaussian": (lambda e, noise: noise.gaussian([3 * e, 4 * e], 2.0), 1e-5, epsilon_of(2.5, 1e-5)),
    "Gaussian, no delta": (lambda e, noise: noise.gaussian([3 * e, 4 * e], 2.0), 0.0, math.inf),
    "Gaussian, no noise": (lambda e, noise: noise.gaussian(e, 0.0), 0.0, math.inf),
    "Gaussian, no noise, equal": (lambda e, noise: noise.gaussian(1.0, 0.0), 0.0, 0.0),
    "Laplace": (lambda e, noise: noise.laplace(3 * e, 2.0), 0.0, 1.5),
    # delta(e) = 1/2 - e^((e - 1.5) / 2) / 2 at least, from the half of outcomes with the whole loss
    "Laplace, delta": (lambda e, noise: noise.laplace(3 * e, 2.0), 0.01, 1.5 + math.log1p(-0.02)),
    "bits": (lambda e, noise: noise.flip([e == 1, e == 0], 1.3), 0.0, 2.6),
    "equal bits": (lambda e, noise: noise.flip([True, False], 1.3), 0.0, 0.0),
    "choices": (of_choices([[0.5, 0.25, 0.25]], [[0.25, 0.25, 0.5]]), 0.0, math.log(2)),
    "a choice of one side": (of_choices([[0.5, 0.25, 0.25]], [[0.5, 0.5, 0.0]]), 0.2, math.inf),
    "no choices": (lambda e, noise: noise.choose(np.zeros((0, 3))), 0.0, 0.0),
    "exact output": (lambda e, noise: noise.release([1, 2 + e]), 0.5, math.inf),
    "exact output, rounding": (lambda e, noise: noise.release(0.1 + 0.2 if e else 0.3), 0.0, 0.0),
    "exact output, equal": (lambda e, noise: noise.release([1, 2]), 0.0, 0.0),
}


@pytest.mark.parametrize("name", LOSSES)
def test_loss_is_the_closed_form(name: str) -> None:
    step, delta, epsilon = LOSSES[name]
    assert result(step, epsilon=0.0, delta=delta).largest == pytest.approx(epsilon)


def test_loss_of_gaussian_noise_and_a_bit_is_below_the_true_loss() -> None:
    mu, pure = 0.8, 0.7
    p = 1 / (1 + math.exp(-pure))

    def step(e: int, noise: NoiseRecorder) -> None:
        noise.gaussian(mu * e, 1.0)
        noise.flip([e == 1], pure)

    for delta in (1e-6, 1e-3, 0.1):  # delta(e) = E over the bit's loss of delta_of(e - loss)
        epsilon = result(step, epsilon=0.0, delta=delta).largest
        true = p * delta_of(epsilon - pure, mu) + (1 - p) * delta_of(epsilon + pure, mu)
        assert epsilon > pure and true >= delta * (1 - 1e-9)


@pytest.mark.parametrize(("wide", "narrow", "size"), [(2.0, 1.0, 1), (1.5, 1.0, 6), (1.01, 1.0, 3)])
def test_gaussian_noise_of_another_scale_is_found(wide: float, narrow: float, size: int) -> None:
    def step(e: int, noise: NoiseRecorder) -> None:
        noise.gaussian(np.zeros(size), wide if e else narrow)

    delta, found = 1e-4, result(step, epsilon=0.0, delta=1e-4)
    assert found.kinds == (("noise scale",) if found.largest > 1e-7 else ())
    assert result(step, epsilon=0.0).largest == math.inf
    if size == 1:  # delta(e) of two centered normals is known: the excess of the wide one beyond a radius
        t = np.linspace(0.1, 12, 2000)
        excess = 2 * norm.sf(t / wide) - math.exp(found.largest) * 2 * norm.sf(t / narrow)
        assert excess.max() == pytest.approx(delta, rel=0.05)


def test_laplace_noise_of_another_scale_is_found_by_its_tails() -> None:
    def step(e: int, noise: NoiseRecorder) -> None:
        noise.laplace(0.0, 1.0 + e)

    delta = 1e-3
    found = result(step, epsilon=0.0, delta=delta).largest
    assert found == pytest.approx(math.log(delta / (0.5 * math.exp(2.0 * math.log(4 * delta)))))
    excess = [0.5 * math.exp(-s / 2) - math.exp(found) * 0.5 * math.exp(-s) for s in np.linspace(0, 40, 4000)]
    assert max(excess) >= delta * (1 - 1e-3)


CLAIMS: list[tuple[Step, dict[str, float], bool]] = [
    (lambda e, noise: noise.laplace(1.0 * e, 1.0), {"epsilon": 1.0}, False),
    (lambda e, noise: noise.laplace(1.0001 * e, 1.0), {"epsilon": 1.0}, True),
    (lambda e, noise: noise.gaussian(1e-3 * e, 1.0), {"epsilon": 1.0}, True),
    (lambda e, noise: noise.gaussian(0.5 * e, 1.0), {"mu": 0.5}, False),
    (lambda e, noise: noise.gaussian(0.5001 * e, 1.0), {"mu": 0.5}, True),
    (lambda e, noise: noise.release(e), {"mu": 0.5}, True),
]


@pytest.mark.parametrize(("step", "claim", "broken"), CLAIMS)
def test_claim_is_compared_at_its_own_delta(step: Step, claim: dict[str, float], broken: bool) -> None:
    assert result(step, **claim).broken == broken


def test_outcomes_follow_their_distributions() -> None:
    noise, n = NoiseRecorder(np.random.default_rng(0)), 40_000
    assert noise.gaussian(np.full(n, 3.0), 2.0).std() == pytest.approx(2.0, rel=0.02)
    assert np.abs(noise.laplace(np.zeros(n), 2.0)).mean() == pytest.approx(2.0, rel=0.03)
    assert noise.flip(np.ones(n, dtype=bool), math.log(4)).mean() == pytest.approx(0.8, abs=0.01)
    chosen = noise.choose(np.tile([0.1, 0.6, 0.3], (n, 1)))
    assert np.bincount(chosen) / n == pytest.approx([0.1, 0.6, 0.3], abs=0.01)

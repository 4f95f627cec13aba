"""Theorem A: the loss of steps in which a record reaches several roots, and bounds that are not valid."""

import math
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import brentq
from scipy.special import logsumexp
from scipy.stats import binom, norm

from graphveil.core.accounting.accountant import NoPrivacyCurve, privacy_curve
from graphveil.core.accounting.loss import RootPair, added, expected_loss, removed, replaced, step_loss
from graphveil.core.events import Composed, Gaussian, PoissonGaussian, PoissonRoots, Relation, compose
from graphveil.errors import ConfigError
from graphveil.papers.as_published.renyi import SAMPLED_EXCESS, epsilon_of_event, minimum_over_orders

from .golden import ROOT_STEP_EPSILONS, ROOT_STEPS, ROOTS

Floats = npt.NDArray[np.float64]
EPSILONS = np.linspace(-1, 3, 9)


def pair_of(z: float, rate: float, roots: int, relation: Relation = "add_remove") -> RootPair:
    return RootPair.from_event(PoissonRoots(z, rate, 1, roots, relation))


@pytest.mark.parametrize(("z", "rate", "steps", "roots", "relation", "epsilon"), ROOTS)
def test_golden_epsilons(
    z: float, rate: float, steps: int, roots: int, relation: Relation, epsilon: float
) -> None:
    found = privacy_curve(PoissonRoots(z, rate, steps, roots, relation)).epsilon(1e-5)
    assert found == pytest.approx(epsilon, abs=1e-4)


@pytest.mark.parametrize(("event", "forth", "back"), ROOT_STEPS)
def test_golden_deltas_of_one_step(event: Any, forth: Any, back: Any) -> None:
    pair, at = pair_of(*event), np.array(ROOT_STEP_EPSILONS, dtype=float)
    assert pair.removed(at) == pytest.approx(np.array(forth), rel=3e-5)
    assert pair.added(at) == pytest.approx(np.array(back), rel=3e-5)


@pytest.mark.parametrize("rate", [1e-3, 0.05, 0.7])
@pytest.mark.parametrize("z", [0.5, 1.0, 4.0])
def test_one_root_is_a_sampled_record(z: float, rate: float) -> None:
    grid = np.linspace(-3, 6, 37)
    one, both = pair_of(z, rate, 1), pair_of(z, rate, 1, "replace")
    inside = grid > math.log1p(-rate) + 1e-9  # elsewhere no point has this ratio
    assert one.removed(grid)[inside] == pytest.approx(removed(grid, rate, 1 / z)[inside], abs=1e-13)
    inside = grid < -math.log1p(-rate) - 1e-9
    assert one.added(grid)[inside] == pytest.approx(added(grid, rate, 1 / z)[inside], abs=1e-13)
    assert both.removed(grid) == pytest.approx(replaced(grid, rate, 1 / z), abs=1e-13)
    for relation in ("add_remove", "replace"):
        roots, record = PoissonRoots(z, rate, 9, 1, relation), PoissonGaussian(z, rate, 9, relation)
        assert privacy_curve(roots) == privacy_curve(record)


def test_steps_on_all_records_are_gaussian_releases() -> None:
    assert privacy_curve(PoissonRoots(32.0, 1.0, 4, 3)) == privacy_curve(Gaussian(2 * 5 / 32))
    assert privacy_curve(PoissonRoots(32.0, 1.0, 4, 3, "replace")) == privacy_curve(Gaussian(2 * 6 / 32))


# -- domination --------------------------------------------------------------------------------------------


def divergences(
    one: Floats, other: Floats, sampled: Floats, width: float, epsilons: Floats
) -> tuple[Floats, Floats]:
    """Integrate both hockey-stick divergences of two mixtures of plane Gaussians on a grid.

    ``sampled`` holds the weight of each subset of roots, ``one`` and ``other`` its shifts (S, 2).
    """
    axis = np.arange(-7, 7, width)
    rows = [norm.pdf(axis[:, None] - centers) * width for centers in (one[:, 0], other[:, 0])]
    columns = [norm.pdf(axis[:, None] - centers) * width for centers in (one[:, 1], other[:, 1])]
    p, q = ((row * sampled) @ column.T for row, column in zip(rows, columns, strict=True))
    forth, back = (
        np.array([np.maximum(0, a - math.exp(e) * b).sum() for e in epsilons]) for a, b in ((p, q), (q, p))
    )
    return forth, back


def shifts(vectors: Floats, subsets: Floats) -> Floats:
    return subsets @ vectors


def random_roots(rng: np.random.Generator, count: int, kind: str) -> tuple[Floats, Floats]:
    """Vectors of norm at most one for each of the roots, in the two worlds."""
    angle, length = rng.uniform(0, 2 * np.pi, (2, count)), np.ones((2, count))
    if kind == "aligned":
        angle[:] = np.array([[0.0], [np.pi]])
    if kind == "nearly":
        angle[:] = np.array([[0.0], [np.pi]]) + rng.normal(0, 0.1, (2, count))
    if kind == "short":
        length = rng.random((2, count))
    if kind == "added":
        length[1] = 0
    one, other = (
        size[:, None] * np.stack([np.cos(a), np.sin(a)], axis=1)
        for a, size in zip(angle, length, strict=True)
    )
    return one, other


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
def test_aligned_gradients_are_the_worst_case(relation: Relation) -> None:
    rng, settings = np.random.default_rng(3), product((1, 2, 3, 4), ("any", "nearly", "short", "added"))
    for roots, kind in settings:
        z, rate = rng.uniform(0.8, 1.5), rng.uniform(0.02, 0.6)
        subsets = np.array(list(product((0.0, 1.0), repeat=roots)))
        sampled = np.prod(np.where(subsets == 1, rate, 1 - rate), axis=1)
        one, other = random_roots(rng, roots, kind)
        if relation == "add_remove":
            other[0] = 0  # the record's own root, null
        pair = pair_of(z, rate, roots, relation)
        bounds = pair.removed(EPSILONS), pair.added(EPSILONS)
        seen = divergences(shifts(one / z, subsets), shifts(other / z, subsets), sampled, 0.1, EPSILONS)
        for found, bound in zip(seen, bounds, strict=True):
            assert (found <= bound + 3e-5).all(), (roots, kind)


def test_aligned_gradients_attain_the_bound() -> None:
    for relation in ("add_remove", "replace"):
        z, rate, roots = 1.0, 0.1, 3
        subsets = np.array(list(product((0.0, 1.0), repeat=roots)))
        sampled = np.prod(np.where(subsets == 1, rate, 1 - rate), axis=1)
        one, other = random_roots(np.random.default_rng(0), roots, "aligned")
        if relation == "add_remove":
            other[0] = 0
        pair = pair_of(z, rate, roots, relation)
        forth, back = divergences(shifts(one, subsets), shifts(other, subsets), sampled, 0.05, EPSILONS)
        assert forth == pytest.approx(pair.removed(EPSILONS), abs=5e-5)
        assert back == pytest.approx(pair.added(EPSILONS), abs=5e-5)


def test_lemma_2_covers_arbitrary_weights_of_subsets() -> None:
    """Lemma 2 beyond Theorem A: weights that are no products, sums cut to lengths alone."""
    rng = np.random.default_rng(5)
    for _ in range(6):
        longest = rng.uniform(0, 2, (2, 5))
        longest[:, 0] = 0
        weights = rng.dirichlet(np.ones(5), 2)
        angles = rng.uniform(0, 2 * np.pi, (2, 5))
        plane = [
            size[:, None] * np.stack([np.cos(a), np.sin(a)], axis=1)
            for size, a in zip(longest, angles, strict=True)
        ]
        line = [
            np.stack([sign * size, 0 * size], axis=1) for size, sign in zip(longest, (1, -1), strict=True)
        ]
        for epsilon in (-0.5, 0.0, 0.7):
            on_line, in_plane = (_of_mixtures(weights, shifts, epsilon) for shifts in (line, plane))
            assert in_plane <= on_line + 3e-5


def _of_mixtures(weights: Floats, centers: Any, epsilon: float) -> float:
    axis = np.arange(-9, 9, 0.1)
    p, q = (
        (norm.pdf(axis[:, None] - center[:, 0]) * w) @ norm.pdf(axis[:, None] - center[:, 1]).T * 0.01
        for w, center in zip(weights, centers, strict=True)
    )
    return float(np.maximum(0, p - math.exp(epsilon) * q).sum())


def test_a_mixture_of_doubled_sensitivities_is_no_bound() -> None:
    """The tempting substitute: own + 2 x others against N(0, 1). It is exceeded, in both directions."""
    z, rate, roots = 1.0, 0.1, 2
    weights = {own + 2 * other: 0.0 for own in (0, 1) for other in (0, 1)}
    for own, other in product((0, 1), (0, 1)):
        weights[own + 2 * other] += binom.pmf(own, 1, rate) * binom.pmf(other, 1, rate)
    x = np.linspace(-12, 16, 400_001)
    p = sum(w * norm.pdf(x - k / z) for k, w in weights.items())
    q, width = norm.pdf(x), x[1] - x[0]
    ours = pair_of(z, rate, roots)
    forth = float(np.maximum(0, p - q).sum() * width)
    back = float(np.maximum(0, q - math.exp(0.5) * p).sum() * width)
    assert forth == pytest.approx(0.101414, abs=1e-6) and back == pytest.approx(0.0, abs=1e-12)
    assert float(ours.removed(np.array([0.0]))[0]) == pytest.approx(0.102152, abs=1e-6)
    assert float(ours.added(np.array([0.5]))[0]) == pytest.approx(0.005565, abs=1e-6)


def test_one_direction_is_not_a_bound_for_both() -> None:
    event = PoissonRoots(1.0, 0.1, 1, 2)
    both = step_loss(event, 1e-3)
    assert both.get_delta_for_epsilon(0.5) == pytest.approx(0.0193138, rel=1e-4)
    assert float(pair_of(1.0, 0.1, 2).added(np.array([0.5]))[0]) < 0.3 * 0.0193138


@pytest.mark.parametrize("event", [PoissonRoots(1.0, 0.1, 1, 2), PoissonRoots(2.5, 0.4, 1, 5)])
def test_both_directions_are_composed(event: PoissonRoots) -> None:
    kept, pair = step_loss(event, 1e-3), RootPair.from_event(event)
    for pmf, direction in ((kept._pmf_remove, pair.removed), (kept._pmf_add, pair.added)):
        exact = float(direction(np.array([0.5]))[0])
        assert exact <= pmf.get_delta_for_epsilon(0.5) <= 1.01 * exact


def test_the_two_directions_are_related_by_the_inverse_ratio() -> None:
    """H_t(Q || P) = 1 - t + t H_{1/t}(P || Q), for any pair."""
    for relation in ("add_remove", "replace"):
        pair, t = pair_of(1.3, 0.07, 4, relation), np.exp(EPSILONS)
        inverse = 1 - t + t * pair.removed(-EPSILONS)
        assert pair.added(EPSILONS) == pytest.approx(inverse, abs=1e-12)


def test_the_expected_loss_and_steps_without_privacy() -> None:
    x = np.linspace(-30, 30, 100_001)
    for relation in ("add_remove", "replace"):
        others = 3 if relation == "replace" else 2
        p = sum(w * norm.pdf(x - k) for k, w in enumerate(binom.pmf(range(4), 3, 0.2)))
        q = sum(w * norm.pdf(x + k) for k, w in enumerate(binom.pmf(range(others + 1), others, 0.2)))
        wanted = max(float((a * np.log(a / b)).sum() * (x[1] - x[0])) for a, b in ((p, q), (q, p)))
        assert expected_loss(PoissonRoots(1.0, 0.2, 1, 3, relation)) == pytest.approx(wanted, rel=1e-6)
    for event in (PoissonRoots(1e-3, 0.1, 1, 3), PoissonRoots(1.0, 0.5, 10**6, 3)):
        assert isinstance(privacy_curve(event), NoPrivacyCurve)
    with pytest.raises(ConfigError, match="roots"):
        PoissonRoots(1.0, 0.1, 1, 0)


def renyi_bound(event: PoissonRoots) -> float:
    """The bound on epsilon by the Renyi divergence of a step, in the larger one of its two directions."""

    def divergence(alpha: float) -> float:
        furthest = alpha * event.change / event.noise_multiplier + 14.0
        x = np.arange(-furthest, furthest, 0.1)
        p, q = RootPair.from_event(event).log_densities(x)
        steps = [
            logsumexp(alpha * one + (1 - alpha) * other + norm.logpdf(x)) for one, other in ((p, q), (q, p))
        ]
        return event.steps * max(0.0, float(max(steps)) + math.log(0.1)) / (alpha - 1)

    return minimum_over_orders(divergence, 1e-5, "improved", SAMPLED_EXCESS, 1e-5)


def test_a_renyi_bound_is_a_close_upper_bound() -> None:
    for event in (PoissonRoots(4.0, 0.05, 100, 3), PoissonRoots(6.0, 0.05, 100, 3, "replace")):
        exact, bound = privacy_curve(event).epsilon(1e-5), renyi_bound(event)
        assert exact < bound < 1.2 * exact
    one, record = PoissonRoots(2.0, 0.05, 50, 1), PoissonGaussian(2.0, 0.05, 50)
    assert renyi_bound(one) == pytest.approx(epsilon_of_event(record, 1e-5), rel=1e-6)


# -- against an independent recomputation ------------------------------------------------------------------

_STEP, _SIZE = 4e-4, 1 << 18


def composed_law(event: PoissonRoots, mu: float, *, back: bool) -> Any:
    """Return the law of the loss of all steps and one Gaussian, on multiples of a step, by other means.

    Losses are integrated cell by cell over a step's output, split between the two nearest multiples and
    composed by one Fourier transform: the error is of either sign, and of second order.
    """
    roots, z, rate = event.roots, event.noise_multiplier, event.sampling_rate
    others = roots if event.relation == "replace" else roots - 1
    x = np.linspace(-others / z - 12, roots / z + 12, 100_001)
    edges, middle = (x[1:] + x[:-1]) / 2, x[1:-1]
    cells, densities = [], []
    for count, sign in ((roots, 1), (others, -1)):
        weights = binom.pmf(np.arange(count + 1), count, rate)
        moved = [(w, sign * k / z) for k, w in enumerate(weights)]
        cells.append(sum(w * np.diff(norm.cdf(edges - at)) for w, at in moved))
        densities.append(sum(w * np.exp(at * middle - at**2 / 2) for w, at in moved))
    ratio = np.log(densities[0] / densities[1])
    step = (-ratio, cells[1]) if back else (ratio, cells[0])
    law = np.fft.fft(binned(*step)) ** event.steps
    if mu:
        y = np.linspace(-12, 12, 50_001)
        law = law * np.fft.fft(binned(mu * y[1:-1] + mu**2 / 2, np.diff(norm.cdf((y[1:] + y[:-1]) / 2))))
    return np.fft.ifft(law).real.clip(0)


def binned(losses: Any, masses: Any) -> Any:
    place = np.floor(losses / _STEP).astype(np.int64)
    share, law = losses / _STEP - place, np.zeros(_SIZE)
    np.add.at(law, place % _SIZE, masses * (1 - share))
    np.add.at(law, (place + 1) % _SIZE, masses * share)
    return law


def delta_of(law: Any, epsilon: float) -> float:
    losses = _STEP * np.where(np.arange(_SIZE) < _SIZE // 2, np.arange(_SIZE), np.arange(_SIZE) - _SIZE)
    above = losses > epsilon
    return float((law[above] * -np.expm1(epsilon - losses[above])).sum())


def setting(seed: int) -> tuple[PoissonRoots, float]:
    """Random steps that cost something between a half and twelve, and the mu of a Gaussian release."""
    rng = np.random.default_rng(seed)
    roots, relation = int(rng.integers(2, 12)), str(rng.choice(["add_remove", "replace"]))
    rate, steps, mu = rng.uniform(0.01, 0.1), int(rng.integers(50, 500)), rng.uniform(0.15, 2.0)
    change = 2 * roots - (relation == "add_remove")
    z = max(math.sqrt(steps) * rate * change / mu, change / 4)
    gaussian_mu = float(rng.choice([0.0, rng.uniform(0.1, 1.0)]))
    return PoissonRoots(z, rate, steps, roots, relation), gaussian_mu  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "seeds", [range(2), pytest.param(range(2, 100), marks=pytest.mark.slow)], ids=["few", "hundred"]
)
def test_charged_epsilons_agree_with_an_independent_composition(seeds: range) -> None:
    for seed in seeds:
        event, mu = setting(seed)
        whole = compose(event, Gaussian(mu)) if mu else Composed((event,))
        charged = privacy_curve(whole).epsilon(1e-5)
        laws = [composed_law(event, mu, back=back) for back in (False, True)]
        found = float(
            brentq(lambda e, laws=laws: max(delta_of(law, e) for law in laws) - 1e-5, 1e-3, 50, xtol=1e-5)
        )
        assert found <= charged * (1 + 2e-4), (seed, found, charged)  # its grid errs to either side
        assert charged <= 1.01 * found, (seed, found, charged)

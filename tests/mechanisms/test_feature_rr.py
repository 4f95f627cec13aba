"""FeatureRR: golden values, the inverse of its channel, and bins that follow the law."""

import math
from itertools import product

import numpy as np
import pytest

from graphveil.errors import ConfigError
from graphveil.mechanisms import Bins, Duchi, EvenAllocation, FeatureRR, WeightedAllocation
from graphveil.mechanisms.feature_mechanisms import best_bins
from graphveil.papers.scalar_mechanisms import StepDistribution

from .fits import fits, stream

EPSILONS = [0.01, 0.1, 1.0, 5.0]
SIZES = [2, 3, 5, 10, 50, 100]


def close(*values: float):
    return pytest.approx(list(values), rel=1e-7, abs=6e-9)


def test_golden_probabilities() -> None:
    five = Bins(1.0, 5)
    powers = math.exp(-0.25) ** np.abs(np.arange(5)[:, None] - np.arange(5))
    assert powers.sum(axis=1) == close(3.22557744, 3.63649878, 3.77066289, 3.63649878, 3.22557744)
    assert five.table[0] == close(0.31002201, 0.24144538, 0.18803785, 0.14644403, 0.11405072)
    assert five.table[1] == close(0.21416226, 0.27498978, 0.21416226, 0.16678973, 0.12989597)
    assert five.table[2] == close(0.16085518, 0.20654214, 0.26520536, 0.20654214, 0.16085518)
    ten = Bins(0.1, 10)  # Pr(t|t) = 1 / C_t
    assert [1 / ten.table[t, t] for t in (0, 4)] == close(9.5171392, 9.72739567)
    for epsilon, k, u, t, wanted in (
        (1.0, 2, 1, 1, 0.7310585786),
        (0.5, 3, 1, 1, 0.4192289516),
        (0.5, 3, 1, 3, 0.2542752126),
        (0.5, 3, 2, 2, 0.3909913152),
        (1.0, 10, 1, 1, 0.1567674179),
        (1.0, 10, 1, 10, 0.0576715101),
        (0.1, 10, 1, 1, 0.1050735919),
        (3.0, 20, 1, 1, 0.1525458442),
        (3.0, 20, 1, 20, 0.0075948104),
    ):
        assert Bins(epsilon, k).table[t - 1, u - 1] == pytest.approx(wanted, rel=1e-8)


def test_golden_estimates() -> None:
    naive = Bins(1.0, 5, "ceil", "naive")
    assert naive.table @ naive.estimates == close(0.50261121, 0.54465348, 0.6, 0.65534652, 0.69738879)
    unbiased = Bins(1.0, 5, "ceil")
    assert unbiased.estimates == close(-1.33955719, 0.08422056, 0.5, 0.91577944, 2.33955719)
    variance = unbiased.moments(unbiased.values)[1]
    assert variance == close(1.34210512, 1.20065451, 1.16006936, 1.20065451, 1.34210512)


@pytest.mark.parametrize(
    ("epsilon", "square", "absolute"),
    [
        (0.5, 0.14767, 0.30826),
        (1, 0.12840, 0.28261),
        (3, 0.07081, 0.19929),
        (5, 0.04035, 0.14743),
        (9, 0.01725, 0.09743),
    ],
)
def test_golden_errors_of_naive_decoding(epsilon: float, square: float, absolute: float) -> None:
    law, z = Bins(epsilon, 10, "ceil", "naive"), np.linspace(0, 1, 1001)
    errors = law.estimates - z[:, None]
    probabilities = law.probabilities(z)
    assert (probabilities * errors**2).sum() / 1001 == pytest.approx(square, abs=1e-4)
    assert (probabilities * np.abs(errors)).sum() / 1001 == pytest.approx(absolute, abs=1e-4)
    means, variances = law.moments(z)
    assert (variances + (means - z) ** 2).mean() == pytest.approx(square, abs=1e-4)
    # The average over those points is near the integral, which the constant 1/2 has at 1/12.
    assert _integral(law) == pytest.approx(square, abs=2e-4)


def _integral(law: Bins) -> float:
    """The squared error, integrated over z in [0, 1]."""
    low = np.arange(law.k) / law.k
    first, last = (law.estimates - edge[:, None] for edge in (low, low + 1 / law.k))
    return float((law.table * (first**3 - last**3) / 3).sum())


@pytest.mark.parametrize(
    ("epsilon", "k", "variance"),
    [
        (0.5, 2, 4.16770),
        (1, 2, 1.17067),
        (2, 3, 0.382979),
        (3, 4, 0.190327),
        (5, 7, 0.0755914),
        (9, 14, 0.0247525),
    ],
)
def test_golden_best_numbers_of_bins(epsilon: float, k: int, variance: float) -> None:
    assert best_bins(epsilon) == k
    assert Bins(epsilon, k).worst_variance == pytest.approx(variance, rel=5e-6)
    assert Bins(epsilon, k).moments(np.linspace(0, 1, 2001))[1].max() == pytest.approx(variance, rel=1e-5)


def test_golden_switches_of_the_best_number() -> None:
    for switch, k in ((1.6682, 2), (2.8746, 3), (3.5136, 4), (4.2347, 5)):
        assert (best_bins(switch - 1e-4), best_bins(switch + 1e-4)) == (k, k + 1)
    assert (best_bins(6.0), best_bins(8.0)) == (9, 12)


@pytest.mark.parametrize("epsilon", [0.3, 4.0, 20.0, 60.0])
def test_the_best_number_is_the_best_of_all(epsilon: float) -> None:
    least = min(range(2, 257), key=lambda k: Bins(epsilon, k).worst_variance)
    assert best_bins(epsilon) == least


def test_golden_variances_of_a_split() -> None:
    ceil, two = Bins(1 / 50, 10, "ceil"), Bins(1 / 50, 2)
    assert ceil.moments(ceil.values)[1].mean() == pytest.approx(9974, abs=0.5)
    assert two.moments(np.array([0.0, 1.0]))[1] == pytest.approx([2499.9, 2499.9], abs=0.05)


@pytest.mark.parametrize("k", SIZES)
def test_one_feature_loses_exactly_its_budget(k: int) -> None:
    for epsilon in EPSILONS:
        logs = np.log(Bins(epsilon, k).table)
        assert (logs.max(axis=0) - logs.min(axis=0)).max() == pytest.approx(epsilon, abs=1e-9)


@pytest.mark.parametrize("k", SIZES)
def test_estimates_are_unbiased_and_variances_exact(k: int) -> None:
    for epsilon, mode in product(EPSILONS, ("ceil", "stochastic")):
        law = Bins(epsilon, k, mode)
        z = np.linspace(0, 1, 23) if mode == "stochastic" else law.values
        means, variances = law.moments(z)
        assert law.table @ law.estimates == pytest.approx(law.values, abs=1e-8)
        assert means == pytest.approx(z, abs=1e-8)
        for at in (0, 3, len(z) - 1):
            law_at = StepDistribution.discrete(law.estimates, law.probabilities(z)[at % len(z)])
            assert law_at.variance == pytest.approx(variances[at % len(z)], rel=1e-9)
        assert law.worst_variance >= variances.max() * (1 - 1e-12)


def test_two_bins_are_duchi() -> None:
    z = np.linspace(0, 1, 11)
    for epsilon in (0.01, 1.0, 6.0):
        assert Bins(epsilon, 2).moments(z)[1] == pytest.approx(
            Duchi(epsilon).variance(2 * z - 1) / 4, rel=1e-9
        )


@pytest.mark.parametrize("mode", ["ceil", "stochastic"])
def test_reports_follow_the_law(mode: str) -> None:
    law, z = (
        FeatureRR(epsilon=3.0, dim=3, k=4, mode=mode, allocation=WeightedAllocation([0.6, 0.3, 0.1])),
        [0.0, 0.3, 1.0],
    )
    reports = law.perturb(np.tile([z], (700_000, 1)), stream=stream())
    for column, feature in enumerate(law.features):
        assert feature.epsilon == pytest.approx(3.0 * law.allocation.theta[column])
        fits(
            np.bincount(reports.values[:, column], minlength=4),
            feature.probabilities(np.array([z[column]]))[0],
        )
    assert abs(np.corrcoef(reports.values.T.astype(float))[0, 1]) < 5 / math.sqrt(700_000)


def test_ceil_puts_edges_into_the_lower_bin_and_zero_into_the_first() -> None:
    law = FeatureRR(epsilon=2000.0, dim=5, k=4, mode="ceil")
    reports = law.perturb(np.array([[0.0, 0.25, 0.26, 0.5, 1.0]] * 50), stream=stream())
    assert (reports.values == [0, 0, 1, 1, 3]).all()
    assert law.estimate(reports)[0] == pytest.approx([0.125, 0.125, 0.375, 0.375, 0.875])


def test_the_paper_s_decoding_reads_a_bin_as_its_upper_end() -> None:
    law = FeatureRR(epsilon=2000.0, dim=4, k=10, mode="ceil", decode="naive")
    estimates = law.estimate(law.perturb(np.array([[0.0, 0.11, 0.5, 1.0]]), stream=stream()))
    assert estimates[0] == pytest.approx([0.1, 0.2, 0.5, 1.0])


def test_a_feature_of_weight_zero_is_uniform_and_has_no_unbiased_estimate() -> None:
    theta = WeightedAllocation([1.0, 0.0])
    with pytest.raises(ConfigError, match="cannot be estimated without bias"):
        FeatureRR(epsilon=1.0, dim=2, k=3, allocation=theta)
    law = FeatureRR(epsilon=1.0, dim=2, k=4, mode="ceil", decode="naive", allocation=theta)
    reports = law.perturb(np.tile([[0.2, 0.9]], (200_000, 1)), stream=stream())
    fits(np.bincount(reports.values[:, 1], minlength=4), np.full(4, 0.25))


@pytest.mark.parametrize(
    "wrong",
    [
        {"k": 1},
        {"k": 257},
        {"k": "many"},
        {"k": 2.5},
        {"mode": "floor"},
        {"decode": "exact"},
        {"mode": "ceil"},
    ],
)
def test_parameters_outside_their_range_are_rejected(wrong: dict) -> None:
    with pytest.raises(ConfigError, match=r"k=|mode=|decode="):
        FeatureRR(**{"epsilon": 1.0, "dim": 3} | wrong)


def test_equal_budgets_share_one_table() -> None:
    assert len(set(FeatureRR(epsilon=1.0, dim=500, allocation=EvenAllocation()).features)) == 1

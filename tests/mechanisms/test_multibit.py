"""Multi-bit: golden values, the number of features, and the law of whole reports."""

import math
from itertools import combinations

import numpy as np
import pytest

from graphveil.errors import ConfigError
from graphveil.mechanisms import EvenAllocation, MultiBit, PerFeature, SampledAllocation

from .fits import fits, stream

# local_and_topology.md, 15.2: eps, d, m by floor, scale, V(1/2).
GOLDEN = [
    (0.1, 16, 1, 160.13331112, 1602.667333),
    (1, 16, 1, 17.31162731, 18.730778),
    (1, 50, 1, 54.09883534, 58.533680),
    (1, 500, 1, 540.98835343, 585.336797),
    (3, 500, 1, 276.19784825, 152.570503),
    (5, 1433, 2, 422.32336347, 248.928155),
    (10, 2048, 4, 301.78585079, 177.880273),
]
# eps, by floor: m and V(1/2), best: m and V(1/2); d = 100.
BEST = [(4, 1, 26.90054575, 2, 21.55077076), (6, 2, 15.25705028, 3, 14.36718051)]
BEST += [(3.1, 1, 29.93997913, 2, 29.60151161)]
# d, eps, and the worst variance on [0, 1] of duchi, pm, hm, three, pm-sub (samples) and multi-bit by floor.
WORST = [
    (50, 3.0, [15.2571, 18.4118, 17.6521, 15.7306, 17.1738, 15.2571]),
    (500, 1.0, [585.337, 777.700, 660.874, 653.934, 760.042, 585.337]),
    (2048, 9.0, [208.310, 254.546, 244.174, 217.939, 237.643, 195.429]),
]


def middle(law: MultiBit) -> float:
    return float(law.variance(np.full((1, law.dim), 0.5))[0, 0])


@pytest.mark.parametrize(("epsilon", "dim", "m", "scale", "variance"), GOLDEN)
def test_golden_values(epsilon: float, dim: int, m: int, scale: float, variance: float) -> None:
    law = MultiBit(epsilon=epsilon, dim=dim, m="floor")
    assert law.samples == m
    assert law.scale == pytest.approx(scale, rel=1e-7)
    assert middle(law) == pytest.approx(variance, rel=1e-7)
    assert float(law.variance(np.zeros((1, dim)))[0, 0]) == pytest.approx(middle(law) - 0.25)


def test_the_best_number_of_features() -> None:
    for epsilon, floor, at_floor, best, at_best in BEST:
        for m, count, variance in (("floor", floor, at_floor), ("best", best, at_best)):
            law = MultiBit(epsilon=epsilon, dim=100, m=m)
            assert law.samples == count, f"m={m!r} takes {law.samples} at epsilon={epsilon}, not {count}"
            assert middle(law) == pytest.approx(variance, rel=1e-7)
    for switch, before in ((3.0571, 1), (5.3199, 2)):
        assert MultiBit(epsilon=switch - 2e-4, dim=100).samples == before
        assert MultiBit(epsilon=switch + 2e-4, dim=100).samples == before + 1
    for epsilon in np.linspace(0.1, 40, 57).tolist():
        wanted = min(range(1, 31), key=lambda m: 1 / (m * math.tanh(epsilon / (2 * m)) ** 2))
        assert MultiBit(epsilon=epsilon, dim=30).samples == wanted


@pytest.mark.parametrize(("dim", "epsilon", "wanted"), WORST)
def test_golden_worst_variances_of_samples(dim: int, epsilon: float, wanted: list[float]) -> None:
    grid = np.linspace(0.5, 1, 401)[:, None] * np.ones(dim)
    for scalar, variance in zip(
        ("duchi", "piecewise", "hybrid", "three-outputs", "pm-sub"), wanted, strict=False
    ):
        law = PerFeature(epsilon=epsilon, dim=dim, scalar=scalar, allocation=SampledAllocation())
        assert law.variance(grid).max() == pytest.approx(variance, rel=1e-5)
    assert MultiBit(epsilon=epsilon, dim=dim, m="floor").variance(grid).max() == pytest.approx(
        wanted[-1], rel=1e-5
    )


def test_golden_variances_of_a_split() -> None:
    for scalar, variance in (("duchi", 2500.2), ("piecewise", 3308.4), ("laplace", 5000)):
        law = PerFeature(epsilon=1.0, dim=50, scalar=scalar, allocation=EvenAllocation())
        assert middle(law) == pytest.approx(variance, rel=3e-5)


def test_one_bit_is_duchi_on_a_sample_of_one() -> None:
    one, other = (
        MultiBit(epsilon=1.0, dim=4, m=1),
        PerFeature(epsilon=1.0, dim=4, scalar="duchi", allocation=SampledAllocation(1)),
    )
    x = np.random.default_rng(0).random((5, 4))
    assert one.variance(x) == pytest.approx(other.variance(x), rel=1e-12)
    reports = [law.perturb(x, stream=stream()) for law in (one, other)]
    assert (reports[0].indices == reports[1].indices).all()
    assert one.estimate(reports[0]) == pytest.approx(other.estimate(reports[1]), rel=1e-6)


def test_reports_follow_the_law() -> None:
    law, x = MultiBit(epsilon=2.0, dim=4, m=2), np.array([0.0, 0.3, 0.8, 1.0])
    reports = law.perturb(np.tile(x, (1_000_000, 1)), stream=stream())
    pairs = list(combinations(range(4), 2))
    place = np.zeros(16, dtype=np.int64)
    place[[4 * a + b for a, b in pairs]] = np.arange(6)
    subset = place[4 * reports.indices[:, 0] + reports.indices[:, 1]]
    bits = 2 * reports.values[:, 0] + reports.values[:, 1]
    one = law.bit_probability(x)
    wanted = [
        (one[a] if first else 1 - one[a]) * (one[b] if second else 1 - one[b]) / 6
        for a, b in pairs
        for first in (0, 1)
        for second in (0, 1)
    ]
    fits(np.bincount(4 * subset + bits, minlength=24), np.array(wanted), seen=0.08)


@pytest.mark.parametrize("m", [0, -1, 4, 1.5, "most", True])
def test_rejects_an_invalid_number_of_features(m: int) -> None:
    with pytest.raises(ConfigError, match="m="):
        MultiBit(epsilon=1.0, dim=3, m=m)

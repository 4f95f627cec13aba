"""Golden noise levels of the specification's section 7, and equal cost for both classes of records."""

import math

import pytest

from graphveil.errors import ConfigError
from graphveil.estimators.classcode.node_plan import BudgetSplit
from graphveil.privacy.gaussian import mu_of

# eps: mu*, z1 at fe .1 and .4, z2 at fc .1, sigma of recipe R at fe .1 and .4
READING = {
    0.25: (0.07526989, 325.4276, 162.7138, 265.7105, 14.853669, 18.78857),
    0.5: (0.14221056, 172.2439, 86.1219, 140.6365, 7.861821, 9.944505),
    1.0: (0.26805112, 91.3814, 45.6907, 74.6126, 4.170973, 5.27591),
    2.0: (0.50155169, 48.8382, 24.4191, 39.8762, 2.22915, 2.819677),
    4.0: (0.9249309, 26.4829, 13.2415, 21.6232, 1.208776, 1.528994),
    8.0: (1.6660306, 14.7025, 7.3513, 12.0046, 0.671077, 0.848852),
    16.0: (2.90547816, 8.4306, 4.2153, 6.8835, 0.384802, 0.48674),
}
STRICT = {
    1.0: (6.2177, 7.1796, 7.1796),
    2.0: (3.323, 3.8371, 3.8371),
    4.0: (1.8019, 2.0807, 2.0807),
    8.0: (1.0004, 1.1551, 1.1551),
    16.0: (0.5736, 0.6624, 0.6624),
}


@pytest.mark.parametrize(("epsilon", "golden"), READING.items())
def test_golden_noise_of_recipe_r(epsilon: float, golden: tuple[float, ...]) -> None:
    mu = mu_of(epsilon, 1e-5)
    dense, sparse = BudgetSplit.neighborhood_sum(0.1).noise(mu), BudgetSplit.neighborhood_sum(0.4).noise(mu)
    found = (mu, dense.encoder, sparse.encoder, dense.combiner, *dense.pushes, *sparse.pushes)
    assert found == pytest.approx(golden, rel=2e-6, abs=5e-5)
    assert (dense.bound, sparse.bound) == pytest.approx((1.118034, 1.414214), abs=1e-6)


@pytest.mark.parametrize(("epsilon", "golden"), STRICT.items())
def test_golden_noise_of_recipe_s(epsilon: float, golden: tuple[float, ...]) -> None:
    noise = BudgetSplit.for_weighted_rows(0.1).noise(mu_of(epsilon, 1e-5))
    assert noise.pushes == pytest.approx(golden, abs=6e-5)
    assert noise.bound == pytest.approx(1.054093, abs=1e-6)


@pytest.mark.parametrize(
    "budget_split",
    [
        BudgetSplit.for_weighted_rows(0.1),
        BudgetSplit.for_weighted_rows(0.5),
        BudgetSplit.neighborhood_sum(0.4, 0.2),
    ],
)
def test_labeled_and_unlabeled_records_cost_the_same(budget_split: BudgetSplit) -> None:
    noise = budget_split.noise(0.7)
    pushes = sum(sigma**-2 for sigma in noise.pushes)
    trained = budget_split.encoder_steps / noise.encoder**2
    combined = budget_split.combiner_steps / noise.combiner**2 if noise.combiner else 0.0
    assert math.sqrt(trained + combined + pushes) == pytest.approx(0.7, rel=1e-12)
    assert noise.bound * math.sqrt(pushes) == pytest.approx(0.7, rel=1e-12)


@pytest.mark.parametrize(
    "wrong",
    [
        {"encoder": 0.0},
        {"combiner": -0.1},
        {"pushes": (0.5, 0.4)},
        {"pushes": ()},
        {"pushes": (1.2, -0.2)},
        {"encoder": 0.6, "combiner": 0.4},
        {"encoder_steps": 0},
    ],
)
def test_shares_that_do_not_add_up_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        BudgetSplit(**wrong)

"""The exam of every local mechanism, and of what they share: bounds, budgets, streams."""

import math
from itertools import combinations, product

import numpy as np
import pytest

from graphveil.errors import ConfigError, GraphError, ReleaseError, UnsupportedGuaranteeError
from graphveil.mechanisms import (
    Bounds,
    EvenAllocation,
    FeatureMechanism,
    FeatureRR,
    LDPReports,
    LocalDPClaim,
    LocalNoise,
    MultiBit,
    PerFeature,
    SampledAllocation,
    WeightedAllocation,
)

from .cases import (
    BELOW_64_BITS,
    BIASED,
    BUDGETED,
    CASES,
    ENUMERABLE,
    FEATURES,
    NO_BUDGETS,
    Case,
    made,
    records,
    reported_arrays,
)
from .fits import stream


def same(one: LDPReports, other: LDPReports) -> bool:
    pairs = zip(reported_arrays(one), reported_arrays(other), strict=True)
    return all(part.tolist() == again.tolist() for part, again in pairs)


# -- the exam -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FEATURES)
def test_estimates_have_mean_and_variance(name: str) -> None:
    law, count = made(name), 40_000
    x = np.tile([[0.0, 0.35, 1.0]], (count, 1))
    estimates = law.estimate(law.perturb(x, stream=stream())).astype(np.float64)
    variance = law.variance(x[:1])[0]
    assert estimates.var(axis=0) == pytest.approx(variance, rel=0.05)
    if name not in BIASED:
        assert (np.abs(estimates.mean(axis=0) - x[0]) < 5 * np.sqrt(variance / count)).all()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_any_partition_of_the_records_gives_the_same_reports(case: Case) -> None:
    law, count = case.make(3.0), case.many
    given = case.records(count)
    whole = reported_arrays(law.perturb(*given, stream=stream()))
    order = np.random.default_rng(1).permutation(count)
    for rows in (np.arange(count), order):
        parts = [
            reported_arrays(law.perturb(*(some[part] for some in given), stream=stream(), rows=part))
            for part in np.split(rows, [1, 7, count // 2])
        ]
        for reports, wanted in zip(zip(*parts, strict=True), whole, strict=True):
            assert (np.concatenate(reports) == wanted[rows]).all()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_two_keys_give_different_reports(case: Case) -> None:
    law, given = case.make(3.0), case.records(300)
    assert not same(law.perturb(*given, stream=stream(1)), law.perturb(*given, stream=stream(2)))


@pytest.mark.parametrize("name", FEATURES)
def test_bounds_only_rescale(name: str) -> None:
    unit, wide = made(name), made(name, bounds=Bounds((-1.0, 0.0, 4.0), (3.0, 0.5, 5.0)))
    low, width = np.array([-1.0, 0.0, 4.0]), np.array([4.0, 0.5, 1.0])
    x = np.round(records(200), 3)
    one, other = unit.perturb(x, stream=stream()), wide.perturb(low + x * width, stream=stream())
    assert wide.estimate(other) == pytest.approx(low + width * unit.estimate(one), rel=1e-4, abs=1e-4)
    assert wide.variance(low + x * width) == pytest.approx(unit.variance(x) * width**2, rel=1e-9)


@pytest.mark.parametrize("name", FEATURES)
def test_values_outside_the_bounds_count_as_the_ends(name: str) -> None:
    law, x = made(name), records(100)
    far = x.copy()
    x[3], x[5] = 0.0, 1.0
    far[3], far[5] = -1e300, 7.0
    assert same(law.perturb(far, stream=stream()), law.perturb(x, stream=stream()))
    assert law.bounds.outside(far) == 6


@pytest.mark.parametrize("name", FEATURES)
def test_rejects_non_finite_features_without_revealing_them(name: str) -> None:
    law = made(name)
    for bad, kind in product((math.nan, math.inf, -math.inf), (np.float32, np.float64)):
        x = records(100).astype(kind)
        x[41, 2] = bad
        with pytest.raises(GraphError, match="NaN or infinite") as caught:
            law.perturb(x, stream=stream())
        assert not any(character.isdigit() for character in str(caught.value))


@pytest.mark.parametrize("name", FEATURES)
def test_shapes_that_do_not_fit_are_rejected(name: str) -> None:
    law = made(name)
    for x in (np.zeros((4, 2)), np.zeros(3), np.zeros((2, 3, 1)), np.full((2, 3), "1"), [[None] * 3]):
        with pytest.raises(GraphError, match="must have the shape"):
            law.perturb(x, stream=stream())
    reports = law.perturb(records(4), stream=stream())
    wrong = [LDPReports(reports.values[:, :1], reports.indices), LDPReports(reports.values[0], None)]
    wrong.append(LDPReports(reports.values, np.zeros((4, 3), np.int32) if reports.indices is None else None))
    for report in wrong:
        with pytest.raises(GraphError, match="not belong to this mechanism"):
            law.estimate(report)


@pytest.mark.parametrize("name", FEATURES)
def test_empty_and_integer_features_are_accepted(name: str) -> None:
    law = made(name)
    assert law.estimate(law.perturb(np.empty((0, 3)), stream=stream())).shape == (0, 3)
    ones = np.ones((5, 3), dtype=np.int64)
    assert same(law.perturb(ones, stream=stream()), law.perturb(ones.astype(float), stream=stream()))


@pytest.mark.parametrize("name", FEATURES)
def test_no_noise_leaves_the_features(name: str) -> None:
    law, x = made(name, math.inf, Bounds(-1.0, 1.0)), records(20).astype(np.float32)
    assert law.estimate(law.perturb(x, stream=stream())) == pytest.approx(x, abs=1e-6)
    assert not law.variance(x).any()
    assert law.claim == LocalDPClaim(math.inf)


@pytest.mark.parametrize("name", FEATURES)
def test_small_and_huge_budgets_work(name: str) -> None:
    for epsilon in (0.05, 100.0, 1000.0):
        law, x = made(name, epsilon), records(200)
        estimates = law.estimate(law.perturb(x, stream=stream()))
        assert np.isfinite(estimates).all()
        assert np.isfinite(law.variance(x)).all()
        close = epsilon == 1000.0 and not law.variance(x).max() > 1e-2
        assert not close or name in BIASED or np.abs(estimates - x).mean() < 0.1


@pytest.mark.parametrize("name", BUDGETED)
def test_rejects_invalid_budgets(name: str) -> None:
    for epsilon in [*NO_BUDGETS, *([1e-12] if name in BELOW_64_BITS else [])]:
        with pytest.raises(ConfigError, match="epsilon="):
            BUDGETED[name](epsilon)


@pytest.mark.parametrize("name", FEATURES)
def test_the_claim_is_the_budget_and_invalid_with_bounds_from_data(name: str) -> None:
    claim = made(name).claim
    assert (claim.epsilon, claim.certified) == (3.0, True)
    assert (claim.delta > 0) == (name == "gaussian")
    seen = Bounds.of_data(records(9), data_dependent_bounds=True)
    assert made(name, bounds=seen).claim.deviations == ("bounds taken from the data",)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_two_records_of_one_number_are_rejected(case: Case) -> None:
    law, given = case.make(3.0), case.records(2)
    for rows in (np.array([3, 3]), np.array([-1, 2]), np.array([1])):
        with pytest.raises(ConfigError, match="2 distinct integers"):
            law.perturb(*given, stream=stream(), rows=rows)


# -- the whole vector, by enumeration -----------------------------------------------------------------------


def keeps_the_budget(law: FeatureMechanism, tight: bool = True) -> None:
    """Enumerate Pr(y|x) over a grid of vectors and all outputs; the largest log ratio is the budget."""
    grid = np.array(list(product([0.0, 0.4, 1.0], repeat=law.dim)))
    table = _outputs(law, grid)
    table = table[:, table.any(axis=0)]  # three outputs have two at a small budget
    assert table.sum(axis=1) == pytest.approx(np.ones(len(grid)), abs=1e-12)
    logs = np.log(table)
    worst = float((logs.max(axis=0) - logs.min(axis=0)).max())
    assert worst <= law.epsilon + 1e-9, f"a record spends {worst:.6f} of a budget of {law.epsilon}"
    assert not tight or worst >= law.epsilon - 1e-9


def _outputs(law: FeatureMechanism, grid: np.ndarray) -> np.ndarray:
    """Pr(y|x) for vectors x (rows) and outputs y (columns)."""
    if isinstance(law, MultiBit):
        one = law.bit_probability(grid)
        parts = [np.stack([1 - one[:, i], one[:, i]], axis=1) for i in range(law.dim)]
        return _over_subsets(parts, law.samples)
    if isinstance(law, FeatureRR):
        columns = zip(law.features, grid.T, strict=True)
        return _joint([feature.probabilities(column) for feature, column in columns])
    assert isinstance(law, PerFeature)
    each = law.scalars * law.dim if len(law.scalars) == 1 else law.scalars
    columns = zip(each, grid.T, strict=True)
    parts = [np.stack([scalar.distribution(2 * z - 1).masses for z in column]) for scalar, column in columns]
    return _over_subsets(parts, law.samples)


def _over_subsets(parts: list[np.ndarray], size: int) -> np.ndarray:
    subsets = list(combinations(range(len(parts)), size))
    return np.concatenate([_joint([parts[i] for i in s]) / len(subsets) for s in subsets], axis=1)


def _joint(parts: list[np.ndarray]) -> np.ndarray:
    table = parts[0]
    for part in parts[1:]:
        table = (table[:, :, None] * part[:, None, :]).reshape(len(table), -1)
    return table


@pytest.mark.parametrize("name", ENUMERABLE)
def test_the_whole_vector_keeps_the_budget(name: str) -> None:
    for epsilon in (0.1, 1.0, 6.0):
        keeps_the_budget(made(name, epsilon))


def test_weights_that_are_accepted_keep_the_budget() -> None:
    for theta in ([0.5, 0.3, 0.2], [0.9, 0.5, 0.3]):
        try:
            weights = WeightedAllocation(theta)
        except ConfigError:
            assert sum(theta) > 1
            continue
        keeps_the_budget(FeatureRR(epsilon=1.0, dim=3, allocation=weights))


# -- budgets, bounds and streams ----------------------------------------------------------------------------


def test_weights_must_be_normalized_public_and_one_per_feature() -> None:
    for theta in ([0.5, 0.6], [0.3, 0.3, 0.3], [1.0 + 1e-6]):
        with pytest.raises(ConfigError, match="theta sums to"):
            WeightedAllocation(theta)
    for theta in ([-0.5, 1.5], [math.nan, 1.0], [], "ab", [[1.0], [1.0, 2.0]]):
        with pytest.raises(ConfigError, match="theta must be a list"):
            WeightedAllocation(theta)
    with pytest.raises(UnsupportedGuaranteeError, match="one row per record"):
        WeightedAllocation([[0.5, 0.5], [0.9, 0.1]])
    with pytest.raises(ConfigError, match="2 weights for 3 features"):
        FeatureRR(epsilon=1.0, dim=3, allocation=WeightedAllocation([0.5, 0.5]))
    with pytest.raises(ConfigError, match="All scores are zero"):
        WeightedAllocation.linear([0.0, 0.0])


def test_cube_roots_have_the_least_weighted_error() -> None:
    w = np.array([8.0, 1.0, 0.2])
    best = (w / np.array(WeightedAllocation.cube_root(w).theta) ** 2).sum()
    for seed in range(200):
        theta = np.random.default_rng(seed).dirichlet(np.ones(3))
        assert (w / theta**2).sum() >= best
    assert best < (w / np.array(WeightedAllocation.linear(w).theta) ** 2).sum()


def test_weights_never_spend_more_than_the_budget() -> None:
    theta = np.full(3, (1 + 9e-10) / 3)
    assert math.fsum(WeightedAllocation(theta).budgets(2.0, 3)) <= 2.0


@pytest.mark.parametrize(
    ("low", "high"),
    [(1.0, 1.0), (2.0, 1.0), (0.0, math.inf), ((0.0,), (1.0, 2.0)), (0.0, (1.0,)), ("0", 1.0), ((), ())],
)
def test_rejects_empty_bounds(low: float, high: float) -> None:
    with pytest.raises(ConfigError, match=r"(low|high)"):
        Bounds(low, high)


def test_bounds_from_data_require_consent() -> None:
    with pytest.raises(ConfigError, match="data_dependent_bounds=True"):
        Bounds.of_data(records(9))
    assert Bounds.of_data(np.full((2, 2), 3.0), data_dependent_bounds=True).high == 4.0
    with pytest.raises(GraphError, match="NaN or infinite"):
        Bounds.of_data(np.array([[math.nan]]), data_dependent_bounds=True)


def test_bounds_fit_the_features() -> None:
    with pytest.raises(ConfigError, match="low and high have 2 entries"):
        MultiBit(epsilon=1.0, dim=3, bounds=Bounds((0.0, 0.0), (1.0, 1.0)))


def test_a_noise_stream_is_returned_once_per_purpose() -> None:
    noise = LocalNoise()
    words = noise.stream("features").words(np.arange(3), words_per_row=2)
    assert (words != noise.stream("labels").words(np.arange(3), words_per_row=2)).all()
    assert (words != LocalNoise().stream("features").words(np.arange(3), words_per_row=2)).all()
    with pytest.raises(ReleaseError, match="was already used"):
        noise.stream("labels")
    assert noise.deviations == ()


def test_a_seed_makes_noise_reproducible_and_is_a_deviation() -> None:
    one, two = (LocalNoise(unsafe_noise_seed=4) for _ in range(2))
    drawn = [noise.stream("x").words(np.arange(3), words_per_row=2) for noise in (one, two)]
    assert (drawn[0] == drawn[1]).all()
    assert one.deviations == ("the noise is reproducible from a seed",)


@pytest.mark.parametrize("dim", [0, -1, 1.5, True, (1 << 20) + 1])
def test_rejects_an_invalid_number_of_features(dim: int) -> None:
    with pytest.raises(ConfigError, match="dim="):
        MultiBit(epsilon=1.0, dim=dim)


def test_allocations_of_the_wrong_kind_are_rejected() -> None:
    with pytest.raises(ConfigError, match="allocation must be"):
        PerFeature(epsilon=1.0, dim=3, scalar="duchi", allocation="split")
    with pytest.raises(ConfigError, match="MultiBit already samples features"):
        FeatureRR(epsilon=1.0, dim=3, allocation=SampledAllocation(2))
    with pytest.raises(ConfigError, match="count="):
        SampledAllocation(0)
    with pytest.raises(ConfigError, match="A feature of weight 0 cannot be estimated without bias"):
        PerFeature(epsilon=1.0, dim=2, scalar="duchi", allocation=WeightedAllocation([1.0, 0.0]))


@pytest.mark.parametrize("name", FEATURES)
def test_the_worst_variance_is_the_largest_on_a_fine_grid(name: str) -> None:
    bounds = Bounds((0.0, -1.0, 2.0), (1.0, 1.0, 2.5))
    x = bounds.real(np.repeat(np.linspace(0, 1, 20_001)[:, None], 3, axis=1))
    for epsilon in (0.3, 1.5, 3.0, 6.0, 12.0, math.inf):
        law = made(name, epsilon, bounds)
        found = law.variance(x).max()
        assert found <= law.worst_variance * (1 + 1e-9)
        assert found >= law.worst_variance * (1 - 1e-6)


def test_a_feature_of_weight_zero_has_a_worst_variance_too() -> None:
    law = FeatureRR(epsilon=1.0, dim=2, k=4, decode="naive", allocation=WeightedAllocation([1.0, 0.0]))
    x = np.repeat(np.linspace(0, 1, 2001)[:, None], 2, axis=1)
    assert law.worst_variance == pytest.approx(law.variance(x).max(), rel=1e-6)


def test_the_worst_of_three_outputs_is_neither_at_the_end_nor_in_the_middle() -> None:
    law = PerFeature(epsilon=2.0, dim=1, scalar="three-outputs", allocation=EvenAllocation())
    ends = law.variance(np.array([[0.0], [0.5], [1.0]])).max()
    assert law.worst_variance > 1.01 * ends
    assert 4 * law.worst_variance == pytest.approx(0.99991837, abs=1e-8)

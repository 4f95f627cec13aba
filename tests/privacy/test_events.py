import pytest

from graphveil.errors import ConfigError
from graphveil.privacy import (
    ByGroup,
    Composed,
    Event,
    Gaussian,
    PairwiseGaussian,
    PoissonGaussian,
    compose,
    privacy_curve,
    within_partition,
)
from graphveil.privacy.accountant import total_mu, worst_case_compositions
from graphveil.privacy.events import OneOf

ROWS = PairwiseGaussian("labels", ((0.0, 0.75), (0.75, 1.0)))


@pytest.mark.parametrize("mu", [-0.1, float("nan"), float("inf")])
def test_a_gaussian_needs_a_finite_mu(mu: float) -> None:
    with pytest.raises(ConfigError, match="mu="):
        Gaussian(mu)


@pytest.mark.parametrize("table", [((1.0, 0.5), (0.4, 1.0)), ((1.0, 0.5),), ((1.0, -0.5), (-0.5, 1.0))])
def test_a_table_over_pairs_is_square_symmetric_and_not_negative(
    table: tuple[tuple[float, ...], ...],
) -> None:
    with pytest.raises(ConfigError, match="mu_squared"):
        PairwiseGaussian("labels", table)


def test_the_worst_pair_is_the_largest_entry() -> None:
    assert ROWS.worst == 1.0
    assert PairwiseGaussian("nobody", ()).worst == 0.0


@pytest.mark.parametrize(
    "change",
    [
        {"noise_multiplier": 0},
        {"sampling_rate": 1.1},
        {"steps": -1},
        {"steps": 1.5},
        {"relation": "swap"},
    ],
)
def test_training_parameters_are_checked(change: dict[str, object]) -> None:
    good = {"noise_multiplier": 1.0, "sampling_rate": 0.1, "steps": 10, "relation": "replace"}
    PoissonGaussian(**good)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=next(iter(change))):
        PoissonGaussian(**(good | change))  # type: ignore[arg-type]


def test_an_event_by_group_needs_groups() -> None:
    with pytest.raises(ConfigError, match="there are none"):
        ByGroup("train/val", ())


@pytest.mark.parametrize("inner", [ROWS, ByGroup("regions", (Gaussian(1.0),)), compose(Gaussian(1.0), ROWS)])
def test_groups_hold_neither_tables_nor_groups(inner: Event) -> None:
    with pytest.raises(ConfigError, match="plain events"):
        ByGroup("train/val", (Gaussian(1.0), inner))


def test_equal_groups_are_equal_however_they_were_nested() -> None:
    nested = ByGroup("split", (compose(Gaussian(1.0)), Composed((Composed((Gaussian(1.0), Gaussian(2.0))),))))
    assert nested == ByGroup("split", (Gaussian(1.0), compose(Gaussian(1.0), Gaussian(2.0))))
    assert nested.events[0] == Gaussian(1.0)


def test_composition_keeps_the_order_and_flattens() -> None:
    parts = (Gaussian(1.0), ROWS, PoissonGaussian(1.0, 0.1, 2))
    assert compose(parts[0], compose(parts[1], compose(parts[2]))) == Composed(parts)


def test_composition_flattens_what_was_nested_by_hand() -> None:
    nested = Composed((Gaussian(1.0), Composed((Composed((Gaussian(2.0),)), Gaussian(3.0)))))
    assert compose(nested) == Composed((Gaussian(1.0), Gaussian(2.0), Gaussian(3.0)))


def test_the_same_groups_compose_pair_by_pair_and_other_groups_do_not() -> None:
    counts = PairwiseGaussian("labels", ((1.0, 0.0), (0.0, 0.0)))
    one_split = compose(within_partition(ROWS, "a"), within_partition(counts, "a"))
    two_splits = compose(within_partition(ROWS, "a"), within_partition(counts, "b"))
    assert total_mu(one_split) == pytest.approx(1.0)
    assert total_mu(two_splits) == pytest.approx(2**0.5)


def test_the_same_groups_of_records_compose_group_by_group_and_other_groups_do_not() -> None:
    training, selection = (
        ByGroup("split", (Gaussian(3.0), Composed(()))),
        ByGroup("split", (Composed(()), Gaussian(4.0))),
    )
    one_split = compose(within_partition(training, "a"), within_partition(selection, "a"))
    two_splits = compose(within_partition(training, "a"), within_partition(selection, "b"))
    assert total_mu(one_split) == pytest.approx(4.0)
    assert total_mu(two_splits) == pytest.approx(5.0)


def test_naming_the_groups_leaves_other_events_alone() -> None:
    assert within_partition(compose(Gaussian(1.0), PoissonGaussian(1.0, 0.1, 2)), "a") == compose(
        Gaussian(1.0), PoissonGaussian(1.0, 0.1, 2)
    )


STEPS = PoissonGaussian(4.0, 0.01, 20, "replace")


def test_cases_are_told_apart_wherever_they_stand() -> None:
    inner = OneOf((Gaussian(2.0), ROWS))
    assert OneOf((compose(Gaussian(1.0), inner), STEPS)) == OneOf(
        (compose(Gaussian(1.0), Gaussian(2.0)), compose(Gaussian(1.0), ROWS), STEPS)
    )
    named = within_partition(compose(inner, ROWS), "a")
    assert named == compose(OneOf((Gaussian(2.0), within_partition(ROWS, "a"))), within_partition(ROWS, "a"))


@pytest.mark.parametrize("more", [(), (Gaussian(3.0),), (STEPS,)])
def test_one_of_several_costs_what_the_worst_of_them_costs(more: tuple[Event, ...]) -> None:
    cases = (Gaussian(0.3), STEPS, ByGroup("split", (Gaussian(0.4), Composed(()))), ROWS)
    curve = privacy_curve(compose(OneOf(cases), *more))
    each = [privacy_curve(compose(case, *more)) for case in cases]
    for delta in (1e-2, 1e-6):
        assert curve.epsilon(delta) == max(one.epsilon(delta) for one in each)
    assert curve.delta(1.0) == max(one.delta(1.0) for one in each)


def test_more_cases_than_are_told_apart_cost_at_least_the_worst_of_them() -> None:
    cases = tuple(compose(Gaussian(0.1 * k), *[STEPS] * (12 - k)) for k in range(1, 12))
    assert len(worst_case_compositions(OneOf(cases))) == 1 < len(cases)
    worst = max(privacy_curve(case).epsilon(1e-6) for case in cases)
    assert privacy_curve(OneOf(cases)).epsilon(1e-6) >= worst


def test_cases_need_a_case_and_stand_in_no_group() -> None:
    with pytest.raises(ConfigError, match="at least one case"):
        OneOf(())
    with pytest.raises(ConfigError, match="plain events"):
        ByGroup("split", (OneOf((Gaussian(1.0),)),))

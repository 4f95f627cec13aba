"""Events, and the privacy curve of their composition."""

import math
from itertools import pairwise

import pytest

from graphveil.core.accounting.accountant import (
    GaussianCurve,
    PldCurve,
    privacy_curve,
    total_mu,
    worst_case_compositions,
)
from graphveil.core.events import (
    ApproximateDP,
    ByGroup,
    Composed,
    Event,
    Gaussian,
    LocalReport,
    NonPrivate,
    OneOf,
    PairwiseGaussian,
    PoissonGaussian,
    PoissonRoots,
    PureDP,
    Relation,
    compose,
    within_partition,
)
from graphveil.errors import ConfigError, PrivacyError
from privacy.golden import ATTENTION_AND_RELEASE, DP_SGD, JOINT_PIPELINE

NOTHING = Composed(())
ATTENTION = PoissonGaussian(2.0, 256 / 17976, 100, "replace")
LONG = PoissonGaussian(2.0, 0.0128, 1562)
STEPS = PoissonGaussian(4.0, 0.01, 20, "replace")
ROWS = PairwiseGaussian("labels", ((0.0, 0.75), (0.75, 1.0)))
COUNTS = PairwiseGaussian("labels", ((1.0, 0.0), (0.0, 0.0)))

# -- events ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        *((lambda mu=mu: Gaussian(mu), "mu=") for mu in (-0.1, math.nan, math.inf)),
        *(
            (lambda table=table: PairwiseGaussian("labels", table), "mu_squared")
            for table in (((1.0, 0.5), (0.4, 1.0)), ((1.0, 0.5),), ((1.0, -0.5), (-0.5, 1.0)))
        ),
        *(
            (lambda change=change: PoissonGaussian(**({**vars(STEPS)} | change)), next(iter(change)))
            for change in (
                {"noise_multiplier": 0},
                {"sampling_rate": 1.1},
                {"steps": -1},
                {"steps": 1.5},
                {"relation": "swap"},
            )
        ),
        (lambda: ByGroup("train/val", ()), "but it has none"),
        *(
            (lambda inner=inner: ByGroup("train/val", (Gaussian(1.0), inner)), "plain events")
            for inner in (
                ROWS,
                ByGroup("regions", (Gaussian(1.0),)),
                compose(Gaussian(1.0), ROWS),
                OneOf((Gaussian(1.0),)),
            )
        ),
        (lambda: OneOf(()), "at least one case"),
    ],
)
def test_events_check_their_fields(make, words):
    with pytest.raises(ConfigError, match=words):
        make()


def test_events_have_one_form_however_they_were_nested() -> None:
    parts = (Gaussian(1.0), ROWS, STEPS)
    assert compose(parts[0], compose(parts[1], compose(parts[2]))) == Composed(parts)
    by_hand = Composed((Gaussian(1.0), Composed((Composed((Gaussian(2.0),)), Gaussian(3.0)))))
    assert compose(by_hand) == Composed((Gaussian(1.0), Gaussian(2.0), Gaussian(3.0)))
    groups = ByGroup("split", (compose(Gaussian(1.0)), Composed((Composed((Gaussian(1.0), Gaussian(2.0))),))))
    assert groups == ByGroup("split", (Gaussian(1.0), compose(Gaussian(1.0), Gaussian(2.0))))
    inner = OneOf((Gaussian(2.0), ROWS))
    assert OneOf((compose(Gaussian(1.0), inner), STEPS)) == OneOf(
        (compose(Gaussian(1.0), Gaussian(2.0)), compose(Gaussian(1.0), ROWS), STEPS)
    )
    assert (ROWS.worst, PairwiseGaussian("empty", ()).worst) == (1.0, 0.0)


def test_partitions_are_renamed_in_every_case_and_other_events_are_kept() -> None:
    named = within_partition(ROWS, "a")
    cases = compose(OneOf((Gaussian(2.0), ROWS)), ROWS, STEPS)
    assert within_partition(cases, "a") == compose(OneOf((Gaussian(2.0), named)), named, STEPS)


# -- golden numbers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("z", "rate", "steps", "relation", "epsilon"), DP_SGD)
def test_dp_sgd_is_golden(z: float, rate: float, steps: int, relation: Relation, epsilon: float) -> None:
    curve = privacy_curve(PoissonGaussian(z, rate, steps, relation))
    assert curve.epsilon(1e-5) == pytest.approx(epsilon, rel=5e-4)


@pytest.mark.parametrize(("epsilon", "z"), JOINT_PIPELINE)
def test_a_joint_pipeline_is_one_distribution_and_golden(epsilon: float, z: float) -> None:
    training, hop = PoissonGaussian(z, 256 / 20000, 781), Gaussian(1 / z)
    found = privacy_curve(compose(training, hop, hop, training)).epsilon(1e-5)
    assert found == pytest.approx(epsilon, rel=5e-3)


@pytest.mark.parametrize(("epsilon", "directed", "undirected"), ATTENTION_AND_RELEASE)
def test_private_attention_and_one_release_are_golden(
    epsilon: float, directed: float, undirected: float
) -> None:
    # Noise is printed to three digits; the table says itself that 1.094 costs 4.0012.
    for mu in (1 / directed, math.sqrt(2) / undirected):
        found = privacy_curve(compose(ATTENTION, Gaussian(mu))).epsilon(1e-5)
        assert found == pytest.approx(epsilon, rel=1.5e-3)


# -- distributions of privacy loss -------------------------------------------------------------------------


def test_replacing_a_record_costs_more_than_removing_it() -> None:
    removed, replaced = (
        privacy_curve(PoissonGaussian(1.3, 256 / 17976, 1000, relation)).epsilon(1e-5)
        for relation in ("add_remove", "replace")
    )
    assert replaced > 1.7 * removed


def test_a_gaussian_next_to_a_replace_event_is_charged_by_its_mu() -> None:
    # dp-accounting would double its change; a lone Gaussian composed with next to no training must not.
    faint = PoissonGaussian(50.0, 1e-4, 1, "replace")
    assert privacy_curve(compose(Gaussian(1.0), faint)).epsilon(1e-5) == pytest.approx(4.377, rel=2e-3)


@pytest.mark.parametrize("mu", [0.1, 0.5, 1.0, 2.0])
def test_the_distribution_is_pessimistic_and_close_to_the_closed_form(mu: float) -> None:
    exact, curve = (
        privacy_curve(Gaussian(mu)),
        privacy_curve(compose(Gaussian(mu), PoissonGaussian(50, 1e-6, 1))),
    )
    assert isinstance(curve, PldCurve)
    assert exact.epsilon(1e-6) <= curve.epsilon(1e-6) <= exact.epsilon(1e-6) * 1.01
    for rate in (0.001, 0.01, 0.2):
        assert exact.tpr(rate) <= curve.tpr(rate) <= exact.tpr(rate) * 1.02


def test_a_coarser_search_is_an_upper_bound_of_the_certified_epsilon() -> None:
    event = PoissonGaussian(1.3, 0.01424, 1000)
    certified = privacy_curve(event).epsilon(1e-5)
    assert certified <= privacy_curve(event, interval=1e-3).epsilon(1e-5) <= certified * 1.01


def test_equal_training_in_two_parts_is_one() -> None:
    parts = [PoissonGaussian(2.0, 0.0128, steps) for steps in (1000, 562)]
    assert privacy_curve(compose(*parts)).epsilon(1e-5) == privacy_curve(LONG).epsilon(1e-5)


@pytest.mark.parametrize("idle", [PoissonGaussian(1.0, 0.5, 0), PoissonGaussian(1.0, 0.0, 100), NOTHING])
def test_steps_that_never_happen_have_no_cost(idle: Event) -> None:
    assert privacy_curve(compose(Gaussian(0.5), idle)).epsilon(1e-5) == pytest.approx(1.9931, rel=1e-3)
    assert privacy_curve(idle).epsilon(1e-9) == 0.0


@pytest.mark.parametrize(
    "event", [compose(Gaussian(0.1), NonPrivate()), ByGroup("split", (Gaussian(0.1), NonPrivate()))]
)
def test_one_release_without_noise_leaves_no_privacy(event: Event) -> None:
    curve = privacy_curve(event)
    assert (curve.epsilon(1e-5), curve.delta(10.0), curve.tpr(0.01)) == (math.inf, 1.0, 1.0)


def test_rejects_unknown_events_by_name() -> None:
    class Laplace:
        pass

    with pytest.raises(PrivacyError, match="Laplace"):
        privacy_curve(compose(Gaussian(1.0), Laplace()))  # type: ignore[arg-type]


# -- groups of records and pairs ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "mu"),
    [
        (compose(Gaussian(2.0), Gaussian(3.0), Gaussian(6.0)), 7.0),
        (compose(ROWS, COUNTS), 1.0),  # not sqrt(1 + 1): no pair is charged for both
        (compose(within_partition(ROWS, "a"), within_partition(COUNTS, "a")), 1.0),
        (compose(within_partition(ROWS, "a"), within_partition(COUNTS, "b")), math.sqrt(2.0)),
        (compose(ROWS, PairwiseGaussian("regions", COUNTS.mu_squared), Gaussian(1.0)), math.sqrt(3.0)),
        (ByGroup("split", (Gaussian(1.0), STEPS)), None),
        (compose(Gaussian(1.0), STEPS), None),
    ],
)
def test_total_mu_is_that_of_the_worst_pair_of_each_partition(event: Event, mu: float | None) -> None:
    assert total_mu(event) == (None if mu is None else pytest.approx(mu))


def test_total_mu_is_that_of_the_worst_group_of_each_partition() -> None:
    training, selection = (
        ByGroup("split", (Gaussian(3.0), NOTHING)),
        ByGroup("split", (NOTHING, Gaussian(4.0))),
    )
    event = compose(training, selection)
    assert total_mu(event) == pytest.approx(4.0)  # not 5: no record is in training and selection
    assert total_mu(compose(event, Gaussian(3.0))) == pytest.approx(5.0)  # events for all records add up
    assert isinstance(privacy_curve(event), GaussianCurve)
    two_splits = compose(within_partition(training, "a"), within_partition(selection, "b"))
    assert total_mu(two_splits) == pytest.approx(5.0)
    table = PairwiseGaussian("split", ((0.0, 9.0), (9.0, 0.0)))
    assert total_mu(compose(table, selection)) == pytest.approx(5.0)


@pytest.mark.parametrize(
    "event",
    [
        compose(PairwiseGaussian("labels", ((1.0,),)), PairwiseGaussian("labels", ((1.0, 0), (0, 1.0)))),
        compose(ByGroup("split", (Gaussian(1.0),)), ByGroup("split", (Gaussian(1.0), NOTHING))),
    ],
)
def test_rejects_one_partition_with_two_numbers_of_groups(event: Event) -> None:
    with pytest.raises(PrivacyError, match="same partition with different numbers"):
        total_mu(event)


@pytest.mark.parametrize("more", [(), (Gaussian(3.0),), (STEPS,)])
@pytest.mark.parametrize("kind", [OneOf, lambda cases: ByGroup("other", cases)], ids=["cases", "groups"])
def test_the_curve_is_the_worst_of_all_cases_at_every_point(kind, more):
    cases = (Gaussian(0.3), STEPS, LONG)
    curve = privacy_curve(compose(kind(cases), *more))
    each = [privacy_curve(compose(case, *more)) for case in cases]
    for delta in (1e-9, 1e-5, 1e-2):
        assert curve.epsilon(delta) == max(one.epsilon(delta) for one in each)
    assert curve.delta(0.5) == max(one.delta(0.5) for one in each)
    assert curve.tpr(0.01) == max(one.tpr(0.01) for one in each)


def test_cases_may_have_groups_and_tables() -> None:
    cases = (Gaussian(0.3), STEPS, ByGroup("split", (Gaussian(0.4), NOTHING)), ROWS)
    each = [privacy_curve(case).epsilon(1e-6) for case in cases]
    assert privacy_curve(OneOf(cases)).epsilon(1e-6) == max(each)


def test_a_covered_group_has_no_additional_cost() -> None:
    short = PoissonGaussian(2.0, 0.0128, 100)
    alone = privacy_curve(LONG).epsilon(1e-5)
    assert privacy_curve(ByGroup("split", (short, LONG, NOTHING, LONG))).epsilon(1e-5) == alone


def test_more_cases_than_are_tracked_cost_at_least_the_worst_of_them() -> None:
    cases = tuple(compose(Gaussian(0.1 * k), *[STEPS] * (12 - k)) for k in range(1, 12))
    assert len(worst_case_compositions(OneOf(cases))) == 1 < len(cases)
    worst = max(privacy_curve(case).epsilon(1e-6) for case in cases)
    assert privacy_curve(OneOf(cases)).epsilon(1e-6) >= worst


RATES = (0.0, 5e-324, 1e-300, 1e-12, 0.01, 0.5, 1 - 1e-16, 1.0)


@pytest.mark.parametrize(
    "event",
    [
        compose(),
        Gaussian(0.5),
        PairwiseGaussian("a", ((0.1, 0.2), (0.2, 0.3))),
        PureDP(1.0),
        PureDP(1000.0),
        compose(PureDP(1.0), Gaussian(0.5)),
        compose(*(PureDP(0.01 + 2**-n) for n in range(2, 20))),
        ApproximateDP(1.0, 1e-6),
        compose(ApproximateDP(1.0, 1e-6), Gaussian(0.2)),
        LocalReport("label", 1.0),
        PoissonGaussian(2.0, 0.1, 20),
        PoissonGaussian(2.0, 0.1, 20, "replace"),
        PoissonRoots(9.0, 0.1, 5, 3),
        ByGroup("a", (Gaussian(0.2), compose(PureDP(0.3), Gaussian(0.1)))),
        OneOf((Gaussian(0.1), PoissonGaussian(2.0, 0.1, 20))),
        NonPrivate(),
    ],
    ids=lambda event: type(event).__name__,
)
def test_attack_bounds_of_every_curve_are_defined_at_every_rate(event: Event) -> None:
    bounds = [privacy_curve(event).tpr(rate) for rate in RATES]
    assert all(rate - 1e-12 <= bound <= 1 for rate, bound in zip(RATES, bounds, strict=True))
    assert all(low <= high + 1e-9 for low, high in pairwise(bounds))
    if event in (Gaussian(0.5), compose(PureDP(1.0), Gaussian(0.5)), PureDP(1.0)):
        assert bounds[0] < 1e-250

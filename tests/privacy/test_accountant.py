import math

import pytest

from graphveil.errors import PrivacyError
from graphveil.privacy import (
    ByGroup,
    Composed,
    Event,
    Gaussian,
    PairwiseGaussian,
    PoissonGaussian,
    calibrate_mu,
    compose,
    privacy_curve,
    within_partition,
)
from graphveil.privacy.accountant import GaussianCurve, PldCurve, total_mu
from graphveil.privacy.events import NonPrivate, Relation
from privacy.golden import ATTENTION_AND_RELEASE, DP_SGD, JOINT_PIPELINE, REPEATED_RELEASES

NOTHING = Composed(())
ATTENTION = PoissonGaussian(2.0, 256 / 17976, 100, "replace")


@pytest.mark.parametrize(("z", "rate", "steps", "relation", "epsilon"), DP_SGD)
def test_dp_sgd_is_golden(z: float, rate: float, steps: int, relation: Relation, epsilon: float) -> None:
    curve = privacy_curve(PoissonGaussian(z, rate, steps, relation))
    assert curve.epsilon(1e-5) == pytest.approx(epsilon, rel=5e-4)


@pytest.mark.parametrize(("epsilon", "z"), JOINT_PIPELINE)
def test_a_joint_pipeline_is_one_distribution_and_golden(epsilon: float, z: float) -> None:
    training = PoissonGaussian(z, 256 / 20000, 781)
    hop = Gaussian(1 / z)
    assert privacy_curve(compose(training, hop, hop, training)).epsilon(1e-5) == pytest.approx(
        epsilon, rel=5e-3
    )


@pytest.mark.parametrize(("epsilon", "directed", "undirected"), ATTENTION_AND_RELEASE)
def test_private_attention_and_one_release_are_golden(
    epsilon: float, directed: float, undirected: float
) -> None:
    # Noise is printed to three digits; the table says itself that 1.094 costs 4.0012.
    for mu in (1 / directed, math.sqrt(2) / undirected):
        assert privacy_curve(compose(ATTENTION, Gaussian(mu))).epsilon(1e-5) == pytest.approx(
            epsilon, rel=1.5e-3
        )


def test_replacing_a_record_costs_more_than_removing_it() -> None:
    removed = privacy_curve(PoissonGaussian(1.3, 256 / 17976, 1000, "add_remove")).epsilon(1e-5)
    replaced = privacy_curve(PoissonGaussian(1.3, 256 / 17976, 1000, "replace")).epsilon(1e-5)
    assert replaced > 1.7 * removed


def test_a_gaussian_beside_a_replace_event_is_charged_by_its_mu() -> None:
    # dp-accounting would double its change; a lone Gaussian composed with next to no training must not.
    faint = PoissonGaussian(50.0, 1e-4, 1, "replace")
    assert privacy_curve(compose(Gaussian(1.0), faint)).epsilon(1e-5) == pytest.approx(4.377, rel=2e-3)


def test_the_distribution_is_pessimistic_and_close_to_the_closed_form() -> None:
    faint = PoissonGaussian(50.0, 1e-6, 1)
    for mu in (0.1, 0.5, 2.0):
        exact = privacy_curve(Gaussian(mu)).epsilon(1e-6)
        assert exact <= privacy_curve(compose(Gaussian(mu), faint)).epsilon(1e-6) <= exact * 1.01


def test_a_coarser_search_is_never_below_the_certified_figure() -> None:
    event = PoissonGaussian(1.3, 0.01424, 1000)
    certified = privacy_curve(event).epsilon(1e-5)
    assert certified <= privacy_curve(event, interval=1e-3).epsilon(1e-5) <= certified * 1.01


@pytest.mark.parametrize(("epsilon", "times", "together"), REPEATED_RELEASES)
def test_equal_releases_add_up_as_golden(epsilon: float, times: int, together: float) -> None:
    release = Gaussian(calibrate_mu(epsilon, 1e-7))
    assert privacy_curve(compose(*[release] * times)).epsilon(1e-7) == pytest.approx(together, abs=6e-4)


def test_hops_add_in_squares_however_they_are_nested() -> None:
    flat = compose(Gaussian(2.0), Gaussian(3.0), Gaussian(6.0))
    nested = Composed((Gaussian(2.0), Composed((Gaussian(3.0), Composed((Gaussian(6.0),))))))
    assert total_mu(flat) == total_mu(nested) == 7.0


def test_pairs_compose_pair_by_pair_and_the_worst_pair_counts() -> None:
    rows = PairwiseGaussian("labels", ((0.0, 0.75), (0.75, 1.0)))
    counts = PairwiseGaussian("labels", ((1.0, 0.0), (0.0, 0.0)))
    assert total_mu(compose(rows, counts)) == pytest.approx(1.0)  # not sqrt(1 + 1): no pair pays both


def test_two_partitions_cost_the_sum_of_their_worst_pairs() -> None:
    rows = PairwiseGaussian("labels", ((0.0, 0.75), (0.75, 1.0)))
    counts = PairwiseGaussian("regions", ((1.0, 0.0), (0.0, 0.0)))
    assert total_mu(compose(rows, counts, Gaussian(1.0))) == pytest.approx(math.sqrt(3.0))


def test_beside_another_release_the_worst_pair_of_each_counts() -> None:
    rows = PairwiseGaussian("labels", ((0.0, 0.75), (0.75, 1.0)))
    counts = PairwiseGaussian("labels", ((1.0, 0.0), (0.0, 0.0)))
    apart = compose(within_partition(rows, "1"), within_partition(counts, "2"))
    assert total_mu(apart) == pytest.approx(math.sqrt(2.0))


def test_one_partition_with_two_sizes_is_a_contradiction() -> None:
    with pytest.raises(PrivacyError, match="disagree"):
        total_mu(
            compose(PairwiseGaussian("labels", ((1.0,),)), PairwiseGaussian("labels", ((1.0, 0), (0, 1.0))))
        )


def test_one_partition_with_two_numbers_of_groups_is_a_contradiction() -> None:
    with pytest.raises(PrivacyError, match="disagree"):
        total_mu(compose(ByGroup("split", (Gaussian(1.0),)), ByGroup("split", (Gaussian(1.0), NOTHING))))


def test_records_compose_group_by_group_and_the_worst_group_counts() -> None:
    training, selection = (
        ByGroup("split", (Gaussian(3.0), NOTHING)),
        ByGroup("split", (NOTHING, Gaussian(4.0))),
    )
    event = compose(training, selection)
    assert total_mu(event) == pytest.approx(4.0)  # not 5: nobody trains and selects
    assert total_mu(compose(event, Gaussian(3.0))) == pytest.approx(5.0)  # what concerns everybody adds up
    assert isinstance(privacy_curve(event), GaussianCurve)


def test_a_record_may_be_in_the_worst_group_of_each_partition() -> None:
    event = compose(ByGroup("split", (Gaussian(3.0), NOTHING)), ByGroup("regions", (NOTHING, Gaussian(4.0))))
    assert total_mu(event) == pytest.approx(5.0)


def test_beside_tables_groups_count_by_their_worst() -> None:
    table = PairwiseGaussian("split", ((0.0, 9.0), (9.0, 0.0)))
    assert total_mu(compose(table, ByGroup("split", (NOTHING, Gaussian(4.0))))) == pytest.approx(5.0)


def test_groups_that_differ_in_kind_have_the_worst_of_their_curves() -> None:
    training, hop = PoissonGaussian(2.0, 0.0128, 1562), Gaussian(0.1)
    curves = [privacy_curve(training), privacy_curve(hop)]
    worst = privacy_curve(ByGroup("split", (training, hop)))
    for delta in (1e-9, 1e-5, 1e-2):
        assert worst.epsilon(delta) == max(curve.epsilon(delta) for curve in curves)
    assert worst.delta(0.5) == max(curve.delta(0.5) for curve in curves)
    assert worst.tpr(0.01) == max(curve.tpr(0.01) for curve in curves)


def test_a_group_that_another_one_covers_costs_nothing_more() -> None:
    long, short = PoissonGaussian(2.0, 0.0128, 1562), PoissonGaussian(2.0, 0.0128, 100)
    alone = privacy_curve(long).epsilon(1e-5)
    assert privacy_curve(ByGroup("split", (short, long, NOTHING, long))).epsilon(1e-5) == alone


def test_the_bound_over_two_partitions_covers_every_record() -> None:
    training = [PoissonGaussian(2.0, 0.0128, steps) for steps in (100, 200)]
    first, second = ByGroup("split", (training[0], Gaussian(0.2))), ByGroup("regions", (training[1], NOTHING))
    bound = privacy_curve(compose(first, second)).epsilon(1e-5)
    for one in first.events:
        for other in second.events:
            assert privacy_curve(compose(one, other)).epsilon(1e-5) <= bound


def test_one_group_without_noise_leaves_no_privacy() -> None:
    assert privacy_curve(ByGroup("split", (Gaussian(0.1), NonPrivate()))).epsilon(1e-5) == math.inf


def test_training_has_no_single_mu() -> None:
    assert total_mu(compose(Gaussian(1.0), PoissonGaussian(1.0, 0.1, 1))) is None
    assert total_mu(ByGroup("split", (Gaussian(1.0), PoissonGaussian(1.0, 0.1, 1)))) is None


def test_the_same_training_in_two_parts_is_one() -> None:
    parts = [PoissonGaussian(2.0, 0.0128, steps) for steps in (1000, 562)]
    whole = privacy_curve(PoissonGaussian(2.0, 0.0128, 1562)).epsilon(1e-5)
    assert privacy_curve(compose(*parts)).epsilon(1e-5) == whole


def test_steps_that_never_happen_cost_nothing() -> None:
    for idle in (PoissonGaussian(1.0, 0.5, 0), PoissonGaussian(1.0, 0.0, 100)):
        assert privacy_curve(compose(Gaussian(0.5), idle)).epsilon(1e-5) == pytest.approx(1.9931, rel=1e-3)


def test_one_release_without_noise_leaves_no_privacy() -> None:
    curve = privacy_curve(compose(Gaussian(0.1), NonPrivate()))
    assert curve.epsilon(1e-5) == math.inf
    assert curve.delta(10.0) == 1.0
    assert curve.tpr(0.01) == 1.0


def test_an_unknown_event_is_an_error_that_names_it() -> None:
    class Laplace:
        pass

    with pytest.raises(PrivacyError, match="Laplace"):
        privacy_curve(compose(Gaussian(1.0), Laplace()))  # type: ignore[arg-type]


def test_nothing_done_is_perfectly_private() -> None:
    assert privacy_curve(compose()).epsilon(1e-9) == 0.0


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.2])
def test_the_attackers_rate_from_a_distribution_bounds_the_exact_one(rate: float) -> None:
    event: Event = compose(Gaussian(1.0), PoissonGaussian(50.0, 1e-6, 1))
    curve = privacy_curve(event)
    assert isinstance(curve, PldCurve)
    exact = privacy_curve(Gaussian(1.0)).tpr(rate)
    assert exact <= curve.tpr(rate) <= exact * 1.02

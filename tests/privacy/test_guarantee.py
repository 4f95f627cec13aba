import json
import math
from statistics import NormalDist
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphveil.errors import ConfigError
from graphveil.privacy import (
    Composed,
    DirectedEdge,
    Gaussian,
    Guarantee,
    NodeBoundedDegree,
    NodeRecord,
    NoUnit,
    PairwiseGaussian,
    PoissonGaussian,
    UndirectedEdge,
    calibrate_mu,
    compose,
)
from graphveil.privacy.accountant import multi_edge_epsilon
from graphveil.privacy.events import LocalReport, NonPrivate
from graphveil.privacy.gaussian import epsilon_of
from graphveil.privacy.statements import format_delta, format_upper_bound
from privacy.golden import DIRECTED_IS_UNDIRECTED, PERSON_WITH_FRIENDS, REPEATED_RELEASES

MU = calibrate_mu(1.0, 1e-7)
UNDIRECTED = Guarantee.from_event(UndirectedEdge(), Gaussian(MU), delta=1e-7, releases=1)


def test_the_undirected_statement_is_verbatim() -> None:
    assert UNDIRECTED.formal_statement() == (
        "Node identities, features and labels are treated as public. For any two graphs that differ in one "
        "undirected edge, all outputs of this object (noisy aggregates, trained weights, predictions for "
        "every node, and scores computed from them) are (1, 1e-07)-indistinguishable. This covers 1 "
        "release; a privacy ledger records each release as one entry. It does not hide whether a person is "
        "in the data, their features or their labels; a person with k edges is protected as a whole "
        "only at eps_k: 12.9 for k=10, 338.7 for k=100. Other runs on the same data add up: r equal releases "
        "have mu sqrt(r)."
    )


def test_the_directed_statement_names_what_a_mutual_edge_gets() -> None:
    formal_statement = Guarantee.from_event(
        DirectedEdge(), Gaussian(MU), delta=1e-7, releases=2, linear_group_scaling=False
    ).formal_statement()
    assert "differ in one stored directed edge" in formal_statement
    assert "This covers 2 releases;" in formal_statement
    assert "A mutual edge is two stored edges and is protected at eps = 1.448." in formal_statement
    assert formal_statement.endswith("Other runs on the same data add up: r equal releases have mu sqrt(r).")


@pytest.mark.parametrize(("friends", "target_weighted", "equal"), PERSON_WITH_FRIENDS)
def test_a_person_with_friends_is_golden(friends: int, target_weighted: float, equal: float) -> None:
    both_ways = Guarantee.from_event(
        UndirectedEdge(), Gaussian(MU), delta=1e-7, releases=1, linear_group_scaling=False
    )
    assert UNDIRECTED.group_epsilon(friends) == pytest.approx(target_weighted, rel=1e-4)
    assert both_ways.group_epsilon(friends) == pytest.approx(equal, rel=1e-4)


def test_a_person_with_one_friend_is_protected_like_the_edge() -> None:
    assert UNDIRECTED.group_epsilon(1) == pytest.approx(UNDIRECTED.epsilon)


def test_a_directed_friend_is_two_stored_edges() -> None:
    directed = Guarantee.from_event(
        DirectedEdge(), Gaussian(MU), delta=1e-7, releases=1, linear_group_scaling=False
    )
    assert directed.group_epsilon(1) == pytest.approx(directed.mutual_epsilon)


@pytest.mark.parametrize(
    ("directed", "mutual"), [row[1:] for row in DIRECTED_IS_UNDIRECTED if row[0] == 1e-7]
)
def test_the_mutual_figure_is_golden(directed: float, mutual: float) -> None:
    event = Gaussian(calibrate_mu(directed, 1e-7))
    guarantee = Guarantee.from_event(
        DirectedEdge(), event, delta=1e-7, releases=1, linear_group_scaling=False
    )
    assert guarantee.mutual_epsilon == pytest.approx(mutual, abs=6e-4)


@pytest.mark.parametrize(("epsilon", "times", "together"), REPEATED_RELEASES)
def test_repeated_runs_are_golden(epsilon: float, times: int, together: float) -> None:
    one = Guarantee.from_event(
        UndirectedEdge(), Gaussian(calibrate_mu(epsilon, 1e-7)), delta=1e-7, releases=2
    )
    every = one.repeated(times)
    assert every.epsilon == pytest.approx(together, abs=6e-4)
    assert every.releases == 2 * times


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (0.0, "0"),
        (math.inf, "inf"),
        (0.1, "0.1"),
        (4.0, "4"),
        (1 - 1e-12, "1"),
        (1 + 1e-12, "1"),
        (5.99201, "5.993"),
        (9.99901, "10"),
        (12.892, "12.9"),
        (0.0123412, "0.01235"),
    ],
)
def test_four_digits_rounded_up(value: float, printed: str) -> None:
    assert format_upper_bound(value) == printed


@given(st.floats(1e-6, 1e6), st.integers(2, 8))
def test_a_printed_epsilon_is_never_below_the_proved_one(value: float, digits: int) -> None:
    step = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    assert value * (1 - 2e-9) <= float(format_upper_bound(value, digits)) <= value + step * (1 + 1e-6)


def test_slack_raises_epsilon_and_adds_up_over_runs() -> None:
    with_slack = Guarantee.from_event(UndirectedEdge(), Gaussian(MU), delta=1e-7, releases=1, slack=1e-9)
    assert with_slack.epsilon > UNDIRECTED.epsilon
    assert with_slack.repeated(3).slack == pytest.approx(3e-9)
    assert with_slack.max_tpr() > UNDIRECTED.max_tpr()


def test_deviations_come_first_and_void_the_guarantee() -> None:
    guarantee = Guarantee.from_event(
        UndirectedEdge(), Gaussian(MU), delta=1e-7, releases=1, mode="paper", deviations=("a flaw", "a seed")
    )
    assert not guarantee.valid
    assert guarantee.formal_statement().startswith(
        "NOT A VALID GUARANTEE (paper mode). Known deviations: a flaw; a seed. It would read:"
    )


def test_without_a_unit_there_is_no_claim() -> None:
    guarantee = Guarantee.from_event(NoUnit(), NonPrivate(), delta=0.0, releases=0)
    assert not guarantee.valid
    assert guarantee.epsilon == math.inf
    assert guarantee.max_tpr() == 1.0
    assert guarantee.formal_statement().startswith("No privacy")


def test_edges_that_were_never_read_have_epsilon_zero_and_their_own_words() -> None:
    guarantee = Guarantee.from_event(UndirectedEdge(), Composed(()), delta=1e-7, releases=0)
    assert guarantee.epsilon == 0.0
    assert guarantee.max_tpr() == pytest.approx(0.01)
    assert guarantee.formal_statement().startswith("The edges were never read")


def test_a_statement_about_noise_free_edges_says_infinity() -> None:
    formal_statement = Guarantee.from_event(
        UndirectedEdge(), NonPrivate(), delta=1e-7, releases=1
    ).formal_statement()
    assert "(inf, 1e-07)-indistinguishable" in formal_statement
    assert "inf for k=10" in formal_statement


def test_a_guarantee_with_training_in_it_is_certified_as_a_whole() -> None:
    event = compose(PoissonGaussian(3.0077, 256 / 20000, 781), Gaussian(1 / 3.0077))
    guarantee = Guarantee.from_event(UndirectedEdge(), event, delta=1e-5, releases=1)
    assert 0 < guarantee.epsilon < 2
    assert guarantee.curve.delta(guarantee.epsilon) <= 1e-5 * (1 + 1e-6)


def test_notes_stand_in_the_statement() -> None:
    guarantee = Guarantee.from_event(
        UndirectedEdge(), Gaussian(MU), delta=1e-7, releases=1, notes=("classes are treated as public",)
    )
    assert "Note: classes are treated as public." in guarantee.formal_statement()


def test_the_record_is_plain_json() -> None:
    record = json.loads(json.dumps(UNDIRECTED.as_dict(), allow_nan=False))
    assert record["unit"] == "undirected-edge"
    assert record["mu"] == pytest.approx(MU)
    assert record["max_tpr_at_1pct_fpr"] == pytest.approx(0.0173, abs=5e-5)


def test_an_infinite_epsilon_is_null_in_the_record() -> None:
    record = Guarantee.from_event(NoUnit(), NonPrivate(), delta=0.0, releases=0).as_dict()
    assert json.loads(json.dumps(record, allow_nan=False))["epsilon"] is None


def test_counts_make_both_directions_of_a_friendship_add_up_in_length() -> None:
    rows = Guarantee.from_event(
        DirectedEdge(), Gaussian(MU), delta=1e-7, releases=1, linear_group_scaling=False
    )
    counts = Guarantee.from_event(
        DirectedEdge(), Gaussian(MU), delta=1e-7, releases=2, linear_group_scaling=True
    )
    assert "eps = 1.448." in rows.formal_statement()  # two rows: sqrt 2 mu
    assert (
        f"eps = {format_upper_bound(epsilon_of(2 * MU, 1e-7))}." in counts.formal_statement()
    )  # one cell: 2 mu


def test_repeated_runs_do_not_assume_that_their_splits_agree() -> None:
    table = PairwiseGaussian("train/val/target", ((1.0, 0.5), (0.5, 0.2)))
    once = Guarantee.from_event(UndirectedEdge(), table, delta=1e-5, releases=1)
    assert once.repeated(4).epsilon == pytest.approx(epsilon_of(2.0, 1e-5))


def test_several_edges_in_sampled_steps_have_a_finite_figure() -> None:
    event = compose(PoissonGaussian(2.0, 256 / 17976, 100, "replace"), Gaussian(0.2266))
    one = Guarantee.from_event(UndirectedEdge(), event, delta=1e-5, releases=2)
    assert multi_edge_epsilon(event, 1, 1.0, 1e-5) == pytest.approx(one.epsilon)
    few = one.group_epsilon(2)
    assert 2 * one.epsilon < few < one.group_epsilon(10) < one.group_epsilon(100) == math.inf
    hops_alone = Guarantee.from_event(UndirectedEdge(), Gaussian(0.2266), delta=1e-5, releases=1)
    assert hops_alone.group_epsilon(10) < one.group_epsilon(10) < 40
    directed = Guarantee.from_event(DirectedEdge(), event, delta=1e-5, releases=2)
    assert one.epsilon < directed.mutual_epsilon == pytest.approx(few)


def test_unpriced_steps_leave_a_group_without_a_figure() -> None:
    event = compose(NonPrivate(), Gaussian(0.1))
    assert Guarantee.from_event(UndirectedEdge(), event, delta=1e-5, releases=2).group_epsilon(10) == math.inf


SAMPLED = compose(PoissonGaussian(4.0, 0.01, 20, "replace"), Gaussian(0.15))


@pytest.mark.parametrize("directed", [False, True])
def test_the_worst_of_several_data_sets_is_the_worst_at_every_figure(directed: bool) -> None:
    unit = DirectedEdge() if directed else UndirectedEdge()
    fitted, grown = (
        Guarantee.from_event(unit, event, delta=1e-5, releases=1) for event in (SAMPLED, Gaussian(0.5))
    )
    for order in ((fitted, grown), (grown, fitted)):
        worst = Guarantee.compose_parallel(order)
        assert worst.epsilon == grown.epsilon > fitted.epsilon  # though sampled steps have no mu
        assert worst.max_tpr() == grown.max_tpr() > fitted.max_tpr()
        for delta in (1e-1, 1e-5, 1e-12):
            assert worst.curve.epsilon(delta) == max(one.curve.epsilon(delta) for one in order)
        assert worst.group_epsilon(3) >= max(one.group_epsilon(3) for one in order)
        assert worst.mutual_epsilon >= max(one.mutual_epsilon for one in order)


def test_no_curve_need_be_worst_everywhere() -> None:
    steps = Guarantee.from_event(
        UndirectedEdge(), PoissonGaussian(0.2, 1e-5, 1, "replace"), delta=1e-7, releases=1
    )
    rows = Guarantee.from_event(UndirectedEdge(), Gaussian(0.2), delta=1e-7, releases=1)
    worst = Guarantee.compose_parallel([steps, rows])
    assert steps.epsilon > rows.epsilon and steps.curve.epsilon(1e-3) < rows.curve.epsilon(1e-3)
    assert worst.epsilon == steps.epsilon and worst.max_tpr() == rows.max_tpr()
    twice = Guarantee.compose([worst, rows])  # either data set, and one more release of both
    assert twice.epsilon == max(Guarantee.compose([one, rows]).epsilon for one in (steps, rows))


@given(delta=st.floats(1e-12, 0.1), excess=st.floats(1.0, 1.1))
def test_a_printed_delta_is_rounded_up_to_six_digits(delta: float, excess: float) -> None:
    shown = float(format_delta(delta * excess))
    assert delta * excess <= shown <= delta * excess * (1 + 1.1e-5)
    assert len(format_delta(delta).lstrip("0.").split("e")[0].replace(".", "")) <= 6


def test_a_statement_claims_no_smaller_delta_than_it_accounts_for() -> None:
    for unit in (UndirectedEdge(), DirectedEdge(), NodeRecord(), NodeBoundedDegree(5)):
        claimed = Guarantee.from_event(unit, Gaussian(0.1), delta=1.2345611e-7, releases=1).formal_statement()
        assert ", 1.23457e-07)-indistinguishable" in claimed


def test_several_edges_have_no_figure_where_no_bound_is_proved_for_them() -> None:
    guarantee = Guarantee.from_event(DirectedEdge(), LocalReport("label", 3.0), delta=1e-5, releases=1)
    assert guarantee.epsilon == 3
    assert guarantee.group_epsilon(10) == guarantee.mutual_epsilon == math.inf


@pytest.mark.parametrize("fpr", [0.0, 1e-4, 0.01, 0.3, 1.0])
def test_the_attack_bound_is_that_of_the_privacy_curve(fpr: float) -> None:
    guarantee = Guarantee.from_event(UndirectedEdge(), Gaussian(1.0), delta=1e-5, releases=1)
    normal = NormalDist()
    expected = fpr if fpr in (0.0, 1.0) else normal.cdf(normal.inv_cdf(fpr) + 1.0)
    assert guarantee.max_tpr(fpr) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("fpr", [-0.1, 1.1, math.nan, "x"])
def test_a_false_positive_rate_lies_between_zero_and_one(fpr: Any) -> None:
    with pytest.raises(ConfigError, match="fpr"):
        UNDIRECTED.max_tpr(fpr)

import json
import math
from statistics import NormalDist
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphveil._util.figures import format_delta, format_upper_bound
from graphveil.core.accounting.gaussian import calibrate_mu, epsilon_of
from graphveil.core.events import (
    Composed,
    Event,
    Gaussian,
    LocalReport,
    NonPrivate,
    PairwiseGaussian,
    PoissonGaussian,
    compose,
)
from graphveil.core.unit import DirectedEdge, NodeBoundedDegree, NodeRecord, NoUnit, UndirectedEdge, Unit
from graphveil.errors import ConfigError
from graphveil.privacy import Guarantee
from privacy.golden import DIRECTED_IS_UNDIRECTED, PERSON_WITH_FRIENDS, REPEATED_RELEASES

MU = calibrate_mu(1.0, 1e-7)
RELEASE = Gaussian(MU)


def guarantee_of(unit: Unit, event: Event = RELEASE, delta: float = 1e-7, **more: Any) -> Guarantee:
    return Guarantee.from_event(unit, event, delta=delta, **({"releases": 1} | more))


UNDIRECTED = guarantee_of(UndirectedEdge())
DIRECTED_ROWS = guarantee_of(DirectedEdge(), releases=2, linear_group_scaling=False)


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


def test_the_directed_statement_has_the_epsilon_of_a_mutual_edge() -> None:
    statement = DIRECTED_ROWS.formal_statement()
    assert "differ in one stored directed edge" in statement
    assert "This covers 2 releases;" in statement
    assert "A mutual edge is two stored edges and is protected at eps = 1.448." in statement  # sqrt 2 mu
    assert statement.endswith("Other runs on the same data add up: r equal releases have mu sqrt(r).")
    counts = guarantee_of(DirectedEdge(), linear_group_scaling=True)  # both edges are in one cell: 2 mu
    assert f"eps = {format_upper_bound(epsilon_of(2 * MU, 1e-7))}." in counts.formal_statement()


@pytest.mark.parametrize(("edges", "weighted", "equal"), PERSON_WITH_FRIENDS)
def test_the_epsilon_of_several_edges_is_golden(edges: int, weighted: float, equal: float) -> None:
    both_ways = guarantee_of(UndirectedEdge(), linear_group_scaling=False)
    assert UNDIRECTED.group_epsilon(edges) == pytest.approx(weighted, rel=1e-4)
    assert both_ways.group_epsilon(edges) == pytest.approx(equal, rel=1e-4)


def test_one_edge_is_a_group_of_one_and_a_mutual_edge_is_two_stored_ones() -> None:
    assert UNDIRECTED.group_epsilon(1) == pytest.approx(UNDIRECTED.epsilon)
    assert DIRECTED_ROWS.group_epsilon(1) == pytest.approx(DIRECTED_ROWS.mutual_epsilon)


@pytest.mark.parametrize(("delta", "directed", "mutual"), DIRECTED_IS_UNDIRECTED)
def test_the_epsilon_of_a_mutual_edge_is_golden(delta: float, directed: float, mutual: float) -> None:
    event = Gaussian(calibrate_mu(directed, delta))
    guarantee = guarantee_of(DirectedEdge(), event, delta, linear_group_scaling=False)
    assert guarantee.mutual_epsilon == pytest.approx(mutual, abs=6e-4)


@pytest.mark.parametrize(("epsilon", "times", "together"), REPEATED_RELEASES)
def test_repeated_runs_are_golden(epsilon: float, times: int, together: float) -> None:
    every = guarantee_of(UndirectedEdge(), Gaussian(calibrate_mu(epsilon, 1e-7)), releases=2).repeated(times)
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
def test_epsilon_is_printed_with_four_digits_rounded_up(value: float, printed: str) -> None:
    assert format_upper_bound(value) == printed


@given(st.floats(1e-6, 1e6), st.integers(2, 8))
def test_a_printed_epsilon_is_never_below_the_proved_one(value: float, digits: int) -> None:
    step = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    assert value * (1 - 2e-9) <= float(format_upper_bound(value, digits)) <= value + step * (1 + 1e-6)


@given(delta=st.floats(1e-12, 0.1), excess=st.floats(1.0, 1.1))
def test_a_printed_delta_is_rounded_up_to_six_digits(delta: float, excess: float) -> None:
    shown = float(format_delta(delta * excess))
    assert delta * excess <= shown <= delta * excess * (1 + 1.1e-5)
    assert len(format_delta(delta).lstrip("0.").split("e")[0].replace(".", "")) <= 6


@pytest.mark.parametrize("unit", [UndirectedEdge(), DirectedEdge(), NodeRecord(), NodeBoundedDegree(5)])
def test_a_statement_claims_no_smaller_delta_than_it_accounts_for(unit: Unit) -> None:
    statement = guarantee_of(unit, Gaussian(0.1), 1.2345611e-7).formal_statement()
    assert ", 1.23457e-07)-indistinguishable" in statement


def test_slack_raises_epsilon_and_adds_up_over_runs() -> None:
    with_slack = guarantee_of(UndirectedEdge(), slack=1e-9)
    assert with_slack.epsilon > UNDIRECTED.epsilon
    assert with_slack.repeated(3).slack == pytest.approx(3e-9)
    assert with_slack.max_tpr() > UNDIRECTED.max_tpr()


def test_deviations_come_first_and_invalidate_the_guarantee() -> None:
    notes = ("classes are treated as public",)
    guarantee = guarantee_of(UndirectedEdge(), deviations=("a flaw", "a seed"), notes=notes)
    assert not guarantee.valid
    assert guarantee.formal_statement().startswith(
        "No valid guarantee. Known deviations: a flaw; a seed. It would read:"
    )
    assert "Note: classes are treated as public." in guarantee.formal_statement()


@pytest.mark.parametrize(
    ("guarantee", "epsilon", "tpr", "words"),
    [
        (guarantee_of(NoUnit(), NonPrivate(), 0.0, releases=0), math.inf, 1.0, "No privacy"),
        (guarantee_of(UndirectedEdge(), Composed(()), releases=0), 0.0, 0.01, "The edges were never read"),
        (guarantee_of(UndirectedEdge(), NonPrivate()), math.inf, 1.0, "Node identities, features"),
    ],
    ids=["no unit", "edges never read", "no noise"],
)
def test_guarantees_without_noise(guarantee: Guarantee, epsilon: float, tpr: float, words: str) -> None:
    assert (guarantee.epsilon, guarantee.max_tpr()) == (epsilon, pytest.approx(tpr))
    assert guarantee.formal_statement().startswith(words)
    assert guarantee.valid is (guarantee.unit != "none")
    record = json.loads(json.dumps(guarantee.as_dict(), allow_nan=False))
    assert record["epsilon"] == (epsilon if epsilon == 0 else None)
    if guarantee.releases:
        assert "(inf, 1e-07)-indistinguishable" in guarantee.formal_statement()
        assert "inf for k=10" in guarantee.formal_statement()


def test_a_guarantee_with_training_in_it_is_certified_as_a_whole() -> None:
    event = compose(PoissonGaussian(3.0077, 256 / 20000, 781), Gaussian(1 / 3.0077))
    guarantee = guarantee_of(UndirectedEdge(), event, 1e-5)
    assert 0 < guarantee.epsilon < 2
    assert guarantee.curve.delta(guarantee.epsilon) <= 1e-5 * (1 + 1e-6)


def test_the_guarantee_is_plain_json() -> None:
    record = json.loads(json.dumps(UNDIRECTED.as_dict(), allow_nan=False))
    assert record["unit"] == "undirected-edge"
    assert record["mu"] == pytest.approx(MU)
    assert record["max_tpr_at_1pct_fpr"] == pytest.approx(0.0173, abs=5e-5)


def test_repeated_runs_may_have_different_splits() -> None:
    table = PairwiseGaussian("train/val/target", ((1.0, 0.5), (0.5, 0.2)))
    once = guarantee_of(UndirectedEdge(), table, 1e-5)
    assert once.repeated(4).epsilon == pytest.approx(epsilon_of(2.0, 1e-5))


def test_several_edges_in_sampled_steps_have_a_finite_epsilon() -> None:
    event = compose(PoissonGaussian(2.0, 256 / 17976, 100, "replace"), Gaussian(0.2266))
    one = guarantee_of(UndirectedEdge(), event, 1e-5, releases=2)
    few = one.group_epsilon(2)
    assert one.group_epsilon(1) == pytest.approx(one.epsilon, rel=1e-3)
    assert 2 * one.epsilon < few < one.group_epsilon(10) < one.group_epsilon(100) == math.inf
    hops_alone = guarantee_of(UndirectedEdge(), Gaussian(0.2266), 1e-5)
    assert hops_alone.group_epsilon(10) < one.group_epsilon(10) < 40
    directed = guarantee_of(DirectedEdge(), event, 1e-5, releases=2)
    assert one.epsilon < directed.mutual_epsilon == pytest.approx(few)


@pytest.mark.parametrize("event", [compose(NonPrivate(), Gaussian(0.1)), LocalReport("label", 3.0)])
def test_several_edges_have_no_epsilon_where_no_bound_is_proved(event: Event) -> None:
    guarantee = guarantee_of(DirectedEdge(), event, 1e-5)
    assert guarantee.group_epsilon(10) == guarantee.mutual_epsilon == math.inf


SAMPLED = compose(PoissonGaussian(4.0, 0.01, 20, "replace"), Gaussian(0.15))


@pytest.mark.parametrize("directed", [False, True])
def test_parallel_composition_is_the_maximum_at_every_point(directed: bool) -> None:
    unit = DirectedEdge() if directed else UndirectedEdge()
    fitted, grown = (guarantee_of(unit, event, 1e-5) for event in (SAMPLED, Gaussian(0.5)))
    for order in ((fitted, grown), (grown, fitted)):
        worst = Guarantee.compose_parallel(order)
        assert worst.epsilon == grown.epsilon > fitted.epsilon  # though sampled steps have no mu
        assert worst.max_tpr() == grown.max_tpr() > fitted.max_tpr()
        for delta in (1e-1, 1e-5, 1e-12):
            assert worst.curve.epsilon(delta) == max(one.curve.epsilon(delta) for one in order)
        assert worst.group_epsilon(3) >= max(one.group_epsilon(3) for one in order)
        assert worst.mutual_epsilon >= max(one.mutual_epsilon for one in order)


def test_the_maximum_may_change_between_deltas() -> None:
    steps = guarantee_of(UndirectedEdge(), PoissonGaussian(0.2, 1e-5, 1, "replace"))
    rows = guarantee_of(UndirectedEdge(), Gaussian(0.2))
    worst = Guarantee.compose_parallel([steps, rows])
    assert steps.epsilon > rows.epsilon and steps.curve.epsilon(1e-3) < rows.curve.epsilon(1e-3)
    assert worst.epsilon == steps.epsilon and worst.max_tpr() == rows.max_tpr()
    twice = Guarantee.compose([worst, rows])  # either data set, and one more release of both
    assert twice.epsilon == max(Guarantee.compose([one, rows]).epsilon for one in (steps, rows))


@pytest.mark.parametrize("fpr", [0.0, 1e-4, 0.01, 0.3, 1.0])
def test_the_attack_bound_is_that_of_the_privacy_curve(fpr: float) -> None:
    guarantee = guarantee_of(UndirectedEdge(), Gaussian(1.0), 1e-5)
    normal = NormalDist()
    expected = fpr if fpr in (0.0, 1.0) else normal.cdf(normal.inv_cdf(fpr) + 1.0)
    assert guarantee.max_tpr(fpr) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("fpr", [-0.1, 1.1, math.nan, "x"])
def test_rejects_false_positive_rates_outside_0_to_1(fpr: Any) -> None:
    with pytest.raises(ConfigError, match="fpr"):
        UNDIRECTED.max_tpr(fpr)

"""What people read: a figure after "at most" is never below the proved one."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphveil._util.figures import percent_up
from graphveil.core.accounting.gaussian import mu_of
from graphveil.core.events import Composed, Gaussian
from graphveil.core.unit import NodeBoundedDegree, NodeRecord, NodeUnit, UndirectedEdge
from graphveil.privacy import Guarantee
from graphveil.publish.cards import Card, attack_bound_text, other_runs, privacy_page


@given(st.floats(0, 1))
def test_a_printed_percentage_is_never_below_the_figure(rate: float) -> None:
    printed = float(percent_up(rate))
    assert 100 * rate - 1e-9 <= printed <= 100 * rate + 0.01 + 1e-9


@pytest.mark.parametrize(
    ("rate", "printed"),
    [(0.01, "1.00"), (0.01732, "1.74"), (0.0599, "5.99"), (math.nextafter(0.01, 1), "1.00"), (1.0, "100.00")],
)
def test_two_decimals_rounded_up(rate: float, printed: str) -> None:
    assert percent_up(rate) == printed


@pytest.mark.parametrize("mu", [0.05, 0.21373627, 0.77051, 3.0])
def test_every_sentence_has_the_same_figure(mu: float) -> None:
    guarantee = Guarantee.from_event(UndirectedEdge(), Gaussian(mu), delta=1e-7, releases=1)
    figure = percent_up(guarantee.max_tpr())
    assert f"at most {figure} %" in attack_bound_text(guarantee)
    assert f"at most {figure} in 100" in guarantee.summary()


def test_marks_invalid_guarantees_everywhere() -> None:
    kept = Guarantee.from_event(UndirectedEdge(), Gaussian(0.3), delta=1e-7, releases=1)
    invalid = kept.with_deviations("the noise is reproducible from a seed")
    assert invalid.summary().startswith("No valid guarantee, because of the deviations")
    assert invalid.summary().endswith(kept.summary())
    assert attack_bound_text(invalid) == f"{attack_bound_text(kept)} (not valid)"
    assert "No valid guarantee, because of the deviations" in privacy_page(invalid, ())
    assert "-indistinguishable (not valid)." in other_runs(0, 3, invalid)


def test_a_page_prints_no_epsilon_below_the_proved_one() -> None:
    both_ways = Gaussian(2**0.5 * mu_of(4.0, 1e-5))
    guarantee = Guarantee.from_event(UndirectedEdge(), both_ways, delta=1e-5, releases=1)
    assert guarantee.epsilon == pytest.approx(5.992008, abs=1e-6)  # 5.992 to the nearest digit
    card = Card(dataset="a graph", other_runs=other_runs(0, 3, guarantee))
    assert "are only (5.993, 1e-05)-indistinguishable" in card.other_runs
    page = privacy_page(guarantee, (), card)
    assert "Epsilon 5.993, delta 1e-05" in page
    assert page.count("5.993") == 3  # the statement's too
    assert "5.992" not in page


def test_a_page_prints_no_delta_below_the_one_accounted_for() -> None:
    guarantee = Guarantee.from_event(UndirectedEdge(), Gaussian(0.3), delta=1.0000011e-5, releases=1)
    page = privacy_page(guarantee, (), Card(dataset="a graph", other_runs=other_runs(0, 3, guarantee)))
    assert page.count("1.00001e-05") == 3 and " 1e-05" not in page


def test_a_requested_epsilon_is_printed_as_requested() -> None:
    for epsilon in (0.1, 0.25, 1.0, 4.0):
        guarantee = Guarantee.from_event(
            UndirectedEdge(), Gaussian(mu_of(epsilon, 1e-7)), delta=1e-7, releases=1
        )
        assert f"Epsilon {epsilon:g}, delta" in privacy_page(guarantee, ())


def test_a_model_without_queries_is_as_secure_as_blind_guessing() -> None:
    nothing = Guarantee.from_event(UndirectedEdge(), Composed(()), delta=1e-7, releases=0)
    assert attack_bound_text(nothing).endswith("at most 1.00 %")


# -- records -----------------------------------------------------------------------------------------------


def of_records(unit: NodeUnit, **changes: Any) -> Guarantee:
    return Guarantee.from_event(unit, Gaussian(0.3), delta=1e-5, releases=1, **changes)


@pytest.mark.parametrize(
    ("guarantee", "question", "ends"),
    [
        (of_records(NodeRecord()), "whether a particular person's record", "has weaker protection."),
        (
            of_records(NodeRecord(), edge_use="never"),
            "edges that the person declares",
            "HMAC-SHA256 are secure.",
        ),
        (of_records(NodeRecord(replace_one=True)), "which of two records", "has weaker protection."),
        (
            of_records(NodeBoundedDegree(max_degree=9)),
            "all of the person's edges",
            "no node exceeds the stated number of edges.",
        ),
        (
            of_records(NodeBoundedDegree(max_degree=9), edge_use="never"),
            "was used",
            "HMAC-SHA256 are secure.",
        ),
    ],
)
def test_plain_words_about_records(guarantee: Guarantee, question: str, ends: str) -> None:
    words = guarantee.summary()
    assert question in words
    assert words.endswith(ends)
    assert f"at most {percent_up(guarantee.max_tpr())} in 100" in words


def test_pages_about_records_describe_records() -> None:
    guarantee = of_records(NodeRecord())
    page = privacy_page(guarantee, ())
    assert "Queries of the records" in page
    assert "features and labels alone" not in page  # which are protected here
    card = Card(dataset="a graph", other_runs=other_runs(0, 1, guarantee, compared=True))
    assert card.other_runs.startswith("An MLP was trained on the same records for comparison.")
    assert "on the same records, and an MLP was trained next to each" in other_runs(
        0, 3, guarantee, compared=True
    )
    assert other_runs(0, 1, guarantee) == ""


def test_names_of_classes_are_no_markup_of_the_card() -> None:
    from graphveil.data import synthetic
    from graphveil.data.recipes import RECIPES
    from graphveil.estimators.fitted import snapshot_of
    from graphveil.estimators.mlp import MLP
    from graphveil.publish.cards import model_card

    graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    names = tuple(f"[x](y)<b>\n# {number}" for number in range(graph.num_classes))
    model = MLP(unit="undirected-edge", seed=0, epochs=1).fit(graph.replace(class_names=names))
    card = model_card(snapshot_of(model.fitted), None)
    assert "[x](y)" not in card
    assert "<b>" not in card
    assert r"\[x\]\(y\)\<b\> \# 0" in card

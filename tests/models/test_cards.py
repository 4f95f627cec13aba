"""What people read: a figure after "at most" is never below the proved one."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphveil.models.cards import catch_rate, percent_up, plain_words
from graphveil.privacy import Composed, Gaussian, Guarantee, UndirectedEdge


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
    guarantee = Guarantee.of(UndirectedEdge(), Gaussian(mu), delta=1e-7, releases=1)
    figure = percent_up(guarantee.attacker_rate)
    assert f"at most {figure} %" in catch_rate(guarantee)
    assert f"at most {figure} in 100" in plain_words(guarantee)


def test_a_model_that_asks_nothing_is_caught_as_often_as_blind_guessing() -> None:
    nothing = Guarantee.of(UndirectedEdge(), Composed(()), delta=1e-7, releases=0)
    assert catch_rate(nothing).endswith("at most 1.00 %")
